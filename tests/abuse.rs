//! What nobody should send, sent to a server that carries a call: the call goes on, and what was dropped is counted.

use crate::support::call::Call;
use crate::support::client::{PublishOptions, Publisher, ViewOptions, Viewer};
use crate::support::flood::{garbage, media_address};
use crate::support::metrics::Metrics;
use crate::support::process::Rondo;
use crate::support::server::TestServer;
use crate::support::wait::poll;
use std::fmt::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);
/// What a refused body may cost at its peak, in bytes: half of the largest one sent. Memory comes in pages of 2 MiB, one
/// for each thread that has a part in it, so that a few bytes more may show as 10 MiB.
const BODY_COST_MAX: u64 = 16_000_000;

#[test]
fn garbage_at_the_media_port_harms_no_call_and_is_counted() {
    let server = TestServer::start();
    let api = server.api();
    let call = Call::start(&api);
    let to = media_address(&call.ann.answer().body);
    let stranger = UdpSocket::bind((to.ip(), 0)).expect("a socket");
    stranger.connect(to).expect("a destination");
    stranger.set_nonblocking(true).expect("a socket that does not wait");
    let before = Metrics::of(&api);

    let datagrams = garbage();
    let sent = datagrams.iter().filter(|datagram| stranger.send(datagram).is_ok()).count();
    let mut answered = 0usize;
    let mut buffer = [0u8; 2048];
    while stranger.recv(&mut buffer).is_ok() {
        answered += 1;
    }
    call.goes_on();

    // Answers would make the server an amplifier; a STUN error per request is all it may say.
    assert!(answered <= 45, "{answered} answers to strangers");
    // The kernel may have dropped some itself; what reached the server is counted.
    poll("most of it is counted as dropped", SOON, || {
        (Metrics::of(&api).all_with("dropped") - before.all_with("dropped") >= sent as f64 * 0.5).then_some(())
    });
}

/// The value of an attribute in an answer.
fn attribute<'a>(sdp: &'a str, name: &str) -> &'a str {
    sdp.lines().find_map(|line| line.strip_prefix(name)).expect("an answer with ICE")
}

/// A check as a client sends it, with its transaction id (str0m's own writer).
fn check(username: &str, password: &str) -> (Vec<u8>, [u8; 12]) {
    use str0m::ice::{StunMessage, TransId};
    let hmac = str0m::crypto::from_feature_flags().sha1_hmac_provider;
    let message = StunMessage::binding_request(username, TransId::new(), true, 7, 1_845_501_695, true);
    let mut buffer = vec![0; 500];
    let length = message
        .to_bytes(Some(password.as_bytes()), &mut buffer, |key, parts| hmac.sha1_hmac(key, parts))
        .expect("a check that can be written");
    buffer.truncate(length);
    let transaction = buffer[8..20].try_into().expect("twelve octets");
    (buffer, transaction)
}

