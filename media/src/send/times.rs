//! RTP times of an outgoing stream: one clock over sources and layers that come and go.

use crate::packet::StreamClock;
use std::time::{Duration, Instant};

/// Largest difference between the time between two captures and the time between their sendings that is believed.
const SKEW_MAX: Duration = Duration::from_secs(1);

/// From RTP timestamps of a source to those that we send.
#[derive(Debug, Clone)]
pub struct TimeRewriter {
    current: Mapping,
    /// The same of the layer before.
    before: Mapping,
    last: Option<Sent>,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    /// As sent, and as it would be if nothing had to be made up for.
    rtp_time: u32,
    due: u32,
    captured: Instant,
    sent: Instant,
}

/// From one source's timestamps to ours.
#[derive(Debug, Clone, Copy)]
struct Mapping {
    /// What is added, modulo 2^32.
    offset: u32,
    /// What is sent at least, while pictures are made up for.
    floor: Option<Floor>,
}

/// A layer began with a picture that is older than what was sent of another. From there its pictures follow each other
/// closely, 256 times as fast, up to where they belong: none is shown late for it, and no time is sent twice.
#[derive(Debug, Clone, Copy)]
struct Floor {
    source: u32,
    sent: u32,
}

impl Mapping {
    fn due(&self, rtp_time: u32) -> u32 {
        rtp_time.wrapping_add(self.offset)
    }

    fn rewrite(&self, rtp_time: u32) -> u32 {
        let due = self.due(rtp_time);
        let floor = self.floor.map(|floor| {
            let since = rtp_time.wrapping_sub(floor.source).cast_signed().max(0).unsigned_abs();
            floor.sent.wrapping_add(since / 256)
        });
        floor.filter(|floor| is_later(*floor, due)).unwrap_or(due)
    }
}

impl TimeRewriter {
    /// A floor is forgotten when pictures are so many ticks above it: a second, after which none is repaired.
    const ABOVE_FLOOR: u32 = 90_000;

    /// `offset`: random (RFC 3550 §5.1).
    pub fn new(offset: u32) -> Self {
        let mapping = Mapping { offset, floor: None };
        Self { current: mapping, before: mapping, last: None }
    }

    /// What is added to timestamps of the source.
    pub fn offset(&self) -> u32 {
        self.current.offset
    }

    /// Another source goes on with `rtp_time`: later than the last packet by the time that passed between the two
    /// captures, so that sound and picture stay together through the change; where the clocks of the two
    /// sources cannot both be right, by the time that passed here. Never earlier, never the same.
    pub fn begin(&mut self, now: Instant, rtp_time: u32, clock: StreamClock, clock_hz: u32) {
        let Some(last) = self.last else { return };
        let passed = now.saturating_duration_since(last.sent);
        let captured = instant_of(clock, rtp_time, clock_hz).checked_duration_since(last.captured);
        let elapsed = captured.filter(|c| c.abs_diff(passed) < SKEW_MAX).unwrap_or(passed);
        let first = last.rtp_time.wrapping_add(ticks(elapsed, clock_hz).max(1));
        self.current = Mapping { offset: first.wrapping_sub(rtp_time), floor: None };
    }

    /// Another layer of the same source goes on with `rtp_time`: as [`Self::begin`], but its first picture may be one that
    /// was sent already, in the other layer, or older. It gets the next tick then, and those behind it catch up.
    pub fn switch(&mut self, now: Instant, rtp_time: u32, clock: StreamClock, clock_hz: u32) {
        self.before = self.current;
        let Some(last) = self.last else { return };
        let passed = now.saturating_duration_since(last.sent);
        let captured = instant_of(clock, rtp_time, clock_hz);
        let later = captured.saturating_duration_since(last.captured);
        let earlier = last.captured.saturating_duration_since(captured);
        let believed = earlier < SKEW_MAX && (later + earlier).abs_diff(passed) < SKEW_MAX;
        let first = match believed {
            true => last.due.wrapping_add(ticks(later, clock_hz)).wrapping_sub(ticks(earlier, clock_hz)),
            false => last.rtp_time.wrapping_add(ticks(passed, clock_hz)),
        };
        let sent = last.rtp_time.wrapping_add(1);
        let floor = is_later(sent, first).then_some(Floor { source: rtp_time, sent });
        self.current = Mapping { offset: first.wrapping_sub(rtp_time), floor };
    }

