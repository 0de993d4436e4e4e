//! The estimator against a simulated path: one bottleneck with a drop-tail queue, and a source of layers.

use super::*;
use crate::congestion::allocation::{Allocator, Demand, Rank};
use std::collections::VecDeque;

const MS: Duration = Duration::from_millis(1);
const PACKET: usize = 1_000;
const AUDIO: Bitrate = Bitrate::from_kbps(40);

#[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
fn start() -> Instant {
    Instant::now()
}

struct Rng(u64);

impl Rng {
    fn permille(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % 1_000
    }
}

/// One bottleneck that several flows share; times in microseconds since the beginning.
struct Path {
    rate: Bitrate,
    delay_us: u64,
    jitter_us: u64,
    queue_us: u64,
    loss_permille: u64,
    rng: Rng,
    free_at_us: u64,
    last_us: u64,
    waited_us: Vec<(u64, u64)>,
}

impl Path {
    fn new(rate: u64) -> Self {
        Self {
            rate: Bitrate::from_kbps(rate),
            delay_us: 50_000,
            jitter_us: 0,
            queue_us: 300_000,
            loss_permille: 0,
            rng: Rng(5),
            free_at_us: 0,
            last_us: 0,
            waited_us: Vec::new(),
        }
    }

    /// When a packet that leaves now arrives; none if it is lost.
    fn send(&mut self, now_us: u64, bytes: u64) -> Option<i64> {
        let wait = self.free_at_us.saturating_sub(now_us);
        if wait > self.queue_us || self.rng.permille() < self.loss_permille {
            return None;
        }
        self.waited_us.push((now_us, wait));
        let takes = bytes * 8_000_000 / self.rate.bps();
        self.free_at_us = now_us + wait + takes;
        let jitter = if self.jitter_us == 0 { 0 } else { self.jitter_us * self.rng.permille() / 1_000 };
        // Nobody overtakes.
        self.last_us = self.last_us.max(self.free_at_us + self.delay_us + jitter);
        i64::try_from(self.last_us).ok()
    }
}

struct Flow {
    estimator: Estimator,
    allocator: Allocator,
    demands: Vec<Demand>,
    seq: u16,
    owed_bits: u64,
    /// Not reported yet: number, when it left, when it arrives.
    sent: VecDeque<(u16, u64, Option<i64>, u16)>,
    layers: Vec<(u64, Option<usize>)>,
    targets: Vec<(u64, u64)>,
    sent_bytes: u64,
    sent_at: Option<u64>,
    feedback_delay_us: u64,
    audio: (u64, u64),
    active: bool,
}

impl Flow {
    fn new() -> Self {
        let layers = [150, 500, 1_700].map(|kbps| Some(Bitrate::from_kbps(kbps)));
        Self {
            estimator: Estimator::new(),
            allocator: Allocator::new(),
            demands: vec![Demand { layers, most: 2, shown: true, rank: Rank::default() }],
            seq: 0,
            owed_bits: 0,
            sent: VecDeque::new(),
            layers: Vec::new(),
            targets: Vec::new(),
            sent_bytes: 0,
            sent_at: None,
            feedback_delay_us: 50_000,
            audio: (0, 0),
            active: true,
        }
    }

    fn packet(&mut self, at_us: u64, path: &mut Path, len: usize) -> Option<i64> {
        let arrives = path.send(at_us, len as u64 + OVERHEAD);
        self.sent.push_back((self.seq, at_us, arrives, len as u16));
        self.seq = self.seq.wrapping_add(1);
        self.sent_bytes += len as u64 + OVERHEAD;
        self.sent_at = Some(at_us);
        arrives
    }

