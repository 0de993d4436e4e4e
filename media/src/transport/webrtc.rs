//! One peer over ICE (lite), DTLS and SRTP: str0m in RTP mode, driven without its SDP layer.
//!
//! A **publishing** transport declares one medium for each section, and str0m unprotects, asks for lost packets,
//! unwraps retransmissions and writes receiver reports and transport-wide feedback. A **playing** transport
//! declares nothing: str0m keeps ICE and DTLS only, hands over the keys, and our own egress protects and sends.

use super::crypto::{Handshake, WebRtcShared};
use super::ice::{Agent, Move, TooOften};
use super::peek::Rtp;
use super::setup;
use super::streams::{Admission, Streams};
use super::{
    Accept, ClosedBy, DatagramRefused, DtlsFailure, IceRestart, Output, ReceivedRtp, RestartRefused, Role, Section,
    TransportEvent,
};
use crate::packet::AudioLevel;
use crate::sdp::{
    Answer, AnswerParts, CANDIDATES_MAX, Ice, Offer, SdpRefusal, Security, check_candidate, negotiate, write_fragment,
};
use crate::units::Bitrate;
use crate::wire::rtp::{Class, classify};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use str0m::media::KeyframeRequestKind;
use str0m::net::{DatagramRecv, Protocol, Receive, Transmit};
use str0m::rtp::RtpPacket;
use str0m::{Candidate, Event, IceCreds, Input, Rtc};

/// Deadlines of str0m closer than this are followed at once: it asks for "now + 1 µs" when it has more to say,
/// and a timer wheel of 1 ms would starve it.
const AT_ONCE: Duration = Duration::from_micros(50);
/// Turns in one call, so that no deadline in the past can hold the worker.
const TURNS_MAX: usize = 64;
/// str0m's and dimpl's buffers hold 2,000 bytes.
const DATAGRAM_BYTES_MAX: usize = 2_000;
/// Wall-clock time of 1970 in NTP seconds.
const NTP_UNIX_OFFSET_S: u64 = 2_208_988_800;
/// str0m says "never" with a deadline a hundred years away.
const NEVER: Duration = Duration::from_secs(24 * 3600);

/// See the module.
pub struct WebRtc {
    rtc: Rtc,
    handshake: Arc<Handshake>,
    role: Role,
    candidates: Vec<SocketAddr>,
    sections: Vec<Section>,
    ice: Agent,
    streams: Streams,
    by_fir: Vec<bool>,
    takes_remb: Vec<bool>,
    candidates_seen: usize,
    state: State,
    now: Instant,
    deadline: Option<Instant>,
    out: VecDeque<Output>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No DTLS yet.
    Connecting,
    Connected,
    /// What is left in the queue still goes out.
    Closed,
}

impl WebRtc {
    /// Answers `accept.offer`; see [`super::Transport::accept`].
    pub(super) fn accept(
        now: Instant,
        shared: &WebRtcShared,
        accept: &Accept<'_>,
    ) -> Result<(WebRtc, Answer), SdpRefusal> {
        let offer = Offer::parse(accept.offer)?;
        let agreed = negotiate(&offer, accept.role, Security::Required)?;
        let (mut rtc, handshake) = shared.build(setup::config(&agreed, accept.role), now);
        for candidate in accept.candidates {
            let candidate = Candidate::host(*candidate, Protocol::Udp)
                .map_err(|_| SdpRefusal::Unsupported("an address of this server cannot be a candidate"))?;
            rtc.add_local_candidate(candidate);
        }
        let mut streams = Streams::default();
        setup::start(&mut rtc, &agreed, accept.role, &mut streams)?;
        let api = rtc.direct_api();
        let IceCreds { ufrag, pass } = api.local_ice_credentials();
        let session_id = (u64::from(*api.new_ssrc()) << 30) | u64::from(*api.new_ssrc() >> 2);
        let mut used = Vec::new();
        let sections = agreed.sections(accept.role, || {
            loop {
                let ssrc = *api.new_ssrc();
                if !used.contains(&ssrc) {
                    used.push(ssrc);
                    break ssrc;
                }
            }
        });
        let parts = AnswerParts {
            role: accept.role,
            sections: &sections,
            candidates: accept.candidates,
            ice: Some(Ice { ufrag: &ufrag, pwd: &pass, fingerprint: shared.fingerprint() }),
            session_id,
            cname: &ufrag,
        };
        let answer = Answer::new(&agreed, &parts);
        let mut transport = WebRtc {
            rtc,
            handshake,
            role: accept.role,
            candidates: accept.candidates.to_vec(),
            by_fir: setup::by_fir(&agreed),
            takes_remb: setup::takes_remb(&agreed),
            sections,
            ice: Agent::new(IceCreds { ufrag, pass }, agreed.remote_ufrag),
            streams,
            candidates_seen: offer.candidates(),
            state: State::Connecting,
            now,
            deadline: None,
            out: VecDeque::new(),
        };
        transport.wake(now);
        Ok((transport, answer))
    }

