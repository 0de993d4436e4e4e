//! How a transport gets in: admission, replacement, tracks and sections.

use super::layers::{Audience, Subscriber, Told, follows_at_first};
use super::members::{Attachment, Member, Plays, Role, Track, Viewer};
use super::{Room, RoomMsg, source_of, track_text};
use crate::api::{LeaveReason, Purpose, Refusal, RoomEvent, SessionState, Source, TransportInfo, Verdicts};
use crate::port::{Port, Post, Reply};
use crate::session::{AddRole, AddTransport, Published, Session, SessionMsg};
use crate::shell::Ending;
use crate::supervisor::SupervisorMsg;
use rondo_media::codec::Kind;
use rondo_media::ids::{Identity, SessionId, TrackId, TransportId};
use rondo_media::room::{Placed, Sections, TrackKey};
use rondo_media::transport::Transport;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// A transport that was built for somebody who wants in.
pub struct Attach {
    /// Its name.
    pub id: TransportId,
    /// Who.
    pub identity: Identity,
    /// Name to show.
    pub name: Option<String>,
    /// Came without a token.
    pub guest: bool,
    /// Which door.
    pub door: crate::api::Door,
    /// What for.
    pub purpose: Purpose,
    /// Kind that the door knows the room to have.
    pub kind: Option<crate::api::RoomKind>,
    /// The transport, its offer accepted.
    pub transport: Transport,
    /// ICE session tag.
    pub etag: String,
    /// When the request came in.
    pub asked_at: Instant,
    /// Parent of the join's phases.
    pub span: tracing::Span,
    /// Where the answer goes.
    pub reply: Reply<Result<Attached, Refusal>>,
}

/// What the answer's text needs to know.
#[derive(Debug)]
pub struct Attached {
    /// The participant's session.
    pub session: SessionId,
    /// Section, identity and track of every section that carries something.
    pub msids: Vec<(usize, String, String)>,
}

impl Room {
    pub(super) fn attach(&mut self, now: Instant, attach: Attach) {
        let refused = self.refuse(&attach);
        if let Some(refusal) = refused {
            attach.reply.answer(Err(refusal));
            return;
        }
        self.ever_joined = true;
        self.empty_since = None;
        // A door that knows the kind (a live push) decides, unless an app did before.
        if let (Some(kind), false) = (attach.kind, self.fixed_kind) {
            self.become_kind(now, kind);
        }
        let session = match self.members.iter().find(|m| m.identity == attach.identity) {
            Some(member) => member.session,
            None => self.admit(now, attach.identity.clone(), attach.name.clone()),
        };
        if let Purpose::Publish { audio, video } = attach.purpose {
            self.replace(now, session, &attach, audio, video);
        }
        let Attach { id, guest, door, purpose, transport, etag, asked_at, span, reply, identity, .. } = attach;
        let index = self.free_index(session);
        // Found or made above, in this very call.
        let Some(member) = self.members.iter().find(|m| m.session == session) else { return };
        let viewer = Viewer { participant: member.number, transport: index };
        let port = member.port.port().clone();
        let (role, add_role, msids) = match purpose {
            Purpose::Publish { audio, video } => self.publish(session, &identity, &transport, audio, video),
            Purpose::Play { only } => self.play(now, session, viewer, &port, &transport, only),
        };
        let remote_ufrag = transport.remote_ufrag().to_owned();
        let room = self.seed.name.clone();
        let info = TransportInfo { room, session, identity, guest, door, etag, remote_ufrag };
        self.supervisor.post(now, SupervisorMsg::TransportAdded { room: self.seed.id, transport: id, info });
        let told = self.section_events(id, &role);
        let Some(member) = self.member_mut(session) else { return };
        let attachment = Attachment { id, door, role, ending: false };
        let place = usize::from(index);
        if member.transports.len() <= place {
            member.transports.resize_with(place + 1, || None);
        }
        member.transports[place] = Some(attachment);
        let participant = viewer.participant;
        let add = AddTransport { index, participant, id, transport, role: add_role, asked_at, span };
        member.port.post(now, SessionMsg::Add(Box::new(add)));
        for event in told {
            self.emit(now, Some(session), event);
        }
        reply.answer(Ok(Attached { session, msids }));
    }