    /// One millisecond.
    fn step(&mut self, t0: Instant, ms: u64, path: &mut Path) {
        let now = t0 + MS * ms as u32;
        let at_us = ms * 1_000;
        let instant = |us: u64| t0 + Duration::from_micros(us);
        if self.active {
            let available = self.estimator.estimate().map(|e| match e.proven {
                true => e.target,
                false => e.target.max(Bitrate::from_kbps(190)),
            });
            if self.allocator.is_due(now, available) {
                let told = self.allocator.allocate(now, available.or(Some(Estimator::START)), AUDIO, &self.demands);
                self.estimator.set_wanted(told.wanted);
                if self.layers.last().map(|(_, layer)| *layer) != Some(self.allocator.layer(0)) {
                    self.layers.push((ms, self.allocator.layer(0)));
                }
            }
            if ms.is_multiple_of(20) {
                let came = self.packet(at_us, path, 72).is_some();
                self.audio.0 += 1;
                self.audio.1 += u64::from(!came);
            }
            if ms.is_multiple_of(33) {
                let rate = self.allocator.layer(0).map_or(0, |layer| self.demands[0].layers[layer].unwrap().bps());
                self.owed_bits += rate * 33 / 1_000;
                while self.owed_bits >= PACKET as u64 * 8 {
                    self.owed_bits -= PACKET as u64 * 8;
                    self.packet(at_us, path, PACKET - OVERHEAD as usize);
                }
            }
            if let Some(probe) = self.estimator.probe_due(now) {
                let (first, mut packets, mut bytes) = (self.seq, 0, 0);
                while bytes < probe.bytes || packets < probe.packets {
                    self.packet(at_us, path, PACKET);
                    packets += 1;
                    bytes += PACKET;
                }
                self.estimator.probe_sent(now, probe, first, packets as u16, bytes as u64);
            }
        }
        // Feedback each 50 ms of what has arrived, or should have.
        if ms.is_multiple_of(50) {
            let seen_us = at_us.saturating_sub(self.feedback_delay_us);
            let newest = self.sent.iter().rposition(|(.., arrives, _)| arrives.is_some_and(|at| at as u64 <= seen_us));
            let told: Vec<_> = self.sent.drain(..newest.map_or(0, |n| n + 1)).collect();
            let results = told.iter().map(|(seq, sent, arrives, len)| TwccResult {
                seq: *seq,
                sent: instant(*sent),
                arrived_us: *arrives,
                len: *len,
            });
            self.estimator.feedback(now, results, Some(MS * 100));
        }
        self.estimator.tick(now, self.sent_at.map(instant));
        if ms.is_multiple_of(100) {
            self.targets.push((ms, self.estimator.estimate().map_or(0, |e| e.target.bps() / 1_000)));
        }
    }

    fn layer_at(&self, ms: u64) -> Option<usize> {
        self.layers.iter().rev().find(|(at, _)| *at <= ms).and_then(|(_, layer)| *layer)
    }

    /// When the flow first has this layer after a moment, in ms after it.
    fn reaches(&self, layer: usize, after: u64) -> Option<u64> {
        if self.layer_at(after) == Some(layer) {
            return Some(0);
        }
        self.layers.iter().find(|(at, got)| *at >= after && *got == Some(layer)).map(|(at, _)| at - after)
    }
}

/// One flow; the path changes as `change(ms, path)` says.
fn run(seconds: u64, mut path: Path, change: impl Fn(u64, &mut Path)) -> (Flow, Path) {
    let (t0, mut flow) = (start(), Flow::new());
    for ms in 0..seconds * 1_000 {
        change(ms, &mut path);
        flow.step(t0, ms, &mut path);
    }
    (flow, path)
}

#[test]
fn a_clean_path_has_the_best_layer_within_two_seconds_and_keeps_it() {
    let (flow, _) = run(120, Path::new(20_000), |_, _| {});
    assert!(flow.reaches(2, 0).is_some_and(|ms| ms <= 2_000), "{:?}", flow.layers);
    let last = flow.layers.last().unwrap();
    assert!(last.0 <= 2_000 && last.1 == Some(2), "{:?}", flow.layers);
}

