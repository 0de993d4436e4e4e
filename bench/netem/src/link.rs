//! One direction of a link.

use crate::schedule::{Conditions, Schedule};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Bytes of UDP and IPv4 headers that come with every packet (RFC 768, RFC 791).
const OVERHEAD: usize = 28;
/// Packets on their way at most, whatever the conditions: what is more is dropped as by a full queue.
const PACKETS_MAX: usize = 16_384;
/// What is reordered comes so much later.
const REORDERED_BY: Duration = Duration::from_millis(20);

/// Why a packet does not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// The queue before the bottleneck is full.
    Queue,
    /// By chance.
    Loss,
    /// Nothing passes.
    Blackout,
}

/// What happened so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets that were to be sent.
    pub sent: u64,
    /// Those that arrived, duplicates included.
    pub delivered: u64,
    /// Their bytes, headers below the payload left out.
    pub bytes: u64,
    /// Dropped before a full queue.
    pub dropped_queue: u64,
    /// Lost by chance, or in a blackout.
    pub lost: u64,
    /// The longest wait before the bottleneck since this was read last, in microseconds.
    pub queue_us_max: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Link<T> {
    schedule: Schedule,
    rng: Rng,
    /// When the bottleneck is free.
    free_at: Duration,
    /// When the last packet that kept its place arrives.
    last_at: Duration,
    in_burst: bool,
    under_way: BinaryHeap<Reverse<UnderWay<T>>>,
    next: u64,
    stats: Stats,
}

#[derive(Debug)]
struct UnderWay<T> {
    at: Duration,
    number: u64,
    bytes: usize,
    item: T,
}

impl<T> PartialEq for UnderWay<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl<T> Eq for UnderWay<T> {}

impl<T> PartialOrd for UnderWay<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for UnderWay<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl<T: Clone> Link<T> {
    /// A link that is empty. The seed decides every arbitrary number.
    pub fn new(schedule: Schedule, seed: u64) -> Self {
        Self {
            schedule,
            rng: Rng(seed ^ 0x9e37_79b9_7f4a_7c15),
            free_at: Duration::ZERO,
            last_at: Duration::ZERO,
            in_burst: false,
            under_way: BinaryHeap::new(),
            next: 0,
            stats: Stats::default(),
        }
    }

    /// A packet of `bytes` of UDP payload goes in. Times never go back.
    ///
    /// # Errors
    /// Why it will not come out.
    pub fn send(&mut self, now: Duration, bytes: usize, item: T) -> Result<(), Dropped> {
        let conditions = *self.schedule.at(now);
        self.stats.sent += 1;
        let result = self.admit(now, &conditions, bytes);
        match result {
            Ok(at) => {
                if self.rng.share() < conditions.duplicate {
                    self.push(at, bytes, item.clone());
                }
                self.push(at, bytes, item);
                Ok(())
            }
            Err(dropped) => {
                match dropped {
                    Dropped::Queue => self.stats.dropped_queue += 1,
                    Dropped::Loss | Dropped::Blackout => self.stats.lost += 1,
                }
                Err(dropped)
            }
        }
    }

    fn admit(&mut self, now: Duration, conditions: &Conditions, bytes: usize) -> Result<Duration, Dropped> {
        if conditions.blackout {
            return Err(Dropped::Blackout);
        }
        if self.is_lost(conditions) {
            return Err(Dropped::Loss);
        }
        let mut at = now;
        if let Some(rate_kbps) = conditions.rate_kbps {
            let wait = self.free_at.saturating_sub(now);
            if wait > from_ms(conditions.queue_ms) {
                return Err(Dropped::Queue);
            }
            let takes = from_ms((bytes + OVERHEAD) as f64 * 8.0 / rate_kbps);
            self.free_at = now + wait + takes;
            self.stats.queue_us_max = self.stats.queue_us_max.max(wait.as_micros() as u64);
            at = self.free_at;
        }
        if self.under_way.len() >= PACKETS_MAX {
            return Err(Dropped::Queue);
        }
        at += from_ms(conditions.delay_ms + conditions.jitter_ms * self.rng.share());
        if self.rng.share() < conditions.reorder {
            return Ok(at + REORDERED_BY);
        }
        // Jitter is that of queues: nobody overtakes.
        self.last_at = self.last_at.max(at);
        Ok(self.last_at)
    }

    /// Two states (Gilbert 1960): in a burst everything is lost, outside nothing.
    fn is_lost(&mut self, conditions: &Conditions) -> bool {
        let Conditions { loss, loss_burst, .. } = *conditions;
        if loss >= 1.0 {
            return true;
        }
        let (enters, leaves) = match loss_burst {
            b if b <= 1.0 => (loss, 1.0 - loss),
            b => (loss / (b * (1.0 - loss)), 1.0 / b),
        };
        self.in_burst = if self.in_burst { self.rng.share() >= leaves } else { self.rng.share() < enters };
        self.in_burst
    }

    fn push(&mut self, at: Duration, bytes: usize, item: T) {
        self.under_way.push(Reverse(UnderWay { at, number: self.next, bytes, item }));
        self.next += 1;
    }

    /// What has arrived by now, one at a time.
    pub fn poll(&mut self, now: Duration) -> Option<T> {
        if self.deadline().is_none_or(|at| at > now) {
            return None;
        }
        let Reverse(arrived) = self.under_way.pop()?;
        self.stats.delivered += 1;
        self.stats.bytes += arrived.bytes as u64;
        Some(arrived.item)
    }

