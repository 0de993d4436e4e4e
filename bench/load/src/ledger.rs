//! What arrived of one stream at one viewer: once, twice, late, or never.

/// Numbers that are remembered one by one, behind the newest: 8 s of the fastest stream here.
const WINDOW: u64 = 4096;
const WORDS: usize = (WINDOW / 64) as usize;

/// How a packet stands to those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The first of its number, and newer than all before.
    InOrder,
    /// The first of its number, after a newer one.
    Reordered,
    /// Its number was here before, or is too old to say.
    Duplicate,
}

/// The numbers seen of one stream, the newest 4,096 one by one.
#[derive(Debug, Clone)]
pub struct Ledger {
    seen: Box<[u64; WORDS]>,
    /// One above the newest number; 0 before the first.
    end: u64,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { seen: Box::new([0; WORDS]), end: 0 }
    }
}

impl Ledger {
    /// Takes note of packet `number` (it does not wrap).
    pub fn saw(&mut self, number: u64) -> Arrival {
        if number >= self.end {
            let first = self.end.max((number + 1).saturating_sub(WINDOW));
            (first..=number).for_each(|n| self.set(n, n == number));
            self.end = number + 1;
            return Arrival::InOrder;
        }
        if number + WINDOW < self.end || self.has(number) {
            return Arrival::Duplicate;
        }
        self.set(number, true);
        Arrival::Reordered
    }

    fn has(&self, number: u64) -> bool {
        self.seen[(number % WINDOW / 64) as usize] >> (number % 64) & 1 == 1
    }

    fn set(&mut self, number: u64, on: bool) {
        let word = &mut self.seen[(number % WINDOW / 64) as usize];
        *word = *word & !(1 << (number % 64)) | u64::from(on) << (number % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_packet_is_new_late_or_known() {
        use Arrival::{Duplicate, InOrder, Reordered};
        let mut ledger = Ledger::default();
        // With 10,000 the newest, 5,905 is the oldest number that is remembered.
        let story = [
            (5, InOrder),
            (6, InOrder),
            (6, Duplicate),
            (9, InOrder),
            (7, Reordered),
            (7, Duplicate),
            (4, Reordered),
            (10_000, InOrder),
            (9_999, Reordered),
            (9_999, Duplicate),
            (5_905, Reordered),
            (5_904, Duplicate),
        ];
        for (number, want) in story {
            assert_eq!(ledger.saw(number), want, "{number}");
        }
    }

    #[test]
    fn each_number_of_a_shuffled_stream_is_new_exactly_once() {
        let (mut ledger, mut known) = (Ledger::default(), BTreeSet::new());
        for n in 0..50_000u64 {
            // Steps back by up to 1,000 of 4,096.
            let number = (n + 1_000).saturating_sub(n * 7_919 % 1_000);
            assert_eq!(ledger.saw(number) != Arrival::Duplicate, known.insert(number), "{number}");
        }
    }
}
