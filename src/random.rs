//! Randomness of the doors: names of guests, trace ids.

use rondo_media::ids::Identity;
use std::fmt::Write;

/// Bytes that nobody can guess.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    if let Err(error) = getrandom::fill(&mut out) {
        // Only a kernel without any source of randomness comes here; names may then collide, which the room refuses
        // or replaces like any other.
        tracing::error!(%error, "the system gives no random bytes");
    }
    out
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// `guest-xxxxxx`: 24 random bits.
pub fn guest() -> Identity {
    let name = format!("guest-{}", hex(&bytes::<3>()));
    // Letters, digits and a hyphen: always a name.
    name.parse().unwrap_or_else(|_| unreachable!("{name} is a name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_have_six_characters_and_differ() {
        let (a, b) = (guest(), guest());
        assert_eq!(a.as_str().len(), "guest-".len() + 6);
        assert_ne!(a, b, "1 in 16,777,216");
        assert_eq!(hex(&[0, 0x0f, 0xa5, 0xff]), "000fa5ff");
    }
}
