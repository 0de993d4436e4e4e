//! Which simulcast layer of each video a viewer is sent, given the rate that its path takes.
//!
//! Sound first. Then the lowest layer of every video that is shown, so that everybody is seen before anybody is seen
//! better; then better layers: those of pinned videos and shared screens as far as they go, all others step by step,
//! speakers and large tiles first. Down at once, up after a while and with something to spare; an upgrade that did not
//! last is tried again after a pause that doubles, so that a steady link sees at most two changes a minute. Layers below the
//! one that did not last do not wait for it.

use crate::units::Bitrate;
use std::cmp::Reverse;
use std::time::{Duration, Instant};

/// Simulcast layers of a video at most.
pub const LAYERS_MAX: usize = 3;

/// Which video comes before which; the first field that differs decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// By wish: from [`Rank::STAGE`] on it is raised as far as it goes before others are.
    pub priority: u8,
    /// Its participant speaks.
    pub speaks: bool,
    /// Size that it is shown at, in pixels.
    pub area_px: u32,
}

impl Rank {
    /// The priority of what is pinned or shared: everybody looks at it.
    pub const STAGE: u8 = 2;
}

/// One video of a viewer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Demand {
    /// What each layer takes, lowest first; none for one that does not come.
    pub layers: [Option<Bitrate>; LAYERS_MAX],
    /// The highest layer that is of use.
    pub most: usize,
    /// Something of it is shown; false for what is paused or muted.
    pub shown: bool,
    /// Who comes first.
    pub rank: Rank,
}

impl Demand {
    /// The lowest layer there is, whether it is of use or too good.
    fn base(&self) -> Option<usize> {
        self.layers.iter().position(Option::is_some)
    }

    /// The best layer that is of use.
    fn best(&self) -> Option<usize> {
        let mut best = self.base()?;
        while let Some(above) = self.above(best) {
            best = above;
        }
        Some(best)
    }

    /// The next layer above one that is of use.
    fn above(&self, layer: usize) -> Option<usize> {
        (layer + 1..=self.most.min(LAYERS_MAX - 1)).find(|n| self.layers[*n].is_some())
    }

    fn rate(&self, layer: usize) -> Bitrate {
        self.layers.get(layer).copied().flatten().unwrap_or_default()
    }
}

/// What a run found, besides the layers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allocation {
    /// What sound and the chosen layers take together.
    pub used: Bitrate,
    /// What they would take, with something to spare, if everything that may be raised were: worth probing for.
    pub wanted: Bitrate,
    /// A video is sent below what is of use, or not at all, for want of rate.
    pub short: bool,
}

/// Chooses layers for one viewer, and remembers what did not last.
#[derive(Debug, Clone, Default)]
pub struct Allocator {
    sections: Vec<Section>,
    order: Vec<usize>,
    ran: Option<(Instant, Option<Bitrate>)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Section {
    layer: Option<usize>,
    /// The layer that the run under way has come to.
    next: Option<usize>,
    /// The last time it was raised, and has not been lowered since.
    raised_at: Option<Instant>,
    lowered_at: Option<Instant>,
    /// What is remembered of each layer: one that did not last says nothing of those below it.
    tried: [Tried; LAYERS_MAX],
}

#[derive(Debug, Clone, Copy, Default)]
struct Tried {
    /// Not raised to it, or above, before then.
    hold_until: Option<Instant>,
    /// The pause after the next time that it does not last.
    pause: Option<Duration>,
}

impl Allocator {
    /// Layers are chosen anew this often.
    pub const EVERY: Duration = Duration::from_secs(1);
    /// And at once when the rate falls below this share of what the last run had, in percent.
    const FALLS_BELOW: u64 = 90;
    /// What an upgrade needs beyond its own rate, in percent of it.
    const UPGRADE_NEEDS: u64 = 108;
    /// A layer that flows may take so much more than there is, in percent: its rate swings about its mean.
    const KEPT_UP_TO: u64 = 110;
    /// After it was lowered a video is not raised for this long.
    const DWELL: Duration = Duration::from_secs(1);
    /// An upgrade that was undone within this time did not last.
    const LASTS: Duration = Duration::from_secs(10);
    /// The first pause after one that did not last, doubled each time up to the longest.
    const PAUSE: Duration = Duration::from_secs(8);
    const PAUSE_MAX: Duration = Duration::from_secs(60);