    fn refuse(&self, attach: &Attach) -> Option<Refusal> {
        if self.draining {
            return Some(Refusal::Draining);
        }
        if self.closing {
            // Its name is free already: the next try opens the room anew.
            return Some(Refusal::Busy { retry_after_s: 1 });
        }
        match self.members.iter().find(|m| m.identity == attach.identity) {
            Some(member) if member.leaving.is_some() => Some(Refusal::Busy { retry_after_s: 1 }),
            Some(member) => {
                let limit = self.local.limits.transports_per_session;
                let open = member.transports.iter().flatten().filter(|t| !t.ending).count();
                (open >= limit || member.transports.iter().flatten().count() >= limit * 2)
                    .then_some(Refusal::TooManyTransports { limit })
            }
            None => {
                let limit = self.max_participants();
                (self.members.len() >= limit).then(|| Refusal::RoomFull { room: self.seed.name.clone(), limit })
            }
        }
    }

    /// Makes a participant and its session actor.
    fn admit(&mut self, now: Instant, identity: Identity, name: Option<String>) -> SessionId {
        let session = self.local.with_random(|random| SessionId::generate(random));
        let slot = self.local.open_slot(self.seed.id);
        let (local, room) = (Rc::clone(&self.local), self.me.clone());
        let make = Box::new(move |_| Session::new(session, slot, local, room));
        let (me, counters) = (self.me.clone(), self.local.counters.clone());
        let on_end = Box::new(move |ending| {
            if ending == Ending::Panicked {
                counters.session_panics.add(1);
                // If the room's queue is full it finds out by the next message that it cannot deliver.
                let _ = me.tell(RoomMsg::SessionDied { session });
            }
        });
        let port = self.local.host().session(&self.local, make, on_end);
        self.local.fill_slot(slot, port.clone());
        let member = Member {
            session,
            number: self.next_participant,
            slot,
            name: name.unwrap_or_else(|| identity.to_string()),
            metadata: String::new(),
            joined_at: now,
            state: SessionState::Joining,
            quality: Verdicts::default(),
            leaving: None,
            port: Post::new(port),
            transports: Vec::new(),
            identity,
        };
        self.next_participant += 1;
        let participant = self.participant(&member);
        tracing::info!(room = %self.seed.name, identity = %member.identity, %session, "participant joined");
        self.members.push(member);
        self.supervisor.post(now, SupervisorMsg::SessionStarted { room: self.seed.id, session });
        self.emit(now, None, RoomEvent::ParticipantJoined { participant });
        session
    }

    fn free_index(&mut self, session: SessionId) -> u8 {
        let taken = |m: &mut Member| m.transports.iter().position(Option::is_none).unwrap_or(m.transports.len());
        self.member_mut(session).map_or(0, taken) as u8
    }

    /// A second publisher of the same (room, identity, source) takes the place of the first (interfaces §3).
    fn replace(&mut self, now: Instant, session: SessionId, attach: &Attach, audio: Source, video: Source) {
        let sources: Vec<Source> = attach
            .transport
            .sections()
            .iter()
            .filter(|s| !s.formats.is_empty())
            .map(|s| source_of(s.kind, audio, video))
            .collect();
        let tracks = &self.tracks;
        let Some(member) = self.members.iter_mut().find(|m| m.session == session) else { return };
        let mut replaced = Vec::new();
        for (index, attachment) in member.transports.iter_mut().enumerate() {
            let Some(attachment) = attachment else { continue };
            let Role::Publish { tracks: keys } = &attachment.role else { continue };
            let same = keys.iter().any(|key| tracks.get(key).is_some_and(|t| sources.contains(&t.source)));
            if same && !attachment.ending {
                attachment.ending = true;
                replaced.extend(keys.iter().copied());
                let (id, reason) = (attachment.id, LeaveReason::Replaced);
                member.port.post(now, SessionMsg::End { transport: index as u8, reason });
                // At once, not when the session confirms: the old resource is gone when the new one is there.
                self.supervisor.post(now, SupervisorMsg::TransportEnded { transport: id, reason });
            }
        }
        for key in &replaced {
            self.unpublish(now, *key, LeaveReason::Replaced);
        }
        if !replaced.is_empty() {
            let told = RoomEvent::MessageToYou { what: "replaced", by: None, track: None };
            self.emit(now, Some(session), told);
        }
    }

