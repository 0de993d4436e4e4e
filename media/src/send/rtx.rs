//! What can be sent again: a ring of the last packets of a stream, whose payloads are shared (RFC 4588).

use super::pictures::PictureNumbers;
use crate::packet::Payload;
use std::time::{Duration, Instant};

/// Bounds of a ring's size in packets.
const PACKETS_MIN: usize = 16;
const PACKETS_MAX: usize = 8192;

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

#[derive(Debug, Clone)]
struct Entry {
    payload: Option<Payload>,
    /// Low 32 bits of the extended sequence number.
    seq: u32,
    rtp_time: u32,
    /// Milliseconds after the ring's epoch of the last retransmission, plus one; 0: none yet.
    again_ms: u32,
    picture_id: u16,
    tl0: u8,
    marker: bool,
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
    entries: Vec<Entry>,
    packets: usize,
    epoch: Option<Instant>,
}

impl RtxRing {
    /// `packets`: rounded up to a power of two.
    pub fn new(packets: usize) -> Self {
        let packets = packets.clamp(PACKETS_MIN, PACKETS_MAX).next_power_of_two();
        Self { entries: Vec::new(), packets, epoch: None }
    }

    /// Makes room, so that no packet has to.
    pub fn allocate(&mut self, now: Instant) {
        self.epoch.get_or_insert(now);
        let empty = Entry { payload: None, seq: 0, rtp_time: 0, again_ms: 0, picture_id: 0, tl0: 0, marker: false };
        self.entries.resize(self.packets, empty);
    }

    /// Keeps a packet that was sent, in the place of the one so many packets older.
    pub fn keep(&mut self, ext_seq: u64, rtp_time: u32, marker: bool, payload: &Payload, numbers: PictureNumbers) {
        if let Some(entry) = self.entry(ext_seq) {
            let (payload, PictureNumbers { id: picture_id, tl0 }) = (Some(payload.clone()), numbers);
            *entry = Entry { payload, seq: ext_seq as u32, rtp_time, again_ms: 0, picture_id, tl0, marker };
        }
    }

    /// Looks a packet up to send it again, at most once per round trip.
    pub fn again(&mut self, now: Instant, ext_seq: u64, rtt: Option<Duration>) -> Result<Kept, NotKept> {
        let epoch = self.epoch.ok_or(NotKept::Unknown)?;
        let again_ms = now.saturating_duration_since(epoch).as_millis() as u32;
        let spacing = rtt.map_or(AGAIN_UNKNOWN, |rtt| rtt.clamp(AGAIN_MIN, AGAIN_MAX)).as_millis() as u32;
        let entry = self.entry(ext_seq).filter(|e| e.seq == ext_seq as u32).ok_or(NotKept::Unknown)?;
        let payload = entry.payload.clone().ok_or(NotKept::Unknown)?;
        if entry.again_ms != 0 && again_ms.wrapping_sub(entry.again_ms - 1) < spacing {
            return Err(NotKept::TooSoon);
        }
        entry.again_ms = again_ms.saturating_add(1);
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
        let mask = self.packets as u64 - 1;
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

    fn keep(ring: &mut RtxRing, i: u64) {
        let Kept { payload, rtp_time, marker, numbers } = kept(i);
        ring.keep(i, rtp_time, marker, &payload, numbers);
    }

    fn payload(i: u64) -> Payload {
        i.to_be_bytes().as_slice().into()
    }

    #[test]
    fn an_entry_is_32_bytes() {
        assert_eq!(std::mem::size_of::<Entry>(), 32);
    }

    #[test]
    fn the_last_packets_are_kept_and_others_unknown() {
        let now = origin();
        let mut ring = RtxRing::new(20);
        assert_eq!(ring.again(now, 5, None).err(), Some(NotKept::Unknown), "nothing was allocated");
        keep(&mut ring, 5);
        assert_eq!(ring.again(now, 5, None).err(), Some(NotKept::Unknown));
        ring.allocate(now);
        let first = (1u64 << 32) - 50;
        (first..first + 100).for_each(|i| keep(&mut ring, i));
        for seq in first + 68..first + 100 {
            let (again, want) = (ring.again(now, seq, None).unwrap(), kept(seq));
            assert_eq!((again.payload, again.rtp_time, again.marker), (want.payload, want.rtp_time, want.marker));
            assert_eq!(again.numbers, want.numbers);
        }
        for seq in (first..first + 68).chain(first + 100..first + 200) {
            assert_eq!(ring.again(now, seq, None).err(), Some(NotKept::Unknown), "{seq}");
        }
        ring.clear();
        assert_eq!(ring.again(now, first + 99, None).err(), Some(NotKept::Unknown));
    }

    #[test]
    fn once_per_round_trip_and_10_ms() {
        let t0 = origin();
        let ms = |ms| t0 + Duration::from_millis(ms);
        let mut ring = RtxRing::new(16);
        ring.allocate(t0);
        keep(&mut ring, 1);
        let rtt = Some(Duration::from_millis(80));
        assert!(ring.again(ms(3), 1, rtt).is_ok());
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
