//! Sender and receiver reports and BYE (RFC 3550 §6.4, §6.6).

use super::{RtcpError, emit, pt, take};

/// Most report blocks or sources in one packet: the count has 5 bits.
const COUNT_MAX: usize = 31;

/// What a sender says of itself (RFC 3550 §6.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderInfo {
    /// NTP time of the report: 32 bits of seconds since 1900, 32 bits of fraction.
    pub ntp: u64,
    /// The same moment on the stream's RTP clock.
    pub rtp_time: u32,
    /// Packets sent, modulo 2^32.
    pub packets: u32,
    /// Payload octets sent, modulo 2^32.
    pub octets: u32,
}

/// A sender report: 28 bytes after the header and its blocks; profile extensions are skipped.
#[derive(Debug, Clone, Copy)]
pub struct SenderReport<'a> {
    /// The stream that it tells about.
    pub ssrc: u32,
    /// What the sender says of the stream.
    pub info: SenderInfo,
    /// What it says of streams that it receives.
    pub blocks: Blocks<'a>,
}

/// A receiver report: 4 bytes after the header and its blocks; profile extensions are skipped.
#[derive(Debug, Clone, Copy)]
pub struct ReceiverReport<'a> {
    /// Who reports.
    pub ssrc: u32,
    /// What it says of streams that it receives.
    pub blocks: Blocks<'a>,
}

/// Up to 31 report blocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Blocks<'a>(&'a [[u8; 24]]);

/// How one stream is received (RFC 3550 §6.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReportBlock {
    /// The stream.
    pub ssrc: u32,
    /// Lost since the last report, in 1/256 of what was expected.
    pub fraction_lost: u8,
    /// Lost since the beginning; 24 bits, negative where duplicates outnumber losses.
    pub lost: i32,
    /// Highest sequence number received, extended to 32 bits.
    pub highest_seq: u32,
    /// Interarrival jitter in units of the RTP clock.
    pub jitter: u32,
    /// Middle 32 bits of the NTP time of the last sender report; 0: none yet.
    pub last_sr: u32,
    /// Time since that report arrived, in 1/65,536 s.
    pub delay_since_last_sr: u32,
}

impl<'a> SenderReport<'a> {
    pub(super) fn parse(count: u8, body: &'a [u8]) -> Result<Self, RtcpError> {
        let (ssrc, body) = take::<4>(body)?;
        let (ntp, body) = take::<8>(body)?;
        let (rtp_time, body) = take::<4>(body)?;
        let (packets, body) = take::<4>(body)?;
        let (octets, body) = take::<4>(body)?;
        let info = SenderInfo {
            ntp: u64::from_be_bytes(ntp),
            rtp_time: u32::from_be_bytes(rtp_time),
            packets: u32::from_be_bytes(packets),
            octets: u32::from_be_bytes(octets),
        };
        Ok(Self { ssrc: u32::from_be_bytes(ssrc), info, blocks: Blocks::parse(count, body)? })
    }
}

impl<'a> ReceiverReport<'a> {
    pub(super) fn parse(count: u8, body: &'a [u8]) -> Result<Self, RtcpError> {
        let (ssrc, body) = take::<4>(body)?;
        Ok(Self { ssrc: u32::from_be_bytes(ssrc), blocks: Blocks::parse(count, body)? })
    }
}

impl<'a> Blocks<'a> {
    fn parse(count: u8, body: &'a [u8]) -> Result<Self, RtcpError> {
        let (blocks, _) = body.as_chunks::<24>();
        match blocks.get(..usize::from(count)) {
            Some(blocks) => Ok(Self(blocks)),
            None => Err(RtcpError::Truncated { need: usize::from(count) * 24, got: body.len() }),
        }
    }

    /// The blocks in order.
    pub fn iter(&self) -> impl Iterator<Item = ReportBlock> + use<'a> {
        self.0.iter().map(ReportBlock::read)
    }
}

