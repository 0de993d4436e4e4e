//! A publisher: its packets arrive in the right sections, whole, and its feedback reaches it.

use crate::net::*;
use crate::srtp::{seal_rtcp, seal_rtp};
use rondo_media::codec::{Codec, Kind};
use rondo_media::transport::{ClosedBy, DatagramRefused, Role, TransportEvent};
use rondo_media::units::Bitrate;
use std::time::Duration;
use str0m::bwe::BweKind;
use str0m::media::{Direction, KeyframeRequestKind, MediaKind};
use str0m::rtp::{Extension, ExtensionMap};
use str0m::{Event, RtcConfig};

#[test]
fn audio_and_video_arrive_in_their_sections() {
    let (mut net, mids) = Net::publisher(start(), RtcConfig::new());
    assert_eq!(net.server.sections().len(), 2);
    net.connect();
    let peer =
        net.events.iter().find_map(|e| if let TransportEvent::IceConnected { peer } = e { Some(*peer) } else { None });
    assert_eq!(peer, Some(address(CLIENT)));
    let video_pt = net.server.sections()[1].formats[0].pt;
    let audio_pt = net.server.sections()[0].formats[0].pt;
    for n in 0..10u32 {
        net.write(mids[0], audio_pt, 65_530 + u64::from(n), 960 * n, &[n as u8; 20]);
        net.write(mids[1], video_pt, 100 + u64::from(n), 3000 * n, &[n as u8; 1100]);
        net.run_ms(20);
    }
    let received = net.received();
    assert_eq!(received.len(), 20);
    for (n, packet) in received.iter().filter(|p| p.section == 0).enumerate() {
        // Numbers of 16 bits wrap at the seventh packet and go on.
        assert_eq!((packet.format.codec, packet.ext_seq), (Codec::Opus, 65_530 + n as u64));
        assert_eq!((packet.rtp_time, &packet.payload[..]), (960 * n as u32, &[n as u8; 20][..]));
    }
    assert_eq!(received.iter().filter(|p| p.section == 1 && p.format.codec == Codec::Vp8 && p.marker).count(), 10);
    let (audio, video) = (&net.server.sections()[0], &net.server.sections()[1]);
    assert_eq!((audio.kind, video.kind), (Kind::Audio, Kind::Video));
    assert!(video.twcc && video.nack && !audio.nack);
}

#[test]
fn a_lost_packet_is_asked_for_and_arrives_by_retransmission() {
    let (mut net, mids) = Net::publisher(start(), RtcConfig::new());
    net.connect();
    let pt = net.server.sections()[1].formats[0].pt;
    for n in 0..5u64 {
        if n == 2 {
            net.drop_from_client = Some(Box::new(move |d| d[1] & 0x7f == pt));
        }
        net.write(mids[1], pt, 10 + n, 3000 * n as u32, &[n as u8; 500]);
        net.drop_from_client = None;
        net.run_ms(33);
    }
    net.run_ms(500);
    let mut seqs: Vec<u64> = net.received().iter().map(|p| p.ext_seq).collect();
    assert_eq!(seqs.len(), 5);
    assert_ne!(seqs[2], 12, "the third packet was to be lost");
    seqs.sort_unstable();
    assert_eq!(seqs, [10, 11, 12, 13, 14]);
    let recovered = net.received().into_iter().find(|p| p.ext_seq == 12).unwrap();
    assert_eq!((&recovered.payload[..], recovered.format.codec), (&[2u8; 500][..], Codec::Vp8));
}

#[test]
fn a_key_frame_request_reaches_the_publisher() {
    let (mut net, mids) = Net::publisher(start(), RtcConfig::new());
    net.connect();
    let pt = net.server.sections()[1].formats[0].pt;
    net.write(mids[1], pt, 1, 1, &[1; 100]);
    net.server.request_key_frame(net.now, 1, 0);
    net.run_ms(5);
    let asked = net.client_events.iter().filter_map(|e| if let Event::KeyframeRequest(k) = e { Some(k) } else { None });
    let asked: Vec<_> = asked.map(|k| (k.mid, k.kind)).collect();
    assert_eq!(asked, [(mids[1], KeyframeRequestKind::Pli)]);
}

