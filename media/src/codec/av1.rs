//! AV1 over RTP (Alliance for Open Media, "RTP Payload Format For AV1").

/// Whether this payload begins a coded video sequence: the aggregation header says so (N = 1, §4.4), or, for
/// senders that leave N out, a sequence header OBU is among the OBUs that begin here. Such a sequence begins
/// with a key frame (§4.4), so a decoder can begin here.
///
/// Anything shorter than its first OBU header is no key frame.
pub fn starts_key_frame(payload: &[u8]) -> bool {
    let Some((&aggregation, rest)) = payload.split_first() else { return false };
    // Z|Y|W(2)|N|reserved(3); a packet that continues an OBU (Z) cannot begin a sequence.
    if aggregation & 0x80 != 0 || rest.is_empty() {
        return false;
    }
    aggregation & 0x08 != 0 || has_sequence_header(aggregation >> 4 & 0x03, rest)
}

const OBU_SEQUENCE_HEADER: u8 = 1;

/// Walks the OBU elements: `count` of them, the last without a length; all with one if `count` is 0 (§4.3).
fn has_sequence_header(count: u8, mut elements: &[u8]) -> bool {
    let mut read = 0u8;
    while !elements.is_empty() {
        read = read.saturating_add(1);
        let (element, rest) = if read == count {
            (elements, &[][..])
        } else {
            let Some((len, rest)) = leb128(elements) else { return false };
            match rest.split_at_checked(len) {
                Some(parts) => parts,
                // The last element continues in the next packet, or lies; its header may still be here.
                None => (rest, &[][..]),
            }
        };
        // forbidden(1) | type(4) | extension | has_size | reserved
        if element.first().is_some_and(|header| header & 0x80 == 0 && header >> 3 & 0x0f == OBU_SEQUENCE_HEADER) {
            return true;
        }
        elements = rest;
    }
    false
}

/// A length of at most 8 bytes of 7 bits, least significant first (AV1 bitstream specification §4.10.5).
fn leb128(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0u64;
    for (i, byte) in bytes.iter().enumerate().take(8) {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((usize::try_from(value).ok()?, bytes.get(i + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEQUENCE_HEADER: u8 = 1 << 3;
    const TEMPORAL_DELIMITER: u8 = 2 << 3;
    const FRAME: u8 = 6 << 3;

    #[test]
    fn the_n_bit_or_a_sequence_header_begins_a_sequence() {
        assert!(starts_key_frame(&[0x18, SEQUENCE_HEADER, 0]), "N");
        assert!(starts_key_frame(&[0x10, SEQUENCE_HEADER, 0]), "one element");
        assert!(starts_key_frame(&[0x20, 2, TEMPORAL_DELIMITER, 0, SEQUENCE_HEADER, 9]), "second of two");
        assert!(starts_key_frame(&[0x00, 1, TEMPORAL_DELIMITER, 2, SEQUENCE_HEADER, 9]), "all with lengths");
        assert!(starts_key_frame(&[0x40, 0x80, 0x01, SEQUENCE_HEADER]), "length 128, continued in the next packet");
    }

    #[test]
    fn frames_and_continuations_do_not() {
        assert!(!starts_key_frame(&[0x10, FRAME, SEQUENCE_HEADER]));
        assert!(!starts_key_frame(&[0x20, 2, FRAME, SEQUENCE_HEADER, FRAME]));
        assert!(!starts_key_frame(&[0x98, SEQUENCE_HEADER, 0]), "Z: continues an OBU");
        assert!(!starts_key_frame(&[0x18]), "nothing in it");
        assert!(!starts_key_frame(&[]));
        assert!(!starts_key_frame(&[0x00, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01]), "endless length");
        assert!(!starts_key_frame(&[0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, FRAME]), "length of 2^56");
        assert!(!starts_key_frame(&[0x00, 0, 0, 0]), "empty elements");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(payload in proptest::collection::vec(any::<u8>(), 0..40)) {
            starts_key_frame(&payload);
        }
    }
}
