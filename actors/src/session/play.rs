//! What a session plays: our egress, and what each section carries.

use super::peer::with_sink;
use crate::api::TransportStats;
use crate::batch::Batch;
use crate::local::Local;
use crate::port::Post;
use crate::room::RoomMsg;
use rondo_media::codec::{Format, Kind};
use rondo_media::ids::{SessionId, TransportId};
use rondo_media::room::TrackKey;
use rondo_media::send::{Egress, EgressConfig, Feedback, Protection};
use rondo_media::transport::Section;
use rondo_media::units::Deadline;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A play transport's media state.
pub struct Playing {
    egress: Option<Egress>,
    sections: Vec<Carried>,
    has_video: bool,
    feedback: Vec<Feedback>,
    /// The receiver's newest estimate of what it can take in all, in bits per second.
    remb: Option<u64>,
}

/// A viewer that waits for a key frame asks this often.
const ASK_EVERY: Duration = Duration::from_millis(200);

#[derive(Default, Clone)]
struct Carried {
    is_video: bool,
    asked_at: Option<Instant>,
    track: Option<TrackKey>,
    paused: bool,
    /// What the egress was told last: format and epoch of the source.
    source: Option<(Format, u32)>,
    /// A source that this section cannot carry; another one may be better.
    unsupported: Option<(Format, u32)>,
}

impl Carried {
    /// Nothing of it is sent: by wish, or, for video, because the receiver says that it can take nothing now (zero by
    /// draft-alvestrand-rmcat-remb-03 §2.2; sound goes on). Any other estimate is the congestion control's to judge.
    fn held(&self, remb: Option<u64>) -> bool {
        self.paused || (self.is_video && remb == Some(0))
    }
}

impl Playing {
    /// `assigned`: what each section carries at first.
    pub fn new(sections: &[Section], assigned: Vec<Option<(TrackKey, bool)>>) -> Self {
        let is_video = |section: &Section| section.kind == Kind::Video;
        let mut carried: Vec<Carried> =
            sections.iter().map(|s| Carried { is_video: is_video(s), ..Carried::default() }).collect();
        for (section, assigned) in carried.iter_mut().zip(assigned) {
            if let Some((track, paused)) = assigned {
                (section.track, section.paused) = (Some(track), paused);
            }
        }
        let has_video = sections.iter().any(|s| s.kind == Kind::Video && !s.formats.is_empty());
        Self { egress: None, sections: carried, has_video, feedback: Vec::new(), remb: None }
    }

    /// DTLS is up: from now on packets can be protected.
    pub fn connected(&mut self, local: &Local, sections: &[Section], protection: Protection, id: &TransportId) {
        let config = EgressConfig { cname: id.to_string(), wall: local.wall, rtx_packets: EgressConfig::RTX_PACKETS };
        let mut egress = local.with_random(|random| Egress::new(protection, sections, config, random));
        for (index, section) in self.sections.iter().enumerate() {
            egress.pause(index, section.held(self.remb));
        }
        self.egress = Some(egress);
    }

    /// What a section carries from now on.
    pub fn assign(&mut self, now: Instant, section: u16, track: Option<TrackKey>, paused: bool) {
        let index = usize::from(section);
        let Some(carried) = self.sections.get_mut(index) else { return };
        let is_video = carried.is_video;
        *carried = Carried { is_video, asked_at: None, track, paused, source: None, unsupported: None };
        if let Some(egress) = &mut self.egress {
            // The source's format comes with its first batch; until then the section is silent.
            let _ = egress.assign(now, index, None);
            egress.pause(index, carried.held(self.remb));
        }
    }

    /// Pauses a section, or lets it go on at the next key frame.
    pub fn pause(&mut self, section: u16, paused: bool) {
        let Some(carried) = self.sections.get_mut(usize::from(section)) else { return };
        carried.paused = paused;
        if let Some(egress) = &mut self.egress {
            egress.pause(usize::from(section), carried.held(self.remb));
        }
    }

    /// The next batch of a section follows others that were left out: its numbers go on without a hole.
    pub fn resume(&mut self, section: u16) {
        let index = usize::from(section);
        let (Some(egress), Some(carried)) = (&mut self.egress, self.sections.get(index)) else { return };
        egress.pause(index, true);
        egress.pause(index, carried.held(self.remb));
    }

