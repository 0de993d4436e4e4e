//! Pure rules of a room: what kind it is, and which track goes into which section of a viewer's transport.

use crate::codec::Kind;

/// Names a track inside one room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrackKey(pub u32);

/// A track that wants a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Which track.
    pub track: TrackKey,
    /// Whose; tracks of one participant are put side by side where possible.
    pub participant: u32,
    /// Audio goes to audio, video to video.
    pub kind: Kind,
}

/// The sections of one play transport and what they carry (interfaces §5).
///
/// The *n*-th audio and the *n*-th video section form a pair; a participant's tracks share a pair where both
/// places are free. A section that was freed is the first to be used again.
#[derive(Debug, Clone, Default)]
pub struct Sections {
    slots: Vec<Slot>,
}

#[derive(Debug, Clone)]
struct Slot {
    kind: Kind,
    ordinal: usize,
    usable: bool,
    held: Option<Candidate>,
}

impl Sections {
    /// `sections`: kind, and whether it can carry anything, in the order of the offer.
    pub fn new(sections: impl IntoIterator<Item = (Kind, bool)>) -> Self {
        let (mut audio, mut video) = (0, 0);
        let slots = sections
            .into_iter()
            .map(|(kind, usable)| {
                let count = match kind {
                    Kind::Audio => &mut audio,
                    Kind::Video => &mut video,
                };
                let ordinal = *count;
                *count += 1;
                Slot { kind, ordinal, usable, held: None }
            })
            .collect();
        Self { slots }
    }

    /// Puts a track into a free section, else into that of a track which is `spare`: the section, and what had it.
    /// `None` if there is neither of its kind.
    pub fn place(
        &mut self,
        candidate: Candidate,
        spare: impl Fn(TrackKey) -> bool,
    ) -> Option<(usize, Option<TrackKey>)> {
        let fits = |slot: &Slot| slot.usable && slot.kind == candidate.kind;
        let partner_is = |slot: &Slot, wanted: fn(Option<u32>, u32) -> bool| {
            let partner = self.slots.iter().find(|other| other.kind != slot.kind && other.ordinal == slot.ordinal);
            wanted(partner.and_then(|p| p.held).map(|held| held.participant), candidate.participant)
        };
        let rules: [fn(Option<u32>, u32) -> bool; 3] =
            [|partner, me| partner == Some(me), |partner, _| partner.is_none(), |_, _| true];
        let first = |open: &dyn Fn(&Slot) -> bool| {
            rules
                .into_iter()
                .find_map(|rule| self.slots.iter().position(|slot| fits(slot) && open(slot) && partner_is(slot, rule)))
        };
        let section = first(&|slot| slot.held.is_none())
            .or_else(|| first(&|slot| slot.held.is_some_and(|held| spare(held.track))))?;
        let before = self.slots[section].held.replace(candidate);
        Some((section, before.map(|held| held.track)))
    }

    /// Takes a track out; the section it had.
    pub fn remove(&mut self, track: TrackKey) -> Option<usize> {
        let section = self.section_of(track)?;
        self.slots[section].held = None;
        Some(section)
    }

    /// The section that carries a track.
    pub fn section_of(&self, track: TrackKey) -> Option<usize> {
        self.slots.iter().position(|slot| slot.held.is_some_and(|held| held.track == track))
    }

    /// Section and track of every section that carries something.
    pub fn held(&self) -> impl Iterator<Item = (usize, TrackKey)> + '_ {
        self.slots.iter().enumerate().filter_map(|(section, slot)| Some((section, slot.held?.track)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(track: u32, participant: u32, kind: Kind) -> Candidate {
        Candidate { track: TrackKey(track), participant, kind }
    }

    /// Into a free section only.
    fn place(sections: &mut Sections, candidate: Candidate) -> Option<usize> {
        sections.place(candidate, |_| false).map(|(section, _)| section)
    }

    /// Audio, video, audio, video, …
    fn pairs(n: usize) -> Sections {
        Sections::new((0..n).flat_map(|_| [(Kind::Audio, true), (Kind::Video, true)]))
    }

    #[test]
    fn tracks_fill_in_order_of_publication_and_by_kind() {
        let mut sections = Sections::new([(Kind::Audio, true), (Kind::Audio, true), (Kind::Video, true)]);
        assert_eq!(place(&mut sections, candidate(1, 1, Kind::Video)), Some(2));
        assert_eq!(place(&mut sections, candidate(2, 2, Kind::Audio)), Some(1), "the pair of ann's video stays hers");
        assert_eq!(place(&mut sections, candidate(3, 1, Kind::Audio)), Some(0));
        assert_eq!(place(&mut sections, candidate(4, 2, Kind::Video)), None, "one video section only");
    }

    #[test]
    fn one_participants_tracks_stand_together_whatever_the_order() {
        let mut sections = pairs(3);
        for (track, who, kind, want) in [
            (1, 7, Kind::Video, 1),
            (2, 8, Kind::Audio, 2),
            (3, 9, Kind::Video, 5),
            (4, 9, Kind::Audio, 4),
            (5, 8, Kind::Video, 3),
            (6, 7, Kind::Audio, 0),
        ] {
            assert_eq!(place(&mut sections, candidate(track, who, kind)), Some(want), "track {track}");
        }
    }

    #[test]
    fn a_leavers_section_is_used_again_and_an_unusable_one_never() {
        let mut sections = Sections::new([(Kind::Audio, false), (Kind::Audio, true), (Kind::Audio, true)]);
        assert_eq!(place(&mut sections, candidate(1, 1, Kind::Audio)), Some(1));
        assert_eq!(place(&mut sections, candidate(2, 2, Kind::Audio)), Some(2));
        assert_eq!(place(&mut sections, candidate(3, 3, Kind::Audio)), None);
        assert_eq!(sections.remove(TrackKey(1)), Some(1));
        assert_eq!(sections.remove(TrackKey(1)), None);
        assert_eq!(place(&mut sections, candidate(3, 3, Kind::Audio)), Some(1));
        assert_eq!(sections.held().collect::<Vec<_>>(), [(1, TrackKey(3)), (2, TrackKey(2))]);
    }

    #[test]
    fn what_is_not_wanted_gives_its_section_up_when_none_is_free() {
        let mut sections = pairs(2);
        for (track, who, kind) in [(1, 7, Kind::Audio), (2, 7, Kind::Video), (3, 8, Kind::Video)] {
            assert!(place(&mut sections, candidate(track, who, kind)).is_some());
        }
        let spare = |track: TrackKey| track.0 == 2 || track.0 == 3;
        assert_eq!(sections.place(candidate(4, 8, Kind::Audio), spare), Some((2, None)), "a free one comes first");
        assert_eq!(
            sections.place(candidate(5, 8, Kind::Video), spare),
            Some((3, Some(TrackKey(3)))),
            "beside its sound"
        );
        assert_eq!(sections.place(candidate(6, 9, Kind::Video), spare), Some((1, Some(TrackKey(2)))));
        assert_eq!(sections.place(candidate(7, 9, Kind::Video), spare), None);
        assert_eq!(sections.place(candidate(8, 9, Kind::Audio), spare), None, "audio takes no video's place");
        assert_eq!(sections.section_of(TrackKey(3)), None);
        assert_eq!(sections.section_of(TrackKey(6)), Some(1));
    }
}
