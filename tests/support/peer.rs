//! One WebRTC endpoint over a real socket: str0m in RTP mode, driven by its deadlines.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::format::{Codec, FormatParams};
use str0m::media::{Direction, Frequency, MediaKind, Mid, Pt, Rid, Simulcast, SimulcastLayer};
use str0m::net::{Protocol, Receive};
use str0m::rtp::{Extension, RtpWrite};
use str0m::{Candidate, Event, Input, Output, Rtc, RtcConfig};

/// Numbers that an endpoint chooses for itself. Publisher and viewer choose differently, so that a server which
/// forwards them unchanged is caught.
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    /// Payload type of Opus.
    pub opus: u8,
    /// Payload type of VP8.
    pub vp8: u8,
    /// Payload type of VP8's retransmissions.
    pub rtx: u8,
    /// Header extension ids: mid, abs-send-time, transport-wide numbers, audio level.
    pub extensions: [u8; 4],
}

impl Numbers {
    /// What the publishers of these tests offer.
    pub const PUBLISHER: Self = Self { opus: 111, vp8: 96, rtx: 97, extensions: [4, 2, 3, 1] };
    /// What the viewers of these tests offer.
    pub const VIEWER: Self = Self { opus: 109, vp8: 120, rtx: 124, extensions: [9, 5, 7, 6] };
}

/// What an endpoint lets out of what it has to say: how far it gets with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lets {
    /// Everything.
    All,
    /// Nothing but STUN: ICE comes up, DTLS never begins.
    Checks,
    /// STUN, and one datagram of DTLS: the handshake begins and is never finished.
    Hello,
}

/// An endpoint.
pub struct Peer {
    rtc: Rtc,
    socket: UdpSocket,
    local: SocketAddr,
    wake_at: Instant,
    events: Vec<Event>,
    arrived: Receiver<Datagram>,
    forward: Sender<Datagram>,
    gone: Arc<AtomicBool>,
    lets: Lets,
    hellos: usize,
}

/// What came from the network: when, from whom, what.
type Datagram = (Instant, SocketAddr, Vec<u8>);

/// An offer, and what is needed to take its answer.
pub struct Offer {
    /// SDP.
    pub sdp: String,
    /// Its sections, in order.
    pub sections: Vec<(MediaKind, Mid)>,
    pending: SdpPendingOffer,
}

/// Longest wait for a datagram: bounds how late a command is heard.
const WAIT_MAX: Duration = Duration::from_millis(10);
/// How soon the reading thread notices that its endpoint is gone.
const READ_WAIT: Duration = Duration::from_millis(100);

impl Peer {
    /// An endpoint with one socket on `ip`.
    pub fn new(ip: IpAddr, numbers: Numbers) -> Self {
        Self::with(UdpSocket::bind((ip, 0)).expect("a loopback socket"), numbers)
    }

    /// An endpoint with this socket.
    pub fn with(socket: UdpSocket, numbers: Numbers) -> Self {
        let mut config = RtcConfig::new().set_rtp_mode(true).clear_codecs().set_stats_interval(None);
        let opus = FormatParams { min_p_time: Some(10), use_inband_fec: Some(true), ..FormatParams::default() };
        let codecs = config.codec_config();
        codecs.add_config(numbers.opus.into(), None, Codec::Opus, Frequency::FORTY_EIGHT_KHZ, Some(2), opus);
        let rtx = Some(numbers.rtx.into());
        let vp8 = FormatParams::default();
        codecs.add_config(numbers.vp8.into(), rtx, Codec::Vp8, Frequency::NINETY_KHZ, None, vp8);
        let [mid, abs_send_time, twcc, level] = numbers.extensions;
        let mut rtc = config
            .clear_extension_map()
            .set_extension(mid, Extension::RtpMid)
            .set_extension(abs_send_time, Extension::AbsoluteSendTime)
            .set_extension(twcc, Extension::TransportSequenceNumber)
            .set_extension(level, Extension::AudioLevel)
            .set_extension(10, Extension::RtpStreamId)
            .set_extension(11, Extension::RepairedRtpStreamId)
            .build(Instant::now());
        let local = socket.local_addr().expect("its address");
        rtc.add_local_candidate(Candidate::host(local, "udp").expect("a host candidate"));
        let (forward, arrived) = channel();
        let gone = Arc::new(AtomicBool::new(false));
        begin_reading(&socket, &forward, &gone);
        Self {
            rtc,
            socket,
            local,
            wake_at: Instant::now(),
            events: Vec::new(),
            arrived,
            forward,
            gone,
            lets: Lets::All,
            hellos: 0,
        }
    }

