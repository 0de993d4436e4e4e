//! How sessions and rooms begin and end: deadlines, replacement, a peer that vanishes, a full room.

use crate::plain::Plain;
use crate::world::{ask, enter, limits, ms, play, publish, secs, sim, times};
use rondo_actors::api::{LeaveReason, Refusal, RoomEvent, RoomKind, RoomSettings, SessionPatch, SessionState, Wish};
use rondo_actors::room::RoomMsg;
use rondo_actors::sim::{Link, Sim};
use rondo_actors::supervisor::SupervisorMsg;
use rondo_media::codec::Kind;
use rondo_media::ids::TrackId;
use rondo_media::transport::Shared;
use std::sync::atomic::Ordering;
use std::time::Instant;

fn lan() -> Link {
    Link { delay: ms(1), ..Link::default() }
}

fn publisher(
    sim: &mut Sim<Plain>,
    shared: &Shared,
    room: &str,
    identity: &str,
    n: u8,
) -> (usize, rondo_actors::api::Joined) {
    let joined = enter(sim, shared, publish(room, identity, Plain::offer_to_publish())).expect("let in");
    let (now, server) = (sim.now(), sim.server(0));
    let mut client = Plain::new(n, now);
    client.publish(now, server, &joined, u32::from(n) * 2);
    (sim.connect(client, lan(), lan()), joined)
}

fn player(
    sim: &mut Sim<Plain>,
    shared: &Shared,
    room: &str,
    identity: &str,
    n: u8,
    pairs: usize,
) -> (usize, rondo_actors::api::Joined) {
    let joined = enter(sim, shared, play(room, identity, Plain::offer_to_play(pairs))).expect("let in");
    let mut client = Plain::new(n, sim.now());
    client.play(sim.server(0), &joined);
    (sim.connect(client, lan(), lan()), joined)
}

fn room_port(sim: &mut Sim<Plain>, name: &str) -> Option<rondo_actors::port::Port<RoomMsg>> {
    let supervisor = sim.supervisor();
    ask(sim, &supervisor, |reply| SupervisorMsg::Find(name.parse().expect("a name"), reply))
}

fn left(sim: &Sim<Plain>, reason: LeaveReason) -> u64 {
    let index = LeaveReason::ALL.iter().position(|r| *r == reason).expect("a reason");
    sim.supervisor_counts().left[index].load(Ordering::Relaxed)
}

#[test]
fn sim_a_join_that_never_connects_is_gone_after_its_deadline() {
    let mut sim = sim::<Plain>(1);
    let shared = Shared::plain();
    let joined = enter(&mut sim, &shared, publish("r", "ann", Plain::offer_to_publish())).expect("let in");
    sim.run(limits().join_deadline - ms(10));
    assert_eq!(left(&sim, LeaveReason::JoinTimeout), 0);
    sim.run(ms(20));
    assert_eq!(left(&sim, LeaveReason::JoinTimeout), 1);
    assert_eq!(sim.counters(0).joins_failed.get(), 1);
    let supervisor = sim.supervisor();
    let gone = ask(&mut sim, &supervisor, |reply| SupervisorMsg::Transport(joined.transport, reply));
    assert_eq!(gone.map(|_| ()), Err(Refusal::TransportEnded(joined.transport, LeaveReason::JoinTimeout)));
    sim.run(times().departure_timeout + ms(10));
    assert!(room_port(&mut sim, "r").is_none(), "the empty room has ended");
    assert_eq!(sim.actors(), 1, "only the supervisor is left");
}

#[test]
fn sim_a_room_that_nobody_ever_spoke_to_ends_by_itself() {
    // An app that makes a room and goes, a join that is given up between the room's opening and its own arrival.
    let mut sim = sim::<Plain>(1);
    let supervisor = sim.supervisor();
    let made = ask(&mut sim, &supervisor, |reply| {
        SupervisorMsg::Create("made".parse().expect("a name"), RoomSettings::default(), reply)
    });
    assert!(made.is_ok());
    let entered = ask(&mut sim, &supervisor, |reply| {
        let room = "entered".parse().expect("a name");
        SupervisorMsg::Enter { room, kind: None, worker: 0, reply }
    });
    assert!(entered.is_ok());
    sim.run(times().empty_timeout - ms(10));
    assert_eq!(sim.actors(), 3);
    sim.run(ms(20));
    assert_eq!(sim.actors(), 1, "only the supervisor is left");
    assert!(room_port(&mut sim, "made").is_none());
}

