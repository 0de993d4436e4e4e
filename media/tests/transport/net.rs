//! A client and a transport on one virtual network: nothing waits, datagrams arrive at once unless dropped.

use rondo_media::sdp::Answer;
use rondo_media::transport::{Accept, Output, ReceivedRtp, Role, Shared, SrtpKeys, Transport, TransportEvent};
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::media::{Direction, MediaKind, Mid, Rid};
use str0m::net::{Protocol, Receive};
use str0m::rtp::RtpWrite;
use str0m::{Candidate, Event, Input, Rtc, RtcConfig};

/// The moment at which virtual time begins.
#[allow(clippy::disallowed_methods, reason = "virtual time has to begin somewhere")]
pub fn start() -> Instant {
    Instant::now()
}

pub fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| Shared::new().unwrap())
}

pub fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub const SERVER: &str = "192.0.2.1:7882";
pub const CLIENT: &str = "198.51.100.7:50000";

/// A client that offers, as a browser would.
pub struct Offerer {
    pub rtc: Rtc,
    pub offer: String,
    pub pending: SdpPendingOffer,
    pub mids: Vec<Mid>,
}

pub fn offerer(now: Instant, config: RtcConfig, client: &str, media: &[(MediaKind, Direction)]) -> Offerer {
    let mut rtc = config.set_rtp_mode(true).build(now);
    rtc.add_local_candidate(Candidate::host(address(client), "udp").unwrap());
    let mut api = rtc.sdp_api();
    let mids = media.iter().map(|(kind, way)| api.add_media(*kind, *way, None, None, None)).collect();
    let (offer, pending) = api.apply().unwrap();
    Offerer { offer: offer.to_sdp_string(), rtc, pending, mids }
}

pub fn accept(now: Instant, role: Role, candidates: &[&str], offer: &str) -> (Transport, Answer) {
    let candidates: Vec<SocketAddr> = candidates.iter().map(|c| address(c)).collect();
    Transport::accept(now, shared(), Accept { role, candidates: &candidates, offer }).unwrap()
}

/// Says of a datagram whether it is lost.
pub type Filter = Box<dyn FnMut(&[u8]) -> bool>;

/// Both ends and the network between them.
pub struct Net {
    pub client: Rtc,
    pub server: Transport,
    /// What the server answered.
    pub answer: String,
    pub now: Instant,
    /// Where the server sees the client: its own address, or a NAT's.
    pub client_seen_at: SocketAddr,
    client_at: SocketAddr,
    server_at: SocketAddr,
    /// What the socket says a datagram was sent to.
    pub socket_at: SocketAddr,
    pub events: Vec<TransportEvent>,
    pub client_events: Vec<Event>,
    /// Drops a datagram of the client.
    pub drop_from_client: Option<Filter>,
    /// First bytes of everything the server sent.
    pub sent: Vec<(SocketAddr, u8, u8)>,
    /// DTLS that the server sent.
    pub dtls: Vec<Vec<u8>>,
    client_deadline: Instant,
}

impl Net {
    pub fn new(now: Instant, offerer: Offerer, server: Transport, answer: &str, at: (&str, &str)) -> Net {
        let Offerer { rtc: mut client, pending, .. } = offerer;
        client.sdp_api().accept_answer(pending, SdpAnswer::from_sdp_string(answer).unwrap()).unwrap();
        let (client_at, server_at) = (address(at.0), address(at.1));
        Net {
            client,
            server,
            answer: answer.to_owned(),
            now,
            client_seen_at: client_at,
            client_at,
            server_at,
            socket_at: server_at,
            events: Vec::new(),
            client_events: Vec::new(),
            drop_from_client: None,
            sent: Vec::new(),
            dtls: Vec::new(),
            client_deadline: now,
        }
    }

    /// A publisher of audio and video, not connected yet.
    pub fn publisher(now: Instant, config: RtcConfig) -> (Net, Vec<Mid>) {
        let media = [(MediaKind::Audio, Direction::SendOnly), (MediaKind::Video, Direction::SendOnly)];
        let offerer = offerer(now, config, CLIENT, &media);
        let (server, answer) = accept(now, Role::Publish, &[SERVER], &offerer.offer);
        let mids = offerer.mids.clone();
        (Net::new(now, offerer, server, &answer.finish(&[]), (CLIENT, SERVER)), mids)
    }

