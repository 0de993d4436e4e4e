//! One peer's ICE, DTLS and SRTP (str0m), or a plain variant of it for simulations.

mod crypto;
mod failure;
mod ice;
mod peek;
mod plain;
mod setup;
mod srtp;
mod streams;
mod webrtc;

pub use crypto::{NoCrypto, Shared};
pub use failure::DtlsFailure;
pub use plain::Plain;
pub use webrtc::WebRtc;

use crate::codec::{Format, Kind};
use crate::packet::{AudioLevel, Payload};
use crate::sdp::{Answer, SdpRefusal};
use crate::send::Protection;
use crate::send::srtp::KeyError;
use crate::units::Bitrate;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Simulcast layers of one section that are taken; what an offer has beyond is not answered.
pub const LAYERS_MAX: usize = 3;

/// What a transport is for; one carries media one way only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The peer sends: WHIP.
    Publish,
    /// The peer receives: WHEP.
    Play,
}

/// Everything that a join needs to know.
#[derive(Debug, Clone, Copy)]
pub struct Accept<'a> {
    /// What the transport is for.
    pub role: Role,
    /// Addresses at which the worker's socket is reached, best first.
    pub candidates: &'a [SocketAddr],
    /// The peer's SDP offer.
    pub offer: &'a str,
}

/// Why a datagram was not used. None of these ends the transport; the caller counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DatagramRefused {
    /// Neither STUN, DTLS, RTP nor RTCP (RFC 7983), or STUN that a lite agent does not take.
    #[error("is none of ours")]
    NotOurs,
    /// Cannot be read.
    #[error("cannot be read")]
    Unreadable,
    /// Longer than any that a peer sends.
    #[error("has {got} bytes, at most {limit} are read")]
    TooLong {
        /// Its length.
        got: usize,
        /// The longest accepted.
        limit: usize,
    },
    /// A check whose credentials are not this transport's.
    #[error("is not authenticated")]
    NotAuthenticated,
    /// DTLS or an unknown SSRC from an address that no check has proven.
    #[error("comes from an address that no check has proven")]
    UnknownAddress,
    /// No candidate of the address family it was sent to.
    #[error("was sent to an address family without candidate")]
    NoCandidate,
    /// RTP or RTCP before the DTLS handshake is done.
    #[error("came before the keys")]
    NoKeys,
    /// RTP of an SSRC that belongs to no accepted section or layer.
    #[error("has an SSRC that belongs to no section")]
    UnknownSsrc,
    /// RTP or RTCP on a playing transport: the send side opens it.
    #[error("is for the send side")]
    NotForTransport,
    /// The transport is closed.
    #[error("came after the end")]
    Closed,
}

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

impl SrtpProfile {
    /// Length of a master key in bytes.
    pub fn key_len(self) -> usize {
        match self {
            SrtpProfile::AeadAes256Gcm => 32,
            SrtpProfile::AeadAes128Gcm | SrtpProfile::Aes128CmSha1_80 => 16,
        }
    }
    /// Length of a master salt in bytes.
    pub fn salt_len(self) -> usize {
        match self {
            SrtpProfile::AeadAes256Gcm | SrtpProfile::AeadAes128Gcm => 12,
            SrtpProfile::Aes128CmSha1_80 => 14,
        }
    }
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
    /// Publish only: names of its simulcast layers, at most [`LAYERS_MAX`], in the order of the offer, which says nothing
    /// of their size. Empty: one stream.
    pub layers: Vec<String>,
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
    /// Simulcast layer, as an index into [`Section::layers`]; 0 where there are none.
    pub layer: u8,
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
    /// An authentic check came again from where the peer is: the address is still its own.
    PeerStays {
        /// The peer's address.
        peer: SocketAddr,
    },
    /// A restart of ICE is complete: checks that name this old ufrag of ours are taken no longer.
    UfragRetired(String),
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
    /// The DTLS handshake failed. The peer was told by an alert where that is possible.
    Dtls(DtlsFailure),
    /// Anything else that the transport cannot go on from.
    Error,
}

/// Our half of a new ICE session (RFC 8445 §9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IceRestart {
    /// Our new username fragment; the old one stays valid until the peer nominates an address in the new session.
    pub local_ufrag: String,
    /// Ours of a restart before this one that was not complete yet and is given up.
    pub given_up: Option<String>,
    /// What the peer needs to know, as `application/trickle-ice-sdpfrag` (RFC 8840 §9).
    pub fragment: String,
}

/// Why ICE was not restarted. The ICE session stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RestartRefused {
    /// Too many restarts in a short time.
    #[error("too many ICE restarts; the next one is possible in {} s", retry_after.as_secs())]
    TooOften {
        /// Until the next one is possible.
        retry_after: Duration,
    },
    /// The transport is closed.
    #[error("the transport has ended")]
    Closed,
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

/// One peer. Made off the worker and moved to it; everything after that happens on the worker.
pub enum Transport {
    /// ICE, DTLS and SRTP.
    WebRtc(Box<WebRtc>),
    /// Nothing of these: simulations.
    Plain(Box<Plain>),
}

