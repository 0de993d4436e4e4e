//! From payload types of an offer to [`SectionFormat`]s, and back to the lines that answer them.

use super::h264;
use super::offer::OfferSection;
use crate::codec::{Codec, Format, Kind};
use crate::transport::SectionFormat;
use std::fmt::Write;

/// Feedback messages of one payload type (RFC 4585 §4.2, RFC 5104 §7.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Feedback {
    /// Generic NACK.
    pub(crate) nack: bool,
    /// Picture Loss Indication.
    pub(crate) pli: bool,
    /// Full Intra Request.
    pub(crate) fir: bool,
    /// Transport-wide feedback.
    pub(crate) transport_cc: bool,
    /// Receiver Estimated Maximum Bitrate.
    pub(crate) remb: bool,
}

/// One payload type that both sides know, with what the answer says of it.
#[derive(Debug, Clone)]
pub(crate) struct AgreedFormat {
    pub(crate) format: SectionFormat,
    pub(crate) feedback: Feedback,
    fmtp: String,
}

impl AgreedFormat {
    /// Writes `a=rtpmap`, `a=rtcp-fb` and `a=fmtp` of it and of its retransmissions.
    pub(super) fn write(&self, twcc: bool, out: &mut String) {
        let SectionFormat { pt, rtx_pt, format } = self.format;
        let rtpmap = match format.codec {
            Codec::Opus => "opus/48000/2",
            Codec::Vp8 => "VP8/90000",
            Codec::Vp9 => "VP9/90000",
            Codec::H264 => "H264/90000",
            Codec::Av1 => "AV1/90000",
        };
        // Writing to a String cannot fail.
        let _ = write!(out, "a=rtpmap:{pt} {rtpmap}\r\n");
        let Feedback { nack, pli, fir, transport_cc, remb } = self.feedback;
        let messages = [
            (remb, "goog-remb"),
            (transport_cc && twcc, "transport-cc"),
            (fir, "ccm fir"),
            (nack, "nack"),
            (pli, "nack pli"),
        ];
        for (_, message) in messages.into_iter().filter(|(agreed, _)| *agreed) {
            let _ = write!(out, "a=rtcp-fb:{pt} {message}\r\n");
        }
        if !self.fmtp.is_empty() {
            let _ = write!(out, "a=fmtp:{pt} {}\r\n", self.fmtp);
        }
        if let Some(rtx) = rtx_pt {
            let _ = write!(out, "a=rtpmap:{rtx} rtx/90000\r\na=fmtp:{rtx} apt={pt}\r\n");
        }
    }
}

/// The formats of a section that this server forwards, best first: in the offerer's order where its first
/// choice is one of them, else VP8 and H.264 before the others (interfaces §5).
pub(super) fn agree(section: &OfferSection, kind: Kind) -> Vec<AgreedFormat> {
    let numbers = section.formats.iter().filter_map(|f| super::attributes::payload_type(f));
    // With RTCP on the same port these could not be told from RTCP (RFC 5761 §4).
    let offered: Vec<u8> = numbers.filter(|pt| !(64..=95).contains(pt)).collect();
    let mut agreed: Vec<AgreedFormat> = Vec::new();
    for pt in &offered {
        let seen = agreed.iter().any(|a| a.format.pt == *pt || a.format.rtx_pt == Some(*pt));
        let Some((format, fmtp)) = format_of(section, *pt).filter(|(f, _)| f.codec.kind() == kind) else { continue };
        if !seen {
            let rtx_pt = if kind == Kind::Video { repair_of(section, &offered, *pt) } else { None };
            let feedback = feedback_of(section, *pt, kind);
            agreed.push(AgreedFormat { format: SectionFormat { pt: *pt, rtx_pt, format }, feedback, fmtp });
        }
    }
    if agreed.first().map(|a| a.format.pt) != offered.first().copied() {
        agreed.sort_by_key(|a| match a.format.format.codec {
            Codec::Vp8 => 0,
            Codec::H264 => 1,
            Codec::Opus | Codec::Vp9 | Codec::Av1 => 2,
        });
    }
    agreed
}

