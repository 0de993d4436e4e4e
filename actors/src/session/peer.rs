//! One transport of a session and its life: join deadline, liveness, phases of the join.

use super::health::Totals;
use super::play::Playing;
use super::publish::Publishing;
use super::{AddRole, AddTransport};
use crate::api::{LeaveReason, Limits, Refusal, TransportStats};
use crate::batch::{Batch, Datagram};
use crate::local::Local;
use crate::port::Post;
use crate::room::{RoomMsg, Viewer};
use crate::worker::demux::Route;
use rondo_media::ids::{SessionId, TransportId};
use rondo_media::room::TrackKey;
use rondo_media::send::PacketSink;
use rondo_media::transport::{ClosedBy, DtlsFailure, IceRestart, Output, RestartRefused, Transport, TransportEvent};
use rondo_media::units::{Deadline, Why};
use rondo_media::wire::rtp::{Class, classify};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Where datagrams of a transport are routed to.
pub fn route(slot: u32, transport: u8) -> Route {
    Route { slot, transport }
}

/// What a transport does.
pub enum Role {
    /// Sends media to us.
    Publish(Publishing),
    /// Gets media from us.
    Play(Box<Playing>),
}

/// How a batch is handed to a section.
#[derive(Debug, Clone, Copy)]
pub struct Handed {
    pub section: u16,
    /// What came before it was left out on purpose.
    pub resumes: bool,
    /// Its publisher is among those who speak.
    pub speaks: bool,
}

/// One transport of a session.
pub struct Peer {
    id: TransportId,
    transport: Transport,
    role: Role,
    remote: Option<SocketAddr>,
    asked_at: Instant,
    answered_at: Instant,
    connected_at: Option<Instant>,
    heard_at: Instant,
    /// It has been silent for `silent_after`, and was judged so.
    silent: bool,
    wait_until: Option<Instant>,
    phases: Phases,
    last_refusal: Option<Instant>,
    dtls_failure: Option<DtlsFailure>,
}

/// The join's phases, each a span and a time (interfaces: `ice`, `dtls`, `first_packet`, …).
struct Phases {
    join: tracing::Span,
    open: Option<(&'static str, tracing::Span)>,
    done_ms: Vec<(&'static str, u64)>,
}

impl Phases {
    fn begin(&mut self, name: &'static str) {
        let span = tracing::info_span!(parent: &self.join, "phase", otel.name = name, phase = name);
        self.open = Some((name, span));
    }

    /// Ends the open phase if it is `name`, and opens the next one.
    fn done(&mut self, name: &'static str, since: Duration, next: Option<&'static str>) {
        if self.open.as_ref().is_some_and(|(open, _)| *open == name) {
            self.done_ms.push((name, since.as_millis().try_into().unwrap_or(u64::MAX)));
            self.open = None;
            match next {
                Some(next) => self.begin(next),
                // The join is over: its span ends here, not with the call.
                None => self.join = tracing::Span::none(),
            }
        }
    }
}

impl Peer {
    /// A transport that was answered just now.
    pub fn new(now: Instant, local: &Local, add: AddTransport) -> Self {
        let role = match add.role {
            AddRole::Publish(tracks) => Role::Publish(Publishing::new(tracks, add.transport.sections())),
            AddRole::Play(assigned) => {
                let viewer = Viewer { participant: add.participant, transport: add.index };
                Role::Play(Box::new(Playing::new(add.transport.sections(), assigned, viewer)))
            }
        };
        local.counters.joins_answered.add(1);
        let sdp_ms = now.saturating_duration_since(add.asked_at).as_millis().try_into().unwrap_or(u64::MAX);
        let mut phases = Phases { join: add.span, open: None, done_ms: vec![("sdp", sdp_ms)] };
        phases.begin("ice");
        Self {
            id: add.id,
            transport: add.transport,
            role,
            remote: None,
            asked_at: add.asked_at,
            answered_at: now,
            connected_at: None,
            heard_at: now,
            silent: false,
            wait_until: None,
            phases,
            last_refusal: None,
            dtls_failure: None,
        }
    }

    /// Its name.
    pub fn id(&self) -> TransportId {
        self.id
    }

    /// ICE and DTLS are up.
    pub fn connected(&self) -> bool {
        self.connected_at.is_some()
    }

    /// The span of its join.
    pub fn span(&self) -> &tracing::Span {
        &self.phases.join
    }

    /// The code of a join that failed for `reason`: more exact where it is known (see [`Failures`](crate::count::Failures)).
    pub fn failure_code(&self, reason: LeaveReason) -> &'static str {
        self.dtls_failure.filter(|_| reason == LeaveReason::DtlsFailed).map_or(reason.label(), DtlsFailure::code)
    }

    /// The phase that the join is in.
    pub fn phase(&self) -> &'static str {
        self.phases.open.as_ref().map_or("done", |(name, _)| name)
    }

