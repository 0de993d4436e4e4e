//! Pure rules of a room: what kind it is, and which track goes into which section of a viewer's transport.

use crate::codec::Kind;
use std::collections::BTreeSet;

/// Names a track inside one room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrackKey(pub u32);

/// A track that a viewer is shown, if there is a section for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// Which track.
    pub track: TrackKey,
    /// Whose; tracks of one participant are put side by side where possible.
    pub participant: u32,
    /// Audio goes to audio, video to video.
    pub kind: Kind,
}

/// A track that was given a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Which track.
    pub track: TrackKey,
    /// The section that it has now.
    pub section: usize,
    /// Whose section that was: a track that the viewer wants nothing of, and which waits from now on.
    pub evicted: Option<TrackKey>,
}

/// The sections of one play transport, what they carry, and what waits for one (interfaces §5).
///
/// The *n*-th audio and the *n*-th video section form a pair; a participant's tracks share a pair where both
/// places are free. A section that was freed is the first to be used again.
///
/// A track is *wanted* if its viewer would see or hear anything of it: it is neither muted nor paused. What is wanted
/// takes a free section, else that of a track which is not; what is not wanted takes what is left. Among equals the
/// one that was published first comes first.
///
/// A change costs a look at each section and a place in an ordered set, however many tracks wait.
#[derive(Debug, Clone, Default)]
pub struct Sections {
    slots: Vec<Slot>,
    audio: Waiting,
    video: Waiting,
}

#[derive(Debug, Clone)]
struct Slot {
    kind: Kind,
    usable: bool,
    /// The section beside it: the other kind's of the same number.
    partner: Option<usize>,
    held: Option<Held>,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    candidate: Candidate,
    wanted: bool,
}

/// Tracks of one kind without a section.
#[derive(Debug, Clone, Default)]
struct Waiting {
    wanted: BTreeSet<Candidate>,
    unwanted: BTreeSet<Candidate>,
}

impl Waiting {
    fn of(&mut self, wanted: bool) -> &mut BTreeSet<Candidate> {
        if wanted { &mut self.wanted } else { &mut self.unwanted }
    }
}

impl Sections {
    /// `sections`: kind, and whether it can carry anything, in the order of the offer.
    pub fn new(sections: impl IntoIterator<Item = (Kind, bool)>) -> Self {
        let slot = |(kind, usable)| Slot { kind, usable, partner: None, held: None };
        let mut slots: Vec<Slot> = sections.into_iter().map(slot).collect();
        let of = |kind| slots.iter().enumerate().filter(move |(_, slot)| slot.kind == kind).map(|(section, _)| section);
        let pairs: Vec<(usize, usize)> = of(Kind::Audio).zip(of(Kind::Video)).collect();
        for (audio, video) in pairs {
            slots[audio].partner = Some(video);
            slots[video].partner = Some(audio);
        }
        Self { slots, audio: Waiting::default(), video: Waiting::default() }
    }

    fn waiting(&mut self, kind: Kind) -> &mut Waiting {
        match kind {
            Kind::Audio => &mut self.audio,
            Kind::Video => &mut self.video,
        }
    }

    /// A track that is new to the viewer: it waits for a section, which [`Sections::place_next`] gives.
    pub fn show(&mut self, candidate: Candidate, wanted: bool) {
        if self.section_of(candidate.track).is_none() {
            let waiting = self.waiting(candidate.kind);
            waiting.of(!wanted).remove(&candidate);
            waiting.of(wanted).insert(candidate);
        }
    }

    /// The viewer wants a track that it is shown, or no longer. Nothing happens to a track that it is not shown.
    pub fn want(&mut self, candidate: Candidate, wanted: bool) {
        let waiting = self.waiting(candidate.kind);
        if waiting.of(!wanted).remove(&candidate) {
            waiting.of(wanted).insert(candidate);
        } else if let Some(section) = self.section_of(candidate.track) {
            self.slots[section].held = Some(Held { candidate, wanted });
        }
    }

