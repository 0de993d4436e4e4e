//! Case sec-01: reordering across the wrap of the sequence number, for both kinds of cipher and both directions.

mod support;

use rondo_media::send::Protection;
use rondo_media::send::srtp::SrtpError;
use rondo_media::transport::{SrtpKeys, SrtpProfile};
use support::Json;

const KEYS: &str = include_str!("cases/sec-01/keys.json");
const PACKETS: &str = include_str!("cases/sec-01/packets.jsonl");

fn protections() -> [(&'static str, Protection); 2] {
    let keys = Json::parse(KEYS);
    let with = |profile, salt: &str| {
        let (key, salt) = (keys.bytes("master_key"), keys.bytes(salt));
        let keys =
            SrtpKeys { profile, send_key: key.clone(), send_salt: salt.clone(), receive_key: key, receive_salt: salt };
        Protection::new(&keys).unwrap()
    };
    [
        ("aes_cm_sha1_80", with(SrtpProfile::Aes128CmSha1_80, "master_salt_112")),
        ("aead_aes_128_gcm", with(SrtpProfile::AeadAes128Gcm, "master_salt_96")),
    ]
}

#[test]
fn packets_around_the_wrap_open_and_a_replay_does_not() {
    for (form, mut protection) in protections() {
        for line in PACKETS.lines() {
            let case = Json::parse(line);
            let n = case.number("n").unwrap();
            let sealed = case.bytes(form);
            let mut forged = sealed.clone();
            *forged.last_mut().unwrap() ^= 1;
            assert_eq!(protection.open_rtp(&mut forged), Err(SrtpError::Forged), "{form} {n}");
            let mut packet = sealed.clone();
            let opened = protection.open_rtp(&mut packet);
            let index = case.number("roc").unwrap() << 16 | case.number("seq").unwrap();
            if case.text("expect") == Some("replay") {
                assert_eq!(opened, Err(SrtpError::Replayed { index }), "{form} {n}");
                continue;
            }
            let opened = opened.unwrap_or_else(|e| panic!("{form} {n}: {e}"));
            assert_eq!(opened.index, index, "{form} {n}");
            assert_eq!(&packet[..opened.len], case.bytes("plain"), "{form} {n}");
        }
    }
}

#[test]
fn packets_around_the_wrap_are_sealed_to_the_same_bytes() {
    for (form, mut protection) in protections() {
        for line in PACKETS.lines() {
            let case = Json::parse(line);
            let ext_seq = case.number("roc").unwrap() << 16 | case.number("seq").unwrap();
            let mut buffer = case.bytes("plain");
            protection.seal_rtp(&mut buffer, 0, 12, 0x1bad_cafe, ext_seq).unwrap();
            assert_eq!(buffer, case.bytes(form), "{form} {}", case.number("n").unwrap());
        }
    }
}
