//! Publishers (WHIP) and viewers (WHEP): real WebRTC over loopback, each on a thread of its own.
//!
//! Every payload says whose it is and which (see [`super::media::Stamp`]), so a viewer knows what it missed.

use super::continuity::Continuity;
use super::http::{Answer, Api};
use super::media::{self, Stamp, Vp8Packet};
use super::peer::{Numbers, Peer};
use super::wait::Watched;
use reqwest::Url;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use str0m::Event;
use str0m::media::{Direction, MediaKind, Mid};
use str0m::rtp::{ExtensionValues, RtpPacket, RtpWrite};

/// How a publisher publishes.
#[derive(Debug, Clone)]
pub struct PublishOptions {
    /// 50 packets/s of Opus.
    pub audio: bool,
    /// 30 frames/s of VP8.
    pub video: bool,
    /// Address of the client's socket; its family decides which of the server's candidates is used.
    pub ip: IpAddr,
    /// Loudness told with the audio, −dBov; 127 is silence.
    pub level_dbov: u8,
    /// Added to the address, such as `?source=screen`.
    pub query: &'static str,
    /// The packets with the sequence numbers 65535 and 0 are sent in the wrong order.
    pub swap_at_wrap: bool,
}

impl Default for PublishOptions {
    fn default() -> Self {
        Self {
            audio: true,
            video: true,
            ip: Ipv4Addr::LOCALHOST.into(),
            level_dbov: 20,
            query: "",
            swap_at_wrap: false,
        }
    }
}

/// How a viewer views.
#[derive(Debug, Clone)]
pub struct ViewOptions {
    /// Audio sections offered.
    pub audio: usize,
    /// Video sections offered.
    pub video: usize,
    /// Address of the client's socket.
    pub ip: IpAddr,
    /// Only what this participant publishes.
    pub only: Option<&'static str>,
}

impl Default for ViewOptions {
    fn default() -> Self {
        Self { audio: 1, video: 1, ip: Ipv4Addr::LOCALHOST.into(), only: None }
    }
}

/// What a client has seen and done so far.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// ICE and DTLS are up.
    pub connected: bool,
    /// The server closed DTLS.
    pub closed: bool,
    /// The connection failed, and how.
    pub failed: Option<String>,
    /// Publisher: audio packets sent.
    pub audio_sent: u64,
    /// Publisher: video packets sent.
    pub video_sent: u64,
    /// Publisher: key frames sent.
    pub key_frames_sent: u64,
    /// Publisher: key frames asked for by the server.
    pub key_frames_asked: u64,
    /// Viewer: audio packets received.
    pub audio_packets: u64,
    /// Viewer: how long each audio packet was under way, in microseconds, in the order of arrival.
    pub audio_latencies_us: Vec<u32>,
    /// Viewer: video packets received.
    pub video_packets: u64,
    /// Viewer: packets without a stamp of ours.
    pub foreign: u64,
    /// Viewer: by section (mid).
    pub sections: BTreeMap<String, Section>,
}

/// What arrived in one section.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// By RTP sequence number.
    pub rtp: Continuity,
    /// By the counter in the payload, per publisher's stream.
    pub streams: BTreeMap<u32, Continuity>,
    /// SSRCs seen.
    pub ssrcs: BTreeSet<u32>,
    /// Payload types seen.
    pub payload_types: BTreeSet<u8>,
    /// Streams in the order in which they first appeared.
    pub order: Vec<u32>,
    /// Key frames that began.
    pub key_frames: u64,
    /// Packets that told a loudness.
    pub levels: u64,
    /// Packets with the marker.
    pub markers: u64,
    /// A sender report came.
    pub sender_report: bool,
    /// Streams whose first packet was a key frame's first.
    pub began_with_key_frame: BTreeSet<u32>,
}

impl Stats {
    /// Continuity of one publisher's stream, wherever it arrived.
    pub fn stream(&self, stream: u32) -> Continuity {
        self.sections.values().find_map(|s| s.streams.get(&stream)).cloned().unwrap_or_default()
    }

