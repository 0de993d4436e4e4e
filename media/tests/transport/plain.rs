//! The plain variant: the same events from the same offers, without any cryptography, and repeatable.

use crate::net::*;
use rondo_media::codec::Codec;
use rondo_media::transport::{
    Accept, ClosedBy, DatagramRefused, Output, ReceivedRtp, Role, Shared, Transport, TransportEvent,
};
use std::time::Instant;

const OFFER: &str = "v=0\r\ns=-\r\na=group:BUNDLE 0 1\r\n\
    m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\na=rtcp-mux\r\na=rtpmap:111 opus/48000/2\r\n\
    a=extmap:3 urn:ietf:params:rtp-hdrext:ssrc-audio-level\r\n\
    m=video 9 UDP/TLS/RTP/SAVPF 96 97\r\na=mid:1\r\na=rtcp-mux\r\na=rtpmap:96 VP8/90000\r\n\
    a=rtcp-fb:96 nack\r\na=rtpmap:97 rtx/90000\r\na=fmtp:97 apt=96\r\n";

fn accept(shared: &Shared, role: Role) -> (Transport, String) {
    let accept = Accept { role, candidates: &[address(SERVER)], offer: OFFER };
    let (transport, answer) = Transport::accept(start(), shared, accept).unwrap();
    (transport, answer.finish(&[(1, "ann", "TR_1")]))
}

fn rtp(pt: u8, seq: u16, ssrc: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x80, pt];
    out.extend(seq.to_be_bytes());
    out.extend(7u32.to_be_bytes());
    out.extend(ssrc.to_be_bytes());
    out.extend(payload);
    out
}

/// What happened, and when the transport wants to be woken.
fn polled(transport: &mut Transport) -> (Vec<TransportEvent>, Option<Instant>) {
    let mut events = Vec::new();
    loop {
        match transport.poll() {
            Output::Event(event) => events.push(event),
            Output::Transmit { .. } => {}
            Output::Wait(at) => return (events, at),
        }
    }
}

fn events(transport: &mut Transport) -> Vec<TransportEvent> {
    polled(transport).0
}

#[test]
fn a_hole_in_video_is_asked_for_until_it_is_filled_and_one_in_sound_never() {
    let (mut t, _) = accept(&Shared::plain(), Role::Publish);
    let now = start();
    let mut send = |d: &[u8]| {
        t.receive(now, address(CLIENT), address(SERVER), d).unwrap();
        polled(&mut t).1
    };
    assert_eq!(send(&rtp(111, 1, 10, b"a")), None);
    assert_eq!(send(&rtp(111, 3, 10, b"c")), None, "sound has no retransmissions");
    assert_eq!(send(&rtp(96, 7, 20, b"a")), None);
    let due = send(&rtp(96, 9, 20, b"c")).expect("a hole to ask for");
    t.wake(due);
    let asked: Vec<u8> = std::iter::from_fn(|| match t.poll() {
        Output::Transmit { datagram, .. } => Some(datagram),
        Output::Event(_) | Output::Wait(_) => None,
    })
    .flatten()
    .collect();
    // RFC 4585 §6.2.1: RTPFB, FMT 1, our SSRC, theirs, PID 8 and nothing behind it.
    assert_eq!(asked, [0x81, 205, 0, 3, 0, 0, 0, 1, 0, 0, 0, 20, 0, 8, 0, 0]);
    t.receive(due, address(CLIENT), address(SERVER), &rtp(97, 1, 21, &[0, 8, b'b'])).unwrap();
    assert_eq!(polled(&mut t).1, None);
}

fn received(events: Vec<TransportEvent>) -> Vec<ReceivedRtp> {
    events.into_iter().filter_map(|e| if let TransportEvent::Rtp(rtp) = e { Some(rtp) } else { None }).collect()
}

