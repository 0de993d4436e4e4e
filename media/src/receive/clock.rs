//! Lip sync: from the sender's clocks to ours.
//!
//! A sender report pairs an RTP time of one stream with the sender's NTP time (RFC 3550 §6.4.1). All streams of a
//! transport share that NTP clock, so one offset between it and our clock serves them all, and whatever error the
//! offset has, it is the same for audio and video: they line up exactly as their reports say.

use crate::packet::StreamClock;
use std::time::{Duration, Instant};

/// The offset between one publisher's NTP clock and ours.
///
/// A report says "sent at NTP time t", and arrived here after some delay: the reports with the least delay tell the
/// offset best. The smallest of [`TransportClock::WINDOW`] reports is followed, but no faster than
/// [`TransportClock::SLEW_MAX`] a report, so that two streams read at different times still agree. A sender that
/// steps its clock (by more than [`TransportClock::STEP`]) is believed when a second report confirms it; one
/// delayed report is not a step.
#[derive(Debug, Clone, Default)]
pub struct TransportClock {
    anchor: Option<Anchor>,
    /// Steps of the sender's clock so far.
    epoch: u32,
    suspected_step: Option<Anchor>,
    window: Window,
}

/// `ntp` on the sender's clock is `at` on ours.
#[derive(Debug, Clone, Copy)]
struct Anchor {
    ntp: u64,
    at: Instant,
}

