//! How good a connection is, in four words: one rule for the call page, tables and verdicts.
//!
//! Over the last five seconds. *Good*: loss after repair ≤ 2 %, round trip ≤ 200 ms. *Fair*: loss ≤ 5 %, round trip
//! ≤ 400 ms, or a simulcast layer below the one asked for. *Poor*: beyond that. *No data*: nothing came for three
//! seconds. A state gets worse after three seconds and better after ten, so that it never flickers.

use std::time::Duration;

/// The rule's word, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quality {
    /// Nothing to complain about.
    Good,
    /// A careful eye or ear notices.
    Fair,
    /// Everybody notices.
    Poor,
    /// Nothing is heard of the peer.
    NoData,
}

/// What made a quality worse than good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A layer below the one asked for is sent: the link carries no more.
    Layer,
    /// The round trip is long.
    Delay,
    /// Packets were lost and not repaired.
    Loss,
    /// Nothing comes.
    Silence,
}

/// What happened in one second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Second {
    /// Packets that should have come.
    pub expected: u64,
    /// Of them, those that did not, after repair. Negative where what was missing before has come now.
    pub lost: i64,
    /// The newest round trip, where one is known.
    pub rtt: Option<Duration>,
    /// A video flows on a layer below the one asked for, although that exists.
    pub below_asked: bool,
    /// Anything came from the peer, a report or a check included.
    pub heard: bool,
}

/// A state and its cause, which changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The word.
    pub quality: Quality,
    /// Why it is not better; none while it is good.
    pub cause: Option<Cause>,
}

/// Judges one direction of one connection, a second at a time.
#[derive(Debug, Clone)]
pub struct QualityJudge {
    seconds: [Second; Self::WINDOW],
    next: usize,
    known: usize,
    silent: u32,
    verdict: Verdict,
    /// Seconds in a row that were worse, or better, than the verdict, and the mildest change among them.
    run: u32,
    toward: Verdict,
}

impl Default for QualityJudge {
    fn default() -> Self {
        let good = Verdict { quality: Quality::Good, cause: None };
        Self {
            seconds: [Second::default(); Self::WINDOW],
            next: 0,
            known: 0,
            silent: 0,
            verdict: good,
            run: 0,
            toward: good,
        }
    }
}

impl Quality {
    /// The wire name.
    pub fn label(self) -> &'static str {
        match self {
            Quality::Good => "good",
            Quality::Fair => "fair",
            Quality::Poor => "poor",
            Quality::NoData => "no_data",
        }
    }
}

impl Cause {
    /// The wire name.
    pub fn label(self) -> &'static str {
        match self {
            Cause::Layer => "layer",
            Cause::Delay => "delay",
            Cause::Loss => "loss",
            Cause::Silence => "silence",
        }
    }
}

impl QualityJudge {
    /// Seconds that are judged together.
    pub const WINDOW: usize = 5;
    /// Seconds in a row before it gets worse, and before silence counts.
    pub const WORSE_AFTER: u32 = 3;
    /// Seconds in a row before it gets better.
    pub const BETTER_AFTER: u32 = 10;
    /// Fewer packets than these say nothing of loss: one of twenty would be 5 %.
    const EXPECTED_MIN: u64 = 40;

    /// One more second has gone by. The verdict, if it is another than before.
    pub fn second(&mut self, second: Second) -> Option<Verdict> {
        self.seconds[self.next] = second;
        self.next = (self.next + 1) % Self::WINDOW;
        self.known = (self.known + 1).min(Self::WINDOW);
        self.silent = if second.heard { 0 } else { self.silent + 1 };
        let seen = self.seen();
        let before = self.verdict;
        if seen.quality == Quality::NoData || before.quality == Quality::NoData {
            // Silence has its own three seconds, and ends with the first packet.
            (self.verdict, self.run) = (seen, 0);
        } else {
            self.drift(seen);
        }
        (self.verdict.quality != before.quality).then_some(self.verdict)
    }

