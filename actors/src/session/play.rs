//! What a session plays: our egress, what each section carries, and which layer of it.

use super::Carry;
use super::choice::{Choice, choose, smallest};
use super::health::Totals;
use super::peer::with_sink;
use super::share::Sharing;
use crate::api::{SubscriptionStats, TransportStats, View};
use crate::batch::Batch;
use crate::local::Local;
use crate::port::Post;
use crate::room::{RoomMsg, Viewer};
use rondo_media::codec::{Format, Kind};
use rondo_media::ids::{SessionId, TransportId};
use rondo_media::receive::{LayerList, LayerMask};
use rondo_media::room::TrackKey;
use rondo_media::send::{Egress, EgressConfig, EgressStats, Feedback, Protection};
use rondo_media::transport::{LAYERS_MAX, Section};
use rondo_media::units::{Bitrate, Deadline};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A play transport's media state.
pub struct Playing {
    pub(super) egress: Option<Egress>,
    viewer: Viewer,
    pub(super) sections: Vec<Carried>,
    has_video: bool,
    feedback: Vec<Feedback>,
    /// The receiver's newest estimate of what it can take in all, in bits per second.
    pub(super) remb: Option<u64>,
    pub(super) sharing: Sharing,
    /// Packets that came too late to be sent, as counted so far.
    late: u64,
}

/// How long packets of a layer are taken after another took its place: they fill holes that were left for them.
const REPAIRED_FOR: Duration = Duration::from_millis(500);
/// A viewer that waits for a key frame asks this often.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// One section.
#[derive(Default)]
pub(super) struct Carried {
    pub(super) is_video: bool,
    mid: String,
    pub(super) carry: Option<Carry>,
    asked_at: Option<Instant>,
    /// What the egress was told last.
    format: Option<Format>,
    /// By layer: the stream that came last.
    epochs: [Option<u32>; LAYERS_MAX],
    /// A format that this section cannot carry; another one may be better.
    unsupported: Option<Format>,
    /// Place of the layer that its view asks for: none better is of use.
    pub(super) top: usize,
    /// The layer that it gets.
    pub(super) choice: Choice,
    /// The viewer's path takes nothing of it.
    pub(super) starved: bool,
    /// Its publisher is among those who speak.
    pub(super) speaks: bool,
    /// Layers that would be sent if they came.
    pub(super) wished: LayerMask,
    /// The layer before, whose repaired packets still come, and until when.
    repaired: Option<(u8, Instant)>,
    /// The layer that flowed when it was looked at last: one may begin when packets that waited are sent.
    flowed: Option<u8>,
    /// The layers that the room sends, as it was told.
    follows: LayerMask,
}

impl Carried {
    /// Nothing of it is sent: by wish, because the path takes no more, or, for video, because the receiver says that it
    /// can take nothing now (zero by draft-alvestrand-rmcat-remb-03 §2.2; sound goes on).
    pub(super) fn held(&self, remb: Option<u64>) -> bool {
        self.starved || self.unwanted(remb)
    }

    /// The same, the viewer's path left out.
    pub(super) fn unwanted(&self, remb: Option<u64>) -> bool {
        self.carry.as_ref().is_some_and(|carry| carry.paused) || (self.is_video && remb == Some(0))
    }

    /// The track it carries, if that has layers to choose from.
    fn layered(&self) -> Option<&Carry> {
        self.carry.as_ref().filter(|carry| carry.names.len() > 1)
    }
}

impl Playing {
    /// `assigned`: what each section carries at first.
    pub fn new(sections: &[Section], assigned: Vec<Option<Carry>>, viewer: Viewer) -> Self {
        let carried = |(section, carry): (&Section, Option<Carry>)| Carried {
            is_video: section.kind == Kind::Video,
            mid: section.mid.clone(),
            carry,
            ..Carried::default()
        };
        let carried = sections.iter().zip(assigned.into_iter().chain(std::iter::repeat(None))).map(carried).collect();
        let has_video = sections.iter().any(|s| s.kind == Kind::Video && !s.formats.is_empty());
        Self {
            egress: None,
            viewer,
            sections: carried,
            has_video,
            feedback: Vec::new(),
            remb: None,
            sharing: Sharing::default(),
            late: 0,
        }
    }