    /// The timestamp to send.
    pub fn rewrite(&self, rtp_time: u32) -> u32 {
        self.current.rewrite(rtp_time)
    }

    /// The timestamp to send of the layer before.
    pub fn rewrite_before(&self, rtp_time: u32) -> u32 {
        self.before.rewrite(rtp_time)
    }

    /// Remembers the packet that a later source goes on from: the newest in RTP time.
    pub fn sent(&mut self, now: Instant, rtp_time: u32, clock: StreamClock, clock_hz: u32) {
        let captured = instant_of(clock, rtp_time, clock_hz);
        let (sent, due) = (self.current.rewrite(rtp_time), self.current.due(rtp_time));
        if !self.last.is_some_and(|last| is_later(last.rtp_time, sent)) {
            self.last = Some(Sent { rtp_time: sent, due, captured, sent: now });
            self.current.floor =
                self.current.floor.filter(|floor| !is_later(due, floor.sent.wrapping_add(Self::ABOVE_FLOOR)));
        }
    }
}

/// `duration` on an RTP clock, modulo 2^32.
pub(super) fn ticks(duration: Duration, clock_hz: u32) -> u32 {
    (duration.as_nanos() * u128::from(clock_hz) / 1_000_000_000) as u32
}

/// Whether RTP time `a` is later than `b`, modulo 2^32.
pub(super) fn is_later(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// When a timestamp was captured: those less than 2^31 ticks after the clock's are later, others earlier.
fn instant_of(clock: StreamClock, rtp_time: u32, clock_hz: u32) -> Instant {
    let ticks = rtp_time.wrapping_sub(clock.rtp_time) as i32;
    let distance = Duration::from_nanos(u64::from(ticks.unsigned_abs()) * 1_000_000_000 / u64::from(clock_hz.max(1)));
    let moved = if ticks < 0 { clock.at.checked_sub(distance) } else { clock.at.checked_add(distance) };
    moved.unwrap_or(clock.at)
}

#[cfg(test)]
mod tests {
    use super::super::origin;
    use super::*;

    const HZ: u32 = 90_000;

    fn clock(at: Instant, rtp_time: u32) -> StreamClock {
        StreamClock { at, rtp_time, synced: true }
    }

    #[test]
    fn another_source_goes_on_after_the_time_that_passed() {
        let t0 = origin();
        let ms = Duration::from_millis;
        let mut times = TimeRewriter::new(7);
        let (old, new) = (clock(t0, 1_000), clock(t0, u32::MAX - 100));
        times.begin(t0, 1_000, old, HZ);
        assert_eq!(times.rewrite(1_000), 1_007, "the first source has the offset it was given");
        // Captured 100 ms after `t0`, sent at 130 ms.
        times.sent(t0 + ms(130), 1_000 + 9_000, old, HZ);
        // A repaired packet of an earlier picture changes nothing.
        times.sent(t0 + ms(140), 1_000 + 3_000, old, HZ);
        // Captured at 300 ms, and 50 ms later here: 200 ms after the last, 18,000 ticks.
        let first = (u32::MAX - 100).wrapping_add(27_000);
        times.begin(t0 + ms(350), first, new, HZ);
        assert_eq!(times.rewrite(first), 10_007 + 18_000);
        // A clock that says 10 s when 220 ms passed is not believed.
        times.begin(t0 + ms(350), first.wrapping_add(900_000), new, HZ);
        assert_eq!(times.rewrite(first.wrapping_add(900_000)), 10_007 + 19_800);
        // A source that was captured earlier goes on by the time here, and by one tick at least.
        times.begin(t0 + ms(130), u32::MAX - 100, new, HZ);
        assert_eq!(times.rewrite(u32::MAX - 100), 10_008);
    }

    /// Two layers with clocks of their own, 30 pictures a second, changed for each other whenever: times rise with every
    /// picture, and after any number of changes they are off the capture times by a tick.
    #[test]
    fn layers_take_turns_and_time_neither_stands_still_nor_drifts() {
        let t0 = origin();
        let clocks = [clock(t0, 5_000), clock(t0, 0xffff_f000)];
        let mut times = TimeRewriter::new(7);
        let (mut last, mut layer) = (None, 0usize);
        for picture in 0..3_000u32 {
            let captured = t0 + Duration::from_millis(33) * picture;
            // The small layer takes 10 ms, the large one 30.
            let now = |layer: usize| captured + Duration::from_millis([10, 30][layer]);
            let rtp_time = |layer: usize| clocks[layer].rtp_time.wrapping_add(picture * 2_970);
            // Every other change shows the same picture again, in the other layer.
            for turn in 0..=u32::from(picture % 14 == 0) {
                if picture == 0 && turn == 0 {
                    times.begin(now(layer), rtp_time(layer), clocks[layer], HZ);
                } else if picture % 7 == 0 || turn == 1 {
                    layer = 1 - layer;
                    times.switch(now(layer), rtp_time(layer), clocks[layer], HZ);
                }
                let sent = times.rewrite(rtp_time(layer));
                assert!(last.is_none_or(|last| is_later(sent, last)), "picture {picture}");
                last = Some(sent);
                times.sent(now(layer), rtp_time(layer), clocks[layer], HZ);
                let drift = sent.wrapping_sub(5_007 + picture * 2_970).cast_signed();
                assert!((0..=1).contains(&drift), "picture {picture}: {drift} ticks");
            }
        }
    }

    /// The key frame of a layer was repaired late: the other one is five pictures ahead. They are made up for at once.
    #[test]
    fn a_layer_that_begins_late_catches_up() {
        let (t0, ms) = (origin(), Duration::from_millis);
        let clock = clock(t0, 0);
        let mut times = TimeRewriter::new(0);
        times.begin(t0, 0, clock, HZ);
        times.sent(t0 + ms(500), 45_000, clock, HZ);
        times.switch(t0 + ms(510), 30_000, clock, HZ);
        let sent = [30_000, 33_000, 36_000, 39_000, 42_000, 45_000, 48_000, 51_000].map(|at| times.rewrite(at));
        assert_eq!(sent, [45_001, 45_012, 45_024, 45_036, 45_047, 45_059, 48_000, 51_000]);
        times.sent(t0 + ms(600), 51_000, clock, HZ);
        assert_eq!(times.rewrite(33_000), 45_012, "a repaired packet has the time of its picture");
        // Another change in the middle of it neither goes back nor adds to it.
        times.sent(t0 + ms(600), 39_000, clock, HZ);
        times.switch(t0 + ms(610), 54_000, clock, HZ);
        assert_eq!([times.rewrite(54_000), times.rewrite_before(33_000)], [54_000, 45_012]);
        times.sent(t0 + ms(3_000), 270_000, clock, HZ);
        assert_eq!(times.rewrite(u32::MAX / 2 + 200_000), u32::MAX / 2 + 200_000, "long after");
    }

    #[test]
    fn a_layer_whose_clock_cannot_be_right_goes_on_by_the_time_here() {
        let (t0, ms) = (origin(), Duration::from_millis);
        let mut times = TimeRewriter::new(0);
        times.begin(t0, 0, clock(t0, 0), HZ);
        times.sent(t0, 0, clock(t0, 0), HZ);
        times.switch(t0 + ms(100), 0, clock(t0 + Duration::from_secs(60), 0), HZ);
        assert_eq!(times.rewrite(0), 9_000);
        assert_eq!(times.rewrite_before(1), 1);
        times.sent(t0 + ms(100), 0, clock(t0 + ms(100), 0), HZ);
        // Captured 300 ms before what was sent: believed, and the next tick.
        times.switch(t0 + ms(120), 50, clock(t0 - ms(200), 50), HZ);
        assert_eq!(times.rewrite(50), 9_001);
    }
}
