//! Networks that change under a call: ICE restarts (RFC 9725 §4.3.3) and ports that become others.

use crate::support::client::{PublishOptions, Publisher, ViewOptions, Viewer};
use crate::support::metrics::Metrics;
use crate::support::peer::{Lets, Numbers, Peer};
use crate::support::server::TestServer;
use crate::support::token::{self, token};
use crate::support::wait::poll;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};
use str0m::Event;
use str0m::media::{Direction, MediaKind};

const SOON: Duration = Duration::from_secs(20);

const LOOPBACKS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

fn pair(server: &TestServer, ip: IpAddr) -> (Publisher, Viewer) {
    let api = server.api();
    let ann = Publisher::start(&api, "road", "ann", PublishOptions { ip, ..PublishOptions::default() });
    let bob = Viewer::start(&api, "road", ViewOptions { ip, ..ViewOptions::default() });
    bob.wait_for_streams(&[ann.audio_stream(), ann.video_stream()], 50, SOON).assert_whole();
    (ann, bob)
}

/// How long it took until `more` packets of audio came.
fn resumed(bob: &Viewer, more: u64) -> Duration {
    let (begun, have) = (Instant::now(), bob.stats().audio_packets);
    bob.wait_until("media goes on", SOON, |stats| stats.audio_packets >= have + more);
    begun.elapsed()
}

#[test]
fn a_viewer_that_restarts_ice_from_another_port_misses_nothing() {
    let server = TestServer::start();
    for ip in LOOPBACKS {
        let (ann, bob) = pair(&server, ip);
        for _ in 0..3 {
            let answer = bob.restart_ice();
            assert_eq!(answer.header("content-type").as_deref(), Some("application/trickle-ice-sdpfrag"));
            // A second of audio. The old port is read until the new one is proven, so nothing is lost at all.
            let took = resumed(&bob, 50);
            assert!(took < Duration::from_secs(2), "a second of audio took {took:?}");
        }
        let stats = bob.wait_for_streams(&[ann.audio_stream(), ann.video_stream()], 200, SOON);
        // The same SSRC, sequence numbers that go on, and every packet opens: the same keys.
        stats.assert_whole();
        assert_eq!((bob.stop(), ann.stop()), (200, 200));
    }
}

#[test]
fn a_publisher_that_restarts_ice_from_another_port_goes_on_within_a_second() {
    let server = TestServer::start();
    for ip in LOOPBACKS {
        let (ann, bob) = pair(&server, ip);
        ann.restart_ice();
        let took = resumed(&bob, 25);
        assert!(took < Duration::from_millis(500 + 1_000), "half a second of audio took {took:?}");
        // What was sent from the new port before it was proven is lost: at most a second of 20 ms packets. Video is
        // repaired by retransmission.
        let stats = bob.wait_until("video without a hole", SOON, |stats| {
            let video = stats.stream(ann.video_stream());
            video.received > 200 && video.missing() == 0
        });
        assert!(stats.stream(ann.audio_stream()).missing() <= 50, "{stats:#?}");
        assert_eq!((stats.failed, stats.foreign), (None, 0));
        assert_eq!((bob.stop(), ann.stop()), (200, 200));
    }
}

/// str0m checks a pair that works every three seconds: the next check comes from the new port.
#[test]
fn publisher_and_viewer_behind_a_port_that_changes_are_followed() {
    let server = TestServer::start();
    for ip in LOOPBACKS {
        let (ann, bob) = pair(&server, ip);
        for moves in [[true, false], [false, true], [true, true]] {
            let [publisher, viewer] = moves;
            viewer.then(|| bob.rebind(false));
            publisher.then(|| ann.rebind(false));
            let took = resumed(&bob, 50);
            assert!(took < Duration::from_secs(8), "publisher {publisher}, viewer {viewer}: after {took:?}");
        }
        assert_eq!((bob.stats().failed, bob.stats().foreign), (None, 0));
        assert_eq!((bob.stop(), ann.stop()), (200, 200));
    }
}

