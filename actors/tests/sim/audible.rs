//! A room where more people can be heard than anybody can listen to.

use crate::plain::Plain;
use crate::world::{enter, ms, play, publish, secs, sim};
use rondo_actors::sim::{Link, Sim};
use rondo_media::audible::Audible;
use rondo_media::transport::Shared;
use std::collections::BTreeSet;

/// People with an open microphone.
const PEOPLE: u32 = 20;
/// One sound of [`Plain`]: 61 bytes, a stamp of 8, and 40 of headers.
const PACKET_BYTES: usize = 109;

/// Everybody publishes sound, one more listens to all of them.
fn meeting(speaks: impl Fn(u32) -> bool) -> (Sim<Plain>, Vec<usize>, usize) {
    let mut sim = sim::<Plain>(12);
    let shared = Shared::plain();
    let link = Link { delay: ms(1), ..Link::default() };
    let joined = enter(&mut sim, &shared, play("r", "listener", Plain::offer_to_play(PEOPLE as usize)));
    let mut client = Plain::new(100, sim.now());
    client.play(sim.server(0), &joined.expect("let in"));
    let listener = sim.connect(client, link, link);
    sim.run(secs(1));
    let people = (0..PEOPLE).map(|n| {
        let joined = enter(&mut sim, &shared, publish("r", &format!("p{n}"), Plain::offer_to_publish()));
        let (now, server) = (sim.now(), sim.server(0));
        let mut client = Plain::new(n as u8, now);
        client.publish(now, server, &joined.expect("let in"), n);
        client.sound_only();
        client.hushed = !speaks(n);
        let who = sim.connect(client, link, link);
        sim.run(ms(1));
        who
    });
    let people = people.collect();
    (sim, people, listener)
}

/// Packets that the listener got of each person so far.
fn heard(sim: &mut Sim<Plain>, listener: usize) -> Vec<usize> {
    let streams = &sim.client(listener).incoming;
    let of = |who| streams.values().filter_map(|stream| stream.numbers.get(&who)).map(BTreeSet::len).sum();
    (0..PEOPLE).map(of).collect()
}

#[test]
fn sim_of_many_open_microphones_the_speakers_are_heard_and_what_is_left_out_is_no_loss() {
    let (mut sim, people, listener) = meeting(|n| n < 3);
    sim.run(secs(4));
    let before = heard(&mut sim, listener);
    sim.run(secs(2));
    let gained: Vec<usize> = heard(&mut sim, listener).iter().zip(&before).map(|(now, then)| now - then).collect();
    assert!(gained[..3].iter().all(|n| (99..=101).contains(n)), "{gained:?}");
    let passed = gained.iter().filter(|n| **n > 0).count();
    assert!(passed <= Audible::MOST, "{passed} sounds are passed on");
    assert_eq!(gained[19], 0, "who came last and says nothing");
    // The one who was left out begins to speak: from the first packet on.
    let before = heard(&mut sim, listener)[19];
    sim.client(people[19]).hushed = false;
    sim.run(secs(1));
    let spoke = heard(&mut sim, listener)[19] - before;
    assert!((49..=51).contains(&spoke), "{spoke} packets in a second");
    let holes: u64 = sim.client(listener).incoming.values().map(|stream| stream.number_holes()).sum();
    assert_eq!(holes, 0, "numbers go on without a hole");
    assert!(sim.counters(0).audio_left_out.get() > 0);
}

#[test]
fn sim_a_flood_of_audio_is_cut_to_what_sound_needs() {
    let (mut sim, people, listener) = meeting(|n| n == 0);
    sim.run(secs(2));
    // Ten packets instead of one are no voice, but what some codec might need.
    sim.client(people[0]).flood = 10;
    let before = heard(&mut sim, listener)[0];
    sim.run(secs(2));
    let passed = heard(&mut sim, listener)[0] - before;
    assert!((990..=1_010).contains(&passed), "{passed} of 1,000 packets");
    assert_eq!(sim.counters(0).audio_over_rate.get(), 0);
    sim.client(people[0]).flood = 80;
    sim.run(secs(2));
    let before = heard(&mut sim, listener)[0];
    sim.run(secs(10));
    let passed = heard(&mut sim, listener)[0] - before;
    let most = 10 * 80_000 / PACKET_BYTES;
    assert!((most - 50..=most + 50).contains(&passed), "{passed} of 40,000 packets, {most} are the rate");
}
