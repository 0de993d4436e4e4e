//! The rate that one viewer's path takes.

use super::OVERHEAD;
use super::acked::Acked;
use super::probe::{Burst, Pairs, Probe, Trial};
use super::trend::{Trend, Usage};
use crate::send::TwccResult;
use crate::units::Bitrate;
use std::time::{Duration, Instant};

/// What is known of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// What may be sent in all, headers below RTP included.
    pub target: Bitrate,
    /// The path has told something: that it is full, or how a probe went. Before that the target is where one begins.
    pub proven: bool,
    /// What arrives.
    pub acked: Option<Bitrate>,
    /// What queues do.
    pub usage: Usage,
    /// Share of packets that did not arrive when last counted, in thousandths.
    pub loss_permille: u16,
}

/// Estimates one path's rate from transport-wide feedback, or takes the receiver's own word (REMB) where there is none.
///
/// Sending costs it nothing: all work is done when feedback comes.
#[derive(Debug)]
pub struct Estimator {
    target: Bitrate,
    proven: bool,
    /// From here moments of sending are counted.
    epoch: Option<Instant>,
    acked: Acked,
    /// What was sent, by the time it left, as far as it was reported.
    sent: Acked,
    trend: Trend,
    queue: Queue,
    losses: Losses,
    /// Rate at which the path was full lately, smoothed; near it the target rises slowly.
    full_at: Option<Bitrate>,
    lowered_at: Option<Instant>,
    raised_at: Option<Instant>,
    /// The target before it fell by a third and more, and when it did.
    fell: Option<(Instant, Bitrate)>,
    wanted: Bitrate,
    burst: Option<Burst>,
    /// The last one was sent.
    burst_at: Option<Instant>,
    pairs: Pairs,
    bursts: u64,
    trial: Option<Trial>,
    /// When padding was sent last, and what arrived without any.
    padded_at: Option<Instant>,
    media: Option<Bitrate>,
    /// Trials in a row without room.
    no_room: u32,
    /// A cut came after what bursts had found: others may be on the path.
    misled_at: Option<Instant>,
    probe_at: Option<Instant>,
    /// When the last burst had its answer.
    probed_at: Option<Instant>,
    /// When less was sent last to empty a queue that shows no trend, and how long that was.
    draining: Option<(Instant, i64)>,
    /// How long packets stood in queues when the target was lowered last, while they still do.
    standing_at_cut: Option<i64>,
    feedback_at: Option<Instant>,
    starved_at: Option<Instant>,
    remb: Option<(Instant, Bitrate)>,
}

/// Packets reported, for the share that was lost.
#[derive(Debug, Default)]
struct Losses {
    arrived: u32,
    lost: u32,
    since: Option<Instant>,
    permille: u16,
}

/// How long packets stand in queues: the lowest delay of the last fifth of a second over what is low for the path. By the
/// lowest, because jitter raises all but that; low is the lowest fifth of the last ten seconds' tenths.
#[derive(Debug)]
struct Queue {
    /// Lowest delay by tenths of a second, in microseconds.
    lowest_us: [Option<i64>; Queue::BUCKETS],
    now: usize,
    ends: Option<Instant>,
    base_us: Option<i64>,
    standing_us: i64,
    /// Since when it stands.
    stands_since: Option<Instant>,
    /// Since when it is long.
    long_since: Option<Instant>,
    /// What the lowest delays waver by anyway.
    wavers_us: i64,
    last_us: Option<i64>,
    /// How far the delays of two packets are apart, smoothed.
    jitter_us: i64,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            lowest_us: [None; Queue::BUCKETS],
            now: 0,
            ends: None,
            base_us: None,
            standing_us: 0,
            stands_since: None,
            long_since: None,
            wavers_us: 0,
            last_us: None,
            jitter_us: 0,
        }
    }
}

impl Queue {
    const BUCKET: Duration = Duration::from_millis(100);
    const BUCKETS: usize = 100;

