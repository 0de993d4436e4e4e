//! One viewer's leg: a publisher's layers, the egress with its estimate, and what the viewer reports back.

use super::path::Path;
use crate::viewer::{AUDIO, OPUS, Pair, VIDEO, VIDEO_SSRC, VP8, VP8_RTX_PT, clock, is_rtcp};
use rondo_media::congestion::OVERHEAD;
use rondo_media::congestion::allocation::{Allocator, Demand, LAYERS_MAX, Rank};
use rondo_media::packet::{Packet, Payload};
use rondo_media::send::{Egress, LayersMax};
use rondo_media::transport::{Section, SrtpProfile};
use rondo_media::units::Bitrate;
use rondo_media::wire::rtcp::TwccWriter;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Header with extensions, tag, and headers below, of every packet here.
const HEADERS: usize = 28 + 16 + OVERHEAD as usize;
const PAYLOAD_MAX: usize = 1_150;
/// 40 kbit/s in packets of 20 ms.
const SOUND_BYTES: usize = 100 - HEADERS;
const SOUND: Bitrate = Bitrate::from_kbps(40);
pub const FRAME_MS: u64 = 33;
/// What a key frame is larger than others by.
const KEY_FRAME: u64 = 3;
/// From the request of a key frame until the publisher has made one.
const KEY_FRAME_MS: u64 = 100;
const FEEDBACK_MS: u64 = 50;

/// One layer as the publisher sends it.
struct Layer {
    bps: u64,
    owed_bits: u64,
    next_seq: u64,
    frames: u32,
    key_at_ms: Option<u64>,
}

impl Layer {
    fn frame(&mut self, now: Instant, ms: u64) -> Vec<Packet> {
        let key = self.frames == 0 || self.key_at_ms.is_some_and(|at| ms >= at);
        if key {
            self.key_at_ms = None;
        }
        self.owed_bits += self.bps * FRAME_MS / 1_000;
        // What a key frame takes more, the next frames take less.
        let bits = if key { self.owed_bits * KEY_FRAME } else { self.owed_bits / 2 + self.bps * FRAME_MS / 2_000 };
        let bits = bits.min(if key { u64::MAX } else { self.owed_bits });
        let bytes = (bits / 8) as usize;
        self.owed_bits = self.owed_bits.saturating_sub(bits);
        let count = bytes.div_ceil(PAYLOAD_MAX + HEADERS).max(1);
        let len = (bytes / count).saturating_sub(HEADERS).max(10);
        let [high, low] = (self.frames as u16 | 0x8000).to_be_bytes();
        let (first, rtp_time) = (self.next_seq, self.frames.wrapping_mul(2_970));
        self.frames += 1;
        self.next_seq += count as u64;
        let packet = |n: usize| {
            let start = if n == 0 { 0x90 } else { 0x80 };
            let mut payload = vec![start, 0xe0, high, low, self.frames as u8, 0, u8::from(!key)];
            payload.resize(len, 7);
            let (ext_seq, marker, key_frame) = (first + n as u64, n + 1 == count, key && n == 0);
            let payload = Payload::from(payload);
            Packet { ext_seq, rtp_time, marker, key_frame, level: None, arrived: now, payload }
        };
        (0..count).map(packet).collect()
    }
}

/// A tenth of a second of a leg.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tenth {
    /// The estimate at its end; 0 while there is none.
    pub target_kbps: u64,
    /// Sent in it, all headers included.
    pub bytes: u64,
    /// Of these, sound and video: neither padding nor RTCP.
    pub media_bytes: u64,
}

