//! What a link does, from when on.

use serde::Deserialize;
use std::time::Duration;

/// One direction of a link, for a while.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Conditions {
    /// From when on, in milliseconds since the beginning.
    pub at_ms: u64,
    /// One-way delay in milliseconds, queueing left out.
    pub delay_ms: f64,
    /// Up to so many milliseconds more, drawn anew for each packet; order is kept.
    pub jitter_ms: f64,
    /// Share of packets lost, 0 to 1.
    pub loss: f64,
    /// Mean length of a loss in packets: 1 is independent, more comes in bursts (Gilbert 1960) of the same share.
    pub loss_burst: f64,
    /// Share of packets that are overtaken by those of the next 20 ms.
    pub reorder: f64,
    /// Share of packets that come twice.
    pub duplicate: f64,
    /// Bottleneck in kbit/s, UDP payload and 28 bytes of headers; none: no bottleneck.
    pub rate_kbps: Option<f64>,
    /// Longest wait before the bottleneck in milliseconds: what would wait longer is dropped.
    pub queue_ms: f64,
    /// Nothing passes.
    pub blackout: bool,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            at_ms: 0,
            delay_ms: 0.0,
            jitter_ms: 0.0,
            loss: 0.0,
            loss_burst: 1.0,
            reorder: 0.0,
            duplicate: 0.0,
            rate_kbps: None,
            queue_ms: 300.0,
            blackout: false,
        }
    }
}

/// A schedule that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadSchedule {
    /// Not JSON, or not a list of conditions.
    #[error("the schedule cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// Nothing in it.
    #[error("the schedule is empty: it needs at least one entry, `[{{\"delay_ms\": 50}}]`")]
    Empty,
    /// A value out of its bounds.
    #[error("entry {entry}: {what}")]
    Value {
        /// Counted from 1.
        entry: usize,
        /// Which, and what it may be.
        what: &'static str,
    },
}

/// Conditions in the order of their times.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule(Vec<Conditions>);

impl Schedule {
    /// The same for ever.
    ///
    /// # Errors
    /// A value out of its bounds.
    pub fn steady(conditions: Conditions) -> Result<Self, BadSchedule> {
        Self::new(vec![conditions])
    }

    /// Each from its time on; the first from the beginning.
    ///
    /// # Errors
    /// [`BadSchedule`].
    pub fn new(all: Vec<Conditions>) -> Result<Self, BadSchedule> {
        if all.is_empty() {
            return Err(BadSchedule::Empty);
        }
        let share = |x: f64| (0.0..=1.0).contains(&x);
        let ms = |x: f64| (0.0..=60_000.0).contains(&x);
        for (n, c) in all.iter().enumerate() {
            let bad = |what| Err(BadSchedule::Value { entry: n + 1, what });
            if !share(c.loss) || !share(c.reorder) || !share(c.duplicate) {
                return bad("`loss`, `reorder` and `duplicate` are shares from 0 to 1");
            }
            if !(1.0..=1_000.0).contains(&c.loss_burst) {
                return bad("`loss_burst` is a number of packets from 1 to 1,000");
            }
            if !ms(c.delay_ms) || !ms(c.jitter_ms) || !ms(c.queue_ms) {
                return bad("`delay_ms`, `jitter_ms` and `queue_ms` are from 0 to 60,000");
            }
            if c.rate_kbps.is_some_and(|rate| !(1.0..=10_000_000.0).contains(&rate)) {
                return bad("`rate_kbps` is from 1 to 10,000,000");
            }
            if n > 0 && c.at_ms <= all[n - 1].at_ms {
                return bad("`at_ms` must be later than that of the entry before");
            }
        }
        Ok(Self(all))
    }

    /// From a JSON list of [`Conditions`].
    ///
    /// # Errors
    /// [`BadSchedule`].
    pub fn from_json(text: &str) -> Result<Self, BadSchedule> {
        Self::new(serde_json::from_str(text)?)
    }

    /// What holds at a time.
    pub fn at(&self, now: Duration) -> &Conditions {
        let now_ms = now.as_millis();
        let next = self.0.partition_point(|c| u128::from(c.at_ms) <= now_ms);
        &self.0[next.saturating_sub(1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_hold_from_their_time_on() {
        let text = r#"[{"rate_kbps": 3000}, {"at_ms": 20000, "rate_kbps": 600, "loss": 0.02}, {"at_ms": 40000}]"#;
        let schedule = Schedule::from_json(text).unwrap();
        let rate = |ms| schedule.at(Duration::from_millis(ms)).rate_kbps;
        assert_eq!([0, 19_999, 20_000, 39_999].map(rate), [Some(3_000.0), Some(3_000.0), Some(600.0), Some(600.0)]);
        assert_eq!(*schedule.at(Duration::from_secs(9_999)), Conditions { at_ms: 40_000, ..Conditions::default() });
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_entry() {
        for (text, says) in [
            ("[]", "empty"),
            ("{}", "cannot be read"),
            (r#"[{"los": 0.1}]"#, "unknown field `los`"),
            (r#"[{}, {"at_ms": 5, "loss": 2}]"#, "entry 2"),
            (r#"[{"loss": null}]"#, "cannot be read"),
            (r#"[{"rate_kbps": 0}]"#, "rate_kbps"),
            (r#"[{"loss_burst": 0.5}]"#, "loss_burst"),
            (r#"[{"at_ms": 5}, {"at_ms": 5}]"#, "later"),
            (r#"[{"delay_ms": -1}]"#, "delay_ms"),
        ] {
            let error = Schedule::from_json(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