impl ReportBlock {
    fn read(bytes: &[u8; 24]) -> Self {
        let [s0, s1, s2, s3, fraction_lost, l0, l1, l2, h0, h1, h2, h3, j0, j1, j2, j3, rest @ ..] = *bytes;
        let [r0, r1, r2, r3, d0, d1, d2, d3] = rest;
        Self {
            ssrc: u32::from_be_bytes([s0, s1, s2, s3]),
            fraction_lost,
            // 24 bits with a sign: shifted to the top, and arithmetically back.
            lost: i32::from_be_bytes([l0, l1, l2, 0]) >> 8,
            highest_seq: u32::from_be_bytes([h0, h1, h2, h3]),
            jitter: u32::from_be_bytes([j0, j1, j2, j3]),
            last_sr: u32::from_be_bytes([r0, r1, r2, r3]),
            delay_since_last_sr: u32::from_be_bytes([d0, d1, d2, d3]),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.ssrc.to_be_bytes());
        let lost = self.lost.clamp(-0x80_0000, 0x7f_ffff) as u32 & 0xff_ffff;
        out.extend_from_slice(&(u32::from(self.fraction_lost) << 24 | lost).to_be_bytes());
        for word in [self.highest_seq, self.jitter, self.last_sr, self.delay_since_last_sr] {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }
}

/// Appends a sender report; blocks after the 31st are left out.
pub fn write_sender_report(out: &mut Vec<u8>, ssrc: u32, info: &SenderInfo, blocks: &[ReportBlock]) {
    let count = blocks.len().min(COUNT_MAX);
    emit(out, pt::SR, count as u8, |out| {
        out.extend_from_slice(&ssrc.to_be_bytes());
        out.extend_from_slice(&info.ntp.to_be_bytes());
        for word in [info.rtp_time, info.packets, info.octets] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        blocks.iter().take(count).for_each(|b| b.write(out));
    });
}

/// Appends a receiver report; blocks after the 31st are left out.
pub fn write_receiver_report(out: &mut Vec<u8>, ssrc: u32, blocks: &[ReportBlock]) {
    let count = blocks.len().min(COUNT_MAX);
    emit(out, pt::RR, count as u8, |out| {
        out.extend_from_slice(&ssrc.to_be_bytes());
        blocks.iter().take(count).for_each(|b| b.write(out));
    });
}

/// Sources that leave; the reason is not read.
#[derive(Debug, Clone, Copy)]
pub struct Bye<'a>(&'a [[u8; 4]]);

impl<'a> Bye<'a> {
    pub(super) fn parse(count: u8, body: &'a [u8]) -> Result<Self, RtcpError> {
        let (ssrcs, _) = body.as_chunks::<4>();
        match ssrcs.get(..usize::from(count)) {
            Some(ssrcs) => Ok(Self(ssrcs)),
            None => Err(RtcpError::Truncated { need: usize::from(count) * 4, got: body.len() }),
        }
    }

    /// The sources, at most 31.
    pub fn ssrcs(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.0.iter().map(|ssrc| u32::from_be_bytes(*ssrc))
    }
}

/// Appends as many BYE packets as `ssrcs` need, 31 sources each.
pub fn write_bye(out: &mut Vec<u8>, ssrcs: &[u32]) {
    for ssrcs in ssrcs.chunks(COUNT_MAX) {
        emit(out, pt::BYE, ssrcs.len() as u8, |out| {
            ssrcs.iter().for_each(|ssrc| out.extend_from_slice(&ssrc.to_be_bytes()));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Compound, Packet};
    use super::*;
    use proptest::prelude::*;

    fn block() -> impl Strategy<Value = ReportBlock> {
        (any::<[u32; 5]>(), any::<u8>(), -0x80_0000..0x80_0000).prop_map(|(words, fraction_lost, lost)| ReportBlock {
            ssrc: words[0],
            fraction_lost,
            lost,
            highest_seq: words[1],
            jitter: words[2],
            last_sr: words[3],
            delay_since_last_sr: words[4],
        })
    }

    proptest! {
        #[test]
        fn reports_read_back(
            ssrc: u32,
            ntp: u64,
            words: [u32; 3],
            blocks in proptest::collection::vec(block(), 0..=31),
        ) {
            let info = SenderInfo { ntp, rtp_time: words[0], packets: words[1], octets: words[2] };
            let mut bytes = Vec::new();
            write_sender_report(&mut bytes, ssrc, &info, &blocks);
            write_receiver_report(&mut bytes, ssrc, &blocks);
            prop_assert_eq!(bytes.len(), 28 + 8 + 48 * blocks.len());
            let packets: Vec<_> = Compound::new(&bytes).map(Result::unwrap).collect();
            let [Packet::SenderReport(sr), Packet::ReceiverReport(rr)] = packets[..] else { panic!("{packets:?}") };
            prop_assert_eq!((sr.ssrc, sr.info, rr.ssrc), (ssrc, info, ssrc));
            prop_assert_eq!(sr.blocks.iter().collect::<Vec<_>>(), blocks.clone());
            prop_assert_eq!(rr.blocks.iter().collect::<Vec<_>>(), blocks);
        }

        #[test]
        fn byes_read_back(ssrcs in proptest::collection::vec(any::<u32>(), 0..80)) {
            let mut bytes = Vec::new();
            write_bye(&mut bytes, &ssrcs);
            let mut read = Vec::new();
            for packet in Compound::new(&bytes) {
                let Packet::Bye(bye) = packet.unwrap() else { panic!("no BYE") };
                read.extend(bye.ssrcs());
            }
            prop_assert_eq!(read, ssrcs);
        }
    }

    #[test]
    fn a_count_that_the_body_does_not_hold_is_refused() {
        let err = |bytes: &[u8]| Compound::new(bytes).next().and_then(Result::err);
        assert_eq!(err(&[0x81, 201, 0, 1, 0, 0, 0, 1]), Some(RtcpError::Truncated { need: 24, got: 0 }));
        assert_eq!(err(&[0x82, 203, 0, 1, 0, 0, 0, 1]), Some(RtcpError::Truncated { need: 8, got: 4 }));
        assert_eq!(err(&[0x80, 200, 0, 1, 0, 0, 0, 1]), Some(RtcpError::Truncated { need: 8, got: 0 }));
    }
}
