//! One WebRTC client: str0m in RTP mode, its own socket, and what it sends or has seen.

use crate::ledger::{Arrival, Ledger};
use crate::plan::{self, Media, Plan, Role, Seat};
use crate::schedule::Ticks;
use crate::stamp::{self, Random, Stamp, Vp8Packet};
use crate::tally::{JoinTimes, Tally, Window};
use mio::net::UdpSocket;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::config::DtlsCert;
use str0m::format::{Codec, FormatParams};
use str0m::media::{Direction, Frequency, MediaKind, Mid};
use str0m::net::{Protocol, Receive};
use str0m::rtp::{Extension, ExtensionValues, RtpPacket, RtpWrite};
use str0m::{Candidate, Event, IceConnectionState, Input, Output, Rtc, RtcConfig};

/// Asked for as socket buffers: a viewer's second of 30 Mbit/s.
const BUFFER_BYTES: usize = 4 << 20;
/// A key frame is so many times a delta frame.
const KEY_FRAME_FACTOR: f64 = 5.0;
/// Key frames asked for come no closer than this.
const KEY_FRAME_GAP: Duration = Duration::from_millis(500);
const AUDIO_PER_S: f64 = 50.0;
/// RTP header of fixed size (RFC 3550 §5.1).
const RTP_HEADER_BYTES: usize = 12;

/// Payload types and extension ids. Publishers and viewers choose differently, as browsers of different makes do.
struct Numbers {
    opus: u8,
    vp8: u8,
    rtx: u8,
    mid: u8,
    abs_send_time: u8,
    twcc: u8,
    level: u8,
}

const OF_PUBLISHERS: Numbers = Numbers { opus: 111, vp8: 96, rtx: 97, mid: 4, abs_send_time: 2, twcc: 3, level: 1 };
const OF_VIEWERS: Numbers = Numbers { opus: 109, vp8: 120, rtx: 124, mid: 9, abs_send_time: 5, twcc: 7, level: 6 };

/// A client of one seat.
pub struct Client {
    /// Which seat of the plan.
    pub seat: usize,
    /// Its socket.
    pub socket: UdpSocket,
    /// When str0m wants to be called.
    pub wake_at: Instant,
    rtc: Rtc,
    local: SocketAddr,
    work: Work,
    state: State,
    asked_at: Instant,
    answered_at: Instant,
    ice_at: Option<Instant>,
    first_packet: bool,
}

/// How far a client has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// ICE or DTLS is not done.
    Connecting,
    /// Media flows.
    Connected,
    /// It ended by itself; why.
    Failed(String),
}

enum Work {
    Publish(Vec<Outgoing>),
    View(Seen),
    Count(Counted),
}

/// What a viewer that decrypts has seen inside the window.
#[derive(Default)]
struct Seen {
    streams: HashMap<u32, Ledger>,
    received: u64,
}

/// What a viewer that only counts has seen, by SSRC.
#[derive(Default)]
struct Counted {
    streams: HashMap<u32, Numbering>,
    received: u64,
}

/// Clear sequence numbers of one SSRC, extended to 64 bits.
#[derive(Default)]
struct Numbering {
    newest: Option<u64>,
    first_inside: Option<u64>,
    last_inside: u64,
}

/// What a viewer reports at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Viewed {
    /// Which seat.
    pub seat: usize,
    /// Packets of the window, each counted once.
    pub received: u64,
    /// Packets of the window by sequence number, where it only counted; a viewer that decrypts cannot know.
    pub numbered: Option<u64>,
}

/// A client whose offer is on its way.
pub struct Offered {
    /// SDP.
    pub sdp: String,
    seat: usize,
    rtc: Rtc,
    pending: SdpPendingOffer,
    socket: UdpSocket,
    local: SocketAddr,
    work: Work,
    asked_at: Instant,
}

