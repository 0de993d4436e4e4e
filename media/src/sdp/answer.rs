//! Writing the answer: strict where reading is lenient (RFC 8866, RFC 9143, RFC 8839).

use super::negotiate::{Accepted, Agreed, AgreedSection};
use crate::transport::{Role, Section};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// ICE and DTLS of this end; absent in simulations.
pub(crate) struct Ice<'a> {
    pub(crate) ufrag: &'a str,
    pub(crate) pwd: &'a str,
    /// SHA-256 of our certificate.
    pub(crate) fingerprint: &'a [u8],
}

/// What an answer is made of beside what was agreed on.
pub(crate) struct AnswerParts<'a> {
    pub(crate) role: Role,
    /// As the transport has them, SSRCs included.
    pub(crate) sections: &'a [Section],
    pub(crate) candidates: &'a [SocketAddr],
    pub(crate) ice: Option<Ice<'a>>,
    /// Number of the session in `o=`, at most 2^62 − 1 (RFC 9429 §5.2.1).
    pub(crate) session_id: u64,
    /// Canonical name (RFC 7022) of every stream we send.
    pub(crate) cname: &'a str,
}

/// An answer in which only the names of tracks are missing.
#[derive(Debug, Clone)]
pub struct Answer {
    head: String,
    /// Text of each m-line, and the index of its section where we send on it.
    parts: Vec<Part>,
    cname: String,
}

#[derive(Debug, Clone)]
struct Part {
    text: String,
    section: Option<usize>,
    ssrc: Option<u32>,
    rtx_ssrc: Option<u32>,
}

impl Answer {
    pub(crate) fn new(agreed: &Agreed, parts: &AnswerParts<'_>) -> Answer {
        let tagged = agreed.sections.iter().position(|s| s.accepted.is_some());
        let mut index = 0;
        let text = agreed.sections.iter().enumerate().map(|(line, section)| {
            let mut text = String::new();
            match &section.accepted {
                Some(accepted) => {
                    accept(&mut text, agreed, section, accepted, parts, Some(line) == tagged);
                }
                None => refuse(&mut text, section),
            }
            let media = matches!(section.media.as_str(), "audio" | "video").then_some(index);
            index += usize::from(media.is_some());
            let of = media.and_then(|i| parts.sections.get(i)).filter(|_| parts.role == Role::Play);
            Part {
                text,
                section: media,
                ssrc: of.and_then(|section| section.ssrc),
                rtx_ssrc: of.and_then(|section| section.rtx_ssrc),
            }
        });
        Answer { parts: text.collect(), head: head(agreed, parts), cname: parts.cname.to_owned() }
    }

    /// The final text. `msids`: for each filled section, its index among the transport's sections, the
    /// stream's name (the publisher's identity) and the track's (RFC 8830). A section without stays empty
    /// and may be filled later.
    pub fn finish(&self, msids: &[(usize, &str, &str)]) -> String {
        let mut out = self.head.clone();
        for part in &self.parts {
            out.push_str(&part.text);
            let Some(ssrc) = part.ssrc else { continue };
            let msid = msids.iter().find(|(index, ..)| Some(*index) == part.section);
            // Writing to a String cannot fail.
            if let Some((_, stream, track)) = msid {
                let _ = write!(out, "a=msid:{stream} {track}\r\n");
            }
            if let Some(rtx) = part.rtx_ssrc {
                let _ = write!(out, "a=ssrc-group:FID {ssrc} {rtx}\r\n");
            }
            for ssrc in [Some(ssrc), part.rtx_ssrc].into_iter().flatten() {
                let _ = write!(out, "a=ssrc:{ssrc} cname:{}\r\n", self.cname);
                if let Some((_, stream, track)) = msid {
                    let _ = write!(out, "a=ssrc:{ssrc} msid:{stream} {track}\r\n");
                }
            }
        }
        out
    }
}

fn head(agreed: &Agreed, parts: &AnswerParts<'_>) -> String {
    let mut out = format!("v=0\r\no=- {} 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n", parts.session_id);
    if parts.ice.is_some() {
        // RFC 8445 §10, RFC 8840 §4.1: trickled candidates are taken.
        out.push_str("a=ice-lite\r\na=ice-options:ice2 trickle\r\n");
    }
    if agreed.bundle {
        out.push_str("a=group:BUNDLE");
        for accepted in agreed.sections.iter().filter_map(|s| s.accepted.as_ref()) {
            let _ = write!(out, " {}", accepted.mid);
        }
        out.push_str("\r\n");
    }
    if agreed.extmap_allow_mixed {
        out.push_str("a=extmap-allow-mixed\r\n");
    }
    out
}

