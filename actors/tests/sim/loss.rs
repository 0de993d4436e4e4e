//! A room of four over bad links: nothing recoverable is lost, nothing comes twice, equal seeds give equal runs.

use crate::plain::Plain;
use crate::world::{enter, ms, play, publish, secs, sim};
use rondo_actors::sim::{Link, Sim};
use rondo_media::transport::Shared;

/// 5 % loss, 20 ms with up to 50 ms of jitter (which reorders), 2 % duplicates.
fn bad() -> Link {
    Link { delay: ms(20), jitter: ms(50), loss: 0.05, duplicate: 0.02 }
}

struct Four {
    sim: Sim<Plain>,
    publishers: Vec<usize>,
    players: Vec<usize>,
}

/// Four people who each publish sound and picture and play the room.
///
/// Nothing is duplicated on the way to a player: whatever comes twice there, the server sent twice.
fn four(seed: u64, link: Link) -> Four {
    let mut sim = sim::<Plain>(seed);
    sim.keep_log();
    let shared = Shared::plain();
    let (mut publishers, mut players) = (Vec::new(), Vec::new());
    for n in 0..4u8 {
        let who = format!("p{n}");
        let joined = enter(&mut sim, &shared, publish("four", &who, Plain::offer_to_publish())).expect("let in");
        let (now, server) = (sim.now(), sim.server(0));
        let mut client = Plain::new(10 + n, now);
        client.publish(now, server, &joined, u32::from(n) * 2);
        publishers.push(sim.connect(client, link, link));
        let joined = enter(&mut sim, &shared, play("four", &who, Plain::offer_to_play(3))).expect("let in");
        let mut client = Plain::new(20 + n, now);
        client.play(server, &joined);
        players.push(sim.connect(client, link, Link { duplicate: 0.0, ..link }));
        sim.run(ms(100));
    }
    Four { sim, publishers, players }
}

impl Four {
    fn talk(&mut self) {
        self.sim.run(secs(5));
        for n in self.publishers.clone() {
            self.sim.client(n).stop_media();
        }
        // The tail of a stream is noticed as lost only by later packets; the repairs of the rest come in now.
        self.sim.run(secs(4));
    }
}

#[test]
fn sim_a_room_of_four_over_bad_links_loses_nothing_recoverable() {
    for seed in 0..20 {
        let mut room = four(seed, bad());
        room.talk();
        for (n, player) in room.players.clone().into_iter().enumerate() {
            let client = room.sim.client(player);
            let (mut video, mut repaired) = (0, 0);
            for stream in client.incoming.values() {
                assert_eq!(stream.duplicates, 0, "seed {seed}, player {n}: a payload came twice");
                if stream.numbers.keys().any(|who| who % 2 == 1) {
                    video += stream.received();
                    repaired += stream.repaired;
                    let (first, holes) = (stream.numbers.values().next().and_then(|n| n.first()), stream.holes());
                    assert!(holes.is_empty(), "seed {seed}, player {n}: lost {holes:?}, the first was {first:?}");
                }
            }
            // 3 others × 5 s × 30 frames × 3 packets, less what a lost check or key frame request costs at the start.
            assert!(video > 900, "seed {seed}, player {n}: {video} video packets");
            assert!(repaired > 20, "seed {seed}, player {n}: {repaired} repairs; without them this shows nothing");
        }
        let counters = room.sim.counters(0);
        assert!(counters.rtp_duplicates.get() > 0, "the links duplicate");
        assert!(counters.rtx_sent.get() > 0, "the links lose");
    }
}

#[test]
fn sim_equal_seeds_give_equal_logs_to_the_byte() {
    for seed in 0..20 {
        let run = || {
            let mut room = four(seed, bad());
            room.talk();
            room.sim.log().to_vec()
        };
        let (first, second) = (run(), run());
        assert!(first.len() > 10_000, "seed {seed}: {} lines", first.len());
        let differs = first.iter().zip(&second).position(|(a, b)| a != b);
        assert_eq!((differs, first.len()), (None, second.len()), "seed {seed}: the runs part");
    }
}

#[test]
fn sim_another_seed_gives_another_log() {
    let run = |seed| {
        let mut room = four(seed, bad());
        room.talk();
        room.sim.log().to_vec()
    };
    assert_ne!(run(1), run(2));
}

#[test]
fn sim_a_good_link_needs_no_repair_and_asks_for_few_key_frames() {
    let mut room = four(3, Link { delay: ms(10), ..Link::default() });
    room.talk();
    for player in room.players.clone() {
        for stream in room.sim.client(player).incoming.values() {
            assert_eq!((stream.lost(), stream.duplicates, stream.repaired), (0, 0, 0));
        }
    }
    // The first publisher is asked for those who came after it, the last for nobody: its first frame was one.
    let publishers = room.publishers.clone();
    let asked: Vec<u32> = publishers.into_iter().map(|n| room.sim.client(n).key_frames_asked).collect();
    assert!(asked[0] >= 1 && asked.iter().all(|asked| *asked <= 3), "key frames asked of each: {asked:?}");
    assert_eq!(room.sim.counters(0).rtx_sent.get(), 0);
}
