//! What can be sent again: a ring of the last packets of a stream, whose payloads are shared (RFC 4588).
//!
//! Its size is a time: it grows until a packet is kept for as long as was asked for, whatever the rate. It never shrinks;
//! a rate that fell keeps packets for longer, but none is sent again after [`TOO_OLD`].

use super::pictures::PictureNumbers;
use crate::packet::Payload;
use std::time::{Duration, Instant};

/// Bounds of a ring's size in packets: 0.5 s of 1.2 Mbit/s, and a second of 75 Mbit/s.
const PACKETS_MIN: usize = 64;
const PACKETS_MAX: usize = 8192;
/// No decoder waits for so long.
const TOO_OLD: Duration = Duration::from_secs(3);

/// A packet is not sent again sooner than this after its last retransmission, however short the round trip.
const AGAIN_MIN: Duration = Duration::from_millis(10);
/// Nor does a broken measurement keep it back longer.
const AGAIN_MAX: Duration = Duration::from_millis(500);
/// While no round trip was measured.
const AGAIN_UNKNOWN: Duration = Duration::from_millis(50);

/// A packet that can be sent again, with the numbers it was sent with.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub payload: Payload,
    pub rtp_time: u32,
    pub marker: bool,
    pub numbers: PictureNumbers,
}

/// It was sent again, so that another request may be for what is on its way.
const AGAIN: u32 = 1 << 31;

#[derive(Debug, Clone)]
struct Entry {
    payload: Option<Payload>,
    /// Low 32 bits of the extended sequence number.
    seq: u32,
    rtp_time: u32,
    /// Milliseconds after the ring's epoch, wrapped to 31 bits, when it was sent last; and [`AGAIN`].
    sent: u32,
    picture_id: u16,
    tl0: u8,
    marker: bool,
}

impl Entry {
    const EMPTY: Self = Self { payload: None, seq: 0, rtp_time: 0, sent: 0, picture_id: 0, tl0: 0, marker: false };

    /// Since it was sent last; up to 12 days. What was sent later than now is new.
    fn age_ms(&self, now_ms: u32) -> u32 {
        let age_ms = now_ms.wrapping_sub(self.sent) & !AGAIN;
        if age_ms < AGAIN / 2 { age_ms } else { 0 }
    }
}

/// Why nothing is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotKept {
    /// Never sent, or already overwritten.
    Unknown,
    /// Sent again less than a round trip ago: that one is still on its way.
    TooSoon,
}

/// The last packets of one stream. 32 bytes an entry; nothing is allocated before the first packet.
#[derive(Debug)]
pub(super) struct RtxRing {
    /// As many as a power of two, or none.
    entries: Vec<Entry>,
    kept_ms: u32,
    epoch: Option<Instant>,
}

impl RtxRing {
    /// `kept`: for how long a packet can be sent again, at least, up to [`TOO_OLD`].
    pub fn new(kept: Duration) -> Self {
        Self { entries: Vec::new(), kept_ms: kept.min(TOO_OLD).as_millis() as u32, epoch: None }
    }

    /// Makes room, so that no packet has to until they come faster than [`PACKETS_MIN`] in the time to be kept.
    pub fn allocate(&mut self, now: Instant) {
        self.epoch.get_or_insert(now);
        if self.entries.is_empty() {
            self.entries.resize(PACKETS_MIN, Entry::EMPTY);
        }
    }

    fn ms(&self, now: Instant) -> u32 {
        self.epoch.map_or(0, |epoch| now.saturating_duration_since(epoch).as_millis() as u32) & !AGAIN
    }

    /// Keeps a packet that is sent now, in the place of an older one.
    pub fn keep(
        &mut self,
        now: Instant,
        ext_seq: u64,
        rtp_time: u32,
        marker: bool,
        payload: &Payload,
        numbers: PictureNumbers,
    ) {
        let (sent, kept_ms) = (self.ms(now), self.kept_ms);
        let young = |old: &mut Entry| old.payload.is_some() && old.age_ms(sent) < kept_ms;
        while self.entries.len() < PACKETS_MAX && self.entry(ext_seq).is_some_and(young) {
            self.grow();
        }
        if let Some(entry) = self.entry(ext_seq) {
            let (payload, PictureNumbers { id: picture_id, tl0 }) = (Some(payload.clone()), numbers);
            *entry = Entry { payload, seq: ext_seq as u32, rtp_time, sent, picture_id, tl0, marker };
        }
    }

