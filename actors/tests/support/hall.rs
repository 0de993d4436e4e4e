//! A room alone, full of people: the shipped room actor, whose sessions and supervisor take every message and do nothing.
//!
//! What it does in one message is then the room's own work. Nothing is encrypted, sent or awaited.

use rondo_actors::api::{Door, LeaveReason, Limits, Numbered, Purpose, Refusal, RoomEvent, RoomKind, RoomSettings};
use rondo_actors::api::{RoomTimes, SessionPatch, Source, TransportStats, VideoCaps, Wish};
use rondo_actors::local::{Host, Local, MakeSession, OnEnd};
use rondo_actors::port::{Port, Refused, Reply, Tell};
use rondo_actors::room::{Attach, Attached, Room, RoomMsg, RoomSeed};
use rondo_actors::session::SessionMsg;
use rondo_actors::shell::Receive;
use rondo_actors::sim::Seeded;
use rondo_actors::worker::outbox::Outbox;
use rondo_media::codec::{Codec, Kind};
use rondo_media::ids::{RoomId, SessionId, TrackId, TransportId};
use rondo_media::room::TrackKey;
use rondo_media::transport::{Accept, Role, Shared, Transport};
use rondo_media::units::WallClock;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Takes every message and does nothing.
struct Deaf;

impl<M> Tell<M> for Deaf {
    fn tell(&self, _: M) -> Result<(), Refused<M>> {
        Ok(())
    }
}

impl Host for Deaf {
    fn session(&self, _: &Rc<Local>, _: MakeSession, _: OnEnd) -> Port<SessionMsg> {
        Arc::new(Deaf)
    }
    fn flush_soon(&self) {}
    fn send(&self, outbox: &mut Outbox) {
        outbox.clear();
    }
    fn wake_earlier(&self) {}
}

/// What everybody in a hall does.
#[derive(Debug, Clone, Copy)]
pub struct Crowd {
    pub people: usize,
    /// Of those, the first ones publish a picture; with `sound` their voice, too.
    pub publishers: usize,
    pub sound: bool,
    /// Pairs of sections that everybody plays with.
    pub pairs: usize,
}

/// One person who is in.
pub struct Person {
    pub session: SessionId,
    /// The last one published; none of who only looks on.
    pub track: Option<TrackId>,
    events: mpsc::Receiver<Numbered>,
}

/// Two transports that were built for one person.
pub struct Coming {
    publishing: Option<Attach>,
    playing: Attach,
    answer: oneshot::Receiver<Result<Attached, Refusal>>,
}

/// The room and who is in it, in the order they came.
pub struct Hall {
    pub room: Room,
    pub people: VecDeque<Person>,
    crowd: Crowd,
    now: Instant,
    shared: Shared,
    ids: Seeded,
    keys: u32,
    came: usize,
}

impl Hall {
    /// A full one.
    pub fn full(crowd: Crowd) -> Self {
        let (now, mut ids) = (Instant::now(), Seeded::new(1));
        let limits = Limits {
            participants_per_room: crowd.people,
            rooms: 1,
            sessions_per_worker: crowd.people + 1,
            transports_per_session: 8,
            event_streams_per_room: crowd.people + 1,
            join_deadline: Duration::from_secs(15),
            silent_after: Duration::from_secs(5),
            gone_after: Duration::from_secs(15),
            video: VideoCaps::default(),
        };
        let times = RoomTimes { empty_timeout: Duration::from_secs(300), departure_timeout: Duration::from_secs(20) };
        let wall = WallClock::new(now, Duration::from_secs(1_800_000_000));
        let random = Box::new(Seeded::new(2));
        let local = Local::new(
            0,
            limits,
            times,
            wall,
            Arc::default(),
            Arc::default(),
            now,
            Arc::default(),
            random,
            Box::new(Deaf),
        );
        let settings = RoomSettings { kind: Some(RoomKind::Conference), ..RoomSettings::default() };
        let Ok(name) = "hall".parse() else { unreachable!("a room name") };
        let seed = RoomSeed { id: RoomId::generate(&mut ids), name, settings, kind: RoomKind::Conference };
        let room = Room::new(now, seed, local, Arc::new(Deaf), Arc::new(Deaf));
        let shared = Shared::plain();
        let mut hall = Self { room, people: VecDeque::new(), crowd, now, shared, ids, keys: 0, came: 0 };
        for n in 0..crowd.people {
            let coming = hall.coming(n < crowd.publishers);
            hall.join(coming);
            hall.read();
        }
        hall
    }

    /// Builds the transports of one more person, as the blocking pool does.
    pub fn coming(&mut self, publishes: bool) -> Coming {
        self.came += 1;
        let purpose = Purpose::Publish { audio: Source::Microphone, video: Source::Camera };
        let publishing = publishes.then(|| self.attach(purpose, offer("sendonly", self.crowd.sound, 1)).0);
        let (playing, answer) = self.attach(Purpose::Play { only: None }, offer("recvonly", true, self.crowd.pairs));
        Coming { publishing, playing, answer }
    }

    fn attach(&mut self, purpose: Purpose, offer: String) -> (Attach, oneshot::Receiver<Result<Attached, Refusal>>) {
        let (role, door) = match purpose {
            Purpose::Publish { .. } => (Role::Publish, Door::Whip),
            Purpose::Play { .. } => (Role::Play, Door::Whep),
        };
        let candidates = [std::net::SocketAddr::from(([192, 0, 2, 1], 7_882))];
        let accept = Accept { role, candidates: &candidates, offer: &offer };
        let Ok((transport, _)) = Transport::accept(self.now, &self.shared, accept) else { panic!("an offer: {offer}") };
        let (reply, answer) = Reply::pair();
        let Ok(identity) = format!("p{}", self.came).parse() else { unreachable!("an identity") };
        let attach = Attach {
            id: TransportId::generate(&mut self.ids),
            identity,
            name: None,
            guest: true,
            door,
            purpose,
            kind: None,
            transport,
            etag: String::new(),
            asked_at: self.now,
            span: tracing::Span::none(),
            reply,
        };
        (attach, answer)
    }

