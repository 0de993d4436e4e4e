//! A publisher of three simulcast layers and a viewer of them, to the byte: what is checked is what a decoder would trip over.

use crate::plain::{
    AUDIO_LINES, LEVEL_EXT, MID_EXT, OPUS, RTX, VIDEO_LINES, VP8, binding_request, extend, section, session_lines,
};
use rondo_actors::api::Joined;
use rondo_actors::sim::Client;
use rondo_media::codec::vp8;
use rondo_media::units::WallClock;
use rondo_media::wire::rtcp::{
    Compound, Packet, SenderInfo, write_cname, write_nack, write_receiver_report, write_remb, write_sender_report,
};
use rondo_media::wire::rtp::{Class, RtpHeader, RtpView, classify};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const RID_EXT: u8 = 3;
const REPAIRED_RID_EXT: u8 = 4;
pub const RIDS: [&str; 3] = ["q", "h", "f"];
/// Height in pixels, packets of a frame, and bytes of a packet by layer.
const HEIGHTS: [u16; 3] = [180, 360, 720];
const PACKETS: [u8; 3] = [1, 2, 5];
const BYTES: usize = 700;
const FRAME: Duration = Duration::from_millis(33);
const TICKS: u32 = 2_970;
/// Bytes of the stamp at the end of each payload: layer, frame, packet, whether it is of a key frame.
const STAMP: usize = 7;
/// A packet of sound, its RTP time, and its level when somebody speaks: −20 dBov, and the bit of a voice.
const SOUND: Duration = Duration::from_millis(20);
const SOUND_TICKS: u32 = 960;
const VOICE: u8 = 0x80 | 20;
const CHECK_EVERY: Duration = Duration::from_millis(500);
const NACK_EVERY: Duration = Duration::from_millis(100);
const NACKS_MAX: u32 = 20;

/// One layer as it is sent.
struct Encoder {
    ssrc: u32,
    seq: u16,
    rtx_seq: u16,
    /// RTP time of frame 0, and the next numbers: each layer has its own.
    base: u32,
    picture_id: u16,
    tl0: u8,
    coded: u32,
    key_frame_due: bool,
    active: bool,
    sent: BTreeMap<u16, (u32, bool, Vec<u8>)>,
    /// Key frames asked of it, and made.
    asked: u32,
    key_frames: u32,
}

/// One packet as a viewer got it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub at: Instant,
    pub rtp_time: u32,
    marker: bool,
    picture_id: u16,
    tl0: u8,
    pub tid: u8,
    pub layer: u8,
    pub frame: u32,
    packet: u8,
    pub key_frame: bool,
}

/// What a viewer got in one section.
#[derive(Default)]
pub struct Got {
    rtx_ssrc: Option<u32>,
    highest: Option<u64>,
    pub packets: BTreeMap<u64, Seen>,
    missing: BTreeMap<u64, (Instant, u32)>,
    /// Numbers that came otherwise than by retransmission.
    from_stream: BTreeSet<u64>,
    pub repaired: u64,
    /// Numbers sent in the place of packets that are left out.
    empty: BTreeMap<u64, u32>,
}

/// A publisher or a viewer.
pub struct Layered {
    addr: SocketAddr,
    server: Option<SocketAddr>,
    wall: WallClock,
    out: VecDeque<(SocketAddr, Vec<u8>)>,
    stun: Vec<u8>,
    next_check: Instant,
    who: u8,
    layers: Vec<Encoder>,
    next_frame: Instant,
    frame: u32,
    /// Packets of sound so far, where it has any, and when the next is due.
    sounds: Option<(u32, Instant)>,
    /// Temporal layers 0 2 1 2, all of which a decoder can begin with.
    pub temporal: bool,
    /// By SSRC.
    pub got: BTreeMap<u32, Got>,
}

impl Layered {
    pub fn new(n: u8, now: Instant) -> Self {
        Self {
            addr: SocketAddr::from(([203, 0, 113, n], 5_000)),
            server: None,
            wall: WallClock::new(now, Duration::from_secs(1_800_000_000)),
            out: VecDeque::new(),
            stun: Vec::new(),
            next_check: now,
            who: n,
            layers: Vec::new(),
            next_frame: now + Duration::from_millis(40),
            frame: 0,
            sounds: None,
            temporal: false,
            got: BTreeMap::new(),
        }
    }

    fn bundle(sections: usize) -> String {
        let mids: Vec<String> = (0..sections).map(|mid| mid.to_string()).collect();
        session_lines().replace("BUNDLE 0 1", &format!("BUNDLE {}", mids.join(" ")))
    }

