//! One incoming stream: what arrives is noted once, kept, and handed on frame by frame.

use super::clock::{StreamTiming, TransportClock};
use super::dedup::{Seen, SeqWindow};
use super::jitter::Jitter;
use super::loss::LossCount;
use super::parameter_sets::ParameterSets;
use super::ring::Ring;
use crate::codec::{Codec, Kind};
use crate::packet::{Packet, Payload, StreamClock};
use crate::transport::ReceivedRtp;
use crate::units::{Deadline, Why};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What became of a received packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Kept; fan-out will have it.
    New {
        /// It is the first packet seen of a key frame: pending requests are answered.
        new_key_frame: bool,
    },
    /// Seen before; dropped.
    Duplicate,
    /// So late that nobody knows whether it was seen; dropped.
    TooLate,
    /// Nothing but padding. Kept, and handed on with an empty payload: the send side closes the hole it would leave.
    PaddingOnly,
}

/// Counts of one stream since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiveStats {
    /// Packets kept, padding included.
    pub packets: u64,
    /// Bytes of payload kept.
    pub bytes: u64,
    /// Packets that have not arrived (yet).
    pub lost: u64,
    /// Packets dropped because they came again.
    pub duplicates: u64,
    /// Packets dropped because they came too late.
    pub too_late: u64,
    /// Packets that fan-out never had, because it did not read in time.
    pub overrun: u64,
    /// Interarrival jitter in milliseconds (RFC 3550 §6.4.1).
    pub jitter_ms: u32,
    /// Key frames that began; video only.
    pub key_frames: u64,
}

/// State of one incoming stream (one SSRC). Constant memory: about 1,000 packets of video, 128 of audio.
#[derive(Debug)]
pub struct StreamReceiver {
    kind: Kind,
    window: SeqWindow,
    ring: Ring,
    loss: LossCount,
    jitter: Jitter,
    /// RTP time that the jitter counted last: it takes one packet of a frame.
    jitter_rtp_time: Option<u32>,
    timing: StreamTiming,
    hold: FrameHold,
    last_key_frame: Option<u32>,
    sets: ParameterSets,
    stats: ReceiveStats,
}

/// Which part of the ring fan-out may have, in arrival numbers: `handed <= released <= head`.
#[derive(Debug, Default)]
struct FrameHold {
    handed: u64,
    released: u64,
    /// The frame held back: its RTP time, and when its first held packet arrived.
    held: Option<(u32, Instant)>,
}

impl StreamReceiver {
    /// How long a frame waits for its marker.
    pub const FRAME_HOLD: Duration = Duration::from_millis(2);
    const VIDEO_PACKETS: usize = 1_024;
    const AUDIO_PACKETS: usize = 128;

    /// A stream of this codec's kind. The codec itself may change from packet to packet.
    pub fn new(codec: Codec) -> Self {
        let packets = match codec.kind() {
            Kind::Audio => Self::AUDIO_PACKETS,
            Kind::Video => Self::VIDEO_PACKETS,
        };
        Self {
            kind: codec.kind(),
            window: SeqWindow::new(),
            ring: Ring::new(packets),
            loss: LossCount::default(),
            jitter: Jitter::new(codec.clock_hz()),
            jitter_rtp_time: None,
            timing: StreamTiming::new(codec.clock_hz()),
            hold: FrameHold::default(),
            last_key_frame: None,
            sets: ParameterSets::default(),
            stats: ReceiveStats::default(),
        }
    }

