//! Long frames on a path whose rate is known, as its viewer sees them.

mod support {
    pub mod viewer;
}

use proptest::prelude::*;
use rondo_media::packet::{Packet, Payload};
use rondo_media::send::{Feedback, Forwarded, LayersMax};
use rondo_media::transport::SrtpProfile;
use rondo_media::units::{Bitrate, Why};
use rondo_media::wire::rtcp::{TwccWriter, write_nack, write_remb};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::viewer::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Bytes of a packet on the wire: headers 28 + 28, payload 1,000, tag 16.
const WIRE: u64 = 1_072;

/// A viewer of sound and video whose estimate is known: 600 kbit/s, so 1,500 kbit/s may leave, 7,500 bytes at once.
struct Watcher {
    pair: Pair,
    now: Instant,
}

impl Watcher {
    fn new() -> Self {
        let mut pair = Pair::new(SrtpProfile::AeadAes128Gcm, &sections(), 7);
        let t0 = pair.t0;
        pair.egress.assign(t0, AUDIO, Some(OPUS)).unwrap();
        pair.egress.assign(t0, VIDEO, Some(VP8)).unwrap();
        let mut watcher = Self { pair, now: t0 };
        assert_eq!(watcher.forward(0, &[frame(t0, 1_000, 1, 0, true)].concat()).packets, 1);
        watcher.bound();
        watcher
    }

    /// A tenth of a second after the first packet its viewer acknowledges it, and says what it takes at most.
    fn bound(&mut self) {
        self.now += ms(100);
        for feedback in [self.pair.seal(acknowledged), self.pair.seal(takes_600_kbps)] {
            let Pair { egress, sent, .. } = &mut self.pair;
            egress.receive_rtcp(self.now, &feedback, sent, &mut Vec::new()).unwrap();
        }
        assert_eq!(self.pair.egress.target(), Some(Bitrate::from_kbps(600)));
        self.pair.receive();
    }

    fn forward(&mut self, layer: u8, packets: &[Packet]) -> Forwarded {
        let Self { pair, now } = self;
        pair.egress.forward(*now, VIDEO, layer, clock(pair.t0, 0), packets, &mut pair.sent)
    }

    /// Wakes the egress as it wishes until so long from now; what left, and when.
    fn run(&mut self, time: Duration) -> Vec<(Duration, Rtp)> {
        let (begin, end) = (self.now, self.now + time);
        let mut received = Vec::new();
        while let Some(deadline) = self.pair.egress.deadline().filter(|deadline| deadline.at <= end) {
            assert!(deadline.at > self.now, "a wake-up that brings nothing: {deadline:?}");
            self.now = deadline.at;
            self.pair.egress.wake(self.now, &mut self.pair.sent);
            let at = self.now - begin;
            received.extend(self.pair.receive().0.into_iter().map(|rtp| (at, rtp)));
        }
        self.now = end;
        received
    }
}

/// The viewer says that it has got the first packet.
fn acknowledged(out: &mut Vec<u8>) {
    TwccWriter::new(1, VIDEO_SSRC).write(out, 0, &[Some(700_000_000)]);
}

/// The viewer says what it takes at most, which is below the estimate.
fn takes_600_kbps(out: &mut Vec<u8>) {
    write_remb(out, 1, 600_000, &[VIDEO_SSRC]);
}

/// A frame of packets of 1,000 bytes that tell their number.
fn frame(at: Instant, first: u64, packets: u64, rtp_time: u32, key: bool) -> Vec<Packet> {
    let packet = |n: u64| {
        // A VP8 descriptor without extension: S in the first; then P of the frame header, and the number.
        let mut payload = vec![if n == 0 { 0x10 } else { 0 }, u8::from(!key), n as u8];
        payload.resize(1_000, (first + n) as u8);
        let (key_frame, marker, ext_seq) = (key && n == 0, n + 1 == packets, first + n);
        Packet { ext_seq, rtp_time, marker, key_frame, level: None, arrived: at, payload: payload.into() }
    };
    (0..packets).map(packet).collect()
}

fn numbers(received: &[(Duration, Rtp)]) -> Vec<u8> {
    received.iter().map(|(_, rtp)| rtp.payload[3]).collect()
}

#[test]
fn a_frame_that_the_path_takes_leaves_whole_and_at_once() {
    let mut watcher = Watcher::new();
    let mut last = watcher.pair.receive().0.len();
    for n in 0..40 {
        // 2 packets each 33 ms: 520 kbit/s.
        let packets = frame(watcher.now, 1_001 + 2 * n, 2, n as u32 * 2_970, false);
        assert_eq!(watcher.forward(0, &packets).packets, 2);
        last += watcher.pair.receive().0.len();
        watcher.run(ms(33));
    }
    let stats = watcher.pair.egress.stats();
    assert_eq!((last, stats.paced, stats.late, stats.waiting), (80, 0, 0, 0));
}

