//! Calls with real WebRTC clients over loopback: who hears whom, without a gap, whatever the others do.

use crate::support::client::{PublishOptions, Publisher, ViewOptions, Viewer};
use crate::support::http::Api;
use crate::support::server::TestServer;
use crate::support::token::token;
use crate::support::wait::poll;
use serde_json::json;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Generous: the machine may be busy, and a test ends as soon as its condition holds.
const SOON: Duration = Duration::from_secs(20);

/// Packets of each stream that a viewer must have without a hole before a test goes on: two seconds of audio.
const SOME: u64 = 100;

fn publisher(api: &Api, room: &str, identity: &str) -> Publisher {
    Publisher::start(api, room, identity, PublishOptions::default())
}

fn both(publisher: &Publisher) -> [u32; 2] {
    [publisher.audio_stream(), publisher.video_stream()]
}

fn publish_and_play(ip: IpAddr) {
    let server = TestServer::start();
    let api = server.api();
    let ann = Publisher::start(&api, "duet", "ann", PublishOptions { ip, ..PublishOptions::default() });
    let bob = Viewer::start(&api, "duet", ViewOptions { ip, ..ViewOptions::default() });

    let stats = bob.wait_for_streams(&both(&ann), 3 * SOME, SOON);
    stats.assert_whole();
    let audio = &stats.sections[stats.section_of(ann.audio_stream()).expect("heard")];
    let video = &stats.sections[stats.section_of(ann.video_stream()).expect("seen")];
    // What the viewer's offer calls them, not what the publisher's does.
    assert_eq!((audio.payload_types.first(), video.payload_types.first()), (Some(&109), Some(&120)));
    assert_eq!(audio.levels, audio.rtp.received, "loudness travels with the audio");
    assert!(video.markers * 2 < video.rtp.received, "only the last packet of a frame has the marker");
    assert!(video.markers > 0);
    bob.wait_until("a sender report in both sections", SOON, |s| s.sections.values().all(|s| s.sender_report));

    assert_eq!((bob.stop(), ann.stop()), (200, 200));
}

#[test]
fn a_call_has_no_gap_over_ipv4() {
    publish_and_play(IpAddr::from([127, 0, 0, 1]));
}

#[test]
fn a_call_has_no_gap_over_ipv6() {
    publish_and_play(Ipv6Addr::LOCALHOST.into());
}

/// Case sec-01: two packets around the wrap of the sequence number change places. A receiver that counts the wrap twice
/// loses everything after it, one that does not count it four minutes later.
#[test]
fn packets_that_change_places_at_the_wrap_cost_nobody_anything() {
    let server = TestServer::start();
    let api = server.api();
    let viewers: Vec<Viewer> = (0..2).map(|_| Viewer::start(&api, "wrap", ViewOptions::default())).collect();
    let options = PublishOptions { swap_at_wrap: true, ..PublishOptions::default() };
    let ann = Publisher::start(&api, "wrap", "ann", options);
    for viewer in &viewers {
        // The wrap is at the 36th packet; ten seconds of sound and picture after it.
        let stats = viewer.wait_for_streams(&both(&ann), 36 + 10 * 50, SOON);
        stats.assert_whole();
        assert!(stats.stream(ann.audio_stream()).first.is_some_and(|first| first < 36), "it was there before the wrap");
    }
}

#[test]
fn three_viewers_who_come_one_after_another_all_get_everything() {
    let server = TestServer::start();
    let api = server.api();
    let ann = publisher(&api, "stage", "ann");
    let mut viewers = Vec::new();
    for _ in 0..3 {
        let viewer = Viewer::start(&api, "stage", ViewOptions::default());
        // The publisher sends key frames only when asked: each newcomer must have one asked for.
        viewer.wait_for_streams(&both(&ann), SOME, SOON).assert_whole();
        viewers.push(viewer);
    }
    for viewer in &viewers {
        viewer.wait_for_streams(&both(&ann), 3 * SOME, SOON).assert_whole();
    }
    assert!(ann.stats().key_frames_asked >= 3);
}

#[test]
fn who_asks_for_one_participant_gets_that_one_only() {
    let server = TestServer::start();
    let api = server.api();
    let (ann, bob) = (publisher(&api, "talk", "ann"), publisher(&api, "talk", "bob"));
    let watch = |only| {
        let viewer = Viewer::start(&api, "talk", ViewOptions { only: Some(only), ..ViewOptions::default() });
        let stats = viewer.wait_until("media", SOON, |s| s.audio_packets > SOME && s.video_packets > SOME);
        stats.sections.values().flat_map(|s| s.streams.keys().copied()).collect::<BTreeSet<_>>()
    };
    assert_eq!(watch("ann"), BTreeSet::from(both(&ann)));
    assert_eq!(watch("bob"), BTreeSet::from(both(&bob)));
}

