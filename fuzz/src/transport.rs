//! A publisher's transport: datagrams before, during and after the handshake, from anywhere, and a peer that has
//! the keys and lies.

use super::time::origin;
use arbitrary::{Arbitrary, Unstructured};
use rondo_media::send::Protection;
use rondo_media::transport::{Accept, Output, Role, Shared, SrtpKeys, Transport, TransportEvent};
use rondo_media::wire::rtp::RtpHeader;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::media::{Direction, MediaKind};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Input, Rtc, RtcConfig};

#[derive(Debug, Arbitrary)]
struct Script<'a> {
    /// An honest peer is connected before the steps begin.
    connected: bool,
    steps: Vec<Step<'a>>,
}

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    /// Anything, from anywhere.
    Raw {
        from: u8,
        bytes: &'a [u8],
    },
    /// A copy of what the honest peer sent, changed or not.
    Copy {
        from: u8,
        which: u8,
        at: u16,
        with: u8,
        cut: Option<u16>,
    },
    /// RTP with the peer's keys.
    Rtp {
        ssrc: u8,
        pt: u8,
        seq: u16,
        flags: u8,
        body: &'a [u8],
    },
    /// RTCP with the peer's keys.
    Rtcp {
        body: &'a [u8],
    },
    /// Both ends act for a while.
    Run {
        ms: u16,
    },
    /// Only our end hears that time passes.
    Wake {
        ms: u16,
    },
    KeyFrame {
        section: u8,
    },
    Candidate(&'a str),
    Close,
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| Shared::new().expect("cryptography works"))
}

fn address(n: u8) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, 1 + n % 3], 50_000))
}

fn server() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 7_882))
}

/// Steps of one script: each may cost what an event costs.
const STEPS_MAX: usize = 64;
/// Outputs of one step: far more than any protocol asks for.
const OUTPUTS_MAX: usize = 4_096;

/// The transport refuses or takes, answers only addresses that spoke to it, and always comes to rest.
pub fn datagrams(data: &[u8]) {
    let Ok(script) = Script::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let mut run = Run::new();
    if script.connected {
        run.connect();
    }
    for step in script.steps.iter().take(STEPS_MAX) {
        run.step(step);
    }
    run.transport.close(run.now);
    run.drain();
    assert!(run.transport.receive(run.now, address(0), server(), &[0x80; 20]).is_err(), "closed");
}

struct Run {
    now: Instant,
    transport: Transport,
    client: Rtc,
    client_deadline: Instant,
    /// What the honest peer sent.
    copies: Vec<Vec<u8>>,
    spoke: BTreeSet<SocketAddr>,
    keys: Option<SrtpKeys>,
    /// What a peer with the keys seals with.
    liar: Option<Protection>,
    deadline: Option<Instant>,
}

impl Run {
    fn new() -> Self {
        let now = origin();
        let mut client = RtcConfig::new().set_rtp_mode(true).build(now);
        client.add_local_candidate(Candidate::host(address(0), "udp").expect("a candidate"));
        let mut api = client.sdp_api();
        for kind in [MediaKind::Audio, MediaKind::Video] {
            api.add_media(kind, Direction::SendOnly, None, None, None);
        }
        let (offer, pending) = api.apply().expect("an offer");
        let transport = Self::transport(&mut client, &offer.to_sdp_string(), pending);
        Self {
            now,
            transport,
            client,
            client_deadline: now,
            copies: Vec::new(),
            spoke: BTreeSet::new(),
            keys: None,
            liar: None,
            deadline: None,
        }
    }

    fn transport(client: &mut Rtc, offer: &str, pending: SdpPendingOffer) -> Transport {
        let candidates = [server()];
        let asked = Accept { role: Role::Publish, candidates: &candidates, offer };
        let (transport, answer) = Transport::accept(origin(), shared(), asked).expect("an honest offer");
        let answer = SdpAnswer::from_sdp_string(&answer.finish(&[])).expect("an answer");
        client.sdp_api().accept_answer(pending, answer).expect("accepted");
        transport
    }

    fn connect(&mut self) {
        for _ in 0..200 {
            self.run(Duration::from_millis(10));
            if self.keys.is_some() && self.client.is_connected() {
                return;
            }
        }
        panic!("an honest peer connects");
    }

    fn step(&mut self, step: &Step<'_>) {
        match step {
            Step::Raw { from, bytes } => self.receive(address(*from), bytes),
            Step::Copy { from, which, at, with, cut } => {
                let Some(mut copy) = self.copies.get(usize::from(*which) % self.copies.len().max(1)).cloned() else {
                    return;
                };
                let at = usize::from(*at) % copy.len().max(1);
                copy.get_mut(at).into_iter().for_each(|byte| *byte ^= with);
                copy.truncate(cut.map_or(usize::MAX, usize::from));
                self.receive(address(*from), &copy);
            }
            Step::Rtp { ssrc, pt, seq, flags, body } => self.liar_rtp(*ssrc, *pt, *seq, *flags, body),
            Step::Rtcp { body } => {
                let mut datagram = body.to_vec();
                let sealed = self.liar().map(|liar| liar.seal_rtcp(&mut datagram, 0));
                if let Some(Ok(())) = sealed {
                    self.receive(address(0), &datagram);
                }
            }
            Step::Run { ms } => self.run(Duration::from_millis(u64::from(*ms % 500))),
            Step::Wake { ms } => {
                self.now += Duration::from_millis(u64::from(*ms));
                self.transport.wake(self.now);
            }
            Step::KeyFrame { section } => self.transport.request_key_frame(self.now, usize::from(*section % 4)),
            Step::Candidate(text) => {
                let _ = self.transport.add_remote_candidate(self.now, text);
            }
            Step::Close => self.transport.close(self.now),
        }
        self.drain();
    }