#[test]
fn nothing_waits_where_the_path_has_told_nothing() {
    let mut pair = Pair::new(SrtpProfile::AeadAes128Gcm, &sections(), 7);
    let t0 = pair.t0;
    pair.egress.assign(t0, VIDEO, Some(VP8)).unwrap();
    let mut watcher = Watcher { pair, now: t0 };
    assert_eq!(watcher.forward(0, &frame(t0, 1, 200, 0, true)).packets, 200);
    // That packets arrive says nothing of how many would.
    watcher.now += ms(100);
    let feedback = watcher.pair.seal(acknowledged);
    let Pair { egress, sent, .. } = &mut watcher.pair;
    egress.receive_rtcp(watcher.now, &feedback, sent, &mut Vec::new()).unwrap();
    assert!(egress.estimate().is_some_and(|estimate| !estimate.proven));
    assert_eq!(watcher.forward(0, &frame(watcher.now, 201, 200, 3_000, false)).packets, 200);
}

#[test]
fn a_long_frame_is_spread_and_sound_goes_past_it() {
    let mut watcher = Watcher::new();
    let t0 = watcher.now;
    let key = frame(t0, 1_001, 60, 3_000, true);
    let forwarded = watcher.forward(0, &key);
    assert_eq!((forwarded.packets, forwarded.key_frame), (7, true), "7,504 bytes");
    assert_eq!(watcher.pair.egress.stats().waiting, 53);
    assert!(matches!(watcher.pair.egress.deadline(), Some(deadline) if deadline.why == Why::Pacer));
    let (first, _) = watcher.pair.receive();
    assert_eq!(first.len(), 7);

    let mut spread = watcher.run(ms(100));
    let sound = packet(watcher.now, 500, 48_000);
    let Pair { egress, sent, t0: epoch, .. } = &mut watcher.pair;
    assert_eq!(egress.forward(watcher.now, AUDIO, 0, clock(*epoch, 0), &[sound], sent).packets, 1);
    let (past, _) = watcher.pair.receive();
    assert_eq!((past.len(), past[0].ssrc), (1, AUDIO_SSRC));
    spread.extend(watcher.run(ms(300)).into_iter().map(|(at, rtp)| (at + ms(100), rtp)));

    assert_eq!(numbers(&spread), (1_008..1_061u64).map(|n| n as u8).collect::<Vec<_>>());
    let seqs: Vec<u16> = first.iter().chain(spread.iter().map(|(_, rtp)| rtp)).map(|rtp| rtp.seq).collect();
    assert!(seqs.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)));
    // 53 packets at 1.5 Mbit/s.
    let took = spread.last().unwrap().0;
    let due = Duration::from_micros(53 * WIRE * 8 * 1_000_000 / 1_500_000);
    assert!(took <= due + ms(20) && took + ms(20) >= due, "{took:?}, {due:?}");
    // Several leave together.
    let mut moments: Vec<_> = spread.iter().map(|(at, _)| *at).collect();
    moments.dedup();
    assert!(moments.len() <= 53 / 3 + 1, "{}", moments.len());
    let stats = watcher.pair.egress.stats();
    assert_eq!((stats.paced, stats.late, stats.waiting), (53, 0, 0));
}

#[test]
fn what_comes_behind_a_long_frame_waits_behind_it() {
    let mut watcher = Watcher::new();
    let t0 = watcher.now;
    watcher.forward(0, &frame(t0, 1_001, 20, 3_000, true));
    assert_eq!(watcher.forward(0, &frame(t0, 1_021, 1, 6_000, false)).packets, 0);
    let (first, _) = watcher.pair.receive();
    let rest = watcher.run(ms(399));
    assert_eq!(first.len() + rest.len(), 21);
    assert_eq!(numbers(&rest).last(), Some(&(1_021u64 as u8)));
}