#[test]
fn a_room_on_one_connection_keeps_a_participants_tracks_apart_from_anothers() {
    let server = TestServer::start();
    let api = server.api();
    let people = ["ann", "bob", "cid"].map(|name| publisher(&api, "table", name));
    let viewer = Viewer::start(&api, "table", ViewOptions { audio: 3, video: 3, ..ViewOptions::default() });
    let streams: Vec<u32> = people.iter().flat_map(both).collect();
    let stats = viewer.wait_for_streams(&streams, SOME, SOON);
    stats.assert_whole();
    assert_eq!(stats.sections.len(), 6);
    assert!(stats.sections.values().all(|section| section.streams.len() == 1), "one stream a section: {stats:#?}");
}

#[test]
fn a_viewer_may_come_first() {
    let server = TestServer::start();
    let api = server.api();
    // 201 though there is nothing to see yet, and the connection comes up.
    let viewer = Viewer::start(&api, "early", ViewOptions::default());
    assert_eq!(viewer.answer().status, 201);
    let ann = publisher(&api, "early", "ann");
    viewer.wait_for_streams(&both(&ann), SOME, SOON).assert_whole();
}

#[test]
fn a_second_publisher_of_the_same_identity_takes_the_place_of_the_first() {
    let server = TestServer::start();
    let api = server.api();
    let first = publisher(&api, "seat", "ann");
    let viewer = Viewer::start(&api, "seat", ViewOptions::default());
    viewer.wait_for_streams(&both(&first), SOME, SOON);

    let second = publisher(&api, "seat", "ann");
    first.wait_until("DTLS is closed by the server", SOON, |s| s.closed);
    let gone = api.delete(first.resource());
    assert_eq!((gone.status, gone.code().as_str()), (404, "replaced"), "{gone:#?}");

    let stats = viewer.wait_for_streams(&both(&second), SOME, SOON);
    stats.assert_whole();
    for (old, new) in both(&first).into_iter().zip(both(&second)) {
        assert_eq!(stats.section_of(old), stats.section_of(new), "the same section shows the same person");
    }
    let people = api.get("/api/v1/rooms/seat").json()["participants"].as_array().expect("participants").len();
    assert!(people <= 2, "ann once, and at most the viewer");
}

#[test]
fn who_leaves_frees_the_section_for_who_comes_next() {
    let server = TestServer::start();
    let api = server.api();
    let ann = publisher(&api, "chair", "ann");
    let viewer = Viewer::start(&api, "chair", ViewOptions::default());
    viewer.wait_for_streams(&both(&ann), SOME, SOON);
    let ann_streams = both(&ann);
    assert_eq!(ann.stop(), 200);

    let bob = publisher(&api, "chair", "bob");
    let stats = viewer.wait_for_streams(&both(&bob), SOME, SOON);
    stats.assert_whole();
    for (old, new) in ann_streams.into_iter().zip(both(&bob)) {
        assert_eq!(stats.section_of(old), stats.section_of(new));
    }
}

#[test]
fn who_does_not_fit_gets_the_next_free_section() {
    let server = TestServer::start();
    let api = server.api();
    let ann = publisher(&api, "bench", "ann");
    let viewer = Viewer::start(&api, "bench", ViewOptions::default());
    viewer.wait_for_streams(&both(&ann), SOME, SOON);
    let bob = publisher(&api, "bench", "bob");
    // Bob is in, and has no section as long as ann holds the only ones.
    bob.wait_until("bob publishes", SOON, |s| s.audio_sent > SOME);
    assert_eq!(viewer.stats().section_of(bob.audio_stream()), None);
    assert_eq!(ann.stop(), 200);
    viewer.wait_for_streams(&both(&bob), SOME, SOON).assert_whole();
}

fn session_states(api: &Api, room: &str) -> Vec<(String, String)> {
    let list = api.get(&format!("/api/v1/rooms/{room}")).json();
    let people = list["participants"].as_array().cloned().unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    people.iter().map(|p| (text(&p["identity"]), text(&p["state"]))).collect()
}