    /// Takes a track away from the viewer; the section it had.
    pub fn hide(&mut self, candidate: Candidate) -> Option<usize> {
        let waiting = self.waiting(candidate.kind);
        if waiting.wanted.remove(&candidate) || waiting.unwanted.remove(&candidate) {
            return None;
        }
        let section = self.section_of(candidate.track)?;
        self.slots[section].held = None;
        Some(section)
    }

    /// Gives a section to the next track that waits for one. `None`: there is none for any of them.
    pub fn place_next(&mut self) -> Option<Placed> {
        let kinds = [&self.audio, &self.video];
        let next = |wanted: bool| {
            let first =
                |waiting: &Waiting| if wanted { waiting.wanted.first() } else { waiting.unwanted.first() }.copied();
            let firsts = kinds.into_iter().filter_map(first);
            firsts.filter_map(|candidate| Some((candidate, self.best(candidate, wanted)?))).min()
        };
        let (wanted, (candidate, section)) =
            [true, false].into_iter().find_map(|wanted| Some((wanted, next(wanted)?)))?;
        let before = self.slots[section].held.replace(Held { candidate, wanted });
        let evicted = before.map(|held| held.candidate);
        let waiting = self.waiting(candidate.kind);
        waiting.of(wanted).remove(&candidate);
        waiting.unwanted.extend(evicted);
        Some(Placed { track: candidate.track, section, evicted: evicted.map(|candidate| candidate.track) })
    }

    /// The section that suits a track best: a free one before one that can be taken over; among those one beside the
    /// same participant, then one beside nobody; then the first.
    fn best(&self, candidate: Candidate, wanted: bool) -> Option<usize> {
        let open = |slot: &Slot| {
            let open = slot.held.is_none_or(|held| wanted && !held.wanted);
            slot.usable && slot.kind == candidate.kind && open
        };
        let beside = |slot: &Slot| match slot.partner.and_then(|partner| self.slots[partner].held) {
            Some(held) if held.candidate.participant == candidate.participant => 0,
            None => 1,
            Some(_) => 2,
        };
        let slots = self.slots.iter().enumerate().inspect(|_| looks::count());
        let open = slots.filter(|(_, slot)| open(slot));
        open.min_by_key(|(_, slot)| (slot.held.is_some(), beside(slot))).map(|(section, _)| section)
    }

    /// How many tracks the viewer misses: those without a section that it wants.
    pub fn missing(&self) -> usize {
        self.audio.wanted.len() + self.video.wanted.len()
    }

    /// The section that carries a track.
    pub fn section_of(&self, track: TrackKey) -> Option<usize> {
        let mut slots = self.slots.iter().inspect(|_| looks::count());
        slots.position(|slot| slot.held.is_some_and(|held| held.candidate.track == track))
    }

    /// Section and track of every section that carries something.
    pub fn held(&self) -> impl Iterator<Item = (usize, TrackKey)> + '_ {
        self.slots.iter().enumerate().filter_map(|(section, slot)| Some((section, slot.held?.candidate.track)))
    }
}

