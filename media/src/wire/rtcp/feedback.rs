//! Feedback messages: Generic NACK, PLI, FIR and REMB (RFC 4585 §6, RFC 5104 §4.3.1, draft-alvestrand-rmcat-remb-03).
//!
//! ```text
//! | SSRC of the sender of the feedback | SSRC of the media | feedback control information |
//! ```

use super::{RtcpError, emit, fmt, pt, take};

fn ssrcs(body: &[u8]) -> Result<(u32, u32, &[u8]), RtcpError> {
    let (sender, rest) = take::<4>(body)?;
    let (media, fci) = take::<4>(rest)?;
    Ok((u32::from_be_bytes(sender), u32::from_be_bytes(media), fci))
}

/// Whole entries of `N` bytes.
fn entries<const N: usize>(fci: &[u8]) -> Result<&[[u8; N]], RtcpError> {
    match fci.as_chunks::<N>() {
        (entries, []) => Ok(entries),
        (_, _) => Err(RtcpError::Fci { entry: N, got: fci.len() }),
    }
}

/// Generic NACK (RFC 4585 §6.2.1).
#[derive(Debug, Clone, Copy)]
pub struct Nack<'a> {
    /// Who asks.
    pub sender: u32,
    /// The stream that is incomplete.
    pub media: u32,
    fci: &'a [[u8; 4]],
}

impl<'a> Nack<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, RtcpError> {
        let (sender, media, fci) = ssrcs(body)?;
        Ok(Self { sender, media, fci: entries(fci)? })
    }

    /// Sequence numbers asked for: each entry is `PID(16) | BLP(16)`, bit *i* of BLP asks for `PID + i + 1`
    /// modulo 2^16. Up to 17 an entry, PID first.
    pub fn lost(&self) -> impl Iterator<Item = u16> + use<'a> {
        self.fci.iter().flat_map(|&[p0, p1, b0, b1]| {
            let (pid, blp) = (u16::from_be_bytes([p0, p1]), u16::from_be_bytes([b0, b1]));
            let following = (0..16u16).filter(move |i| blp >> i & 1 == 1).map(move |i| pid.wrapping_add(i + 1));
            std::iter::once(pid).chain(following)
        })
    }
}

/// Appends a Generic NACK for `lost`, which is in order; nothing where it is empty.
pub fn write_nack(out: &mut Vec<u8>, sender: u32, media: u32, lost: &[u16]) {
    let Some((&first, rest)) = lost.split_first() else { return };
    emit(out, pt::RTPFB, fmt::NACK, |out| {
        out.extend_from_slice(&sender.to_be_bytes());
        out.extend_from_slice(&media.to_be_bytes());
        let (mut pid, mut blp) = (first, 0u16);
        for &seq in rest {
            match seq.wrapping_sub(pid) {
                0 => {}
                behind @ 1..=16 => blp |= 1 << (behind - 1),
                17.. => {
                    out.extend_from_slice(&pid.to_be_bytes());
                    out.extend_from_slice(&blp.to_be_bytes());
                    (pid, blp) = (seq, 0);
                }
            }
        }
        out.extend_from_slice(&pid.to_be_bytes());
        out.extend_from_slice(&blp.to_be_bytes());
    });
}

/// Picture Loss Indication (RFC 4585 §6.3.1): no information beyond the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pli {
    /// Who asks.
    pub sender: u32,
    /// The stream whose next picture should be a key frame.
    pub media: u32,
}

impl Pli {
    pub(super) fn parse(body: &[u8]) -> Result<Self, RtcpError> {
        let (sender, media, _) = ssrcs(body)?;
        Ok(Self { sender, media })
    }
}

/// Appends a Picture Loss Indication.
pub fn write_pli(out: &mut Vec<u8>, sender: u32, media: u32) {
    emit(out, pt::PSFB, fmt::PLI, |out| {
        out.extend_from_slice(&sender.to_be_bytes());
        out.extend_from_slice(&media.to_be_bytes());
    });
}

/// Full Intra Request (RFC 5104 §4.3.1): the streams are in the entries, the media SSRC of the header is unused.
#[derive(Debug, Clone, Copy)]
pub struct Fir<'a> {
    /// Who asks.
    pub sender: u32,
    fci: &'a [[u8; 8]],
}

/// One stream of a Full Intra Request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirEntry {
    /// The stream whose next picture should be a key frame.
    pub ssrc: u32,
    /// Command number: the same number again is the same command, sent again.
    pub seq: u8,
}

impl<'a> Fir<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, RtcpError> {
        let (sender, _, fci) = ssrcs(body)?;
        Ok(Self { sender, fci: entries(fci)? })
    }

    /// The streams in order.
    pub fn entries(&self) -> impl Iterator<Item = FirEntry> + use<'a> {
        self.fci.iter().map(|&[s0, s1, s2, s3, seq, ..]| FirEntry { ssrc: u32::from_be_bytes([s0, s1, s2, s3]), seq })
    }
}

/// Appends a Full Intra Request.
pub fn write_fir(out: &mut Vec<u8>, sender: u32, streams: &[FirEntry]) {
    emit(out, pt::PSFB, fmt::FIR, |out| {
        out.extend_from_slice(&sender.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        for stream in streams {
            out.extend_from_slice(&stream.ssrc.to_be_bytes());
            out.extend_from_slice(&[stream.seq, 0, 0, 0]);
        }
    });
}

const REMB: [u8; 4] = *b"REMB";
const MANTISSA_BITS: u32 = 18;

/// Receiver Estimated Maximum Bitrate (draft-alvestrand-rmcat-remb-03 §2.2).
#[derive(Debug, Clone, Copy)]
pub struct Remb<'a> {
    /// Who estimates.
    pub sender: u32,
    /// The limit, mantissa × 2^exponent; saturates at 2^64 − 1.
    pub bits_per_second: u64,
    ssrcs: &'a [[u8; 4]],
}

