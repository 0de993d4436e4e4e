//! People come and go, properly and half: afterwards nothing of them is left.
//!
//! `RONDO_CHURN=2000` is the size of a round where it is measured.

use crate::support::client::{PublishOptions, Publisher, ViewOptions, Viewer};
use crate::support::events::Events;
use crate::support::http::{Answer, Api};
use crate::support::metrics::Metrics;
use crate::support::peer::{Lets, Numbers, Peer};
use crate::support::process::Rondo;
use crate::support::wait::poll;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use str0m::Event;
use str0m::media::{Direction, MediaKind};

/// Joins of a round, where nothing is measured.
const TEST_JOINS: usize = 48;
const ROUNDS: usize = 3;
/// Clients at once.
const CLIENTS: usize = 8;
/// People of a room, one after the other; then the next room opens.
const ROOM_OF: usize = 24;
const CONNECTS: Duration = Duration::from_secs(20);
/// The longest that anything of a client lives on: the deadlines set below, and a slow machine.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// What memory may have grown by from the first round's end to the last one's.
const GROWTH_MAX: f64 = 1.10;

/// Everything that ends by itself ends soon.
const SOON: [(&str, &str); 7] = [
    ("RONDO_LIMITS__HEADER_READ_S", "1"),
    ("RONDO_LIMITS__JOIN_DEADLINE_S", "5"),
    ("RONDO_LIMITS__SILENT_AFTER_S", "1"),
    ("RONDO_LIMITS__GONE_AFTER_S", "3"),
    ("RONDO_ROOMS__EMPTY_TIMEOUT_S", "1"),
    ("RONDO_ROOMS__DEPARTURE_TIMEOUT_S", "1"),
    ("RONDO_MEDIA__WORKERS", "2"),
];

/// How far a join goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Far {
    /// A connection, and no request.
    Tcp,
    /// Half of a POST.
    HalfPost,
    /// A whole POST whose answer nobody waits for.
    Post,
    /// The answer is not followed.
    Answer,
    /// ICE is up.
    Stun,
    /// DTLS has begun.
    Hello,
    /// DTLS is up, and no media comes.
    Dtls,
    /// Media flows.
    Media,
    /// Media flows to a viewer.
    View,
    /// Somebody of the same name takes the place.
    Replaced,
    /// An event stream is open meanwhile, and left open.
    Watched,
}

/// How a join ends, where there is something to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// DELETE.
    Delete,
    /// DTLS close.
    Close,
    /// Without a word.
    Vanish,
}

/// A third of all joins is given up half way.
const JOINS: [(Far, End); 36] = [
    (Far::Media, End::Delete),
    (Far::Media, End::Close),
    (Far::Tcp, End::Vanish),
    (Far::View, End::Delete),
    (Far::Media, End::Delete),
    (Far::HalfPost, End::Vanish),
    (Far::Replaced, End::Delete),
    (Far::Media, End::Close),
    (Far::Post, End::Vanish),
    (Far::Watched, End::Delete),
    (Far::View, End::Close),
    (Far::Answer, End::Vanish),
    (Far::Media, End::Delete),
    (Far::Media, End::Vanish),
    (Far::Answer, End::Delete),
    (Far::View, End::Delete),
    (Far::Media, End::Close),
    (Far::Stun, End::Vanish),
    (Far::Replaced, End::Close),
    (Far::Media, End::Delete),
    (Far::Stun, End::Delete),
    (Far::Watched, End::Close),
    (Far::View, End::Delete),
    (Far::Hello, End::Vanish),
    (Far::Media, End::Delete),
    (Far::Media, End::Close),
    (Far::Hello, End::Delete),
    (Far::View, End::Vanish),
    (Far::Media, End::Delete),
    (Far::Dtls, End::Vanish),
    (Far::Replaced, End::Vanish),
    (Far::Media, End::Close),
    (Far::Dtls, End::Delete),
    (Far::Watched, End::Vanish),
    (Far::View, End::Delete),
    (Far::Dtls, End::Close),
];

/// Gauges that are zero when nobody is there.
const AT_REST: [&str; 9] = [
    "rondo_rooms_open",
    "rondo_sessions_open",
    "rondo_transports_open",
    "rondo_worker_slots",
    "rondo_worker_timers",
    "rondo_worker_timers_armed",
    "rondo_worker_demux_transports",
    "rondo_worker_demux_ufrags",
    "rondo_worker_demux_addresses",
];

