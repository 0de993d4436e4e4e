//! Case rtp-05, check 2: an H.264 stream is entered only where the picture and its parameter sets reach the viewer.

mod support;
#[path = "support/viewer.rs"]
mod viewer;

use rondo_media::codec::{Codec, Format};
use rondo_media::packet::{Packet, Payload};
use rondo_media::receive::{Received, StreamReceiver, TransportClock};
use rondo_media::send::Forwarded;
use rondo_media::transport::{ReceivedRtp, SectionFormat};
use rondo_media::wire::rtcp::write_nack;
use rondo_media::wire::rtp::RtpView;
use std::collections::BTreeMap;
use std::time::Duration;
use support::{Json, unhex};
use viewer::*;

const CASE: &str = include_str!("cases/rtp-05/packets.jsonl");
const FORMAT: Format = H264;

/// A publisher's stream, and a viewer of it.
struct Call {
    lines: BTreeMap<String, Vec<u8>>,
    receiver: StreamReceiver,
    clock: TransportClock,
    pair: Pair,
    next: u64,
    time: u32,
}

impl Call {
    fn new() -> Call {
        let lines = CASE.lines().filter(|line| !line.is_empty()).map(|line| {
            let line = Json::parse(line);
            (line.text("name").unwrap().to_owned(), unhex(line.text("hex").unwrap()))
        });
        let mut sections = sections();
        sections[VIDEO].formats = vec![SectionFormat { pt: 102, rtx_pt: Some(103), format: FORMAT }];
        Call {
            lines: lines.collect(),
            receiver: StreamReceiver::new(Codec::H264),
            clock: TransportClock::new(),
            pair: Pair::new(rondo_media::transport::SrtpProfile::AeadAes128Gcm, &sections, 5),
            next: 100,
            time: 90_000,
        }
    }

    fn payload(&self, name: &str) -> Vec<u8> {
        RtpView::parse(&self.lines[name]).unwrap().payload.to_vec()
    }

    /// The publisher sends these packets of the case as one frame; answers what became of each.
    fn frame(&mut self, names: &[&str]) -> Vec<Received> {
        self.time = self.time.wrapping_add(3_000);
        let payloads: Vec<Vec<u8>> = names.iter().map(|name| self.payload(name)).collect();
        let last = payloads.len() - 1;
        let mut all = Vec::new();
        for (n, payload) in payloads.iter().enumerate() {
            let rtp = ReceivedRtp {
                ssrc: 1,
                section: VIDEO,
                layer: 0,
                format: FORMAT,
                ext_seq: self.next,
                rtp_time: self.time,
                marker: n == last,
                level: None,
                payload: Payload::from(&payload[..]),
                sender_report: None,
            };
            self.next += 1;
            all.push(self.receiver.receive(self.pair.t0, &rtp, &mut self.clock));
        }
        all
    }

    /// Everything that is ready goes to the viewer, as the session does it.
    fn forward(&mut self) -> Forwarded {
        let (t0, mut packets) = (self.pair.t0, Vec::<Packet>::new());
        self.receiver.take_batch(t0, &mut packets);
        if let Some(sets) = self.receiver.parameter_sets().filter(|_| packets.iter().any(|p| p.key_frame)) {
            self.pair.egress.lead(VIDEO, sets);
        }
        self.pair.egress.forward(t0, VIDEO, 0, clock(t0, self.time), &packets, &mut self.pair.sent)
    }

    fn join(&mut self) {
        self.pair.egress.assign(self.pair.t0, VIDEO, Some(FORMAT)).unwrap();
    }

    fn received(&mut self) -> Vec<Rtp> {
        self.pair.receive().0
    }
}

fn payloads(rtp: &[Rtp]) -> Vec<Vec<u8>> {
    rtp.iter().map(|packet| packet.payload.clone()).collect()
}

