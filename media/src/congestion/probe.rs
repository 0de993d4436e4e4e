//! Probes: short bursts of padding that find out whether a path carries more than is sent on it.
//!
//! What is sent follows layers, not the path, so the path's rate is seldom seen by media alone. A burst of a few packets
//! leaves at once; the distance of their arrivals is the bottleneck's rate. Nothing is probed for what nobody wants.

use crate::send::TwccResult;
use crate::units::Bitrate;
use std::time::{Duration, Instant};

/// A burst to be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// The rate it asks for.
    pub rate: Bitrate,
    /// Its length, in bytes of RTP packets; as many packets as that takes, and at least [`Probe::PACKETS_MIN`].
    pub bytes: usize,
}

impl Probe {
    /// Fewer packets tell no rate.
    pub const PACKETS_MIN: usize = 5;
    /// How long a burst takes at the rate it asks for.
    const LASTS: Duration = Duration::from_millis(15);
    const BYTES_MIN: u64 = 5_500;
    const BYTES_MAX: u64 = 32_000;

    pub(super) fn of(rate: Bitrate) -> Self {
        let bytes = rate.bytes_in(Self::LASTS).clamp(Self::BYTES_MIN, Self::BYTES_MAX);
        Self { rate, bytes: usize::try_from(bytes).unwrap_or(usize::MAX) }
    }
}

/// A burst that was sent, while its packets are reported.
#[derive(Debug, Clone, Copy)]
pub(super) struct Burst {
    pub rate: Bitrate,
    pub sent_at: Instant,
    first: u16,
    packets: u16,
    arrived: u16,
    first_us: i64,
    last_us: i64,
    /// Bytes that arrived, and those of the packet that arrived first.
    bytes: u64,
    first_bytes: u64,
}

impl Burst {
    pub fn new(now: Instant, rate: Bitrate, first: u16, packets: u16) -> Self {
        Self { rate, sent_at: now, first, packets, arrived: 0, first_us: 0, last_us: 0, bytes: 0, first_bytes: 0 }
    }

    /// Whether a packet is one of the burst's.
    pub fn has(&self, seq: u16) -> bool {
        seq.wrapping_sub(self.first) < self.packets
    }

    /// Whether a packet was sent after the burst.
    pub fn is_before(&self, seq: u16) -> bool {
        let after = seq.wrapping_sub(self.first.wrapping_add(self.packets));
        after < 1 << 15
    }

    /// One of its packets arrived.
    pub fn arrived(&mut self, result: &TwccResult, arrived_us: i64) {
        let bytes = u64::from(result.len) + super::OVERHEAD;
        if self.arrived == 0 || arrived_us < self.first_us {
            (self.first_us, self.first_bytes) = (arrived_us, bytes);
        }
        self.last_us = if self.arrived == 0 { arrived_us } else { self.last_us.max(arrived_us) };
        self.arrived += 1;
        self.bytes += bytes;
    }

    /// Whether all of it was reported as arrived.
    pub fn is_whole(&self) -> bool {
        self.arrived >= self.packets
    }

    /// The rate that the path took it at: what was asked for at most. None where too much of it was lost to say.
    pub fn result(&self) -> Option<Bitrate> {
        if self.arrived < 3 || u32::from(self.arrived) * 5 < u32::from(self.packets) * 4 {
            return None;
        }
        let time = self.last_us.checked_sub(self.first_us)?;
        let took = Bitrate::of(self.bytes - self.first_bytes, Duration::from_micros(time.unsigned_abs()));
        Some(took.min(self.rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    fn start() -> Instant {
        Instant::now()
    }

    fn burst(first: u16, packets: u16, every_us: i64, lost: &[u16]) -> Burst {
        let mut burst = Burst::new(start(), Bitrate::from_kbps(2_000), first, packets);
        for n in (0..packets).filter(|n| !lost.contains(n)) {
            let seq = first.wrapping_add(n);
            assert!(burst.has(seq) && !burst.is_before(seq));
            let result = TwccResult { seq, sent: start(), arrived_us: None, len: 972 };
            burst.arrived(&result, 50_000 + i64::from(n) * every_us);
        }
        assert!(burst.is_before(first.wrapping_add(packets)) && !burst.has(first.wrapping_sub(1)));
        burst
    }

    #[test]
    fn the_distance_of_arrivals_is_the_rate_of_the_bottleneck() {
        // 1,000 bytes with the headers below RTP each 10 ms are 800 kbit/s.
        assert_eq!(burst(65_534, 6, 10_000, &[]).result(), Some(Bitrate::from_kbps(800)));
        assert_eq!(burst(7, 6, 1_000, &[]).result(), Some(Bitrate::from_kbps(2_000)), "no more than was asked for");
        assert_eq!(burst(7, 6, 0, &[]).result(), Some(Bitrate::from_kbps(2_000)));
        assert_eq!(burst(7, 6, 1_000, &[2]).result(), Some(Bitrate::from_kbps(2_000)));
        assert_eq!(burst(7, 6, 1_000, &[2, 5]).result(), None, "a third was lost");
    }

    #[test]
    fn a_burst_is_long_enough_to_be_measured_and_bounded() {
        let len = |kbps| Probe::of(Bitrate::from_kbps(kbps)).bytes;
        assert_eq!((len(100), len(4_000), len(1_000_000)), (5_500, 7_500, 32_000));
    }
}
