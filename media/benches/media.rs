//! What a packet costs in each module on its way, without sockets and actors: `make bench-micro`.
//!
//! One iteration is one packet, unless the name says otherwise. Allocations are printed where there are any.

#[path = "../tests/support/viewer.rs"]
mod viewer;

use divan::counter::{BytesCount, ItemsCount};
use divan::{AllocProfiler, Bencher, black_box};
use rondo_media::packet::{Packet, Payload};
use rondo_media::transport::{ReceivedRtp, SrtpProfile};
use std::time::{Duration, Instant};
use viewer::*;

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

/// Payload of a full video packet, in bytes.
const VIDEO_BYTES: usize = 1_150;
/// Payload of 20 ms of Opus at 40 kbit/s, in bytes.
const AUDIO_BYTES: usize = 100;
/// Packets of a frame at 1.2 Mbit/s and 30 frames/s.
const FRAME: usize = 4;
const FRAME_EVERY: Duration = Duration::from_millis(33);

fn main() {
    // Fewer iterations a sample are below the timer's precision.
    divan::Divan::default().sample_size(100).config_with_args().main();
}

/// A payload of VP8 with a 15-bit picture id (RFC 7741 §4.2); `first`: with the header of a delta frame.
fn vp8(first: bool) -> Payload {
    let mut payload = vec![0x80 | u8::from(first) << 4, 0x80, 0x80, 1, 0x11, 2, 0];
    payload.resize(VIDEO_BYTES, 0xaa);
    payload.into()
}

mod wire {
    use super::*;
    use rondo_media::wire::rtcp::{Compound, ReportBlock, TwccWriter, write_cname, write_receiver_report};
    use rondo_media::wire::rtp::{RtpHeader, RtpView, classify};
    use rondo_media::wire::stun::local_ufrag;

    #[divan::bench(args = [AUDIO_BYTES, VIDEO_BYTES])]
    fn rtp_parse(bencher: Bencher, payload: usize) {
        let header = RtpHeader { marker: true, pt: 96, seq: 7, rtp_time: 90_000, ssrc: VIDEO_SSRC };
        let extensions: [(u8, &[u8]); 3] = [(4, b"1"), (2, &[1, 2, 3]), (3, &[0, 9])];
        let mut datagram = Vec::new();
        header.emit(&extensions, &vec![0x55; payload], 0, &mut datagram).unwrap();
        bencher.bench(|| {
            let datagram = black_box(&datagram[..]);
            let view = RtpView::parse(datagram).unwrap();
            (classify(datagram), view.extension(4).map(<[u8]>::len), view.payload.len())
        });
    }

    #[divan::bench]
    fn stun_ufrag(bencher: Bencher) {
        // RFC 8489 §5: a binding request; USERNAME "abcd:efgh" (9 bytes, padded to 12).
        let mut request = vec![0, 1, 0, 16, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 6, 0, 9];
        request.extend(b"abcd:efgh\0\0\0");
        bencher.bench(|| local_ufrag(black_box(&request)).unwrap().len());
    }

    /// One compound: receiver report with two blocks, and the canonical name.
    #[divan::bench]
    fn rtcp_parse_report(bencher: Bencher) {
        let mut compound = Vec::new();
        let block = |ssrc| ReportBlock { ssrc, highest_seq: 70_000, jitter: 40, last_sr: 1, ..ReportBlock::default() };
        write_receiver_report(&mut compound, 9, &[block(AUDIO_SSRC), block(VIDEO_SSRC)]);
        write_cname(&mut compound, 9, "viewer");
        bencher.bench(|| Compound::new(black_box(&compound)).map(Result::unwrap).count());
    }

    /// One transport-wide feedback on 20 packets, every status read.
    #[divan::bench]
    fn rtcp_parse_twcc_20(bencher: Bencher) {
        let mut feedback = Vec::new();
        let arrivals: Vec<_> = (0..20).map(|i| (i != 7).then_some(1_000 * i)).collect();
        assert_eq!(TwccWriter::new(9, VIDEO_SSRC).write(&mut feedback, 100, &arrivals), 20);
        bencher.counter(ItemsCount::new(20u32)).bench(|| {
            let packets = Compound::new(black_box(&feedback)).map(Result::unwrap);
            packets
                .map(|packet| match packet {
                    rondo_media::wire::rtcp::Packet::Twcc(twcc) => {
                        twcc.statuses().filter(|s| s.ticks.is_some()).count()
                    }
                    other => panic!("{other:?}"),
                })
                .sum::<usize>()
        });
    }
}

mod receive {
    use super::*;
    use rondo_media::codec::Codec;
    use rondo_media::receive::dedup::SeqWindow;
    use rondo_media::receive::jitter::Jitter;
    use rondo_media::receive::loss::{LossCount, NackGenerator};
    use rondo_media::receive::{Ring, StreamReceiver, TransportClock};

    #[divan::bench]
    fn dedup(bencher: Bencher) {
        let (mut window, mut seq) = (SeqWindow::new(), 0);
        bencher.bench_local(|| {
            seq += 1;
            window.insert(black_box(seq))
        });
    }

