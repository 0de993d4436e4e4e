//! The same flow with str0m at both ends: its pacer, its probes and its port of libwebrtc's estimator, on the same source and path,
//! with layers chosen by the same rule.

use super::leg::{Share, Shared};
use super::path::Path;
use super::record::Record;
use super::source::{FRAME_MS, KEY_FRAME_MS, Layer, SOUND_BYTES};
use super::{Flow, LAYERS, Place};
use crate::viewer::{is_rtcp, origin};
use rondo_media::congestion::OVERHEAD;
use rondo_media::units::Bitrate;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use str0m::bwe::{Bitrate as TheirBitrate, BweKind};
use str0m::crypto::from_feature_flags;
use str0m::format::Codec;
use str0m::media::{MediaKind, Pt};
use str0m::net::{Protocol, Receive};
use str0m::rtp::{RtpWrite, Ssrc};
use str0m::{Candidate, Event, Input, Output, Rtc};

const SENDER: &str = "192.0.2.1:1000";
const VIEWER: &str = "192.0.2.2:2000";
const SOUND_SSRC: u32 = 41;
const VIDEO_SSRC: u32 = 42;
const RTX_SSRC: u32 = 44;
/// Where our estimate begins too.
const START: TheirBitrate = TheirBitrate::kbps(600);

/// All layers but the best are short of something.
const DESIRED: TheirBitrate = TheirBitrate::kbps((LAYERS[2] + 40) * 108 / 100);

/// See the module.
pub struct Other {
    sender: End,
    viewer: End,
    t0: Instant,
    place: Place,
    seen: Record,
    share: Share,
    layers: Vec<Layer>,
    follows_up_to: Option<Bitrate>,
    opus: Pt,
    vp8: Pt,
    flowing: Option<usize>,
    chosen: Option<usize>,
    sounds: u64,
    /// Packets of video sent, which are numbered anew.
    pictures: u64,
    /// Datagrams under way to the viewer and back, with the microseconds when they arrive.
    there: VecDeque<(u64, Vec<u8>)>,
    back: VecDeque<(u64, Vec<u8>)>,
}

fn is_media(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| (128..192).contains(first))
}

/// One end, which is asked for what it has to send after everything that is done to it.
struct End {
    rtc: Rtc,
    address: SocketAddr,
    sent: Vec<Vec<u8>>,
    estimate: Option<Bitrate>,
}

impl End {
    fn new(rtc: Rtc, address: &str) -> Self {
        Self { rtc, address: address.parse().unwrap(), sent: Vec::new(), estimate: None }
    }

    fn receive(&mut self, now: Instant, source: SocketAddr, datagram: &[u8]) {
        let contents = datagram.try_into().unwrap();
        let receive = Receive { proto: Protocol::Udp, source, destination: self.address, contents };
        self.rtc.handle_input(Input::Receive(now, receive)).unwrap();
        self.poll();
    }

    fn time(&mut self, now: Instant) {
        self.rtc.handle_input(Input::Timeout(now)).unwrap();
        while self.poll() <= now {
            self.rtc.handle_input(Input::Timeout(now)).unwrap();
        }
    }

    fn write(&mut self, ssrc: u32, packet: RtpWrite) {
        self.rtc.direct_api().stream_tx(&Ssrc::from(ssrc)).unwrap().write_rtp(packet);
        self.poll();
    }

    /// When it wants to know what time it is.
    fn poll(&mut self) -> Instant {
        loop {
            match self.rtc.poll_output().unwrap() {
                Output::Timeout(at) => return at,
                Output::Transmit(transmit) => self.sent.push(transmit.contents.to_vec()),
                Output::Event(Event::EgressBitrateEstimate(BweKind::Twcc { estimate, .. })) => {
                    self.estimate = Some(Bitrate::from_bps(estimate.as_u64()));
                }
                Output::Event(_) => {}
            }
        }
    }
}

/// What keeps the connection takes no share of the path.
fn pass(from: &mut End, to: &mut End, now: Instant) {
    let (kept, passed) = std::mem::take(&mut from.sent).into_iter().partition(|datagram| is_media(datagram));
    from.sent = kept;
    let passed: Vec<Vec<u8>> = passed;
    passed.iter().for_each(|datagram| to.receive(now, from.address, datagram));
}

