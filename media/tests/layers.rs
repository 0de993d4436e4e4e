//! Layers as a viewer gets them: what the egress writes when one takes another's place, read from the wire.

mod support {
    pub mod viewer;
}

use rondo_media::codec::{Codec, Format, vp8, vp9};
use rondo_media::packet::Packet;
use rondo_media::send::{Forwarded, LayersMax};
use rondo_media::transport::{SectionFormat, SrtpProfile};
use rondo_media::wire::rtcp::{Compound, Packet as Rtcp, write_nack};
use std::time::{Duration, Instant};
use support::viewer::*;

const VP9: Format = Format { codec: Codec::Vp9, profile: 0, packetization: 0 };

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Two layers with numbers and clocks of their own; pictures of two packets, 30 a second.
#[derive(Clone, Copy)]
struct Layer {
    number: u8,
    seq: u64,
    rtp_time: u32,
    picture_id: u16,
    tl0: u8,
}

const LAYERS: [Layer; 2] = [
    Layer { number: 0, seq: 70_000, rtp_time: 0xffff_f000, picture_id: 0x7ffe, tl0: 0xff },
    Layer { number: 1, seq: 9_000, rtp_time: 5_000, picture_id: 100, tl0: 7 },
];

impl Layer {
    fn picture(&self, t0: Instant, n: u32, key: bool) -> Vec<Packet> {
        let [high, low] = (self.picture_id.wrapping_add(n as u16) | 0x8000).to_be_bytes();
        let packet = |second: bool| {
            let mut payload =
                vec![if second { 0x80 } else { 0x90 }, 0xe0, high, low, self.tl0.wrapping_add(n as u8), 0];
            payload.push(u8::from(!key));
            payload.resize(100, self.number);
            Packet {
                ext_seq: self.seq + u64::from(n) * 2 + u64::from(second),
                rtp_time: self.rtp_time.wrapping_add(n * 3_000),
                marker: second,
                key_frame: key && !second,
                level: None,
                arrived: t0,
                payload: payload.into(),
            }
        };
        vec![packet(false), packet(true)]
    }
}

fn show(pair: &mut Pair, of: usize, n: u32, key: bool) -> (Forwarded, Vec<Rtp>) {
    let (t0, layer) = (pair.t0, LAYERS[of]);
    let now = t0 + Duration::from_micros(u64::from(n) * 33_333) + ms(of as u64 * 5);
    let packets = layer.picture(t0, n, key);
    let clock = clock(t0, layer.rtp_time);
    let done = pair.egress.forward(now, VIDEO, layer.number, clock, &packets, &mut pair.sent);
    (done, pair.receive().0)
}

fn watching() -> Pair {
    let mut pair = Pair::new(SrtpProfile::AeadAes128Gcm, &sections(), 7);
    pair.egress.assign(pair.t0, VIDEO, Some(VP8)).unwrap();
    pair
}

fn numbers(rtp: &[Rtp]) -> Vec<(u16, u16, u8, u8)> {
    let read = |p: &Rtp| {
        let d = vp8::descriptor(&p.payload).unwrap();
        (p.seq, d.picture_id.unwrap().value, d.tl0.unwrap().value, p.payload[99])
    };
    rtp.iter().map(read).collect()
}

#[test]
fn a_layer_goes_on_until_the_other_has_a_key_frame_and_no_number_tells() {
    let mut pair = watching();
    let (done, rtp) = show(&mut pair, 1, 0, true);
    assert!(rtp.is_empty() && !done.wants_key_frame, "not the layer that is wanted");
    let (_, rtp) = show(&mut pair, 0, 0, true);
    let (first, time) = (rtp[0].seq, rtp[0].rtp_time);
    assert_eq!(numbers(&rtp), [(first, 0x7ffe, 0xff, 0), (first + 1, 0x7ffe, 0xff, 0)]);
    pair.egress.follow(VIDEO, 1, LayersMax::ALL);
    let (done, rtp) = show(&mut pair, 1, 1, false);
    assert!(rtp.is_empty() && done.wants_key_frame);
    assert_eq!(pair.egress.flowing(VIDEO), Some(0));
    let (_, rtp) = show(&mut pair, 0, 1, false);
    assert_eq!(numbers(&rtp), [(first + 2, 0x7fff, 0, 0), (first + 3, 0x7fff, 0, 0)]);
    // The other layer begins with the same picture, and goes on.
    let (_, rtp) = show(&mut pair, 1, 1, true);
    assert_eq!(numbers(&rtp), [(first + 4, 0, 1, 1), (first + 5, 0, 1, 1)]);
    assert_eq!(rtp[0].rtp_time.wrapping_sub(time), 3_001, "never the same time again");
    assert!(show(&mut pair, 0, 2, false).1.is_empty(), "the old one is over");
    let (_, rtp) = show(&mut pair, 1, 2, false);
    assert_eq!(numbers(&rtp), [(first + 6, 1, 2, 1), (first + 7, 1, 2, 1)]);
    assert_eq!(rtp[0].rtp_time.wrapping_sub(time), 6_000);
    // A wish that is taken back before a key frame changes nothing.
    pair.egress.follow(VIDEO, 0, LayersMax::ALL);
    pair.egress.follow(VIDEO, 1, LayersMax::ALL);
    assert!(show(&mut pair, 0, 3, true).1.is_empty());
    assert_eq!(numbers(&show(&mut pair, 1, 3, false).1)[0], (first + 8, 2, 3, 1));
}

