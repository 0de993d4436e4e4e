//! Who speaks in a room, from the audio levels that senders put into their packets (RFC 6464).

use crate::packet::AudioLevel;
use crate::units::{Deadline, Why};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Active speakers of one room.
///
/// Somebody speaks after [`Speakers::ON_AFTER`] of speech and until [`Speakers::OFF_AFTER`] without a loud packet.
/// Silence is measured in time, not in packets: with DTX hardly any arrive. Who speaks, and in which order, changes
/// in [`Speakers::tick`] only.
#[derive(Debug, Default)]
pub struct Speakers {
    people: BTreeMap<usize, Person>,
    speaking: Vec<usize>,
    /// The last time the order was judged.
    judged: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Person {
    last_heard: Instant,
    last_loud: Instant,
    /// Speech less silence, between nothing and [`Speakers::ON_AFTER`].
    speech: Duration,
    /// Smoothed loudness of loud packets in −dBov, scaled by 256: low is loud.
    quietness: u32,
    speaking: bool,
    /// When the speech reached [`Speakers::ON_AFTER`].
    since: Option<Instant>,
}

impl Speakers {
    /// Speech before somebody counts as speaking: a cough is shorter.
    pub const ON_AFTER: Duration = Duration::from_millis(300);
    /// Time without a loud packet before somebody counts as silent.
    pub const OFF_AFTER: Duration = Duration::from_millis(500);
    /// Time between two judgements of who is louder.
    pub const ORDER_EVERY: Duration = Duration::from_millis(500);
    /// The longest packet; a longer gap before a packet was silence, and the packet one of usual length.
    const PACKET_MAX: Duration = Duration::from_millis(120);
    /// The usual length of a packet.
    const PACKET: Duration = Duration::from_millis(20);
    /// −dBov above which nothing is speech, with and without the sender's voice activity detector agreeing.
    const LOUD_VOICE_DBOV: u8 = 60;
    const LOUD_DBOV: u8 = 45;
    /// One speaker overtakes another by this many dB, scaled like [`Person::quietness`].
    const LOUDER_BY: u32 = 3 * 256;

    /// Nobody speaks.
    pub fn new() -> Self {
        Self::default()
    }

    /// A packet of `who` arrived with this level.
    pub fn heard(&mut self, now: Instant, who: usize, level: AudioLevel) {
        let loud = level.dbov <= if level.voice { Self::LOUD_VOICE_DBOV } else { Self::LOUD_DBOV };
        let quietness = u32::from(level.dbov) * 256;
        let person = match self.people.get_mut(&who) {
            Some(person) => person,
            // Somebody who was never loud has no state.
            None if !loud => return,
            None => self.people.entry(who).or_insert(Person {
                last_heard: now.checked_sub(Self::PACKET).unwrap_or(now),
                last_loud: now,
                speech: Duration::ZERO,
                quietness,
                speaking: false,
                since: None,
            }),
        };
        let gap = now.saturating_duration_since(person.last_heard);
        person.last_heard = now;
        let packet = if gap <= Self::PACKET_MAX { gap } else { Self::PACKET };
        person.speech = person.speech.saturating_sub(gap - packet);
        if !loud {
            person.speech = person.speech.saturating_sub(packet);
            person.since = person.since.filter(|_| person.speech >= Self::ON_AFTER);
            return;
        }
        person.last_loud = now;
        person.speech = (person.speech + packet).min(Self::ON_AFTER);
        person.since = if person.speech < Self::ON_AFTER { None } else { person.since.or(Some(now)) };
        // An eighth of each packet: 160 ms at 20 ms a packet.
        person.quietness = person.quietness - person.quietness / 8 + quietness / 8;
    }

    /// Judges anew who speaks. `true`: [`Self::speaking`] is another list than before.
    pub fn tick(&mut self, now: Instant) -> bool {
        let mut joined = false;
        let speaking = &mut self.speaking;
        self.people.retain(|who, person| {
            let silent = now.saturating_duration_since(person.last_loud) >= Self::OFF_AFTER;
            if silent {
                return false;
            }
            if !person.speaking && person.since.is_some() {
                person.speaking = true;
                joined = true;
                speaking.push(*who);
            }
            true
        });
        let before = speaking.len();
        let people = &self.people;
        speaking.retain(|who| people.contains_key(who));
        let left = speaking.len() != before;
        let due = self.judged.is_none_or(|judged| now.saturating_duration_since(judged) >= Self::ORDER_EVERY);
        let reordered = (joined || due) && self.order();
        if joined || due {
            self.judged = Some(now);
        }
        joined || left || reordered
    }