    /// DTLS is up: from now on packets can be protected.
    pub fn connected(
        &mut self,
        now: Instant,
        local: &Local,
        sections: &[Section],
        protection: Protection,
        id: &TransportId,
        room: &mut Post<RoomMsg>,
    ) {
        let config = EgressConfig { cname: id.to_string(), wall: local.wall, rtx_kept: EgressConfig::RTX_KEPT };
        let mut egress = local.with_random(|random| Egress::new(protection, sections, config, random));
        for (index, section) in self.sections.iter().enumerate() {
            egress.pause(index, section.held(self.remb));
        }
        self.egress = Some(egress);
        for index in 0..self.sections.len() {
            self.choose(now, index, room);
        }
    }

    /// What a section carries from now on.
    pub fn assign(&mut self, now: Instant, section: u16, carry: Option<Carry>, room: &mut Post<RoomMsg>) {
        let index = usize::from(section);
        let Some(carried) = self.sections.get_mut(index) else { return };
        let (is_video, mid) = (carried.is_video, std::mem::take(&mut carried.mid));
        *carried = Carried { is_video, mid, carry, ..Carried::default() };
        self.sharing.allocator.forget(index);
        if let Some(egress) = &mut self.egress {
            // The source's format comes with its first batch; until then the section is silent.
            let _ = egress.assign(now, index, None);
            egress.follow(index, carried.choice.layer, carried.choice.max);
            egress.pause(index, carried.held(self.remb));
        }
        self.choose(now, index, room);
    }

    /// Pauses a section, or lets it go on at the next key frame.
    pub fn pause(&mut self, section: u16, paused: bool) {
        let Some(carried) = self.sections.get_mut(usize::from(section)) else { return };
        if let Some(carry) = &mut carried.carry {
            carry.paused = paused;
        }
        if let Some(egress) = &mut self.egress {
            egress.pause(usize::from(section), carried.held(self.remb));
        }
        self.sharing.allocator.anew();
    }

    /// The next batch of a section follows others that were left out: its numbers go on without a hole.
    pub fn resume(&mut self, section: u16) {
        let index = usize::from(section);
        let (Some(egress), Some(carried)) = (&mut self.egress, self.sections.get(index)) else { return };
        egress.pause(index, true);
        egress.pause(index, carried.held(self.remb));
    }

    /// Whether the publisher of what a section carries is among those who speak: better layers go to them first.
    pub fn speaks(&mut self, section: u16, speaks: bool) {
        let Some(carried) = self.sections.get_mut(usize::from(section)) else { return };
        if carried.speaks != speaks {
            carried.speaks = speaks;
            // Only where not everybody is sent as much as is of use it makes a difference.
            if carried.is_video && self.sharing.short {
                self.sharing.allocator.anew();
            }
        }
    }

    /// Layers of a track have come or gone, or were measured anew.
    pub fn layers(&mut self, now: Instant, section: u16, track: TrackKey, layers: LayerList, room: &mut Post<RoomMsg>) {
        if let Some(carry) = self.carry_mut(section, track) {
            carry.layers = layers;
            self.choose(now, usize::from(section), room);
        }
    }

    /// The viewer looks at a track in another way.
    pub fn view(&mut self, now: Instant, section: u16, track: TrackKey, view: View, room: &mut Post<RoomMsg>) {
        if let Some(carry) = self.carry_mut(section, track) {
            carry.view = view;
            self.choose(now, usize::from(section), room);
        }
    }

    fn carry_mut(&mut self, section: u16, track: TrackKey) -> Option<&mut Carry> {
        self.sections.get_mut(usize::from(section))?.carry.as_mut().filter(|carry| carry.track == track)
    }

    /// Chooses the layer of a section anew.
    fn choose(&mut self, now: Instant, index: usize, room: &mut Post<RoomMsg>) {
        let (Some(egress), Some(carried)) = (&mut self.egress, self.sections.get_mut(index)) else { return };
        let Some(carry) = carried.carry.as_ref().filter(|_| carried.is_video) else { return };
        let chosen = choose(&carry.layers, &carry.view);
        carried.top = chosen.top;
        if egress.target().is_some() && carry.layers.iter().any(|info| info.known) {
            return self.share(now, room);
        }
        carried.wished = chosen.wished;
        // While nothing comes the last choice stands.
        if let Some(choice) = chosen.now {
            self.take(now, index, choice, room);
        }
        self.follow(now, index, room);
    }