#[test]
fn packets_arrive_extended_with_levels_and_unwrapped_retransmissions() {
    let (mut t, _) = accept(&Shared::plain(), Role::Publish);
    let now = start();
    let mut send = |d: &[u8]| {
        t.receive(now, address(CLIENT), address(SERVER), d).unwrap();
        events(&mut t)
    };
    let first = send(&rtp(96, 65_535, 20, b"a"));
    let [TransportEvent::IceConnected { peer }, TransportEvent::DtlsConnected(_), TransportEvent::Rtp(packet)] =
        &first[..]
    else {
        panic!("{first:?}")
    };
    assert_eq!((*peer, packet.section, packet.format.codec), (address(CLIENT), 1, Codec::Vp8));
    let second = received(send(&rtp(96, 1, 20, b"c")));
    assert_eq!(second[0].ext_seq, packet.ext_seq + 2);
    // RFC 4588 §4: the lost number 0, in a stream of its own.
    let again = received(send(&rtp(97, 900, 21, &[0, 0, b'b'])));
    assert_eq!((again[0].ext_seq, again[0].ssrc, &again[0].payload[..]), (packet.ext_seq + 1, 20, &b"b"[..]));
    let mut loud = rtp(111, 1, 10, &[0xbe, 0xde, 0, 1, 0x30, 0x80 | 30, 0, 0, 1, 2, 3]);
    loud[0] |= 0x10;
    let audio = received(send(&loud));
    let level = audio[0].level.unwrap();
    assert_eq!((audio[0].section, level.dbov, level.voice, &audio[0].payload[..]), (0, 30, true, &[1u8, 2, 3][..]));
}

#[test]
fn key_frames_moves_and_the_end_are_told_both_ways() {
    let (mut t, _) = accept(&Shared::plain(), Role::Publish);
    let now = start();
    t.receive(now, address(CLIENT), address(SERVER), &rtp(96, 1, 20, b"a")).unwrap();
    events(&mut t);
    t.request_key_frame(now, 1, 0);
    let Output::Transmit { to, datagram } = t.poll() else { panic!() };
    assert_eq!((to, datagram), (address(CLIENT), vec![0x81, 206, 0, 2, 0, 0, 0, 1, 0, 0, 0, 20]));
    let elsewhere = address("203.0.113.1:7");
    t.receive(now, elsewhere, address(SERVER), &rtp(96, 2, 20, b"b")).unwrap();
    assert!(matches!(events(&mut t)[0], TransportEvent::PeerMoved { peer } if peer == elsewhere));
    t.receive(now, elsewhere, address(SERVER), &[0x81, 203, 0, 1, 0, 0, 0, 20]).unwrap();
    assert!(matches!(events(&mut t)[..], [TransportEvent::Closed(ClosedBy::Peer)]));
    assert_eq!(t.receive(now, elsewhere, address(SERVER), &[0; 20]), Err(DatagramRefused::Closed));
}

/// A binding request, as far as the plain twin reads it.
fn check(username: &str) -> Vec<u8> {
    let mut body = vec![0, 6];
    body.extend((username.len() as u16).to_be_bytes());
    body.extend(username.as_bytes());
    body.resize(body.len().next_multiple_of(4), 0);
    let mut out = vec![0, 1];
    out.extend((body.len() as u16).to_be_bytes());
    out.extend([0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    out.extend(body);
    out
}

#[test]
fn a_restart_is_complete_when_the_new_ufrag_is_named() {
    let (mut t, _) = accept(&Shared::plain(), Role::Publish);
    let (now, first) = (start(), t.local_ufrag().to_owned());
    let lost = t.restart_ice(now, "them1").unwrap();
    let new = t.restart_ice(now, "them2").unwrap();
    assert_eq!((lost.given_up, new.given_up.as_ref()), (None, Some(&lost.local_ufrag)));
    assert_eq!((t.local_ufrag(), t.remote_ufrag()), (new.local_ufrag.as_str(), "them2"));
    t.receive(now, address(CLIENT), address(SERVER), &check(&format!("{first}:them"))).unwrap();
    assert!(!events(&mut t).iter().any(|e| matches!(e, TransportEvent::UfragRetired(_))));
    t.receive(now, address(CLIENT), address(SERVER), &check(&format!("{}:them2", new.local_ufrag))).unwrap();
    assert!(matches!(&events(&mut t)[..], [TransportEvent::UfragRetired(old)] if *old == first));
}

#[test]
fn two_runs_give_the_same_answers() {
    let run = || {
        let shared = Shared::plain();
        [Role::Play, Role::Publish, Role::Play].map(|role| accept(&shared, role).1)
    };
    assert_eq!(run(), run());
    let [first, _, third] = run();
    assert_ne!(first, third, "SSRCs of different transports differ");
}
