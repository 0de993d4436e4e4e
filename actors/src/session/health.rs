//! How good a session's connection is, in each direction, by the one rule of `rondo_media::quality`.
//!
//! A second is judged when something happens after its end: sessions are not woken for it. Who has gone silent is woken
//! once, to be judged so.

use super::peer::Peer;
use crate::api::Verdicts;
use rondo_media::quality::{Quality, QualityJudge, Second, Verdict};
use rondo_media::units::{Deadline, Why};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
/// Silence means something for so long after packets flowed; who neither sends nor gets anything may be silent.
const FLOWED_FOR: Duration = Duration::from_secs(4);
/// Seconds that are made up for at once after a long silence.
const BEHIND_MAX: u32 = 5;

/// What one direction of a session has counted since its beginning, over all its transports.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Totals {
    /// Packets that should have come.
    pub expected: u64,
    /// Of them, those that did not, after repair. May fall, and below zero.
    pub lost: i64,
    /// The longest round trip.
    pub rtt: Option<Duration>,
    /// A video flows on a layer below the one asked for, although that exists.
    pub below_asked: bool,
    /// When anything proven came last.
    pub heard_at: Option<Instant>,
}

impl Totals {
    /// One more transport.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            expected: self.expected + other.expected,
            lost: self.lost + other.lost,
            rtt: self.rtt.max(other.rtt),
            below_asked: self.below_asked || other.below_asked,
            heard_at: self.heard_at.max(other.heard_at),
        }
    }
}

/// One direction.
#[derive(Debug, Default)]
struct Direction {
    judge: QualityJudge,
    before: Totals,
    flowed_at: Option<Instant>,
    /// Packets flowed lately: silence would mean something.
    flows: bool,
    told: Option<Verdict>,
}

impl Direction {
    /// `seconds` have ended, the last one at `end`.
    fn judge(&mut self, end: Instant, seconds: u32, totals: Totals) {
        if totals.expected < self.before.expected {
            // A transport has ended and took its counts along.
            self.before = totals;
        }
        let expected = totals.expected - self.before.expected;
        if expected > 0 {
            self.flowed_at = Some(end);
        }
        self.flows = self.flowed_at.is_some_and(|at| end.saturating_duration_since(at) <= FLOWED_FOR);
        for ago in (0..seconds).rev() {
            let from = end.checked_sub(SECOND * (ago + 1));
            // Who was silent when something should have come is silent until something does.
            let excused = !self.flows && self.judge.verdict().quality != Quality::NoData;
            let heard = excused || totals.heard_at >= from;
            // What was counted meanwhile is taken for the last second's.
            let second = if ago > 0 {
                Second { heard, ..Second::default() }
            } else {
                let lost = totals.lost.saturating_sub(self.before.lost);
                Second { expected, lost, rtt: totals.rtt, below_asked: totals.below_asked, heard }
            };
            self.judge.second(second);
        }
        self.before = totals;
        self.told = Some(self.judge.verdict());
    }
}

/// Both directions of a session.
#[derive(Debug, Default)]
pub struct Health {
    up: Direction,
    down: Direction,
    /// When the second that runs ends.
    ends: Option<Instant>,
    told: Verdicts,
}

impl Health {
    /// Judges the seconds that have ended. What is to be told, if it is something new.
    pub fn judge<'a>(&mut self, now: Instant, peers: impl Iterator<Item = &'a Peer> + Clone) -> Option<Verdicts> {
        let Some(ends) = self.ends else {
            self.ends = peers.clone().any(Peer::connected).then_some(now + SECOND);
            return None;
        };
        let late = now.checked_duration_since(ends)?;
        let seconds = u32::try_from(late.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
        let end = ends + SECOND * (seconds - 1);
        self.ends = Some(end + SECOND);
        let seconds = seconds.min(BEHIND_MAX);
        let totals = |publishes: bool| {
            let side = peers.clone().filter(|peer| peer.connected() && peer.publishes() == publishes);
            side.map(Peer::totals).reduce(Totals::and)
        };
        for (direction, totals) in [(&mut self.up, totals(true)), (&mut self.down, totals(false))] {
            match totals {
                Some(totals) => direction.judge(end, seconds, totals),
                None => *direction = Direction::default(),
            }
        }
        let verdicts = Verdicts { up: self.up.told, down: self.down.told };
        let words = |verdicts: Verdicts| [verdicts.up, verdicts.down].map(|v| v.map(|v| v.quality));
        // A direction that begins well is no news, nor is one that is no longer.
        let news = words(verdicts) != words(self.told) && !(verdicts.good() && self.told.good());
        self.told = if news { verdicts } else { self.told };
        news.then_some(verdicts)
    }

    /// When somebody who has gone silent is to be judged so.
    pub fn deadline(&self) -> Option<Deadline> {
        let ends = self.ends?;
        let silent_at = |direction: &Direction| {
            let listens = direction.flows && direction.told.is_some_and(|told| told.quality != Quality::NoData);
            direction.before.heard_at.filter(|_| listens).map(|at| at + SECOND * (QualityJudge::WORSE_AFTER + 1))
        };
        let at = silent_at(&self.up).into_iter().chain(silent_at(&self.down)).min()?;
        Some(Deadline { at: at.max(ends), why: Why::Liveness })
    }
}
