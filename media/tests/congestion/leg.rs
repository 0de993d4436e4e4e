//! One viewer's leg: a publisher's layers, the egress with its estimate, and what the viewer reports back.

use super::path::Path;
use super::record::Record;
use super::source::{FRAME_MS, KEY_FRAME_MS, Layer, SOUND, SOUND_BYTES};
use super::{Flow, LAYERS, Place};
use crate::viewer::{AUDIO, OPUS, Pair, VIDEO, VIDEO_SSRC, VP8, VP8_RTX_PT, clock, is_rtcp, sections};
use rondo_media::congestion::OVERHEAD;
use rondo_media::congestion::allocation::{Allocator, Demand, LAYERS_MAX, Rank};
use rondo_media::packet::{Packet, Payload};
use rondo_media::send::{Egress, LayersMax};
use rondo_media::transport::{Section, SrtpProfile};
use rondo_media::units::Bitrate;
use rondo_media::wire::rtcp::TwccWriter;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const FEEDBACK_MS: u64 = 50;

/// Which layer of one video there is room for, chosen as a session does it.
#[derive(Default)]
pub struct Share {
    pub allocator: Allocator,
    short: bool,
}

pub struct Shared {
    pub layer: Option<usize>,
    /// What a better one would take; nothing where there is none.
    pub wanted: Bitrate,
}

impl Share {
    /// What is to be from now on; none: it stays.
    pub fn run(&mut self, now: Instant, target: Bitrate, proven: bool, layers: &[Layer]) -> Option<Shared> {
        if !self.allocator.is_due(now, Some(target)) || !(self.short || self.allocator.fell(Some(target))) {
            return None;
        }
        let mut demand = Demand { most: layers.len() - 1, shown: true, rank: Rank::default(), ..Demand::default() };
        for (rate, layer) in demand.layers.iter_mut().zip(layers).take(LAYERS_MAX) {
            *rate = Some(Bitrate::from_bps(layer.bps));
        }
        let base = SOUND.saturating_add(Bitrate::from_bps(layers[0].bps));
        let available = if proven { target } else { target.max(base) };
        let told = self.allocator.allocate(now, Some(available), SOUND, &[demand]);
        self.short = told.short;
        let wanted = if told.short { told.wanted } else { Bitrate::ZERO };
        Some(Shared { layer: self.allocator.layer(0), wanted })
    }
}

/// See the module.
pub struct Leg {
    pair: Pair,
    share: Share,
    layers: Vec<Layer>,
    follows_up_to: Option<u64>,
    pub place: Place,
    /// Arrivals of what was not reported yet, by transport-wide number.
    arrivals: VecDeque<Option<u64>>,
    next_reported: u16,
    feedback: VecDeque<(u64, Vec<u8>)>,
    writer: TwccWriter,
    sounds: u64,
    /// Milliseconds at which a packet of sound left that arrived, and microseconds that it took beyond the way itself.
    pub sound_waits_us: Vec<(u64, u64)>,
    /// Of the publisher's packets so many thousandths never come.
    pub publisher_loses_permille: u64,
    pub seen: Record,
}

impl Leg {
    pub fn new(sections: &[Section], kbps: &[u64], seed: u64) -> Self {
        let mut pair = Pair::new(SrtpProfile::AeadAes128Gcm, sections, seed);
        pair.egress.assign(pair.t0, AUDIO, Some(OPUS)).unwrap();
        pair.egress.assign(pair.t0, VIDEO, Some(VP8)).unwrap();
        Self {
            pair,
            share: Share::default(),
            layers: kbps.iter().map(|kbps| Layer::new(*kbps)).collect(),
            follows_up_to: None,
            place: Place::default(),
            arrivals: VecDeque::new(),
            next_reported: 0,
            feedback: VecDeque::new(),
            writer: TwccWriter::new(1, VIDEO_SSRC),
            sounds: 0,
            sound_waits_us: Vec::new(),
            publisher_loses_permille: 0,
            seen: Record::default(),
        }
    }

