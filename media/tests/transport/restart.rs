//! ICE restarts (RFC 8445 §9) and peers whose address changes: DTLS, SRTP and media go on.

use crate::net::*;
use proptest::prelude::*;
use rondo_media::sdp::Fragment;
use rondo_media::transport::{DatagramRefused, RestartRefused, TransportEvent};
use std::time::Duration;
use str0m::RtcConfig;
use str0m::change::{SdpAnswer, SdpPendingOffer};

/// Our answer with the credentials of a fragment: what a WHIP client gives to its peer connection.
fn with_credentials(answer: &str, fragment: &str) -> String {
    let fragment = Fragment::parse(fragment).unwrap();
    let lines = answer.lines().map(|line| match line.split_once(':') {
        Some(("a=ice-ufrag", _)) => format!("a=ice-ufrag:{}\r\n", fragment.ufrag.as_deref().unwrap()),
        Some(("a=ice-pwd", _)) => format!("a=ice-pwd:{}\r\n", fragment.pwd.as_deref().unwrap()),
        _ => format!("{line}\r\n"),
    });
    lines.collect()
}

fn ufrag_of(offer: &str) -> String {
    offer.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).unwrap().to_owned()
}

/// The client begins a restart; what it offers, and what it must be given to go on.
fn begin(net: &mut Net) -> (String, SdpPendingOffer) {
    let mut api = net.client.sdp_api();
    api.ice_restart(true);
    let (offer, pending) = api.apply().unwrap();
    (ufrag_of(&offer.to_sdp_string()), pending)
}

fn restart(net: &mut Net) {
    let (ufrag, pending) = begin(net);
    let restarted = net.server.restart_ice(net.now, &ufrag).unwrap();
    assert_eq!(net.server.local_ufrag(), restarted.local_ufrag);
    assert_eq!(net.server.remote_ufrag(), ufrag);
    let answer = with_credentials(&net.answer, &restarted.fragment);
    net.client.sdp_api().accept_answer(pending, SdpAnswer::from_sdp_string(&answer).unwrap()).unwrap();
}

fn moves(net: &Net) -> Vec<std::net::SocketAddr> {
    let to = |e: &TransportEvent| if let TransportEvent::PeerMoved { peer } = e { Some(*peer) } else { None };
    net.events.iter().filter_map(to).collect()
}

fn retired(net: &Net) -> Vec<String> {
    let ufrag = |e: &TransportEvent| if let TransportEvent::UfragRetired(u) = e { Some(u.clone()) } else { None };
    net.events.iter().filter_map(ufrag).collect()
}

fn handshakes(net: &Net) -> usize {
    net.events.iter().filter(|e| matches!(e, TransportEvent::DtlsConnected(_))).count()
}

#[test]
fn a_restart_says_what_the_peer_needs_to_know() {
    let (mut net, _) = Net::publisher(start(), RtcConfig::new());
    net.connect();
    let restarted = net.server.restart_ice(net.now, "them").unwrap();
    let fragment = Fragment::parse(&restarted.fragment).unwrap();
    assert!(restarted.fragment.starts_with("a=ice-lite\r\n"));
    assert_eq!(fragment.ufrag.as_deref(), Some(restarted.local_ufrag.as_str()));
    assert!(fragment.pwd.unwrap().len() >= 22, "RFC 8839 §5.4");
    assert!(fragment.end_of_candidates && fragment.mids == [net.server.sections()[0].mid.clone()]);
    assert_eq!(fragment.candidates.len(), 1);
    assert!(fragment.candidates[0].contains(" 192.0.2.1 7882 typ host"));
}

