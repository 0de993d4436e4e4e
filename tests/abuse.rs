//! What nobody should send, sent to a server that carries a call: the call goes on, and what was dropped is counted.

use crate::support::client::{PublishOptions, Publisher, ViewOptions, Viewer};
use crate::support::http::Api;
use crate::support::server::TestServer;
use crate::support::wait::poll;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

/// An ordinary publisher and an ordinary viewer, who must not notice anything.
struct Call {
    ann: Publisher,
    bob: Viewer,
}

impl Call {
    fn start(api: &Api) -> Self {
        let ann = Publisher::start(api, "calm", "ann", PublishOptions::default());
        let bob = Viewer::start(api, "calm", ViewOptions::default());
        let call = Self { ann, bob };
        call.goes_on();
        call
    }

    /// Two more seconds of everything, and not a hole in all that was.
    fn goes_on(&self) {
        let streams = [self.ann.audio_stream(), self.ann.video_stream()];
        let have = self.bob.stats();
        let most = streams.iter().map(|id| have.stream(*id).received).max().unwrap_or_default();
        self.bob.wait_for_streams(&streams, most + 100, SOON).assert_whole();
    }

    /// Where the server takes media: the first IPv4 candidate of its answer (RFC 8839 §5.1).
    fn media_address(&self) -> SocketAddr {
        let candidate = |line: &str| {
            let mut words = line.strip_prefix("a=candidate:")?.split(' ').skip(4);
            format!("{}:{}", words.next()?, words.next()?).parse::<SocketAddr>().ok()
        };
        self.ann.answer().body.lines().find_map(candidate).expect("a candidate")
    }
}

/// Sums of the samples of `/metrics` (Prometheus text format 0.0.4), by name, over all labels.
fn metrics(api: &Api) -> BTreeMap<String, f64> {
    let answer = api.get("/metrics");
    assert_eq!(answer.status, 200);
    let mut sums = BTreeMap::new();
    for line in answer.body.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let name = series.split('{').next().unwrap_or(series);
        *sums.entry(name.to_owned()).or_insert(0.0) += value.parse::<f64>().unwrap_or(f64::NAN);
    }
    sums
}

/// Datagrams that fit no protocol, or only begin to; the same in each run.
fn garbage() -> Vec<Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut all = Vec::new();
    // One of every first byte (RFC 7983 demultiplexes by it), in several lengths.
    for first in 0..=255u8 {
        for length in [1usize, 12, 20, 64, 1_200] {
            let mut datagram: Vec<u8> = (0..length).map(|_| random() as u8).collect();
            datagram[0] = first;
            all.push(datagram);
        }
    }
    let stun = include_str!("cases/ice-04/packets.jsonl");
    for line in stun.lines() {
        let packet: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        let hex = packet["hex"].as_str().expect("hex");
        all.push((0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex")).collect());
    }
    all.push(vec![0x80; 65_000]);
    all
}

#[test]
fn garbage_at_the_media_port_harms_no_call_and_is_counted() {
    let server = TestServer::start();
    let api = server.api();
    let call = Call::start(&api);
    let to = call.media_address();
    let stranger = UdpSocket::bind((to.ip(), 0)).expect("a socket");
    stranger.connect(to).expect("a destination");
    stranger.set_nonblocking(true).expect("a socket that does not wait");
    let before = metrics(&api);

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
    let dropped = |all: &BTreeMap<String, f64>| -> f64 {
        all.iter().filter(|(name, _)| name.contains("dropped")).map(|(_, value)| value).sum()
    };
    // The kernel may have dropped some itself; what reached the server is counted.
    poll("most of it is counted as dropped", SOON, || {
        (dropped(&metrics(&api)) - dropped(&before) >= sent as f64 * 0.5).then_some(())
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
    let before = metrics(&api);
    call.goes_on();
    let after = metrics(&api);
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
    vec![
        ("5,000 candidates", format!("{HEAD}{AUDIO}{candidates}")),
        ("1,000 sections", format!("{HEAD}{sections}")),
        ("one line of 2 MB", format!("{HEAD}a=x:{}\r\n{AUDIO}", "A".repeat(2_000_000))),
        ("20,000 formats", format!("{HEAD}m=video 9 UDP/TLS/RTP/SAVPF{formats}\r\na=mid:0\r\n")),
        ("50,000 ssrc lines", format!("{HEAD}{AUDIO}{ssrcs}")),
        ("10,000 groups", format!("{HEAD}{groups}{AUDIO}")),
        ("1 MB without a line end", format!("v=0{}", "x".repeat(1_000_000))),
    ]
}

#[test]
fn bodies_that_are_too_big_are_refused_at_once_and_leave_nothing_behind() {
    let server = TestServer::start();
    let api = server.api();
    let call = Call::start(&api);
    for (name, body) in too_much() {
        for chunked in [false, true] {
            let begun = Instant::now();
            // A body of unknown length is sent in chunks, without Content-Length.
            let answer = if chunked {
                api.post_large_sdp("/whip/flood/mal", reqwest::blocking::Body::new(std::io::Cursor::new(body.clone())))
            } else {
                api.post_large_sdp("/whip/flood/mal", body.clone())
            };
            if let Some(answer) = answer {
                assert!([400, 406, 413, 422].contains(&answer.status), "{name}: {} {}", answer.status, answer.body);
            }
            assert!(begun.elapsed() < Duration::from_secs(5), "{name} took {:?}", begun.elapsed());
        }
    }
    let left = api.get("/api/v1/sessions?room=flood");
    assert!(left.status == 404 || left.json() == serde_json::json!([]), "somebody is still in: {}", left.body);
    call.goes_on();
}

#[test]
fn a_length_that_is_only_announced_is_refused_before_it_comes() {
    let server = TestServer::start();
    let api = server.api();
    let base = api.url("/");
    let (host, port) = (base.host_str().expect("a host"), base.port().expect("a port"));
    let mut stream = std::net::TcpStream::connect((host, port)).expect("connected");
    stream.set_read_timeout(Some(SOON)).expect("a timeout");
    let head = format!(
        "POST /whip/flood/mal HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/sdp\r\n\
         Content-Length: 2147483647\r\n\r\n{}",
        "v".repeat(1_000)
    );
    std::io::Write::write_all(&mut stream, head.as_bytes()).expect("sent");
    let mut status = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stream), &mut status).expect("an answer before the body");
    assert!(status.starts_with("HTTP/1.1 413") || status.starts_with("HTTP/1.1 400"), "{status:?}");
}

#[test]
fn fifty_large_bodies_at_once_do_not_hold_up_an_honest_join() {
    let server = TestServer::start();
    let api = server.api();
    let flood: Vec<_> = (0..50)
        .map(|_| {
            let api = api.clone();
            std::thread::spawn(move || api.post_large_sdp("/whip/flood/mal", "x".repeat(1_000_000)).map(|a| a.status))
        })
        .collect();
    let ann = Publisher::start(&api, "honest", "ann", PublishOptions::default());
    let statuses: Vec<u16> = flood.into_iter().filter_map(|thread| thread.join().expect("it ends")).collect();
    assert!(statuses.iter().all(|status| [400, 413, 429, 503].contains(status)), "{statuses:?}");
    assert_eq!(ann.stop(), 200);
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