    fn packet(&mut self, now: Instant, delay_us: i64) {
        let ends = *self.ends.get_or_insert(now + Self::BUCKET);
        if now >= ends {
            let passed = now.saturating_duration_since(ends).as_millis() / Self::BUCKET.as_millis() + 1;
            for _ in 0..passed.min(Self::BUCKETS as u128) {
                self.now = (self.now + 1) % Self::BUCKETS;
                self.lowest_us[self.now] = None;
            }
            self.ends = Some(now + Self::BUCKET);
            self.learn();
        }
        let apart = self.last_us.map_or(0, |last| delay_us.saturating_sub(last).saturating_abs().min(1_000_000));
        self.last_us = Some(delay_us);
        self.jitter_us += (apart - self.jitter_us) / 16;
        let lowest = &mut self.lowest_us[self.now];
        *lowest = Some(lowest.map_or(delay_us, |lowest| lowest.min(delay_us)));
    }

    /// To be called when a feedback has been read.
    fn judge(&mut self, now: Instant) {
        let before = self.lowest_us[(self.now + Self::BUCKETS - 1) % Self::BUCKETS];
        let recent = [self.lowest_us[self.now], before].into_iter().flatten().min();
        self.standing_us = recent.zip(self.base_us).map_or(0, |(recent, base)| recent.saturating_sub(base));
        self.stands_since = self.stands_since.or(Some(now)).filter(|_| self.stands());
        self.long_since = self.long_since.or(Some(now)).filter(|_| self.standing_us >= Self::LONG_US);
    }

    /// What is low for the path, and how it wavers, once each tenth of a second.
    fn learn(&mut self) {
        let (mut known, mut len) = ([0; Self::BUCKETS], 0);
        for lowest in self.lowest_us.iter().flatten() {
            known[len] = *lowest;
            len += 1;
        }
        let known = &mut known[..len];
        known.sort_unstable();
        let (Some(base), Some(middle)) = (known.get(len / 5), known.get(len / 2)) else { return };
        self.base_us = Some(*base);
        self.wavers_us = middle.saturating_sub(*base).saturating_mul(2);
    }

    fn stands(&self) -> bool {
        self.standing_us >= Self::STANDS_US.max(self.jitter_us).max(self.wavers_us)
    }

    /// Whether it is more than one large frame's, as the first of a better layer is: that one is gone soon.
    fn lasts(&self, now: Instant) -> bool {
        let since = self.stands_since.is_some_and(|since| now.saturating_duration_since(since) >= Self::LASTS);
        self.stands() && (since || self.standing_us >= Self::LONG_US)
    }

    /// Whether it is so long that it does not matter how it came about; not while it empties.
    fn is_long(&self, now: Instant) -> bool {
        let since = self.long_since.is_some_and(|since| now.saturating_duration_since(since) >= Self::LASTS);
        let tenth = |back: usize| self.lowest_us[(self.now + Self::BUCKETS - back) % Self::BUCKETS];
        let less = |after: Option<i64>, before: Option<i64>| {
            after.zip(before).is_some_and(|(after, before)| before.saturating_sub(after) >= Self::SHRINKS_US)
        };
        self.stands() && since && !less(tenth(0), tenth(1)) && !less(tenth(1), tenth(2))
    }

    /// What stands is the path's own delay from now on: another way, or a queue of others.
    fn take_for_path(&mut self) {
        let newest = self.lowest_us[self.now];
        self.lowest_us = [None; Self::BUCKETS];
        self.lowest_us[self.now] = newest;
        self.base_us = newest.or(self.base_us);
    }

    /// A queue stands when even the fastest packets are so late, and later than jitter alone makes a packet.
    const STANDS_US: i64 = 10_000;
    /// It lasts when it has stood for so long, or is so long.
    const LASTS: Duration = Duration::from_millis(250);
    const LONG_US: i64 = 80_000;
    /// It empties by so much in a tenth of a second at least: 2 % less is sent than leaves.
    const SHRINKS_US: i64 = 2_000;
}