impl Anchor {
    /// Our instant of an NTP time, at most 68 years away; `None` where it would be before our clock began.
    fn instant_of(&self, ntp: u64) -> Option<Instant> {
        let away_ns = ntp_ns(ntp.wrapping_sub(self.ntp).cast_signed());
        shifted(self.at, away_ns)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Window {
    reports: u32,
    least_ns: i64,
    /// What the last full window found, still to be slewed.
    owed_ns: i64,
}

/// A sender report as one stream keeps it.
#[derive(Debug, Clone, Copy)]
struct Report {
    ntp: u64,
    rtp_time: u32,
    epoch: u32,
    /// Where the offset of that epoch put it: what remains true when the sender steps its clock.
    at: Instant,
}

impl TransportClock {
    /// Differences that are no delay.
    pub const STEP: Duration = Duration::from_secs(1);
    /// Reports compared before the offset moves.
    pub const WINDOW: u32 = 8;
    /// Most that one report moves the offset: 100 to 500 ppm at the usual intervals, more than clocks drift.
    pub const SLEW_MAX: Duration = Duration::from_micros(500);

    /// No report yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A report sent at `ntp` arrived. `None`: it cannot be used (no wall clock, or a step not yet confirmed).
    fn observe(&mut self, now: Instant, ntp: u64) -> Option<Instant> {
        // RFC 3550 §6.4.1: a sender without a notion of wall clock time may set it to zero.
        if ntp == 0 {
            return None;
        }
        let anchor = *self.anchor.get_or_insert(Anchor { ntp, at: now });
        let Some(delay_ns) = anchor.instant_of(ntp).map(|at| difference_ns(now, at)).filter(|ns| !is_step(*ns)) else {
            let confirmed = self
                .suspected_step
                .is_some_and(|suspected| suspected.instant_of(ntp).is_some_and(|at| !is_step(difference_ns(now, at))));
            let here = Anchor { ntp, at: now };
            self.suspected_step = Some(here);
            if !confirmed {
                return None;
            }
            self.anchor = Some(here);
            self.epoch = self.epoch.wrapping_add(1);
            self.suspected_step = None;
            self.window = Window::default();
            return Some(now);
        };
        self.suspected_step = None;
        self.slew(delay_ns);
        self.instant_of(ntp)
    }

    fn slew(&mut self, delay_ns: i64) {
        let window = &mut self.window;
        window.least_ns = if window.reports == 0 { delay_ns } else { window.least_ns.min(delay_ns) };
        window.reports += 1;
        if window.reports == Self::WINDOW {
            window.owed_ns = window.least_ns;
            window.reports = 0;
        }
        let most = Self::SLEW_MAX.as_nanos() as i64;
        let step_ns = window.owed_ns.clamp(-most, most);
        window.owed_ns -= step_ns;
        if window.reports > 0 {
            window.least_ns -= step_ns;
        }
        if let Some(anchor) = &mut self.anchor
            && let Some(at) = shifted(anchor.at, step_ns)
        {
            anchor.at = at;
        }
    }

    fn instant_of(&self, ntp: u64) -> Option<Instant> {
        self.anchor?.instant_of(ntp)
    }
}

/// One stream's way from RTP time to our clock, see [`StreamClock`].
///
/// Until the first sender report it maps the earliest packet's arrival; after that it says what the newest report
/// and the transport's shared offset say.
#[derive(Debug, Clone)]
pub struct StreamTiming {
    clock_hz: u32,
    arrival: Option<StreamClock>,
    report: Option<Report>,
    last_report: Option<(u64, u32)>,
}

impl StreamTiming {
    /// A report, or an arrival, that puts capture this far from arrival is not believed.
    pub const PLAUSIBLE: Duration = Duration::from_secs(10);
    /// A packet this far from where earlier ones put it begins a new time line.
    pub const JUMP: Duration = Duration::from_secs(2);

    /// `clock_hz`: RTP clock rate of the stream.
    pub fn new(clock_hz: u32) -> Self {
        Self { clock_hz, arrival: None, report: None, last_report: None }
    }

    /// A packet with this RTP time arrived, and `report` is the newest sender report of its stream (NTP time, RTP
    /// time); the same one may be given again and again.
    pub fn observe(&mut self, now: Instant, rtp_time: u32, report: Option<(u64, u32)>, transport: &mut TransportClock) {
        let jumped = self.observe_arrival(now, rtp_time);
        if jumped && self.clock(transport).is_some_and(|clock| clock.synced && !self.plausible(now, rtp_time, clock)) {
            // Numbers that began anew have nothing to do with the old report; after a mere freeze they have.
            self.report = None;
        }
        if report.is_some() && report != self.last_report {
            self.last_report = report;
            self.observe_report(now, rtp_time, report, transport);
        }
    }

    /// `true`: the packet is not where earlier ones put it.
    fn observe_arrival(&mut self, now: Instant, rtp_time: u32) -> bool {
        let here = StreamClock { at: now, rtp_time, synced: false };
        let Some(arrival) = self.arrival else {
            self.arrival = Some(here);
            return false;
        };
        let Some(expected) = arrival.instant_of(rtp_time, self.clock_hz) else {
            self.arrival = Some(here);
            return true;
        };
        // The packet with the least delay says best when the time line began. A new anchor also comes long before
        // the distance reaches 2^31 ticks.
        let late_ns = difference_ns(now, expected);
        let jumped = late_ns.unsigned_abs() > Self::JUMP.as_nanos() as u64;
        if late_ns < 0 || jumped {
            self.arrival = Some(here);
        } else if rtp_time.wrapping_sub(arrival.rtp_time).cast_signed() > 1 << 30 {
            self.arrival = Some(StreamClock { at: expected, rtp_time, synced: false });
        }
        jumped
    }

    fn observe_report(
        &mut self,
        now: Instant,
        rtp_time: u32,
        report: Option<(u64, u32)>,
        transport: &mut TransportClock,
    ) {
        let Some((ntp, report_rtp_time)) = report else { return };
        let Some(at) = transport.observe(now, ntp) else { return };
        let clock = StreamClock { at, rtp_time: report_rtp_time, synced: true };
        if self.plausible(now, rtp_time, clock) {
            self.report = Some(Report { ntp, rtp_time: report_rtp_time, epoch: transport.epoch, at });
        }
    }

    fn plausible(&self, now: Instant, rtp_time: u32, clock: StreamClock) -> bool {
        let captured = clock.instant_of(rtp_time, self.clock_hz);
        captured.is_some_and(|at| difference_ns(now, at).unsigned_abs() <= Self::PLAUSIBLE.as_nanos() as u64)
    }

    /// What is known now; `None` before the first packet. `transport`: the clock that [`Self::observe`] was given.
    pub fn clock(&self, transport: &TransportClock) -> Option<StreamClock> {
        let Some(report) = self.report else { return self.arrival };
        let shared = if report.epoch == transport.epoch { transport.instant_of(report.ntp) } else { None };
        Some(StreamClock { at: shared.unwrap_or(report.at), rtp_time: report.rtp_time, synced: true })
    }
}

fn is_step(delay_ns: i64) -> bool {
    delay_ns.unsigned_abs() > TransportClock::STEP.as_nanos() as u64
}

/// Nanoseconds in a difference of NTP timestamps (units of 2^-32 s), rounded down.
fn ntp_ns(difference: i64) -> i64 {
    // At most 2^31 s: 2.2 * 10^18 ns, within an i64.
    ((i128::from(difference) * 1_000_000_000) >> 32) as i64
}

/// `a - b`, saturating.
fn difference_ns(a: Instant, b: Instant) -> i64 {
    let ns = |later: Instant, earlier: Instant| {
        i64::try_from(later.saturating_duration_since(earlier).as_nanos()).unwrap_or(i64::MAX)
    };
    if a >= b { ns(a, b) } else { -ns(b, a) }
}

fn shifted(at: Instant, ns: i64) -> Option<Instant> {
    let by = Duration::from_nanos(ns.unsigned_abs());
    if ns < 0 { at.checked_sub(by) } else { at.checked_add(by) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    fn start() -> Instant {
        Instant::now() + Duration::from_secs(1_000)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// 2026-11-30 00:00 UTC in seconds since 1900, roughly: any large number will do.
    const NTP_S: u64 = 3_989_001_600;

    /// NTP time of a sender whose clock shows `NTP_S` at our `t0`.
    fn ntp(since_t0_ms: u64) -> u64 {
        (NTP_S << 32).wrapping_add((since_t0_ms << 32) / 1_000)
    }

    fn skew_us(audio: StreamClock, video: StreamClock, audio_rtp: u32, video_rtp: u32) -> i64 {
        let audio = audio.instant_of(audio_rtp, 48_000).unwrap();
        let video = video.instant_of(video_rtp, 90_000).unwrap();
        difference_ns(audio, video) / 1_000
    }

    #[test]
    fn before_any_report_the_earliest_arrival_counts() {
        let (t0, mut transport, mut video) = (start(), TransportClock::new(), StreamTiming::new(90_000));
        assert_eq!(video.clock(&transport), None);
        video.observe(t0 + ms(40), 1_000, None, &mut transport);
        let first = StreamClock { at: t0 + ms(40), rtp_time: 1_000, synced: false };
        assert_eq!(video.clock(&transport), Some(first));
        video.observe(t0 + ms(90), 4_600, None, &mut transport);
        assert_eq!(video.clock(&transport), Some(first), "10 ms more delay says nothing");
        video.observe(t0 + ms(100), 8_200, None, &mut transport);
        let earlier = StreamClock { at: t0 + ms(100), rtp_time: 8_200, synced: false };
        assert_eq!(video.clock(&transport), Some(earlier), "20 ms less delay says more");
        let restarted = StreamClock { at: t0 + ms(140), rtp_time: 1 << 31, synced: false };
        video.observe(t0 + ms(140), 1 << 31, None, &mut transport);
        assert_eq!(video.clock(&transport), Some(restarted));
    }

    #[test]
    fn audio_and_video_line_up_as_their_reports_say() {
        let (t0, mut transport) = (start(), TransportClock::new());
        let (mut audio, mut video) = (StreamTiming::new(48_000), StreamTiming::new(90_000));
        // Captured at the same moments: audio RTP time 5_000 and video RTP time u32::MAX - 9_999 at t0. Video takes
        // 180 ms longer to reach us, and its reports come at other times.
        let audio_rtp = |at_ms: u64| 5_000u32.wrapping_add(u32::try_from(at_ms * 48).unwrap());
        let video_rtp = |at_ms: u64| (u32::MAX - 9_999).wrapping_add(u32::try_from(at_ms * 90).unwrap());
        let (mut audio_sr, mut video_sr) = (None, None);
        for at_ms in (0..120_000).step_by(20) {
            if at_ms % 5_000 == 700 {
                audio_sr = Some((ntp(at_ms), audio_rtp(at_ms)));
            }
            if at_ms % 3_000 == 1_900 {
                video_sr = Some((ntp(at_ms), video_rtp(at_ms)));
            }
            audio.observe(t0 + ms(at_ms + 20), audio_rtp(at_ms), audio_sr, &mut transport);
            video.observe(t0 + ms(at_ms + 200), video_rtp(at_ms), video_sr, &mut transport);
            if at_ms > 2_000 {
                let (a, v) = (audio.clock(&transport).unwrap(), video.clock(&transport).unwrap());
                assert!(a.synced && v.synced);
                let skew = skew_us(a, v, audio_rtp(at_ms), video_rtp(at_ms));
                assert!(skew.abs() < 1_000, "{skew} us at {at_ms} ms");
            }
        }
        // The offset is that of the fastest report: 20 ms of delay, and what is still to be slewed is nothing.
        let at = audio.clock(&transport).unwrap().instant_of(audio_rtp(0), 48_000).unwrap();
        assert!(difference_ns(at, t0 + ms(20)).abs() < 1_000_000, "{:?}", difference_ns(at, t0));
    }

    #[test]
    fn a_stepped_clock_is_followed_when_confirmed_and_an_outlier_is_not() {
        let (t0, mut transport) = (start(), TransportClock::new());
        let (mut audio, mut video) = (StreamTiming::new(48_000), StreamTiming::new(90_000));
        let step_ms = 3_600_000;
        audio.observe(t0, 0, Some((ntp(0), 0)), &mut transport);
        video.observe(t0, 0, Some((ntp(0), 0)), &mut transport);
        let check = |transport: &TransportClock, audio: &StreamTiming, video: &StreamTiming, at_ms: u32| {
            let (a, v) = (audio.clock(transport).unwrap(), video.clock(transport).unwrap());
            assert!(a.synced && v.synced);
            assert!(skew_us(a, v, at_ms * 48, at_ms * 90).abs() < 1_000, "at {at_ms} ms");
            let captured = a.instant_of(at_ms * 48, 48_000).unwrap();
            assert!(difference_ns(captured, t0 + ms(u64::from(at_ms))).abs() < 1_000_000);
        };
        // One report out of line: ignored.
        audio.observe(t0 + ms(1_000), 48_000, Some((ntp(1_000 + step_ms), 48_000)), &mut transport);
        check(&transport, &audio, &video, 1_000);
        video.observe(t0 + ms(1_000), 90_000, Some((ntp(1_000), 90_000)), &mut transport);
        check(&transport, &audio, &video, 1_000);
        // A real step: between the first report and the confirmation, and until each stream has a new one.
        audio.observe(t0 + ms(2_000), 96_000, Some((ntp(2_000 + step_ms), 96_000)), &mut transport);
        check(&transport, &audio, &video, 2_000);
        video.observe(t0 + ms(3_000), 270_000, Some((ntp(3_000 + step_ms), 270_000)), &mut transport);
        check(&transport, &audio, &video, 3_000);
        audio.observe(t0 + ms(4_000), 192_000, Some((ntp(4_000 + step_ms), 192_000)), &mut transport);
        check(&transport, &audio, &video, 4_000);
    }

    #[test]
    fn a_delayed_report_is_no_step() {
        let (t0, mut transport) = (start(), TransportClock::new());
        let (mut audio, mut video) = (StreamTiming::new(48_000), StreamTiming::new(90_000));
        audio.observe(t0, 0, Some((ntp(0), 0)), &mut transport);
        video.observe(t0, 0, Some((ntp(0), 0)), &mut transport);
        audio.observe(t0 + ms(2_600), 48_000, Some((ntp(1_000), 48_000)), &mut transport);
        video.observe(t0 + ms(3_000), 270_000, Some((ntp(3_000), 270_000)), &mut transport);
        let (a, v) = (audio.clock(&transport).unwrap(), video.clock(&transport).unwrap());
        assert!(skew_us(a, v, 144_000, 270_000).abs() < 1_000);
        assert!(difference_ns(v.at, t0 + ms(3_000)).abs() < 1_000_000);
    }

    #[test]
    fn a_step_leaves_a_stream_without_a_new_report_where_it_was() {
        let (t0, mut transport) = (start(), TransportClock::new());
        let (mut audio, mut video) = (StreamTiming::new(48_000), StreamTiming::new(90_000));
        audio.observe(t0, 0, Some((ntp(0), 0)), &mut transport);
        video.observe(t0 + ms(200), 0, Some((ntp(0), 0)), &mut transport);
        for at_ms in [1_000, 2_000] {
            let rtp_time = u32::try_from(at_ms * 48).unwrap();
            audio.observe(t0 + ms(at_ms), rtp_time, Some((ntp(at_ms + 3_600_000), rtp_time)), &mut transport);
        }
        let video = video.clock(&transport).unwrap();
        assert!(video.synced && difference_ns(video.at, t0).abs() < 1_000_000, "{:?}", video.at - t0);
    }

    #[test]
    fn a_freeze_keeps_the_report_and_restarted_numbers_lose_it() {
        let (t0, mut transport, mut video) = (start(), TransportClock::new(), StreamTiming::new(90_000));
        let report = Some((ntp(0), 0));
        video.observe(t0, 0, report, &mut transport);
        video.observe(t0 + ms(3_100), 9_000, report, &mut transport);
        assert_eq!(video.clock(&transport), Some(StreamClock { at: t0, rtp_time: 0, synced: true }));
        video.observe(t0 + ms(3_200), 1 << 30, report, &mut transport);
        let anew = StreamClock { at: t0 + ms(3_200), rtp_time: 1 << 30, synced: false };
        assert_eq!(video.clock(&transport), Some(anew));
    }

    #[test]
    fn a_drifting_clock_is_followed() {
        let (t0, mut transport, mut audio) = (start(), TransportClock::new(), StreamTiming::new(48_000));
        // 100 ppm slow, for two hours: 720 ms.
        for at_s in (0..7_200u64).step_by(2) {
            let sender_ms = at_s * 1_000 - at_s / 10;
            let rtp_time = (sender_ms * 48) as u32;
            audio.observe(t0 + ms(at_s * 1_000), rtp_time, Some((ntp(sender_ms), rtp_time)), &mut transport);
        }
        let last_ms = 7_198_000u64 - 719;
        let captured = audio.clock(&transport).unwrap().instant_of((last_ms * 48) as u32, 48_000).unwrap();
        let error = difference_ns(t0 + ms(7_198_000), captured);
        assert!(error.abs() < 20_000_000, "{error} ns");
    }

    #[test]
    fn reports_that_cannot_be_are_not_used() {
        let (t0, mut transport, mut audio) = (start(), TransportClock::new(), StreamTiming::new(48_000));
        audio.observe(t0, 0, Some((0, 0)), &mut transport);
        assert!(!audio.clock(&transport).unwrap().synced, "no wall clock");
        audio.observe(t0, 960, Some((ntp(0), 1 << 30)), &mut transport);
        assert!(!audio.clock(&transport).unwrap().synced, "an RTP time hours away");
    }

    proptest! {
        #[test]
        fn anything_goes(
            packets in proptest::collection::vec(
                (0..100_000u64, any::<u32>(), proptest::option::of((any::<u64>(), any::<u32>()))), 0..60),
        ) {
            let (mut now, mut transport) = (start(), TransportClock::new());
            let mut streams = [StreamTiming::new(48_000), StreamTiming::new(90_000)];
            for (i, (wait, rtp_time, report)) in packets.into_iter().enumerate() {
                now += ms(wait);
                let stream = &mut streams[i % 2];
                stream.observe(now, rtp_time, report, &mut transport);
                let clock = stream.clock(&transport).unwrap();
                clock.instant_of(rtp_time, 90_000);
                clock.rtp_time_at(now, 90_000);
            }
        }
    }
}