    /// Doubles it: each packet has its place by the low bits of its number.
    #[cold]
    fn grow(&mut self) {
        let size = self.entries.len() * 2;
        let before = std::mem::replace(&mut self.entries, vec![Entry::EMPTY; size]);
        for entry in before.into_iter().filter(|entry| entry.payload.is_some()) {
            let place = entry.seq as usize & (size - 1);
            self.entries[place] = entry;
        }
    }

    /// Looks a packet up to send it again, at most once per round trip.
    pub fn again(&mut self, now: Instant, ext_seq: u64, rtt: Option<Duration>) -> Result<Kept, NotKept> {
        let now_ms = self.ms(now);
        let spacing = rtt.map_or(AGAIN_UNKNOWN, |rtt| rtt.clamp(AGAIN_MIN, AGAIN_MAX)).as_millis() as u32;
        let entry = self.entry(ext_seq).filter(|e| e.seq == ext_seq as u32).ok_or(NotKept::Unknown)?;
        let payload = entry.payload.clone().ok_or(NotKept::Unknown)?;
        let age_ms = entry.age_ms(now_ms);
        if entry.sent & AGAIN != 0 && age_ms < spacing {
            return Err(NotKept::TooSoon);
        }
        if age_ms > TOO_OLD.as_millis() as u32 {
            entry.payload = None;
            return Err(NotKept::Unknown);
        }
        entry.sent = now_ms | AGAIN;
        let numbers = PictureNumbers { id: entry.picture_id, tl0: entry.tl0 };
        Ok(Kept { payload, rtp_time: entry.rtp_time, marker: entry.marker, numbers })
    }

    /// A packet that is kept, for other ends than repair.
    pub fn peek(&mut self, ext_seq: u64) -> Option<Kept> {
        let entry = self.entry(ext_seq).filter(|e| e.seq == ext_seq as u32)?;
        let numbers = PictureNumbers { id: entry.picture_id, tl0: entry.tl0 };
        Some(Kept { payload: entry.payload.clone()?, rtp_time: entry.rtp_time, marker: entry.marker, numbers })
    }

    /// Lets go of all payloads; the room stays.
    pub fn clear(&mut self) {
        self.entries.iter_mut().for_each(|e| e.payload = None);
    }

    fn entry(&mut self, ext_seq: u64) -> Option<&mut Entry> {
        let mask = (self.entries.len() as u64).checked_sub(1)?;
        self.entries.get_mut((ext_seq & mask) as usize)
    }
}

/// The extended number of a sequence number that is asked for: the latest sent one with these 16 bits.
///
/// `next`: the number of the packet that will be sent next.
pub(super) fn extend(seq: u16, next: u64) -> Option<u64> {
    let newest = next.checked_sub(1)?;
    newest.checked_sub(u64::from((newest as u16).wrapping_sub(seq)))
}

#[cfg(test)]
mod tests {
    use super::super::origin;
    use super::*;

    fn kept(i: u64) -> Kept {
        let numbers = PictureNumbers { id: i as u16 & 0x7fff, tl0: i as u8 };
        Kept { payload: payload(i), rtp_time: i as u32, marker: i.is_multiple_of(2), numbers }
    }

