//! VP9 over RTP (RFC 9628).

use super::descriptor::{Descriptor, PictureId, Tl0PicIdx};

/// Whether this payload begins a key picture: it starts a frame (B = 1) of the lowest spatial layer that is
/// predicted from no other picture (P = 0) and no other layer (RFC 9628 §4.2).
///
/// Anything shorter than the part of the descriptor that says so is no key frame.
pub fn starts_key_frame(payload: &[u8]) -> bool {
    let Some((descriptor, needs_lower_layer)) = read(payload) else { return false };
    let lowest = descriptor.spatial.unwrap_or(0) == 0 && !needs_lower_layer;
    descriptor.begins && !descriptor.predicted && lowest && payload.len() > descriptor.len
}

/// The payload descriptor without its scalability structure (RFC 9628 §4.2). `None` where the payload is shorter than it.
pub fn descriptor(payload: &[u8]) -> Option<Descriptor> {
    read(payload).map(|(descriptor, _)| descriptor)
}

/// Width and height in pixels of the spatial layers, lowest first, where the payload has a scalability structure that
/// tells them (RFC 9628 §4.2.1). Layers above the third are left out.
pub fn spatial_sizes(payload: &[u8]) -> Option<SpatialSizes> {
    const HAS_STRUCTURE: u8 = 0x02;
    const FLEXIBLE_AND_PREDICTED: u8 = 0x50;
    let required = *payload.first()?;
    let mut at = descriptor(payload)?.len;
    if required & FLEXIBLE_AND_PREDICTED == FLEXIBLE_AND_PREDICTED {
        // Up to three reference indices; N says that another follows.
        for _ in 0..3 {
            at += 1;
            if payload.get(at - 1)? & 0x01 == 0 {
                break;
            }
        }
    }
    // N_S(3)|Y|G, then for each layer, where Y is set, its size.
    let structure = *payload.get(at).filter(|_| required & HAS_STRUCTURE != 0)?;
    let count = usize::from(structure >> 5) + 1;
    let sizes = payload.get(at + 1..at + 1 + 4 * count).filter(|_| structure & 0x10 != 0)?;
    let mut read = SpatialSizes { sizes: [(0, 0); SpatialSizes::MAX], count: count.min(SpatialSizes::MAX) as u8 };
    for (size, bytes) in read.sizes.iter_mut().zip(sizes.chunks_exact(4)) {
        if let [w0, w1, h0, h1] = *bytes {
            *size = (u16::from_be_bytes([w0, w1]), u16::from_be_bytes([h0, h1]));
        }
    }
    Some(read)
}

/// Sizes of the spatial layers inside one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpatialSizes {
    sizes: [(u16, u16); Self::MAX],
    count: u8,
}

impl SpatialSizes {
    /// Layers that are told apart.
    pub const MAX: usize = 3;

    /// Width and height, lowest first.
    pub fn sizes(&self) -> &[(u16, u16)] {
        self.sizes.get(..usize::from(self.count)).unwrap_or_default()
    }
}

/// The descriptor, and whether the frame needs the spatial layer below it (D).
fn read(payload: &[u8]) -> Option<(Descriptor, bool)> {
    // I|P|L|F|B|E|V|Z
    let required = *payload.first()?;
    let mut read = Descriptor {
        begins: required & 0x08 != 0,
        ends: required & 0x04 != 0,
        predicted: required & 0x40 != 0,
        len: 1,
        ..Descriptor::default()
    };
    if required & 0x80 != 0 {
        let picture_id = PictureId::read(payload, read.len)?;
        read.len += picture_id.len();
        read.picture_id = Some(picture_id);
    }
    let mut needs_lower_layer = false;
    if required & 0x20 != 0 {
        // TID(3)|U|SID(3)|D, then TL0PICIDX in the non-flexible mode.
        let layers = *payload.get(read.len)?;
        read.len += 1;
        (read.temporal, read.sync) = (Some(layers >> 5), layers & 0x10 != 0);
        (read.spatial, needs_lower_layer) = (Some(layers >> 1 & 0x07), layers & 0x01 != 0);
        if required & 0x10 == 0 {
            read.tl0 = Some(Tl0PicIdx { at: read.len, value: *payload.get(read.len)? });
            read.len += 1;
        }
    }
    Some((read, needs_lower_layer))
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
        for cut in [&[][..], &[B], &[I | B], &[I | B, 0x80], &[I | B, 0x80, 0x01], &[L | B, 0x00], &[L | B, 0x00, 0x05]]
        {
            assert!(!starts_key_frame(cut), "{cut:02x?}");
        }
    }

    #[test]
    fn a_descriptor_tells_its_layers_and_numbers() {
        let read = descriptor(&[I | P | L | E, 0x81, 0x02, 0x50 | 0x05, 0x07, 0x82]).unwrap();
        let want = Descriptor {
            ends: true,
            len: 5,
            picture_id: Some(PictureId { at: 1, value: 0x102, long: true }),
            tl0: Some(Tl0PicIdx { at: 4, value: 7 }),
            temporal: Some(2),
            sync: true,
            spatial: Some(2),
            predicted: true,
            ..Descriptor::default()
        };
        assert_eq!(read, want);
        // The flexible mode has no TL0PICIDX.
        let flexible = descriptor(&[I | L | F | B, 0x05, 0x00, 0x82]).unwrap();
        assert_eq!((flexible.tl0, flexible.len, flexible.begins), (None, 3, true));
    }

    #[test]
    fn a_scalability_structure_tells_the_sizes_of_its_layers() {
        const SIZES: [u8; 12] = [0x01, 0x40, 0x00, 0xb4, 0x02, 0x80, 0x01, 0x68, 0x05, 0x00, 0x02, 0xd0];
        let three = |head: &[u8]| [head, &[2 << 5 | 0x10], &SIZES, &[0x82]].concat();
        let want = [(320, 180), (640, 360), (1_280, 720)];
        let non_flexible = three(&[I | L | B | V, 0x80, 0x01, 0x00, 0x05]);
        assert_eq!(spatial_sizes(&non_flexible).unwrap().sizes(), want);
        let references = three(&[I | P | L | F | B | V, 0x05, 0x00, 0x03, 0x04]);
        assert_eq!(spatial_sizes(&references).unwrap().sizes(), want);
        assert_eq!(spatial_sizes(&[&[B | V, 0x10][..], &SIZES[..4]].concat()).unwrap().sizes(), [(320, 180)]);
        assert_eq!(spatial_sizes(&[&[B | V, 4 << 5 | 0x10][..], &SIZES, &SIZES].concat()).unwrap().sizes(), want);
        assert_eq!(spatial_sizes(&[B, 2 << 5 | 0x10]), None, "none is there");
        assert_eq!(spatial_sizes(&[B | V, 2 << 5]), None, "it tells no sizes");
        assert_eq!(spatial_sizes(&non_flexible[..17]), None, "cut");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(payload in proptest::collection::vec(any::<u8>(), 0..10)) {
            starts_key_frame(&payload);
            spatial_sizes(&payload);
            prop_assert!(descriptor(&payload).is_none_or(|d| d.len <= payload.len()));
        }
    }
}
