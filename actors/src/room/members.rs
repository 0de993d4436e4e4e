//! Participants and tracks as the room keeps them, and how they come and go.

use super::Room;
use super::layers::{Audience, Subscriber, Told, follows_at_first};
use crate::api::{
    Door, LeaveReason, ParticipantInfo, RoomEvent, SectionAssignment, SessionState, Source, TrackInfo, TransportStats,
    Verdicts, View,
};
use crate::port::Post;
use crate::session::{Carry, SessionMsg};
use crate::supervisor::SupervisorMsg;
use rondo_media::codec::{Codec, Kind};
use rondo_media::ids::{Identity, SessionId, TrackId, TransportId};
use rondo_media::receive::LayerList;
use rondo_media::room::{Candidate, Placed, Sections, TrackKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the last messages of a session that was told to close are waited for.
const GOODBYE: Duration = Duration::from_secs(5);

/// Qualities that have changed and were not told yet: a few at a time, the newest of each alone.
#[derive(Debug, Default)]
pub struct Qualities {
    untold: BTreeSet<u32>,
    /// When the next may be told; none: at once.
    pub next_at: Option<Instant>,
}

impl Qualities {
    /// 128 a second: an eighth of a minute's log, and half of what a reader may be behind.
    const AT_ONCE: usize = 32;
    const EVERY: Duration = Duration::from_millis(250);
}

/// One participant.
pub struct Member {
    pub session: SessionId,
    /// Number in this room; never used again. The room keeps its members in this order.
    pub number: u32,
    pub slot: u32,
    pub identity: Identity,
    pub name: String,
    pub metadata: String,
    pub joined_at: Instant,
    pub state: SessionState,
    pub quality: Verdicts,
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
    /// Tracks that the viewer wants nothing of now, with a section or without.
    pub unwanted: BTreeSet<TrackKey>,
    /// How it looks at tracks, where it has said so.
    pub views: BTreeMap<TrackKey, View>,
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
    /// Names of its simulcast layers, in the order of the publisher's offer; empty where it has none.
    pub names: Arc<[String]>,
    /// What is known of them; empty before the first is measured.
    pub layers: LayerList,
    /// Who sees it.
    pub audience: Audience,
    /// What its publisher was told of that.
    pub told: Told,
    /// Its publisher is among those who speak.
    pub speaks: bool,
}

/// A transport that plays, or may come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Viewer {
    /// [`Member::number`].
    pub participant: u32,
    /// Its index.
    pub transport: u8,
}

impl Viewer {
    /// Every transport of a participant.
    pub fn all_of(participant: u32) -> std::ops::RangeInclusive<Self> {
        Self { participant, transport: 0 }..=Self { participant, transport: u8::MAX }
    }
}

impl Member {
    /// A transport that plays, and what it plays.
    pub fn playing(&mut self, transport: u8) -> Option<(TransportId, &mut Plays)> {
        match self.transports.get_mut(usize::from(transport))? {
            Some(Attachment { id, role: Role::Play(plays), .. }) => Some((*id, plays)),
            _ => None,
        }
    }
}

