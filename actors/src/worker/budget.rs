//! A bucket of tokens: so many at once, so many a second.

use std::time::Instant;

/// How much of something is let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Tokens of a full bucket.
    pub burst: u32,
    /// Tokens a second that come back.
    pub per_s: u32,
}

/// What is left. A new one is full.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bucket {
    /// Millionths of a token that were spent and have not come back.
    spent_millionths: u64,
    spent_at: Option<Instant>,
}

const MILLION: u64 = 1_000_000;

impl Bucket {
    /// Takes `tokens` out; false when there are fewer.
    pub fn spend(&mut self, now: Instant, rate: Rate, tokens: u32) -> bool {
        let since = self.spent_at.map_or(0, |at| now.saturating_duration_since(at).as_micros());
        // A token a second is a millionth of one a microsecond.
        let back = u64::try_from(since).unwrap_or(u64::MAX).saturating_mul(rate.per_s.into());
        self.spent_millionths = self.spent_millionths.saturating_sub(back);
        self.spent_at = Some(now);
        let after = self.spent_millionths.saturating_add(u64::from(tokens) * MILLION);
        let has = after <= u64::from(rate.burst) * MILLION;
        if has {
            self.spent_millionths = after;
        }
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const RATE: Rate = Rate { burst: 3, per_s: 10 };

    #[test]
    fn a_burst_is_let_through_and_then_the_rate() {
        let (mut bucket, begun) = (Bucket::default(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        let let_through = |bucket: &mut Bucket, now| (0..10).filter(|_| bucket.spend(now, RATE, 1)).count();
        assert_eq!(let_through(&mut bucket, at(0)), 3);
        assert_eq!(let_through(&mut bucket, at(99)), 0);
        // What was asked for in vain costs nothing: 100 ms after the burst there is one.
        assert_eq!(let_through(&mut bucket, at(100)), 1);
        assert_eq!(let_through(&mut bucket, at(350)), 2);
        assert_eq!(let_through(&mut bucket, at(400)), 1);
        // A bucket is never fuller than full.
        assert_eq!(let_through(&mut bucket, at(3_600_000)), 3);
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_gives_nothing() {
        let (mut bucket, now) = (Bucket::default(), Instant::now() + Duration::from_secs(10));
        assert_eq!((0..10).filter(|_| bucket.spend(now, RATE, 1)).count(), 3);
        assert!(!bucket.spend(now, RATE, 1));
        assert!(!bucket.spend(now - Duration::from_secs(5), RATE, 1));
    }
}
