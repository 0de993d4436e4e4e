//! Probes: short bursts of padding that find out whether a path carries more than is sent on it.
//!
//! What is sent follows layers, not the path, so the path's rate is seldom seen by media alone. A burst of a few packets
//! leaves at once; the distance of their arrivals is the bottleneck's rate. Nothing is probed for what nobody wants.
//!
//! A burst says what the bottleneck takes, not what others leave of it. Where that was too much, what a burst finds is
//! tried: padding comes beside media for a moment, as much as a better layer would, and the queue tells.

use crate::send::TwccResult;
use crate::units::Bitrate;
use std::time::{Duration, Instant};

/// A burst to be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// The rate it asks for.
    pub rate: Bitrate,
    /// Its length, in bytes of RTP packets.
    pub bytes: usize,
    /// As many packets as that takes, and at least so many.
    pub packets: usize,
}

impl Probe {
    /// Fewer packets tell no rate.
    const PACKETS_MIN: usize = 5;
    /// How long a burst takes at the rate it asks for.
    const LASTS: Duration = Duration::from_millis(15);
    const BYTES_MIN: u64 = 5_500;
    const BYTES_MAX: u64 = 32_000;

    pub(super) fn of(rate: Bitrate) -> Self {
        let bytes = rate.bytes_in(Self::LASTS).clamp(Self::BYTES_MIN, Self::BYTES_MAX);
        Self { rate, bytes: usize::try_from(bytes).unwrap_or(usize::MAX), packets: Self::PACKETS_MIN }
    }
}

/// A burst that was sent, while its packets are reported.
#[derive(Debug, Clone, Copy)]
pub(super) struct Burst {
    pub rate: Bitrate,
    pub sent_at: Instant,
    first: u16,
    packets: u16,
    arrived: u16,
    first_us: i64,
    last_us: i64,
    /// Bytes that arrived, and those of the packet that arrived first.
    bytes: u64,
    first_bytes: u64,
}

impl Burst {
    pub fn new(now: Instant, rate: Bitrate, first: u16, packets: u16) -> Self {
        Self { rate, sent_at: now, first, packets, arrived: 0, first_us: 0, last_us: 0, bytes: 0, first_bytes: 0 }
    }

    /// Whether a packet is one of the burst's.
    pub fn has(&self, seq: u16) -> bool {
        seq.wrapping_sub(self.first) < self.packets
    }

    /// Whether a packet was sent after the burst.
    pub fn is_before(&self, seq: u16) -> bool {
        let after = seq.wrapping_sub(self.first.wrapping_add(self.packets));
        after < 1 << 15
    }

    /// One of its packets arrived.
    pub fn arrived(&mut self, result: &TwccResult, arrived_us: i64) {
        let bytes = u64::from(result.len) + super::OVERHEAD;
        if self.arrived == 0 || arrived_us < self.first_us {
            (self.first_us, self.first_bytes) = (arrived_us, bytes);
        }
        self.last_us = if self.arrived == 0 { arrived_us } else { self.last_us.max(arrived_us) };
        self.arrived += 1;
        self.bytes += bytes;
    }

    /// Whether all of it was reported as arrived.
    pub fn is_whole(&self) -> bool {
        self.arrived >= self.packets
    }

    /// The rate that the path took it at: what was asked for at most. None where too much of it was lost to say.
    pub fn result(&self) -> Option<Bitrate> {
        if self.arrived < 3 || u32::from(self.arrived) * 5 < u32::from(self.packets) * 4 {
            return None;
        }
        let time = self.last_us.checked_sub(self.first_us)?;
        let took = Bitrate::of(self.bytes - self.first_bytes, Duration::from_micros(time.unsigned_abs()));
        Some(took.min(self.rate))
    }

    /// From its first arrival to its last.
    pub fn spread_us(&self) -> i64 {
        self.last_us.saturating_sub(self.first_us)
    }

