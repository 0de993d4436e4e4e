//! One viewer's transport: packets of rooms in, protected datagrams out, and what the viewer reports back.

use super::PacketSink;
use super::link::{Counts, Link};
use super::pacing::{Batch, Pacing};
use super::pictures::LayersMax;
use super::srtp::{Protection, SrtpError};
use super::stream::Stream;
use super::twcc::{TwccHistory, TwccResult};
use crate::codec::{Format, Kind};
use crate::congestion::Estimator;
use crate::ids::Random;
use crate::packet::{Packet, Payload, StreamClock};
use crate::transport::Section;
use crate::units::{Bitrate, Deadline, WallClock, Why};
use crate::wire::rtcp::{Blocks, Compound, Packet as Rtcp, RtcpError};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest RTCP datagram that is read: more than any path carries unfragmented.
const RTCP_LEN_MAX: usize = 2048;

/// Sender reports that are due so soon after a wake-up go with it.
const REPORTS_TOGETHER: Duration = Duration::from_millis(50);

/// What an egress is made with, besides keys and sections.
#[derive(Debug, Clone)]
pub struct EgressConfig {
    /// Canonical name (RFC 3550 §6.5.1) of all streams, up to 255 bytes: what has the same is played together.
    pub cname: String,
    /// For NTP times.
    pub wall: WallClock,
    /// For how long a packet of video can be sent again.
    pub rtx_kept: Duration,
}

impl EgressConfig {
    /// Default of [`Self::rtx_kept`]: three requests at a round trip of 300 ms.
    pub const RTX_KEPT: Duration = Duration::from_secs(1);
}

/// A section has no payload type for a format, or cannot carry anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("section {section} cannot carry {format:?}")]
pub struct NoFormat {
    /// Index of the section.
    pub section: usize,
    /// What it cannot carry.
    pub format: Format,
}

/// What [`Egress::forward`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// Packets sent.
    pub packets: u32,
    /// Bytes sent in RTP: headers, payloads and tags.
    pub bytes: u64,
    /// A packet that a decoder can begin with was sent; video only.
    pub key_frame: bool,
    /// The section waits for a key frame of this layer, to begin, to change layers, or to send more of it, and there was
    /// none.
    pub wants_key_frame: bool,
}

/// What a viewer wants or says, for whoever feeds its sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feedback {
    /// PLI or FIR: the decoder needs a key frame. Once a section and datagram.
    KeyFrameWanted {
        /// Index of the section.
        section: usize,
    },
    /// The receiver's estimate of what it can take in all.
    Remb {
        /// Saturates at 2^64 − 1; 0: nothing now.
        bits_per_second: u64,
    },
    /// The receiver of the section leaves.
    Bye {
        /// Index of the section.
        section: usize,
    },
}

/// Why an RTCP datagram, or its rest, was not read. Counted; nothing else is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RtcpRefused {
    /// Longer than is read.
    #[error("{0} bytes, at most {RTCP_LEN_MAX} are read")]
    TooLong(usize),
    /// Forged, replayed or cut.
    #[error(transparent)]
    Srtp(#[from] SrtpError),
    /// The packets before this one were taken.
    #[error(transparent)]
    Rtcp(#[from] RtcpError),
}

/// Counters of one viewer since its beginning, and the newest measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EgressStats {
    /// Media packets sent, without retransmissions.
    pub packets: u64,
    /// Their bytes: headers, payloads and tags.
    pub bytes: u64,
    /// Packets sent again.
    pub rtx: u64,
    /// Their bytes.
    pub rtx_bytes: u64,
    /// Packets that were asked for and not kept, never sent, or already overwritten.
    pub rtx_missed: u64,
    /// Packets that could not be sealed, and so were not sent.
    pub unsealed: u64,
    /// 0 to 1, from the newest report of the section where it is largest.
    pub loss: f32,
    /// From the newest report that tells.
    pub rtt: Option<Duration>,
    /// Interarrival jitter, from the newest report of the section where it is largest.
    pub jitter: Duration,
    /// RTCP datagrams taken.
    pub rtcp_received: u64,
    /// RTCP datagrams refused, in whole or in part.
    pub rtcp_bad: u64,
    /// Packets that transport-wide feedback says arrived.
    pub twcc_acked: u64,
    /// Packets that transport-wide feedback says are missing.
    pub twcc_lost: u64,
    /// Packets that should have come by now, as far as the peer tells.
    pub expected: u64,
    /// Of them, those that it lacks: what was sent again is taken off. Below zero where more was sent again than lacked.
    pub unrepaired: i64,
    /// Key frame requests: PLI and new FIR.
    pub plis: u64,
    /// Bytes sent again as padding, to find out what the path takes.
    pub padding_bytes: u64,
    /// Bursts of it.
    pub probes: u64,
    /// Packets of video that waited before they were sent.
    pub paced: u64,
    /// Packets of video that were dropped because they would have waited for too long.
    pub late: u64,
    /// Packets of video that wait now.
    pub waiting: usize,
}

