//! What is missing from one stream: counted for reports, and asked for again.

use crate::units::{Deadline, Why};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Expected, received and lost packets of one stream (RFC 3550 §6.4.1, appendix A.3).
///
/// Each sequence number counts once: repaired packets are not lost, duplicates are not received twice. A jump of
/// [`LossCount::JUMP`] or more is a sender that began anew, not a loss.
#[derive(Debug, Clone, Default)]
pub struct LossCount {
    run: Option<Run>,
    /// Of runs that are over.
    expected_before: u64,
    received: u64,
    expected_reported: u64,
    received_reported: u64,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    base: u64,
    highest: u64,
}

impl LossCount {
    /// MAX_DROPOUT of RFC 3550 appendix A.1.
    pub const JUMP: u64 = 3_000;

    /// A packet with this number arrived for the first time.
    pub fn observe(&mut self, ext_seq: u64) {
        self.received += 1;
        self.run = Some(match self.run {
            None => Run { base: ext_seq, highest: ext_seq },
            Some(run) if ext_seq > run.highest && ext_seq - run.highest >= Self::JUMP => {
                self.expected_before += run.highest - run.base + 1;
                Run { base: ext_seq, highest: ext_seq }
            }
            // A packet from before the run: the first ones were reordered, or the last run is not over yet.
            Some(run) if ext_seq < run.base && run.base - ext_seq >= Self::JUMP => {
                self.expected_before += 1;
                run
            }
            Some(run) => Run { base: run.base.min(ext_seq), highest: run.highest.max(ext_seq) },
        });
    }

    /// Packets that should have arrived.
    pub fn expected(&self) -> u64 {
        self.expected_before + self.run.map_or(0, |run| run.highest - run.base + 1)
    }

    /// Packets that did.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Packets that have not (yet).
    pub fn lost(&self) -> u64 {
        self.expected().saturating_sub(self.received)
    }

    /// Share of packets lost since the last call, in 1/256, 255 at most: "fraction lost" of a receiver report.
    pub fn fraction_lost_since_last(&mut self) -> u8 {
        let expected = self.expected() - self.expected_reported;
        let received = self.received - self.received_reported;
        self.expected_reported = self.expected();
        self.received_reported = self.received;
        let lost = expected.saturating_sub(received);
        (lost * 256).checked_div(expected).map_or(0, |fraction| u8::try_from(fraction).unwrap_or(u8::MAX))
    }
}

/// Finds holes in the sequence numbers of one stream and says when to ask for them (RFC 4585 §6.2.1).
///
/// Policy: a hole may close by itself for [`NackGenerator::REORDER_WAIT`]; then it is asked for once per round
/// trip, [`NackGenerator::TRIES_MAX`] times at most, until [`NackGenerator::AGE_MAX`]. At most
/// [`NackGenerator::HOLES_MAX`] holes are remembered, the oldest are given up first; a gap wider than that is
/// given up as a whole, because only a key frame mends it. Gaps in time (Opus DTX) are no holes.
#[derive(Debug)]
pub struct NackGenerator {
    /// By number, lowest first.
    holes: VecDeque<Hole>,
    lowest: u64,
    highest: Option<u64>,
    rtt: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Hole {
    ext_seq: u64,
    since: Instant,
    ask_at: Instant,
    tries: u8,
}

impl NackGenerator {
    /// Holes remembered.
    pub const HOLES_MAX: usize = 1_024;
    /// How many packets may overtake the first one of a stream.
    pub const OVERTAKEN_MAX: u64 = 64;
    /// Requests for one packet.
    pub const TRIES_MAX: u8 = 10;
    /// Packets older than this come too late for any decoder.
    pub const AGE_MAX: Duration = Duration::from_secs(2);
    /// Time for packets in the wrong order.
    pub const REORDER_WAIT: Duration = Duration::from_millis(5);
    /// Shortest time between two requests for one packet.
    pub const RETRY_MIN: Duration = Duration::from_millis(20);

    /// No holes; a round trip of 100 ms is assumed until [`Self::set_rtt`].
    pub fn new() -> Self {
        Self { holes: VecDeque::new(), lowest: 0, highest: None, rtt: Duration::from_millis(100) }
    }

    /// A round trip was measured; it spaces requests from now on.
    pub fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt.min(Self::AGE_MAX);
    }

    /// Holes still open.
    pub fn open(&self) -> usize {
        self.holes.len()
    }

    /// A packet arrived: new, repaired or again.
    pub fn observe(&mut self, now: Instant, ext_seq: u64) {
        let Some(highest) = self.highest else {
            self.highest = Some(ext_seq);
            self.lowest = ext_seq;
            return;
        };
        if ext_seq < self.lowest {
            self.begin_earlier(now, ext_seq);
            return;
        }
        if ext_seq <= highest {
            if let Ok(at) = self.holes.binary_search_by_key(&ext_seq, |hole| hole.ext_seq) {
                self.holes.remove(at);
            }
            return;
        }
        self.highest = Some(ext_seq);
        let missing = ext_seq - highest - 1;
        if missing > Self::HOLES_MAX as u64 {
            self.holes.clear();
            return;
        }
        for lost in highest + 1..ext_seq {
            if self.holes.len() == Self::HOLES_MAX {
                self.holes.pop_front();
            }
            self.holes.push_back(Hole { ext_seq: lost, since: now, ask_at: now + Self::REORDER_WAIT, tries: 0 });
        }
    }