    /// Nothing is chosen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// When layers are to be chosen anew if nothing happens.
    pub fn due_at(&self) -> Option<Instant> {
        self.ran.map(|(at, _)| at + Self::EVERY)
    }

    /// Whether layers are to be chosen now: a second has passed, or the rate has fallen.
    pub fn is_due(&self, now: Instant, available: Option<Bitrate>) -> bool {
        let Some((at, _)) = self.ran else { return true };
        now >= at + Self::EVERY || self.fell(available)
    }

    /// Whether the rate has fallen since the last run, or there was none.
    pub fn fell(&self, available: Option<Bitrate>) -> bool {
        let Some((_, before)) = self.ran else { return true };
        match (before, available) {
            (Some(before), Some(available)) => available < before.percent(Self::FALLS_BELOW),
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }

    /// The layer of each of `demands`, by its place: sections of a viewer in their order, which do not change places.
    ///
    /// `available`: what the path takes in all; none while nobody knows, then everything gets the best that is of use.
    /// `audio`: what sound takes of it. Read the layers by [`Self::layer`].
    pub fn allocate(
        &mut self,
        now: Instant,
        available: Option<Bitrate>,
        audio: Bitrate,
        demands: &[Demand],
    ) -> Allocation {
        self.ran = Some((now, available));
        self.sections.resize_with(demands.len(), Section::default);
        self.order.clear();
        self.order.extend((0..demands.len()).filter(|n| demands[*n].shown && demands[*n].base().is_some()));
        self.order.sort_by_key(|n| (Reverse(demands[*n].rank), *n));
        let mut run = Run {
            now,
            left: available.map(|rate| rate.saturating_sub(audio)),
            spare: available.map_or(Bitrate::ZERO, |rate| rate.percent(Self::KEPT_UP_TO - 100)),
        };
        let order = std::mem::take(&mut self.order);
        let sections = &mut self.sections;
        sections.iter_mut().for_each(|section| section.next = None);
        for n in &order {
            run.raise(&mut sections[*n], &demands[*n]);
        }
        for n in order.iter().filter(|n| demands[**n].rank.priority >= Rank::STAGE) {
            while run.raise(&mut sections[*n], &demands[*n]) {}
        }
        for _ in 1..LAYERS_MAX {
            for n in &order {
                run.raise(&mut sections[*n], &demands[*n]);
            }
        }
        let mut allocation = Allocation { used: audio, wanted: audio, short: false };
        for (section, demand) in self.sections.iter_mut().zip(demands) {
            if demand.shown && demand.base().is_some() {
                section.settle(now, demand.best());
            } else {
                // It ends because nobody looks, or nothing comes: that says nothing of the path.
                (section.layer, section.raised_at) = (None, None);
            }
            let (Some(base), true) = (demand.base(), demand.shown) else { continue };
            let layer = section.layer;
            allocation.short |= layer != demand.best();
            allocation.used = allocation.used.saturating_add(layer.map_or(Bitrate::ZERO, |l| demand.rate(l)));
            let mut goal = layer.unwrap_or(base);
            while let Some(above) = demand.above(goal).filter(|above| !section.held(*above, now)) {
                goal = above;
            }
            let margin = if Some(goal) == layer { 100 } else { Self::UPGRADE_NEEDS };
            allocation.wanted = allocation.wanted.saturating_add(demand.rate(goal).percent(margin));
        }
        self.order = order;
        allocation
    }

    /// The layer that the last run chose for a section; none: nothing of it is sent.
    pub fn layer(&self, section: usize) -> Option<usize> {
        self.sections.get(section)?.layer
    }

    /// A section carries another video from now on: what the one before did says nothing of it.
    pub fn forget(&mut self, section: usize) {
        if let Some(section) = self.sections.get_mut(section) {
            *section = Section::default();
        }
        self.ran = None;
    }

    /// What a section may have has changed: the next run is due now.
    pub fn anew(&mut self) {
        self.ran = None;
    }
}

impl Section {
    /// It may not be raised to that layer yet.
    fn held(&self, layer: usize, now: Instant) -> bool {
        self.tried.get(layer).and_then(|tried| tried.hold_until).is_some_and(|until| now < until)
    }