    /// The section in which a stream arrived last.
    pub fn section_of(&self, stream: u32) -> Option<&str> {
        self.sections.iter().find(|(_, s)| s.streams.contains_key(&stream)).map(|(mid, _)| mid.as_str())
    }

    /// Packets that never came, by either numbering.
    pub fn missing(&self) -> usize {
        self.sections
            .values()
            .map(|s| s.rtp.missing() + s.streams.values().map(Continuity::missing).sum::<usize>())
            .sum()
    }

    /// Fails unless everything that arrived was whole: no hole, no duplicate, one SSRC and one payload type a
    /// section, nothing foreign, and video that begins with a key frame.
    pub fn assert_whole(&self) {
        assert_eq!(self.failed, None, "{self:#?}");
        assert_eq!(self.foreign, 0, "packets that no publisher of this test sent");
        for (mid, section) in &self.sections {
            for (name, seen) in std::iter::once(("rtp".to_owned(), &section.rtp))
                .chain(section.streams.iter().map(|(id, seen)| (format!("stream {id}"), seen)))
            {
                assert_eq!(seen.missing(), 0, "section {mid}, {name}: missing {:?}", seen.some_missing());
                assert_eq!(seen.duplicates, 0, "section {mid}, {name}");
            }
            assert_eq!(section.ssrcs.len(), 1, "section {mid} keeps its SSRC");
            assert_eq!(section.payload_types.len(), 1, "section {mid} keeps its payload type");
            for id in section.streams.keys().filter(|id| is_video(**id)) {
                assert!(section.began_with_key_frame.contains(id), "section {mid}, stream {id}: no key frame at first");
            }
        }
    }
}

/// Stream ids are given in pairs: even for audio, odd for video.
static NEXT_STREAM: AtomicU32 = AtomicU32::new(2);
fn is_video(stream: u32) -> bool {
    stream % 2 == 1
}

enum Command {
    AskKeyFrame,
    SetLevel(u8),
    /// Go on behind another port.
    Rebind {
        keep: bool,
    },
    /// Begin an ICE restart: the offer goes back.
    OfferRestart(Sender<String>),
    /// Complete it with this answer, behind another port.
    Restart(String),
    /// End with a DTLS close.
    Stop,
    /// End without a word.
    Vanish,
}

/// A running client.
pub struct Client {
    api: Api,
    resource: Url,
    answer: Answer,
    stats: Arc<Watched<Stats>>,
    commands: Sender<Command>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    fn start(
        api: &Api,
        mut peer: Peer,
        offer: super::peer::Offer,
        path: &str,
        role: Role,
    ) -> Result<Self, Box<Answer>> {
        let answer = api.post_sdp(path, offer.sdp.clone());
        if answer.status != 201 {
            return Err(Box::new(answer));
        }
        let resource = answer.location().expect("a Location with 201");
        let stats = Arc::new(Watched::<Stats>::default());
        let (commands, heard) = channel();
        let watched = stats.clone();
        peer.accept(offer, &answer.body).unwrap_or_else(|e| panic!("the answer to {path} cannot be used: {e}"));
        let thread = std::thread::spawn(move || {
            if let Err(e) = run(peer, role, &heard, &watched) {
                watched.update(|s| s.failed = Some(e));
            }
        });
        Ok(Self { api: api.clone(), resource, answer, stats, commands, thread: Some(thread) })
    }

    /// What it has seen so far.
    pub fn stats(&self) -> Stats {
        self.stats.get()
    }

    /// Waits until `holds`.
    ///
    /// # Panics
    /// With `what` and all statistics, when `within` is over.
    pub fn wait_until(&self, what: &str, within: Duration, holds: impl Fn(&Stats) -> bool) -> Stats {
        match self.stats.wait_until(within, |stats| holds(stats)) {
            Ok(stats) => stats,
            Err(stats) => panic!("not within {within:?}: {what}; {stats:#?}"),
        }
    }

    /// Waits for ICE and DTLS.
    pub fn wait_connected(&self) -> Stats {
        self.wait_until("connected", Duration::from_secs(15), |s| s.connected)
    }

