//! Whose a STUN binding request is: read before any key is known, to find the transport it belongs to.

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

const BINDING_REQUEST: u16 = 0x0001;
const MAGIC_COOKIE: u32 = 0x2112_a442;
const USERNAME: u16 = 0x0006;
const MESSAGE_INTEGRITY: u16 = 0x0008;

/// Our ufrag in a binding request sent to us: USERNAME is `ours:theirs` (RFC 8445 §7.2.2).
///
/// `datagram`: one whole STUN message (RFC 8489 §5): 20 bytes of header, then attributes, each padded to 4
/// bytes. Nothing is authenticated here; that is done with the password of the transport that was found.
///
/// # Errors
/// [`StunRefusal`] for anything but a well-formed binding request with a USERNAME of two ufrags
/// (4 to 256 letters, digits, `+`, `/`: RFC 8839 §5.4).
pub fn local_ufrag(datagram: &[u8]) -> Result<&str, StunRefusal> {
    let Some((&[t0, t1, l0, l1, c0, c1, c2, c3, ..], attributes)) = datagram.split_first_chunk::<20>() else {
        return Err(StunRefusal::Truncated(datagram.len()));
    };
    let cookie = u32::from_be_bytes([c0, c1, c2, c3]);
    if cookie != MAGIC_COOKIE {
        return Err(StunRefusal::Cookie(cookie));
    }
    let said = usize::from(u16::from_be_bytes([l0, l1]));
    if said != attributes.len() || said % 4 != 0 {
        return Err(StunRefusal::Length { said, got: attributes.len() });
    }
    let message_type = u16::from_be_bytes([t0, t1]);
    if message_type != BINDING_REQUEST {
        return Err(StunRefusal::NotBindingRequest(message_type));
    }
    let username = username(attributes)?.ok_or(StunRefusal::NoUsername)?;
    own_half(username).ok_or(StunRefusal::BadUsername(username.len()))
}

/// The first USERNAME that MESSAGE-INTEGRITY covers; all attributes must lie within the message.
fn username(mut attributes: &[u8]) -> Result<Option<&[u8]>, StunRefusal> {
    let mut found = None;
    let mut covered = true;
    while let Some((&[k0, k1, l0, l1], rest)) = attributes.split_first_chunk::<4>() {
        let kind = u16::from_be_bytes([k0, k1]);
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        let padded = len.next_multiple_of(4);
        let (Some(value), Some(next)) = (rest.get(..len), rest.get(padded..)) else {
            return Err(StunRefusal::Attribute { kind, len, room: rest.len() });
        };
        match kind {
            USERNAME if covered && found.is_none() => found = Some(value),
            MESSAGE_INTEGRITY => covered = false,
            _ => {}
        }
        attributes = next;
    }
    Ok(found)
}

fn own_half(username: &[u8]) -> Option<&str> {
    let (ours, theirs) = std::str::from_utf8(username).ok()?.split_once(':')?;
    let is_ufrag = |text: &str| {
        (4..=256).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
    };
    (is_ufrag(ours) && is_ufrag(theirs)).then_some(ours)
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
