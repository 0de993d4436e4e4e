//! A TCP connection beside media: Reno (RFC 5681) that knows which segments have arrived (after RFC 6675), without delayed
//! acknowledgements. Acknowledgements wait nowhere.

use super::path::Path;
use std::collections::{BTreeSet, VecDeque};

/// Of a full segment, all headers included.
const SEGMENT_BYTES: u64 = 1_500;
const RTO_MIN_US: u64 = 1_000_000;
const DELAY_US: u64 = 50_000;

/// See the module. One millisecond a [`Self::step`].
#[derive(Debug)]
pub struct Tcp {
    /// Segments that are to be sent in all, so far.
    pub has: u64,
    window: f64,
    threshold: f64,
    next: u64,
    unacked: u64,
    repeats: u32,
    /// In recovery until this is acknowledged.
    recovers_to: Option<u64>,
    /// When the acknowledgement of an arrival comes, of which segment, and when that left.
    acks: VecDeque<(u64, u64, u64)>,
    /// Arrived in order up to here, and what is beyond.
    arrived: u64,
    beyond: BTreeSet<u64>,
    /// Sent again in this recovery.
    resent: BTreeSet<u64>,
    /// Smoothed round trip and its deviation (RFC 6298).
    rtt_us: Option<(u64, u64)>,
    timeout_at_us: u64,
    /// After a timeout, what arrives twice up to here is no sign of loss (after RFC 6582 §3.2).
    timed_out_to: u64,
}

impl Tcp {
    pub fn new() -> Self {
        Self {
            has: 0,
            window: 10.0,
            threshold: f64::INFINITY,
            next: 0,
            unacked: 0,
            repeats: 0,
            recovers_to: None,
            acks: VecDeque::new(),
            arrived: 0,
            beyond: BTreeSet::new(),
            resent: BTreeSet::new(),
            rtt_us: None,
            timeout_at_us: 0,
            timed_out_to: 0,
        }
    }

    /// Sends so many bytes more, as a connection of its own.
    pub fn transfer(&mut self, bytes: u64) {
        self.has += bytes.div_ceil(SEGMENT_BYTES);
        (self.window, self.threshold) = (10.0, f64::INFINITY);
    }

    /// All that it has was acknowledged.
    pub fn is_done(&self) -> bool {
        self.unacked >= self.has
    }

    /// What has arrived in order.
    pub fn arrived_bytes(&self) -> u64 {
        self.arrived * SEGMENT_BYTES
    }

    pub fn step(&mut self, ms: u64, path: &mut Path) {
        let now_us = ms * 1_000;
        while let Some((_, segment, sent_us)) = self.acks.pop_front_if(|(due, ..)| *due <= now_us) {
            self.acked(now_us, segment, sent_us);
        }
        if self.unacked < self.next && now_us >= self.timeout_at_us {
            self.threshold = (self.on_its_way() as f64 / 2.0).max(2.0);
            self.timed_out_to = self.timed_out_to.max(self.next);
            (self.window, self.next, self.repeats, self.recovers_to) = (1.0, self.unacked, 0, None);
        }
        while (self.on_its_way() as f64) < self.window {
            let hole = self.recovers_to.and_then(|_| self.holes().next());
            let segment = match hole {
                Some(hole) => {
                    self.resent.insert(hole);
                    hole
                }
                None if self.next < self.has => {
                    self.next += 1;
                    self.next - 1
                }
                None => break,
            };
            self.send(now_us, segment, path);
        }
    }

    /// What is known to be lost and was not sent again.
    fn holes(&self) -> impl Iterator<Item = u64> + '_ {
        let known = self.beyond.last().copied().unwrap_or(0);
        (self.unacked..known).filter(|segment| !self.beyond.contains(segment) && !self.resent.contains(segment))
    }

    fn on_its_way(&self) -> u64 {
        let lost = if self.recovers_to.is_some() { self.holes().count() } else { 0 };
        (self.next - self.unacked).saturating_sub((lost + self.beyond.len()) as u64)
    }

    fn timeout_us(&self) -> u64 {
        self.rtt_us.map_or(RTO_MIN_US, |(smoothed, deviation)| (smoothed + 4 * deviation).max(RTO_MIN_US))
    }

    fn send(&mut self, now_us: u64, segment: u64, path: &mut Path) {
        if segment == self.unacked {
            self.timeout_at_us = now_us + self.timeout_us();
        }
        if let Some(leaves_us) = path.send(now_us, SEGMENT_BYTES) {
            self.acks.push_back((leaves_us + 2 * DELAY_US, segment, now_us));
        }
    }

    fn acked(&mut self, now_us: u64, segment: u64, sent_us: u64) {
        if segment >= self.arrived {
            self.beyond.insert(segment);
        }
        while self.beyond.remove(&self.arrived) {
            self.arrived += 1;
        }
        let rtt_us = now_us.saturating_sub(sent_us);
        self.rtt_us = Some(self.rtt_us.map_or((rtt_us, rtt_us / 2), |(smoothed, deviation)| {
            ((7 * smoothed + rtt_us) / 8, (3 * deviation + smoothed.abs_diff(rtt_us)) / 4)
        }));
        if self.arrived <= self.unacked {
            self.repeats += 1;
            if self.repeats == 3 && self.recovers_to.is_none() && self.unacked >= self.timed_out_to {
                self.threshold = (self.on_its_way() as f64 / 2.0).max(2.0);
                self.window = self.threshold;
                self.recovers_to = Some(self.next);
                self.resent.clear();
            }
            return;
        }
        self.unacked = self.arrived;
        self.next = self.next.max(self.unacked);
        self.repeats = 0;
        self.timeout_at_us = now_us + self.timeout_us();
        match self.recovers_to {
            Some(to) if self.unacked < to => {}
            Some(_) => self.recovers_to = None,
            None if self.window < self.threshold => self.window += 1.0,
            None => self.window += 1.0 / self.window,
        }
    }
}

#[test]
fn it_fills_a_path_and_shares_it_with_its_like() {
    for (queue_us, least_kbps) in [(20_000, 1_300), (300_000, 1_900), (1_000_000, 1_900)] {
        let mut path = Path { queue_us, ..Path::new(2_000) };
        let mut tcps = [Tcp::new(), Tcp::new()];
        for ms in 0..120_000 {
            for tcp in &mut tcps {
                tcp.has = u64::MAX;
                tcp.step(ms, &mut path);
            }
        }
        let kbps = tcps.map(|tcp| tcp.arrived_bytes() * 8 / 120_000);
        assert!((least_kbps..=2_000).contains(&(kbps[0] + kbps[1])), "{queue_us} us: {kbps:?}");
        assert!(kbps.iter().all(|kbps| *kbps >= 200), "{queue_us} us: {kbps:?}");
    }
}
