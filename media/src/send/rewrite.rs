//! Sequence numbers of an outgoing stream: one run over sources and layers that come and go.

/// Source packets behind the newest that can still be placed. At 450 packets/s (4 Mbit/s) a repair may take 2.2 s.
pub const WINDOW: u64 = 1024;

/// Why a source packet gets no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unplaced {
    /// It was placed or left out before.
    #[error("source packet {0} was seen before")]
    Duplicate(u64),
    /// It is from before the start of the source, or behind the window.
    #[error("source packet {0} is too old")]
    TooOld(u64),
}

/// From extended sequence numbers of a source to those that we send.
///
/// - Contiguous where the source is. What the source lost stays a hole, and a repaired packet gets its place.
/// - A packet that is left out ([`Self::skip`]) leaves no hole.
/// - [`Self::begin`] starts another source, or the same again, at the next free number.
/// - A hole of [`WINDOW`] packets or more is sent as one of a single packet: it cannot be repaired any more, and
///   a jump of 2^15 would cost the receiver its rollover count.
/// - Memory is constant.
#[derive(Debug, Clone)]
pub struct SeqRewriter {
    /// The number that source packet `top + 1` will get.
    next: u64,
    source: Option<Source>,
    /// The run before, and the number that would have been its next.
    before: Option<(Source, u64)>,
}

/// What is known of a source.
#[derive(Debug, Clone)]
struct Source {
    /// Packets before this one are not of this run.
    first: u64,
    /// The newest packet that was seen; `first - 1` at the beginning.
    top: u64,
    seen: Ring,
    skipped: Ring,
}

impl SeqRewriter {
    /// `first`: the number of the first packet sent, below 2^16 so that its rollover count is 0.
    pub fn new(first: u64) -> Self {
        Self { next: first, source: None, before: None }
    }

    /// From now on packets come from another run of a source, whose first is `ext_seq`. If another has run up to now,
    /// its holes can still be filled: [`Self::place_before`].
    pub fn begin(&mut self, ext_seq: u64) {
        self.before = self.source.take().map(|source| (source, self.next));
        self.source = Some(Source {
            first: ext_seq,
            top: ext_seq.wrapping_sub(1),
            seen: Ring::default(),
            skipped: Ring::default(),
        });
    }

    /// Forgets the source; the next one goes on at the next free number.
    pub fn end(&mut self) {
        (self.source, self.before) = (None, None);
    }

    /// The number for a packet of the run before, which comes late: it fills a hole that was left for it.
    ///
    /// # Errors
    /// [`Unplaced`]; the packet is not to be sent. One that goes on where the run ended is too old, too.
    pub fn place_before(&mut self, ext_seq: u64) -> Result<u64, Unplaced> {
        let (source, next) = self.before.as_mut().ok_or(Unplaced::TooOld(ext_seq))?;
        if ext_seq > source.top {
            return Err(Unplaced::TooOld(ext_seq));
        }
        match source.see(ext_seq)? {
            Seen::Behind { numbers } => Ok(*next - numbers),
            Seen::Ahead { .. } => Err(Unplaced::TooOld(ext_seq)),
        }
    }

    /// Whether a source has begun.
    pub fn running(&self) -> bool {
        self.source.is_some()
    }

    /// The number for a packet of our own, before the next one of a source.
    pub fn insert(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The number for a packet that is sent now.
    ///
    /// # Errors
    /// [`Unplaced`]; the packet is not to be sent.
    pub fn place(&mut self, ext_seq: u64) -> Result<u64, Unplaced> {
        let source = self.source.as_mut().ok_or(Unplaced::TooOld(ext_seq))?;
        match source.see(ext_seq)? {
            Seen::Ahead { hole } => {
                let seq = self.next + hole;
                self.next = seq + 1;
                Ok(seq)
            }
            Seen::Behind { numbers } => Ok(self.next - numbers),
        }
    }

    /// A packet that is left out on purpose. Where a later packet was already sent its place is an open hole:
    /// then its number is answered, to be filled with an empty packet, for nobody could repair it.
    ///
    /// # Errors
    /// [`Unplaced`], where there is nothing to do.
    pub fn skip(&mut self, ext_seq: u64) -> Result<Option<u64>, Unplaced> {
        let source = self.source.as_mut().ok_or(Unplaced::TooOld(ext_seq))?;
        match source.see(ext_seq)? {
            Seen::Ahead { hole } => {
                source.skipped.set(ext_seq);
                self.next += hole;
                Ok(None)
            }
            Seen::Behind { numbers } => Ok(Some(self.next - numbers)),
        }
    }
}

/// Where a new source packet stands.
enum Seen {
    /// After `top` (before this call), behind a hole of so many packets.
    Ahead { hole: u64 },
    /// Before `top`: its number is so many below the next free one.
    Behind { numbers: u64 },
}

impl Source {
    fn see(&mut self, ext_seq: u64) -> Result<Seen, Unplaced> {
        if ext_seq < self.first {
            return Err(Unplaced::TooOld(ext_seq));
        }
        // `top` is `first - 1` at the beginning, which is below every packet taken here even where it wrapped.
        let ahead = ext_seq.wrapping_sub(self.top);
        if self.top.wrapping_add(1) == self.first || ext_seq > self.top {
            self.advance(ext_seq, ahead);
            return Ok(Seen::Ahead { hole: if ahead > WINDOW { 1 } else { ahead - 1 } });
        }
        if self.top - ext_seq >= WINDOW {
            return Err(Unplaced::TooOld(ext_seq));
        }
        if self.seen.get(ext_seq) {
            return Err(Unplaced::Duplicate(ext_seq));
        }
        self.seen.set(ext_seq);
        Ok(Seen::Behind { numbers: self.top - ext_seq + 1 - self.skipped.count(ext_seq + 1, self.top) })
    }