impl Offered {
    /// A new client of `seat`, number `index` of the plan.
    ///
    /// # Errors
    /// What the system or str0m said.
    pub fn new(plan: &Plan, index: usize, seat: &Seat, certificate: &DtlsCert) -> Result<Self, String> {
        let (numbers, direction, sections) = match seat.role {
            Role::Publish { .. } => (OF_PUBLISHERS, Direction::SendOnly, 1),
            Role::Play { publishers, .. } => (OF_VIEWERS, Direction::RecvOnly, publishers),
        };
        let asked_at = Instant::now();
        let mut rtc = configuration(plan, &numbers).set_dtls_cert(certificate.clone()).build(asked_at);
        let socket = open(plan.ip).map_err(|error| no_socket(plan.ip, &error))?;
        let local = socket.local_addr().map_err(|e| e.to_string())?;
        rtc.add_local_candidate(Candidate::host(local, "udp").map_err(|e| e.to_string())?);
        let mut mids = Vec::new();
        let mut api = rtc.sdp_api();
        let kinds = [(plan.media.audio, MediaKind::Audio), (plan.media.video, MediaKind::Video)];
        for kind in kinds.into_iter().filter_map(|(wanted, kind)| wanted.then_some(kind)) {
            for _ in 0..sections {
                mids.push((kind, api.add_media(kind, direction, Some("load".to_owned()), None, None)));
            }
        }
        let (offer, pending) = api.apply().ok_or("there is nothing to offer")?;
        let work = match seat.role {
            Role::Publish { publisher } => {
                Work::Publish(mids.iter().map(|(kind, mid)| Outgoing::new(plan, publisher, *kind, *mid)).collect())
            }
            Role::Play { probe: true, .. } => Work::View(Seen::default()),
            Role::Play { probe: false, .. } => Work::Count(Counted::default()),
        };
        Ok(Self { sdp: offer.to_sdp_string(), seat: index, rtc, pending, socket, local, work, asked_at })
    }

    /// The client, once the answer is there.
    ///
    /// # Errors
    /// What str0m finds wrong with the answer.
    pub fn accept(mut self, answer: &str) -> Result<Client, String> {
        let answer = SdpAnswer::from_sdp_string(answer).map_err(|e| e.to_string())?;
        self.rtc.sdp_api().accept_answer(self.pending, answer).map_err(|e| e.to_string())?;
        let now = Instant::now();
        Ok(Client {
            seat: self.seat,
            socket: self.socket,
            wake_at: now,
            rtc: self.rtc,
            local: self.local,
            work: self.work,
            state: State::Connecting,
            asked_at: self.asked_at,
            answered_at: now,
            ice_at: None,
            first_packet: false,
        })
    }
}

fn configuration(plan: &Plan, numbers: &Numbers) -> RtcConfig {
    let mut config = RtcConfig::new().set_rtp_mode(true).clear_codecs().set_stats_interval(None);
    let codecs = config.codec_config();
    if plan.media.audio {
        let format = FormatParams { min_p_time: Some(10), use_inband_fec: Some(true), ..FormatParams::default() };
        codecs.add_config(numbers.opus.into(), None, Codec::Opus, Frequency::FORTY_EIGHT_KHZ, Some(2), format);
    }
    if plan.media.video {
        let (rtx, format) = (Some(numbers.rtx.into()), FormatParams::default());
        codecs.add_config(numbers.vp8.into(), rtx, Codec::Vp8, Frequency::NINETY_KHZ, None, format);
    }
    let config = config
        .clear_extension_map()
        .set_extension(numbers.mid, Extension::RtpMid)
        .set_extension(numbers.abs_send_time, Extension::AbsoluteSendTime)
        .set_extension(numbers.level, Extension::AudioLevel);
    if plan.twcc { config.set_extension(numbers.twcc, Extension::TransportSequenceNumber) } else { config }
}

/// What keeps a socket from being opened, and what to do about it.
fn no_socket(ip: IpAddr, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::AddrNotAvailable => "; --ip takes an address of this machine",
        _ if error.raw_os_error() == Some(nix::errno::Errno::EMFILE as i32) => {
            "; each client needs a file: ask for fewer, or raise the limit (`ulimit -n`)"
        }
        _ => "",
    };
    format!("it opens no socket on {ip}: {error}{remedy}")
}

/// A socket with large buffers, up to the system's limit where that may not be passed.
fn open(ip: IpAddr) -> io::Result<UdpSocket> {
    use nix::sys::socket::{setsockopt, sockopt};
    let socket = socket2::Socket::from(std::net::UdpSocket::bind((ip, 0))?);
    if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES).is_err() {
        socket.set_recv_buffer_size(BUFFER_BYTES)?;
    }
    socket.set_send_buffer_size(BUFFER_BYTES)?;
    socket.set_nonblocking(true)?;
    Ok(UdpSocket::from_std(socket.into()))
}

