//! One timer wheel per worker: every deadline of its sessions and rooms, one entry a key.
//!
//! It is an indexed 4-ary heap, not a ring of slots. The reasons: `next` is exact, so the loop never wakes for
//! a cascade or for a wish that has moved on; a key owns its entry by construction, so wishes that move with
//! every packet cannot multiply; equal times come out in key order without sorting. A thousand keys are five
//! levels of comparisons of one `u128`, and a wish that stays in its millisecond costs one comparison.

use crate::count::Counter;
use rondo_media::units::{Deadline, Why};
use std::time::{Duration, Instant};

/// Who is to be woken: a small number, as the place of a session or room in its table. Memory grows with the
/// largest key ever armed (17 bytes each), so keys must not be hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerKey(pub u32);

/// Wake-ups by reason, written by the worker and read by whoever scrapes.
#[derive(Debug, Default)]
pub struct WakeCounts([Counter; Why::ALL.len()]);

impl WakeCounts {
    /// Label and count of each reason, in label order.
    pub fn read(&self) -> Vec<(&'static str, u64)> {
        Why::ALL.iter().zip(&self.0).map(|(why, count)| (why.label(), count.get())).collect()
    }

    /// Wake-ups for one reason.
    pub fn of(&self, why: Why) -> u64 {
        self.0[why as usize].get()
    }

    /// Counts one; only the owning thread may.
    fn woken(&self, why: Why) {
        self.0[why as usize].add(1);
    }
}

/// Granularity: deadlines are rounded up to a whole tick since the wheel was made.
const TICK: Duration = Duration::from_millis(1);
/// Children of a heap node: a shallow tree, whose siblings share a cache line.
const ARITY: usize = 4;
/// A key without an entry.
const ABSENT: u32 = u32::MAX;

/// When, then who: the order of the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    tick: u64,
    key: u32,
}

/// All deadlines of one worker.
#[derive(Debug)]
pub struct TimerWheel {
    origin: Instant,
    heap: Vec<Entry>,
    /// By key: its place in the heap, or `ABSENT`.
    places: Vec<u32>,
    /// By key: why it wants to be woken.
    reasons: Vec<Why>,
    /// The tick up to which the loop sleeps, as `next` last said.
    sleeps_to: u64,
    counts: std::sync::Arc<WakeCounts>,
}

impl TimerWheel {
    /// An empty wheel. `origin`: no deadline before it is told apart from it.
    pub fn new(origin: Instant, counts: std::sync::Arc<WakeCounts>) -> Self {
        Self { origin, heap: Vec::new(), places: Vec::new(), reasons: Vec::new(), sleeps_to: u64::MAX, counts }
    }

    /// Sets, moves or (`None`) removes the one deadline of `key`.
    ///
    /// Answers whether this deadline is earlier than the moment up to which the loop sleeps (what
    /// [`Self::next`] last said): then the caller must wake the loop.
    #[must_use = "a deadline earlier than the loop's sleep must wake the loop"]
    pub fn arm(&mut self, key: TimerKey, deadline: Option<Deadline>) -> bool {
        let index = key.0 as usize;
        let Some(Deadline { at, why }) = deadline else {
            if let Some(&place) = self.places.get(index).filter(|place| **place != ABSENT) {
                self.remove(place as usize);
            }
            return false;
        };
        if index >= self.places.len() {
            self.places.resize(index + 1, ABSENT);
            self.reasons.resize(index + 1, why);
        }
        self.reasons[index] = why;
        let entry = Entry { tick: self.tick_after(at), key: key.0 };
        let place = self.places[index];
        if place == ABSENT {
            self.heap.push(entry);
            self.rise(self.heap.len() - 1);
        } else {
            let place = place as usize;
            let old = std::mem::replace(&mut self.heap[place], entry);
            if entry < old {
                self.rise(place);
            } else if entry > old {
                self.sink(place);
            }
        }
        let wakes = entry.tick < self.sleeps_to;
        self.sleeps_to = self.sleeps_to.min(entry.tick);
        wakes
    }