    /// One more person comes, publishes, watches, and opens an event stream, as the page does.
    pub fn join(&mut self, coming: Coming) {
        let Coming { publishing, playing, mut answer } = coming;
        let publishes = publishing.is_some();
        if let Some(attach) = publishing {
            self.tell(RoomMsg::Attach(Box::new(attach)));
        }
        self.tell(RoomMsg::Attach(Box::new(playing)));
        let Ok(Ok(attached)) = answer.try_recv() else { panic!("let in") };
        let session = attached.session;
        let feed = self.ask(|reply| RoomMsg::Events { me: Some(session), after: None, reply });
        let Ok(feed) = feed else { panic!("a stream for everybody") };
        self.people.push_back(Person { session, track: None, events: feed.next });
        let codecs: &[Codec] = match (publishes, self.crowd.sound) {
            (false, _) => &[],
            (true, false) => &[Codec::Vp8],
            (true, true) => &[Codec::Opus, Codec::Vp8],
        };
        for codec in codecs {
            let track = TrackKey(self.keys);
            self.keys += 1;
            self.tell(RoomMsg::TrackStarted { session, track, codec: *codec });
        }
        // Its picture was published last.
        if let Some(me) = self.people.back_mut() {
            let published = |numbered: Numbered| match &*numbered.event {
                RoomEvent::TrackPublished { track, .. } => Some(track.id),
                _ => None,
            };
            me.track = std::iter::from_fn(|| me.events.try_recv().ok()).filter_map(published).last();
        }
    }

    /// The one who has been here longest goes.
    pub fn leave(&mut self) {
        let Some(person) = self.people.pop_front() else { panic!("nobody is left") };
        let (session, reason) = (person.session, LeaveReason::ClientLeft);
        let transports = if person.track.is_some() { 0..2 } else { 0..1 };
        for transport in transports {
            let stats = TransportStats::default();
            self.tell(RoomMsg::TransportEnded { session, transport, reason, stats });
        }
    }

    /// Somebody mutes its picture, or shows it again.
    pub fn mute(&mut self, person: usize, muted: bool) {
        let (session, track) = (self.people[person].session, self.people[person].track);
        let Some(track) = track else { panic!("person {person} publishes nothing") };
        let patch = SessionPatch { muted: [(track, muted)].into(), ..SessionPatch::default() };
        let done = self.ask(|reply| RoomMsg::PatchSession(session, patch, reply));
        assert!(done.is_ok(), "{done:?}");
    }

    /// A viewer wants to see these people and nobody else, or everybody.
    pub fn wish(&mut self, viewer: usize, only: Option<std::ops::Range<usize>>) {
        let wish = |(n, track): (usize, TrackId)| Wish {
            track,
            paused: only.as_ref().is_some_and(|only| !only.contains(&n)),
            width_px: None,
            height_px: None,
            fps_max: None,
            priority: None,
        };
        let tracks = self.people.iter().enumerate().filter_map(|(n, p)| Some((n, p.track?)));
        let wishes = tracks.map(wish).collect();
        let session = self.people[viewer].session;
        let done = self.ask(|reply| RoomMsg::Wish(session, wishes, reply));
        assert!(done.is_ok(), "{done:?}");
    }

    /// Everybody reads what happened; how many events that were.
    pub fn read(&mut self) -> usize {
        let streams = self.people.iter_mut();
        streams.map(|person| std::iter::from_fn(|| person.events.try_recv().ok()).count()).sum()
    }

    fn tell(&mut self, msg: RoomMsg) {
        self.room.receive(self.now, msg);
    }

    fn ask<T>(&mut self, make: impl FnOnce(Reply<T>) -> RoomMsg) -> T {
        let (reply, mut answer) = Reply::pair();
        self.tell(make(reply));
        let Ok(answer) = answer.try_recv() else { panic!("a room answers at once") };
        answer
    }
}

/// An offer of pairs of sound and picture, or of pictures alone.
fn offer(direction: &str, sound: bool, pairs: usize) -> String {
    let kinds = if sound { &[Kind::Audio, Kind::Video][..] } else { &[Kind::Video] };
    let sections: Vec<Kind> = (0..pairs).flat_map(|_| kinds).copied().collect();
    let mids: Vec<String> = (0..sections.len()).map(|mid| mid.to_string()).collect();
    let mut sdp = format!(
        "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE {}\r\na=ice-ufrag:peer\r\n\
         a=ice-pwd:peerpeerpeerpeerpeerpeer\r\na=fingerprint:sha-256 {}\r\na=setup:actpass\r\n",
        mids.join(" "),
        ["AB"; 32].join(":")
    );
    for (kind, mid) in sections.iter().zip(&mids) {
        let (media, format) = match kind {
            Kind::Audio => ("audio 9 UDP/TLS/RTP/SAVPF 111", "a=rtpmap:111 opus/48000/2"),
            Kind::Video => ("video 9 UDP/TLS/RTP/SAVPF 96", "a=rtpmap:96 VP8/90000\r\na=rtcp-fb:96 nack pli"),
        };
        sdp += &format!(
            "m={media}\r\nc=IN IP4 0.0.0.0\r\na=mid:{mid}\r\na={direction}\r\na=rtcp-mux\r\n\
             a=extmap:1 urn:ietf:params:rtp-hdrext:sdes:mid\r\n{format}\r\n"
        );
    }
    sdp
}