impl Estimator {
    /// Where a path begins: enough for a middle layer.
    pub const START: Bitrate = Bitrate::from_kbps(600);
    /// Bounds of the target.
    pub const LEAST: Bitrate = Bitrate::from_kbps(30);
    /// As above.
    pub const MOST: Bitrate = Bitrate::from_kbps(30_000);
    /// The target after over-use, in percent of what arrived.
    const LOWERED_TO: u64 = 90;
    /// The same, in percent of the target, while all that was sent arrives.
    const EASED_TO: u64 = 85;
    /// No more than so much of what is sent, in percent.
    const EASED_FROM: u64 = 125;
    /// A path that was full binds for so long.
    const BOUND_FOR: Duration = Duration::from_secs(60);
    /// Between two cuts, besides the round trip: what the first one did must be seen first.
    const CUT_EVERY: Duration = Duration::from_millis(200);
    /// A queue that is not so much shorter, in percent, this time and a round trip after less was sent is not ours.
    const DRAINED_TO: i64 = 87;
    const DRAINS: Duration = Duration::from_millis(1_500);
    /// No round trip counts for more.
    const RTT_MAX: Duration = Duration::from_millis(500);
    /// Growth far from a full path, in percent a second.
    const GROWS: f64 = 8.0;
    /// The target rises no further than this above what arrives, in percent: beyond, only a probe knows.
    const RISES_TO: u64 = 150;
    /// Between two probes of which the first brought nothing.
    const PROBE_EVERY: Duration = Duration::from_secs(3);
    /// While the frames that are sent say that there is no more.
    const PROBE_SELDOM: Duration = Duration::from_secs(20);
    /// No probe so soon after a cut: the queue is still emptying.
    const PROBE_AFTER_CUT: Duration = Duration::from_millis(600);
    /// What a probe has put into a queue is taken for gone after this.
    const PROBE_EMPTIES: Duration = Duration::from_millis(500);
    /// A probe's answer is waited for no longer.
    const PROBE_ANSWERS: Duration = Duration::from_secs(1);
    /// For so long padding counts among what arrives.
    const PADDING_COUNTS: Duration = Duration::from_secs(1);
    /// A burst is believed where jitter cannot have made more than a fifth of what it found.
    const SURE: u64 = 80;
    /// What a burst found of what it asked for, in percent, where jitter may have made the rest.
    const NOT_FAR: u64 = 60;
    /// The pause doubles so often while there is no room.
    const NO_ROOM_MAX: u32 = 2;
    /// After a fall by a third a probe may ask for most of what there was, for so long.
    const REMEMBERS: Duration = Duration::from_secs(60);
    /// Losses are counted over so many packets and so long.
    const LOSS_PACKETS: u32 = 20;
    const LOSS_WINDOW: Duration = Duration::from_millis(400);
    /// Loss in thousandths that means a full path while a queue stands, and without any queue.
    const LOSS_WITH_QUEUE: u16 = 50;
    const LOSS_WITHOUT_QUEUE: u16 = 250;
    /// Silence of the receiver while packets are sent: feedback comes each 50 to 250 ms.
    const STARVED_AFTER: Duration = Duration::from_millis(1_500);
    /// A receiver's own estimate is forgotten after this: it is sent each second, or when it changes.
    const REMB_LASTS: Duration = Duration::from_secs(10);

    /// Nothing is known of the path.
    #[expect(clippy::new_without_default, reason = "a path is begun, not defaulted")]
    pub fn new() -> Self {
        Self {
            target: Self::START,
            proven: false,
            epoch: None,
            acked: Acked::default(),
            sent: Acked::default(),
            trend: Trend::default(),
            queue: Queue::default(),
            losses: Losses::default(),
            full_at: None,
            lowered_at: None,
            raised_at: None,
            fell: None,
            wanted: Bitrate::ZERO,
            burst: None,
            burst_at: None,
            pairs: Pairs::default(),
            bursts: 0,
            trial: None,
            padded_at: None,
            media: None,
            no_room: 0,
            misled_at: None,
            probe_at: None,
            probed_at: None,
            draining: None,
            standing_at_cut: None,
            feedback_at: None,
            starved_at: None,
            remb: None,
        }
    }

    /// What a better choice of layers would need: the path is probed up to it.
    pub fn set_wanted(&mut self, wanted: Bitrate) {
        self.wanted = wanted;
    }

    /// What may be sent in all; none before the receiver has said anything of what it gets.
    pub fn target(&self) -> Option<Bitrate> {
        self.told().map(|(target, _)| target)
    }

    /// What may leave at a time is bound by this: what a path takes that was full within the last minute, or less where the
    /// receiver says so beside its feedback. Where one begins binds nothing, nor does what a probe found, which is the least
    /// that the path takes; nor the word of a receiver that tells nothing else: that follows what it gets.
    pub fn bound(&self) -> Option<Bitrate> {
        let told_at = self.feedback_at?;
        let full = self.lowered_at.is_some_and(|at| told_at.saturating_duration_since(at) < Self::BOUND_FOR);
        let path = (full || self.starved_at.is_some()).then_some(self.target);
        let told = self.remb.map(|(_, rate)| rate).filter(|remb| *remb <= self.target);
        told.or(path)
    }

