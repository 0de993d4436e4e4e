//! Datagrams that no honest peer sends: refused, and the transport goes on.

use crate::net::*;
use crate::srtp::{seal_rtcp, seal_rtp};
use proptest::prelude::*;
use rondo_media::transport::{DatagramRefused, TransportEvent};
use str0m::RtcConfig;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// Case ice-04: broken STUN. None is accepted, and an honest client still connects behind all of it.
#[test]
fn broken_stun_is_refused_and_the_join_goes_on() {
    let (mut net, _) = Net::publisher(start(), RtcConfig::new());
    let mut lines = 0;
    for line in include_str!("../cases/ice-04/packets.jsonl").lines() {
        let datagram = hex(line.split("\"hex\": \"").nth(1).unwrap().split('"').next().unwrap());
        let result = net.server.receive(net.now, address("203.0.113.1:9"), address(SERVER), &datagram);
        assert!(result.is_err(), "{line}");
        lines += 1;
    }
    assert_eq!(lines, 45);
    net.connect();
}

#[test]
fn dtls_from_an_address_that_no_check_has_proven_is_refused() {
    let (mut net, _) = Net::publisher(start(), RtcConfig::new());
    net.connect();
    let record = [22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0];
    let refused = net.server.receive(net.now, address("203.0.113.1:9"), address(SERVER), &record);
    assert_eq!(refused, Err(DatagramRefused::UnknownAddress));
    let long = net.server.receive(net.now, address(CLIENT), address(SERVER), &[0x80; 2001]);
    assert_eq!(long, Err(DatagramRefused::TooLong { got: 2001, limit: 2000 }));
}

/// Kinds of datagrams by first byte, from the address of the peer, before and after the handshake.
fn datagram() -> impl Strategy<Value = Vec<u8>> {
    let bodies = prop::collection::vec(any::<u8>(), 0..300);
    let first = prop_oneof![0u8..4, 20u8..64, 128u8..192, any::<u8>()];
    (first, bodies).prop_map(|(first, mut body)| {
        body.insert(0, first);
        body
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn garbage_does_not_keep_a_publisher_out(before in prop::collection::vec(datagram(), 40), after in prop::collection::vec(datagram(), 40)) {
        let (mut net, mids) = Net::publisher(start(), RtcConfig::new());
        for d in &before {
            let _ = net.server.receive(net.now, address(CLIENT), address(SERVER), d);
        }
        net.connect();
        for d in &after {
            let _ = net.server.receive(net.now, address(CLIENT), address(SERVER), d);
        }
        let pt = net.server.sections()[0].formats[0].pt;
        net.write(mids[0], pt, 5, 5, b"still here");
        prop_assert_eq!(&net.received().last().unwrap().payload[..], b"still here");
    }
}

/// Everything the client sends, cut and flipped, beside the real thing: the handshake itself under attack.
#[test]
fn truncated_and_flipped_copies_of_real_datagrams_do_no_harm() {
    let (mut net, mids) = Net::publisher(start(), RtcConfig::new());
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let copies = seen.clone();
    net.drop_from_client = Some(Box::new(move |d| {
        copies.borrow_mut().push(d.to_vec());
        false
    }));
    net.connect();
    let pt = net.server.sections()[1].formats[0].pt;
    net.write(mids[1], pt, 1, 1, &[7; 900]);
    let seen = std::mem::take(&mut *seen.borrow_mut());
    assert!(seen.len() > 4);
    for (index, real) in seen.iter().enumerate() {
        for cut in (0..real.len()).step_by(7) {
            let _ = net.server.receive(net.now, address(CLIENT), address(SERVER), &real[..cut]);
        }
        let mut flipped = real.clone();
        let at = (index * 31) % real.len();
        flipped[at] ^= 0x55;
        let _ = net.server.receive(net.now, address(CLIENT), address(SERVER), &flipped);
        // A replay is no news either.
        let _ = net.server.receive(net.now, address(CLIENT), address(SERVER), real);
    }
    net.drop_from_client = None;
    net.run_ms(100);
    let before = net.received().len();
    net.write(mids[1], pt, 2, 2, b"still here");
    assert_eq!(net.received().len(), before + 1);
    assert_eq!(before, 1, "neither cut, flipped nor replayed packets are delivered");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// A peer that has the keys and lies: paddings, retransmissions of nothing, extensions, compounds of rubbish.
    #[test]
    fn an_authenticated_liar_harms_only_itself(
        packets in prop::collection::vec((0u8..0x40, 0usize..4, any::<u16>(), prop::collection::vec(any::<u8>(), 0..40)), 40),
        compounds in prop::collection::vec((0x80u8..0xc0, 192u8..224, prop::collection::vec(any::<u8>(), 0..120)), 40),
    ) {
        let (mut net, mids) = Net::publisher(start(), RtcConfig::new());
        net.connect();
        let pt = net.server.sections()[1].formats[0].pt;
        net.write(mids[1], pt, 1, 1, b"first");
        let (video, keys) = (net.received()[0].ssrc, net.keys());
        let master = (&keys.receive_key[..], &keys.receive_salt[..]);
        let format = net.server.sections()[1].formats[0];
        for (bits, which, seq, payload) in &packets {
            let pt = [format.pt, format.rtx_pt.unwrap(), net.server.sections()[0].formats[0].pt, 127][*which];
            let [s0, s1] = seq.to_be_bytes();
            let ssrc = [video, 77, 78, 79][*which];
            let datagram = seal_rtp(master, &[0x80 | (bits & 0x20), pt | (bits << 7), s0, s1, 0, 0, 0, 1], ssrc, payload);
            let _ = net.server.receive(net.now, address(CLIENT), address(SERVER), &datagram);
        }
        for (index, (first, kind, body)) in compounds.iter().enumerate() {
            let mut plain = vec![*first, *kind, 0, u8::try_from(body.len() / 4 + 1).unwrap(), 0, 0, 0, 9];
            plain.extend(body);
            let datagram = seal_rtcp(master, 5_000 + u32::try_from(index).unwrap(), &plain);
            let _ = net.server.receive(net.now, address(CLIENT), address(SERVER), &datagram);
        }
        net.run_ms(2_000);
        prop_assert!(!net.events.iter().any(|e| matches!(e, TransportEvent::Closed(_))));
    }
}