#[test]
fn a_client_that_restarts_from_another_socket_loses_nothing_but_what_was_on_its_way() {
    let (mut net, mids) = Net::publisher(start(), RtcConfig::new());
    net.connect();
    let pt = net.server.sections()[0].formats[0].pt;
    let old = net.server.local_ufrag().to_owned();
    for n in 0..10u64 {
        net.write(mids[0], pt, n, 960 * n as u32, &[n as u8; 20]);
        net.run_ms(20);
    }
    // The old path is open until the new one is nominated.
    let (ufrag, pending) = begin(&mut net);
    let restarted = net.server.restart_ice(net.now, &ufrag).unwrap();
    net.write(mids[0], pt, 10, 9_600, b"on the old path");
    assert!(retired(&net).is_empty() && moves(&net).is_empty());

    net.client_seen_at = address("203.0.113.9:61000");
    let answer = with_credentials(&net.answer, &restarted.fragment);
    net.client.sdp_api().accept_answer(pending, SdpAnswer::from_sdp_string(&answer).unwrap()).unwrap();
    let begun = net.now;
    while moves(&net).is_empty() {
        net.run_ms(10);
        assert!(net.now - begun < Duration::from_secs(1), "{:?}", net.events);
    }
    assert_eq!(moves(&net), [net.client_seen_at]);
    assert_eq!(retired(&net), [old]);
    for n in 11..20u64 {
        net.write(mids[0], pt, n, 960 * n as u32, &[n as u8; 20]);
        net.run_ms(20);
    }
    let received: Vec<u64> = net.received().iter().map(|p| p.ext_seq).collect();
    assert_eq!(received, (0..20).collect::<Vec<_>>());
    assert_eq!(handshakes(&net), 1, "DTLS goes on");
}

#[test]
fn a_restart_on_the_same_path_and_several_in_a_row_work() {
    let (mut net, mids) = Net::publisher(start(), RtcConfig::new());
    net.connect();
    let pt = net.server.sections()[0].formats[0].pt;
    for n in 0..3u64 {
        restart(&mut net);
        net.run_ms(2_000);
        assert_eq!(retired(&net).len(), n as usize + 1);
        net.write(mids[0], pt, n, 960 * n as u32, b"on");
        assert_eq!(net.received().len(), n as usize + 1);
        net.run(Duration::from_secs(4));
    }
    assert!(moves(&net).is_empty());
    assert_eq!(handshakes(&net), 1);
}

#[test]
fn a_restart_before_the_connection_connects() {
    let (mut net, mids) = Net::publisher(start(), RtcConfig::new());
    restart(&mut net);
    net.connect();
    let pt = net.server.sections()[0].formats[0].pt;
    net.write(mids[0], pt, 1, 1, b"after");
    assert_eq!(net.received().len(), 1);
}

/// The network changes during a join: until the answer to its PATCH is there, the client checks on in the session that
/// it knows, and may nominate in it.
#[test]
fn a_client_that_has_not_heard_of_its_restart_yet_connects_in_the_session_before() {
    let (mut net, mids) = Net::publisher(start(), RtcConfig::new());
    let pt = net.server.sections()[0].formats[0].pt;
    net.server.restart_ice(net.now, "news").unwrap();
    net.connect();
    assert!(retired(&net).is_empty(), "no nomination in the new one");
    net.write(mids[0], pt, 1, 1, b"in the old session");
    restart(&mut net);
    net.run_ms(2_000);
    net.write(mids[0], pt, 2, 2, b"in the new one");
    assert_eq!((net.received().len(), retired(&net).len(), handshakes(&net)), (2, 1, 1));
}

#[test]
fn the_last_of_two_restarts_counts() {
    let (mut net, mids) = Net::publisher(start(), RtcConfig::new());
    net.connect();
    let first = net.server.local_ufrag().to_owned();
    let lost = net.server.restart_ice(net.now, "lost").unwrap();
    let again = net.server.restart_ice(net.now, "late").unwrap();
    assert_eq!((lost.given_up, again.given_up), (None, Some(lost.local_ufrag)));
    restart(&mut net);
    net.run_ms(2_000);
    assert_eq!(retired(&net), [first]);
    let pt = net.server.sections()[0].formats[0].pt;
    net.write(mids[0], pt, 1, 1, b"after");
    assert_eq!(net.received().len(), 1);
}

