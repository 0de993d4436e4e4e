//! Participants and tracks as the room keeps them, and how they come and go.

use super::Room;
use crate::api::{Door, LeaveReason, ParticipantInfo, RoomEvent, SessionState, Source, TrackInfo, TransportStats};
use crate::port::{Port, Post};
use crate::session::SessionMsg;
use crate::supervisor::SupervisorMsg;
use rondo_media::codec::{Codec, Kind};
use rondo_media::ids::{Identity, SessionId, TrackId, TransportId};
use rondo_media::room::{Candidate, Sections, TrackKey};
use std::collections::BTreeSet;
use std::time::Instant;

/// One participant.
pub struct Member {
    pub session: SessionId,
    /// Number in this room; never used again.
    pub number: u32,
    pub slot: u32,
    pub identity: Identity,
    pub name: String,
    pub metadata: String,
    pub joined_at: Instant,
    pub state: SessionState,
    /// Told to close: nothing is attached to it any more.
    pub leaving: bool,
    pub port: Post<SessionMsg>,
    /// By transport index; an index is used again only when its transport has ended.
    pub transports: Vec<Option<Attachment>>,
}

/// One transport of a participant.
pub struct Attachment {
    pub id: TransportId,
    pub door: Door,
    pub role: Role,
    /// Told to end; the session has not confirmed yet.
    pub ending: bool,
}

/// What a transport does.
pub enum Role {
    Publish { tracks: Vec<TrackKey> },
    Play { only: Option<Identity>, sections: Sections, mids: Vec<String>, missing: BTreeSet<TrackKey> },
}

/// One published medium.
pub struct Track {
    pub id: TrackId,
    pub session: SessionId,
    pub participant: u32,
    pub identity: Identity,
    pub source: Source,
    pub kind: Kind,
    /// Known when the first packet has come: from then on the track is published.
    pub codec: Option<Codec>,
    pub muted: bool,
    pub subscribers: Vec<Subscriber>,
}

/// One section that carries a track.
pub struct Subscriber {
    pub session: SessionId,
    pub port: Port<SessionMsg>,
    pub transport: u8,
    pub section: u16,
    /// The viewer wants nothing of it now.
    pub paused: bool,
}

impl Track {
    pub fn started(&self) -> bool {
        self.codec.is_some()
    }

    pub fn info(&self) -> TrackInfo {
        TrackInfo { id: self.id, source: self.source, kind: self.kind, codec: self.codec, muted: self.muted }
    }

    fn candidate(&self, key: TrackKey) -> Candidate {
        Candidate { track: key, participant: self.participant, kind: self.kind }
    }
}

impl Room {
    pub(super) fn participant(&self, member: &Member) -> ParticipantInfo {
        let tracks = self.tracks.values().filter(|t| t.session == member.session && t.started());
        ParticipantInfo {
            identity: member.identity.clone(),
            name: member.name.clone(),
            session: member.session,
            metadata: member.metadata.clone(),
            joined_at_ms: self.local.wall.unix_ms(member.joined_at),
            state: member.state,
            tracks: tracks.map(Track::info).collect(),
        }
    }

    pub(super) fn member_mut(&mut self, session: SessionId) -> Option<&mut Member> {
        self.members.iter_mut().find(|m| m.session == session)
    }

    /// The first packet of a track came: it is published, and every viewer with a free section gets it.
    pub(super) fn track_started(&mut self, now: Instant, session: SessionId, key: TrackKey, codec: Codec) {
        let Some(track) = self.tracks.get_mut(&key).filter(|t| t.session == session) else { return };
        let first = track.codec.replace(codec).is_none();
        let (identity, info) = (track.identity.clone(), track.info());
        if !first {
            // The codec changed: told as the track itself, which lists and pages then show anew.
            self.emit(now, None, RoomEvent::TrackPublished { identity, track: info });
            return;
        }
        tracing::debug!(room = %self.seed.name, %identity, track = %info.id, source = info.source.label(), codec = codec.label(), "track published");
        self.emit(now, None, RoomEvent::TrackPublished { identity, track: info });
        self.place_everywhere(now, key);
        self.judge_kind(now);
    }

    fn place_everywhere(&mut self, now: Instant, key: TrackKey) {
        let viewers: Vec<(SessionId, u8)> = self
            .members
            .iter()
            .flat_map(|m| m.transports.iter().enumerate().map(move |(index, t)| (m.session, index as u8, t)))
            .filter(|(_, _, t)| t.as_ref().is_some_and(|t| !t.ending && matches!(t.role, Role::Play { .. })))
            .map(|(session, index, _)| (session, index))
            .collect();
        for (session, index) in viewers {
            self.place(now, key, session, index);
        }
    }

