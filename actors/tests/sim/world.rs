//! A simulated node with defaults, and joins as the doors do them.

use rondo_actors::api::{Door, Join, Joined, Limits, Purpose, Refusal, RoomTimes, Source, VideoCaps};
use rondo_actors::port::Reply;
use rondo_actors::room::{Attach, RoomMsg};
use rondo_actors::sim::{Client, Sim};
use rondo_actors::supervisor::SupervisorMsg;
use rondo_media::sdp::Offer;
use rondo_media::transport::{Accept, Role, Shared, Transport};
use std::time::{Duration, Instant};

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub fn limits() -> Limits {
    Limits {
        participants_per_room: 500,
        rooms: 100,
        sessions_per_worker: 1_000,
        transports_per_session: 8,
        event_streams_per_room: 16,
        join_deadline: secs(15),
        silent_after: secs(5),
        gone_after: secs(15),
        video: VideoCaps::default(),
    }
}

pub fn times() -> RoomTimes {
    RoomTimes { empty_timeout: secs(300), departure_timeout: secs(20) }
}

pub fn sim<C: Client>(seed: u64) -> Sim<C> {
    Sim::new(seed, 1, &limits(), &times(), Instant::now())
}

pub fn publish(room: &str, identity: &str, offer: String) -> Join {
    let purpose = Purpose::Publish { audio: Source::Microphone, video: Source::Camera };
    join(room, identity, Door::Whip, purpose, offer)
}

pub fn play(room: &str, identity: &str, offer: String) -> Join {
    join(room, identity, Door::Whep, Purpose::Play { only: None }, offer)
}

fn join(room: &str, identity: &str, door: Door, purpose: Purpose, offer: String) -> Join {
    Join {
        room: room.parse().expect("a room name"),
        identity: identity.parse().expect("an identity"),
        name: None,
        guest: true,
        door,
        purpose,
        kind: None,
        offer,
    }
}

/// Asks an actor and runs the node until it has answered, in no virtual time.
pub fn ask<C: Client, M, T>(
    sim: &mut Sim<C>,
    port: &rondo_actors::port::Port<M>,
    make: impl FnOnce(Reply<T>) -> M,
) -> T {
    let (reply, mut answer) = Reply::pair();
    assert!(port.tell(make(reply)).is_ok(), "the actor takes messages");
    sim.settle();
    answer.try_recv().expect("an answer without waiting")
}

/// What `Node::join` does, in virtual time.
pub fn enter<C: Client>(sim: &mut Sim<C>, shared: &Shared, join: Join) -> Result<Joined, Refusal> {
    let supervisor = sim.supervisor();
    Offer::parse(&join.offer).map_err(|e| Refusal::SdpMalformed(e.to_string()))?;
    let room = join.room.clone();
    let admitted = ask(sim, &supervisor, |reply| SupervisorMsg::Admit { room, reply })?;
    let role = match join.purpose {
        Purpose::Publish { .. } => Role::Publish,
        Purpose::Play { .. } => Role::Play,
    };
    let candidates = [sim.server(admitted.worker)];
    let accept = Accept { role, candidates: &candidates, offer: &join.offer };
    let (transport, answer) =
        Transport::accept(sim.now(), shared, accept).map_err(|e| Refusal::SdpMalformed(e.to_string()))?;
    let (room, kind, worker) = (join.room, join.kind, admitted.worker);
    let port = ask(sim, &supervisor, |reply| SupervisorMsg::Enter { room, kind, worker, reply })?;
    let etag = transport.local_ufrag().to_owned();
    let asked_at = sim.now();
    let attached = ask(sim, &port, |reply| {
        RoomMsg::Attach(Box::new(Attach {
            id: admitted.transport,
            identity: join.identity,
            name: join.name,
            guest: join.guest,
            door: join.door,
            purpose: join.purpose,
            kind: join.kind,
            transport,
            etag: etag.clone(),
            asked_at,
            span: tracing::Span::none(),
            reply,
        }))
    })?;
    let msids: Vec<(usize, &str, &str)> = attached.msids.iter().map(|(s, who, t)| (*s, &**who, &**t)).collect();
    Ok(Joined { session: attached.session, transport: admitted.transport, answer: answer.finish(&msids), etag })
}
