//! RTP packets (RFC 3550 §5.1) with header extensions (RFC 8285), and which protocol a datagram of a media
//! port belongs to (RFC 7983 §7, RFC 5761 §4).

use crate::packet::AudioLevel;

/// Which protocol a datagram belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// First byte 0–3.
    Stun,
    /// First byte 20–63.
    Dtls,
    /// First byte 128–191, second not of RTCP.
    Rtp,
    /// First byte 128–191, second 192–223: the packet types that no RTP payload type may look like.
    Rtcp,
    /// ZRTP, TURN channels, QUIC, noise, or too short to say.
    Unknown,
}

/// Tells protocols on one port apart by the first byte (RFC 7983 §7), RTP from RTCP by the second
/// (RFC 5761 §4). Says nothing about whether the rest is well formed.
pub fn classify(datagram: &[u8]) -> Class {
    match datagram {
        [0..=3, ..] => Class::Stun,
        [20..=63, ..] => Class::Dtls,
        [128..=191, 192..=223, ..] => Class::Rtcp,
        [128..=191, _, ..] => Class::Rtp,
        _ => Class::Unknown,
    }
}

/// Why a datagram is no RTP packet; it is dropped and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RtpRefusal {
    /// Header, CSRC list or extension end after the datagram.
    #[error("RTP header of {need} bytes in a datagram of {got}")]
    Truncated {
        /// Bytes the header asks for.
        need: usize,
        /// Bytes there are.
        got: usize,
    },
    /// Only version 2 exists.
    #[error("RTP version {0}")]
    Version(u8),
    /// The padding count is zero or larger than what follows the header.
    #[error("{padding} bytes of padding in {room}")]
    Padding {
        /// The count in the last byte.
        padding: usize,
        /// Bytes after the header.
        room: usize,
    },
}

/// The fixed fields of an RTP header (RFC 3550 §5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtpHeader {
    /// Marker bit.
    pub marker: bool,
    /// Payload type, 0–127.
    pub pt: u8,
    /// Sequence number.
    pub seq: u16,
    /// RTP timestamp.
    pub rtp_time: u32,
    /// Synchronisation source.
    pub ssrc: u32,
}

/// One RTP packet, borrowed from its datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtpView<'a> {
    /// The fixed fields.
    pub header: RtpHeader,
    /// Payload without padding; empty for a packet of padding only.
    pub payload: &'a [u8],
    /// Bytes of padding at the end, count byte included; 0 to 255.
    pub padding_len: u8,
    csrcs: &'a [u8],
    extension: Option<(u16, &'a [u8])>,
}

impl<'a> RtpView<'a> {
    /// Reads `datagram`: at least 12 bytes of header, up to 15 CSRCs, an optional extension, payload, padding.
    ///
    /// # Errors
    /// [`RtpRefusal`] where a length points beyond the end, the version is not 2, or the padding count is
    /// impossible. The elements inside the extension are not judged here, see [`Self::extensions`].
    pub fn parse(datagram: &'a [u8]) -> Result<Self, RtpRefusal> {
        let got = datagram.len();
        let Some((&[b0, b1, s0, s1, t0, t1, t2, t3, c0, c1, c2, c3], rest)) = datagram.split_first_chunk::<12>() else {
            return Err(RtpRefusal::Truncated { need: 12, got });
        };
        if b0 >> 6 != 2 {
            return Err(RtpRefusal::Version(b0 >> 6));
        }
        let csrc_len = usize::from(b0 & 0x0f) * 4;
        let Some((csrcs, rest)) = rest.split_at_checked(csrc_len) else {
            return Err(RtpRefusal::Truncated { need: 12 + csrc_len, got });
        };
        let (extension, rest) = if b0 & 0x10 != 0 {
            let Some((&[p0, p1, l0, l1], rest)) = rest.split_first_chunk::<4>() else {
                return Err(RtpRefusal::Truncated { need: 16 + csrc_len, got });
            };
            let len = usize::from(u16::from_be_bytes([l0, l1])) * 4;
            let Some((bytes, rest)) = rest.split_at_checked(len) else {
                return Err(RtpRefusal::Truncated { need: 16 + csrc_len + len, got });
            };
            (Some((u16::from_be_bytes([p0, p1]), bytes)), rest)
        } else {
            (None, rest)
        };
        let padding_len = if b0 & 0x20 != 0 { padding(rest)? } else { 0 };
        let (payload, _) = rest.split_at_checked(rest.len() - usize::from(padding_len)).unwrap_or((rest, &[]));
        let header = RtpHeader {
            marker: b1 & 0x80 != 0,
            pt: b1 & 0x7f,
            seq: u16::from_be_bytes([s0, s1]),
            rtp_time: u32::from_be_bytes([t0, t1, t2, t3]),
            ssrc: u32::from_be_bytes([c0, c1, c2, c3]),
        };
        Ok(Self { header, payload, padding_len, csrcs, extension })
    }

