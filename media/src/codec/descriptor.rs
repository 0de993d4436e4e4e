//! What the payload descriptors of VP8 (RFC 7741 §4.2) and VP9 (RFC 9628 §4.2) have in common: numbers of pictures, and
//! the layer that a payload belongs to.

/// One payload's descriptor as far as a forwarder reads it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// The payload begins a frame.
    pub begins: bool,
    /// The payload ends a frame, where the descriptor tells (VP9).
    pub ends: bool,
    /// Bytes of the descriptor.
    pub len: usize,
    /// Number of the picture.
    pub picture_id: Option<PictureId>,
    /// Number of the newest picture of the temporal base layer.
    pub tl0: Option<Tl0PicIdx>,
    /// Temporal layer (TID).
    pub temporal: Option<u8>,
    /// Whoever has the layers below can begin with this temporal layer here (VP8: Y, VP9: U).
    pub sync: bool,
    /// Spatial layer (SID; VP9).
    pub spatial: Option<u8>,
    /// Predicted from an earlier picture (VP9: P).
    pub predicted: bool,
}

/// A picture's number and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PictureId {
    /// Offset in the payload.
    pub at: usize,
    /// 15 or 7 bits.
    pub value: u16,
    /// 15 bits in two octets, whose first bit (M) is set.
    pub long: bool,
}

impl PictureId {
    /// Reads the number at `at`.
    pub(super) fn read(payload: &[u8], at: usize) -> Option<Self> {
        let first = *payload.get(at)?;
        match first & 0x80 {
            0 => Some(Self { at, value: u16::from(first), long: false }),
            _ => Some(Self { at, value: u16::from_be_bytes([first & 0x7f, *payload.get(at + 1)?]), long: true }),
        }
    }

    /// Octets that it takes.
    pub(super) fn len(self) -> usize {
        if self.long { 2 } else { 1 }
    }

    /// Bits that it has.
    pub fn mask(self) -> u16 {
        if self.long { 0x7fff } else { 0x7f }
    }
}

/// Number of a picture of the temporal base layer (TL0PICIDX) and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tl0PicIdx {
    /// Offset in the payload.
    pub at: usize,
    /// 8 bits.
    pub value: u8,
}