    /// Whether a play transport of `viewer` shows this track at all.
    pub(super) fn shows(track: &Track, viewer: SessionId, only: Option<&Identity>) -> bool {
        track.started() && track.session != viewer && only.is_none_or(|only| *only == track.identity)
    }

    /// Gives a track a section of one play transport, or says that there is none.
    fn place(&mut self, now: Instant, key: TrackKey, session: SessionId, index: u8) {
        let Some(track) = self.tracks.get_mut(&key) else { return };
        let Some(member) = self.members.iter_mut().find(|m| m.session == session) else { return };
        let Some(Some(attachment)) = member.transports.get_mut(usize::from(index)) else { return };
        let Role::Play { only, sections, mids, missing } = &mut attachment.role else { return };
        if !Self::shows(track, session, only.as_ref()) || sections.section_of(key).is_some() {
            return;
        }
        let transport = attachment.id;
        let known = missing.contains(&key);
        let event = match sections.place(track.candidate(key)) {
            Some(section) => {
                missing.remove(&key);
                let (port, section) = (member.port.port().clone(), section as u16);
                track.subscribers.push(Subscriber { session, port, transport: index, section, paused: false });
                let assign = SessionMsg::Assign { transport: index, section, track: Some(key), paused: track.muted };
                member.port.post(now, assign);
                RoomEvent::SectionAssigned(crate::api::SectionAssignment {
                    transport,
                    mid: mids.get(usize::from(section)).cloned().unwrap_or_default(),
                    track: Some(track.id),
                    identity: Some(track.identity.clone()),
                })
            }
            None if known => return,
            None => {
                missing.insert(key);
                RoomEvent::SectionsFull { transport, missing: missing.len() }
            }
        };
        self.emit(now, Some(session), event);
    }

    /// Takes a track out of the room: its sections are free again and go to those that wait.
    pub(super) fn unpublish(&mut self, now: Instant, key: TrackKey, reason: LeaveReason) {
        let Some(track) = self.tracks.remove(&key) else { return };
        for subscriber in &track.subscribers {
            self.free_section(now, key, subscriber);
        }
        if track.started() {
            let (identity, info) = (track.identity.clone(), track.info());
            self.emit(now, None, RoomEvent::TrackUnpublished { identity, track: info, reason });
        }
        self.fill_free_sections(now, key);
    }

    fn free_section(&mut self, now: Instant, key: TrackKey, subscriber: &Subscriber) {
        let Some(member) = self.members.iter_mut().find(|m| m.session == subscriber.session) else { return };
        let Some(Some(attachment)) = member.transports.get_mut(usize::from(subscriber.transport)) else { return };
        let Role::Play { sections, mids, .. } = &mut attachment.role else { return };
        if sections.remove(key).is_none() {
            return;
        }
        let (transport, section) = (subscriber.transport, subscriber.section);
        member.port.post(now, SessionMsg::Assign { transport, section, track: None, paused: false });
        let event = RoomEvent::SectionAssigned(crate::api::SectionAssignment {
            transport: attachment.id,
            mid: mids.get(usize::from(section)).cloned().unwrap_or_default(),
            track: None,
            identity: None,
        });
        self.emit(now, Some(subscriber.session), event);
    }

    /// After `gone` left the room: tracks that found no section before may find one now, in order of publication.
    /// Whoever's count of missing tracks changed is told.
    fn fill_free_sections(&mut self, now: Instant, gone: TrackKey) {
        let mut waiting = Vec::new();
        for member in &mut self.members {
            for (index, attachment) in member.transports.iter_mut().enumerate() {
                let Some(Attachment { id, role: Role::Play { missing, .. }, .. }) = attachment else { continue };
                if !missing.is_empty() {
                    let before = missing.len();
                    missing.remove(&gone);
                    waiting.push((
                        member.session,
                        index as u8,
                        *id,
                        before,
                        missing.iter().copied().collect::<Vec<_>>(),
                    ));
                }
            }
        }
        for (session, index, transport, before, tracks) in waiting {
            for key in tracks {
                self.place(now, key, session, index);
            }
            let missing = self.missing_of(session, index);
            if missing != before {
                self.emit(now, Some(session), RoomEvent::SectionsFull { transport, missing });
            }
        }
    }