fn payload_type(rtc: &Rtc, codec: Codec) -> Pt {
    rtc.codec_config().find(|params| params.spec().codec == codec).unwrap().pt()
}

impl Other {
    /// Both ends meet without a path between them.
    fn connect(&mut self) {
        let [here, there] = [&self.sender, &self.viewer].map(|end| Candidate::host(end.address, "udp").unwrap());
        let (sender, viewer) = (&mut self.sender.rtc, &mut self.viewer.rtc);
        sender.add_local_candidate(here.clone());
        sender.add_remote_candidate(there.clone());
        viewer.add_local_candidate(there);
        viewer.add_remote_candidate(here);
        let (mut sender, mut viewer) = (sender.direct_api(), viewer.direct_api());
        sender.set_remote_fingerprint(viewer.local_dtls_fingerprint().clone());
        viewer.set_remote_fingerprint(sender.local_dtls_fingerprint().clone());
        sender.set_remote_ice_credentials(viewer.local_ice_credentials());
        viewer.set_remote_ice_credentials(sender.local_ice_credentials());
        sender.set_ice_controlling(true);
        viewer.set_ice_controlling(false);
        sender.start_dtls(true).unwrap();
        viewer.start_dtls(false).unwrap();
        while !(self.sender.rtc.is_connected() && self.viewer.rtc.is_connected()) {
            self.t0 += Duration::from_millis(1);
            self.sender.time(self.t0);
            self.viewer.time(self.t0);
            pass(&mut self.sender, &mut self.viewer, self.t0);
            pass(&mut self.viewer, &mut self.sender, self.t0);
        }
    }

    fn share_out(&mut self, now: Instant) {
        let Some(target) = self.sender.estimate else { return };
        if let Some(most) = self.follows_up_to {
            self.layers[0].follow(target, most);
            self.chosen = Some(0);
            return;
        }
        let Some(Shared { layer, .. }) = self.share.run(now, target, true, &self.layers) else { return };
        self.chosen = layer;
        if layer.is_none() {
            self.flowing = None;
        }
    }

    fn sound(&mut self, now: Instant) {
        let (seq, time) = (self.sounds + 500, self.sounds as u32 * 960);
        self.sounds += 1;
        let payload: Arc<[u8]> = vec![3; SOUND_BYTES].into();
        self.sender.write(SOUND_SSRC, RtpWrite::new(self.opus, seq.into(), time, now, payload));
    }

    fn frames(&mut self, now: Instant, ms: u64) {
        for n in 0..self.layers.len() {
            let layer = &mut self.layers[n];
            if self.chosen == Some(n) && self.flowing != Some(n) {
                layer.key_at_ms.get_or_insert(ms + KEY_FRAME_MS);
            }
            let packets = layer.frame(now, ms);
            if self.chosen == Some(n) && packets[0].key_frame {
                self.flowing = Some(n);
            }
            if self.flowing != Some(n) {
                continue;
            }
            for packet in packets {
                let seq = self.pictures + 700;
                self.pictures += 1;
                let time = (ms * 90) as u32;
                let payload: Arc<[u8]> = packet.payload.to_vec().into();
                let write = RtpWrite::new(self.vp8, seq.into(), time, now, payload);
                self.sender.write(VIDEO_SSRC, write.marker(packet.marker).nackable(true));
            }
        }
    }

    /// Datagrams leave for the path.
    fn leave(&mut self, ms: u64, path: &mut Path, back: &mut Path) {
        let now = self.t0 + Duration::from_millis(ms);
        pass(&mut self.sender, &mut self.viewer, now);
        pass(&mut self.viewer, &mut self.sender, now);
        let delay_us = self.place.delay_ms * 1_000;
        for datagram in self.sender.sent.drain(..) {
            let bytes = datagram.len() as u64 + OVERHEAD;
            let arrives_us = path.send(ms * 1_000, bytes).map(|at| at + delay_us);
            let ssrc = datagram.get(8..12).map_or(0, |ssrc| u32::from_be_bytes(ssrc.try_into().unwrap()));
            let rtcp = is_rtcp(&datagram);
            self.seen.sent(bytes, !rtcp && ssrc != RTX_SSRC);
            if !rtcp && ssrc == SOUND_SSRC {
                self.seen.sound.push((ms, arrives_us.is_some()));
            }
            self.there.extend(arrives_us.map(|at| (at, datagram)));
        }
        for datagram in self.viewer.sent.drain(..) {
            if let Some(leaves_us) = back.send(ms * 1_000, datagram.len() as u64 + OVERHEAD) {
                self.back.push_back((leaves_us + delay_us, datagram));
            }
        }
    }
}

