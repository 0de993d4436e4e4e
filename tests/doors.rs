//! WHIP and WHEP as HTTP: what is taken, what is refused and how, and who may (RFC 9725; interfaces §2, §3, §5).

use crate::support::client::{PublishOptions, Publisher, ViewOptions, Viewer};
use crate::support::http::{Answer, Api};
use crate::support::process::{self, Rondo};
use crate::support::server::TestServer;
use crate::support::steps;
use crate::support::token::{self, token};
use reqwest::Method;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

const OFFER: &str = include_str!("cases/http-04/offer.sdp");

fn case(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name)
}

/// The same offer from somebody who wants to receive.
fn play_offer() -> String {
    OFFER.replace("a=sendonly", "a=recvonly").replace("a=msid:s1 a1\r\n", "").replace("a=msid:s1 v1\r\n", "")
}

/// A server outside development mode: nobody comes in without a token.
fn guarded() -> Rondo {
    let keys = token::keys();
    Rondo::serve(&[], &[("RONDO_AUTH__KEYS", &keys), ("RONDO_MEDIA__ADVERTISE", "127.0.0.1")])
}

fn assert_problem(answer: &Answer, status: u16, what: &str) {
    assert_eq!(answer.status, status, "{what}: {}", answer.body);
    let kind = answer.header("content-type").unwrap_or_default();
    assert!(kind.starts_with("application/problem+json"), "{what}: {kind}");
    let stable = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
    assert!(!answer.code().is_empty() && answer.code().chars().all(stable), "{what}: {}", answer.body);
    assert_eq!(answer.json()["status"], status, "{what}: {}", answer.body);
}

const SOON: Duration = Duration::from_secs(20);

#[test]
fn both_doors_serve_browsers_and_obs_without_a_token() {
    let server = TestServer::start();
    let api = server.api();
    assert_eq!(steps::play(&case("http-04"), &api, "/whip/studio/ann"), Vec::<String>::new());
    let whep = case_for_whep();
    assert_eq!(steps::play(whep.path(), &api, "/whep/studio"), Vec::<String>::new());
}

#[test]
fn both_doors_serve_browsers_and_obs_with_a_token() {
    let server = guarded();
    let grants = json!({ "roomJoin": true, "room": "studio", "canPublish": true, "canSubscribe": true });
    let api = server.api().with_token(&token("ann", grants));
    assert_eq!(steps::play(&case("http-04"), &api, "/whip/studio/ann"), Vec::<String>::new());
    let whep = case_for_whep();
    assert_eq!(steps::play(whep.path(), &api, "/whep/studio"), Vec::<String>::new());
}

/// A folder with the steps of http-04 and an offer to receive; removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn case_for_whep() -> Folder {
    let unique = format!("rondo-http-04-{}-{:?}", std::process::id(), std::thread::current().id());
    let folder = Folder(std::env::temp_dir().join(unique));
    std::fs::create_dir_all(folder.path()).expect("a folder");
    std::fs::copy(case("http-04").join("steps.json"), folder.path().join("steps.json")).expect("a copy");
    std::fs::write(folder.path().join("offer.sdp"), play_offer()).expect("an offer");
    folder
}