/// See the module. One millisecond a [`Self::step`].
pub struct Leg {
    pair: Pair,
    allocator: Allocator,
    short: bool,
    layers: Vec<Layer>,
    /// The source follows the estimate: one layer of any rate up to so many kbit/s.
    pub follows_up_to: Option<u64>,
    pub active: bool,
    /// Frames leave so long after those of a leg where it is 0.
    pub phase_ms: u64,
    /// Which of two ways it goes; its feedback goes the other one.
    pub way: usize,
    /// One way, in both directions, without the queue.
    pub delay_ms: u64,
    /// Arrivals of what was not reported yet, by transport-wide number.
    arrivals: VecDeque<Option<u64>>,
    next_reported: u16,
    feedback: VecDeque<(u64, Vec<u8>)>,
    writer: TwccWriter,
    sounds: u64,
    /// Milliseconds at which a packet of sound left, and whether it arrived.
    pub sound: Vec<(u64, bool)>,
    /// The same, of what arrived: microseconds that it took beyond the way itself.
    pub sound_waits_us: Vec<(u64, u64)>,
    /// Of the publisher's packets so many thousandths never come.
    pub publisher_loses_permille: u64,
    /// What flows, and since when in ms.
    pub flows: Vec<(u64, Option<u8>)>,
    pub tenths: Vec<Tenth>,
    tenth: Tenth,
}

impl Leg {
    pub fn new(sections: &[Section], kbps: &[u64], seed: u64) -> Self {
        let mut pair = Pair::new(SrtpProfile::AeadAes128Gcm, sections, seed);
        pair.egress.assign(pair.t0, AUDIO, Some(OPUS)).unwrap();
        pair.egress.assign(pair.t0, VIDEO, Some(VP8)).unwrap();
        let layer =
            |kbps: &u64| Layer { bps: kbps * 1_000, owed_bits: 0, next_seq: 70_000, frames: 0, key_at_ms: None };
        Self {
            pair,
            allocator: Allocator::new(),
            short: false,
            layers: kbps.iter().map(layer).collect(),
            follows_up_to: None,
            active: true,
            phase_ms: 0,
            way: 0,
            delay_ms: 50,
            arrivals: VecDeque::new(),
            next_reported: 0,
            feedback: VecDeque::new(),
            writer: TwccWriter::new(1, VIDEO_SSRC),
            sounds: 0,
            sound: Vec::new(),
            sound_waits_us: Vec::new(),
            publisher_loses_permille: 0,
            flows: Vec::new(),
            tenths: Vec::new(),
            tenth: Tenth::default(),
        }
    }

    /// `back`: the way of what the viewer reports.
    pub fn step(&mut self, ms: u64, path: &mut Path, back: &mut Path) {
        let now = self.pair.t0 + Duration::from_millis(ms);
        while let Some((_, report)) = self.feedback.pop_front_if(|(due, _)| *due <= ms) {
            self.pair.egress.receive_rtcp(now, &report, &mut self.pair.sent, &mut Vec::new()).unwrap();
        }
        if self.active {
            self.share(now);
            if ms.is_multiple_of(20) {
                self.sound(now, ms, path);
            }
            if (ms + FRAME_MS - self.phase_ms).is_multiple_of(FRAME_MS) {
                self.frames(now, ms);
            }
            if self.pair.egress.deadline().is_some_and(|deadline| deadline.at <= now) {
                self.pair.egress.wake(now, &mut self.pair.sent);
            }
        }
        self.leave(ms, path);
        if ms.is_multiple_of(FEEDBACK_MS) {
            self.report(ms, back);
        }
        let flowing = self.pair.egress.flowing(VIDEO);
        if self.flows.last().map(|(_, flows)| *flows) != Some(flowing) {
            self.flows.push((ms, flowing));
        }
        if ms.is_multiple_of(100) {
            let target_kbps = self.target().map_or(0, |target| target.bps() / 1_000);
            self.tenths.push(Tenth { target_kbps, ..std::mem::take(&mut self.tenth) });
        }
    }

    pub fn egress(&self) -> &Egress {
        &self.pair.egress
    }

    fn target(&self) -> Option<Bitrate> {
        self.pair.egress.target()
    }

