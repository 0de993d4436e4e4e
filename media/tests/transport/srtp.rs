//! SRTP and SRTCP of AES-256-GCM as the RFCs describe them, to play either end by hand.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

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

fn cipher(master: (&[u8], &[u8]), label: u8) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &derive(master.0, master.1, label, 32)).unwrap())
}

fn nonce(salt: &[u8], ssrc: u32, at: usize, number: &[u8]) -> Nonce {
    let mut iv = [0u8; 12];
    iv[2..6].copy_from_slice(&ssrc.to_be_bytes());
    iv[at..].copy_from_slice(number);
    iv.iter_mut().zip(salt).for_each(|(i, s)| *i ^= s);
    Nonce::assume_unique_for_key(iv)
}

/// RFC 7714 §8, roll-over counter 0. `head`: the first eight bytes.
pub fn seal_rtp(master: (&[u8], &[u8]), head: &[u8; 8], ssrc: u32, payload: &[u8]) -> Vec<u8> {
    let mut packet = head.to_vec();
    packet.extend(ssrc.to_be_bytes());
    let mut sealed = payload.to_vec();
    let nonce = nonce(&derive(master.0, master.1, 2, 12), ssrc, 10, &head[2..4]);
    cipher(master, 0).seal_in_place_append_tag(nonce, Aad::from(&packet[..]), &mut sealed).unwrap();
    packet.extend(sealed);
    packet
}

/// RFC 7714 §9, encrypted. `plain`: a whole compound, its first eight bytes in the clear.
pub fn seal_rtcp(master: (&[u8], &[u8]), index: u32, plain: &[u8]) -> Vec<u8> {
    let (head, body) = plain.split_at(8);
    let ssrc = u32::from_be_bytes(head[4..8].try_into().unwrap());
    let trailer = (0x8000_0000 | index).to_be_bytes();
    let mut sealed = body.to_vec();
    let aad = [head, &trailer].concat();
    let nonce = nonce(&derive(master.0, master.1, 5, 12), ssrc, 8, &index.to_be_bytes());
    cipher(master, 3).seal_in_place_append_tag(nonce, Aad::from(&aad[..]), &mut sealed).unwrap();
    [head, &sealed, &trailer].concat()
}