/// How often a section was looked at: the tests bound what a change costs by it.
mod looks {
    #[cfg(test)]
    thread_local!(static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });

    pub fn count() {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + 1);
    }

    /// Since the last time it was asked.
    #[cfg(test)]
    pub fn take() -> usize {
        LOOKS.replace(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(track: u32, participant: u32, kind: Kind) -> Candidate {
        Candidate { track: TrackKey(track), participant, kind }
    }

    /// Into a free section only: what is not wanted takes none from another.
    fn place(sections: &mut Sections, candidate: Candidate) -> Option<usize> {
        sections.show(candidate, false);
        let placed = sections.place_next();
        assert!(placed.is_none_or(|placed| (placed.track, placed.evicted) == (candidate.track, None)));
        placed.map(|placed| placed.section)
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
        let [one, two, three] = [1, 2, 3].map(|n| candidate(n, n, Kind::Audio));
        assert_eq!(place(&mut sections, one), Some(1));
        assert_eq!(place(&mut sections, two), Some(2));
        assert_eq!(place(&mut sections, three), None);
        assert_eq!(sections.hide(one), Some(1));
        assert_eq!(sections.hide(one), None);
        let placed = Placed { track: three.track, section: 1, evicted: None };
        assert_eq!(sections.place_next(), Some(placed), "the third has waited for it");
        assert_eq!(sections.held().collect::<Vec<_>>(), [(1, TrackKey(3)), (2, TrackKey(2))]);
        assert_eq!(place(&mut sections, one), None);
        assert_eq!((sections.hide(one), sections.hide(three)), (None, Some(1)));
        assert_eq!(sections.place_next(), None, "who has gone waits no longer");
    }

    #[test]
    fn what_is_not_wanted_gives_its_section_up_when_none_is_free() {
        let mut sections = pairs(2);
        let held = [(1, 7, Kind::Audio), (2, 7, Kind::Video), (3, 8, Kind::Video)].map(|(t, p, k)| candidate(t, p, k));
        for track in held {
            sections.show(track, true);
            assert!(sections.place_next().is_some());
        }
        sections.want(held[1], false);
        sections.want(held[2], false);
        assert_eq!(sections.place_next(), None, "what is not wanted keeps its section while nobody wants it");
        let mut show = |track, who, kind| {
            sections.show(candidate(track, who, kind), true);
            (sections.place_next().map(|p| (p.section, p.evicted)), sections.missing())
        };
        assert_eq!(show(4, 8, Kind::Audio), (Some((2, None)), 0), "a free one comes first");
        assert_eq!(show(5, 8, Kind::Video), (Some((3, Some(TrackKey(3)))), 0), "beside its sound");
        assert_eq!(show(6, 9, Kind::Video), (Some((1, Some(TrackKey(2)))), 0));
        assert_eq!(show(7, 9, Kind::Video), (None, 1));
        assert_eq!(show(8, 9, Kind::Audio), (None, 2), "audio takes no video's place");
        assert_eq!(sections.section_of(TrackKey(3)), None);
        assert_eq!(sections.section_of(TrackKey(6)), Some(1));
        // The one that was published first comes first; what is wanted comes before what is not.
        sections.want(held[2], true);
        assert_eq!((sections.missing(), sections.hide(candidate(6, 9, Kind::Video))), (3, Some(1)));
        assert_eq!(sections.place_next(), Some(Placed { track: TrackKey(3), section: 1, evicted: None }));
        assert_eq!(sections.place_next(), None);
    }

    /// What `sections` costs that tracks pass by that have none: looks at sections for a mute and for a change of one
    /// that is seen.
    fn looks_of_a_mute(tracks: u32) -> [usize; 2] {
        let mut sections = pairs(25);
        let all: Vec<_> =
            (0..tracks).map(|n| candidate(n, n / 2, [Kind::Audio, Kind::Video][n as usize % 2])).collect();
        for track in &all {
            sections.show(*track, true);
        }
        while sections.place_next().is_some() {}
        assert_eq!(sections.missing(), all.len() - 50);
        [all[all.len() - 1], all[1]].map(|track| {
            looks::take();
            sections.want(track, false);
            while sections.place_next().is_some() {}
            looks::take()
        })
    }

    #[test]
    fn a_change_costs_a_look_at_each_section_however_many_tracks_wait() {
        let [unseen, seen] = looks_of_a_mute(1_000);
        // Four rounds (wanted or not, audio or video) to find that nothing more can be placed; for what is seen also
        // the one that finds its section, and two that place its successor.
        assert!(unseen <= 4 * 50, "{unseen} looks");
        assert!(seen <= 7 * 50, "{seen} looks");
        assert_eq!(looks_of_a_mute(150), [unseen, seen]);
    }
}