    /// Ends without a word, its socket closed; its address is free for somebody else.
    pub fn vanish(self) -> SocketAddr {
        self.local
    }

    /// Goes on behind another port without knowing it, as behind a NAT that has forgotten it. With `keep`, what still
    /// comes to the old port is read, as when another network is used before the old one is left.
    pub fn rebind(&mut self, keep: bool) {
        self.socket = UdpSocket::bind((self.local.ip(), 0)).expect("a loopback socket");
        if !keep {
            self.gone.store(true, Ordering::Relaxed);
            self.gone = Arc::new(AtomicBool::new(false));
        }
        begin_reading(&self.socket, &self.forward, &self.gone);
    }

    /// Offers a new ICE session for the sections that are there.
    pub fn offer_restart(&mut self) -> Offer {
        let mut api = self.rtc.sdp_api();
        api.ice_restart(true);
        let (offer, pending) = api.apply().expect("something to offer");
        Offer { sdp: offer.to_sdp_string(), sections: Vec::new(), pending }
    }

    /// Offers sections, each of its kind, all in one direction.
    pub fn offer(&mut self, kinds: &[MediaKind], direction: Direction) -> Offer {
        let mut api = self.rtc.sdp_api();
        let stream = Some("tests".to_owned());
        let sections = kinds.iter().map(|&kind| (kind, api.add_media(kind, direction, stream.clone(), None, None)));
        let sections = sections.collect();
        let (offer, pending) = api.apply().expect("something to offer");
        Offer { sdp: offer.to_sdp_string(), sections, pending }
    }

    /// Offers one section of video in simulcast layers, to be sent.
    pub fn offer_layers(&mut self, rids: &[&str]) -> Offer {
        let mut simulcast = Simulcast::new();
        rids.iter().for_each(|rid| simulcast.add_send_layer(SimulcastLayer::new(rid)));
        let mut api = self.rtc.sdp_api();
        let stream = Some("tests".to_owned());
        let mid = api.add_media(MediaKind::Video, Direction::SendOnly, stream, None, Some(simulcast));
        let (offer, pending) = api.apply().expect("something to offer");
        Offer { sdp: offer.to_sdp_string(), sections: vec![(MediaKind::Video, mid)], pending }
    }

    /// Takes the answer to `offer`.
    ///
    /// # Errors
    /// What str0m finds wrong with it.
    pub fn accept(&mut self, offer: Offer, answer: &str) -> Result<(), String> {
        let parsed = SdpAnswer::from_sdp_string(answer).map_err(|e| format!("{e} in\n{answer}"))?;
        self.rtc.sdp_api().accept_answer(offer.pending, parsed).map_err(|e| format!("{e} in\n{answer}"))?;
        self.input(Input::Timeout(Instant::now()))
    }

    /// Waits for one datagram or a deadline, `until` at the latest; true if something happened.
    ///
    /// # Errors
    /// When the connection is beyond repair.
    pub fn step(&mut self, until: Instant) -> Result<(), String> {
        let wait = until.min(self.wake_at).saturating_duration_since(Instant::now()).min(WAIT_MAX);
        if let Ok((at, from, datagram)) = self.arrived.recv_timeout(wait)
            && let Ok(received) = Receive::new(Protocol::Udp, from, self.local, &datagram)
        {
            self.input(Input::Receive(at, received))?;
        }
        let now = Instant::now();
        if self.wake_at <= now { self.input(Input::Timeout(now)) } else { Ok(()) }
    }

    /// Sends one RTP packet in section `mid`.
    ///
    /// # Errors
    /// When the connection is beyond repair.
    pub fn send(&mut self, mid: Mid, packet: RtpWrite) -> Result<(), String> {
        self.send_layer(mid, None, packet)
    }

    /// The same in a simulcast layer.
    ///
    /// # Errors
    /// When the connection is beyond repair.
    pub fn send_layer(&mut self, mid: Mid, rid: Option<Rid>, packet: RtpWrite) -> Result<(), String> {
        if let Some(stream) = self.rtc.direct_api().stream_tx_by_mid(mid, rid) {
            stream.write_rtp(packet);
        }
        self.input(Input::Timeout(Instant::now()))
    }

