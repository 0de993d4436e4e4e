//! A viewer for egress tests: sections, packets, a sink that keeps datagrams, and the keys of the other side.
#![allow(dead_code)] // Each test binary uses a part.

use rondo_media::codec::{Codec, Format, Kind};
use rondo_media::ids::Random;
use rondo_media::packet::{AudioLevel, Packet, StreamClock};
use rondo_media::send::{Egress, EgressConfig, PacketSink, Protection};
use rondo_media::transport::{ExtensionIds, Section, SectionFormat, SrtpKeys, SrtpProfile};
use rondo_media::units::WallClock;
use std::time::{Duration, Instant};

pub const OPUS: Format = Format { codec: Codec::Opus, profile: 0, packetization: 0 };
pub const VP8: Format = Format { codec: Codec::Vp8, profile: 0, packetization: 0 };
pub const H264: Format = Format { codec: Codec::H264, profile: 1, packetization: 1 };

pub const AUDIO: usize = 0;
pub const VIDEO: usize = 1;
pub const AUDIO_SSRC: u32 = 0x1111_0001;
pub const VIDEO_SSRC: u32 = 0x2222_0001;
pub const VIDEO_RTX_SSRC: u32 = 0x2222_0002;
pub const VP8_PT: u8 = 96;
pub const VP8_RTX_PT: u8 = 97;
pub const PROFILES: [SrtpProfile; 3] =
    [SrtpProfile::AeadAes256Gcm, SrtpProfile::AeadAes128Gcm, SrtpProfile::Aes128CmSha1_80];

/// One audio and one video section, with everything agreed on.
pub fn sections() -> Vec<Section> {
    let extensions = ExtensionIds { mid: Some(4), abs_send_time: Some(2), twcc: Some(3), audio_level: Some(1) };
    let opus = SectionFormat { pt: 111, rtx_pt: None, format: OPUS };
    let vp8 = SectionFormat { pt: VP8_PT, rtx_pt: Some(VP8_RTX_PT), format: VP8 };
    vec![
        Section {
            mid: "0".into(),
            kind: Kind::Audio,
            formats: vec![opus],
            extensions,
            ssrc: Some(AUDIO_SSRC),
            rtx_ssrc: None,
            twcc: true,
            nack: false,
            layers: Vec::new(),
        },
        Section {
            mid: "1".into(),
            kind: Kind::Video,
            formats: vec![vp8],
            extensions,
            ssrc: Some(VIDEO_SSRC),
            rtx_ssrc: Some(VIDEO_RTX_SSRC),
            twcc: true,
            nack: true,
            layers: Vec::new(),
        },
    ]
}

/// Keys of both ends: ours, and the viewer's with the directions swapped.
pub fn keys(profile: SrtpProfile) -> (SrtpKeys, SrtpKeys) {
    let (key, salt) = match profile {
        SrtpProfile::AeadAes256Gcm => (32, 12),
        SrtpProfile::AeadAes128Gcm => (16, 12),
        SrtpProfile::Aes128CmSha1_80 => (16, 14),
    };
    let (a, b) = ((vec![0xa1; key], vec![0xa2; salt]), (vec![0xb1; key], vec![0xb2; salt]));
    let ours = SrtpKeys {
        profile,
        send_key: a.0.clone(),
        send_salt: a.1.clone(),
        receive_key: b.0.clone(),
        receive_salt: b.1.clone(),
    };
    let theirs = SrtpKeys { profile, send_key: b.0, send_salt: b.1, receive_key: a.0, receive_salt: a.1 };
    (ours, theirs)
}

/// Where virtual time begins.
#[expect(clippy::disallowed_methods, reason = "an Instant cannot be made otherwise; only distances to it matter")]
pub fn origin() -> Instant {
    Instant::now()
}

/// Repeats from its seed.
pub struct Seeded(pub u64);

impl Random for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            // SplitMix64.
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            *byte = (z ^ (z >> 31)) as u8;
        }
    }
}

/// Keeps what is sent.
#[derive(Default)]
pub struct Sent {
    pub buffer: Vec<u8>,
    pub starts: Vec<usize>,
}

impl PacketSink for Sent {
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }
    fn finish(&mut self, start: usize) {
        self.starts.push(start);
    }
}

