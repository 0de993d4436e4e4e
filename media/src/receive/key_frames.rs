//! Key frame requests to one source: many viewers ask, the publisher is asked seldom.

use crate::units::{Deadline, Why};
use std::time::{Duration, Instant};

/// Coalesces what viewers ask of one source, a stream or a layer of it, and keeps what key frames cost within a budget
/// (RFC 4585 §6.3.1: a request is not repeated while it may still be answered).
///
/// At most one request goes out per interval. One that comes sooner is remembered and goes out when the interval
/// is over, unless a key frame has come meanwhile: it answers everyone who asked before. A request that no key
/// frame answers was lost or not heeded; it is repeated at growing distance, up to eight intervals.
///
/// ```text
///            request                    request
///   Quiet ─────────────▶ Asked ─────────────────────▶ Asked, wanted
///     ▲   (ask now)        │  ◀───── due (ask) ─────      │
///     └──── key frame ─────┴───────── key frame ──────────┘
/// ```
///
/// After a request that was answered the next one keeps a longer distance where key frames are dear
/// ([`Self::on_cost`]), or where many ask: then all who come within [`Self::CROWD_INTERVAL`] share one.
#[derive(Debug, Clone)]
pub struct KeyFrameRequests {
    interval: Duration,
    /// In which the newest key frame is paid for.
    paid_in: Duration,
    last_asked: Option<Instant>,
    state: State,
    /// How often somebody asked since the last key frame.
    asking: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nobody waits.
    Quiet,
    /// Somebody waits; `unanswered` requests went out, `wanted` says that one more was asked for since.
    Asked { unanswered: u32, wanted: bool },
}

impl KeyFrameRequests {
    /// The interval that [`Self::default`] has.
    pub const INTERVAL: Duration = Duration::from_millis(500);
    /// The interval while a crowd comes in.
    pub const CROWD_INTERVAL: Duration = Duration::from_secs(1);
    /// The longest that one request keeps from the one before because of what a key frame costs.
    pub const PAID_IN_MAX: Duration = Duration::from_secs(2);
    /// Requests that make a crowd: more than a viewer or two repeat while they wait.
    const CROWD: u32 = 8;
    /// The share of a source's bit rate that key frames on request may take: a quarter.
    const SHARE: u64 = 4;

    /// At most one request per `interval`.
    pub fn new(interval: Duration) -> Self {
        Self { interval, paid_in: Duration::ZERO, last_asked: None, state: State::Quiet, asking: 0 }
    }

    /// A viewer needs a key frame. `true`: ask the publisher now.
    pub fn request(&mut self, now: Instant) -> bool {
        self.asking = self.asking.saturating_add(1);
        self.state = match self.state {
            State::Quiet => State::Asked { unanswered: 0, wanted: true },
            State::Asked { unanswered, wanted: _ } => State::Asked { unanswered, wanted: true },
        };
        self.due(now)
    }

    /// Whether a request held back, or repeated, is to be sent now. `true`: ask the publisher now.
    pub fn due(&mut self, now: Instant) -> bool {
        if self.due_at(now).is_none_or(|at| now < at) {
            return false;
        }
        if let State::Asked { unanswered, wanted } = &mut self.state {
            *unanswered = unanswered.saturating_add(1);
            *wanted = false;
        }
        self.last_asked = Some(now);
        true
    }

    /// A key frame began: whoever asked before has it.
    pub fn on_key_frame(&mut self) {
        self.state = State::Quiet;
        self.asking = 0;
    }

    /// What the newest key frame took, in bytes, and the bit rate of the source.
    pub fn on_cost(&mut self, bytes: u64, bits_per_second: u64) {
        let ms = bytes.saturating_mul(8_000 * Self::SHARE).checked_div(bits_per_second);
        self.paid_in = ms.map_or(Self::PAID_IN_MAX, Duration::from_millis).min(Self::PAID_IN_MAX);
    }

    /// Nobody watches any more: nothing is repeated.
    pub fn forget(&mut self) {
        self.on_key_frame();
    }

    /// When [`Self::due`] is to be asked again. `None` while nobody waits.
    pub fn deadline(&self) -> Option<Deadline> {
        let last = self.last_asked?;
        self.due_at(last).map(|at| Deadline { at, why: Why::KeyFrame })
    }

    fn due_at(&self, now: Instant) -> Option<Instant> {
        let State::Asked { unanswered, wanted } = self.state else { return None };
        let Some(last) = self.last_asked else { return Some(now) };
        if unanswered == 0 {
            let crowd = if self.asking >= Self::CROWD { Self::CROWD_INTERVAL } else { Duration::ZERO };
            return Some(last + self.interval.max(self.paid_in).max(crowd));
        }
        // 1, 2, 4, 8 intervals; one more viewer who asks does not wait for the repetition.
        let doubled = if wanted { 0 } else { unanswered.saturating_sub(1).min(3) };
        Some(last + self.interval * (1 << doubled))
    }
}

