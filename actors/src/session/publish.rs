//! What a session publishes: one receiver per section, and its way into the room.

use crate::api::TransportStats;
use crate::batch::Batch;
use crate::count::WorkerCounters;
use crate::local::Local;
use crate::port::{Post, Refused};
use crate::room::RoomMsg;
use crate::worker::budget::{Bucket, Rate};
use rondo_media::codec::{Format, Kind};
use rondo_media::ids::SessionId;
use rondo_media::packet::{Packet, StreamClock};
use rondo_media::receive::{KeyFrameRequests, Received, StreamReceiver, TransportClock};
use rondo_media::room::TrackKey;
use rondo_media::transport::{ReceivedRtp, Section};
use rondo_media::units::Deadline;
use std::time::Instant;

/// A publishing transport's media state.
pub struct Publishing {
    sections: Vec<Option<PublishedSection>>,
    clock: TransportClock,
    spare: Vec<Packet>,
}

/// One section that may carry a track.
struct PublishedSection {
    track: TrackKey,
    kind: Kind,
    epoch: u32,
    ssrc: Option<u32>,
    format: Option<Format>,
    receiver: Option<StreamReceiver>,
    key_frames: KeyFrameRequests,
    announced: Option<Format>,
    /// What audio may send.
    audio: Bucket,
}

/// What one audio section may send, in bytes: above Opus' 510 kbit/s (RFC 6716 §2.1.1) with its headers in packets
/// of 10 ms, or any uncompressed telephone codec's.
const AUDIO_MOST: Rate = Rate { burst: 80_000, per_s: 80_000 };
/// Headers of RTP, UDP and IP, in bytes.
const PACKET_OVERHEAD: u32 = 40;

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
    pub fn new(tracks: Vec<Option<TrackKey>>, sections: &[Section]) -> Self {
        let section = |track, kind| PublishedSection {
            track,
            kind,
            epoch: 0,
            ssrc: None,
            format: None,
            receiver: None,
            key_frames: KeyFrameRequests::default(),
            announced: None,
            audio: Bucket::default(),
        };
        Self {
            sections: tracks.into_iter().zip(sections).map(|(track, s)| track.map(|t| section(t, s.kind))).collect(),
            clock: TransportClock::new(),
            spare: Vec::new(),
        }
    }

    /// A packet of the publisher.
    pub fn packet(&mut self, now: Instant, packet: &ReceivedRtp, counters: &WorkerCounters) {
        let Some(Some(section)) = self.sections.get_mut(packet.section) else { return };
        counters.rtp_received.add(1);
        // What is no sound any more goes nowhere: audio comes before video everywhere behind this.
        if section.kind == Kind::Audio {
            let bytes = u32::try_from(packet.payload.len()).unwrap_or(u32::MAX).saturating_add(PACKET_OVERHEAD);
            if !section.audio.spend(now, AUDIO_MOST, bytes) {
                counters.audio_over_rate.add(1);
                return;
            }
        }
        if section.ssrc != Some(packet.ssrc) || section.format != Some(packet.format) {
            // A new stream in the same section: the encoder was replaced. Viewers see one continuous stream.
            section.epoch += u32::from(section.ssrc.is_some());
            section.ssrc = Some(packet.ssrc);
            section.format = Some(packet.format);
            section.receiver = Some(StreamReceiver::new(packet.format.codec));
        }
        let Some(receiver) = &mut section.receiver else { return };
        match receiver.receive(now, packet, &mut self.clock) {
            Received::New { new_key_frame } => {
                if new_key_frame {
                    section.key_frames.on_key_frame();
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
            for section in self.sections.iter_mut().flatten() {
                let (Some(format), Some(receiver)) = (section.format, &mut section.receiver) else { continue };
                if format.codec.kind() != kind {
                    continue;
                }
                receiver.take_batch(now, &mut self.spare);
                if self.spare.is_empty() {
                    continue;
                }
                if kind == Kind::Video {
                    add_overtakers(receiver, &mut self.spare);
                }
                // Padding alone, by which senders probe their link, is no medium yet.
                let media = self.spare.iter().any(|packet| !packet.payload.is_empty());
                if section.announced != Some(format) && media {
                    section.announced = Some(format);
                    room.post(now, RoomMsg::TrackStarted { session, track: section.track, codec: format.codec });
                }
                let unknown = StreamClock { at: now, rtp_time: self.spare[0].rtp_time, synced: false };
                let begins = self.spare.iter().any(|packet| packet.key_frame);
                let (batch, spare) = local.pool.borrow_mut().share(Batch {
                    parameter_sets: receiver.parameter_sets().filter(|_| begins).cloned(),
                    track: section.track,
                    epoch: section.epoch,
                    kind,
                    format,
                    clock: receiver.clock(&self.clock).unwrap_or(unknown),
                    packets: std::mem::take(&mut self.spare),
                });
                self.spare = spare;
                if let Err(Refused::Full(_)) = room.port().tell(RoomMsg::Media(batch)) {
                    // The room is behind: this batch is lost to everybody, and said so.
                    local.counters.queue_full.add(1);
                }
            }
        }
    }

    /// Somebody needs a key frame of `track`: the section to ask now, if now is the time.
    pub fn key_frame_wanted(&mut self, now: Instant, track: TrackKey) -> Option<usize> {
        let index = self.sections.iter().position(|s| s.as_ref().is_some_and(|s| s.track == track))?;
        let section = self.sections[index].as_mut()?;
        section.key_frames.request(now).then_some(index)
    }

    /// Sections whose held-back request is due.
    pub fn key_frames_due(&mut self, now: Instant) -> Vec<usize> {
        let due = |(index, section): (usize, &mut Option<PublishedSection>)| {
            section.as_mut().is_some_and(|s| s.key_frames.due(now)).then_some(index)
        };
        self.sections.iter_mut().enumerate().filter_map(due).collect()
    }

    /// When it next wants to be woken.
    pub fn deadline(&self) -> Option<Deadline> {
        self.sections.iter().flatten().fold(None, |soonest, section| {
            let receiver = section.receiver.as_ref().and_then(StreamReceiver::deadline);
            Deadline::earlier(soonest, Deadline::earlier(receiver, section.key_frames.deadline()))
        })
    }

    /// A packet has come on any section.
    pub fn any_packet(&self) -> bool {
        self.sections.iter().flatten().any(|s| s.receiver.is_some())
    }

    /// Some section may carry video: a key frame is to be expected.
    pub fn has_video(&self) -> bool {
        self.sections.iter().flatten().any(|s| s.kind == Kind::Video)
    }

    /// Nobody sees `track` any more: no key frame is asked for on anybody's behalf.
    pub fn forget_key_frames(&mut self, track: TrackKey) {
        for section in self.sections.iter_mut().flatten().filter(|s| s.track == track) {
            section.key_frames.forget();
        }
    }

    /// A key frame has come on any video section.
    pub fn any_key_frame(&self) -> bool {
        self.sections.iter().flatten().filter_map(|s| s.receiver.as_ref()).any(|r| r.stats().key_frames > 0)
    }

    /// Adds what it has counted.
    pub fn stats(&self, stats: &mut TransportStats) {
        for section in self.sections.iter().flatten() {
            let Some(receiver) = &section.receiver else { continue };
            let counted = receiver.stats();
            stats.packets_received += counted.packets;
            stats.bytes_received += counted.bytes;
            stats.packets_lost += counted.lost;
            stats.duplicates += counted.duplicates;
            stats.jitter_ms = Some(stats.jitter_ms.unwrap_or(0.0).max(counted.jitter_ms as f32));
        }
    }
}