#[test]
fn a_path_that_narrows_and_widens_is_followed_at_once_and_soon() {
    let (flow, path) = run(60, Path::new(3_000), |ms, path| {
        path.rate = Bitrate::from_kbps(if (20_000..40_000).contains(&ms) { 600 } else { 3_000 });
    });
    assert_eq!(flow.layer_at(19_999), Some(2));
    let below = (20_000..40_000).find(|ms| flow.layer_at(*ms) < Some(2)).map(|ms| ms - 20_000);
    assert!(below.is_some_and(|ms| ms <= 1_000), "{below:?} of {:?}", flow.layers);
    assert_eq!(flow.layer_at(39_000), Some(1), "{:?}", flow.layers);
    let back = flow.reaches(2, 40_000);
    assert!(back.is_some_and(|ms| ms <= 5_000), "{back:?} of {:?}", flow.layers);
    assert_eq!(flow.layer_at(59_999), Some(2));
    let mut waits: Vec<u64> =
        path.waited_us.iter().filter(|(at, _)| (22_000_000..40_000_000).contains(at)).map(|(_, wait)| *wait).collect();
    waits.sort_unstable();
    let p95 = waits[waits.len() * 95 / 100];
    assert!(p95 <= 100_000, "{p95} us wait at the 95th percentile; {:?}", flow.layers);
}

#[test]
fn random_loss_without_a_queue_is_no_congestion() {
    for (loss, jitter_us) in [(20, 0), (50, 0), (100, 0), (20, 30_000), (20, 60_000), (50, 60_000)] {
        let path = Path { loss_permille: loss, jitter_us, ..Path::new(20_000) };
        let (flow, _) = run(60, path, |_, _| {});
        let best = flow
            .layers
            .windows(2)
            .map(|w| (w[1].0 - w[0].0, w[0].1))
            .chain(flow.layers.last().map(|(at, layer)| (60_000 - at, *layer)));
        let rate: u64 = best.map(|(ms, layer)| ms * layer.map_or(0, |l| [150, 500, 1_700][l])).sum::<u64>() / 60_000;
        assert!(rate >= 1_700 * 8 / 10, "{loss} permille, jitter {jitter_us}: {rate} kbit/s, {:?}", flow.layers);
    }
}

#[test]
fn a_short_queue_that_drops_brings_the_rate_below_the_path() {
    let path = Path { queue_us: 30_000, ..Path::new(1_000) };
    let (flow, _) = run(60, path, |_, _| {});
    let over = flow.layers.windows(2).filter(|w| w[0].1 == Some(2)).map(|w| w[1].0 - w[0].0).sum::<u64>();
    assert!(over <= 6_000 && flow.layer_at(59_000) == Some(1), "{over} ms over, {:?}", flow.layers);
}

#[test]
fn three_flows_share_a_path_fairly_and_sound_is_not_lost() {
    let (t0, mut path) = (start(), Path::new(3_500));
    let mut flows = [Flow::new(), Flow::new(), Flow::new()];
    for ms in 0..120_000 {
        for (n, flow) in flows.iter_mut().enumerate() {
            flow.active = ms >= n as u64 * 20_000;
            flow.step(t0, ms, &mut path);
        }
    }
    // Of 3,500: each at least its middle layer for most of the last minute.
    for flow in &flows {
        let good = (60_000..120_000).step_by(100).filter(|ms| flow.layer_at(*ms) >= Some(1)).count();
        assert!(good >= 450, "{good} of 600 tenths, {:?}", flow.layers);
        let (sent, lost) = flow.audio;
        assert!(lost * 100 <= sent, "{lost} of {sent} sounds");
    }
}

#[test]
fn who_hears_nothing_back_halves_each_second_and_comes_back() {
    let (flow, _) = run(60, Path::new(3_000), |ms, path| {
        path.loss_permille = if (20_000..30_000).contains(&ms) { 1_000 } else { 0 };
    });
    let low = flow.targets.iter().find(|(ms, _)| *ms == 29_900).unwrap().1;
    assert!(low <= 200, "{low} kbit/s after ten seconds of nothing");
    let back = flow.reaches(2, 30_000);
    assert!(back.is_some_and(|ms| ms <= 10_000), "{back:?} of {:?}", flow.layers);
}

