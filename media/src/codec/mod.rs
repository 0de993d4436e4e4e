//! Codecs as a forwarder sees them: which one, which profile, and where a decoder can begin.

pub mod av1;
pub mod descriptor;
pub mod h264;
pub mod vp8;
pub mod vp9;

/// Audio or video.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Sound: never waits for video.
    Audio,
    /// Pictures.
    Video,
}

/// A codec that Rondo forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Codec {
    /// RFC 6716, RTP payload RFC 7587.
    Opus,
    /// RFC 6386, RTP payload RFC 7741.
    Vp8,
    /// RTP payload RFC 9628.
    Vp9,
    /// RTP payload RFC 6184.
    H264,
    /// RTP payload: AOM "RTP Payload Format For AV1".
    Av1,
}

impl Codec {
    /// Every codec, in label order.
    pub const ALL: [Codec; 5] = [Codec::Opus, Codec::Vp8, Codec::Vp9, Codec::H264, Codec::Av1];

    /// Sound or pictures.
    pub fn kind(self) -> Kind {
        match self {
            Codec::Opus => Kind::Audio,
            Codec::Vp8 | Codec::Vp9 | Codec::H264 | Codec::Av1 => Kind::Video,
        }
    }

    /// RTP clock rate in Hz.
    pub fn clock_hz(self) -> u32 {
        match self.kind() {
            Kind::Audio => 48_000,
            Kind::Video => 90_000,
        }
    }

    /// The metric label, and the encoding name of an `a=rtpmap` in lower case.
    pub fn label(self) -> &'static str {
        match self {
            Codec::Opus => "opus",
            Codec::Vp8 => "vp8",
            Codec::Vp9 => "vp9",
            Codec::H264 => "h264",
            Codec::Av1 => "av1",
        }
    }

    /// Whether a decoder can begin with this RTP payload: the first packet of a key frame, with the
    /// parameter sets it needs in the same or the preceding packets of the frame.
    pub fn starts_key_frame(self, payload: &[u8]) -> bool {
        match self {
            Codec::Opus => true,
            Codec::Vp8 => vp8::starts_key_frame(payload),
            Codec::Vp9 => vp9::starts_key_frame(payload),
            Codec::H264 => h264::starts_key_frame(payload),
            Codec::Av1 => av1::starts_key_frame(payload),
        }
    }
}

impl Codec {
    /// The payload descriptor, of codecs that have one with numbers of pictures or layers.
    pub fn descriptor(self, payload: &[u8]) -> Option<descriptor::Descriptor> {
        match self {
            Codec::Vp8 => vp8::descriptor(payload),
            Codec::Vp9 => vp9::descriptor(payload),
            Codec::Opus | Codec::H264 | Codec::Av1 => None,
        }
    }

    /// Width and height in pixels, where this payload begins a key frame and says so; of VP9 that of its highest spatial
    /// layer. Not read of others, which put it where a forwarder has no other reason to look.
    pub fn key_frame_size(self, payload: &[u8]) -> Option<(u16, u16)> {
        match self {
            Codec::Vp8 => vp8::key_frame_size(payload),
            Codec::Vp9 => self.spatial_sizes(payload)?.sizes().last().copied(),
            Codec::Opus | Codec::H264 | Codec::Av1 => None,
        }
    }

    /// Sizes of the spatial layers inside the stream, where this payload tells them.
    pub fn spatial_sizes(self, payload: &[u8]) -> Option<vp9::SpatialSizes> {
        match self {
            Codec::Vp9 => vp9::spatial_sizes(payload),
            Codec::Opus | Codec::Vp8 | Codec::H264 | Codec::Av1 => None,
        }
    }
}

/// What a decoder must understand: a codec and the part of its parameters that cannot be negotiated.
///
/// Levels are left out on purpose: they only limit what is sent (RFC 6184 §8.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Format {
    /// The codec.
    pub codec: Codec,
    /// VP9 `profile-id`, AV1 `profile`, H.264 profile as [`h264::Profile`] gives it; 0 elsewhere.
    pub profile: u8,
    /// H.264 `packetization-mode`; 0 elsewhere.
    pub packetization: u8,
}