#[test]
fn an_ice_restart_is_answered_as_the_rfc_says() {
    let server = TestServer::start();
    let api = server.api();
    let made = api.post_sdp("/whip/restart/ann", include_str!("cases/http-04/offer.sdp"));
    let (resource, first) = (made.location().expect("a Location"), made.header("etag").expect("an ETag"));
    let patch = |if_match: &str, fragment: &str| api.patch_ice(&resource, if_match, fragment);
    let fragment = |ufrag: &str| format!("a=ice-ufrag:{ufrag}\r\na=ice-pwd:m0RZy8cVd1uQpL5sXb2wEfGh\r\n");

    // Not connected yet: that may be restarted, too.
    let restarted = patch("\"*\"", &fragment("new1"));
    assert_eq!(restarted.status, 200, "{restarted:?}");
    assert_eq!(restarted.header("content-type").as_deref(), Some("application/trickle-ice-sdpfrag"));
    let second = restarted.header("etag").expect("an ETag");
    assert_ne!(second, first);
    let line = |name: &str| restarted.body.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    assert_eq!(restarted.body.lines().next(), Some("a=ice-lite"));
    assert_eq!(format!("\"{}\"", line("a=ice-ufrag:")), second, "the tag names the ICE session");
    assert!(line("a=ice-pwd:").len() >= 22 && !made.body.contains(line("a=ice-pwd:")));
    assert!(restarted.body.contains("a=candidate:1 1 udp ") && restarted.body.contains("a=end-of-candidates"));

    let candidate = "a=candidate:1 1 udp 2130706431 127.0.0.1 9 typ host\r\n";
    let later = |if_match: &str, ufrag: &str| patch(if_match, &format!("{}{candidate}", fragment(ufrag))).status;
    assert_eq!(later(&first, "new1"), 412, "the old session");
    assert_eq!(later(&second, "new1"), 204);
    assert_eq!(later(&second, "kT3q"), 422, "the old ufrag in the new session");
    assert_eq!(later("\"*\"", "new1"), 204, "the ufrag that is there: no restart, more candidates");
    assert_eq!(patch("*", &fragment("new2")).status, 200, "without quotes, as HTTP writes it");
    for bad in ["a=ice-ufrag:new3\r\n", "a=ice-pwd:m0RZy8cVd1uQpL5sXb2wEfGh\r\n", "", "a=ice-ufrag:x\r\n", "hello"] {
        let answer = patch("\"*\"", bad);
        assert_eq!((answer.status, answer.code().as_str()), (400, "sdp_malformed"), "{bad:?}");
    }

    // Two at once: each has an answer of its own, and the tag that is left is one of theirs.
    let both = [fragment("new4"), fragment("new5")].map(|fragment| {
        let (api, resource) = (api.clone(), resource.clone());
        std::thread::spawn(move || api.patch_ice(&resource, "\"*\"", &fragment))
    });
    let both = both.map(|thread| thread.join().expect("an answer"));
    assert_eq!(both.each_ref().map(|answer| answer.status), [200, 200]);
    let tags = both.map(|answer| answer.header("etag").expect("an ETag"));
    assert_ne!(tags[0], tags[1]);
    let stale = tags.each_ref().map(|tag| patch(tag, candidate).status);
    assert!(stale == [204, 412] || stale == [412, 204], "{stale:?}");

    let flood: Vec<_> = (0..20).map(|n| patch("\"*\"", &fragment(&format!("flood{n}")))).collect();
    let refused = flood.iter().find(|answer| answer.status != 200).expect("not without end");
    assert_eq!((refused.status, refused.code().as_str()), (429, "too_many_restarts"));
    let wait_s: u64 = refused.header("retry-after").expect("when").parse().expect("seconds");
    assert!((1..=60).contains(&wait_s), "{wait_s}");

    assert_eq!(api.delete(&resource).status, 200);
    let gone = patch("\"*\"", &fragment("late"));
    assert_eq!((gone.status, gone.code().as_str()), (404, "client_left"));
}

#[test]
fn only_who_may_trickle_may_restart_ice() {
    let server = TestServer::start_with(|config| config.dev = false);
    let api = server.api();
    let grants = |room: &str| json!({ "roomJoin": true, "room": room, "canPublish": true });
    let ann = api.with_token(&token("ann", grants("home")));
    let made = ann.post_sdp("/whip/home/ann", include_str!("cases/http-04/offer.sdp"));
    assert_eq!(made.status, 201, "{made:?}");
    let resource = made.location().expect("a Location");
    let fragment = "a=ice-ufrag:mal1\r\na=ice-pwd:m0RZy8cVd1uQpL5sXb2wEfGh\r\n";
    assert_eq!(api.patch_ice(&resource, "\"*\"", fragment).status, 401);
    for (identity, room) in [("mal", "home"), ("ann", "away")] {
        let other = api.with_token(&token(identity, grants(room)));
        assert_eq!(other.patch_ice(&resource, "\"*\"", fragment).status, 403, "{identity} in {room}");
    }
    let expired = api.with_token(&token::signed("ann", grants("home"), -600, token::SECRET));
    assert_eq!(expired.patch_ice(&resource, "\"*\"", fragment).status, 401);
    assert_eq!(ann.patch_ice(&resource, "\"*\"", fragment).status, 200);
}