    fn publish(
        &mut self,
        session: SessionId,
        identity: &Identity,
        transport: &Transport,
        audio: Source,
        video: Source,
    ) -> (Role, AddRole, Vec<(usize, String, String)>) {
        let participant = self.members.iter().find(|m| m.session == session).map_or(0, |m| m.number);
        let mut by_section = Vec::new();
        for section in transport.sections() {
            let key = (!section.formats.is_empty()).then(|| {
                let key = TrackKey(self.next_track);
                self.next_track += 1;
                let id = self.local.with_random(|random| TrackId::generate(random));
                self.track_keys.insert(id, key);
                let source = source_of(section.kind, audio, video);
                let plain = section.kind == Kind::Video && section.layers.len() < 2;
                let cap = plain.then(|| self.local.limits.video.of(self.kind, source));
                let track = Track {
                    id,
                    session,
                    participant,
                    identity: identity.clone(),
                    source,
                    kind: section.kind,
                    codec: None,
                    muted: false,
                    names: section.layers.clone().into(),
                    layers: Arc::default(),
                    audience: Audience::default(),
                    told: Told::default(),
                    speaks: self.speakers.speaking().contains(&(participant as usize)),
                };
                self.tracks.insert(key, track);
                Published { track: key, id, cap }
            });
            by_section.push(key);
        }
        let tracks = by_section.iter().flatten().map(|published| published.track).collect();
        (Role::Publish { tracks }, AddRole::Publish(by_section), Vec::new())
    }

    fn play(
        &mut self,
        now: Instant,
        session: SessionId,
        viewer: Viewer,
        port: &Port<SessionMsg>,
        transport: &Transport,
        only: Option<Identity>,
    ) -> (Role, AddRole, Vec<(usize, String, String)>) {
        let offered = transport.sections();
        let usable = |s: &rondo_media::transport::Section| (s.kind, !s.formats.is_empty() && s.ssrc.is_some());
        let mut sections = Sections::new(offered.iter().map(usable));
        let mut assigned: Vec<_> = offered.iter().map(|_| None).collect();
        let mut msids = Vec::new();
        for (key, track) in self.tracks.iter().filter(|(_, t)| Self::shows(t, session, only.as_ref())) {
            sections.show(track.candidate(*key), !track.muted);
        }
        let mids = offered.iter().map(|s| s.mid.clone()).collect();
        let (unwanted, views) = (BTreeSet::new(), BTreeMap::new());
        let mut plays = Plays { only, sections, mids, unwanted, views };
        while let Some(Placed { track: key, section, .. }) = plays.sections.place_next() {
            let Some(track) = self.tracks.get_mut(&key) else { continue };
            assigned[section] = Some(track.carry(key, &plays, track.muted));
            msids.push((section, track.identity.to_string(), track_text(track.id)));
            let (port, section, follows) = (port.clone(), section as u16, follows_at_first(&track.names));
            track.audience.insert(viewer, Subscriber { port, section, paused: false, follows });
            self.judge_layers(now, key);
        }
        (Role::Play(plays), AddRole::Play(assigned), msids)
    }

    /// What the new transport's session is told of its sections.
    fn section_events(&self, transport: TransportId, role: &Role) -> Vec<RoomEvent> {
        let Role::Play(plays) = role else { return Vec::new() };
        let missing = plays.sections.missing();
        let told = |(section, key)| plays.assignment(transport, section, self.tracks.get(&key));
        let assigned = plays.sections.held().map(told).map(RoomEvent::SectionAssigned);
        let full = (missing > 0).then_some(RoomEvent::SectionsFull { transport, missing });
        assigned.chain(full).collect()
    }
}
