//! Which section and layer a publisher's SSRC belongs to (RFC 9143 §9.2, RFC 8852): by what the offer declared, by the
//! mid and the rid in the packet, or by the payload type.
//!
//! str0m does this too, but only with a mid, and it moves a stream to whatever SSRC an unauthenticated packet
//! names. Here an unknown SSRC adds a candidate beside the ones that are known, within a bound, and becomes
//! the layer's stream when its first packet has been authenticated.

use super::LAYERS_MAX;
use super::peek::Rtp;
use crate::codec::Format;
use crate::sdp::{Accepted, Declared, Extension};

/// SSRCs of media that one layer may have at a time: restarts and replaced tracks leave old ones behind.
const MEDIA_PER_LAYER_MAX: usize = 4;
/// How often the retransmission SSRC of one stream may change.
const REPAIR_CHANGES_MAX: u8 = 8;

/// What is to be done with a packet before str0m sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// Expect this SSRC in this section; forget `evicted`, which made room.
    Media { ssrc: u32, section: usize, evicted: Option<u32> },
    /// Expect these retransmissions of `media`.
    Repair { ssrc: u32, media: u32, section: usize },
    /// It belongs to no section.
    Refused,
}

/// What is known of one section.
#[derive(Debug)]
struct Expected {
    mid: Box<[u8]>,
    layers: Layers,
    formats: Vec<(u8, Option<u8>, Format)>,
    /// SSRCs that the offer names for what was not accepted.
    ignored: Vec<u32>,
    /// By layer: the stream whose packets were authenticated last.
    current: [Option<u32>; LAYERS_MAX],
}

/// How the layers of a section are told apart.
#[derive(Debug)]
enum Layers {
    /// There is one stream.
    One,
    /// By the rid in the packet (RFC 8852).
    Rids(Vec<Box<[u8]>>),
    /// By the SSRCs of the offer: no other belongs to it.
    Declared,
}

#[derive(Debug)]
struct Media {
    ssrc: u32,
    section: usize,
    layer: u8,
    repair: Option<u32>,
    repair_changes: u8,
    authenticated: bool,
}

/// The SSRCs of one publisher.
#[derive(Debug, Default)]
pub(super) struct Streams {
    expected: Vec<Option<Expected>>,
    media: Vec<Media>,
    mid_id: Option<u8>,
    rid_id: Option<u8>,
    repaired_rid_id: Option<u8>,
}

impl Streams {
    /// Adds the next section; `None` if nothing is to be received in it.
    pub(super) fn add_section(&mut self, accepted: Option<&Accepted>) {
        let section = accepted.filter(|a| a.is_active()).map(|accepted| {
            let id = |extension| accepted.extension(extension);
            self.mid_id = self.mid_id.or(id(Extension::Mid));
            self.rid_id = self.rid_id.or(id(Extension::Rid));
            self.repaired_rid_id = self.repaired_rid_id.or(id(Extension::RepairedRid));
            Expected {
                mid: accepted.mid.as_bytes().into(),
                layers: match (accepted.by_rid, accepted.layers.is_empty()) {
                    (true, _) => Layers::Rids(accepted.layers.iter().map(|rid| rid.as_bytes().into()).collect()),
                    (false, false) => Layers::Declared,
                    (false, true) => Layers::One,
                },
                formats: accepted.section_formats().iter().map(|f| (f.pt, f.rtx_pt, f.format)).collect(),
                ignored: accepted.ignored.clone(),
                current: [None; LAYERS_MAX],
            }
        });
        self.expected.push(section);
    }

    /// Takes an SSRC from the offer; `false` if another section has it already.
    pub(super) fn declare(&mut self, section: usize, declared: Declared) -> bool {
        let Declared { ssrc, repair, layer } = declared;
        let new = !self.knows(ssrc) && !repair.is_some_and(|repair| self.knows(repair));
        if new {
            self.media.push(Media { ssrc, section, layer, repair, repair_changes: 0, authenticated: false });
        }
        new
    }

    /// Whether packets of this SSRC need no admission.
    pub(super) fn knows(&self, ssrc: u32) -> bool {
        self.media.iter().any(|m| m.ssrc == ssrc || m.repair == Some(ssrc))
    }

    /// The media whose retransmissions this SSRC carries.
    pub(super) fn repaired_by(&self, repair: u32) -> Option<u32> {
        self.media.iter().find(|m| m.repair == Some(repair)).map(|m| m.ssrc)
    }

    /// Sorts a packet of an unknown SSRC, not authenticated yet.
    pub(super) fn admit(&mut self, rtp: &Rtp<'_>) -> Admission {
        self.resolve(rtp).unwrap_or(Admission::Refused)
    }

