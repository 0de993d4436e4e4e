//! A whole node in virtual time: people come, send, wish, vanish and go in any order.

use super::time::origin;
use arbitrary::{Arbitrary, Unstructured};
use rondo_actors::api::{
    Door, EventFeed, Join, LeaveReason, Limits, Purpose, Refusal, RoomKind, RoomSettings, RoomTimes, SessionPatch,
    Source, VideoCaps, Wish,
};
use rondo_actors::port::{Port, Reply};
use rondo_actors::room::{Attach, RoomMsg};
use rondo_actors::sim::{Client, Link, Sim};
use rondo_actors::supervisor::SupervisorMsg;
use rondo_media::ids::{RoomName, SessionId, TrackId, TransportId};
use rondo_media::transport::{Accept, Role, Shared, Transport};
use rondo_media::wire::rtcp::{write_nack, write_pli};
use rondo_media::wire::rtp::{Class, RtpHeader, RtpView, classify};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[derive(Debug, Arbitrary)]
struct Script<'a> {
    seed: u8,
    steps: Vec<Step<'a>>,
}

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    Join {
        room: u8,
        who: u8,
        publish: bool,
        screen: bool,
        only: Option<u8>,
        sections: u8,
    },
    /// Somebody sends media; `video`: 1 in `key` is a key frame.
    Send {
        peer: u8,
        packets: u8,
        video: bool,
        key: u8,
    },
    /// A datagram of any kind from a peer.
    Raw {
        peer: u8,
        bytes: &'a [u8],
    },
    /// A viewer asks again, or for a picture.
    Nack {
        peer: u8,
        ssrc: u8,
        seq: u16,
    },
    Pli {
        peer: u8,
        ssrc: u8,
    },
    /// A peer's packets come from another port from now on.
    Move {
        peer: u8,
    },
    End {
        peer: u8,
    },
    EndUnknown([u8; 12]),
    Remove {
        peer: u8,
    },
    Wish {
        peer: u8,
        track: u8,
        paused: bool,
    },
    Patch {
        peer: u8,
        track: u8,
        muted: bool,
        name: Option<&'a str>,
    },
    Settings {
        room: u8,
        kind: Option<u8>,
        max: Option<u8>,
    },
    Create {
        room: u8,
        max: u8,
    },
    Trickle {
        peer: u8,
        candidate: &'a str,
    },
    Events {
        room: u8,
        peer: u8,
        after: Option<u64>,
        mine: bool,
    },
    CloseRoom {
        room: u8,
    },
    /// A peer restarts ICE, and its checks name the new session from then on.
    RestartIce {
        peer: u8,
        checks: bool,
    },
    Drain,
    Run {
        ms: u16,
    },
}

/// Joins of one script.
const PEERS_MAX: usize = 24;
const STEPS_MAX: usize = 200;
const ROOMS: usize = 3;

/// What a payload says at its end: room and identity of who sent it.
fn stamp(room: u8, who: u8) -> [u8; 4] {
    [0xfe, room, who, 0xfe]
}

/// What was forwarded where it must not be.
type Wrongs = Rc<RefCell<Vec<String>>>;

struct Peer {
    addr: SocketAddr,
    server: SocketAddr,
    room: u8,
    who: u8,
    transport: TransportId,
    session: SessionId,
    playing: bool,
    seq: u16,
    out: VecDeque<(SocketAddr, Vec<u8>)>,
    wrongs: Wrongs,
}

impl Client for Peer {
    fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn datagram(&mut self, _now: Instant, _from: SocketAddr, bytes: &[u8]) {
        if classify(bytes) != Class::Rtp {
            return;
        }
        let view = RtpView::parse(bytes).expect("the server sends what can be read");
        let wrong = |what: &str| self.wrongs.borrow_mut().push(format!("{}/{}: {what}", self.room, self.who));
        if !self.playing {
            wrong("media came to a publisher");
        }
        match view.payload.last_chunk::<4>() {
            Some(&[0xfe, room, _, 0xfe]) if room != self.room => wrong("media of another room"),
            Some(&[0xfe, _, who, 0xfe]) if who == self.who => wrong("its own media"),
            _ => {}
        }
    }

    fn wake(&mut self, _now: Instant) {}

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.out.pop_front()
    }
}