/// Those counters that one datagram of the viewer may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// Packets sent again.
    pub rtx: u64,
    /// Packets that were asked for and could not be sent again.
    pub rtx_missed: u64,
    /// Packets that transport-wide feedback says arrived.
    pub twcc_acked: u64,
    /// Packets that transport-wide feedback says are missing.
    pub twcc_lost: u64,
}

/// The send side of one transport.
#[derive(Debug)]
pub struct Egress {
    pub(super) streams: Vec<Stream>,
    pub(super) link: Link,
    /// Only where video is sent: sound needs no estimate, and one costs more than the sound.
    pub(super) estimator: Option<Estimator>,
    /// Where there is an estimate.
    pub(super) pacing: Option<Pacing>,
}

impl Egress {
    /// `sections`: all of the transport's, in order; indices elsewhere are into them. Sequence numbers begin below
    /// 2^15 and RTP clocks anywhere, at random.
    pub fn new(protection: Protection, sections: &[Section], config: EgressConfig, random: &mut dyn Random) -> Self {
        let EgressConfig { cname, wall, rtx_kept } = config;
        let streams = sections.iter().map(|section| Stream::new(section, rtx_kept, random)).collect();
        let (twcc, counts) = (TwccHistory::default(), Counts::default());
        let has_video = sections.iter().any(|s| s.kind == Kind::Video && s.ssrc.is_some());
        let link = Link { protection, twcc, wall, cname, counts, rtt: None };
        let (estimator, pacing) = (has_video.then(Estimator::new), has_video.then(Pacing::default));
        Self { streams, link, estimator, pacing }
    }

    /// What a section carries from now on: packets of another source, in this format; `None` frees it. The numbers
    /// go on so that no decoder notices, and video starts with a key frame. A pause stays until it is lifted, or
    /// the section freed.
    ///
    /// # Errors
    /// [`NoFormat`] where the section cannot carry the format; it carries what it did before.
    pub fn assign(&mut self, now: Instant, section: usize, format: Option<Format>) -> Result<(), NoFormat> {
        match (self.streams.get_mut(section), format) {
            (Some(stream), _) => stream.assign(now, section, format)?,
            (None, Some(format)) => return Err(NoFormat { section, format }),
            (None, None) => {}
        }
        if let Some(pacing) = &mut self.pacing {
            pacing.forget(section);
        }
        Ok(())
    }

    /// Whether a section can carry a format.
    pub fn supports(&self, section: usize, format: Format) -> bool {
        self.streams.get(section).is_some_and(|s| s.payload_type(format).is_some())
    }

    /// Stops (`true`) or resumes a section. Video resumes with a key frame, audio at once, both without a hole. A free
    /// section cannot be paused.
    pub fn pause(&mut self, section: usize, paused: bool) {
        if let Some(pacing) = self.pacing.as_mut().filter(|_| paused) {
            pacing.forget(section);
        }
        if let Some(stream) = self.streams.get_mut(section) {
            stream.pause(paused);
        }
    }

    /// Which layer of what the section carries is wanted, and how much of it: from its next key frame on. Up to then
    /// the layer that flows goes on. Stays when something else is assigned; layer 0 at first.
    pub fn follow(&mut self, section: usize, layer: u8, max: LayersMax) {
        if let Some(stream) = self.streams.get_mut(section) {
            stream.follow(layer, max);
        }
    }

    /// The layer that a section sends or has sent last.
    pub fn layer(&self, section: usize) -> Option<u8> {
        self.streams.get(section).and_then(Stream::layer)
    }

    /// The layer whose packets flow now.
    pub fn flowing(&self, section: usize) -> Option<u8> {
        self.streams.get(section).and_then(Stream::flowing)
    }

    /// What a decoder must have before the key frame of the next packets that are forwarded, if the section begins with
    /// one that does not bring it along: H.264 parameter sets, each a payload of its own (RFC 6184 §8.4).
    pub fn lead(&mut self, section: usize, payloads: &Arc<[Payload]>) {
        if let Some(stream) = self.streams.get_mut(section) {
            stream.lead(payloads);
        }
    }