    /// Connected, and not silent for too long. Judges silence anew.
    pub fn heard_lately(&mut self, now: Instant, limits: &Limits) -> bool {
        self.silent = now.saturating_duration_since(self.heard_at) >= limits.silent_after;
        self.connected() && !self.silent
    }

    fn heard(&mut self, now: Instant) {
        self.heard_at = now;
        self.silent = false;
    }

    /// What it does.
    pub fn role_mut(&mut self) -> &mut Role {
        &mut self.role
    }

    /// Takes one datagram. RTP and RTCP of a viewer go to our egress, everything else to the transport.
    pub fn datagram(&mut self, now: Instant, local: &Local, datagram: &Datagram, room: &mut Post<RoomMsg>) {
        let class = classify(&datagram.bytes);
        let taken = match (&mut self.role, class) {
            (Role::Play(play), Class::Rtcp) => match self.remote {
                Some(to) => play.rtcp(now, local, to, &datagram.bytes, room),
                None => false,
            },
            (Role::Play(_), Class::Rtp) => false,
            (Role::Publish(_), Class::Rtp | Class::Rtcp) | (_, Class::Stun | Class::Dtls | Class::Unknown) => {
                self.transport.receive(now, datagram.from, datagram.to, &datagram.bytes).is_ok()
            }
        };
        if taken {
            // A check is proven when it is taken, and a viewer's report when it opens. A publisher's RTP and RTCP are
            // proven only by what comes out of the transport: see `event`. A record of DTLS is not: its handshake
            // has a deadline of its own, and after it anybody who knows the peer's address could send one.
            let proven = match class {
                Class::Stun => true,
                Class::Rtcp => matches!(self.role, Role::Play(_)),
                Class::Dtls | Class::Rtp | Class::Unknown => false,
            };
            if proven {
                self.heard(now);
            }
            return;
        }
        local.counters.dropped_by_transport.add(1);
        // One line a second at most: an attacker must not fill the disk.
        if self.last_refusal.is_none_or(|at| now.saturating_duration_since(at) >= Duration::from_secs(1)) {
            self.last_refusal = Some(now);
            tracing::debug!(transport = %self.id, bytes = datagram.bytes.len(), "datagram dropped: not usable by its transport");
        }
    }

    /// Lets the transport say everything it has to say. `Some` when it is over.
    pub fn settle(
        &mut self,
        now: Instant,
        local: &Local,
        route: Route,
        session: SessionId,
        room: &mut Post<RoomMsg>,
    ) -> Option<LeaveReason> {
        let mut over = None;
        if let Role::Publish(publish) = &mut self.role {
            while let Some((section, cap)) = publish.cap_due() {
                self.transport.cap(now, section, cap);
            }
        }
        loop {
            match self.transport.poll() {
                Output::Transmit { to, datagram } => transmit(local, route, to, &datagram),
                Output::Event(event) => {
                    over = over.or(self.event(now, local, route, event, room));
                }
                Output::Wait(until) => {
                    self.wait_until = until;
                    break;
                }
            }
        }
        if let Role::Publish(publish) = &mut self.role {
            publish.fan_out(now, local, session, room);
            if publish.any_packet() {
                let next = publish.has_video().then_some("first_key_frame");
                self.phases.done("first_packet", now - self.asked_at, next);
            }
            if publish.any_key_frame() {
                self.phases.done("first_key_frame", now - self.asked_at, None);
            }
        }
        over.or_else(|| self.overdue(now, &local.limits))
    }