fn limits() -> Limits {
    Limits {
        participants_per_room: 6,
        rooms: 2,
        sessions_per_worker: 12,
        transports_per_session: 3,
        event_streams_per_room: 3,
        join_deadline: Duration::from_secs(15),
        silent_after: Duration::from_secs(5),
        gone_after: Duration::from_secs(15),
        video: VideoCaps::default(),
    }
}

/// No panic; nobody gets its own media or another room's; when all have gone, nothing is left.
pub fn script(data: &[u8]) {
    let Ok(script) = Script::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let times = RoomTimes { empty_timeout: Duration::from_secs(30), departure_timeout: Duration::from_secs(20) };
    let sim = Sim::new(u64::from(script.seed), 2, &limits(), &times, origin());
    let mut run = Run {
        sim,
        shared: Shared::plain(),
        peers: Vec::new(),
        ports: 0,
        tracks: Vec::new(),
        feeds: Vec::new(),
        wrongs: Wrongs::default(),
    };
    for step in script.steps.iter().take(STEPS_MAX) {
        run.step(step);
        run.sim.settle();
    }
    run.end();
}

struct Run {
    sim: Sim<Peer>,
    shared: Shared,
    /// Numbers in the simulation.
    peers: Vec<usize>,
    ports: u16,
    tracks: Vec<TrackId>,
    feeds: Vec<EventFeed>,
    wrongs: Wrongs,
}

impl Run {
    fn step(&mut self, step: &Step<'_>) {
        match step {
            Step::Join { room, who, publish, screen, only, sections } => {
                if self.peers.len() < PEERS_MAX {
                    let _ = self.join(*room % ROOMS as u8, *who % 8, *publish, *screen, *only, *sections);
                }
            }
            Step::Send { peer, packets, video, key } => self.send(*peer, *packets, *video, *key),
            // What looks like a stamp would accuse somebody.
            Step::Raw { peer, bytes } => {
                if !bytes.windows(4).any(|w| w[0] == 0xfe && w[3] == 0xfe) {
                    self.datagram(*peer, bytes.to_vec());
                }
            }
            Step::Nack { peer, ssrc, seq } => {
                let mut out = Vec::new();
                write_nack(&mut out, 7, 0x400 + u32::from(*ssrc), &[*seq, seq.wrapping_add(1)]);
                self.datagram(*peer, out);
            }
            Step::Pli { peer, ssrc } => {
                let mut out = Vec::new();
                write_pli(&mut out, 7, 0x400 + u32::from(*ssrc));
                self.datagram(*peer, out);
            }
            Step::Move { peer } => {
                if let Some(peer) = self.peer(*peer) {
                    peer.addr.set_port(peer.addr.port().wrapping_add(1_000).max(1));
                }
            }
            Step::End { peer } => self.end_peer(*peer),
            Step::EndUnknown(id) => {
                let text: String = id.iter().map(|b| char::from(b'a' + b % 26)).collect();
                if let Ok(transport) = format!("TP_{text}").parse() {
                    self.end_transport(transport);
                }
            }
            Step::Remove { peer } => {
                if let Some((room, session)) = self.peer(*peer).map(|p| (p.room, p.session)) {
                    self.ask_room(room, |reply| RoomMsg::Remove { session, by: Some("admin".into()), reply });
                }
            }
            Step::Wish { peer, track, paused } => {
                let Some((room, session)) = self.peer(*peer).map(|p| (p.room, p.session)) else { return };
                let Some(track) = self.track(*track) else { return };
                let wish =
                    Wish { track, paused: *paused, width_px: None, height_px: None, fps_max: None, priority: None };
                self.ask_room(room, |reply| RoomMsg::Wish(session, vec![wish], reply));
            }
            Step::Patch { peer, track, muted, name } => {
                let Some((room, session)) = self.peer(*peer).map(|p| (p.room, p.session)) else { return };
                let muted = self.track(*track).map(|track| (track, *muted)).into_iter().collect();
                let patch = SessionPatch { muted, name: name.map(str::to_owned), ..SessionPatch::default() };
                self.ask_room(room, |reply| RoomMsg::PatchSession(session, patch, reply));
            }
            Step::Settings { room, kind, max } => {
                let settings = settings(*kind, *max);
                self.ask_room(*room, |reply| RoomMsg::Patch(settings, reply));
            }
            Step::Create { room, max } => {
                let settings = settings(None, Some(*max));
                let name = name(*room);
                let _ = self.ask_supervisor(|reply| SupervisorMsg::Create(name, settings, reply));
            }
            Step::Trickle { peer, candidate } => {
                let Some((room, transport)) = self.peer(*peer).map(|p| (p.room, p.transport)) else { return };
                let candidates = vec![(*candidate).to_owned(); 2];
                if let Some(port) = self.room(room) {
                    let _ = port.tell(RoomMsg::Trickle { transport, candidates });
                }
            }
            Step::Events { room, peer, after, mine } => {
                let me = self.peer(*peer).map(|p| p.session).filter(|_| *mine);
                let feed = self.ask_room(*room, |reply| RoomMsg::Events { me, after: *after, reply });
                if let Some(Ok(feed)) = feed {
                    assert!(feed.first.windows(2).all(|pair| pair[0].id < pair[1].id), "numbers grow");
                    self.feeds.push(feed);
                }
            }
            Step::CloseRoom { room } => {
                let by = Some("app".to_owned());
                self.ask_room(*room, |reply| RoomMsg::Close { reason: LeaveReason::RoomClosed, by, reply });
            }
            Step::RestartIce { peer, checks } => self.restart_ice(*peer, *checks),
            Step::Drain => {
                let (reply, _answer) = Reply::pair();
                let _ = self.sim.supervisor().tell(SupervisorMsg::Drain(reply));
            }
            Step::Run { ms } => self.sim.run(Duration::from_millis(u64::from(*ms))),
        }
    }