    /// One video section of three layers.
    pub fn offer_to_publish() -> String {
        let mut lines = format!(
            "{VIDEO_LINES}a=extmap:{RID_EXT} urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id\r\n\
             a=extmap:{REPAIRED_RID_EXT} urn:ietf:params:rtp-hdrext:sdes:repaired-rtp-stream-id\r\n"
        );
        RIDS.iter().for_each(|rid| lines.push_str(&format!("a=rid:{rid} send\r\n")));
        lines.push_str("a=simulcast:send q;h;f\r\n");
        Self::bundle(1) + &section("video", "0", "sendonly", "96 97", &lines)
    }

    /// The same, and a section of sound.
    pub fn offer_to_speak() -> String {
        Self::offer_to_publish().replace("BUNDLE 0", "BUNDLE 0 1")
            + &section("audio", "1", "sendonly", "111", AUDIO_LINES)
    }

    /// Begins to speak.
    pub fn speak(&mut self, now: Instant) {
        self.sounds = Some((0, now));
    }

    /// The viewer says what it takes in all.
    pub fn takes(&mut self, bits_per_second: u64) {
        let ssrcs: Vec<u32> = self.got.keys().copied().collect();
        let mut out = Vec::new();
        write_receiver_report(&mut out, 7, &[]);
        write_remb(&mut out, 7, bits_per_second, &ssrcs);
        self.send(out);
    }

    pub fn offer_to_play(sections: usize) -> String {
        let all = (0..sections).map(|mid| section("video", &mid.to_string(), "recvonly", "96 97", VIDEO_LINES));
        Self::bundle(sections) + &all.collect::<String>()
    }

    fn begin(&mut self, server: SocketAddr, joined: &Joined) {
        self.server = Some(server);
        self.stun = binding_request(&format!("{}:peer", joined.etag));
    }

    pub fn publish(&mut self, server: SocketAddr, joined: &Joined) {
        assert!(joined.answer.contains("a=simulcast:recv q;h;f"), "{}", joined.answer);
        self.begin(server, joined);
        let encoder = |layer: u32| Encoder {
            ssrc: 0x2000_0000 + u32::from(self.who) * 16 + layer * 2,
            // Everything close to its wrap, so that every run crosses it.
            seq: 65_300 + layer as u16 * 50,
            rtx_seq: 1,
            base: 0xffff_0000 + layer * 7_777,
            picture_id: 0x7fe0 + layer as u16 * 5,
            tl0: 250 + layer as u8,
            coded: 0,
            key_frame_due: true,
            active: true,
            sent: BTreeMap::new(),
            asked: 0,
            key_frames: 0,
        };
        self.layers = (0..3).map(encoder).collect();
    }

    pub fn play(&mut self, server: SocketAddr, joined: &Joined) {
        self.begin(server, joined);
        for pair in joined.answer.lines().filter_map(|l| l.strip_prefix("a=ssrc-group:FID ")) {
            let ssrcs: Vec<u32> = pair.split(' ').filter_map(|s| s.parse().ok()).collect();
            self.got.insert(ssrcs[0], Got { rtx_ssrc: ssrcs.get(1).copied(), ..Got::default() });
        }
    }

    /// Sends a layer, or no longer; an encoder that begins again begins with a key frame.
    pub fn activate(&mut self, layer: usize, active: bool) {
        let encoder = &mut self.layers[layer];
        encoder.key_frame_due |= active && !encoder.active;
        encoder.active = active;
    }

    pub fn active(&self) -> Vec<bool> {
        self.layers.iter().map(|layer| layer.active).collect()
    }

    /// Key frames made so far, by layer.
    pub fn key_frames(&self) -> Vec<u32> {
        self.layers.iter().map(|layer| layer.key_frames).collect()
    }

    /// Key frames asked for so far, by layer.
    pub fn asked(&self) -> Vec<u32> {
        self.layers.iter().map(|layer| layer.asked).collect()
    }

    fn send(&mut self, bytes: Vec<u8>) {
        if let Some(server) = self.server {
            self.out.push_back((server, bytes));
        }
    }