    /// [`Self::result`] from when its first packet would have arrived at the soonest: jitter of that one says too little time, here
    /// jitter of the last one says too much.
    pub fn at_least(&self, soonest_us: i64) -> Bitrate {
        let time = self.last_us.saturating_sub(soonest_us).max(0);
        Bitrate::of(self.bytes, Duration::from_micros(time.unsigned_abs())).min(self.rate)
    }
}

/// What the media says for nothing: packets that left together arrive apart as far as the bottleneck makes them. Where
/// that is further than what is wanted would need, a burst would say no more, and keep sound waiting.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// Number, departure and arrival of the last packet.
    last: Option<(u16, Instant, i64)>,
    known: u32,
    /// Share of pairs that were fast enough, of [`Pairs::ALL`], smoothed.
    fast: i32,
    at: Option<Instant>,
}

impl Pairs {
    const ALL: i32 = 1 << 12;
    /// Pairs that must be known, and how lately.
    const KNOWN_MIN: u32 = 8;
    const LASTS: Duration = Duration::from_secs(2);
    /// Shorter packets say little: their distance is a few ticks of the receiver's clock.
    const LEN_MIN: u16 = 400;
    /// Packets that left within this time left together.
    const TOGETHER: Duration = Duration::from_millis(1);

    /// A packet arrived; `goal`: the rate that is wanted.
    pub fn packet(&mut self, now: Instant, result: &TwccResult, arrived_us: i64, goal: Bitrate) {
        let Some((seq, sent, before_us)) = self.last.replace((result.seq, result.sent, arrived_us)) else { return };
        let apart = result.sent.saturating_duration_since(sent).max(sent.saturating_duration_since(result.sent));
        let next = result.seq == seq.wrapping_add(1) && apart <= Self::TOGETHER;
        let (true, Some(time)) = (next && result.len >= Self::LEN_MIN, arrived_us.checked_sub(before_us)) else {
            return;
        };
        let took = Bitrate::of(u64::from(result.len) + super::OVERHEAD, Duration::from_micros(time.unsigned_abs()));
        let fast = if took >= goal { Self::ALL } else { 0 };
        self.fast += (fast - self.fast) / 8;
        self.known = self.known.saturating_add(1);
        self.at = Some(now);
    }

    /// Whether anything was said lately.
    pub fn say_something(&self, now: Instant) -> bool {
        let lately = self.at.is_some_and(|at| now.saturating_duration_since(at) < Self::LASTS);
        lately && self.known >= Self::KNOWN_MIN
    }

    /// Whether the path takes less than is wanted.
    pub fn say_no(&self, now: Instant) -> bool {
        self.say_something(now) && self.fast < Self::ALL / 4
    }
}

/// Padding beside media for a moment, to find out whether others leave room for so much.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    /// What media and padding come to.
    pub rate: Bitrate,
    padding: Bitrate,
    pub began_at: Instant,
    next_at: Instant,
    sent_bytes: u64,
    /// Lowest delays of what left in its first third and in its last, in microseconds.
    early_us: Option<i64>,
    late_us: Option<i64>,
    told: u32,
    lost: u32,
}

impl Trial {
    /// Long enough for a tenth too much to be seen, short enough for a queue that nobody hears.
    pub const LASTS: Duration = Duration::from_millis(150);
    const STEP: Duration = Duration::from_millis(10);
    /// So much more at its end than at its beginning is a queue that grows.
    const GROWS_US: i64 = 10_000;

    /// `media`: what is sent anyway.
    pub fn new(now: Instant, rate: Bitrate, media: Bitrate) -> Self {
        Self {
            rate,
            padding: rate.saturating_sub(media),
            began_at: now,
            next_at: now,
            sent_bytes: 0,
            early_us: None,
            late_us: None,
            told: 0,
            lost: 0,
        }
    }

    /// When its next padding leaves; none once it is over.
    pub fn next_at(&self) -> Option<Instant> {
        Some(self.next_at).filter(|at| *at < self.began_at + Self::LASTS)
    }