/// Whether a join has video, with retransmission: every other one of a kind, so that the machine is not busy with media.
fn has_video(number: usize) -> bool {
    number / JOINS.len() % 2 == number % 2
}

/// What a join brings or asks for.
fn kinds(video: bool) -> &'static [MediaKind] {
    if video { &[MediaKind::Audio, MediaKind::Video] } else { &[MediaKind::Audio] }
}

/// Joins; a room that is just ending says 503 and when to try again, and then is opened anew.
fn welcome<T>(join: impl Fn() -> Result<T, Box<Answer>>) -> T {
    poll("the room is open", CONNECTS, || match join() {
        Ok(joined) => Some(joined),
        Err(answer) => {
            assert!(answer.status == 503 && answer.header("retry-after").is_some(), "refused: {answer:?}");
            None
        }
    })
}

fn publish(api: &Api, room: &str, who: &str, video: bool) -> Publisher {
    let options = PublishOptions { video, ..PublishOptions::default() };
    let publisher = welcome(|| Publisher::try_start(api, room, who, options.clone()));
    publisher.wait_until("media goes out", CONNECTS, |s| s.audio_sent > 0 && (!video || s.video_sent > 0));
    publisher
}

fn end(publisher: Publisher, how: End) {
    match how {
        End::Delete => assert_eq!(publisher.stop(), 200),
        End::Close => publisher.close(),
        End::Vanish => drop(publisher.vanish()),
    }
}

/// One join, as far as it goes.
fn join(api: &Api, number: usize, far: Far, how: End) {
    let (room, who, video) = (format!("churn{}", number / ROOM_OF), format!("p{number}"), has_video(number));
    match far {
        Far::Tcp | Far::HalfPost | Far::Post => raw(api, &room, &who, far, video),
        Far::Answer | Far::Stun | Far::Hello | Far::Dtls => half(api, &room, &who, far, how, video),
        Far::Media => end(publish(api, &room, &who, video), how),
        Far::View => {
            let options = ViewOptions { video: usize::from(video), ..ViewOptions::default() };
            let viewer = welcome(|| Viewer::try_start(api, &room, options.clone()));
            match how {
                End::Delete => assert_eq!(viewer.stop(), 200),
                End::Close => drop(viewer),
                End::Vanish => drop(viewer.vanish()),
            }
        }
        Far::Replaced => {
            let first = publish(api, &room, &who, video);
            let second = publish(api, &room, &who, !video);
            drop(first.vanish());
            end(second, how);
        }
        Far::Watched => {
            let publisher = publish(api, &room, &who, video);
            // One reader goes at once, the other stays until the room ends.
            drop(api.open_stream(&format!("/api/v1/rooms/{room}/events")));
            let _reads_on = Events::open(api, &room);
            end(publisher, how);
        }
    }
}

/// Bytes on a connection that is then closed.
fn raw(api: &Api, room: &str, who: &str, far: Far, video: bool) {
    let url = api.url("/");
    let host = format!("{}:{}", url.host_str().expect("a host"), url.port().expect("a port"));
    let mut stream = TcpStream::connect(&host).expect("connected");
    let mut peer = Peer::new(Ipv4Addr::LOCALHOST.into(), Numbers::PUBLISHER);
    let offer = peer.offer(kinds(video), Direction::SendOnly).sdp;
    let head = format!(
        "POST /whip/{room}/{who} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n",
        offer.len()
    );
    let said = match far {
        Far::Tcp => String::new(),
        Far::HalfPost => format!("{head}{}", &offer[..offer.len() / 2]),
        _ => head + &offer,
    };
    stream.write_all(said.as_bytes()).expect("sent");
}

