//! A peer without encryption: an encoder or a player that a few lines can predict to the byte.
//!
//! Every payload carries who made it and its number, so that a player knows what it missed and what came twice.

use rondo_actors::api::Joined;
use rondo_actors::sim::Client;
use rondo_media::wire::rtcp::{Compound, Packet, write_nack, write_receiver_report};
use rondo_media::wire::rtp::{Class, RtpHeader, RtpView, classify};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub const OPUS: u8 = 111;
pub const VP8: u8 = 96;
pub const RTX: u8 = 97;
pub const MID_EXT: u8 = 1;
pub const LEVEL_EXT: u8 = 2;
/// A player asks again for what it misses this often, and this many times.
const NACK_EVERY: Duration = Duration::from_millis(120);
const NACKS_MAX: u32 = 20;
/// A check may be lost: the first retransmission timeout of STUN (RFC 8489 §6.2.1).
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// From the answer to the first packet.
const FIRST_MEDIA: Duration = Duration::from_millis(40);
/// Wait for reordered packets before the first request.
const REORDER_WAIT: Duration = Duration::from_millis(60);

/// What a payload says of itself: who sent it and its number in its stream; the last 8 bytes.
fn stamp(who: u32, number: u32) -> [u8; 8] {
    let (w, n) = (who.to_be_bytes(), number.to_be_bytes());
    [w[0], w[1], w[2], w[3], n[0], n[1], n[2], n[3]]
}

fn read_stamp(payload: &[u8]) -> Option<(u32, u32)> {
    let [w0, w1, w2, w3, n0, n1, n2, n3] = *payload.last_chunk::<8>()?;
    Some((u32::from_be_bytes([w0, w1, w2, w3]), u32::from_be_bytes([n0, n1, n2, n3])))
}

/// One stream that a publisher sends.
struct Outgoing {
    who: u32,
    mid: &'static str,
    ssrc: u32,
    rtx_ssrc: Option<u32>,
    pt: u8,
    seq: u16,
    rtx_seq: u16,
    rtp_time: u32,
    number: u32,
    next_at: Instant,
    key_frame_due: bool,
    sent: BTreeMap<u16, (u32, bool, Vec<u8>)>,
}

/// One stream that a player gets.
#[derive(Default)]
pub struct Incoming {
    /// Numbers of the payloads that came, by who sent them.
    pub numbers: BTreeMap<u32, BTreeSet<u32>>,
    /// Packets of the stream itself (not retransmissions) that came more than once, or a payload under two numbers.
    pub duplicates: u64,
    from_stream: BTreeSet<u64>,
    /// Sequence numbers that came, extended by arrival.
    seqs: BTreeSet<u64>,
    missing: BTreeMap<u64, (Instant, u32)>,
    lowest: Option<u64>,
    highest: Option<u64>,
    rtx_ssrc: Option<u32>,
    /// Payloads that came as retransmissions.
    pub repaired: u64,
    /// When each payload came first, by who sent it and its number.
    pub arrived: BTreeMap<(u32, u32), Instant>,
}

/// A peer: publisher, player, or both roles in two of them.
pub struct Plain {
    addr: SocketAddr,
    server: Option<SocketAddr>,
    out: VecDeque<(SocketAddr, Vec<u8>)>,
    streams: Vec<Outgoing>,
    /// What a player got, by SSRC.
    pub incoming: BTreeMap<u32, Incoming>,
    next_check: Instant,
    stun: Vec<u8>,
    playing: bool,
    /// Asks for what it misses.
    pub nacks: bool,
    /// Goes silent: sends nothing more, not even checks.
    pub vanished: bool,
    sending: bool,
    /// Key frames asked of it.
    pub key_frames_asked: u32,
    /// What it was asked to stay below, in bits per second, each time.
    pub caps: Vec<u64>,
    /// When a player's first picture began.
    pub first_video: Option<Instant>,
    /// Video is nothing but padding, as browsers probe their link with.
    pub padding: bool,
    /// Sound is silence: a packet each 400 ms (RFC 7587 §3.1.3).
    pub silence: bool,
    /// The microphone is open and nobody speaks: a packet each 20 ms without a level.
    pub hushed: bool,
    /// Packets of sound sent instead of each one.
    pub flood: u32,
}

