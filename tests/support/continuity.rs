//! Counts what a numbered stream lost, repeated and reordered.

use std::collections::BTreeSet;

/// Numbers seen on one stream, from the first one on.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Continuity {
    /// Packets that arrived, duplicates included.
    pub received: u64,
    /// Packets that had arrived before.
    pub duplicates: u64,
    /// Packets that filled a hole: reordered, or repaired by a retransmission.
    pub late: u64,
    /// Lowest number seen; earlier ones are nobody's loss (the viewer was not there yet).
    pub first: Option<u64>,
    /// Highest number seen.
    pub last: Option<u64>,
    holes: BTreeSet<u64>,
}

impl std::fmt::Debug for Continuity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { received, duplicates, late, first, last, holes } = self;
        write!(f, "{received} of {first:?}..={last:?}, {duplicates} twice, {late} late, {} missing", holes.len())?;
        if holes.is_empty() { Ok(()) } else { write!(f, " {:?}", self.some_missing()) }
    }
}

/// Holes remembered per stream. A jump that is wider is a fault of its own, and is told as such.
const HOLES_MAX: u64 = 10_000;

impl Continuity {
    /// Takes note of `number`.
    pub fn saw(&mut self, number: u64) {
        self.received += 1;
        let Some(last) = self.last else {
            (self.first, self.last) = (Some(number), Some(number));
            return;
        };
        if number > last {
            assert!(number - last <= HOLES_MAX, "a stream jumped from {last} to {number}");
            self.holes.extend(last + 1..number);
            self.last = Some(number);
        } else if self.holes.remove(&number) {
            self.late += 1;
        } else if self.first.is_some_and(|first| number < first) {
            // Reordered at the very start: what lies between is now owed too.
            self.holes.extend(number + 1..self.first.unwrap_or(number));
            self.first = Some(number);
            self.late += 1;
        } else {
            self.duplicates += 1;
        }
    }

    /// Numbers between the first and the last that have not arrived.
    pub fn missing(&self) -> usize {
        self.holes.len()
    }

    /// Some of them, for a message.
    pub fn some_missing(&self) -> Vec<u64> {
        self.holes.iter().copied().take(8).collect()
    }
}

#[test]
fn a_stream_without_a_fault_counts_none() {
    let mut seen = Continuity::default();
    (5..=9).for_each(|n| seen.saw(n));
    assert_eq!((seen.received, seen.duplicates, seen.late, seen.missing()), (5, 0, 0, 0));
    assert_eq!((seen.first, seen.last), (Some(5), Some(9)));
}

#[test]
fn losses_repeats_and_reordering_are_told_apart() {
    let mut seen = Continuity::default();
    // 12 is lost for good, 14 comes after 15, 15 comes twice, 9 comes late though it was sent first.
    for n in [10, 11, 13, 15, 14, 15, 9] {
        seen.saw(n);
    }
    assert_eq!((seen.received, seen.duplicates, seen.late), (7, 1, 2));
    assert_eq!(seen.some_missing(), [12]);
    assert_eq!((seen.first, seen.last), (Some(9), Some(15)));
}