/// Time since 1970, by the clock that stamps received packets.
pub fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// What a client may note while it works.
pub struct Notes<'a> {
    /// Which packets are measured, and how many were sent of each stream.
    pub window: &'a Window,
    /// Everything counted.
    pub tally: &'a mut Tally,
    /// How long joins took.
    pub joins: &'a mut JoinTimes,
}

impl Client {
    /// How far it has come.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// When it wants to send next.
    pub fn due(&self) -> Option<Instant> {
        match (&self.work, &self.state) {
            (Work::Publish(streams), State::Connected) => streams.iter().map(|stream| stream.ticks.due()).min(),
            _ => None,
        }
    }

    /// Whether it ever sends media.
    pub fn publishes(&self) -> bool {
        matches!(self.work, Work::Publish(_))
    }

    /// What a viewer has seen.
    pub fn viewed(&self) -> Option<Viewed> {
        let (received, numbered) = match &self.work {
            Work::Publish(_) => return None,
            Work::View(seen) => (seen.received, None),
            Work::Count(counted) => {
                let inside = counted.streams.values().filter_map(|s| Some(s.last_inside - s.first_inside? + 1));
                (counted.received, Some(inside.sum()))
            }
        };
        Some(Viewed { seat: self.seat, received, numbered })
    }

    /// A datagram came; `kernel`: when, since 1970.
    pub fn receive(&mut self, from: SocketAddr, datagram: &[u8], kernel: Duration, notes: &mut Notes<'_>) {
        if matches!(self.state, State::Failed(_)) {
            return;
        }
        if let (Work::Count(counted), State::Connected) = (&mut self.work, &self.state)
            && let Some((pt, seq, ssrc)) = clear_header(datagram)
        {
            if pt == OF_VIEWERS.opus || pt == OF_VIEWERS.vp8 {
                counted.saw(seq, ssrc, notes.window.holds(kernel), datagram.len(), notes.tally);
            }
            self.note_first_packet(notes);
            return;
        }
        if let Ok(received) = Receive::new(Protocol::Udp, from, self.local, datagram) {
            self.input(Input::Receive(Instant::now(), received), kernel, notes);
        }
    }

    /// str0m's deadline has come.
    pub fn wake(&mut self, now: Instant, notes: &mut Notes<'_>) {
        if !matches!(self.state, State::Failed(_)) {
            self.input(Input::Timeout(now), Duration::ZERO, notes);
        }
    }

    /// Sends all that is due.
    pub fn send_due(&mut self, notes: &mut Notes<'_>) {
        let Work::Publish(streams) = &mut self.work else { return };
        let mut streams = std::mem::take(streams);
        for stream in &mut streams {
            while self.state == State::Connected
                && let Some(tick) = stream.ticks.take(Instant::now())
            {
                notes.tally.late.record(tick.late);
                for packet in 0..stream.begin_frame() {
                    self.write(stream, packet, tick.number, notes);
                }
            }
        }
        self.work = Work::Publish(streams);
    }

    fn write(&mut self, stream: &mut Outgoing, packet: usize, frame: u64, notes: &mut Notes<'_>) {
        let Some(pt) = self.rtc.media(stream.mid).and_then(|media| media.remote_pts().first().copied()) else { return };
        let sent = wall_clock();
        let payload = stream.payload(packet, frame, sent);
        let bytes = payload.len();
        let mut extensions = ExtensionValues::default();
        if !stream.is_video() {
            (extensions.audio_level, extensions.voice_activity) = (Some(-30), Some(true));
        }
        let last = stream.is_video() && packet + 1 == stream.frame_packets;
        let packet = RtpWrite::new(pt, stream.seq().into(), stream.rtp_time(frame), Instant::now(), payload)
            .marker(last)
            .nackable(stream.is_video())
            .ext_vals(extensions);
        if let Some(sender) = self.rtc.direct_api().stream_tx_by_mid(stream.mid, None) {
            sender.write_rtp(packet);
        }
        stream.counter += 1;
        notes.tally.sent += 1;
        notes.tally.sent_bytes += bytes as u64;
        notes.window.sent(stream.id, sent);
        self.input(Input::Timeout(Instant::now()), Duration::ZERO, notes);
    }

