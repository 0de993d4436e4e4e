//! When the socket is read: at once, or on a tick.
//!
//! A worker that has little to do reads what arrives when it arrives. One that has much to do is woken by nearly every
//! datagram, finds its caches cold and sends each viewer one packet at a time; it then stops being woken and looks at
//! the socket and its deadlines on a tick instead. What several publishers said between two ticks reaches a viewer
//! together, as one send, and reports of viewers are read in bulk. Nothing waits for anything but the tick: what it
//! costs is at most [`AUDIO`] or, where there is video, [`VIDEO`].
//!
//! Which of the two it is follows from how many datagrams come and go, which the tick itself does not change, so it
//! cannot chase its own tail.

use std::time::{Duration, Instant};

/// The tick of a worker without video: the longest wait of an audio packet is this and the millisecond by which the
/// runtime's timers are late.
pub const AUDIO: Duration = Duration::from_millis(4);
/// The tick of a worker with video, whose frames take as long as this to be sent to a large room.
pub const VIDEO: Duration = Duration::from_millis(1);
/// How long datagrams are counted before the worker is judged.
const WINDOW: Duration = Duration::from_millis(200);
/// Datagrams a second, in and out, from which on there is much to do: some 3 % of a core. Below that, time is worth
/// more than work.
const BUSY: u64 = 3_000;
/// Datagrams a second below which there is little to do again.
const CALM: u64 = 1_500;

/// The policy of one worker.
#[derive(Debug)]
pub struct Tick {
    since: Instant,
    datagrams: u64,
    video: bool,
    reads_every: Option<Duration>,
}

impl Tick {
    /// Of a worker that has done nothing yet.
    pub fn new(now: Instant) -> Self {
        Self { since: now, datagrams: 0, video: false, reads_every: None }
    }

    /// So many datagrams were received or are sent.
    pub fn moved(&mut self, datagrams: usize) {
        self.datagrams += datagrams as u64;
    }

    /// A batch of video passed.
    pub fn saw_video(&mut self) {
        self.video = true;
    }

    /// How long after the last look at the socket the next one comes; `None`: when something is there.
    pub fn reads_every(&mut self, now: Instant) -> Option<Duration> {
        let counted = now.saturating_duration_since(self.since);
        if counted >= WINDOW {
            // At least 200 ms: no division by zero.
            let per_second = u128::from(self.datagrams) * 1_000 / counted.as_millis();
            let limit = if self.reads_every.is_some() { CALM } else { BUSY };
            let tick = if self.video { VIDEO } else { AUDIO };
            self.reads_every = (per_second >= u128::from(limit)).then_some(tick);
            (self.since, self.datagrams, self.video) = (now, 0, false);
        }
        self.reads_every
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Runs `ms` milliseconds of `per_ms` datagrams each; how it reads in the end.
    fn run(tick: &mut Tick, now: &mut Instant, ms: u32, per_ms: usize, video: bool) -> Option<Duration> {
        let mut reads = None;
        for _ in 0..ms {
            *now += MS;
            tick.moved(per_ms);
            if video {
                tick.saw_video();
            }
            reads = tick.reads_every(*now);
        }
        reads
    }

    #[test]
    fn little_is_read_at_once_and_much_on_the_tick() {
        let mut now = Instant::now();
        let mut tick = Tick::new(now);
        assert_eq!(run(&mut tick, &mut now, 1_000, 2, false), None, "2,000 a second are little");
        assert_eq!(run(&mut tick, &mut now, 1_000, 3, false), Some(AUDIO), "3,000 are much");
        assert_eq!(run(&mut tick, &mut now, 1_000, 3, true), Some(VIDEO), "a frame does not wait so long");
        assert_eq!(run(&mut tick, &mut now, 1_000, 3, false), Some(AUDIO), "the video is over");
    }

    #[test]
    fn between_calm_and_busy_it_stays_as_it_is() {
        let mut now = Instant::now();
        let mut tick = Tick::new(now);
        assert_eq!(run(&mut tick, &mut now, 5_000, 2, false), None);
        run(&mut tick, &mut now, 1_000, 5, false);
        assert_eq!(run(&mut tick, &mut now, 5_000, 2, false), Some(AUDIO), "2,000 are not calm");
        assert_eq!(run(&mut tick, &mut now, 1_000, 1, false), None, "1,000 are");
    }

    #[test]
    fn it_is_judged_after_the_window_not_after_a_burst() {
        let mut now = Instant::now();
        let mut tick = Tick::new(now);
        tick.moved(100_000);
        now += WINDOW - MS;
        assert_eq!(tick.reads_every(now), None);
        now += MS;
        assert_eq!(tick.reads_every(now), Some(AUDIO));
    }

    #[test]
    fn silence_ends_the_tick_with_the_first_look_after_the_window() {
        let mut now = Instant::now();
        let mut tick = Tick::new(now);
        assert_eq!(run(&mut tick, &mut now, 400, 10, false), Some(AUDIO));
        now += Duration::from_secs(3_600);
        assert_eq!(tick.reads_every(now), None);
    }
}
