//! What doors ask of a room that is there.

use super::Room;
use super::members::{Attachment, Member, Role, Viewer, numbered};
use crate::api::{IceRestarted, LeaveReason, Refusal, RoomEvent, RoomSettings, SessionInfo, SessionPatch, View, Wish};
use crate::port::Port;
use crate::session::{RestartReply, SessionMsg};
use crate::supervisor::SupervisorMsg;
use rondo_media::ids::{SessionId, TrackId, TransportId};
use rondo_media::room::{Sections, TrackKey};
use std::time::Instant;

impl Room {
    fn attachment(&self, transport: TransportId) -> Option<(SessionId, u8)> {
        self.members.iter().find_map(|member| {
            let of = |t: &Option<Attachment>| t.as_ref().is_some_and(|t| t.id == transport);
            Some((member.session, member.transports.iter().position(of)? as u8))
        })
    }

    pub(super) fn end_transport(&mut self, now: Instant, transport: TransportId, reason: LeaveReason) {
        let Some((session, index)) = self.attachment(transport) else { return };
        let Some(member) = self.member_mut(session) else { return };
        if let Some(Some(attachment)) = member.transports.get_mut(usize::from(index)) {
            attachment.ending = true;
        }
        member.port.post(now, SessionMsg::End { transport: index, reason });
        // At once, not when the session confirms: a second DELETE finds it gone.
        self.supervisor.post(now, SupervisorMsg::TransportEnded { transport, reason });
    }

    pub(super) fn trickle(&mut self, now: Instant, transport: TransportId, candidates: Vec<String>) {
        let Some((session, index)) = self.attachment(transport) else { return };
        if let Some(member) = self.member_mut(session) {
            member.port.post(now, SessionMsg::Trickle { transport: index, candidates });
        }
    }

    pub(super) fn restart_ice(
        &mut self,
        now: Instant,
        transport: TransportId,
        remote_ufrag: String,
        reply: RestartReply,
    ) {
        let found = self.attachment(transport);
        match found.and_then(|(session, index)| Some((self.member_mut(session)?, index))) {
            Some((member, index)) => {
                member.port.post(now, SessionMsg::RestartIce { transport: index, remote_ufrag, reply });
            }
            None => reply.answer(Err(Refusal::TransportNotFound(transport))),
        }
    }

    pub(super) fn ice_restarted(
        &mut self,
        now: Instant,
        session: SessionId,
        index: u8,
        restarted: IceRestarted,
        reply: RestartReply,
    ) {
        let member = self.members.iter().find(|m| m.session == session);
        match member.and_then(|m| m.transports.get(usize::from(index))?.as_ref()).map(|attachment| attachment.id) {
            Some(transport) => {
                self.supervisor.post(now, SupervisorMsg::IceRestarted { transport, restarted, reply });
            }
            None => reply.answer(Err(Refusal::Busy { retry_after_s: 1 })),
        }
    }

    pub(super) fn patch(&mut self, now: Instant, settings: RoomSettings) {
        if let Some(kind) = settings.kind {
            self.fixed_kind = true;
            self.become_kind(now, kind);
        }
        if settings.max_participants.is_some() {
            self.seed.settings.max_participants = settings.max_participants;
        }
        if settings.metadata.is_some() {
            self.seed.settings.metadata = settings.metadata;
        }
    }

    /// Ends the room for everybody in it.
    pub(super) fn close(&mut self, now: Instant, reason: LeaveReason, by: Option<String>) {
        if self.closing {
            return;
        }
        self.closing = true;
        tracing::info!(room = %self.seed.name, id = %self.seed.id, reason = reason.label(), people = self.members.len(), "room closes");
        self.supervisor.post(now, SupervisorMsg::RoomClosing { room: self.seed.id, reason });
        self.emit(now, None, RoomEvent::RoomFinished { reason, by });
        for member in &mut self.members {
            member.leaving = Some(now);
            member.port.post(now, SessionMsg::Close(reason));
        }
        if self.members.is_empty() {
            self.finish(now);
        }
    }

    /// The server is going down: everybody is told to move; an empty room ends at once.
    pub(super) fn drain(&mut self, now: Instant) {
        self.draining = true;
        self.emit(now, None, RoomEvent::MessageToYou { what: "moving", by: None, track: None });
        if self.members.is_empty() {
            self.close(now, LeaveReason::ServerShutdown, None);
        }
    }

    /// The last one of a closing room has left.
    pub(super) fn finish(&mut self, now: Instant) {
        self.feeds.end();
        self.supervisor.post(now, SupervisorMsg::RoomEnded { room: self.seed.id });
    }

    pub(super) fn sessions(&self) -> Vec<(SessionInfo, Port<SessionMsg>)> {
        let info = |member: &Member| {
            let participant = self.participant(member);
            let info = SessionInfo { room: self.seed.name.clone(), participant, transports: Vec::new() };
            (info, member.port.port().clone())
        };
        self.members.iter().map(info).collect()
    }

    fn track_of(&self, session: SessionId, id: TrackId) -> Result<TrackKey, Refusal> {
        let mine = self.published(id).filter(|key| self.tracks.get(key).is_some_and(|t| t.session == session));
        mine.ok_or(Refusal::TrackNotFound(id))
    }

    fn published(&self, id: TrackId) -> Option<TrackKey> {
        let key = *self.track_keys.get(&id)?;
        self.tracks.get(&key)?.started().then_some(key)
    }