    /// Contributing sources, at most 15.
    pub fn csrcs(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.csrcs.chunks_exact(4).filter_map(|c| c.first_chunk::<4>()).map(|c| u32::from_be_bytes(*c))
    }

    /// Header extension elements as (id, value), in order, of the one-byte form (RFC 8285 §4.2, values of 1 to
    /// 16 bytes, ids 1–14) or the two-byte form (§4.3, 0 to 255 bytes, ids 1–255). Ends at the first element
    /// that does not fit; an extension of another profile has no elements.
    pub fn extensions(&self) -> Extensions<'a> {
        match self.extension {
            Some((0xbede, bytes)) => Extensions { bytes, two_byte: false },
            Some((profile, bytes)) if profile >> 4 == 0x100 => Extensions { bytes, two_byte: true },
            Some(_) | None => Extensions { bytes: &[], two_byte: false },
        }
    }

    /// The value of the first element with this id.
    pub fn extension(&self, id: u8) -> Option<&'a [u8]> {
        self.extensions().find(|(found, _)| *found == id).map(|(_, value)| value)
    }
}

/// The padding count in the last byte of `rest`: 1 to the length of `rest` (RFC 3550 §5.1).
fn padding(rest: &[u8]) -> Result<u8, RtpRefusal> {
    let room = rest.len();
    match rest.last() {
        Some(&count) if count > 0 && usize::from(count) <= room => Ok(count),
        Some(&count) => Err(RtpRefusal::Padding { padding: usize::from(count), room }),
        None => Err(RtpRefusal::Padding { padding: 0, room }),
    }
}

/// Elements of a header extension, see [`RtpView::extensions`].
#[derive(Debug, Clone)]
pub struct Extensions<'a> {
    bytes: &'a [u8],
    two_byte: bool,
}

impl<'a> Iterator for Extensions<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (&first, rest) = self.bytes.split_first()?;
            if first == 0 {
                self.bytes = rest;
                continue;
            }
            let (id, len, rest) = if self.two_byte {
                let (&len, rest) = rest.split_first()?;
                (first, usize::from(len), rest)
            } else {
                (first >> 4, usize::from(first & 0x0f) + 1, rest)
            };
            // Id 15 ends the list, and so does id 0 with a length (RFC 8285 §4.2).
            let element = if self.two_byte || (1..=14).contains(&id) { rest.split_at_checked(len) } else { None };
            let Some((value, rest)) = element else {
                self.bytes = &[];
                return None;
            };
            self.bytes = rest;
            return Some((id, value));
        }
    }
}

/// The value of an audio level extension (RFC 6464 §3): one byte, in the two-byte form possibly padded.
pub fn audio_level(value: &[u8]) -> Option<AudioLevel> {
    let byte = *value.first()?;
    Some(AudioLevel { dbov: byte & 0x7f, voice: byte & 0x80 != 0 })
}

/// Why a packet cannot be written; the fault is the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EmitRefusal {
    /// Element ids are 1–255.
    #[error("header extension id 0")]
    ExtensionId,
    /// An element has at most 255 bytes, all together at most 65,535 words.
    #[error("header extension of {0} bytes")]
    ExtensionLength(usize),
    /// Payload types are 0–127.
    #[error("payload type {0}")]
    PayloadType(u8),
}

impl RtpHeader {
    /// Appends one packet to `out`: no CSRC; `extensions` in the one-byte form where all fit it, else in the
    /// two-byte form; `padding` bytes at the end, 0 for none.
    ///
    /// # Errors
    /// [`EmitRefusal`] for what no header can say; `out` is then as before.
    pub fn emit(
        &self,
        extensions: &[(u8, &[u8])],
        payload: &[u8],
        padding: u8,
        out: &mut Vec<u8>,
    ) -> Result<(), EmitRefusal> {
        if self.pt > 127 {
            return Err(EmitRefusal::PayloadType(self.pt));
        }
        let start = out.len();
        let flags = 0x80 | if padding > 0 { 0x20 } else { 0 } | if extensions.is_empty() { 0 } else { 0x10 };
        out.extend([flags, self.pt | if self.marker { 0x80 } else { 0 }]);
        out.extend(self.seq.to_be_bytes());
        out.extend(self.rtp_time.to_be_bytes());
        out.extend(self.ssrc.to_be_bytes());
        if !extensions.is_empty()
            && let Err(refusal) = emit_extensions(extensions, out)
        {
            out.truncate(start);
            return Err(refusal);
        }
        out.extend_from_slice(payload);
        if padding > 0 {
            out.resize(out.len() + usize::from(padding) - 1, 0);
            out.push(padding);
        }
        Ok(())
    }
}

