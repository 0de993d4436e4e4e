//! Simulcast end to end: layers come, go and are chosen, and no decoder notices.

use crate::layered::{Got, Layered, RIDS};
use crate::world::{ask, enter, ms, play, publish, secs, sim};
use rondo_actors::api::{EventFeed, RoomEvent, TransportStats, Wish};
use rondo_actors::port::Port;
use rondo_actors::room::RoomMsg;
use rondo_actors::session::SessionMsg;
use rondo_actors::sim::{Link, Sim};
use rondo_actors::supervisor::SupervisorMsg;
use rondo_media::codec::Kind;
use rondo_media::ids::{SessionId, TrackId};
use rondo_media::transport::Shared;
use std::time::{Duration, Instant};

fn lan() -> Link {
    Link { delay: ms(20), ..Link::default() }
}

/// A room with publishers and viewers, spoken to as the doors do it.
struct Stage {
    sim: Sim<Layered>,
    shared: Shared,
    next: u8,
    /// Layers that no page gets going.
    broken: [bool; 3],
}

struct Person {
    client: usize,
    session: SessionId,
}

impl Stage {
    fn new(seed: u64) -> Self {
        Self { sim: sim(seed), shared: Shared::plain(), next: 1, broken: [false; 3] }
    }

    fn join(&mut self, publishes: bool, link: Link) -> Person {
        self.next += 1;
        let (n, now, server) = (self.next, self.sim.now(), self.sim.server(0));
        let who = format!("p{n}");
        let join = match publishes {
            true => publish("stage", &who, Layered::offer_to_speak()),
            false => play("stage", &who, Layered::offer_to_play(2)),
        };
        let joined = enter(&mut self.sim, &self.shared, join).expect("let in");
        let mut client = Layered::new(n, now);
        match publishes {
            true => client.publish(server, &joined),
            false => client.play(server, &joined),
        }
        Person { client: self.sim.connect(client, link, link), session: joined.session }
    }

    fn room(&mut self) -> Port<RoomMsg> {
        let supervisor = self.sim.supervisor();
        let name = "stage".parse().expect("a name");
        ask(&mut self.sim, &supervisor, |reply| SupervisorMsg::Find(name, reply)).expect("an open room")
    }

    fn tracks(&mut self) -> Vec<TrackId> {
        let room = self.room();
        let info = ask(&mut self.sim, &room, RoomMsg::Info);
        let tracks = info.participants.iter().flat_map(|p| &p.tracks).filter(|track| track.kind == Kind::Video);
        tracks.map(|track| track.id).collect()
    }

    fn wish(&mut self, viewer: &Person, wish: Wish) {
        let (room, session) = (self.room(), viewer.session);
        let done = ask(&mut self.sim, &room, |reply| RoomMsg::Wish(session, vec![wish], reply));
        done.expect("a wish that is taken");
    }

    fn feed(&mut self, of: &Person) -> EventFeed {
        let (room, me) = (self.room(), Some(of.session));
        ask(&mut self.sim, &room, |reply| RoomMsg::Events { me, after: None, reply }).expect("a stream")
    }

    fn stats(&mut self, of: &Person) -> TransportStats {
        let room = self.room();
        let sessions = ask(&mut self.sim, &room, RoomMsg::Sessions);
        let (_, port) = sessions.into_iter().find(|(info, _)| info.participant.session == of.session).expect("in");
        ask(&mut self.sim, &port, SessionMsg::Stats).remove(0)
    }

    /// Runs, with a page beside each publisher that sends what it is told somebody wants.
    fn run_with_pages(&mut self, time: Duration, pages: &mut [(&Person, EventFeed)]) {
        let end = self.sim.now() + time;
        while self.sim.now() < end {
            self.sim.run(ms(10));
            for (person, feed) in &mut *pages {
                while let Ok(numbered) = feed.next.try_recv() {
                    let RoomEvent::LayersWanted { layers, .. } = &*numbered.event else { continue };
                    assert!(layers.iter().map(|layer| layer.rid.as_deref()).eq(RIDS.map(Some)));
                    for (n, layer) in layers.iter().enumerate() {
                        self.sim.client(person.client).activate(n, layer.wanted && !self.broken[n]);
                    }
                }
            }
        }
    }