    /// When the next one arrives.
    pub fn deadline(&self) -> Option<Duration> {
        self.under_way.peek().map(|Reverse(first)| first.at)
    }

    /// What happened so far; the longest wait begins anew.
    pub fn stats(&mut self) -> Stats {
        let stats = self.stats;
        self.stats.queue_us_max = 0;
        stats
    }
}

fn from_ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms.clamp(0.0, 1e9) / 1_000.0)
}

/// SplitMix64 (Steele, Lea, Flood 2014): enough for losses, and the same everywhere.
#[derive(Debug)]
struct Rng(u64);

impl Rng {
    /// From 0 to 1, 1 excluded.
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A packet of 972 bytes, 1,000 with headers, each `every_us`, `count` times: number and arrival of each that came.
    fn run(conditions: Vec<Conditions>, seed: u64, every_us: u64, count: u64) -> (Vec<(u64, Duration)>, Stats) {
        let mut link = Link::new(Schedule::new(conditions).unwrap(), seed);
        let mut came = Vec::new();
        for n in 0..count {
            let now = Duration::from_micros(n * every_us);
            while let Some(at) = link.deadline().filter(|at| *at <= now) {
                came.extend(link.poll(at).map(|n| (n, at)));
            }
            let _ = link.send(now, 972, n);
        }
        while let Some(at) = link.deadline() {
            came.extend(link.poll(at).map(|n| (n, at)));
        }
        (came, link.stats())
    }

    #[test]
    fn a_bottleneck_keeps_its_rate_and_its_queue_its_length() {
        let narrow = Conditions { rate_kbps: Some(800.0), queue_ms: 200.0, delay_ms: 50.0, ..Conditions::default() };
        // 1,600 kbit/s into 800.
        let (came, stats) = run(vec![narrow], 1, 5_000, 2_000);
        let span = (came[came.len() - 1].1 - came[0].1).as_secs_f64();
        let rate = (came.len() - 1) as f64 * 8.0 / span;
        assert!((rate - 800.0).abs() < 8.0, "{rate} kbit/s");
        assert!(stats.queue_us_max <= 200_000 && stats.queue_us_max > 190_000, "{stats:?}");
        assert_eq!(stats.sent, stats.delivered + stats.dropped_queue);
        // Half of it fits.
        let (came, stats) = run(vec![narrow], 1, 10_000, 500);
        assert_eq!((came.len(), stats.dropped_queue), (500, 0));
        assert_eq!(came[0].1, ms(60));
    }

    #[test]
    fn a_change_applies_from_its_time_on() {
        let all = vec![Conditions::default(), Conditions { at_ms: 1_000, blackout: true, ..Conditions::default() }];
        let (came, stats) = run(all, 1, 10_000, 200);
        assert_eq!((came.len(), stats.lost), (100, 100));
        assert_eq!(came[99], (99, ms(990)));
    }

    #[test]
    fn losses_have_their_share_and_bursts_their_length() {
        for (loss, burst) in [(0.02, 1.0), (0.1, 1.0), (0.05, 4.0), (0.2, 10.0)] {
            let (came, _) = run(vec![Conditions { loss, loss_burst: burst, ..Conditions::default() }], 3, 100, 200_000);
            let share = 1.0 - came.len() as f64 / 200_000.0;
            assert!((share - loss).abs() < loss * 0.1, "{loss} {burst}: {share}");
            let gaps: Vec<u64> = came.windows(2).map(|w| w[1].0 - w[0].0 - 1).filter(|gap| *gap > 0).collect();
            let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
            let want = if burst > 1.0 { burst } else { 1.0 / (1.0 - loss) };
            assert!((mean - want).abs() < want * 0.1, "{loss} {burst}: {mean}");
        }
    }

    #[test]
    fn jitter_keeps_the_order_and_reordering_does_not() {
        let jitter = Conditions { delay_ms: 100.0, jitter_ms: 30.0, ..Conditions::default() };
        let (came, _) = run(vec![jitter], 1, 1_000, 5_000);
        assert!(came.windows(2).all(|w| w[0].0 < w[1].0));
        assert!(came.iter().all(|(n, at)| (ms(100)..=ms(131)).contains(&(*at - ms(*n)))));
        let (came, _) = run(vec![Conditions { reorder: 0.1, ..Conditions::default() }], 1, 1_000, 5_000);
        let late = came.windows(2).filter(|w| w[0].0 > w[1].0).count();
        assert!((400..600).contains(&late), "{late}");
    }

    #[test]
    fn the_same_seed_gives_the_same_and_another_another() {
        let bad = Conditions { loss: 0.1, jitter_ms: 20.0, duplicate: 0.1, reorder: 0.1, ..Conditions::default() };
        let of = |seed| run(vec![bad], seed, 1_000, 2_000);
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        assert!(of(7).1.delivered > 1_900, "some came twice: {:?}", of(7).1);
    }

    #[test]
    fn what_is_under_way_is_bounded() {
        let mut link =
            Link::new(Schedule::steady(Conditions { delay_ms: 60_000.0, ..Conditions::default() }).unwrap(), 1);
        let refused = (0..20_000).filter(|_| link.send(ms(0), 100, ()) == Err(Dropped::Queue)).count();
        assert_eq!(refused, 20_000 - PACKETS_MAX);
    }
}
