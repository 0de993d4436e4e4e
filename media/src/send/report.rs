//! Sender reports of one stream, and what the peer reports of it (RFC 3550 §6.4).

use super::times::ticks;
use crate::packet::StreamClock;
use crate::units::WallClock;
use crate::wire::rtcp::{ReportBlock, SenderInfo};
use std::time::{Duration, Instant};

/// Reports follow each other this closely after a start. Browsers put sound and picture together from the second
/// report of each stream on; and the first round trip time comes from a report.
const INTERVAL_EARLY: Duration = Duration::from_secs(1);
const EARLY: Duration = Duration::from_secs(5);
/// Then this: clocks that differ by 100 ppm drift 0.5 ms apart, and RFC 3550 §6.2 has 5 s as its minimum.
const INTERVAL: Duration = Duration::from_secs(5);

/// A round trip longer than this is a broken report.
const RTT_MAX: Duration = Duration::from_secs(30);

/// When a stream reports, and its counters.
#[derive(Debug, Clone, Default)]
pub(super) struct Reporter {
    packets: u32,
    octets: u32,
    clock: Option<StreamClock>,
    /// Packets were sent since the last report; a silent stream does not report.
    sent: bool,
    ever: bool,
    /// The next report is not due by time but now.
    urgent: bool,
    started: Option<Instant>,
    next: Option<Instant>,
}

impl Reporter {
    /// Another source, or the same after a pause: its clock has to be told at once.
    pub fn restart(&mut self) {
        (self.clock, self.started, self.urgent) = (None, None, true);
    }

    /// The source's clock, as of now. When it becomes synchronised that has to be told at once.
    pub fn clock(&mut self, clock: StreamClock) {
        let was = self.clock.replace(clock);
        self.urgent |= clock.synced && !was.is_some_and(|was| was.synced);
    }

    /// A packet was sent.
    pub fn sent(&mut self, now: Instant, payload_len: usize) {
        self.packets = self.packets.wrapping_add(1);
        self.octets = self.octets.wrapping_add(payload_len as u32);
        (self.sent, self.ever) = (true, true);
        self.started.get_or_insert(now);
    }

    /// Whether anything was ever sent.
    pub fn has_sent(&self) -> bool {
        self.ever
    }

    /// When the next report is due, if packets were sent since the last.
    pub fn due(&self) -> Option<Instant> {
        let started = self.started.filter(|_| self.sent && self.clock.is_some())?;
        if self.urgent { Some(started) } else { self.next.or(Some(started)) }
    }

    /// The report for this moment, as sent; the next is planned.
    ///
    /// `offset`: what is added to the source's timestamps; `clock_hz`: rate of its clock.
    pub fn report(&mut self, now: Instant, wall: &WallClock, offset: u32, clock_hz: u32) -> Option<SenderInfo> {
        let clock = self.clock?;
        let early = self.started.is_some_and(|started| now.saturating_duration_since(started) < EARLY);
        self.next = Some(now + if early { INTERVAL_EARLY } else { INTERVAL });
        (self.sent, self.urgent) = (false, false);
        let rtp_time = rtp_time_at(now, clock, clock_hz).wrapping_add(offset);
        Some(SenderInfo { ntp: wall.ntp(now), rtp_time, packets: self.packets, octets: self.octets })
    }
}

/// The source's RTP clock at a moment, before or after the one that is known.
fn rtp_time_at(now: Instant, clock: StreamClock, clock_hz: u32) -> u32 {
    match now.checked_duration_since(clock.at) {
        Some(later) => clock.rtp_time.wrapping_add(ticks(later, clock_hz)),
        None => clock.rtp_time.wrapping_sub(ticks(clock.at.saturating_duration_since(now), clock_hz)),
    }
}

/// What the peer says of one stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reception {
    /// In 1/256.
    pub fraction_lost: u8,
    /// Since its beginning; below zero where duplicates outnumber losses.
    pub lost: i32,
    pub jitter: Duration,
    pub rtt: Option<Duration>,
}

impl Reception {
    /// Reads a block; the round trip is now − LSR − DLSR (RFC 3550 §6.4.1), where there was a report to answer.
    pub fn read(now: Instant, wall: &WallClock, block: &ReportBlock, clock_hz: u32) -> Self {
        let jitter = Duration::from_nanos(u64::from(block.jitter) * 1_000_000_000 / u64::from(clock_hz.max(1)));
        let middle = (wall.ntp(now) >> 16) as u32;
        // In 1/65,536 s. A peer that rounds may come out below zero: then the round trip is shorter than its error.
        let rtt = middle.wrapping_sub(block.last_sr).wrapping_sub(block.delay_since_last_sr) as i32;
        let rtt = Duration::from_nanos((u64::from(rtt.max(0).unsigned_abs()) * 1_000_000_000) >> 16);
        let rtt = (block.last_sr != 0 && rtt <= RTT_MAX).then_some(rtt);
        Self { fraction_lost: block.fraction_lost, lost: block.lost, jitter, rtt }
    }
}