    #[divan::bench]
    fn ring(bencher: Bencher) {
        let (mut ring, mut seq, packet) = (Ring::new(1_024), 0, packet(origin(), 0, 0));
        // Full: from now on nothing has to grow.
        for _ in 0..ring.capacity() {
            seq += 1;
            ring.insert(Packet { ext_seq: seq, ..packet.clone() });
        }
        bencher.bench_local(|| {
            seq += 1;
            ring.insert(Packet { ext_seq: seq, ..packet.clone() });
        });
    }

    #[divan::bench]
    fn jitter(bencher: Bencher) {
        let (mut jitter, mut now, mut rtp_time) = (Jitter::new(48_000), origin(), 0u32);
        bencher.bench_local(|| {
            now += Duration::from_millis(20);
            rtp_time = rtp_time.wrapping_add(960);
            jitter.observe(now, black_box(rtp_time));
        });
    }

    /// Counting, and looking for holes to ask for.
    #[divan::bench]
    fn loss(bencher: Bencher) {
        let (mut count, mut nack, now, mut seq) = (LossCount::default(), NackGenerator::new(), origin(), 0);
        bencher.bench_local(|| {
            seq += 1;
            count.observe(black_box(seq));
            nack.observe(now, seq);
        });
    }

    /// Everything that is done with one received frame: four packets noted, kept and handed on.
    #[divan::bench]
    fn stream_frame_of_4(bencher: Bencher) {
        let (mut stream, mut clock, mut now) = (StreamReceiver::new(Codec::Vp8), TransportClock::new(), origin());
        let mut frame: Vec<_> = (0..FRAME).map(|i| received(i as u64, i == 0, i + 1 == FRAME)).collect();
        let (mut batch, mut taken, mut frames) = (Vec::with_capacity(FRAME), 0, 0);
        bencher.counter(ItemsCount::new(FRAME)).bench_local(|| {
            now += FRAME_EVERY;
            for rtp in &mut frame {
                stream.receive(now, rtp, &mut clock);
                rtp.ext_seq += FRAME as u64;
                rtp.rtp_time = rtp.rtp_time.wrapping_add(2_970);
            }
            batch.clear();
            stream.take_batch(now, &mut batch);
            (taken, frames) = (taken + batch.len(), frames + 1);
        });
        assert_eq!(taken, frames * FRAME, "every frame is handed on whole");
    }

    fn received(ext_seq: u64, first: bool, marker: bool) -> ReceivedRtp {
        ReceivedRtp {
            ssrc: VIDEO_SSRC,
            section: VIDEO,
            layer: 0,
            format: VP8,
            ext_seq,
            rtp_time: 0,
            marker,
            level: None,
            payload: vp8(first),
            sender_report: None,
        }
    }
}

mod send {
    use super::*;
    use rondo_media::send::{Feedback, Protection, SeqRewriter, TimeRewriter};
    use rondo_media::wire::rtcp::{TwccWriter, write_nack};
    use std::cell::RefCell;

    /// The number and the time of one packet of a running source.
    #[divan::bench]
    fn rewrite(bencher: Bencher) {
        let (mut seqs, mut times, mut seq) = (SeqRewriter::new(100), TimeRewriter::new(7), 0);
        seqs.begin(1);
        times.begin(origin(), 0, clock(origin(), 0), 90_000);
        bencher.bench_local(|| {
            seq += 1;
            (seqs.place(black_box(seq)).unwrap(), times.rewrite(seq as u32))
        });
    }

    #[divan::bench(args = PROFILES)]
    fn seal_100_bytes(bencher: Bencher, profile: SrtpProfile) {
        seal(bencher, profile, AUDIO_BYTES);
    }

    #[divan::bench(args = PROFILES)]
    fn seal_1150_bytes(bencher: Bencher, profile: SrtpProfile) {
        seal(bencher, profile, VIDEO_BYTES);
    }

    fn seal(bencher: Bencher, profile: SrtpProfile, payload: usize) {
        const HEADER: usize = 28;
        let mut protection = Protection::new(&keys(profile).0).unwrap();
        let (mut buffer, mut seq) = (vec![0x80; HEADER + payload], 0);
        buffer.reserve(16);
        bencher.counter(BytesCount::new(payload)).bench_local(|| {
            buffer.truncate(HEADER + payload);
            seq += 1;
            protection.seal_rtp(&mut buffer, 0, HEADER, VIDEO_SSRC, seq).unwrap();
        });
    }

    #[derive(Debug, Clone, Copy)]
    enum Link {
        Aes256Gcm,
        Unprotected,
    }

    /// A viewer whose sections flow.
    struct Viewer {
        pair: Pair,
        now: Instant,
        frame: Vec<Packet>,
        sound: Vec<Packet>,
    }

