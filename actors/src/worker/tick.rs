//! When the socket is read: at once, or on a tick.
//!
//! A worker that has little to do reads what arrives when it arrives. One that has much to do is woken by nearly every
//! datagram, finds its caches cold and sends each viewer one packet at a time; it then stops being woken and looks at
//! the socket and its deadlines on a tick instead. What several publishers said between two ticks reaches a viewer
//! together, as one send, and reports of viewers are read in bulk. Nothing waits for anything but the tick: what it
//! costs is at most [`AUDIO`] or, where there is video, [`VIDEO`].
//!
//! Which of the two it is follows from how many datagrams come and go, which the tick itself does not change, so it
//! cannot chase its own tail: there must be much to do, and a tick must find more than one datagram, or it would wake
//! the thread more often than they do.

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
/// Datagrams that a tick must find on average to begin, and to go on.
const FINDS_TO_BEGIN: u64 = 2;
const FINDS_TO_STAY: u64 = 1;
/// By how much the runtime's timers are late.
const LATE: Duration = Duration::from_millis(1);

/// The policy of one worker.
#[derive(Debug)]
pub struct Tick {
    since: Instant,
    received: u64,
    sent: u64,
    video: bool,
    reads_every: Option<Duration>,
}

impl Tick {
    /// Of a worker that has done nothing yet.
    pub fn new(now: Instant) -> Self {
        Self { since: now, received: 0, sent: 0, video: false, reads_every: None }
    }

    /// A datagram was received.
    pub fn received_one(&mut self) {
        self.received += 1;
    }

    /// So many datagrams are sent.
    pub fn sent(&mut self, datagrams: usize) {
        self.sent += datagrams as u64;
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
            let per_second = |datagrams: u64| u128::from(datagrams) * 1_000 / counted.as_millis();
            let tick = if self.video { VIDEO } else { AUDIO };
            let (much, finds) = match self.reads_every {
                None => (BUSY, FINDS_TO_BEGIN),
                Some(_) => (CALM, FINDS_TO_STAY),
            };
            let found = per_second(self.received) * (tick + LATE).as_millis();
            let pays = per_second(self.received + self.sent) >= u128::from(much) && found >= u128::from(finds) * 1_000;
            self.reads_every = pays.then_some(tick);
            (self.since, self.received, self.sent, self.video) = (now, 0, 0, false);
        }
        self.reads_every
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Runs `ms` milliseconds, in each of which so many datagrams come in and go out; how it reads in the end.
    fn run(
        tick: &mut Tick,
        now: &mut Instant,
        ms: u32,
        (per_ms_in, per_ms_out): (usize, usize),
        video: bool,
    ) -> Option<Duration> {
        let mut reads = None;
        for _ in 0..ms {
            *now += MS;
            (0..per_ms_in).for_each(|_| tick.received_one());
            tick.sent(per_ms_out);
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
        assert_eq!(run(&mut tick, &mut now, 1_000, (1, 1), false), None, "2,000 a second are little");
        assert_eq!(run(&mut tick, &mut now, 1_000, (1, 2), false), Some(AUDIO), "3,000 are much");
        assert_eq!(run(&mut tick, &mut now, 1_000, (1, 2), true), Some(VIDEO), "a frame does not wait so long");
        assert_eq!(run(&mut tick, &mut now, 1_000, (1, 2), false), Some(AUDIO), "the video is over");
    }

    #[test]
    fn between_calm_and_busy_it_stays_as_it_is() {
        let mut now = Instant::now();
        let mut tick = Tick::new(now);
        assert_eq!(run(&mut tick, &mut now, 5_000, (1, 1), false), None);
        run(&mut tick, &mut now, 1_000, (2, 3), false);
        assert_eq!(run(&mut tick, &mut now, 5_000, (1, 1), false), Some(AUDIO), "2,000 are not calm");
        assert_eq!(run(&mut tick, &mut now, 1_000, (1, 0), false), None, "1,000 are");
    }

    /// With video a tick is 2 ms, the runtime's lateness included: it begins to pay at 1,000 datagrams a second that
    /// come in, and no longer does below 500. Ten thousand a second go out.
    #[test]
    fn a_tick_that_would_find_nothing_is_none() {
        let mut now = Instant::now();
        let mut tick = Tick::new(now);
        let mut one_in_every = |ms: u32| {
            (0..1_000 / ms).fold(None, |_, _| {
                tick.received_one();
                run(&mut tick, &mut now, ms, (0, 10), true)
            })
        };
        assert_eq!(one_in_every(2), None, "500 a second, one in a tick, are not enough to begin");
        assert_eq!(one_in_every(1), Some(VIDEO));
        assert_eq!(one_in_every(2), Some(VIDEO), "but to go on");
        assert_eq!(one_in_every(4), None);
    }

    #[test]
    fn it_is_judged_after_the_window_not_after_a_burst() {
        let mut now = Instant::now();
        let mut tick = Tick::new(now);
        (0..1_000).for_each(|_| tick.received_one());
        now += WINDOW - MS;
        assert_eq!(tick.reads_every(now), None);
        now += MS;
        assert_eq!(tick.reads_every(now), Some(AUDIO));
    }

    #[test]
    fn silence_ends_the_tick_with_the_first_look_after_the_window() {
        let mut now = Instant::now();
        let mut tick = Tick::new(now);
        assert_eq!(run(&mut tick, &mut now, 400, (5, 5), false), Some(AUDIO));
        now += Duration::from_secs(3_600);
        assert_eq!(tick.reads_every(now), None);
    }
}