    fn keep(ring: &mut RtxRing, now: Instant, i: u64) {
        let Kept { payload, rtp_time, marker, numbers } = kept(i);
        ring.keep(now, i, rtp_time, marker, &payload, numbers);
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn payload(i: u64) -> Payload {
        i.to_be_bytes().as_slice().into()
    }

    #[test]
    fn an_entry_is_32_bytes() {
        assert_eq!(std::mem::size_of::<Entry>(), 32);
    }

    #[test]
    fn what_is_kept_comes_back_as_it_was_and_nothing_else() {
        let now = origin();
        let mut ring = RtxRing::new(SECOND);
        assert_eq!(ring.again(now, 5, None).err(), Some(NotKept::Unknown), "nothing was allocated");
        keep(&mut ring, now, 5);
        assert_eq!(ring.again(now, 5, None).err(), Some(NotKept::Unknown));
        ring.allocate(now);
        let first = (1u64 << 32) - 50;
        (first..first + 100).for_each(|i| keep(&mut ring, now, i));
        for seq in first..first + 100 {
            let (again, want) = (ring.again(now, seq, None).unwrap(), kept(seq));
            assert_eq!((again.payload, again.rtp_time, again.marker), (want.payload, want.rtp_time, want.marker));
            assert_eq!(again.numbers, want.numbers);
        }
        for seq in (first - 100..first).chain(first + 100..first + 200) {
            assert_eq!(ring.again(now, seq, None).err(), Some(NotKept::Unknown), "{seq}");
        }
        ring.clear();
        assert_eq!(ring.again(now, first + 99, None).err(), Some(NotKept::Unknown));
    }

    /// At any rate a packet can be sent again for a second; the ring is no larger than that takes.
    #[test]
    fn its_size_is_a_time() {
        let t0 = origin();
        for (per_s, packets_max) in [(20u64, 64), (130, 256), (1_000, 1_024), (5_000, 8_192)] {
            let mut ring = RtxRing::new(SECOND);
            ring.allocate(t0);
            let at = |n: u64| t0 + SECOND * n as u32 / per_s as u32;
            let count = per_s * 4;
            (0..count).for_each(|n| keep(&mut ring, at(n), n));
            let now = at(count);
            for n in count - per_s + 1..count {
                assert!(ring.again(now, n, None).is_ok(), "{per_s} a second, {n}");
            }
            assert!(ring.entries.len() <= packets_max, "{per_s} a second: {}", ring.entries.len());
        }
        // More than the bound holds: the newest of them.
        let mut ring = RtxRing::new(SECOND);
        ring.allocate(t0);
        (0..20_000).for_each(|n| keep(&mut ring, t0, n));
        assert_eq!(ring.entries.len(), PACKETS_MAX);
        assert!(ring.again(t0, 20_000 - PACKETS_MAX as u64, None).is_ok());
        assert!(ring.again(t0, 20_000 - PACKETS_MAX as u64 - 1, None).is_err());
    }

    #[test]
    fn what_no_decoder_waits_for_is_not_sent_again() {
        let t0 = origin();
        let mut ring = RtxRing::new(SECOND);
        ring.allocate(t0);
        (0..3).for_each(|n| keep(&mut ring, t0, n));
        assert!(ring.again(t0 + TOO_OLD, 1, None).is_ok());
        keep(&mut ring, t0 + SECOND, 3);
        assert!(ring.again(t0, 3, None).is_ok(), "a time that runs back makes nothing old");
        let late = t0 + TOO_OLD + Duration::from_millis(1);
        assert_eq!(ring.again(late, 2, None).err(), Some(NotKept::Unknown));
    }

    #[test]
    fn once_per_round_trip_and_10_ms() {
        let t0 = origin();
        let ms = |ms| t0 + Duration::from_millis(ms);
        let mut ring = RtxRing::new(SECOND);
        ring.allocate(t0);
        keep(&mut ring, t0, 1);
        let rtt = Some(Duration::from_millis(80));
        assert!(ring.again(ms(3), 1, rtt).is_ok(), "the first request is for what was lost");
        assert_eq!(ring.again(ms(82), 1, rtt).err(), Some(NotKept::TooSoon));
        assert!(ring.again(ms(83), 1, rtt).is_ok());
        let short = Some(Duration::from_micros(100));
        assert_eq!(ring.again(ms(92), 1, short).err(), Some(NotKept::TooSoon));
        assert!(ring.again(ms(93), 1, short).is_ok());
    }

    #[test]
    fn numbers_asked_for_are_extended_backwards() {
        assert_eq!(extend(0, 0), None);
        assert_eq!(extend(5, 6), Some(5));
        assert_eq!(extend(6, 6), None, "not sent yet, and nothing so long ago");
        assert_eq!(extend(65_535, 65_536 + 3), Some(65_535));
        assert_eq!(extend(3, 65_536 * 7 + 3), Some(65_536 * 6 + 3));
    }
}