/// A join by hand, as far as DTLS.
fn half(api: &Api, room: &str, who: &str, far: Far, how: End, video: bool) {
    // Some would have played.
    let (numbers, direction, path) = match how {
        End::Delete => (Numbers::VIEWER, Direction::RecvOnly, format!("/whep/{room}")),
        End::Close | End::Vanish => (Numbers::PUBLISHER, Direction::SendOnly, format!("/whip/{room}/{who}")),
    };
    let mut peer = Peer::new(Ipv4Addr::LOCALHOST.into(), numbers);
    let offer = peer.offer(kinds(video), direction);
    let answer = welcome(|| {
        let answer = api.post_sdp(&path, offer.sdp.clone());
        if answer.status == 201 { Ok(answer) } else { Err(Box::new(answer)) }
    });
    match far {
        Far::Stun => peer.let_out(Lets::Checks),
        Far::Hello => peer.let_out(Lets::Hello),
        _ => {}
    }
    if far != Far::Answer {
        peer.accept(offer, &answer.body).expect("an answer");
        let came = match far {
            Far::Dtls => peer.until(CONNECTS, |event| matches!(event, Event::Connected)),
            _ => peer.until_checked(CONNECTS),
        };
        assert!(came, "{far:?} was not reached");
        let end = Instant::now() + CONNECTS;
        while far == Far::Hello && peer.hellos() == 0 {
            assert!(Instant::now() < end, "DTLS does not begin");
            peer.step(end).expect("a connection");
        }
    }
    match how {
        End::Delete => assert_eq!(api.delete(&answer.location().expect("a transport")).status, 200),
        End::Close => peer.close(),
        End::Vanish => {}
    }
}

/// A round of joins, several at once.
fn round(server: &Rondo, from: usize, joins: usize) {
    let next = AtomicUsize::new(from);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let api = server.api();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= from + joins {
                        return;
                    }
                    let (far, how) = JOINS[number % JOINS.len()];
                    join(&api, number, far, how);
                }
            });
        }
    });
}

#[test]
fn nothing_is_left_of_people_who_came_and_went() {
    let measured = std::env::var("RONDO_CHURN").ok().map(|n| n.parse().expect("RONDO_CHURN: joins of a round"));
    let joins: usize = measured.unwrap_or(TEST_JOINS);
    let server = Rondo::serve(&["--dev"], &SOON);
    let api = server.api();
    // Each of the two workers has an actor of its own.
    let before = poll("gauges are told", CONNECTS, || {
        Some(Metrics::of(&api)).filter(|now| now.get("rondo_worker_actors") >= 2.0)
    });
    let mut resident = Vec::new();
    println!(
        "churn {:<6} {:>6} {:>8} {:>8} {:>7} {:>7} {:>9}",
        "round", "joins", "seconds", "at rest", "files", "actors", "RSS MiB"
    );
    // Reasons of 4,096 ended sessions and as many transports are remembered: a round fills what rounds after it use again.
    let before_them = usize::from(measured.is_some());
    for n in 0..before_them + ROUNDS {
        let begun = Instant::now();
        round(&server, n * joins, joins);
        let (took, ended) = (begun.elapsed(), Instant::now());
        let mut last = Metrics::default();
        let rest = || {
            last = Metrics::of(&api);
            let same = |name| last.get(name) <= before.get(name);
            let zero = AT_REST.iter().all(|name| last.get(name) == 0.0);
            (zero && same("rondo_process_files_open") && same("rondo_worker_actors")).then_some(())
        };
        let came = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| poll("all is at rest", FORGOTTEN, rest)));
        if came.is_err() {
            let names = AT_REST.iter().chain(&["rondo_process_files_open", "rondo_worker_actors"]);
            let left: Vec<_> =
                names.map(|name| (*name, before.get(name), last.get(name))).filter(|l| l.1 != l.2).collect();
            panic!("left behind after round {n} (before, now): {left:?}");
        }
        // Gauges say what the lists say.
        for list in ["/api/v1/rooms", "/api/v1/sessions"] {
            assert_eq!(api.get(list).json(), serde_json::json!([]), "{list}");
        }
        resident.push(last.get("rondo_process_resident_bytes"));
        println!(
            "churn {:<6} {joins:>6} {:>8.1} {:>8.1} {:>7} {:>7} {:>9.1}",
            n + 1,
            took.as_secs_f64(),
            ended.elapsed().as_secs_f64(),
            last.get("rondo_process_files_open"),
            last.get("rondo_worker_actors"),
            last.get("rondo_process_resident_bytes") / f64::from(1 << 20),
        );
    }
    let growth = resident[before_them + ROUNDS - 1] / resident[before_them];
    println!(
        "churn RSS of the last round is {growth:.3} of that of the {}",
        if before_them == 0 { "first" } else { "second" }
    );
    if measured.is_some() {
        assert!(growth <= GROWTH_MAX, "RSS grew to {growth:.3} of the second round's");
    }
}