    pub(super) fn patch_session(
        &mut self,
        now: Instant,
        session: SessionId,
        patch: SessionPatch,
    ) -> Result<(), Refusal> {
        if !self.members.iter().any(|m| m.session == session) {
            return Err(Refusal::SessionNotFound(session));
        }
        // All or nothing: every track is looked up before the first one changes.
        let mut changes = Vec::new();
        for (id, muted) in &patch.muted {
            changes.push((self.track_of(session, *id)?, *muted));
        }
        for (key, muted) in changes {
            self.mute(now, session, key, muted, patch.by.as_deref());
        }
        let Some(member) = self.member_mut(session) else { return Ok(()) };
        let changed = patch.name.is_some() || patch.metadata.is_some();
        if let Some(name) = patch.name {
            member.name = name;
        }
        if let Some(metadata) = patch.metadata {
            member.metadata = metadata;
        }
        if changed && let Some(member) = self.members.iter().find(|m| m.session == session) {
            let participant = self.participant(member);
            self.emit(now, None, RoomEvent::ParticipantUpdated { participant });
        }
        Ok(())
    }

    fn mute(&mut self, now: Instant, session: SessionId, key: TrackKey, muted: bool, by: Option<&str>) {
        let Some(track) = self.tracks.get_mut(&key) else { return };
        if track.muted == muted {
            return;
        }
        track.muted = muted;
        self.audible.remove(key);
        for (viewer, subscriber) in track.audience.iter() {
            let (transport, section, paused) = (viewer.transport, subscriber.section, muted || subscriber.paused);
            if let Some(member) = numbered(&mut self.members, viewer.participant) {
                member.port.post(now, SessionMsg::Pause { transport, section, paused });
            }
        }
        let (identity, info, id) = (track.identity.clone(), track.info(), track.id);
        let event = match muted {
            true => RoomEvent::TrackMuted { identity, track: info },
            false => RoomEvent::TrackUnmuted { identity, track: info },
        };
        self.emit(now, None, event);
        if let Some(by) = by {
            let what = if muted { "muted" } else { "unmuted" };
            let told = RoomEvent::MessageToYou { what, by: Some(by.to_owned()), track: Some(id) };
            self.emit(now, Some(session), told);
        }
        self.judge_layers(now, key);
        if !muted {
            self.key_frames_wanted(now, key);
        }
        // A muted track gives its section up to one that waits; one that is heard again may be such.
        for viewer in self.viewers(|_, attachment| matches!(attachment.role, Role::Play(_))) {
            self.reseat(now, viewer, key, Sections::want);
        }
    }

    /// What a viewer wishes of tracks: a paused one is not sent to it.
    pub(super) fn wish(&mut self, now: Instant, session: SessionId, wishes: &[Wish]) -> Result<(), Refusal> {
        let Some(member) = self.members.iter().find(|m| m.session == session) else {
            return Err(Refusal::SessionNotFound(session));
        };
        let participant = member.number;
        let transports = (0..member.transports.len()).map(|index| Viewer { participant, transport: index as u8 });
        let viewers: Vec<Viewer> = transports.collect();
        let keys = wishes.iter().map(|w| self.published(w.track).ok_or(Refusal::TrackNotFound(w.track)));
        let keys = keys.collect::<Result<Vec<TrackKey>, Refusal>>()?;
        let before: Vec<usize> = viewers.iter().map(|viewer| self.missing_of(*viewer)).collect();
        for (wish, key) in wishes.iter().zip(keys) {
            self.wish_one(now, participant, key, wish);
        }
        for (viewer, before) in viewers.into_iter().zip(before) {
            self.fill(now, viewer, before);
        }
        Ok(())
    }

    /// On every play transport of a participant.
    fn wish_one(&mut self, now: Instant, participant: u32, key: TrackKey, wish: &Wish) {
        let (unwanted, view) = (wish.paused, wish.view());
        let Some(member) = numbered(&mut self.members, participant) else { return };
        let Some(track) = self.tracks.get_mut(&key) else { return };
        let candidate = track.candidate(key);
        let mut resumed = false;
        for index in 0..member.transports.len() {
            let Some((_, plays)) = member.playing(index as u8) else { continue };
            match unwanted {
                true => plays.unwanted.insert(key),
                false => plays.unwanted.remove(&key),
            };
            plays.sections.want(candidate, !unwanted && !track.muted);
            let viewed = if view == View::default() { plays.views.remove(&key) } else { plays.views.insert(key, view) };
            let viewer = Viewer { participant, transport: index as u8 };
            let Some(subscriber) = track.audience.get(viewer) else { continue };
            let (transport, section) = (viewer.transport, subscriber.section);
            if viewed.unwrap_or_default() != view {
                member.port.post(now, SessionMsg::View { transport, section, track: key, view });
            }
            if subscriber.paused != unwanted {
                let paused = unwanted || track.muted;
                member.port.post(now, SessionMsg::Pause { transport, section, paused });
                track.audience.change(viewer, |subscriber| subscriber.paused = unwanted);
                resumed |= !unwanted;
            }
        }
        self.judge_layers(now, key);
        if resumed {
            self.key_frames_wanted(now, key);
        }
    }

    pub(super) fn remove(&mut self, now: Instant, session: SessionId, by: Option<String>) -> Result<(), Refusal> {
        if !self.members.iter().any(|m| m.session == session) {
            return Err(Refusal::SessionNotFound(session));
        }
        let told = RoomEvent::MessageToYou { what: "removed", by, track: None };
        self.emit(now, Some(session), told);
        if let Some(member) = self.member_mut(session) {
            member.leaving = Some(now);
            member.port.post(now, SessionMsg::Close(LeaveReason::Removed));
        }
        Ok(())
    }
}