    /// The stream began before the first packet that arrived: what lies between is missing, too. Only packets that
    /// were overtaken come so; one from far before is no beginning.
    fn begin_earlier(&mut self, now: Instant, ext_seq: u64) {
        if self.lowest - ext_seq > Self::OVERTAKEN_MAX {
            return;
        }
        for lost in (ext_seq + 1..self.lowest).rev() {
            if self.holes.len() < Self::HOLES_MAX {
                self.holes.push_front(Hole { ext_seq: lost, since: now, ask_at: now + Self::REORDER_WAIT, tries: 0 });
            }
        }
        self.lowest = ext_seq;
    }

    /// A key frame arrived whole: nothing before `ext_seq` is needed any more.
    pub fn forget_before(&mut self, ext_seq: u64) {
        self.holes.retain(|hole| hole.ext_seq >= ext_seq);
    }

    /// Appends the numbers to ask for now, lowest first, and plans the next time for each.
    pub fn due(&mut self, now: Instant, out: &mut Vec<u64>) {
        let retry = self.rtt.max(Self::RETRY_MIN);
        self.holes.retain_mut(|hole| {
            if now < hole.ask_at {
                return true;
            }
            if hole.tries == Self::TRIES_MAX || now.saturating_duration_since(hole.since) > Self::AGE_MAX {
                return false;
            }
            hole.tries += 1;
            hole.ask_at = now + retry;
            out.push(hole.ext_seq);
            true
        });
    }

    /// When [`Self::due`] has something to do.
    pub fn deadline(&self) -> Option<Deadline> {
        let at = self.holes.iter().map(|hole| hole.ask_at).min()?;
        Some(Deadline { at, why: Why::Nack })
    }
}

impl Default for NackGenerator {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    fn start() -> Instant {
        Instant::now()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn asked(nack: &mut NackGenerator, now: Instant) -> Vec<u64> {
        let mut out = Vec::new();
        nack.due(now, &mut out);
        out
    }

    #[test]
    fn what_lies_between_a_beginning_and_those_that_overtook_it_is_asked_for() {
        let (t0, mut out) = (start(), Vec::new());
        let mut nacks = NackGenerator::new();
        for ext_seq in [104, 105, 100, 102] {
            nacks.observe(t0, ext_seq);
        }
        nacks.due(t0 + NackGenerator::REORDER_WAIT, &mut out);
        assert_eq!(out, [101, 103]);
        nacks.observe(t0, 20);
        assert_eq!(nacks.open(), 2, "a packet from far before is no beginning");
    }

    #[test]
    fn one_in_four_lost_is_64_of_256() {
        let mut loss = LossCount::default();
        (0..101).filter(|n| n % 4 != 2).for_each(|n| loss.observe(65_000 + n));
        assert_eq!((loss.expected(), loss.received(), loss.lost()), (101, 76, 25));
        assert_eq!(loss.fraction_lost_since_last(), 63, "25 of 101");
        (101..105).for_each(|n| loss.observe(65_000 + n));
        assert_eq!(loss.fraction_lost_since_last(), 0, "only the new ones count");
        assert_eq!(loss.fraction_lost_since_last(), 0, "none expected");
        loss.observe(65_002);
        assert_eq!(loss.lost(), 24, "repaired");
    }

    #[test]
    fn a_sender_that_begins_anew_has_lost_nothing() {
        let mut loss = LossCount::default();
        loss.observe(100);
        loss.observe(99);
        loss.observe(100_000);
        loss.observe(100_001);
        loss.observe(101);
        assert_eq!((loss.expected(), loss.lost()), (5, 0));
        loss.observe(100_001 + LossCount::JUMP - 1);
        assert_eq!(loss.lost(), LossCount::JUMP - 2);
    }

    #[test]
    fn a_hole_is_asked_for_once_per_round_trip_until_it_closes() {
        let (t0, mut nack) = (start(), NackGenerator::new());
        nack.set_rtt(ms(50));
        nack.observe(t0, 10);
        nack.observe(t0, 13);
        assert_eq!(nack.deadline(), Some(Deadline { at: t0 + ms(5), why: Why::Nack }));
        assert_eq!(asked(&mut nack, t0 + ms(4)), []);
        assert_eq!(asked(&mut nack, t0 + ms(5)), [11, 12]);
        assert_eq!(asked(&mut nack, t0 + ms(54)), []);
        nack.observe(t0 + ms(54), 11);
        assert_eq!(asked(&mut nack, t0 + ms(55)), [12]);
        nack.observe(t0 + ms(60), 12);
        assert_eq!(nack.deadline(), None);
        assert_eq!(asked(&mut nack, t0 + ms(500)), []);
    }