#[test]
fn restarts_are_bounded_and_a_closed_transport_has_none() {
    let (mut net, _) = Net::publisher(start(), RtcConfig::new());
    net.connect();
    let results: Vec<_> = (0..50).map(|_| net.server.restart_ice(net.now, "them")).collect();
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 5);
    assert!(matches!(results[49], Err(RestartRefused::TooOften { retry_after }) if retry_after.as_secs() > 0));
    net.server.close(net.now);
    assert_eq!(net.server.restart_ice(net.now, "them"), Err(RestartRefused::Closed));
}

/// A NAT that gives the client another port again and again, as in a call of a day: every time it is followed.
#[test]
fn a_thousand_address_changes_are_followed() {
    let (mut net, mids) = Net::publisher(start(), RtcConfig::new());
    net.connect();
    let pt = net.server.sections()[0].formats[0].pt;
    for n in 1..=1_000u64 {
        net.client_seen_at = std::net::SocketAddr::from(([203, 0, 113, 9], 20_000 + n as u16));
        // str0m checks a pair that works every 3 s.
        for _ in 0..50 {
            net.run_ms(200);
            if moves(&net).len() as u64 == n {
                break;
            }
        }
        assert_eq!((moves(&net).len() as u64, moves(&net).last()), (n, Some(&net.client_seen_at)));
        net.write(mids[0], pt, n, 960 * n as u32, b"from elsewhere");
        assert_eq!(net.received().len() as u64, n);
    }
}

/// SRTP says nothing of where the peer is: a copy of it from elsewhere is not even new.
#[test]
fn srtp_from_elsewhere_moves_nothing() {
    let (mut net, mids) = Net::publisher(start(), RtcConfig::new());
    net.connect();
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let copies = seen.clone();
    net.drop_from_client = Some(Box::new(move |d| {
        copies.borrow_mut().push(d.to_vec());
        false
    }));
    let pt = net.server.sections()[0].formats[0].pt;
    for n in 0..50u64 {
        net.write(mids[0], pt, n, 960 * n as u32, b"sound");
        net.run_ms(20);
    }
    let srtp: Vec<_> = seen.borrow().iter().filter(|d| (128..192).contains(&d[0])).cloned().collect();
    assert!(srtp.len() >= 50);
    let before = net.received().len();
    net.sent.clear();
    for datagram in &srtp {
        let _ = net.server.receive(net.now, address("203.0.113.66:666"), address(SERVER), datagram);
    }
    net.run(Duration::from_secs(3));
    assert_eq!(net.received().len(), before);
    assert!(moves(&net).is_empty());
    assert!(net.sent.iter().all(|(to, ..)| *to == address(CLIENT)));
    // DTLS from there is not even looked at.
    let record = [22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0];
    let refused = net.server.receive(net.now, address("203.0.113.66:666"), address(SERVER), &record);
    assert_eq!(refused, Err(DatagramRefused::UnknownAddress));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Restarts, moves and media in any order: whoever restarted last is connected, and media arrives.
    #[test]
    fn restarts_and_moves_in_any_order_end_in_a_call(steps in prop::collection::vec((0u8..3, 1u64..4_000), 1..10)) {
        let (mut net, mids) = Net::publisher(start(), RtcConfig::new());
        net.connect();
        let pt = net.server.sections()[0].formats[0].pt;
        for (n, (step, wait_ms)) in steps.iter().enumerate() {
            match step {
                0 => net.client_seen_at = std::net::SocketAddr::from(([203, 0, 113, 9], 20_000 + n as u16)),
                1 => {
                    // The bound on restarts is another test's matter.
                    net.run(Duration::from_secs(3));
                    restart(&mut net);
                }
                _ => net.write(mids[0], pt, n as u64, 960 * n as u32, b"sound"),
            }
            net.run_ms(*wait_ms);
        }
        net.run(Duration::from_secs(12));
        let before = net.received().len();
        net.write(mids[0], pt, 100, 96_000, b"the end");
        prop_assert_eq!(net.received().len(), before + 1);
        prop_assert_eq!(handshakes(&net), 1);
    }
}
