//! One section of a viewer: what it carries, how its packets are numbered, and what can be sent again.

use super::PacketSink;
use super::egress::{Forwarded, NoFormat};
use super::forwarding::{Event, Forwarding, Verdict};
use super::header::HeaderLayout;
use super::link::{Link, Outgoing};
use super::pictures::{LayersMax, PictureNumbers, Pictures, Sent};
use super::report::{Reception, Reporter};
use super::rewrite::SeqRewriter;
use super::rtx::{NotKept, RtxRing, extend};
use super::times::{TimeRewriter, is_later};
use crate::codec::{Format, Kind};
use crate::congestion::OVERHEAD;
use crate::ids::Random;
use crate::packet::{AudioLevel, Packet, Payload, StreamClock};
use crate::transport::{Section, SectionFormat};
use crate::wire::rtcp::{Nack, ReportBlock};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Packets sent again for one NACK at most: about 150 KB. A receiver that misses more asks again.
const RTX_PER_NACK_MAX: usize = 128;
/// Packets that padding is made of, the newest; none of them shorter than this; and looks for them at most.
const PAD_OF: u64 = 32;
const PAD_LEN_MIN: usize = 300;
const PAD_LOOKS_MAX: u64 = 256;
/// Numbers of one NACK that are looked at: a second at 9 Mbit/s.
const LOST_PER_NACK_MAX: usize = 1024;

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
    pictures: Pictures,
    /// The layer that these belong to, and the one before, of which late packets may come.
    layer: Option<u8>,
    layer_before: Option<u8>,
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

impl Numbers {
    /// What runs ends; what begins next goes on behind it.
    fn end(&mut self) {
        self.seqs.end();
        self.layer_before = None;
    }
}

/// A packet with the numbers that it is sent with, but for its own.
#[derive(Debug, Clone, Copy)]
struct Numbered<'a> {
    payload: &'a Payload,
    rtp_time: u32,
    marker: bool,
    level: Option<AudioLevel>,
    numbers: PictureNumbers,
}

impl<'a> Numbered<'a> {
    fn of(packet: &'a Packet, rtp_time: u32, sent: Option<Sent>) -> Self {
        Self {
            payload: &packet.payload,
            rtp_time,
            marker: packet.marker || sent.is_some_and(|sent| sent.ends_picture),
            level: packet.level,
            numbers: sent.map_or_else(PictureNumbers::default, |sent| sent.numbers),
        }
    }

    /// In the place of a packet that is not sent.
    fn filler(nothing: &'a Payload, rtp_time: u32) -> Self {
        Self { payload: nothing, rtp_time, marker: false, level: None, numbers: PictureNumbers::default() }
    }
}

/// Where packets of what a section carries go.
#[derive(Debug, Clone, Copy)]
struct Carried {
    format: SectionFormat,
    ssrc: u32,
}

/// The first packet that a decoder can begin with. A frame may begin in several packets: its parameter sets, each of its
/// slices.
fn entry(kind: Kind, packets: &[Packet]) -> Option<&Packet> {
    let mut begins = packets.iter().filter(|p| !p.payload.is_empty());
    match kind {
        Kind::Audio => begins.next(),
        Kind::Video => begins.filter(|p| p.key_frame).min_by_key(|p| p.ext_seq),
    }
}

/// A sequence number below 2^15 (RFC 3711 §3.3.1: far from the first rollover).
fn random_seq(random: &mut dyn Random) -> u64 {
    let mut bytes = [0; 2];
    random.fill(&mut bytes);
    u64::from(u16::from_be_bytes(bytes) & 0x7fff)
}