#[test]
fn what_cannot_be_served_is_refused_with_a_stable_code() {
    let server = TestServer::start();
    let api = server.api();
    let post = |path: &str, kind: &str, body: &str| {
        let request = api.request(Method::POST, api.url(path)).header("Content-Type", kind);
        api.send(request.body(body.to_owned()))
    };
    let sdp = "application/sdp";
    let name_129 = format!("/whip/{}/ann", "x".repeat(129));
    let no_codec = OFFER.replace("opus/48000/2", "G722/8000").replace("VP8/90000", "H265/90000");
    let no_fingerprint: String =
        OFFER.split_inclusive("\r\n").filter(|line| !line.starts_with("a=fingerprint")).collect();
    for (what, answer, statuses) in [
        ("text as an offer", post("/whip/a/b", "text/plain", OFFER), vec![415]),
        ("JSON as an offer", post("/whep/a", "application/json", "{}"), vec![415]),
        ("nothing", post("/whip/a/b", sdp, ""), vec![400]),
        ("no SDP", post("/whip/a/b", sdp, "hello"), vec![400]),
        ("binary", post("/whip/a/b", sdp, "\0\u{1}\u{2}"), vec![400]),
        ("half an SDP", post("/whip/a/b", sdp, &OFFER[..200]), vec![400, 406]),
        ("no fingerprint (RFC 8827 §6.5)", post("/whip/a/b", sdp, &no_fingerprint), vec![400, 406]),
        ("only codecs that nobody here forwards", post("/whip/a/b", sdp, &no_codec), vec![406]),
        ("a room name of 129 characters", post(&name_129, sdp, OFFER), vec![400]),
        ("a room name with a space", post("/whip/a%20b/c", sdp, OFFER), vec![400]),
        ("a room name with a slash", post("/whip/a%2Fb/c", sdp, OFFER), vec![400, 404]),
        ("an identity with a NUL", post("/whip/a/b%00", sdp, OFFER), vec![400]),
        ("a reserved room", post("/whip/v1/ann", sdp, OFFER), vec![400, 404]),
        ("a source that there is not", post("/whip/a/b?source=radio", sdp, OFFER), vec![400]),
    ] {
        let status = answer.status;
        assert!(statuses.contains(&status), "{what}: {status} is none of {statuses:?}: {}", answer.body);
        assert_problem(&answer, status, what);
    }
    assert_eq!(post("/whip/a%20b/c", sdp, OFFER).code(), "bad_name");
    assert_eq!(post("/whip/a/b", sdp, &no_codec).code(), "no_common_codec");
    // Nobody of them is in.
    assert_eq!(api.get("/api/v1/rooms/a").status, 404);
}

#[test]
fn a_transport_is_changed_only_by_who_knows_it_and_its_ice_session() {
    let server = TestServer::start();
    let api = server.api();
    let made = api.post_sdp("/whip/patch/ann", OFFER);
    let (resource, etag) = (made.location().expect("a Location"), made.header("etag").expect("an ETag"));
    let fragment = "a=ice-ufrag:kT3q\r\na=ice-pwd:m0RZy8cVd1uQpL5sXb2wEfGh\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n\
        a=mid:0\r\na=candidate:1 1 udp 2130706431 127.0.0.1 9 typ host\r\na=end-of-candidates\r\n";
    let patch = |kind: &str, if_match: Option<&str>, body: &str| {
        let mut request = api.request(Method::PATCH, resource.clone()).header("Content-Type", kind);
        if let Some(tag) = if_match {
            request = request.header("If-Match", tag);
        }
        api.send(request.body(body.to_owned()))
    };
    let trickle = "application/trickle-ice-sdpfrag";
    assert_problem(&patch(trickle, None, fragment), 428, "no If-Match (RFC 9725 §4.3.1)");
    assert_problem(&patch(trickle, Some("\"other\""), fragment), 412, "another ICE session");
    assert_problem(&patch("text/plain", Some(&etag), fragment), 415, "not a fragment");
    assert_eq!(patch(trickle, Some(&etag), fragment).status, 204);

    let strange = api.url("/transports/TP_AAAAAAAAAAAA");
    assert_problem(&api.delete(&strange), 404, "a transport that never was");
    assert_problem(&api.delete(&api.url("/transports/nonsense")), 404, "no id at all");
    assert_eq!(api.delete(&resource).status, 200);
    assert_problem(&api.delete(&resource), 404, "deleted twice");
}