    fn send_frame(&mut self, now: Instant) {
        let (frame, temporal, mut packets) = (self.frame, self.temporal, Vec::new());
        for (number, (layer, rid)) in self.layers.iter_mut().zip(RIDS).enumerate() {
            if !layer.active {
                continue;
            }
            let rtp_time = layer.base.wrapping_add(frame * TICKS);
            let payloads = layer.encode(number as u8, frame, temporal);
            for (n, payload) in payloads.iter().enumerate() {
                let marker = n + 1 == payloads.len();
                layer.sent.insert(layer.seq, (rtp_time, marker, payload.clone()));
                while layer.sent.len() > 1_000 {
                    layer.sent.pop_first();
                }
                let header = RtpHeader { marker, pt: VP8, seq: layer.seq, rtp_time, ssrc: layer.ssrc };
                packets.push(emit(header, (RID_EXT, rid), payload));
                layer.seq = layer.seq.wrapping_add(1);
            }
            if frame % 30 == 5 {
                let info = SenderInfo { ntp: self.wall.ntp(now), rtp_time, packets: frame, octets: frame };
                let mut report = Vec::new();
                write_sender_report(&mut report, layer.ssrc, &info, &[]);
                write_cname(&mut report, layer.ssrc, "ann");
                packets.push(report);
            }
        }
        packets.into_iter().for_each(|packet| self.send(packet));
        self.frame += 1;
    }

    fn send_sound(&mut self, now: Instant) {
        while let Some((count, due)) = self.sounds.filter(|(_, due)| *due <= now) {
            let ssrc = 0x3000_0000 + u32::from(self.who);
            let (seq, rtp_time) = (count as u16, count.wrapping_mul(SOUND_TICKS));
            let header = RtpHeader { marker: count == 0, pt: OPUS, seq, rtp_time, ssrc };
            let mut out = Vec::new();
            let extensions: [(u8, &[u8]); 2] = [(MID_EXT, b"1"), (LEVEL_EXT, &[VOICE])];
            header.emit(&extensions, &[1; 80], 0, &mut out).expect("a packet that can be written");
            self.send(out);
            self.sounds = Some((count + 1, due + SOUND));
        }
    }

    fn rtcp(&mut self, datagram: &[u8]) {
        let mut resend = Vec::new();
        for packet in Compound::new(datagram).flatten() {
            match packet {
                Packet::Nack(nack) => {
                    for (number, layer) in self.layers.iter_mut().enumerate().filter(|(_, l)| l.ssrc == nack.media) {
                        resend.extend(nack.lost().filter_map(|seq| layer.retransmit(number, seq)));
                    }
                }
                Packet::Pli(pli) => {
                    for layer in self.layers.iter_mut().filter(|layer| layer.ssrc == pli.media) {
                        layer.key_frame_due = true;
                        layer.asked += 1;
                    }
                }
                _ => {}
            }
        }
        resend.into_iter().for_each(|packet| self.send(packet));
    }

    fn rtp(&mut self, now: Instant, datagram: &[u8]) {
        let packet = RtpView::parse(datagram).expect("the server sends whole packets");
        let (ssrc, header) = (packet.header.ssrc, packet.header);
        if let Some(got) = self.got.get_mut(&ssrc) {
            let seq = extend(got.highest, header.seq);
            assert!(got.from_stream.insert(seq), "number {seq} came twice");
            got.take(now, seq, header.rtp_time, header.marker, packet.payload);
        } else if let Some(got) = self.got.values_mut().find(|got| got.rtx_ssrc == Some(ssrc))
            && let Some((osn, payload)) = packet.payload.split_first_chunk::<2>()
        {
            let seq = extend(got.highest, u16::from_be_bytes(*osn));
            got.repaired += 1;
            got.take(now, seq, header.rtp_time, header.marker, payload);
        }
    }

    fn ask_for_missing(&mut self, now: Instant) {
        let mut requests = Vec::new();
        for (ssrc, got) in &mut self.got {
            let due: Vec<u64> = got.missing.iter().filter(|(_, (at, _))| *at <= now).map(|(seq, _)| *seq).collect();
            for seq in &due {
                let tries = got.missing[seq].1 + 1;
                if tries > NACKS_MAX {
                    got.missing.remove(seq)
                } else {
                    got.missing.insert(*seq, (now + NACK_EVERY, tries))
                };
            }
            if !due.is_empty() {
                let lost: Vec<u16> = due.iter().map(|seq| *seq as u16).collect();
                let mut out = Vec::new();
                write_receiver_report(&mut out, 7, &[]);
                write_nack(&mut out, 7, *ssrc, &lost);
                requests.push(out);
            }
        }
        requests.into_iter().for_each(|request| self.send(request));
    }
}