    /// Goes on behind another port: see [`Peer::rebind`].
    pub fn rebind(&self, keep: bool) {
        let _ = self.commands.send(Command::Rebind { keep });
    }

    /// Restarts ICE (RFC 9725 §4.3.3) behind another port, while the old one is still read. The server's answer.
    ///
    /// # Panics
    /// When the server does not answer 200.
    pub fn restart_ice(&self) -> Answer {
        let (told, offer) = channel();
        let _ = self.commands.send(Command::OfferRestart(told));
        let offer = offer.recv().expect("the client goes on");
        let credentials = |line: &&str| line.starts_with("a=ice-ufrag:") || line.starts_with("a=ice-pwd:");
        let fragment: String = offer.lines().filter(credentials).take(2).map(|line| format!("{line}\r\n")).collect();
        let answer = self.api.patch_ice(&self.resource, "\"*\"", &fragment);
        assert_eq!(answer.status, 200, "{answer:#?}");
        let _ = self.commands.send(Command::Restart(with_credentials(&self.answer.body, &answer.body)));
        answer
    }

    /// Address of the transport's resource.
    pub fn resource(&self) -> &Url {
        &self.resource
    }

    /// The answer to its offer.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    /// Ends the client: DELETE, then silence. Gives the status of DELETE.
    pub fn stop(mut self) -> u16 {
        let status = self.api.delete(&self.resource).status;
        self.end(Command::Stop);
        status
    }

    /// Ends by DTLS close alone, as a closed browser tab does.
    pub fn close(mut self) {
        self.end(Command::Stop);
    }

    /// Ends as a crashed client does: no DELETE, no DTLS close. Gives the address of the resource left behind.
    pub fn vanish(mut self) -> Url {
        self.end(Command::Vanish);
        self.resource.clone()
    }

    fn end(&mut self, command: Command) {
        // The thread may have ended by itself.
        let _ = self.commands.send(command);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("a client's thread failed; its message stands above");
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end(Command::Stop);
        }
    }
}

/// Somebody who publishes.
pub struct Publisher {
    client: Client,
    streams: u32,
}

impl Publisher {
    /// Publishes in `room` as `identity`; returns when the connection is up.
    ///
    /// # Panics
    /// When the server refuses, or the connection does not come up.
    pub fn start(api: &Api, room: &str, identity: &str, options: PublishOptions) -> Self {
        let publisher = Self::try_start(api, room, identity, options).unwrap_or_else(|a| panic!("refused: {a:#?}"));
        publisher.wait_connected();
        publisher
    }

    /// The same, without waiting.
    ///
    /// # Errors
    /// The server's answer when it is not 201.
    pub fn try_start(api: &Api, room: &str, identity: &str, options: PublishOptions) -> Result<Self, Box<Answer>> {
        let mut peer = Peer::new(options.ip, Numbers::PUBLISHER);
        let kinds: Vec<_> = [(options.audio, MediaKind::Audio), (options.video, MediaKind::Video)]
            .into_iter()
            .filter_map(|(wanted, kind)| wanted.then_some(kind))
            .collect();
        let offer = peer.offer(&kinds, Direction::SendOnly);
        let streams = NEXT_STREAM.fetch_add(2, Ordering::Relaxed);
        let level_dbov = options.level_dbov;
        let outgoing = |&(kind, mid): &_| Outgoing { swap: options.swap_at_wrap, ..Outgoing::new(kind, mid, streams) };
        let outgoing = offer.sections.iter().map(outgoing).collect();
        let path = format!("/whip/{room}/{identity}{}", options.query);
        let client = Client::start(api, peer, offer, &path, Role::Publisher { outgoing, level_dbov })?;
        Ok(Self { client, streams })
    }

    /// Id of its audio in payloads.
    pub fn audio_stream(&self) -> u32 {
        self.streams
    }

    /// Id of its video in payloads.
    pub fn video_stream(&self) -> u32 {
        self.streams + 1
    }

    /// Changes the loudness it tells; 127 is silence.
    pub fn set_level(&self, dbov: u8) {
        let _ = self.client.commands.send(Command::SetLevel(dbov));
    }

