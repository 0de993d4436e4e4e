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
use std::time::{Duration, Instant};

/// How long the last messages of a session that was told to close are waited for.
const GOODBYE: Duration = Duration::from_secs(5);

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
    /// When it was told to close: nothing is attached to it any more.
    pub leaving: Option<Instant>,
    pub port: Post<SessionMsg>,
    /// By transport index; an index is used again only when its transport has ended.
    pub transports: Vec<Option<Attachment>>,
}

impl Member {
    /// Until when the last messages of a session that was told to close are waited for.
    pub fn goodbye_until(&self) -> Option<Instant> {
        self.leaving.map(|since| since + GOODBYE)
    }

    /// Whether a port that is gone means that the session died: one that was told to close is gone as it should be.
    pub fn may_not_be_gone(&self, now: Instant) -> bool {
        self.goodbye_until().is_none_or(|until| until <= now)
    }
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
    Play(Plays),
}

/// The sections of a transport that plays, and the tracks of the room as its viewer sees them.
pub struct Plays {
    pub only: Option<Identity>,
    pub sections: Sections,
    pub mids: Vec<String>,
    /// Tracks that have no section, in order of publication.
    pub missing: BTreeSet<TrackKey>,
    /// Tracks that the viewer wants nothing of now, with a section or without.
    pub unwanted: BTreeSet<TrackKey>,
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

impl Attachment {
    /// What it plays, if it plays.
    pub fn plays(&mut self) -> Option<&mut Plays> {
        match &mut self.role {
            Role::Play(plays) => Some(plays),
            Role::Publish { .. } => None,
        }
    }
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
            .filter(|(_, _, t)| t.as_ref().is_some_and(|t| !t.ending && matches!(t.role, Role::Play(_))))
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
        let before = self.missing_of(session, index);
        self.assign(now, key, session, index);
        self.tell_missing(now, session, index, before);
    }

    /// Gives a track a section: a free one, or if the track is wanted that of one which is not. Whether it has one.
    fn assign(&mut self, now: Instant, key: TrackKey, session: SessionId, index: u8) -> bool {
        let Some(track) = self.tracks.get(&key) else { return false };
        let Some(member) = self.members.iter_mut().find(|m| m.session == session) else { return false };
        let Some(Some(attachment)) = member.transports.get_mut(usize::from(index)) else { return false };
        let Role::Play(plays) = &mut attachment.role else { return false };
        if !Self::shows(track, session, plays.only.as_ref()) {
            return false;
        }
        if plays.sections.section_of(key).is_some() {
            return true;
        }
        let (tracks, unwanted) = (&self.tracks, &plays.unwanted);
        let idle = |key| unwanted.contains(&key) || tracks.get(&key).is_none_or(|t| t.muted);
        let takes_over = !idle(key);
        let placed = plays.sections.place(track.candidate(key), |other| takes_over && idle(other));
        let Some((section, evicted)) = placed else {
            plays.missing.insert(key);
            return false;
        };
        plays.missing.remove(&key);
        plays.missing.extend(evicted);
        let unwanted = plays.unwanted.contains(&key);
        let (port, section) = (member.port.port().clone(), section as u16);
        let paused = track.muted || unwanted;
        member.port.post(now, SessionMsg::Assign { transport: index, section, track: Some(key), paused });
        let event = RoomEvent::SectionAssigned(crate::api::SectionAssignment {
            transport: attachment.id,
            mid: plays.mids.get(usize::from(section)).cloned().unwrap_or_default(),
            track: Some(track.id),
            identity: Some(track.identity.clone()),
        });
        if let Some(track) = self.tracks.get_mut(&key) {
            track.subscribers.push(Subscriber { session, port, transport: index, section, paused: unwanted });
        }
        if let Some(evicted) = evicted {
            self.unsubscribe(now, evicted, session, index);
        }
        self.emit(now, Some(session), event);
        true
    }

    /// A track lost its section of one transport to another track.
    fn unsubscribe(&mut self, now: Instant, key: TrackKey, session: SessionId, index: u8) {
        let Some(track) = self.tracks.get_mut(&key) else { return };
        track.subscribers.retain(|s| (s.session, s.transport) != (session, index));
        let (unwatched, publisher) = (track.subscribers.is_empty(), track.session);
        if unwatched && let Some(member) = self.member_mut(publisher) {
            member.port.post(now, SessionMsg::Unwatched { track: key });
        }
    }

