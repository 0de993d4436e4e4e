//! Whose sound is passed on in a room where more people can be heard than anybody can listen to.
//!
//! A conference of thirty open microphones is thirty packet streams to every viewer, of which two or three say
//! anything. Above [`Audible::MOST`] sounds at once only the loudest are passed on, chosen by the levels that
//! senders put into their packets (RFC 6464), without decoding.

use crate::packet::AudioLevel;
use crate::room::TrackKey;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// It is passed on.
    Pass,
    /// It is passed on, and packets before it were left out: what follows is no loss.
    Resume,
    /// It is left out.
    LeaveOut,
}

/// The sounds of one room that are passed on: all while there are few, else the loudest.
///
/// The onset of speech is protected: who begins to speak is passed on with the first loud packet if one of the
/// chosen is silent, and who was chosen stays so for [`Audible::HOLD`] after their last loud packet, so that neither
/// a first syllable nor a pause between words is cut. A louder one takes the place of a softer speaker only when the
/// difference is clear.
#[derive(Debug, Default)]
pub struct Audible {
    tracks: BTreeMap<TrackKey, Sound>,
    /// How many of them sent lately, as of `counted`.
    sending: usize,
    counted: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Sound {
    heard_at: Instant,
    loud_at: Option<Instant>,
    /// Smoothed loudness of loud packets in −dBov, scaled by 256: low is loud.
    quietness: u32,
    /// Since when it is passed on.
    chosen: Option<Instant>,
    /// Packets before the next one were left out.
    left_out: bool,
}

impl Audible {
    /// Sounds passed on at once: twelve, of whom more than three rarely speak.
    pub const MOST: usize = 12;
    /// How long a chosen one is kept after a loud packet: longer than the pause between two words.
    pub const HOLD: Duration = Duration::from_millis(800);
    /// A sound counts as present for so long after a packet; DTX sends one each 400 ms (RFC 6716 §2.1.9).
    const PRESENT: Duration = Duration::from_millis(1_500);
    /// Between two counts of who is present.
    const COUNT_EVERY: Duration = Duration::from_millis(500);
    /// A speaker takes the place of one who is softer by this much, scaled like [`Sound::quietness`]: 9 dB.
    const LOUDER_BY: u32 = 9 * 256;
    /// −dBov at and below which a packet is loud, with and without the sender's voice activity detector agreeing.
    const LOUD_VOICE_DBOV: u8 = 60;
    const LOUD_DBOV: u8 = 45;
    /// What a packet without a level is taken for: a soft voice, since nobody can tell.
    const UNKNOWN: AudioLevel = AudioLevel { dbov: 55, voice: true };

    /// Nobody is heard.
    pub fn new() -> Self {
        Self::default()
    }

    /// A batch of `track` came; `level`: of its loudest packet, where the sender tells it. What becomes of it.
    pub fn heard(&mut self, now: Instant, track: TrackKey, level: Option<AudioLevel>) -> Passage {
        let level = level.unwrap_or(Self::UNKNOWN);
        let loud = level.dbov <= if level.voice { Self::LOUD_VOICE_DBOV } else { Self::LOUD_DBOV };
        let quietness = u32::from(level.dbov) * 256;
        let fresh = Sound { heard_at: now, loud_at: None, quietness, chosen: None, left_out: false };
        let sound = self.tracks.entry(track).or_insert(fresh);
        sound.heard_at = now;
        if loud {
            // An eighth of each packet: 160 ms at 20 ms a packet. The first one counts whole.
            let old = if sound.loud_at.is_some() { sound.quietness } else { quietness };
            sound.quietness = old - old / 8 + quietness / 8;
            sound.loud_at = Some(now);
        }
        let due = self.counted.is_none_or(|at| now.saturating_duration_since(at) >= Self::COUNT_EVERY);
        if due {
            self.count(now);
        }
        let pass = self.sending <= Self::MOST || self.choose(now, track, loud);
        let Some(sound) = self.tracks.get_mut(&track) else { return Passage::Pass };
        match (pass, std::mem::replace(&mut sound.left_out, !pass)) {
            (true, true) => Passage::Resume,
            (true, false) => Passage::Pass,
            (false, _) => Passage::LeaveOut,
        }
    }

    /// The track ended, or is muted.
    pub fn remove(&mut self, track: TrackKey) {
        self.tracks.remove(&track);
        self.counted = None;
    }

    /// How many are left out now.
    pub fn left_out(&self) -> usize {
        self.tracks.values().filter(|sound| sound.left_out).count()
    }