#[test]
fn who_comes_after_the_parameter_sets_gets_them_before_the_picture() {
    let mut call = Call::new();
    call.frame(&["single-sps"]);
    call.frame(&["single-pps"]);
    call.forward();
    call.join();
    call.frame(&["single-non-idr"]);
    assert!(call.forward().wants_key_frame);
    let became = call.frame(&["fua-idr-start", "fua-idr-middle", "fua-idr-end"]);
    assert_eq!(became[0], Received::New { new_key_frame: true }, "nobody asks on: the picture has begun");
    let forwarded = call.forward();
    assert_eq!((forwarded.packets, forwarded.key_frame), (5, true));
    call.frame(&["single-non-idr"]);
    call.forward();
    let received = call.received();
    let names = ["single-sps", "single-pps", "fua-idr-start", "fua-idr-middle", "fua-idr-end", "single-non-idr"];
    assert_eq!(payloads(&received), names.map(|name| call.payload(name)));
    // In the viewer's own numbering, without a hole; the sets belong to the picture (RFC 6184 §5.1: same timestamp).
    for (n, pair) in received.windows(2).enumerate() {
        assert_eq!(pair[1].seq, pair[0].seq.wrapping_add(1), "{n}");
    }
    assert!(received[..5].iter().all(|packet| packet.rtp_time == received[0].rtp_time));
    assert_eq!(received[5].rtp_time.wrapping_sub(received[0].rtp_time), 3_000);
    assert_eq!(
        received.iter().map(|packet| packet.marker).collect::<Vec<_>>(),
        [false, false, false, false, true, true]
    );

    // A set that is lost on the way is sent again as any packet.
    let lost = received[1].seq;
    let nack = call.pair.seal(|out| write_nack(out, 9, VIDEO_SSRC, &[lost]));
    let later = call.pair.t0 + Duration::from_secs(1);
    call.pair.egress.receive_rtcp(later, &nack, &mut call.pair.sent, &mut Vec::new()).unwrap();
    let again = call.received();
    assert_eq!(again[0].payload, [&lost.to_be_bytes()[..], &call.payload("single-pps")].concat());
}

#[test]
fn without_parameter_sets_the_viewer_waits_for_them() {
    let mut call = Call::new();
    call.join();
    let became = call.frame(&["fua-idr-start", "fua-idr-middle", "fua-idr-end"]);
    assert_eq!(became[0], Received::New { new_key_frame: false }, "it is asked for on");
    assert!(call.forward().wants_key_frame);
    call.frame(&["single-sps"]);
    call.forward();
    assert_eq!(payloads(&call.received()), [call.payload("single-sps")], "the next set is an entry");

    let mut call = Call::new();
    call.join();
    call.frame(&["single-idr"]);
    assert!(call.forward().wants_key_frame);
    let became = call.frame(&["stap-sps-pps-idr"]);
    assert_eq!(became, [Received::New { new_key_frame: true }]);
    assert!(call.forward().key_frame);
    assert_eq!(
        payloads(&call.received()),
        [call.payload("stap-sps-pps-idr")],
        "what it brings along is not said twice"
    );
}

#[test]
fn a_viewer_that_is_in_gets_no_sets_twice() {
    let mut call = Call::new();
    call.join();
    call.frame(&["stap-sps-pps", "single-idr"]);
    call.forward();
    call.frame(&["single-idr"]);
    call.forward();
    let names = ["stap-sps-pps", "single-idr", "single-idr"];
    assert_eq!(payloads(&call.received()), names.map(|name| call.payload(name)));
    // After a pause it begins anew, and may have forgotten.
    call.pair.egress.pause(VIDEO, true);
    call.pair.egress.pause(VIDEO, false);
    call.frame(&["single-idr"]);
    call.forward();
    let received = payloads(&call.received());
    assert_eq!(received.len(), 3);
    assert_eq!(received[2], call.payload("single-idr"));
}

/// A frame's packets may overtake each other on their way here: the viewer begins with the lowest number.
#[test]
fn a_picture_that_overtook_its_sets_is_entered_with_them() {
    let mut call = Call::new();
    call.join();
    call.time += 3_000;
    for (seq, name, marker) in [(101, "single-idr", true), (100, "stap-sps-pps", false)] {
        let payload = call.payload(name);
        let rtp = ReceivedRtp {
            ssrc: 1,
            section: VIDEO,
            layer: 0,
            format: FORMAT,
            ext_seq: seq,
            rtp_time: call.time,
            marker,
            level: None,
            payload: Payload::from(&payload[..]),
            sender_report: None,
        };
        call.receiver.receive(call.pair.t0, &rtp, &mut call.clock);
    }
    call.forward();
    let mut received = call.received();
    received.sort_by_key(|packet| packet.seq);
    assert_eq!(payloads(&received), ["stap-sps-pps", "single-idr"].map(|name| call.payload(name)));
}