#[test]
fn a_receivers_word_is_the_estimate_where_it_is_all_there_is_and_a_bound_elsewhere() {
    let (t0, mut estimator) = (start(), Estimator::new());
    assert_eq!(estimator.estimate(), None);
    estimator.remb(t0, Bitrate::from_kbps(800));
    let told = estimator.estimate().unwrap();
    assert_eq!((told.target, told.proven), (Bitrate::from_kbps(800), false));
    estimator.remb(t0, Bitrate::from_bps(u64::MAX));
    assert_eq!(estimator.estimate().unwrap().target, Estimator::MOST);
    let result = TwccResult { seq: 0, sent: t0, arrived_us: Some(0), len: 100 };
    estimator.feedback(t0, [result].into_iter(), None);
    assert_eq!(estimator.estimate().unwrap().target, Estimator::START);
    estimator.remb(t0, Bitrate::from_kbps(200));
    assert_eq!(estimator.estimate().unwrap().target, Bitrate::from_kbps(200));
    estimator.tick(t0 + Duration::from_secs(11), None);
    assert_eq!(estimator.estimate().unwrap().target, Estimator::START, "a word is forgotten");
}

#[test]
fn nothing_is_probed_for_what_nobody_wants_and_one_burst_at_a_time() {
    let (t0, mut estimator) = (start(), Estimator::new());
    let result = |seq, ms: u64, us| TwccResult { seq, sent: t0 + MS * ms as u32, arrived_us: Some(us), len: 1_000 };
    estimator.set_wanted(Bitrate::from_kbps(2_000));
    assert_eq!(estimator.probe_due(t0), None, "nobody listens");
    estimator.feedback(t0, [result(0, 0, 0)].into_iter(), None);
    let probe = estimator.probe_due(t0).unwrap();
    assert_eq!(probe.rate, Bitrate::from_kbps(1_800), "three times where it begins");
    estimator.probe_sent(t0, probe, 1, 6, 6_000);
    assert_eq!(estimator.probe_due(t0 + Duration::from_millis(900)), None);
    // 1,028 bytes a millisecond are above what was asked for.
    let burst = (1..=6).map(|n| result(n, 1, i64::from(n) * 1_000));
    estimator.feedback(t0 + MS * 50, burst, None);
    assert_eq!(estimator.estimate().unwrap().target, Bitrate::from_kbps(1_800));
    assert_eq!(estimator.probe_due(t0 + MS * 50).map(|p| p.rate), Some(Bitrate::from_kbps(2_000)), "on at once");
    estimator.set_wanted(Bitrate::from_kbps(1_800));
    assert_eq!((estimator.probe_due(t0 + MS * 50), estimator.deadline(None)), (None, None));
}

proptest::proptest! {
    /// Whatever is reported: bounds hold, and nothing panics.
    #[test]
    fn hostile_feedback_is_survived(reports in proptest::collection::vec(
        (proptest::num::u16::ANY, 0..5_000u64, proptest::option::of(proptest::num::i64::ANY), proptest::num::u16::ANY, 0..2_000u64), 1..300)) {
        let (t0, mut estimator) = (start() + Duration::from_secs(100), Estimator::new());
        estimator.set_wanted(Bitrate::from_bps(u64::MAX));
        let mut now = t0;
        for (seq, before_ms, arrived_us, len, wait_ms) in reports {
            now += MS * wait_ms as u32;
            let sent = now - MS * before_ms as u32;
            estimator.feedback(now, [TwccResult { seq, sent, arrived_us, len }].into_iter(), None);
            if let Some(probe) = estimator.probe_due(now) {
                estimator.probe_sent(now, probe, seq, 7, 7_000);
            }
            estimator.tick(now, Some(sent));
            let target = estimator.estimate().unwrap().target;
            proptest::prop_assert!(target >= Estimator::LEAST && target <= Estimator::MOST);
        }
    }
}