    fn input(&mut self, input: Input<'_>, kernel: Duration, notes: &mut Notes<'_>) {
        match self.rtc.handle_input(input) {
            Ok(()) => self.drain(kernel, notes),
            Err(error) => self.fail(error.to_string()),
        }
    }

    fn fail(&mut self, why: String) {
        if !matches!(self.state, State::Failed(_)) {
            self.state = State::Failed(why);
        }
    }

    /// str0m's contract: one input, then its output to the end.
    fn drain(&mut self, kernel: Duration, notes: &mut Notes<'_>) {
        loop {
            match self.rtc.poll_output() {
                Ok(Output::Timeout(at)) => {
                    self.wake_at = at;
                    return;
                }
                Ok(Output::Transmit(out)) => {
                    // Refused when the server has gone, which ICE finds out; a full buffer is a loss like any other.
                    let sent = self.socket.send_to(&out.contents, out.destination);
                    notes.tally.send_errors += u64::from(sent.is_err());
                }
                Ok(Output::Event(event)) => self.event(event, kernel, notes),
                Err(error) => return self.fail(error.to_string()),
            }
        }
    }

    fn event(&mut self, event: Event, kernel: Duration, notes: &mut Notes<'_>) {
        let now = Instant::now();
        match event {
            Event::IceConnectionStateChange(IceConnectionState::Connected | IceConnectionState::Completed)
                if self.ice_at.is_none() =>
            {
                self.ice_at = Some(now);
                notes.joins.ice.record(now - self.answered_at);
            }
            Event::IceConnectionStateChange(IceConnectionState::Disconnected) => {
                self.fail("ICE disconnected".to_owned())
            }
            Event::Connected if self.state == State::Connecting => {
                self.state = State::Connected;
                notes.joins.dtls.record(now - self.ice_at.unwrap_or(self.answered_at));
                notes.joins.connected.record(now - self.asked_at);
                if let Work::Publish(streams) = &mut self.work {
                    streams.iter_mut().for_each(|stream| stream.begin(now));
                }
            }
            Event::Closed => self.fail("the server closed the connection".to_owned()),
            Event::KeyframeRequest(asked) => {
                if let Work::Publish(streams) = &mut self.work {
                    streams.iter_mut().filter(|s| s.mid == asked.mid).for_each(|s| s.key_frame_asked = true);
                }
                notes.tally.key_frames_asked += 1;
            }
            Event::RtpPacket(packet) => {
                self.note_first_packet(notes);
                if let Work::View(seen) = &mut self.work {
                    seen.saw(&packet, kernel, notes);
                }
            }
            // Another library's enum, of which nothing else concerns a load.
            _ => {}
        }
    }

    fn note_first_packet(&mut self, notes: &mut Notes<'_>) {
        if !self.first_packet {
            self.first_packet = true;
            notes.joins.first_packet.record(self.asked_at.elapsed());
        }
    }
}

impl Seen {
    fn saw(&mut self, packet: &RtpPacket, kernel: Duration, notes: &mut Notes<'_>) {
        let Some(stamp) = Stamp::read(&packet.payload) else {
            notes.tally.foreign += 1;
            return;
        };
        let arrival = self.streams.entry(stamp.stream).or_default().saw(stamp.counter.into());
        if arrival == Arrival::Duplicate {
            notes.tally.duplicates += 1;
            return;
        }
        notes.tally.reordered += u64::from(arrival == Arrival::Reordered);
        let inside = notes.window.holds(Duration::from_nanos(stamp.sent_ns));
        self.received += u64::from(inside);
        notes.tally.received(packet.payload.len(), inside);
        notes.tally.latency(plan::is_video(stamp.stream), stamp.age(kernel), inside);
    }
}

impl Counted {
    fn saw(&mut self, seq: u16, ssrc: u32, inside: bool, bytes: usize, tally: &mut Tally) {
        let numbering = self.streams.entry(ssrc).or_default();
        let number = numbering.extend(seq);
        if inside {
            self.received += 1;
            numbering.first_inside = Some(numbering.first_inside.map_or(number, |first| first.min(number)));
            numbering.last_inside = numbering.last_inside.max(number);
        }
        tally.received(bytes.saturating_sub(RTP_HEADER_BYTES), inside);
    }
}

