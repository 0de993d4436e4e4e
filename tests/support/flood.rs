//! Floods: the traffic of people who mean harm, at a rate of their own choosing.

use super::client::Publisher;
use super::http::Api;
use super::peer::{Lets, Numbers, Peer};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use str0m::media::{Direction, MediaKind};

/// How much, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Datagrams, connections or requests a second: an open loop, which does not wait for answers.
    pub per_s: u32,
    /// How long.
    pub lasts: Duration,
}

impl Pace {
    /// Does `one` at this pace, with its number; how many it did. What it is late with it makes up for, up to a
    /// twentieth of a second's worth; what is older is left out, so a slow machine floods less, never in one burst.
    fn run(self, mut one: impl FnMut(u64)) -> u64 {
        let begun = Instant::now();
        let (mut done, mut skipped) = (0u64, 0u64);
        let burst = u64::from(self.per_s / 20).max(1);
        loop {
            let elapsed = begun.elapsed();
            if elapsed >= self.lasts {
                return done;
            }
            let due = (elapsed.as_secs_f64() * f64::from(self.per_s)) as u64;
            skipped += due.saturating_sub(done + skipped + burst);
            for _ in done + skipped..due {
                one(done);
                done += 1;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

/// Whom it is about.
pub struct Target {
    /// HTTP.
    pub api: Api,
    /// Where media is taken.
    pub media: SocketAddr,
    /// ICE user name fragment that the server gave to somebody in the call.
    pub ufrag: String,
}

impl Target {
    /// A server, and the transport of one of its publishers, by the answer the publisher got.
    pub fn new(api: &Api, publisher: &Publisher) -> Self {
        let answer = &publisher.answer().body;
        let ufrag = answer.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).expect("a ufrag");
        Self { api: api.clone(), media: media_address(answer), ufrag: ufrag.trim().to_owned() }
    }

    fn strangers(&self) -> Vec<UdpSocket> {
        let open = |_| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
            socket.connect(self.media).expect("a destination");
            socket.set_nonblocking(true).expect("a socket that does not wait");
            socket
        };
        (0..STRANGERS).map(open).collect()
    }
}

/// What came of a flood.
#[derive(Debug, Default)]
pub struct Done {
    /// Datagrams, connections or requests.
    pub sent: u64,
    /// Those that the flooder itself saw refused; datagrams are refused in silence.
    pub refused: u64,
    /// Connections that were still open when it ended.
    pub open: Vec<TcpStream>,
}

impl Done {
    /// Counts those that were closed meanwhile: connections are refused when their time is over, which may be after the
    /// flood.
    pub fn look_again(&mut self) {
        self.refused += close_over(&mut self.open, None);
    }
}

/// One kind of flood.
pub struct Flood {
    /// What is sent.
    pub name: &'static str,
    /// A second, in a measurement; less in a test.
    pub per_s: u32,
    /// Over UDP, refused in silence and counted by the server.
    pub datagrams: bool,
    /// Does it.
    pub run: fn(&Target, Pace) -> Done,
}

/// Every kind.
pub const ALL: [Flood; 10] = [
    Flood { name: "garbage", per_s: 50_000, datagrams: true, run: |to, pace| strangers(to, pace, garbage()) },
    Flood { name: "STUN, wrong ufrag", per_s: 50_000, datagrams: true, run: wrong_ufrag },
    Flood { name: "STUN, wrong password", per_s: 50_000, datagrams: true, run: wrong_password },
    Flood { name: "ClientHello, unproven", per_s: 50_000, datagrams: true, run: hello_of_strangers },
    Flood { name: "ClientHello, proven", per_s: 50_000, datagrams: true, run: hello_of_a_peer },
    Flood { name: "silent TCP", per_s: 200, datagrams: false, run: silent },
    Flood { name: "slow headers", per_s: 200, datagrams: false, run: slow_headers },
    Flood { name: "half a body", per_s: 50, datagrams: false, run: half_a_body },
    Flood { name: "SDP of 128 kB", per_s: 50, datagrams: false, run: large_offers },
    Flood { name: "bad token, 128 kB", per_s: 200, datagrams: false, run: bad_tokens },
];

/// Sockets that a flood of datagrams comes from.
const STRANGERS: usize = 16;
/// Connections that a flood of TCP holds at once.
const CONNECTIONS: usize = 400;

/// Where a server takes media: the first IPv4 candidate of its answer (RFC 8839 §5.1).
pub fn media_address(answer: &str) -> SocketAddr {
    let candidate = |line: &str| {
        let mut words = line.strip_prefix("a=candidate:")?.split(' ').skip(4);
        format!("{}:{}", words.next()?, words.next()?).parse::<SocketAddr>().ok()
    };
    answer.lines().find_map(candidate).expect("a candidate")
}

/// Datagrams that fit no protocol, or only begin to; the same in each run.
pub fn garbage() -> Vec<Vec<u8>> {
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
    let stun = include_str!("../cases/ice-04/packets.jsonl");
    for line in stun.lines() {
        let packet: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        let hex = packet["hex"].as_str().expect("hex");
        all.push((0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex")).collect());
    }
    all.push(vec![0x80; 65_000]);
    all
}

/// Sends the same datagrams over and over. The kernel may refuse one: it is not counted as sent.
fn strangers(to: &Target, pace: Pace, datagrams: Vec<Vec<u8>>) -> Done {
    let sockets = to.strangers();
    send(&sockets, pace, &datagrams)
}

fn send(sockets: &[UdpSocket], pace: Pace, datagrams: &[Vec<u8>]) -> Done {
    let mut sent = 0;
    pace.run(|n| {
        let datagram = &datagrams[n as usize % datagrams.len()];
        sent += u64::from(sockets[n as usize % sockets.len()].send(datagram).is_ok());
    });
    Done { sent, ..Done::default() }
}

/// A STUN binding request (RFC 8489 §5) for `username`, with a MESSAGE-INTEGRITY that no password makes.
fn binding_request(username: &str, n: u8) -> Vec<u8> {
    const USERNAME: u16 = 0x0006;
    const PRIORITY: u16 = 0x0024;
    const ICE_CONTROLLING: u16 = 0x802a;
    const MESSAGE_INTEGRITY: u16 = 0x0008;
    let mut body = Vec::new();
    let fields: [(u16, &[u8]); 4] = [
        (USERNAME, username.as_bytes()),
        (PRIORITY, &[0x6e, 0, 1, n]),
        (ICE_CONTROLLING, &[n; 8]),
        (MESSAGE_INTEGRITY, &[n; 20]),
    ];
    for (kind, value) in fields {
        body.extend(kind.to_be_bytes());
        body.extend((value.len() as u16).to_be_bytes());
        body.extend(value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let mut message = vec![0x00, 0x01];
    message.extend((body.len() as u16).to_be_bytes());
    message.extend([0x21, 0x12, 0xa4, 0x42]);
    message.extend([n; 12]);
    message.extend(body);
    message
}

fn wrong_ufrag(to: &Target, pace: Pace) -> Done {
    strangers(to, pace, (0..=255).map(|n| binding_request(&format!("no{n}body:them"), n)).collect())
}

/// From somebody who saw a request of the call on its way, but not the password.
fn wrong_password(to: &Target, pace: Pace) -> Done {
    strangers(to, pace, (0..=255).map(|n| binding_request(&format!("{}:them", to.ufrag), n)).collect())
}

/// DTLS 1.2 ClientHellos (RFC 6347 §4.2, RFC 5246 §7.4.1.2), each with a random of its own.
fn client_hellos() -> Vec<Vec<u8>> {
    let hello = |n: u8| {
        let mut body = vec![0xfe, 0xfd];
        body.extend([n; 32]);
        // No session id, no cookie; TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256; no compression.
        body.extend([0, 0, 0, 2, 0xc0, 0x2b, 1, 0]);
        let extensions: &[u8] = &[
            0x00, 0x0a, 0, 4, 0, 2, 0x00, 0x17, // supported_groups: secp256r1 (RFC 8422 §5.1.1)
            0x00, 0x0b, 0, 2, 1, 0, // ec_point_formats: uncompressed
            0x00, 0x0d, 0, 4, 0, 2, 0x04, 0x03, // signature_algorithms: ecdsa_secp256r1_sha256
            0x00, 0x0e, 0, 5, 0, 2, 0x00, 0x07,
            0, // use_srtp: AEAD_AES_128_GCM (RFC 5764 §4.1.1, RFC 7714 §14.2)
            0x00, 0x17, 0, 0, // extended_master_secret (RFC 7627 §5.1)
        ];
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let length = (body.len() as u32).to_be_bytes();
        let mut handshake = vec![1];
        handshake.extend(&length[1..]);
        // Message 0, whole: fragment at 0.
        handshake.extend([0, 0, 0, 0, 0]);
        handshake.extend(&length[1..]);
        handshake.extend(body);
        let mut record = vec![22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, n];
        record.extend((handshake.len() as u16).to_be_bytes());
        record.extend(handshake);
        record
    };
    (0..=255).map(hello).collect()
}

fn hello_of_strangers(to: &Target, pace: Pace) -> Done {
    strangers(to, pace, client_hellos())
}

/// From somebody who was let in: ICE came up, and then nothing comes but beginnings of DTLS.
fn hello_of_a_peer(to: &Target, pace: Pace) -> Done {
    let mut peer = Peer::new(Ipv4Addr::LOCALHOST.into(), Numbers::PUBLISHER);
    peer.let_out(Lets::Checks);
    let offer = peer.offer(&[MediaKind::Audio], Direction::SendOnly);
    let answer = to.api.post_sdp("/whip/flood/mal", offer.sdp.clone());
    assert_eq!(answer.status, 201, "{}", answer.body);
    peer.accept(offer, &answer.body).expect("an answer");
    assert!(peer.until_checked(Duration::from_secs(10)), "ICE comes up");
    let socket = peer.socket();
    socket.connect(media_address(&answer.body)).expect("a destination");
    let done = send(&[socket], pace, &client_hellos());
    // It may have been thrown out already.
    let _ = to.api.delete(&answer.location().expect("a transport"));
    done
}

/// Opens connections at the pace, holds as many as it may, lets each say something again and again; those that the
/// server closed are counted as refused.
fn hold(to: &Target, pace: Pace, first: &[u8], again: Option<u8>) -> Done {
    let url = to.api.url("/");
    let addr: SocketAddr = format!("{}:{}", url.host_str().unwrap_or_default(), url.port().unwrap_or_default())
        .parse()
        .expect("an address");
    let mut done = Done::default();
    pace.run(|number| {
        if number % 16 == 0 {
            done.refused += close_over(&mut done.open, again);
        }
        if done.open.len() < CONNECTIONS
            && let Ok(mut stream) = TcpStream::connect_timeout(&addr, Duration::from_secs(1))
        {
            done.sent += 1;
            // A server that closes at once is as good a refusal as any.
            let _ = stream.write_all(first);
            let _ = stream.set_nonblocking(true);
            done.open.push(stream);
        }
    });
    done.refused += close_over(&mut done.open, again);
    done
}

/// Lets go of connections that the server has closed; how many. Before, each says `again`.
fn close_over(held: &mut Vec<TcpStream>, again: Option<u8>) -> u64 {
    let before = held.len();
    held.retain_mut(|stream| {
        if let Some(byte) = again {
            let _ = stream.write(&[byte]);
        }
        let mut buffer = [0u8; 512];
        // Bytes are a 408; the end comes after it.
        matches!(stream.read(&mut buffer), Err(error) if error.kind() == ErrorKind::WouldBlock)
    });
    (before - held.len()) as u64
}

fn silent(to: &Target, pace: Pace) -> Done {
    hold(to, pace, b"", None)
}

fn slow_headers(to: &Target, pace: Pace) -> Done {
    hold(to, pace, b"GET /healthz HTTP/1.1\r\nHost: flood\r\nX-Slow: ", Some(b'a'))
}

fn half_a_body(to: &Target, pace: Pace) -> Done {
    let first = b"POST /whip/flood/mal HTTP/1.1\r\nHost: flood\r\nContent-Type: application/sdp\r\nContent-Length: 100000\r\n\r\nv=0\r\n";
    hold(to, pace, first, Some(b'a'))
}

/// As large as `limits.sdp_bytes` lets in, legal line by line, and without what a join needs at its very end.
fn large_offer() -> String {
    let mut offer = "v=0\r\no=- 4182960371 2 IN IP4 192.0.2.10\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n\
        m=audio 9 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 0.0.0.0\r\na=mid:0\r\na=sendonly\r\na=rtcp-mux\r\n\
        a=rtpmap:111 opus/48000/2\r\n"
        .to_owned();
    let mut n = 0u32;
    while offer.len() < 131_000 {
        offer.push_str(&format!("a=x-filler-{n}:{}\r\n", "y".repeat(60)));
        n += 1;
    }
    offer
}

/// Requests by two flooders, each after the other's heels: what is refused is what was answered with 4xx or 503.
fn requests(pace: Pace, ask: impl Fn() -> Option<u16> + Sync) -> Done {
    let half = Pace { per_s: pace.per_s.div_ceil(2), lasts: pace.lasts };
    let one = || {
        let mut refused = 0;
        let sent = half.run(|_| refused += u64::from(matches!(ask(), Some(400..=499 | 503))));
        Done { sent, refused, ..Done::default() }
    };
    let both = std::thread::scope(|scope| [scope.spawn(one), scope.spawn(one)].map(|flooder| flooder.join()));
    both.into_iter().map(|done| done.expect("a flooder")).fold(Done::default(), |sum, done| Done {
        sent: sum.sent + done.sent,
        refused: sum.refused + done.refused,
        ..sum
    })
}

fn large_offers(to: &Target, pace: Pace) -> Done {
    let offer = large_offer();
    requests(pace, || to.api.post_large_sdp("/whip/flood/mal", offer.clone()).map(|answer| answer.status))
}

fn bad_tokens(to: &Target, pace: Pace) -> Done {
    let offer = large_offer();
    let api = to.api.with_token("eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJkZXZrZXkiLCJleHAiOjk5OTk5OTk5OTl9.bm90LW91cnM");
    requests(pace, || api.post_large_sdp("/whip/flood/mal", offer.clone()).map(|answer| answer.status))
}