    /// What is known; none before the receiver has said anything of what it gets.
    pub fn estimate(&self) -> Option<Estimate> {
        let (target, proven) = self.told()?;
        Some(Estimate {
            target,
            proven,
            acked: self.acked.rate(),
            usage: self.trend.usage(),
            loss_permille: self.losses.permille,
        })
    }

    fn told(&self) -> Option<(Bitrate, bool)> {
        let remb = self.remb.map(|(_, rate)| rate);
        Some(match (self.feedback_at, remb) {
            (None, None) => return None,
            // A receiver's own word follows what it gets: taken for proof, it would end the picture that it is to grow by.
            (None, Some(remb)) => (remb, false),
            (Some(_), Some(remb)) if remb < self.target => (remb, false),
            (Some(_), _) => (self.target, self.proven),
        })
    }

    /// A feedback came: what it says anew of packets, in the order they were sent.
    pub fn feedback(&mut self, now: Instant, results: impl Iterator<Item = TwccResult>, rtt: Option<Duration>) {
        let epoch = *self.epoch.get_or_insert(now);
        let goal = self.probe_goal(now).unwrap_or(self.wanted);
        let mut any = false;
        for result in results {
            any = true;
            self.sent.arrived(micros(epoch, result.sent), u64::from(result.len) + OVERHEAD);
            let Some(arrived_us) = result.arrived_us else {
                self.losses.lost += 1;
                self.burst_is_over(now, result.seq);
                self.tried(now, result.sent, None);
                continue;
            };
            self.losses.arrived += 1;
            self.acked.arrived(arrived_us, u64::from(result.len) + OVERHEAD);
            match &mut self.burst {
                // A burst queues behind itself: its delay says nothing of what is sent all the time.
                Some(burst) if burst.has(result.seq) => {
                    burst.arrived(&result, arrived_us);
                    if burst.is_whole() {
                        self.burst_ends(now);
                    }
                }
                _ => {
                    self.pairs.packet(now, &result, arrived_us, goal);
                    self.trend.packet(result.sent, arrived_us);
                    let delay_us = arrived_us.saturating_sub(micros(epoch, result.sent));
                    self.queue.packet(now, delay_us);
                    self.tried(now, result.sent, Some(delay_us));
                    self.burst_is_over(now, result.seq);
                }
            }
        }
        if !any {
            return;
        }
        self.queue.judge(now);
        self.feedback_at = Some(now);
        self.starved_at = None;
        if self.trial.is_some_and(|trial| now.saturating_duration_since(trial.began_at) > Self::PROBE_ANSWERS) {
            self.trial = None;
        }
        if self.burst.is_some_and(|burst| now.saturating_duration_since(burst.sent_at) > Self::PROBE_ANSWERS) {
            self.burst = None;
        }
        self.control(now, rtt.unwrap_or(Duration::from_millis(100)));
    }

    fn burst_is_over(&mut self, now: Instant, seq: u16) {
        if self.burst.is_some_and(|burst| burst.is_before(seq)) {
            self.burst_ends(now);
        }
    }

    /// A probe has its answer, or will have none.
    fn burst_ends(&mut self, now: Instant) {
        let Some(burst) = self.burst.take() else { return };
        self.probed_at = Some(now);
        let Some(found) = burst.result() else { return };
        self.proven = true;
        let sent_us = self.epoch.map_or(0, |epoch| micros(epoch, burst.sent_at));
        let soonest_us = self.queue.base_us.map(|base| sent_us.saturating_add(base));
        let too_short = soonest_us.is_some_and(|soonest| burst.at_least(soonest) < found.percent(Self::SURE));
        let too_long = found < burst.rate && self.queue.jitter_us.saturating_mul(4) > burst.spread_us();
        // Where jitter may have made it more or less, what was asked for is tried unless it is far off.
        let jitters = (too_short || too_long) && found >= burst.rate.percent(Self::NOT_FAR);
        let found = if jitters { burst.rate } else { found };
        if (self.is_misled(now) || jitters || too_short) && found > self.target.percent(105) {
            self.trial = Some(Trial::new(now, found, self.media.unwrap_or_default()));
            return;
        }
        self.found(now, found);
    }