    /// See [`Client::stop`].
    pub fn stop(self) -> u16 {
        self.client.stop()
    }

    /// See [`Client::close`].
    pub fn close(self) {
        self.client.close();
    }

    /// See [`Client::vanish`].
    pub fn vanish(self) -> Url {
        self.client.vanish()
    }
}

impl std::ops::Deref for Publisher {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Somebody who plays.
pub struct Viewer {
    client: Client,
}

impl Viewer {
    /// Plays `room`; returns when the connection is up.
    ///
    /// # Panics
    /// When the server refuses, or the connection does not come up.
    pub fn start(api: &Api, room: &str, options: ViewOptions) -> Self {
        let viewer = Self::try_start(api, room, options).unwrap_or_else(|a| panic!("refused: {a:#?}"));
        viewer.wait_connected();
        viewer
    }

    /// The same, without waiting.
    ///
    /// # Errors
    /// The server's answer when it is not 201.
    pub fn try_start(api: &Api, room: &str, options: ViewOptions) -> Result<Self, Box<Answer>> {
        let mut peer = Peer::new(options.ip, Numbers::VIEWER);
        let kinds: Vec<_> = std::iter::repeat_n(MediaKind::Audio, options.audio)
            .chain(std::iter::repeat_n(MediaKind::Video, options.video))
            .collect();
        let offer = peer.offer(&kinds, Direction::RecvOnly);
        let mids = offer.sections.clone();
        let path = match options.only {
            Some(identity) => format!("/whep/{room}/{identity}"),
            None => format!("/whep/{room}"),
        };
        Ok(Self { client: Client::start(api, peer, offer, &path, Role::Viewer { mids })? })
    }

    /// Asks for a key frame in every video section.
    pub fn ask_key_frame(&self) {
        let _ = self.client.commands.send(Command::AskKeyFrame);
    }

    /// Waits until `packets` of each of the publisher's `streams` are there and no hole is left.
    pub fn wait_for_streams(&self, streams: &[u32], packets: u64, within: Duration) -> Stats {
        let what = format!("{packets} packets of each of the streams {streams:?}, without a hole");
        self.wait_until(&what, within, |stats| {
            streams.iter().all(|id| stats.stream(*id).received >= packets) && stats.missing() == 0
        })
    }

    /// The same with so many more packets of each than there are now.
    ///
    /// # Panics
    /// As [`Self::wait_for_streams`].
    pub fn wait_for_more(&self, streams: &[u32], packets: u64, within: Duration) -> Stats {
        let have = self.stats();
        let what = format!("{packets} more packets of each of the streams {streams:?}, without a hole");
        self.wait_until(&what, within, |stats| {
            let more = |id: &u32| stats.stream(*id).received >= have.stream(*id).received + packets;
            streams.iter().all(more) && stats.missing() == 0
        })
    }

    /// See [`Client::stop`].
    pub fn stop(self) -> u16 {
        self.client.stop()
    }

    /// See [`Client::vanish`].
    pub fn vanish(self) -> Url {
        self.client.vanish()
    }
}

impl std::ops::Deref for Viewer {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

/// An answer with the credentials of a fragment: all that changes with an ICE restart.
fn with_credentials(answer: &str, fragment: &str) -> String {
    let of = |name: &str| fragment.lines().find(|line| line.starts_with(name)).expect("a fragment with credentials");
    let line = |line: &str| match line.split(':').next() {
        Some(name @ ("a=ice-ufrag" | "a=ice-pwd")) => format!("{}\r\n", of(name)),
        _ => format!("{line}\r\n"),
    };
    answer.lines().map(line).collect()
}

enum Role {
    Publisher { outgoing: Vec<Outgoing>, level_dbov: u8 },
    Viewer { mids: Vec<(MediaKind, Mid)> },
}

/// One stream that a publisher sends.
struct Outgoing {
    kind: MediaKind,
    mid: Mid,
    stream: u32,
    counter: u32,
    frame: u64,
    key_frame_wanted: bool,
    started: Option<Instant>,
    swap: bool,
}

/// Sequence numbers begin shortly before they wrap: a server that counts wraps wrongly loses the stream at once.
const FIRST_SEQ: u64 = 65_500;
/// RTP time begins shortly before it wraps, too: one second of audio, half a second of video.
const FIRST_RTP_TIME: u32 = u32::MAX - 48_000;
const AUDIO_EVERY: Duration = Duration::from_millis(20);
const VIDEO_FRAMES_PER_S: u64 = 30;
const VIDEO_DELTA_PACKETS: usize = 3;
const VIDEO_KEY_PACKETS: usize = 10;

impl Outgoing {
    fn new(kind: MediaKind, mid: Mid, streams: u32) -> Self {
        let stream = if kind == MediaKind::Audio { streams } else { streams + 1 };
        Self { kind, mid, stream, counter: 0, frame: 0, key_frame_wanted: true, started: None, swap: false }
    }