    fn peer(&mut self, n: u8) -> Option<&mut Peer> {
        let number = *self.peers.get(usize::from(n) % self.peers.len().max(1))?;
        Some(self.sim.client(number))
    }

    /// A track that was published, by what event streams said.
    fn track(&mut self, n: u8) -> Option<TrackId> {
        for room in 0..ROOMS as u8 {
            let sessions = self.ask_room(room, RoomMsg::Info);
            let published = sessions.into_iter().flat_map(|info| info.participants).flat_map(|p| p.tracks);
            self.tracks.extend(published.map(|track| track.id));
        }
        self.tracks.sort_unstable();
        self.tracks.dedup();
        self.tracks.get(usize::from(n) % self.tracks.len().max(1)).copied()
    }

    fn datagram(&mut self, peer: u8, bytes: Vec<u8>) {
        if let Some(peer) = self.peer(peer) {
            let server = peer.server;
            peer.out.push_back((server, bytes));
        }
    }

    fn send(&mut self, peer: u8, packets: u8, video: bool, key: u8) {
        let Some(number) = self.peers.get(usize::from(peer) % self.peers.len().max(1)).copied() else { return };
        for n in 0..packets % 32 {
            let peer = self.sim.client(number);
            peer.seq = peer.seq.wrapping_add(1);
            let mut payload = match (video, key > 0 && n % key.max(1) == 0) {
                (false, _) => vec![0xfc],
                // RFC 7741 section 4.2, RFC 6386 section 9.1.
                (true, true) => vec![0x10, 0x10, 0x02, 0x00, 0x9d, 0x01, 0x2a, 0x80, 0x02, 0x68, 0x01],
                (true, false) => vec![0x10, 0x11, 0x02, 0x00],
            };
            payload.extend(stamp(peer.room, peer.who));
            let (pt, mid) = if video { (96, b"1") } else { (111, b"0") };
            let ssrc = 0x100 + peer.transport_number() * 2 + u32::from(video);
            let rtp_time = u32::from(peer.seq) * 960;
            let header = RtpHeader { marker: n % 3 == 2, pt, seq: peer.seq, rtp_time, ssrc };
            let mut out = Vec::new();
            let level = [0x80 | (n % 64)];
            header.emit(&[(1, mid), (2, &level)], &payload, 0, &mut out).expect("a packet that can be written");
            let server = peer.server;
            peer.out.push_back((server, out));
            self.sim.run(Duration::from_millis(5));
        }
    }

    /// Asks an actor; nothing where it has ended.
    fn ask<M, T>(&mut self, port: &Port<M>, make: impl FnOnce(Reply<T>) -> M) -> Option<T> {
        let (reply, mut answer) = Reply::pair();
        port.tell(make(reply)).ok()?;
        self.sim.settle();
        answer.try_recv().ok()
    }