impl Default for KeyFrameRequests {
    fn default() -> Self {
        Self::new(Self::INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    fn start() -> Instant {
        Instant::now()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn sixty_joins_in_a_second_are_two_requests() {
        let (t0, mut keys, mut sent) = (start(), KeyFrameRequests::new(ms(500)), Vec::new());
        for n in 0..300 {
            let now = t0 + ms(n * 10);
            // Each asks once.
            let joins = n < 100 && n % 5 < 3;
            if if joins { keys.request(now) } else { keys.due(now) } {
                sent.push(n * 10);
            }
            // The encoder answers 100 ms after each request.
            if sent.last().is_some_and(|at| at + 100 == n * 10) {
                keys.on_key_frame();
            }
        }
        assert_eq!(sent, [0, 1_000]);
    }

    #[test]
    fn a_second_viewer_does_not_wait_as_long_as_a_crowd() {
        let (t0, mut keys) = (start(), KeyFrameRequests::default());
        assert!(keys.request(t0));
        keys.on_key_frame();
        for n in 1..8 {
            assert!(!keys.request(t0 + ms(n * 10)));
            assert_eq!(keys.deadline().unwrap().at, t0 + ms(500), "{n} requests");
        }
        assert!(!keys.request(t0 + ms(400)));
        assert_eq!(keys.deadline().unwrap().at, t0 + ms(1_000));
    }

    /// 30,000 bytes are 240 kbit: at 800 kbit/s a quarter of the rate is 200 kbit/s, which pays for them in 1.2 s.
    #[test]
    fn dear_key_frames_keep_their_distance_but_a_lost_request_does_not() {
        let (t0, mut keys) = (start(), KeyFrameRequests::default());
        assert!(keys.request(t0));
        keys.on_cost(30_000, 800_000);
        assert_eq!(keys.deadline().unwrap().at, t0 + ms(500), "not answered: repeated soon");
        keys.on_key_frame();
        assert!(!keys.request(t0 + ms(600)));
        assert_eq!(keys.deadline().unwrap().at, t0 + ms(1_200));
        keys.on_cost(1 << 40, 1);
        assert_eq!(keys.deadline().unwrap().at, t0 + KeyFrameRequests::PAID_IN_MAX);
        keys.on_cost(1_000, 0);
        assert_eq!(keys.deadline().unwrap().at, t0 + KeyFrameRequests::PAID_IN_MAX, "no rate: nothing pays");
        keys.on_cost(1_000, 800_000);
        assert_eq!(keys.deadline().unwrap().at, t0 + ms(500));
    }

    #[test]
    fn a_late_request_goes_out_when_due_unless_a_key_frame_came() {
        let (t0, mut keys) = (start(), KeyFrameRequests::new(ms(500)));
        assert_eq!(keys.deadline(), None);
        assert!(keys.request(t0));
        keys.on_key_frame();
        assert_eq!(keys.deadline(), None);
        assert!(!keys.request(t0 + ms(200)));
        assert_eq!(keys.deadline(), Some(Deadline { at: t0 + ms(500), why: Why::KeyFrame }));
        assert!(!keys.due(t0 + ms(499)));
        assert!(keys.due(t0 + ms(500)));
        assert!(!keys.request(t0 + ms(700)));
        keys.on_key_frame();
        assert!(!keys.due(t0 + ms(1_000)), "the key frame at 700 ms answered it");
        assert!(keys.request(t0 + ms(1_001)), "a new one, long after the last");
    }

    #[test]
    fn an_unanswered_request_is_repeated_at_growing_distance_until_nobody_watches() {
        let (t0, mut keys, mut sent) = (start(), KeyFrameRequests::new(ms(500)), vec![]);
        assert!(keys.request(t0));
        for _ in 0..6 {
            let at = keys.deadline().unwrap().at;
            assert!(keys.due(at));
            sent.push((at - t0).as_millis());
        }
        assert_eq!(sent, [500, 1_500, 3_500, 7_500, 11_500, 15_500]);
        assert!(!keys.request(t0 + ms(15_700)));
        assert_eq!(keys.deadline().unwrap().at, t0 + ms(16_000), "a new viewer does not wait for it");
        keys.forget();
        assert_eq!(keys.deadline(), None);
        assert!(!keys.due(t0 + ms(60_000)));
    }

    #[derive(Debug, Clone)]
    enum Event {
        Request,
        KeyFrame,
        Wake,
    }

    proptest! {
        /// Whatever happens: requests are an interval apart, and whoever asked is answered by a key frame or a
        /// request within an interval, of a crowd.
        #[test]
        fn seldom_and_never_forgotten(
            events in proptest::collection::vec(
                (0..400u64, prop_oneof![4 => Just(Event::Request), 1 => Just(Event::KeyFrame), 3 => Just(Event::Wake)]),
                1..100),
        ) {
            let (mut now, mut keys) = (start(), KeyFrameRequests::default());
            let mut sent: Option<Instant> = None;
            let mut waiting: Option<Instant> = None;
            for (wait, event) in events {
                let until = now + ms(wait);
                let mut asks = Vec::new();
                // A driver that keeps every deadline.
                while let Some(deadline) = keys.deadline().filter(|d| d.at <= until) {
                    prop_assert!(keys.due(deadline.at), "a deadline without work");
                    asks.push(deadline.at);
                }
                now = until;
                match event {
                    Event::Request => {
                        waiting.get_or_insert(now);
                        if keys.request(now) {
                            asks.push(now);
                        }
                    }
                    Event::KeyFrame => {
                        keys.on_key_frame();
                        waiting = None;
                        prop_assert_eq!(keys.deadline(), None);
                    }
                    Event::Wake => prop_assert!(!keys.due(now)),
                }
                for at in asks {
                    prop_assert!(sent.is_none_or(|last| at >= last + KeyFrameRequests::INTERVAL));
                    sent = Some(at);
                    waiting = waiting.filter(|since| *since > at);
                }
                prop_assert!(waiting.is_none_or(|since| now - since < KeyFrameRequests::CROWD_INTERVAL));
            }
        }
    }
}
