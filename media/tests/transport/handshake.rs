//! DTLS handshakes that fail: the peer is told why, media never flows, and the reason is one of a closed set.
//!
//! ICE is a real client's; its DTLS is typed by hand, octet by octet, because no library of ours would send it.

use crate::net::*;
use rondo_media::transport::{ClosedBy, DtlsFailure, Role, TransportEvent};
use str0m::RtcConfig;
use str0m::media::{Direction, MediaKind};

/// A self-signed RSA certificate: `openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=WebRTC -days 36500 -outform DER`.
const RSA: &[u8] = include_bytes!("rsa.der");

/// The base point of P-256, uncompressed (SEC 2 §2.4.2): as good a public key as any.
const POINT: &str = "046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296\
    4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5";

const ECDSA_AES_128_GCM: [u8; 2] = [0xc0, 0x2b];
const RSA_AES_128_GCM: [u8; 2] = [0xc0, 0x2f];

/// A client whose messages are written by hand (RFC 6347 §4).
struct Typed {
    net: Net,
    record: u64,
    message: u16,
}

fn u24(n: usize) -> [u8; 3] {
    let [_, a, b, c] = u32::try_from(n).unwrap().to_be_bytes();
    [a, b, c]
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut out = kind.to_be_bytes().to_vec();
    out.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    out.extend(body);
    out
}

/// Extensions of a ClientHello that we like: P-256, ECDSA and RSA with SHA-256, extended master secret, AES-128-GCM.
fn extensions() -> Vec<(u16, Vec<u8>)> {
    vec![
        (10, vec![0, 2, 0, 0x17]),
        (11, vec![1, 0]),
        (13, vec![0, 4, 4, 3, 4, 1]),
        (14, vec![0, 2, 0, 7, 0]),
        (23, vec![]),
    ]
}

impl Typed {
    /// Its path is proven; its offer names `certificate`.
    fn new(certificate: &[u8]) -> Typed {
        let now = start();
        let media = [(MediaKind::Audio, Direction::SendOnly)];
        let mut offerer = offerer(now, RtcConfig::new(), CLIENT, &media);
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let hex: Vec<String> = digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        let lines = offerer.offer.lines().map(|line| match line.strip_prefix("a=fingerprint:") {
            Some(_) => format!("a=fingerprint:sha-256 {}\r\n", hex.join(":")),
            None => format!("{line}\r\n"),
        });
        offerer.offer = lines.collect();
        let (server, answer) = accept(now, Role::Publish, &[SERVER], &offerer.offer);
        let mut net = Net::new(now, offerer, server, &answer.finish(&[]), (CLIENT, SERVER));
        net.drop_from_client = Some(Box::new(|d| (20..64).contains(&d[0])));
        net.run_ms(500);
        assert!(net.events.iter().any(|e| matches!(e, TransportEvent::IceConnected { .. })));
        Typed { net, record: 0, message: 0 }
    }

    fn record(&mut self, kind: u8, body: &[u8]) {
        let mut datagram = vec![kind, 254, 253, 0, 0];
        datagram.extend(&self.record.to_be_bytes()[2..]);
        datagram.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
        datagram.extend(body);
        self.record += 1;
        let _ = self.net.server.receive(self.net.now, address(CLIENT), address(SERVER), &datagram);
        self.net.run_ms(20);
    }

    fn handshake(&mut self, kind: u8, body: &[u8]) {
        let mut message = vec![kind];
        message.extend(u24(body.len()));
        message.extend(self.message.to_be_bytes());
        message.extend(u24(0));
        message.extend(u24(body.len()));
        message.extend(body);
        self.message += 1;
        self.record(22, &message);
    }

    fn client_hello(&mut self, version: [u8; 2], suite: [u8; 2], extensions: &[(u16, Vec<u8>)]) {
        let mut body = version.to_vec();
        body.extend([7; 32]);
        body.extend([0, 0, 0, 2]);
        body.extend(suite);
        body.extend([1, 0]);
        let all: Vec<u8> = extensions.iter().flat_map(|(kind, body)| extension(*kind, body)).collect();
        body.extend(u16::try_from(all.len()).unwrap().to_be_bytes());
        body.extend(all);
        self.handshake(1, &body);
    }

    fn hello(&mut self) {
        self.client_hello([254, 253], ECDSA_AES_128_GCM, &extensions());
        assert!(self.net.dtls.iter().any(|d| d[0] == 22 && d[13] == 2), "the server says hello");
        assert!(self.closed().is_none());
    }

    fn certificate(&mut self, certificates: &[&[u8]]) {
        let list: Vec<u8> = certificates.iter().flat_map(|c| [&u24(c.len())[..], *c].concat()).collect();
        self.handshake(11, &[&u24(list.len())[..], &list].concat());
    }

    fn key_exchange(&mut self) {
        let point: Vec<u8> = (0..65).map(|i| u8::from_str_radix(&POINT[2 * i..2 * i + 2], 16).unwrap()).collect();
        self.handshake(16, &[&[65][..], &point].concat());
    }

    /// A signature that nobody made; `scheme`: its hash and algorithm.
    fn certificate_verify(&mut self, scheme: [u8; 2], signature: &[u8]) {
        let length = u16::try_from(signature.len()).unwrap().to_be_bytes();
        self.handshake(15, &[&scheme[..], &length, signature].concat());
    }

    fn closed(&self) -> Option<ClosedBy> {
        self.net.events.iter().find_map(|e| if let TransportEvent::Closed(by) = e { Some(*by) } else { None })
    }

