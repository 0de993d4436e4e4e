//! What a session publishes: one receiver per section, and its way into the room.

use super::Published;
use super::health::Totals;
use crate::api::{LayerStats, TransportStats};
use crate::batch::Batch;
use crate::count::WorkerCounters;
use crate::local::Local;
use crate::port::{Post, Refused};
use crate::room::RoomMsg;
use crate::worker::budget::{Bucket, Rate};
use rondo_media::codec::{Format, Kind};
use rondo_media::ids::{SessionId, TrackId};
use rondo_media::packet::{Packet, StreamClock};
use rondo_media::receive::{
    KeyFrameRequests, LayerInfo, LayerMask, Layers, Measured, Received, StreamReceiver, TransportClock,
};
use rondo_media::room::TrackKey;
use rondo_media::transport::{LAYERS_MAX, ReceivedRtp, Section};
use rondo_media::units::{Bitrate, Deadline};
use std::time::{Duration, Instant};

/// A publishing transport's media state.
pub struct Publishing {
    sections: Vec<Option<PublishedSection>>,
    clock: TransportClock,
    spare: Vec<Packet>,
}

/// One section that may carry a track.
struct PublishedSection {
    track: TrackKey,
    id: TrackId,
    kind: Kind,
    /// Names of its simulcast layers; empty where it has none.
    names: Vec<String>,
    layers: Vec<PublishedLayer>,
    measured: Layers,
    announced: Option<Format>,
    /// Somebody follows them, by the room's word.
    wanted: LayerMask,
    /// What audio may send.
    audio: Bucket,
    /// What video without layers is asked to stay below; whether that is to be told now, and from when on again.
    cap: Option<Bitrate>,
    cap_due: bool,
    cap_again: Option<Instant>,
}

/// One layer of it, or all there is.
#[derive(Default)]
struct PublishedLayer {
    epoch: u32,
    ssrc: Option<u32>,
    format: Option<Format>,
    receiver: Option<StreamReceiver>,
    key_frames: KeyFrameRequests,
    announced: Option<Format>,
}

/// What one audio section may send, in bytes: above Opus' 510 kbit/s (RFC 6716 §2.1.1) with its headers in packets
/// of 10 ms, or any uncompressed telephone codec's.
const AUDIO_MOST: Rate = Rate { burst: 80_000, per_s: 80_000 };
/// A cap is told so often, for the report that told it may be lost.
const CAP_EVERY: Duration = Duration::from_secs(5);
/// Headers of RTP, UDP and IP, in bytes.
const PACKET_OVERHEAD: u32 = 40;

impl PublishedSection {
    fn new(published: Published, section: &Section) -> Self {
        let count = section.layers.len().clamp(1, LAYERS_MAX);
        Self {
            track: published.track,
            id: published.id,
            kind: section.kind,
            names: section.layers.clone(),
            layers: (0..count).map(|_| PublishedLayer::default()).collect(),
            measured: Layers::new(count),
            announced: None,
            wanted: LayerMask::NONE,
            audio: Bucket::default(),
            cap: published.cap,
            cap_due: false,
            cap_again: None,
        }
    }

    fn receivers(&self) -> impl Iterator<Item = &StreamReceiver> {
        self.layers.iter().filter_map(|layer| layer.receiver.as_ref())
    }
}

/// Packets looked at behind a late key frame start.
const OVERTAKERS_MAX: u64 = 256;

/// A key frame whose first packet came after others of the frame: a viewer who waited for it begins with this
/// batch, so those others, handed on before, are in it once more. Who has them already drops them as seen.
fn add_overtakers(receiver: &StreamReceiver, batch: &mut Vec<Packet>) {
    let Some(start) = batch.iter().filter(|p| p.key_frame).map(|p| p.ext_seq).min() else { return };
    let in_batch = batch.len();
    for ext_seq in start + 1..start + OVERTAKERS_MAX {
        let known = batch[..in_batch].iter().any(|p| p.ext_seq == ext_seq);
        match receiver.ring().get(ext_seq) {
            Some(packet) if !known => batch.push(packet.clone()),
            Some(_) => {}
            None if receiver.highest().is_none_or(|highest| ext_seq > highest) => return,
            None => {}
        }
    }
}

impl Publishing {
    /// `tracks`: by section; none where the section is refused.
    pub fn new(tracks: Vec<Option<Published>>, sections: &[Section]) -> Self {
        let section = |(published, section): (Option<Published>, &Section)| {
            published.map(|published| PublishedSection::new(published, section))
        };
        Self {
            sections: tracks.into_iter().zip(sections).map(section).collect(),
            clock: TransportClock::new(),
            spare: Vec::new(),
        }
    }