    /// The sections of a viewer that got anything.
    fn got(&mut self, viewer: &Person) -> Vec<&Got> {
        self.sim.client(viewer.client).got.values().filter(|got| !got.packets.is_empty()).collect()
    }

    /// The layer that the one section of a viewer shows.
    fn layer(&mut self, viewer: &Person) -> Option<u8> {
        let got = self.got(viewer);
        assert_eq!(got.len(), 1);
        got[0].layer()
    }
}

fn shown_at(track: TrackId, height_px: Option<u32>) -> Wish {
    Wish { track, paused: false, width_px: None, height_px, fps_max: None, priority: None }
}

#[test]
fn sim_a_hundred_switches_that_no_decoder_notices() {
    for seed in 0..3 {
        let mut stage = Stage::new(seed);
        let link = Link { jitter: ms(8), ..lan() };
        let (_ann, bob, cid) = (stage.join(true, link), stage.join(false, link), stage.join(false, lan()));
        stage.sim.run(secs(3));
        assert_eq!(stage.layer(&bob), Some(2), "the best there is");
        let track = stage.tracks()[0];
        let heights = [180, 720, 360, 180, 360, 720];
        for n in 0..100 {
            stage.wish(&bob, shown_at(track, Some(heights[n % heights.len()])));
            // Longer than key frames on request are apart.
            let pause = ms(600) + stage.sim.random().below(ms(700));
            stage.sim.run(pause);
        }
        stage.sim.run(secs(3));
        for (viewer, switches) in [(&bob, 100), (&cid, 0)] {
            let got = stage.got(viewer);
            got[0].check(&format!("seed {seed}"));
            assert!((switches..=switches + 2).contains(&got[0].switches()), "{} switches", got[0].switches());
        }
        assert_eq!(stage.sim.panics(), 0);
    }
}

/// Heard twice: the same run from the same seed, switches and all.
#[test]
fn sim_equal_seeds_give_equal_switches() {
    let run = || {
        let mut stage = Stage::new(9);
        stage.sim.keep_log();
        let bad = Link { loss: 0.03, jitter: ms(30), ..lan() };
        let (_ann, bob) = (stage.join(true, bad), stage.join(false, bad));
        stage.sim.run(secs(2));
        let track = stage.tracks()[0];
        for height in [180, 360, 720, 180] {
            stage.wish(&bob, shown_at(track, Some(height)));
            stage.sim.run(secs(1));
        }
        stage.sim.log().to_vec()
    };
    let (first, second) = (run(), run());
    assert!(first.len() > 3_000 && first == second);
}

#[test]
fn sim_sixty_joins_in_a_second_cost_two_key_frames_a_layer() {
    let mut stage = Stage::new(4);
    let ann = stage.join(true, lan());
    let first = stage.join(false, lan());
    stage.sim.run(secs(5));
    let track = stage.tracks()[0];
    let before = stage.sim.client(ann.client).key_frames();
    let mut viewers: Vec<(Person, Instant)> = Vec::new();
    for n in 0..60 {
        let viewer = stage.join(false, lan());
        stage.wish(&viewer, shown_at(track, [Some(180), Some(360), None][n % 3]));
        viewers.push((viewer, stage.sim.now()));
        stage.sim.run(Duration::from_micros(16_600));
    }
    stage.sim.run(secs(3));
    let after = stage.sim.client(ann.client).key_frames();
    let made: Vec<u32> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
    assert!(made.iter().all(|made| (1..=2).contains(made)), "{made:?} key frames");
    let mut waited = Duration::ZERO;
    for (n, (viewer, joined)) in viewers.iter().enumerate() {
        assert_eq!(stage.layer(viewer), Some((n % 3) as u8), "viewer {n}");
        let got = stage.got(viewer);
        got[0].check(&format!("viewer {n}"));
        waited = waited.max(got[0].first_since(*joined).expect("a picture").at - *joined);
    }
    assert!(waited < ms(1_300), "{waited:?}");
    stage.got(&first)[0].check("who was there before");
}

