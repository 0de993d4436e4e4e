//! Source descriptions (RFC 3550 §6.5).
//!
//! ```text
//! chunk: | SSRC | kind len text… | kind len text… | 0 … to the next word |
//! ```

use super::{RtcpError, emit, pt, take};

/// Item kinds that somebody asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SdesKind {
    /// Canonical name (RFC 3550 §6.5.1).
    Cname,
    /// Media identification tag (RFC 9143 §15.1).
    Mid,
    /// Any other.
    Other(u8),
}

const CNAME: u8 = 1;
const MID: u8 = 15;

/// Up to 31 chunks, checked.
#[derive(Debug, Clone, Copy)]
pub struct Sdes<'a> {
    count: u8,
    body: &'a [u8],
}

/// What is said of one source.
#[derive(Debug, Clone, Copy)]
pub struct SdesChunk<'a> {
    /// The source.
    pub ssrc: u32,
    items: &'a [u8],
}

/// One item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SdesItem<'a> {
    /// What it is.
    pub kind: SdesKind,
    /// 0 to 255 bytes, UTF-8 by the RFC and unchecked here.
    pub text: &'a [u8],
}

impl<'a> Sdes<'a> {
    pub(super) fn parse(count: u8, body: &'a [u8]) -> Result<Self, RtcpError> {
        let mut rest = body;
        for _ in 0..count {
            rest = chunk(rest)?.1;
        }
        Ok(Self { count, body })
    }

    /// The chunks in order.
    pub fn chunks(&self) -> impl Iterator<Item = SdesChunk<'a>> + use<'a> {
        let mut rest = self.body;
        (0..self.count).map_while(move |_| {
            let (found, after) = chunk(rest).ok()?;
            rest = after;
            Some(found)
        })
    }
}

impl<'a> SdesChunk<'a> {
    /// The items in order.
    pub fn items(&self) -> impl Iterator<Item = SdesItem<'a>> + use<'a> {
        let mut rest = self.items;
        std::iter::from_fn(move || {
            let (found, after) = item(rest).ok()??;
            rest = after;
            Some(found)
        })
    }

    /// The text of the first item of a kind.
    pub fn text(&self, kind: SdesKind) -> Option<&'a [u8]> {
        self.items().find(|i| i.kind == kind).map(|i| i.text)
    }
}

/// Splits off one chunk. It ends with the word that holds its END octet, or with the packet: some senders leave
/// END out of the last chunk, and nothing is lost by taking that.
fn chunk(body: &[u8]) -> Result<(SdesChunk<'_>, &[u8]), RtcpError> {
    let (ssrc, items) = take::<4>(body)?;
    let mut rest = items;
    while let Some((_, after)) = item(rest)? {
        rest = after;
    }
    let len = items.len() - rest.len();
    let end = (len + 1).next_multiple_of(4).min(items.len());
    // Both are at most `items.len()`.
    let (items, after) = (items.get(..len).unwrap_or_default(), items.get(end..).unwrap_or_default());
    Ok((SdesChunk { ssrc: u32::from_be_bytes(ssrc), items }, after))
}

/// Splits off one item; `None` at END or where nothing is left. END is one octet and has no length.
fn item(items: &[u8]) -> Result<Option<(SdesItem<'_>, &[u8])>, RtcpError> {
    let Some((&kind, rest)) = items.split_first().filter(|(kind, _)| **kind != 0) else {
        return Ok(None);
    };
    let ([len], rest) = take::<1>(rest)?;
    let Some((text, rest)) = rest.split_at_checked(usize::from(len)) else {
        return Err(RtcpError::Truncated { need: usize::from(len), got: rest.len() });
    };
    let kind = match kind {
        CNAME => SdesKind::Cname,
        MID => SdesKind::Mid,
        other => SdesKind::Other(other),
    };
    Ok(Some((SdesItem { kind, text }, rest)))
}

/// Appends a description with the canonical name of one source. A name longer than 255 bytes is cut there.
pub fn write_cname(out: &mut Vec<u8>, ssrc: u32, cname: &str) {
    let text = cname.as_bytes();
    let text = text.get(..255).unwrap_or(text);
    emit(out, pt::SDES, 1, |out| {
        out.extend_from_slice(&ssrc.to_be_bytes());
        out.extend_from_slice(&[CNAME, text.len() as u8]);
        out.extend_from_slice(text);
        // At least one END octet, then up to the next word.
        let zeros = 4 - (2 + text.len()) % 4;
        out.extend_from_slice([0u8; 4].get(..zeros).unwrap_or_default());
    });
}

#[cfg(test)]
mod tests {
    use super::super::{Compound, Packet};
    use super::*;

    #[test]
    fn a_name_of_any_length_reads_back() {
        for len in 0..=300 {
            let name = "n".repeat(len);
            let mut bytes = Vec::new();
            write_cname(&mut bytes, 7, &name);
            let mut compound = Compound::new(&bytes);
            let Some(Ok(Packet::Sdes(sdes))) = compound.next() else { panic!("no SDES of {len}") };
            let chunks: Vec<_> = sdes.chunks().collect();
            assert_eq!(chunks.len(), 1);
            assert_eq!((chunks[0].ssrc, chunks[0].text(SdesKind::Cname)), (7, Some(&name.as_bytes()[..len.min(255)])));
            assert!(compound.next().is_none());
        }
    }

    #[test]
    fn an_item_that_runs_out_of_the_packet_is_refused() {
        let bytes = [0x81, 202, 0, 2, 0, 0, 0, 1, 1, 3, b'a', b'b'];
        assert_eq!(Compound::new(&bytes).next().and_then(Result::err), Some(RtcpError::Truncated { need: 3, got: 2 }));
    }
}
