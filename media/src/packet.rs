//! What travels through a room: packets whose payload is shared by every reader, never copied for one.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// An RTP payload, shared by fan-out, retransmission rings, and later recorder, GOP cache and relays.
pub type Payload = Arc<[u8]>;

/// Loudness of one audio packet (RFC 6464 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AudioLevel {
    /// 0 is the loudest, 127 silence, in −dBov.
    pub dbov: u8,
    /// The sender's voice activity detector says speech.
    pub voice: bool,
}

/// One RTP packet of a stream, as received and unprotected.
#[derive(Debug, Clone)]
pub struct Packet {
    /// Sequence number, extended: never wraps.
    pub ext_seq: u64,
    /// RTP timestamp at the codec's clock rate, as sent.
    pub rtp_time: u32,
    /// For video, the last packet of a frame; for audio, the first of a talk spurt.
    pub marker: bool,
    /// A decoder can begin with this packet, if it is given the stream's parameter sets where the frame has none.
    pub key_frame: bool,
    /// Loudness, where the sender tells it.
    pub level: Option<AudioLevel>,
    /// When it reached the server.
    pub arrived: Instant,
    /// Payload after padding was removed; empty only for padding-only packets.
    pub payload: Payload,
}

/// Which moment of ours a stream's RTP time stands for: what two streams of one sender are lined up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamClock {
    /// When, on our clock, the sender captured…
    pub at: Instant,
    /// …what carries this RTP time.
    pub rtp_time: u32,
    /// The sender's reports say so. `false`: guessed from arrivals, good enough for one stream alone.
    pub synced: bool,
}

impl StreamClock {
    /// The RTP time at `now`, wrapped like the sender's.
    pub fn rtp_time_at(&self, now: Instant, clock_hz: u32) -> u32 {
        let (since, ahead) = match now.checked_duration_since(self.at) {
            Some(since) => (since, true),
            None => (self.at.saturating_duration_since(now), false),
        };
        let hz = u64::from(clock_hz);
        let fraction = u64::from(since.subsec_nanos()) * hz / 1_000_000_000;
        // Cut to 32 bits on purpose: RTP time wraps.
        let ticks = since.as_secs().wrapping_mul(hz).wrapping_add(fraction) as u32;
        if ahead { self.rtp_time.wrapping_add(ticks) } else { self.rtp_time.wrapping_sub(ticks) }
    }

    /// When `rtp_time` was captured; it must be less than 2^31 ticks away. `None` before the clock began.
    pub fn instant_of(&self, rtp_time: u32, clock_hz: u32) -> Option<Instant> {
        let ticks = rtp_time.wrapping_sub(self.rtp_time).cast_signed();
        let nanos = u64::from(ticks.unsigned_abs()) * 1_000_000_000 / u64::from(clock_hz.max(1));
        let away = Duration::from_nanos(nanos);
        if ticks < 0 { self.at.checked_sub(away) } else { self.at.checked_add(away) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    fn rtp_time_and_instants_convert_both_ways_across_the_wrap() {
        let at = Instant::now() + Duration::from_secs(100);
        let clock = StreamClock { at, rtp_time: u32::MAX - 89_999, synced: true };
        assert_eq!(clock.rtp_time_at(at + Duration::from_secs(2), 90_000), 90_000);
        assert_eq!(clock.instant_of(90_000, 90_000), Some(at + Duration::from_secs(2)));
        assert_eq!(clock.rtp_time_at(at - Duration::from_millis(500), 90_000), u32::MAX - 134_999);
        assert_eq!(clock.instant_of(u32::MAX - 134_999, 90_000), Some(at - Duration::from_millis(500)));
        assert_eq!(clock.rtp_time_at(at + Duration::from_secs(60 * 3_600 * 24), 48_000), {
            (u64::from(u32::MAX - 89_999) + 48_000 * 60 * 3_600 * 24) as u32
        });
    }
}
