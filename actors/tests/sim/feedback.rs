//! What viewers report: storms of key frame requests (case rtcp-05), estimates at the edges (case rtcp-03); and what they
//! have no reason to report: padding (case rtp-02) and silence (case rtp-10).

use crate::plain::Plain;
use crate::world::{ask, enter, limits, ms, play, publish, secs, sim};
use rondo_actors::api::{RoomEvent, RoomInfo, RoomKind};
use rondo_actors::port::Port;
use rondo_actors::room::RoomMsg;
use rondo_actors::sim::{Link, Sim};
use rondo_actors::supervisor::SupervisorMsg;
use rondo_media::codec::Kind;
use rondo_media::transport::Shared;
use rondo_media::wire::rtcp::{ReportBlock, write_bye, write_pli, write_receiver_report, write_remb};
use std::time::Duration;

fn lan() -> Link {
    Link { delay: ms(20), ..Link::default() }
}

fn publisher(sim: &mut Sim<Plain>, shared: &Shared) -> usize {
    let joined = enter(sim, shared, publish("stage", "ann", Plain::offer_to_publish())).expect("let in");
    let (now, server) = (sim.now(), sim.server(0));
    let mut client = Plain::new(1, now);
    client.publish(now, server, &joined, 0);
    sim.connect(client, lan(), lan())
}

fn viewer(sim: &mut Sim<Plain>, shared: &Shared, n: u8) -> usize {
    let joined = enter(sim, shared, play("stage", &format!("v{n}"), Plain::offer_to_play(1))).expect("let in");
    let mut client = Plain::new(n, sim.now());
    client.play(sim.server(0), &joined);
    sim.connect(client, lan(), lan())
}

/// Audio and video payloads that a viewer has.
fn counts(sim: &mut Sim<Plain>, n: usize) -> [u64; 2] {
    let got = |who| sim.client(n).incoming.values().filter_map(|s| s.numbers.get(&who)).map(|n| n.len() as u64).sum();
    [0u32, 1].map(got)
}

fn video_ssrc(sim: &mut Sim<Plain>, n: usize) -> u32 {
    let video = |(ssrc, stream): (&u32, &crate::plain::Incoming)| stream.has_rtx().then_some(*ssrc);
    sim.client(n).incoming.iter().find_map(video).expect("a video section")
}

/// RFC 4585 §6.3.1: 100 people come within a second and 20 of them ask five times a second.
#[test]
fn sim_a_storm_of_key_frame_requests_reaches_the_publisher_as_a_few() {
    let mut sim = sim::<Plain>(5);
    let shared = Shared::plain();
    let ann = publisher(&mut sim, &shared);
    sim.run(secs(3));
    let before = sim.client(ann).key_frames_asked;
    let begun = sim.now();
    let mut viewers = Vec::new();
    for n in 0..100u8 {
        viewers.push((viewer(&mut sim, &shared, 100 + n), sim.now()));
        sim.run(ms(10));
        storm(&mut sim, &viewers, n % 20 == 0);
    }
    for _ in 0..25 {
        sim.run(ms(200));
        storm(&mut sim, &viewers, true);
    }
    let lasted = sim.now() - begun;
    let asked = sim.client(ann).key_frames_asked - before;
    let most = lasted.as_millis() / 500 + 1;
    assert!(u128::from(asked) <= most, "{asked} requests in {lasted:?}");
    assert!(asked >= 3, "the storm is answered");
    for (n, joined) in &viewers {
        let first = sim.client(*n).first_video.expect("a picture");
        assert!(first - *joined < ms(1_500), "viewer {n} waited {:?}", first - *joined);
    }
}

fn storm(sim: &mut Sim<Plain>, viewers: &[(usize, std::time::Instant)], now: bool) {
    for (n, _) in viewers.iter().take(20).filter(|_| now) {
        let ssrc = video_ssrc(sim, *n);
        sim.client(*n).say(|out| {
            write_receiver_report(out, 7, &[]);
            write_pli(out, 7, ssrc);
        });
    }
}

