//! The quality rule through a node: who suffers, on which side and what from, is told to everybody.

use crate::plain::Plain;
use crate::world::{ask, enter, ms, play, publish, secs, sim};
use rondo_actors::api::{Numbered, RoomEvent, RoomInfo};
use rondo_actors::port::Port;
use rondo_actors::room::RoomMsg;
use rondo_actors::sim::{Link, Sim};
use rondo_actors::supervisor::SupervisorMsg;
use rondo_media::ids::SessionId;
use rondo_media::quality::Verdict;
use rondo_media::transport::Shared;
use rondo_media::wire::rtcp::{ReportBlock, write_receiver_report};
use std::time::Instant;
use tokio::sync::mpsc::Receiver;

/// A room with one who publishes and one who watches, and its event stream.
struct Room {
    sim: Sim<Plain>,
    shared: Shared,
    port: Port<RoomMsg>,
    events: Receiver<Numbered>,
    ann: usize,
    bob: usize,
    bobs_session: SessionId,
}

fn word(verdict: Option<Verdict>) -> String {
    verdict.map_or_else(String::new, |verdict| match verdict.cause {
        Some(cause) => format!("{} by {}", verdict.quality.label(), cause.label()),
        None => verdict.quality.label().to_owned(),
    })
}

/// Who, up, down.
fn read(events: &mut Receiver<Numbered>) -> Vec<[String; 3]> {
    let mut all = Vec::new();
    while let Ok(numbered) = events.try_recv() {
        if let RoomEvent::Quality { identity, verdicts } = &*numbered.event {
            all.push([identity.to_string(), word(verdicts.up), word(verdicts.down)]);
        }
    }
    all
}

impl Room {
    fn new() -> Self {
        let mut sim = sim::<Plain>(7);
        let shared = Shared::plain();
        let link = Link { delay: ms(20), ..Link::default() };
        let joined = enter(&mut sim, &shared, publish("r", "ann", Plain::offer_to_publish())).expect("let in");
        let mut client = Plain::new(1, sim.now());
        client.publish(sim.now(), sim.server(0), &joined, 0);
        let ann = sim.connect(client, link, link);
        let joined = enter(&mut sim, &shared, play("r", "bob", Plain::offer_to_play(1))).expect("let in");
        let mut client = Plain::new(2, sim.now());
        client.play(sim.server(0), &joined);
        let (bob, bobs_session) = (sim.connect(client, link, link), joined.session);
        let supervisor = sim.supervisor();
        let name = "r".parse().expect("a name");
        let port = ask(&mut sim, &supervisor, |reply| SupervisorMsg::Find(name, reply)).expect("an open room");
        let feed = ask(&mut sim, &port, |reply| RoomMsg::Events { me: None, after: None, reply });
        Self { sim, shared, port, events: feed.expect("open").next, ann, bob, bobs_session }
    }

    /// What everybody was told of qualities so far.
    fn told(&mut self) -> Vec<[String; 3]> {
        read(&mut self.events)
    }

    /// What the viewer hears.
    fn private_feed(&mut self) -> Receiver<Numbered> {
        let me = Some(self.bobs_session);
        ask(&mut self.sim, &self.port.clone(), |reply| RoomMsg::Events { me, after: None, reply }).expect("open").next
    }

    fn info(&mut self) -> RoomInfo {
        ask(&mut self.sim, &self.port.clone(), RoomMsg::Info)
    }

    /// Runs until something is told, and says what, and how many milliseconds after `since`.
    fn next(&mut self, since: Instant) -> (Vec<[String; 3]>, u64) {
        for _ in 0..3_000 {
            self.sim.run(ms(10));
            let told = self.told();
            if !told.is_empty() {
                return (told, (self.sim.now() - since).as_millis() as u64);
            }
        }
        panic!("nothing is told");
    }

