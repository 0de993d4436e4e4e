//! A peer with real ICE, DTLS and SRTP in virtual time: str0m as the other end.

use rondo_actors::sim::Client;
use rondo_media::transport::{NoCrypto, Shared};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::format::Codec;
use str0m::media::{Direction, MediaKind, Mid};
use str0m::net::{Protocol, Receive};
use str0m::rtp::{ExtensionValues, RtpWrite};
use str0m::{Candidate, Event, Input, Output, Rtc, RtcConfig};

/// What a player got of one section.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Got {
    /// Numbers of the payloads that came, with how often.
    pub numbers: BTreeMap<u32, u32>,
    /// Lowest and highest sequence number, extended.
    pub seqs: Option<(u64, u64)>,
}

/// A str0m peer.
pub struct RtcPeer {
    addr: SocketAddr,
    rtc: Rtc,
    pending: Option<SdpPendingOffer>,
    out: VecDeque<(SocketAddr, Vec<u8>)>,
    deadline: Option<Instant>,
    connected: bool,
    sending: Vec<(Mid, bool, Instant, u64, u32)>,
    started: Option<Instant>,
    key_frame: bool,
    /// Sends media.
    pub live: bool,
    /// Sections in the order of the offer: str0m draws their mids.
    mids: Vec<Mid>,
    /// What came, by section.
    pub got: BTreeMap<usize, Got>,
}

impl RtcPeer {
    /// A peer at address `n` with `sections` audio and as many video sections, and its offer.
    pub fn offer(n: u8, now: Instant, sections: usize, publish: bool) -> (Self, String) {
        let addr = SocketAddr::from(([203, 0, 113, n], 6_000));
        let mut config = RtcConfig::new().set_rtp_mode(true).clear_codecs().enable_opus(true, false);
        config = config.enable_vp8(true);
        let mut rtc = config.build(now);
        rtc.add_local_candidate(Candidate::host(addr, "udp").expect("a candidate"));
        let direction = if publish { Direction::SendOnly } else { Direction::RecvOnly };
        let mut api = rtc.sdp_api();
        let mut mids = Vec::new();
        for _ in 0..sections {
            for kind in [MediaKind::Audio, MediaKind::Video] {
                let mid = api.add_media(kind, direction, None, None, None);
                mids.push((mid, kind == MediaKind::Video, now, 0, 0));
            }
        }
        let all = mids.iter().map(|(mid, ..)| *mid).collect();
        let (offer, pending) = api.apply().expect("an offer");
        let peer = Self {
            addr,
            rtc,
            pending: Some(pending),
            out: VecDeque::new(),
            deadline: Some(now),
            connected: false,
            sending: if publish { mids } else { Vec::new() },
            started: None,
            key_frame: true,
            live: true,
            mids: all,
            got: BTreeMap::new(),
        };
        (peer, offer.to_sdp_string())
    }

    /// The answer came.
    pub fn answer(&mut self, answer: &str) {
        let answer = SdpAnswer::from_sdp_string(answer).expect("an answer that str0m reads");
        let pending = self.pending.take().expect("one answer to one offer");
        self.rtc.sdp_api().accept_answer(pending, answer).expect("an answer to this offer");
    }

    /// ICE and DTLS are up.
    pub fn connected(&self) -> bool {
        self.connected
    }

    fn send_media(&mut self, now: Instant) {
        if !self.connected || !self.live {
            return;
        }
        let started = *self.started.get_or_insert(now);
        for (mid, video, next, seq, number) in &mut self.sending {
            *next = (*next).max(started);
            while *next <= now {
                let (every, packets) =
                    if *video { (Duration::from_millis(33), 3) } else { (Duration::from_millis(20), 1) };
                let since = next.duration_since(started);
                let hz = if *video { 90_000 } else { 48_000 };
                let rtp_time = (since.as_micros() as u64 * hz / 1_000_000) as u32;
                let pt = self.rtc.media(*mid).and_then(|m| {
                    let codec = if *video { Codec::Vp8 } else { Codec::Opus };
                    let params = self.rtc.codec_config().params().iter().find(|p| p.spec().codec == codec)?;
                    m.remote_pts().iter().copied().find(|pt| *pt == params.pt()).or(Some(params.pt()))
                });
                let Some(pt) = pt else { break };
                for n in 0..packets {
                    let mut payload = match (*video, n == 0) {
                        (false, _) => vec![0xfc],
                        (true, true) if std::mem::take(&mut self.key_frame) => {
                            vec![0x10, 0x10, 0x02, 0x00, 0x9d, 0x01, 0x2a, 0x80, 0x02, 0x68, 0x01]
                        }
                        (true, true) => vec![0x10, 0x11, 0x02, 0x00],
                        (true, false) => vec![0x00, 0x55],
                    };
                    payload.resize(payload.len() + if *video { 900 } else { 60 }, 0x5a);
                    payload.extend(number.to_be_bytes());
                    let mut api = self.rtc.direct_api();
                    let Some(tx) = api.stream_tx_by_mid(*mid, None) else { break };
                    let ext =
                        ExtensionValues { audio_level: Some(-20), voice_activity: Some(true), ..Default::default() };
                    tx.write_rtp(
                        RtpWrite::new(pt, (*seq).into(), rtp_time, *next, Arc::<[u8]>::from(payload))
                            .marker(*video && n + 1 == packets)
                            .ext_vals(ext)
                            .nackable(*video),
                    );
                    *seq += 1;
                    *number += 1;
                }
                *next += every;
            }
        }
    }

    fn drain(&mut self) {
        loop {
            match self.rtc.poll_output().expect("a transport that goes on") {
                Output::Timeout(at) => {
                    self.deadline = Some(at);
                    return;
                }
                Output::Transmit(t) => self.out.push_back((t.destination, t.contents.to_vec())),
                Output::Event(event) => self.event(event),
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Connected => self.connected = true,
            Event::KeyframeRequest(_) => self.key_frame = true,
            Event::RtpPacket(packet) => {
                let mid = packet.header.ext_vals.mid.or_else(|| {
                    let ssrc = packet.header.ssrc;
                    self.rtc.direct_api().stream_rx(&ssrc).map(|rx| rx.mid())
                });
                let section = mid.and_then(|mid| self.mids.iter().position(|m| *m == mid));
                let number = packet.payload.last_chunk::<4>().map(|n| u32::from_be_bytes(*n));
                if let (Some(section), Some(number)) = (section, number) {
                    let got = self.got.entry(section).or_default();
                    *got.numbers.entry(number).or_default() += 1;
                    let (low, high) = got.seqs.unwrap_or((*packet.seq_no, *packet.seq_no));
                    got.seqs = Some((low.min(*packet.seq_no), high.max(*packet.seq_no)));
                }
            }
            _ => {}
        }
    }
}

impl Client for RtcPeer {
    fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn datagram(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        let Ok(receive) = Receive::new(Protocol::Udp, from, self.addr, bytes) else { return };
        let _ = self.rtc.handle_input(Input::Receive(now, receive));
        self.drain();
    }

    fn wake(&mut self, now: Instant) {
        self.send_media(now);
        let _ = self.rtc.handle_input(Input::Timeout(now));
        self.drain();
    }

    fn deadline(&self) -> Option<Instant> {
        let media = self.sending.iter().filter(|_| self.connected && self.live).map(|s| s.2).min();
        [self.deadline, media].into_iter().flatten().min()
    }

    fn transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.out.pop_front()
    }
}

/// The node's side of encrypted transports.
pub fn shared() -> Result<Shared, NoCrypto> {
    Shared::new()
}
