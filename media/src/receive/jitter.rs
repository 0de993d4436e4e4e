//! Interarrival jitter of one stream (RFC 3550 §6.4.1, appendix A.8).

use std::time::{Duration, Instant};

/// Smoothed difference between the spacing of packets when sent and when received.
///
/// Whole numbers throughout: RTP ticks, scaled by 16 as in appendix A.8. Silence that the sender's timestamps
/// account for (DTX) is no jitter; a jump of [`Jitter::JUMP`] or more is a sender whose timestamps began anew.
#[derive(Debug, Clone)]
pub struct Jitter {
    clock_hz: u32,
    /// Arrival of the first packet: arrivals are measured from it, so that no rounding adds up.
    base: Option<Instant>,
    /// Arrival minus RTP time of the last packet, in ticks, modulo 2^32.
    transit: u32,
    ticks_x16: u32,
}

impl Jitter {
    /// Differences that are not the network's doing.
    pub const JUMP: Duration = Duration::from_secs(5);

    /// `clock_hz`: RTP clock rate of the stream.
    pub fn new(clock_hz: u32) -> Self {
        Self { clock_hz, base: None, transit: 0, ticks_x16: 0 }
    }

    /// A packet with this RTP time arrived. Repaired packets, and all but the first of a video frame, are better
    /// left out: their delay was made by the sender.
    pub fn observe(&mut self, now: Instant, rtp_time: u32) {
        let first = self.base.is_none();
        let since = now.saturating_duration_since(*self.base.get_or_insert(now));
        let transit = self.ticks(since).wrapping_sub(rtp_time);
        let difference = transit.wrapping_sub(self.transit).cast_signed().unsigned_abs();
        self.transit = transit;
        if first || difference >= self.ticks(Self::JUMP) {
            return;
        }
        self.ticks_x16 = self.ticks_x16.saturating_add(difference).saturating_sub((self.ticks_x16 + 8) >> 4);
    }

    /// In RTP ticks, as a receiver report carries it.
    pub fn ticks_now(&self) -> u32 {
        self.ticks_x16 >> 4
    }

    /// In milliseconds.
    pub fn ms(&self) -> u32 {
        let ms = u64::from(self.ticks_now()) * 1_000 / u64::from(self.clock_hz.max(1));
        u32::try_from(ms).unwrap_or(u32::MAX)
    }

    /// Whole ticks in `since`, modulo 2^32.
    fn ticks(&self, since: Duration) -> u32 {
        let hz = u64::from(self.clock_hz);
        let fraction = u64::from(since.subsec_nanos()) * hz / 1_000_000_000;
        // Cut to 32 bits on purpose: RTP time wraps the same way.
        since.as_secs().wrapping_mul(hz).wrapping_add(fraction) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    fn start() -> Instant {
        Instant::now()
    }

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn an_even_stream_has_none_over_a_day_and_the_wrap() {
        let (t0, mut jitter) = (start(), Jitter::new(90_000));
        let mut rtp_time = u32::MAX - 5_000;
        for n in 0..30 * 3_600 * 24u64 {
            jitter.observe(t0 + Duration::from_nanos(n * 1_000_000_000 / 30), rtp_time);
            rtp_time = rtp_time.wrapping_add(3_000);
        }
        // One tick of rounding each way is possible, never more.
        assert!(jitter.ticks_now() <= 1, "{}", jitter.ticks_now());
    }

    #[test]
    fn one_late_packet_counts_a_sixteenth_and_then_fades() {
        let (t0, mut jitter) = (start(), Jitter::new(48_000));
        jitter.observe(t0, 0);
        jitter.observe(t0 + us(20_000), 960);
        jitter.observe(t0 + us(56_000), 1_920);
        assert_eq!(jitter.ticks_now(), 48, "16 ms are 768 ticks, a sixteenth is 48");
        assert_eq!(jitter.ms(), 1);
    }

    #[test]
    fn alternating_packets_settle_at_their_difference() {
        let (t0, mut jitter) = (start(), Jitter::new(48_000));
        for n in 0..400u64 {
            let late = if n % 2 == 0 { 0 } else { 10_000 };
            jitter.observe(t0 + us(n * 20_000 + late), u32::try_from(n * 960).unwrap());
        }
        assert!((9..=10).contains(&jitter.ms()), "|D| is 10 ms every time, got {}", jitter.ms());
    }

    #[test]
    fn dtx_and_restarted_timestamps_are_no_jitter() {
        let (t0, mut jitter) = (start(), Jitter::new(48_000));
        let mut rtp_time = 7u32;
        let mut at = 0;
        for n in 0..100 {
            jitter.observe(t0 + us(at), rtp_time);
            let silent = n % 3 == 0;
            at += if silent { 400_000 } else { 20_000 };
            rtp_time += if silent { 19_200 } else { 960 };
        }
        jitter.observe(t0 + us(at), rtp_time.wrapping_add(1 << 31));
        jitter.observe(t0 + us(at + 20_000), rtp_time.wrapping_add(1 << 31) + 960);
        assert_eq!(jitter.ms(), 0);
    }

    proptest! {
        /// Against appendix A.8 worked in exact fractions.
        #[test]
        fn agrees_with_exact_arithmetic(delays_us in proptest::collection::vec(0..40_000u64, 2..200), from: u32) {
            let (t0, mut jitter) = (start(), Jitter::new(90_000));
            let mut exact = 0f64;
            for (n, delay) in delays_us.iter().enumerate() {
                let n = n as u64;
                jitter.observe(t0 + us(n * 40_000 + delay), from.wrapping_add(u32::try_from(n * 3_600).unwrap()));
                if n > 0 {
                    let d = (*delay as f64 - delays_us[n as usize - 1] as f64).abs() * 0.09;
                    exact += (d - exact) / 16.0;
                }
            }
            // Off by less than 1 for arrivals in whole ticks, 1/2 for the rounding of each step (at most 1/32,
            // which 16 steps keep), 1 for the cut at the end.
            prop_assert!((f64::from(jitter.ticks_now()) - exact).abs() < 2.5, "{} {exact}", jitter.ticks_now());
        }

        #[test]
        fn anything_goes(
            clock_hz in prop_oneof![Just(0u32), Just(1), Just(u32::MAX), any::<u32>()],
            packets in proptest::collection::vec((0..1u64 << 40, any::<u32>()), 0..50),
        ) {
            let (t0, mut jitter) = (start(), Jitter::new(clock_hz));
            for (at, rtp_time) in packets {
                jitter.observe(t0 + us(at), rtp_time);
                jitter.ms();
            }
        }
    }
}
