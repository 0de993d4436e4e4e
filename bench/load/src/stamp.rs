//! Synthetic media: payloads that a depacketizer accepts, and that say whose they are, which they are and when they left.

use std::time::Duration;

const MAGIC: [u8; 4] = *b"RnLd";
/// Length of a stamp in bytes.
pub const STAMP_BYTES: usize = 20;
/// The shortest payload: headers of a key frame's first packet, and the stamp.
pub const PAYLOAD_BYTES_MIN: usize = STAMP_BYTES + 16;

/// What the last bytes of every payload hold: magic, stream, counter, time; numbers in network order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Which stream, unique in a run.
    pub stream: u32,
    /// Which packet of it, from 0.
    pub counter: u32,
    /// When it was made, just before it was encrypted and sent: since 1970, in ns, by the clock that stamps received packets.
    pub sent_ns: u64,
}

impl Stamp {
    fn write(self, payload: &mut [u8]) {
        let Some((_, tail)) = payload.split_last_chunk_mut::<STAMP_BYTES>() else { return };
        tail[..4].copy_from_slice(&MAGIC);
        tail[4..8].copy_from_slice(&self.stream.to_be_bytes());
        tail[8..12].copy_from_slice(&self.counter.to_be_bytes());
        tail[12..].copy_from_slice(&self.sent_ns.to_be_bytes());
    }

    /// The stamp at the end of `payload`; `None` if it is not one of ours.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let (_, tail) = payload.split_last_chunk::<STAMP_BYTES>()?;
        let (magic, rest) = tail.split_first_chunk::<4>()?;
        let (stream, rest) = rest.split_first_chunk::<4>()?;
        let (counter, rest) = rest.split_first_chunk::<4>()?;
        let sent_ns = u64::from_be_bytes(*rest.first_chunk::<8>()?);
        (*magic == MAGIC).then(|| Self {
            stream: u32::from_be_bytes(*stream),
            counter: u32::from_be_bytes(*counter),
            sent_ns,
        })
    }

    /// How long after the stamp `received` (since 1970) was; zero if a stepped clock put it before.
    pub fn age(self, received: Duration) -> Duration {
        received.saturating_sub(Duration::from_nanos(self.sent_ns))
    }
}

/// Filler that does not compress, different in every run and packet.
fn filler(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut payload = vec![0; bytes.max(PAYLOAD_BYTES_MIN)];
    for chunk in payload.chunks_mut(8) {
        chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
    }
    payload
}

/// Opus-like payload of `bytes`: a TOC byte (RFC 6716 §3.1: configuration 31, CELT fullband 20 ms; stereo; one frame),
/// filler, stamp.
pub fn opus(bytes: usize, seed: u64, stamp: Stamp) -> Vec<u8> {
    let mut payload = filler(bytes, seed ^ u64::from(stamp.counter));
    payload[0] = 31 << 3 | 1 << 2;
    stamp.write(&mut payload);
    payload
}

/// One packet of a VP8 frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vp8Packet {
    /// First packet of its frame.
    pub first: bool,
    /// The frame is a key frame.
    pub key_frame: bool,
    /// Picture id, modulo 2^15.
    pub picture: u16,
}

/// VP8-like payload of `bytes`: payload descriptor with a 15-bit picture id (RFC 7741 §4.2), frame header on the first
/// packet (RFC 6386 §9.1; a key frame says 1280 × 720), filler, stamp.
pub fn vp8(bytes: usize, seed: u64, packet: Vp8Packet, stamp: Stamp) -> Vec<u8> {
    let mut payload = filler(bytes, seed ^ u64::from(stamp.counter));
    let [high, low] = packet.picture.to_be_bytes();
    // X | S; I; M | picture id.
    payload[..4].copy_from_slice(&[0x80 | u8::from(packet.first) << 4, 0x80, 0x80 | high, low]);
    if packet.first {
        // 24 bits, little-endian: not a key frame(1) | version(3) | show(1) | size of the first partition(19).
        let tag: u32 = u32::from(!packet.key_frame) | 1 << 4 | 200 << 5;
        payload[4..7].copy_from_slice(&tag.to_le_bytes()[..3]);
        if packet.key_frame {
            payload[7..10].copy_from_slice(&[0x9d, 0x01, 0x2a]);
            payload[10..12].copy_from_slice(&1280u16.to_le_bytes());
            payload[12..14].copy_from_slice(&720u16.to_le_bytes());
        }
    }
    stamp.write(&mut payload);
    payload
}

/// A stream of numbers that follows from its seed alone (SplitMix64).
#[derive(Debug, Clone, Copy)]
pub struct Random(u64);

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { stream: 7, counter: 0x0102_0304, sent_ns: 0x0506_0708_090a_0b0c };

    #[test]
    fn payloads_say_whose_they_are_and_when_they_left() {
        let packet = Vp8Packet { first: true, key_frame: true, picture: 300 };
        for bytes in [0, PAYLOAD_BYTES_MIN, 100, 1_150] {
            for payload in [opus(bytes, 1, STAMP), vp8(bytes, 1, packet, STAMP)] {
                assert_eq!(payload.len(), bytes.max(PAYLOAD_BYTES_MIN));
                assert_eq!(Stamp::read(&payload), Some(STAMP));
            }
        }
        assert_eq!(Stamp::read(&[0; 100]), None);
        assert_eq!(Stamp::read(&[0; STAMP_BYTES - 1]), None);
    }

    #[test]
    fn an_age_is_never_negative() {
        let stamp = Stamp { sent_ns: 5_000, ..STAMP };
        assert_eq!(stamp.age(Duration::from_nanos(5_250)), Duration::from_nanos(250));
        assert_eq!(stamp.age(Duration::from_nanos(4_000)), Duration::ZERO);
    }

    /// Bytes by RFC 7741 §4.2 and §4.3, RFC 6386 §9.1.
    #[test]
    fn vp8_headers_are_the_rfcs() {
        let of = |first, key_frame| vp8(200, 1, Vp8Packet { first, key_frame, picture: 0x1234 }, STAMP);
        assert_eq!(of(true, true)[..14], [0x90, 0x80, 0x92, 0x34, 0x10, 0x19, 0, 0x9d, 1, 0x2a, 0, 5, 0xd0, 2]);
        assert_eq!(of(true, false)[..7], [0x90, 0x80, 0x92, 0x34, 0x11, 0x19, 0]);
        assert_eq!(of(false, true)[..4], [0x80, 0x80, 0x92, 0x34]);
    }

    /// The first outputs of SplitMix64 for the seed 1234567, as its author's reference code prints them.
    #[test]
    fn the_random_stream_is_splitmix64() {
        let mut random = Random::new(1_234_567);
        assert_eq!([random.next(), random.next()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }
}
