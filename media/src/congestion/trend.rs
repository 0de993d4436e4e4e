//! Whether a queue grows on the way: the trend of delays between groups of packets.
//!
//! After the delay-gradient part of Google's congestion control (draft-ietf-rmcat-gcc-02 §5, and its later trendline
//! filter as libwebrtc publishes it): packets that left within 5 ms are one group; how much more time lies between two
//! groups' arrivals than between their departures is summed up, smoothed, and a line is laid through the last twenty
//! sums. A slope above a threshold, which follows what the path does anyway, for more than 10 ms is over-use.
//!
//! A group arrives with its first packet, not with its last as there: a frame leaves here in one burst, and a better layer
//! has longer ones, which take longer to arrive without any queue. What the first one waited for was there before.

use std::time::{Duration, Instant};

/// Packets that left within this time are one group.
const GROUP: Duration = Duration::from_millis(5);
/// Sums of delay that the line is laid through.
const POINTS: usize = 20;
/// Weight of the old value in the smoothed sum.
const SMOOTHING: f64 = 0.9;
/// The slope's gain before it is compared with the threshold.
const GAIN: f64 = 4.0;
/// Groups that count at the most when the slope is turned into milliseconds.
const GROUPS_MAX: u32 = 60;
/// Threshold to begin with, and its bounds, in milliseconds.
const THRESHOLD_MS: f64 = 12.5;
const THRESHOLD_MIN_MS: f64 = 6.0;
const THRESHOLD_MAX_MS: f64 = 600.0;
/// How fast the threshold follows, up and down, per millisecond.
const FOLLOWS_UP: f64 = 0.0087;
const FOLLOWS_DOWN: f64 = 0.039;
/// A value so far above the threshold is a spike, which it does not follow.
const SPIKE_MS: f64 = 15.0;
/// How long the trend must be above the threshold.
const OVER_FOR_MS: f64 = 10.0;
/// Times further apart say nothing of a queue.
const GAP: Duration = Duration::from_secs(3);

/// What the path does with what is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Usage {
    /// Queues stay as they are.
    #[default]
    Normal,
    /// A queue grows: more is sent than leaves.
    Over,
    /// A queue empties.
    Under,
}

#[derive(Debug, Clone, Copy)]
struct Group {
    /// When its first packet left.
    sent: Instant,
    /// When the first one arrived, on the peer's clock.
    arrived_us: i64,
}

/// The detector.
#[derive(Debug, Clone)]
pub(super) struct Trend {
    group: Option<Group>,
    before: Option<Group>,
    /// Milliseconds since the first arrival, and the smoothed sum of delay in milliseconds.
    points: [(f64, f64); POINTS],
    count: usize,
    next: usize,
    groups: u32,
    first_arrival_us: Option<i64>,
    sum_ms: f64,
    smoothed_ms: f64,
    threshold_ms: f64,
    judged_us: Option<i64>,
    over_ms: Option<f64>,
    over_count: u32,
    slope_before: f64,
    usage: Usage,
}

impl Default for Trend {
    fn default() -> Self {
        Self {
            group: None,
            before: None,
            points: [(0.0, 0.0); POINTS],
            count: 0,
            next: 0,
            groups: 0,
            first_arrival_us: None,
            sum_ms: 0.0,
            smoothed_ms: 0.0,
            threshold_ms: THRESHOLD_MS,
            judged_us: None,
            over_ms: None,
            over_count: 0,
            slope_before: 0.0,
            usage: Usage::Normal,
        }
    }
}

impl Trend {
    /// A packet that left at `sent` arrived. In the order of departure; what is out of it is left out.
    pub fn packet(&mut self, sent: Instant, arrived_us: i64) {
        let Some(group) = &mut self.group else {
            self.group = Some(Group { sent, arrived_us });
            return;
        };
        if sent < group.sent {
            return;
        }
        if sent.saturating_duration_since(group.sent) <= GROUP {
            group.arrived_us = group.arrived_us.min(arrived_us);
            return;
        }
        let done = *group;
        self.group = Some(Group { sent, arrived_us });
        if let Some(before) = self.before.replace(done) {
            self.between(before, done);
        }
    }