/// What libwebrtc and others stay below (draft-alvestrand-rmcat-remb-03 §2.2).
#[test]
fn a_cap_reaches_a_publisher_that_knows_remb_and_no_other() {
    for knows in [true, false] {
        let mut config = RtcConfig::new();
        if !knows {
            config.codec_config().iter_mut().for_each(|params| params.set_fb_remb(false));
        }
        let (mut net, mids) = Net::publisher(start(), config);
        net.connect();
        let pt = net.server.sections()[1].formats[0].pt;
        net.write(mids[1], pt, 1, 1, &[1; 100]);
        net.run_ms(5);
        net.server.cap(net.now, 1, Bitrate::from_kbps(1_200));
        net.run_ms(50);
        let told = net.client_events.iter().filter_map(|e| match e {
            Event::EgressBitrateEstimate(BweKind::Remb { mid, estimate }) => Some((*mid, estimate.as_u64() / 1_000)),
            _ => None,
        });
        let told: Vec<_> = told.collect();
        assert_eq!(told, if knows { vec![(mids[1], 1_200)] } else { vec![] });
    }
}

#[test]
fn sender_reports_come_with_the_packets() {
    let (mut net, mids) = Net::publisher(start(), RtcConfig::new());
    net.connect();
    let pt = net.server.sections()[0].formats[0].pt;
    for n in 0..500u64 {
        net.write(mids[0], pt, n, 960 * n as u32, &[0; 10]);
        net.run_ms(20);
    }
    let received = net.received();
    let (ntp, rtp) = received.last().unwrap().sender_report.unwrap();
    // 2026 is NTP era 0 until 2036: seconds since 1900 are above those of 2020.
    assert!(ntp >> 32 > 3_786_825_600, "{}", ntp >> 32);
    assert!(rtp < 960 * 500);
}

/// A sender report sealed by hand (RFC 3550 §6.4.1, RFC 7714 §9): both its times come with the next packet.
#[test]
fn the_times_of_a_sender_report_are_kept() {
    let (mut net, mids) = Net::publisher(start(), RtcConfig::new());
    net.connect();
    let pt = net.server.sections()[1].formats[0].pt;
    net.write(mids[1], pt, 1, 1, b"first");
    let (ssrc, keys) = (net.received()[0].ssrc, net.keys());
    let master = (&keys.receive_key[..], &keys.receive_salt[..]);
    let ntp: u64 = (3_989_000_000 << 32) | 0x8000_0000;
    let mut report = vec![0x80, 200, 0, 6];
    report.extend(ssrc.to_be_bytes());
    report.extend(ntp.to_be_bytes());
    report.extend([0x12, 0x34, 0x56, 0x78, 0, 0, 0, 1, 0, 0, 0, 5]);
    let sealed = seal_rtcp(master, 5_000, &report);
    assert_eq!(net.server.receive(net.now, address(CLIENT), address(SERVER), &sealed), Ok(()));
    let packet = seal_rtp(master, &[0x80, pt, 0, 2, 0, 0, 0, 9], ssrc, b"by hand");
    assert_eq!(net.server.receive(net.now, address(CLIENT), address(SERVER), &packet), Ok(()));
    net.run_ms(1);
    let received = net.received();
    let last = received.last().unwrap();
    let (ntp_told, rtp_told) = last.sender_report.unwrap();
    assert_eq!((&last.payload[..], last.rtp_time, rtp_told), (&b"by hand"[..], 9, 0x1234_5678));
    // Half a second, to within the microsecond that str0m keeps.
    assert!(ntp_told.abs_diff(ntp) < 2 * 4295, "{ntp_told:x} {ntp:x}");
}