impl Plays {
    /// What is told of a section.
    pub fn assignment(&self, transport: TransportId, section: usize, track: Option<&Track>) -> SectionAssignment {
        SectionAssignment {
            transport,
            mid: self.mids.get(section).cloned().unwrap_or_default(),
            track: track.map(|t| t.id),
            identity: track.map(|t| t.identity.clone()),
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

    /// What the session of a viewer needs to know of it.
    pub fn carry(&self, key: TrackKey, plays: &Plays, paused: bool) -> Carry {
        Carry {
            track: key,
            id: self.id,
            paused,
            names: Arc::clone(&self.names),
            layers: Arc::clone(&self.layers),
            view: plays.views.get(&key).copied().unwrap_or_default(),
        }
    }

    pub fn candidate(&self, key: TrackKey) -> Candidate {
        Candidate { track: key, participant: self.participant, kind: self.kind }
    }
}

/// By number, among the members as the room keeps them: what is done for every viewer searches nobody.
pub fn numbered(members: &mut [Member], number: u32) -> Option<&mut Member> {
    #[cfg(test)]
    super::crowd_tests::LOOKED_UP.set(super::crowd_tests::LOOKED_UP.get() + 1);
    let at = members.binary_search_by_key(&number, |m| m.number).ok()?;
    members.get_mut(at)
}

impl Room {
    pub(super) fn participant(&self, member: &Member) -> ParticipantInfo {
        let published = member.transports.iter().flatten().filter_map(|attachment| match &attachment.role {
            Role::Publish { tracks } => Some(tracks),
            Role::Play(_) => None,
        });
        let mut keys: Vec<TrackKey> = published.flatten().copied().collect();
        keys.sort_unstable();
        let tracks = keys.iter().filter_map(|key| self.tracks.get(key)).filter(|t| t.started());
        ParticipantInfo {
            identity: member.identity.clone(),
            name: member.name.clone(),
            session: member.session,
            metadata: member.metadata.clone(),
            joined_at_ms: self.local.wall.unix_ms(member.joined_at),
            state: member.state,
            quality: member.quality,
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
        self.judge_layers(now, key);
        self.judge_kind(now);
    }

    /// Shows a new track to everybody who may see it.
    fn place_everywhere(&mut self, now: Instant, key: TrackKey) {
        let Some(track) = self.tracks.get(&key) else { return };
        let shows = |m: &Member, attachment: &Attachment| {
            let Role::Play(plays) = &attachment.role else { return false };
            !attachment.ending && Self::shows(track, m.session, plays.only.as_ref())
        };
        for viewer in self.viewers(shows) {
            self.reseat(now, viewer, key, Sections::show);
        }
    }

    /// The transports of the room that meet a condition.
    pub(super) fn viewers(&self, which: impl Fn(&Member, &Attachment) -> bool) -> Vec<Viewer> {
        let of = |m: &Member| {
            let all = m.transports.iter().enumerate().filter_map(|(index, t)| Some((index as u8, t.as_ref()?)));
            let viewer = |transport| Viewer { participant: m.number, transport };
            all.filter(|(_, t)| which(m, t)).map(|(transport, _)| viewer(transport)).collect::<Vec<_>>()
        };
        self.members.iter().flat_map(of).collect()
    }

    /// Whether a play transport of `viewer` shows this track at all.
    pub(super) fn shows(track: &Track, viewer: SessionId, only: Option<&Identity>) -> bool {
        track.started() && track.session != viewer && only.is_none_or(|only| *only == track.identity)
    }

    pub(super) fn plays(&mut self, viewer: Viewer) -> Option<&mut Plays> {
        Some(numbered(&mut self.members, viewer.participant)?.playing(viewer.transport)?.1)
    }

    /// How many tracks a viewer misses.
    pub(super) fn missing_of(&mut self, viewer: Viewer) -> usize {
        self.plays(viewer).map_or(0, |plays| plays.sections.missing())
    }

    /// A track changed for a viewer, which is told what that brings it: `change` gets the track, and whether the
    /// viewer would see or hear anything of it.
    pub(super) fn reseat(
        &mut self,
        now: Instant,
        viewer: Viewer,
        key: TrackKey,
        change: impl Fn(&mut Sections, Candidate, bool),
    ) {
        let Some(track) = self.tracks.get(&key) else { return };
        let (candidate, muted) = (track.candidate(key), track.muted);
        let Some(plays) = self.plays(viewer) else { return };
        let before = plays.sections.missing();
        change(&mut plays.sections, candidate, !muted && !plays.unwanted.contains(&key));
        self.fill(now, viewer, before);
    }

    /// Gives sections to tracks that wait for one, while there are any. The viewer, who missed `before` of them, is told.
    pub(super) fn fill(&mut self, now: Instant, viewer: Viewer, before: usize) {
        while let Some(placed) = self.plays(viewer).and_then(|plays| plays.sections.place_next()) {
            self.assigned(now, viewer, placed);
        }
        let member = numbered(&mut self.members, viewer.participant);
        let Some((session, (transport, plays))) = member.and_then(|m| Some((m.session, m.playing(viewer.transport)?)))
        else {
            return;
        };
        let missing = plays.sections.missing();
        if missing != before {
            self.emit(now, Some(session), RoomEvent::SectionsFull { transport, missing });
        }
    }

    /// A track was given a section.
    fn assigned(&mut self, now: Instant, viewer: Viewer, placed: Placed) {
        let Placed { track: key, section, evicted } = placed;
        let Some(track) = self.tracks.get_mut(&key) else { return };
        let Some(member) = numbered(&mut self.members, viewer.participant) else { return };
        let Some((id, plays)) = member.playing(viewer.transport) else { return };
        let unwanted = plays.unwanted.contains(&key);
        let event = RoomEvent::SectionAssigned(plays.assignment(id, section, Some(track)));
        let (transport, section) = (viewer.transport, section as u16);
        let carry = Some(track.carry(key, plays, track.muted || unwanted));
        member.port.post(now, SessionMsg::Assign { transport, section, carry });
        let port = member.port.port().clone();
        let follows = follows_at_first(&track.names);
        track.audience.insert(viewer, Subscriber { port, section, paused: unwanted, follows });
        let session = member.session;
        self.judge_layers(now, key);
        if let Some(evicted) = evicted {
            self.unsubscribe(now, evicted, viewer);
        }
        self.emit(now, Some(session), event);
    }

    /// A viewer no longer sees a track.
    fn unsubscribe(&mut self, now: Instant, key: TrackKey, viewer: Viewer) {
        if let Some(track) = self.tracks.get_mut(&key) {
            track.audience.remove(viewer);
            self.judge_layers(now, key);
        }
    }

    /// Takes a track out of the room: its sections are free again and go to those that wait.
    pub(super) fn unpublish(&mut self, now: Instant, key: TrackKey, reason: LeaveReason) {
        let Some(track) = self.tracks.remove(&key) else { return };
        self.track_keys.remove(&track.id);
        self.audible.remove(key);
        let mut changed = Vec::new();
        for viewer in self.viewers(|_, attachment| matches!(attachment.role, Role::Play(_))) {
            let before = self.missing_of(viewer);
            let freed = self.hide(now, &track, key, viewer);
            if freed || self.missing_of(viewer) != before {
                changed.push((viewer, before));
            }
        }
        if track.started() {
            let (identity, info) = (track.identity.clone(), track.info());
            self.emit(now, None, RoomEvent::TrackUnpublished { identity, track: info, reason });
        }
        for (viewer, before) in changed {
            self.fill(now, viewer, before);
        }
    }

    /// Takes a track away from a viewer; whether that had a section for it, which is free now.
    fn hide(&mut self, now: Instant, track: &Track, key: TrackKey, viewer: Viewer) -> bool {
        let Some(member) = numbered(&mut self.members, viewer.participant) else { return false };
        let Some((id, plays)) = member.playing(viewer.transport) else { return false };
        plays.unwanted.remove(&key);
        plays.views.remove(&key);
        let Some(section) = plays.sections.hide(track.candidate(key)) else { return false };
        let event = RoomEvent::SectionAssigned(plays.assignment(id, section, None));
        let (transport, section) = (viewer.transport, section as u16);
        member.port.post(now, SessionMsg::Assign { transport, section, carry: None });
        let session = member.session;
        self.emit(now, Some(session), event);
        true
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
        let (identity, participant) = (member.identity.clone(), member.number);
        let last = member.transports.iter().all(Option::is_none);
        tracing::info!(
            room = %self.seed.name, %identity, transport = %attachment.id, door = attachment.door.label(),
            reason = reason.label(), received = stats.packets_received, sent = stats.packets_sent, "transport ended"
        );
        self.detach(now, Viewer { participant, transport: index }, attachment, reason);
        if last {
            self.member_left(now, session, reason);
        }
    }

    fn detach(&mut self, now: Instant, viewer: Viewer, attachment: Attachment, reason: LeaveReason) {
        match attachment.role {
            Role::Publish { tracks } => {
                for key in tracks {
                    self.unpublish(now, key, reason);
                }
            }
            Role::Play(plays) => {
                for (_, key) in plays.sections.held() {
                    self.unsubscribe(now, key, viewer);
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
        let participant = member.number;
        let transports: Vec<(u8, Attachment)> = member
            .transports
            .iter_mut()
            .enumerate()
            .filter_map(|(index, attachment)| Some((index as u8, attachment.take()?)))
            .collect();
        tracing::error!(room = %self.seed.name, %session, "session actor died; its participant is told to join again");
        let told = RoomEvent::MessageToYou { what: "join_again", by: None, track: None };
        self.emit(now, Some(session), told);
        for (transport, attachment) in transports {
            self.detach(now, Viewer { participant, transport }, attachment, LeaveReason::ServerError);
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

    /// Everybody is told of who is seen or heard, and others of themselves alone.
    pub(super) fn quality_changed(&mut self, now: Instant, session: SessionId, verdicts: Verdicts) {
        let Some(member) = self.member_mut(session) else { return };
        member.quality = verdicts;
        let number = member.number;
        self.qualities.untold.insert(number);
        if self.qualities.next_at.is_none() {
            self.tell_qualities(now);
        }
    }

    /// Tells some of the qualities that have changed: when a whole meeting suffers at once, its readers must keep up.
    pub(super) fn tell_qualities(&mut self, now: Instant) {
        for _ in 0..Qualities::AT_ONCE {
            let Some(number) = self.qualities.untold.pop_first() else { break };
            let Some(member) = numbered(&mut self.members, number) else { continue };
            let (session, identity, verdicts) = (member.session, member.identity.clone(), member.quality);
            let publishes = self.tracks.values().any(|track| track.participant == number && track.started());
            self.emit(now, Some(session).filter(|_| !publishes), RoomEvent::Quality { identity, verdicts });
        }
        self.qualities.next_at = Some(now + Qualities::EVERY);
    }

    /// Time has gone by.
    pub(super) fn wake_qualities(&mut self, now: Instant) {
        if self.qualities.next_at.is_some_and(|at| at <= now) {
            self.qualities.next_at = None;
            if !self.qualities.untold.is_empty() {
                self.tell_qualities(now);
            }
        }
    }
}