    impl Viewer {
        fn new(link: Link) -> Self {
            let mut pair = match link {
                Link::Aes256Gcm => Pair::new(SrtpProfile::AeadAes256Gcm, &sections(), 5),
                Link::Unprotected => Pair::of((Protection::Plain, Protection::Plain), &sections(), 5),
            };
            let now = pair.t0;
            pair.egress.assign(now, AUDIO, Some(OPUS)).unwrap();
            pair.egress.assign(now, VIDEO, Some(VP8)).unwrap();
            let picture = |i: usize| Packet {
                key_frame: i == 0,
                marker: i + 1 == FRAME,
                level: None,
                payload: vp8(i == 0),
                ..packet(now, i as u64, 0)
            };
            let sound = vec![packet(now, 0, 0)];
            let mut viewer = Self { pair, now, frame: (0..FRAME).map(picture).collect(), sound };
            // Begun, and every buffer grown.
            (0..200).for_each(|_| {
                viewer.video();
                viewer.audio();
            });
            viewer
        }

        fn packets(&self) -> u64 {
            self.pair.egress.stats().packets
        }

        fn video(&mut self) {
            self.now += FRAME_EVERY;
            self.pair.sent.clear();
            self.pair.egress.forward(self.now, VIDEO, 0, clock(self.now, 0), &self.frame, &mut self.pair.sent);
            for packet in &mut self.frame {
                packet.ext_seq += FRAME as u64;
                packet.rtp_time = packet.rtp_time.wrapping_add(2_970);
            }
        }

        fn audio(&mut self) {
            self.now += Duration::from_millis(20);
            self.pair.sent.clear();
            self.pair.egress.forward(self.now, AUDIO, 0, clock(self.now, 0), &self.sound, &mut self.pair.sent);
            self.sound[0].ext_seq += 1;
            self.sound[0].rtp_time = self.sound[0].rtp_time.wrapping_add(960);
        }
    }

    /// A frame of four packets for one viewer: numbers, header, extensions, retransmission ring; sealed or not.
    #[divan::bench(args = [Link::Aes256Gcm, Link::Unprotected])]
    fn forward_frame_of_4(bencher: Bencher, link: Link) {
        let (mut viewer, mut frames) = (Viewer::new(link), 0);
        let before = viewer.packets();
        bencher.counter(ItemsCount::new(FRAME)).bench_local(|| {
            viewer.video();
            frames += 1;
        });
        assert_eq!(viewer.packets() - before, frames * FRAME as u64);
    }

    #[divan::bench(args = [Link::Aes256Gcm, Link::Unprotected])]
    fn forward_audio(bencher: Bencher, link: Link) {
        let (mut viewer, mut packets) = (Viewer::new(link), 0);
        let before = viewer.packets();
        bencher.bench_local(|| {
            viewer.audio();
            packets += 1;
        });
        assert_eq!(viewer.packets() - before, packets);
    }

    /// A NACK for one packet: opened, read, and the packet sent again.
    #[divan::bench(sample_size = 64)]
    fn rtx(bencher: Bencher) {
        let viewer = RefCell::new(Viewer::new(Link::Aes256Gcm));
        let (mut feedback, mut resent) = (Vec::new(), 0);
        bencher
            .with_inputs(|| {
                let mut viewer = viewer.borrow_mut();
                viewer.video();
                let Some(&[s0, s1]) = viewer.pair.sent.buffer.get(2..4).and_then(|s| s.first_chunk()) else {
                    panic!("nothing was sent");
                };
                viewer.pair.seal(|out| write_nack(out, 9, VIDEO_SSRC, &[u16::from_be_bytes([s0, s1])]))
            })
            .bench_local_refs(|nack| {
                let Viewer { pair, now, .. } = &mut *viewer.borrow_mut();
                pair.sent.clear();
                pair.egress.receive_rtcp(*now, nack, &mut pair.sent, &mut feedback).unwrap();
                resent += 1;
            });
        assert_eq!(viewer.borrow().pair.egress.stats().rtx, resent);
    }

    /// Transport-wide feedback on 20 packets: opened, read, matched with what was sent.
    #[divan::bench(sample_size = 64)]
    fn twcc_20(bencher: Bencher) {
        const PACKETS: usize = 20;
        let viewer = RefCell::new(Viewer::new(Link::Aes256Gcm));
        // Every packet of the transport has had a number so far, sound and picture alike.
        let (mut writer, mut number) = (TwccWriter::new(9, VIDEO_SSRC), viewer.borrow().packets() as u16);
        let (mut feedback, mut acked) = (Vec::<Feedback>::new(), 0);
        bencher
            .counter(ItemsCount::new(PACKETS))
            .with_inputs(|| {
                let mut viewer = viewer.borrow_mut();
                (0..PACKETS / FRAME).for_each(|_| viewer.video());
                let arrivals: Vec<_> = (0..PACKETS as u64).map(|i| Some(u64::from(number) * 1_000 + i * 250)).collect();
                let sealed = viewer.pair.seal(|out| {
                    writer.write(out, number, &arrivals);
                });
                number = number.wrapping_add(PACKETS as u16);
                sealed
            })
            .bench_local_refs(|twcc| {
                let Viewer { pair, now, .. } = &mut *viewer.borrow_mut();
                pair.egress.receive_rtcp(*now, twcc, &mut pair.sent, &mut feedback).unwrap();
                acked += PACKETS as u64;
            });
        assert_eq!(viewer.borrow().pair.egress.stats().twcc_acked, acked);
    }
}