impl Plain {
    /// An address for peer `n`.
    pub fn new(n: u8, now: Instant) -> Self {
        Self {
            addr: SocketAddr::from(([203, 0, 113, n], 5_000)),
            server: None,
            out: VecDeque::new(),
            streams: Vec::new(),
            incoming: BTreeMap::new(),
            next_check: now,
            stun: Vec::new(),
            playing: false,
            nacks: true,
            vanished: false,
            sending: true,
            key_frames_asked: 0,
            caps: Vec::new(),
            first_video: None,
            padding: false,
            silence: false,
            hushed: false,
            flood: 1,
        }
    }

    /// Offers an Opus and a VP8 section to publish.
    pub fn offer_to_publish() -> String {
        let mut sdp = session_lines();
        sdp.push_str(&section("audio", "0", "sendonly", "111", AUDIO_LINES));
        sdp.push_str(&section("video", "1", "sendonly", "96 97", VIDEO_LINES));
        sdp
    }

    /// Offers `n` Opus and `n` VP8 sections to play.
    pub fn offer_to_play(n: usize) -> String {
        let mut sdp = session_lines();
        let mids: Vec<String> = (0..n * 2).map(|mid| mid.to_string()).collect();
        sdp = sdp.replace("BUNDLE 0 1", &format!("BUNDLE {}", mids.join(" ")));
        for pair in mids.chunks(2) {
            sdp.push_str(&section("audio", &pair[0], "recvonly", "111", AUDIO_LINES));
            sdp.push_str(&section("video", &pair[1], "recvonly", "96 97", VIDEO_LINES));
        }
        sdp
    }

    /// The answer came: `who` marks its payloads, audio as `who`, video as `who + 1`.
    pub fn publish(&mut self, now: Instant, server: SocketAddr, joined: &Joined, who: u32) {
        self.begin(server, joined);
        for (index, (mid, pt)) in [("0", OPUS), ("1", VP8)].into_iter().enumerate() {
            let base = 0x1000_0000 + who * 16 + index as u32 * 4;
            self.streams.push(Outgoing {
                who: who + index as u32,
                mid,
                ssrc: base,
                rtx_ssrc: (pt == VP8).then_some(base + 1),
                pt,
                // Close to the wrap, so that every run crosses it.
                seq: 65_400,
                rtx_seq: 1,
                rtp_time: 0xffff_0000,
                number: 0,
                next_at: now + FIRST_MEDIA,
                key_frame_due: true,
                sent: BTreeMap::new(),
            });
        }
    }

    /// The answer came: what its sections' SSRCs are.
    pub fn play(&mut self, server: SocketAddr, joined: &Joined) {
        self.begin(server, joined);
        self.playing = true;
        for section in joined.answer.split("\r\nm=").skip(1) {
            let fid = section.lines().find_map(|l| l.strip_prefix("a=ssrc-group:FID "));
            let ssrcs: Vec<u32> = match fid {
                Some(pair) => pair.split(' ').filter_map(|s| s.parse().ok()).collect(),
                None => {
                    section.lines().filter_map(|l| l.strip_prefix("a=ssrc:")?.split(' ').next()?.parse().ok()).collect()
                }
            };
            if let Some(ssrc) = ssrcs.first() {
                let rtx_ssrc = fid.and(ssrcs.get(1).copied());
                self.incoming.insert(*ssrc, Incoming { rtx_ssrc, ..Incoming::default() });
            }
        }
    }

    /// Publishes sound only; from the call to [`Self::publish`] to the first packet it takes this long.
    pub fn sound_only(&mut self) -> Duration {
        self.streams.retain(|stream| stream.pt == OPUS);
        FIRST_MEDIA
    }

    /// Says something by RTCP.
    pub fn say(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        write(&mut out);
        self.send(out);
    }

    /// Ends sending media; checks go on.
    pub fn stop_media(&mut self) {
        self.sending = false;
    }

    fn begin(&mut self, server: SocketAddr, joined: &Joined) {
        self.server = Some(server);
        // A plain answer has no ICE; the ICE session tag is our ufrag, by which the demux knows a transport.
        self.stun = binding_request(&format!("{}:peer", joined.etag));
    }

