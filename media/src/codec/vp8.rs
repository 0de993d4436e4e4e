//! VP8 over RTP (RFC 7741).

use super::descriptor::{Descriptor, PictureId, Tl0PicIdx};

/// Whether this payload begins a key frame: the descriptor says start (S = 1) of partition 0, and the frame
/// header that follows says key frame (inverse key frame flag P = 0, RFC 7741 §4.3).
///
/// Anything shorter than its descriptor is no key frame.
pub fn starts_key_frame(payload: &[u8]) -> bool {
    frame(payload).and_then(<[u8]>::first).is_some_and(|header| header & 0x01 == 0)
}

/// Width and height in pixels, where this payload begins a key frame (RFC 6386 §9.1: tag, start code, 14 bits each).
pub fn key_frame_size(payload: &[u8]) -> Option<(u16, u16)> {
    match *frame(payload)? {
        [tag, _, _, 0x9d, 0x01, 0x2a, w0, w1, h0, h1, ..] if tag & 0x01 == 0 => {
            Some((u16::from_le_bytes([w0, w1]) & 0x3fff, u16::from_le_bytes([h0, h1]) & 0x3fff))
        }
        _ => None,
    }
}

/// What follows the descriptor, where the payload begins partition 0 of a frame.
fn frame(payload: &[u8]) -> Option<&[u8]> {
    let descriptor = descriptor(payload)?;
    descriptor.begins.then(|| payload.get(descriptor.len..))?
}

/// The payload descriptor (RFC 7741 §4.2). `None` where the payload is shorter than it.
pub fn descriptor(payload: &[u8]) -> Option<Descriptor> {
    let required = *payload.first()?;
    let mut read = Descriptor { begins: required & 0x10 != 0 && required & 0x07 == 0, len: 1, ..Descriptor::default() };
    if required & 0x80 == 0 {
        return Some(read);
    }
    let extension = *payload.get(1)?;
    read.len = 2;
    if extension & 0x80 != 0 {
        let picture_id = PictureId::read(payload, read.len)?;
        read.len += picture_id.len();
        read.picture_id = Some(picture_id);
    }
    if extension & 0x40 != 0 {
        read.tl0 = Some(Tl0PicIdx { at: read.len, value: *payload.get(read.len)? });
        read.len += 1;
    }
    // T and K share one octet.
    if extension & 0x30 != 0 {
        let octet = *payload.get(read.len)?;
        read.len += 1;
        if extension & 0x20 != 0 {
            read.temporal = Some(octet >> 6);
            read.sync = octet & 0x20 != 0;
        }
    }
    Some(read)
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
            let sized = [descriptor, &[0x50, 0x00, 0x00, 0x9d, 0x01, 0x2a, 0x80, 0x42, 0x68, 0x81]].concat();
            assert_eq!(key_frame_size(&sized), Some((640, 360)), "{descriptor:02x?}: without the scale bits");
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

    #[test]
    fn a_descriptor_tells_where_its_numbers_stand() {
        let full = descriptor(&[0x90, 0xf0, 0x81, 0x02, 0x05, 0xbf, 0x00]).unwrap();
        let want = Descriptor {
            begins: true,
            len: 6,
            picture_id: Some(PictureId { at: 2, value: 0x102, long: true }),
            tl0: Some(Tl0PicIdx { at: 4, value: 5 }),
            temporal: Some(2),
            sync: true,
            ..Descriptor::default()
        };
        assert_eq!(full, want);
        let short = descriptor(&[0x80, 0xa0, 0x7f, 0x40]).unwrap();
        assert_eq!(short.picture_id, Some(PictureId { at: 2, value: 0x7f, long: false }));
        assert_eq!((short.begins, short.tl0, short.temporal, short.sync, short.len), (false, None, Some(1), false, 4));
        // K alone: the octet is there, and says nothing of temporal layers.
        assert_eq!(descriptor(&[0x90, 0x10, 0xff]).unwrap().temporal, None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(payload in proptest::collection::vec(any::<u8>(), 0..10)) {
            starts_key_frame(&payload);
            key_frame_size(&payload);
            prop_assert!(descriptor(&payload).is_none_or(|d| d.len <= payload.len()));
        }
    }
}
