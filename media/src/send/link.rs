//! What all streams of one viewer share: keys, transport-wide numbers, clock and counters.

use super::PacketSink;
use super::header::{HeaderFields, HeaderLayout, abs_send_time};
use super::pictures::PictureNumbers;
use super::srtp::Protection;
use super::twcc::TwccHistory;
use crate::codec::Codec;
use crate::packet::AudioLevel;
use crate::units::WallClock;
use crate::wire::rtcp::{SenderInfo, write_bye, write_cname, write_receiver_report, write_sender_report};
use std::time::{Duration, Instant};

/// Counters of one viewer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub packets: u64,
    pub bytes: u64,
    pub rtx: u64,
    pub rtx_bytes: u64,
    pub rtx_missed: u64,
    pub unsealed: u64,
    pub rtcp_received: u64,
    pub rtcp_bad: u64,
    pub plis: u64,
    pub padding_bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    pub protection: Protection,
    pub twcc: TwccHistory,
    pub wall: WallClock,
    pub cname: String,
    pub counts: Counts,
    /// Of the newest report.
    pub rtt: Option<Duration>,
}

/// One RTP packet to be sent.
pub(super) struct Outgoing<'a> {
    pub ssrc: u32,
    pub pt: u8,
    pub ext_seq: u64,
    pub rtp_time: u32,
    pub marker: bool,
    pub level: Option<AudioLevel>,
    /// Original sequence number of a retransmission (RFC 4588 §4).
    pub osn: Option<u16>,
    pub payload: &'a [u8],
    /// Numbers that take the place of the payload's own.
    pub pictures: (Codec, PictureNumbers),
}

impl Link {
    /// Writes, seals and finishes one packet; answers its length, header and tag included. `None`: it could not be
    /// sealed, and nothing was sent.
    pub fn send_rtp(
        &mut self,
        now: Instant,
        layout: &HeaderLayout,
        packet: &Outgoing<'_>,
        sink: &mut dyn PacketSink,
    ) -> Option<usize> {
        let fields = HeaderFields {
            pt: packet.pt,
            marker: packet.marker,
            seq: packet.ext_seq as u16,
            rtp_time: packet.rtp_time,
            abs_send_time: abs_send_time(self.wall.ntp(now)),
            twcc: self.twcc.next(),
            level: packet.level,
        };
        let buffer = sink.buffer();
        let start = buffer.len();
        layout.write(buffer, &fields);
        if let Some(osn) = packet.osn {
            buffer.extend_from_slice(&osn.to_be_bytes());
        }
        let payload_at = buffer.len();
        buffer.extend_from_slice(packet.payload);
        let (codec, numbers) = packet.pictures;
        numbers.write(codec, buffer.get_mut(payload_at..).unwrap_or_default());
        if self.protection.seal_rtp(buffer, start, layout.len(), packet.ssrc, packet.ext_seq).is_err() {
            buffer.truncate(start);
            self.counts.unsealed += 1;
            return None;
        }
        let len = buffer.len() - start;
        sink.finish(start);
        if layout.has_twcc() {
            self.twcc.sent(now, len);
        }
        Some(len)
    }

    /// Sends the report of one stream, with the name that ties it to the others (RFC 3550 §6.1).
    pub fn send_report(&mut self, ssrc: u32, info: &SenderInfo, sink: &mut dyn PacketSink) {
        self.send_rtcp(sink, |cname, out| {
            write_sender_report(out, ssrc, info, &[]);
            write_cname(out, ssrc, cname);
        });
    }

    /// Says that the streams end. A compound begins with a report (RFC 3550 §6.1): an empty one.
    pub fn send_bye(&mut self, ssrcs: &[u32], sink: &mut dyn PacketSink) {
        let Some(&first) = ssrcs.first() else { return };
        self.send_rtcp(sink, |cname, out| {
            write_receiver_report(out, first, &[]);
            write_cname(out, first, cname);
            write_bye(out, ssrcs);
        });
    }

    fn send_rtcp(&mut self, sink: &mut dyn PacketSink, write: impl FnOnce(&str, &mut Vec<u8>)) {
        let buffer = sink.buffer();
        let start = buffer.len();
        write(&self.cname, buffer);
        if self.protection.seal_rtcp(buffer, start).is_err() {
            buffer.truncate(start);
            self.counts.unsealed += 1;
            return;
        }
        sink.finish(start);
    }
}