/// The format of a payload type and the `a=fmtp` value that answers it.
fn format_of(section: &OfferSection, pt: u8) -> Option<(Format, String)> {
    let map = section.rtpmaps.iter().find(|m| m.pt == pt)?;
    let number = |key: &str, default: u8| match section.parameter(pt, key) {
        Some(value) => value.parse::<u8>().ok(),
        None => Some(default),
    };
    let plain = |codec, profile, fmtp| Some((Format { codec, profile, packetization: 0 }, fmtp));
    match (map.encoding.as_str(), map.clock_hz) {
        // RFC 7587 §7: always two channels; some write it without.
        ("opus", 48_000) if matches!(map.channels, Some(2) | None) => plain(Codec::Opus, 0, opus(section, pt)),
        ("vp8", 90_000) => plain(Codec::Vp8, 0, String::new()),
        ("vp9", 90_000) => {
            let profile = number("profile-id", 0).filter(|p| matches!(p, 0 | 2))?;
            plain(Codec::Vp9, profile, format!("profile-id={profile}"))
        }
        ("av1", 90_000) => {
            let profile = number("profile", 0).filter(|p| *p <= 2)?;
            let mut fmtp = format!("profile={profile}");
            for key in ["level-idx", "tier"] {
                if let Some(value) = section.parameter(pt, key).and_then(|v| v.parse::<u8>().ok()) {
                    let _ = write!(fmtp, ";{key}={value}");
                }
            }
            plain(Codec::Av1, profile, fmtp)
        }
        ("h264", 90_000) => {
            let offered = match section.parameter(pt, "profile-level-id") {
                Some(value) => h264::parse(value)?,
                None => h264::DEFAULT,
            };
            let profile = h264::forwarded(offered)?;
            let packetization = number("packetization-mode", 0).filter(|mode| *mode <= 1)?;
            let asymmetry = section.parameter(pt, "level-asymmetry-allowed") == Some("1");
            let fmtp = format!(
                "level-asymmetry-allowed={};packetization-mode={packetization};profile-level-id={:06x}",
                u8::from(asymmetry),
                h264::answer(offered, asymmetry)
            );
            Some((Format { codec: Codec::H264, profile, packetization }, fmtp))
        }
        _ => None,
    }
}

/// What the receivers of an Opus stream like (RFC 7587 §7.1); stereo only for who offers it.
fn opus(section: &OfferSection, pt: u8) -> String {
    let asked = |key| section.parameter(pt, key) == Some("1");
    let mut fmtp = String::from("minptime=10;useinbandfec=1");
    if asked("stereo") || asked("sprop-stereo") {
        fmtp.push_str(";stereo=1");
    }
    if asked("usedtx") {
        fmtp.push_str(";usedtx=1");
    }
    fmtp
}

/// The payload type that retransmits `pt` (RFC 4588 §8.1).
fn repair_of(section: &OfferSection, offered: &[u8], pt: u8) -> Option<u8> {
    let rtx = section.rtpmaps.iter().filter(|m| m.encoding == "rtx" && m.pt != pt && offered.contains(&m.pt));
    rtx.map(|m| m.pt).find(|rtx| section.parameter(*rtx, "apt").and_then(|apt| apt.parse().ok()) == Some(pt))
}

fn feedback_of(section: &OfferSection, pt: u8, kind: Kind) -> Feedback {
    let offered = |what: &str| section.feedback.iter().any(|(of, w)| of.is_none_or(|of| of == pt) && w == what);
    let video = kind == Kind::Video;
    Feedback {
        nack: video && offered("nack"),
        pli: video && offered("nack pli"),
        fir: video && offered("ccm fir"),
        transport_cc: offered("transport-cc"),
        remb: video && offered("goog-remb"),
    }
}