#[test]
fn sim_a_peer_that_vanishes_is_disconnected_then_gone_with_its_tracks() {
    let mut sim = sim::<Plain>(2);
    let shared = Shared::plain();
    let (ann, joined) = publisher(&mut sim, &shared, "r", "ann", 1);
    let (_bob, _) = player(&mut sim, &shared, "r", "bob", 2, 1);
    sim.run(secs(1));
    let room = room_port(&mut sim, "r").expect("open");
    let feed = ask(&mut sim, &room, |reply| RoomMsg::Events { me: None, after: None, reply });
    let mut events = feed.expect("open").next;
    sim.client(ann).vanished = true;
    sim.run(limits().gone_after + secs(1));
    let mut names = Vec::new();
    while let Ok(numbered) = events.try_recv() {
        match &*numbered.event {
            RoomEvent::StreamState { state, .. } => names.push(format!("state {}", state.label())),
            RoomEvent::TrackUnpublished { track, reason, .. } => {
                names.push(format!("{} {reason}", track.source.label()))
            }
            RoomEvent::ParticipantLeft { reason, session, .. } => {
                assert_eq!(*session, joined.session);
                names.push(format!("left {reason}"));
            }
            _ => {}
        }
    }
    names.sort();
    let lost = ["camera connection_lost", "left connection_lost", "microphone connection_lost", "state disconnected"];
    assert_eq!(names, lost);
}

#[test]
fn sim_a_second_publisher_of_the_same_source_takes_the_firsts_place_in_the_same_sections() {
    let mut sim = sim::<Plain>(3);
    let shared = Shared::plain();
    let (_, first) = publisher(&mut sim, &shared, "r", "ann", 1);
    let (bob, _) = player(&mut sim, &shared, "r", "bob", 2, 1);
    sim.run(secs(1));
    let (_, second) = publisher(&mut sim, &shared, "r", "ann", 3);
    assert_eq!(first.session, second.session, "one stay of one participant");
    let supervisor = sim.supervisor();
    let old = ask(&mut sim, &supervisor, |reply| SupervisorMsg::Transport(first.transport, reply));
    assert_eq!(old.map(|_| ()), Err(Refusal::TransportEnded(first.transport, LeaveReason::Replaced)));
    sim.run(secs(1));
    // One pair of sections: both lives of ann's tracks came through it.
    let whos: Vec<Vec<u32>> = sim.client(bob).incoming.values().map(|s| s.numbers.keys().copied().collect()).collect();
    assert_eq!(whos.len(), 2);
    for (who, stream) in whos.iter().zip(sim.client(bob).incoming.values()) {
        assert_eq!(who.len(), 2, "first and second life");
        assert_eq!((stream.lost(), stream.duplicates), (0, 0));
    }
}

#[test]
fn sim_a_viewer_who_came_first_is_served_without_another_offer_and_a_leavers_section_again() {
    let mut sim = sim::<Plain>(4);
    let shared = Shared::plain();
    let (bob, _) = player(&mut sim, &shared, "r", "bob", 2, 1);
    sim.run(secs(1));
    let (_, ann) = publisher(&mut sim, &shared, "r", "ann", 1);
    sim.run(secs(1));
    let (_, _cy) = publisher(&mut sim, &shared, "r", "cy", 3);
    sim.run(secs(1));
    let seen = |sim: &mut Sim<Plain>| {
        let streams = sim.client(bob).incoming.values();
        streams.flat_map(|s| s.numbers.keys().copied()).collect::<std::collections::BTreeSet<u32>>()
    };
    assert_eq!(seen(&mut sim), [2, 3].into(), "ann fills both sections, cy finds none");
    let room = room_port(&mut sim, "r").expect("open");
    let reason = LeaveReason::ClientLeft;
    ask(&mut sim, &room, |reply| RoomMsg::End { transport: ann.transport, reason, reply });
    sim.run(secs(1));
    assert_eq!(seen(&mut sim), [2, 3, 6, 7].into(), "cy has ann's sections now");
}

#[test]
fn sim_a_third_publisher_makes_a_conference_and_nobody_makes_it_a_call_again() {
    let mut sim = sim::<Plain>(5);
    let shared = Shared::plain();
    let mut last = None;
    for (n, who) in ["ann", "bob", "cy"].into_iter().enumerate() {
        let room = room_port(&mut sim, "r");
        let kind = room.map(|room| ask(&mut sim, &room, RoomMsg::Info).kind);
        assert_ne!(kind, Some(RoomKind::Conference));
        last = Some(publisher(&mut sim, &shared, "r", who, n as u8 + 1).1);
        sim.run(secs(1));
    }
    let room = room_port(&mut sim, "r").expect("open");
    assert_eq!(ask(&mut sim, &room, RoomMsg::Info).kind, RoomKind::Conference);
    let transport = last.expect("three came").transport;
    let reason = LeaveReason::ClientLeft;
    ask(&mut sim, &room, |reply| RoomMsg::End { transport, reason, reply });
    sim.run(secs(1));
    let info = ask(&mut sim, &room, RoomMsg::Info);
    assert_eq!((info.kind, info.participants.len()), (RoomKind::Conference, 2));
}

