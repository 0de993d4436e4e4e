//! Writing the answers of a lite agent.

use super::*;
use std::net::SocketAddr;

/// Writes a success response to the request of `transaction` that came from `from`: XOR-MAPPED-ADDRESS,
/// MESSAGE-INTEGRITY by our own password's `key`, FINGERPRINT (RFC 8445 §7.3.1.2, RFC 8489 §14).
pub fn write_success(out: &mut Vec<u8>, transaction: &[u8; 12], from: SocketAddr, key: &hmac::Key) {
    let start = begin(out, BINDING_SUCCESS, transaction);
    let [p0, p1] = (from.port() ^ (MAGIC_COOKIE >> 16) as u16).to_be_bytes();
    match from {
        SocketAddr::V4(v4) => {
            let ip = (v4.ip().to_bits() ^ MAGIC_COOKIE).to_be_bytes();
            attribute(out, XOR_MAPPED_ADDRESS, &[&[0, 1, p0, p1], &ip]);
        }
        SocketAddr::V6(v6) => {
            let mut mask = [0; 16];
            mask[..4].copy_from_slice(&MAGIC_COOKIE.to_be_bytes());
            mask[4..].copy_from_slice(transaction);
            let ip = (v6.ip().to_bits() ^ u128::from_be_bytes(mask)).to_be_bytes();
            attribute(out, XOR_MAPPED_ADDRESS, &[&[0, 2, p0, p1], &ip]);
        }
    }
    seal(out, start, key);
}

/// Writes the error 487 (Role Conflict): the peer is to take the controlling role, which a lite agent cannot have
/// (RFC 8445 §7.3.1.1).
pub fn write_role_conflict(out: &mut Vec<u8>, transaction: &[u8; 12], key: &hmac::Key) {
    let start = begin(out, BINDING_ERROR, transaction);
    // Class, number, and an empty reason phrase (RFC 8489 §14.8).
    attribute(out, ERROR_CODE, &[&[0, 0, 4, 87]]);
    seal(out, start, key);
}

/// Writes a header whose length is still to come; where the message begins in `out`.
pub(super) fn begin(out: &mut Vec<u8>, message_type: u16, transaction: &[u8; 12]) -> usize {
    let start = out.len();
    out.extend(message_type.to_be_bytes());
    out.extend([0, 0]);
    out.extend(MAGIC_COOKIE.to_be_bytes());
    out.extend(transaction);
    start
}

/// All of ours have lengths that are multiples of 4.
pub(super) fn attribute(out: &mut Vec<u8>, kind: u16, value: &[&[u8]]) {
    let length: usize = value.iter().map(|part| part.len()).sum();
    out.extend(kind.to_be_bytes());
    out.extend((length as u16).to_be_bytes());
    value.iter().for_each(|part| out.extend(*part));
}

pub(super) fn seal(out: &mut Vec<u8>, start: usize, key: &hmac::Key) {
    set_length(out, start, 4 + INTEGRITY_LEN);
    let tag = hmac::sign(key, &out[start..]);
    attribute(out, MESSAGE_INTEGRITY, &[tag.as_ref()]);
    set_length(out, start, 8);
    let crc = crc32(&out[start..]) ^ FINGERPRINT_XOR;
    attribute(out, FINGERPRINT, &[&crc.to_be_bytes()]);
}

/// The length of the message with the attribute that follows, which counts in what it covers.
fn set_length(out: &mut [u8], start: usize, attribute: usize) {
    let length = (out.len() - start - HEADER_LEN + attribute) as u16;
    out[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
}