    fn send(&mut self, bytes: Vec<u8>) {
        if let (Some(server), false) = (self.server, self.vanished) {
            self.out.push_back((server, bytes));
        }
    }

    fn send_media(&mut self, now: Instant) {
        let mut packets = Vec::new();
        for stream in &mut self.streams {
            while self.sending && stream.next_at <= now {
                let (every, step, count) = match stream.pt {
                    OPUS if self.silence => (Duration::from_millis(400), 19_200, 1),
                    OPUS => (Duration::from_millis(20), 960, self.flood),
                    _ => (Duration::from_millis(33), 2_970, 3),
                };
                if self.padding && stream.pt == VP8 {
                    // On the stream's own SSRC, with the time of the last picture, which there may not have been.
                    packets.push(stream.pad());
                    stream.next_at += every;
                    continue;
                }
                let level = if stream.pt == OPUS && (self.silence || self.hushed) { 127 } else { 0x80 | 20 };
                for n in 0..count {
                    let payload = stream.payload(n == 0);
                    let marker = n + 1 == count && stream.pt == VP8;
                    stream.sent.insert(stream.seq, (stream.rtp_time, marker, payload.clone()));
                    while stream.sent.len() > 1_000 {
                        stream.sent.pop_first();
                    }
                    packets.push(stream.packet(
                        stream.ssrc,
                        stream.pt,
                        stream.seq,
                        stream.rtp_time,
                        marker,
                        level,
                        &payload,
                    ));
                    stream.seq = stream.seq.wrapping_add(1);
                }
                stream.rtp_time = stream.rtp_time.wrapping_add(step);
                stream.next_at += every;
            }
        }
        packets.into_iter().for_each(|packet| self.send(packet));
    }

    fn rtcp(&mut self, datagram: &[u8]) {
        let mut resend = Vec::new();
        for packet in Compound::new(datagram).flatten() {
            match packet {
                Packet::Nack(nack) => {
                    for stream in self.streams.iter_mut().filter(|s| s.ssrc == nack.media) {
                        for seq in nack.lost() {
                            resend.extend(stream.retransmit(seq));
                        }
                    }
                }
                Packet::Remb(remb) => self.caps.push(remb.bits_per_second),
                Packet::Pli(pli) => {
                    for stream in self.streams.iter_mut().filter(|s| s.ssrc == pli.media) {
                        stream.key_frame_due = true;
                        self.key_frames_asked += 1;
                    }
                }
                _ => {}
            }
        }
        resend.into_iter().for_each(|packet| self.send(packet));
    }

    fn rtp(&mut self, now: Instant, datagram: &[u8]) {
        let packet = RtpView::parse(datagram).expect("the server sends whole packets");
        let ssrc = packet.header.ssrc;
        if let Some(stream) = self.incoming.get_mut(&ssrc) {
            if stream.rtx_ssrc.is_some() {
                self.first_video.get_or_insert(now);
            }
            let seq = extend(stream.highest, packet.header.seq);
            stream.duplicates += u64::from(!stream.from_stream.insert(seq));
            stream.take(now, seq, packet.payload);
            return;
        }
        let of = self.incoming.values_mut().find(|s| s.rtx_ssrc == Some(ssrc));
        if let (Some(stream), Some((osn, payload))) = (of, packet.payload.split_first_chunk::<2>()) {
            let seq = extend(stream.highest, u16::from_be_bytes(*osn));
            stream.repaired += 1;
            stream.take(now, seq, payload);
        }
    }

    fn ask_for_missing(&mut self, now: Instant) {
        let mut requests = Vec::new();
        for (ssrc, stream) in &mut self.incoming {
            stream.missing.retain(|_, (_, tries)| *tries < NACKS_MAX);
            let due: Vec<u64> = stream.missing.iter().filter(|(_, (at, _))| *at <= now).map(|(seq, _)| *seq).collect();
            for seq in &due {
                stream.missing.insert(*seq, (now + NACK_EVERY, stream.missing[seq].1 + 1));
            }
            if stream.rtx_ssrc.is_some() && !due.is_empty() {
                let lost: Vec<u16> = due.iter().map(|seq| *seq as u16).collect();
                let mut out = Vec::new();
                write_receiver_report(&mut out, 7, &[]);
                write_nack(&mut out, 7, *ssrc, &lost);
                requests.push(out);
            }
        }
        if self.nacks {
            requests.into_iter().for_each(|request| self.send(request));
        }
    }
}