#[test]
fn sim_a_full_room_says_so_and_a_muted_track_is_not_forwarded() {
    let mut few = limits();
    few.participants_per_room = 2;
    let mut sim = Sim::<Plain>::new(6, 1, &few, &times(), Instant::now());
    let shared = Shared::plain();
    let (_, ann) = publisher(&mut sim, &shared, "r", "ann", 1);
    let (bob, _) = player(&mut sim, &shared, "r", "bob", 2, 1);
    let full = enter(&mut sim, &shared, play("r", "cy", Plain::offer_to_play(1)));
    assert!(matches!(full, Err(Refusal::RoomFull { limit: 2, .. })), "{full:?}");
    sim.run(secs(1));
    let room = room_port(&mut sim, "r").expect("open");
    let info = ask(&mut sim, &room, RoomMsg::Info);
    let mut patch = rondo_actors::api::SessionPatch::default();
    for track in &info.participants[0].tracks {
        patch.muted.insert(track.id, true);
    }
    assert_eq!(patch.muted.len(), 2);
    ask(&mut sim, &room, |reply| RoomMsg::PatchSession(ann.session, patch.clone(), reply)).expect("muted");
    sim.run(ms(50));
    let total = |sim: &mut Sim<Plain>| sim.client(bob).incoming.values().map(|s| s.received()).sum::<u64>();
    let before = total(&mut sim);
    sim.run(secs(2));
    assert_eq!(total(&mut sim), before, "nothing of a muted track is sent");
    patch.muted.values_mut().for_each(|muted| *muted = false);
    ask(&mut sim, &room, |reply| RoomMsg::PatchSession(ann.session, patch, reply)).expect("unmuted");
    sim.run(secs(2));
    // Two seconds are 100 packets of sound and 180 of picture, less the wait for a key frame.
    assert!(total(&mut sim) > before + 250);
    let repaired: u64 = sim.client(bob).incoming.values().map(|s| s.repaired).sum();
    assert_eq!(repaired, 0, "the pause left no hole in the sequence");
}

#[test]
fn sim_a_session_that_dies_takes_its_participant_along_and_nobody_else() {
    let mut sim = sim::<Plain>(7);
    let shared = Shared::plain();
    let (_, ann) = publisher(&mut sim, &shared, "r", "ann", 1);
    let (_, cy) = publisher(&mut sim, &shared, "r", "cy", 3);
    let (bob, _) = player(&mut sim, &shared, "r", "bob", 2, 2);
    sim.run(secs(1));
    let room = room_port(&mut sim, "r").expect("open");
    assert!(room.tell(RoomMsg::SessionDied { session: ann.session }).is_ok());
    sim.run(ms(10));
    assert_eq!(left(&sim, LeaveReason::ServerError), 1);
    let supervisor = sim.supervisor();
    let gone = ask(&mut sim, &supervisor, |reply| SupervisorMsg::Transport(ann.transport, reply));
    assert_eq!(gone.map(|_| ()), Err(Refusal::TransportEnded(ann.transport, LeaveReason::ServerError)));
    let of = |sim: &mut Sim<Plain>, who: u32| -> u64 {
        let streams = sim.client(bob).incoming.values();
        streams.filter_map(|s| s.numbers.get(&who)).map(|n| n.len() as u64).sum()
    };
    let (ann_before, cy_before) = (of(&mut sim, 2), of(&mut sim, 6));
    sim.run(secs(1));
    assert!(of(&mut sim, 2) <= ann_before + 1, "nothing of ann comes any more");
    assert!(of(&mut sim, 6) >= cy_before + 45, "cy is heard as before");
    assert_ne!(ann.session, cy.session);
    let (_, again) = publisher(&mut sim, &shared, "r", "ann", 4);
    assert_ne!(again.session, ann.session, "joining again is a new stay");
}