    /// What the path does, as of the last packet.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    fn between(&mut self, before: Group, after: Group) {
        let sent = after.sent.saturating_duration_since(before.sent);
        let Some(arrived_us) = after.arrived_us.checked_sub(before.arrived_us) else { return self.begin_anew() };
        if sent > GAP || arrived_us.unsigned_abs() > GAP.as_micros() as u64 {
            return self.begin_anew();
        }
        if arrived_us < 0 {
            // Reordered on the way: says nothing.
            return;
        }
        let sent_ms = sent.as_secs_f64() * 1_000.0;
        let first = *self.first_arrival_us.get_or_insert(after.arrived_us);
        let at_ms = after.arrived_us.saturating_sub(first) as f64 / 1_000.0;
        self.groups = (self.groups + 1).min(GROUPS_MAX);
        self.sum_ms += arrived_us as f64 / 1_000.0 - sent_ms;
        self.smoothed_ms = SMOOTHING * self.smoothed_ms + (1.0 - SMOOTHING) * self.sum_ms;
        self.points[self.next] = (at_ms, self.smoothed_ms);
        self.next = (self.next + 1) % POINTS;
        self.count = (self.count + 1).min(POINTS);
        let slope = if self.count == POINTS { self.slope() } else { None };
        self.judge(slope.unwrap_or(self.slope_before), sent_ms, after.arrived_us);
    }

    /// Of the line of least squares, in milliseconds of delay a millisecond.
    fn slope(&self) -> Option<f64> {
        let n = POINTS as f64;
        let (x, y) = self.points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
        let (x, y) = (x / n, y / n);
        let (above, below) = self.points.iter().fold((0.0, 0.0), |(above, below), point| {
            (above + (point.0 - x) * (point.1 - y), below + (point.0 - x).powi(2))
        });
        // All at once: what had waited was let go.
        Some(if below > 0.0 { above / below } else { -1.0 })
    }

    fn judge(&mut self, slope: f64, sent_ms: f64, arrived_us: i64) {
        if self.groups < 2 {
            self.usage = Usage::Normal;
            return;
        }
        let trend_ms = f64::from(self.groups) * slope * GAIN;
        if trend_ms > self.threshold_ms {
            let over_ms = self.over_ms.map_or(sent_ms / 2.0, |over| over + sent_ms);
            self.over_ms = Some(over_ms);
            self.over_count += 1;
            if over_ms > OVER_FOR_MS && self.over_count > 1 && slope >= self.slope_before {
                (self.over_ms, self.over_count) = (Some(0.0), 0);
                self.usage = Usage::Over;
            }
        } else {
            (self.over_ms, self.over_count) = (None, 0);
            self.usage = if trend_ms < -self.threshold_ms { Usage::Under } else { Usage::Normal };
        }
        self.slope_before = slope;
        self.follow(trend_ms.abs(), arrived_us);
    }

    /// The threshold follows the trend, so that a path that wavers by itself is not taken for a full one.
    fn follow(&mut self, trend_ms: f64, arrived_us: i64) {
        let since_ms = self.judged_us.map_or(0, |at| arrived_us.saturating_sub(at)).clamp(0, 100_000) as f64 / 1_000.0;
        self.judged_us = Some(arrived_us);
        if trend_ms > self.threshold_ms + SPIKE_MS {
            return;
        }
        let follows = if trend_ms < self.threshold_ms { FOLLOWS_DOWN } else { FOLLOWS_UP };
        self.threshold_ms += follows * (trend_ms - self.threshold_ms) * since_ms;
        self.threshold_ms = self.threshold_ms.clamp(THRESHOLD_MIN_MS, THRESHOLD_MAX_MS);
    }

    /// Nothing was sent for a while, or the peer's clock leapt.
    fn begin_anew(&mut self) {
        *self = Self { threshold_ms: self.threshold_ms, group: self.group, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    fn start() -> Instant {
        Instant::now()
    }

    /// Frames each 33 ms of three packets, for `ms`, whose delay is `delay_us(ms)`; the times of over-use in ms.
    fn run(trend: &mut Trend, t0: Instant, from_ms: u64, ms: u64, delay_us: impl Fn(u64) -> i64) -> Vec<u64> {
        let mut over = Vec::new();
        for at in (from_ms..from_ms + ms).step_by(33) {
            for n in 0..3 {
                trend.packet(t0 + Duration::from_millis(at), at as i64 * 1_000 + delay_us(at) + n * 100);
            }
            if trend.usage() == Usage::Over {
                over.push(at);
            }
        }
        over
    }

    #[test]
    fn a_steady_path_is_normal_whatever_its_delay() {
        for delay_us in [0, 300_000] {
            let mut trend = Trend::default();
            assert_eq!(run(&mut trend, start(), 0, 60_000, |_| delay_us), [0; 0]);
            assert_eq!(trend.usage(), Usage::Normal);
        }
    }

    #[test]
    fn a_growing_queue_is_over_use_soon_and_an_emptying_one_is_not() {
        let (mut trend, t0) = (Trend::default(), start());
        assert_eq!(run(&mut trend, t0, 0, 2_000, |_| 20_000), [0; 0]);
        // Twice as much is sent as leaves: each millisecond adds one of delay.
        let over = run(&mut trend, t0, 2_013, 1_000, |at| 20_000 + (at as i64 - 2_013) * 1_000);
        assert!(over.first().is_some_and(|at| *at <= 2_013 + 300), "{over:?}");
        let full = 20_000 + 1_000_000;
        let over = run(&mut trend, t0, 3_036, 1_980, |at| full - (at as i64 - 3_036) * 500);
        assert!(over.len() <= 20, "the line takes its own length to turn: {over:?}");
        assert_eq!(trend.usage(), Usage::Under);
        run(&mut trend, t0, 5_049, 2_000, |_| 20_000);
        assert_eq!(trend.usage(), Usage::Normal);
    }

    #[test]
    fn jitter_that_goes_on_is_learnt() {
        let (mut trend, t0) = (Trend::default(), start());
        let mut state = 7u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as i64 % 30_000
        };
        let delays: Vec<i64> = (0..2_000).map(|_| 70_000 + noise()).collect();
        run(&mut trend, t0, 0, 10_000, |at| delays[(at / 33) as usize]);
        let over = run(&mut trend, t0, 10_000, 50_000, |at| delays[(at / 33) as usize]);
        assert!(over.len() < 15, "{} of 1,500 groups", over.len());
    }

    #[test]
    fn nonsense_changes_nothing_and_panics_nowhere() {
        let (mut trend, t0) = (Trend::default(), start());
        let ms = Duration::from_millis;
        for (n, at) in
            [i64::MAX, i64::MIN, 0, -1, i64::MAX / 2, 5_000_000, i64::MIN / 3].into_iter().cycle().take(500).enumerate()
        {
            trend.packet(t0 + ms(n as u64 * 7), at);
            trend.packet(t0 + ms(n as u64), at);
        }
        assert!(trend.threshold_ms.is_finite() && trend.smoothed_ms.is_finite());
    }
}