impl Transport {
    /// Answers an offer. The answer lacks the names of tracks: see [`Answer::finish`].
    ///
    /// # Errors
    /// [`SdpRefusal`]: the door tells the client.
    pub fn accept(now: Instant, shared: &Shared, accept: Accept<'_>) -> Result<(Transport, Answer), SdpRefusal> {
        match shared.webrtc() {
            Ok(shared) => {
                let (transport, answer) = WebRtc::accept(now, shared, &accept)?;
                Ok((Transport::WebRtc(Box::new(transport)), answer))
            }
            Err(number) => {
                let (transport, answer) = Plain::accept(number, &accept)?;
                Ok((Transport::Plain(Box::new(transport)), answer))
            }
        }
    }

    /// The audio and video sections of the offer, in order; refused ones have no formats.
    pub fn sections(&self) -> &[Section] {
        match self {
            Transport::WebRtc(t) => t.sections(),
            Transport::Plain(t) => t.sections(),
        }
    }

    /// How packets to this peer are protected, from the keys that [`TransportEvent::DtlsConnected`] brought.
    ///
    /// # Errors
    /// Keys that do not fit their profile.
    pub fn protection(&self, keys: &SrtpKeys) -> Result<Protection, KeyError> {
        match self {
            Transport::WebRtc(_) => Protection::new(keys),
            Transport::Plain(_) => Ok(Protection::Plain),
        }
    }

    /// Our newest ICE username fragment: the first part of the USERNAME in the peer's checks.
    pub fn local_ufrag(&self) -> &str {
        match self {
            Transport::WebRtc(t) => t.local_ufrag(),
            Transport::Plain(t) => t.local_ufrag(),
        }
    }

    /// The peer's newest ICE username fragment.
    pub fn remote_ufrag(&self) -> &str {
        match self {
            Transport::WebRtc(t) => t.remote_ufrag(),
            Transport::Plain(t) => t.remote_ufrag(),
        }
    }

    /// A datagram arrived `from` the peer at the socket address `to`, both in canonical form (no IPv4 inside
    /// IPv6). RTP and RTCP of a playing transport are not for it. Poll afterwards.
    ///
    /// # Errors
    /// [`DatagramRefused`]: to be counted; the transport goes on.
    pub fn receive(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to: SocketAddr,
        datagram: &[u8],
    ) -> Result<(), DatagramRefused> {
        match self {
            Transport::WebRtc(t) => t.receive(now, from, to, datagram),
            Transport::Plain(t) => t.receive(now, from, datagram),
        }
    }

    /// The time that [`Output::Wait`] named has come (earlier does no harm). Poll afterwards.
    pub fn wake(&mut self, now: Instant) {
        match self {
            Transport::WebRtc(t) => t.wake(now),
            Transport::Plain(t) => t.wake(now),
        }
    }

    /// What is to be done next; to be called until it says [`Output::Wait`], after every other call.
    pub fn poll(&mut self) -> Output {
        match self {
            Transport::WebRtc(t) => t.poll(),
            Transport::Plain(t) => t.poll(),
        }
    }

    /// Asks the publisher of `section` for a key frame of one of its layers, by PLI, or FIR where PLI was not agreed on.
    /// Nothing is coalesced here. Poll afterwards.
    pub fn request_key_frame(&mut self, now: Instant, section: usize, layer: u8) {
        match self {
            Transport::WebRtc(t) => t.request_key_frame(now, section, layer),
            Transport::Plain(t) => t.request_key_frame(section, layer),
        }
    }

    /// Asks the publisher of `section` to send no more than so much of it, by REMB
    /// (draft-alvestrand-rmcat-remb-03), where that was agreed on. Poll afterwards.
    pub fn cap(&mut self, now: Instant, section: usize, most: Bitrate) {
        match self {
            Transport::WebRtc(t) => t.cap(now, section, most),
            Transport::Plain(t) => t.cap(section, most),
        }
    }

    /// A candidate that the peer trickled, with or without `candidate:`. It is checked and counted, not kept: a
    /// lite agent sends no checks (RFC 8445 §6.1.1) and learns each address from the check that comes from it,
    /// `.local` names included.
    ///
    /// # Errors
    /// [`SdpRefusal::Malformed`] or [`SdpRefusal::TooBig`].
    pub fn add_remote_candidate(&mut self, _now: Instant, candidate: &str) -> Result<(), SdpRefusal> {
        match self {
            Transport::WebRtc(t) => t.add_remote_candidate(candidate),
            Transport::Plain(t) => t.add_remote_candidate(candidate),
        }
    }

    /// The peer begins a new ICE session under `remote_ufrag` (RFC 8445 §9, RFC 9725 §4.3.3). DTLS and SRTP go on;
    /// media stays on the old path until the peer nominates an address in the new session. Its password is not
    /// needed: a lite agent sends no checks. Poll afterwards.
    ///
    /// # Errors
    /// [`RestartRefused`]; nothing has changed then.
    pub fn restart_ice(&mut self, now: Instant, remote_ufrag: &str) -> Result<IceRestart, RestartRefused> {
        match self {
            Transport::WebRtc(t) => t.restart_ice(now, remote_ufrag),
            Transport::Plain(t) => t.restart_ice(remote_ufrag),
        }
    }

    /// Ends the transport; a connected peer is told by DTLS, through [`Transport::poll`].
    pub fn close(&mut self, now: Instant) {
        match self {
            Transport::WebRtc(t) => t.close(now),
            Transport::Plain(t) => t.close(),
        }
    }
}