    fn advance(&mut self, ext_seq: u64, ahead: u64) {
        if ahead > WINDOW {
            // Nothing before this packet has a place any more.
            self.first = ext_seq;
            (self.seen, self.skipped) = (Ring::default(), Ring::default());
        } else {
            for passed in self.top.wrapping_add(1)..=ext_seq {
                self.seen.clear(passed);
                self.skipped.clear(passed);
            }
        }
        self.seen.set(ext_seq);
        self.top = ext_seq;
    }
}

const WORDS: usize = (WINDOW / 64) as usize;

/// One bit for each of the last [`WINDOW`] numbers.
#[derive(Debug, Clone, Default)]
struct Ring([u64; WORDS]);

impl Ring {
    fn at(seq: u64) -> (usize, u64) {
        ((seq / 64) as usize % WORDS, 1 << (seq % 64))
    }

    fn get(&self, seq: u64) -> bool {
        let (word, bit) = Self::at(seq);
        self.0[word] & bit != 0
    }

    fn set(&mut self, seq: u64) {
        let (word, bit) = Self::at(seq);
        self.0[word] |= bit;
    }

    fn clear(&mut self, seq: u64) {
        let (word, bit) = Self::at(seq);
        self.0[word] &= !bit;
    }

    /// Bits set from `from` to `to`, fewer than [`WINDOW`] apart; none where `from` is later.
    fn count(&self, from: u64, to: u64) -> u64 {
        let mut all = 0;
        let mut at = from;
        while at <= to {
            // The rest of the word, or up to `to`.
            let bits = (64 - at % 64).min(to - at + 1);
            let mask = (u64::MAX >> (64 - bits)) << (at % 64);
            all += u64::from((self.0[Self::at(at).0] & mask).count_ones());
            at += bits;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// The rules again, with everything remembered: a number is fixed by what was seen up to the newest packet.
    struct Model {
        first: u64,
        top: Option<u64>,
        next: u64,
        seen: BTreeSet<u64>,
        /// Every source packet that has a number: sent, or a hole that it may still fill.
        numbers: BTreeMap<u64, u64>,
    }

    impl Model {
        fn begin(&mut self, first: u64) {
            (self.first, self.top) = (first, None);
            self.seen.clear();
            self.numbers.clear();
        }

        fn see(&mut self, seq: u64, skip: bool) -> Option<u64> {
            let fresh = seq >= self.first
                && !self.seen.contains(&seq)
                && self.top.is_none_or(|top| seq > top || top - seq < WINDOW);
            if !fresh {
                return None;
            }
            self.seen.insert(seq);
            match self.top {
                Some(top) if seq < top => return self.numbers.get(&seq).copied(),
                Some(top) if seq - top > WINDOW => {
                    self.next += 1;
                    self.first = seq;
                }
                top => {
                    let hole_first = top.map_or(self.first, |top| top + 1);
                    if top.is_none() && seq - self.first >= WINDOW {
                        self.next += 1;
                        self.first = seq;
                    } else {
                        for hole in hole_first..seq {
                            self.numbers.insert(hole, self.next);
                            self.next += 1;
                        }
                    }
                }
            }
            self.top = Some(seq);
            if skip {
                return None;
            }
            self.numbers.insert(seq, self.next);
            self.next += 1;
            Some(self.next - 1)
        }
    }

    /// Source packets around a walk that goes forward, with loss, reordering, duplicates, jumps and new sources.
    fn steps() -> impl Strategy<Value = Vec<(i64, u8, bool)>> {
        let step = prop_oneof![
            20 => Just(1i64),
            4 => 2i64..20,
            4 => -30i64..=0,
            1 => -1_100i64..-900,
            1 => 900i64..1_200,
            1 => 60_000i64..70_000,
        ];
        proptest::collection::vec((step, 0u8..100, any::<bool>()), 1..400)
    }

    fn base() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), 65_000u64..66_000, (1u64 << 32) - 500..1 << 32, 1u64 << 40..1 << 41]
    }

