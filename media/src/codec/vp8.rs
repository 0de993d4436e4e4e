//! VP8 over RTP (RFC 7741).

/// Whether this payload begins a key frame: the descriptor says start (S = 1) of partition 0, and the frame
/// header that follows says key frame (inverse key frame flag P = 0, RFC 7741 §4.3).
///
/// Anything shorter than its descriptor is no key frame.
pub fn starts_key_frame(payload: &[u8]) -> bool {
    frame(payload).and_then(<[u8]>::first).is_some_and(|header| header & 0x01 == 0)
}

/// What follows the descriptor, where the payload begins partition 0 of a frame (RFC 7741 §4.2).
fn frame(payload: &[u8]) -> Option<&[u8]> {
    let (&required, mut rest) = payload.split_first()?;
    let (start, partition) = (required & 0x10 != 0, required & 0x07);
    if !start || partition != 0 {
        return None;
    }
    if required & 0x80 != 0 {
        let (&extension, after) = rest.split_first()?;
        rest = after;
        if extension & 0x80 != 0 {
            let long = rest.first()? & 0x80 != 0;
            rest = rest.get(if long { 2 } else { 1 }..)?;
        }
        if extension & 0x40 != 0 {
            rest = rest.get(1..)?;
        }
        // T and K share one octet.
        if extension & 0x30 != 0 {
            rest = rest.get(1..)?;
        }
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_shape_of_descriptor_leads_to_the_frame_header() {
        // RFC 7741 §4.2: X|R|N|S|R|PID, then I|L|T|K, PictureID of one or two octets, TL0PICIDX, TID|Y|KEYIDX.
        let descriptors: [&[u8]; 8] = [
            &[0x10],
            &[0x90, 0x00],
            &[0x90, 0x80, 0x7f],
            &[0x90, 0x80, 0xff, 0xff],
            &[0x90, 0xc0, 0x80, 0x01, 0x05],
            &[0x90, 0xe0, 0x11, 0x05, 0x20],
            &[0x90, 0xf0, 0x80, 0x01, 0x05, 0x3f],
            &[0x90, 0x10, 0x01],
        ];
        for descriptor in descriptors {
            let with = |header: u8| [descriptor, &[header, 0x00, 0x00]].concat();
            assert!(starts_key_frame(&with(0x50)), "{descriptor:02x?}");
            assert!(!starts_key_frame(&with(0x51)), "{descriptor:02x?}: inter frame");
            assert!(!starts_key_frame(descriptor), "{descriptor:02x?}: no frame header");
            let mut not_first = with(0x50);
            not_first[0] &= !0x10;
            assert!(!starts_key_frame(&not_first), "{descriptor:02x?}: S = 0");
            let mut later_partition = with(0x50);
            later_partition[0] |= 0x01;
            assert!(!starts_key_frame(&later_partition), "{descriptor:02x?}: partition 1");
            let mut reserved = with(0x50);
            reserved[0] |= 0x48;
            assert!(starts_key_frame(&reserved), "{descriptor:02x?}: reserved bits are ignored");
        }
        assert!(!starts_key_frame(&[]));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(payload in proptest::collection::vec(any::<u8>(), 0..10)) {
            starts_key_frame(&payload);
        }
    }
}