    /// Forwards a batch. True if the viewer now has a frame to show.
    #[allow(clippy::too_many_arguments, reason = "one call per batch and viewer; a struct would only rename them")]
    pub fn forward(
        &mut self,
        now: Instant,
        local: &Local,
        to: SocketAddr,
        batch: &Batch,
        section: u16,
        session: SessionId,
        room: &mut Post<RoomMsg>,
    ) -> bool {
        let index = usize::from(section);
        let (Some(egress), Some(carried)) = (&mut self.egress, self.sections.get_mut(index)) else { return false };
        let source = Some((batch.format, batch.epoch));
        if carried.track != Some(batch.track) || carried.unsupported == source {
            return false;
        }
        if carried.source != source {
            if egress.assign(now, index, Some(batch.format)).is_err() {
                carried.unsupported = source;
                room.post(now, RoomMsg::CodecUnsupported { session, track: batch.track, codec: batch.format.codec });
                return false;
            }
            carried.source = source;
            egress.pause(index, carried.held(self.remb));
        }
        if let Some(sets) = &batch.parameter_sets {
            egress.lead(index, sets);
        }
        let sent = with_sink(local, to, |sink| egress.forward(now, index, batch.clock, &batch.packets, sink));
        local.counters.rtp_forwarded.add(u64::from(sent.packets));
        if sent.wants_key_frame && carried.asked_at.is_none_or(|at| now.saturating_duration_since(at) >= ASK_EVERY) {
            // Once in a while, not with every frame that passes by: the publisher's side repeats on its own.
            carried.asked_at = Some(now);
            ask(room, batch.track);
        }
        // For the join's span: a frame to show, or, where there is no picture, the first sound.
        sent.key_frame || (sent.packets > 0 && !self.has_video)
    }

    /// Takes the viewer's reports. False if they could not be read or authenticated.
    pub fn rtcp(
        &mut self,
        now: Instant,
        local: &Local,
        to: SocketAddr,
        datagram: &[u8],
        room: &mut Post<RoomMsg>,
    ) -> bool {
        let Some(egress) = &mut self.egress else { return false };
        let before = egress.stats();
        self.feedback.clear();
        let feedback = &mut self.feedback;
        let taken = with_sink(local, to, |sink| egress.receive_rtcp(now, datagram, sink, feedback)).is_ok();
        let counted = egress.stats();
        let counters = &local.counters;
        counters.rtcp_received.add(1);
        counters.rtcp_bad.add(u64::from(!taken));
        counters.rtx_sent.add(counted.rtx - before.rtx);
        counters.rtx_missed.add(counted.rtx_missed - before.rtx_missed);
        counters.twcc_acked.add(counted.twcc_acked - before.twcc_acked);
        // A packet reported lost may be acknowledged later, so this one may also fall.
        counters.twcc_lost.add(counted.twcc_lost.saturating_sub(before.twcc_lost));
        let mut remb = self.remb;
        for item in self.feedback.drain(..) {
            match item {
                Feedback::KeyFrameWanted { section } => {
                    counters.key_frames_asked.add(1);
                    if let Some(track) = self.sections.get(section).and_then(|carried| carried.track) {
                        ask(room, track);
                    }
                }
                Feedback::Remb { bits_per_second } => remb = Some(bits_per_second),
                // Its estimate leaves with it.
                Feedback::Bye { .. } => remb = None,
            }
        }
        if remb != self.remb {
            self.remb = remb;
            for (index, carried) in self.sections.iter().enumerate() {
                egress.pause(index, carried.held(remb));
            }
        }
        taken
    }

    /// Sender reports that are due.
    pub fn wake(&mut self, now: Instant, local: &Local, to: SocketAddr) {
        if let Some(egress) = &mut self.egress
            && egress.deadline().is_some_and(|deadline| deadline.at <= now)
        {
            with_sink(local, to, |sink| egress.wake(now, sink));
        }
    }

    /// When it next wants to be woken.
    pub fn deadline(&self) -> Option<Deadline> {
        self.egress.as_ref().and_then(Egress::deadline)
    }

    /// RTCP BYE for everything.
    pub fn goodbye(&mut self, now: Instant, local: &Local, to: SocketAddr) {
        if let Some(egress) = &mut self.egress {
            with_sink(local, to, |sink| egress.goodbye(now, sink));
        }
    }

    /// Adds what it has counted.
    pub fn stats(&self, stats: &mut TransportStats) {
        let Some(egress) = &self.egress else { return };
        let counted = egress.stats();
        stats.remb_bits_per_second = self.remb;
        stats.packets_sent = counted.packets;
        stats.bytes_sent = counted.bytes;
        stats.retransmissions_sent = counted.rtx;
        stats.retransmissions_missed = counted.rtx_missed;
        stats.peer_loss = Some(counted.loss);
        stats.rtt_ms = counted.rtt.map(|rtt| rtt.as_secs_f32() * 1_000.0);
        stats.jitter_ms = Some(counted.jitter.as_secs_f32() * 1_000.0);
    }
}

/// A key frame request may be lost when the room is full: the viewer's next PLI, or the next frame, asks again.
fn ask(room: &Post<RoomMsg>, track: TrackKey) {
    let _ = room.port().tell(RoomMsg::KeyFrameWanted { track });
}
