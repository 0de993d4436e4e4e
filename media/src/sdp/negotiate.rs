//! What both sides agree on: an [`Offer`] and what this end is for, section by section (RFC 3264 §6, RFC 9143 §7.3).

use super::SdpRefusal;
use super::attributes::{Direction, Extension, Setup};
use super::formats::{self, AgreedFormat};
use super::offer::{Common, Offer, OfferSection};
use crate::codec::{Format, Kind};
use crate::transport::{ExtensionIds, LAYERS_MAX, Role, Section, SectionFormat};

/// Whether the offer must carry ICE credentials and a fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Security {
    /// As RFC 8827 §6.5 demands.
    Required,
    /// Simulations without ICE, DTLS and SRTP.
    None,
}

/// The outcome for a whole offer.
#[derive(Debug)]
pub(crate) struct Agreed {
    /// One for each m-line, in order.
    pub(crate) sections: Vec<AgreedSection>,
    /// The peer's username fragment and password.
    pub(crate) remote_ufrag: String,
    pub(crate) remote_pwd: String,
    /// SHA-256 of the peer's certificate.
    pub(crate) fingerprint: Vec<u8>,
    /// We open the DTLS connection: only where the peer insists on being passive.
    pub(crate) dtls_client: bool,
    /// The offer had a BUNDLE group.
    pub(super) bundle: bool,
    /// `a=extmap-allow-mixed` before the first section (RFC 8285 §6).
    pub(super) extmap_allow_mixed: bool,
}

/// The outcome for one m-line.
#[derive(Debug)]
pub(crate) struct AgreedSection {
    pub(super) media: String,
    pub(super) protocol: String,
    /// Formats as offered: a refused section repeats them.
    pub(super) offered_formats: Vec<String>,
    pub(super) offered_mid: Option<String>,
    /// `None`: refused with port 0.
    pub(crate) accepted: Option<Accepted>,
}

/// A section that is not refused.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) mid: String,
    pub(crate) kind: Kind,
    /// Ours, seen from this end.
    pub(crate) direction: Direction,
    /// Never empty, best first.
    pub(crate) formats: Vec<AgreedFormat>,
    pub(crate) extensions: Vec<(u8, Extension)>,
    pub(super) rtcp_mux: bool,
    pub(super) rtcp_rsize: bool,
    pub(super) extmap_allow_mixed: bool,
    /// Names of the simulcast layers that a publisher is to send, in the order of its offer: rids, or numbers where
    /// the offer tells layers apart by SSRC alone. Empty where it sends one stream.
    pub(crate) layers: Vec<String>,
    /// The layers are rids (RFC 8851).
    pub(crate) by_rid: bool,
    /// SSRCs of the peer's media, where the offer names them.
    pub(crate) declared: Vec<Declared>,
    /// SSRCs that the offer names for what was not accepted.
    pub(crate) ignored: Vec<u32>,
}

/// A stream that the offer names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) ssrc: u32,
    /// Of its retransmissions.
    pub(crate) repair: Option<u32>,
    /// Index into [`Accepted::layers`]; 0 where there are none.
    pub(crate) layer: u8,
}

impl Accepted {
    pub(crate) fn is_active(&self) -> bool {
        self.direction != Direction::Inactive
    }

    /// Transport-wide feedback: both the extension and the messages.
    pub(crate) fn twcc(&self) -> bool {
        self.extensions.iter().any(|(_, e)| *e == Extension::Twcc)
    }

    pub(crate) fn extension(&self, wanted: Extension) -> Option<u8> {
        self.extensions.iter().find(|(_, e)| *e == wanted).map(|(id, _)| *id)
    }

    pub(crate) fn section_formats(&self) -> Vec<SectionFormat> {
        if self.is_active() { self.formats.iter().map(|f| f.format).collect() } else { Vec::new() }
    }
}