fn accept(
    out: &mut String,
    agreed: &Agreed,
    section: &AgreedSection,
    accepted: &Accepted,
    parts: &AnswerParts<'_>,
    tagged: bool,
) {
    // The default candidate (RFC 8839 §4.2.1.2): the first one of IPv4 if there is one, as that is what all read.
    let default = parts.candidates.iter().find(|c| c.is_ipv4()).or(parts.candidates.first());
    let port = default.map_or(9, SocketAddr::port);
    let _ = write!(out, "m={} {port} {}", section.media, section.protocol);
    for format in accepted.formats.iter().map(|f| f.format) {
        let _ = write!(out, " {}", format.pt);
        if let Some(rtx) = format.rtx_pt {
            let _ = write!(out, " {rtx}");
        }
    }
    let _ = match default.map(SocketAddr::ip) {
        Some(IpAddr::V4(ip)) => write!(out, "\r\nc=IN IP4 {ip}\r\n"),
        Some(IpAddr::V6(ip)) => write!(out, "\r\nc=IN IP6 {ip}\r\n"),
        None => write!(out, "\r\nc=IN IP4 0.0.0.0\r\n"),
    };
    if let Some(mid) = &section.offered_mid {
        let _ = write!(out, "a=mid:{mid}\r\n");
    }
    if let Some(ice) = &parts.ice {
        transport(out, ice, agreed.dtls_client);
        // Candidates belong to the tagged section of the bundle (RFC 9143 §7.1.3, TRANSPORT category).
        if tagged {
            candidates(out, parts.candidates);
        }
    }
    let _ = write!(out, "a={}\r\n", accepted.direction.name());
    for (said, line) in [(accepted.rtcp_mux, "a=rtcp-mux"), (accepted.rtcp_rsize, "a=rtcp-rsize")] {
        if said {
            let _ = write!(out, "{line}\r\n");
        }
    }
    if accepted.extmap_allow_mixed && !agreed.extmap_allow_mixed {
        out.push_str("a=extmap-allow-mixed\r\n");
    }
    for (id, extension) in &accepted.extensions {
        let _ = write!(out, "a=extmap:{id} {}\r\n", extension.uri());
    }
    let twcc = accepted.twcc();
    for format in &accepted.formats {
        format.write(twcc, out);
    }
    if accepted.by_rid && accepted.is_active() {
        for rid in &accepted.layers {
            let _ = write!(out, "a=rid:{rid} recv\r\n");
        }
        let _ = write!(out, "a=simulcast:recv {}\r\n", accepted.layers.join(";"));
    }
}

fn transport(out: &mut String, ice: &Ice<'_>, dtls_client: bool) {
    let _ = write!(out, "a=ice-ufrag:{}\r\na=ice-pwd:{}\r\na=fingerprint:sha-256 ", ice.ufrag, ice.pwd);
    for (index, byte) in ice.fingerprint.iter().enumerate() {
        let _ = write!(out, "{}{byte:02X}", if index == 0 { "" } else { ":" });
    }
    let _ = write!(out, "\r\na=setup:{}\r\n", if dtls_client { "active" } else { "passive" });
}

/// Host candidates, best first (RFC 8445 §5.1.2.1: type preference 126, component 1).
pub(super) fn candidates(out: &mut String, candidates: &[SocketAddr]) {
    for (index, candidate) in candidates.iter().enumerate() {
        let local_preference = 65_535u32.saturating_sub(u32::try_from(index).unwrap_or(u32::MAX));
        let priority = (126 << 24) | (local_preference << 8) | 255;
        let (ip, port) = (candidate.ip(), candidate.port());
        let _ = write!(out, "a=candidate:{} 1 udp {priority} {ip} {port} typ host\r\n", index + 1);
    }
    out.push_str("a=end-of-candidates\r\n");
}

fn refuse(out: &mut String, section: &AgreedSection) {
    let _ = write!(out, "m={} 0 {}", section.media, section.protocol);
    for format in &section.offered_formats {
        let _ = write!(out, " {format}");
    }
    if section.offered_formats.is_empty() {
        // The grammar wants one (RFC 8866 §9).
        out.push_str(" 0");
    }
    out.push_str("\r\nc=IN IP4 0.0.0.0\r\n");
    if let Some(mid) = &section.offered_mid {
        let _ = write!(out, "a=mid:{mid}\r\n");
    }
    out.push_str("a=inactive\r\n");
}
