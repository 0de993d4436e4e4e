//! Reading an offer, line by line, into what this server needs of it.
//!
//! Lenient where devices differ (RFC 8866 §9 is stricter): `o=`, `s=`, `t=` and other lines that nothing here
//! depends on may be odd or missing, unknown attributes are skipped, attributes with unreadable values
//! count as absent. Bounded everywhere: each refusal names the limit it met.

use super::attributes::{self as attr, Direction, Extension, Fingerprint, RtpMap, Setup};
use super::{
    CANDIDATES_MAX, FORMATS_MAX, GROUPS_MAX, OFFER_BYTES_MAX, RIDS_MAX, SECTION_LINES_MAX, SECTIONS_MAX, SSRCS_MAX,
    SdpRefusal,
};
use crate::wire::stun::is_ice_text;

/// Attributes that may stand in a section or, for all sections, before the first.
#[derive(Debug, Clone, Default)]
pub(super) struct Common {
    pub(super) ufrag: Option<String>,
    pub(super) pwd: Option<String>,
    pub(super) fingerprints: Vec<Fingerprint>,
    pub(super) setup: Option<Setup>,
    pub(super) direction: Option<Direction>,
    pub(super) extmap_allow_mixed: bool,
    pub(super) extensions: Vec<(u8, Extension)>,
}

/// One m-line with its attributes.
#[derive(Debug, Clone, Default)]
pub(super) struct OfferSection {
    /// `audio`, `video`, `application`, …
    pub(super) media: String,
    /// `UDP/TLS/RTP/SAVPF`, …
    pub(super) protocol: String,
    /// Port 0: refused by the offerer, unless bundle-only.
    pub(super) port_zero: bool,
    /// The formats as written; payload types for RTP.
    pub(super) formats: Vec<String>,
    pub(super) mid: Option<String>,
    pub(super) bundle_only: bool,
    pub(super) rtcp_mux: bool,
    pub(super) rtcp_rsize: bool,
    pub(super) common: Common,
    pub(super) rtpmaps: Vec<RtpMap>,
    pub(super) fmtps: Vec<(u8, String)>,
    pub(super) feedback: Vec<(Option<u8>, String)>,
    /// SSRCs named by `a=ssrc` or a group, in order.
    pub(super) ssrcs: Vec<u32>,
    /// Media and retransmission (RFC 5576 §4.2, `FID` of RFC 4588).
    pub(super) repairs: Vec<(u32, u32)>,
    /// More than one simulcast stream by SSRC alone (`SIM`).
    pub(super) ssrc_simulcast: Vec<u32>,
    /// rids that the offerer sends (RFC 8851).
    pub(super) rids: Vec<String>,
    /// Layers that the offerer sends, in its order (RFC 8853).
    pub(super) layers: Vec<String>,
}

/// An offer as far as this server understands it.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    pub(super) ice_lite: bool,
    pub(super) common: Common,
    /// Mids of the first BUNDLE group (RFC 9143).
    pub(super) bundle: Option<Vec<String>>,
    pub(super) sections: Vec<OfferSection>,
    candidates: usize,
    groups: usize,
}

impl Offer {
    /// Reads `text`.
    ///
    /// # Errors
    /// [`SdpRefusal::Malformed`] with the line, or [`SdpRefusal::TooBig`] with the limit.
    pub fn parse(text: &str) -> Result<Offer, SdpRefusal> {
        if text.len() > OFFER_BYTES_MAX {
            return Err(SdpRefusal::TooBig { what: "bytes", limit: OFFER_BYTES_MAX });
        }
        let mut offer = Offer::default();
        let mut lines_of_part = 0;
        for (index, line) in text.split('\n').enumerate() {
            let (number, line) = (index + 1, line.trim_end());
            if index == 0 && line.trim_start_matches('\u{feff}') != "v=0" {
                return Err(SdpRefusal::Malformed { line: number, reason: "a description begins with v=0" });
            }
            let Some((kind, value)) = line.trim_start_matches('\u{feff}').split_once('=') else {
                if line.is_empty() {
                    continue;
                }
                return Err(SdpRefusal::Malformed { line: number, reason: "a line is <letter>=<value>" });
            };
            lines_of_part += 1;
            match kind {
                "m" => {
                    lines_of_part = 1;
                    let section = media_line(value).map_err(|e| e.at(number))?;
                    if offer.sections.len() == SECTIONS_MAX {
                        return Err(SdpRefusal::TooBig { what: "m-lines", limit: SECTIONS_MAX });
                    }
                    offer.sections.push(section);
                }
                "a" => offer.attribute(value).map_err(|e| e.at(number))?,
                kind if kind.len() == 1 && kind.as_bytes().iter().all(u8::is_ascii_lowercase) => {}
                _ => return Err(SdpRefusal::Malformed { line: number, reason: "a line is <letter>=<value>" }),
            }
            if lines_of_part > SECTION_LINES_MAX {
                return Err(SdpRefusal::TooBig { what: "lines in one section", limit: SECTION_LINES_MAX });
            }
        }
        offer.unique_mids()?;
        Ok(offer)
    }