    /// Whether bursts may have said too much lately: they tell what the bottleneck takes, not what others leave of it.
    fn is_misled(&self, now: Instant) -> bool {
        self.misled_at.is_some_and(|at| now.saturating_duration_since(at) < Self::REMEMBERS)
    }

    /// A packet was reported, perhaps one of a trial.
    fn tried(&mut self, now: Instant, sent: Instant, delay_us: Option<i64>) {
        let Some(trial) = &mut self.trial else { return };
        if !trial.told(sent, delay_us) {
            return;
        }
        let Some(trial) = self.trial.take() else { return };
        self.probed_at = Some(now);
        if trial.fits(self.queue.jitter_us) {
            self.no_room = 0;
            self.found(now, trial.rate);
        } else {
            self.no_room = (self.no_room + 1).min(Self::NO_ROOM_MAX);
            // Who shares a path must not try together for ever: the last bits of a delay are as good as dice.
            let dice = delay_us.unwrap_or(0).unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
            let pause = Self::PROBE_EVERY * (1 << self.no_room) / 2;
            self.probe_at = Some(now + pause + pause * u32::try_from(dice).unwrap_or(0) / 1024);
        }
    }

    /// The path takes so much.
    fn found(&mut self, now: Instant, found: Bitrate) {
        let before = self.target;
        self.target = self.target.max(found).min(Self::MOST);
        if self.target > before.percent(105) {
            self.raised_at = Some(now);
            // It carries more than was thought: perhaps still more.
            (self.probe_at, self.burst_at) = (Some(now), None);
            self.full_at = None;
        }
    }

    fn control(&mut self, now: Instant, rtt: Duration) {
        let lossy = self.count_losses(now);
        // Until a probe has emptied from the queue, delays are its own.
        let probing = self.burst.is_some()
            || self.trial.is_some()
            || self.probed_at.is_some_and(|at| now < at + Self::PROBE_EMPTIES);
        let acked = self.acked.recent();
        if !self.queue.stands() {
            (self.draining, self.standing_at_cut) = (None, None);
        }
        // A trend alone may be jitter's, or that of one large frame.
        let full = self.trend.usage() == Usage::Over && self.queue.lasts(now) && !probing;
        if full || lossy {
            if self.may_cut(now, rtt, acked) {
                self.cut(now, acked);
            }
        } else if self.queue.is_long(now) && !probing {
            self.drain(now, rtt, acked);
        } else if self.trend.usage() != Usage::Under {
            self.grow(now, rtt);
        }
    }

    /// A long queue has no trend where it grows slowly or has been full for a while: as much is sent as leaves, or somebody
    /// else fills it. Less is sent once, and what that does not empty is not ours.
    fn drain(&mut self, now: Instant, rtt: Duration, acked: Option<Bitrate>) {
        let standing_us = self.queue.standing_us;
        match self.draining {
            Some((at, _)) if now < at + rtt.min(Self::RTT_MAX) + Self::DRAINS => return,
            Some((_, before)) if standing_us > before / 100 * Self::DRAINED_TO => {
                self.draining = None;
                return self.queue.take_for_path();
            }
            _ => {}
        }
        self.draining = Some((now, standing_us));
        self.lower(now, acked.unwrap_or(self.target).min(self.target).percent(Self::EASED_TO), acked);
    }

    /// Whether the last cut has had its effect, or was far too small.
    fn may_cut(&self, now: Instant, rtt: Duration, acked: Option<Bitrate>) -> bool {
        let Some(last) = self.lowered_at else { return true };
        let far_off = acked.is_some_and(|acked| acked < self.target.percent(50));
        // A queue that has shrunk since says that it did enough.
        let works = self.standing_at_cut.is_some_and(|before| self.queue.standing_us < before);
        far_off || !works && now.saturating_duration_since(last) >= rtt.min(Self::RTT_MAX) + Self::CUT_EVERY
    }

    fn cut(&mut self, now: Instant, acked: Option<Bitrate>) {
        let before = self.target;
        let arrives = acked.unwrap_or(before).min(before).percent(Self::LOWERED_TO);
        // All that was sent arrives: the queue is hardly ours, and what arrives says little of what would.
        let sent = self.sent.recent();
        let all = acked.zip(sent).is_some_and(|(acked, sent)| acked >= sent.percent(85));
        // What is far above what is sent was not what filled it.
        let eased = sent.map_or(before, |sent| before.min(sent.percent(Self::EASED_FROM))).percent(Self::EASED_TO);
        let to = if all { arrives.max(eased) } else { arrives };
        self.lower(now, to, acked);
    }