    pub(super) fn sections(&self) -> &[Section] {
        &self.sections
    }

    pub(super) fn local_ufrag(&self) -> &str {
        &self.ice.local().ufrag
    }

    pub(super) fn remote_ufrag(&self) -> &str {
        self.ice.remote_ufrag()
    }

    pub(super) fn poll(&mut self) -> Output {
        self.out.pop_front().unwrap_or(Output::Wait(self.deadline))
    }

    pub(super) fn wake(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.turn();
        self.pump();
    }

    pub(super) fn receive(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to: SocketAddr,
        datagram: &[u8],
    ) -> Result<(), DatagramRefused> {
        if self.state == State::Closed {
            return Err(DatagramRefused::Closed);
        }
        if datagram.len() > DATAGRAM_BYTES_MAX {
            return Err(DatagramRefused::TooLong { got: datagram.len(), limit: DATAGRAM_BYTES_MAX });
        }
        self.now = self.now.max(now);
        let to = self.candidate_for(to)?;
        match classify(datagram) {
            Class::Stun => self.check(from, to, datagram),
            Class::Dtls if self.ice.has_proven(from) => self.feed(from, to, datagram),
            Class::Dtls => Err(DatagramRefused::UnknownAddress),
            Class::Rtp | Class::Rtcp if self.role == Role::Play => Err(DatagramRefused::NotForTransport),
            Class::Rtp | Class::Rtcp if self.state != State::Connected => Err(DatagramRefused::NoKeys),
            Class::Rtp => {
                self.admit(from, datagram)?;
                self.feed(from, to, datagram)
            }
            Class::Rtcp => self.feed(from, to, datagram),
            Class::Unknown => Err(DatagramRefused::NotOurs),
        }
    }

    pub(super) fn request_key_frame(&mut self, now: Instant, section: usize, layer: u8) {
        self.now = self.now.max(now);
        let Some(ssrc) = self.streams.current(section, layer) else { return };
        let by_fir = self.by_fir.get(section).copied().unwrap_or(false);
        if let Some(stream) = self.rtc.direct_api().stream_rx(&ssrc.into()) {
            stream.request_keyframe(if by_fir { KeyframeRequestKind::Fir } else { KeyframeRequestKind::Pli });
        }
        self.pump();
    }

    pub(super) fn cap(&mut self, now: Instant, section: usize, most: Bitrate) {
        self.now = self.now.max(now);
        let Some(ssrc) = self.streams.current(section, 0) else { return };
        if self.takes_remb.get(section) == Some(&true)
            && let Some(stream) = self.rtc.direct_api().stream_rx(&ssrc.into())
        {
            stream.request_remb(str0m::bwe::Bitrate::from(most.bps()));
            self.pump();
        }
    }

    pub(super) fn add_remote_candidate(&mut self, candidate: &str) -> Result<(), SdpRefusal> {
        if self.candidates_seen >= CANDIDATES_MAX {
            return Err(SdpRefusal::TooBig { what: "candidates", limit: CANDIDATES_MAX });
        }
        if !check_candidate(candidate) {
            return Err(SdpRefusal::Malformed { line: 1, reason: "a=candidate cannot be read" });
        }
        self.candidates_seen += 1;
        Ok(())
    }

    pub(super) fn close(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if self.state != State::Closed {
            if self.handshake.has_begun() {
                // Whoever stopped half way is told that we did, too.
                self.alert(DtlsFailure::Failed.alert());
            }
            self.state = State::Closed;
            if self.rtc.close().is_err() {
                self.rtc.disconnect();
            }
            self.pump();
        }
    }

    /// The candidate that a datagram was sent to: the socket's address where it is one, else (another interface,
    /// NAT) the first of its family.
    fn candidate_for(&self, to: SocketAddr) -> Result<SocketAddr, DatagramRefused> {
        if self.candidates.contains(&to) {
            return Ok(to);
        }
        let same_family = |c: &&SocketAddr| c.is_ipv4() == to.is_ipv4();
        self.candidates.iter().find(same_family).copied().ok_or(DatagramRefused::NoCandidate)
    }