    /// Number of `a=candidate` lines.
    pub fn candidates(&self) -> usize {
        self.candidates
    }

    fn attribute(&mut self, line: &str) -> Result<(), At> {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let name = name.trim_end();
        if name == "candidate" {
            if !attr::check_candidate(value) {
                return Err(At::Malformed("a=candidate cannot be read"));
            }
            self.candidates += 1;
            return bounded(self.candidates, CANDIDATES_MAX, "candidates");
        }
        if let Some(section) = self.sections.last_mut() {
            return if section.attribute(name, value)? { Ok(()) } else { section.common.attribute(name, value) };
        }
        match name {
            "ice-lite" => self.ice_lite = true,
            "group" => self.group(value)?,
            _ => self.common.attribute(name, value)?,
        }
        Ok(())
    }

    fn group(&mut self, value: &str) -> Result<(), At> {
        self.groups += 1;
        bounded(self.groups, GROUPS_MAX, "groups")?;
        let mut words = value.split_whitespace();
        if words.next().is_some_and(|semantics| semantics.eq_ignore_ascii_case("BUNDLE")) && self.bundle.is_none() {
            let mids: Vec<String> = words.map(str::to_owned).collect();
            bounded(mids.len(), SECTIONS_MAX, "mids in one group")?;
            self.bundle = Some(mids);
        }
        Ok(())
    }

    fn unique_mids(&self) -> Result<(), SdpRefusal> {
        let mut mids: Vec<&str> = self.sections.iter().filter_map(|s| s.mid.as_deref()).collect();
        mids.sort_unstable();
        if mids.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(SdpRefusal::Malformed { line: 1, reason: "two sections have the same a=mid" });
        }
        Ok(())
    }
}