/// Case rtcp-01: an SDES whose END octet is its last costs a publisher's sender report nothing (RFC 3550 §6.5).
#[test]
fn a_sender_report_beside_any_legal_sdes_is_read() {
    let (mut net, mids) = Net::publisher(start(), RtcConfig::new());
    net.connect();
    let pt = net.server.sections()[1].formats[0].pt;
    net.write(mids[1], pt, 1, 1, b"first");
    let (ssrc, keys) = (net.received()[0].ssrc, net.keys());
    let master = (&keys.receive_key[..], &keys.receive_salt[..]);
    for (n, line) in include_str!("../cases/rtcp-01/packets.jsonl").lines().enumerate() {
        let hex = line.split_once("\"hex\": \"").unwrap().1.split_once('"').unwrap().0;
        let plain: Vec<u8> =
            (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
        // Its first packet, a report of somebody else, gives its place to one of ours; the SDES stays as it is.
        let first = 4 * (usize::from(u16::from_be_bytes([plain[2], plain[3]])) + 1);
        let seconds = 3_989_000_000 + n as u64;
        let mut compound = vec![0x80, 200, 0, 6];
        compound.extend(ssrc.to_be_bytes());
        compound.extend((seconds << 32).to_be_bytes());
        compound.extend([0, 0, 0, n as u8, 0, 0, 0, 1, 0, 0, 0, 5]);
        compound.extend(&plain[first..]);
        if line.contains("sr-sdes-bye") {
            // BYE would end the stream; what is asked here is the SDES.
            compound.truncate(compound.len() - 8);
        }
        let sealed = seal_rtcp(master, 5_000 + n as u32, &compound);
        assert_eq!(net.server.receive(net.now, address(CLIENT), address(SERVER), &sealed), Ok(()), "{line}");
        let packet = seal_rtp(master, &[0x80, pt, 0, 2 + n as u8, 0, 0, 0, 9], ssrc, b"by hand");
        net.server.receive(net.now, address(CLIENT), address(SERVER), &packet).unwrap();
        net.run_ms(1);
        let received = net.received();
        let (ntp, rtp) = received.last().unwrap().sender_report.unwrap();
        assert!((ntp >> 32).abs_diff(seconds) <= 1 && rtp == n as u32, "{line}: {ntp:x} {rtp}");
    }
}

/// GStreamer offers without mid extension and without a=ssrc (case sdp-06): the payload type tells the section.
#[test]
fn without_mid_and_ssrc_the_payload_type_tells_the_section() {
    let now = start();
    let mut extensions = ExtensionMap::empty();
    extensions.set(1, Extension::AudioLevel);
    let media = [(MediaKind::Audio, Direction::SendOnly), (MediaKind::Video, Direction::SendOnly)];
    let mut offerer = offerer(now, RtcConfig::new().set_extension_map(extensions), CLIENT, &media);
    let lines = offerer.offer.lines().filter(|l| !l.starts_with("a=ssrc"));
    offerer.offer = lines.map(|l| format!("{l}\r\n")).collect();
    assert!(!offerer.offer.contains("sdes:mid"));
    let (server, answer) = accept(now, Role::Publish, &[SERVER], &offerer.offer);
    let mids = offerer.mids.clone();
    let mut net = Net::new(now, offerer, server, &answer.finish(&[]), (CLIENT, SERVER));
    net.connect();
    let [audio, video] = [0, 1].map(|s| net.server.sections()[s].formats[0].pt);
    net.write(mids[0], audio, 1, 1, b"sound");
    net.write(mids[1], video, 1, 1, b"picture");
    let received: Vec<_> = net.received().iter().map(|p| (p.section, p.payload.to_vec())).collect();
    assert_eq!(received, [(0, b"sound".to_vec()), (1, b"picture".to_vec())]);
}

#[test]
fn a_join_over_ipv6_with_candidates_of_both_families() {
    let now = start();
    let (client, server) = ("[2001:db8::7]:50000", "[2001:db8::1]:7882");
    let media = [(MediaKind::Audio, Direction::SendOnly)];
    let offerer = offerer(now, RtcConfig::new(), client, &media);
    let (transport, answer) = accept(now, Role::Publish, &[SERVER, server], &offerer.offer);
    let mids = offerer.mids.clone();
    let mut net = Net::new(now, offerer, transport, &answer.finish(&[]), (client, server));
    net.connect();
    let pt = net.server.sections()[0].formats[0].pt;
    net.write(mids[0], pt, 1, 1, b"over six");
    assert_eq!(net.received()[0].payload[..], *b"over six");
}

/// The socket is bound to an address that is not advertised: another interface, or a NAT in front of it.
#[test]
fn a_socket_address_that_is_no_candidate_stands_for_the_first_of_its_family() {
    let (mut net, _) = Net::publisher(start(), RtcConfig::new());
    net.socket_at = address("10.0.0.5:7882");
    net.connect();
    let refused = net.server.receive(net.now, address("[2001:db8::7]:1"), address("[::1]:7882"), &[0; 20]);
    assert_eq!(refused, Err(DatagramRefused::NoCandidate));
}

/// Case ice-01: names in .local tell nothing; the check does.
#[test]
fn local_names_are_ignored_and_the_address_is_learned_from_the_check() {
    let now = start();
    let media = [(MediaKind::Audio, Direction::SendOnly)];
    let mut offerer = offerer(now, RtcConfig::new(), CLIENT, &media);
    let hidden = "candidate:1 1 udp 2122260223 4f7c8a52-1b2c-4e5f-9a0b-1c2d3e4f5a6b.local 50000 typ host";
    let lines = offerer
        .offer
        .lines()
        .map(|l| if l.starts_with("a=candidate") { format!("a={hidden}\r\n") } else { format!("{l}\r\n") });
    offerer.offer = lines.collect();
    assert!(offerer.offer.contains(".local"));
    let (mut server, answer) = accept(now, Role::Publish, &[SERVER], &offerer.offer);
    assert_eq!(server.add_remote_candidate(now, hidden), Ok(()));
    assert!(server.add_remote_candidate(now, "candidate:1 1 udp").is_err());
    let mut net = Net::new(now, offerer, server, &answer.finish(&[]), (CLIENT, SERVER));
    net.connect();
    assert!(net.now - now < Duration::from_secs(1));
}

/// A NAT forgets the client and gives it another port: egress follows within two checks.
#[test]
fn a_peer_that_moves_is_followed() {
    let (mut net, mids) = Net::publisher(start(), RtcConfig::new());
    net.connect();
    let pt = net.server.sections()[0].formats[0].pt;
    net.write(mids[0], pt, 1, 1, b"before");
    let moved = address("203.0.113.9:61000");
    net.client_seen_at = moved;
    net.run(Duration::from_secs(10));
    let moves = net.events.iter().filter(|e| matches!(e, TransportEvent::PeerMoved { peer } if *peer == moved));
    assert_eq!(moves.count(), 1);
    net.write(mids[0], pt, 2, 2, b"after");
    net.sent.clear();
    net.run(Duration::from_secs(6));
    let reports: Vec<_> = net.sent.iter().filter(|(_, first, _)| (128..192).contains(first)).collect();
    assert!(!reports.is_empty() && reports.iter().all(|(to, ..)| *to == moved), "{reports:?}");
    assert_eq!(net.received().len(), 2);
}

/// Case sec-06: who answers DTLS is not who signed the offer. No media either way.
#[test]
fn another_certificate_than_offered_ends_the_transport() {
    let now = start();
    let media = [(MediaKind::Audio, Direction::SendOnly)];
    let mut offerer = offerer(now, RtcConfig::new(), CLIENT, &media);
    let at = offerer.offer.find("sha-256 ").unwrap() + "sha-256 ".len();
    let wrong = if &offerer.offer[at..=at] == "0" { "1" } else { "0" };
    offerer.offer.replace_range(at..=at, wrong);
    let (server, answer) = accept(now, Role::Publish, &[SERVER], &offerer.offer);
    let mut net = Net::new(now, offerer, server, &answer.finish(&[]), (CLIENT, SERVER));
    net.run(Duration::from_secs(5));
    let closed: Vec<_> = net.events.iter().filter(|e| matches!(e, TransportEvent::Closed(ClosedBy::Dtls(_)))).collect();
    assert_eq!(closed.len(), 1);
    assert!(!net.connected() && net.received().is_empty());
    assert!(net.sent.iter().all(|(_, first, _)| !(128..192).contains(first)), "no SRTP or SRTCP octet");
    assert_eq!(net.server.receive(net.now, address(CLIENT), address(SERVER), &[0; 20]), Err(DatagramRefused::Closed));
}

#[test]
fn the_peers_close_notify_closes() {
    let (mut net, _) = Net::publisher(start(), RtcConfig::new());
    net.connect();
    net.client.close().unwrap();
    net.run_ms(50);
    assert!(matches!(net.events.last(), Some(TransportEvent::Closed(ClosedBy::Peer))), "{:?}", net.events.last());
}

/// Whoever routes datagrams by address hears again and again whose it is.
#[test]
fn a_peer_that_stays_proves_its_address_with_each_check() {
    let (mut net, _) = Net::publisher(start(), RtcConfig::new());
    net.connect();
    let stays = |net: &Net| net.events.iter().filter(|e| matches!(e, TransportEvent::PeerStays { .. })).count();
    let before = stays(&net);
    // An agent asks for consent every 5 s on average (RFC 7675 §5.1).
    net.run_ms(30_000);
    assert!(stays(&net) >= before + 4, "{} checks in 30 s", stays(&net) - before);
}

#[test]
fn our_close_is_told_to_the_peer() {
    let (mut net, _) = Net::publisher(start(), RtcConfig::new());
    net.connect();
    net.server.close(net.now);
    net.run_ms(50);
    assert!(net.client_events.iter().any(|e| matches!(e, Event::Closed)), "{:?}", net.client_events);
    assert!(!net.events.iter().any(|e| matches!(e, TransportEvent::Closed(_))), "nobody is told what he did himself");
}

#[test]
fn a_transport_moves_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<rondo_media::transport::Transport>();
    is_send::<rondo_media::sdp::Answer>();
}