    /// The rate is shared out as a session does it.
    fn share(&mut self, now: Instant) {
        let Some(target) = self.target() else { return };
        if let Some(most) = self.follows_up_to {
            let most = Bitrate::from_kbps(most);
            self.layers[0].bps = target.saturating_sub(SOUND).min(most).max(Bitrate::from_kbps(50)).bps();
            self.pair.egress.set_wanted(if target < most { most } else { Bitrate::ZERO });
            return;
        }
        if !self.allocator.is_due(now, Some(target)) || !(self.short || self.allocator.fell(Some(target))) {
            return;
        }
        let mut demand =
            Demand { most: self.layers.len() - 1, shown: true, rank: Rank::default(), ..Demand::default() };
        for (rate, layer) in demand.layers.iter_mut().zip(&self.layers).take(LAYERS_MAX) {
            *rate = Some(Bitrate::from_bps(layer.bps));
        }
        let proven = self.pair.egress.estimate().is_some_and(|estimate| estimate.proven);
        let base = SOUND.saturating_add(Bitrate::from_bps(self.layers[0].bps));
        let available = if proven { target } else { target.max(base) };
        let told = self.allocator.allocate(now, Some(available), SOUND, &[demand]);
        self.short = told.short;
        let layer = self.allocator.layer(0);
        self.pair.egress.pause(VIDEO, layer.is_none());
        if let Some(layer) = layer {
            self.pair.egress.follow(VIDEO, layer as u8, LayersMax::ALL);
        }
        self.pair.egress.set_wanted(if told.short { told.wanted } else { Bitrate::ZERO });
    }

    fn sound(&mut self, now: Instant, ms: u64, path: &mut Path) {
        // What else is to be sent leaves first, so that the next datagram is this one.
        self.leave(ms, path);
        let (ext_seq, rtp_time) = (self.sounds + 500, self.sounds as u32 * 960);
        self.sounds += 1;
        let payload = Payload::from(vec![3; SOUND_BYTES]);
        let packet = Packet { ext_seq, rtp_time, marker: false, key_frame: false, level: None, arrived: now, payload };
        self.pair.egress.forward(now, AUDIO, 0, clock(now, rtp_time), &[packet], &mut self.pair.sent);
        self.leave(ms, path);
        let arrives_us = self.arrivals.back().copied().flatten();
        self.sound.push((ms, arrives_us.is_some()));
        self.sound_waits_us.extend(arrives_us.map(|at| (ms, at - (ms + self.delay_ms) * 1_000)));
    }

    fn frames(&mut self, now: Instant, ms: u64) {
        for (n, layer) in self.layers.iter_mut().enumerate() {
            let mut packets = layer.frame(now, ms);
            let clock = clock(now, packets[0].rtp_time);
            let lost = self.publisher_loses_permille;
            packets.retain(|packet| packet.key_frame || packet.ext_seq.wrapping_mul(0x9e37_79b9) >> 7 & 1_023 >= lost);
            let done = self.pair.egress.forward(now, VIDEO, n as u8, clock, &packets, &mut self.pair.sent);
            if done.wants_key_frame {
                layer.key_at_ms.get_or_insert(ms + KEY_FRAME_MS);
            }
        }
    }

    /// Datagrams leave for the path. Those of RTCP take their share of it and are not looked at.
    fn leave(&mut self, ms: u64, path: &mut Path) {
        for datagram in self.pair.sent.take() {
            let bytes = datagram.len() as u64 + OVERHEAD;
            let arrives_us = path.send(ms * 1_000, bytes).map(|at| at + self.delay_ms * 1_000);
            self.tenth.bytes += bytes;
            if !is_rtcp(&datagram) {
                let padding = datagram[1] & 0x7f == VP8_RTX_PT;
                self.tenth.media_bytes += if padding { 0 } else { bytes };
                self.arrivals.push_back(arrives_us);
            }
        }
    }