#[test]
fn who_vanishes_is_shown_as_disconnected_and_then_gone() {
    let server = TestServer::start_with(|config| {
        config.limits.silent_after_s = 1;
        config.limits.gone_after_s = 3;
    });
    let api = server.api();
    let (ann, bob) = (publisher(&api, "storm", "ann"), publisher(&api, "storm", "bob"));
    let viewer = Viewer::start(&api, "storm", ViewOptions { audio: 2, video: 2, ..ViewOptions::default() });
    viewer.wait_for_streams(&both(&bob), SOME, SOON);
    let resource = ann.vanish();

    let has = |name: &str, state: &str| session_states(&api, "storm").contains(&(name.into(), state.into()));
    poll("ann is shown as disconnected", SOON, || has("ann", "disconnected").then_some(()));
    poll("ann is gone", SOON, || (!session_states(&api, "storm").iter().any(|(name, _)| name == "ann")).then_some(()));
    let gone = api.delete(&resource);
    assert_eq!((gone.status, gone.code().as_str()), (404, "connection_lost"), "{gone:#?}");

    // A viewer that vanishes goes the same way.
    let sessions = || api.get("/api/v1/sessions?room=storm").json().as_array().map_or(0, Vec::len);
    let before = sessions();
    let watcher = Viewer::start(&api, "storm", ViewOptions::default());
    assert_eq!(sessions(), before + 1);
    let resource = watcher.vanish();
    poll("the second viewer is gone", SOON, || (sessions() == before).then_some(()));
    assert_eq!(api.delete(&resource).code(), "connection_lost");

    // Nobody else noticed.
    assert!(has("bob", "connected"));
    viewer.wait_for_streams(&both(&bob), 3 * SOME, SOON).assert_whole();
}

#[test]
fn who_never_connects_is_gone_after_the_join_deadline() {
    let server = TestServer::start_with(|config| config.limits.join_deadline_s = 1);
    let api = server.api();
    let offer = include_str!("cases/http-04/offer.sdp");
    let answer = api.post_sdp("/whip/lobby/ann", offer);
    assert_eq!(answer.status, 201, "{answer:#?}");
    let resource = answer.location().expect("a Location");
    poll("ann is gone", SOON, || session_states(&api, "lobby").is_empty().then_some(()));
    let gone = api.delete(&resource);
    assert_eq!((gone.status, gone.code().as_str()), (404, "join_timeout"), "{gone:#?}");
    let session = answer.header("rondo-session").expect("a session");
    assert_eq!(api.get(&format!("/api/v1/sessions/{session}")).code(), "join_timeout");
    let failed = |scrape: &str| scrape.lines().any(|l| l == "rondo_join_failed_total{code=\"join_timeout\"} 1");
    poll("the failed join is counted", SOON, || failed(&api.get("/metrics").body).then_some(()));
}

#[test]
fn a_closed_tab_is_a_leaver() {
    let server = TestServer::start();
    let api = server.api();
    let ann = publisher(&api, "tab", "ann");
    ann.close();
    poll("ann is gone", SOON, || session_states(&api, "tab").is_empty().then_some(()));
}

#[test]
fn a_participant_who_publishes_and_plays_does_not_get_its_own_tracks_back() {
    let server = TestServer::start();
    let room = |identity| server.api().with_token(&token(identity, json!({ "roomJoin": true, "room": "pair" })));
    let (ann_api, bob_api) = (room("ann"), room("bob"));
    let (ann, bob) = (publisher(&ann_api, "pair", "ann"), publisher(&bob_api, "pair", "bob"));
    let options = ViewOptions { audio: 2, video: 2, ..ViewOptions::default() };
    let ann_sees = Viewer::start(&ann_api, "pair", options.clone());
    let bob_sees = Viewer::start(&bob_api, "pair", options);
    let stats = ann_sees.wait_for_streams(&both(&bob), SOME, SOON);
    assert!(both(&ann).iter().all(|id| stats.section_of(*id).is_none()), "ann hears herself: {stats:#?}");
    let stats = bob_sees.wait_for_streams(&both(&ann), SOME, SOON);
    assert!(both(&bob).iter().all(|id| stats.section_of(*id).is_none()), "bob hears himself: {stats:#?}");
}

#[test]
fn a_viewer_that_lost_its_picture_gets_a_key_frame() {
    let server = TestServer::start();
    let api = server.api();
    let ann = publisher(&api, "film", "ann");
    let viewer = Viewer::start(&api, "film", ViewOptions::default());
    let key_frames = |s: &crate::support::client::Stats| s.sections.values().map(|s| s.key_frames).sum::<u64>();
    let before = key_frames(&viewer.wait_for_streams(&both(&ann), SOME, SOON));
    viewer.ask_key_frame();
    viewer.wait_until("one more key frame", SOON, |s| key_frames(s) > before);
}
