//! What doors ask of a room that is there.

use super::Room;
use super::members::{Attachment, Member};
use crate::api::{IceRestarted, LeaveReason, Refusal, RoomEvent, RoomSettings, SessionInfo, SessionPatch, Wish};
use crate::port::Port;
use crate::session::{RestartReply, SessionMsg};
use crate::supervisor::SupervisorMsg;
use rondo_media::codec::Kind;
use rondo_media::ids::{SessionId, TrackId, TransportId};
use rondo_media::room::TrackKey;
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
        let mine = self.tracks.iter().find(|(_, t)| t.id == id && t.session == session && t.started());
        mine.map(|(key, _)| *key).ok_or(Refusal::TrackNotFound(id))
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
        let short = self.short_of_sections();
        let Some(track) = self.tracks.get_mut(&key) else { return };
        track.muted = muted;
        for subscriber in &track.subscribers {
            let paused = muted || subscriber.paused;
            let (transport, section) = (subscriber.transport, subscriber.section);
            if let Some(member) = self.members.iter_mut().find(|m| m.session == subscriber.session) {
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
        if !muted {
            self.key_frame_wanted(now, key);
        }
        // A muted track gives its section up to one that waits; one that is heard again may be such.
        for (session, index, before) in short {
            self.fill(now, session, index, before);
        }
    }

    /// What a viewer wishes of tracks: a paused one is not sent to it.
    pub(super) fn wish(&mut self, now: Instant, session: SessionId, wishes: &[Wish]) -> Result<(), Refusal> {
        if !self.members.iter().any(|m| m.session == session) {
            return Err(Refusal::SessionNotFound(session));
        }
        let find = |id: TrackId| self.tracks.iter().find(|(_, t)| t.id == id && t.started()).map(|(key, _)| *key);
        let keys = wishes.iter().map(|w| find(w.track).ok_or(Refusal::TrackNotFound(w.track)));
        let keys = keys.collect::<Result<Vec<TrackKey>, Refusal>>()?;
        let short = self.wished(session, wishes.iter().map(|wish| wish.paused).zip(keys.iter().copied()));
        for (wish, key) in wishes.iter().zip(keys) {
            let Some(track) = self.tracks.get_mut(&key) else { continue };
            let mut resumed = false;
            let muted = track.muted;
            for subscriber in track.subscribers.iter_mut().filter(|s| s.session == session) {
                if subscriber.paused == wish.paused {
                    continue;
                }
                subscriber.paused = wish.paused;
                resumed |= !wish.paused;
                let (transport, section) = (subscriber.transport, subscriber.section);
                if let Some(member) = self.members.iter_mut().find(|m| m.session == session) {
                    let paused = wish.paused || muted;
                    member.port.post(now, SessionMsg::Pause { transport, section, paused });
                }
            }
            if resumed && track.kind == Kind::Video {
                self.key_frame_wanted(now, key);
            }
        }
        for (index, before) in short {
            self.fill(now, session, index, before);
        }
        Ok(())
    }

    /// Keeps what a viewer wants nothing of; its play transports, with how many tracks it missed on each.
    fn wished(&mut self, session: SessionId, wishes: impl Iterator<Item = (bool, TrackKey)>) -> Vec<(u8, usize)> {
        let transports = self.members.iter().find(|m| m.session == session).map_or(0, |m| m.transports.len()) as u8;
        let before = (0..transports).map(|index| (index, self.missing_of(session, index))).collect();
        let wishes: Vec<_> = wishes.collect();
        let Some(member) = self.member_mut(session) else { return before };
        for plays in member.transports.iter_mut().flatten().filter_map(Attachment::plays) {
            for (unwanted, key) in &wishes {
                match unwanted {
                    true => plays.unwanted.insert(*key),
                    false => plays.unwanted.remove(key),
                };
            }
        }
        before
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
