//! Which section a publisher's SSRC belongs to (RFC 9143 §9.2): by what the offer declared, by the mid in
//! the packet, or by the payload type.
//!
//! str0m does this too, but only with a mid, and it moves a stream to whatever SSRC an unauthenticated packet
//! names. Here an unknown SSRC adds a candidate beside the ones that are known, within a bound, and becomes
//! the section's stream when its first packet has been authenticated.

use super::peek::Rtp;
use crate::codec::Format;
use crate::sdp::{Accepted, Extension};

/// SSRCs of media that one section may have at a time: restarts and replaced tracks leave old ones behind.
const MEDIA_PER_SECTION_MAX: usize = 4;
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
    rid: Option<Box<[u8]>>,
    formats: Vec<(u8, Option<u8>, Format)>,
    /// SSRCs that the offer names for what was not accepted.
    ignored: Vec<u32>,
    /// The stream whose packets were authenticated last.
    current: Option<u32>,
}

#[derive(Debug)]
struct Media {
    ssrc: u32,
    section: usize,
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
                rid: accepted.rid.as_ref().map(|rid| rid.as_bytes().into()),
                formats: accepted.section_formats().iter().map(|f| (f.pt, f.rtx_pt, f.format)).collect(),
                ignored: accepted.ignored.clone(),
                current: None,
            }
        });
        self.expected.push(section);
    }

    /// Takes an SSRC from the offer; `false` if another section has it already.
    pub(super) fn declare(&mut self, section: usize, ssrc: u32, repair: Option<u32>) -> bool {
        let new = !self.knows(ssrc) && !repair.is_some_and(|repair| self.knows(repair));
        if new {
            self.media.push(Media { ssrc, section, repair, repair_changes: 0, authenticated: false });
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
        if let Some(wanted) = &expected.rid
            && value(self.rid_id).or(value(self.repaired_rid_id)) != Some(wanted)
        {
            return None;
        }
        if expected.formats.iter().any(|(pt, ..)| *pt == rtp.pt) {
            let evicted = self.make_room(section);
            let media = Media { ssrc: rtp.ssrc, section, repair: None, repair_changes: 0, authenticated: false };
            self.media.push(media);
            return Some(Admission::Media { ssrc: rtp.ssrc, section, evicted });
        }
        expected.formats.iter().find(|(_, rtx, _)| *rtx == Some(rtp.pt))?;
        // Retransmissions before any media (padding that probes the link) have nothing to belong to.
        let current = expected.current?;
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

    /// Forgets one stream of a full section: one that was never authenticated, else the oldest, never the current.
    fn make_room(&mut self, section: usize) -> Option<u32> {
        let current = self.expected.get(section)?.as_ref()?.current;
        let of_section = |m: &&Media| m.section == section;
        if self.media.iter().filter(of_section).count() < MEDIA_PER_SECTION_MAX {
            return None;
        }
        let old = |m: &Media| m.section == section && Some(m.ssrc) != current;
        let index = self.media.iter().position(|m| old(m) && !m.authenticated);
        let index = index.or_else(|| self.media.iter().position(old))?;
        Some(self.media.remove(index).ssrc)
    }

    /// An authenticated packet of `ssrc` with payload type `pt` arrived: its section and format.
    pub(super) fn authenticated(&mut self, ssrc: u32, pt: u8) -> Option<(usize, Format)> {
        let media = self.media.iter_mut().find(|m| m.ssrc == ssrc)?;
        media.authenticated = true;
        let section = media.section;
        let expected = self.expected.get_mut(section)?.as_mut()?;
        expected.current = Some(ssrc);
        let (_, _, format) = expected.formats.iter().find(|(known, ..)| *known == pt)?;
        Some((section, *format))
    }

    /// The SSRC that a request about `section` is to name: the one that flows, else the one declared.
    pub(super) fn current(&self, section: usize) -> Option<u32> {
        let flows = self.expected.get(section)?.as_ref()?.current;
        flows.or_else(|| self.media.iter().find(|m| m.section == section).map(|m| m.ssrc))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Codec;

    const VP8: Format = Format { codec: Codec::Vp8, profile: 0, packetization: 0 };

    /// Two sections with payload types 96 (97) and 98 (99); the second expects layer `h`.
    fn streams() -> Streams {
        let section = |mid: &str, rid: Option<&str>, pt: u8| {
            Some(Expected {
                mid: mid.as_bytes().into(),
                rid: rid.map(|rid| rid.as_bytes().into()),
                formats: vec![(pt, Some(pt + 1), VP8)],
                ignored: vec![666],
                current: None,
            })
        };
        Streams {
            expected: vec![section("a", None, 96), None, section("b", Some("h"), 98)],
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
    fn only_the_chosen_layer_is_admitted() {
        let mut streams = streams();
        assert_eq!(admit(&mut streams, 98, 1, &[(1, "b"), (2, "q")]), Admission::Refused);
        assert_eq!(admit(&mut streams, 98, 2, &[(1, "b")]), Admission::Refused);
        let media = Admission::Media { ssrc: 3, section: 2, evicted: None };
        assert_eq!(admit(&mut streams, 98, 3, &[(1, "b"), (2, "h")]), media);
        assert_eq!(admit(&mut streams, 99, 4, &[(1, "b"), (3, "h")]), Admission::Refused, "its media is not proven");
        assert_eq!(streams.authenticated(3, 98), Some((2, VP8)));
        assert_eq!(admit(&mut streams, 99, 5, &[(1, "b"), (3, "q")]), Admission::Refused);
        let repair = Admission::Repair { ssrc: 4, media: 3, section: 2 };
        assert_eq!(admit(&mut streams, 99, 4, &[(1, "b"), (3, "h")]), repair);
        assert!(streams.knows(3) && streams.knows(4) && !streams.knows(1));
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
        assert_eq!(streams.media.len(), MEDIA_PER_SECTION_MAX);
        assert_eq!(streams.current(0), Some(1));
        // A publisher that restarts with another SSRC takes over with its first authentic packet.
        streams.authenticated(199, 96);
        assert_eq!(streams.current(0), Some(199));
    }

    #[test]
    fn repairs_change_a_bounded_number_of_times() {
        let mut streams = streams();
        admit(&mut streams, 96, 1, &[]);
        streams.authenticated(1, 96);
        let taken = (0..20).filter(|n| admit(&mut streams, 97, 50 + n, &[]) != Admission::Refused).count();
        assert_eq!(taken, usize::from(REPAIR_CHANGES_MAX));
    }
}