#[cfg(test)]
mod tests {
    use super::super::origin;
    use super::*;

    fn wall(at: Instant) -> WallClock {
        WallClock::new(at, Duration::from_secs(1_700_000_000))
    }

    /// The example of RFC 3550 §6.4.1, figure 2: A = 0xb710:8000, DLSR = 0x0005:4000, LSR = 0xb705:2000 give 6.125 s.
    #[test]
    fn the_round_trip_of_rfc_3550_figure_2() {
        let t0 = origin();
        // The NTP time whose middle is 0xb7108000: 0xb710 whole seconds of the low 16 bits, and a half.
        let ntp_seconds = 0x1_0000 * 50_000 + 0xb710u64;
        let wall = WallClock::new(t0, Duration::from_millis((ntp_seconds - 2_208_988_800) * 1_000 + 500));
        let block = ReportBlock {
            last_sr: 0xb705_2000,
            delay_since_last_sr: 0x0005_4000,
            jitter: 900,
            fraction_lost: 64,
            ..ReportBlock::default()
        };
        let reception = Reception::read(t0, &wall, &block, 90_000);
        assert_eq!(reception.rtt, Some(Duration::from_millis(6_125)));
        assert_eq!((reception.jitter, reception.fraction_lost), (Duration::from_millis(10), 64));
        let none = Reception::read(t0, &wall, &ReportBlock { last_sr: 0, ..block }, 90_000);
        assert_eq!(none.rtt, None);
        let rounded = ReportBlock { delay_since_last_sr: 0x000b_6001, ..block };
        assert_eq!(Reception::read(t0, &wall, &rounded, 90_000).rtt, Some(Duration::ZERO));
        let nonsense = ReportBlock { last_sr: 0x1234_5678, ..block };
        assert_eq!(Reception::read(t0, &wall, &nonsense, 90_000).rtt.filter(|r| *r > RTT_MAX), None);
    }

    /// A picture and a sound captured at the same moment have the same NTP time in what is sent, whatever their clocks.
    #[test]
    fn sound_and_picture_keep_the_skew_of_the_source() {
        let t0 = origin();
        let ms = |ms| t0 + Duration::from_millis(ms);
        let wall = wall(t0);
        let (sound_hz, picture_hz) = (48_000, 90_000);
        let (sound_offset, picture_offset) = (0xffff_0000u32, 12_345u32);
        let mut sound = Reporter::default();
        let mut picture = Reporter::default();
        sound.clock(StreamClock { at: ms(40), rtp_time: 1_000, synced: true });
        picture.clock(StreamClock { at: ms(100), rtp_time: 0xffff_fff0, synced: true });
        sound.sent(ms(120), 1);
        picture.sent(ms(120), 1);
        let sound = sound.report(ms(120), &wall, sound_offset, sound_hz).unwrap();
        let picture = picture.report(ms(90), &wall, picture_offset, picture_hz).unwrap();
        // Both captured at t0 + 250 ms: 210 ms after the sound's clock, 150 ms after the picture's.
        let captured = |sr: SenderInfo, rtp_time: u32, hz: u32| {
            let ahead = f64::from(rtp_time.wrapping_sub(sr.rtp_time) as i32) / f64::from(hz);
            sr.ntp as f64 / 2f64.powi(32) + ahead - 2_208_988_800.0 - 1_700_000_000.0
        };
        let sound_at = captured(sound, (1_000u32 + 10_080).wrapping_add(sound_offset), sound_hz);
        let picture_at =
            captured(picture, 0xffff_fff0u32.wrapping_add(13_500).wrapping_add(picture_offset), picture_hz);
        assert!((sound_at - 0.250).abs() < 0.000_1, "{sound_at}");
        assert!((picture_at - 0.250).abs() < 0.000_1, "{picture_at}");
    }

    #[test]
    fn at_once_then_each_second_then_every_five_and_never_in_silence() {
        let t0 = origin();
        let wall = wall(t0);
        let clock = StreamClock { at: t0, rtp_time: 0, synced: false };
        let mut reporter = Reporter::default();
        reporter.clock(clock);
        assert_eq!(reporter.due(), None);
        let mut reports = Vec::new();
        for tick in 0..300u32 {
            let now = t0 + Duration::from_millis(100) * tick;
            // The clock is synchronised at 2.5 s; nothing is sent from 12 s to 24 s.
            reporter.clock(StreamClock { synced: tick >= 25, ..clock });
            if !(120..240).contains(&tick) {
                reporter.sent(now, 100);
            }
            if reporter.due().is_some_and(|due| due <= now) {
                let info = reporter.report(now, &wall, 0, 1_000).unwrap();
                assert_eq!(info.rtp_time, tick * 100);
                assert_eq!(info.octets, info.packets * 100);
                reports.push(tick);
            }
        }
        // The one at 15.5 s counts what was sent until 12 s; then silence, and one with the first packet after it.
        assert_eq!(reports, [0, 10, 20, 25, 35, 45, 55, 105, 155, 240, 290]);
    }
}