    fn lower(&mut self, now: Instant, to: Bitrate, acked: Option<Bitrate>) {
        let before = self.target;
        self.target = to.max(Self::LEAST);
        if let Some(acked) = acked {
            let old = self.full_at.unwrap_or(acked);
            // A path that is full far from where it was full before is another path.
            let near = acked > old.percent(70) && acked < old.percent(140);
            self.full_at = Some(if near { Bitrate::from_bps(old.bps() / 20 * 19 + acked.bps() / 20) } else { acked });
        }
        if self.target < before.percent(66) && self.proven {
            self.fell = Some((now, before));
        }
        self.misled_at = Some(now).filter(|_| self.bursts > 0);
        self.proven = true;
        self.standing_at_cut = Some(self.queue.standing_us);
        self.lowered_at = Some(now);
        self.raised_at = Some(now);
        self.probe_at = Some(now + Self::PROBE_AFTER_CUT);
    }

    /// A little more, as time goes by without a sign of queues.
    fn grow(&mut self, now: Instant, rtt: Duration) {
        let last = self.raised_at.replace(now).unwrap_or(now);
        let seconds = now.saturating_duration_since(last).min(Duration::from_secs(1)).as_secs_f64();
        let Some(acked) = self.acked.rate() else { return };
        // Where one begins is a guess; what arrives while no queue stands is not.
        if !self.proven && !self.queue.stands() {
            self.target = self.target.max(acked).min(Self::MOST);
        }
        let limit = acked.percent(Self::RISES_TO).saturating_add(Bitrate::from_kbps(10));
        if self.target >= limit {
            return;
        }
        let near = self.full_at.is_some_and(|full| self.target > full.percent(85) && self.target < full.percent(115));
        if self.full_at.is_some_and(|full| self.target >= full.percent(115)) {
            self.full_at = None;
        }
        let bps = self.target.bps() as f64;
        let more = if near {
            // One packet a response time.
            let response = (rtt + Duration::from_millis(100)).as_secs_f64();
            9_600.0 / response * seconds
        } else {
            bps * ((1.0 + Self::GROWS / 100.0).powf(seconds) - 1.0)
        };
        self.target = Bitrate::from_bps((bps + more.max(1.0)) as u64).min(limit).min(Self::MOST);
    }

    /// Whether losses say that the path is full. Random loss, which sending less would not mend, does not.
    fn count_losses(&mut self, now: Instant) -> bool {
        let Losses { arrived, lost, since, .. } = self.losses;
        let since = since.unwrap_or(now);
        self.losses.since = Some(since);
        let all = arrived + lost;
        if all < Self::LOSS_PACKETS || now.saturating_duration_since(since) < Self::LOSS_WINDOW {
            return false;
        }
        let permille = u16::try_from(u64::from(lost) * 1_000 / u64::from(all)).unwrap_or(1_000);
        self.losses = Losses { since: Some(now), permille, ..Losses::default() };
        let stands = self.queue.stands();
        permille >= Self::LOSS_WITHOUT_QUEUE || (stands && permille >= Self::LOSS_WITH_QUEUE)
    }

    /// The receiver's own estimate (draft-alvestrand-rmcat-remb-03): a bound beside transport-wide feedback, the estimate
    /// without.
    pub fn remb(&mut self, now: Instant, rate: Bitrate) {
        self.remb = Some((now, rate.min(Self::MOST)));
    }

    /// The receiver that told one has left.
    pub fn forget_remb(&mut self) {
        self.remb = None;
    }

    /// Time goes by. `sent_at`: when the last packet left.
    pub fn tick(&mut self, now: Instant, sent_at: Option<Instant>) {
        if self.remb.is_some_and(|(at, _)| now.saturating_duration_since(at) > Self::REMB_LASTS)
            && self.feedback_at.is_some()
        {
            self.remb = None;
        }
        let (Some(feedback_at), Some(sent_at)) = (self.feedback_at, sent_at) else { return };
        let since = match self.starved_at {
            Some(at) => at + Duration::from_secs(1),
            None => feedback_at + Self::STARVED_AFTER,
        };
        if sent_at > feedback_at && now >= since {
            // Nobody says that anything arrives: half, and half again each second.
            self.starved_at = Some(now);
            if self.proven && self.fell.is_none_or(|(at, _)| now.saturating_duration_since(at) > Self::REMEMBERS) {
                self.fell = Some((now, self.target));
            }
            self.proven = true;
            self.target = self.target.percent(50).max(Self::LEAST);
        }
    }