    fn drain_server(&mut self) -> Option<Instant> {
        loop {
            match self.server.poll() {
                Output::Transmit { to, datagram } => {
                    self.sent.push((to, datagram[0], *datagram.get(1).unwrap_or(&0)));
                    if (20..64).contains(&datagram[0]) {
                        self.dtls.push(datagram.clone());
                    }
                    if to == self.client_seen_at {
                        let (from, to) = (self.server_at, self.client_at);
                        let receive = Receive::new(Protocol::Udp, from, to, &datagram).unwrap();
                        // A client that refuses what it gets is what some of the tests are about.
                        let _ = self.client.handle_input(Input::Receive(self.now, receive));
                        self.drain_client();
                    }
                }
                Output::Event(event) => self.events.push(event),
                Output::Wait(at) => return at,
            }
        }
    }

    fn drain_client(&mut self) {
        loop {
            match self.client.poll_output() {
                Ok(str0m::Output::Timeout(at)) => {
                    self.client_deadline = at;
                    return;
                }
                Ok(str0m::Output::Transmit(t)) => {
                    if !self.drop_from_client.as_mut().is_some_and(|drop| drop(&t.contents)) {
                        let (from, to) = (self.client_seen_at, self.socket_at);
                        let _ = self.server.receive(self.now, from, to, &t.contents);
                    }
                }
                Ok(str0m::Output::Event(event)) => self.client_events.push(event),
                Err(_) => return,
            }
        }
    }

    /// Lets both ends act until `for_` has passed.
    pub fn run(&mut self, for_: Duration) {
        let end = self.now + for_;
        loop {
            self.drain_client();
            let server = self.drain_server();
            self.drain_client();
            let next = self.client_deadline.min(server.unwrap_or(end)).max(self.now + Duration::from_micros(100));
            if next >= end {
                self.now = end;
                return;
            }
            self.now = next;
            let _ = self.client.handle_input(Input::Timeout(next));
            self.server.wake(next);
        }
    }

    pub fn run_ms(&mut self, ms: u64) {
        self.run(Duration::from_millis(ms));
    }

    pub fn connect(&mut self) {
        for _ in 0..200 {
            self.run_ms(10);
            if self.client.is_connected() && self.connected() {
                return;
            }
        }
        panic!("not connected after 2 s: {:?}", self.events);
    }

    pub fn connected(&self) -> bool {
        self.events.iter().any(|e| matches!(e, TransportEvent::DtlsConnected(_)))
    }

    /// The client sends one RTP packet.
    pub fn write(&mut self, mid: Mid, pt: u8, seq: u64, time: u32, payload: &[u8]) {
        self.write_layer((mid, None), pt, seq, time, payload);
    }

    /// The same in a simulcast layer.
    pub fn write_layer(&mut self, (mid, rid): (Mid, Option<Rid>), pt: u8, seq: u64, time: u32, payload: &[u8]) {
        let at = self.now;
        let mut api = self.client.direct_api();
        let stream = api.stream_tx_by_mid(mid, rid).unwrap();
        stream.write_rtp(RtpWrite::new(pt.into(), seq.into(), time, at, payload.to_vec()).marker(true).nackable(true));
        let _ = self.client.handle_input(Input::Timeout(at));
        self.drain_client();
        self.drain_server();
    }

    pub fn keys(&self) -> SrtpKeys {
        let keys =
            |e: &TransportEvent| if let TransportEvent::DtlsConnected(keys) = e { Some(keys.clone()) } else { None };
        self.events.iter().find_map(keys).unwrap()
    }

    pub fn received(&self) -> Vec<&ReceivedRtp> {
        fn rtp(event: &TransportEvent) -> Option<&ReceivedRtp> {
            if let TransportEvent::Rtp(rtp) = event { Some(rtp) } else { None }
        }
        self.events.iter().filter_map(rtp).collect()
    }
}
