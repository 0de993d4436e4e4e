//! A transport of either role: datagrams before, during and after the handshake, from anywhere; checks in every ICE
//! session there was; and a peer that has the keys and lies.

use super::time::origin;
use arbitrary::{Arbitrary, Unstructured};
use rondo_media::send::Protection;
use rondo_media::transport::{
    Accept, DatagramRefused, Output, RestartRefused, Role, Shared, SrtpKeys, Transport, TransportEvent,
};
use rondo_media::wire::rtp::{Class, RtpHeader, classify};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::ice::{StunMessage, TransId};
use str0m::media::{Direction, MediaKind};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Input, Rtc, RtcConfig};

#[derive(Debug, Arbitrary)]
struct Script<'a> {
    /// The peer plays; else it publishes.
    plays: bool,
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
    /// The peer restarts ICE; the honest one may know of it.
    Restart {
        honest: bool,
    },
    /// A check that is sealed with the password of an ICE session, the newest being 0.
    Check {
        session: u8,
        from: u8,
        priority: u8,
        nominates: bool,
        controlled: bool,
    },
    /// A ClientHello of somebody.
    Hello {
        from: u8,
    },
    Close,
}

/// One ICE session as the peer knows it.
struct Session {
    ours: String,
    password: String,
    theirs: String,
    /// Neither complete restarts nor later ones have ended it.
    lives: bool,
}

/// The value of an attribute in an answer or a fragment.
fn attribute<'a>(sdp: &'a str, name: &str) -> &'a str {
    sdp.lines().find_map(|line| line.strip_prefix(name)).expect("credentials")
}

fn sha1_hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 20] {
    str0m::crypto::from_feature_flags().sha1_hmac_provider.sha1_hmac(key, parts)
}

impl Session {
    fn new(text: &str, theirs: &str) -> Self {
        let of = |name| attribute(text, name).to_owned();
        Self { ours: of("a=ice-ufrag:"), password: of("a=ice-pwd:"), theirs: theirs.to_owned(), lives: true }
    }

    /// A check as a client sends it, by str0m's writer.
    fn check(&self, priority: u32, nominates: bool, controlled: bool) -> Vec<u8> {
        let username = format!("{}:{}", self.ours, self.theirs);
        let message = StunMessage::binding_request(&username, TransId::new(), !controlled, 7, priority, nominates);
        let mut buffer = vec![0; 600];
        let length =
            message.to_bytes(Some(self.password.as_bytes()), &mut buffer, sha1_hmac).expect("a check that fits");
        buffer.truncate(length);
        buffer
    }
}

/// An answer with the credentials of another ICE session.
fn with_credentials(answer: &str, session: &Session) -> String {
    let line = |line: &str| match line.split(':').next() {
        Some("a=ice-ufrag") => format!("a=ice-ufrag:{}\r\n", session.ours),
        Some("a=ice-pwd") => format!("a=ice-pwd:{}\r\n", session.password),
        _ => format!("{line}\r\n"),
    };
    answer.lines().map(line).collect()
}

/// What a client says first, once ICE has let it.
fn client_hello() -> &'static [u8] {
    static HELLO: OnceLock<Vec<u8>> = OnceLock::new();
    HELLO.get_or_init(|| {
        let mut run = Run::new(Role::Publish);
        for _ in 0..200 {
            run.run(Duration::from_millis(10));
            if let Some(hello) = run.copies.iter().find(|copy| classify(copy) == Class::Dtls) {
                return hello.clone();
            }
        }
        panic!("an honest peer begins a handshake");
    })
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

/// The transport refuses or takes, answers only addresses that spoke to it, and always comes to rest. It knows the ICE
/// sessions that live from those that ended, and whom a live one nominates gets its handshake.
pub fn datagrams(data: &[u8]) {
    let Ok(script) = Script::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let mut run = Run::new(if script.plays { Role::Play } else { Role::Publish });
    if script.connected {
        run.connect();
    }
    for step in script.steps.iter().take(STEPS_MAX) {
        run.step(step);
    }
    run.transport.close(run.now);
    run.drain();
    assert_eq!(run.transport.receive(run.now, address(0), server(), &[0x80; 20]), Err(DatagramRefused::Closed));
}

struct Run {
    now: Instant,
    transport: Transport,
    client: Rtc,
    client_deadline: Instant,
    /// What the honest peer sent.
    copies: Vec<Vec<u8>>,
    spoke: BTreeSet<SocketAddr>,
    answer: String,
    /// Every ICE session, the newest last.
    sessions: Vec<Session>,
    /// Whom the transport says it has nominated.
    peer: Option<SocketAddr>,
    /// A datagram of DTLS was taken.
    greeted: bool,
    closed: bool,
    /// What came out of it in this step.
    said: Vec<(SocketAddr, Vec<u8>)>,
    keys: Option<SrtpKeys>,
    /// What a peer with the keys seals with.
    liar: Option<Protection>,
    deadline: Option<Instant>,
}