/// The page stops what nobody wants. Shown again, the first frame is there within a second, and at the right layer.
#[test]
fn sim_all_video_hidden_and_shown() {
    let mut stage = Stage::new(5);
    let (ann, bob, cid) = (stage.join(true, lan()), stage.join(false, lan()), stage.join(false, lan()));
    let feed = stage.feed(&ann);
    let mut pages = [(&ann, feed)];
    stage.run_with_pages(secs(4), &mut pages);
    assert_eq!(stage.sim.client(ann.client).active(), [false, false, true], "both see the best one");
    let track = stage.tracks()[0];
    stage.wish(&cid, shown_at(track, Some(180)));
    stage.run_with_pages(secs(3), &mut pages);
    assert_eq!(stage.sim.client(ann.client).active(), [true, false, true], "at once where wanted");
    assert_eq!((stage.layer(&bob), stage.layer(&cid)), (Some(2), Some(0)));
    for round in 0..3 {
        for viewer in [&bob, &cid] {
            stage.wish(viewer, Wish { paused: true, ..shown_at(track, None) });
        }
        stage.run_with_pages(ms(1_500), &mut pages);
        assert!(stage.sim.client(ann.client).active()[2], "who turns back finds it still there");
        stage.run_with_pages(ms(8_500), &mut pages);
        assert_eq!(stage.sim.client(ann.client).active(), [false; 3], "round {round}");
        let shown = stage.sim.now();
        stage.wish(&bob, shown_at(track, None));
        stage.wish(&cid, shown_at(track, Some(180)));
        stage.run_with_pages(secs(5), &mut pages);
        for (viewer, layer) in [(&bob, 2), (&cid, 0)] {
            let first = stage.got(viewer)[0].first_since(shown).expect("a picture");
            assert!(first.at - shown <= ms(300), "round {round}: {:?}", first.at - shown);
            assert_eq!(stage.layer(viewer), Some(layer));
            stage.got(viewer)[0].check("shown again");
        }
    }
    let stats = stage.stats(&ann);
    let wanted: Vec<(Option<&str>, bool)> = stats.layers.iter().map(|l| (l.rid.as_deref(), l.wanted)).collect();
    assert_eq!(wanted, [(Some("q"), true), (Some("h"), false), (Some("f"), true)]);
}

/// A layer that ends without a word: whoever saw it sees another one, and the layer again when it is back.
#[test]
fn sim_a_layer_that_vanishes_and_comes_back() {
    let mut stage = Stage::new(6);
    let (ann, bob) = (stage.join(true, lan()), stage.join(false, lan()));
    stage.sim.run(secs(3));
    for (layer, falls_to) in [(2, 1), (1, 0)] {
        stage.sim.client(ann.client).activate(layer, false);
        let gone = stage.sim.now();
        stage.sim.run(secs(3));
        assert_eq!(stage.layer(&bob), Some(falls_to));
        let next = stage.got(&bob)[0].first_since(gone + ms(100)).expect("a picture");
        assert!(next.at - gone < ms(900), "{:?} without a picture", next.at - gone);
        let stats = stage.stats(&ann);
        let coming: Vec<bool> = stats.layers.iter().map(|layer| layer.available).collect();
        assert_eq!(coming.iter().filter(|coming| **coming).count(), layer, "{coming:?}");
    }
    for (layer, at) in [(1, 1), (2, 2)] {
        stage.sim.client(ann.client).activate(layer, true);
        stage.sim.run(secs(2));
        assert_eq!(stage.layer(&bob), Some(at));
    }
    stage.got(&bob)[0].check("through all of it");
    let stats = stage.stats(&bob);
    let shown = &stats.subscriptions[0];
    assert_eq!((shown.layer.as_deref(), shown.flowing, shown.paused), (Some("f"), true, false));
}