impl<'a> Remb<'a> {
    /// `None` for application layer feedback of another kind.
    pub(super) fn parse(body: &'a [u8]) -> Result<Option<Self>, RtcpError> {
        let (sender, _, fci) = ssrcs(body)?;
        let Some((&REMB, fci)) = fci.split_first_chunk::<4>() else { return Ok(None) };
        let ([count, exponent, m1, m0], fci) = take::<4>(fci)?;
        let mantissa = u128::from(u32::from_be_bytes([0, exponent & 3, m1, m0]));
        // 18 bits moved by at most 63 fit 128 bits.
        let bits_per_second = u64::try_from(mantissa << (exponent >> 2)).unwrap_or(u64::MAX);
        let (ssrcs, _) = fci.as_chunks::<4>();
        match ssrcs.get(..usize::from(count)) {
            Some(ssrcs) => Ok(Some(Self { sender, bits_per_second, ssrcs })),
            None => Err(RtcpError::Truncated { need: usize::from(count) * 4, got: fci.len() }),
        }
    }

    /// The streams that share the limit.
    pub fn ssrcs(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.ssrcs.iter().map(|ssrc| u32::from_be_bytes(*ssrc))
    }
}

/// Appends a REMB; the rate is rounded down to 18 significant bits. Streams after the 255th are left out.
pub fn write_remb(out: &mut Vec<u8>, sender: u32, bits_per_second: u64, streams: &[u32]) {
    let streams = streams.get(..255).unwrap_or(streams);
    let exponent = (u64::BITS - bits_per_second.leading_zeros()).saturating_sub(MANTISSA_BITS);
    let mantissa = (bits_per_second >> exponent) as u32;
    emit(out, pt::PSFB, fmt::AFB, |out| {
        out.extend_from_slice(&sender.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&REMB);
        out.extend_from_slice(&((streams.len() as u32) << 24 | exponent << MANTISSA_BITS | mantissa).to_be_bytes());
        streams.iter().for_each(|ssrc| out.extend_from_slice(&ssrc.to_be_bytes()));
    });
}

#[cfg(test)]
mod tests {
    use super::super::{Compound, Packet};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_nack_is_packed_as_rfc_4585_says() {
        let mut bytes = Vec::new();
        write_nack(&mut bytes, 0x01020304, 0x0a0b0c0d, &[65_534, 65_535, 14, 15]);
        // 65,534 + 16 = 14 modulo 2^16 is the last that the first entry can name; bit 0 asks for PID + 1.
        let expected = [0x81, 205, 0, 4, 1, 2, 3, 4, 0x0a, 0x0b, 0x0c, 0x0d, 0xff, 0xfe, 0x80, 0x01, 0x00, 0x0f, 0, 0];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn entries_that_are_cut_are_refused() {
        let err = |bytes: &[u8]| Compound::new(bytes).next().and_then(Result::err);
        let fir = [0x84, 206, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
        assert_eq!(err(&fir), Some(RtcpError::Fci { entry: 8, got: 4 }));
        assert_eq!(err(&[0x81, 206, 0, 1, 0, 0, 0, 1]), Some(RtcpError::Truncated { need: 4, got: 0 }));
        let remb = [0x8f, 206, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, b'R', b'E', b'M', b'B', 1, 0, 0, 0];
        assert_eq!(err(&remb), Some(RtcpError::Truncated { need: 4, got: 0 }));
    }

    proptest! {
        #[test]
        fn nacks_read_back(base: u16, lost in proptest::collection::btree_set(0u16..2_000, 1..80)) {
            let in_order: Vec<u16> = lost.iter().map(|s| base.wrapping_add(*s)).collect();
            let mut bytes = Vec::new();
            write_nack(&mut bytes, 1, 2, &in_order);
            let Some(Ok(Packet::Nack(nack))) = Compound::new(&bytes).next() else { panic!("no NACK") };
            prop_assert_eq!((nack.sender, nack.media), (1, 2));
            let read: BTreeSet<u16> = nack.lost().map(|s| s.wrapping_sub(base)).collect();
            prop_assert_eq!(read, lost);
        }

        #[test]
        fn key_frame_requests_read_back(a: u32, b: u32, seq: u8) {
            let mut bytes = Vec::new();
            write_pli(&mut bytes, a, b);
            write_fir(&mut bytes, a, &[FirEntry { ssrc: b, seq }, FirEntry { ssrc: a, seq: 0 }]);
            let packets: Vec<_> = Compound::new(&bytes).map(Result::unwrap).collect();
            let [Packet::Pli(pli), Packet::Fir(fir)] = packets[..] else { panic!("{packets:?}") };
            prop_assert_eq!((pli.sender, pli.media, fir.sender), (a, b, a));
            let entries: Vec<_> = fir.entries().collect();
            prop_assert_eq!(entries, vec![FirEntry { ssrc: b, seq }, FirEntry { ssrc: a, seq: 0 }]);
        }

        #[test]
        fn a_remb_reads_back_to_18_significant_bits(rate: u64, ssrcs in proptest::collection::vec(any::<u32>(), 0..9)) {
            let mut bytes = Vec::new();
            write_remb(&mut bytes, 1, rate, &ssrcs);
            let Some(Ok(Packet::Remb(remb))) = Compound::new(&bytes).next() else { panic!("no REMB") };
            prop_assert!(remb.bits_per_second <= rate && rate - remb.bits_per_second <= rate >> 17);
            prop_assert_eq!(remb.ssrcs().collect::<Vec<_>>(), ssrcs);
        }
    }
}