impl Run {
    fn new(role: Role) -> Self {
        let now = origin();
        let mut client = RtcConfig::new().set_rtp_mode(true).build(now);
        client.add_local_candidate(Candidate::host(address(0), "udp").expect("a candidate"));
        let mut api = client.sdp_api();
        for kind in [MediaKind::Audio, MediaKind::Video] {
            let direction = if role == Role::Play { Direction::RecvOnly } else { Direction::SendOnly };
            api.add_media(kind, direction, None, None, None);
        }
        let (offer, pending) = api.apply().expect("an offer");
        let (transport, answer) = Self::transport(&mut client, role, &offer.to_sdp_string(), pending);
        Self {
            now,
            sessions: vec![Session::new(&answer, transport.remote_ufrag())],
            transport,
            answer,
            peer: None,
            greeted: false,
            closed: false,
            said: Vec::new(),
            client,
            client_deadline: now,
            copies: Vec::new(),
            spoke: BTreeSet::new(),
            keys: None,
            liar: None,
            deadline: None,
        }
    }

    fn transport(client: &mut Rtc, role: Role, offer: &str, pending: SdpPendingOffer) -> (Transport, String) {
        let candidates = [server()];
        let asked = Accept { role, candidates: &candidates, offer };
        let (transport, answer) = Transport::accept(origin(), shared(), asked).expect("an honest offer");
        let text = answer.finish(&[]);
        let answer = SdpAnswer::from_sdp_string(&text).expect("an answer");
        client.sdp_api().accept_answer(pending, answer).expect("accepted");
        (transport, text)
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
        self.said.clear();
        match step {
            Step::Raw { from, bytes } => {
                let _ = self.receive(address(*from), bytes);
            }
            Step::Copy { from, which, at, with, cut } => {
                let Some(mut copy) = self.copies.get(usize::from(*which) % self.copies.len().max(1)).cloned() else {
                    return;
                };
                let at = usize::from(*at) % copy.len().max(1);
                copy.get_mut(at).into_iter().for_each(|byte| *byte ^= with);
                copy.truncate(cut.map_or(usize::MAX, usize::from));
                let _ = self.receive(address(*from), &copy);
            }
            Step::Rtp { ssrc, pt, seq, flags, body } => self.liar_rtp(*ssrc, *pt, *seq, *flags, body),
            Step::Rtcp { body } => {
                let mut datagram = body.to_vec();
                let sealed = self.liar().map(|liar| liar.seal_rtcp(&mut datagram, 0));
                if let Some(Ok(())) = sealed {
                    let _ = self.receive(address(0), &datagram);
                }
            }
            Step::Run { ms } => self.run(Duration::from_millis(u64::from(*ms % 500))),
            Step::Wake { ms } => {
                self.now += Duration::from_millis(u64::from(*ms));
                self.transport.wake(self.now);
            }
            Step::KeyFrame { section } => {
                self.transport.request_key_frame(self.now, usize::from(*section % 4), *section / 4);
            }
            Step::Candidate(text) => {
                let _ = self.transport.add_remote_candidate(self.now, text);
            }
            Step::Restart { honest } => self.restart(*honest),
            Step::Check { session, from, priority, nominates, controlled } => {
                self.check(*session, address(*from), u32::from(*priority) << 24, *nominates, *controlled);
            }
            Step::Hello { from } => self.hello(address(*from)),
            Step::Close => {
                self.transport.close(self.now);
                self.closed = true;
            }
        }
        self.drain();
    }

    /// RFC 8445 section 9: the sessions before are over when the peer nominates in the new one, but for that which it
    /// nominated in last.
    fn restart(&mut self, honest: bool) {
        let offer = if honest && self.client.is_alive() { self.offer_restart() } else { None };
        let theirs = match &offer {
            Some((offer, _)) => attribute(offer, "a=ice-ufrag:").to_owned(),
            None => format!("them{}", self.sessions.len()),
        };
        match self.transport.restart_ice(self.now, &theirs) {
            Ok(restart) => {
                assert!(!self.closed);
                let given_up = self.sessions.iter().filter(|s| s.lives).nth(1).map(|s| s.ours.clone());
                assert_eq!(restart.given_up, given_up, "of three, the middle one is given up");
                self.sessions.iter_mut().filter(|s| Some(&s.ours) == given_up.as_ref()).for_each(|s| s.lives = false);
                let session = Session::new(&restart.fragment, &theirs);
                assert_eq!(
                    (&session.ours, self.transport.local_ufrag()),
                    (&restart.local_ufrag, &*restart.local_ufrag)
                );
                if let Some((_, pending)) = offer {
                    let answer = with_credentials(&self.answer, &session);
                    let answer = SdpAnswer::from_sdp_string(&answer).expect("an answer");
                    self.client.sdp_api().accept_answer(pending, answer).expect("accepted");
                }
                self.sessions.push(session);
            }
            Err(RestartRefused::Closed) => assert!(self.closed),
            Err(RestartRefused::TooOften { retry_after }) => assert!(!retry_after.is_zero() && self.sessions.len() > 5),
        }
        assert!(self.sessions.iter().filter(|s| s.lives).count() <= 2);
    }