    /// What leaves now.
    pub fn step(&self, now: Instant) -> Probe {
        let until = now.saturating_duration_since(self.began_at) + Self::STEP;
        let bytes = self.padding.bytes_in(until.min(Self::LASTS)).saturating_sub(self.sent_bytes);
        Probe { rate: self.rate, bytes: usize::try_from(bytes).unwrap_or(usize::MAX), packets: 0 }
    }

    pub fn sent(&mut self, now: Instant, bytes: u64) {
        self.sent_bytes += bytes;
        self.next_at = now + Self::STEP;
    }

    /// A packet was reported; whether that ends it.
    pub fn told(&mut self, sent: Instant, delay_us: Option<i64>) -> bool {
        if sent < self.began_at {
            return false;
        }
        let at = sent.saturating_duration_since(self.began_at);
        if at >= Self::LASTS {
            return true;
        }
        self.told += 1;
        self.lost += u32::from(delay_us.is_none());
        let third = if at < Self::LASTS / 3 {
            &mut self.early_us
        } else if at >= Self::LASTS / 3 * 2 {
            &mut self.late_us
        } else {
            return false;
        };
        *third = delay_us.into_iter().chain(*third).min();
        false
    }

    /// Whether there was room.
    pub fn fits(&self, jitter_us: i64) -> bool {
        let few_lost = u64::from(self.lost) * 10 <= u64::from(self.told);
        let grew_us = self.late_us.zip(self.early_us).map(|(late, early)| late.saturating_sub(early));
        few_lost && grew_us.is_some_and(|grew| grew < Self::GROWS_US.max(jitter_us / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    fn start() -> Instant {
        Instant::now()
    }

    fn burst(first: u16, packets: u16, every_us: i64, lost: &[u16]) -> Burst {
        let mut burst = Burst::new(start(), Bitrate::from_kbps(2_000), first, packets);
        for n in (0..packets).filter(|n| !lost.contains(n)) {
            let seq = first.wrapping_add(n);
            assert!(burst.has(seq) && !burst.is_before(seq));
            let result = TwccResult { seq, sent: start(), arrived_us: None, len: 972 };
            burst.arrived(&result, 50_000 + i64::from(n) * every_us);
        }
        assert!(burst.is_before(first.wrapping_add(packets)) && !burst.has(first.wrapping_sub(1)));
        burst
    }

    #[test]
    fn the_distance_of_arrivals_is_the_rate_of_the_bottleneck() {
        // 1,000 bytes with the headers below RTP each 10 ms are 800 kbit/s.
        assert_eq!(burst(65_534, 6, 10_000, &[]).result(), Some(Bitrate::from_kbps(800)));
        assert_eq!(burst(7, 6, 1_000, &[]).result(), Some(Bitrate::from_kbps(2_000)), "no more than was asked for");
        assert_eq!(burst(7, 6, 0, &[]).result(), Some(Bitrate::from_kbps(2_000)));
        assert_eq!(burst(7, 6, 1_000, &[2]).result(), Some(Bitrate::from_kbps(2_000)));
        assert_eq!(burst(7, 6, 1_000, &[2, 5]).result(), None, "a third was lost");
    }

    #[test]
    fn a_burst_is_long_enough_to_be_measured_and_bounded() {
        let len = |kbps| Probe::of(Bitrate::from_kbps(kbps)).bytes;
        assert_eq!((len(100), len(4_000), len(1_000_000)), (5_500, 7_500, 32_000));
    }

    /// Frames of three packets, each 33 ms; packets of a frame arrive so far apart.
    fn frames(pairs: &mut Pairs, t0: Instant, from: u16, count: u16, apart_us: i64) -> Instant {
        let mut now = t0;
        for frame in from..from + count {
            now = t0 + Duration::from_millis(33) * u32::from(frame);
            for n in 0..3 {
                let result = TwccResult { seq: frame * 3 + n, sent: now, arrived_us: None, len: 972 };
                let arrived_us = i64::from(frame) * 33_000 + i64::from(n) * apart_us;
                pairs.packet(now, &result, arrived_us, Bitrate::from_kbps(1_800));
            }
        }
        now
    }

    #[test]
    fn frames_say_that_a_path_takes_no_more_and_soon_that_it_does() {
        let (mut pairs, t0) = (Pairs::default(), start());
        // 8,000 bits each 10 ms.
        let now = frames(&mut pairs, t0, 0, 3, 10_000);
        assert!(!pairs.say_something(now) && !pairs.say_no(now), "six pairs are too few");
        let now = frames(&mut pairs, t0, 3, 1, 10_000);
        assert!(pairs.say_no(now));
        assert!(!pairs.say_no(now + Duration::from_secs(2)), "that was long ago");
        let now = frames(&mut pairs, t0, 4, 2, 4_000);
        assert!(!pairs.say_no(now), "2 Mbit/s are enough");
        let now = frames(&mut pairs, t0, 6, 8, 5_000);
        assert!(pairs.say_no(now), "1.6 are not");
    }

    #[test]
    fn packets_that_left_apart_or_are_short_say_nothing() {
        let (mut pairs, t0) = (Pairs::default(), start());
        for n in 0..100u16 {
            let sent = t0 + Duration::from_millis(5) * u32::from(n);
            let result = |len| TwccResult { seq: n * 2, sent, arrived_us: None, len };
            pairs.packet(sent, &result(972), i64::from(n) * 5_000, Bitrate::from_kbps(1_800));
            let short = TwccResult { seq: n * 2 + 1, ..result(100) };
            pairs.packet(sent, &short, i64::MIN + i64::from(n), Bitrate::from_kbps(1_800));
        }
        assert!(!pairs.say_something(t0 + Duration::from_millis(500)));
    }

    /// A trial of 1,840 kbit/s beside 540, whose packets are late by `delay_us(ms)`.
    fn trial(delay_us: impl Fn(u64) -> Option<i64>) -> (Trial, u64) {
        let t0 = start();
        let mut trial = Trial::new(t0, Bitrate::from_kbps(1_840), Bitrate::from_kbps(540));
        let mut sent = 0;
        for ms in 0..200 {
            let now = t0 + Duration::from_millis(ms);
            if trial.next_at().is_some_and(|at| now >= at) {
                let bytes = trial.step(now).bytes as u64;
                trial.sent(now, bytes);
                sent += bytes;
            }
            let over = ms % 5 == 0 && trial.told(now, delay_us(ms));
            assert_eq!(over, ms >= 150 && ms % 5 == 0);
        }
        (trial, sent)
    }

    #[test]
    fn what_is_tried_is_padding_beside_media_and_a_queue_that_grows_says_no() {
        let (fits, sent) = trial(|ms| Some(50_000 + (ms as i64 * 7_919) % 9_000));
        assert!(fits.fits(0), "it wavers, and does not grow");
        // 1,300 kbit/s for 150 ms.
        assert_eq!(sent, 24_375);
        let (grows, _) = trial(|ms| Some(50_000 + ms as i64 * 100));
        assert!(!grows.fits(0), "a tenth too much");
        assert!(grows.fits(30_000), "which is nothing where packets waver by 30 ms");
        let (drops, _) = trial(|ms| (ms % 4 != 0).then_some(50_000));
        assert!(!drops.fits(0), "a quarter was lost");
        assert!(!trial(|_| None).0.fits(0));
    }

    #[test]
    fn a_first_packet_that_is_late_makes_no_path_fast() {
        // Each 10 ms but for the first one, which came with the last; 20 ms later than it might.
        let mut burst = Burst::new(start(), Bitrate::from_kbps(2_000), 0, 5);
        for (seq, arrived_us) in [70_000, 80_000, 90_000, 91_000, 92_000].into_iter().enumerate() {
            let result = TwccResult { seq: seq as u16, sent: start(), arrived_us: None, len: 972 };
            burst.arrived(&result, arrived_us);
        }
        assert_eq!((burst.result(), burst.spread_us()), (Some(Bitrate::from_bps(1_454_545)), 22_000));
        assert_eq!(burst.at_least(50_000), Bitrate::from_bps(952_380));
    }
}