    /// A packet of the publisher.
    pub fn packet(&mut self, now: Instant, packet: &ReceivedRtp, counters: &WorkerCounters) {
        let Some(Some(section)) = self.sections.get_mut(packet.section) else { return };
        let Some(layer) = section.layers.get_mut(usize::from(packet.layer)) else { return };
        counters.rtp_received.add(1);
        // What is no sound any more goes nowhere: audio comes before video everywhere behind this.
        if section.kind == Kind::Audio {
            let bytes = u32::try_from(packet.payload.len()).unwrap_or(u32::MAX).saturating_add(PACKET_OVERHEAD);
            if !section.audio.spend(now, AUDIO_MOST, bytes) {
                counters.audio_over_rate.add(1);
                return;
            }
        }
        if layer.ssrc != Some(packet.ssrc) || layer.format != Some(packet.format) {
            // A new stream in the same layer: the encoder was replaced. Viewers see one continuous stream.
            layer.epoch += u32::from(layer.ssrc.is_some());
            layer.ssrc = Some(packet.ssrc);
            layer.format = Some(packet.format);
            layer.receiver = Some(StreamReceiver::new(packet.format.codec));
            section.cap_again = None;
        }
        if section.cap.is_some() && section.cap_again.is_none_or(|at| at <= now) {
            (section.cap_due, section.cap_again) = (true, Some(now + CAP_EVERY));
        }
        let Some(receiver) = &mut layer.receiver else { return };
        match receiver.receive(now, packet, &mut self.clock) {
            Received::New { new_key_frame } => {
                if new_key_frame {
                    layer.key_frames.on_key_frame();
                }
                if section.kind == Kind::Video {
                    section.measured.received(now, packet.layer, measured(packet, new_key_frame));
                }
            }
            Received::PaddingOnly => {}
            Received::Duplicate => counters.rtp_duplicates.add(1),
            Received::TooLate => counters.rtp_too_late.add(1),
        }
    }

    /// Hands over what is ready: audio before video.
    pub fn fan_out(&mut self, now: Instant, local: &Local, session: SessionId, room: &mut Post<RoomMsg>) {
        for kind in [Kind::Audio, Kind::Video] {
            for section in self.sections.iter_mut().flatten().filter(|section| section.kind == kind) {
                for number in 0..section.layers.len() {
                    fan_out(section, number, (now, local, session), (&self.clock, &mut self.spare), room);
                }
                section.measured.wake(now);
                if section.announced.is_some()
                    && let Some(layers) = section.measured.news()
                {
                    room.post(now, RoomMsg::Layers { track: section.track, layers });
                }
            }
        }
    }

    fn section_of(&mut self, track: TrackKey) -> Option<(usize, &mut PublishedSection)> {
        let mut sections = self.sections.iter_mut().enumerate();
        sections.find_map(|(index, section)| Some((index, section.as_mut().filter(|s| s.track == track)?)))
    }

    /// Somebody needs a key frame of a layer of `track`: the section to ask now, if now is the time.
    pub fn key_frame_wanted(&mut self, now: Instant, track: TrackKey, layer: u8) -> Option<usize> {
        let (index, section) = self.section_of(track)?;
        section.layers.get_mut(usize::from(layer))?.key_frames.request(now).then_some(index)
    }

    /// The next section whose publisher is to be told what it may send, now that it sends.
    pub fn cap_due(&mut self) -> Option<(usize, Bitrate)> {
        let mut sections = self.sections.iter_mut().enumerate();
        sections.find_map(|(index, section)| {
            let section = section.as_mut()?;
            std::mem::take(&mut section.cap_due).then_some((index, section.cap?))
        })
    }

    /// Sections and layers whose held-back request is due.
    pub fn key_frames_due(&mut self, now: Instant) -> Vec<(usize, u8)> {
        let mut due = Vec::new();
        for (index, section) in self.sections.iter_mut().enumerate() {
            let layers = section.iter_mut().flat_map(|section| &mut section.layers);
            for (number, layer) in (0u8..).zip(layers) {
                if layer.key_frames.due(now) {
                    due.push((index, number));
                }
            }
        }
        due
    }

    /// When it next wants to be woken.
    pub fn deadline(&self) -> Option<Deadline> {
        self.sections.iter().flatten().fold(None, |soonest, section| {
            let silence = Deadline::earlier(soonest, section.measured.deadline());
            section.layers.iter().fold(silence, |soonest, layer| {
                let receiver = layer.receiver.as_ref().and_then(StreamReceiver::deadline);
                Deadline::earlier(soonest, Deadline::earlier(receiver, layer.key_frames.deadline()))
            })
        })
    }

    /// A packet has come on any section.
    pub fn any_packet(&self) -> bool {
        self.sections.iter().flatten().any(|s| s.receivers().next().is_some())
    }

    /// Some section may carry video: a key frame is to be expected.
    pub fn has_video(&self) -> bool {
        self.sections.iter().flatten().any(|s| s.kind == Kind::Video)
    }

