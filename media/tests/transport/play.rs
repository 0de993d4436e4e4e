//! A viewer: the keys are the client's, and nothing but our own egress ever uses them.

use crate::net::*;
use crate::srtp::seal_rtp;
use rondo_media::transport::{DatagramRefused, Role, SrtpProfile};
use std::time::Duration;
use str0m::media::{Direction, MediaKind};
use str0m::net::{Protocol, Receive};
use str0m::{Event, Input, RtcConfig};

fn viewer() -> Net {
    let now = start();
    let media = [(MediaKind::Audio, Direction::RecvOnly), (MediaKind::Video, Direction::RecvOnly)];
    let offerer = offerer(now, RtcConfig::new(), CLIENT, &media);
    let (server, answer) = accept(now, Role::Play, &[SERVER], &offerer.offer);
    let msids = [(0, "ann", "TR_audio0000000"), (1, "ann", "TR_video0000000")];
    Net::new(now, offerer, server, &answer.finish(&msids), (CLIENT, SERVER))
}

#[test]
fn what_is_sealed_with_the_keys_opens_at_the_client() {
    let mut net = viewer();
    net.connect();
    let keys = net.keys();
    assert_eq!(keys.profile, SrtpProfile::AeadAes256Gcm);
    assert_eq!((keys.send_key.len(), keys.send_salt.len()), (32, 12));
    assert_eq!((keys.receive_key.len(), keys.receive_salt.len()), (32, 12));
    assert_ne!(keys.send_key, keys.receive_key);
    let video = &net.server.sections()[1];
    let (ssrc, pt) = (video.ssrc.unwrap(), video.formats[0].pt);
    assert!(video.rtx_ssrc.is_some() && video.rtx_ssrc != video.ssrc);
    let packet = seal_rtp((&keys.send_key, &keys.send_salt), &[0x80, pt, 0, 77, 0, 0, 4, 210], ssrc, b"a picture");
    let receive = Receive::new(Protocol::Udp, address(SERVER), address(CLIENT), &packet).unwrap();
    net.client.handle_input(Input::Receive(net.now, receive)).unwrap();
    net.run_ms(5);
    let opened = net.client_events.iter().find_map(|e| if let Event::RtpPacket(p) = e { Some(p) } else { None });
    let opened = opened.expect("the client opens it");
    assert_eq!((*opened.header.ssrc, &opened.payload[..]), (ssrc, &b"a picture"[..]));
}

#[test]
fn str0m_sends_no_srtp_and_sees_none() {
    let mut net = viewer();
    net.connect();
    net.run(Duration::from_secs(30));
    assert!(net.sent.iter().all(|(_, first, _)| !(128..192).contains(first)));
    for second in [96, 200, 205] {
        let datagram = [0x80, second, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2];
        let refused = net.server.receive(net.now, address(CLIENT), address(SERVER), &datagram);
        assert_eq!(refused, Err(DatagramRefused::NotForTransport));
    }
}

#[test]
fn closing_a_viewer_sends_close_notify_and_no_bye() {
    let mut net = viewer();
    net.connect();
    net.sent.clear();
    net.server.close(net.now);
    net.run_ms(20);
    assert!(net.sent.iter().any(|(_, first, _)| (20..64).contains(first)));
    assert!(net.sent.iter().all(|(_, first, _)| !(128..192).contains(first)));
    assert!(net.client_events.iter().any(|e| matches!(e, Event::Closed)));
}
