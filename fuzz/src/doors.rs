//! Requests of anybody, in any order; tokens; configuration files.

use actix_web::http::{Method, Uri};
use actix_web::test::{TestRequest, init_service};
use actix_web::web;
use arbitrary::{Arbitrary, Unstructured};
use jsonwebtoken::{EncodingKey, Header, encode};
use rondo::auth::{Auth, Claims, VideoClaim};
use rondo::config::{Config, Keys, Secret, Sources};
use rondo::doors::{Shared, app};
use rondo_actors::node::Node;
use serde_json::Value;
use std::cell::RefCell;
use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

const KEY: &str = "key";
const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// An honest offer.
const OFFER: &str = include_str!("../../tests/cases/http-04/offer.sdp");

#[derive(Debug, Arbitrary)]
struct Script<'a> {
    asks: Vec<Ask<'a>>,
}

#[derive(Debug, Arbitrary)]
struct Ask<'a> {
    method: u8,
    path: Path<'a>,
    query: Option<Query<'a>>,
    who: Who<'a>,
    headers: Vec<HeaderOf<'a>>,
    body: Body<'a>,
}

#[derive(Debug, Arbitrary)]
enum Path<'a> {
    Whip { room: Name<'a>, identity: Option<Name<'a>> },
    Whep { room: Name<'a>, identity: Option<Name<'a>> },
    Transport(Id<'a>),
    Rooms,
    Room(Name<'a>),
    Events(Name<'a>),
    Sessions,
    Session { id: Id<'a>, tail: u8 },
    Other(u8),
    Raw(&'a str),
}

#[derive(Debug, Arbitrary)]
enum Name<'a> {
    Usual(u8),
    Other(&'a str),
}

/// An id that an answer told, or another.
#[derive(Debug, Arbitrary)]
enum Id<'a> {
    Told(u8),
    Other(&'a str),
}

#[derive(Debug, Arbitrary)]
enum Query<'a> {
    Raw(&'a str),
    Page { limit: u16, after: &'a str },
    Publish { source: u8, live: bool },
    Events { after: u64, session: Id<'a>, transport: Id<'a> },
}

#[derive(Debug, Arbitrary)]
enum Who<'a> {
    Guest,
    Token { identity: u8, grants: u16 },
    Bearer(&'a str),
}

#[derive(Debug, Arbitrary)]
enum HeaderOf<'a> {
    Type(u8),
    IfMatch(Option<&'a str>),
    LastEventId(u64),
    Transport(Id<'a>),
    ContentLength(u32),
    Other { name: u8, value: &'a [u8] },
}

#[derive(Debug, Arbitrary)]
enum Body<'a> {
    None,
    Offer,
    /// The honest offer with something in the place of something.
    Changed {
        at: u16,
        len: u8,
        with: &'a str,
    },
    Fragment {
        ufrag: &'a str,
        candidate: &'a str,
    },
    /// Settings, names, wishes: the keys that exist, with any values.
    Json {
        keys: Vec<(u8, u8)>,
        text: &'a str,
    },
    Wishes(Vec<(Id<'a>, bool, u32)>),
    Raw(&'a [u8]),
}

/// Requests of one script; each may cost a handshake's preparation.
const ASKS_MAX: usize = 8;

type Asked = Pin<Box<dyn Future<Output = Answer>>>;

struct Answer {
    status: u16,
    /// Names of headers with their values.
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

/// A node with its doors, asked without a TCP socket; one for each thread, as long as the thread.
struct Site {
    system: actix_rt::SystemRunner,
    ask: Rc<dyn Fn(TestRequest) -> Asked>,
    node: Node,
    auth: Auth,
}

thread_local! {
    /// Never dropped: a thread's end is too late for a runtime to end.
    static SITE: RefCell<Option<&'static Site>> = const { RefCell::new(None) };
}

fn site_config() -> Config {
    let mut config = Config { dev: true, ..Config::default() };
    config.media.bind = Ipv4Addr::LOCALHOST.into();
    (config.media.first_port, config.media.workers, config.media.pin) = (0, Some(1), false);
    config.limits.rooms = 4;
    config.limits.participants_per_room = 4;
    config.auth.keys.0.insert(KEY.to_owned(), Secret::new(SECRET));
    config
}

impl Site {
    fn new() -> Self {
        let config = site_config();
        let system = actix_rt::System::new();
        let (ask, node) = system.block_on(async {
            let (node, _) = Node::start(config.node()).await.expect("a node starts");
            let shared = web::Data::new(Shared::new(node.clone(), &config, None));
            let app = Rc::new(init_service(app(shared)).await);
            let ask = move |request: TestRequest| -> Asked {
                let app = app.clone();
                Box::pin(async move {
                    use actix_web::dev::Service;
                    let response = app.call(request.to_request()).await.expect("the doors answer");
                    let headers = response.headers().iter();
                    let headers: Vec<(String, String)> = headers
                        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
                        .collect();
                    let status = response.status().as_u16();
                    let stream = headers.iter().any(|(_, value)| value == "text/event-stream");
                    let body = match stream {
                        // It ends with the room.
                        true => Vec::new(),
                        false => match actix_web::body::to_bytes(response.into_body()).await {
                            Ok(bytes) => bytes.to_vec(),
                            Err(_) => panic!("a body that ends early"),
                        },
                    };
                    Answer { status, headers, body }
                })
            };
            (Rc::new(ask) as Rc<dyn Fn(TestRequest) -> Asked>, node)
        });
        let auth = Auth::new(config.auth.keys, false);
        Self { system, ask, node, auth }
    }
}

/// Every request is answered, never by a fault of the server, and what went wrong is told in one way.
pub fn requests(data: &[u8]) {
    let Ok(script) = Script::arbitrary_take_rest(Unstructured::new(data)) else { return };
    SITE.with_borrow_mut(|site| {
        let site = site.get_or_insert_with(|| Box::leak(Box::new(Site::new())));
        let mut told = Told::default();
        for ask in script.asks.iter().take(ASKS_MAX) {
            let Some(request) = request(&site.auth, &told, ask) else { continue };
            let method = method(ask.method);
            let answered = (site.ask)(request);
            let within = async { tokio::time::timeout(Duration::from_secs(20), answered).await };
            let answer = site.system.block_on(within).expect("an answer within 20 s");
            check(&method, &answer);
            told.hear(&answer);
        }
        site.system.block_on(forget(&site.node));
    });
}

/// Ends every room, so that the next script finds the node as this one did.
async fn forget(node: &Node) {
    for room in node.rooms().await.expect("the node answers") {
        // It may have ended by itself.
        let _ = node.delete_room(&room.name, None).await;
    }
    // A machine that let the worker's thread wait for 2 s says nothing of the doors.
    let ready = async {
        while !node.ready() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ready).await.expect("the worker answers");
    let counts = node.counts();
    assert_eq!((counts.supervisor_lost, counts.rooms_died, counts.workers_lost), (0, 0, 0), "something panicked");
    assert!(counts.left.iter().all(|(reason, n)| *reason != "server_error" || *n == 0), "a session panicked");
}

fn check(method: &Method, answer: &Answer) {
    assert!(answer.status < 500 || answer.status == 503, "status {}", answer.status);
    if answer.status < 400 || *method == Method::HEAD || answer.body.is_empty() {
        assert!(answer.status < 400 || *method == Method::HEAD, "{} without a body", answer.status);
        return;
    }
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "RFC 9457");
    let problem: Value = serde_json::from_slice(&answer.body).expect("a problem is JSON");
    assert_eq!(problem["status"], u64::from(answer.status));
    assert!(problem["code"].as_str().is_some_and(|code| !code.is_empty() && code != "internal"), "{problem}");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.len() <= 2_048, "a detail has a bound: {} bytes", detail.len());
}

/// Ids and tags that answers told.
#[derive(Default)]
struct Told {
    ids: Vec<String>,
    etag: Option<String>,
}

impl Told {
    fn hear(&mut self, answer: &Answer) {
        let id = |text: &str| text.rsplit('/').next().unwrap_or_default().to_owned();
        self.ids.extend(answer.header("location").map(id));
        self.ids.extend(answer.header("rondo-session").map(str::to_owned));
        self.etag = answer.header("etag").map(str::to_owned).or(self.etag.take());
    }

    fn id(&self, id: &Id<'_>) -> String {
        match id {
            Id::Told(n) => self.ids.get(usize::from(*n) % self.ids.len().max(1)).cloned().unwrap_or_default(),
            Id::Other(text) => (*text).to_owned(),
        }
    }
}

fn method(n: u8) -> Method {
    [Method::GET, Method::POST, Method::PATCH, Method::DELETE, Method::HEAD, Method::OPTIONS, Method::PUT]
        [usize::from(n) % 7]
        .clone()
}

fn name(name: &Name<'_>) -> String {
    match name {
        Name::Usual(n) => ["red", "green", "blue", "p1", "p2"][usize::from(*n) % 5].to_owned(),
        Name::Other(text) => (*text).to_owned(),
    }
}

fn path(told: &Told, path: &Path<'_>) -> String {
    let door = |door: &str, room: &Name<'_>, identity: &Option<Name<'_>>| match identity {
        Some(identity) => format!("/{door}/{}/{}", name(room), name(identity)),
        None => format!("/{door}/{}", name(room)),
    };
    match path {
        Path::Whip { room, identity } => door("whip", room, identity),
        Path::Whep { room, identity } => door("whep", room, identity),
        Path::Transport(id) => format!("/transports/{}", told.id(id)),
        Path::Rooms => "/api/v1/rooms".to_owned(),
        Path::Room(room) => format!("/api/v1/rooms/{}", name(room)),
        Path::Events(room) => format!("/api/v1/rooms/{}/events", name(room)),
        Path::Sessions => "/api/v1/sessions".to_owned(),
        Path::Session { id, tail } => {
            format!("/api/v1/sessions/{}{}", told.id(id), ["", "/subscriptions", "/timeline"][usize::from(*tail) % 3])
        }
        Path::Other(n) => {
            let others = ["/", "/api/v1/dev/token", "/api/v1/openapi.json", "/healthz", "/readyz", "/metrics"];
            others[usize::from(*n) % others.len()].to_owned()
        }
        Path::Raw(text) => format!("/{text}"),
    }
}

fn query(told: &Told, query: &Query<'_>) -> String {
    match query {
        Query::Raw(text) => (*text).to_owned(),
        Query::Page { limit, after } => format!("limit={limit}&after={after}"),
        Query::Publish { source, live } => {
            let source = ["camera", "screen", "voice"][usize::from(*source) % 3];
            format!("source={source}{}", if *live { "&kind=live" } else { "" })
        }
        Query::Events { after, session, transport } => {
            format!("last_event_id={after}&session={}&transport={}", told.id(session), told.id(transport))
        }
    }
}

/// The request, where HTTP has a way to say it.
fn request(auth: &Auth, told: &Told, ask: &Ask<'_>) -> Option<TestRequest> {
    let mut uri = path(told, &ask.path);
    if let Some(of) = &ask.query {
        uri = format!("{uri}?{}", query(told, of));
    }
    uri.parse::<Uri>().ok()?;
    let mut request = TestRequest::default().method(method(ask.method)).uri(&uri);
    match &ask.who {
        Who::Guest => {}
        Who::Token { identity, grants } => {
            let token = auth.sign(None, claims(*identity, *grants)).expect("a key is there");
            request = request.insert_header(("Authorization", format!("Bearer {token}")));
        }
        Who::Bearer(text) => request = with(request, "Authorization", format!("Bearer {text}").into_bytes()),
    }
    for header in ask.headers.iter().take(8) {
        let (name, value) = match header {
            HeaderOf::Type(n) => {
                let types =
                    ["application/sdp", "application/json", "application/trickle-ice-sdpfrag", "text/plain; a=b", ""];
                ("Content-Type", types[usize::from(*n) % types.len()].as_bytes().to_vec())
            }
            HeaderOf::IfMatch(Some(text)) => ("If-Match", text.as_bytes().to_vec()),
            HeaderOf::IfMatch(None) => ("If-Match", told.etag.clone().unwrap_or_default().into_bytes()),
            HeaderOf::LastEventId(n) => ("Last-Event-ID", n.to_string().into_bytes()),
            HeaderOf::Transport(id) => ("Rondo-Transport", told.id(id).into_bytes()),
            HeaderOf::ContentLength(n) => ("Content-Length", n.to_string().into_bytes()),
            HeaderOf::Other { name, value } => {
                let names = ["Origin", "Accept-Encoding", "If-None-Match", "X-Forwarded-For", "Range", "Last-Event-ID"];
                (names[usize::from(*name) % names.len()], value.to_vec())
            }
        };
        request = with(request, name, value);
    }
    let body = body(told, &ask.body);
    Some(if body.is_empty() { request } else { request.set_payload(body) })
}

fn with(request: TestRequest, name: &'static str, value: Vec<u8>) -> TestRequest {
    match actix_web::http::header::HeaderValue::from_bytes(&value) {
        Ok(value) => request.insert_header((name, value)),
        Err(_) => request,
    }
}

fn claims(identity: u8, grants: u16) -> Claims {
    let bit = |n: u8| grants >> n & 1 != 0;
    let video = VideoClaim {
        room_create: bit(0),
        room_list: bit(1),
        room_admin: bit(2),
        room_join: bit(3),
        room: name(&Name::Usual((grants >> 4) as u8 & 3)),
        can_publish: bit(6).then_some(bit(7)),
        can_subscribe: bit(8).then_some(bit(9)),
        can_publish_sources: if bit(10) { vec!["camera".to_owned()] } else { Vec::new() },
    };
    let exp = rondo::auth::unix_s() + 3_600;
    let mut claims = Claims { sub: format!("p{}", identity % 4), exp, video, ..Claims::default() };
    claims.rondo.admin = bit(11);
    claims
}

fn body(told: &Told, body: &Body<'_>) -> Vec<u8> {
    match body {
        Body::None => Vec::new(),
        Body::Offer => OFFER.as_bytes().to_vec(),
        Body::Changed { at, len, with } => {
            let at = usize::from(*at) % OFFER.len();
            let end = OFFER.len().min(at + usize::from(*len));
            [&OFFER.as_bytes()[..at], with.as_bytes(), &OFFER.as_bytes()[end..]].concat()
        }
        Body::Fragment { ufrag, candidate } => {
            let offered = OFFER.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).unwrap_or_default();
            let ufrag = if ufrag.is_empty() { offered } else { ufrag };
            format!("a=ice-ufrag:{ufrag}\r\na=mid:0\r\na=candidate:{candidate}\r\n").into_bytes()
        }
        Body::Json { keys, text } => {
            let names = [
                "name",
                "kind",
                "max_participants",
                "metadata",
                "muted",
                "identity",
                "room",
                "tracks",
                "track",
                "paused",
            ];
            let value = |n: u8| match n % 7 {
                0 => Value::Null,
                1 => Value::Bool(true),
                2 => Value::from(n),
                3 => Value::from(*text),
                4 => serde_json::json!([text, 1, { "track": text }]),
                5 => serde_json::json!({ (*text): n.is_multiple_of(2) }),
                _ => Value::from(name(&Name::Usual(n))),
            };
            let pairs = keys.iter().map(|(key, of)| (names[usize::from(*key) % names.len()].to_owned(), value(*of)));
            Value::Object(pairs.collect()).to_string().into_bytes()
        }
        Body::Wishes(wishes) => {
            let wish = |(track, paused, n): &(Id<'_>, bool, u32)| serde_json::json!({ "track": told.id(track), "paused": paused, "width_px": n, "priority": n % 300 });
            serde_json::json!({ "tracks": wishes.iter().map(wish).collect::<Vec<_>>() }).to_string().into_bytes()
        }
        Body::Raw(bytes) => bytes.to_vec(),
    }
}

/// An access token, as it came; and claims of any shape with a good signature.
pub fn token(data: &[u8]) {
    let mut keys = Keys::default();
    keys.0.insert(KEY.to_owned(), Secret::new(SECRET));
    let auth = Auth::new(keys, false);
    let Ok(text) = std::str::from_utf8(data) else { return };
    assert!(auth.check(text).is_err(), "nobody guesses a signature");
    let Ok(mut claims) = serde_json::from_str::<Value>(text) else { return };
    if let Some(object) = claims.as_object_mut() {
        object.insert("iss".to_owned(), KEY.into());
    }
    let signing = EncodingKey::from_secret(SECRET.as_bytes()).expect("a secret");
    let Ok(token) = encode(&Header::default(), &claims, &signing) else { return };
    let Ok(grants) = auth.check(&token) else { return };
    assert_eq!(grants.key, KEY);
    let (head, signature) = token.rsplit_once('.').expect("a token has three parts");
    assert!(auth.check(head).is_err() && auth.check(&format!("{head}.")).is_err());
    let other: String = signature.chars().rev().collect();
    assert!(other == signature || auth.check(&format!("{head}.{other}")).is_err());
}

/// A configuration file, and the same text as variables: refused in one sentence, or a configuration that holds.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let file =
        std::env::temp_dir().join(format!("rondo-fuzz-{}-{:?}.toml", std::process::id(), std::thread::current().id()));
    std::fs::write(&file, data).expect("a temporary file");
    let from_file = Sources { file: Some(file.clone()), dev: true, ..Sources::default() };
    judge(&from_file);
    let _ = std::fs::remove_file(&file);
    let env = text.lines().filter_map(|line| line.split_once('=')).map(|(name, value)| {
        let name = name.trim().to_ascii_uppercase();
        (format!("RONDO_{name}"), value.trim().to_owned())
    });
    judge(&Sources { env: env.take(64).collect(), dev: true, ..Sources::default() });
}

fn judge(sources: &Sources) {
    match sources.load() {
        Ok(config) => {
            assert!(!config.advertised().is_empty());
            assert!((1..=32).contains(&config.media_workers()));
            let node = config.node();
            assert!(node.limits.silent_after < node.limits.gone_after);
        }
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && text.len() <= 4_096 + sources.env.iter().map(|(_, v)| v.len()).sum::<usize>());
        }
    }
}