#[test]
fn answers_are_what_the_documents_promise() {
    let server = TestServer::start();
    let api = server.api();
    let ann = Publisher::start(&api, "shape", "ann", PublishOptions::default());
    let answer = ann.answer();
    assert_eq!(answer.header("content-type").as_deref(), Some("application/sdp"));
    assert!(ann.resource().path().starts_with("/transports/TP_"), "{}", ann.resource());
    // RFC 9725 §4.4: ICE-lite, one BUNDLE group, RTP and RTCP on one port.
    for line in ["a=ice-lite", "a=group:BUNDLE", "a=rtcp-mux", "a=setup:passive"] {
        assert!(answer.body.contains(line), "the answer lacks {line}:\n{}", answer.body);
    }
    // A track is published with its first packet: who came before it is told by events, who comes after it by the answer.
    let before = Viewer::start(&api, "shape", ViewOptions::default());
    before.wait_for_streams(&[ann.audio_stream(), ann.video_stream()], 1, SOON);
    let viewer = Viewer::start(&api, "shape", ViewOptions::default());
    let sdp = &viewer.answer().body;
    assert_eq!(sdp.matches("a=sendonly").count(), 2, "{sdp}");
    // interfaces §5: who is where.
    let told = |line: &str| line.strip_prefix("a=msid:ann TR_").is_some_and(|id| id.len() == 12);
    assert_eq!(sdp.lines().filter(|line| told(line)).count(), 2, "{sdp}");
}

#[test]
fn a_server_with_keys_lets_in_only_who_has_the_grant() {
    let server = guarded();
    let api = server.api();
    let ask = |token: Option<&str>, path: &str| {
        let api = token.map_or_else(|| api.clone(), |token| api.with_token(token));
        if path.starts_with("/whep") { api.post_sdp(path, play_offer()) } else { api.post_sdp(path, OFFER) }
    };
    let join = |room: &str, publish: bool, subscribe: bool| {
        token("ann", json!({ "roomJoin": true, "room": room, "canPublish": publish, "canSubscribe": subscribe }))
    };
    let good = join("club", true, true);
    let late = token::signed("ann", json!({ "roomJoin": true, "room": "club" }), -600, token::SECRET);
    let forged =
        token::signed("ann", json!({ "roomJoin": true, "room": "club" }), 600, "another-secret-of-the-same-length");
    let lone = token("ann", json!({ "room": "club", "canPublish": true }));
    for (what, answer, status) in [
        ("no token", ask(None, "/whip/club/ann"), 401),
        ("no token, to play", ask(None, "/whep/club"), 401),
        ("not a token", ask(Some("nope"), "/whip/club/ann"), 401),
        ("ended", ask(Some(&late), "/whip/club/ann"), 401),
        ("signed by somebody else", ask(Some(&forged), "/whip/club/ann"), 401),
        ("without roomJoin", ask(Some(&lone), "/whip/club/ann"), 403),
        ("for another room", ask(Some(&good), "/whip/other/ann"), 403),
        ("may only play", ask(Some(&join("club", false, true)), "/whip/club/ann"), 403),
        ("may only publish", ask(Some(&join("club", true, false)), "/whep/club"), 403),
        ("somebody else's name", ask(Some(&good), "/whip/club/bob"), 403),
    ] {
        assert_problem(&answer, status, what);
        if status == 401 {
            let challenge = answer.header("www-authenticate").unwrap_or_default();
            assert!(challenge.starts_with("Bearer"), "{what}: RFC 9110 §11.6.1 wants a challenge");
        }
    }
    assert_eq!(ask(Some(&good), "/whip/club/bob").code(), "identity_mismatch");
    assert_eq!(api.get("/api/v1/rooms").status, 401);
    assert_eq!(api.with_token(&good).get("/api/v1/rooms").status, 403);
    let admin = api.with_token(&token("ops", json!({ "roomList": true, "roomCreate": true })));
    assert_eq!(admin.get("/api/v1/rooms").status, 200);

    // And the good one does what it says.
    let ann = Publisher::start(&api.with_token(&good), "club", "ann", PublishOptions::default());
    assert_problem(&api.delete(ann.resource()), 401, "ending it without a token");
    let bob = token("bob", json!({ "roomJoin": true, "room": "club" }));
    assert_problem(&api.with_token(&bob).delete(ann.resource()), 403, "ending somebody else's");
    assert_eq!(ann.stop(), 200);
}

