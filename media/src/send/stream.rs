//! One section of a viewer: what it carries, how its packets are numbered, and what can be sent again.

use super::PacketSink;
use super::egress::{Forwarded, NoFormat};
use super::header::HeaderLayout;
use super::link::{Link, Outgoing};
use super::report::{Reception, Reporter};
use super::rewrite::{SeqRewriter, TimeRewriter, is_later};
use super::rtx::{NotKept, RtxRing, extend};
use crate::codec::{Format, Kind};
use crate::ids::Random;
use crate::packet::{Packet, Payload, StreamClock};
use crate::transport::{Section, SectionFormat};
use crate::wire::rtcp::{Nack, ReportBlock};
use std::sync::Arc;
use std::time::Instant;

/// Packets sent again for one NACK at most: about 150 KB. A receiver that misses more asks again.
const RTX_PER_NACK_MAX: usize = 128;
/// Numbers of one NACK that are looked at: the whole default ring, twice.
const LOST_PER_NACK_MAX: usize = 1024;

/// What a section does with the packets it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forwarding {
    /// Nothing is assigned.
    Free,
    /// Nothing is forwarded, by wish.
    Paused,
    /// Something is assigned and has not begun: video begins with a key frame, audio with any packet.
    Waiting,
    /// Packets flow.
    Flowing,
}

/// One section. Only those with an SSRC can carry anything.
#[derive(Debug)]
pub(super) struct Stream {
    kind: Kind,
    formats: Vec<SectionFormat>,
    ssrc: Option<u32>,
    nack: bool,
    header: HeaderLayout,
    carried: Option<SectionFormat>,
    forwarding: Forwarding,
    /// Goes before what begins next, if that lacks it.
    lead: Option<Arc<[Payload]>>,
    numbers: Numbers,
    rtx: Option<Rtx>,
    reporter: Reporter,
    peer: Peer,
}

#[derive(Debug)]
struct Numbers {
    seqs: SeqRewriter,
    times: TimeRewriter,
    /// The number after the highest that was sent.
    next: u64,
    /// What begins next is another source, with another RTP clock.
    other_source: bool,
}

/// Retransmissions have a stream of their own (RFC 4588 §4). Without one agreed on nothing is sent again: the same
/// SSRC and sequence number with another header (its time, its transport-wide number) would use an AEAD nonce twice.
#[derive(Debug)]
struct Rtx {
    ssrc: u32,
    header: HeaderLayout,
    next: u64,
    sent: bool,
    ring: RtxRing,
}

/// What the peer said of the stream.
#[derive(Debug, Default)]
struct Peer {
    /// The SSRC that it reports with.
    ssrc: Option<u32>,
    reception: Reception,
    /// Number of the last Full Intra Request.
    fir_seq: Option<u8>,
}

/// A sequence number below 2^15 (RFC 3711 §3.3.1: far from the first rollover).
fn random_seq(random: &mut dyn Random) -> u64 {
    let mut bytes = [0; 2];
    random.fill(&mut bytes);
    u64::from(u16::from_be_bytes(bytes) & 0x7fff)
}

impl Stream {
    pub fn new(section: &Section, rtx_packets: usize, random: &mut dyn Random) -> Self {
        let first = random_seq(random);
        let mut offset = [0; 4];
        random.fill(&mut offset);
        let rtx = section.rtx_ssrc.map(|ssrc| Rtx {
            ssrc,
            header: HeaderLayout::new(section, ssrc),
            next: random_seq(random),
            sent: false,
            ring: RtxRing::new(rtx_packets),
        });
        Self {
            kind: section.kind,
            formats: section.formats.clone(),
            ssrc: section.ssrc,
            nack: section.nack,
            header: HeaderLayout::new(section, section.ssrc.unwrap_or(0)),
            carried: None,
            forwarding: Forwarding::Free,
            lead: None,
            numbers: Numbers {
                seqs: SeqRewriter::new(first),
                times: TimeRewriter::new(u32::from_be_bytes(offset)),
                next: first,
                other_source: false,
            },
            rtx,
            reporter: Reporter::default(),
            peer: Peer::default(),
        }
    }

    pub fn ssrc(&self) -> Option<u32> {
        self.ssrc
    }

    /// The payload type for a format, if the section can carry it.
    pub fn payload_type(&self, format: Format) -> Option<SectionFormat> {
        self.formats.iter().find(|f| f.format == format).copied().filter(|_| self.ssrc.is_some())
    }

    /// See [`super::Egress::assign`]. A pause outlives what it paused.
    pub fn assign(&mut self, now: Instant, section: usize, format: Option<Format>) -> Result<(), NoFormat> {
        let carried = match format {
            Some(format) => Some(self.payload_type(format).ok_or(NoFormat { section, format })?),
            None => None,
        };
        let before = std::mem::replace(&mut self.carried, carried);
        if before.map(|b| b.pt) != carried.map(|c| c.pt)
            && let Some(rtx) = &mut self.rtx
        {
            // The payload type of a retransmission says which format the original had.
            rtx.ring.clear();
        }
        self.numbers.seqs.end();
        self.numbers.other_source = true;
        self.reporter.restart();
        self.forwarding = match (self.forwarding, carried) {
            (_, None) => Forwarding::Free,
            (Forwarding::Paused, Some(_)) => Forwarding::Paused,
            (Forwarding::Free | Forwarding::Waiting | Forwarding::Flowing, Some(_)) => Forwarding::Waiting,
        };
        if self.kind == Kind::Video
            && let (Some(rtx), Some(SectionFormat { rtx_pt: Some(_), .. })) = (&mut self.rtx, carried)
        {
            rtx.ring.allocate(now);
        }
        Ok(())
    }