    pub fn egress(&self) -> &Egress {
        &self.pair.egress
    }

    fn target(&self) -> Option<Bitrate> {
        self.pair.egress.target()
    }

    /// The rate is shared out as a session does it.
    fn share_out(&mut self, now: Instant) {
        let Some(target) = self.target() else { return };
        if let Some(most) = self.follows_up_to {
            let most = Bitrate::from_kbps(most);
            self.layers[0].follow(target, most);
            self.pair.egress.set_wanted(if target < most { most } else { Bitrate::ZERO });
            return;
        }
        let proven = self.pair.egress.estimate().is_some_and(|estimate| estimate.proven);
        let Some(shared) = self.share.run(now, target, proven, &self.layers) else { return };
        self.pair.egress.pause(VIDEO, shared.layer.is_none());
        if let Some(layer) = shared.layer {
            self.pair.egress.follow(VIDEO, layer as u8, LayersMax::ALL);
        }
        self.pair.egress.set_wanted(shared.wanted);
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
        self.seen.sound.push((ms, arrives_us.is_some()));
        self.sound_waits_us.extend(arrives_us.map(|at| (ms, at - (ms + self.place.delay_ms) * 1_000)));
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
            let arrives_us = path.send(ms * 1_000, bytes).map(|at| at + self.place.delay_ms * 1_000);
            let rtcp = is_rtcp(&datagram);
            self.seen.sent(bytes, !rtcp && datagram[1] & 0x7f != VP8_RTX_PT);
            if !rtcp {
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
                self.feedback.push_back((leaves_us.div_ceil(1_000) + self.place.delay_ms, report));
            }
            self.next_reported = base.wrapping_add(covered as u16);
            rest = &rest[covered..];
        }
    }

    /// What there is to see of it.
    pub fn state(&self) -> String {
        let flows = self.pair.egress.flowing(VIDEO).map_or("-".into(), |layer| layer.to_string());
        let chosen = self.share.allocator.layer(0).map_or("-".into(), |layer| layer.to_string());
        let Some(estimate) = self.pair.egress.estimate() else { return format!("{flows}>{chosen} {:22}", "") };
        let acked = estimate.acked.map_or(0, |acked| acked.bps() / 1_000);
        let (target, usage) = (estimate.target.bps() / 1_000, format!("{:?}", estimate.usage));
        format!(
            "{flows}>{chosen} {target:5} acked {acked:5} {usage:6} {:4}‰ {:3}",
            estimate.loss_permille,
            self.pair.egress.stats().probes
        )
    }
}

impl Flow for Leg {
    fn new(seed: u64) -> Self {
        Self::new(&sections(), &LAYERS, seed)
    }

    fn place(&mut self) -> &mut Place {
        &mut self.place
    }

    fn seen(&self) -> &Record {
        &self.seen
    }

    fn follow(&mut self, up_to_kbps: u64) {
        self.layers.truncate(1);
        self.follows_up_to = Some(up_to_kbps);
    }

    /// `back`: the way of what the viewer reports.
    fn step(&mut self, ms: u64, path: &mut Path, back: &mut Path) {
        let now = self.pair.t0 + Duration::from_millis(ms);
        while let Some((_, report)) = self.feedback.pop_front_if(|(due, _)| *due <= ms) {
            self.pair.egress.receive_rtcp(now, &report, &mut self.pair.sent, &mut Vec::new()).unwrap();
        }
        if self.place.active {
            self.share_out(now);
            if ms.is_multiple_of(20) {
                self.sound(now, ms, path);
            }
            if (ms + FRAME_MS - self.place.phase_ms).is_multiple_of(FRAME_MS) {
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
        let target_kbps = self.target().map_or(0, |target| target.bps() / 1_000);
        self.seen.step(ms, self.pair.egress.flowing(VIDEO), target_kbps);
    }
}
