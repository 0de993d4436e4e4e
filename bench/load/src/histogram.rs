//! Counts of durations in buckets whose width grows with the value: at most 1.6 % wrong, at a fixed size.

use serde::Serialize;
use std::time::Duration;

/// Each power of two is divided into 2^6 buckets.
const SUB_BITS: u32 = 6;
const SUB: u64 = 1 << SUB_BITS;
/// Up to 2^40 µs (12 days); what is longer counts as that.
const BUCKETS: usize = (SUB as usize) * (40 - SUB_BITS as usize + 1);

/// A histogram of durations, in whole microseconds.
#[derive(Clone, Default)]
pub struct Histogram {
    /// Empty until the first value.
    counts: Vec<u64>,
    total: u64,
    max_us: u64,
}

/// The percentiles that reports show, in milliseconds; `None` where nothing was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Values counted.
    pub count: u64,
    /// Median.
    pub p50_ms: Option<f64>,
    /// 95 % are at most this.
    pub p95_ms: Option<f64>,
    /// 99 % are at most this.
    pub p99_ms: Option<f64>,
    /// The largest.
    pub max_ms: Option<f64>,
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, value: Duration) {
        let us = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        if self.counts.is_empty() {
            self.counts.resize(BUCKETS, 0);
        }
        self.counts[bucket(us)] += 1;
        self.total += 1;
        self.max_us = self.max_us.max(us);
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        if self.counts.is_empty() {
            self.counts.clone_from(&other.counts);
        } else {
            self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        }
        self.total += other.total;
        self.max_us = self.max_us.max(other.max_us);
    }

    /// The value that `share` (0 to 1) of all values do not exceed, in µs; `None` where nothing was counted.
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        let rank = ((share * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        let place = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(lower_bound(place).min(self.max_us))
    }

    /// What a report shows of it.
    pub fn percentiles(&self) -> Percentiles {
        let ms = |us: Option<u64>| us.map(|us| us as f64 / 1000.0);
        Percentiles {
            count: self.total,
            p50_ms: ms(self.quantile_us(0.5)),
            p95_ms: ms(self.quantile_us(0.95)),
            p99_ms: ms(self.quantile_us(0.99)),
            max_ms: ms((self.total > 0).then_some(self.max_us)),
        }
    }

    /// Points of the distribution: `(value in ms, share of values above it)`, for shares from 1 down to one value.
    pub fn tail(&self) -> Vec<(f64, f64)> {
        let mut above = self.total;
        let mut points = Vec::new();
        for (place, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            points.push((lower_bound(place) as f64 / 1000.0, above as f64 / self.total as f64));
            above -= count;
        }
        points
    }
}

/// The first SUB values have a bucket each; from there on, SUB buckets for each power of two.
fn bucket(us: u64) -> usize {
    if us < SUB {
        return us as usize;
    }
    let shift = us.ilog2() - SUB_BITS;
    let place = (u64::from(shift) + 1) * SUB + (us >> shift) - SUB;
    (place as usize).min(BUCKETS - 1)
}

fn lower_bound(place: usize) -> u64 {
    let place = place as u64;
    if place < SUB { place } else { (place % SUB + SUB) << (place / SUB - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_a_bucket_that_holds_it_within_a_64th() {
        for us in (0..5_000).chain((10..40).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 12_345])) {
            let lower = lower_bound(bucket(us));
            assert!(lower <= us && us - lower <= us / SUB, "{us} counts as {lower}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile_us(0.5), histogram.percentiles()), (None, Percentiles::default()));
        // 1, 2 … 1,000 µs: the quantile q is 1,000 q.
        (1..=1_000).rev().for_each(|us| histogram.record(Duration::from_micros(us)));
        for (share, us) in [(0.01, 10), (0.5, 500), (0.95, 950), (0.99, 990), (1.0, 1_000)] {
            let got = histogram.quantile_us(share).unwrap();
            assert!(got <= us && us - got <= us / SUB, "{share}: {got}");
        }
        assert_eq!(histogram.percentiles().max_ms, Some(1.0));
    }

    #[test]
    fn merging_is_counting_together() {
        let (mut left, mut right, mut both) = (Histogram::default(), Histogram::default(), Histogram::default());
        for us in 0..3_000 {
            let value = Duration::from_micros(us * us % 70_001);
            if us % 3 == 0 {
                left.record(value)
            } else {
                right.record(value)
            }
            both.record(value);
        }
        let mut merged = Histogram::default();
        merged.merge(&left);
        merged.merge(&right);
        assert_eq!((merged.total, &merged.counts, merged.max_us), (both.total, &both.counts, both.max_us));
        assert_eq!(merged.tail().first().map(|(_, share)| *share), Some(1.0));
    }
}