impl Flow for Other {
    fn new(_seed: u64) -> Self {
        let t0 = origin();
        let crypto = Arc::new(from_feature_flags());
        let config = || Rtc::builder().set_rtp_mode(true).set_crypto_provider(Arc::clone(&crypto));
        let (mut sender, mut viewer) = (config().enable_bwe(Some(START)).build(t0), config().build(t0));
        for rtc in [&mut sender, &mut viewer] {
            let mut api = rtc.direct_api();
            api.declare_media("aud".into(), MediaKind::Audio);
            api.declare_media("vid".into(), MediaKind::Video);
        }
        let (opus, vp8) = (payload_type(&sender, Codec::Opus), payload_type(&sender, Codec::Vp8));
        let [sound, video, rtx] = [SOUND_SSRC, VIDEO_SSRC, RTX_SSRC].map(Ssrc::from);
        let mut api = sender.direct_api();
        api.declare_stream_tx(sound, None, "aud".into(), None);
        api.declare_stream_tx(video, Some(rtx), "vid".into(), None);
        let mut api = viewer.direct_api();
        api.expect_stream_rx(sound, None, "aud".into(), None);
        api.expect_stream_rx(video, Some(rtx), "vid".into(), None);
        api.enable_twcc_feedback();
        let mut other = Self {
            sender: End::new(sender, SENDER),
            viewer: End::new(viewer, VIEWER),
            t0,
            place: Place::default(),
            seen: Record::default(),
            share: Share::default(),
            layers: LAYERS.iter().map(|kbps| Layer::new(*kbps)).collect(),
            follows_up_to: None,
            opus,
            vp8,
            flowing: None,
            chosen: None,
            sounds: 0,
            pictures: 0,
            there: VecDeque::new(),
            back: VecDeque::new(),
        };
        other.connect();
        // What it would like to send in the end, as its documentation has it.
        other.sender.rtc.bwe().set_bitrate(TheirBitrate::ZERO, DESIRED);
        other
    }

    fn place(&mut self) -> &mut Place {
        &mut self.place
    }

    fn seen(&self) -> &Record {
        &self.seen
    }

    fn follow(&mut self, up_to_kbps: u64) {
        self.layers.truncate(1);
        self.follows_up_to = Some(Bitrate::from_kbps(up_to_kbps));
        let desired = TheirBitrate::kbps(up_to_kbps + 40);
        self.sender.rtc.bwe().set_bitrate(TheirBitrate::ZERO, desired);
    }

    fn step(&mut self, ms: u64, path: &mut Path, back: &mut Path) {
        let now = self.t0 + Duration::from_millis(ms);
        let at = |us: u64| self.t0 + Duration::from_micros(us);
        let [sender, viewer] = [self.sender.address, self.viewer.address];
        while let Some((us, datagram)) = self.there.pop_front_if(|(us, _)| *us <= ms * 1_000) {
            self.viewer.receive(at(us), sender, &datagram);
        }
        while let Some((us, datagram)) = self.back.pop_front_if(|(us, _)| *us <= ms * 1_000) {
            self.sender.receive(at(us), viewer, &datagram);
        }
        self.sender.time(now);
        self.viewer.time(now);
        if self.place.active {
            self.share_out(now);
            if ms.is_multiple_of(20) {
                self.sound(now);
            }
            if (ms + FRAME_MS - self.place.phase_ms).is_multiple_of(FRAME_MS) {
                self.frames(now, ms);
            }
        }
        self.leave(ms, path, back);
        let target_kbps = self.sender.estimate.map_or(0, |target| target.bps() / 1_000);
        self.seen.step(ms, self.flowing.map(|layer| layer as u8), target_kbps);
    }
}