/// A publisher whose link has no room any more for what is wanted, while by our own wish it sends nothing else.
#[test]
fn sim_a_layer_that_does_not_wake_is_replaced_by_the_next_best() {
    let mut stage = Stage::new(11);
    let (ann, bob) = (stage.join(true, lan()), stage.join(false, lan()));
    let feed = stage.feed(&ann);
    let mut pages = [(&ann, feed)];
    stage.run_with_pages(secs(4), &mut pages);
    assert_eq!(stage.sim.client(ann.client).active(), [false, false, true]);
    let track = stage.tracks()[0];
    // Hidden; shown again, the best layer does not come back.
    stage.wish(&bob, Wish { paused: true, ..shown_at(track, None) });
    stage.run_with_pages(secs(10), &mut pages);
    stage.broken[2] = true;
    let shown = stage.sim.now();
    stage.wish(&bob, shown_at(track, None));
    stage.run_with_pages(secs(5), &mut pages);
    let first = stage.got(&bob)[0].first_since(shown).expect("a picture");
    assert!(first.at - shown < ms(1_000), "{:?}", first.at - shown);
    assert_eq!(stage.layer(&bob), Some(1), "the best of those that come");
    stage.broken[2] = false;
    stage.sim.client(ann.client).activate(2, true);
    stage.run_with_pages(secs(6), &mut pages);
    assert_eq!(stage.layer(&bob), Some(2));
    assert_eq!(stage.sim.client(ann.client).active(), [false, false, true]);
    // It ends while it is all there is.
    stage.broken[2] = true;
    stage.sim.client(ann.client).activate(2, false);
    let gone = stage.sim.now();
    stage.run_with_pages(secs(6), &mut pages);
    let next = stage.got(&bob)[0].first_since(gone + ms(100)).expect("a picture");
    assert!(next.at - gone < ms(3_000), "{:?}", next.at - gone);
    stage.got(&bob)[0].check("through all of it");
}

#[test]
fn sim_two_publishers_are_chosen_from_apart() {
    let mut stage = Stage::new(7);
    let (ann, bob, cid) = (stage.join(true, lan()), stage.join(true, lan()), stage.join(false, lan()));
    stage.sim.run(secs(3));
    let tracks = stage.tracks();
    for n in 0..12 {
        stage.wish(&cid, shown_at(tracks[n % 2], Some([180, 360, 720][n % 3])));
        stage.sim.run(ms(900));
    }
    // The last wishes were for 360 and 720.
    stage.sim.run(secs(2));
    let got = stage.got(&cid);
    assert_eq!(got.len(), 2);
    got.iter().for_each(|got| got.check("one of two"));
    let mut layers: Vec<Option<u8>> = got.iter().map(|got| got.layer()).collect();
    layers.sort_unstable();
    assert_eq!(layers, [Some(1), Some(2)]);
    for publisher in [&ann, &bob] {
        let asked = stage.sim.client(publisher.client).asked();
        assert!(asked.iter().all(|asked| *asked <= 10), "{asked:?}");
    }
}

/// 10 % up, repaired; and a viewer's own link that loses 3 %. Whatever was lost fills its place, across switches, too.
#[test]
fn sim_a_lossy_publisher_leaves_no_hole() {
    for seed in 20..24 {
        let mut stage = Stage::new(seed);
        let up = Link { loss: 0.10, jitter: ms(15), duplicate: 0.01, ..lan() };
        let (ann, bob) = (stage.join(true, up), stage.join(false, Link { loss: 0.03, ..lan() }));
        stage.sim.run(secs(3));
        let track = stage.tracks()[0];
        for n in 0..20 {
            stage.wish(&bob, shown_at(track, Some([180, 720, 360][n % 3])));
            stage.sim.run(ms(1_400));
        }
        // The last frames before the end are noticed as lost only by later ones.
        for layer in 0..3 {
            stage.sim.client(ann.client).activate(layer, false);
        }
        stage.sim.run(secs(4));
        let client = stage.sim.client(bob.client);
        let got = client.got.values_mut().find(|got| !got.packets.is_empty()).expect("a picture");
        got.forget_tail(ms(200));
        got.check(&format!("seed {seed}"));
        assert!(got.repaired > 20 && got.switches() >= 15, "{} repairs, {} switches", got.repaired, got.switches());
    }
}

