//! VP9 over RTP (RFC 9628).

/// Whether this payload begins a key picture: it starts a frame (B = 1) of the lowest spatial layer that is
/// predicted from no other picture (P = 0) and no other layer (RFC 9628 §4.2).
///
/// Anything shorter than the part of the descriptor that says so is no key frame.
pub fn starts_key_frame(payload: &[u8]) -> bool {
    spatial_layer_of_intra_start(payload) == Some(0)
}

/// SID of the frame that begins here, if it begins here and is predicted from nothing; 0 without layers.
fn spatial_layer_of_intra_start(payload: &[u8]) -> Option<u8> {
    let (&required, mut rest) = payload.split_first()?;
    // I|P|L|F|B|E|V|Z
    let (predicted, begins) = (required & 0x40 != 0, required & 0x08 != 0);
    if predicted || !begins {
        return None;
    }
    if required & 0x80 != 0 {
        let long = rest.first()? & 0x80 != 0;
        rest = rest.get(if long { 2 } else { 1 }..)?;
    }
    let layers = *rest.first()?;
    if required & 0x20 == 0 {
        return Some(0);
    }
    // TID(3)|U|SID(3)|D, then TL0PICIDX in the non-flexible mode.
    let needs_lower_layer = layers & 0x01 != 0;
    let descriptor_len = if required & 0x10 == 0 { 2 } else { 1 };
    (!needs_lower_layer && rest.len() > descriptor_len).then_some(layers >> 1 & 0x07)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const I: u8 = 0x80;
    const P: u8 = 0x40;
    const L: u8 = 0x20;
    const F: u8 = 0x10;
    const B: u8 = 0x08;
    const E: u8 = 0x04;
    const V: u8 = 0x02;

    #[test]
    fn a_key_picture_starts_at_the_lowest_layer_without_prediction() {
        let key: [&[u8]; 7] = [
            &[B, 0x82],
            &[B | E, 0x82],
            &[I | B, 0x7f, 0x82],
            &[I | B, 0xff, 0xff, 0x82],
            &[I | L | B | V, 0x80, 0x01, 0x00, 0x05, 0x18, 0x82],
            &[I | L | F | B | V, 0x80, 0x01, 0x00, 0x18, 0x82],
            &[L | B, 0x60, 0x05, 0x82],
        ];
        for payload in key {
            assert!(starts_key_frame(payload), "{payload:02x?}");
            let with = |bit: u8| [&[payload[0] ^ bit], &payload[1..]].concat();
            assert!(!starts_key_frame(&with(P)), "{payload:02x?}: inter predicted");
            assert!(!starts_key_frame(&with(B)), "{payload:02x?}: not the start of a frame");
        }
    }

    #[test]
    fn upper_spatial_layers_and_cut_descriptors_do_not_count() {
        // SID 1 of a key picture: P = 0 too, but it needs layer 0 (D = 1).
        assert!(!starts_key_frame(&[I | L | B, 0x80, 0x01, 0x03, 0x05, 0x82]));
        assert!(!starts_key_frame(&[I | L | B, 0x80, 0x01, 0x02, 0x05, 0x82]));
        for cut in [&[][..], &[B], &[I | B], &[I | B, 0x80], &[I | B, 0x80, 0x01], &[L | B, 0x00], &[L | B, 0x00, 0x05]] {
            assert!(!starts_key_frame(cut), "{cut:02x?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(payload in proptest::collection::vec(any::<u8>(), 0..10)) {
            starts_key_frame(&payload);
        }
    }
}
