//! Simulcast over loopback: a real publisher of three layers, a viewer who is sent one of them, and a page that sends what
//! somebody wants.

use crate::support::client::{ViewOptions, Viewer};
use crate::support::events::Events;
use crate::support::http::Api;
use crate::support::media::{Stamp, Vp8Packet, clock_us, vp8};
use crate::support::peer::{Numbers, Peer};
use crate::support::server::TestServer;
use crate::support::token::token;
use crate::support::wait::poll;
use reqwest::Method;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use str0m::Event;
use str0m::media::{Mid, Rid};
use str0m::rtp::RtpWrite;

const SOON: Duration = Duration::from_secs(20);
const RIDS: [&str; 3] = ["q", "h", "f"];
/// What payloads say of the layer that they are of; odd as video is.
const STREAMS: [u32; 3] = [90_001, 90_003, 90_005];
const PACKETS: [usize; 3] = [1, 2, 4];

/// What a page can do to an encoder, and what it can know of it.
#[derive(Default)]
struct Encoders {
    paused: [AtomicBool; 3],
    key_frames: [AtomicU32; 3],
    stop: AtomicBool,
}

/// Publishes three layers on a thread of its own until it is told to stop.
struct Camera {
    encoders: Arc<Encoders>,
    thread: Option<JoinHandle<()>>,
}

impl Camera {
    fn start(api: &Api, room: &str) -> Self {
        let mut peer = Peer::new(Ipv4Addr::LOCALHOST.into(), Numbers::PUBLISHER);
        let offer = peer.offer_layers(&RIDS);
        let mid = offer.sections[0].1;
        let answer = api.post_sdp(&format!("/whip/{room}/ann"), offer.sdp.clone());
        assert_eq!(answer.status, 201, "{answer:#?}");
        assert!(answer.body.contains("a=simulcast:recv q;h;f"), "{}", answer.body);
        peer.accept(offer, &answer.body).expect("an answer that str0m takes");
        assert!(peer.until(SOON, |event| matches!(event, Event::Connected)));
        let encoders = Arc::new(Encoders::default());
        let shared = encoders.clone();
        let thread = std::thread::spawn(move || film(&mut peer, mid, &shared));
        Self { encoders, thread: Some(thread) }
    }

    /// As `RTCRtpSender.setParameters` does.
    fn encode(&self, active: [bool; 3]) {
        for (paused, active) in self.encoders.paused.iter().zip(active) {
            paused.store(!active, Ordering::Relaxed);
        }
    }

    fn key_frames(&self) -> [u32; 3] {
        [0, 1, 2].map(|n| self.encoders.key_frames[n].load(Ordering::Relaxed))
    }
}

impl Drop for Camera {
    fn drop(&mut self) {
        self.encoders.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the camera failed; its message stands above");
        }
    }
}

/// 30 frames a second of each layer that is not paused. What begins again begins with a key frame.
fn film(peer: &mut Peer, mid: Mid, encoders: &Encoders) {
    let (started, mut frame) = (Instant::now(), 0u32);
    let (mut wanted, mut counters, mut pictures) = ([true; 3], [0u32; 3], [100u16, 9_000, 32_700]);
    while !encoders.stop.load(Ordering::Relaxed) {
        let due = started + Duration::from_micros(u64::from(frame) * 1_000_000 / 30);
        while Instant::now() < due {
            peer.step(due).expect("a connection");
        }
        for event in peer.take_events() {
            if let Event::KeyframeRequest(asked) = event {
                let layer = asked.rid.and_then(|rid| RIDS.iter().position(|known| Rid::from(*known) == rid));
                wanted[layer.expect("a request that names its layer")] = true;
            }
        }
        let pt = peer.payload_type(mid).expect("an agreed format");
        for layer in 0..3 {
            if encoders.paused[layer].load(Ordering::Relaxed) {
                wanted[layer] = true;
                continue;
            }
            let key_frame = std::mem::take(&mut wanted[layer]);
            encoders.key_frames[layer].fetch_add(u32::from(key_frame), Ordering::Relaxed);
            for n in 0..PACKETS[layer] {
                let (counter, now) = (counters[layer], Instant::now());
                let stamp = Stamp { stream: STREAMS[layer], counter, sent_us: clock_us(now) };
                let payload = vp8(600, Vp8Packet { first: n == 0, key_frame, picture: pictures[layer] }, stamp);
                // Each layer has a clock of its own, and numbers that wrap soon.
                let time = (frame * 3_000).wrapping_add([0, 70_000, 0xffff_ff00][layer]);
                let seq = (65_400 + u64::from(counter)).into();
                let packet = RtpWrite::new(pt, seq, time, now, payload).marker(n + 1 == PACKETS[layer]).nackable(true);
                peer.send_layer(mid, Some(Rid::from(RIDS[layer])), packet).expect("a connection");
                counters[layer] += 1;
            }
            pictures[layer] = (pictures[layer] + 1) & 0x7fff;
        }
        frame += 1;
    }
    peer.close();
}