    /// Takes out every key whose deadline has come and appends it to `due`, earliest first, keys of one
    /// millisecond in key order. Never early: an entry comes out at its deadline or up to 1 ms later.
    pub fn expire(&mut self, now: Instant, due: &mut Vec<(TimerKey, Why)>) {
        let now = ticks(now.saturating_duration_since(self.origin)).0;
        while let Some(&Entry { tick, key }) = self.heap.first() {
            if tick > now {
                break;
            }
            self.remove(0);
            let why = self.reasons[key as usize];
            self.counts.woken(why);
            due.push((TimerKey(key), why));
        }
    }

    /// When [`Self::expire`] will next have something, and the moment up to which the caller now sleeps.
    pub fn next(&mut self) -> Option<Instant> {
        let first = self.heap.first().map(|entry| entry.tick);
        self.sleeps_to = first.unwrap_or(u64::MAX);
        // A tick came from an Instant, so adding it up again overflows only at the end of that clock.
        first.and_then(|tick| self.origin.checked_add(Duration::from_millis(tick)))
    }

    /// Keys that have a deadline.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// No key has a deadline.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Wake-ups so far, by reason.
    pub fn counts(&self) -> &std::sync::Arc<WakeCounts> {
        &self.counts
    }

    /// The first tick that is not before `at`.
    fn tick_after(&self, at: Instant) -> u64 {
        let (whole, more) = ticks(at.saturating_duration_since(self.origin));
        whole + u64::from(more)
    }

    fn remove(&mut self, place: usize) {
        let gone = self.heap.swap_remove(place);
        self.places[gone.key as usize] = ABSENT;
        if let Some(moved) = self.heap.get(place).copied() {
            if moved < gone {
                self.rise(place);
            } else {
                self.sink(place);
            }
        }
    }