    /// The verdict as it stands.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    fn drift(&mut self, seen: Verdict) {
        let now = self.verdict.quality;
        if seen.quality == now {
            self.run = 0;
            self.verdict.cause = seen.cause;
            return;
        }
        let worse = seen.quality > now;
        let same_way = self.run > 0 && (self.toward.quality > now) == worse;
        let milder = if worse { seen.quality < self.toward.quality } else { seen.quality > self.toward.quality };
        if !same_way {
            self.run = 0;
        }
        if !same_way || milder {
            self.toward = seen;
        }
        self.run += 1;
        if self.run >= if worse { Self::WORSE_AFTER } else { Self::BETTER_AFTER } {
            (self.verdict, self.run) = (self.toward, 0);
        }
    }

    /// What the last seconds alone say.
    fn seen(&self) -> Verdict {
        if self.silent >= Self::WORSE_AFTER {
            return Verdict { quality: Quality::NoData, cause: Some(Cause::Silence) };
        }
        let seconds = &self.seconds[..self.known];
        let expected: u64 = seconds.iter().map(|s| s.expected).sum();
        let lost = seconds.iter().map(|s| s.lost).sum::<i64>().max(0);
        let lost_percent = if expected < Self::EXPECTED_MIN { 0.0 } else { lost as f64 * 100.0 / expected as f64 };
        let loss = match lost_percent {
            p if p <= 2.0 => Quality::Good,
            p if p <= 5.0 => Quality::Fair,
            _ => Quality::Poor,
        };
        let delay = match seconds.iter().filter_map(|s| s.rtt).max() {
            Some(rtt) if rtt > Duration::from_millis(400) => Quality::Poor,
            Some(rtt) if rtt > Duration::from_millis(200) => Quality::Fair,
            Some(_) | None => Quality::Good,
        };
        let below = !seconds.is_empty() && seconds.iter().all(|s| s.below_asked);
        let layer = if below { Quality::Fair } else { Quality::Good };
        let worst = [(loss, Cause::Loss), (delay, Cause::Delay), (layer, Cause::Layer)];
        let (quality, cause) = worst.into_iter().max().unwrap_or((Quality::Good, Cause::Loss));
        Verdict { quality, cause: (quality != Quality::Good).then_some(cause) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Second =
        Second { expected: 50, lost: 0, rtt: Some(Duration::from_millis(30)), below_asked: false, heard: true };

    fn lossy(lost: i64) -> Second {
        Second { expected: 100, lost, ..FINE }
    }

    /// The quality after each second.
    fn story(seconds: impl IntoIterator<Item = Second>) -> Vec<Quality> {
        let mut judge = QualityJudge::default();
        let mut told = Quality::Good;
        let mut after = |second| {
            if let Some(verdict) = judge.second(second) {
                assert_ne!(verdict.quality, told, "only a change is told");
                told = verdict.quality;
            }
            assert_eq!(judge.verdict().quality, told);
            told
        };
        seconds.into_iter().map(&mut after).collect()
    }

    #[test]
    fn each_bound_of_the_rule_is_the_last_good_one() {
        let rtt = |ms| Second { rtt: Some(Duration::from_millis(ms)), ..FINE };
        for (second, want, cause) in [
            (lossy(2), Quality::Good, None),
            (lossy(3), Quality::Fair, Some(Cause::Loss)),
            (lossy(5), Quality::Fair, Some(Cause::Loss)),
            (lossy(6), Quality::Poor, Some(Cause::Loss)),
            (rtt(200), Quality::Good, None),
            (rtt(201), Quality::Fair, Some(Cause::Delay)),
            (rtt(400), Quality::Fair, Some(Cause::Delay)),
            (rtt(401), Quality::Poor, Some(Cause::Delay)),
            (Second { below_asked: true, ..FINE }, Quality::Fair, Some(Cause::Layer)),
            (Second { heard: false, ..FINE }, Quality::NoData, Some(Cause::Silence)),
            // A packet or two tell nothing of loss.
            (Second { expected: 2, lost: 1, ..FINE }, Quality::Good, None),
        ] {
            let mut judge = QualityJudge::default();
            for _ in 0..QualityJudge::WINDOW {
                judge.second(second);
            }
            assert_eq!(judge.verdict(), Verdict { quality: want, cause }, "{second:?}");
        }
    }

    #[test]
    fn it_gets_worse_after_three_seconds_and_better_after_ten() {
        use Quality::{Fair, Good, Poor};
        let told = story([vec![FINE; 5], vec![lossy(100); 3], vec![FINE; 20]].concat());
        // From the first bad second on the window is beyond 5 %.
        assert_eq!(told[..7], [Good; 7]);
        assert_eq!(told[7], Poor);
        // The bad seconds leave the window five seconds later, and ten more must be good.
        let back = told.iter().rposition(|q| *q == Poor).unwrap() + 1;
        assert_eq!((back, told[back]), (7 + 4 + 10, Good));
        // A lone bad second: 6 of 300 packets are 2 %.
        assert_eq!(story([vec![FINE; 5], vec![lossy(6)], vec![FINE; 9]].concat()), vec![Good; 15]);
        // Worse by what all three seconds were, not by the worst of them.
        let mixed = story([vec![lossy(3); 4], vec![lossy(40); 1]].concat());
        assert_eq!(mixed[2..4], [Fair, Fair]);
    }

    #[test]
    fn a_state_at_a_bound_does_not_flicker() {
        // In turn two seconds above and two below the bound of 2 %.
        let told = story((0..60).map(|n| if n / 2 % 2 == 0 { lossy(4) } else { lossy(0) }));
        assert!(told.windows(2).filter(|w| w[0] != w[1]).count() <= 1, "{told:?}");
    }

    #[test]
    fn what_was_repaired_later_is_no_loss() {
        // Ten of a hundred are missing at the end of each second, and come in the next one.
        let told = story((0..20).map(|n| lossy(if n % 2 == 0 { 10 } else { -10 })));
        assert_eq!(told[4..], [Quality::Good; 16]);
    }

    #[test]
    fn silence_is_told_after_three_seconds_and_ends_with_the_first_packet() {
        use Quality::{Good, NoData};
        let silent = Second { heard: false, ..Second::default() };
        let told = story([vec![FINE; 2], vec![silent; 4], vec![FINE; 2]].concat());
        assert_eq!(told, [Good, Good, Good, Good, NoData, NoData, Good, Good]);
    }
}
