//! What a page hears of a room, and what it can do to it (interfaces §4, §6).

use crate::support::client::{PublishOptions, Publisher, ViewOptions, Viewer};
use crate::support::events::Events;
use crate::support::http::Api;
use crate::support::server::TestServer;
use crate::support::token::token;
use crate::support::wait::poll;
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

fn publisher(api: &Api, room: &str, identity: &str) -> Publisher {
    Publisher::start(api, room, identity, PublishOptions::default())
}

fn member(api: &Api, room: &str, identity: &str) -> Api {
    api.with_token(&token(identity, json!({ "roomJoin": true, "room": room })))
}

#[test]
fn a_stay_is_told_from_joining_to_leaving() {
    let server = TestServer::start();
    let api = server.api();
    // Somebody must be in before the room is there to listen to.
    let bob = publisher(&api, "stay", "bob");
    let events = Events::open(&api, "stay");
    let snapshot = &events.all()[0];
    assert_eq!(snapshot.name, "snapshot", "the snapshot comes first");
    assert_eq!(snapshot.data["room"]["participants"][0]["identity"], "bob");

    let ann = publisher(&api, "stay", "ann");
    events.wait_for("participant_joined", SOON, |e| e["participant"]["identity"] == "ann");
    for kind in ["audio", "video"] {
        let of_kind = |e: &Value| e["identity"] == "ann" && e["track"]["kind"] == kind;
        events.wait_for("track_published", SOON, of_kind);
    }
    assert_eq!(ann.stop(), 200);
    let left = events.wait_for("participant_left", SOON, |e| e["identity"] == "ann");
    assert_eq!(left.data["reason"], "client_left");
    events.wait_for("track_unpublished", SOON, |e| e["identity"] == "ann" && e["reason"] == "client_left");
    // Ids grow: a reader that lost its connection says where it was.
    let ids: Vec<u64> = events.all().iter().filter_map(|e| e.id.parse().ok()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    drop(bob);
}

#[test]
fn a_replaced_publisher_is_told_as_replaced() {
    let server = TestServer::start();
    let api = server.api();
    let first = publisher(&api, "seat", "ann");
    let events = Events::open(&api, "seat");
    let second = publisher(&api, "seat", "ann");
    events.wait_for("track_unpublished", SOON, |e| e["identity"] == "ann" && e["reason"] == "replaced");
    let published = events.wait_for("track_published", SOON, |e| e["identity"] == "ann");
    assert_eq!(published.data["track"]["source"].as_str().map(str::is_empty), Some(false));
    drop((first, second));
}

#[test]
fn a_viewer_is_told_which_section_shows_whom() {
    let server = TestServer::start();
    let api = server.api();
    let ann = publisher(&api, "stage", "ann");
    let vic = member(&api, "stage", "vic");
    let viewer = Viewer::start(&vic, "stage", ViewOptions { audio: 2, video: 2, ..ViewOptions::default() });
    let events = Events::open(&vic, "stage");
    let bob = publisher(&api, "stage", "bob");
    let told = events.wait_for("section_assigned", SOON, |e| e["identity"] == "bob");
    let mid = told.data["mid"].as_str().expect("mid");
    let stats = viewer.wait_for_streams(&[ann.video_stream(), bob.video_stream(), bob.audio_stream()], 50, SOON);
    let bobs = [bob.audio_stream(), bob.video_stream()].map(|id| stats.section_of(id).map(str::to_owned));
    assert!(bobs.contains(&Some(mid.to_owned())), "{mid} is none of {bobs:?}");

    // A third finds no section.
    let cid = publisher(&api, "stage", "cid");
    events.wait_for("sections_full", SOON, |e| e["missing"].as_u64() >= Some(1));
    drop(cid);
}

#[test]
fn who_speaks_is_told_and_told_again_when_it_changes() {
    let server = TestServer::start();
    let api = server.api();
    let quiet = PublishOptions { level_dbov: 127, ..PublishOptions::default() };
    let ann = publisher(&api, "debate", "ann");
    let bob = Publisher::start(&api, "debate", "bob", quiet);
    let events = Events::open(&api, "debate");
    let speaks = |who: &'static str| move |e: &Value| e["identities"] == json!([who]);
    // Said by the snapshot if it was found out before, else by an event.
    if events.all()[0].data["speakers"] != json!(["ann"]) {
        events.wait_for("speakers", SOON, speaks("ann"));
    }
    ann.set_level(127);
    bob.set_level(20);
    events.wait_for("speakers", SOON, speaks("bob"));
}

#[test]
fn a_third_publisher_makes_a_call_a_conference_and_it_stays_one() {
    let server = TestServer::start();
    let api = server.api();
    let kind = || api.get("/api/v1/rooms/trio").json()["kind"].as_str().unwrap_or_default().to_owned();
    let (ann, bob) = (publisher(&api, "trio", "ann"), publisher(&api, "trio", "bob"));
    let viewer = Viewer::start(&api, "trio", ViewOptions::default());
    assert_eq!(kind(), "call", "viewers change no kind");
    let cid = publisher(&api, "trio", "cid");
    poll("a conference", SOON, || (kind() == "conference").then_some(()));
    assert_eq!(cid.stop(), 200);
    assert_eq!(kind(), "conference");
    drop((ann, bob, viewer));
}

#[test]
fn an_admin_opens_mutes_removes_and_ends() {
    let server = TestServer::start();
    let api = server.api();
    let grants = json!({ "roomJoin": true, "room": "hall", "roomAdmin": true, "roomCreate": true, "roomList": true });
    let admin = api.with_token(&token("ops", grants));
    assert!([401, 403].contains(&api.post_json("/api/v1/rooms", &json!({ "name": "hall" })).status), "guests may not");
    assert_eq!(admin.post_json("/api/v1/rooms", &json!({ "name": "hall", "kind": "live" })).status, 201);
    assert_eq!(admin.post_json("/api/v1/rooms", &json!({ "name": "hall" })).status, 409);
    assert_eq!(admin.get("/api/v1/rooms/hall").json()["kind"], "live");

    let ann = publisher(&api, "hall", "ann");
    let viewer = Viewer::start(&api, "hall", ViewOptions::default());
    viewer.wait_for_streams(&[ann.audio_stream(), ann.video_stream()], 50, SOON);
    let room = admin.get("/api/v1/rooms/hall").json();
    let people = room["participants"].as_array().expect("participants").iter();
    let of_ann = people.clone().find(|p| p["identity"] == "ann").expect("ann");
    let session = of_ann["session"].as_str().expect("a session").to_owned();
    let microphone = of_ann["tracks"].as_array().expect("tracks").iter().find(|t| t["kind"] == "audio").expect("audio");

    let events = Events::open(&admin, "hall");
    let path = admin.url(&format!("/api/v1/sessions/{session}"));
    let mute = json!({ "muted": { microphone["id"].as_str().expect("an id"): true } });
    let muted = admin.send(admin.request(reqwest::Method::PATCH, path.clone()).json(&mute));
    assert_eq!(muted.status, 200, "{}", muted.body);
    events.wait_for("track_muted", SOON, |e| e["identity"] == "ann");
    // Nothing of it is forwarded any more, while the picture goes on.
    let silent = viewer.stats();
    viewer.wait_until("100 more packets of video", SOON, |s| s.video_packets >= silent.video_packets + 100);
    let after = viewer.stats().audio_packets;
    viewer.wait_until("100 more packets of video", SOON, |s| s.video_packets >= silent.video_packets + 200);
    assert_eq!(viewer.stats().audio_packets, after, "muted is muted");

    assert!([200, 204].contains(&admin.delete(&path).status));
    ann.wait_until("removed", SOON, |s| s.closed);
    events.wait_for("participant_left", SOON, |e| e["identity"] == "ann" && e["reason"] == "removed");
    assert!([200, 204].contains(&admin.delete(&admin.url("/api/v1/rooms/hall")).status));
    viewer.wait_until("the room is over", SOON, |s| s.closed);
    events.wait_for("room_finished", SOON, |_| true);
    assert_eq!(admin.get("/api/v1/rooms/hall").status, 404);
}

/// Whether this machine still knows the server's half of a connection between two loopback addresses.
fn held(server: SocketAddr, client: SocketAddr) -> bool {
    // proc_net_tcp: each line has `sl local remote …`, IPv4 addresses in host order.
    let text = std::fs::read_to_string("/proc/self/net/tcp").expect("a list of connections");
    let half = |addr: SocketAddr| format!("0100007F:{:04X}", addr.port());
    let (local, remote) = (half(server), half(client));
    text.lines()
        .map(|line| line.split_whitespace().skip(1))
        .any(|mut columns| columns.next().is_some_and(|c| c == local) && columns.next().is_some_and(|c| c == remote))
}

#[test]
fn a_reader_that_sleeps_loses_its_connection_and_one_that_waits_keeps_it() {
    let server = TestServer::start_with(|config| config.limits.stalled_reader_s = 1);
    let admin = server.api().with_token(&token("app", json!({ "roomCreate": true, "roomAdmin": true })));
    let room = json!({ "name": "attic", "metadata": "m".repeat(60_000) });
    let made = admin.post_json("/api/v1/rooms", &room);
    assert_eq!(made.status, 201, "{}", made.body);
    let open = |receive_buffer: usize| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(receive_buffer).expect("a receive buffer");
        socket.connect(&server.addr().into()).expect("a connection");
        let mut stream = TcpStream::from(socket);
        let request = "GET /api/v1/rooms/attic/events HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("a request");
        stream
    };
    // The snapshot with its metadata fills the small buffer many times over, and fits the large one.
    let (asleep, waiting) = (open(4_096), open(1_000_000));
    let [sleeper, waiter] = [&asleep, &waiting].map(|s| s.local_addr().expect("an address"));
    assert!(held(server.addr(), sleeper), "the connection is there");
    poll("the sleeper's connection is closed", SOON, || (!held(server.addr(), sleeper)).then_some(()));
    assert!(held(server.addr(), waiter), "nothing that was sent to it is unacknowledged");
}