    /// The honest peer's offer of a new ICE session.
    fn offer_restart(&mut self) -> Option<(String, SdpPendingOffer)> {
        let mut api = self.client.sdp_api();
        api.ice_restart(true);
        let (offer, pending) = api.apply()?;
        Some((offer.to_sdp_string(), pending))
    }

    /// A check of a live session is answered and, where it nominates, believed; no other is.
    fn check(&mut self, session: u8, from: SocketAddr, priority: u32, nominates: bool, controlled: bool) {
        let number = self.sessions.len() - 1 - usize::from(session) % self.sessions.len();
        let session = &self.sessions[number];
        let (lives, password) = (session.lives, session.password.clone());
        let restarts = number + 1 == self.sessions.len() && self.sessions.iter().filter(|s| s.lives).count() == 2;
        let datagram = session.check(priority, nominates, controlled);
        let taken = self.receive(from, &datagram);
        if self.closed {
            return;
        }
        if !lives {
            return assert_eq!(taken, Err(DatagramRefused::NotAuthenticated), "of an ICE session that is over");
        }
        assert_eq!(taken, Ok(()), "authentic");
        let reply = self.said.iter().find(|(to, said)| *to == from && classify(said) == Class::Stun);
        let (_, reply) = reply.expect("a check is answered");
        let reply = StunMessage::parse(reply).expect("a STUN message");
        assert!(reply.verify(password.as_bytes(), sha1_hmac));
        if controlled {
            return assert_eq!(reply.error_code().map(|(code, _)| code), Some(487));
        }
        assert_eq!((reply.is_successful_binding_response(), reply.mapped_address()), (true, Some(from)));
        assert!(!nominates || self.peer.is_some(), "a nomination connects ICE");
        if nominates && restarts {
            assert_eq!(self.sessions.iter().filter(|s| s.lives).count(), 1, "the restart is complete");
            assert_eq!(self.peer, Some(from), "a new session begins with its own nomination");
        }
    }

    /// Whom a check has nominated, in whichever ICE session, can begin the handshake.
    fn hello(&mut self, from: SocketAddr) {
        let expected = !self.closed && !self.greeted && self.peer == Some(from);
        let taken = self.receive(from, client_hello());
        if expected {
            assert_eq!(taken, Ok(()), "DTLS from {from}, which is nominated");
            let answered = self.said.iter().any(|(to, said)| *to == from && classify(said) == Class::Dtls);
            assert!(answered, "{from} is nominated, and its ClientHello is not answered");
        }
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
            let _ = self.receive(address(0), &datagram);
        }
    }

    fn receive(&mut self, from: SocketAddr, datagram: &[u8]) -> Result<(), DatagramRefused> {
        self.spoke.insert(from);
        let taken = self.transport.receive(self.now, from, server(), datagram);
        assert!(taken.is_err() || datagram.len() <= 2_000, "what is too long is refused");
        if self.closed {
            assert_eq!(taken, Err(DatagramRefused::Closed));
        }
        // One that is not taken may have failed the handshake, too.
        self.greeted |= classify(datagram) == Class::Dtls && taken != Err(DatagramRefused::UnknownAddress);
        self.drain();
        taken
    }

    /// Takes everything out of our end; what goes to the honest peer is brought there.
    fn drain(&mut self) {
        for _ in 0..OUTPUTS_MAX {
            match self.transport.poll() {
                Output::Transmit { to, datagram } => {
                    assert!(self.spoke.contains(&to), "{to} never spoke");
                    assert!(!datagram.is_empty() && datagram.len() <= 1_500);
                    let class = classify(&datagram);
                    if class != Class::Stun {
                        assert_eq!(Some(to), self.peer, "whoever is not nominated gets nothing but STUN");
                        assert!(class == Class::Dtls || self.keys.is_some());
                    }
                    self.said.push((to, datagram.clone()));
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
                Output::Event(TransportEvent::IceConnected { peer }) => {
                    assert!(self.spoke.contains(&peer) && self.peer.is_none(), "once");
                    self.peer = Some(peer);
                }
                Output::Event(TransportEvent::PeerMoved { peer }) => {
                    assert!(self.spoke.contains(&peer) && self.peer.is_some_and(|before| before != peer));
                    self.peer = Some(peer);
                }
                Output::Event(TransportEvent::PeerStays { peer }) => assert_eq!(self.peer, Some(peer)),
                Output::Event(TransportEvent::UfragRetired(ufrag)) => {
                    let first = self.sessions.iter_mut().find(|s| s.lives).expect("a live session");
                    assert_eq!(first.ours, ufrag, "the older one of two");
                    first.lives = false;
                    assert_eq!(self.sessions.iter().filter(|s| s.lives).count(), 1);
                }
                Output::Event(TransportEvent::Closed(_)) => self.closed = true,
                Output::Wait(at) => {
                    assert!(at.is_none_or(|at| at > self.now), "a deadline that has passed holds the worker");
                    self.deadline = at;
                    return;
                }
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
                    let _ = self.receive(address(0), &datagram);
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