    /// Takes one packet. `transport`: the clock shared by all streams of the publisher's transport.
    pub fn receive(&mut self, now: Instant, rtp: &ReceivedRtp, transport: &mut TransportClock) -> Received {
        let before = self.window.highest();
        match self.window.insert(rtp.ext_seq) {
            Seen::New => {}
            Seen::Duplicate => {
                self.stats.duplicates += 1;
                return Received::Duplicate;
            }
            Seen::TooOld => {
                self.stats.too_late += 1;
                return Received::TooLate;
            }
        }
        let late = before.is_some_and(|highest| rtp.ext_seq < highest);
        let padding_only = rtp.payload.is_empty();
        self.loss.observe(rtp.ext_seq);
        // A repaired packet's delay is that of the repair, padding's that of the sender's prober.
        if !late && !padding_only {
            if self.jitter_rtp_time != Some(rtp.rtp_time) {
                self.jitter.observe(now, rtp.rtp_time);
                self.jitter_rtp_time = Some(rtp.rtp_time);
            }
            self.timing.observe(now, rtp.rtp_time, rtp.sender_report, transport);
        }
        let key_frame = !padding_only && self.starts_key_frame(rtp);
        let new_key_frame = key_frame && self.kind == Kind::Video && self.last_key_frame != Some(rtp.rtp_time);
        if new_key_frame {
            self.last_key_frame = Some(rtp.rtp_time);
            self.stats.key_frames += 1;
        }
        self.stats.packets += 1;
        self.stats.bytes += rtp.payload.len() as u64;
        self.ring.insert(Packet {
            ext_seq: rtp.ext_seq,
            rtp_time: rtp.rtp_time,
            marker: rtp.marker,
            key_frame,
            level: rtp.level,
            arrived: now,
            payload: rtp.payload.clone(),
        });
        let whole = match self.kind {
            Kind::Audio => true,
            // Padding ends no frame, whatever its marker bit says, and needs no company.
            Kind::Video => late || (rtp.marker && !padding_only) || (padding_only && self.hold.held.is_none()),
        };
        self.hold.arrived(now, rtp.rtp_time, whole, padding_only, self.ring.head());
        if padding_only { Received::PaddingOnly } else { Received::New { new_key_frame } }
    }

    fn starts_key_frame(&mut self, rtp: &ReceivedRtp) -> bool {
        if rtp.format.codec == Codec::H264 {
            self.sets.observe(rtp.rtp_time, &rtp.payload);
        }
        rtp.format.codec.starts_key_frame(&rtp.payload)
            || (rtp.format.codec == Codec::H264 && self.sets.let_begin(rtp.rtp_time, &rtp.payload))
    }

    /// What a viewer must have before a key frame that does not bring it along: H.264 parameter sets, each a payload
    /// of its own. None where nothing is needed or known.
    pub fn parameter_sets(&self) -> Option<&Arc<[Payload]>> {
        self.sets.all()
    }

    /// Appends what fan-out may have now to `out`, each packet once, in order of arrival: audio at once, video when
    /// its frame is whole, when [`Self::FRAME_HOLD`] is over, or when a late packet came to mend an older frame.
    ///
    /// To be called after each batch of datagrams and at [`Self::deadline`].
    pub fn take_batch(&mut self, now: Instant, out: &mut Vec<Packet>) {
        if self.hold.held.is_some_and(|(_, since)| now >= since + Self::FRAME_HOLD) {
            self.hold.release(self.ring.head());
        }
        let FrameHold { handed, released, held: _ } = self.hold;
        let from = handed.max(self.ring.oldest()).min(released);
        self.stats.overrun += from - handed;
        let count = usize::try_from(released - from).unwrap_or(usize::MAX);
        out.extend(self.ring.since(from).take(count).cloned());
        self.hold.handed = released;
    }

    /// When a held frame is to be handed on, unless its marker comes before.
    pub fn deadline(&self) -> Option<Deadline> {
        self.hold.held.map(|(_, since)| Deadline { at: since + Self::FRAME_HOLD, why: Why::FrameHold })
    }

    /// Which moment an RTP time of this stream stands for; `None` before the first packet with a payload.
    pub fn clock(&self, transport: &TransportClock) -> Option<StreamClock> {
        self.timing.clock(transport)
    }

    /// Highest sequence number so far.
    pub fn highest(&self) -> Option<u64> {
        self.window.highest()
    }

    /// What was received lately, by number or by cursor.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Counts so far.
    pub fn stats(&self) -> ReceiveStats {
        ReceiveStats { lost: self.loss.lost(), jitter_ms: self.jitter.ms(), ..self.stats }
    }
}

impl FrameHold {
    /// One more packet is in the ring, which ends at `head` now; `whole`: it may go at once, with all before it.
    fn arrived(&mut self, now: Instant, rtp_time: u32, whole: bool, padding_only: bool, head: u64) {
        if whole {
            self.release(head);
            return;
        }
        match self.held {
            Some((held, _)) if held == rtp_time || padding_only => {}
            // The next frame began: the marker of the one before was lost.
            Some(_) => {
                self.release(head - 1);
                self.held = Some((rtp_time, now));
            }
            None => self.held = Some((rtp_time, now)),
        }
    }