/// Agrees on `offer` as an answerer that is there for `role`.
///
/// # Errors
/// See [`SdpRefusal`].
pub(crate) fn negotiate(offer: &Offer, role: Role, security: Security) -> Result<Agreed, SdpRefusal> {
    if offer.ice_lite && security == Security::Required {
        return Err(SdpRefusal::Unsupported("both ends are ICE lite: nobody would send checks"));
    }
    let mut shared = Shared::default();
    let mut wanted = 0;
    let mut sections = Vec::with_capacity(offer.sections.len());
    for (index, section) in offer.sections.iter().enumerate() {
        let accepted = match rtp_kind(section) {
            Some(kind) if !refused_by_offerer(offer, section) => {
                wanted += usize::from(direction(offer, section, role) != Direction::Inactive);
                accept(offer, index, kind, role, &mut shared)
            }
            _ => None,
        };
        sections.push(AgreedSection {
            media: section.media.clone(),
            protocol: section.protocol.clone(),
            offered_formats: section.formats.clone(),
            offered_mid: section.mid.clone(),
            accepted,
        });
    }
    if !sections.iter().filter_map(|s| s.accepted.as_ref()).any(Accepted::is_active) {
        return Err(if wanted > 0 {
            SdpRefusal::NoCommonCodec
        } else {
            SdpRefusal::Unsupported(match role {
                Role::Publish => "no audio or video section of the offer sends",
                Role::Play => "no audio or video section of the offer receives",
            })
        });
    }
    one_transport(offer, &sections)?;
    let mut agreed = Agreed {
        sections,
        remote_ufrag: String::new(),
        remote_pwd: String::new(),
        fingerprint: Vec::new(),
        dtls_client: false,
        bundle: offer.bundle.is_some(),
        extmap_allow_mixed: offer.common.extmap_allow_mixed,
    };
    transport(offer, security, &mut agreed)?;
    Ok(agreed)
}

/// What all sections of one bundle share: a number may mean one thing only (RFC 9143 §9.1, §9.2).
struct Shared {
    formats: [Option<(Format, bool)>; 128],
    extensions: Vec<(u8, Extension)>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { formats: [None; 128], extensions: Vec::new() }
    }
}

impl Shared {
    /// Keeps a format whose numbers mean the same in every section so far; drops its retransmissions, or
    /// all of it, where they do not.
    fn keep(&mut self, agreed: &mut AgreedFormat) -> bool {
        let SectionFormat { pt, rtx_pt, format } = agreed.format;
        let mut claim = |number: u8, meaning: (Format, bool)| match self.formats.get_mut(usize::from(number)) {
            Some(slot) => *slot.get_or_insert(meaning) == meaning,
            None => false,
        };
        if !claim(pt, (format, false)) {
            return false;
        }
        agreed.format.rtx_pt = rtx_pt.filter(|rtx| claim(*rtx, (format, true)));
        true
    }

    fn extension(&mut self, id: u8, extension: Extension) -> bool {
        match self.extensions.iter().find(|(i, e)| *i == id || *e == extension) {
            Some(known) => *known == (id, extension),
            None => {
                self.extensions.push((id, extension));
                true
            }
        }
    }
}

fn rtp_kind(section: &OfferSection) -> Option<Kind> {
    let protocol = section.protocol.to_ascii_uppercase();
    // RFC 9429 §5.1.2: any of these names means the same over DTLS.
    if !protocol.ends_with("RTP/SAVPF") && !protocol.ends_with("RTP/SAVP") {
        return None;
    }
    match section.media.as_str() {
        "audio" => Some(Kind::Audio),
        "video" => Some(Kind::Video),
        _ => None,
    }
}

/// Port 0 refuses a section, unless it is bundle-only (RFC 9143 §6); with a group, only its members are served.
fn refused_by_offerer(offer: &Offer, section: &OfferSection) -> bool {
    let bundled = match (&offer.bundle, &section.mid) {
        (Some(mids), Some(mid)) => mids.contains(mid),
        (Some(_), None) => false,
        (None, _) => true,
    };
    !bundled || (section.port_zero && !(section.bundle_only && offer.bundle.is_some()))
}

fn direction(offer: &Offer, section: &OfferSection, role: Role) -> Direction {
    let offered = section.common.direction.or(offer.common.direction).unwrap_or(Direction::SendRecv);
    match role {
        Role::Publish if offered.sends() => Direction::RecvOnly,
        Role::Play if offered.receives() => Direction::SendOnly,
        Role::Publish | Role::Play => Direction::Inactive,
    }
}