    /// When the next frame is due, from the first one on.
    fn due(&self, now: Instant) -> Instant {
        let Some(started) = self.started else { return now };
        let offset = match self.kind {
            MediaKind::Audio => AUDIO_EVERY * u32::try_from(self.frame).unwrap_or(u32::MAX),
            MediaKind::Video => Duration::from_micros(self.frame * 1_000_000 / VIDEO_FRAMES_PER_S),
        };
        started + offset
    }

    /// Sends the frame that is due; counts what it sent in `stats`.
    fn send(&mut self, peer: &mut Peer, level_dbov: u8, stats: &Watched<Stats>) -> Result<(), String> {
        let now = Instant::now();
        self.started.get_or_insert(now);
        let Some(pt) = peer.payload_type(self.mid) else { return Ok(()) };
        match self.kind {
            MediaKind::Audio => {
                let time = FIRST_RTP_TIME.wrapping_add(self.number().wrapping_mul(960));
                let payload = media::opus(80, self.stamp());
                let level = i8::try_from(level_dbov).unwrap_or(i8::MAX);
                let extensions = ExtensionValues {
                    audio_level: Some(-level),
                    voice_activity: Some(level_dbov < 127),
                    ..ExtensionValues::default()
                };
                peer.send(self.mid, RtpWrite::new(pt, self.seq(), time, now, payload).ext_vals(extensions))?;
                self.counter += 1;
                stats.update(|s| s.audio_sent += 1);
            }
            MediaKind::Video => {
                let time = FIRST_RTP_TIME.wrapping_add((self.frame * 90_000 / VIDEO_FRAMES_PER_S) as u32);
                let key_frame = std::mem::take(&mut self.key_frame_wanted);
                let packets = if key_frame { VIDEO_KEY_PACKETS } else { VIDEO_DELTA_PACKETS };
                for n in 0..packets {
                    let picture = (self.frame & 0x7fff) as u16;
                    // Which packet of the frame this is, where two have changed places.
                    let n = (n + self.number() as usize).saturating_sub(self.counter as usize);
                    let payload = media::vp8(900, Vp8Packet { first: n == 0, key_frame, picture }, self.stamp());
                    let packet = RtpWrite::new(pt, self.seq(), time, now, payload).marker(n + 1 == packets);
                    peer.send(self.mid, packet.nackable(true))?;
                    self.counter += 1;
                }
                stats.update(|s| {
                    s.video_sent += packets as u64;
                    s.key_frames_sent += u64::from(key_frame);
                });
            }
        }
        self.frame += 1;
        Ok(())
    }

    /// The number of the packet that is sent now: the next one, but for the two at the wrap.
    fn number(&self) -> u32 {
        const LAST: u32 = (65_535 - FIRST_SEQ) as u32;
        const FIRST: u32 = LAST + 1;
        match self.counter {
            LAST if self.swap => FIRST,
            FIRST if self.swap => LAST,
            counter => counter,
        }
    }

    fn stamp(&self) -> Stamp {
        Stamp { stream: self.stream, counter: self.number(), sent_us: media::clock_us(Instant::now()) }
    }