fn emit_extensions(extensions: &[(u8, &[u8])], out: &mut Vec<u8>) -> Result<(), EmitRefusal> {
    let one_byte = extensions.iter().all(|(id, value)| (1..=14).contains(id) && (1..=16).contains(&value.len()));
    let header = out.len();
    out.extend(if one_byte { [0xbe, 0xde, 0, 0] } else { [0x10, 0x00, 0, 0] });
    let start = out.len();
    for (id, value) in extensions {
        let len = u8::try_from(value.len()).map_err(|_| EmitRefusal::ExtensionLength(value.len()))?;
        if *id == 0 {
            return Err(EmitRefusal::ExtensionId);
        }
        if one_byte {
            out.push(id << 4 | (len - 1));
        } else {
            out.extend([*id, len]);
        }
        out.extend_from_slice(value);
    }
    let len = (out.len() - start).next_multiple_of(4);
    let words = u16::try_from(len / 4).map_err(|_| EmitRefusal::ExtensionLength(len))?;
    out.resize(start + len, 0);
    if let Some(field) = out.get_mut(header + 2..header + 4) {
        field.copy_from_slice(&words.to_be_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn first_bytes_are_told_apart_as_rfc_7983_says() {
        for first in 0..=255u8 {
            let want = match first {
                0..=3 => Class::Stun,
                20..=63 => Class::Dtls,
                128..=191 => Class::Rtp,
                _ => Class::Unknown,
            };
            assert_eq!(classify(&[first, 96, 0]), want, "{first}");
        }
        // RFC 5761 §4: packet types 192 to 223; 200–204 are SR to APP, 205 and 206 feedback.
        for second in 0..=255u8 {
            let want = if (192..=223).contains(&second) { Class::Rtcp } else { Class::Rtp };
            assert_eq!(classify(&[0x80, second]), want, "{second}");
        }
        assert_eq!(classify(&[]), Class::Unknown);
        assert_eq!(classify(&[0x80]), Class::Unknown);
    }

    /// V=2 P=1 X=1 CC=2, M=1 PT=111, one-byte extension: id 1 len 1, padding byte, id 3 len 2; 4 bytes of padding.
    const FULL: [u8; 12 + 8 + 12 + 3 + 4] = [
        0xb2, 0xef, 0x12, 0x34, 0, 0, 0x10, 0, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 1, 0, 0, 0, 2, 0xbe, 0xde, 0, 2, 0x10,
        0x85, 0, 0x31, 0xaa, 0xbb, 0, 0, 7, 8, 9, 0, 0, 0, 4,
    ];

    #[test]
    fn every_part_of_the_header_is_read() {
        let view = RtpView::parse(&FULL).unwrap();
        assert_eq!(
            view.header,
            RtpHeader { marker: true, pt: 111, seq: 0x1234, rtp_time: 0x1000, ssrc: 0xdead_beef }
        );
        assert_eq!(view.csrcs().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(view.extensions().collect::<Vec<_>>(), [(1, &[0x85][..]), (3, &[0xaa, 0xbb])]);
        assert_eq!(view.payload, [7, 8, 9]);
        assert_eq!(view.padding_len, 4);
        assert_eq!(audio_level(view.extension(1).unwrap()), Some(AudioLevel { dbov: 5, voice: true }));
    }

    #[test]
    fn every_cut_header_is_refused() {
        for len in 0..32 {
            let refused = RtpView::parse(&FULL[..len]);
            assert!(matches!(refused, Err(RtpRefusal::Truncated { got, .. }) if got == len), "{len}: {refused:?}");
        }
    }

    #[test]
    fn padding_is_counted_with_its_own_byte_and_may_be_all_there_is() {
        let packet = |rest: &[u8]| [&[0xa0, 96, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1][..], rest].concat();
        let only = packet(&[0, 0, 3]);
        let view = RtpView::parse(&only).unwrap();
        assert_eq!((view.payload.len(), view.padding_len), (0, 3));
        assert_eq!(RtpView::parse(&packet(&[1, 2, 0])), Err(RtpRefusal::Padding { padding: 0, room: 3 }));
        assert_eq!(RtpView::parse(&packet(&[1, 2, 4])), Err(RtpRefusal::Padding { padding: 4, room: 3 }));
        assert_eq!(RtpView::parse(&packet(&[])), Err(RtpRefusal::Padding { padding: 0, room: 0 }));
    }

    #[test]
    fn extension_lists_end_where_rfc_8285_says() {
        let read = |profile: u16, elements: &[u8]| {
            let mut packet = vec![0x90, 96, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
            packet.extend(profile.to_be_bytes());
            packet.extend(u16::try_from(elements.len() / 4).unwrap().to_be_bytes());
            packet.extend(elements);
            let view = RtpView::parse(&packet).unwrap();
            view.extensions().map(|(id, value)| (id, value.to_vec())).collect::<Vec<_>>()
        };
        assert_eq!(read(0xbede, &[0x10, 1, 0xf0, 2, 0x20, 3, 0, 0]), [(1, vec![1])], "id 15 ends the list");
        assert_eq!(read(0xbede, &[0x10, 1, 0x01, 2, 3, 0x20, 4, 0]), [(1, vec![1])], "id 0 with a length ends it");
        assert_eq!(read(0xbede, &[0x10, 1, 0x2f, 9]), [(1, vec![1])], "cut element");
        assert_eq!(read(0x1000, &[20, 0, 0, 15, 1, 5, 0, 0]), [(20, vec![]), (15, vec![5])]);
        assert_eq!(read(0x100f, &[20, 2, 7, 8]), [(20, vec![7, 8])], "appbits are free");
        assert_eq!(read(0x1000, &[20, 3, 7, 8]), [], "cut element");
        assert_eq!(read(0xabcd, &[0x10, 1, 0, 0]), [], "another profile");
    }

    #[test]
    fn what_no_header_can_say_is_not_written() {
        let header = RtpHeader { marker: false, pt: 96, seq: 1, rtp_time: 2, ssrc: 3 };
        let mut out = vec![9];
        let long = [0; 256];
        assert_eq!(header.emit(&[(1, &long)], &[], 0, &mut out), Err(EmitRefusal::ExtensionLength(256)));
        assert_eq!(header.emit(&[(1, &[1]), (0, &[1])], &[], 0, &mut out), Err(EmitRefusal::ExtensionId));
        assert_eq!(RtpHeader { pt: 128, ..header }.emit(&[], &[], 0, &mut out), Err(EmitRefusal::PayloadType(128)));
        assert_eq!(out, [9]);
    }

    fn walk(datagram: &[u8]) {
        classify(datagram);
        if let Ok(view) = RtpView::parse(datagram) {
            let extension: usize = view.extensions().map(|(_, value)| value.len() + 1).sum();
            assert!(12 + view.csrcs().count() * 4 + extension + view.payload.len() <= datagram.len());
            view.extensions().filter_map(|(_, value)| audio_level(value)).for_each(drop);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(datagram in proptest::collection::vec(any::<u8>(), 0..120)) {
            walk(&datagram);
        }

        #[test]
        fn mutated_packets_never_panic(at in 0..FULL.len(), value: u8, cut in 0..=FULL.len()) {
            let mut datagram = FULL;
            datagram[at] = value;
            walk(&datagram[..cut]);
        }

        #[test]
        fn what_is_written_reads_back(
            marker: bool, pt in 0..128u8, seq: u16, rtp_time: u32, ssrc: u32, padding: u8,
            extensions in proptest::collection::vec((1..=255u8, proptest::collection::vec(any::<u8>(), 0..40)), 0..6),
            payload in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let header = RtpHeader { marker, pt, seq, rtp_time, ssrc };
            let elements: Vec<(u8, &[u8])> = extensions.iter().map(|(id, value)| (*id, &value[..])).collect();
            let mut out = Vec::new();
            header.emit(&elements, &payload, padding, &mut out).unwrap();
            let view = RtpView::parse(&out).unwrap();
            prop_assert_eq!(view.header, header);
            prop_assert_eq!(view.extensions().collect::<Vec<_>>(), elements);
            prop_assert_eq!(view.payload, &payload[..]);
            prop_assert_eq!(view.padding_len, padding);
        }
    }
}