impl Encoder {
    /// A frame's payloads: descriptor with PictureID, TL0PICIDX and TID, frame header where one belongs, stamp.
    fn encode(&mut self, number: u8, frame: u32, temporal: bool) -> Vec<Vec<u8>> {
        let key = std::mem::take(&mut self.key_frame_due);
        self.key_frames += u32::from(key);
        if key {
            // The pattern begins anew.
            self.coded = self.coded.next_multiple_of(4);
        }
        let tid = if temporal { [0, 2, 1, 2][self.coded as usize % 4] } else { 0 };
        // The first of each upper layer refers to the base alone.
        let sync = temporal && matches!(self.coded % 4, 1 | 2);
        self.coded += 1;
        self.tl0 = self.tl0.wrapping_add(u8::from(tid == 0));
        let picture_id = (self.picture_id | 0x8000).to_be_bytes();
        self.picture_id = (self.picture_id + 1) & 0x7fff;
        let height = HEIGHTS[usize::from(number)];
        let packet = |n: u8| {
            let first = n == 0;
            let mut payload = vec![0x80 | u8::from(first) << 4, 0xe0, picture_id[0], picture_id[1], self.tl0];
            payload.push(tid << 6 | u8::from(sync) << 5);
            match (first, key) {
                (true, true) => {
                    payload.extend([0x10, 0x02, 0x00, 0x9d, 0x01, 0x2a]);
                    payload.extend((height * 16 / 9).to_le_bytes());
                    payload.extend(height.to_le_bytes());
                }
                (true, false) => payload.extend([0x11, 0x02, 0x00]),
                (false, _) => payload.push(0x55),
            }
            payload.resize(BYTES, 0x5a);
            payload.push(number);
            payload.extend(frame.to_be_bytes());
            payload.extend([n, u8::from(key)]);
            payload
        };
        (0..PACKETS[usize::from(number)]).map(packet).collect()
    }

    fn retransmit(&mut self, number: usize, seq: u16) -> Option<Vec<u8>> {
        let (rtp_time, marker, payload) = self.sent.get(&seq)?.clone();
        let body = [&seq.to_be_bytes()[..], &payload].concat();
        let header = RtpHeader { marker, pt: RTX, seq: self.rtx_seq, rtp_time, ssrc: self.ssrc + 1 };
        self.rtx_seq = self.rtx_seq.wrapping_add(1);
        Some(emit(header, (REPAIRED_RID_EXT, RIDS[number]), &body))
    }
}

fn emit(header: RtpHeader, (id, rid): (u8, &str), payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    header.emit(&[(MID_EXT, b"0"), (id, rid.as_bytes())], payload, 0, &mut out).expect("a packet that can be written");
    out
}

impl Got {
    fn take(&mut self, now: Instant, seq: u64, rtp_time: u32, marker: bool, payload: &[u8]) {
        self.missing.remove(&seq);
        for hole in self.highest.map_or(seq, |highest| highest + 1)..seq {
            self.missing.insert(hole, (now + Duration::from_millis(60), 0));
        }
        self.highest = Some(self.highest.map_or(seq, |highest| highest.max(seq)));
        if payload.is_empty() {
            self.empty.insert(seq, rtp_time);
            return;
        }
        let descriptor = vp8::descriptor(payload).expect("a descriptor");
        let [layer, f0, f1, f2, f3, packet, key] = *payload.last_chunk::<STAMP>().expect("a stamp");
        let seen = Seen {
            at: now,
            rtp_time,
            marker,
            picture_id: descriptor.picture_id.expect("a picture id").value,
            tl0: descriptor.tl0.expect("a TL0PICIDX").value,
            tid: descriptor.temporal.expect("a TID"),
            layer,
            frame: u32::from_be_bytes([f0, f1, f2, f3]),
            packet,
            key_frame: key == 1,
        };
        let first = *self.packets.entry(seq).or_insert(seen);
        assert!(Seen { at: now, ..first } == seen, "two packets under number {seq}");
    }

    /// How often the layer changed, in the order of numbers.
    pub fn switches(&self) -> usize {
        let layers: Vec<u8> = self.packets.values().map(|seen| seen.layer).collect();
        layers.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }

    /// The layer of the newest packet.
    pub fn layer(&self) -> Option<u8> {
        self.packets.values().last().map(|seen| seen.layer)
    }

    /// Of its packets from `since` on, the first that came.
    pub fn first_since(&self, since: Instant) -> Option<Seen> {
        self.packets.values().filter(|seen| seen.at >= since).min_by_key(|seen| seen.at).copied()
    }

    /// Leaves the newest out: what is missing there could not be noticed.
    pub fn forget_tail(&mut self, time: Duration) {
        let newest = self.packets.values().map(|seen| seen.at).max();
        let end = self.packets.iter().find(|(_, seen)| newest.is_some_and(|newest| seen.at + time > newest));
        if let Some((seq, _)) = end.map(|(seq, seen)| (*seq, *seen)) {
            self.packets.split_off(&seq);
        }
    }