    fn count(&mut self, now: Instant) {
        self.counted = Some(now);
        let present = |sound: &Sound| now.saturating_duration_since(sound.heard_at) <= Self::PRESENT;
        self.sending = self.tracks.values().filter(|sound| present(sound)).count();
        for sound in self.tracks.values_mut().filter(|sound| !present(sound)) {
            sound.chosen = None;
        }
        if self.sending > Self::MOST {
            // Who spoke last was being listened to.
            let mut chosen = self.tracks.values().filter(|sound| sound.chosen.is_some()).count();
            while chosen < Self::MOST {
                let free = self.tracks.values_mut().filter(|sound| sound.chosen.is_none() && sound.loud_at.is_some());
                let Some(next) = free.max_by_key(|sound| sound.loud_at) else { break };
                next.chosen = Some(now);
                chosen += 1;
            }
        } else {
            self.tracks.values_mut().for_each(|sound| sound.chosen = None);
        }
    }

    /// Whether `track` is among the chosen, or becomes one with this packet.
    fn choose(&mut self, now: Instant, track: TrackKey, loud: bool) -> bool {
        let Some(sound) = self.tracks.get(&track) else { return false };
        if sound.chosen.is_some() {
            return true;
        }
        if !loud {
            return false;
        }
        let mine = sound.quietness;
        let idle = |sound: &Sound| sound.loud_at.is_none_or(|at| now.saturating_duration_since(at) > Self::HOLD);
        let chosen = || self.tracks.iter().filter(|(_, sound)| sound.chosen.is_some());
        if chosen().count() >= Self::MOST {
            // The one who has been silent longest, else the softest.
            let silent = chosen().filter(|(_, sound)| idle(sound)).min_by_key(|(_, sound)| sound.loud_at);
            let softest = || {
                let settled =
                    |sound: &Sound| sound.chosen.is_some_and(|since| now.saturating_duration_since(since) > Self::HOLD);
                let softer = |sound: &Sound| sound.quietness >= mine + Self::LOUDER_BY;
                chosen().filter(|(_, s)| settled(s) && softer(s)).max_by_key(|(_, sound)| sound.quietness)
            };
            let Some((gives_way, _)) = silent.or_else(softest) else { return false };
            let gives_way = *gives_way;
            if let Some(sound) = self.tracks.get_mut(&gives_way) {
                sound.chosen = None;
            }
        }
        if let Some(sound) = self.tracks.get_mut(&track) {
            sound.chosen = Some(now);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    fn start() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    const SILENCE: AudioLevel = AudioLevel { dbov: 127, voice: false };

    fn voice(dbov: u8) -> AudioLevel {
        AudioLevel { dbov, voice: true }
    }

    /// A packet each 20 ms of each of `people`, from `from` for `len_ms`; what became of each one's packets.
    fn talk(
        audible: &mut Audible,
        from: Instant,
        len_ms: u64,
        people: u32,
        level: impl Fn(u32) -> AudioLevel,
    ) -> Vec<Vec<Passage>> {
        let mut seen = vec![Vec::new(); people as usize];
        for at in (0..len_ms).step_by(20) {
            for who in 0..people {
                seen[who as usize].push(audible.heard(from + ms(at), TrackKey(who), Some(level(who))));
            }
        }
        seen
    }

    fn all(seen: &[Passage], what: Passage) -> bool {
        seen.iter().all(|passage| *passage == what)
    }

    #[test]
    fn twelve_are_all_heard_loud_or_not() {
        let mut audible = Audible::new();
        let seen = talk(&mut audible, start(), 5_000, 12, |who| if who < 3 { voice(20) } else { SILENCE });
        assert!(seen.iter().all(|one| all(one, Passage::Pass)));
    }

    #[test]
    fn of_thirty_the_speakers_are_heard_and_the_silent_are_not() {
        let (mut audible, t0) = (Audible::new(), start());
        let level = |who| if who % 10 == 0 { voice(25) } else { SILENCE };
        talk(&mut audible, t0, 1_000, 30, level);
        let seen = talk(&mut audible, t0 + ms(1_000), 5_000, 30, level);
        for (who, one) in seen.iter().enumerate() {
            let want = if who % 10 == 0 { Passage::Pass } else { Passage::LeaveOut };
            assert!(all(one, want), "{who}: {one:?}");
        }
        assert_eq!(audible.left_out(), 27);
    }

    #[test]
    fn the_first_loud_packet_of_somebody_left_out_is_heard_and_said_to_follow_a_gap() {
        let (mut audible, t0) = (Audible::new(), start());
        talk(&mut audible, t0, 3_000, 30, |who| if who < 12 { voice(25) } else { SILENCE });
        // All twelve have stopped for longer than the hold; a thirteenth begins.
        let t1 = t0 + ms(3_000);
        talk(&mut audible, t1, 1_000, 30, |_| SILENCE);
        let now = t1 + ms(1_000);
        assert_eq!(audible.heard(now, TrackKey(20), Some(voice(30))), Passage::Resume);
        assert_eq!(audible.heard(now + ms(20), TrackKey(20), Some(voice(30))), Passage::Pass);
        // A pause between words is no reason to leave the room of the chosen.
        assert_eq!(audible.heard(now + ms(400), TrackKey(20), Some(SILENCE)), Passage::Pass);
    }

    #[test]
    fn a_clearly_louder_one_takes_the_place_of_the_softest_and_equals_take_none() {
        let (mut audible, t0) = (Audible::new(), start());
        let level = |who: u32| if who < 12 { voice(if who == 7 { 50 } else { 30 }) } else { SILENCE };
        talk(&mut audible, t0, 3_000, 13, level);
        let now = t0 + ms(3_000);
        // 50 − 45 is less than 9 dB, 50 − 35 is more.
        assert_eq!(audible.heard(now, TrackKey(12), Some(voice(45))), Passage::LeaveOut);
        let mut at = now;
        let mut took = None;
        for _ in 0..50 {
            at += ms(20);
            if audible.heard(at, TrackKey(12), Some(voice(35))) != Passage::LeaveOut {
                took = Some(at - now);
                break;
            }
        }
        assert!(took.is_some_and(|took| took <= ms(400)), "{took:?}");
        assert_eq!(audible.heard(at, TrackKey(7), Some(voice(50))), Passage::LeaveOut);
        assert_eq!(audible.heard(at, TrackKey(3), Some(voice(30))), Passage::Pass);
    }

    #[test]
    fn everybody_is_heard_again_when_enough_have_gone() {
        let (mut audible, t0) = (Audible::new(), start());
        talk(&mut audible, t0, 2_000, 20, |who| if who < 2 { voice(25) } else { SILENCE });
        for who in 12..20 {
            audible.remove(TrackKey(who));
        }
        let seen = talk(&mut audible, t0 + ms(2_000), 1_000, 12, |_| SILENCE);
        assert!(seen.iter().all(|one| all(&one[1..], Passage::Pass)));
        assert_eq!(seen[5][0], Passage::Resume, "it was left out before");
        // Those who fell silent without a word count no longer either.
        let mut audible = Audible::new();
        talk(&mut audible, t0, 2_000, 20, |_| SILENCE);
        let seen = talk(&mut audible, t0 + ms(4_000), 2_000, 12, |_| SILENCE);
        assert!(seen.iter().all(|one| all(&one[30..], Passage::Pass)));
    }

    #[test]
    fn who_tells_no_level_is_taken_for_a_soft_voice() {
        let (mut audible, t0) = (Audible::new(), start());
        talk(&mut audible, t0, 2_000, 12, |_| SILENCE);
        let mut passed = 0;
        for at in (0..2_000).step_by(20) {
            for who in 0..12 {
                audible.heard(t0 + ms(2_000 + at), TrackKey(who), Some(SILENCE));
            }
            passed += usize::from(audible.heard(t0 + ms(2_000 + at), TrackKey(50), None) != Passage::LeaveOut);
        }
        assert_eq!(passed, 100);
    }

    proptest! {
        /// Whoever speaks how loud: never more than twelve are passed on once more are present, a loud packet is left
        /// out only if twelve others were loud lately, and a gap is told once.
        #[test]
        fn never_more_than_twelve_and_no_speaker_for_a_silent_one(
            steps in proptest::collection::vec((0..40u32, prop_oneof![Just(127u8), 10..60u8], 0..30u64), 400..1_200),
        ) {
            let mut audible = Audible::new();
            let mut now = start();
            // Everybody is present.
            talk(&mut audible, now, 600, 40, |_| SILENCE);
            now += ms(600);
            let mut loud_at = [None; 40];
            let mut out = [true; 40];
            for (who, dbov, wait) in steps {
                now += ms(wait);
                let at = who as usize;
                let loud = dbov < 127;
                let level = if loud { voice(dbov) } else { SILENCE };
                let passage = audible.heard(now, TrackKey(who), Some(level));
                if loud {
                    loud_at[at] = Some(now);
                }
                prop_assert!(audible.tracks.values().filter(|sound| sound.chosen.is_some()).count() <= Audible::MOST);
                if audible.sending > Audible::MOST && passage == Passage::LeaveOut && loud {
                    let rivals = loud_at.iter().enumerate().filter(|(n, rival)| {
                        *n != at && rival.is_some_and(|rival| now - rival <= Audible::HOLD)
                    });
                    prop_assert!(rivals.count() >= Audible::MOST);
                }
                if passage == Passage::Resume {
                    prop_assert!(out[at]);
                }
                out[at] = passage == Passage::LeaveOut;
            }
        }
    }
}