    /// See [`super::Egress::pause`].
    pub fn pause(&mut self, paused: bool) {
        let after = match (self.forwarding, paused) {
            (Forwarding::Free, _) => Forwarding::Free,
            (Forwarding::Paused | Forwarding::Waiting | Forwarding::Flowing, true) => Forwarding::Paused,
            (Forwarding::Paused, false) => Forwarding::Waiting,
            (same @ (Forwarding::Waiting | Forwarding::Flowing), false) => same,
        };
        if after == self.forwarding {
            return;
        }
        self.forwarding = after;
        self.numbers.seqs.end();
        self.reporter.restart();
    }

    /// See [`super::Egress::lead`].
    pub fn lead(&mut self, payloads: &Arc<[Payload]>) {
        self.lead = self.waiting_for_key_frame().then(|| Arc::clone(payloads));
    }

    pub fn waiting_for_key_frame(&self) -> bool {
        self.forwarding == Forwarding::Waiting && self.kind == Kind::Video
    }

    /// Whether a key frame would be of use.
    pub fn shows_video(&self) -> bool {
        self.kind == Kind::Video && matches!(self.forwarding, Forwarding::Waiting | Forwarding::Flowing)
    }

    /// See [`super::Egress::forward`].
    pub fn forward(
        &mut self,
        link: &mut Link,
        now: Instant,
        clock: StreamClock,
        packets: &[Packet],
        sink: &mut dyn PacketSink,
    ) -> Forwarded {
        let mut forwarded = Forwarded::default();
        let (Some(carried), Some(ssrc)) = (self.carried, self.ssrc) else { return forwarded };
        let lead = self.lead.take();
        let first = match self.forwarding {
            Forwarding::Free | Forwarding::Paused => return forwarded,
            Forwarding::Waiting => {
                let Some(first) = self.begin(now, clock, packets, carried) else {
                    forwarded.wants_key_frame = self.kind == Kind::Video;
                    return forwarded;
                };
                Some(first)
            }
            Forwarding::Flowing => None,
        };
        self.reporter.clock(clock);
        if let (Some(first), Some(lead)) = (first, lead)
            && !carried.format.codec.starts_key_frame(&first.payload)
        {
            for payload in lead.iter() {
                let ext_seq = self.numbers.seqs.insert();
                let packet = Packet { marker: false, level: None, payload: Arc::clone(payload), ..first.clone() };
                let Some(len) = self.send(link, now, &packet, ext_seq, carried, ssrc, sink) else { continue };
                forwarded.packets += 1;
                forwarded.bytes += len as u64;
            }
        }
        let mut newest: Option<u32> = None;
        for packet in packets {
            let Some(len) = self.packet(link, now, packet, carried, ssrc, sink) else { continue };
            newest = newest.filter(|n| is_later(*n, packet.rtp_time)).or(Some(packet.rtp_time));
            forwarded.packets += 1;
            forwarded.bytes += len as u64;
            forwarded.key_frame |= packet.key_frame && self.kind == Kind::Video;
        }
        if let Some(newest) = newest {
            self.numbers.times.sent(now, newest, clock, carried.format.codec.clock_hz());
        }
        self.report(link, now, now, sink);
        forwarded
    }

