//! STUN binding requests as a lite ICE agent gets them, and its answers (RFC 8489, RFC 8445 §7.3).

mod request;
mod response;

pub use request::BindingRequest;
pub(crate) use request::is_ice_text;
#[cfg(test)]
pub(crate) use request::{test_controlled, test_request};
pub use response::{write_role_conflict, write_success};

use ring::hmac;

/// Why a datagram is no binding request for an ICE agent of ours; it is dropped and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StunRefusal {
    /// Shorter than the header of 20 bytes.
    #[error("STUN message of {0} bytes")]
    Truncated(usize),
    /// Another method or class than a binding request.
    #[error("STUN message type {0:#06x}")]
    NotBindingRequest(u16),
    /// The magic cookie is missing.
    #[error("STUN magic cookie is {0:#010x}")]
    Cookie(u32),
    /// The length field is no multiple of 4, or not what follows the header.
    #[error("STUN length field says {said}, {got} bytes follow the header")]
    Length {
        /// The length field.
        said: usize,
        /// Bytes after the header.
        got: usize,
    },
    /// An attribute ends after the message.
    #[error("STUN attribute {kind:#06x} of {len} bytes with {room} left")]
    Attribute {
        /// Attribute type.
        kind: u16,
        /// Its length field.
        len: usize,
        /// Bytes after its header.
        room: usize,
    },
    /// No USERNAME before MESSAGE-INTEGRITY.
    #[error("STUN binding request without a USERNAME")]
    NoUsername,
    /// A USERNAME that is not `ufrag:ufrag`.
    #[error("STUN USERNAME of {0} bytes is not a pair of ufrags")]
    BadUsername(usize),
}

/// Our ufrag in a binding request sent to us: USERNAME is `ours:theirs` (RFC 8445 §7.2.2).
///
/// `datagram`: one whole STUN message (RFC 8489 §5): 20 bytes of header, then attributes, each padded to 4
/// bytes. Nothing is authenticated here; that is done with the password of the transport that was found.
///
/// # Errors
/// [`StunRefusal`] for anything but a well-formed binding request with a USERNAME of two ufrags
/// (4 to 256 letters, digits, `+`, `/`: RFC 8839 §5.4).
pub fn local_ufrag(datagram: &[u8]) -> Result<&str, StunRefusal> {
    BindingRequest::parse(datagram).map(|request| request.ours)
}

const BINDING_REQUEST: u16 = 0x0001;
const BINDING_INDICATION: u16 = 0x0011;
const BINDING_SUCCESS: u16 = 0x0101;
const BINDING_ERROR: u16 = 0x0111;
const MAGIC_COOKIE: u32 = 0x2112_a442;
const HEADER_LEN: usize = 20;
const USERNAME: u16 = 0x0006;
const MESSAGE_INTEGRITY: u16 = 0x0008;
const ERROR_CODE: u16 = 0x0009;
const XOR_MAPPED_ADDRESS: u16 = 0x0020;
const PRIORITY: u16 = 0x0024;
const USE_CANDIDATE: u16 = 0x0025;
const FINGERPRINT: u16 = 0x8028;
const ICE_CONTROLLED: u16 = 0x8029;
/// HMAC-SHA1.
const INTEGRITY_LEN: usize = 20;
/// RFC 8489 §14.7.
const FINGERPRINT_XOR: u32 = 0x5354_554e;

/// An ICE password as the key that it is (RFC 8489 §9.1.1: SASLprep changes none of its characters).
pub fn key(password: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes())
}

/// Whether a datagram is a binding indication: a keep-alive that wants no answer (RFC 8445 §11).
pub fn is_indication(datagram: &[u8]) -> bool {
    datagram.len() >= HEADER_LEN && datagram.starts_with(&BINDING_INDICATION.to_be_bytes())
}

