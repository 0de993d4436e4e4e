//! A viewer: the keys are the client's, and nothing but our own egress ever uses them.

use crate::net::*;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rondo_media::transport::{DatagramRefused, Role, SrtpKeys, SrtpProfile, TransportEvent};
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

fn keys(net: &Net) -> SrtpKeys {
    let keys = |e: &TransportEvent| if let TransportEvent::DtlsConnected(keys) = e { Some(keys.clone()) } else { None };
    net.events.iter().find_map(keys).unwrap()
}

/// Key derivation of RFC 3711 §4.3 for AES-256 and a salt of 96 bits (RFC 7714 §11), by str0m's AES.
fn derive(key: &[u8], salt: &[u8], label: u8, length: usize) -> Vec<u8> {
    let aes = str0m::crypto::from_feature_flags().srtp_provider;
    let mut out = Vec::new();
    for counter in 0u16.. {
        if out.len() >= length {
            break;
        }
        let mut block = [0u8; 16];
        block[..salt.len()].copy_from_slice(salt);
        block[7] ^= label;
        block[14..].copy_from_slice(&counter.to_be_bytes());
        let mut stream = [0u8; 32];
        aes.srtp_aes_256_ecb_round(key, &block, &mut stream);
        out.extend_from_slice(&stream[..16]);
    }
    out.truncate(length);
    out
}

/// SRTP with AES-256-GCM (RFC 7714 §8), roll-over counter 0.
fn seal(keys: &SrtpKeys, ssrc: u32, pt: u8, seq: u16, payload: &[u8]) -> Vec<u8> {
    let key = derive(&keys.send_key, &keys.send_salt, 0, 32);
    let salt = derive(&keys.send_key, &keys.send_salt, 2, 12);
    let mut packet = vec![0x80, pt];
    packet.extend(seq.to_be_bytes());
    packet.extend(1234u32.to_be_bytes());
    packet.extend(ssrc.to_be_bytes());
    let mut iv = [0u8; 12];
    iv[2..6].copy_from_slice(&ssrc.to_be_bytes());
    iv[10..].copy_from_slice(&seq.to_be_bytes());
    iv.iter_mut().zip(&salt).for_each(|(i, s)| *i ^= s);
    let mut sealed = payload.to_vec();
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).unwrap());
    let nonce = Nonce::assume_unique_for_key(iv);
    key.seal_in_place_append_tag(nonce, Aad::from(&packet[..]), &mut sealed).unwrap();
    packet.extend(sealed);
    packet
}

#[test]
fn what_is_sealed_with_the_keys_opens_at_the_client() {
    let mut net = viewer();
    net.connect();
    let keys = keys(&net);
    assert_eq!(keys.profile, SrtpProfile::AeadAes256Gcm);
    assert_eq!((keys.send_key.len(), keys.send_salt.len()), (32, 12));
    assert_eq!((keys.receive_key.len(), keys.receive_salt.len()), (32, 12));
    assert_ne!(keys.send_key, keys.receive_key);
    let video = &net.server.sections()[1];
    let (ssrc, pt) = (video.ssrc.unwrap(), video.formats[0].pt);
    assert!(video.rtx_ssrc.is_some() && video.rtx_ssrc != video.ssrc);
    let packet = seal(&keys, ssrc, pt, 77, b"a picture");
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
