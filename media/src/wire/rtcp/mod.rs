//! RTCP, read in place and written by appending (RFC 3550 §6, RFC 4585 §6, RFC 5104 §4.3, RFC 5506).
//!
//! ```text
//!  0                   1                   2                   3
//! |V=2|P|  count  |      PT       |   length in words, minus one  |   then the body
//! ```
//!
//! Reading allocates nothing: every packet is a view of the datagram. A packet is checked as a whole when the
//! iterator yields it, so that walking its parts cannot fail. The order of a compound is not checked: reduced-size
//! packets (RFC 5506) begin with anything.

mod feedback;
mod report;
mod sdes;
mod twcc;

pub use feedback::{Fir, FirEntry, Nack, Pli, Remb, write_fir, write_nack, write_pli, write_remb};
pub use report::{
    Blocks, Bye, ReceiverReport, ReportBlock, SenderInfo, SenderReport, write_bye, write_receiver_report,
    write_sender_report,
};
pub use sdes::{Sdes, SdesChunk, SdesItem, SdesKind, write_cname};
pub use twcc::{TICK_US, Twcc, TwccStatus, TwccStatuses, TwccWriter};

/// Packet types (RFC 3550 §12.1, RFC 4585 §6.1).
pub(crate) mod pt {
    pub const SR: u8 = 200;
    pub const RR: u8 = 201;
    pub const SDES: u8 = 202;
    pub const BYE: u8 = 203;
    pub const APP: u8 = 204;
    pub const RTPFB: u8 = 205;
    pub const PSFB: u8 = 206;
}

/// Feedback message types, the 5 bits that are a count elsewhere.
pub(crate) mod fmt {
    pub const NACK: u8 = 1;
    pub const TWCC: u8 = 15;
    pub const PLI: u8 = 1;
    pub const FIR: u8 = 4;
    pub const AFB: u8 = 15;
}

/// Why a packet of a compound could not be read. It ends the compound: what follows cannot be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RtcpError {
    /// Fewer bytes than the packet says it has, or its kind needs.
    #[error("needs {need} bytes and has {got}")]
    Truncated {
        /// Bytes that had to be there.
        need: usize,
        /// Bytes that were.
        got: usize,
    },
    /// The version is not 2.
    #[error("version {0}")]
    Version(u8),
    /// The padding count is 0 or larger than the packet.
    #[error("padding of {count} bytes in a body of {body}")]
    Padding {
        /// The last byte of the packet.
        count: u8,
        /// Bytes of the body.
        body: usize,
    },
    /// Feedback control information that is not made of whole entries.
    #[error("feedback information of {got} bytes, entries have {entry}")]
    Fci {
        /// Bytes of one entry.
        entry: usize,
        /// Bytes that there are.
        got: usize,
    },
    /// A transport-wide feedback uses the reserved status symbol 3.
    #[error("reserved packet status symbol")]
    TwccSymbol,
}

/// One packet of a compound.
#[derive(Debug, Clone, Copy)]
pub enum Packet<'a> {
    /// RFC 3550 §6.4.1.
    SenderReport(SenderReport<'a>),
    /// RFC 3550 §6.4.2.
    ReceiverReport(ReceiverReport<'a>),
    /// RFC 3550 §6.5.
    Sdes(Sdes<'a>),
    /// RFC 3550 §6.6.
    Bye(Bye<'a>),
    /// RFC 3550 §6.7; its contents are nobody's here.
    App,
    /// Generic NACK, RFC 4585 §6.2.1.
    Nack(Nack<'a>),
    /// Picture Loss Indication, RFC 4585 §6.3.1.
    Pli(Pli),
    /// Full Intra Request, RFC 5104 §4.3.1.
    Fir(Fir<'a>),
    /// Transport-wide feedback, draft-holmer-rmcat-transport-wide-cc-extensions-01 §3.1.
    Twcc(Twcc<'a>),
    /// Receiver Estimated Maximum Bitrate, draft-alvestrand-rmcat-remb-03 §2.2.
    Remb(Remb<'a>),
    /// A kind that we do not know, to be ignored (RFC 3550 §6.1).
    Other {
        /// Packet type.
        pt: u8,
        /// Count or feedback message type.
        fmt: u8,
    },
}

/// The packets of one datagram, in order.
///
/// A packet that cannot be read is yielded as an error and ends the iteration; those before it stand.
#[derive(Debug, Clone)]
pub struct Compound<'a> {
    rest: &'a [u8],
}

impl<'a> Compound<'a> {
    /// `datagram`: plain RTCP, without SRTCP index and tag.
    pub fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }

    fn read(&mut self) -> Result<Packet<'a>, RtcpError> {
        let got = self.rest.len();
        let Some(&[first, pt, len_hi, len_lo]) = self.rest.first_chunk::<4>() else {
            return Err(RtcpError::Truncated { need: 4, got });
        };
        if first >> 6 != 2 {
            return Err(RtcpError::Version(first >> 6));
        }
        let need = (usize::from(u16::from_be_bytes([len_hi, len_lo])) + 1) * 4;
        let Some((packet, rest)) = self.rest.split_at_checked(need) else {
            return Err(RtcpError::Truncated { need, got });
        };
        self.rest = rest;
        let body = without_padding(packet.get(4..).unwrap_or_default(), first & 0x20 != 0)?;
        parse(pt, first & 0x1f, body)
    }
}

impl<'a> Iterator for Compound<'a> {
    type Item = Result<Packet<'a>, RtcpError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let packet = self.read();
        if packet.is_err() {
            self.rest = &[];
        }
        Some(packet)
    }
}

impl std::iter::FusedIterator for Compound<'_> {}

/// Padding is legal on the last packet only (RFC 3550 §6.4.1), but transport feedback of browsers carries it anywhere.
fn without_padding(body: &[u8], padded: bool) -> Result<&[u8], RtcpError> {
    if !padded {
        return Ok(body);
    }
    let count = body.last().copied().unwrap_or(0);
    match body.len().checked_sub(usize::from(count)) {
        Some(len) if count > 0 => Ok(body.get(..len).unwrap_or_default()),
        Some(_) | None => Err(RtcpError::Padding { count, body: body.len() }),
    }
}

fn parse(pt: u8, count: u8, body: &[u8]) -> Result<Packet<'_>, RtcpError> {
    Ok(match (pt, count) {
        (pt::SR, _) => Packet::SenderReport(SenderReport::parse(count, body)?),
        (pt::RR, _) => Packet::ReceiverReport(ReceiverReport::parse(count, body)?),
        (pt::SDES, _) => Packet::Sdes(Sdes::parse(count, body)?),
        (pt::BYE, _) => Packet::Bye(Bye::parse(count, body)?),
        (pt::APP, _) => Packet::App,
        (pt::RTPFB, fmt::NACK) => Packet::Nack(Nack::parse(body)?),
        (pt::RTPFB, fmt::TWCC) => Packet::Twcc(Twcc::parse(body)?),
        (pt::PSFB, fmt::PLI) => Packet::Pli(Pli::parse(body)?),
        (pt::PSFB, fmt::FIR) => Packet::Fir(Fir::parse(body)?),
        (pt::PSFB, fmt::AFB) => match Remb::parse(body)? {
            Some(remb) => Packet::Remb(remb),
            None => Packet::Other { pt, fmt: count },
        },
        (pt, fmt) => Packet::Other { pt, fmt },
    })
}

/// Appends one packet: the header with the length that `body` turns out to have. `body` appends whole words.
fn emit(out: &mut Vec<u8>, pt: u8, count: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0x80 | (count & 0x1f), pt, 0, 0]);
    body(out);
    debug_assert_eq!((out.len() - start) % 4, 0);
    let words = ((out.len() - start) / 4 - 1) as u16;
    if let Some(length) = out.get_mut(start + 2..start + 4) {
        length.copy_from_slice(&words.to_be_bytes());
    }
}