/// A refusal before its line is known.
#[derive(Debug)]
enum At {
    Malformed(&'static str),
    TooBig(&'static str, usize),
}

impl At {
    fn at(self, line: usize) -> SdpRefusal {
        match self {
            At::Malformed(reason) => SdpRefusal::Malformed { line, reason },
            At::TooBig(what, limit) => SdpRefusal::TooBig { what, limit },
        }
    }
}

fn bounded(count: usize, limit: usize, what: &'static str) -> Result<(), At> {
    if count > limit { Err(At::TooBig(what, limit)) } else { Ok(()) }
}

/// `audio 9 UDP/TLS/RTP/SAVPF 111 63`
fn media_line(value: &str) -> Result<OfferSection, At> {
    if !value.split_whitespace().all(attr::is_word) {
        return Err(At::Malformed("m= has a word that is not 1 to 255 visible ASCII characters"));
    }
    let mut words = value.split_whitespace();
    let (Some(media), Some(port), Some(protocol)) = (words.next(), words.next(), words.next()) else {
        return Err(At::Malformed("m= needs media, port, protocol and formats"));
    };
    let Ok(port) = port.split('/').next().unwrap_or_default().parse::<u16>() else {
        return Err(At::Malformed("m= has no port from 0 to 65535"));
    };
    // One more than allowed is enough to know.
    let formats: Vec<String> = words.take(FORMATS_MAX + 1).map(str::to_owned).collect();
    bounded(formats.len(), FORMATS_MAX, "formats of one m-line")?;
    Ok(OfferSection {
        media: media.to_owned(),
        protocol: protocol.to_owned(),
        port_zero: port == 0,
        formats,
        ..OfferSection::default()
    })
}

impl Common {
    fn attribute(&mut self, name: &str, value: &str) -> Result<(), At> {
        match name {
            "ice-ufrag" if is_ice_text(value.trim(), 4) => self.ufrag = Some(value.trim().to_owned()),
            "ice-ufrag" => return Err(At::Malformed("a=ice-ufrag is 4 to 256 characters of RFC 8839 §5.4")),
            "ice-pwd" if is_ice_text(value.trim(), 22) => self.pwd = Some(value.trim().to_owned()),
            "ice-pwd" => return Err(At::Malformed("a=ice-pwd is 22 to 256 characters of RFC 8839 §5.4")),
            "fingerprint" => match attr::fingerprint(value) {
                Some(print) if self.fingerprints.len() < 8 => self.fingerprints.push(print),
                Some(_) => return Err(At::TooBig("fingerprints", 8)),
                None => return Err(At::Malformed("a=fingerprint is <hash> <hex pairs with colons>")),
            },
            "setup" => match attr::setup(value.trim()) {
                Some(setup) => self.setup = Some(setup),
                None => return Err(At::Malformed("a=setup is active, passive, actpass or holdconn")),
            },
            "extmap-allow-mixed" => self.extmap_allow_mixed = true,
            "extmap" => self.extensions.extend(attr::extmap(value)),
            _ => {
                if let Some(direction) = Direction::parse(name) {
                    self.direction = Some(direction);
                }
            }
        }
        Ok(())
    }
}

impl OfferSection {
    /// Takes attributes that stand in sections only; `false`: it is none of them.
    fn attribute(&mut self, name: &str, value: &str) -> Result<bool, At> {
        match name {
            "mid" => {
                let mid = value.trim();
                if !attr::is_word(mid) {
                    return Err(At::Malformed("a=mid is one word of 1 to 255 visible ASCII characters"));
                }
                if self.mid.replace(mid.to_owned()).is_some() {
                    return Err(At::Malformed("a section has two a=mid"));
                }
            }
            "bundle-only" => self.bundle_only = true,
            "rtcp-mux" | "rtcp-mux-only" => self.rtcp_mux = true,
            "rtcp-rsize" => self.rtcp_rsize = true,
            "rtpmap" => {
                self.rtpmaps.extend(attr::rtpmap(value));
                bounded(self.rtpmaps.len(), FORMATS_MAX, "a=rtpmap of one section")?;
            }
            "fmtp" => self.fmtps.extend(attr::fmtp(value).map(|(pt, text)| (pt, text.to_owned()))),
            "rtcp-fb" => self.feedback.extend(attr::feedback(value)),
            "ssrc" => {
                let ssrc = value.split_whitespace().next().and_then(|word| word.parse().ok());
                let Some(ssrc) = ssrc else { return Err(At::Malformed("a=ssrc begins with a number of 32 bits")) };
                self.ssrc(ssrc)?;
            }
            "ssrc-group" => self.ssrc_group(value)?,
            "rid" => {
                let mut words = value.split_whitespace();
                if let (Some(rid), Some("send")) = (words.next().filter(|rid| attr::is_word(rid)), words.next()) {
                    self.rids.push(rid.to_owned());
                }
                bounded(self.rids.len(), RIDS_MAX, "a=rid of one section")?;
            }
            "simulcast" => {
                self.layers = attr::simulcast_send(value).into_iter().map(str::to_owned).collect();
                bounded(self.layers.len(), RIDS_MAX, "simulcast layers of one section")?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn ssrc(&mut self, ssrc: u32) -> Result<(), At> {
        if !self.ssrcs.contains(&ssrc) {
            self.ssrcs.push(ssrc);
        }
        bounded(self.ssrcs.len(), SSRCS_MAX, "SSRCs of one section")
    }

    fn ssrc_group(&mut self, value: &str) -> Result<(), At> {
        let mut words = value.split_whitespace();
        let semantics = words.next().unwrap_or_default().to_ascii_uppercase();
        let ssrcs: Vec<u32> = words.take(SSRCS_MAX).filter_map(|word| word.parse().ok()).collect();
        for ssrc in &ssrcs {
            self.ssrc(*ssrc)?;
        }
        match (semantics.as_str(), ssrcs.as_slice()) {
            ("FID", [media, repair]) => self.repairs.push((*media, *repair)),
            ("SIM", all) => self.ssrc_simulcast = all.to_vec(),
            _ => {}
        }
        Ok(())
    }

    /// Parameters of a payload type: `None` where an empty or missing value leaves the default.
    pub(super) fn parameter(&self, pt: u8, key: &str) -> Option<&str> {
        self.fmtps
            .iter()
            .filter(|(of, _)| *of == pt)
            .flat_map(|(_, text)| attr::parameters(text))
            .find(|(name, value)| name == key && !value.is_empty())
            .map(|(_, value)| value)
    }
}