    /// A section gets a layer, from its next key frame on.
    pub(super) fn take(&mut self, now: Instant, index: usize, choice: Choice, room: &mut Post<RoomMsg>) {
        let (Some(egress), Some(carried)) = (&mut self.egress, self.sections.get_mut(index)) else { return };
        let Some(carry) = &carried.carry else { return };
        if carried.choice == choice {
            return;
        }
        let before = std::mem::replace(&mut carried.choice, choice);
        egress.follow(index, choice.layer, choice.max);
        if before.layer != choice.layer && !carried.held(self.remb) {
            carried.asked_at = Some(now);
            ask(room, carry.track, choice.layer);
        }
    }

    /// Tells the room which layers it is to send: the one that flows, the one that is waited for, those that would be
    /// better, and for a moment the one before.
    pub(super) fn follow(&mut self, now: Instant, index: usize, room: &mut Post<RoomMsg>) {
        let (Some(egress), Some(carried)) = (&self.egress, self.sections.get_mut(index)) else { return };
        let Some(carry) = carried.layered() else { return };
        let chosen = match carry.layers.is_empty() {
            // Nothing is known of it yet: what comes first will do.
            true => LayerMask::first(carry.names.len()),
            false => LayerMask::of(carried.choice.layer).and(carried.wished),
        };
        let repaired = carried.repaired.map(|(layer, _)| layer);
        // Before anything flows the smallest is sent for, too: what is waited for may be more than the publisher's link has
        // room for just now.
        let flowing = egress.flowing(index).or_else(|| smallest(&carry.layers));
        let follows = flowing.into_iter().chain(repaired).fold(chosen, LayerMask::with);
        if carried.follows != follows {
            let (viewer, section, track) = (self.viewer, index as u16, carry.track);
            carried.follows = follows;
            room.post(now, RoomMsg::Follows { track, viewer, section, layers: follows });
        }
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
        let (index, layer) = (usize::from(section), batch.layer);
        let (Some(egress), Some(carried)) = (&mut self.egress, self.sections.get_mut(index)) else { return false };
        let carries = carried.carry.as_ref().is_some_and(|carry| carry.track == batch.track);
        if !carries || carried.unsupported == Some(batch.format) {
            return false;
        }
        let Some(epoch) = carried.epochs.get_mut(usize::from(layer)) else { return false };
        // A stream that begins anew is another source for whoever is sent it; whoever waits for it begins with it anyway.
        let anew = epoch.replace(batch.epoch) != Some(batch.epoch) && egress.layer(index) == Some(layer);
        if carried.format != Some(batch.format) || anew {
            if egress.assign(now, index, Some(batch.format)).is_err() {
                carried.unsupported = Some(batch.format);
                room.post(now, RoomMsg::CodecUnsupported { session, track: batch.track, codec: batch.format.codec });
                return false;
            }
            carried.format = Some(batch.format);
            egress.pause(index, carried.held(self.remb));
        }
        if let Some(sets) = &batch.parameter_sets {
            egress.lead(index, sets);
        }
        let flowed = carried.flowed.filter(|_| egress.flowing(index).is_some());
        let sent = with_sink(local, to, |sink| egress.forward(now, index, layer, batch.clock, &batch.packets, sink));
        local.counters.rtp_forwarded.add(u64::from(sent.packets));
        if !carried.is_video {
            self.sharing.sound(sent);
        }
        if sent.wants_key_frame && carried.asked_at.is_none_or(|at| now.saturating_duration_since(at) >= ASK_EVERY) {
            // Once in a while, not with every frame that passes by: the publisher's side repeats on its own.
            carried.asked_at = Some(now);
            ask(room, batch.track, layer);
        }
        carried.flowed = egress.flowing(index);
        let switched = carried.flowed != flowed;
        if let Some(before) = flowed.filter(|_| switched) {
            local.counters.layer_switches.add(1);
            carried.repaired = Some((before, now + REPAIRED_FOR));
        }
        let over = carried.repaired.take_if(|(_, until)| *until <= now).is_some();
        if switched || over {
            self.follow(now, index, room);
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
        let before = egress.answered();
        self.feedback.clear();
        let feedback = &mut self.feedback;
        let taken = with_sink(local, to, |sink| egress.receive_rtcp(now, datagram, sink, feedback)).is_ok();
        let counted = egress.answered();
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
                    let track = self.sections.get(section).and_then(|c| c.carry.as_ref()).map(|carry| carry.track);
                    // Of what its decoder is fed with.
                    let layer = egress.flowing(section).or(self.sections.get(section).map(|c| c.choice.layer));
                    if let Some((track, layer)) = track.zip(layer) {
                        ask(room, track, layer);
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
            self.sharing.allocator.anew();
        }
        self.share_if_due(now, room);
        taken
    }

    /// Sender reports, probes and packets that are due, and a second's new look at who gets what.
    pub fn wake(&mut self, now: Instant, local: &Local, to: SocketAddr, room: &mut Post<RoomMsg>) {
        self.share_if_due(now, room);
        if let Some(egress) = &mut self.egress
            && egress.deadline().is_some_and(|deadline| deadline.at <= now)
        {
            let sent = with_sink(local, to, |sink| egress.wake(now, sink));
            local.counters.rtp_forwarded.add(u64::from(sent));
            let late = std::mem::replace(&mut self.late, egress.late());
            local.counters.video_late.add(self.late - late);
        }
    }

    /// When it next wants to be woken.
    pub fn deadline(&self) -> Option<Deadline> {
        Deadline::earlier(self.egress.as_ref().and_then(Egress::deadline), self.share_deadline())
    }

    /// RTCP BYE for everything.
    pub fn goodbye(&mut self, now: Instant, local: &Local, to: SocketAddr) {
        if let Some(egress) = &mut self.egress {
            with_sink(local, to, |sink| egress.goodbye(now, sink));
        }
    }

    /// What its quality is judged by; the transport knows when it was heard.
    pub fn totals(&self) -> Totals {
        let Some(egress) = &self.egress else { return Totals::default() };
        let EgressStats { expected, unrepaired, rtt, .. } = egress.stats();
        Totals { expected, lost: unrepaired, rtt, below_asked: self.sharing.short, heard_at: None }
    }

    /// Adds what it has counted.
    pub fn stats(&self, stats: &mut TransportStats) {
        let Some(egress) = &self.egress else { return };
        let counted = egress.stats();
        stats.remb_bits_per_second = self.remb;
        let estimate = egress.estimate();
        stats.estimate_bits_per_second = estimate.map(|estimate| estimate.target.bps());
        stats.acked_bits_per_second = estimate.and_then(|estimate| estimate.acked).map(Bitrate::bps);
        stats.padding_bytes_sent = counted.padding_bytes;
        stats.probes_sent = counted.probes;
        stats.packets_paced = counted.paced;
        stats.packets_late = counted.late;
        stats.packets_sent = counted.packets;
        stats.bytes_sent = counted.bytes;
        stats.retransmissions_sent = counted.rtx;
        stats.retransmissions_missed = counted.rtx_missed;
        stats.peer_loss = Some(counted.loss);
        stats.rtt_ms = counted.rtt.map(|rtt| rtt.as_secs_f32() * 1_000.0);
        stats.jitter_ms = Some(counted.jitter.as_secs_f32() * 1_000.0);
        let video = self.sections.iter().enumerate().filter(|(_, carried)| carried.is_video);
        let subscription = |(index, carried): (usize, &Carried)| {
            let (carry, flowing) = (carried.carry.as_ref()?, egress.flowing(index));
            let layer = flowing.and_then(|layer| carry.names.get(usize::from(layer)).cloned());
            let (mid, track, paused) = (carried.mid.clone(), carry.id, carry.paused);
            Some(SubscriptionStats { mid, track, paused, flowing: flowing.is_some(), layer })
        };
        stats.subscriptions = video.filter_map(subscription).collect();
    }
}

/// A key frame request may be lost when the room is full: the viewer's next PLI, or the next frame, asks again.
pub(super) fn ask(room: &Post<RoomMsg>, track: TrackKey, layer: u8) {
    let _ = room.port().tell(RoomMsg::KeyFrameWanted { track, layer });
}
