//! The doors over a real node, without media: who may do what, how it is refused, what every answer carries.

use super::{Shared, app};
use crate::auth::{Auth, Claims, VideoClaim, unix_s};
use crate::config::{Config, Secret};
use actix_http::Request;
use actix_web::body::MessageBody;
use actix_web::dev::{Service, ServiceResponse};
use actix_web::http::header::HeaderMap;
use actix_web::test::{TestRequest, init_service};
use actix_web::{Error, web};
use rondo_actors::node::Node;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::pin::Pin;

const OFFER: &str = include_str!("../../tests/cases/http-04/offer.sdp");

fn config(dev: bool) -> Config {
    let mut config = Config { dev, ..Config::default() };
    config.media.bind = Ipv4Addr::LOCALHOST.into();
    (config.media.first_port, config.media.workers, config.media.pin) = (0, Some(1), false);
    config.auth.keys.0.insert("key".to_owned(), Secret::new("0123456789abcdef0123456789abcdef"));
    config
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }
    fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A node with its doors, asked without a socket.
struct Site<S> {
    app: S,
    node: Node,
    auth: Auth,
}

/// Runs a test against a fresh site.
macro_rules! site {
    ($config:expr) => {{
        let config = $config;
        let (node, _) = Node::start(config.node()).await.unwrap();
        let shared = web::Data::new(Shared::new(node.clone(), &config, None));
        Site { app: init_service(app(shared)).await, node, auth: Auth::new(config.auth.keys.clone(), false) }
    }};
}

impl<S, B> Site<S>
where
    S: Service<Request, Response = ServiceResponse<B>, Error = Error>,
    B: MessageBody,
{
    async fn ask(&self, request: TestRequest) -> Answer {
        let response = self.app.call(request.to_request()).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let Ok(body) = actix_web::body::to_bytes(response.into_body()).await else { panic!("a body that ends early") };
        Answer { status, headers, body: String::from_utf8(body.to_vec()).unwrap() }
    }

    async fn get(&self, path: &str, token: Option<&str>) -> Answer {
        self.ask(with(TestRequest::get().uri(path), token)).await
    }

    async fn post_offer(&self, path: &str, token: Option<&str>) -> Answer {
        let request = TestRequest::post().uri(path).insert_header(("Content-Type", "application/sdp"));
        self.ask(with(request.set_payload(OFFER), token)).await
    }

    async fn send_json(&self, request: TestRequest, token: Option<&str>, body: Value) -> Answer {
        self.ask(with(request.set_json(body), token)).await
    }

    /// Opens an event stream and reads what it begins with.
    async fn snapshot(&self, uri: &str) -> Value {
        let response = self.app.call(TestRequest::get().uri(uri).to_request()).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers().get("content-type").unwrap(), "text/event-stream");
        assert_eq!(response.headers().get("x-accel-buffering").unwrap(), "no");
        let mut body = Box::pin(response.into_body());
        let mut text = String::new();
        while !text.contains("event: snapshot") || !text.ends_with("\n\n") {
            let chunk = std::future::poll_fn(|cx| Pin::as_mut(&mut body).poll_next(cx)).await.unwrap();
            let Ok(chunk) = chunk else { panic!("a stream that breaks") };
            text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        serde_json::from_str(data).unwrap()
    }

    /// A token for room `r`.
    fn token(&self, identity: &str, change: impl FnOnce(&mut VideoClaim)) -> String {
        let mut video = VideoClaim { room_join: true, room: "r".to_owned(), ..VideoClaim::default() };
        change(&mut video);
        let claims = Claims { sub: identity.to_owned(), exp: unix_s() + 600, video, ..Claims::default() };
        self.auth.sign(None, claims).unwrap()
    }
}

fn with(request: TestRequest, token: Option<&str>) -> TestRequest {
    match token {
        Some(token) => request.insert_header(("Authorization", format!("Bearer {token}"))),
        None => request,
    }
}