#[test]
fn what_has_waited_for_too_long_is_dropped_and_a_key_frame_is_asked_for() {
    let mut watcher = Watcher::new();
    let t0 = watcher.now;
    // 160 packets take 0.9 s.
    watcher.forward(0, &frame(t0, 1_001, 160, 3_000, true));
    let (first, _) = watcher.pair.receive();
    let sent = watcher.run(ms(500));
    let count = (first.len() + sent.len()) as u64;
    // What 400 ms bring, and what could leave at once.
    let expected = (1_500_000 / 8 * 400 / 1_000 + 7_500) / WIRE;
    assert!(count.abs_diff(expected) <= 5, "{count}, {expected}");
    let stats = watcher.pair.egress.stats();
    assert_eq!((stats.late, stats.waiting), (160 - count, 0));
    // What depends on it is of no use.
    let forwarded = watcher.forward(0, &frame(watcher.now, 1_161, 1, 6_000, false));
    assert_eq!((forwarded.packets, forwarded.wants_key_frame), (0, true));
    let last = sent.last().unwrap().1.seq;
    let forwarded = watcher.forward(0, &frame(watcher.now, 1_162, 2, 9_000, true));
    assert_eq!((forwarded.packets, forwarded.wants_key_frame, forwarded.key_frame), (2, false, true));
    let (next, _) = watcher.pair.receive();
    assert_eq!(next[0].seq, last.wrapping_add(1), "no hole that would be asked for");
}

#[test]
fn no_more_than_512_packets_wait() {
    let mut watcher = Watcher::new();
    let t0 = watcher.now;
    for n in 0..5u64 {
        watcher.forward(0, &frame(t0, 1_001 + n * 100, 100, 3_000 * n as u32, n == 0));
    }
    assert_eq!(watcher.pair.egress.stats().waiting, 493);
    let forwarded = watcher.forward(0, &frame(t0, 1_501, 100, 15_000, false));
    assert_eq!((forwarded.packets, forwarded.wants_key_frame), (0, true));
    let stats = watcher.pair.egress.stats();
    assert_eq!((stats.waiting, stats.late), (0, 593));
}

#[test]
fn a_better_layer_begins_with_the_frame_that_waited() {
    let mut watcher = Watcher::new();
    let t0 = watcher.now;
    watcher.pair.egress.follow(VIDEO, 1, LayersMax::ALL);
    watcher.forward(0, &frame(t0, 1_001, 10, 3_000, false));
    assert_eq!(watcher.forward(1, &frame(t0, 5_000, 5, 3_000, true)).packets, 0);
    assert_eq!(watcher.forward(1, &frame(t0, 5_005, 1, 6_000, false)).packets, 0);
    assert_eq!(watcher.pair.egress.flowing(VIDEO), Some(0));
    watcher.pair.receive();
    let rest = watcher.run(ms(300));
    assert_eq!(watcher.pair.egress.flowing(VIDEO), Some(1));
    let expected: Vec<u8> = (1_008..1_011u64).chain(5_000..5_006).map(|n| n as u8).collect();
    assert_eq!(numbers(&rest), expected);
    assert!(rest.windows(2).all(|pair| pair[1].1.seq == pair[0].1.seq.wrapping_add(1)));
    // What is waited for, and comes without a beginning, is asked for at once, whatever else waits.
    watcher.pair.egress.follow(VIDEO, 0, LayersMax::ALL);
    watcher.forward(1, &frame(watcher.now, 5_006, 20, 9_000, false));
    assert!(watcher.forward(0, &frame(watcher.now, 1_011, 1, 9_000, false)).wants_key_frame);
}

#[test]
fn what_is_paused_or_replaced_waits_no_more() {
    for replaced in [false, true] {
        let mut watcher = Watcher::new();
        let t0 = watcher.now;
        watcher.forward(0, &frame(t0, 1_001, 20, 3_000, true));
        let last = watcher.pair.receive().0.last().unwrap().seq;
        match replaced {
            true => watcher.pair.egress.assign(t0, VIDEO, Some(VP8)).unwrap(),
            false => {
                watcher.pair.egress.pause(VIDEO, true);
                watcher.pair.egress.pause(VIDEO, false);
            }
        }
        assert_eq!(watcher.pair.egress.stats().waiting, 0);
        assert!(watcher.run(ms(300)).is_empty());
        watcher.forward(0, &frame(watcher.now, 9_000, 1, 3_000, true));
        let (next, _) = watcher.pair.receive();
        assert_eq!(next[0].seq, last.wrapping_add(1));
    }
}

