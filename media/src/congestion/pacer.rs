//! How much may leave at once, so that a long frame does not fill a path's queue by itself: a bucket that empties at a
//! multiple of the estimate.

use crate::units::Bitrate;
use std::time::{Duration, Instant};

/// What was sent and has not yet been paid for by time.
#[derive(Debug, Default)]
pub struct Pacer {
    debt_bytes: u64,
    at: Option<Instant>,
    /// None while nothing is known of the path: everything may leave.
    rate: Option<Bitrate>,
}

impl Pacer {
    /// The rate, in percent of the estimate: frames are not equally long, and a path takes a little more for a moment.
    const FACTOR: u64 = 250;
    /// So much time's worth may leave at once: a frame of usual length goes whole.
    const BURST: Duration = Duration::from_millis(40);
    /// What waits leaves each time that so much has been paid for: several packets, which a socket takes in one call.
    const SLOT: Duration = Duration::from_millis(20);
    /// Retransmissions are let out as long as no more than this is owed.
    const REPAIRS: Duration = Duration::from_millis(200);
    /// No debt is counted longer: bounds what arithmetic has to hold.
    const DEBT_MAX: u64 = 1 << 24;

    /// Time has gone by; `estimate`: what the path takes, if that is known.
    pub fn tick(&mut self, now: Instant, estimate: Option<Bitrate>) {
        self.rate = estimate.map(|estimate| estimate.percent(Self::FACTOR));
        let passed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.at = Some(self.at.map_or(now, |at| at.max(now)));
        if self.debt_bytes > 0 {
            self.debt_bytes = self.debt_bytes.saturating_sub(self.bytes(passed));
        }
    }

    /// So many bytes were sent, all headers included.
    pub fn sent(&mut self, bytes: u64) {
        self.debt_bytes = self.debt_bytes.saturating_add(bytes).min(Self::DEBT_MAX);
    }

    /// Whether a packet may leave, as of the last tick.
    pub fn is_open(&self) -> bool {
        self.debt_bytes == 0 || self.debt_bytes < self.bytes(Self::BURST)
    }

    /// Whether so many bytes may leave together.
    pub fn takes(&self, bytes: u64) -> bool {
        self.debt_bytes + bytes <= self.bytes(Self::BURST)
    }

    /// Bytes that may be sent again now.
    pub fn repairs(&self) -> u64 {
        self.bytes(Self::REPAIRS).saturating_sub(self.debt_bytes)
    }

    /// When the next slot's worth may leave.
    pub fn opens_at(&self) -> Option<Instant> {
        let (at, rate) = (self.at?, self.rate?);
        let over = self.debt_bytes.saturating_sub(self.bytes(Self::BURST - Self::SLOT));
        // Rounded up: it is open then. A rate of nothing is never paid; a second later it may be another one.
        let wait_us = (over * 8_000_000).checked_div(rate.bps()).map_or(1_000_000, |us| us + 1);
        Some(at + Duration::from_micros(wait_us.min(1_000_000)))
    }

    fn bytes(&self, time: Duration) -> u64 {
        let Some(rate) = self.rate else { return u64::MAX / 2 };
        // In 64 bits, for it is asked for with each frame: 10 s at most, and rates far above any here.
        let us = if time < Duration::from_secs(10) { time.as_micros() as u64 } else { 10_000_000 };
        rate.bps().min(100_000_000_000) * us / 8_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    fn start() -> Instant {
        Instant::now()
    }

    const ESTIMATE: Option<Bitrate> = Some(Bitrate::from_kbps(800));

    /// 800 kbit/s are paced at 2 Mbit/s: 10,000 bytes in 40 ms, 5,000 in a slot.
    #[test]
    fn a_burst_leaves_at_once_and_then_a_slot_at_a_time() {
        let t0 = start();
        let mut pacer = Pacer::default();
        pacer.tick(t0, ESTIMATE);
        assert!(pacer.takes(10_000) && !pacer.takes(10_001));
        let mut left = 0;
        while pacer.is_open() {
            pacer.sent(1_000);
            left += 1;
        }
        assert_eq!(left, 10);
        assert_eq!(pacer.opens_at(), Some(t0 + Duration::from_micros(20_001)));
        pacer.tick(t0 + Duration::from_micros(20_001), ESTIMATE);
        while pacer.is_open() {
            pacer.sent(1_000);
            left += 1;
        }
        assert_eq!(left, 15);
        assert_eq!(pacer.opens_at(), Some(t0 + Duration::from_micros(40_002)));
    }

    /// Over two seconds with always something to send: 2 Mbit/s, and one burst.
    #[test]
    fn the_rate_is_kept() {
        let t0 = start();
        let (mut pacer, mut now, mut sent) = (Pacer::default(), t0, 0u64);
        while now < t0 + Duration::from_secs(2) {
            pacer.tick(now, ESTIMATE);
            while pacer.is_open() {
                pacer.sent(1_200);
                sent += 1_200;
            }
            let next = pacer.opens_at().unwrap();
            assert!(next > now);
            now = next;
        }
        assert!((500_000..=500_000 + 10_000 + 1_200 + 5_000).contains(&sent), "{sent}");
    }

    #[test]
    fn nothing_waits_while_nothing_is_known_and_what_was_sent_before_is_owed() {
        let t0 = start();
        let mut pacer = Pacer::default();
        pacer.tick(t0, None);
        pacer.sent(1_000_000);
        assert!(pacer.is_open() && pacer.takes(1_000_000) && pacer.repairs() > 1 << 40);
        assert_eq!(pacer.opens_at(), None);
        pacer.tick(t0, ESTIMATE);
        assert!(!pacer.is_open());
        assert_eq!(pacer.repairs(), 0);
        // One million bytes are 4 s at 2 Mbit/s.
        pacer.tick(t0 + Duration::from_millis(3_900), ESTIMATE);
        assert!(!pacer.is_open());
        assert_eq!(pacer.repairs(), 50_000 - 25_000);
        pacer.tick(t0 + Duration::from_millis(3_970), ESTIMATE);
        assert!(pacer.is_open());
    }

    #[test]
    fn nothing_is_survived_and_so_are_times_that_run_back_and_numbers_that_are_huge() {
        let t0 = start();
        let mut pacer = Pacer::default();
        pacer.tick(t0 + Duration::from_secs(5), Some(Bitrate::ZERO));
        assert!(pacer.is_open(), "one packet, whatever the rate");
        pacer.sent(1);
        assert!(!pacer.is_open());
        assert_eq!(pacer.opens_at(), Some(t0 + Duration::from_secs(6)));
        pacer.sent(u64::MAX);
        pacer.tick(t0, Some(Bitrate::from_bps(u64::MAX)));
        assert!(pacer.opens_at().is_some());
        pacer.tick(t0 + Duration::from_secs(10_000_000), Some(Bitrate::from_bps(u64::MAX)));
        assert!(pacer.is_open());
    }
}