    /// Gives sections to tracks that wait for one, in order of publication, while there are any.
    pub(super) fn fill(&mut self, now: Instant, session: SessionId, index: u8, before: usize) {
        let Some(plays) = self.plays(session, index) else { return };
        let waiting: Vec<(TrackKey, Kind)> =
            plays.missing.iter().filter_map(|key| Some((*key, self.tracks.get(key)?.kind))).collect();
        let mut full = Vec::new();
        for (key, kind) in waiting {
            let wanted = self.plays(session, index).is_some_and(|plays| self.wanted(plays, key));
            // What is not wanted takes free sections only; the first wanted one that finds none ends it for its kind.
            if !full.contains(&(kind, wanted)) && !self.assign(now, key, session, index) {
                full.push((kind, wanted));
            }
        }
        self.tell_missing(now, session, index, before);
    }

    pub(super) fn plays(&self, session: SessionId, index: u8) -> Option<&Plays> {
        let member = self.members.iter().find(|m| m.session == session)?;
        match &member.transports.get(usize::from(index))?.as_ref()?.role {
            Role::Play(plays) => Some(plays),
            Role::Publish { .. } => None,
        }
    }

    /// Whether a viewer would see or hear anything of a track.
    fn wanted(&self, plays: &Plays, key: TrackKey) -> bool {
        !plays.unwanted.contains(&key) && self.tracks.get(&key).is_some_and(|t| !t.muted)
    }

    /// How many tracks a viewer misses on a transport: those without a section that it would see or hear.
    pub(super) fn missing_of(&self, session: SessionId, index: u8) -> usize {
        let missing = |plays: &Plays| plays.missing.iter().filter(|key| self.wanted(plays, **key)).count();
        self.plays(session, index).map_or(0, missing)
    }

    pub(super) fn tell_missing(&mut self, now: Instant, session: SessionId, index: u8, before: usize) {
        let missing = self.missing_of(session, index);
        if missing == before {
            return;
        }
        let member = self.members.iter().find(|m| m.session == session);
        let attachment = member.and_then(|m| m.transports.get(usize::from(index))?.as_ref());
        if let Some(transport) = attachment.map(|a| a.id) {
            self.emit(now, Some(session), RoomEvent::SectionsFull { transport, missing });
        }
    }

    /// Every play transport of the room on which a track waits for a section, with how many its viewer misses.
    pub(super) fn short_of_sections(&self) -> Vec<(SessionId, u8, usize)> {
        let of = |m: &Member| {
            let session = m.session;
            let short = m.transports.iter().enumerate().filter(|(_, attachment)| {
                matches!(attachment, Some(Attachment { role: Role::Play(plays), .. }) if !plays.missing.is_empty())
            });
            short.map(|(index, _)| (session, index as u8)).collect::<Vec<_>>()
        };
        let short = self.members.iter().flat_map(of);
        short.map(|(session, index)| (session, index, self.missing_of(session, index))).collect()
    }

    /// Takes a track out of the room: its sections are free again and go to those that wait.
    pub(super) fn unpublish(&mut self, now: Instant, key: TrackKey, reason: LeaveReason) {
        let short = self.short_of_sections();
        let Some(track) = self.tracks.remove(&key) else { return };
        for subscriber in &track.subscribers {
            self.free_section(now, key, subscriber);
        }
        for plays in self.members.iter_mut().flat_map(|m| &mut m.transports).flatten().filter_map(Attachment::plays) {
            plays.missing.remove(&key);
            plays.unwanted.remove(&key);
        }
        if track.started() {
            let (identity, info) = (track.identity.clone(), track.info());
            self.emit(now, None, RoomEvent::TrackUnpublished { identity, track: info, reason });
        }
        for (session, index, before) in short {
            self.fill(now, session, index, before);
        }
    }

    fn free_section(&mut self, now: Instant, key: TrackKey, subscriber: &Subscriber) {
        let Some(member) = self.members.iter_mut().find(|m| m.session == subscriber.session) else { return };
        let Some(Some(attachment)) = member.transports.get_mut(usize::from(subscriber.transport)) else { return };
        let Role::Play(Plays { sections, mids, .. }) = &mut attachment.role else { return };
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
            Role::Play(_) => {
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
        let dead = |m: &&Member| m.port.is_gone() && m.may_not_be_gone(now);
        while let Some(dead) = self.members.iter().find(dead).map(|m| m.session) {
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