    proptest! {
        #[test]
        fn numbers_are_those_of_the_plain_model(steps in steps(), source in base(), first in base()) {
            let mut model = Model {
                first: source, top: None, next: first, seen: BTreeSet::new(), numbers: BTreeMap::new(),
            };
            let mut rewriter = SeqRewriter::new(first);
            rewriter.begin(source);
            let (mut at, mut sent) = (source, BTreeSet::new());
            for (step, kind, skip) in steps {
                if kind == 0 {
                    at = at.saturating_add_signed(step * 1_000);
                    model.begin(at);
                    rewriter.begin(at);
                }
                let seq = at.saturating_add_signed(step);
                at = at.max(seq);
                let skip = skip && kind < 30;
                let number = match skip {
                    true => rewriter.skip(seq).ok().flatten(),
                    false => rewriter.place(seq).ok(),
                };
                prop_assert_eq!(number, model.see(seq, skip), "source packet {}", seq);
                prop_assert_eq!(rewriter.next, model.next);
                if let Some(number) = number {
                    prop_assert!(sent.insert(number), "{} was sent twice", number);
                }
            }
        }

        /// Whatever is lost and reordered, nothing sent and nothing lost shares a number, and repair closes all holes.
        #[test]
        fn a_repaired_source_leaves_no_hole(source in base(), first in base(), fates in proptest::collection::vec(0u8..10, 1..300)) {
            let mut rewriter = SeqRewriter::new(first);
            rewriter.begin(source);
            let (mut sent, mut late) = (BTreeSet::new(), Vec::new());
            for (seq, fate) in (source..).zip(&fates) {
                match fate {
                    0 | 1 if seq != source => late.push(seq),
                    2 => prop_assert_eq!(rewriter.skip(seq), Ok(None)),
                    _ => { sent.insert(rewriter.place(seq).unwrap()); }
                }
            }
            let newest = rewriter.next;
            for seq in late {
                // The last of the source are not late, just last.
                sent.insert(rewriter.place(seq).unwrap());
            }
            let expected: BTreeSet<u64> = (first..rewriter.next).collect();
            prop_assert_eq!(sent, expected);
            prop_assert!(newest <= rewriter.next);
        }
    }

    #[test]
    fn padding_before_key_frames_and_repairs_are_placed() {
        let mut rewriter = SeqRewriter::new(100);
        assert_eq!(rewriter.place(9), Err(Unplaced::TooOld(9)), "nothing has begun");
        rewriter.begin(10);
        assert_eq!(rewriter.place(10), Ok(100));
        assert_eq!(rewriter.skip(12), Ok(None));
        assert_eq!(rewriter.place(13), Ok(102), "12 is left out, 11 is a hole");
        assert_eq!(rewriter.place(11), Ok(101), "the repaired packet gets its place");
        assert_eq!(rewriter.place(11), Err(Unplaced::Duplicate(11)));
        assert_eq!(rewriter.place(12), Err(Unplaced::Duplicate(12)));
        assert_eq!(rewriter.place(15), Ok(104));
        assert_eq!(rewriter.skip(14), Ok(Some(103)), "its hole can be seen already");
        assert_eq!(rewriter.place(9), Err(Unplaced::TooOld(9)));
        rewriter.begin(5_000);
        assert_eq!(rewriter.place(5_000), Ok(105), "another source goes on");
        assert_eq!(rewriter.place(5_000 + WINDOW + 1), Ok(107), "a hole that nobody can repair is one packet");
    }

    #[test]
    fn what_a_run_lost_is_placed_after_another_began() {
        let mut rewriter = SeqRewriter::new(100);
        rewriter.begin(10);
        for seq in [10, 11, 13, 15] {
            rewriter.place(seq).unwrap();
        }
        assert_eq!(rewriter.place_before(12), Err(Unplaced::TooOld(12)), "there was none before");
        rewriter.begin(7_000);
        assert_eq!(rewriter.place(7_000), Ok(106));
        assert_eq!(rewriter.place_before(12), Ok(102));
        assert_eq!(rewriter.place_before(12), Err(Unplaced::Duplicate(12)));
        assert_eq!(rewriter.place_before(16), Err(Unplaced::TooOld(16)), "its number is another's by now");
        assert_eq!(rewriter.place_before(14), Ok(104));
        assert_eq!(rewriter.place(7_001), Ok(107));
        rewriter.end();
        assert_eq!(rewriter.place_before(11), Err(Unplaced::TooOld(11)));
    }
}