#[test]
fn sim_a_room_that_is_closed_sends_everybody_away_and_takes_nobody_for_dead() {
    let mut sim = sim::<Plain>(17);
    let shared = Shared::plain();
    for n in 1..=12 {
        let who = format!("p{n}");
        publisher(&mut sim, &shared, "r", &who, n);
        player(&mut sim, &shared, "r", &who, n + 20, 6);
    }
    sim.run(secs(1));
    let room = room_port(&mut sim, "r").expect("open");
    let reason = LeaveReason::RoomClosed;
    ask(&mut sim, &room, |reply| RoomMsg::Close { reason, by: None, reply });
    sim.run(secs(1));
    assert_eq!((left(&sim, LeaveReason::RoomClosed), left(&sim, LeaveReason::ServerError)), (12, 0));
    assert_eq!(sim.actors(), 1, "the supervisor");
}

#[test]
fn sim_a_room_that_dies_closes_its_sessions_and_its_name_cools_down_longer_each_time() {
    let mut sim = sim::<Plain>(8);
    let shared = Shared::plain();
    let (_, other) = publisher(&mut sim, &shared, "other", "cy", 9);
    for pause_s in [1, 2, 4] {
        let (_, ann) = publisher(&mut sim, &shared, "r", "ann", pause_s);
        sim.run(secs(1));
        let room = room_port(&mut sim, "r").expect("open");
        let id = ask(&mut sim, &room, RoomMsg::Info).id;
        let supervisor = sim.supervisor();
        assert!(supervisor.tell(SupervisorMsg::RoomDied { room: id }).is_ok());
        sim.settle();
        let gone = ask(&mut sim, &supervisor, |reply| SupervisorMsg::Transport(ann.transport, reply));
        assert_eq!(gone.map(|_| ()), Err(Refusal::TransportEnded(ann.transport, LeaveReason::ServerError)));
        sim.run(secs(u64::from(pause_s)) - ms(20));
        let early = enter(&mut sim, &shared, publish("r", "ann", Plain::offer_to_publish()));
        assert!(matches!(early, Err(Refusal::Busy { retry_after_s: 1 })), "{early:?}");
        sim.run(ms(40));
    }
    let supervisor = sim.supervisor();
    assert!(ask(&mut sim, &supervisor, |reply| SupervisorMsg::Transport(other.transport, reply)).is_ok());
    let counts = sim.supervisor_counts();
    assert_eq!((counts.rooms_died.load(Ordering::Relaxed), counts.restarts.load(Ordering::Relaxed)), (3, 2));
}

#[test]
fn sim_one_silent_connection_of_two_ends_alone_and_wakes_nobody_meanwhile() {
    let mut sim = sim::<Plain>(9);
    let shared = Shared::plain();
    let (_, published) = publisher(&mut sim, &shared, "r", "ann", 1);
    let (playing, played) = player(&mut sim, &shared, "r", "ann", 2, 1);
    assert_eq!(published.session, played.session);
    sim.run(secs(1));
    let lost = Link { loss: 1.0, ..lan() };
    sim.relink(playing, lost, lost);
    // Time goes on at all only if no deadline stays in the past.
    sim.keep_log();
    sim.run(limits().gone_after - secs(2));
    let woken = sim.log().iter().filter(|line| line.contains("wake w0 liveness")).count();
    assert!(woken <= 4, "{woken} wake-ups for one silence");
    let room = room_port(&mut sim, "r").expect("open");
    let state = ask(&mut sim, &room, RoomMsg::Info).participants[0].state;
    assert_eq!(state, SessionState::Connected, "the other connection is heard");
    sim.run(secs(3));
    let supervisor = sim.supervisor();
    let of = |sim: &mut Sim<Plain>, id| ask(sim, &supervisor, |reply| SupervisorMsg::Transport(id, reply)).map(|_| ());
    assert_eq!(
        of(&mut sim, played.transport),
        Err(Refusal::TransportEnded(played.transport, LeaveReason::ConnectionLost))
    );
    assert_eq!(of(&mut sim, published.transport), Ok(()));
}

#[test]
fn sim_missing_sections_are_told_up_and_down_and_a_live_push_makes_an_open_room_live() {
    let mut sim = sim::<Plain>(10);
    let shared = Shared::plain();
    let (_, bob) = player(&mut sim, &shared, "r", "bob", 2, 1);
    let room = room_port(&mut sim, "r").expect("open");
    let feed = ask(&mut sim, &room, |reply| RoomMsg::Events { me: Some(bob.session), after: None, reply });
    let mut events = feed.expect("open").next;
    let mut missing = Vec::new();
    let (_, ann) = publisher(&mut sim, &shared, "r", "ann", 1);
    sim.run(secs(1));
    let (_, cy) = publisher(&mut sim, &shared, "r", "cy", 3);
    sim.run(secs(1));
    for transport in [cy.transport, ann.transport] {
        let reason = LeaveReason::ClientLeft;
        ask(&mut sim, &room, |reply| RoomMsg::End { transport, reason, reply });
        sim.run(secs(1));
    }
    while let Ok(numbered) = events.try_recv() {
        if let RoomEvent::SectionsFull { missing: n, .. } = &*numbered.event {
            missing.push(*n);
        }
    }
    assert_eq!(missing, [1, 2, 1, 0]);
    let mut push = publish("r", "obs", Plain::offer_to_publish());
    push.kind = Some(RoomKind::Live);
    enter(&mut sim, &shared, push).expect("let in");
    assert_eq!(ask(&mut sim, &room, RoomMsg::Info).kind, RoomKind::Live);
}