    fn missing_of(&self, session: SessionId, index: u8) -> usize {
        let member = self.members.iter().find(|m| m.session == session);
        match member.and_then(|m| m.transports.get(usize::from(index))?.as_ref()).map(|a| &a.role) {
            Some(Role::Play { missing, .. }) => missing.len(),
            Some(Role::Publish { .. }) | None => 0,
        }
    }

    /// A session says that a transport of its has ended.
    pub(super) fn transport_ended(
        &mut self,
        now: Instant,
        session: SessionId,
        index: u8,
        reason: LeaveReason,
        stats: &TransportStats,
    ) {
        let Some(member) = self.member_mut(session) else { return };
        let Some(attachment) = member.transports.get_mut(usize::from(index)).and_then(Option::take) else { return };
        let identity = member.identity.clone();
        let last = member.transports.iter().all(Option::is_none);
        tracing::info!(
            room = %self.seed.name, %identity, transport = %attachment.id, door = attachment.door.label(),
            reason = reason.label(), received = stats.packets_received, sent = stats.packets_sent, "transport ended"
        );
        self.detach(now, session, index, attachment, reason);
        if last {
            self.member_left(now, session, reason);
        }
    }

    fn detach(&mut self, now: Instant, session: SessionId, index: u8, attachment: Attachment, reason: LeaveReason) {
        match attachment.role {
            Role::Publish { tracks } => {
                for key in tracks {
                    self.unpublish(now, key, reason);
                }
            }
            Role::Play { .. } => {
                let mut unwatched = Vec::new();
                for (key, track) in &mut self.tracks {
                    let before = track.subscribers.len();
                    track.subscribers.retain(|s| (s.session, s.transport) != (session, index));
                    if before > 0 && track.subscribers.is_empty() {
                        unwatched.push((*key, track.session));
                    }
                }
                for (track, publisher) in unwatched {
                    if let Some(member) = self.member_mut(publisher) {
                        member.port.post(now, SessionMsg::Unwatched { track });
                    }
                }
            }
        }
        self.supervisor.post(now, SupervisorMsg::TransportEnded { transport: attachment.id, reason });
    }

    pub(super) fn member_left(&mut self, now: Instant, session: SessionId, reason: LeaveReason) {
        let Some(position) = self.members.iter().position(|m| m.session == session) else { return };
        let mut member = self.members.remove(position);
        member.port.post(now, SessionMsg::Close(reason));
        self.local.close_slot(member.slot);
        self.speakers.remove(member.number as usize);
        self.judge_speakers(now);
        let identity = member.identity.clone();
        tracing::info!(room = %self.seed.name, %identity, %session, reason = reason.label(), "participant left");
        self.supervisor.post(now, SupervisorMsg::SessionEnded { room: self.seed.id, session, reason });
        self.emit(now, None, RoomEvent::ParticipantLeft { identity, session, reason });
        if self.members.is_empty() {
            self.empty_since = Some(now);
            if self.closing {
                self.finish(now);
            } else if self.draining {
                self.close(now, LeaveReason::ServerShutdown, None);
            }
        }
    }

    /// A session actor panicked: that participant is told to join again, the room goes on.
    pub(super) fn session_died(&mut self, now: Instant, session: SessionId) {
        let Some(member) = self.member_mut(session) else { return };
        let transports: Vec<(u8, Attachment)> = member
            .transports
            .iter_mut()
            .enumerate()
            .filter_map(|(index, attachment)| Some((index as u8, attachment.take()?)))
            .collect();
        tracing::error!(room = %self.seed.name, %session, "session actor died; its participant is told to join again");
        let told = RoomEvent::MessageToYou { what: "join_again", by: None, track: None };
        self.emit(now, Some(session), told);
        for (index, attachment) in transports {
            self.detach(now, session, index, attachment, LeaveReason::ServerError);
        }
        self.member_left(now, session, LeaveReason::ServerError);
    }

    /// Sessions whose port is gone have died without a word.
    pub(super) fn bury(&mut self, now: Instant) {
        while let Some(dead) = self.members.iter().find(|m| m.port.is_gone()).map(|m| m.session) {
            self.session_died(now, dead);
        }
    }

    pub(super) fn state_changed(&mut self, now: Instant, session: SessionId, state: SessionState) {
        let Some(member) = self.member_mut(session) else { return };
        member.state = state;
        let identity = member.identity.clone();
        self.emit(now, None, RoomEvent::StreamState { identity, session, state });
    }
}
