//! Reading a binding request: first whose it is, then, with that transport's password, whether it is true.

use super::*;

/// A binding request whose attributes all lie within it. Nothing is authenticated before [`BindingRequest::is_authentic`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindingRequest<'a> {
    /// Our ufrag: the first half of USERNAME.
    pub ours: &'a str,
    /// The peer's ufrag.
    pub theirs: &'a str,
    /// Transaction id.
    pub transaction: [u8; 12],
    /// What the priority of a peer-reflexive candidate would be (RFC 8445 §7.1.1); 0 if not told.
    pub priority: u32,
    /// The peer nominates the pair that this came on.
    pub use_candidate: bool,
    /// The peer takes itself for the controlled agent.
    pub controlled: bool,
    datagram: &'a [u8],
    /// Where MESSAGE-INTEGRITY begins, and its value.
    integrity: Option<(usize, &'a [u8; INTEGRITY_LEN])>,
    /// Where FINGERPRINT begins, and its value.
    fingerprint: Option<(usize, u32)>,
}

impl<'a> BindingRequest<'a> {
    /// Reads one whole STUN message (RFC 8489 §5).
    ///
    /// # Errors
    /// [`StunRefusal`] for anything but a well-formed binding request with a USERNAME of two ufrags
    /// (4 to 256 letters, digits, `+`, `/`: RFC 8839 §5.4).
    pub fn parse(datagram: &'a [u8]) -> Result<BindingRequest<'a>, StunRefusal> {
        let Some((&[t0, t1, l0, l1, c0, c1, c2, c3, transaction @ ..], attributes)) =
            datagram.split_first_chunk::<HEADER_LEN>()
        else {
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
        let mut request = BindingRequest {
            ours: "",
            theirs: "",
            transaction,
            priority: 0,
            use_candidate: false,
            controlled: false,
            datagram,
            integrity: None,
            fingerprint: None,
        };
        let username = request.attributes(attributes)?.ok_or(StunRefusal::NoUsername)?;
        (request.ours, request.theirs) = halves(username).ok_or(StunRefusal::BadUsername(username.len()))?;
        Ok(request)
    }

    /// Reads the attributes; gives the first USERNAME. What follows MESSAGE-INTEGRITY is not covered by it and is
    /// ignored, FINGERPRINT excepted (RFC 8489 §14.5).
    fn attributes(&mut self, mut rest: &'a [u8]) -> Result<Option<&'a [u8]>, StunRefusal> {
        let mut username = None;
        while let Some((&[k0, k1, l0, l1], behind)) = rest.split_first_chunk::<4>() {
            let at = self.datagram.len() - rest.len();
            let kind = u16::from_be_bytes([k0, k1]);
            let len = usize::from(u16::from_be_bytes([l0, l1]));
            let (Some(value), Some(next)) = (behind.get(..len), behind.get(len.next_multiple_of(4)..)) else {
                return Err(StunRefusal::Attribute { kind, len, room: behind.len() });
            };
            match (kind, self.integrity) {
                (FINGERPRINT, _) if self.fingerprint.is_none() => {
                    self.fingerprint = value.try_into().ok().map(|value| (at, u32::from_be_bytes(value)));
                }
                (USERNAME, None) => username = username.or(Some(value)),
                (PRIORITY, None) => self.priority = value.try_into().map_or(0, u32::from_be_bytes),
                (USE_CANDIDATE, None) => self.use_candidate = true,
                (ICE_CONTROLLED, None) => self.controlled = true,
                (MESSAGE_INTEGRITY, None) => self.integrity = value.try_into().ok().map(|value| (at, value)),
                _ => {}
            }
            rest = next;
        }
        Ok(username)
    }

    /// Whether it was made with the password that `key` was made of (RFC 8489 §9.1.3), and arrived whole.
    pub fn is_authentic(&self, key: &hmac::Key) -> bool {
        let Some((at, expected)) = self.integrity else { return false };
        let whole = self.fingerprint.is_none_or(|(at, expected)| {
            self.covered(at, 8).is_some_and(|covered| crc32(&covered) ^ FINGERPRINT_XOR == expected)
        });
        whole
            && self.covered(at, 4 + INTEGRITY_LEN).is_some_and(|covered| hmac::verify(key, &covered, expected).is_ok())
    }

    /// What an attribute at `at` covers: everything before it, with a length that ends behind it (RFC 8489 §14.5,
    /// §14.7). `attribute`: its length with its header, in bytes.
    fn covered(&self, at: usize, attribute: usize) -> Option<Vec<u8>> {
        let mut covered = self.datagram.get(..at)?.to_vec();
        let length = u16::try_from((at + attribute).checked_sub(HEADER_LEN)?).ok()?;
        covered.get_mut(2..4)?.copy_from_slice(&length.to_be_bytes());
        Some(covered)
    }
}

fn halves(username: &[u8]) -> Option<(&str, &str)> {
    let (ours, theirs) = std::str::from_utf8(username).ok()?.split_once(':')?;
    // Ours is what we have drawn, without liberties.
    let drawn = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    (is_ice_text(ours, 4) && ours.bytes().all(drawn) && is_ice_text(theirs, 4)).then_some((ours, theirs))
}

/// Characters of an ICE username fragment or password (RFC 8839 §5.4), and four more that clients use. The offer and
/// the checks are judged by this one rule: what an offer may have must connect.
pub(crate) fn is_ice_text(text: &str, shortest: usize) -> bool {
    (shortest..=256).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'-' | b'_' | b'=' | b'.'))
}

/// A sealed check, for tests of what takes it.
#[cfg(test)]
pub(crate) fn test_request(username: &str, priority: u32, use_candidate: bool, password: &str) -> Vec<u8> {
    let nominates: &[u16] = if use_candidate { &[USE_CANDIDATE] } else { &[] };
    sealed(username, priority, nominates, password)
}

/// The same, from a peer that takes itself for the controlled agent.
#[cfg(test)]
pub(crate) fn test_controlled(username: &str, password: &str) -> Vec<u8> {
    sealed(username, 1, &[ICE_CONTROLLED], password)
}

#[cfg(test)]
fn sealed(username: &str, priority: u32, flags: &[u16], password: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let start = response::begin(&mut out, BINDING_REQUEST, &[7; 12]);
    let padding = &[0; 3][..username.len().next_multiple_of(4) - username.len()];
    response::attribute(&mut out, USERNAME, &[username.as_bytes()]);
    out.extend(padding);
    response::attribute(&mut out, PRIORITY, &[&priority.to_be_bytes()]);
    flags.iter().for_each(|flag| response::attribute(&mut out, *flag, &[]));
    response::seal(&mut out, start, &key(password));
    out
}