    /// Everything that a decoder would trip over. Only the last frames may be unfinished.
    pub fn check(&self, what: &str) {
        let (Some((first, _)), Some((last, _))) = (self.packets.first_key_value(), self.packets.last_key_value())
        else {
            panic!("{what}: nothing came");
        };
        let holes: Vec<u64> =
            (*first..*last).filter(|seq| !self.packets.contains_key(seq) && !self.empty.contains_key(seq)).collect();
        assert!(holes.is_empty(), "{what}: numbers {holes:?} of {first}..{last} are missing");
        let mut frames: Vec<Vec<Seen>> = Vec::new();
        for seen in self.packets.values() {
            match frames.last_mut() {
                Some(frame) if frame[0].rtp_time == seen.rtp_time => frame.push(*seen),
                _ => frames.push(vec![*seen]),
            }
        }
        assert!(frames[0][0].key_frame, "{what}: it begins with a key frame");
        for (n, frame) in frames.iter().enumerate() {
            let first = frame[0];
            let same = |s: &Seen| (s.layer, s.frame, s.picture_id, s.tl0, s.key_frame);
            assert!(frame.iter().all(|seen| same(seen) == same(&first)), "{what}: two frames at one time {frame:?}");
            assert!(frame.iter().enumerate().all(|(n, seen)| seen.packet == n as u8), "{what}: order in {frame:?}");
            let whole = frame.len() == usize::from(PACKETS[usize::from(first.layer)]) && frame[frame.len() - 1].marker;
            let switched = frames.get(n + 1).is_some_and(|next| next[0].layer != first.layer);
            assert!(whole || switched || n + 1 == frames.len(), "{what}: {frame:?} is not whole");
        }
        for pair in frames.windows(2) {
            let (a, b) = (pair[0][0], pair[1][0]);
            let step = b.rtp_time.wrapping_sub(a.rtp_time);
            assert!((1..1 << 31).contains(&step), "{what}: time goes back from {a:?} to {b:?}");
            assert_eq!(b.picture_id, (a.picture_id + 1) & 0x7fff, "{what}: PictureID from {a:?} to {b:?}");
            let tl0 = a.tl0.wrapping_add(u8::from(b.tid == 0));
            assert_eq!(b.tl0, tl0, "{what}: TL0PICIDX from {a:?} to {b:?}");
            assert!(a.layer == b.layer || b.key_frame, "{what}: layers change at {b:?} without a key frame");
        }
        // Whatever layers took turns: what is shown is where it was in the sender's time, but for pictures that make up for
        // a late beginning. Before its first report a layer's time is guessed from arrivals, to a jitter or two.
        let first = frames[0][0];
        let drift = |at: Seen| {
            let frames = at.frame.wrapping_sub(first.frame);
            at.rtp_time.wrapping_sub(first.rtp_time).wrapping_sub(frames.wrapping_mul(TICKS)).cast_signed()
        };
        let mut since_switch = 0;
        for pair in frames.windows(2) {
            since_switch = if pair[0][0].layer == pair[1][0].layer { since_switch + 1 } else { 0 };
            let (at, drift) = (pair[1][0], drift(pair[1][0]));
            assert!(drift > -2_700 && (drift < 2_700 || since_switch < 20), "{what}: {drift} ticks off at {at:?}");
        }
    }
}

impl Client for Layered {
    fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn datagram(&mut self, now: Instant, _from: SocketAddr, bytes: &[u8]) {
        match classify(bytes) {
            Class::Rtp => self.rtp(now, bytes),
            Class::Rtcp => self.rtcp(bytes),
            Class::Stun | Class::Dtls | Class::Unknown => {}
        }
    }

    fn wake(&mut self, now: Instant) {
        if self.next_check <= now {
            let check = self.stun.clone();
            self.send(check);
            self.next_check = now + CHECK_EVERY;
        }
        while !self.layers.is_empty() && self.next_frame <= now {
            self.send_frame(now);
            self.next_frame += FRAME;
        }
        self.send_sound(now);
        self.ask_for_missing(now);
    }

    fn deadline(&self) -> Option<Instant> {
        self.server?;
        let media = (!self.layers.is_empty()).then_some(self.next_frame);
        let missing = self.got.values().flat_map(|got| got.missing.values()).map(|(at, _)| *at).min();
        let sound = self.sounds.map(|(_, due)| due);
        [Some(self.next_check), media, sound, missing].into_iter().flatten().min()
    }

    fn transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.out.pop_front()
    }
}