    fn liar(&mut self) -> Option<&mut Protection> {
        if let (None, Some(keys)) = (&self.liar, &self.keys) {
            let theirs = SrtpKeys {
                profile: keys.profile,
                send_key: keys.receive_key.clone(),
                send_salt: keys.receive_salt.clone(),
                receive_key: keys.send_key.clone(),
                receive_salt: keys.send_salt.clone(),
            };
            self.liar = Protection::new(&theirs).ok();
        }
        self.liar.as_mut()
    }

    fn liar_rtp(&mut self, ssrc: u8, pt: u8, seq: u16, flags: u8, body: &[u8]) {
        let formats: Vec<u8> = self
            .transport
            .sections()
            .iter()
            .flat_map(|s| &s.formats)
            .flat_map(|f| [Some(f.pt), f.rtx_pt])
            .flatten()
            .collect();
        // Mostly payload types that were agreed on.
        let pt = formats.get(usize::from(pt)).copied().unwrap_or(pt & 0x7f);
        let ssrc = u32::from(ssrc);
        let header = RtpHeader { marker: flags & 1 != 0, pt, seq, rtp_time: u32::from(seq) * 960, ssrc };
        let mid = [b'0' + (flags >> 1 & 1)];
        let (head, body) = body.split_at(body.len().min(usize::from(flags >> 5)));
        let extensions: &[(u8, &[u8])] = match (flags >> 2 & 3, head.is_empty()) {
            (0, _) | (_, true) => &[(4, &mid)],
            (1, false) => &[(4, &mid), (1, head)],
            (_, false) => &[(head[0] | 1, head), (4, &mid)],
        };
        let mut datagram = Vec::new();
        if header.emit(extensions, body, flags & 0x10, &mut datagram).is_err() {
            return;
        }
        let header_len = datagram.len() - body.len() - usize::from(flags & 0x10);
        let sealed = self.liar().map(|liar| liar.seal_rtp(&mut datagram, 0, header_len, ssrc, u64::from(seq)));
        if let Some(Ok(())) = sealed {
            self.receive(address(0), &datagram);
        }
    }

    fn receive(&mut self, from: SocketAddr, datagram: &[u8]) {
        self.spoke.insert(from);
        let taken = self.transport.receive(self.now, from, server(), datagram);
        assert!(taken.is_err() || datagram.len() <= 2_000, "what is too long is refused");
        self.drain();
    }

    /// Takes everything out of our end; what goes to the honest peer is brought there.
    fn drain(&mut self) {
        for _ in 0..OUTPUTS_MAX {
            match self.transport.poll() {
                Output::Transmit { to, datagram } => {
                    assert!(self.spoke.contains(&to), "{to} never spoke");
                    assert!(!datagram.is_empty() && datagram.len() <= 1_500);
                    if to == address(0)
                        && let Ok(receive) = Receive::new(Protocol::Udp, server(), address(0), &datagram)
                    {
                        let _ = self.client.handle_input(Input::Receive(self.now, receive));
                    }
                }
                Output::Event(TransportEvent::DtlsConnected(keys)) => self.keys = Some(keys),
                Output::Event(TransportEvent::Rtp(rtp)) => {
                    let section = &self.transport.sections()[rtp.section];
                    assert!(section.formats.iter().any(|f| f.format == rtp.format), "a format of its section");
                }
                Output::Event(
                    TransportEvent::IceConnected { peer }
                    | TransportEvent::PeerMoved { peer }
                    | TransportEvent::PeerStays { peer },
                ) => {
                    assert!(self.spoke.contains(&peer));
                }
                Output::Event(TransportEvent::Closed(_)) => {}
                Output::Wait(at) => {
                    assert!(at.is_none_or(|at| at > self.now), "a deadline that has passed holds the worker");
                    self.deadline = at;
                    return;
                }
                #[allow(unreachable_patterns, reason = "events may grow")]
                Output::Event(_) => {}
            }
        }
        panic!("the transport does not come to rest");
    }

    fn drain_client(&mut self) {
        loop {
            match self.client.poll_output() {
                Ok(str0m::Output::Timeout(at)) => {
                    self.client_deadline = at;
                    return;
                }
                Ok(str0m::Output::Transmit(transmit)) => {
                    let datagram: Vec<u8> = transmit.contents.into();
                    if self.copies.len() < 64 {
                        self.copies.push(datagram.clone());
                    }
                    self.receive(address(0), &datagram);
                }
                Ok(str0m::Output::Event(_)) => {}
                Err(_) => {
                    // The peer gave up on what it was told; its end is not ours to judge.
                    self.client_deadline = self.now + Duration::from_secs(3_600);
                    return;
                }
            }
        }
    }

    /// Both ends act until `time` has passed.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.drain_client();
            self.drain();
            self.drain_client();
            let next =
                self.client_deadline.min(self.deadline.unwrap_or(end)).max(self.now + Duration::from_micros(100));
            if next >= end {
                self.now = end;
                return;
            }
            self.now = next;
            let _ = self.client.handle_input(Input::Timeout(next));
            self.transport.wake(next);
        }
    }
}