impl Numbering {
    /// The 64-bit number nearest to the newest one.
    fn extend(&mut self, seq: u16) -> u64 {
        let Some(newest) = self.newest else {
            // One turn above zero, so that older ones have room below.
            let number = (1 << 16) + u64::from(seq);
            self.newest = Some(number);
            return number;
        };
        let step = i64::from(seq.wrapping_sub(newest as u16) as i16);
        let number = newest.saturating_add_signed(step);
        self.newest = Some(newest.max(number));
        number
    }
}

/// Payload type, sequence number and SSRC of an RTP packet; `None` for all else on the same port (RFC 7983, RFC 5761).
fn clear_header(datagram: &[u8]) -> Option<(u8, u16, u32)> {
    let header = datagram.first_chunk::<RTP_HEADER_BYTES>()?;
    let (version, second) = (header[0] >> 6, header[1]);
    if version != 2 || (192..=223).contains(&second) {
        return None;
    }
    let ssrc = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
    Some((second & 0x7f, u16::from_be_bytes([header[2], header[3]]), ssrc))
}

/// One stream that a publisher sends.
struct Outgoing {
    mid: Mid,
    id: u32,
    media: Media,
    seed: u64,
    ticks: Ticks,
    /// Where in its period it sends: publishers are not in step.
    phase: f64,
    counter: u32,
    first_seq: u16,
    first_rtp_time: u32,
    /// Video: bytes owed to the bit rate.
    owed_bytes: f64,
    key_frame_asked: bool,
    key_frame: bool,
    key_frame_at: Option<Instant>,
    frame_packets: usize,
}

impl Outgoing {
    fn new(plan: &Plan, publisher: usize, kind: MediaKind, mid: Mid) -> Self {
        let video = kind == MediaKind::Video;
        let id = if video { plan::video_stream(publisher) } else { plan::audio_stream(publisher) };
        let seed = plan.seed ^ u64::from(id) << 32;
        let mut random = Random::new(seed);
        Self {
            mid,
            id,
            media: plan.media,
            seed,
            ticks: Ticks::new(Instant::now(), 1.0),
            phase: random.next() as f64 / u64::MAX as f64,
            counter: 0,
            first_seq: random.next() as u16,
            first_rtp_time: random.next() as u32,
            owed_bytes: 0.0,
            key_frame_asked: false,
            key_frame: false,
            key_frame_at: None,
            frame_packets: 0,
        }
    }

    fn is_video(&self) -> bool {
        plan::is_video(self.id)
    }

    fn per_s(&self) -> f64 {
        if self.is_video() { f64::from(self.media.video_fps) } else { AUDIO_PER_S }
    }

    fn begin(&mut self, now: Instant) {
        let per_s = self.per_s();
        self.ticks = Ticks::new(now + Duration::from_secs_f64(self.phase / per_s), per_s);
    }

    fn seq(&self) -> u64 {
        u64::from(self.first_seq) + u64::from(self.counter)
    }

    fn rtp_time(&self, frame: u64) -> u32 {
        let rate_hz = if self.is_video() { 90_000.0 } else { 48_000.0 };
        self.first_rtp_time.wrapping_add((frame as f64 * rate_hz / self.per_s()) as u64 as u32)
    }

    /// Decides what the next frame is; answers its packets.
    fn begin_frame(&mut self) -> usize {
        self.frame_packets = 1;
        if self.is_video() {
            let since = self.key_frame_at.map(|at| at.elapsed());
            let due = since.is_none_or(|since| since.as_secs_f64() >= self.media.key_frame_s);
            self.key_frame = due || self.key_frame_asked && since.is_none_or(|since| since >= KEY_FRAME_GAP);
            if self.key_frame {
                (self.key_frame_asked, self.key_frame_at) = (false, Some(Instant::now()));
            }
            let mean = f64::from(self.media.video_kbps) * 125.0 / self.per_s();
            self.owed_bytes += if self.key_frame { mean * KEY_FRAME_FACTOR } else { mean };
            let bytes = self.media.video_bytes as f64;
            self.frame_packets = (self.owed_bytes / bytes).round().max(1.0) as usize;
            // A frame is at least a packet: at a tiny bit rate the debt must not grow.
            self.owed_bytes =
                (self.owed_bytes - self.frame_packets as f64 * bytes).clamp(-mean.max(bytes), mean.max(bytes));
        }
        self.frame_packets
    }

