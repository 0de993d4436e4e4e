//! The rate at which what was sent arrives, from transport-wide feedback.

use crate::units::Bitrate;
use std::time::Duration;

/// Length of a bucket on the peer's clock, in microseconds.
const BUCKET_US: i64 = 50_000;
/// Buckets kept: a second.
const BUCKETS: usize = 20;
/// What [`Acked::rate`] looks at, in buckets: half a second, some fifteen frames.
const WINDOW: i64 = 10;
/// What [`Acked::recent`] looks at: the rate after a link has changed, before its queue is seen to be full.
const RECENT: i64 = 4;

/// Bytes that arrived, by when.
#[derive(Debug, Clone, Default)]
pub(super) struct Acked {
    buckets: [u64; BUCKETS],
    /// The bucket that arrivals fall into now, counted from the peer's zero.
    newest: Option<i64>,
    /// The first bucket that anything fell into.
    first: i64,
}

impl Acked {
    /// `bytes` arrived at that moment of the peer's clock. What is more than a second older than the newest is left out.
    pub fn arrived(&mut self, arrived_us: i64, bytes: u64) {
        let bucket = arrived_us.div_euclid(BUCKET_US);
        let newest = match self.newest {
            None => {
                self.first = bucket;
                bucket
            }
            Some(newest) => newest,
        };
        // The peer's clock leaps: what was before says nothing.
        if bucket.abs_diff(newest) > 10 * BUCKETS as u64 {
            *self = Self { first: bucket, newest: Some(bucket), ..Self::default() };
        } else {
            for emptied in newest + 1..=bucket {
                *self.bucket(emptied) = 0;
            }
            self.newest = Some(newest.max(bucket));
        }
        if self.newest.is_some_and(|newest| newest - bucket < BUCKETS as i64) {
            let bucket = self.bucket(bucket);
            *bucket = bucket.saturating_add(bytes);
        }
    }

    fn bucket(&mut self, bucket: i64) -> &mut u64 {
        &mut self.buckets[bucket.rem_euclid(BUCKETS as i64) as usize]
    }

    /// The rate of the last half second that is over; none before a fifth of a second is known.
    pub fn rate(&self) -> Option<Bitrate> {
        self.over(WINDOW)
    }

    /// The rate of the last fifth of a second that is over.
    pub fn recent(&self) -> Option<Bitrate> {
        self.over(RECENT)
    }

    fn over(&self, window: i64) -> Option<Bitrate> {
        let newest = self.newest?;
        let known = (newest - self.first).min(window);
        if known < RECENT {
            return None;
        }
        let bytes = (newest - known..newest).map(|n| self.buckets[n.rem_euclid(BUCKETS as i64) as usize]);
        let bytes = bytes.fold(0u64, u64::saturating_add);
        Some(Bitrate::of(bytes, Duration::from_micros((known * BUCKET_US).unsigned_abs())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_stream_has_its_rate_and_a_change_is_seen_in_a_fifth_of_a_second() {
        let mut acked = Acked::default();
        let mut at = 7_000_000;
        let mut send = |acked: &mut Acked, ms: i64, every_ms: i64| {
            for _ in 0..ms / every_ms {
                acked.arrived(at, 1_250);
                at += every_ms * 1_000;
            }
        };
        send(&mut acked, 190, 10);
        assert_eq!(acked.rate(), None, "too little is known");
        send(&mut acked, 810, 10);
        assert_eq!(acked.rate(), Some(Bitrate::from_kbps(1_000)));
        send(&mut acked, 260, 50);
        assert_eq!(acked.recent(), Some(Bitrate::from_kbps(200)));
        assert!(acked.rate() > Some(Bitrate::from_kbps(400)));
        send(&mut acked, 500, 50);
        assert_eq!(acked.rate(), Some(Bitrate::from_kbps(200)));
    }

    #[test]
    fn silence_counts_and_a_clock_that_leaps_begins_anew() {
        let mut acked = Acked::default();
        for n in 0..100 {
            acked.arrived(n * 10_000, 1_250);
        }
        acked.arrived(1_500_000, 1_250);
        assert_eq!(acked.recent(), Some(Bitrate::ZERO));
        for at in [i64::MAX, i64::MIN, 0, i64::MAX / 2, -5] {
            acked.arrived(at, u64::MAX);
            assert_eq!(acked.rate(), None);
        }
    }

    #[test]
    fn what_comes_late_is_counted_where_it_belongs() {
        let mut acked = Acked::default();
        for n in (0..100).filter(|n| n % 10 != 3) {
            acked.arrived(n * 10_000, 1_250);
        }
        for n in (0..100).filter(|n| n % 10 == 3) {
            acked.arrived(n * 10_000, 1_250);
        }
        assert_eq!(acked.rate(), Some(Bitrate::from_kbps(1_000)));
    }
}