#[test]
fn sim_a_section_goes_to_what_its_viewer_wants_to_see_and_hear() {
    let mut sim = sim::<Plain>(10);
    let shared = Shared::plain();
    let (_, bob) = player(&mut sim, &shared, "r", "bob", 3, 1);
    let room = room_port(&mut sim, "r").expect("open");
    let feed = ask(&mut sim, &room, |reply| RoomMsg::Events { me: Some(bob.session), after: None, reply });
    let mut events = feed.expect("open").next;
    // Who the one pair shows, as the viewer is told: (section's identity by kind, tracks missed).
    let mut told = |sim: &mut Sim<Plain>| {
        sim.run(secs(1));
        let mut news = Vec::new();
        while let Ok(numbered) = events.try_recv() {
            match &*numbered.event {
                RoomEvent::SectionAssigned(section) => {
                    news.push(section.identity.as_ref().map_or_else(|| "nobody".to_owned(), ToString::to_string));
                }
                RoomEvent::SectionsFull { missing, .. } => news.push(missing.to_string()),
                _ => {}
            }
        }
        news
    };
    let (_, ann) = publisher(&mut sim, &shared, "r", "ann", 1);
    assert_eq!(told(&mut sim), ["ann", "ann"]);
    let (_, cy) = publisher(&mut sim, &shared, "r", "cy", 2);
    assert_eq!(told(&mut sim), ["1", "2"], "cy's sound and picture find no section");

    let tracks = |sim: &mut Sim<Plain>, identity: &str| {
        let info = ask(sim, &room, RoomMsg::Info);
        let participant = info.participants.into_iter().find(|p| p.identity.to_string() == identity).expect("in");
        let of = |kind| participant.tracks.iter().find(|t| t.kind == kind).expect("published").id;
        (of(Kind::Audio), of(Kind::Video))
    };
    let ((ann_audio, ann_video), (_, cy_video)) = (tracks(&mut sim, "ann"), tracks(&mut sim, "cy"));
    let wish = |sim: &mut Sim<Plain>, wishes: &[(TrackId, bool)]| {
        let wish = |(track, paused): &(TrackId, bool)| Wish {
            track: *track,
            paused: *paused,
            width_px: None,
            height_px: None,
            fps_max: None,
            priority: None,
        };
        let wishes = wishes.iter().map(wish).collect();
        ask(sim, &room, |reply| RoomMsg::Wish(bob.session, wishes, reply)).expect("taken");
    };
    wish(&mut sim, &[(ann_video, true)]);
    assert_eq!(told(&mut sim), ["cy", "1"], "cy's picture takes the section of ann's, which is not wanted");
    wish(&mut sim, &[(cy_video, true), (ann_video, false)]);
    assert_eq!(told(&mut sim), ["ann"], "and back: cy's picture is not missed any more, cy's sound still is");
    wish(&mut sim, &[(cy_video, false)]);
    assert_eq!(told(&mut sim), ["2"], "what is shown is not taken away");

    let mute = |sim: &mut Sim<Plain>, muted: bool| {
        let patch = SessionPatch { muted: [(ann_audio, muted)].into(), ..SessionPatch::default() };
        ask(sim, &room, |reply| RoomMsg::PatchSession(ann.session, patch, reply)).expect("muted");
    };
    mute(&mut sim, true);
    assert_eq!(told(&mut sim), ["cy", "1"], "a muted microphone gives its section to one that is heard");
    mute(&mut sim, false);
    assert_eq!(told(&mut sim), ["2"], "ann is missed when she can be heard again");
    let (transport, reason) = (cy.transport, LeaveReason::ClientLeft);
    ask(&mut sim, &room, |reply| RoomMsg::End { transport, reason, reply });
    assert_eq!(told(&mut sim), ["nobody", "ann", "1", "0"], "cy's sections are free: ann is heard");
}