fn member(api: &Api, identity: &str) -> Api {
    api.with_token(&token(identity, json!({ "roomJoin": true, "room": "stage" })))
}

/// Waits until the last that the publisher was told is this, and does it.
fn obey(camera: &Camera, events: &Events, want: [bool; 3]) {
    let told =
        |event: &Value| event["layers"].as_array().map(|layers| layers.iter().map(|l| l["wanted"].clone()).collect());
    poll(&format!("layers_wanted {want:?}"), SOON, || {
        let all = events.all();
        let last: Vec<Value> = all.iter().rev().find(|e| e.name == "layers_wanted").and_then(|e| told(&e.data))?;
        (last == want.map(Value::from)).then_some(())
    });
    camera.encode(want);
}

/// So many more packets of this layer, and no hole in all that came.
fn shows(viewer: &Viewer, layer: usize) {
    let stream = STREAMS[layer];
    let before = viewer.stats().stream(stream).received;
    let stats = viewer.wait_until(&format!("layer {}", RIDS[layer]), SOON, |stats| {
        stats.stream(stream).received >= before + 60 && stats.sections.values().all(|s| s.rtp.missing() == 0)
    });
    let section = stats.sections.values().next().expect("a section");
    assert_eq!((section.rtp.duplicates, section.ssrcs.len(), section.payload_types.len()), (0, 1, 1));
    assert!(section.began_with_key_frame.contains(&stream), "a layer begins with a key frame");
}

#[test]
fn a_viewer_is_sent_the_layer_that_it_has_room_for_and_the_publisher_told_what_nobody_wants() {
    let server = TestServer::start();
    let (ann, vic) = (member(&server.api(), "ann"), member(&server.api(), "vic"));
    let camera = Camera::start(&ann, "stage");
    let events = Events::open(&ann, "stage");
    // Published with its first packet, before or after the stream was opened.
    let track = poll("a published track", SOON, || {
        let room = ann.get("/api/v1/rooms/stage").json();
        Some(room["participants"][0]["tracks"][0]["id"].as_str()?.to_owned())
    });
    let viewer = Viewer::start(&vic, "stage", ViewOptions { audio: 0, video: 1, ..ViewOptions::default() });
    // All have 640 × 360 in their key frames: among equals the offer decides.
    shows(&viewer, 2);
    obey(&camera, &events, [false, false, true]);
    shows(&viewer, 2);

    let session = |api: &Api, identity: &str| {
        let room = api.get("/api/v1/rooms/stage").json();
        let people = room["participants"].as_array().expect("people").clone();
        let found = people.iter().find(|p| p["identity"] == identity).expect("in");
        found["session"].as_str().expect("an id").to_owned()
    };
    let of_vic = session(&vic, "vic");
    let wish = |wish: Value| {
        let path = format!("/api/v1/sessions/{of_vic}/subscriptions");
        let answer = vic.send(vic.request(Method::PATCH, vic.url(&path)).json(&json!([wish])));
        assert_eq!(answer.status, 204, "{answer:#?}");
    };
    // Shown small: what nobody wanted is sent for, and what somebody did is not any more.
    wish(json!({ "track": track, "height_px": 180 }));
    obey(&camera, &events, [true, false, true]);
    shows(&viewer, 0);
    obey(&camera, &events, [true, false, false]);
    // Hidden, and shown again at full size.
    wish(json!({ "track": track, "paused": true }));
    obey(&camera, &events, [false; 3]);
    let before = camera.key_frames();
    wish(json!({ "track": track }));
    // Everything up to the best one, until that comes.
    obey(&camera, &events, [true; 3]);
    obey(&camera, &events, [false, false, true]);
    shows(&viewer, 2);
    assert!(camera.key_frames()[2] > before[2]);

    let stats = |api: &Api, id: &str| api.get(&format!("/api/v1/sessions/{id}")).json()["transports"][0].clone();
    let shown = stats(&vic, &of_vic)["subscriptions"].clone();
    assert_eq!((&shown[0]["layer"], &shown[0]["track"]), (&json!("f"), &json!(track)));
    // Half a second after the others have stopped.
    let of_ann = session(&ann, "ann");
    poll("one layer that comes and is wanted", SOON, || {
        let layers = stats(&ann, &of_ann)["layers"].clone();
        let told = |name: &str| layers.as_array().map(|all| all.iter().map(|l| l[name].clone()).collect::<Vec<_>>());
        let only_f = || Some(vec![json!(false), json!(false), json!(true)]);
        let rids = told("rid") == Some(RIDS.map(Value::from).into());
        (rids && told("wanted") == only_f() && told("available") == only_f()).then_some(())
    });
}