    /// Sends packets of one layer of what the section carries, and its sender report where that is due.
    ///
    /// `layer`: 0 where there are none. `packets`: as they came, one batch; those out of order get their places, duplicates and packets older than
    /// the window are left out, and so are those without a payload. `clock`: the source's, as of now.
    ///
    /// Video that is more than the path takes at once is sent in part; [`Self::wake`] sends the rest.
    pub fn forward(
        &mut self,
        now: Instant,
        section: usize,
        layer: u8,
        clock: StreamClock,
        packets: &[Packet],
        sink: &mut dyn PacketSink,
    ) -> Forwarded {
        let Some(stream) = self.streams.get_mut(section) else { return Forwarded::default() };
        let (Some(estimator), Some(pacing)) = (&self.estimator, &mut self.pacing) else {
            return stream.forward(&mut self.link, now, layer, clock, packets, sink);
        };
        if !pacing.passes(now, stream.kind(), estimator.bound(), packets) {
            return self.forward_paced(&Batch { now, section, layer, clock, packets }, sink);
        }
        let mut forwarded = stream.forward(&mut self.link, now, layer, clock, packets, sink);
        forwarded.wants_key_frame |= pacing.passed(&forwarded, section, layer);
        forwarded
    }

    /// Reads one RTCP datagram of the viewer. Retransmissions are sent from here; `feedback` gets what others have
    /// to act on.
    ///
    /// # Errors
    /// [`RtcpRefused`], counted; what was read before the error stands.
    pub fn receive_rtcp(
        &mut self,
        now: Instant,
        datagram: &[u8],
        sink: &mut dyn PacketSink,
        feedback: &mut Vec<Feedback>,
    ) -> Result<(), RtcpRefused> {
        let result = self.read_rtcp(now, datagram, sink, feedback);
        match result {
            Ok(()) => self.link.counts.rtcp_received += 1,
            Err(_) => self.link.counts.rtcp_bad += 1,
        }
        result
    }

    fn read_rtcp(
        &mut self,
        now: Instant,
        datagram: &[u8],
        sink: &mut dyn PacketSink,
        feedback: &mut Vec<Feedback>,
    ) -> Result<(), RtcpRefused> {
        let mut plain = [0; RTCP_LEN_MAX];
        let plain = plain.get_mut(..datagram.len()).ok_or(RtcpRefused::TooLong(datagram.len()))?;
        plain.copy_from_slice(datagram);
        let len = self.link.protection.open_rtcp(plain)?;
        let before = feedback.len();
        for packet in Compound::new(plain.get(..len).unwrap_or_default()) {
            self.rtcp(now, packet?, sink, feedback, before);
        }
        Ok(())
    }

    /// `before`: where this datagram's feedback begins.
    fn rtcp(
        &mut self,
        now: Instant,
        packet: Rtcp<'_>,
        sink: &mut dyn PacketSink,
        feedback: &mut Vec<Feedback>,
        before: usize,
    ) {
        match packet {
            Rtcp::SenderReport(sr) => self.received(now, sr.ssrc, &sr.blocks),
            Rtcp::ReceiverReport(rr) => self.received(now, rr.ssrc, &rr.blocks),
            Rtcp::Nack(nack) => {
                let most = self.repairs(now);
                if let Some(stream) = self.streams.iter_mut().find(|s| s.ssrc() == Some(nack.media)) {
                    let sent = stream.resend(&mut self.link, now, &nack, most, sink);
                    self.repaired(sent);
                }
            }
            Rtcp::Pli(pli) => {
                if let Some(section) = self.section(pli.media) {
                    self.key_frame_wanted(section, feedback, before);
                }
            }
            Rtcp::Fir(fir) => {
                for entry in fir.entries() {
                    let Some(section) = self.section(entry.ssrc) else { continue };
                    if self.streams.get_mut(section).is_some_and(|s| s.fir_is_new(entry.seq)) {
                        self.key_frame_wanted(section, feedback, before);
                    }
                }
            }
            Rtcp::Twcc(twcc) => {
                self.link.twcc.receive(&twcc);
                self.estimate_anew(now);
            }
            Rtcp::Remb(remb) => {
                if let Some(estimator) = &mut self.estimator {
                    estimator.remb(now, Bitrate::from_bps(remb.bits_per_second));
                }
                push_once(feedback, before, Feedback::Remb { bits_per_second: remb.bits_per_second });
            }
            Rtcp::Bye(bye) => {
                self.forget_remb();
                for ssrc in bye.ssrcs() {
                    let left = self.streams.iter().enumerate().filter(|(_, s)| s.is_reported_by(ssrc));
                    left.for_each(|(section, _)| push_once(feedback, before, Feedback::Bye { section }));
                }
            }
            Rtcp::Sdes(_) | Rtcp::App | Rtcp::Other { .. } => {}
        }
    }

    fn section(&self, ssrc: u32) -> Option<usize> {
        self.streams.iter().position(|s| s.ssrc() == Some(ssrc))
    }