    /// Takes over what the run has come to. `best`: the layer that would do.
    fn settle(&mut self, now: Instant, best: Option<usize>) {
        let before = std::mem::replace(&mut self.layer, self.next);
        let layer = self.layer;
        if layer < before && layer == best {
            // Lowered because no more is of use now: that says nothing of the path.
            self.raised_at = None;
        } else if layer > before {
            // The first choice is no upgrade: nothing was known.
            self.raised_at = Some(now);
        } else if layer < before {
            let lasted = self.raised_at.is_none_or(|at| now.saturating_duration_since(at) >= Allocator::LASTS);
            for (n, tried) in self.tried.iter_mut().enumerate().filter(|(n, _)| Some(*n) > layer && Some(*n) <= before)
            {
                let pause = match tried.pause {
                    _ if lasted || Some(n) < before => Allocator::DWELL,
                    pause => {
                        let pause = pause.unwrap_or(Allocator::PAUSE);
                        tried.pause = Some((pause * 2).min(Allocator::PAUSE_MAX));
                        pause
                    }
                };
                tried.hold_until = tried.hold_until.max(Some(now + pause));
            }
            (self.raised_at, self.lowered_at) = (None, Some(now));
        } else if self.raised_at.is_some_and(|at| now.saturating_duration_since(at) >= Allocator::PAUSE_MAX) {
            self.tried
                .iter_mut()
                .enumerate()
                .filter(|(n, _)| Some(*n) <= layer)
                .for_each(|(_, tried)| tried.pause = None);
        }
    }
}

/// One run over all videos.
struct Run {
    now: Instant,
    /// What is left to give; none: nobody knows, and there is enough.
    left: Option<Bitrate>,
    /// What those that flow may take beyond that, all together.
    spare: Bitrate,
}

impl Run {
    /// Gives a video its next layer, the lowest first, if it may have one and there is enough; whether it did.
    fn raise(&mut self, section: &mut Section, demand: &Demand) -> bool {
        let next = match section.next {
            None => demand.base(),
            Some(layer) => demand.above(layer),
        };
        let Some(next) = next else { return false };
        let flows = section.layer.is_some_and(|layer| next <= layer);
        // Who is not seen at all is seen again as soon as there is room: only better layers wait for longer.
        let waits = match section.next {
            None => section.lowered_at.is_some_and(|at| self.now < at + Allocator::DWELL),
            Some(_) => section.held(next, self.now),
        };
        if !flows && waits {
            return false;
        }
        let Some(left) = self.left else {
            section.next = Some(next);
            return true;
        };
        let before = section.next.map_or(Bitrate::ZERO, |layer| demand.rate(layer));
        let more = demand.rate(next).saturating_sub(before);
        let fits = match flows {
            true => more <= left.saturating_add(self.spare),
            // The first choice of all is no upgrade, and needs nothing to spare.
            false if section.layer.is_none() && section.raised_at.is_none() => more <= left,
            false => more.saturating_add(demand.rate(next).percent(Allocator::UPGRADE_NEEDS - 100)) <= left,
        };
        if fits {
            section.next = Some(next);
            self.spare = self.spare.saturating_sub(more.saturating_sub(left));
            self.left = Some(left.saturating_sub(more));
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    fn start() -> Instant {
        Instant::now()
    }

    const AUDIO: Bitrate = Bitrate::from_kbps(40);
    const LAYERS: [Option<Bitrate>; LAYERS_MAX] =
        [Some(Bitrate::from_kbps(150)), Some(Bitrate::from_kbps(500)), Some(Bitrate::from_kbps(1_700))];

    fn camera() -> Demand {
        Demand { layers: LAYERS, most: 2, shown: true, rank: Rank::default() }
    }

    fn kbps(kbps: u64) -> Option<Bitrate> {
        Some(Bitrate::from_kbps(kbps))
    }

    fn layers(allocator: &Allocator, n: usize) -> Vec<Option<usize>> {
        (0..n).map(|section| allocator.layer(section)).collect()
    }

    /// What fresh viewers get at a rate.
    fn at_first(rate: Option<Bitrate>, demands: &[Demand]) -> Vec<Option<usize>> {
        let mut allocator = Allocator::new();
        allocator.allocate(start(), rate, AUDIO, demands);
        layers(&allocator, demands.len())
    }

    #[test]
    fn everybody_is_seen_before_anybody_is_seen_better() {
        let speaker = Demand { rank: Rank { speaks: true, ..Rank::default() }, ..camera() };
        let pinned = Demand { rank: Rank { priority: Rank::STAGE, ..Rank::default() }, ..camera() };
        let large = Demand { rank: Rank { area_px: 640 * 360, ..Rank::default() }, ..camera() };
        let small = Demand { most: 0, ..camera() };
        let hidden = Demand { shown: false, ..camera() };
        let middle = Demand { layers: [None, LAYERS[1], None], ..camera() };
        let absent = Demand { layers: [None; LAYERS_MAX], ..camera() };
        for (rate, demands, want, why) in [
            (None, vec![camera(); 3], vec![Some(2); 3], "nobody knows: the best"),
            (None, vec![small, hidden, absent], vec![Some(0), None, None], "of use, shown, and there"),
            (kbps(40), vec![camera(); 2], vec![None; 2], "sound first"),
            (kbps(189), vec![camera(); 2], vec![None; 2], "one kbit/s short of a base layer"),
            (kbps(190), vec![camera(); 2], vec![Some(0), None], "the first of two equals"),
            (kbps(340), vec![camera(); 2], vec![Some(0), Some(0)], "both are seen"),
            (kbps(540), vec![camera(); 3], vec![Some(0); 3], "nobody is seen better before all are seen"),
            (kbps(690), vec![camera(), camera()], vec![Some(1), Some(0)], "the next step for one"),
            (kbps(1_040), vec![camera(); 2], vec![Some(1), Some(1)], "and for both"),
            (kbps(2_240), vec![camera(); 2], vec![Some(2), Some(1)], "and the best for one"),
            (kbps(690), vec![camera(), speaker], vec![Some(0), Some(1)], "who speaks comes first"),
            (kbps(690), vec![camera(), large], vec![Some(0), Some(1)], "and who is seen large"),
            (kbps(690), vec![large, speaker], vec![Some(0), Some(1)], "but speech counts more"),
            (kbps(1_890), vec![speaker, pinned], vec![Some(0), Some(2)], "what is pinned goes as far as it can"),
            (kbps(190), vec![speaker, pinned], vec![None, Some(0)], "and is the last to be lost"),
            (kbps(3_000), vec![small, camera()], vec![Some(0), Some(2)], "no more than is of use"),
            (kbps(500), vec![small, middle], vec![Some(0), None], "a layer that is missing is no base"),
            (kbps(540), vec![Demand { most: 0, ..middle }], vec![Some(1)], "too good is better than nothing"),
        ] {
            assert_eq!(at_first(rate, &demands), want, "{why}");
        }
    }

    /// The layers of one camera over time, as `rate(second)` says, judged each second; and when each change was.
    fn story(seconds: u64, rate: impl Fn(u64) -> u64) -> Vec<(u64, Option<usize>)> {
        let (mut allocator, t0) = (Allocator::new(), start());
        let mut changes: Vec<(u64, Option<usize>)> = Vec::new();
        for s in 0..seconds {
            let now = t0 + Duration::from_secs(s);
            assert!(allocator.is_due(now, kbps(rate(s))));
            allocator.allocate(now, kbps(rate(s)), AUDIO, &[camera()]);
            if changes.last().map(|(_, layer)| *layer) != Some(allocator.layer(0)) {
                changes.push((s, allocator.layer(0)));
            }
        }
        changes
    }

    #[test]
    fn down_at_once_and_up_when_there_is_something_to_spare() {
        // 40 + 1,700 and 8 % of it more are 1,876.
        let told = story(60, |s| if (20..40).contains(&s) { 600 } else { 3_000 });
        assert_eq!(told, [(0, Some(2)), (20, Some(1)), (40, Some(2))]);
        assert_eq!(story(60, |s| if s < 20 { 600 } else { 1_870 }), [(0, Some(1))], "not enough to spare");
        // What flows is kept while its rate is not above 110 %.
        assert_eq!(story(60, |s| if s < 20 { 3_000 } else { 1_590 }), [(0, Some(2))]);
        assert_eq!(story(60, |s| if s < 20 { 3_000 } else { 1_580 }), [(0, Some(2)), (20, Some(1))]);
    }

    #[test]
    fn a_link_at_the_border_of_a_layer_changes_at_most_twice_a_minute() {
        // An upgrade makes the estimate fall three seconds later; without it, it rises again.
        let (mut allocator, t0) = (Allocator::new(), start());
        let (mut rate, mut since, mut changes) = (600, 0, Vec::new());
        let mut before = None;
        for s in 0..600 {
            allocator.allocate(t0 + Duration::from_secs(s), kbps(rate), AUDIO, &[camera()]);
            let layer = allocator.layer(0);
            if layer != before {
                changes.push(s);
                (before, since) = (layer, s);
            }
            rate = if layer == Some(2) && s - since >= 3 { 1_200 } else { 2_100 };
        }
        // Two a minute once the pause has grown: 8, 16, 32, 60 … seconds.
        let late = changes.iter().filter(|s| **s >= 120).count();
        assert!(late <= 2 * 8, "{changes:?}");
        assert!(changes.len() >= 6, "and it is tried again: {changes:?}");
    }

    #[test]
    fn what_was_hidden_is_back_at_once_and_what_had_no_room_after_a_second() {
        let (mut allocator, t0) = (Allocator::new(), start());
        let at = |ms| t0 + Duration::from_millis(ms);
        let hidden = Demand { shown: false, ..camera() };
        allocator.allocate(at(0), kbps(3_000), AUDIO, &[camera()]);
        allocator.allocate(at(500), kbps(3_000), AUDIO, &[hidden]);
        assert_eq!(allocator.layer(0), None);
        allocator.allocate(at(600), kbps(3_000), AUDIO, &[camera()]);
        assert_eq!(allocator.layer(0), Some(2));
        allocator.allocate(at(1_000), kbps(100), AUDIO, &[camera()]);
        allocator.allocate(at(1_900), kbps(3_000), AUDIO, &[camera()]);
        assert_eq!(allocator.layer(0), None, "it dwells");
        allocator.allocate(at(2_000), kbps(3_000), AUDIO, &[camera()]);
        assert_eq!(allocator.layer(0), Some(1), "the best one did not last, and waits");
    }

    #[test]
    fn what_did_not_last_holds_back_no_layer_below_it() {
        let (mut allocator, t0) = (Allocator::new(), start());
        let mut at = |ms, rate| {
            allocator.allocate(t0 + Duration::from_millis(ms), kbps(rate), AUDIO, &[camera()]);
            allocator.layer(0)
        };
        assert_eq!([at(0, 600), at(1_000, 3_000), at(2_000, 200)], [Some(1), Some(2), Some(0)]);
        assert_eq!([at(2_900, 3_000), at(3_000, 3_000)], [Some(0), Some(1)], "it dwells");
        assert_eq!([at(9_900, 3_000), at(10_000, 3_000)], [Some(1), Some(2)], "eight seconds after");
        assert_eq!([at(11_000, 600), at(26_900, 3_000), at(27_000, 3_000)], [Some(1), Some(1), Some(2)], "sixteen");
    }

    #[test]
    fn who_wishes_for_less_and_for_more_again_gets_it_at_once() {
        let (mut allocator, t0) = (Allocator::new(), start());
        for n in 0..20 {
            for (ms, most) in [(0, 0), (900, 2)] {
                let at = t0 + Duration::from_millis(n * 2_000 + ms);
                allocator.allocate(at, kbps(3_000), AUDIO, &[Demand { most, ..camera() }]);
                assert_eq!(allocator.layer(0), Some(most), "round {n}");
            }
        }
    }

    #[test]
    fn it_runs_each_second_and_at_once_when_the_rate_falls_by_a_tenth() {
        let (mut allocator, t0) = (Allocator::new(), start());
        assert!(allocator.is_due(t0, None));
        allocator.allocate(t0, kbps(1_000), AUDIO, &[camera()]);
        let soon = t0 + Duration::from_millis(999);
        assert!(!allocator.is_due(soon, kbps(900)));
        assert!(allocator.is_due(soon, kbps(899)));
        assert!(!allocator.is_due(soon, kbps(5_000)), "a rise waits for the second");
        assert_eq!(allocator.due_at(), Some(t0 + Duration::from_secs(1)));
        allocator.anew();
        assert!(allocator.is_due(t0, kbps(1_000)));
    }

    #[test]
    fn what_is_wanted_is_what_an_upgrade_would_need_and_no_more_than_is_of_use() {
        let mut allocator = Allocator::new();
        let now = start();
        let told = allocator.allocate(now, kbps(600), AUDIO, &[camera(), Demand { shown: false, ..camera() }]);
        assert_eq!(
            told,
            Allocation { used: Bitrate::from_kbps(540), wanted: Bitrate::from_kbps(40 + 1_836), short: true }
        );
        let told = allocator.allocate(now, kbps(3_000), AUDIO, &[Demand { most: 1, ..camera() }]);
        assert_eq!(told, Allocation { used: Bitrate::from_kbps(540), wanted: Bitrate::from_kbps(540), short: false });
        assert_eq!(
            allocator.allocate(now, kbps(50), AUDIO, &[]),
            Allocation { used: AUDIO, wanted: AUDIO, short: false }
        );
    }

    fn demand() -> impl Strategy<Value = Demand> {
        let rates = proptest::collection::vec(proptest::option::weighted(0.8, 30..900u64), LAYERS_MAX);
        (rates, 0..LAYERS_MAX, proptest::bool::weighted(0.8), 0..4u8, any::<bool>(), 0..3u32).prop_map(
            |(steps, most, shown, priority, speaks, area_px)| {
                let mut layers = [None; LAYERS_MAX];
                let mut sum = 0;
                for (layer, step) in layers.iter_mut().zip(steps) {
                    sum += step.unwrap_or(0);
                    *layer = step.map(|_| Bitrate::from_kbps(sum));
                }
                Demand { layers, most, shown, rank: Rank { priority, speaks, area_px } }
            },
        )
    }

    proptest! {
        /// Fresh or not: what is chosen exists, is of use, is shown, and fits but for the swing of what flows; and the
        /// same comes out twice.
        #[test]
        fn what_is_chosen_fits(
            demands in proptest::collection::vec(demand(), 0..12),
            rates in proptest::collection::vec((0..6_000u64, 0..4_000u64), 1..20),
        ) {
            let (mut one, mut two) = (Allocator::new(), Allocator::new());
            let mut now = start();
            for (rate, ms) in rates {
                now += Duration::from_millis(ms);
                let told = one.allocate(now, kbps(rate), AUDIO, &demands);
                prop_assert_eq!(told, two.allocate(now, kbps(rate), AUDIO, &demands));
                let mut sum = AUDIO;
                for (n, demand) in demands.iter().enumerate() {
                    let Some(layer) = one.layer(n) else { continue };
                    prop_assert!(demand.shown && demand.layers[layer].is_some());
                    prop_assert!(layer <= demand.most || Some(layer) == demand.base());
                    sum = sum.saturating_add(demand.rate(layer));
                }
                prop_assert_eq!(told.used, sum);
                prop_assert!(sum <= AUDIO.max(Bitrate::from_kbps(rate).percent(Allocator::KEPT_UP_TO)));
                prop_assert!(told.wanted >= sum);
            }
        }

        /// More rate never shows fewer, nor any of them worse, where all have the same layers.
        #[test]
        fn more_rate_never_gives_less(
            ranks in proptest::collection::vec((0..4u8, any::<bool>(), 0..3u32, 0..LAYERS_MAX), 1..8),
            rate in 0..8_000u64, more in 0..3_000u64,
        ) {
            let camera = |(priority, speaks, area_px, most)| {
                Demand { most, rank: Rank { priority, speaks, area_px }, ..camera() }
            };
            let demands: Vec<Demand> = ranks.into_iter().map(camera).collect();
            let seen = |rate| at_first(kbps(rate), &demands).iter().flatten().count();
            prop_assert!(seen(rate + more) >= seen(rate));
            let alone = |rate| at_first(kbps(rate), &demands[..1])[0];
            prop_assert!(alone(rate + more) >= alone(rate));
        }
    }
}