    /// Payload type that both sides agreed on for `kind`.
    pub fn payload_type(&self, mid: Mid) -> Option<Pt> {
        self.rtc.media(mid)?.remote_pts().first().copied()
    }

    /// Section that a stream belongs to.
    pub fn section_of(&mut self, ssrc: u32) -> Option<Mid> {
        Some(self.rtc.direct_api().stream_rx(&ssrc.into())?.mid())
    }

    /// Asks the sender of section `mid` for a key frame.
    pub fn ask_key_frame(&mut self, mid: Mid) {
        let kind = str0m::media::KeyframeRequestKind::Pli;
        if let Some(stream) = self.rtc.direct_api().stream_rx_by_mid(mid, None) {
            stream.request_keyframe(kind);
        }
    }

    /// What happened since it was asked last.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// DTLS close, sent but not waited for.
    pub fn close(&mut self) {
        // It ends here either way.
        let _ = self.rtc.close();
        let _ = self.drain();
    }

    /// Steps until ICE is up; false when it is not within that time.
    pub fn until_checked(&mut self, within: Duration) -> bool {
        self.until(within, |event| matches!(event, Event::IceConnectionStateChange(state) if state.is_connected()))
    }

    /// Steps until an event of which `holds` is true; false when there is none within that time.
    pub fn until(&mut self, within: Duration, holds: impl Fn(&Event) -> bool) -> bool {
        let end = Instant::now() + within;
        while Instant::now() < end && self.step(end).is_ok() {
            if self.take_events().iter().any(&holds) {
                return true;
            }
        }
        false
    }

    /// From now on, only that goes out.
    pub fn let_out(&mut self, lets: Lets) {
        self.lets = lets;
    }

    /// Datagrams of DTLS that went out.
    pub fn hellos(&self) -> usize {
        self.hellos
    }

    /// A second handle of its socket: what is sent by it comes from an address that the server has proven.
    pub fn socket(&self) -> UdpSocket {
        self.socket.try_clone().expect("a second handle")
    }

    /// By its first byte (RFC 7983 §7).
    fn lets_out(&mut self, datagram: &[u8]) -> bool {
        let dtls = matches!(datagram.first(), Some(20..=63));
        let stun = matches!(datagram.first(), Some(0..=3));
        let out = match self.lets {
            Lets::All => true,
            Lets::Checks => stun,
            Lets::Hello => stun || (dtls && self.hellos == 0),
        };
        self.hellos += usize::from(out && dtls);
        out
    }

    fn input(&mut self, input: Input) -> Result<(), String> {
        self.rtc.handle_input(input).map_err(|e| e.to_string())?;
        self.drain()
    }

    fn drain(&mut self) -> Result<(), String> {
        // str0m's contract: one input, then its output to the end.
        while self.rtc.is_alive() {
            match self.rtc.poll_output().map_err(|e| e.to_string())? {
                Output::Timeout(at) => {
                    self.wake_at = at;
                    break;
                }
                Output::Transmit(out) => {
                    if self.lets_out(&out.contents) {
                        // Refused when the server has gone: ICE finds out by itself.
                        let _ = self.socket.send_to(&out.contents, out.destination);
                    }
                }
                Output::Event(event) => self.events.push(event),
            }
        }
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

fn begin_reading(socket: &UdpSocket, forward: &Sender<Datagram>, gone: &Arc<AtomicBool>) {
    let (socket, forward, stop) = (socket.try_clone().expect("a second handle"), forward.clone(), gone.clone());
    std::thread::spawn(move || read(&socket, &forward, &stop));
}

/// Empties the socket as fast as it fills: a socket's buffer holds about 90 packets, less than an endpoint that
/// decrypts on a busy machine may be late.
fn read(socket: &UdpSocket, forward: &Sender<Datagram>, gone: &AtomicBool) {
    socket.set_read_timeout(Some(READ_WAIT)).expect("a timeout");
    let mut buffer = [0u8; 2048];
    while !gone.load(Ordering::Relaxed) {
        // A timeout, and ICMP refusals of datagrams sent to a server that has gone, are no faults of this endpoint.
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        if forward.send((Instant::now(), from, buffer[..length].to_vec())).is_err() {
            return;
        }
    }
}