    fn ask_supervisor<T>(&mut self, make: impl FnOnce(Reply<T>) -> SupervisorMsg) -> T {
        let port = self.sim.supervisor();
        self.ask(&port, make).expect("the supervisor answers")
    }

    fn room(&mut self, room: u8) -> Option<Port<RoomMsg>> {
        let name = name(room);
        self.ask_supervisor(|reply| SupervisorMsg::Find(name, reply))
    }

    fn ask_room<T>(&mut self, room: u8, make: impl FnOnce(Reply<T>) -> RoomMsg) -> Option<T> {
        let port = self.room(room)?;
        Some(self.ask(&port, make).expect("a room that is found answers"))
    }

    /// What `Node::join` does, in virtual time.
    fn join(
        &mut self,
        room: u8,
        who: u8,
        publish: bool,
        screen: bool,
        only: Option<u8>,
        sections: u8,
    ) -> Result<(), Refusal> {
        let (audio, video) = match screen {
            true => (Source::ScreenAudio, Source::Screen),
            false => (Source::Microphone, Source::Camera),
        };
        let (role, door, purpose, offer) = match publish {
            true => (Role::Publish, Door::Whip, Purpose::Publish { audio, video }, offer(1, "sendonly")),
            false => {
                let only = only.map(identity);
                (Role::Play, Door::Whep, Purpose::Play { only }, offer(1 + usize::from(sections % 6), "recvonly"))
            }
        };
        let join = Join {
            room: name(room),
            identity: identity(who),
            name: None,
            guest: true,
            door,
            purpose,
            kind: None,
            offer,
        };
        let named = join.room.clone();
        let admitted = self.ask_supervisor(|reply| SupervisorMsg::Admit { room: named, reply })?;
        let server = self.sim.server(admitted.worker);
        let candidates = [server];
        let accept = Accept { role, candidates: &candidates, offer: &join.offer };
        let (transport, _answer) = Transport::accept(self.sim.now(), &self.shared, accept).expect("an honest offer");
        let (named, kind, worker) = (join.room, join.kind, admitted.worker);
        let port = self.ask_supervisor(|reply| SupervisorMsg::Enter { room: named, kind, worker, reply })?;
        let (etag, asked_at) = (transport.local_ufrag().to_owned(), self.sim.now());
        let check = binding_request(&format!("{etag}:peer"));
        let attached = self.ask(&port, |reply| {
            RoomMsg::Attach(Box::new(Attach {
                id: admitted.transport,
                identity: join.identity,
                name: join.name,
                guest: join.guest,
                door: join.door,
                purpose: join.purpose,
                kind: join.kind,
                transport,
                etag,
                asked_at,
                span: tracing::Span::none(),
                reply,
            }))
        });
        let attached = attached.expect("a room that was entered answers")?;
        self.ports += 1;
        let peer = Peer {
            addr: SocketAddr::from(([203, 0, 113, 1], 10_000 + self.ports)),
            server,
            room,
            who,
            transport: admitted.transport,
            session: attached.session,
            playing: !publish,
            seq: 65_500,
            out: VecDeque::from([(server, check)]),
            wrongs: self.wrongs.clone(),
        };
        let number = self.sim.connect(peer, Link::default(), Link::default());
        self.peers.push(number);
        Ok(())
    }

    /// What `Node::restart_ice` does, in virtual time.
    fn restart_ice(&mut self, peer: u8, checks: bool) {
        let Some(transport) = self.peer(peer).map(|p| p.transport) else { return };
        let found = self.ask_supervisor(|reply| SupervisorMsg::Transport(transport, reply));
        let Ok((_, port)) = found else { return };
        let remote_ufrag = "again".to_owned();
        let restarted = self.ask(&port, |reply| RoomMsg::RestartIce { transport, remote_ufrag, reply });
        // It may have gone meanwhile, or restart too often.
        let Some(Ok(restarted)) = restarted else { return };
        assert!(!restarted.etag.is_empty() && restarted.fragment.contains("a=ice-ufrag:"));
        if checks {
            self.datagram(peer, binding_request(&format!("{}:again", restarted.etag)));
        }
    }

    fn end_peer(&mut self, peer: u8) {
        if let Some(transport) = self.peer(peer).map(|p| p.transport) {
            self.end_transport(transport);
        }
    }