/// Splits `N` bytes off the front, or says how many the packet had.
fn take<const N: usize>(body: &[u8]) -> Result<([u8; N], &[u8]), RtcpError> {
    match body.split_first_chunk::<N>() {
        Some((chunk, rest)) => Ok((*chunk, rest)),
        None => Err(RtcpError::Truncated { need: N, got: body.len() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a reader sees of a packet, walked to the end.
    fn walk(packet: Packet<'_>) -> usize {
        match packet {
            Packet::SenderReport(sr) => sr.blocks.iter().count(),
            Packet::ReceiverReport(rr) => rr.blocks.iter().count(),
            Packet::Sdes(sdes) => sdes.chunks().map(|c| c.items().count()).sum(),
            Packet::Bye(bye) => bye.ssrcs().count(),
            Packet::Nack(nack) => nack.lost().count(),
            Packet::Fir(fir) => fir.entries().count(),
            Packet::Twcc(twcc) => twcc.statuses().count(),
            Packet::Remb(remb) => remb.ssrcs().count(),
            Packet::App | Packet::Pli(_) | Packet::Other { .. } => 0,
        }
    }

    #[test]
    fn a_bad_packet_ends_the_compound_and_those_before_it_stand() {
        let mut bytes = Vec::new();
        write_pli(&mut bytes, 1, 2);
        bytes.extend_from_slice(&[0x80, 201, 0, 1, 0, 0]);
        let mut compound = Compound::new(&bytes);
        assert!(matches!(compound.next(), Some(Ok(Packet::Pli(Pli { sender: 1, media: 2 })))));
        assert_eq!(compound.next().map(|p| p.err()), Some(Some(RtcpError::Truncated { need: 8, got: 6 })));
        assert!(compound.next().is_none());
    }

    #[test]
    fn version_padding_and_unknown_kinds() {
        let err = |bytes: &[u8]| Compound::new(bytes).next().and_then(Result::err);
        assert_eq!(err(&[0x40, 200, 0, 0]), Some(RtcpError::Version(1)));
        assert_eq!(err(&[0xa0, 201, 0, 0]), Some(RtcpError::Padding { count: 0, body: 0 }));
        assert_eq!(err(&[0xa0, 201, 0, 1, 0, 0, 0, 5]), Some(RtcpError::Padding { count: 5, body: 4 }));
        // XR (RFC 3611) is none of ours, nor is a payload-specific feedback that is not REMB; APP is skipped.
        let bytes = [0x80, 207, 0, 1, 0, 0, 0, 1, 0x80, 204, 0, 2, 0, 0, 0, 1, b'n', b'a', b'm', b'e'];
        let kinds: Vec<_> = Compound::new(&bytes).map(|p| p.unwrap()).collect();
        assert!(matches!(kinds[..], [Packet::Other { pt: 207, fmt: 0 }, Packet::App]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for packet in Compound::new(&bytes).flatten() {
                walk(packet);
            }
        }

        /// Random bytes rarely get past the header, so this one makes the header right.
        #[test]
        fn any_body_is_read_without_a_panic(
            pt in 200u8..=207,
            first in prop_oneof![Just(0x80u8), Just(0xa0)],
            fmt in 0u8..32,
            words in proptest::collection::vec(any::<u32>(), 0..40),
        ) {
            let mut bytes = vec![first | fmt, pt];
            bytes.extend_from_slice(&(words.len() as u16).to_be_bytes());
            bytes.extend(words.iter().flat_map(|w| w.to_be_bytes()));
            for packet in Compound::new(&bytes).flatten() {
                walk(packet);
            }
        }
    }
}
