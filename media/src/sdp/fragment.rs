//! ICE after the answer: `application/trickle-ice-sdpfrag` (RFC 8840 §9), with candidates that follow (RFC 9725 §4.3.2)
//! or a new ICE session (§4.3.3).

use super::answer::candidates;
use super::attributes::check_candidate;
use super::{CANDIDATES_MAX, OFFER_BYTES_MAX, SECTION_LINES_MAX, SdpRefusal};
use crate::codec::Kind;
use crate::transport::Section;
use crate::wire::stun::is_ice_text;
use std::fmt::Write;
use std::net::SocketAddr;

/// One trickle fragment. Everything belongs to the one bundled transport, whichever section it names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fragment {
    /// The sender's ICE username fragment; it tells which ICE session the fragment belongs to.
    pub ufrag: Option<String>,
    /// The sender's ICE password.
    pub pwd: Option<String>,
    /// Mids named, in order.
    pub mids: Vec<String>,
    /// Values of `a=candidate`, without `a=`.
    pub candidates: Vec<String>,
    /// No more will come.
    pub end_of_candidates: bool,
}

impl Fragment {
    /// Reads `text`.
    ///
    /// # Errors
    /// [`SdpRefusal::Malformed`] with the line, or [`SdpRefusal::TooBig`] with the limit.
    pub fn parse(text: &str) -> Result<Fragment, SdpRefusal> {
        if text.len() > OFFER_BYTES_MAX {
            return Err(SdpRefusal::TooBig { what: "bytes", limit: OFFER_BYTES_MAX });
        }
        let mut fragment = Fragment::default();
        for (index, line) in text.split('\n').enumerate() {
            if index >= SECTION_LINES_MAX {
                return Err(SdpRefusal::TooBig { what: "lines", limit: SECTION_LINES_MAX });
            }
            fragment.line(line.trim_end()).map_err(|reason| SdpRefusal::Malformed { line: index + 1, reason })?;
        }
        if fragment.candidates.len() > CANDIDATES_MAX {
            return Err(SdpRefusal::TooBig { what: "candidates", limit: CANDIDATES_MAX });
        }
        Ok(fragment)
    }

    fn line(&mut self, line: &str) -> Result<(), &'static str> {
        if line.is_empty() {
            return Ok(());
        }
        let Some(("a", attribute)) = line.split_once('=') else {
            // m= and whatever else a whole description has.
            let letter = line.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
            return if letter && line.as_bytes().get(1) == Some(&b'=') {
                Ok(())
            } else {
                Err("a line is <letter>=<value>")
            };
        };
        let (name, value) = attribute.split_once(':').unwrap_or((attribute, ""));
        let value = value.trim();
        match name {
            "ice-ufrag" if is_ice_text(value, 4) => self.ufrag = Some(value.to_owned()),
            "ice-ufrag" => return Err("a=ice-ufrag is 4 to 256 characters of RFC 8839 §5.4"),
            "ice-pwd" if is_ice_text(value, 22) => self.pwd = Some(value.to_owned()),
            "ice-pwd" => return Err("a=ice-pwd is 22 to 256 characters of RFC 8839 §5.4"),
            "mid" => self.mids.push(value.to_owned()),
            "candidate" if check_candidate(value) => self.candidates.push(attribute.to_owned()),
            // An empty candidate is another way to say that there are no more.
            "candidate" if value.is_empty() => self.end_of_candidates = true,
            "candidate" => return Err("a=candidate cannot be read"),
            "end-of-candidates" => self.end_of_candidates = true,
            _ => {}
        }
        Ok(())
    }
}

/// Our half of a new ICE session. Candidates stand under the section that the bundle's transport is told in: the
/// first one that is not refused (RFC 9143 §7.1.3).
pub(crate) fn write_fragment(sections: &[Section], ufrag: &str, pwd: &str, addresses: &[SocketAddr]) -> String {
    // Writing to a String cannot fail.
    let mut out = format!("a=ice-lite\r\na=ice-pwd:{pwd}\r\na=ice-ufrag:{ufrag}\r\na=ice-options:ice2 trickle\r\n");
    if let Some(section) = sections.iter().find(|section| !section.formats.is_empty()) {
        // RFC 8840 §9: a port and a format that mean nothing.
        let media = match section.kind {
            Kind::Audio => "audio",
            Kind::Video => "video",
        };
        let _ = write!(out, "m={media} 9 UDP/TLS/RTP/SAVPF 0\r\na=mid:{}\r\n", section.mid);
        candidates(&mut out, addresses);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shape of RFC 9725 §4.3.2, figure 6.
    const FRAGMENT: &str = "a=ice-ufrag:EsAw\r\na=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1\r\nm=audio 9 UDP/TLS/RTP/SAVPF 0\r\n\
        a=mid:0\r\na=candidate:1387637174 1 udp 2122260223 192.0.2.1 61764 typ host generation 0 ufrag EsAw network-id 1\r\n\
        a=candidate:3471623853 1 udp 2122194687 198.51.100.2 61765 typ host generation 0 ufrag EsAw network-id 2\r\n\
        a=candidate:473322822 1 tcp 1518280447 192.0.2.1 9 typ host tcptype active generation 0 ufrag EsAw\r\n\
        a=end-of-candidates\r\n";

    #[test]
    fn the_figure_of_the_rfc_is_read() {
        let fragment = Fragment::parse(FRAGMENT).unwrap();
        assert_eq!(fragment.ufrag.as_deref(), Some("EsAw"));
        assert_eq!(fragment.pwd.as_deref(), Some("P2uYro0UCOQ4zxjKXaWCBui1"));
        assert_eq!(fragment.mids, ["0"]);
        assert_eq!(fragment.candidates.len(), 3);
        assert!(fragment.candidates[0].starts_with("candidate:1387637174 1 udp"));
        assert!(fragment.end_of_candidates);
    }

    #[test]
    fn rubbish_and_floods_are_refused_by_line_and_limit() {
        assert_eq!(
            Fragment::parse("a=mid:0\nhello"),
            Err(SdpRefusal::Malformed { line: 2, reason: "a line is <letter>=<value>" })
        );
        assert!(matches!(Fragment::parse("a=candidate:x"), Err(SdpRefusal::Malformed { line: 1, .. })));
        let flood = "a=candidate:1 1 udp 1 192.0.2.1 9 typ host\r\n".repeat(CANDIDATES_MAX + 1);
        assert_eq!(Fragment::parse(&flood), Err(SdpRefusal::TooBig { what: "candidates", limit: CANDIDATES_MAX }));
        assert_eq!(Fragment::parse(""), Ok(Fragment::default()));
    }
}
