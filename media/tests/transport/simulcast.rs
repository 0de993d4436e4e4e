//! A publisher of three layers: str0m as client tells them apart by rid and by repaired rid (RFC 8852, RFC 8853).

use crate::net::{CLIENT, Net, Offerer, SERVER, accept, address, start};
use rondo_media::transport::Role;
use str0m::media::{Direction, KeyframeRequestKind, MediaKind, Mid, Rid, Simulcast, SimulcastLayer};
use str0m::{Candidate, Event, RtcConfig};

const RIDS: [&str; 3] = ["q", "h", "f"];

/// Connected, with the video section's mid and payload type.
fn publisher() -> (Net, Mid, u8) {
    let now = start();
    let mut rtc = RtcConfig::new().set_rtp_mode(true).build(now);
    rtc.add_local_candidate(Candidate::host(address(CLIENT), "udp").unwrap());
    let mut api = rtc.sdp_api();
    let mut simulcast = Simulcast::new();
    RIDS.iter().for_each(|rid| simulcast.add_send_layer(SimulcastLayer::new(rid)));
    let mid = api.add_media(MediaKind::Video, Direction::SendOnly, None, None, Some(simulcast));
    let (offer, pending) = api.apply().unwrap();
    let offerer = Offerer { rtc, offer: offer.to_sdp_string(), pending, mids: vec![mid] };
    let (server, answer) = accept(now, Role::Publish, &[SERVER], &offerer.offer);
    assert_eq!(server.sections()[0].layers, RIDS);
    let mut net = Net::new(now, offerer, server, &answer.finish(&[]), (CLIENT, SERVER));
    net.connect();
    let pt = net.server.sections()[0].formats[0].pt;
    (net, mid, pt)
}

fn layer(n: usize) -> Option<Rid> {
    Some(Rid::from(RIDS[n]))
}

#[test]
fn each_layer_arrives_as_a_stream_of_its_own() {
    let (mut net, mid, pt) = publisher();
    for n in 0..10u64 {
        for (index, seq) in [(0, 65_530), (1, 200), (2, 3_000)] {
            let payload = [index as u8 * 16 + n as u8; 300];
            net.write_layer((mid, layer(index)), pt, seq + n, 3_000 * n as u32, &payload);
        }
        net.run_ms(33);
    }
    let received = net.received();
    assert_eq!(received.len(), 30);
    let mut ssrcs = Vec::new();
    for (index, first) in [(0u8, 65_530), (1, 200), (2, 3_000)] {
        let of: Vec<_> = received.iter().filter(|p| p.layer == index).collect();
        assert_eq!(of.iter().map(|p| p.ext_seq).collect::<Vec<_>>(), (first..first + 10).collect::<Vec<u64>>());
        assert!(of.iter().enumerate().all(|(n, p)| p.payload[..] == [index * 16 + n as u8; 300] && p.section == 0));
        assert!(of.iter().all(|p| p.ssrc == of[0].ssrc));
        ssrcs.push(of[0].ssrc);
    }
    ssrcs.sort_unstable();
    ssrcs.dedup();
    assert_eq!(ssrcs.len(), 3);
}

#[test]
fn a_lost_packet_of_each_layer_arrives_by_its_own_retransmissions() {
    let (mut net, mid, pt) = publisher();
    for n in 0..8u64 {
        for (index, lost) in [(0, 3), (1, 4), (2, 5)] {
            if n == lost {
                net.drop_from_client = Some(Box::new(move |d| d[1] & 0x7f == pt));
            }
            net.write_layer((mid, layer(index)), pt, 100 + n, 3_000 * n as u32, &[index as u8; 400]);
            net.drop_from_client = None;
        }
        net.run_ms(33);
    }
    net.run_ms(500);
    for (index, lost) in [(0u8, 103u64), (1, 104), (2, 105)] {
        let received = net.received();
        let mut seqs: Vec<u64> = received.iter().filter(|p| p.layer == index).map(|p| p.ext_seq).collect();
        assert_ne!(seqs[lost as usize - 100], lost, "it was to be lost");
        seqs.sort_unstable();
        assert_eq!(seqs, (100..108).collect::<Vec<u64>>(), "layer {index}");
        let repaired = received.iter().find(|p| (p.layer, p.ext_seq) == (index, lost)).unwrap();
        assert_eq!(repaired.payload[..], [index; 400]);
    }
}

#[test]
fn a_key_frame_is_asked_of_one_layer() {
    let (mut net, mid, pt) = publisher();
    for index in 0..3 {
        net.write_layer((mid, layer(index)), pt, 1, 1, &[1; 100]);
    }
    net.server.request_key_frame(net.now, 0, 1);
    net.run_ms(5);
    net.server.request_key_frame(net.now, 0, 3);
    net.run_ms(5);
    let asked = net.client_events.iter().filter_map(|e| if let Event::KeyframeRequest(k) = e { Some(k) } else { None });
    let asked: Vec<_> = asked.map(|k| (k.mid, k.rid, k.kind)).collect();
    assert_eq!(asked, [(mid, layer(1), KeyframeRequestKind::Pli)]);
}