    fn seq(&self) -> str0m::rtp::SeqNo {
        (FIRST_SEQ + u64::from(self.number())).into()
    }
}

fn run(mut peer: Peer, mut role: Role, commands: &Receiver<Command>, stats: &Watched<Stats>) -> Result<(), String> {
    let mut connected = false;
    let mut restart = None;
    loop {
        match commands.try_recv() {
            Ok(Command::AskKeyFrame) => ask_key_frames(&mut peer, &role),
            Ok(Command::SetLevel(dbov)) => {
                if let Role::Publisher { level_dbov, .. } = &mut role {
                    *level_dbov = dbov;
                }
            }
            Ok(Command::Rebind { keep }) => peer.rebind(keep),
            Ok(Command::OfferRestart(told)) => {
                let offer = peer.offer_restart();
                let _ = told.send(offer.sdp.clone());
                restart = Some(offer);
            }
            Ok(Command::Restart(answer)) => {
                peer.rebind(true);
                if let Some(offer) = restart.take() {
                    peer.accept(offer, &answer)?;
                }
            }
            Ok(Command::Vanish) => return Ok(()),
            Ok(Command::Stop) | Err(TryRecvError::Disconnected) => {
                peer.close();
                return Ok(());
            }
            Err(TryRecvError::Empty) => {}
        }
        let mut until = Instant::now() + Duration::from_secs(1);
        if let (true, Role::Publisher { outgoing, level_dbov }) = (connected, &mut role) {
            for stream in outgoing {
                while stream.due(Instant::now()) <= Instant::now() {
                    stream.send(&mut peer, *level_dbov, stats)?;
                }
                until = until.min(stream.due(until));
            }
        }
        peer.step(until)?;
        for event in peer.take_events() {
            match event {
                Event::Connected => {
                    connected = true;
                    stats.update(|s| s.connected = true);
                }
                Event::Closed => {
                    stats.update(|s| s.closed = true);
                    return Ok(());
                }
                Event::KeyframeRequest(asked) => {
                    if let Role::Publisher { outgoing, .. } = &mut role {
                        outgoing.iter_mut().filter(|o| o.mid == asked.mid).for_each(|o| o.key_frame_wanted = true);
                    }
                    stats.update(|s| s.key_frames_asked += 1);
                }
                Event::RtpPacket(packet) => {
                    let mid = peer.section_of(*packet.header.ssrc);
                    stats.update(|s| take_note(s, mid, &packet));
                }
                // Another library's enum, of which nothing else concerns a test.
                _ => {}
            }
        }
    }
}

fn ask_key_frames(peer: &mut Peer, role: &Role) {
    if let Role::Viewer { mids } = role {
        mids.iter().filter(|(kind, _)| *kind == MediaKind::Video).for_each(|(_, mid)| peer.ask_key_frame(*mid));
    }
}

fn take_note(stats: &mut Stats, mid: Option<Mid>, packet: &RtpPacket) {
    let (Some(stamp), Some(mid)) = (Stamp::read(&packet.payload), mid) else {
        stats.foreign += 1;
        return;
    };
    let video = is_video(stamp.stream);
    *(if video { &mut stats.video_packets } else { &mut stats.audio_packets }) += 1;
    if !video {
        stats.audio_latencies_us.push(media::clock_us(packet.timestamp).wrapping_sub(stamp.sent_us));
    }
    let section = stats.sections.entry(mid.to_string()).or_default();
    let key_frame = video && media::vp8_begins_key_frame(&packet.payload);
    if !section.streams.contains_key(&stamp.stream) {
        section.order.push(stamp.stream);
        if key_frame {
            section.began_with_key_frame.insert(stamp.stream);
        }
    }
    section.rtp.saw(*packet.seq_no);
    section.streams.entry(stamp.stream).or_default().saw(stamp.counter.into());
    section.ssrcs.insert(*packet.header.ssrc);
    section.payload_types.insert(*packet.header.payload_type);
    section.key_frames += u64::from(key_frame);
    section.levels += u64::from(packet.header.ext_vals.audio_level.is_some());
    section.markers += u64::from(packet.header.marker);
    section.sender_report |= packet.last_sender_info.is_some();
}