    /// A connectivity check: our own agent answers it.
    fn check(&mut self, from: SocketAddr, to: SocketAddr, datagram: &[u8]) -> Result<(), DatagramRefused> {
        let Some(answered) = self.ice.check(from, to, datagram)? else { return Ok(()) };
        self.out.push_back(Output::Transmit { to: from, datagram: answered.reply });
        if let Some(ufrag) = answered.retired {
            self.out.push_back(Output::Event(TransportEvent::UfragRetired(ufrag)));
        }
        match answered.moved {
            Move::Stays => {
                if self.ice.peer() == Some(from) {
                    self.out.push_back(Output::Event(TransportEvent::PeerStays { peer: from }));
                }
                Ok(())
            }
            Move::First(peer) => {
                self.out.push_back(Output::Event(TransportEvent::IceConnected { peer }));
                self.open_path(from, to, datagram)
            }
            Move::To(peer) => {
                self.out.push_back(Output::Event(TransportEvent::PeerMoved { peer }));
                Ok(())
            }
        }
    }

    /// str0m sends nothing before its own agent has an address to send to: the check that nominated first is shown
    /// to it, too. Its answer is dropped, and so is what it thinks of the path: see [`WebRtc::transmit`].
    fn open_path(&mut self, from: SocketAddr, to: SocketAddr, datagram: &[u8]) -> Result<(), DatagramRefused> {
        let (local, remote_ufrag) = self.ice.current();
        let (local, remote_ufrag) = (local.clone(), remote_ufrag.to_owned());
        let mut api = self.rtc.direct_api();
        api.set_local_ice_credentials(local);
        // The password is for checks of ours, of which there are none.
        api.set_remote_ice_credentials(IceCreds { ufrag: remote_ufrag, pass: String::new() });
        self.feed(from, to, datagram)
    }

    /// The peer restarts ICE; see [`super::Transport::restart_ice`].
    pub(super) fn restart_ice(&mut self, now: Instant, remote_ufrag: &str) -> Result<IceRestart, RestartRefused> {
        if self.state == State::Closed {
            return Err(RestartRefused::Closed);
        }
        let given_up = self.ice.restart(now, IceCreds::new(), remote_ufrag.to_owned());
        let given_up = given_up.map_err(|TooOften(retry_after)| RestartRefused::TooOften { retry_after })?;
        self.candidates_seen = 0;
        let IceCreds { ufrag, pass } = self.ice.local();
        let fragment = write_fragment(&self.sections, ufrag, pass, &self.candidates);
        Ok(IceRestart { local_ufrag: ufrag.clone(), given_up, fragment })
    }

    /// Makes room in str0m for an SSRC that it does not know yet.
    fn admit(&mut self, from: SocketAddr, datagram: &[u8]) -> Result<(), DatagramRefused> {
        let rtp = Rtp::parse(datagram).ok_or(DatagramRefused::Unreadable)?;
        // SSRC 0 carries libwebrtc's padding that probes the link; str0m acknowledges it.
        if rtp.ssrc == 0 || self.streams.knows(rtp.ssrc) {
            return Ok(());
        }
        if !self.ice.has_proven(from) {
            return Err(DatagramRefused::UnknownAddress);
        }
        let (media, repair, section) = match self.streams.admit(&rtp) {
            Admission::Media { ssrc, section, evicted } => {
                if let Some(evicted) = evicted {
                    self.rtc.direct_api().remove_stream_rx(evicted.into());
                }
                (ssrc, None, section)
            }
            Admission::Repair { ssrc, media, section } => (media, Some(ssrc), section),
            Admission::Refused => return Err(DatagramRefused::UnknownSsrc),
        };
        let nack = self.sections.get(section).is_some_and(|s| s.nack);
        let mid = setup::mid_of(section);
        let mut api = self.rtc.direct_api();
        api.expect_stream_rx(media.into(), repair.map(Into::into), mid, None).suppress_nack(!nack);
        self.pump();
        Ok(())
    }

    fn feed(&mut self, from: SocketAddr, to: SocketAddr, datagram: &[u8]) -> Result<(), DatagramRefused> {
        let contents = DatagramRecv::try_from(datagram).map_err(|_| DatagramRefused::Unreadable)?;
        let receive = Receive { proto: Protocol::Udp, source: from, destination: to, contents };
        let result = self.rtc.handle_input(Input::Receive(self.now, receive));
        if result.is_ok() {
            self.pump();
        }
        if let Some(failure) = self.handshake.failure() {
            self.fail(ClosedBy::Dtls(failure));
            self.pump();
        }
        result.map_err(|_| DatagramRefused::Unreadable)
    }

    fn turn(&mut self) {
        if self.rtc.handle_input(Input::Timeout(self.now)).is_err() {
            self.fail(ClosedBy::Error);
        }
    }

    /// Takes everything out of str0m, as its contract demands after each change, and follows deadlines that
    /// are due.
    fn pump(&mut self) {
        for _ in 0..TURNS_MAX {
            let at = self.drain();
            match at.filter(|at| *at <= self.now + AT_ONCE) {
                Some(due) => {
                    self.now = self.now.max(due);
                    self.turn();
                }
                None => {
                    self.deadline = at;
                    return;
                }
            }
        }
        self.deadline = Some(self.now + Duration::from_millis(1));
    }