fn estimate(sim: &mut Sim<Plain>, n: usize, bits_per_second: u64) {
    let ssrc = video_ssrc(sim, n);
    sim.client(n).say(|out| {
        write_receiver_report(out, 7, &[]);
        write_remb(out, 7, bits_per_second, &[ssrc]);
    });
}

/// What came within a time.
fn during(sim: &mut Sim<Plain>, n: usize, time: Duration) -> [u64; 2] {
    let before = counts(sim, n);
    sim.run(time);
    let after = counts(sim, n);
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn sim_an_estimate_of_zero_pauses_video_only_and_a_later_one_brings_it_back() {
    let mut sim = sim::<Plain>(6);
    let shared = Shared::plain();
    publisher(&mut sim, &shared);
    let (bob, cid) = (viewer(&mut sim, &shared, 2), viewer(&mut sim, &shared, 3));
    sim.run(secs(2));
    // Saturated values, and the smallest, are no reason to stop the only layer: what a receiver says grows by what it gets.
    for huge in [u64::MAX, 1_000_000, 1] {
        estimate(&mut sim, bob, huge);
        let [audio, video] = during(&mut sim, bob, secs(1));
        assert!(audio >= 49 && video >= 85, "{huge}: {audio} {video}");
    }
    estimate(&mut sim, bob, 0);
    sim.run(ms(100));
    let [audio, video] = during(&mut sim, bob, secs(3));
    assert!(audio >= 149 && video == 0, "{audio} of sound, {video} of pictures");
    assert!(during(&mut sim, cid, secs(1))[1] >= 85, "nobody else is concerned");
    estimate(&mut sim, bob, 1_000_000);
    let [_, video] = during(&mut sim, bob, secs(2));
    assert!(video > 30, "pictures are back within 2 s: {video}");

    // It does not lift what somebody else has decided: a limit upward is none.
    estimate(&mut sim, bob, 0);
    sim.run(ms(100));
    // RFC 3550 §6.6: that receiver leaves, and its estimate with it.
    let ssrc = video_ssrc(&mut sim, bob);
    sim.client(bob).say(|out| {
        write_receiver_report(out, 7, &[ReportBlock { ssrc, ..ReportBlock::default() }]);
        write_bye(out, &[7]);
    });
    let [_, video] = during(&mut sim, bob, secs(2));
    assert!(video > 30, "{video}");
    // Who comes after it begins without.
    estimate(&mut sim, cid, 0);
    sim.run(limits().silent_after);
    let dan = viewer(&mut sim, &shared, 4);
    sim.run(secs(1));
    assert!(during(&mut sim, dan, secs(1))[1] >= 85);
}

fn room(sim: &mut Sim<Plain>) -> Port<RoomMsg> {
    let supervisor = sim.supervisor();
    let found = ask(sim, &supervisor, |reply| SupervisorMsg::Find("stage".parse().expect("a name"), reply));
    found.expect("an open room")
}

/// Case rtp-02 (RFC 3550 §5.1): five seconds of padding on the stream's own SSRC, then media.
#[test]
fn sim_padding_is_no_medium_and_leaves_no_hole() {
    let mut sim = sim::<Plain>(7);
    let shared = Shared::plain();
    let ann = publisher(&mut sim, &shared);
    sim.client(ann).padding = true;
    let bob = viewer(&mut sim, &shared, 2);
    sim.run(secs(5));
    let port = room(&mut sim);
    let info: RoomInfo = ask(&mut sim, &port, RoomMsg::Info);
    let kinds: Vec<Kind> = info.participants[0].tracks.iter().map(|track| track.kind).collect();
    assert_eq!(kinds, [Kind::Audio], "nothing has been shown yet");
    sim.client(ann).padding = false;
    sim.run(secs(2));
    assert!(counts(&mut sim, bob)[1] > 150);
    // And once more in the middle of it: the hole that the padding would leave is closed.
    sim.client(ann).padding = true;
    sim.run(secs(1));
    sim.client(ann).padding = false;
    sim.run(secs(2));
    let [_, video] = counts(&mut sim, bob);
    assert!(video > 300, "{video}");
    let stuck = sim.client(bob).incoming.values().map(|stream| stream.waits_for()).sum::<usize>();
    let lost: u64 = sim.client(bob).incoming.values().map(|stream| stream.lost()).sum();
    assert_eq!((stuck, lost), (0, 0), "nothing is missing, so nothing is asked for");
    assert_eq!(sim.counters(0).rtx_missed.get() + sim.counters(0).rtx_sent.get(), 0);
}

/// Case rtp-10: contiguous numbers, a packet each 400 ms. Who is silent stops speaking by time, and nothing is lost.
#[test]
fn sim_silence_is_neither_loss_nor_speech() {
    let mut sim = sim::<Plain>(8);
    let shared = Shared::plain();
    let ann = publisher(&mut sim, &shared);
    let bob = viewer(&mut sim, &shared, 2);
    sim.run(ms(100));
    let port = room(&mut sim);
    let mut feed = ask(&mut sim, &port, |reply| RoomMsg::Events { me: None, after: None, reply }).expect("a stream");
    sim.run(secs(2));
    let speakers = |feed: &mut rondo_actors::api::EventFeed| {
        let mut last = None;
        while let Ok(numbered) = feed.next.try_recv() {
            if let RoomEvent::Speakers { identities } = &*numbered.event {
                last = Some(identities.clone());
            }
        }
        last
    };
    assert_eq!(speakers(&mut feed), Some(vec!["ann".to_owned()]), "two seconds of a tone");
    sim.client(ann).silence = true;
    // The case allows half a second from the first silent moment; the packet that was on its way comes 20 ms later.
    sim.run(ms(20 + 20 + 500));
    assert_eq!(speakers(&mut feed), Some(Vec::new()), "silence is over by time, not by packets");
    let before = counts(&mut sim, bob)[0];
    sim.run(secs(10));
    let after = counts(&mut sim, bob)[0];
    assert!((24..=26).contains(&(after - before)), "{} packets in ten seconds", after - before);
    sim.client(ann).silence = false;
    sim.run(secs(1));
    assert_eq!(speakers(&mut feed), Some(vec!["ann".to_owned()]), "and speech is heard again");
    let lost: u64 = sim.client(bob).incoming.values().map(|stream| stream.lost()).sum();
    let stuck = sim.client(bob).incoming.values().map(|stream| stream.waits_for()).sum::<usize>();
    assert_eq!((lost, stuck), (0, 0));
}

/// Who has no layers to rest is told what one picture may take, from its first packet on and again, for reports get lost.
#[test]
fn sim_a_publisher_without_layers_is_told_what_it_may_send() {
    let mut sim = sim::<Plain>(11);
    let shared = Shared::plain();
    let ann = publisher(&mut sim, &shared);
    sim.run(secs(11));
    // 1.2 Mbit/s, as the 18 bits of the mantissa hold it.
    let caps = sim.client(ann).caps.clone();
    assert_eq!(caps.len(), 3, "{caps:?}");
    assert!(caps.iter().all(|cap| (1_199_990..=1_200_000).contains(cap)), "{caps:?}");
    sim.client(ann).stop_media();
    sim.run(secs(11));
    assert_eq!(sim.client(ann).caps.len(), 3, "who sends nothing is told nothing");
    // A live push may be more.
    let mut join = publish("show", "host", Plain::offer_to_publish());
    join.kind = Some(RoomKind::Live);
    let joined = enter(&mut sim, &shared, join).expect("let in");
    let (now, server) = (sim.now(), sim.server(0));
    let mut client = Plain::new(9, now);
    client.publish(now, server, &joined, 0);
    let host = sim.connect(client, lan(), lan());
    sim.run(secs(1));
    assert!(sim.client(host).caps.iter().all(|cap| (7_999_900..=8_000_000).contains(cap)));
    assert_eq!(sim.client(host).caps.len(), 1);
}