    /// Bubbles the clearly louder ahead; nearly equal ones keep their order.
    fn order(&mut self) -> bool {
        let people = &self.people;
        let quietness = |who: &usize| people.get(who).map_or(u32::MAX, |person| person.quietness);
        let mut reordered = false;
        for end in 1..self.speaking.len() {
            for at in (1..=end).rev() {
                let [Some(ahead), Some(behind)] = [self.speaking.get(at - 1), self.speaking.get(at)] else { break };
                if quietness(behind).saturating_add(Self::LOUDER_BY) > quietness(ahead) {
                    break;
                }
                self.speaking.swap(at - 1, at);
                reordered = true;
            }
        }
        reordered
    }

    /// Who speaks, loudest first.
    pub fn speaking(&self) -> &[usize] {
        &self.speaking
    }

    /// `who` left, or was muted by the server. `true`: [`Self::speaking`] is another list than before.
    pub fn remove(&mut self, who: usize) -> bool {
        self.people.remove(&who);
        let before = self.speaking.len();
        self.speaking.retain(|speaker| *speaker != who);
        self.speaking.len() != before
    }

    /// When [`Self::tick`] may change something; `None` while everybody is silent.
    pub fn deadline(&self) -> Option<Deadline> {
        let own = self.people.values().map(|person| match person.since {
            Some(since) if !person.speaking => since,
            Some(_) | None => person.last_loud + Self::OFF_AFTER,
        });
        let order = self.judged.filter(|_| self.speaking.len() > 1).map(|judged| judged + Self::ORDER_EVERY);
        own.chain(order).min().map(|at| Deadline { at, why: Why::Speakers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VOICE: AudioLevel = AudioLevel { dbov: 25, voice: true };
    const QUIET: AudioLevel = AudioLevel { dbov: 127, voice: false };

    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    fn start() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn level(dbov: u8) -> AudioLevel {
        AudioLevel { dbov, voice: true }
    }

    /// Keeps every deadline up to `until`, and returns when the list changed.
    fn run(speakers: &mut Speakers, until: Instant) -> Vec<Instant> {
        let mut changes = Vec::new();
        for _ in 0..1_000 {
            let Some(deadline) = speakers.deadline().filter(|d| d.at <= until) else { break };
            assert_eq!(deadline.why, Why::Speakers);
            if speakers.tick(deadline.at) {
                changes.push(deadline.at);
            }
        }
        changes
    }

    /// One packet each 20 ms for `len_ms`; returns when the list changed, in ms since `from`.
    fn talk(speakers: &mut Speakers, from: Instant, len_ms: u64, who: usize, level: AudioLevel) -> Vec<u128> {
        let mut changes = Vec::new();
        for at in (0..len_ms).step_by(20) {
            changes.extend(run(speakers, from + ms(at)));
            speakers.heard(from + ms(at), who, level);
            changes.extend(run(speakers, from + ms(at)));
        }
        changes.iter().map(|at| (*at - from).as_millis()).collect()
    }

    #[test]
    fn speech_is_on_after_300_ms_and_a_cough_never() {
        let (t0, mut speakers) = (start(), Speakers::new());
        // Packets at 0, 20, … 280 ms cover 300 ms.
        assert_eq!(talk(&mut speakers, t0, 1_000, 4, VOICE), [280]);
        assert_eq!(speakers.speaking(), [4]);
        let mut speakers = Speakers::new();
        for cough in 0..5 {
            let from = t0 + ms(cough * 1_000);
            assert_eq!(talk(&mut speakers, from, 240, 4, VOICE), [0; 0]);
            assert_eq!(talk(&mut speakers, from + ms(240), 760, 4, QUIET), [0; 0]);
        }
    }

    #[test]
    fn gaps_without_packets_are_silence_too() {
        let (t0, mut speakers) = (start(), Speakers::new());
        for burst in 0..10 {
            assert_eq!(talk(&mut speakers, t0 + ms(burst * 600), 200, 4, VOICE), [0; 0], "200 ms of 600");
        }
    }

    #[test]
    fn silence_is_time_whatever_arrives_in_it() {
        // Case rtp-10: after 2 s of tone one packet each 400 ms, then none (mute), or one each 20 ms.
        for every in [400u64, 60_000, 20] {
            let (t0, mut speakers) = (start(), Speakers::new());
            talk(&mut speakers, t0, 2_000, 4, VOICE);
            let last_loud = t0 + ms(1_980);
            let mut changes = Vec::new();
            for n in 1..=10_000 / every {
                let at = last_loud + ms(n * every);
                changes.extend(run(&mut speakers, at));
                speakers.heard(at, 4, QUIET);
            }
            changes.extend(run(&mut speakers, last_loud + ms(70_000)));
            assert_eq!(changes, [last_loud + ms(500)], "a packet each {every} ms");
            assert_eq!(speakers.speaking(), [0; 0]);
            assert_eq!(speakers.deadline(), None, "nothing can change by itself");
        }
    }

    #[test]
    fn a_breath_is_no_silence() {
        let (t0, mut speakers) = (start(), Speakers::new());
        talk(&mut speakers, t0, 1_000, 4, VOICE);
        assert_eq!(talk(&mut speakers, t0 + ms(1_000), 400, 4, QUIET), [0; 0]);
        assert_eq!(talk(&mut speakers, t0 + ms(1_400), 1_000, 4, VOICE), [0; 0]);
        assert_eq!(speakers.speaking(), [4]);
    }

    #[test]
    fn the_clearly_louder_one_is_first_and_near_equals_keep_their_order() {
        let (t0, mut speakers) = (start(), Speakers::new());
        let both = |speakers: &mut Speakers, from: u64, to: u64, first: u8, second: u8| {
            for at in (from..to).step_by(20) {
                speakers.heard(t0 + ms(at), 1, level(first));
                speakers.heard(t0 + ms(at), 2, level(second));
                run(speakers, t0 + ms(at));
            }
        };
        both(&mut speakers, 0, 1_000, 30, 31);
        assert_eq!(speakers.speaking(), [1, 2]);
        both(&mut speakers, 1_000, 3_000, 31, 30);
        assert_eq!(speakers.speaking(), [1, 2], "1 dB is nothing");
        both(&mut speakers, 3_000, 5_000, 40, 20);
        assert_eq!(speakers.speaking(), [2, 1]);
        assert!(speakers.remove(2));
        assert!(!speakers.remove(2));
        assert_eq!(speakers.speaking(), [1]);
    }

    #[test]
    fn noise_below_the_threshold_leaves_no_trace() {
        let (t0, mut speakers) = (start(), Speakers::new());
        for (who, noise) in [(0, level(61)), (1, AudioLevel { dbov: 46, voice: false }), (usize::MAX, QUIET)] {
            assert_eq!(talk(&mut speakers, t0, 2_000, who, noise), [0; 0]);
        }
        assert_eq!(speakers.deadline(), None);
        assert!(speakers.people.is_empty());
    }

    proptest! {
        /// Nobody is on without a loud packet in the last second, each once, and all is forgotten in the end.
        #[test]
        fn speaking_is_always_recent(
            packets in proptest::collection::vec((0..300u64, 0..6usize, 0..128u8, any::<bool>()), 0..300),
        ) {
            let (mut now, mut speakers) = (start(), Speakers::new());
            let mut last_loud = BTreeMap::new();
            for (wait, who, dbov, voice) in packets {
                now += ms(wait);
                run(&mut speakers, now);
                for who in speakers.speaking() {
                    prop_assert!(now - last_loud[who] < Speakers::OFF_AFTER);
                    prop_assert_eq!(speakers.speaking().iter().filter(|other| *other == who).count(), 1);
                }
                speakers.heard(now, who, AudioLevel { dbov, voice });
                if dbov <= 60 {
                    last_loud.insert(who, now);
                }
            }
            run(&mut speakers, now + ms(10_000));
            prop_assert!(speakers.speaking().is_empty() && speakers.people.is_empty());
        }
    }
}