    fn end_transport(&mut self, transport: TransportId) {
        let found = self.ask_supervisor(|reply| SupervisorMsg::Transport(transport, reply));
        if let Ok((_, port)) = found {
            let reason = LeaveReason::ClientLeft;
            self.ask(&port, |reply| RoomMsg::End { transport, reason, reply });
            let again = self.ask_supervisor(|reply| SupervisorMsg::Transport(transport, reply));
            assert!(again.is_err(), "a second DELETE finds it gone");
        }
    }

    /// Everybody falls silent: rooms empty and end by themselves.
    fn end(&mut self) {
        self.sim.run(Duration::from_secs(90));
        assert_eq!(self.sim.panics(), 0, "an actor panicked");
        assert_eq!(*self.wrongs.borrow(), Vec::<String>::new());
        let counts = self.sim.supervisor_counts();
        let zero = |counts: &[std::sync::atomic::AtomicU64]| counts.iter().all(|n| n.load(Ordering::Relaxed) == 0);
        assert!(zero(&counts.rooms), "rooms are left: {:?}", counts.rooms);
        assert!(zero(&counts.sessions), "sessions are left: {:?}", counts.sessions);
        assert!(zero(&counts.transports), "transports are left: {:?}", counts.transports);
        assert_eq!(self.sim.actors(), 1, "only the supervisor is left");
    }
}

impl Peer {
    /// Tells the SSRCs of one publisher from those of another.
    fn transport_number(&self) -> u32 {
        u32::from(self.addr.port() % 1_000)
    }
}

fn name(room: u8) -> RoomName {
    ["red", "green", "blue"][usize::from(room) % ROOMS].parse().expect("a name")
}

fn identity(who: u8) -> rondo_media::ids::Identity {
    format!("p{}", who % 8).parse().expect("an identity")
}

fn settings(kind: Option<u8>, max: Option<u8>) -> RoomSettings {
    let kind = kind.map(|kind| RoomKind::ALL[usize::from(kind) % RoomKind::ALL.len()]);
    RoomSettings { kind, max_participants: max.map(|max| usize::from(max % 8)), metadata: None }
}

/// `pairs` of one Opus and one VP8 section.
fn offer(pairs: usize, direction: &str) -> String {
    let mids: Vec<String> = (0..pairs * 2).map(|mid| mid.to_string()).collect();
    let mut sdp = format!(
        "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE {}\r\na=ice-ufrag:peer\r\n\
         a=ice-pwd:peerpeerpeerpeerpeerpeer\r\na=fingerprint:sha-256 {}\r\na=setup:actpass\r\n",
        mids.join(" "),
        ["AB"; 32].join(":")
    );
    for (n, mid) in mids.iter().enumerate() {
        let (kind, pts, lines) = match n % 2 {
            0 => ("audio", "111", "a=rtpmap:111 opus/48000/2\r\n"),
            _ => (
                "video",
                "96 97",
                "a=rtpmap:96 VP8/90000\r\na=rtcp-fb:96 nack\r\na=rtcp-fb:96 nack pli\r\na=rtpmap:97 rtx/90000\r\n\
                 a=fmtp:97 apt=96\r\n",
            ),
        };
        sdp.push_str(&format!(
            "m={kind} 9 UDP/TLS/RTP/SAVPF {pts}\r\nc=IN IP4 0.0.0.0\r\na=mid:{mid}\r\na={direction}\r\na=rtcp-mux\r\n\
             a=extmap:1 urn:ietf:params:rtp-hdrext:sdes:mid\r\n\
             a=extmap:2 urn:ietf:params:rtp-hdrext:ssrc-audio-level\r\n{lines}"
        ));
    }
    sdp
}

/// A STUN binding request with a USERNAME (RFC 8489 sections 5 and 14.3) and nothing else.
fn binding_request(username: &str) -> Vec<u8> {
    let padded = username.len().next_multiple_of(4);
    let mut out = vec![0, 1];
    out.extend(((padded + 4) as u16).to_be_bytes());
    out.extend([0x21, 0x12, 0xa4, 0x42]);
    out.extend([7; 12]);
    out.extend([0, 6]);
    out.extend((username.len() as u16).to_be_bytes());
    out.extend(username.as_bytes());
    out.resize(24 + padded, 0);
    out
}