    /// Moves the entry at `place` up until its parent is earlier, and notes where everything went.
    fn rise(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.heap[parent] < entry {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    /// Moves the entry at `place` down until its children are later, and notes where everything went.
    fn sink(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let first = place * ARITY + 1;
            let last = (first + ARITY).min(self.heap.len());
            let Some(child) = (first..last).min_by_key(|child| self.heap[*child]) else { break };
            if entry < self.heap[child] {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        // One entry a key, and a key is a u32 below ABSENT or the table could not hold it: places fit.
        self.places[entry.key as usize] = place as u32;
    }
}

/// Whole ticks, and whether something remains.
fn ticks(since: Duration) -> (u64, bool) {
    let whole = u64::try_from(since.as_millis()).unwrap_or(u64::MAX - 1);
    (whole, !since.as_nanos().is_multiple_of(TICK.as_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    fn wheel(origin: Instant) -> TimerWheel {
        TimerWheel::new(origin, Arc::default())
    }

    fn due(wheel: &mut TimerWheel, now: Instant) -> Vec<(u32, Why)> {
        let mut out = Vec::new();
        wheel.expire(now, &mut out);
        out.into_iter().map(|(key, why)| (key.0, why)).collect()
    }

    #[test]
    fn reasons_index_their_own_place() {
        for (place, why) in Why::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, place);
        }
    }

    #[test]
    fn a_deadline_is_rounded_up_to_a_millisecond_and_never_early() {
        let t0 = Instant::now();
        let mut w = wheel(t0);
        assert!(w.arm(TimerKey(1), Some(Deadline { at: t0 + us(1_001), why: Why::Nack })));
        assert_eq!(w.next(), Some(t0 + us(2_000)));
        assert_eq!(due(&mut w, t0 + us(1_999)), []);
        assert_eq!(due(&mut w, t0 + us(2_000)), [(1, Why::Nack)]);
        assert_eq!(w.next(), None);
        assert_eq!((w.counts().of(Why::Nack), w.counts().of(Why::Drain)), (1, 0));
    }

    #[test]
    fn a_deadline_in_the_past_is_due_at_once() {
        let t0 = Instant::now() + us(5_000_000);
        let mut w = wheel(t0);
        let _ = w.arm(TimerKey(0), Some(Deadline { at: t0 - us(1), why: Why::Transport }));
        assert_eq!(due(&mut w, t0), [(0, Why::Transport)]);
    }

    #[test]
    fn equal_times_come_out_in_key_order_whatever_the_order_of_arming() {
        let t0 = Instant::now();
        let mut w = wheel(t0);
        for key in [7, 3, 9, 1, 8, 0, 2] {
            let _ = w.arm(TimerKey(key), Some(Deadline { at: t0 + us(300 + u64::from(key)), why: Why::Speakers }));
        }
        let keys: Vec<u32> = due(&mut w, t0 + us(1_000)).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, [0, 1, 2, 3, 7, 8, 9]);
    }

    #[test]
    fn a_wish_moved_with_every_packet_stays_one_entry_and_allocates_nothing() {
        let t0 = Instant::now();
        let mut w = wheel(t0);
        for key in 0..8 {
            let _ = w.arm(TimerKey(key), Some(Deadline { at: t0, why: Why::Liveness }));
        }
        let capacity = (w.heap.capacity(), w.places.capacity(), w.reasons.capacity());
        for packet in 0..10_000u64 {
            let _ = w.arm(TimerKey(3), Some(Deadline { at: t0 + us(packet * 977), why: Why::Liveness }));
        }
        assert_eq!(w.len(), 8);
        assert_eq!((w.heap.capacity(), w.places.capacity(), w.reasons.capacity()), capacity);
        assert_eq!(due(&mut w, t0 + us(100_000_000)).len(), 8);
    }

    #[test]
    fn arming_tells_when_the_loop_sleeps_too_long_and_only_once() {
        let t0 = Instant::now();
        let mut w = wheel(t0);
        let at = |ms: u64| Some(Deadline { at: t0 + us(ms * 1_000), why: Why::Statistics });
        assert!(w.arm(TimerKey(1), at(50)), "an empty wheel sleeps for ever");
        assert_eq!(w.next(), Some(t0 + us(50_000)));
        assert!(!w.arm(TimerKey(2), at(50)));
        assert!(!w.arm(TimerKey(2), at(90)));
        assert!(w.arm(TimerKey(2), at(20)));
        assert!(!w.arm(TimerKey(3), at(30)), "the loop has been told to wake at 20");
        assert!(!w.arm(TimerKey(2), None));
        assert_eq!(w.next(), Some(t0 + us(30_000)));
        assert!(w.arm(TimerKey(4), at(29)));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Arm(u32, u64, usize),
        Disarm(u32),
        Advance(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => (0u32..40, 0u64..20_000, 0..Why::ALL.len()).prop_map(|(k, d, w)| Step::Arm(k, d, w)),
            1 => (0u32..45).prop_map(Step::Disarm),
            2 => (0u64..9_000).prop_map(Step::Advance),
        ]
    }

    proptest! {
        /// The plain model: a map from key to (tick, reason), searched whole each time.
        #[test]
        fn agrees_with_a_plain_map(steps in proptest::collection::vec(step(), 1..300)) {
            let t0 = Instant::now();
            let mut w = wheel(t0);
            let mut now = 0u64;
            let mut model: BTreeMap<u32, (u64, Why)> = BTreeMap::new();
            let mut woken = 0;
            for step in steps {
                match step {
                    Step::Arm(key, after, why) => {
                        let at = now + after;
                        let _ = w.arm(TimerKey(key), Some(Deadline { at: t0 + us(at), why: Why::ALL[why] }));
                        model.insert(key, (at.div_ceil(1_000), Why::ALL[why]));
                    }
                    Step::Disarm(key) => {
                        let _ = w.arm(TimerKey(key), None);
                        model.remove(&key);
                    }
                    Step::Advance(by) => {
                        now += by;
                        let mut want: Vec<(u64, u32, Why)> =
                            model.iter().filter(|(_, e)| e.0 * 1_000 <= now).map(|(k, e)| (e.0, *k, e.1)).collect();
                        want.sort_by_key(|e| (e.0, e.1));
                        model.retain(|_, e| e.0 * 1_000 > now);
                        woken += want.len() as u64;
                        let want: Vec<(u32, Why)> = want.into_iter().map(|e| (e.1, e.2)).collect();
                        prop_assert_eq!(due(&mut w, t0 + us(now)), want);
                    }
                }
                let next = model.values().map(|e| t0 + us(e.0 * 1_000)).min();
                prop_assert_eq!(w.next(), next);
                prop_assert_eq!(w.len(), model.len());
            }
            prop_assert_eq!(w.counts().read().into_iter().map(|c| c.1).sum::<u64>(), woken);
        }
    }
}