    fn event(
        &mut self,
        now: Instant,
        local: &Local,
        route: Route,
        event: TransportEvent,
        room: &mut Post<RoomMsg>,
    ) -> Option<LeaveReason> {
        match event {
            TransportEvent::IceConnected { peer } | TransportEvent::PeerMoved { peer } => {
                self.remote = Some(peer);
                local.demux.borrow_mut().confirm(peer, route);
                self.phases.done("ice", now - self.asked_at, Some("dtls"));
                None
            }
            TransportEvent::PeerStays { peer } => {
                local.demux.borrow_mut().confirm(peer, route);
                None
            }
            TransportEvent::UfragRetired(ufrag) => {
                local.demux.borrow_mut().retire(&ufrag, route);
                None
            }
            TransportEvent::DtlsConnected(keys) => {
                self.connected_at = Some(now);
                self.heard(now);
                local.counters.joins_connected.add(1);
                let next = match &mut self.role {
                    Role::Publish(_) => "first_packet",
                    Role::Play(play) => {
                        let Ok(protection) = self.transport.protection(&keys) else {
                            return Some(LeaveReason::DtlsFailed);
                        };
                        play.connected(now, local, self.transport.sections(), protection, &self.id, room);
                        "first_frame_sent"
                    }
                };
                self.phases.done("dtls", now - self.asked_at, Some(next));
                None
            }
            TransportEvent::Rtp(packet) => {
                self.heard(now);
                if let Role::Publish(publish) = &mut self.role {
                    publish.packet(now, &packet, &local.counters);
                }
                None
            }
            TransportEvent::Closed(by) => Some(match by {
                ClosedBy::Peer => LeaveReason::ClientLeft,
                ClosedBy::Dtls(failure) => {
                    self.dtls_failure = Some(failure);
                    LeaveReason::DtlsFailed
                }
                ClosedBy::Error => LeaveReason::ConnectionLost,
            }),
        }
    }

    fn overdue(&self, now: Instant, limits: &Limits) -> Option<LeaveReason> {
        match self.connected_at {
            None if now >= self.answered_at + limits.join_deadline => Some(LeaveReason::JoinTimeout),
            Some(_) if now >= self.heard_at + limits.gone_after => Some(LeaveReason::ConnectionLost),
            None | Some(_) => None,
        }
    }

    /// A batch for one of its sections.
    pub fn media(
        &mut self,
        now: Instant,
        local: &Local,
        batch: &Batch,
        Handed { section, resumes, speaks }: Handed,
        session: SessionId,
        room: &mut Post<RoomMsg>,
    ) {
        let (Role::Play(play), Some(to)) = (&mut self.role, self.remote) else { return };
        if resumes {
            play.resume(section);
        }
        play.speaks(section, speaks);
        if play.forward(now, local, to, batch, section, session, room) {
            self.phases.done("first_frame_sent", now - self.asked_at, None);
        }
    }

    /// Somebody needs a key frame of a layer of `track`. True if the transport has something to say now.
    pub fn key_frame(&mut self, now: Instant, local: &Local, track: TrackKey, layer: u8) -> bool {
        let Role::Publish(publish) = &mut self.role else { return false };
        let Some(section) = publish.key_frame_wanted(now, track, layer) else { return false };
        local.counters.key_frames_requested.add(1);
        self.transport.request_key_frame(now, section, layer);
        true
    }

    /// Candidates that came later; one that cannot be used is ignored (a lite agent learns addresses from checks).
    pub fn trickle(&mut self, now: Instant, candidates: &[String]) {
        for candidate in candidates {
            if let Err(refused) = self.transport.add_remote_candidate(now, candidate) {
                tracing::debug!(transport = %self.id, %refused, "remote candidate ignored");
            }
        }
    }

    /// The peer begins a new ICE session; the old one goes on until an address is proven in the new one.
    pub fn restart_ice(
        &mut self,
        now: Instant,
        local: &Local,
        route: Route,
        remote_ufrag: &str,
    ) -> Result<IceRestart, Refusal> {
        let restarted = self.transport.restart_ice(now, remote_ufrag).map_err(|refused| match refused {
            RestartRefused::TooOften { retry_after } => {
                // Rounded up: who comes then is not early.
                Refusal::TooManyRestarts {
                    retry_after_s: retry_after.as_secs().saturating_add(1).try_into().unwrap_or(u32::MAX),
                }
            }
            RestartRefused::Closed => Refusal::TransportNotFound(self.id),
        })?;
        let mut demux = local.demux.borrow_mut();
        if let Some(given_up) = &restarted.given_up {
            demux.retire(given_up, route);
        }
        demux.add(&restarted.local_ufrag, route).map_err(|refused| {
            tracing::warn!(transport = %self.id, %refused, "the new ICE session cannot be reached");
            Refusal::Internal
        })?;
        local.counters.ice_restarts.add(1);
        tracing::info!(transport = %self.id, "ice_restart");
        Ok(restarted)
    }

