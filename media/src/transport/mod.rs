//! One peer's ICE, DTLS and SRTP (str0m), or a plain variant of it for simulations.

use crate::codec::{Format, Kind};
use crate::packet::{AudioLevel, Payload};
use std::net::SocketAddr;
use std::time::Instant;

/// SRTP protection profile agreed on in the DTLS handshake (RFC 5764 §4.1.2, RFC 7714 §14.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SrtpProfile {
    /// AES-256-GCM, 32-byte key, 12-byte salt.
    AeadAes256Gcm,
    /// AES-128-GCM, 16-byte key, 12-byte salt.
    AeadAes128Gcm,
    /// AES-128 counter mode with HMAC-SHA1-80, 16-byte key, 14-byte salt.
    Aes128CmSha1_80,
}

/// Master keys of both directions, as the DTLS exporter gives them, sorted by who sends.
#[derive(Clone)]
pub struct SrtpKeys {
    /// The agreed profile.
    pub profile: SrtpProfile,
    /// Master key with which we send.
    pub send_key: Vec<u8>,
    /// Master salt with which we send.
    pub send_salt: Vec<u8>,
    /// Master key with which the peer sends.
    pub receive_key: Vec<u8>,
    /// Master salt with which the peer sends.
    pub receive_salt: Vec<u8>,
}

impl std::fmt::Debug for SrtpKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys are never printed.
        f.debug_struct("SrtpKeys").field("profile", &self.profile).finish_non_exhaustive()
    }
}

/// One section (m-line) as it was answered.
#[derive(Debug, Clone)]
pub struct Section {
    /// Media identification tag, 1 to 255 characters.
    pub mid: String,
    /// Audio or video.
    pub kind: Kind,
    /// Payload types both sides know, best first. Empty: the section is refused (port 0) or no media.
    pub formats: Vec<SectionFormat>,
    /// Header extension ids agreed on in this section.
    pub extensions: ExtensionIds,
    /// Play only: the SSRC we send with (str0m never sends on it), and its RTX SSRC where RTX was agreed on.
    pub ssrc: Option<u32>,
    /// Play only: the SSRC of retransmissions.
    pub rtx_ssrc: Option<u32>,
    /// The peer asked for transport-wide feedback and knows its extension.
    pub twcc: bool,
    /// The peer sends Generic NACK.
    pub nack: bool,
}

/// One payload type of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionFormat {
    /// Payload type, 0–127.
    pub pt: u8,
    /// Payload type of its retransmissions (RFC 4588), where agreed on.
    pub rtx_pt: Option<u8>,
    /// What it carries.
    pub format: Format,
}

/// Header extension ids (RFC 8285) by meaning; `None` where not agreed on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExtensionIds {
    /// `urn:ietf:params:rtp-hdrext:sdes:mid`
    pub mid: Option<u8>,
    /// `http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time`
    pub abs_send_time: Option<u8>,
    /// `http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01`
    pub twcc: Option<u8>,
    /// `urn:ietf:params:rtp-hdrext:ssrc-audio-level`
    pub audio_level: Option<u8>,
}

/// One received and unprotected RTP packet of a publisher.
#[derive(Debug, Clone)]
pub struct ReceivedRtp {
    /// Synchronisation source.
    pub ssrc: u32,
    /// Section it belongs to, as an index into the transport's sections.
    pub section: usize,
    /// What it carries.
    pub format: Format,
    /// Extended sequence number.
    pub ext_seq: u64,
    /// RTP timestamp as sent.
    pub rtp_time: u32,
    /// Marker bit.
    pub marker: bool,
    /// Loudness, where told.
    pub level: Option<AudioLevel>,
    /// Payload without padding.
    pub payload: Payload,
    /// The sender's newest sender report: NTP time (64 bits) and the RTP time it stands for.
    pub sender_report: Option<(u64, u32)>,
}

/// What happened on a transport.
#[derive(Debug)]
pub enum TransportEvent {
    /// A candidate pair answers: media can reach `peer`.
    IceConnected {
        /// The peer's address.
        peer: SocketAddr,
    },
    /// The peer is reached at another address from now on.
    PeerMoved {
        /// The peer's new address.
        peer: SocketAddr,
    },
    /// DTLS is up; for a play transport, these keys protect what we send.
    DtlsConnected(SrtpKeys),
    /// An RTP packet arrived.
    Rtp(ReceivedRtp),
    /// The peer closed DTLS, or the transport failed beyond repair.
    Closed(ClosedBy),
}

/// Who ended a transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedBy {
    /// DTLS close notify from the peer.
    Peer,
    /// DTLS handshake failed (fingerprint, certificate, alert).
    Dtls,
    /// Anything else that the transport cannot go on from.
    Error,
}

/// What a transport wants; poll until it says [`Output::Wait`].
#[derive(Debug)]
pub enum Output {
    /// Send `datagram` to `to`.
    Transmit {
        /// Destination.
        to: SocketAddr,
        /// Contents.
        datagram: Vec<u8>,
    },
    /// Something happened.
    Event(TransportEvent),
    /// Nothing more now; wake the transport at this time.
    Wait(Option<Instant>),
}