/// Case ice-04, over the socket: after each broken datagram a good check is answered.
#[test]
fn a_good_check_is_answered_after_each_broken_one() {
    let server = TestServer::start();
    let api = server.api();
    let made = api.post_sdp("/whip/stun/ann", include_str!("cases/http-04/offer.sdp"));
    assert_eq!(made.status, 201);
    let username = format!("{}:kT3q", attribute(&made.body, "a=ice-ufrag:"));
    let password = attribute(&made.body, "a=ice-pwd:");
    let candidate = made.body.lines().find(|line| line.starts_with("a=candidate:")).expect("a candidate");
    let to: Vec<&str> = candidate.split(' ').skip(4).take(2).collect();
    let to: SocketAddr = format!("{}:{}", to[0], to[1]).parse().expect("IPv4 first");
    let socket = UdpSocket::bind((to.ip(), 0)).expect("a socket");
    socket.connect(to).expect("a destination");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");

    let mut waits = Vec::new();
    let mut buffer = [0u8; 2_048];
    for line in include_str!("cases/ice-04/packets.jsonl").lines() {
        let packet: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        let hex = packet["hex"].as_str().expect("hex");
        let broken: Vec<u8> =
            (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex")).collect();
        socket.send(&broken).expect("sent");
        let (good, transaction) = check(&username, password);
        let begun = Instant::now();
        socket.send(&good).expect("sent");
        loop {
            let length = socket.recv(&mut buffer).unwrap_or_else(|e| panic!("no answer after {}: {e}", packet["name"]));
            if length >= 20 && buffer[8..20] == transaction {
                assert_eq!(buffer[..2], [0x01, 0x01], "a success response after {}", packet["name"]);
                break;
            }
            assert!(length <= broken.len(), "an answer longer than the question after {}", packet["name"]);
        }
        waits.push(begun.elapsed());
    }
    assert_eq!(waits.len(), 45);
    waits.sort_unstable();
    // One that is late is this machine's; all of them would be the server's.
    assert!(waits[40] < Duration::from_millis(100), "{waits:?}");
}

#[test]
fn counters_move_with_a_call() {
    let server = TestServer::start();
    let api = server.api();
    let call = Call::start(&api);
    let before = Metrics::of(&api).0;
    call.goes_on();
    let after = Metrics::of(&api).0;
    for part in ["datagrams_received", "datagrams_sent", "rtp_received", "rtp_forwarded"] {
        let name = after.keys().find(|name| name.contains(part)).unwrap_or_else(|| panic!("no metric of {part}"));
        assert!(after[name] > before[name], "{name} stands still at {}", after[name]);
    }
    assert!(after.keys().all(|name| name.starts_with("rondo_") || name.starts_with("process_")), "{:?}", after.keys());
    for (name, value) in &after {
        assert!(value.is_finite(), "{name} is {value}");
    }
}

/// A legal head and one audio section.
const HEAD: &str = "v=0\r\no=- 4182960371 2 IN IP4 192.0.2.10\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n";
const AUDIO: &str = "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 0.0.0.0\r\na=ice-ufrag:kT3q\r\n\
    a=ice-pwd:m0RZy8cVd1uQpL5sXb2wEfGh\r\na=fingerprint:sha-256 7A:11:0C:5E:93:D4:2F:88:41:BC:6D:07:E2:59:A0:3B:\
    C8:14:F7:66:9E:2D:B1:50:8C:43:DA:75:1E:F0:A9:32\r\na=setup:actpass\r\na=mid:0\r\na=sendonly\r\na=rtcp-mux\r\n\
    a=rtpmap:111 opus/48000/2\r\n";

fn repeated(times: usize, mut line: impl FnMut(&mut String, usize)) -> String {
    (0..times).fold(String::new(), |mut text, n| {
        line(&mut text, n);
        text
    })
}

/// Offers that are too big, or have too many of something, by name.
fn too_much() -> Vec<(&'static str, String)> {
    let candidates = repeated(5_000, |text, n| {
        let _ = write!(
            text,
            "a=candidate:{n} 1 udp {} 192.0.2.{} {} typ host\r\n",
            2_000_000_000 - n,
            n % 250 + 1,
            1_024 + n
        );
    });
    let sections = repeated(1_000, |text, n| {
        let _ = write!(
            text,
            "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 0.0.0.0\r\na=mid:{n}\r\na=sendonly\r\na=rtcp-mux\r\n\
             a=rtpmap:111 opus/48000/2\r\n"
        );
    });
    let formats = repeated(20_000, |text, n| {
        let _ = write!(text, " {}", 96 + n % 32);
    });
    let ssrcs = repeated(50_000, |text, n| {
        let _ = write!(text, "a=ssrc:{n} cname:x\r\n");
    });
    let groups = repeated(10_000, |text, n| {
        let _ = write!(text, "a=group:BUNDLE {n}\r\n");
    });
    let rids = repeated(500, |text, n| {
        let _ = write!(text, "a=rid:r{n} send\r\n");
    });
    let layers: Vec<String> = (0..500).map(|n| format!("r{n}")).collect();
    vec![
        ("500 rids", format!("{HEAD}{AUDIO}{rids}a=simulcast:send {}\r\n", layers.join(";"))),
        ("5,000 candidates", format!("{HEAD}{AUDIO}{candidates}")),
        ("1,000 sections", format!("{HEAD}{sections}")),
        ("one line of 32 MB", format!("{HEAD}a=x:{}\r\n{AUDIO}", "A".repeat(32_000_000))),
        ("20,000 formats", format!("{HEAD}m=video 9 UDP/TLS/RTP/SAVPF{formats}\r\na=mid:0\r\n")),
        ("50,000 ssrc lines", format!("{HEAD}{AUDIO}{ssrcs}")),
        ("10,000 groups", format!("{HEAD}{groups}{AUDIO}")),
        ("1 MB without a line end", format!("v=0{}", "x".repeat(1_000_000))),
    ]
}

/// One request of a case: at best of three, so that a busy machine is not taken for a slow server.
fn best_of_three(mut ask: impl FnMut() -> Option<u16>) -> Duration {
    let one = |_| {
        let begun = Instant::now();
        let status = ask();
        assert!(status.is_none_or(|status| [400, 406, 413, 422].contains(&status)), "{status:?}");
        begun.elapsed()
    };
    (0..3).map(one).min().unwrap_or_default()
}

#[test]
fn bodies_that_are_too_big_are_refused_at_once_and_leave_nothing_behind() {
    let server = Rondo::serve(&["--dev"], &[]);
    let api = server.api();
    let call = Call::start(&api);
    let before = Metrics::of(&api);
    // The first refusals are those in which each thread that answers them touches its memory for the first time; what
    // one costs shows after that.
    for (_, body) in too_much() {
        api.post_large_sdp("/whip/flood/mal", body);
    }
    for (name, body) in too_much() {
        for chunked in [false, true] {
            let resident = server.memory("VmRSS");
            server.forget_peak();
            // A body of unknown length is sent in chunks, without Content-Length.
            let post = |body: String| match chunked {
                true => api.post_large_sdp("/whip/flood/mal", reqwest::blocking::Body::new(std::io::Cursor::new(body))),
                false => api.post_large_sdp("/whip/flood/mal", body),
            };
            let took = best_of_three(|| post(body.clone()).map(|answer| answer.status));
            assert!(took < Duration::from_secs(1), "{name}, chunked {chunked}: {took:?}");
            let grown = server.memory("VmHWM").saturating_sub(resident);
            assert!(grown < BODY_COST_MAX, "{name}, chunked {chunked}: {grown} bytes at the peak");
        }
    }
    let left = api.get("/api/v1/sessions?room=flood");
    assert!(left.status == 404 || left.json() == serde_json::json!([]), "somebody is still in: {}", left.body);
    call.goes_on();
    let held = ["rondo_worker_slots", "rondo_worker_demux_transports", "rondo_worker_timers", "rondo_worker_actors"];
    poll("nothing is held that was not held before", SOON, || {
        let now = Metrics::of(&api);
        let same = held.iter().chain(&["rondo_process_files_open"]).all(|name| now.get(name) <= before.get(name));
        same.then_some(())
    });
}

#[test]
fn a_length_that_is_only_announced_is_refused_before_it_comes() {
    let server = Rondo::serve(&["--dev"], &[]);
    let api = server.api();
    let base = api.url("/");
    let (host, port) = (base.host_str().expect("a host"), base.port().expect("a port"));
    let head = format!(
        "POST /whip/flood/mal HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/sdp\r\n\
         Content-Length: 2147483647\r\n\r\n{}",
        "v".repeat(1_000)
    );
    let resident = server.memory("VmRSS");
    server.forget_peak();
    let took = best_of_three(|| {
        let mut stream = std::net::TcpStream::connect((host, port)).expect("connected");
        stream.set_read_timeout(Some(SOON)).expect("a timeout");
        std::io::Write::write_all(&mut stream, head.as_bytes()).expect("sent");
        let mut status = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stream), &mut status).expect("an answer");
        status.split(' ').nth(1).and_then(|code| code.parse().ok())
    });
    assert!(took < Duration::from_secs(1), "{took:?}");
    let grown = server.memory("VmHWM").saturating_sub(resident);
    assert!(grown < BODY_COST_MAX, "{grown} bytes at the peak");
}