    #[test]
    fn reordering_within_the_wait_is_not_asked_for() {
        let (t0, mut nack) = (start(), NackGenerator::new());
        for (at, seq) in [(0, 1), (1, 3), (3, 2), (4, 4)] {
            nack.observe(t0 + ms(at), seq);
        }
        assert_eq!(nack.deadline(), None);
    }

    #[test]
    fn tries_and_age_end() {
        for rtt in [1u64, 100, 900] {
            let (t0, mut nack) = (start(), NackGenerator::new());
            nack.set_rtt(ms(rtt));
            nack.observe(t0, 1);
            nack.observe(t0, 3);
            let mut times = Vec::new();
            while let Some(deadline) = nack.deadline() {
                times.extend(asked(&mut nack, deadline.at).iter().map(|_| deadline.at - t0));
            }
            let spacing = ms(rtt.max(20));
            let want: Vec<_> =
                (0..10).map(|n| ms(5) + spacing * n).take_while(|at| *at <= NackGenerator::AGE_MAX).collect();
            assert_eq!(times, want, "{rtt} ms");
        }
    }

    #[test]
    fn the_oldest_holes_are_given_up_first_and_a_chasm_at_once() {
        let (t0, mut nack) = (start(), NackGenerator::new());
        [0, 1_001, 1_502].into_iter().for_each(|seq| nack.observe(t0, seq));
        // 1,000 and 500 are missing, 1,024 are kept: 476 go.
        let out = asked(&mut nack, t0 + ms(5));
        assert_eq!((out.len(), out.first(), out.last()), (1_024, Some(&477), Some(&1_501)));
        nack.observe(t0, 1_503 + 1_024);
        assert_eq!(nack.open(), 1_024);
        nack.observe(t0, 1_503 + 1_024 + 1_026);
        assert_eq!(nack.open(), 0);
    }

    #[test]
    fn dtx_with_contiguous_numbers_is_no_loss() {
        let (t0, mut nack, mut loss) = (start(), NackGenerator::new(), LossCount::default());
        for n in 0..50u64 {
            nack.observe(t0 + ms(400) * u32::try_from(n).unwrap(), 65_520 + n);
            loss.observe(65_520 + n);
        }
        assert_eq!((nack.deadline(), loss.lost()), (None, 0));
    }

    #[test]
    fn what_a_key_frame_replaces_is_forgotten() {
        let (t0, mut nack) = (start(), NackGenerator::new());
        (1..8).step_by(2).for_each(|seq| nack.observe(t0, seq));
        nack.forget_before(5);
        assert_eq!(asked(&mut nack, t0 + ms(5)), [6]);
    }

    proptest! {
        /// Against a set of all numbers: only missing ones are asked for, none too often, none too many at once.
        #[test]
        fn asks_only_for_what_is_missing(
            start_at in prop_oneof![Just(10u64), 65_500..65_540u64, (1u64 << 32) - 30..(1u64 << 32)],
            steps in proptest::collection::vec(
                (prop_oneof![6 => 1..3i64, 2 => -8..0i64, 1 => 3..1_500i64, 1 => Just(1i64 << 20)], 0..40u64), 1..150),
        ) {
            let (t0, mut nack) = (start(), NackGenerator::new());
            let (mut seen, mut tries) = (BTreeSet::new(), BTreeMap::<u64, u8>::new());
            let (mut now, mut at) = (t0, start_at);
            for (step, wait) in steps {
                now += ms(wait);
                at = at.saturating_add_signed(step);
                seen.insert(at);
                nack.observe(now, at);
                let wanted = nack.deadline();
                let out = asked(&mut nack, now);
                prop_assert_eq!(wanted.is_some_and(|d| d.at <= now) || out.is_empty(), true);
                prop_assert!(out.is_sorted() && out.len() <= NackGenerator::HOLES_MAX);
                for ext_seq in out {
                    prop_assert!(!seen.contains(&ext_seq) && ext_seq < *seen.last().unwrap());
                    prop_assert!(ext_seq > *seen.first().unwrap());
                    let tries = tries.entry(ext_seq).or_default();
                    *tries += 1;
                    prop_assert!(*tries <= NackGenerator::TRIES_MAX);
                }
                prop_assert!(nack.open() <= NackGenerator::HOLES_MAX);
            }
        }

        /// Against a set of all numbers, with steps that stay below the jump.
        #[test]
        fn loss_is_what_a_set_lacks(steps in proptest::collection::vec(-20..60i64, 1..300), start_at in 65_000..66_000u64) {
            let (mut loss, mut seen, mut at) = (LossCount::default(), BTreeSet::new(), start_at);
            for step in steps {
                at = at.saturating_add_signed(step);
                if seen.insert(at) {
                    loss.observe(at);
                }
                let expected = seen.last().unwrap() - seen.first().unwrap() + 1;
                prop_assert_eq!(loss.expected(), expected);
                prop_assert_eq!(loss.lost(), expected - seen.len() as u64);
            }
        }
    }
}