fn accept(offer: &Offer, index: usize, kind: Kind, role: Role, shared: &mut Shared) -> Option<Accepted> {
    let section = offer.sections.get(index)?;
    let mut formats = formats::agree(section, kind);
    formats.retain_mut(|format| shared.keep(format));
    if formats.is_empty() {
        return None;
    }
    let transport_cc = formats.iter().any(|f| f.feedback.transport_cc);
    let mut extensions = Vec::new();
    for (id, extension) in section.common.extensions.iter().chain(&offer.common.extensions).copied() {
        let wanted = match extension {
            Extension::Mid | Extension::AbsSendTime => true,
            Extension::Twcc => transport_cc,
            Extension::AudioLevel => kind == Kind::Audio,
            Extension::Rid | Extension::RepairedRid => role == Role::Publish && kind == Kind::Video,
        };
        // Ids above 14 need the two-byte form (RFC 8285 §4.3); what is sent here uses the one-byte form.
        if wanted && (1..=14).contains(&id) && shared.extension(id, extension) && !extensions.contains(&(id, extension))
        {
            extensions.push((id, extension));
        }
    }
    let mut accepted = Accepted {
        mid: section.mid.clone().unwrap_or_else(|| index.to_string()),
        kind,
        direction: direction(offer, section, role),
        formats,
        extensions,
        rtcp_mux: section.rtcp_mux,
        rtcp_rsize: section.rtcp_rsize,
        extmap_allow_mixed: section.common.extmap_allow_mixed,
        layers: Vec::new(),
        by_rid: false,
        declared: Vec::new(),
        ignored: Vec::new(),
    };
    if role == Role::Publish {
        accepted.layers = layers(section, &accepted);
        accepted.by_rid = !accepted.layers.is_empty();
        if !accepted.by_rid {
            declare(section, &mut accepted);
        }
    }
    Some(accepted)
}

/// The rids that are asked for: the first of those offered, without the extension none.
fn layers(section: &OfferSection, accepted: &Accepted) -> Vec<String> {
    let mut layers: Vec<String> = Vec::new();
    if accepted.extension(Extension::Rid).is_some() {
        for layer in section.layers.iter().filter(|layer| section.rids.contains(layer)) {
            if layers.len() < LAYERS_MAX && !layers.contains(layer) {
                layers.push(layer.clone());
            }
        }
    }
    layers
}

/// SSRCs named in the offer: media and its retransmissions, of simulcast by SSRC alone each layer. Of others (FEC)
/// one is taken.
fn declare(section: &OfferSection, accepted: &mut Accepted) {
    let is_repair = |ssrc: &u32| section.repairs.iter().any(|(_, repair)| repair == ssrc);
    let repair = |media: u32| section.repairs.iter().find(|(of, _)| *of == media).map(|(_, repair)| *repair);
    let simulcast = section.ssrc_simulcast.iter().take(LAYERS_MAX).filter(|_| accepted.kind == Kind::Video);
    let mut media: Vec<u32> = simulcast.copied().collect();
    media.dedup();
    match media.len() {
        0 | 1 => media = section.ssrcs.iter().copied().find(|ssrc| !is_repair(ssrc)).into_iter().collect(),
        layers => accepted.layers = (0..layers).map(|layer| layer.to_string()).collect(),
    }
    let declared = |(layer, ssrc): (usize, &u32)| Declared { ssrc: *ssrc, repair: repair(*ssrc), layer: layer as u8 };
    accepted.declared = media.iter().enumerate().map(declared).collect();
    let taken = |ssrc: u32| accepted.declared.iter().any(|d| d.ssrc == ssrc || d.repair == Some(ssrc));
    accepted.ignored = section.ssrcs.iter().copied().filter(|ssrc| !media.is_empty() && !taken(*ssrc)).collect();
}

/// Without BUNDLE every section would need its own transport (RFC 9143 §7.2): only one can be served.
fn one_transport(offer: &Offer, sections: &[AgreedSection]) -> Result<(), SdpRefusal> {
    let mut accepted = sections.iter().filter_map(|s| s.accepted.as_ref());
    if offer.bundle.is_none() && accepted.clone().count() > 1 {
        return Err(SdpRefusal::Unsupported("several sections without a=group:BUNDLE"));
    }
    if accepted.next().is_some_and(|tagged| !tagged.rtcp_mux) {
        return Err(SdpRefusal::Unsupported("RTCP on a port of its own; a=rtcp-mux is needed"));
    }
    Ok(())
}