    /// Starts the source with the first packet of the batch that a decoder can begin with. Those of the batch that
    /// overtook it are behind it in number, and go with it.
    fn begin<'a>(
        &mut self,
        now: Instant,
        clock: StreamClock,
        packets: &'a [Packet],
        carried: SectionFormat,
    ) -> Option<&'a Packet> {
        let mut begins = packets.iter().filter(|p| !p.payload.is_empty());
        let first = match self.kind {
            Kind::Audio => begins.next(),
            // A frame may begin in several packets: its parameter sets, each of its slices.
            Kind::Video => begins.filter(|p| p.key_frame).min_by_key(|p| p.ext_seq),
        }?;
        self.numbers.seqs.begin(first.ext_seq);
        if self.numbers.other_source {
            self.numbers.times.begin(now, first.rtp_time, clock, carried.format.codec.clock_hz());
            self.numbers.other_source = false;
        }
        self.forwarding = Forwarding::Flowing;
        Some(first)
    }

    fn packet(
        &mut self,
        link: &mut Link,
        now: Instant,
        packet: &Packet,
        carried: SectionFormat,
        ssrc: u32,
        sink: &mut dyn PacketSink,
    ) -> Option<usize> {
        let numbers = &mut self.numbers;
        let ext_seq = match packet.payload.is_empty() {
            true => numbers.seqs.skip(packet.ext_seq).ok().flatten(),
            false => numbers.seqs.place(packet.ext_seq).ok(),
        }?;
        self.send(link, now, packet, ext_seq, carried, ssrc, sink)
    }

    /// Sends a packet under a number of ours.
    #[allow(
        clippy::too_many_arguments,
        reason = "all of them are needed for each packet; a struct would only rename them"
    )]
    fn send(
        &mut self,
        link: &mut Link,
        now: Instant,
        packet: &Packet,
        ext_seq: u64,
        carried: SectionFormat,
        ssrc: u32,
        sink: &mut dyn PacketSink,
    ) -> Option<usize> {
        let numbers = &mut self.numbers;
        let rtp_time = numbers.times.rewrite(packet.rtp_time);
        let outgoing = Outgoing {
            ssrc,
            pt: carried.pt,
            ext_seq,
            rtp_time,
            marker: packet.marker,
            level: packet.level,
            osn: None,
            payload: &packet.payload,
        };
        let len = link.send_rtp(now, &self.header, &outgoing, sink)?;
        numbers.next = numbers.next.max(ext_seq + 1);
        link.counts.packets += 1;
        link.counts.bytes += len as u64;
        self.reporter.sent(now, packet.payload.len());
        if let Some(rtx) = &mut self.rtx {
            rtx.ring.keep(ext_seq, rtp_time, packet.marker, &packet.payload);
        }
        Some(len)
    }

    /// Sends again what a NACK asks for and the ring still has.
    pub fn resend(&mut self, link: &mut Link, now: Instant, nack: &Nack<'_>, sink: &mut dyn PacketSink) {
        let rtx_pt = self.carried.and_then(|c| c.rtx_pt);
        let (Some(rtx), Some(pt), true) = (&mut self.rtx, rtx_pt, self.nack) else { return };
        if self.forwarding == Forwarding::Paused {
            return;
        }
        let mut sent = 0;
        for lost in nack.lost().take(LOST_PER_NACK_MAX) {
            let kept = match extend(lost, self.numbers.next).map(|seq| rtx.ring.again(now, seq, link.rtt)) {
                Some(Ok(kept)) => kept,
                Some(Err(NotKept::TooSoon)) => continue,
                Some(Err(NotKept::Unknown)) | None => {
                    link.counts.rtx_missed += 1;
                    continue;
                }
            };
            let outgoing = Outgoing {
                ssrc: rtx.ssrc,
                pt,
                ext_seq: rtx.next,
                rtp_time: kept.rtp_time,
                marker: kept.marker,
                level: None,
                osn: Some(lost),
                payload: &kept.payload,
            };
            rtx.next += 1;
            rtx.sent = true;
            if let Some(len) = link.send_rtp(now, &rtx.header, &outgoing, sink) {
                link.counts.rtx += 1;
                link.counts.rtx_bytes += len as u64;
            }
            sent += 1;
            if sent == RTX_PER_NACK_MAX {
                return;
            }
        }
    }

    /// Sends the sender report if it is due by `until`.
    pub fn report(&mut self, link: &mut Link, now: Instant, until: Instant, sink: &mut dyn PacketSink) {
        let (Some(carried), Some(ssrc)) = (self.carried, self.ssrc) else { return };
        if self.report_due().is_none_or(|due| due > until) {
            return;
        }
        let clock_hz = carried.format.codec.clock_hz();
        if let Some(info) = self.reporter.report(now, &link.wall, self.numbers.times.offset(), clock_hz) {
            link.send_report(ssrc, &info, sink);
        }
    }

    /// When the next sender report is due.
    pub fn report_due(&self) -> Option<Instant> {
        self.reporter.due().filter(|_| self.carried.is_some())
    }

    /// A report block about this stream, from `reporter`.
    pub fn received(&mut self, link: &mut Link, now: Instant, reporter: u32, block: &ReportBlock) {
        let clock_hz = self.carried.map_or(90_000, |c| c.format.codec.clock_hz());
        let reception = Reception::read(now, &link.wall, block, clock_hz);
        link.rtt = reception.rtt.or(link.rtt);
        self.peer.reception = reception;
        self.peer.ssrc = Some(reporter);
    }

    pub fn reception(&self) -> Reception {
        self.peer.reception
    }

    /// Whether the peer reports on this stream with `ssrc`.
    pub fn is_reported_by(&self, ssrc: u32) -> bool {
        self.peer.ssrc == Some(ssrc)
    }

    /// Whether a Full Intra Request is a new one (RFC 5104 §4.3.1.2).
    pub fn fir_is_new(&mut self, seq: u8) -> bool {
        self.peer.fir_seq.replace(seq) != Some(seq)
    }

    /// The SSRCs that something was sent on.
    pub fn used_ssrcs(&self) -> impl Iterator<Item = u32> + '_ {
        let own = self.ssrc.filter(|_| self.reporter.has_sent());
        own.into_iter().chain(self.rtx.as_ref().filter(|rtx| rtx.sent).map(|rtx| rtx.ssrc))
    }
}