    fn payload(&self, packet: usize, frame: u64, sent: Duration) -> Vec<u8> {
        let sent_ns = u64::try_from(sent.as_nanos()).unwrap_or(u64::MAX);
        let stamp = Stamp { stream: self.id, counter: self.counter, sent_ns };
        if self.is_video() {
            let picture = (frame & 0x7fff) as u16;
            let packet = Vp8Packet { first: packet == 0, key_frame: self.key_frame, picture };
            stamp::vp8(self.media.video_bytes, self.seed, packet, stamp)
        } else {
            stamp::opus(self.media.audio_bytes, self.seed, stamp)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Scenario, tests::plan};

    fn outgoing(change: impl FnOnce(&mut Plan), kind: MediaKind) -> Outgoing {
        let mut plan = plan(Scenario::Live, 1, 1, 1);
        change(&mut plan);
        Outgoing::new(&plan, 0, kind, "v".into())
    }

    #[test]
    fn frames_carry_the_bit_rate_asked_for() {
        for (kbps, bytes) in [(300, 1_150), (1_200, 1_150), (4_000, 1_000)] {
            let mut stream = outgoing(|p| (p.media.video_kbps, p.media.video_bytes) = (kbps, bytes), MediaKind::Video);
            // The first frame is a key frame; the ones after it are not, within these microseconds.
            let first = stream.begin_frame();
            assert!(stream.key_frame);
            let packets: usize = (0..3_000).map(|_| stream.begin_frame()).sum();
            let sent_kbps = (packets * bytes) as f64 * 8.0 / 100.0 / 1_000.0;
            assert!((sent_kbps / f64::from(kbps) - 1.0).abs() < 0.01, "{kbps}: {sent_kbps}");
            let mean = f64::from(kbps) * 125.0 / 30.0 / bytes as f64;
            assert!((first as f64 - (KEY_FRAME_FACTOR * mean).max(1.0)).abs() <= 1.0, "{kbps}: {first}");
        }
    }

    #[test]
    fn key_frames_asked_for_come_but_not_in_a_row() {
        let mut stream = outgoing(|_| {}, MediaKind::Video);
        stream.begin_frame();
        stream.key_frame_asked = true;
        stream.begin_frame();
        assert!(!stream.key_frame, "one was sent just now");
        stream.key_frame_at = Instant::now().checked_sub(KEY_FRAME_GAP);
        stream.begin_frame();
        assert!(stream.key_frame && !stream.key_frame_asked);
    }

    #[test]
    fn rtp_times_follow_the_clock_rate_and_the_seed() {
        let (audio, video) = (outgoing(|_| {}, MediaKind::Audio), outgoing(|_| {}, MediaKind::Video));
        assert_eq!(audio.rtp_time(50).wrapping_sub(audio.first_rtp_time), 48_000);
        assert_eq!(video.rtp_time(30).wrapping_sub(video.first_rtp_time), 90_000);
        assert_eq!(outgoing(|_| {}, MediaKind::Audio).first_seq, audio.first_seq);
        assert_ne!(outgoing(|p| p.seed = 2, MediaKind::Audio).first_rtp_time, audio.first_rtp_time);
    }

    #[test]
    fn clear_numbers_are_extended_over_the_wrap() {
        let mut numbering = Numbering::default();
        let numbers: Vec<u64> = [65_534, 65_535, 1, 0, 2].into_iter().map(|seq| numbering.extend(seq)).collect();
        assert_eq!(numbers.iter().map(|n| n - numbers[0]).collect::<Vec<_>>(), [0, 1, 3, 2, 4]);
        let mut numbering = Numbering::default();
        assert!(numbering.extend(0) > numbering.extend(65_535));
    }

    #[test]
    fn only_rtp_has_a_clear_header() {
        let mut packet = [0u8; 20];
        packet[..12].copy_from_slice(&[0x80, 0x80 | 109, 1, 2, 0, 0, 0, 0, 9, 8, 7, 6]);
        assert_eq!(clear_header(&packet), Some((109, 0x0102, 0x0908_0706)));
        for (first, second) in [(0x80, 200), (0x80, 205), (22, 254), (0, 1)] {
            (packet[0], packet[1]) = (first, second);
            assert_eq!(clear_header(&packet), None);
        }
        assert_eq!(clear_header(&packet[..11]), None);
    }
}