    /// The burst to send now, if one would tell something that somebody wants to know.
    pub fn probe_due(&self, now: Instant) -> Option<Probe> {
        self.feedback_at?;
        if let Some(trial) = &self.trial {
            return trial.next_at().filter(|at| now >= *at).map(|_| trial.step(now));
        }
        let goal = self.probe_goal(now)?;
        self.probe_due_at().is_some_and(|at| now >= at).then(|| Probe::of(goal))
    }

    /// When the next burst may leave; none while one is on its way.
    fn probe_due_at(&self) -> Option<Instant> {
        let told_at = self.feedback_at?;
        // Nor while a queue stands: it would stand for longer.
        let still = self.trend.usage() != Usage::Over && !self.queue.stands();
        let free = self.burst.is_none() && self.trial.is_none() && still;
        let first = self.probe_at.unwrap_or(told_at);
        // As of the last feedback, so that nothing but another one changes the answer.
        let seldom = self.burst_at.filter(|_| self.pairs.say_no(told_at)).map(|at| at + Self::PROBE_SELDOM);
        free.then(|| seldom.map_or(first, |at| first.max(at)))
    }

    fn probe_goal(&self, now: Instant) -> Option<Bitrate> {
        let most = self.remb.map_or(Self::MOST, |(_, remb)| remb);
        let wanted = self.wanted.min(most);
        if wanted <= self.target {
            return None;
        }
        let misled = self.is_misled(now);
        let remembered = self.fell.filter(|(at, _)| !misled && now.saturating_duration_since(*at) < Self::REMEMBERS);
        let reach = self.target.percent(if self.bursts < 2 && !misled { 300 } else { 200 });
        let reach = remembered.map_or(reach, |(_, before)| reach.max(before.percent(Self::LOWERED_TO)));
        Some(wanted.min(reach))
    }

    /// What [`Self::probe_due`] asked for was sent: so many packets from that transport-wide number on, and bytes.
    pub fn probe_sent(&mut self, now: Instant, probe: Probe, first: u16, packets: u16, bytes: u64) {
        if self.padded_at.replace(now).is_none_or(|at| now.saturating_duration_since(at) > Self::PADDING_COUNTS) {
            self.media = self.acked.rate();
        }
        if let Some(trial) = &mut self.trial {
            return trial.sent(now, bytes);
        }
        self.bursts += 1;
        self.burst_at = Some(now);
        self.probe_at = Some(now + Self::PROBE_EVERY);
        if packets > 0 {
            self.burst = Some(Burst::new(now, probe.rate, first, packets));
        }
    }

    /// When [`Self::tick`] or [`Self::probe_due`] may have something. `sent_at`: when the last packet left.
    pub fn deadline(&self, sent_at: Option<Instant>) -> Option<Instant> {
        let feedback_at = self.feedback_at?;
        let most = self.remb.map_or(Self::MOST, |(_, remb)| remb);
        let probe = self.probe_due_at().filter(|_| self.wanted.min(most) > self.target);
        let starved = sent_at.is_some_and(|sent_at| sent_at > feedback_at).then(|| match self.starved_at {
            Some(at) => at + Duration::from_secs(1),
            None => feedback_at + Self::STARVED_AFTER,
        });
        let trial = self.trial.and_then(|trial| trial.next_at());
        probe.into_iter().chain(starved).chain(trial).min()
    }

    /// Bursts sent so far.
    pub fn bursts(&self) -> u64 {
        self.bursts
    }
}

/// Microseconds from `epoch` to `at`, which may be before it.
fn micros(epoch: Instant, at: Instant) -> i64 {
    let ahead = i64::try_from(at.saturating_duration_since(epoch).as_micros()).unwrap_or(i64::MAX);
    let behind = i64::try_from(epoch.saturating_duration_since(at).as_micros()).unwrap_or(i64::MAX);
    ahead.saturating_sub(behind)
}

#[cfg(test)]
#[path = "estimator_tests.rs"]
mod tests;