impl Outgoing {
    /// A VP8 descriptor and frame header where one belongs (RFC 7741 §4.2, RFC 6386 §9.1), then the stamp.
    fn payload(&mut self, first: bool) -> Vec<u8> {
        let mut payload = match (self.pt, first) {
            (OPUS, _) => vec![0xfc],
            (_, true) if std::mem::take(&mut self.key_frame_due) => {
                vec![0x10, 0x10, 0x02, 0x00, 0x9d, 0x01, 0x2a, 0x80, 0x02, 0x68, 0x01]
            }
            (_, true) => vec![0x10, 0x11, 0x02, 0x00],
            (_, false) => vec![0x00, 0x55],
        };
        payload.resize(payload.len() + if self.pt == OPUS { 60 } else { 900 }, 0x5a);
        payload.extend(stamp(self.who, self.number));
        self.number += 1;
        payload
    }

    /// A packet with nothing but 200 octets of padding (RFC 3550 §5.1).
    fn pad(&mut self) -> Vec<u8> {
        let header = RtpHeader { marker: false, pt: self.pt, seq: self.seq, rtp_time: self.rtp_time, ssrc: self.ssrc };
        self.seq = self.seq.wrapping_add(1);
        let mut out = Vec::new();
        header.emit(&[(MID_EXT, self.mid.as_bytes())], &[], 200, &mut out).expect("a packet that can be written");
        out
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of a packet")]
    fn packet(&self, ssrc: u32, pt: u8, seq: u16, rtp_time: u32, marker: bool, level: u8, payload: &[u8]) -> Vec<u8> {
        let header = RtpHeader { marker, pt, seq, rtp_time, ssrc };
        let level = [level];
        let extensions: &[(u8, &[u8])] = &[(MID_EXT, self.mid.as_bytes()), (LEVEL_EXT, &level)];
        let mut out = Vec::new();
        header.emit(extensions, payload, 0, &mut out).expect("a packet that can be written");
        out
    }

    fn retransmit(&mut self, seq: u16) -> Option<Vec<u8>> {
        let rtx_ssrc = self.rtx_ssrc?;
        let (rtp_time, marker, payload) = self.sent.get(&seq)?.clone();
        let mut body = seq.to_be_bytes().to_vec();
        body.extend(payload);
        let packet = self.packet(rtx_ssrc, RTX, self.rtx_seq, rtp_time, marker, 0x80 | 20, &body);
        self.rtx_seq = self.rtx_seq.wrapping_add(1);
        Some(packet)
    }
}

impl Incoming {
    fn take(&mut self, now: Instant, seq: u64, payload: &[u8]) {
        self.missing.remove(&seq);
        if let Some(highest) = self.highest {
            for hole in highest + 1..seq {
                self.missing.insert(hole, (now + REORDER_WAIT, 0));
            }
        }
        // What was sent first may arrive behind others: what lies between is missing, too.
        for hole in seq + 1..self.lowest.unwrap_or(seq) {
            self.missing.insert(hole, (now + REORDER_WAIT, 0));
        }
        self.lowest = Some(self.lowest.map_or(seq, |l| l.min(seq)));
        self.highest = Some(self.highest.map_or(seq, |h| h.max(seq)));
        let (who, number) = read_stamp(payload).expect("a stamped payload");
        self.arrived.entry((who, number)).or_insert(now);
        let (new_seq, new_number) = (self.seqs.insert(seq), self.numbers.entry(who).or_default().insert(number));
        // A repair may cross with what it repairs; then both the number and the payload are known.
        self.duplicates += u64::from(new_seq != new_number);
    }

    /// Payloads between the first and the last that came which never did.
    pub fn lost(&self) -> u64 {
        let holes = |numbers: &BTreeSet<u32>| match (numbers.first(), numbers.last()) {
            (Some(first), Some(last)) => u64::from(last - first) + 1 - numbers.len() as u64,
            _ => 0,
        };
        self.numbers.values().map(holes).sum()
    }