    /// The viewer reports what has arrived, and what before that has not.
    fn report(&mut self, ms: u64, back: &mut Path) {
        let newest = self.arrivals.iter().rposition(|at| at.is_some_and(|at| at <= ms * 1_000));
        let told: Vec<_> = self.arrivals.drain(..newest.map_or(0, |n| n + 1)).collect();
        let mut rest = &told[..];
        while !rest.is_empty() {
            let (writer, base) = (&mut self.writer, self.next_reported);
            let mut covered = 0;
            let report = self.pair.seal(|out| covered = writer.write(out, base, rest));
            if let Some(leaves_us) = back.send(ms * 1_000, report.len() as u64 + OVERHEAD) {
                self.feedback.push_back((leaves_us.div_ceil(1_000) + self.delay_ms, report));
            }
            self.next_reported = base.wrapping_add(covered as u16);
            rest = &rest[covered..];
        }
    }

    pub fn layer_at(&self, ms: u64) -> Option<u8> {
        self.flows.iter().rev().find(|(at, _)| *at <= ms).and_then(|(_, layer)| *layer)
    }

    /// When this layer or a better one flows first after a moment, in ms after it.
    pub fn reaches(&self, layer: u8, after_ms: u64) -> Option<u64> {
        (after_ms..self.tenths.len() as u64 * 100).find(|ms| self.layer_at(*ms) >= Some(layer)).map(|ms| ms - after_ms)
    }

    /// When less than this layer flows first after a moment, in ms after it.
    pub fn leaves(&self, layer: u8, after_ms: u64) -> Option<u64> {
        (after_ms..self.tenths.len() as u64 * 100).find(|ms| self.layer_at(*ms) < Some(layer)).map(|ms| ms - after_ms)
    }

    /// Changes of what flows within a time.
    pub fn changes(&self, of_ms: Range<u64>) -> usize {
        self.flows.iter().filter(|(at, _)| of_ms.contains(at)).count()
    }

    /// What there is to see of it.
    pub fn state(&self) -> String {
        let flows = self.pair.egress.flowing(VIDEO).map_or("-".into(), |layer| layer.to_string());
        let chosen = self.allocator.layer(0).map_or("-".into(), |layer| layer.to_string());
        let Some(estimate) = self.pair.egress.estimate() else { return format!("{flows}>{chosen} {:22}", "") };
        let acked = estimate.acked.map_or(0, |acked| acked.bps() / 1_000);
        let (target, usage) = (estimate.target.bps() / 1_000, format!("{:?}", estimate.usage));
        format!(
            "{flows}>{chosen} {target:5} acked {acked:5} {usage:6} {:4}‰ {:3}",
            estimate.loss_permille,
            self.pair.egress.stats().probes
        )
    }

    /// The tenths of a time.
    pub fn tenths(&self, of_ms: Range<u64>) -> &[Tenth] {
        &self.tenths[of_ms.start as usize / 100..of_ms.end as usize / 100]
    }

    /// Mean of what was sent, in kbit/s.
    pub fn sent_kbps(&self, of_ms: Range<u64>) -> u64 {
        let tenths = self.tenths(of_ms);
        tenths.iter().map(|tenth| tenth.bytes * 8).sum::<u64>() / (tenths.len() as u64 * 100)
    }

    /// The same of sound and video alone.
    pub fn media_kbps(&self, of_ms: Range<u64>) -> u64 {
        let tenths = self.tenths(of_ms);
        tenths.iter().map(|tenth| tenth.media_bytes * 8).sum::<u64>() / (tenths.len() as u64 * 100)
    }

    /// Mean and lowest of the estimate, in kbit/s.
    pub fn estimated_kbps(&self, of_ms: Range<u64>) -> (u64, u64) {
        let targets = || self.tenths(of_ms.clone()).iter().map(|tenth| tenth.target_kbps);
        (targets().sum::<u64>() / targets().count() as u64, targets().min().unwrap_or(0))
    }

    /// Share of sound that did not arrive, in thousandths, of what left at such moments.
    pub fn sound_lost_permille(&self, at_ms: impl Fn(u64) -> bool) -> u64 {
        let (mut all, mut lost) = (0, 0);
        for (_, came) in self.sound.iter().filter(|(at, _)| at_ms(*at)) {
            all += 1;
            lost += u64::from(!came);
        }
        lost * 1_000 / all.max(1)
    }
}