/// Case sec-06: whoever answers DTLS is not whoever signed the offer. No media either way, and everybody is told why.
#[test]
fn a_certificate_that_was_not_offered_is_refused_with_its_reason() {
    let server = TestServer::start();
    let api = server.api();
    for (path, direction) in [("/whip/forged/mal", Direction::SendOnly), ("/whep/forged", Direction::RecvOnly)] {
        let failed = || {
            let text = api.get("/metrics").body;
            let line = |line: &str| {
                line.strip_prefix("rondo_join_failed_total{code=\"dtls_fingerprint_mismatch\"} ")?.parse().ok()
            };
            text.lines().find_map(line).unwrap_or(0u64)
        };
        let before = failed();
        let mut peer = Peer::new(LOOPBACKS[0], Numbers::PUBLISHER);
        let offer = peer.offer(&[MediaKind::Audio], direction);
        let at = offer.sdp.find("sha-256 ").expect("a fingerprint") + "sha-256 ".len();
        let mut forged = offer.sdp.clone();
        forged.replace_range(at..=at, if &forged[at..=at] == "0" { "1" } else { "0" });
        let made = api.post_sdp(path, forged);
        assert_eq!(made.status, 201);
        peer.accept(offer, &made.body).expect("an answer");
        let begun = Instant::now();
        // The alert ends the peer's side; the server's has ended before it was sent.
        while begun.elapsed() < SOON
            && peer.step(Instant::now() + Duration::from_millis(20)).is_ok()
            && failed() == before
        {}
        poll("the failure is counted", SOON, || (failed() > before).then_some(()));
        assert!(begun.elapsed() < Duration::from_secs(15));
        assert!(!peer.take_events().iter().any(|event| matches!(event, Event::RtpPacket(_))));
        let gone = api.delete(&made.location().expect("a Location"));
        assert_eq!((gone.status, gone.code().as_str()), (404, "dtls_failed"));
    }
}

#[test]
fn restarts_are_counted() {
    let server = TestServer::start();
    let api = server.api();
    let (ann, bob) = pair(&server, LOOPBACKS[0]);
    bob.restart_ice();
    poll("one restart in the metrics", SOON, || {
        api.get("/metrics").body.contains("rondo_worker_ice_restarts_total{worker=\"0\"} 1").then_some(())
    });
    drop((ann, bob));
}

/// A port is drawn again, by a NAT or by the system, before the server has forgotten who had it: who proves that it is
/// there now gets what comes from there.
#[test]
fn who_gets_the_address_of_one_that_vanished_connects() {
    let server = TestServer::start();
    let api = server.api();
    for ip in LOOPBACKS {
        let join = |socket: UdpSocket, who: &str| {
            let mut peer = Peer::with(socket, Numbers::PUBLISHER);
            let offer = peer.offer(&[MediaKind::Audio], Direction::SendOnly);
            let answer = api.post_sdp(&format!("/whip/heirs/{who}"), offer.sdp.clone());
            assert_eq!(answer.status, 201, "{}", answer.body);
            peer.accept(offer, &answer.body).expect("an answer");
            let connected = peer.until(SOON, |event| matches!(event, Event::Connected));
            assert!(connected, "{who} does not connect");
            peer
        };
        let address = join(UdpSocket::bind((ip, 0)).expect("a socket"), "first").vanish();
        for who in ["second", "third"] {
            let free = || UdpSocket::bind(address).ok();
            join(poll("the port is free again", SOON, free), who).vanish();
        }
    }
}

/// …and hears nothing of what was meant for who was there before: an alert in the clear would end its handshake.
#[test]
fn who_vanished_half_way_ends_no_handshake_of_who_has_the_address_now() {
    let server = TestServer::start_with(|config| config.limits.join_deadline_s = 4);
    let api = server.api();
    for ip in LOOPBACKS {
        let join = |socket: UdpSocket, who: &str, lets: Lets| {
            let mut peer = Peer::with(socket, Numbers::PUBLISHER);
            let offer = peer.offer(&[MediaKind::Audio], Direction::SendOnly);
            let answer = api.post_sdp(&format!("/whip/heirs/{who}"), offer.sdp.clone());
            assert_eq!(answer.status, 201, "{}", answer.body);
            peer.let_out(lets);
            peer.accept(offer, &answer.body).expect("an answer");
            assert!(peer.until_checked(SOON), "{who} is not heard");
            peer
        };
        let failed = || Metrics::of(&api).get("rondo_join_failed_total");
        let before = failed();
        let mut first = join(UdpSocket::bind((ip, 0)).expect("a socket"), "first", Lets::Hello);
        while first.hellos() == 0 {
            first.step(Instant::now() + SOON).expect("a connection");
        }
        // Half of its time, so that the second one has some left when that is over.
        assert!(!first.until(Duration::from_secs(2), |_| false));
        let address = first.vanish();
        let free = || UdpSocket::bind(address).ok();
        let mut second = join(poll("the port is free again", SOON, free), "second", Lets::Checks);
        // The deadline of the first one passes; what the server says then comes to the second one's socket.
        let end = Instant::now() + SOON;
        while failed() == before {
            assert!(Instant::now() < end, "the first join does not fail");
            second.step(Instant::now() + Duration::from_millis(20)).expect("nothing that was meant for the first one");
        }
        second.let_out(Lets::All);
        assert!(second.until(SOON, |event| matches!(event, Event::Connected)), "the second one does not connect");
        second.vanish();
    }
}
