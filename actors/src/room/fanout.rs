//! The packet's way through the room: one batch to every section that carries its track and follows its layer.

use super::Room;
use super::members::{Viewer, numbered};
use crate::api::RoomEvent;
use crate::batch::Batch;
use crate::port::Refused;
use crate::session::SessionMsg;
use rondo_media::audible::Passage;
use rondo_media::codec::{Codec, Kind};
use rondo_media::ids::SessionId;
use rondo_media::receive::LayerMask;
use rondo_media::room::TrackKey;
use std::sync::Arc;
use std::time::Instant;

impl Room {
    /// Hands a batch to every section that carries its track and follows its layer.
    pub(super) fn media(&mut self, now: Instant, batch: &Arc<Batch>) {
        let Some(track) = self.tracks.get(&batch.track) else { return };
        if track.muted {
            return;
        }
        let mut resumes = false;
        match batch.kind {
            Kind::Video => self.local.saw_video(),
            Kind::Audio => {
                let levels = batch.packets.iter().filter_map(|packet| packet.level);
                match self.audible.heard(now, batch.track, levels.min_by_key(|level| level.dbov)) {
                    Passage::Pass => {}
                    Passage::Resume => resumes = true,
                    Passage::LeaveOut => {
                        self.local.counters.audio_left_out.add(1);
                        self.levels(now, batch);
                        return;
                    }
                }
            }
        }
        let mut gone = None;
        for (viewer, subscriber) in track.audience.of_layer(batch.layer) {
            let (transport, section) = (viewer.transport, subscriber.section);
            let msg = SessionMsg::Media { batch: Arc::clone(batch), transport, section, resumes, speaks: track.speaks };
            match subscriber.port.tell(msg) {
                Ok(()) => {}
                // This viewer is behind: it loses the batch, nobody else does.
                Err(Refused::Full(_)) => self.local.counters.queue_full.add(1),
                Err(Refused::Gone(_)) => gone = Some(viewer.participant),
            }
        }
        self.levels(now, batch);
        let gone = gone.and_then(|number| numbered(&mut self.members, number)).filter(|m| m.may_not_be_gone(now));
        if let Some(session) = gone.map(|m| m.session) {
            self.session_died(now, session);
        }
    }

    /// The levels of a batch of audio say who speaks.
    fn levels(&mut self, now: Instant, batch: &Batch) {
        if batch.kind != Kind::Audio {
            return;
        }
        let Some(track) = self.tracks.get(&batch.track) else { return };
        let speaker = track.participant as usize;
        for level in batch.packets.iter().filter_map(|packet| packet.level) {
            self.speakers.heard(now, speaker, level);
        }
        self.judge_speakers(now);
    }

    pub(super) fn judge_speakers(&mut self, now: Instant) {
        self.speakers.tick(now);
        let members = &self.members;
        let by_number = |n: &usize| members.get(members.binary_search_by_key(n, |m| m.number as usize).ok()?);
        let current = || self.speakers.speaking().iter().filter_map(by_number);
        if current().map(|m| &m.identity).eq(self.speaking.iter()) {
            return;
        }
        for track in self.tracks.values_mut() {
            track.speaks = self.speakers.speaking().contains(&(track.participant as usize));
        }
        self.speaking = current().map(|m| m.identity.clone()).collect();
        let identities = self.speaking.iter().map(ToString::to_string).collect();
        self.emit(now, None, RoomEvent::Speakers { identities });
    }

    /// Passes a viewer's wish for key frames of some layers on to whoever publishes the track; the publisher's session
    /// throttles and coalesces.
    pub(super) fn key_frame_wanted(&mut self, now: Instant, key: TrackKey, layers: LayerMask) {
        let Some(track) = self.tracks.get(&key).filter(|t| t.kind == Kind::Video && !t.muted) else { return };
        let publisher = track.participant;
        if let Some(member) = numbered(&mut self.members, publisher) {
            for layer in layers.iter() {
                member.port.post(now, SessionMsg::KeyFrame { track: key, layer });
            }
        }
    }

    pub(super) fn codec_unsupported(&mut self, now: Instant, session: SessionId, key: TrackKey, codec: Codec) {
        let (Some(track), Some(member)) = (self.tracks.get(&key), self.members.iter().find(|m| m.session == session))
        else {
            return;
        };
        let track_id = track.id;
        let Some((viewer, _)) = track.audience.range(Viewer::all_of(member.number)).next() else { return };
        let attachment = member.transports.get(usize::from(viewer.transport));
        let transport = attachment.and_then(Option::as_ref).map(|attachment| attachment.id);
        if let Some(transport) = transport {
            let event = RoomEvent::CodecUnsupported { transport, track: track_id, codec: Some(codec) };
            self.emit(now, Some(session), event);
        }
    }
}
