//! What the tick costs in time, and what it saves in sends.

use crate::plain::Plain;
use crate::world::{enter, ms, play, publish, secs, sim};
use rondo_actors::sim::{Link, Sim};
use rondo_media::transport::Shared;
use std::time::{Duration, Instant};

/// How often a publisher sends.
const EVERY: Duration = Duration::from_millis(20);
/// Both ways together.
const LINKS: Duration = Duration::from_millis(2);

struct Talk {
    sim: Sim<Plain>,
    listeners: Vec<usize>,
    /// When each speaker said its first word.
    began: Vec<Instant>,
}

/// `speakers` who begin 2 ms one after another, and as many listeners of all of them.
fn talk(speakers: u32, how_long: Duration) -> Talk {
    let mut sim = sim::<Plain>(11);
    let shared = Shared::plain();
    let link = Link { delay: ms(1), ..Link::default() };
    let mut listeners = Vec::new();
    for n in 0..speakers {
        let joined =
            enter(&mut sim, &shared, play("r", &format!("listener{n}"), Plain::offer_to_play(speakers as usize)));
        let mut client = Plain::new(100 + n as u8, sim.now());
        client.play(sim.server(0), &joined.expect("let in"));
        listeners.push(sim.connect(client, link, link));
    }
    sim.run(secs(1));
    let mut began = Vec::new();
    for n in 0..speakers {
        let joined = enter(&mut sim, &shared, publish("r", &format!("speaker{n}"), Plain::offer_to_publish()));
        let (now, server) = (sim.now(), sim.server(0));
        let mut client = Plain::new(n as u8, now);
        client.publish(now, server, &joined.expect("let in"), n);
        began.push(now + client.sound_only());
        sim.connect(client, link, link);
        sim.run(ms(2));
    }
    sim.run(how_long);
    Talk { sim, listeners, began }
}

impl Talk {
    /// How much longer than the links need each packet took that was said in the last second, shortest first. Every
    /// listener has every packet, once.
    fn added(&mut self) -> Vec<Duration> {
        let end = self.sim.now();
        let mut added = Vec::new();
        for listener in &self.listeners {
            let client = self.sim.client(*listener);
            for stream in client.incoming.values().filter(|stream| stream.received() > 0) {
                assert_eq!((stream.lost(), stream.duplicates), (0, 0));
                for ((who, number), at) in &stream.arrived {
                    let said = self.began[*who as usize] + EVERY * *number;
                    if said + secs(1) > end {
                        added.push(*at - said - LINKS);
                    }
                }
            }
        }
        added.sort();
        added
    }
}

#[test]
fn sim_a_small_room_waits_for_no_tick() {
    let mut talk = talk(3, secs(3));
    let added = talk.added();
    // 3 speakers · 50 packets · 3 listeners, less those still on their way.
    assert!((440..=450).contains(&added.len()), "{} packets", added.len());
    assert_eq!(added.last(), Some(&Duration::ZERO));
}

/// 10 · 50 packets a second in and ten times as many out are above the threshold: each tick of 4 ms takes the packets
/// of two speakers, who began 2 ms apart, and most pairs are of one size and so one send.
#[test]
fn sim_a_large_room_is_served_on_the_tick_and_nothing_waits_longer() {
    let mut talk = talk(10, secs(3));
    let (runs, datagrams) = {
        let counters = talk.sim.counters(0);
        let before = (counters.runs_sent.get(), counters.rtp_forwarded.get());
        talk.sim.run(secs(2));
        (counters.runs_sent.get() - before.0, counters.rtp_forwarded.get() - before.1)
    };
    let added = talk.added();
    assert!((4_900..=5_000).contains(&added.len()), "{} packets", added.len());
    assert!(added.last().is_some_and(|longest| *longest <= ms(4)), "{:?}", added.last());
    assert!((9_900..=10_100).contains(&datagrams), "{datagrams} datagrams");
    assert!(runs * 10 <= datagrams * 7, "{runs} sends of {datagrams} datagrams");
}