    fn resolve(&mut self, rtp: &Rtp<'_>) -> Option<Admission> {
        let value = |id: Option<u8>| id.and_then(|id| rtp.extension(id));
        let section = match value(self.mid_id) {
            Some(mid) => self.expected.iter().position(|e| e.as_ref().is_some_and(|e| *e.mid == *mid))?,
            None => self.by_payload_type(rtp.pt)?,
        };
        let expected = self.expected.get(section)?.as_ref()?;
        if expected.ignored.contains(&rtp.ssrc) {
            return None;
        }
        let layer = match &expected.layers {
            Layers::One => 0,
            Layers::Rids(rids) => {
                let rid = value(self.rid_id).or(value(self.repaired_rid_id))?;
                rids.iter().position(|known| **known == *rid)? as u8
            }
            Layers::Declared => return None,
        };
        if expected.formats.iter().any(|(pt, ..)| *pt == rtp.pt) {
            let evicted = self.make_room(section, layer);
            let media = Media { ssrc: rtp.ssrc, section, layer, repair: None, repair_changes: 0, authenticated: false };
            self.media.push(media);
            return Some(Admission::Media { ssrc: rtp.ssrc, section, evicted });
        }
        expected.formats.iter().find(|(_, rtx, _)| *rtx == Some(rtp.pt))?;
        // Retransmissions before any media (padding that probes the link) have nothing to belong to.
        let current = (*expected.current.get(usize::from(layer))?)?;
        let media = self.media.iter_mut().find(|m| m.ssrc == current && m.repair_changes < REPAIR_CHANGES_MAX)?;
        media.repair = Some(rtp.ssrc);
        media.repair_changes += 1;
        Some(Admission::Repair { ssrc: rtp.ssrc, media: current, section })
    }

    /// The only section that has this payload type.
    fn by_payload_type(&self, pt: u8) -> Option<usize> {
        let has = |e: &Expected| e.formats.iter().any(|(media, rtx, _)| *media == pt || *rtx == Some(pt));
        let mut sections = self.expected.iter().enumerate().filter(|(_, e)| e.as_ref().is_some_and(has));
        match (sections.next(), sections.next()) {
            (Some((section, _)), None) => Some(section),
            (Some(_), Some(_)) | (None, _) => None,
        }
    }

    /// Forgets one stream of a full layer: one that was never authenticated, else the oldest, never the current.
    fn make_room(&mut self, section: usize, layer: u8) -> Option<u32> {
        let current = self.flows(section, layer);
        let of_layer = |m: &&Media| (m.section, m.layer) == (section, layer);
        if self.media.iter().filter(of_layer).count() < MEDIA_PER_LAYER_MAX {
            return None;
        }
        let old = |m: &Media| of_layer(&m) && Some(m.ssrc) != current;
        let index = self.media.iter().position(|m| old(m) && !m.authenticated);
        let index = index.or_else(|| self.media.iter().position(old))?;
        Some(self.media.remove(index).ssrc)
    }

    /// An authenticated packet of `ssrc` with payload type `pt` arrived: its section, layer and format.
    pub(super) fn authenticated(&mut self, ssrc: u32, pt: u8) -> Option<(usize, u8, Format)> {
        let media = self.media.iter_mut().find(|m| m.ssrc == ssrc)?;
        media.authenticated = true;
        let (section, layer) = (media.section, media.layer);
        let expected = self.expected.get_mut(section)?.as_mut()?;
        *expected.current.get_mut(usize::from(layer))? = Some(ssrc);
        let (_, _, format) = expected.formats.iter().find(|(known, ..)| *known == pt)?;
        Some((section, layer, *format))
    }

    fn flows(&self, section: usize, layer: u8) -> Option<u32> {
        *self.expected.get(section)?.as_ref()?.current.get(usize::from(layer))?
    }

