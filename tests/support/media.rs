//! Synthetic media: payloads that a depacketizer accepts and that say whose and which they are.

use std::sync::OnceLock;
use std::time::Instant;

/// What the last bytes of every payload hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Which stream, unique in a test run.
    pub stream: u32,
    /// Which packet of it, from 0.
    pub counter: u32,
    /// When it was sent, see [`clock_us`].
    pub sent_us: u32,
}

/// `at` in microseconds on a clock that all clients of this process share; wraps after 71 minutes.
pub fn clock_us(at: Instant) -> u32 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    at.saturating_duration_since(*ORIGIN.get_or_init(|| at)).as_micros() as u32
}

const MAGIC: [u8; 4] = *b"RnTs";
/// Length of a stamp in bytes.
pub const STAMP_BYTES: usize = 16;

impl Stamp {
    fn write(self, payload: &mut Vec<u8>) {
        payload.extend_from_slice(&MAGIC);
        payload.extend_from_slice(&self.stream.to_be_bytes());
        payload.extend_from_slice(&self.counter.to_be_bytes());
        payload.extend_from_slice(&self.sent_us.to_be_bytes());
    }

    /// The stamp at the end of `payload`; `None` if it is not one of ours.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let (_, tail) = payload.split_last_chunk::<STAMP_BYTES>()?;
        let word = |at: usize| tail[at..at + 4].try_into().map(u32::from_be_bytes).ok();
        if tail[..4] != MAGIC {
            return None;
        }
        Some(Self { stream: word(4)?, counter: word(8)?, sent_us: word(12)? })
    }
}

/// Opus-like payload of `bytes`: one TOC byte (RFC 6716 §3.1: configuration 31, CELT fullband 20 ms; mono; one
/// frame), filler, stamp.
pub fn opus(bytes: usize, stamp: Stamp) -> Vec<u8> {
    let mut payload = vec![31 << 3];
    payload.resize(bytes.saturating_sub(STAMP_BYTES).max(1), 0x55);
    stamp.write(&mut payload);
    payload
}

/// One packet of a VP8 frame.
#[derive(Debug, Clone, Copy)]
pub struct Vp8Packet {
    /// First packet of its frame.
    pub first: bool,
    /// The frame is a key frame.
    pub key_frame: bool,
    /// 15-bit picture id.
    pub picture: u16,
}

/// VP8-like payload of `bytes`: payload descriptor with a 15-bit picture id (RFC 7741 §4.2), frame header on the first
/// packet (RFC 6386 §9.1), filler, stamp.
pub fn vp8(bytes: usize, packet: Vp8Packet, stamp: Stamp) -> Vec<u8> {
    const EXTENDED: u8 = 0x80;
    const START_OF_PARTITION: u8 = 0x10;
    const HAS_PICTURE_ID: u8 = 0x80;
    const LONG_PICTURE_ID: u16 = 0x8000;
    let start = if packet.first { START_OF_PARTITION } else { 0 };
    let mut payload = vec![EXTENDED | start, HAS_PICTURE_ID];
    payload.extend_from_slice(&(LONG_PICTURE_ID | (packet.picture & 0x7fff)).to_be_bytes());
    if packet.first {
        // 24 bits, little-endian: not a key frame(1) | version(3) | show(1) | size of the first partition(19).
        let tag: u32 = u32::from(!packet.key_frame) | 1 << 4 | 200 << 5;
        payload.extend_from_slice(&tag.to_le_bytes()[..3]);
        if packet.key_frame {
            payload.extend_from_slice(&[0x9d, 0x01, 0x2a]);
            payload.extend_from_slice(&640u16.to_le_bytes());
            payload.extend_from_slice(&360u16.to_le_bytes());
        }
    }
    let filler = bytes.saturating_sub(STAMP_BYTES).max(payload.len());
    payload.resize(filler, 0xaa);
    stamp.write(&mut payload);
    payload
}

/// Whether a VP8 payload begins a key frame: S set, partition 0, P clear (RFC 7741 §4.2, §4.3).
pub fn vp8_begins_key_frame(payload: &[u8]) -> bool {
    let Some((&[first], mut rest)) = payload.split_first_chunk::<1>() else { return false };
    if first & 0x1f != 0x10 {
        return false;
    }
    if first & 0x80 != 0 {
        let Some((&extension, after)) = rest.split_first() else { return false };
        rest = after;
        if extension & 0x80 != 0 {
            let long = rest.first().is_some_and(|b| b & 0x80 != 0);
            rest = rest.get(if long { 2 } else { 1 }..).unwrap_or_default();
        }
        if extension & 0x40 != 0 {
            rest = rest.get(1..).unwrap_or_default();
        }
        if extension & 0x30 != 0 {
            rest = rest.get(1..).unwrap_or_default();
        }
    }
    rest.first().is_some_and(|header| header & 1 == 0)
}

#[test]
fn payloads_say_whose_they_are() {
    let stamp = Stamp { stream: 7, counter: 0x0102_0304, sent_us: 0x0506_0708 };
    assert_eq!(Stamp::read(&opus(80, stamp)), Some(stamp));
    assert_eq!(opus(80, stamp).len(), 80);
    assert_eq!(Stamp::read(&[0; 80]), None);
    assert_eq!(Stamp::read(&[0; 3]), None);
}

#[test]
fn only_the_first_packet_of_a_key_frame_begins_one() {
    let stamp = Stamp { stream: 1, counter: 1, sent_us: 1 };
    for (first, key_frame) in [(true, true), (true, false), (false, true), (false, false)] {
        let payload = vp8(200, Vp8Packet { first, key_frame, picture: 300 }, stamp);
        assert_eq!(vp8_begins_key_frame(&payload), first && key_frame);
        assert_eq!(Stamp::read(&payload), Some(stamp));
    }
    // RFC 7741 §4.2: the same without an extension, with TL0PICIDX, and with a 7-bit picture id.
    assert!(vp8_begins_key_frame(&[0x10, 0x10, 0, 0]));
    assert!(vp8_begins_key_frame(&[0x90, 0xf0, 0x05, 0x01, 0x20, 0x10, 0, 0]));
    assert!(!vp8_begins_key_frame(&[0x11, 0x10, 0, 0]));
    assert!(!vp8_begins_key_frame(&[0x90]));
}