#[test]
fn what_is_sent_again_has_the_numbers_that_it_was_sent_with() {
    let mut pair = watching();
    show(&mut pair, 0, 0, true);
    pair.egress.follow(VIDEO, 1, LayersMax::ALL);
    let (_, sent) = show(&mut pair, 1, 1, true);
    let nack = pair.seal(|out| write_nack(out, 1, VIDEO_SSRC, &[sent[0].seq, sent[1].seq]));
    pair.egress.receive_rtcp(pair.t0, &nack, &mut pair.sent, &mut Vec::new()).unwrap();
    let (again, _) = pair.receive();
    assert_eq!(again.len(), 2);
    for (again, sent) in again.iter().zip(&sent) {
        assert_eq!(again.payload, [&sent.seq.to_be_bytes()[..], &sent.payload].concat());
        assert_eq!((again.rtp_time, again.marker), (sent.rtp_time, sent.marker));
    }
}

#[test]
fn a_repair_of_the_layer_before_fills_its_hole() {
    let mut pair = watching();
    let (t0, layer) = (pair.t0, LAYERS[0]);
    let forward = |pair: &mut Pair, packets: &[Packet]| {
        pair.egress.forward(t0 + ms(40), VIDEO, 0, clock(t0, layer.rtp_time), packets, &mut pair.sent);
        pair.receive().0
    };
    let first = forward(&mut pair, &layer.picture(t0, 0, true))[0].seq;
    let lost = layer.picture(t0, 1, false);
    assert_eq!(forward(&mut pair, &lost[1..])[0].seq, first + 3);
    pair.egress.follow(VIDEO, 1, LayersMax::ALL);
    let (_, rtp) = show(&mut pair, 1, 2, true);
    assert_eq!(rtp[0].seq, first + 4);
    let repaired = forward(&mut pair, &lost);
    assert_eq!(numbers(&repaired), [(first + 2, 0x7fff, 0, 0)], "once, and nothing else");
    assert_eq!(repaired[0].rtp_time, first_time(&pair, layer, 1));
    assert!(forward(&mut pair, &layer.picture(t0, 2, false)).is_empty());
}

/// As it was sent of the layer that began: its offset is that of the report.
fn first_time(pair: &Pair, layer: Layer, n: u32) -> u32 {
    let mut other = Pair::new(SrtpProfile::AeadAes128Gcm, &sections(), 7);
    other.t0 = pair.t0;
    other.egress.assign(other.t0, VIDEO, Some(VP8)).unwrap();
    let rtp = show(&mut other, 0, 0, true).1;
    rtp[0].rtp_time.wrapping_add(n * 3_000).wrapping_add(layer.rtp_time.wrapping_sub(LAYERS[0].rtp_time))
}

/// The report of a layer says which moment its time stands for, after a change as before.
#[test]
fn reports_follow_the_layer() {
    let mut pair = watching();
    show(&mut pair, 0, 0, true);
    pair.egress.follow(VIDEO, 1, LayersMax::ALL);
    let rtp = show(&mut pair, 1, 20, true).1;
    let now = pair.t0 + ms(1_100);
    pair.egress.wake(now, &mut pair.sent);
    let (_, reports) = pair.receive();
    let Some(Ok(Rtcp::SenderReport(sr))) = Compound::new(&reports[0]).next() else { panic!("no report") };
    // Picture 20 was captured after 666.7 ms, 433.3 before.
    assert_eq!(sr.info.rtp_time.wrapping_sub(rtp[0].rtp_time), 39_000);
}

/// VP9 with two spatial layers in one stream, a packet each: what is above is left out, and the last one kept has the marker.
#[test]
fn spatial_layers_are_left_out_without_a_hole() {
    let mut sections = sections();
    sections[VIDEO].formats.push(SectionFormat { pt: 98, rtx_pt: Some(99), format: VP9 });
    let mut pair = Pair::new(SrtpProfile::AeadAes128Gcm, &sections, 7);
    let t0 = pair.t0;
    pair.egress.assign(t0, VIDEO, Some(VP9)).unwrap();
    let picture = |n: u64, key: bool| {
        let packet = |sid: u8| Packet {
            ext_seq: 500 + n * 2 + u64::from(sid),
            rtp_time: n as u32 * 3_000,
            marker: sid == 1,
            key_frame: key && sid == 0,
            level: None,
            arrived: t0,
            payload: vec![0xac | u8::from(!key) << 6, n as u8, sid << 1 | sid, n as u8, 0x82, sid].into(),
        };
        vec![packet(0), packet(1)]
    };
    let send = |pair: &mut Pair, n, key| {
        let done = pair.egress.forward(t0, VIDEO, 0, clock(t0, 0), &picture(n, key), &mut pair.sent);
        let read = |p: &Rtp| {
            let descriptor = vp9::descriptor(&p.payload).unwrap();
            (p.seq, descriptor.picture_id.unwrap().value, descriptor.spatial.unwrap(), p.marker)
        };
        (pair.receive().0.iter().map(read).collect::<Vec<_>>(), done.wants_key_frame)
    };
    let (rtp, _) = send(&mut pair, 1, true);
    let first = rtp[0].0;
    assert_eq!(rtp, [(first, 1, 0, false), (first + 1, 1, 1, true)]);
    pair.egress.follow(VIDEO, 0, LayersMax { spatial: 0, ..LayersMax::ALL });
    assert_eq!(send(&mut pair, 2, false), (vec![(first + 2, 2, 0, true)], false));
    assert_eq!(send(&mut pair, 3, false), (vec![(first + 3, 3, 0, true)], false));
    pair.egress.follow(VIDEO, 0, LayersMax::ALL);
    assert_eq!(send(&mut pair, 4, false), (vec![(first + 4, 4, 0, true)], true), "more of it needs a key frame");
    assert_eq!(send(&mut pair, 5, true), (vec![(first + 5, 5, 0, true), (first + 6, 5, 1, true)], false));
    assert_eq!(send(&mut pair, 6, false), (vec![(first + 7, 6, 0, false), (first + 8, 6, 1, true)], false));
}