/// RFC 6184 §8.4: parameter sets that the frame lacks go before it, when it leaves.
#[test]
fn what_a_key_frame_needs_waits_with_it() {
    let mut sections = sections();
    sections[VIDEO].formats[0].format = H264;
    let mut pair = Pair::new(SrtpProfile::AeadAes128Gcm, &sections, 7);
    let t0 = pair.t0;
    pair.egress.assign(t0, VIDEO, Some(H264)).unwrap();
    let slice = |ext_seq: u64, key_frame: bool, nal: u8| {
        let mut payload = vec![nal; 1_000];
        payload[1] = 0x80;
        Packet { ext_seq, key_frame, marker: true, payload: payload.into(), ..packet(t0, ext_seq, ext_seq as u32) }
    };
    let sets: Arc<[Payload]> = [vec![0x67, 1].into(), vec![0x68, 2].into()].into();
    pair.egress.lead(VIDEO, &sets);
    let mut watcher = Watcher { pair, now: t0 };
    assert_eq!(watcher.forward(0, &[slice(1, true, 0x65)]).packets, 3);
    watcher.bound();
    watcher.pair.egress.follow(VIDEO, 1, LayersMax::ALL);
    let low: Vec<Packet> = (2..12).map(|n| slice(n, false, 0x41)).collect();
    watcher.forward(0, &low);
    watcher.pair.egress.lead(VIDEO, &sets);
    assert_eq!(watcher.forward(1, &[slice(50, true, 0x65)]).packets, 0);
    watcher.pair.receive();
    let kinds: Vec<u8> = watcher.run(ms(300)).iter().map(|(_, rtp)| rtp.payload[0]).collect();
    assert_eq!(kinds, [0x41, 0x41, 0x41, 0x67, 0x68, 0x65]);
}

#[test]
fn repairs_share_what_may_leave() {
    let mut watcher = Watcher::new();
    let t0 = watcher.now;
    watcher.forward(0, &frame(t0, 1_001, 60, 3_000, true));
    watcher.run(ms(399));
    watcher.forward(0, &frame(watcher.now, 1_061, 1, 6_000, false));
    let seq = watcher.pair.receive().0[0].seq;
    let lost: Vec<u16> = (1..=60).map(|n| seq.wrapping_sub(n)).rev().collect();
    let nack = watcher.pair.seal(|out| write_nack(out, 1, VIDEO_SSRC, &lost));
    let Pair { egress, sent, .. } = &mut watcher.pair;
    let mut feedback: Vec<Feedback> = Vec::new();
    egress.receive_rtcp(watcher.now, &nack, sent, &mut feedback).unwrap();
    let again = watcher.pair.receive().0.len() as u64;
    // 200 ms at 1.5 Mbit/s, of which little is owed; two bytes of each are its old number.
    assert!(again.abs_diff(37_500 / WIRE) <= 2, "{again}");
    // What follows waits for it.
    assert_eq!(watcher.forward(0, &frame(watcher.now, 1_062, 1, 9_000, false)).packets, 0);
    assert_eq!(watcher.run(ms(300)).len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes: numbers go up by one, no more leaves than may, wake-ups end, and nothing waits forever.
    #[test]
    fn numbers_go_on_and_the_rate_is_kept(
        steps in prop::collection::vec((1u64..80, any::<bool>(), 0u64..120, 0u8..16), 1..40),
    ) {
        let mut watcher = Watcher::new();
        let (begin, mut first, mut time) = (watcher.now, 1_001, 0u32);
        let mut left: Vec<(Duration, Rtp)> = Vec::new();
        for (packets, key, wait, what) in steps {
            match what {
                0 => { watcher.pair.egress.pause(VIDEO, true); watcher.pair.egress.pause(VIDEO, false); }
                1 => watcher.pair.egress.assign(watcher.now, VIDEO, Some(VP8)).unwrap(),
                _ => {}
            }
            time = time.wrapping_add(2_970);
            watcher.forward(0, &frame(watcher.now, first, packets, time, key));
            first += packets;
            let at = watcher.now - begin;
            left.extend(watcher.pair.receive().0.into_iter().map(|rtp| (at, rtp)));
            left.extend(watcher.run(ms(wait)).into_iter().map(|(after, rtp)| (at + after, rtp)));
        }
        let at = watcher.now - begin;
        left.extend(watcher.run(ms(450)).into_iter().map(|(after, rtp)| (at + after, rtp)));
        prop_assert_eq!(watcher.pair.egress.stats().waiting, 0);
        prop_assert!(left.windows(2).all(|pair| pair[1].1.seq == pair[0].1.seq.wrapping_add(1)));
        for (i, (from, _)) in left.iter().enumerate() {
            for (n, (to, _)) in left[i..].iter().enumerate() {
                let sent = (n as u64 + 1) * WIRE;
                let may = 1_500_000 / 8 * (*to - *from).as_micros() as u64 / 1_000_000 + 7_500 + 2 * WIRE;
                prop_assert!(sent <= may, "{} bytes from {:?} to {:?}", sent, from, to);
            }
        }
    }
}
