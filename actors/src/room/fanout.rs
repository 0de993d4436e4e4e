//! The packet's way through the room: one batch to every section that carries its track.

use super::Room;
use crate::api::RoomEvent;
use crate::batch::Batch;
use crate::port::Refused;
use crate::session::SessionMsg;
use rondo_media::codec::{Codec, Kind};
use rondo_media::ids::SessionId;
use rondo_media::room::TrackKey;
use std::sync::Arc;
use std::time::Instant;

impl Room {
    /// Hands a batch to every section that carries its track.
    pub(super) fn media(&mut self, now: Instant, batch: &Arc<Batch>) {
        let Some(track) = self.tracks.get(&batch.track) else { return };
        if track.muted {
            return;
        }
        if batch.kind == Kind::Video {
            self.local.saw_video();
        }
        let mut gone = None;
        for subscriber in track.subscribers.iter().filter(|s| !s.paused) {
            let msg = SessionMsg::Media {
                batch: Arc::clone(batch),
                transport: subscriber.transport,
                section: subscriber.section,
            };
            match subscriber.port.tell(msg) {
                Ok(()) => {}
                // This viewer is behind: it loses the batch, nobody else does.
                Err(Refused::Full(_)) => self.local.counters.queue_full.add(1),
                Err(Refused::Gone(_)) => gone = Some(subscriber.session),
            }
        }
        if batch.kind == Kind::Audio {
            let speaker = track.participant as usize;
            for level in batch.packets.iter().filter_map(|packet| packet.level) {
                self.speakers.heard(now, speaker, level);
            }
            self.judge_speakers(now);
        }
        if let Some(session) = gone
            && self.members.iter().any(|m| m.session == session && m.may_not_be_gone(now))
        {
            self.session_died(now, session);
        }
    }

    pub(super) fn judge_speakers(&mut self, now: Instant) {
        self.speakers.tick(now);
        let members = &self.members;
        let current =
            || self.speakers.speaking().iter().filter_map(|n| members.iter().find(|m| m.number as usize == *n));
        if current().map(|m| &m.identity).eq(self.speaking.iter()) {
            return;
        }
        self.speaking = current().map(|m| m.identity.clone()).collect();
        let identities = self.speaking.iter().map(ToString::to_string).collect();
        self.emit(now, None, RoomEvent::Speakers { identities });
    }

    /// Passes a viewer's wish for a key frame on to whoever publishes the track; the publisher's session
    /// throttles and coalesces.
    pub(super) fn key_frame_wanted(&mut self, now: Instant, key: TrackKey) {
        let Some(track) = self.tracks.get(&key).filter(|t| t.kind == Kind::Video && !t.muted) else { return };
        let session = track.session;
        if let Some(member) = self.member_mut(session) {
            member.port.post(now, SessionMsg::KeyFrame { track: key });
        }
    }

    pub(super) fn codec_unsupported(&mut self, now: Instant, session: SessionId, key: TrackKey, codec: Codec) {
        let Some(track) = self.tracks.get(&key) else { return };
        let track_id = track.id;
        let of_session = track.subscribers.iter().find(|s| s.session == session);
        let Some(index) = of_session.map(|s| s.transport) else { return };
        let transport = self
            .members
            .iter()
            .find(|m| m.session == session)
            .and_then(|m| m.transports.get(usize::from(index))?.as_ref())
            .map(|attachment| attachment.id);
        if let Some(transport) = transport {
            let event = RoomEvent::CodecUnsupported { transport, track: track_id, codec: Some(codec) };
            self.emit(now, Some(session), event);
        }
    }
}