    fn drain(&mut self) -> Option<Instant> {
        loop {
            match self.rtc.poll_output() {
                Ok(str0m::Output::Timeout(at)) => return (at < self.now + NEVER).then_some(at),
                Ok(str0m::Output::Transmit(transmit)) => self.transmit(transmit),
                Ok(str0m::Output::Event(event)) => self.event(event),
                Err(_) => {
                    // Before the keys are there it is the fingerprint, the certificate or the handshake.
                    self.fail(match (self.state, self.handshake.failure()) {
                        (State::Connecting, Some(failure)) => ClosedBy::Dtls(failure),
                        // The one thing in the handshake that str0m judges itself.
                        (State::Connecting, None) => ClosedBy::Dtls(DtlsFailure::FingerprintMismatch),
                        (State::Connected | State::Closed, _) => ClosedBy::Error,
                    });
                    return None;
                }
            }
        }
    }

    fn transmit(&mut self, transmit: Transmit) {
        let to = match classify(&transmit.contents) {
            // Our own agent has answered already.
            Class::Stun => return,
            // Our egress owns SRTP and SRTCP of a playing transport. str0m has the same keys: a second sender
            // would use nonces and indexes twice (RFC 3711 §9.1, RFC 7714 §8.4). It declares no stream there
            // and has nothing to say, so this is a second lock on the same door.
            Class::Rtp | Class::Rtcp if self.role == Role::Play => return,
            // str0m stays with the nominated pair of the highest priority; we follow the peer.
            Class::Rtp | Class::Rtcp | Class::Dtls | Class::Unknown => self.ice.peer().unwrap_or(transmit.destination),
        };
        self.out.push_back(Output::Transmit { to, datagram: transmit.contents.into() });
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Connected => match self.handshake.keys() {
                Some(keys) => {
                    self.state = State::Connected;
                    self.out.push_back(Output::Event(TransportEvent::DtlsConnected(keys.clone())));
                }
                None => {
                    // The alert is encrypted by now, and a close notify.
                    self.closed(ClosedBy::Dtls(DtlsFailure::NoSrtpProfile));
                    if self.rtc.close().is_err() {
                        self.rtc.disconnect();
                    }
                }
            },
            Event::RtpPacket(packet) => self.received(packet),
            Event::Closed => self.closed(ClosedBy::Peer),
            // str0m's enum, not ours: ICE states that `ice` knows better, statistics, data channels.
            _ => {}
        }
    }

    fn received(&mut self, packet: RtpPacket) {
        let (ssrc, pt) = (*packet.header.ssrc, *packet.header.payload_type);
        let Some((section, layer, format)) = self.streams.authenticated(ssrc, pt) else { return };
        let extensions = &packet.header.ext_vals;
        let level = extensions
            .audio_level
            .map(|level| AudioLevel { dbov: level.unsigned_abs(), voice: extensions.voice_activity.unwrap_or(false) });
        self.out.push_back(Output::Event(TransportEvent::Rtp(ReceivedRtp {
            ssrc,
            section,
            layer,
            format,
            ext_seq: *packet.seq_no,
            rtp_time: packet.header.timestamp,
            marker: packet.header.marker,
            level,
            payload: packet.payload,
            sender_report: packet.last_sender_info.map(|sr| (ntp(sr.ntp_time), low_32(sr.rtp_time.numer()))),
        })));
    }

    /// Tells the peer that the handshake has failed.
    fn alert(&mut self, description: Option<u8>) {
        if self.state == State::Connecting
            && let (Some(to), Some(description)) = (self.ice.peer(), description)
            && let Some(datagram) = self.handshake.alert(description)
        {
            self.out.push_back(Output::Transmit { to, datagram });
        }
    }

    fn closed(&mut self, by: ClosedBy) {
        if self.state != State::Closed {
            self.state = State::Closed;
            self.out.push_back(Output::Event(TransportEvent::Closed(by)));
        }
    }

    fn fail(&mut self, by: ClosedBy) {
        if let ClosedBy::Dtls(failure) = by {
            self.alert(failure.alert());
        }
        self.closed(by);
        self.rtc.disconnect();
    }
}

/// Back to 64 bits of NTP time, which str0m has turned into a wall-clock time.
fn ntp(time: SystemTime) -> u64 {
    let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = since_1970.as_secs().wrapping_add(NTP_UNIX_OFFSET_S) << 32;
    // Rounded: str0m's way there cuts below a microsecond.
    seconds | ((u64::from(since_1970.subsec_nanos()) << 32) / 1_000_000_000)
}

fn low_32(number: u64) -> u32 {
    (number & 0xffff_ffff) as u32
}