/// Half and a quarter of the frames, and all of them again, without a switch.
#[test]
fn sim_frames_that_are_of_no_use_are_left_out() {
    let mut stage = Stage::new(8);
    let (ann, bob) = (stage.join(true, lan()), stage.join(false, lan()));
    stage.sim.client(ann.client).temporal = true;
    stage.sim.run(secs(4));
    let track = stage.tracks()[0];
    let frames = |stage: &mut Stage, bob: &Person| {
        let now = stage.sim.now();
        let got = stage.got(bob);
        let seen = got[0].packets.values().filter(|seen| now - seen.at <= secs(2));
        let mut frames: Vec<(u32, u8)> = seen.map(|seen| (seen.frame, seen.tid)).collect();
        frames.dedup();
        frames
    };
    for (fps_max, tids, count) in [(None, 0..=2u8, 60), (Some(15), 0..=1, 30), (Some(7), 0..=0, 15), (None, 0..=2, 60)]
    {
        stage.wish(&bob, Wish { fps_max, ..shown_at(track, None) });
        stage.sim.run(secs(4));
        let frames = frames(&mut stage, &bob);
        assert!(frames.iter().all(|(_, tid)| tids.contains(tid)), "{fps_max:?}: {frames:?}");
        assert!(frames.len().abs_diff(count) <= 2, "{fps_max:?}: {} frames in 2 s", frames.len());
    }
    let got = stage.got(&bob);
    got[0].check("left out and back");
    assert!(got[0].switches() <= 2);
}

/// Batches of layers that a viewer does not follow never reach its session: what is forwarded is what is shown.
#[test]
fn sim_a_viewer_costs_one_layer() {
    let mut stage = Stage::new(10);
    let (_ann, bob) = (stage.join(true, lan()), stage.join(false, lan()));
    stage.sim.run(secs(3));
    let track = stage.tracks()[0];
    stage.wish(&bob, shown_at(track, Some(180)));
    stage.sim.run(secs(2));
    let counters = stage.sim.counters(0);
    let (forwarded, switches) = (counters.rtp_forwarded.get(), counters.layer_switches.get());
    stage.sim.run(secs(10));
    assert!((300..=305).contains(&(counters.rtp_forwarded.get() - forwarded)), "one packet a frame");
    assert_eq!(counters.layer_switches.get(), switches);
}

/// Two are shown alike, and the viewer's path takes a better layer of one of them: that of who speaks.
#[test]
fn sim_who_speaks_is_seen_better() {
    for speaks in [0, 1] {
        let mut stage = Stage::new(30);
        let people = [stage.join(true, lan()), stage.join(true, lan())];
        let eve = stage.join(false, lan());
        stage.sim.run(secs(3));
        let now = stage.sim.now();
        stage.sim.client(people[speaks].client).speak(now);
        for _ in 0..8 {
            // Layers take some 180, 370 and 930 kbit/s with their headers.
            stage.sim.client(eve.client).takes(620_000);
            stage.sim.run(secs(1));
        }
        let stats = stage.stats(&eve);
        let tracks: Vec<_> = stats.subscriptions.iter().map(|s| (s.track, s.layer.as_deref())).collect();
        let better: Vec<_> = tracks.iter().filter(|(_, layer)| *layer == Some("h")).collect();
        assert_eq!(better.len(), 1, "{tracks:?}");
        let room = stage.room();
        let info = ask(&mut stage.sim, &room, RoomMsg::Info);
        let speaker = info.participants.iter().find(|p| p.session == people[speaks].session).expect("in");
        assert!(speaker.tracks.iter().any(|track| track.id == better[0].0), "{tracks:?}");
    }
}