    /// Which layers of `track` somebody wants: no key frame of any other is asked for on anybody's behalf.
    pub fn wanted(&mut self, track: TrackKey, layers: LayerMask) {
        let Some((_, section)) = self.section_of(track) else { return };
        section.wanted = layers;
        for (number, layer) in (0u8..).zip(&mut section.layers) {
            if !layers.contains(number) {
                layer.key_frames.forget();
            }
        }
    }

    /// A key frame has come on any video section.
    pub fn any_key_frame(&self) -> bool {
        self.sections.iter().flatten().flat_map(PublishedSection::receivers).any(|r| r.stats().key_frames > 0)
    }

    /// What its quality is judged by; the transport knows when it was heard.
    pub fn totals(&self) -> Totals {
        let counted = self.sections.iter().flatten().flat_map(PublishedSection::receivers).map(StreamReceiver::stats);
        let (received, lost) = counted.fold((0, 0), |(all, lost), one| (all + one.packets, lost + one.lost));
        Totals { expected: received + lost, lost: lost.cast_signed(), ..Totals::default() }
    }

    /// Adds what it has counted.
    pub fn stats(&self, stats: &mut TransportStats) {
        for section in self.sections.iter().flatten() {
            for receiver in section.receivers() {
                let counted = receiver.stats();
                stats.packets_received += counted.packets;
                stats.bytes_received += counted.bytes;
                stats.packets_lost += counted.lost;
                stats.duplicates += counted.duplicates;
                stats.jitter_ms = Some(stats.jitter_ms.unwrap_or(0.0).max(counted.jitter_ms as f32));
            }
            if section.kind == Kind::Video && section.announced.is_some() {
                stats.layers.extend(section.measured.list().iter().map(|info| section.layer_stats(info)));
            }
        }
    }
}

impl PublishedSection {
    fn layer_stats(&self, info: &LayerInfo) -> LayerStats {
        LayerStats {
            track: self.id,
            rid: self.names.get(usize::from(info.layer)).cloned(),
            available: info.available,
            wanted: self.wanted.contains(info.layer),
            bits_per_second: info.bits_per_second,
            fps: info.fps,
            width_px: info.size.map(|(width, _)| width),
            height_px: info.size.map(|(_, height)| height),
        }
    }
}

/// A packet of video as it is measured.
fn measured(packet: &ReceivedRtp, key_frame: bool) -> Measured {
    let codec = packet.format.codec;
    Measured {
        rtp_time: packet.rtp_time,
        bytes: packet.payload.len(),
        size: if key_frame { codec.key_frame_size(&packet.payload) } else { None },
        spatial: if key_frame { codec.spatial_sizes(&packet.payload) } else { None },
        temporal: codec.descriptor(&packet.payload).and_then(|descriptor| descriptor.temporal).unwrap_or(0),
        key_frame,
    }
}

/// Hands over what is ready of one layer.
fn fan_out(
    section: &mut PublishedSection,
    number: usize,
    (now, local, session): (Instant, &Local, SessionId),
    (clock, spare): (&TransportClock, &mut Vec<Packet>),
    room: &mut Post<RoomMsg>,
) {
    let Some(layer) = section.layers.get_mut(number) else { return };
    let (Some(format), Some(receiver)) = (layer.format, &mut layer.receiver) else { return };
    receiver.take_batch(now, spare);
    if spare.is_empty() {
        return;
    }
    if section.kind == Kind::Video {
        add_overtakers(receiver, spare);
    }
    // Padding alone, by which senders probe their link, is no medium yet.
    let media = spare.iter().any(|packet| !packet.payload.is_empty());
    if layer.announced != Some(format) && media {
        layer.announced = Some(format);
        // Layers change their codec one after the other; it is one change.
        if section.announced != Some(format) {
            section.announced = Some(format);
            room.post(now, RoomMsg::TrackStarted { session, track: section.track, codec: format.codec });
        }
    }
    let unknown = StreamClock { at: now, rtp_time: spare[0].rtp_time, synced: false };
    let begins = spare.iter().any(|packet| packet.key_frame);
    if let Some((bytes, bits_per_second)) = section.measured.key_frame_cost(number as u8) {
        layer.key_frames.on_cost(bytes, bits_per_second);
    }
    let (batch, empty) = local.pool.borrow_mut().share(Batch {
        parameter_sets: receiver.parameter_sets().filter(|_| begins).cloned(),
        track: section.track,
        layer: number as u8,
        epoch: layer.epoch,
        kind: section.kind,
        format,
        clock: receiver.clock(clock).unwrap_or(unknown),
        packets: std::mem::take(spare),
    });
    *spare = empty;
    if let Err(Refused::Full(_)) = room.port().tell(RoomMsg::Media(batch)) {
        // The room is behind: this batch is lost to everybody, and said so.
        local.counters.queue_full.add(1);
    }
}
