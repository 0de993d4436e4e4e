//! What a publisher sends.

use rondo_media::congestion::OVERHEAD;
use rondo_media::packet::{Packet, Payload};
use rondo_media::units::Bitrate;
use std::time::Instant;

/// Header with extensions, tag, and headers below, of every packet here.
const HEADERS: usize = 28 + 16 + OVERHEAD as usize;
const PAYLOAD_MAX: usize = 1_150;
/// 40 kbit/s in packets of 20 ms.
pub const SOUND_BYTES: usize = 100 - HEADERS;
pub const SOUND: Bitrate = Bitrate::from_kbps(40);
pub const FRAME_MS: u64 = 33;
/// What a key frame is larger than others by.
const KEY_FRAME: u64 = 3;
/// From the request of a key frame until the publisher has made one.
pub const KEY_FRAME_MS: u64 = 100;

/// One layer as the publisher sends it.
pub struct Layer {
    pub bps: u64,
    owed_bits: u64,
    next_seq: u64,
    frames: u32,
    /// It makes a key frame then.
    pub key_at_ms: Option<u64>,
}

impl Layer {
    pub fn new(kbps: u64) -> Self {
        Self { bps: kbps * 1_000, owed_bits: 0, next_seq: 70_000, frames: 0, key_at_ms: None }
    }

    /// What an estimate leaves beside sound.
    pub fn follow(&mut self, target: Bitrate, most: Bitrate) {
        self.bps = target.saturating_sub(SOUND).min(most).max(Bitrate::from_kbps(50)).bps();
    }

    pub fn frame(&mut self, now: Instant, ms: u64) -> Vec<Packet> {
        let key = self.frames == 0 || self.key_at_ms.is_some_and(|at| ms >= at);
        if key {
            self.key_at_ms = None;
        }
        self.owed_bits += self.bps * FRAME_MS / 1_000;
        // What a key frame takes more, the next frames take less.
        let bits = if key { self.owed_bits * KEY_FRAME } else { self.owed_bits / 2 + self.bps * FRAME_MS / 2_000 };
        let bits = bits.min(if key { u64::MAX } else { self.owed_bits });
        let bytes = (bits / 8) as usize;
        self.owed_bits = self.owed_bits.saturating_sub(bits);
        let count = bytes.div_ceil(PAYLOAD_MAX + HEADERS).max(1);
        let len = (bytes / count).saturating_sub(HEADERS).max(10);
        let [high, low] = (self.frames as u16 | 0x8000).to_be_bytes();
        let (first, rtp_time) = (self.next_seq, self.frames.wrapping_mul(2_970));
        self.frames += 1;
        self.next_seq += count as u64;
        let packet = |n: usize| {
            let start = if n == 0 { 0x90 } else { 0x80 };
            let mut payload = vec![start, 0xe0, high, low, self.frames as u8, 0, u8::from(!key)];
            payload.resize(len, 7);
            let (ext_seq, marker, key_frame) = (first + n as u64, n + 1 == count, key && n == 0);
            let payload = Payload::from(payload);
            Packet { ext_seq, rtp_time, marker, key_frame, level: None, arrived: now, payload }
        };
        (0..count).map(packet).collect()
    }
}
