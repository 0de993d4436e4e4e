//! Session descriptions (RFC 8866) as offers and answers (RFC 3264, RFC 9429) of one bundled transport.
//!
//! Offers are read leniently by a total reader of our own, agreed on in [`negotiate`], and answered strictly.
//! str0m is never given SDP: its reader is stricter than the RFCs in places, keeps payload types per session
//! instead of per section, truncates identifiers, and cannot answer some layers of several.

mod answer;
mod attributes;
mod formats;
mod fragment;
mod h264;
mod negotiate;
mod offer;

pub use answer::Answer;
pub use fragment::Fragment;
pub use offer::Offer;

pub(crate) use answer::{AnswerParts, Ice};
pub(crate) use attributes::{Extension, check_candidate};
pub(crate) use fragment::write_fragment;
pub(crate) use negotiate::{Accepted, Agreed, Declared, Security, negotiate};

/// Why an offer or a trickle fragment was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SdpRefusal {
    /// It cannot be read.
    #[error("line {line}: {reason}")]
    Malformed {
        /// Line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// It can be read, but asks for something that this server does not do.
    #[error("{0}")]
    Unsupported(&'static str),
    /// No section has a codec that both sides know.
    #[error("no section has a codec that this server forwards (Opus; VP8, H.264, VP9, AV1)")]
    NoCommonCodec,
    /// Without a fingerprint nobody could tell who answers DTLS (RFC 8827 §6.5).
    #[error("a=fingerprint is missing")]
    NoFingerprint,
    /// More of something than is accepted.
    #[error("more than {limit} {what}")]
    TooBig {
        /// What there is too much of.
        what: &'static str,
        /// How much is accepted.
        limit: usize,
    },
}

impl SdpRefusal {
    /// Whether the text itself is at fault (HTTP 400) rather than what it asks for (406).
    pub fn is_malformed(&self) -> bool {
        match self {
            SdpRefusal::Malformed { .. } | SdpRefusal::NoFingerprint | SdpRefusal::TooBig { .. } => true,
            SdpRefusal::Unsupported(_) | SdpRefusal::NoCommonCodec => false,
        }
    }
}

/// Bytes of one offer.
pub const OFFER_BYTES_MAX: usize = 256 * 1024;
/// m-lines of one offer. A viewer of a large room offers one per track it may get.
pub const SECTIONS_MAX: usize = 256;
/// Lines of the session part, and of each section.
pub const SECTION_LINES_MAX: usize = 1_000;
/// Candidates of one offer, and of one transport over its life.
pub const CANDIDATES_MAX: usize = 256;
/// Payload types of one m-line: there are no more than 128.
pub const FORMATS_MAX: usize = 128;
/// Simulcast layers of one section.
pub const RIDS_MAX: usize = 16;
/// SSRCs that one section may name.
pub const SSRCS_MAX: usize = 64;
/// Groups of one offer.
pub const GROUPS_MAX: usize = 16;