    fn release(&mut self, head: u64) {
        self.released = head;
        self.held = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Format;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    fn start() -> Instant {
        Instant::now()
    }

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    const VP8_KEY: [u8; 4] = [0x10, 0x50, 0, 0];
    const VP8_DELTA: [u8; 4] = [0x10, 0x51, 0, 0];

    fn rtp(codec: Codec, ext_seq: u64, rtp_time: u32, marker: bool, payload: &[u8]) -> ReceivedRtp {
        ReceivedRtp {
            ssrc: 1,
            section: 0,
            layer: 0,
            format: Format { codec, profile: 0, packetization: 0 },
            ext_seq,
            rtp_time,
            marker,
            level: None,
            payload: Payload::from(payload),
            sender_report: None,
        }
    }

    /// A stream, its clock, and what was handed out.
    struct Rig {
        stream: StreamReceiver,
        transport: TransportClock,
        t0: Instant,
    }

    impl Rig {
        fn new(codec: Codec) -> Self {
            Self { stream: StreamReceiver::new(codec), transport: TransportClock::new(), t0: start() }
        }

        fn video(&mut self, at_us: u64, ext_seq: u64, rtp_time: u32, marker: bool) -> Received {
            let packet = rtp(Codec::Vp8, ext_seq, rtp_time, marker, &VP8_DELTA);
            self.stream.receive(self.t0 + us(at_us), &packet, &mut self.transport)
        }

        fn padding(&mut self, at_us: u64, ext_seq: u64, rtp_time: u32) -> Received {
            let packet = rtp(Codec::Vp8, ext_seq, rtp_time, false, &[]);
            self.stream.receive(self.t0 + us(at_us), &packet, &mut self.transport)
        }

        fn batch(&mut self, at_us: u64) -> Vec<u64> {
            let mut out = Vec::new();
            self.stream.take_batch(self.t0 + us(at_us), &mut out);
            out.iter().map(|packet| packet.ext_seq).collect()
        }

        fn deadline_us(&self) -> Option<u128> {
            self.stream.deadline().map(|deadline| {
                assert_eq!(deadline.why, Why::FrameHold);
                (deadline.at - self.t0).as_micros()
            })
        }
    }

    const NEW: Received = Received::New { new_key_frame: false };

    #[test]
    fn a_frame_goes_out_as_one_batch_at_its_marker() {
        let mut rig = Rig::new(Codec::Vp8);
        assert_eq!(rig.video(0, 10, 3_000, false), NEW);
        assert_eq!(rig.video(100, 11, 3_000, false), NEW);
        assert_eq!(rig.batch(100), [0; 0]);
        assert_eq!(rig.deadline_us(), Some(2_000));
        rig.video(200, 12, 3_000, true);
        assert_eq!(rig.deadline_us(), None);
        assert_eq!(rig.batch(200), [10, 11, 12]);
        assert_eq!(rig.batch(5_000), [0; 0], "each packet once");
    }

    #[test]
    fn an_unfinished_frame_waits_two_milliseconds() {
        let mut rig = Rig::new(Codec::Vp8);
        rig.video(0, 10, 3_000, false);
        rig.video(1_500, 11, 3_000, false);
        assert_eq!(rig.batch(1_999), [0; 0]);
        assert_eq!(rig.batch(2_000), [10, 11]);
        assert_eq!(rig.deadline_us(), None);
        rig.video(2_500, 12, 3_000, false);
        assert_eq!(rig.deadline_us(), Some(4_500), "the rest is held anew");
    }

    #[test]
    fn a_frame_whose_marker_was_lost_goes_when_the_next_begins() {
        let mut rig = Rig::new(Codec::Vp8);
        rig.video(0, 10, 3_000, false);
        rig.video(1_000, 12, 6_000, false);
        assert_eq!(rig.batch(1_000), [10]);
        assert_eq!(rig.deadline_us(), Some(3_000));
        rig.video(1_500, 11, 3_000, true);
        assert_eq!(rig.batch(1_500), [12, 11], "a repaired packet goes at once, in order of arrival");
    }

    #[test]
    fn audio_never_waits() {
        let mut rig = Rig::new(Codec::Opus);
        let packet = rtp(Codec::Opus, 7, 960, false, &[1]);
        assert_eq!(rig.stream.receive(rig.t0, &packet, &mut rig.transport), NEW);
        assert_eq!(rig.deadline_us(), None);
        assert_eq!(rig.batch(0), [7]);
    }

    #[test]
    fn padding_is_handed_on_empty_and_leaves_no_hole() {
        let mut rig = Rig::new(Codec::Vp8);
        rig.video(0, 10, 3_000, true);
        assert_eq!(rig.padding(10, 11, 3_000), Received::PaddingOnly);
        let mut out = Vec::new();
        rig.stream.take_batch(rig.t0 + us(10), &mut out);
        assert_eq!(out.iter().map(|p| (p.ext_seq, p.payload.len())).collect::<Vec<_>>(), [(10, 4), (11, 0)]);
        assert!(!out[1].key_frame);
        rig.video(1_000, 12, 6_000, false);
        rig.padding(1_100, 13, 3_000);
        assert_eq!(rig.batch(1_100), [0; 0], "padding within a frame breaks no batch");
        rig.video(1_200, 14, 6_000, true);
        assert_eq!(rig.batch(1_200), [12, 13, 14]);
        assert_eq!(rig.padding(1_300, 13, 3_000), Received::Duplicate);
        assert_eq!(rig.stream.stats().lost, 0);
    }

    #[test]
    fn a_key_frame_is_announced_once() {
        let mut rig = Rig::new(Codec::H264);
        // SPS, PPS and IDR of one picture, as separate packets, then the next key frame in a STAP-A.
        let unit = |ext_seq, rtp_time, nal: &[u8]| rtp(Codec::H264, ext_seq, rtp_time, false, nal);
        let key = Received::New { new_key_frame: true };
        for (packet, want) in [
            (unit(1, 90, &[0x67, 0x42]), key),
            (unit(2, 90, &[0x67, 0x43]), NEW),
            (unit(3, 90, &[0x68, 0xce]), NEW),
            (unit(4, 90, &[0x65, 0x88]), NEW),
            (unit(5, 3_090, &[0x41, 0x9a]), NEW),
            (unit(6, 6_090, &[0x78, 0, 2, 0x67, 0x42, 0, 2, 0x65, 0x88]), key),
        ] {
            assert_eq!(rig.stream.receive(rig.t0, &packet, &mut rig.transport), want, "{packet:?}");
        }
        assert_eq!(rig.stream.stats().key_frames, 2);
    }

    #[test]
    fn counts_say_what_came() {
        let mut rig = Rig::new(Codec::Vp8);
        let base = 1 << 20;
        rig.video(0, base, 0, true);
        rig.video(10, base + 2, 3_000, true);
        rig.video(20, base + 2, 3_000, true);
        assert_eq!(rig.video(30, base - SeqWindow::LEN, 0, true), Received::TooLate);
        rig.batch(30);
        let stats = rig.stream.stats();
        let want = ReceiveStats { packets: 2, bytes: 8, lost: 1, duplicates: 1, too_late: 1, ..stats };
        assert_eq!(stats, want);
        assert_eq!((stats.overrun, stats.key_frames), (0, 0));
    }

    #[test]
    fn repairs_and_padding_are_no_jitter_and_move_no_clock() {
        let mut rig = Rig::new(Codec::Vp8);
        for frame in 0..20u32 {
            let (at, seq, rtp_time) = (u64::from(frame) * 40_000, 10 + u64::from(frame) * 3, frame * 3_600);
            rig.video(at, seq + 1, rtp_time, true);
            // Padding and the repaired first packet come 30 ms after, with the times of this and the last frame.
            rig.padding(at + 30_000, seq + 2, rtp_time.wrapping_sub(90_000));
            rig.video(at + 30_000, seq, rtp_time.wrapping_sub(3_600), false);
        }
        assert_eq!(rig.stream.stats().jitter_ms, 0);
        let clock = rig.stream.clock(&rig.transport).unwrap();
        assert_eq!(clock, StreamClock { at: rig.t0, rtp_time: 0, synced: false });
    }

    #[test]
    fn the_payload_is_shared_and_never_copied() {
        let mut rig = Rig::new(Codec::Vp8);
        let packet = rtp(Codec::Vp8, 1, 90, true, &VP8_KEY);
        rig.stream.receive(rig.t0, &packet, &mut rig.transport);
        let mut out = Vec::new();
        rig.stream.take_batch(rig.t0, &mut out);
        assert!(Arc::ptr_eq(&out[0].payload, &packet.payload));
        assert!(Arc::ptr_eq(&rig.stream.ring().get(1).unwrap().payload, &packet.payload));
    }

    #[test]
    fn whoever_reads_too_seldom_loses_the_oldest_and_it_is_counted() {
        let mut rig = Rig::new(Codec::Vp8);
        for ext_seq in 0..1_030 {
            rig.video(ext_seq, ext_seq, 90, true);
        }
        assert_eq!(rig.batch(1_030), (6..1_030).collect::<Vec<u64>>());
        assert_eq!(rig.stream.stats().overrun, 6);
    }

    proptest! {
        /// Whatever arrives, in whatever order: each new packet is handed out once, in order of arrival, within the
        /// hold, and nothing else is.
        #[test]
        fn every_new_packet_goes_out_once_and_in_time(
            start_at in prop_oneof![65_500..65_600u64, (1u64 << 32) - 40..(1u64 << 32)],
            packets in proptest::collection::vec((
                prop_oneof![8 => 0..3i64, 3 => -6..0i64, 1 => 50..3_000i64],
                prop_oneof![Just(0u64), 1..1_500u64, 1_500..30_000u64],
                0..4u32, any::<bool>(), 0..8u8), 1..200),
        ) {
            let mut rig = Rig::new(Codec::Vp8);
            let (mut at, mut now, mut frame) = (start_at, rig.t0, 0u32);
            let (mut seen, mut waiting, mut out) = (BTreeSet::new(), Vec::<(u64, Instant)>::new(), Vec::new());
            for (step, wait, advance, marker, kind) in packets {
                if wait > 0 {
                    // The batch of datagrams is over: all but an unfinished frame goes.
                    rig.stream.take_batch(now, &mut out);
                    for packet in out.drain(..) {
                        prop_assert_eq!(packet.ext_seq, waiting.remove(0).0);
                    }
                    prop_assert!(waiting.is_empty() || rig.stream.deadline().is_some());
                }
                let next = now + us(wait);
                while let Some(deadline) = rig.stream.deadline().filter(|d| d.at <= next) {
                    rig.stream.take_batch(deadline.at, &mut out);
                    prop_assert!(!out.is_empty(), "woken for nothing");
                    for packet in out.drain(..) {
                        let (ext_seq, arrived) = waiting.remove(0);
                        prop_assert_eq!(packet.ext_seq, ext_seq);
                        prop_assert!(deadline.at <= arrived + StreamReceiver::FRAME_HOLD);
                    }
                    prop_assert!(waiting.is_empty());
                }
                now = next;
                at = at.saturating_add_signed(step);
                frame = frame.wrapping_add(advance / 3);
                let payload: &[u8] = if kind == 0 { &[] } else { &VP8_DELTA };
                let packet = rtp(Codec::Vp8, at, frame * 3_000, marker, payload);
                let highest = seen.last().copied().unwrap_or(at);
                let want_new = highest.saturating_sub(at) < SeqWindow::LEN && seen.insert(at);
                match rig.stream.receive(now, &packet, &mut rig.transport) {
                    Received::New { .. } => prop_assert!(want_new && kind != 0),
                    Received::PaddingOnly => prop_assert!(want_new && kind == 0),
                    Received::Duplicate | Received::TooLate => prop_assert!(!want_new),
                }
                if want_new {
                    waiting.push((at, now));
                    let whole = (marker && kind != 0) || at < highest;
                    prop_assert!(!whole || rig.stream.deadline().is_none(), "a whole frame waits");
                }
            }
            prop_assert_eq!(rig.stream.stats().packets, seen.len() as u64);
        }
    }
}