/// ICE and DTLS of the one transport: from the first accepted section that has them, else from before the
/// sections, else from any section (the offerer-tagged one may be refused; RFC 9143 §7.3.2).
fn transport(offer: &Offer, security: Security, agreed: &mut Agreed) -> Result<(), SdpRefusal> {
    let pick = |has: &dyn Fn(&Common) -> bool| -> Option<&Common> {
        let accepted = offer.sections.iter().zip(&agreed.sections).filter(|(_, a)| a.accepted.is_some());
        let accepted = accepted.map(|(section, _)| &section.common);
        let any = offer.sections.iter().map(|section| &section.common);
        accepted.chain([&offer.common]).chain(any).find(|common| has(common))
    };
    let credentials = pick(&|c| c.ufrag.is_some() && c.pwd.is_some());
    let (ufrag, pwd) = match credentials.and_then(|c| c.ufrag.clone().zip(c.pwd.clone())) {
        Some(both) => both,
        None if security == Security::None => (String::new(), String::new()),
        None => return Err(SdpRefusal::Malformed { line: 1, reason: "a=ice-ufrag or a=ice-pwd is missing" }),
    };
    let fingerprint = match pick(&|c| !c.fingerprints.is_empty()) {
        Some(common) => {
            let sha256 = common.fingerprints.iter().find(|f| f.hash == "sha-256" && f.digest.len() == 32);
            sha256.map(|f| f.digest.clone()).ok_or(SdpRefusal::Unsupported("no fingerprint of sha-256"))?
        }
        None if security == Security::None => Vec::new(),
        None => return Err(SdpRefusal::NoFingerprint),
    };
    let dtls_client = match pick(&|c| c.setup.is_some()).and_then(|c| c.setup) {
        Some(Setup::Passive) => true,
        Some(Setup::HoldConn) => return Err(SdpRefusal::Unsupported("a=setup:holdconn")),
        // RFC 4145 §4: active where nothing is said.
        Some(Setup::ActPass | Setup::Active) | None => false,
    };
    (agreed.remote_ufrag, agreed.remote_pwd) = (ufrag, pwd);
    (agreed.fingerprint, agreed.dtls_client) = (fingerprint, dtls_client);
    Ok(())
}

impl Agreed {
    /// The audio and video sections in order, refused ones as `None`: the indexes of [`Self::sections`].
    pub(crate) fn media(&self) -> impl Iterator<Item = Option<&Accepted>> {
        let media = self.sections.iter().filter(|s| matches!(s.media.as_str(), "audio" | "video"));
        media.map(|s| s.accepted.as_ref())
    }

    /// The audio and video sections as the room sees them: one for each m-line of audio or video.
    /// `ssrc`: gives SSRCs that are not in use, for sections that we send on.
    pub(crate) fn sections(&self, role: Role, mut ssrc: impl FnMut() -> u32) -> Vec<Section> {
        let media = self.sections.iter().enumerate().filter(|(_, s)| matches!(s.media.as_str(), "audio" | "video"));
        media
            .map(|(index, s)| {
                let mid = s.offered_mid.clone().unwrap_or_else(|| index.to_string());
                let kind = if s.media == "audio" { Kind::Audio } else { Kind::Video };
                let Some(accepted) = &s.accepted else {
                    return Section { mid, kind, ..refused_section() };
                };
                let formats = accepted.section_formats();
                let sends = role == Role::Play && accepted.is_active();
                let repairs = sends && formats.iter().any(|f| f.rtx_pt.is_some());
                Section {
                    mid,
                    kind,
                    formats,
                    extensions: ExtensionIds {
                        mid: accepted.extension(Extension::Mid),
                        abs_send_time: accepted.extension(Extension::AbsSendTime),
                        twcc: accepted.extension(Extension::Twcc),
                        audio_level: accepted.extension(Extension::AudioLevel),
                    },
                    ssrc: sends.then(&mut ssrc),
                    rtx_ssrc: repairs.then(&mut ssrc),
                    twcc: accepted.twcc(),
                    nack: accepted.formats.iter().any(|f| f.feedback.nack),
                    layers: accepted.layers.clone(),
                }
            })
            .collect()
    }
}

fn refused_section() -> Section {
    Section {
        mid: String::new(),
        kind: Kind::Audio,
        formats: Vec::new(),
        extensions: ExtensionIds::default(),
        ssrc: None,
        rtx_ssrc: None,
        twcc: false,
        nack: false,
        layers: Vec::new(),
    }
}