impl Stream {
    pub fn new(section: &Section, rtx_kept: Duration, random: &mut dyn Random) -> Self {
        let first = random_seq(random);
        let mut offset = [0; 4];
        random.fill(&mut offset);
        let rtx = section.rtx_ssrc.map(|ssrc| Rtx {
            ssrc,
            header: HeaderLayout::new(section, ssrc),
            next: random_seq(random),
            sent: false,
            ring: RtxRing::new(rtx_kept),
        });
        Self {
            kind: section.kind,
            formats: section.formats.clone(),
            ssrc: section.ssrc,
            nack: section.nack,
            header: HeaderLayout::new(section, section.ssrc.unwrap_or(0)),
            carried: None,
            forwarding: Forwarding::Free { target: 0 },
            lead: None,
            numbers: Numbers {
                seqs: SeqRewriter::new(first),
                times: TimeRewriter::new(u32::from_be_bytes(offset)),
                pictures: Pictures::default(),
                layer: None,
                layer_before: None,
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
        self.numbers.end();
        self.numbers.other_source = true;
        self.reporter.restart();
        self.forwarding = self.forwarding.on(if carried.is_some() { Event::Assign } else { Event::Release });
        if self.kind == Kind::Video
            && let (Some(rtx), Some(SectionFormat { rtx_pt: Some(_), .. })) = (&mut self.rtx, carried)
        {
            rtx.ring.allocate(now);
        }
        Ok(())
    }

    /// See [`super::Egress::pause`].
    pub fn pause(&mut self, paused: bool) {
        let after = self.forwarding.on(if paused { Event::Pause } else { Event::Resume });
        if after == self.forwarding {
            return;
        }
        self.forwarding = after;
        self.numbers.end();
        self.reporter.restart();
    }

    /// See [`super::Egress::follow`].
    pub fn follow(&mut self, layer: u8, max: LayersMax) {
        self.forwarding = self.forwarding.on(Event::Follow(layer));
        self.numbers.pictures.want(max);
    }

    /// See [`super::Egress::layer`].
    pub fn layer(&self) -> Option<u8> {
        self.numbers.layer
    }

    /// See [`super::Egress::flowing`].
    pub fn flowing(&self) -> Option<u8> {
        self.forwarding.flowing()
    }

    /// See [`super::Egress::lead`].
    pub fn lead(&mut self, payloads: &Arc<[Payload]>) {
        let waits = self.waiting_for_key_frame() || matches!(self.forwarding, Forwarding::Switching { .. });
        self.lead = waits.then(|| Arc::clone(payloads));
    }

    pub fn waiting_for_key_frame(&self) -> bool {
        matches!(self.forwarding, Forwarding::Waiting { .. }) && self.kind == Kind::Video
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether anything of a batch would be sent now.
    pub fn would_send(&self, layer: u8, packets: &[Packet]) -> bool {
        match self.forwarding.judge(layer, entry(self.kind, packets).is_some()) {
            Verdict::Begin | Verdict::Pass => true,
            Verdict::Drop | Verdict::Wait => false,
        }
    }

    /// What was set by [`Self::lead`], for packets that are not forwarded yet.
    pub fn take_lead(&mut self) -> Option<Arc<[Payload]>> {
        self.lead.take()
    }

    /// Goes on with the next key frame, as after a pause.
    pub fn restart(&mut self) {
        self.pause(true);
        self.pause(false);
    }

    /// Whether a key frame would be of use.
    pub fn shows_video(&self) -> bool {
        self.kind == Kind::Video && !matches!(self.forwarding, Forwarding::Free { .. } | Forwarding::Paused { .. })
    }

    /// See [`super::Egress::forward`].
    pub fn forward(
        &mut self,
        link: &mut Link,
        now: Instant,
        layer: u8,
        clock: StreamClock,
        packets: &[Packet],
        sink: &mut dyn PacketSink,
    ) -> Forwarded {
        let mut forwarded = Forwarded::default();
        let (Some(carried), Some(ssrc)) = (self.carried, self.ssrc) else { return forwarded };
        let to = Carried { format: carried, ssrc };
        let lead = self.lead.take();
        let entry = match self.forwarding.judge(layer, true) {
            Verdict::Begin => entry(self.kind, packets),
            Verdict::Drop | Verdict::Pass | Verdict::Wait => None,
        };
        match self.forwarding.judge(layer, entry.is_some()) {
            Verdict::Drop => {
                if self.numbers.layer_before == Some(layer) {
                    self.late(link, now, packets, to, sink, &mut forwarded);
                }
                return forwarded;
            }
            Verdict::Wait => {
                forwarded.wants_key_frame = self.kind == Kind::Video;
                return forwarded;
            }
            Verdict::Begin | Verdict::Pass => {}
        }
        if let Some(first) = entry {
            self.begin(now, layer, clock, first, carried);
        }
        self.reporter.clock(clock);
        if let (Some(first), Some(lead)) = (entry, lead)
            && !carried.format.codec.starts_key_frame(&first.payload)
        {
            for payload in lead.iter() {
                let ext_seq = self.numbers.seqs.insert();
                let rtp_time = self.numbers.times.rewrite(first.rtp_time);
                let numbers = PictureNumbers::default();
                let packet = Numbered { payload, rtp_time, marker: false, level: None, numbers };
                self.send(link, now, ext_seq, packet, to, sink, &mut forwarded);
            }
        }
        let mut newest: Option<u32> = None;
        for packet in packets {
            if !self.packet(link, now, packet, to, sink, &mut forwarded) {
                continue;
            }
            newest = newest.filter(|n| is_later(*n, packet.rtp_time)).or(Some(packet.rtp_time));
            forwarded.key_frame |= packet.key_frame && self.kind == Kind::Video;
        }
        forwarded.wants_key_frame = self.numbers.pictures.take_waits();
        if let Some(newest) = newest {
            self.numbers.times.sent(now, newest, clock, carried.format.codec.clock_hz());
        }
        self.report(link, now, now, sink);
        forwarded
    }

    /// Starts a layer with its first packet. Those of the batch that overtook it are behind it in number, and go with it.
    fn begin(&mut self, now: Instant, layer: u8, clock: StreamClock, first: &Packet, carried: SectionFormat) {
        let clock_hz = carried.format.codec.clock_hz();
        let numbers = &mut self.numbers;
        numbers.layer_before = numbers.layer.filter(|_| numbers.seqs.running());
        numbers.seqs.begin(first.ext_seq);
        numbers.pictures.begin(carried.format.codec.descriptor(&first.payload));
        if numbers.other_source {
            numbers.times.begin(now, first.rtp_time, clock, clock_hz);
            numbers.other_source = false;
        } else if numbers.layer != Some(layer) {
            numbers.times.switch(now, first.rtp_time, clock, clock_hz);
        }
        numbers.layer = Some(layer);
        self.forwarding = self.forwarding.on(Event::Entry(layer));
    }

    /// Sends one packet of what flows. `false`: it has no place, or is of a layer inside the stream that is left out.
    fn packet(
        &mut self,
        link: &mut Link,
        now: Instant,
        packet: &Packet,
        to: Carried,
        sink: &mut dyn PacketSink,
        forwarded: &mut Forwarded,
    ) -> bool {
        let numbers = &mut self.numbers;
        let rtp_time = numbers.times.rewrite(packet.rtp_time);
        let descriptor = to.format.format.codec.descriptor(&packet.payload);
        let sent = descriptor.map(|descriptor| numbers.pictures.next(&descriptor));
        let nothing;
        let (ext_seq, numbered) = match sent {
            // A hole that was seen already is filled with nothing.
            Some(None) => {
                nothing = Payload::default();
                (numbers.seqs.skip(packet.ext_seq).ok().flatten(), Numbered::filler(&nothing, rtp_time))
            }
            None if packet.payload.is_empty() => {
                (numbers.seqs.skip(packet.ext_seq).ok().flatten(), Numbered::of(packet, rtp_time, None))
            }
            None => (numbers.seqs.place(packet.ext_seq).ok(), Numbered::of(packet, rtp_time, None)),
            Some(sent) => (numbers.seqs.place(packet.ext_seq).ok(), Numbered::of(packet, rtp_time, sent)),
        };
        ext_seq.is_some_and(|ext_seq| self.send(link, now, ext_seq, numbered, to, sink, forwarded))
    }

    /// Packets of the layer before fill the holes that were left for them.
    fn late(
        &mut self,
        link: &mut Link,
        now: Instant,
        packets: &[Packet],
        to: Carried,
        sink: &mut dyn PacketSink,
        forwarded: &mut Forwarded,
    ) {
        for packet in packets {
            let numbers = &mut self.numbers;
            let Ok(ext_seq) = numbers.seqs.place_before(packet.ext_seq) else { continue };
            let rtp_time = numbers.times.rewrite_before(packet.rtp_time);
            let descriptor = to.format.format.codec.descriptor(&packet.payload);
            let sent = descriptor.map(|descriptor| numbers.pictures.late(&descriptor));
            let nothing = Payload::default();
            let numbered = match sent {
                Some(None) => Numbered::filler(&nothing, rtp_time),
                None => Numbered::of(packet, rtp_time, None),
                Some(sent) => Numbered::of(packet, rtp_time, sent),
            };
            self.send(link, now, ext_seq, numbered, to, sink, forwarded);
        }
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
        ext_seq: u64,
        packet: Numbered<'_>,
        to: Carried,
        sink: &mut dyn PacketSink,
        forwarded: &mut Forwarded,
    ) -> bool {
        let outgoing = Outgoing {
            ssrc: to.ssrc,
            pt: to.format.pt,
            ext_seq,
            rtp_time: packet.rtp_time,
            marker: packet.marker,
            level: packet.level,
            osn: None,
            payload: packet.payload,
            pictures: (to.format.format.codec, packet.numbers),
        };
        let Some(len) = link.send_rtp(now, &self.header, &outgoing, sink) else { return false };
        self.numbers.next = self.numbers.next.max(ext_seq + 1);
        link.counts.packets += 1;
        link.counts.bytes += len as u64;
        forwarded.packets += 1;
        forwarded.bytes += len as u64;
        self.reporter.sent(now, packet.payload.len());
        if let Some(rtx) = &mut self.rtx {
            rtx.ring.keep(now, ext_seq, packet.rtp_time, packet.marker, packet.payload, packet.numbers);
        }
        true
    }

    /// Sends again what a NACK asks for and the ring still has, until it is more than `most` bytes: the rest is asked
    /// for anew. How many bytes were sent, headers below RTP included.
    pub fn resend(
        &mut self,
        link: &mut Link,
        now: Instant,
        nack: &Nack<'_>,
        most: u64,
        sink: &mut dyn PacketSink,
    ) -> u64 {
        let Some(SectionFormat { rtx_pt: Some(pt), format, .. }) = self.carried else { return 0 };
        let (Some(rtx), true) = (&mut self.rtx, self.nack) else { return 0 };
        if matches!(self.forwarding, Forwarding::Paused { .. }) {
            return 0;
        }
        let (mut sent, mut bytes) = (0, 0);
        for lost in nack.lost().take(LOST_PER_NACK_MAX) {
            if sent == RTX_PER_NACK_MAX || bytes >= most {
                break;
            }
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
                pictures: (format.codec, kept.numbers),
            };
            rtx.next += 1;
            rtx.sent = true;
            if let Some(len) = link.send_rtp(now, &rtx.header, &outgoing, sink) {
                link.counts.rtx += 1;
                link.counts.rtx_bytes += len as u64;
                bytes += len as u64 + OVERHEAD;
            }
            sent += 1;
        }
        bytes
    }

    /// Sends kept packets once more, the newest first, until there are so many bytes and packets of them: padding that
    /// the viewer drops as seen. How many were sent; none where nothing of any length is kept.
    pub fn pad(
        &mut self,
        link: &mut Link,
        now: Instant,
        bytes: usize,
        packets: usize,
        sink: &mut dyn PacketSink,
    ) -> u16 {
        let Some(SectionFormat { rtx_pt: Some(pt), format, .. }) = self.carried else { return 0 };
        let Some(rtx) = &mut self.rtx else { return 0 };
        let (mut sent, mut sent_bytes) = (0u16, 0);
        for look in 0..PAD_LOOKS_MAX {
            let back = look % PAD_OF + 1;
            if sent_bytes >= bytes && usize::from(sent) >= packets || (look == PAD_OF && sent == 0) {
                break;
            }
            let Some(ext_seq) = self.numbers.next.checked_sub(back) else { continue };
            let Some(kept) = rtx.ring.peek(ext_seq).filter(|kept| kept.payload.len() >= PAD_LEN_MIN) else { continue };
            let outgoing = Outgoing {
                ssrc: rtx.ssrc,
                pt,
                ext_seq: rtx.next,
                rtp_time: kept.rtp_time,
                marker: kept.marker,
                level: None,
                osn: Some(ext_seq as u16),
                payload: &kept.payload,
                pictures: (format.codec, kept.numbers),
            };
            rtx.next += 1;
            rtx.sent = true;
            if let Some(len) = link.send_rtp(now, &rtx.header, &outgoing, sink) {
                link.counts.padding_bytes += len as u64;
                sent_bytes += len;
                sent += 1;
            }
        }
        sent
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
