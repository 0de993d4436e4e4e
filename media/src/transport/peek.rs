//! Looking into datagrams before they are authenticated: just enough to say whose they are. Unlike
//! [`crate::wire::rtp::RtpView`] nothing here believes the padding count: on a protected packet it is ciphertext.

/// An RTP header, without its payload (RFC 3550 §5.1, RFC 8285).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rtp<'a> {
    pub(super) marker: bool,
    pub(super) pt: u8,
    pub(super) seq: u16,
    pub(super) time: u32,
    pub(super) ssrc: u32,
    profile: u16,
    extensions: &'a [u8],
    /// Everything behind the header: protected, or with padding.
    pub(super) body: &'a [u8],
    pub(super) padded: bool,
}

impl<'a> Rtp<'a> {
    pub(super) fn parse(datagram: &'a [u8]) -> Option<Rtp<'a>> {
        let (&[first, second, s0, s1, t0, t1, t2, t3, r0, r1, r2, r3], rest) = datagram.split_first_chunk::<12>()?;
        if first >> 6 != 2 {
            return None;
        }
        let mut body = rest.get(usize::from(first & 0x0f) * 4..)?;
        let (mut profile, mut extensions): (u16, &[u8]) = (0, &[]);
        if first & 0x10 != 0 {
            let (&[p0, p1, l0, l1], rest) = body.split_first_chunk::<4>()?;
            profile = u16::from_be_bytes([p0, p1]);
            (extensions, body) = rest.split_at_checked(usize::from(u16::from_be_bytes([l0, l1])) * 4)?;
        }
        Some(Rtp {
            marker: second & 0x80 != 0,
            pt: second & 0x7f,
            seq: u16::from_be_bytes([s0, s1]),
            time: u32::from_be_bytes([t0, t1, t2, t3]),
            ssrc: u32::from_be_bytes([r0, r1, r2, r3]),
            profile,
            extensions,
            body,
            padded: first & 0x20 != 0,
        })
    }

    /// The value of header extension `id`, in the one- or two-byte form (RFC 8285 §4.2, §4.3).
    pub(super) fn extension(&self, id: u8) -> Option<&'a [u8]> {
        let mut rest = self.extensions;
        loop {
            let (found, length, data) = match (self.profile, rest) {
                (_, [0, padding @ ..]) => {
                    rest = padding;
                    continue;
                }
                // The reserved id 15 ends the one-byte form.
                (0xbede, [head, data @ ..]) if head >> 4 != 15 => (head >> 4, usize::from(head & 0x0f) + 1, data),
                (0x1000..=0x100f, [id, length, data @ ..]) => (*id, usize::from(*length), data),
                _ => return None,
            };
            let (value, behind) = data.split_at_checked(length)?;
            if found == id {
                return Some(value);
            }
            rest = behind;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_of_both_forms_are_found() {
        // One-byte form: id 1 length 1, padding, id 4 length 2, end by id 15.
        let one = [0x90, 96, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0xbe, 0xde, 0, 2, 0x10, 7, 0, 0x41, b'v', b'0', 0xf0, 0x20];
        let rtp = Rtp::parse(&one).unwrap();
        assert_eq!((rtp.pt, rtp.seq, rtp.time, rtp.ssrc), (96, 1, 2, 3));
        assert_eq!(rtp.extension(1), Some(&[7u8][..]));
        assert_eq!(rtp.extension(4), Some(&b"v0"[..]));
        assert_eq!(rtp.extension(2), None);
        // Two-byte form: id 4 length 0, id 200 length 1.
        let two = [0x90, 96, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0x10, 0x05, 0, 2, 4, 0, 200, 1, 9, 0, 0, 0];
        let rtp = Rtp::parse(&two).unwrap();
        assert_eq!(rtp.extension(4), Some(&[][..]));
        assert_eq!(rtp.extension(200), Some(&[9u8][..]));
    }

    #[test]
    fn every_truncation_is_survived() {
        let full = [0xb1, 96, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 1, 1, 1, 1, 0xbe, 0xde, 0, 1, 0x13, 1, 2, 3, 9, 9];
        for end in 0..=full.len() {
            if let Some(rtp) = Rtp::parse(&full[..end]) {
                // The value of id 1 would end behind the extension block.
                assert_eq!(rtp.extension(1), None);
            }
        }
        assert!(Rtp::parse(&full[..23]).is_none());
        assert_eq!(Rtp::parse(&full).unwrap().body, [9, 9]);
    }
}
