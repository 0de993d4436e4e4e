//! When something is due: absolute times from a start, which no lateness moves.

use std::time::{Duration, Instant};

/// The ticks of one sender: tick `n` is due at `start + n / rate`, however late the ones before it were (open loop).
#[derive(Debug, Clone, Copy)]
pub struct Ticks {
    start: Instant,
    per_s: f64,
    next: u64,
}

/// A tick that was due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tick {
    /// Which, from 0.
    pub number: u64,
    /// How much later than due it was taken.
    pub late: Duration,
}

impl Ticks {
    /// `per_s` ticks a second, the first one at `start`.
    pub fn new(start: Instant, per_s: f64) -> Self {
        Self { start, per_s, next: 0 }
    }

    /// When the next tick is due.
    pub fn due(&self) -> Instant {
        self.start + Duration::from_secs_f64(self.next as f64 / self.per_s)
    }

    /// The next tick, if it is due. A caller that was late gets all that it missed, one by one.
    pub fn take(&mut self, now: Instant) -> Option<Tick> {
        let late = now.checked_duration_since(self.due())?;
        let tick = Tick { number: self.next, late };
        self.next += 1;
        Some(tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(ticks: &mut Ticks, now: Instant) -> Vec<(u64, u64)> {
        std::iter::from_fn(|| ticks.take(now)).map(|tick| (tick.number, tick.late.as_millis() as u64)).collect()
    }

    #[test]
    fn a_stall_moves_no_later_tick() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut ticks = Ticks::new(start, 50.0);
        assert_eq!(taken(&mut ticks, at(0)), [(0, 0)]);
        assert_eq!(taken(&mut ticks, at(19)), []);
        // 47 ms of silence: two are owed, 27 and 7 ms late; the next one is due at 60 ms all the same.
        assert_eq!(taken(&mut ticks, at(47)), [(1, 27), (2, 7)]);
        assert_eq!(ticks.due(), at(60));
        assert_eq!(taken(&mut ticks, at(60)), [(3, 0)]);
    }

    #[test]
    fn a_rate_that_divides_no_second_does_not_drift() {
        let start = Instant::now();
        let mut ticks = Ticks::new(start, 30.0);
        while ticks.take(start + Duration::from_secs(3_600)).is_some() {}
        assert_eq!(ticks.next, 30 * 3_600 + 1);
    }
}
