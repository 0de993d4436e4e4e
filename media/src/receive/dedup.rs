//! Sequence numbers of one stream: extended so that they never wrap, and seen at most once.

/// Turns 16-bit sequence numbers into numbers that never wrap, by the estimate of RFC 3711 §3.3.1: each is
/// taken for the one nearest to the highest so far.
///
/// The first number is placed one cycle up (`65536 + seq`), so that packets it overtook have a place below it.
#[derive(Debug, Clone, Default)]
pub struct SeqExtender {
    highest: Option<u64>,
}

impl SeqExtender {
    /// Extends `seq`, and moves on if it is the highest so far. Feed it authenticated packets only.
    pub fn extend(&mut self, seq: u16) -> u64 {
        let ext_seq = self.estimate(seq);
        if self.highest.is_none_or(|highest| ext_seq > highest) {
            self.highest = Some(ext_seq);
        }
        ext_seq
    }

    /// What [`Self::extend`] would say, without moving on.
    pub fn estimate(&self, seq: u16) -> u64 {
        let Some(highest) = self.highest else { return CYCLE + u64::from(seq) };
        // The low 16 bits are meant to be cut off.
        let last = highest as u16;
        let cycles = highest - u64::from(last);
        let same = cycles + u64::from(seq);
        if last < HALF {
            if seq > last + HALF { same.saturating_sub(CYCLE) } else { same }
        } else if last - HALF > seq {
            same + CYCLE
        } else {
            same
        }
    }
}

const CYCLE: u64 = 1 << 16;
const HALF: u16 = 1 << 15;

/// Whether a sequence number was seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// The first time.
    New,
    /// Again.
    Duplicate,
    /// So far behind the highest that nobody knows.
    TooOld,
}

/// Remembers which of the [`SeqWindow::LEN`] highest sequence numbers were seen, in constant memory.
#[derive(Debug, Clone)]
pub struct SeqWindow {
    highest: Option<u64>,
    seen: [u64; WORDS],
}

const WORDS: usize = 32;

impl SeqWindow {
    /// Numbers remembered: about 6 s of video at 300 packets a second.
    pub const LEN: u64 = WORDS as u64 * 64;

    /// Nothing seen yet.
    pub fn new() -> Self {
        Self { highest: None, seen: [0; WORDS] }
    }

    /// The highest number seen.
    pub fn highest(&self) -> Option<u64> {
        self.highest
    }

    /// Notes `ext_seq` and says whether it was there before. Numbers far ahead are new and push the window on.
    pub fn insert(&mut self, ext_seq: u64) -> Seen {
        match self.highest {
            Some(highest) if ext_seq <= highest => {
                if highest - ext_seq >= Self::LEN {
                    return Seen::TooOld;
                }
                if self.contains(ext_seq) {
                    return Seen::Duplicate;
                }
            }
            Some(highest) if ext_seq - highest >= Self::LEN => {
                self.seen = [0; WORDS];
                self.highest = Some(ext_seq);
            }
            Some(highest) => {
                for skipped in highest + 1..ext_seq {
                    self.set(skipped, false);
                }
                self.highest = Some(ext_seq);
            }
            None => self.highest = Some(ext_seq),
        }
        self.set(ext_seq, true);
        Seen::New
    }

    fn contains(&self, ext_seq: u64) -> bool {
        let (word, bit) = place(ext_seq);
        self.seen.get(word).is_some_and(|bits| bits & bit != 0)
    }

    fn set(&mut self, ext_seq: u64, seen: bool) {
        let (word, bit) = place(ext_seq);
        if let Some(bits) = self.seen.get_mut(word) {
            if seen { *bits |= bit } else { *bits &= !bit }
        }
    }
}

impl Default for SeqWindow {
    fn default() -> Self {
        Self::new()
    }
}

fn place(ext_seq: u64) -> (usize, u64) {
    ((ext_seq / 64 % WORDS as u64) as usize, 1 << (ext_seq % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn reordering_across_the_wrap_counts_one_cycle() {
        // Case sec-01: 65534 after 0 and 1 belongs to the old cycle, and 2 still to the new one.
        let mut extender = SeqExtender::default();
        let cycle_of_first = extender.extend(65533) >> 16;
        let got: Vec<(u64, u16)> = [65535u16, 0, 1, 65534, 2]
            .map(|seq| extender.extend(seq))
            .map(|ext| ((ext >> 16) - cycle_of_first, ext as u16))
            .to_vec();
        assert_eq!(got, [(0, 65535), (1, 0), (1, 1), (0, 65534), (1, 2)]);
    }

    #[test]
    fn a_packet_that_the_first_overtook_has_a_place_below_it() {
        let mut extender = SeqExtender::default();
        let first = extender.extend(0);
        assert_eq!(extender.extend(65535), first - 1);
        assert_eq!(extender.extend(1), first + 1);
    }

    #[test]
    fn an_estimate_moves_nothing() {
        let mut extender = SeqExtender::default();
        extender.extend(10);
        assert_eq!(extender.estimate(30_000), 65536 + 30_000);
        assert_eq!(extender.extend(50_000), 50_000);
    }

    proptest! {
        /// Steps of less than half the range are followed exactly, over many wraps of 2^16 and across 2^32.
        #[test]
        fn extension_follows_the_true_number(
            start in prop_oneof![65536..200_000u64, (1u64 << 32) - 70_000..(1u64 << 32) + 10],
            steps in proptest::collection::vec((1..30_000u64, 0..30_000u64), 1..400),
        ) {
            let mut extender = SeqExtender { highest: Some(start) };
            let mut highest = start;
            for (forward, back) in steps {
                highest += forward;
                prop_assert_eq!(extender.extend(highest as u16), highest);
                let old = highest.saturating_sub(back);
                prop_assert_eq!(extender.extend(old as u16), old);
            }
        }

        /// The bitmap says what a set of all numbers says, within the window.
        #[test]
        fn the_window_agrees_with_a_set(
            start in prop_oneof![Just(0u64), 60_000..70_000u64, (1u64 << 32) - 50..(1u64 << 32) + 50],
            moves in proptest::collection::vec(
                prop_oneof![8 => -3..4i64, 2 => -2_100..200i64, 1 => 2_000..5_000i64, 1 => Just(1i64 << 40)], 1..300),
        ) {
            let mut window = SeqWindow::new();
            let mut all = BTreeSet::new();
            let mut at = start;
            for step in moves {
                at = at.saturating_add_signed(step);
                let highest = all.last().copied().unwrap_or(at);
                let want = if highest.saturating_sub(at) >= SeqWindow::LEN {
                    Seen::TooOld
                } else if all.insert(at) {
                    Seen::New
                } else {
                    Seen::Duplicate
                };
                prop_assert_eq!(window.insert(at), want, "{}", at);
                prop_assert_eq!(window.highest(), all.last().copied());
            }
        }
    }
}