    /// The viewer says each second that it lacks so many of a hundred packets of its sound.
    fn report(&mut self, seconds: u64, lost_percent: i32, lost: &mut i32) {
        let ssrc = self.sim.client(self.bob).incoming.iter().find(|(_, s)| !s.has_rtx()).map(|(ssrc, _)| *ssrc);
        let ssrc = ssrc.expect("a section of sound");
        for _ in 0..seconds {
            // 50 packets of sound and some of video: of all that is sent.
            *lost += lost_percent;
            let fraction_lost = (lost_percent * 256 / 100) as u8;
            let (highest_seq, jitter, last_sr, delay_since_last_sr) = (0, 0, 0, 0);
            let block =
                ReportBlock { ssrc, fraction_lost, lost: *lost, highest_seq, jitter, last_sr, delay_since_last_sr };
            self.sim.client(self.bob).say(|out| write_receiver_report(out, 7, &[block]));
            self.sim.run(secs(1));
        }
    }
}

#[test]
fn sim_a_good_call_is_told_of_by_nobody() {
    let mut room = Room::new();
    room.sim.run(secs(30));
    assert_eq!(room.told(), [[""; 3]; 0]);
    let info = room.info();
    let words: Vec<_> = info.participants.iter().map(|p| [word(p.quality.up), word(p.quality.down)]).collect();
    assert_eq!(words, [["", ""], ["", ""]], "who is never told of is well");
}

#[test]
fn sim_a_publisher_that_falls_silent_is_told_of_within_five_seconds_and_again_when_it_is_back() {
    let mut room = Room::new();
    room.sim.run(secs(10));
    let since = room.sim.now();
    let ann = room.ann;
    room.sim.client(ann).vanished = true;
    let (told, after_ms) = room.next(since);
    assert_eq!(told, [["ann", "no_data by silence", ""]]);
    assert!((3_000..=5_000).contains(&after_ms), "{after_ms} ms");
    let info = room.info();
    assert_eq!(word(info.participants[0].quality.up), "no_data by silence", "who comes later sees it, too");
    room.sim.run(secs(4));
    assert!(room.told().is_empty(), "it stays so while nothing comes");
    let since = room.sim.now();
    room.sim.client(ann).vanished = false;
    let (told, after_ms) = room.next(since);
    assert_eq!(told[0][0], "ann");
    assert!(after_ms <= 2_000, "silence ends with the first packet: {after_ms} ms");
}

#[test]
fn sim_a_viewer_that_lacks_packets_is_told_of_and_nobody_else() {
    let mut room = Room::new();
    room.sim.run(secs(10));
    let mut lost = 0;
    let mut private = room.private_feed();
    room.report(10, 20, &mut lost);
    assert_eq!(room.told(), [[""; 3]; 0], "who is neither seen nor heard is nobody else's matter");
    let told = read(&mut private);
    assert_eq!(told.last(), Some(&["bob".to_owned(), String::new(), "poor by loss".to_owned()]), "{told:?}");
    assert!(told.iter().all(|[who, ..]| who == "bob"), "{told:?}");
    // Out of the window in five seconds; then ten to fair, which the last of them was, and ten to good.
    room.report(26, 0, &mut lost);
    assert_eq!(read(&mut private).last(), Some(&["bob".to_owned(), String::new(), "good".to_owned()]));
}

/// Forty publishers vanish at once: what is told is told in turns, and nobody who reads falls behind.
#[test]
fn sim_a_meeting_that_suffers_at_once_is_told_of_in_turns() {
    let mut room = Room::new();
    let link = Link { delay: ms(20), ..Link::default() };
    let mut all = vec![room.ann];
    for n in 20..59u8 {
        let join = publish("r", &format!("p{n}"), Plain::offer_to_publish());
        let joined = enter(&mut room.sim, &room.shared, join).expect("let in");
        let mut client = Plain::new(n, room.sim.now());
        client.publish(room.sim.now(), room.sim.server(0), &joined, u32::from(n));
        all.push(room.sim.connect(client, link, link));
    }
    room.sim.run(secs(10));
    assert!(room.told().is_empty());
    for client in all {
        room.sim.client(client).vanished = true;
    }
    let mut most = 0;
    let mut told = Vec::new();
    for _ in 0..60 {
        room.sim.run(ms(100));
        let now = room.told();
        most = most.max(now.len());
        told.extend(now);
    }
    told.sort();
    told.dedup();
    let silent = told.iter().filter(|[_, up, _]| up == "no_data by silence").count();
    assert_eq!(silent, 40, "{told:?}");
    assert!(most <= 32, "{most} within a tenth of a second");
}