    /// It has failed for this reason, and the last thing that was said is this fatal alert.
    fn assert_failed(&mut self, failure: DtlsFailure, alert: Option<u8>) {
        assert_eq!(self.closed(), Some(ClosedBy::Dtls(failure)));
        self.assert_alert(alert);
        self.net.run_ms(20_000);
        assert!(!self.net.connected());
        assert!(self.net.sent.iter().all(|(_, first, _)| !(128..192).contains(first)), "no SRTP octet");
        assert!(self.net.server.receive(self.net.now, address(CLIENT), address(SERVER), &[0; 20]).is_err());
    }

    fn assert_alert(&self, alert: Option<u8>) {
        let number = |d: &[u8]| u64::from_be_bytes([0, 0, d[5], d[6], d[7], d[8], d[9], d[10]]);
        let alerts: Vec<&Vec<u8>> = self.net.dtls.iter().filter(|d| d[0] == 21).collect();
        match alert {
            None => assert!(alerts.is_empty(), "{alerts:?}"),
            Some(description) => {
                let [only] = alerts[..] else { panic!("{alerts:?}") };
                // RFC 6347 §4.1: version, epoch 0, length 2; RFC 5246 §7.2: fatal.
                assert_eq!((&only[1..5], &only[11..]), (&[254, 253, 0, 0][..], &[0, 2, 2, description][..]));
                let before = self.net.dtls.iter().filter(|d| d[0] == 22).map(|d| number(d)).max();
                assert!(before.is_none_or(|before| number(only) > before), "a record number is used once");
            }
        }
    }
}

#[test]
fn a_peer_with_an_rsa_certificate_is_told_so() {
    let mut peer = Typed::new(RSA);
    peer.hello();
    peer.certificate(&[RSA]);
    peer.key_exchange();
    peer.certificate_verify([4, 1], &[0x5a; 256]);
    peer.assert_failed(DtlsFailure::CertificateUnsupported, Some(43));
}

#[test]
fn a_peer_without_a_certificate_of_a_kind_that_we_take_is_told_so() {
    let mut peer = Typed::new(RSA);
    peer.hello();
    peer.certificate(&[]);
    peer.assert_failed(DtlsFailure::CertificateMissing, Some(40));
}

#[test]
fn a_certificate_that_is_not_the_offered_one_is_refused_at_once() {
    let mut peer = Typed::new(b"another one");
    peer.hello();
    peer.certificate(&[RSA]);
    peer.assert_failed(DtlsFailure::FingerprintMismatch, Some(42));
}

#[test]
fn a_signature_that_nobody_made_is_refused() {
    let certificate = dimpl::certificate::generate_self_signed_certificate().unwrap().certificate;
    let mut peer = Typed::new(&certificate);
    peer.hello();
    peer.certificate(&[&certificate]);
    peer.key_exchange();
    // The shape of an ECDSA signature (RFC 3279 §2.2.3): a sequence of two integers.
    peer.certificate_verify([4, 3], &[0x30, 6, 2, 1, 5, 2, 1, 7]);
    peer.assert_failed(DtlsFailure::NotAuthentic, Some(51));
}

#[test]
fn a_peer_with_nothing_in_common_is_told_so() {
    let without = |kind: u16| extensions().into_iter().filter(|(k, _)| *k != kind).collect::<Vec<_>>();
    let x448 = vec![(10, vec![0, 2, 0, 0x1e]), (13, vec![0, 2, 4, 3]), (14, vec![0, 2, 0, 7, 0]), (23, vec![])];
    for (what, version, suite, extensions) in [
        ("only RSA suites", [254, 253], RSA_AES_128_GCM, extensions()),
        ("DTLS 1.0", [254, 255], ECDSA_AES_128_GCM, extensions()),
        ("no extended master secret", [254, 253], ECDSA_AES_128_GCM, without(23)),
        ("no group", [254, 253], ECDSA_AES_128_GCM, x448),
    ] {
        println!("{what}");
        let mut peer = Typed::new(RSA);
        peer.client_hello(version, suite, &extensions);
        peer.assert_failed(DtlsFailure::NothingInCommon, Some(40));
    }
}

#[test]
fn a_peer_without_a_common_srtp_profile_is_told_so() {
    // RFC 5764 §4.1.2: SRTP_NULL_HMAC_SHA1_80 is none of ours; and no use_srtp at all.
    for profiles in [Some(vec![0, 2, 0, 5, 0]), None] {
        let mut offered = extensions();
        offered.retain(|(kind, _)| *kind != 14);
        offered.extend(profiles.map(|profiles| (14, profiles)));
        let mut peer = Typed::new(RSA);
        peer.client_hello([254, 253], ECDSA_AES_128_GCM, &offered);
        peer.assert_failed(DtlsFailure::NoSrtpProfile, Some(40));
    }
}

#[test]
fn an_alert_of_the_peer_ends_the_handshake_and_is_not_answered() {
    let mut peer = Typed::new(RSA);
    peer.hello();
    peer.record(21, &[2, 40]);
    peer.assert_failed(DtlsFailure::AlertReceived, None);
}

#[test]
fn who_stops_half_way_is_told_when_the_time_is_up() {
    let mut peer = Typed::new(RSA);
    peer.hello();
    peer.net.run_ms(14_000);
    assert_eq!(peer.closed(), None);
    peer.net.server.close(peer.net.now);
    peer.net.run_ms(20);
    peer.assert_alert(Some(40));
    // Nobody is told anything who has said nothing.
    let mut silent = Typed::new(RSA);
    silent.net.server.close(silent.net.now);
    silent.net.run_ms(20);
    silent.assert_alert(None);
}

#[test]
fn codes_are_a_closed_set() {
    let codes: std::collections::BTreeSet<_> = DtlsFailure::ALL.into_iter().map(DtlsFailure::code).collect();
    assert_eq!(codes.len(), DtlsFailure::ALL.len());
    assert!(codes.iter().all(|code| code.starts_with("dtls_")));
}