/// CRC-32 of ITU-T V.42, as FINGERPRINT wants it (RFC 8489 §14.7). A check comes every few seconds: no table.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (kind, value) in attributes {
            body.extend(kind.to_be_bytes());
            body.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
            body.extend_from_slice(value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        let mut out = vec![0, 1];
        out.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
        out.extend(MAGIC_COOKIE.to_be_bytes());
        out.extend([7; 12]);
        out.extend(body);
        out
    }

    /// RFC 5769 §2.1 to §2.3.
    const RFC_5769: &str = include_str!("../../../tests/vectors/rfc/rfc5769.json");
    const PASSWORD: &str = "VOkJxbRl1RmTxUk/WvJxBt";

    fn vector(name: &str) -> Vec<u8> {
        let hex = RFC_5769.split_once(&format!("\"{name}\"")).unwrap().1.split_once("\"hex\": \"").unwrap().1;
        let hex = hex.split_once('"').unwrap().0;
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }

    #[test]
    fn the_request_of_the_rfc_is_read_and_authentic() {
        let datagram = vector("request_2_1");
        let request = BindingRequest::parse(&datagram).unwrap();
        assert_eq!((request.ours, request.theirs, request.priority), ("evtj", "h6vY", 0x6e00_01ff));
        assert!(request.controlled && !request.use_candidate);
        assert!(request.is_authentic(&key(PASSWORD)));
        assert!(!request.is_authentic(&key("VOkJxbRl1RmTxUk/WvJxBs")));
        let fingerprint = datagram.len() - 8;
        for at in (0..fingerprint).chain(fingerprint + 4..datagram.len()) {
            let mut changed = datagram.clone();
            changed[at] ^= 1;
            let authentic = BindingRequest::parse(&changed).is_ok_and(|r| r.is_authentic(&key(PASSWORD)));
            assert!(!authentic, "octet {at} was changed");
        }
    }

    #[test]
    fn what_follows_message_integrity_changes_nothing() {
        // USE-CANDIDATE behind it, as somebody on the path may add it; FINGERPRINT may be made by anybody.
        let mut datagram = vector("request_2_1");
        datagram.truncate(datagram.len() - 8);
        datagram.extend([0x00, 0x25, 0, 0]);
        let length = u16::try_from(datagram.len() - HEADER_LEN).unwrap();
        datagram[2..4].copy_from_slice(&length.to_be_bytes());
        let request = BindingRequest::parse(&datagram).unwrap();
        assert!(request.is_authentic(&key(PASSWORD)) && !request.use_candidate);
    }

    #[test]
    fn addresses_are_written_as_the_rfc_has_them() {
        for (name, from) in [
            ("response_ipv4_2_2", "192.0.2.1:32853"),
            ("response_ipv6_2_3", "[2001:db8:1234:5678:11:2233:4455:6677]:32853"),
        ] {
            let theirs = vector(name);
            let mut ours = Vec::new();
            write_success(&mut ours, theirs[8..20].try_into().unwrap(), from.parse().unwrap(), &key(PASSWORD));
            // Theirs has a SOFTWARE of 16 bytes before it.
            let address = 4 + usize::from(theirs[39]);
            assert_eq!(ours[20..20 + address], theirs[36..36 + address], "{name}");
            assert_eq!(ours.len(), theirs.len() - 16);
            assert_eq!(usize::from(u16::from_be_bytes([ours[2], ours[3]])), ours.len() - 20);
        }
    }

    #[test]
    fn answers_are_sealed_as_requests_are_checked() {
        let mut conflict = Vec::new();
        write_role_conflict(&mut conflict, &[7; 12], &key(PASSWORD));
        // 487 is class 4, number 87 (RFC 8489 §14.8).
        assert_eq!(conflict[20..28], [0, 9, 0, 4, 0, 0, 4, 87]);
        // Read as a request with a USERNAME it would be authentic: the seal covers what precedes it.
        let mut sealed = Vec::new();
        let start = response::begin(&mut sealed, BINDING_REQUEST, &[7; 12]);
        response::attribute(&mut sealed, USERNAME, &[b"ours:theirs+"]);
        response::seal(&mut sealed, start, &key(PASSWORD));
        let request = BindingRequest::parse(&sealed).unwrap();
        assert!(request.is_authentic(&key(PASSWORD)) && !request.is_authentic(&key("x")));
    }

    #[test]
    fn the_first_half_of_the_username_is_ours() {
        assert_eq!(local_ufrag(&message(&[(0x0024, &[0; 4]), (USERNAME, b"ours:theirs+/")])), Ok("ours"));
        assert_eq!(local_ufrag(&message(&[(USERNAME, b"ours:theirs"), (USERNAME, b"last:theirs")])), Ok("ours"));
        assert_eq!(
            local_ufrag(&message(&[(MESSAGE_INTEGRITY, &[0; 20]), (USERNAME, b"ours:theirs")])),
            Err(StunRefusal::NoUsername),
            "what follows MESSAGE-INTEGRITY is not covered by it (RFC 8489 §14.5)"
        );
        for bad in ["", ":", "ours", "our:theirs", "ours:the", "o rs:theirs", "ours:theirs:more", "öurs:theirs"] {
            let refused = local_ufrag(&message(&[(USERNAME, bad.as_bytes())])).map(str::to_owned);
            assert_eq!(refused, Err(StunRefusal::BadUsername(bad.len())), "{bad}");
        }
        assert_eq!(
            local_ufrag(&message(&[(USERNAME, &[0xff; 9])])).map(str::to_owned),
            Err(StunRefusal::BadUsername(9))
        );
    }

    #[test]
    fn a_message_of_another_type_cookie_or_length_is_refused() {
        let good = message(&[(USERNAME, b"ours:theirs")]);
        let with = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            local_ufrag(&bytes).map(str::to_owned)
        };
        assert_eq!(with(0, 1), Err(StunRefusal::NotBindingRequest(0x0101)));
        assert_eq!(with(7, 0), Err(StunRefusal::Cookie(0x2112_a400)));
        assert_eq!(with(3, 17), Err(StunRefusal::Length { said: 17, got: 16 }));
        assert_eq!(with(23, 13), Err(StunRefusal::Attribute { kind: USERNAME, len: 13, room: 12 }));
        assert_eq!(local_ufrag(&good[..19]), Err(StunRefusal::Truncated(19)));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(datagram in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = local_ufrag(&datagram);
        }

        #[test]
        fn arbitrary_attributes_never_panic(body in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut datagram = message(&[]);
            datagram[2..4].copy_from_slice(&u16::try_from(body.len()).unwrap().to_be_bytes());
            datagram.extend(body);
            let _ = local_ufrag(&datagram);
        }

        #[test]
        fn mutated_requests_never_panic(at in 0..48usize, value: u8, cut in 0..=48usize) {
            let mut datagram = message(&[(USERNAME, b"ours:theirs"), (0x0024, &[1, 2, 3, 4])]);
            prop_assert!(local_ufrag(&datagram).is_ok());
            datagram.resize(48, 0);
            datagram[at] = value;
            let _ = local_ufrag(&datagram[..cut]);
        }
    }
}