    /// The SSRC that a request about a layer of `section` is to name: the one that flows, else the one declared.
    pub(super) fn current(&self, section: usize, layer: u8) -> Option<u32> {
        let declared = || self.media.iter().find(|m| (m.section, m.layer) == (section, layer)).map(|m| m.ssrc);
        self.flows(section, layer).or_else(declared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Codec;

    const VP8: Format = Format { codec: Codec::Vp8, profile: 0, packetization: 0 };

    /// Two sections with payload types 96 (97) and 98 (99); the second expects layers `h` and `f`.
    fn streams() -> Streams {
        let section = |mid: &str, layers: Layers, pt: u8| {
            Some(Expected {
                mid: mid.as_bytes().into(),
                layers,
                formats: vec![(pt, Some(pt + 1), VP8)],
                ignored: vec![666],
                current: [None; LAYERS_MAX],
            })
        };
        let rids = ["h", "f"].map(|rid| rid.as_bytes().into());
        Streams {
            expected: vec![section("a", Layers::One, 96), None, section("b", Layers::Rids(rids.into()), 98)],
            media: Vec::new(),
            mid_id: Some(1),
            rid_id: Some(2),
            repaired_rid_id: Some(3),
        }
    }

    fn packet(pt: u8, ssrc: u32, extensions: &[(u8, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        for (id, value) in extensions {
            block.push((id << 4) | u8::try_from(value.len() - 1).unwrap());
            block.extend(value.as_bytes());
        }
        block.resize(block.len().next_multiple_of(4), 0);
        let words = u16::try_from(block.len() / 4).unwrap().to_be_bytes();
        let mut out = vec![0x90, pt, 0, 1, 0, 0, 0, 0];
        out.extend(ssrc.to_be_bytes());
        out.extend([0xbe, 0xde]);
        out.extend(words);
        out.extend(block);
        out
    }

    fn admit(streams: &mut Streams, pt: u8, ssrc: u32, extensions: &[(u8, &str)]) -> Admission {
        streams.admit(&Rtp::parse(&packet(pt, ssrc, extensions)).unwrap())
    }

    #[test]
    fn only_layers_that_were_answered_are_admitted() {
        let mut streams = streams();
        assert_eq!(admit(&mut streams, 98, 1, &[(1, "b"), (2, "q")]), Admission::Refused);
        assert_eq!(admit(&mut streams, 98, 2, &[(1, "b")]), Admission::Refused);
        let media = Admission::Media { ssrc: 3, section: 2, evicted: None };
        assert_eq!(admit(&mut streams, 98, 3, &[(1, "b"), (2, "h")]), media);
        assert_eq!(admit(&mut streams, 99, 4, &[(1, "b"), (3, "h")]), Admission::Refused, "its media is not proven");
        assert_eq!(streams.authenticated(3, 98), Some((2, 0, VP8)));
        assert_eq!(admit(&mut streams, 99, 5, &[(1, "b"), (3, "q")]), Admission::Refused);
        let repair = Admission::Repair { ssrc: 4, media: 3, section: 2 };
        assert_eq!(admit(&mut streams, 99, 4, &[(1, "b"), (3, "h")]), repair);
        assert!(streams.knows(3) && streams.knows(4) && !streams.knows(1));
        let media = Admission::Media { ssrc: 6, section: 2, evicted: None };
        assert_eq!(admit(&mut streams, 98, 6, &[(1, "b"), (2, "f")]), media);
        assert_eq!(streams.authenticated(6, 98), Some((2, 1, VP8)));
        let repair = Admission::Repair { ssrc: 7, media: 6, section: 2 };
        assert_eq!(admit(&mut streams, 99, 7, &[(1, "b"), (3, "f")]), repair, "each layer has its own");
        assert_eq!([0, 1, 2].map(|layer| streams.current(2, layer)), [Some(3), Some(6), None]);
    }

    #[test]
    fn the_mid_goes_before_the_payload_type() {
        let mut streams = streams();
        assert_eq!(admit(&mut streams, 96, 1, &[(1, "zz")]), Admission::Refused, "a mid of nobody");
        assert_eq!(admit(&mut streams, 98, 2, &[(1, "a")]), Admission::Refused, "not a format of this section");
        assert_eq!(
            admit(&mut streams, 96, 666, &[(1, "a")]),
            Admission::Refused,
            "named by the offer for something else"
        );
        let media = Admission::Media { ssrc: 3, section: 0, evicted: None };
        assert_eq!(admit(&mut streams, 96, 3, &[]), media, "only one section has payload type 96");
        assert_eq!(admit(&mut streams, 100, 4, &[]), Admission::Refused);
    }

    #[test]
    fn forged_ssrcs_are_bounded_and_never_drive_out_the_real_one() {
        let mut streams = streams();
        admit(&mut streams, 96, 1, &[]);
        streams.authenticated(1, 96);
        for forged in 100..200 {
            let Admission::Media { evicted, .. } = admit(&mut streams, 96, forged, &[]) else { panic!() };
            assert_ne!(evicted, Some(1));
        }
        assert_eq!(streams.media.len(), MEDIA_PER_LAYER_MAX);
        assert_eq!(streams.current(0, 0), Some(1));
        // A publisher that restarts with another SSRC takes over with its first authentic packet.
        streams.authenticated(199, 96);
        assert_eq!(streams.current(0, 0), Some(199));
    }

    #[test]
    fn repairs_change_a_bounded_number_of_times() {
        let mut streams = streams();
        admit(&mut streams, 96, 1, &[]);
        streams.authenticated(1, 96);
        let taken = (0..20).filter(|n| admit(&mut streams, 97, 50 + n, &[]) != Admission::Refused).count();
        assert_eq!(taken, usize::from(REPAIR_CHANGES_MAX));
    }

    #[test]
    fn layers_by_ssrc_alone_are_those_that_were_declared() {
        let mut streams = streams();
        if let Some(Some(expected)) = streams.expected.get_mut(0) {
            expected.layers = Layers::Declared;
        }
        for (layer, ssrc) in [(0, 10), (1, 20), (2, 30)] {
            assert!(streams.declare(0, Declared { ssrc, repair: Some(ssrc + 1), layer }));
        }
        assert!(!streams.declare(0, Declared { ssrc: 21, repair: None, layer: 0 }), "it repairs");
        assert_eq!(admit(&mut streams, 96, 40, &[(1, "a")]), Admission::Refused);
        assert_eq!([10, 20, 30].map(|ssrc| streams.authenticated(ssrc, 96)), [0, 1, 2].map(|l| Some((0, l, VP8))));
        assert_eq!(streams.repaired_by(31), Some(30));
    }
}