#[actix_web::test]
async fn every_answer_can_be_read_by_every_page_and_names_its_trace() {
    let site = site!(config(false));
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (method, path, status) in [
        ("GET", "/healthz", 200),
        ("GET", "/api/v1/rooms", 401),
        ("POST", "/whip/r/ann", 401),
        ("GET", "/nowhere", 404),
        ("PUT", "/whip/r", 405),
        ("GET", "/transports/TP_abcdefghijkl", 405),
        ("OPTIONS", "/whip/r", 204),
    ] {
        let request = TestRequest::with_uri(path).method(method.parse().unwrap()).insert_header(("traceparent", trace));
        let answer = site.ask(request).await;
        assert_eq!(answer.status, status, "{method} {path}");
        assert_eq!(answer.header("access-control-allow-origin"), "*");
        for name in ["Location", "ETag", "Link", "Rondo-Session", "Retry-After"] {
            assert!(answer.header("access-control-expose-headers").contains(name), "{name}");
        }
        assert!(answer.header("server").starts_with("rondo/"));
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert!(answer.header("content-security-policy").starts_with("default-src 'none'"));
        assert!(answer.header("traceresponse").starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
        assert_eq!(status == 401, answer.header("www-authenticate").starts_with("Bearer"), "{method} {path}");
        assert_eq!(status == 405, !answer.header("allow").is_empty(), "{method} {path}");
        if status >= 400 {
            assert_eq!(answer.header("content-type"), "application/problem+json");
            assert_eq!(answer.json()["status"], status);
        }
    }
    site.node.stop().await;
}

#[actix_web::test]
async fn an_answer_to_an_offer_says_where_it_lives() {
    let site = site!(config(true));
    for path in ["/whip/r/ann", "//whip/r/ann", "/whip//r/ann"] {
        let made = site.post_offer(path, None).await;
        assert_eq!(made.status, 201, "{path}: {}", made.body);
        assert!(made.header("location").starts_with("/transports/TP_"));
        assert!(made.header("etag").starts_with('"') && made.header("etag").ends_with('"'));
        assert!(made.header("rondo-session").starts_with("PA_"));
        assert_eq!(made.header("content-type"), "application/sdp");
        assert_eq!(made.header("accept-patch"), "application/trickle-ice-sdpfrag");
    }
    assert_eq!(site.get("/whip/r", None).await.status, 204);
    site.node.stop().await;
}

#[actix_web::test]
async fn a_guest_made_name_is_given_where_none_is() {
    let site = site!(config(true));
    assert_eq!(site.post_offer("/whip/r", None).await.status, 201);
    let token = site.token("cid", |_| {});
    assert_eq!(site.post_offer("/whip/r", Some(&token)).await.status, 201);
    let room = site.get("/api/v1/rooms/r", None).await.json();
    let names: Vec<&str> =
        room["participants"].as_array().unwrap().iter().map(|p| p["identity"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 2);
    assert!(names.iter().any(|name| name.starts_with("guest-") && name.len() == 12), "{names:?}");
    assert!(names.contains(&"cid"));
    site.node.stop().await;
}

#[actix_web::test]
async fn bodies_are_bounded() {
    let site = site!(config(true));
    let post = |path: &str, kind: &str, bytes: usize| {
        let request = TestRequest::post().uri(path).insert_header(("Content-Type", kind.to_owned()));
        request.set_payload("x".repeat(bytes))
    };
    let too_large = site.ask(post("/whip/r/a", "application/sdp", 128 * 1024 + 1)).await;
    assert_eq!((too_large.status, too_large.code().as_str()), (413, "body_too_large"));
    assert_eq!(site.ask(post("/whip/r/a", "application/sdp", 128 * 1024)).await.status, 400);
    assert_eq!(site.ask(post("/api/v1/dev/token", "application/json", 256 * 1024 + 1)).await.status, 413);
    let announced = post("/whip/r/a", "application/sdp", 10).insert_header(("Content-Length", "2147483647"));
    assert_eq!(site.ask(announced).await.status, 413);
    site.node.stop().await;
}

#[actix_web::test]
async fn development_mode_hands_out_true_tokens_and_only_there() {
    let site = site!(config(true));
    let ask = |body: Value| site.send_json(TestRequest::post().uri("/api/v1/dev/token"), None, body);
    let given = ask(json!({"room": "r", "identity": "ann", "name": "Ann"})).await.json();
    assert_eq!((given["identity"].as_str(), given["room"].as_str()), (Some("ann"), Some("r")));
    let token = given["token"].as_str().unwrap();
    assert_eq!(site.post_offer("/whip/r/ann", Some(token)).await.status, 201);
    let mismatch = site.post_offer("/whip/r/bob", Some(token)).await;
    assert_eq!((mismatch.status, mismatch.code().as_str()), (403, "identity_mismatch"));
    assert_eq!(site.post_offer("/whip/q/ann", Some(token)).await.code(), "forbidden");
    assert!(ask(json!({"room": "r"})).await.json()["identity"].as_str().unwrap().starts_with("guest-"));
    assert_eq!(ask(json!({"room": "a b"})).await.code(), "bad_name");
    assert_eq!(ask(json!({"rom": "r"})).await.code(), "bad_body");
    site.node.stop().await;

    let closed = site!(config(false));
    let request = TestRequest::post().uri("/api/v1/dev/token");
    assert_eq!(closed.send_json(request, None, json!({"room": "r"})).await.status, 404);
    closed.node.stop().await;
}

#[actix_web::test]
async fn a_guest_ends_what_guests_made_and_administers_nothing() {
    let site = site!(config(true));
    let ann = site.token("ann", |_| {});
    let of_guest = site.post_offer("/whip/r/gus", None).await;
    let of_token = site.post_offer("/whip/r/ann", Some(&ann)).await;
    let end =
        |made: &Answer, token: Option<&str>| site.ask(with(TestRequest::delete().uri(made.header("location")), token));
    assert_eq!(end(&of_token, None).await.status, 401);
    assert_eq!(end(&of_token, Some("nope")).await.status, 401, "a wrong token is wrong in development mode too");
    assert_eq!(end(&of_token, Some(&site.token("bob", |_| {}))).await.code(), "identity_mismatch");
    assert_eq!(end(&of_token, Some(&ann)).await.status, 200);
    let again = end(&of_token, Some(&ann)).await;
    assert_eq!((again.status, again.code().as_str()), (404, "client_left"));
    assert_eq!(site.ask(TestRequest::delete().uri("/api/v1/rooms/r")).await.status, 401);
    let create = site.send_json(TestRequest::post().uri("/api/v1/rooms"), None, json!({"name": "x"})).await;
    assert_eq!(create.status, 401);
    let session = format!("/api/v1/sessions/{}", of_guest.header("rondo-session"));
    assert_eq!(site.ask(TestRequest::delete().uri(&session)).await.status, 401);
    assert_eq!(site.get(&session, None).await.status, 200);
    assert_eq!(end(&of_guest, None).await.status, 200);
    site.node.stop().await;
}

#[actix_web::test]
async fn a_guest_changes_only_the_session_whose_transport_it_names() {
    let site = site!(config(true));
    let bob = site.token("bob", |_| {});
    let of_gus = site.post_offer("/whip/r/gus", None).await;
    let of_eve = site.post_offer("/whip/r/eve", None).await;
    let of_bob = site.post_offer("/whip/r/bob", Some(&bob)).await;
    let id = |made: &Answer| made.header("location").trim_start_matches("/transports/").to_owned();
    let session = |made: &Answer| format!("/api/v1/sessions/{}", made.header("rondo-session"));
    let rename = |made: &Answer, transport: Option<String>| {
        let mut request = TestRequest::patch().uri(&session(made));
        if let Some(id) = transport {
            request = request.insert_header(("Rondo-Transport", id));
        }
        site.send_json(request, None, json!({"name": "Gus"}))
    };
    // A session's id is read by everybody in the room, so it opens nothing; nor does somebody else's transport.
    for transport in [None, Some(id(&of_eve)), Some(id(&of_bob)), Some("TP_AAAAAAAAAAAA".to_owned())] {
        let refused = rename(&of_gus, transport.clone()).await;
        assert_eq!((refused.status, refused.code().as_str()), (401, "unauthorized"), "{transport:?}");
    }
    assert!(rename(&of_gus, None).await.json()["detail"].as_str().unwrap().contains("Rondo-Transport"));
    assert_eq!(rename(&of_gus, Some("nonsense".to_owned())).await.code(), "transport_not_found");
    assert_eq!(rename(&of_bob, Some(id(&of_bob))).await.status, 401, "made with a token");
    let renamed = rename(&of_gus, Some(id(&of_gus))).await;
    assert_eq!((renamed.status, renamed.json()["name"].as_str()), (200, Some("Gus")));
    assert_eq!(renamed.json()["transports"][0].get("id"), None);

    let wish = |query: String| {
        let request = TestRequest::patch().uri(&format!("{}/subscriptions{query}", session(&of_gus)));
        site.send_json(request, None, json!([]))
    };
    assert_eq!(wish(String::new()).await.status, 401);
    assert_eq!(wish(format!("?transport={}", id(&of_eve))).await.status, 401);
    assert_eq!(wish(format!("?transport={}", id(&of_gus))).await.status, 204);

    let events = format!("/api/v1/rooms/r/events?session={}", of_gus.header("rondo-session"));
    assert_eq!(site.get(&events, None).await.status, 401);
    assert_eq!(site.get(&format!("{events}&transport={}", id(&of_eve)), None).await.status, 401);
    let snapshot = site.snapshot(&format!("{events}&transport={}", id(&of_gus))).await;
    assert_eq!(snapshot["you"], of_gus.header("rondo-session"));

    // A guest under the name of somebody with a token has a transport in that session, and no say over it.
    let intruder = site.post_offer("/whip/r/bob?source=screen", None).await;
    assert_eq!(intruder.header("rondo-session"), of_bob.header("rondo-session"));
    assert_eq!(rename(&of_bob, Some(id(&intruder))).await.status, 401);
    site.node.stop().await;
}

#[actix_web::test]
async fn transport_ids_are_shown_to_the_sessions_token_and_to_admins_only() {
    let site = site!(config(true));
    let (ann, bob) = (site.token("ann", |_| {}), site.token("bob", |_| {}));
    let admin = site.token("root", |v| (v.room_admin, v.room_join) = (true, false));
    site.post_offer("/whip/r/gus", None).await;
    let of_ann = site.post_offer("/whip/r/ann", Some(&ann)).await;
    let session = format!("/api/v1/sessions/{}", of_ann.header("rondo-session"));
    let shows = |answer: &Answer| answer.body.contains("TP_");
    assert!(shows(&site.get(&session, Some(&ann)).await));
    assert!(shows(&site.get(&session, Some(&admin)).await));
    assert!(shows(&site.get("/api/v1/sessions?room=r", Some(&admin)).await));
    assert_eq!(site.get(&session, Some(&bob)).await.status, 403);
    for path in [&*session, &format!("{session}/timeline"), "/api/v1/sessions", "/api/v1/rooms", "/api/v1/rooms/r"] {
        let seen = site.get(path, None).await;
        assert!(seen.status == 200 && !shows(&seen), "{path}: {}", seen.body);
    }
    assert!(!site.snapshot("/api/v1/rooms/r/events").await.to_string().contains("TP_"));
    site.node.stop().await;
}

#[actix_web::test]
async fn lists_are_read_a_page_at_a_time() {
    let site = site!(config(true));
    for path in ["/whip/b/ann", "/whip/a/ann", "/whip/c/ann", "/whip/c/bob"] {
        assert_eq!(site.post_offer(path, None).await.status, 201);
    }
    let list = async |path: &str, field: &str| -> Vec<String> {
        let all = site.get(path, None).await.json();
        all.as_array().unwrap().iter().map(|one| one[field].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(list("/api/v1/rooms", "name").await, ["a", "b", "c"]);
    assert_eq!(list("/api/v1/rooms?limit=2", "name").await, ["a", "b"]);
    assert_eq!(list("/api/v1/rooms?limit=2&after=b", "name").await, ["c"]);
    // There is no room of that name (any more).
    assert_eq!(list("/api/v1/rooms?limit=1&after=aa", "name").await, ["b"]);
    let all = list("/api/v1/sessions", "session").await;
    assert!(all.len() == 4 && all.is_sorted());
    let mut read = list("/api/v1/sessions?limit=3", "session").await;
    assert_eq!(read.len(), 3);
    read.extend(list(&format!("/api/v1/sessions?limit=3&after={}", read[2]), "session").await);
    assert_eq!(read, all);
    assert_eq!(list("/api/v1/sessions?room=c&limit=1", "session").await.len(), 1);
    for (query, code) in
        [("limit=0", "bad_value"), ("limit=1001", "bad_value"), ("limit=-1", "bad_query"), ("limit=x", "bad_query")]
    {
        assert_eq!(site.get(&format!("/api/v1/rooms?{query}"), None).await.code(), code, "{query}");
        assert_eq!(site.get(&format!("/api/v1/sessions?{query}"), None).await.code(), code, "{query}");
    }
    assert_eq!(site.get("/api/v1/rooms?after=a%20b", None).await.code(), "bad_name");
    assert_eq!(site.get("/api/v1/sessions?after=b", None).await.code(), "session_not_found");
    site.node.stop().await;
}

#[actix_web::test]
async fn rooms_are_opened_read_changed_and_ended() {
    let site = site!(config(false));
    let owner = site.token("", |v| (v.room_create, v.room_list, v.room_join) = (true, true, false));
    let owner = Some(owner.as_str());
    let create = |body: Value| site.send_json(TestRequest::post().uri("/api/v1/rooms"), owner, body);
    let made = create(json!({"name": "show", "kind": "live", "metadata": "m"})).await;
    assert_eq!((made.status, made.header("location")), (201, "/api/v1/rooms/show"));
    assert_eq!((made.json()["kind"].as_str(), made.json()["metadata"].as_str()), (Some("live"), Some("m")));
    assert!(made.json()["id"].as_str().unwrap().starts_with("RM_"));
    let again = create(json!({"name": "show"})).await;
    assert_eq!((again.status, again.code().as_str()), (409, "room_exists"));
    assert_eq!(create(json!({"name": "v1"})).await.code(), "bad_name");
    assert_eq!(create(json!({"name": "x", "kind": "tv"})).await.code(), "bad_body");
    assert_eq!(create(json!({"name": "x", "metadata": "x".repeat(65_537)})).await.status, 422);
    assert_eq!(site.get("/api/v1/rooms", owner).await.json().as_array().unwrap().len(), 1);
    let change = site.send_json(TestRequest::patch().uri("/api/v1/rooms/show"), owner, json!({"metadata": "n"})).await;
    assert_eq!((change.status, change.json()["metadata"].as_str()), (200, Some("n")));
    assert_eq!(site.ask(with(TestRequest::delete().uri("/api/v1/rooms/show"), owner)).await.status, 200);
    assert_eq!(site.get("/api/v1/rooms/nothing", owner).await.code(), "room_not_found");
    site.node.stop().await;
}

#[actix_web::test]
async fn a_session_is_its_own_and_its_rooms_admins() {
    let site = site!(config(false));
    let (ann, bob) = (site.token("ann", |_| {}), site.token("bob", |_| {}));
    let admin = site.token("root", |v| (v.room_admin, v.room_list) = (true, true));
    let made = site.post_offer("/whip/r/ann", Some(&ann)).await;
    let session = format!("/api/v1/sessions/{}", made.header("rondo-session"));

    let own = site.get(&session, Some(&ann)).await.json();
    assert_eq!((own["identity"].as_str(), own["room"].as_str()), (Some("ann"), Some("r")));
    assert!(made.header("location").ends_with(own["transports"][0]["id"].as_str().unwrap()));
    assert_eq!(site.get(&session, Some(&bob)).await.status, 403);
    let listing = site.token("eye", |v| (v.room_list, v.room_join) = (true, false));
    let listed = site.get("/api/v1/sessions?room=r", Some(&listing)).await.json();
    assert_eq!(listed[0]["transports"][0].get("id"), None, "who may not end it is not told its id");
    assert_eq!(site.get("/api/v1/sessions", Some(&ann)).await.code(), "forbidden");
    assert_eq!(site.get("/api/v1/sessions?state=asleep", Some(&listing)).await.code(), "bad_query");

    let patch = |token: &str, body: Value| {
        let token = token.to_owned();
        let request = TestRequest::patch().uri(&session);
        let site = &site;
        async move { site.send_json(request, Some(&token), body).await }
    };
    assert_eq!(patch(&ann, json!({"name": "Ann B"})).await.json()["name"], "Ann B");
    assert_eq!(patch(&bob, json!({"name": "Eve"})).await.status, 403);
    assert_eq!(patch(&ann, json!({"muted": {"nonsense": true}})).await.status, 404);
    assert_eq!(patch(&ann, json!({"mute": {}})).await.code(), "bad_body");
    assert_eq!(patch(&admin, json!({"name": "Ann"})).await.json()["name"], "Ann");

    let wish = TestRequest::patch().uri(&format!("{session}/subscriptions"));
    assert_eq!(site.send_json(wish, Some(&ann), json!([])).await.status, 204);
    let timeline = site.get(&format!("{session}/timeline"), Some(&ann)).await.json();
    assert_eq!(timeline["transports"][0]["door"], "whip");
    assert_eq!(site.ask(with(TestRequest::delete().uri(&session), Some(&ann))).await.status, 403);
    assert_eq!(site.ask(with(TestRequest::delete().uri(&session), Some(&admin))).await.status, 200);
    let gone = site.get(&session, Some(&admin)).await;
    assert_eq!((gone.status, gone.code().as_str()), (404, "removed"));
    site.node.stop().await;
}

#[actix_web::test]
async fn events_begin_with_a_snapshot_that_knows_who_reads() {
    let site = site!(config(false));
    let ann = site.token("ann", |_| {});
    let made = site.post_offer("/whip/r/ann", Some(&ann)).await;
    // A browser's EventSource cannot set headers.
    let snapshot = site.snapshot(&format!("/api/v1/rooms/r/events?access_token={ann}")).await;
    assert_eq!(snapshot["you"], made.header("rondo-session"));
    assert_eq!(snapshot["room"]["participants"][0]["identity"], "ann");

    assert_eq!(site.get("/api/v1/rooms/r/events", None).await.status, 401);
    let deaf = site.token("deaf", |v| v.can_subscribe = Some(false));
    assert_eq!(site.get("/api/v1/rooms/r/events", Some(&deaf)).await.status, 403);
    let bob = site.token("bob", |_| {});
    let of_ann = format!("/api/v1/rooms/r/events?session={}", made.header("rondo-session"));
    assert_eq!(site.get(&of_ann, Some(&bob)).await.code(), "identity_mismatch");
    // The query's token is for streams alone.
    assert_eq!(site.get(&format!("/api/v1/rooms?access_token={ann}"), None).await.status, 401);
    site.node.stop().await;
}

#[actix_web::test]
async fn a_refused_join_is_counted_by_its_code_and_a_scrape_from_afar_needs_an_admin() {
    let site = site!(config(false));
    assert_eq!(site.post_offer("/whip/r/ann", None).await.status, 401);
    let here = TestRequest::get().uri("/metrics").peer_addr("127.0.0.1:9".parse().unwrap());
    let scrape = site.ask(here).await;
    assert!(scrape.header("content-type").starts_with("text/plain; version=0.0.4"));
    assert!(scrape.body.contains("rondo_join_refused_total{door=\"whip\",code=\"unauthorized\"} 1"), "{}", scrape.body);
    assert!(scrape.body.contains("rondo_http_requests_total{route=\"/whip/{room}/{identity}\",status=\"4xx\"} 1"));
    let afar = || TestRequest::get().uri("/metrics").peer_addr("192.0.2.1:9".parse().unwrap());
    assert_eq!(site.ask(afar()).await.status, 401);
    assert_eq!(site.ask(with(afar(), Some(&site.token("ann", |_| {})))).await.status, 403);
    let open = TestRequest::get().uri("/metrics").peer_addr("127.0.0.1:9".parse().unwrap());
    let open = open.insert_header(("Accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"));
    assert!(site.ask(open).await.body.ends_with("# EOF\n"));
    site.node.stop().await;
}

#[actix_web::test]
async fn an_offer_may_hold_only_the_sources_of_its_token() {
    let site = site!(config(false));
    let mic = site.token("ann", |v| v.can_publish_sources = vec!["microphone".to_owned()]);
    let refused = site.post_offer("/whip/r/ann", Some(&mic)).await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "source_not_allowed"));
    let both = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    let camera = site.token("ann", |v| v.can_publish_sources = both(["microphone", "camera"]));
    assert_eq!(site.post_offer("/whip/r/ann", Some(&camera)).await.status, 201);
    assert_eq!(site.post_offer("/whip/r/ann?source=screen", Some(&camera)).await.code(), "source_not_allowed");
    let screen = site.token("ann", |v| v.can_publish_sources = both(["screen_share", "screen_share_audio"]));
    assert_eq!(site.post_offer("/whip/r/ann?source=screen", Some(&screen)).await.status, 201);
    site.node.stop().await;
}

#[actix_web::test]
async fn a_draining_server_says_so() {
    let site = site!(config(true));
    assert_eq!(site.get("/readyz", None).await.status, 200);
    site.node.drain(std::time::Duration::ZERO).await;
    let ready = site.get("/readyz", None).await;
    assert_eq!((ready.status, ready.code().as_str()), (503, "draining"));
    let refused = site.post_offer("/whip/r/ann", None).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "draining"));
    assert!(!refused.header("retry-after").is_empty());
    assert_eq!(site.get("/healthz", None).await.status, 200);
    site.node.stop().await;
}