#[test]
fn a_guest_has_a_say_over_its_own_session_only() {
    let server = TestServer::start();
    let api = server.api();
    let (gus, eve) = (api.post_sdp("/whip/open/gus", OFFER), api.post_sdp("/whip/open/eve", OFFER));
    let id = |made: &Answer| made.location().expect("a Location").path().trim_start_matches("/transports/").to_owned();
    // Where eve learns gus' session: everybody may read it.
    let people = api.get("/api/v1/rooms/open").json()["participants"].as_array().cloned().expect("participants");
    let of_gus = people.iter().find(|p| p["identity"] == "gus").and_then(|p| p["session"].as_str()).expect("a session");
    assert_eq!(gus.header("rondo-session").as_deref(), Some(of_gus));
    let patch = |path: &str, transport: Option<&str>, body: serde_json::Value| {
        let mut request = api.request(Method::PATCH, api.url(path)).json(&body);
        if let Some(id) = transport {
            request = request.header("Rondo-Transport", id);
        }
        api.send(request)
    };
    let session = format!("/api/v1/sessions/{of_gus}");
    let wishes = format!("{session}/subscriptions");
    let events = format!("/api/v1/rooms/open/events?session={of_gus}");
    for transport in [None, Some(id(&eve))] {
        let transport = transport.as_deref();
        assert_problem(&patch(&session, transport, json!({ "name": "Fool" })), 401, "renaming somebody else");
        assert_problem(&patch(&wishes, transport, json!([])), 401, "wishing for somebody else");
        let query = transport.map_or_else(String::new, |id| format!("&transport={id}"));
        assert_problem(&api.get(&format!("{events}{query}")), 401, "reading somebody else's events");
    }
    assert_eq!(patch(&session, Some(&id(&gus)), json!({ "name": "Gus" })).json()["name"], "Gus");
    assert_eq!(patch(&wishes, Some(&id(&gus)), json!([])).status, 204);
    drop(api.open_stream(&format!("{events}&transport={}", id(&gus))));
    // Nobody is shown what opens all this.
    for path in ["/api/v1/sessions".to_owned(), session.clone(), format!("{session}/timeline")] {
        assert!(!api.get(&path).body.contains("TP_"), "{path}");
    }
}

#[test]
fn a_token_of_the_command_line_opens_the_door() {
    let server = guarded();
    let keys = token::keys();
    let member = |identity: &str| {
        let made = process::run(
            &["token", "create", "--room", "gate", "--identity", identity],
            &[("RONDO_AUTH__KEYS", &keys)],
        );
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let text = String::from_utf8(made.stdout).expect("text");
        assert!(!text.contains(token::SECRET), "a secret is never printed");
        let token = text.split_whitespace().find(|word| word.matches('.').count() == 2).expect("a token on stdout");
        server.api().with_token(token)
    };
    let (ann, bob) = (member("ann"), member("bob"));
    let publisher = Publisher::start(&ann, "gate", "ann", PublishOptions::default());
    let viewer = Viewer::start(&bob, "gate", ViewOptions::default());
    let streams = [publisher.audio_stream(), publisher.video_stream()];
    viewer.wait_for_streams(&streams, 50, Duration::from_secs(20)).assert_whole();
    assert_problem(&ann.post_sdp("/whip/elsewhere/ann", OFFER), 403, "the same token in another room");
}

#[test]
fn pages_and_probes_answer() {
    let server = TestServer::start();
    let api: Api = server.api();
    // interfaces §2: `GET /` without `Accept: text/html` answers OK.
    let plain = api.get("/");
    assert_eq!((plain.status, plain.body.trim()), (200, "OK"));
    for path in ["/healthz", "/readyz", "/metrics", "/api/v1/openapi.json", "/api/v1/rooms"] {
        assert_eq!(api.get(path).status, 200, "{path}");
    }
    assert_problem(&api.get("/no/such/page"), 404, "no such page");
}