impl Sent {
    /// The datagrams since the last call.
    pub fn take(&mut self) -> Vec<Vec<u8>> {
        let ends = self.starts.iter().skip(1).copied().chain([self.buffer.len()]);
        let datagrams = self.starts.iter().zip(ends).map(|(start, end)| self.buffer[*start..end].to_vec()).collect();
        self.clear();
        datagrams
    }

    pub fn clear(&mut self) {
        self.buffer.clear();
        self.starts.clear();
    }
}

/// Whether a datagram is RTCP (RFC 5761 §4).
pub fn is_rtcp(datagram: &[u8]) -> bool {
    (192..=223).contains(&datagram[1])
}

/// An RTP packet as a viewer reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rtp {
    pub pt: u8,
    pub marker: bool,
    pub seq: u16,
    pub rtp_time: u32,
    pub ssrc: u32,
    pub header: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Rtp {
    pub fn read(packet: &[u8], header_len: usize) -> Self {
        let word = |i: usize| u32::from_be_bytes(packet[i..i + 4].try_into().unwrap());
        Self {
            pt: packet[1] & 0x7f,
            marker: packet[1] & 0x80 != 0,
            seq: u16::from_be_bytes([packet[2], packet[3]]),
            rtp_time: word(4),
            ssrc: word(8),
            header: packet[..header_len].to_vec(),
            payload: packet[header_len..].to_vec(),
        }
    }
}

/// An egress with its viewer.
pub struct Pair {
    pub t0: Instant,
    pub egress: Egress,
    pub viewer: Protection,
    pub sent: Sent,
}

impl Pair {
    pub fn new(profile: SrtpProfile, sections: &[Section], seed: u64) -> Self {
        let (ours, theirs) = keys(profile);
        Self::of((Protection::new(&ours).unwrap(), Protection::new(&theirs).unwrap()), sections, seed)
    }

    /// The same with the protection given: ours, and the viewer's.
    pub fn of((ours, viewer): (Protection, Protection), sections: &[Section], seed: u64) -> Self {
        let t0 = origin();
        let wall = WallClock::new(t0, Duration::from_secs(1_700_000_000));
        let config = EgressConfig { cname: "ann".into(), wall, rtx_kept: EgressConfig::RTX_KEPT };
        let egress = Egress::new(ours, sections, config, &mut Seeded(seed));
        Self { t0, egress, viewer, sent: Sent::default() }
    }

    /// What was sent since the last call: RTP and plain RTCP.
    pub fn receive(&mut self) -> (Vec<Rtp>, Vec<Vec<u8>>) {
        let (mut rtp, mut rtcp) = (Vec::new(), Vec::new());
        for mut datagram in self.sent.take() {
            if is_rtcp(&datagram) {
                let len = self.viewer.open_rtcp(&mut datagram).unwrap();
                rtcp.push(datagram[..len].to_vec());
            } else {
                let opened = self.viewer.open_rtp(&mut datagram).unwrap();
                rtp.push(Rtp::read(&datagram[..opened.len], opened.header_len));
            }
        }
        (rtp, rtcp)
    }

    /// Protects what the viewer says.
    pub fn seal(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut datagram = Vec::new();
        write(&mut datagram);
        self.viewer.seal_rtcp(&mut datagram, 0).unwrap();
        datagram
    }
}

/// A packet of 100 bytes that all tell its number.
pub fn packet(at: Instant, ext_seq: u64, rtp_time: u32) -> Packet {
    Packet {
        ext_seq,
        rtp_time,
        marker: false,
        key_frame: false,
        level: Some(AudioLevel { dbov: 20, voice: true }),
        arrived: at,
        payload: vec![ext_seq as u8; 100].into(),
    }
}

/// The first packet of a key frame.
pub fn key_packet(at: Instant, ext_seq: u64, rtp_time: u32) -> Packet {
    Packet { key_frame: true, ..packet(at, ext_seq, rtp_time) }
}

/// A packet that held nothing but padding.
pub fn padding(at: Instant, ext_seq: u64, rtp_time: u32) -> Packet {
    Packet { payload: Vec::new().into(), ..packet(at, ext_seq, rtp_time) }
}

pub fn clock(at: Instant, rtp_time: u32) -> StreamClock {
    StreamClock { at, rtp_time, synced: true }
}