    fn received(&mut self, now: Instant, reporter: u32, blocks: &Blocks<'_>) {
        for block in blocks.iter() {
            if let Some(stream) = self.streams.iter_mut().find(|s| s.ssrc() == Some(block.ssrc)) {
                stream.received(&mut self.link, now, reporter, &block);
            }
        }
    }

    fn key_frame_wanted(&mut self, section: usize, feedback: &mut Vec<Feedback>, before: usize) {
        if !self.streams.get(section).is_some_and(Stream::shows_video) {
            return;
        }
        self.link.counts.plis += 1;
        push_once(feedback, before, Feedback::KeyFrameWanted { section });
    }

    /// Sends the sender reports and probes that are due, and video that has waited. How many packets of it.
    pub fn wake(&mut self, now: Instant, sink: &mut dyn PacketSink) -> u32 {
        self.control(now, sink);
        let released = self.release(now, None, sink);
        let due = self.streams.iter().filter_map(Stream::report_due).any(|due| due <= now);
        for stream in self.streams.iter_mut().filter(|_| due) {
            stream.report(&mut self.link, now, now + REPORTS_TOGETHER, sink);
        }
        released.packets
    }

    /// When [`Self::wake`] has something to do.
    pub fn deadline(&self) -> Option<Deadline> {
        let report = self.streams.iter().filter_map(Stream::report_due).min();
        let report = report.map(|at| Deadline { at, why: Why::SenderReport });
        Deadline::earlier(Deadline::earlier(report, self.control_deadline()), self.pacing_deadline())
    }

    /// Whether a section carries video that has not begun. One that changes layers has.
    pub fn waiting_for_key_frame(&self, section: usize) -> bool {
        self.streams.get(section).is_some_and(Stream::waiting_for_key_frame)
    }

    /// Says BYE for all streams that sent anything.
    pub fn goodbye(&mut self, _now: Instant, sink: &mut dyn PacketSink) {
        let ssrcs: Vec<u32> = self.streams.iter().flat_map(Stream::used_ssrcs).collect();
        self.link.send_bye(&ssrcs, sink);
    }

    /// What the last transport-wide feedback told anew, for a bandwidth estimator: at most 512 packets, in order.
    /// Stands until the next one is received.
    pub fn twcc_results(&self) -> impl Iterator<Item = TwccResult> + '_ {
        self.link.twcc.results()
    }

    /// Packets of video that were dropped because they would have waited for too long.
    pub fn late(&self) -> u64 {
        self.pacing.as_ref().map_or(0, |pacing| pacing.late)
    }

    /// See [`Answered`].
    pub fn answered(&self) -> Answered {
        let (counts, twcc) = (&self.link.counts, self.link.twcc.counts());
        Answered { rtx: counts.rtx, rtx_missed: counts.rtx_missed, twcc_acked: twcc.acked, twcc_lost: twcc.lost }
    }

    /// Counters and the newest measurements.
    pub fn stats(&self) -> EgressStats {
        let (counts, twcc) = (self.link.counts, self.link.twcc.counts());
        let receptions = || self.streams.iter().map(Stream::reception);
        let (expected, lost) = match twcc.acked + twcc.lost {
            0 => (counts.packets, receptions().map(|r| i64::from(r.lost)).sum()),
            reported => (reported, twcc.lost.cast_signed()),
        };
        EgressStats {
            packets: counts.packets,
            bytes: counts.bytes,
            rtx: counts.rtx,
            rtx_bytes: counts.rtx_bytes,
            rtx_missed: counts.rtx_missed,
            unsealed: counts.unsealed,
            loss: f32::from(receptions().map(|r| r.fraction_lost).max().unwrap_or(0)) / 256.0,
            rtt: self.link.rtt,
            jitter: receptions().map(|r| r.jitter).max().unwrap_or_default(),
            rtcp_received: counts.rtcp_received,
            rtcp_bad: counts.rtcp_bad,
            twcc_acked: twcc.acked,
            twcc_lost: twcc.lost,
            expected,
            unrepaired: lost.saturating_sub_unsigned(counts.rtx),
            plis: counts.plis,
            padding_bytes: counts.padding_bytes,
            probes: self.estimator.as_ref().map_or(0, Estimator::bursts),
            paced: self.pacing.as_ref().map_or(0, |pacing| pacing.waited),
            late: self.late(),
            waiting: self.pacing.as_ref().map_or(0, Pacing::waiting),
        }
    }
}

/// Adds what is not yet among the feedback from `before` on: a datagram that repeats itself says it once.
fn push_once(feedback: &mut Vec<Feedback>, before: usize, item: Feedback) {
    if !feedback.iter().skip(before).any(|f| *f == item) {
        feedback.push(item);
    }
}