    /// Which payloads those are, by who sent them.
    pub fn holes(&self) -> Vec<(u32, u32)> {
        let of = |(who, numbers): (&u32, &BTreeSet<u32>)| {
            let all = numbers.first().copied().unwrap_or(0)..=numbers.last().copied().unwrap_or(0);
            all.filter(|n| !numbers.contains(n)).map(|n| (*who, n)).collect::<Vec<_>>()
        };
        self.numbers.iter().flat_map(of).collect()
    }

    /// Sequence numbers that it waits for.
    pub fn waits_for(&self) -> usize {
        self.missing.len()
    }

    /// Sequence numbers between the first and the last that did not come.
    pub fn number_holes(&self) -> u64 {
        match (self.seqs.first(), self.seqs.last()) {
            (Some(first), Some(last)) => last - first + 1 - self.seqs.len() as u64,
            _ => 0,
        }
    }

    /// It is video: retransmissions were agreed on.
    pub fn has_rtx(&self) -> bool {
        self.rtx_ssrc.is_some()
    }

    /// Payloads that came.
    pub fn received(&self) -> u64 {
        self.numbers.values().map(|n| n.len() as u64).sum()
    }
}

impl Client for Plain {
    fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn datagram(&mut self, now: Instant, _from: SocketAddr, bytes: &[u8]) {
        match classify(bytes) {
            Class::Rtp if self.playing => self.rtp(now, bytes),
            Class::Rtcp => self.rtcp(bytes),
            Class::Rtp | Class::Stun | Class::Dtls | Class::Unknown => {}
        }
    }

    fn wake(&mut self, now: Instant) {
        if self.next_check <= now {
            let check = self.stun.clone();
            self.send(check);
            self.next_check = now + CHECK_EVERY;
        }
        self.send_media(now);
        if self.playing {
            self.ask_for_missing(now);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.server?;
        let media = self.streams.iter().filter(|_| self.sending).map(|s| s.next_at).min();
        let missing = self.incoming.values().flat_map(|s| s.missing.values()).map(|(at, _)| *at).min();
        [Some(self.next_check), media, missing].into_iter().flatten().min()
    }

    fn transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.out.pop_front()
    }
}

/// The sequence number nearest to the highest one so far.
pub fn extend(highest: Option<u64>, seq: u16) -> u64 {
    let Some(highest) = highest else { return (1 << 32) + u64::from(seq) };
    let step = i64::from(seq.wrapping_sub(highest as u16) as i16);
    highest.saturating_add_signed(step)
}

/// A STUN binding request with a USERNAME (RFC 8489 §5, §14.3) and nothing else.
pub fn binding_request(username: &str) -> Vec<u8> {
    let padded = username.len().div_ceil(4) * 4;
    let mut out = vec![0, 1];
    out.extend(((padded + 4) as u16).to_be_bytes());
    out.extend([0x21, 0x12, 0xa4, 0x42]);
    out.extend([7; 12]);
    out.extend([0, 6]);
    out.extend((username.len() as u16).to_be_bytes());
    out.extend(username.as_bytes());
    out.resize(24 + padded, 0);
    out
}

pub fn session_lines() -> String {
    "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0 1\r\na=ice-ufrag:peer\r\n\
     a=ice-pwd:peerpeerpeerpeerpeerpeer\r\na=fingerprint:sha-256 "
        .to_owned()
        + &["AB"; 32].join(":")
        + "\r\na=setup:actpass\r\n"
}

pub fn section(kind: &str, mid: &str, direction: &str, pts: &str, lines: &str) -> String {
    format!(
        "m={kind} 9 UDP/TLS/RTP/SAVPF {pts}\r\nc=IN IP4 0.0.0.0\r\na=mid:{mid}\r\na={direction}\r\na=rtcp-mux\r\n\
         a=extmap:{MID_EXT} urn:ietf:params:rtp-hdrext:sdes:mid\r\n\
         a=extmap:{LEVEL_EXT} urn:ietf:params:rtp-hdrext:ssrc-audio-level\r\n{lines}"
    )
}

pub const AUDIO_LINES: &str = "a=rtpmap:111 opus/48000/2\r\n";
pub const VIDEO_LINES: &str = "a=rtpmap:96 VP8/90000\r\na=rtcp-fb:96 nack\r\na=rtcp-fb:96 nack pli\r\n\
                           a=rtpmap:97 rtx/90000\r\na=fmtp:97 apt=96\r\n";