#[test]
fn fifty_large_bodies_at_once_do_not_hold_up_an_honest_join() {
    let server = Rondo::serve(&["--dev"], &[]);
    let api = server.api();
    let flood: Vec<_> = (0..50)
        .map(|_| {
            let api = api.clone();
            std::thread::spawn(move || api.post_large_sdp("/whip/flood/mal", "x".repeat(1_000_000)).map(|a| a.status))
        })
        .collect();
    let mut joins: Vec<Duration> = (0..5)
        .map(|n| {
            let begun = Instant::now();
            let ann = Publisher::try_start(&api, "honest", &format!("ann{n}"), PublishOptions::default());
            let took = begun.elapsed();
            drop(ann.unwrap_or_else(|answer| panic!("refused: {answer:#?}")));
            took
        })
        .collect();
    let statuses: Vec<u16> = flood.into_iter().filter_map(|thread| thread.join().expect("it ends")).collect();
    assert!(statuses.iter().all(|status| [400, 413, 429, 503].contains(status)), "{statuses:?}");
    joins.sort_unstable();
    assert!(joins[2] < Duration::from_millis(500), "{joins:?}");
}

#[test]
fn a_legal_offer_of_sixty_sections_works() {
    let server = TestServer::start();
    let api = server.api();
    let ann = Publisher::start(&api, "large", "ann", PublishOptions::default());
    let viewer = Viewer::start(&api, "large", ViewOptions { audio: 30, video: 30, ..ViewOptions::default() });
    viewer.wait_for_streams(&[ann.audio_stream(), ann.video_stream()], 100, SOON).assert_whole();
    let sections = viewer.answer().body.lines().filter(|line| line.starts_with("m=")).count();
    assert_eq!(sections, 60, "every section is answered (RFC 9429 §5.3.1)");
}