    /// A deadline has come.
    pub fn wake(&mut self, now: Instant, local: &Local, room: &mut Post<RoomMsg>) {
        if self.wait_until.is_some_and(|at| at <= now) {
            self.transport.wake(now);
        }
        match &mut self.role {
            Role::Publish(publish) => {
                for (section, layer) in publish.key_frames_due(now) {
                    local.counters.key_frames_requested.add(1);
                    self.transport.request_key_frame(now, section, layer);
                }
            }
            Role::Play(play) => {
                if let Some(to) = self.remote {
                    play.wake(now, local, to, room);
                }
            }
        }
    }

    /// When it next wants to be woken.
    pub fn deadline(&self, limits: &Limits) -> Option<Deadline> {
        let transport = self.wait_until.map(|at| Deadline { at, why: Why::Transport });
        let life = match self.connected_at {
            None => Deadline { at: self.answered_at + limits.join_deadline, why: Why::JoinDeadline },
            Some(_) => {
                let gone = self.heard_at + limits.gone_after;
                let at = if self.silent { gone } else { gone.min(self.heard_at + limits.silent_after) };
                Deadline { at, why: Why::Liveness }
            }
        };
        let role = match &self.role {
            Role::Publish(publish) => publish.deadline(),
            Role::Play(play) => play.deadline(),
        };
        Deadline::earlier(Deadline::earlier(transport, Some(life)), role)
    }

    /// Says goodbye: RTCP BYE to a viewer, DTLS close to both.
    pub fn close(&mut self, now: Instant, local: &Local, route: Route) {
        if let (Role::Play(play), Some(to)) = (&mut self.role, self.remote) {
            play.goodbye(now, local, to);
        }
        self.transport.close(now);
        loop {
            match self.transport.poll() {
                Output::Transmit { to, datagram } => transmit(local, route, to, &datagram),
                Output::Event(_) => {}
                Output::Wait(_) => break,
            }
        }
    }

    /// Whether it sends media to us, or gets media from us.
    pub fn publishes(&self) -> bool {
        matches!(self.role, Role::Publish(_))
    }

    /// What its quality is judged by.
    pub fn totals(&self) -> Totals {
        let counted = match &self.role {
            Role::Publish(publish) => publish.totals(),
            Role::Play(play) => play.totals(),
        };
        Totals { heard_at: Some(self.heard_at), ..counted }
    }

    /// What it has counted.
    pub fn stats(&self) -> TransportStats {
        let mut stats = TransportStats {
            id: self.id.to_string(),
            door: match self.role {
                Role::Publish(_) => "whip".into(),
                Role::Play(_) => "whep".into(),
            },
            connected: self.connected(),
            phases_ms: self.phases.done_ms.iter().map(|(name, ms)| ((*name).to_owned(), *ms)).collect(),
            ..TransportStats::default()
        };
        match &self.role {
            Role::Publish(publish) => publish.stats(&mut stats),
            Role::Play(play) => play.stats(&mut stats),
        }
        stats
    }
}

/// Sends what a transport says, but not to who has got the address of its peer since.
fn transmit(local: &Local, route: Route, to: SocketAddr, datagram: &[u8]) {
    // The answer to a check goes to whoever sent it.
    if classify(datagram) == Class::Stun || !local.demux.borrow().is_anothers(to, route) {
        local.write(|outbox| outbox.push(to, datagram));
    }
}

/// One destination's sink in the worker's outbox.
pub fn with_sink<R>(local: &Local, to: SocketAddr, f: impl FnOnce(&mut dyn PacketSink) -> R) -> R {
    local.write(|outbox| f(&mut outbox.to(to)))
}
