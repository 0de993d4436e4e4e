//! One viewer: packets of rooms in, feedback of the viewer in, datagrams out.

use super::time::origin;
use arbitrary::{Arbitrary, Unstructured};
use rondo_media::codec::{Codec, Format, Kind};
use rondo_media::ids::Random;
use rondo_media::packet::{Packet, Payload, StreamClock};
use rondo_media::send::{Egress, EgressConfig, LayersMax, PacketSink, Protection};
use rondo_media::transport::{ExtensionIds, Section, SectionFormat};
use rondo_media::units::WallClock;
use rondo_media::wire::rtcp::{Compound, write_nack};
use rondo_media::wire::rtp::{Class, RtpView, classify};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const OPUS: Format = Format { codec: Codec::Opus, profile: 0, packetization: 0 };
const VP8: Format = Format { codec: Codec::Vp8, profile: 0, packetization: 0 };
const H264: Format = Format { codec: Codec::H264, profile: 1, packetization: 1 };
/// SSRC of a section, and of its retransmissions: the next one.
const SSRC: [u32; 3] = [0x10, 0x20, 0x30];
const TWCC: u8 = 3;
/// Packets of one script: far below 2^16, so that a number that comes twice is a number used twice.
const PACKETS_MAX: usize = 8_000;

#[derive(Debug, Arbitrary)]
struct Script<'a> {
    seed: u8,
    steps: Vec<Step<'a>>,
}

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    Assign { section: u8, format: Option<u8> },
    Pause { section: u8, paused: bool },
    Follow { section: u8, layer: u8, temporal: u8, spatial: u8 },
    Forward { section: u8, layer: u8, packets: Vec<Given>, clock: i16, synced: bool },
    Nack { section: u8, back: Vec<u16> },
    Rtcp(&'a [u8]),
    Wait { ms: u16 },
    Goodbye,
}

/// A packet of a batch: its number and time relative to the stream's.
#[derive(Debug, Arbitrary)]
struct Given {
    seq: i8,
    ticks: i16,
    marker: bool,
    key_frame: bool,
    payload: u8,
}

struct Seeded(u64);

impl Random for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (self.0 >> 56) as u8;
        }
    }
}

fn sections() -> Vec<Section> {
    let extensions = ExtensionIds { mid: Some(4), abs_send_time: Some(2), twcc: Some(TWCC), audio_level: None };
    let section = |n: usize, kind, formats, repaired: bool| Section {
        mid: n.to_string(),
        kind,
        formats,
        extensions: ExtensionIds { audio_level: (kind == Kind::Audio).then_some(1), ..extensions },
        ssrc: Some(SSRC[n]),
        rtx_ssrc: repaired.then_some(SSRC[n] + 1),
        twcc: true,
        nack: repaired,
        layers: Vec::new(),
    };
    let format = |pt, rtx_pt, format| SectionFormat { pt, rtx_pt, format };
    vec![
        section(0, Kind::Audio, vec![format(111, None, OPUS)], false),
        section(1, Kind::Video, vec![format(96, Some(97), VP8), format(98, Some(99), H264)], true),
        section(2, Kind::Video, vec![format(96, None, VP8)], false),
    ]
}

#[derive(Default)]
struct Sent {
    buffer: Vec<u8>,
    starts: Vec<usize>,
}

impl PacketSink for Sent {
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }
    fn finish(&mut self, start: usize) {
        self.starts.push(start);
    }
}

/// What is known of a section from outside.
#[derive(Default)]
struct Shown {
    carried: Option<Format>,
    paused: bool,
    /// By sequence number: what was sent.
    sent: BTreeMap<u16, (u8, Vec<u8>)>,
    repairs: BTreeSet<u16>,
    last: u16,
    /// What its source gave under each number of a layer: the same number is the same packet.
    source: BTreeMap<(u8, u64), Packet>,
    seq: [u64; 3],
    rtp_time: [u32; 3],
}

/// A payload without the numbers of pictures, which are the section's own.
fn unnumbered(format: Option<Format>, payload: &[u8]) -> Vec<u8> {
    let mut out = payload.to_vec();
    let Some(descriptor) = format.and_then(|format| format.codec.descriptor(payload)) else { return out };
    if let Some(id) = descriptor.picture_id {
        out[id.at] &= 0x80;
        if id.long {
            out[id.at + 1] = 0;
        }
    }
    if let Some(tl0) = descriptor.tl0 {
        out[tl0.at] = 0;
    }
    out
}

/// What was known before something that sends.
struct Before {
    /// Packets that waited.
    held: usize,
    /// By section: whether it waits for a key frame, and the layer that flows.
    states: [(bool, Option<u8>); 3],
}

struct Run {
    now: Instant,
    egress: Egress,
    sent: Sent,
    shown: [Shown; 3],
    twcc: Option<u16>,
    /// Payloads that were given, by their last four bytes.
    given: Vec<(Payload, bool)>,
}

/// No number is used twice, nothing is sent again that was not sent, nothing leaves a paused or free section.
pub fn script(data: &[u8]) {
    let Ok(script) = Script::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let now = origin() + Duration::from_secs(100);
    let wall = WallClock::new(now, Duration::from_secs(1_700_000_000));
    let config = EgressConfig { cname: "viewer".into(), wall, rtx_kept: Duration::from_millis(200) };
    let egress = Egress::new(Protection::Plain, &sections(), config, &mut Seeded(u64::from(script.seed)));
    let shown = std::array::from_fn(|_| Shown { seq: [1 << 20; 3], ..Shown::default() });
    let mut run = Run { now, egress, sent: Sent::default(), shown, twcc: None, given: Vec::new() };
    for step in &script.steps {
        if run.given.len() > PACKETS_MAX {
            break;
        }
        run.step(step);
    }
    let stats = run.egress.stats();
    assert_eq!(stats.packets, run.shown.iter().map(|s| s.sent.len() as u64).sum::<u64>());
    assert_eq!(stats.rtx, run.shown.iter().map(|s| s.repairs.len() as u64).sum::<u64>());
    assert_eq!(stats.unsealed, 0);
}

impl Run {
    fn step(&mut self, step: &Step<'_>) {
        match step {
            Step::Assign { section, format } => {
                let section = usize::from(*section % 4);
                let format = format.map(|n| [OPUS, VP8, H264][usize::from(n % 3)]);
                let can = format.is_none_or(|format| self.egress.supports(section, format));
                let done = self.egress.assign(self.now, section, format);
                assert_eq!(done.is_ok(), can);
                if let (Some(shown), Ok(())) = (self.shown.get_mut(section), done) {
                    shown.carried = format;
                    shown.paused &= format.is_some();
                }
            }
            Step::Pause { section, paused } => {
                let section = usize::from(*section % 4);
                self.egress.pause(section, *paused);
                if let Some(shown) = self.shown.get_mut(section).filter(|shown| shown.carried.is_some()) {
                    shown.paused = *paused;
                }
            }
            Step::Follow { section, layer, temporal, spatial } => {
                let max = LayersMax { temporal: *temporal, spatial: *spatial };
                self.egress.follow(usize::from(*section % 4), *layer % 4, max);
            }
            Step::Forward { section, layer, packets, clock, synced } => {
                self.forward(usize::from(*section % 4), *layer % 3, packets, *clock, *synced);
            }
            Step::Nack { section, back } => {
                let section = usize::from(*section % 3);
                let lost: Vec<u16> = back.iter().map(|n| self.shown[section].last.wrapping_sub(*n % 200)).collect();
                let mut datagram = Vec::new();
                write_nack(&mut datagram, 7, SSRC[section], &lost);
                self.rtcp(&datagram);
            }
            Step::Rtcp(datagram) => self.rtcp(datagram),
            Step::Wait { ms } => {
                self.now += Duration::from_millis(u64::from(*ms));
                let before = self.before();
                let sent = self.egress.wake(self.now, &mut self.sent);
                assert!(self.egress.deadline().is_none_or(|d| d.at > self.now), "what was due is done");
                self.sent_since(before, None, sent);
            }
            Step::Goodbye => {
                self.egress.goodbye(self.now, &mut self.sent);
                self.drain([false; 3]);
            }
        }
    }

    fn forward(&mut self, section: usize, layer: u8, packets: &[Given], clock: i16, synced: bool) {
        let mut batch = Vec::new();
        if let Some(shown) = self.shown.get_mut(section) {
            for given in packets.iter().take(64) {
                let of = usize::from(layer);
                let seq = shown.seq[of].saturating_add_signed(i64::from(given.seq));
                if let Some(again) = shown.source.get(&(layer, seq)) {
                    batch.push(Packet { arrived: self.now, ..again.clone() });
                    continue;
                }
                let rtp_time = shown.rtp_time[of].wrapping_add_signed(i32::from(given.ticks));
                shown.seq[of] = shown.seq[of].max(seq + 1);
                shown.rtp_time[of] = shown.rtp_time[of].max(rtp_time);
                // The last four bytes tell one payload from another; one in eight packets is padding.
                let mut payload = vec![given.payload; usize::from(given.payload) * 6];
                payload.extend((self.given.len() as u32).to_be_bytes());
                let payload: Payload = if given.payload % 8 == 7 { [].into() } else { payload.into() };
                // Padding begins nothing.
                let key_frame = given.key_frame && !payload.is_empty();
                self.given.push((payload.clone(), key_frame));
                let packet = Packet {
                    ext_seq: seq,
                    rtp_time,
                    marker: given.marker,
                    key_frame,
                    level: None,
                    arrived: self.now,
                    payload,
                };
                shown.source.insert((layer, seq), packet.clone());
                batch.push(packet);
            }
        }
        let rtp_time = batch.first().map_or(0, |p| p.rtp_time).wrapping_add_signed(i32::from(clock));
        let clock = StreamClock { at: self.now, rtp_time, synced };
        let before = self.before();
        let done = self.egress.forward(self.now, section, layer, clock, &batch, &mut self.sent);
        assert!(done.packets as usize <= batch.len() + before.held);
        self.sent_since(before, Some(section), done.packets);
    }

    fn before(&self) -> Before {
        let held = self.egress.stats().waiting;
        assert!(held <= 512, "{held}");
        let state = |n| (self.egress.waiting_for_key_frame(n), self.egress.flowing(n));
        Before { held, states: std::array::from_fn(state) }
    }

    /// Media may have left: of one section, and of what was held.
    fn sent_since(&mut self, before: Before, section: Option<usize>, packets: u32) {
        let media = self.drain(std::array::from_fn(|n| section == Some(n) || before.held > 0));
        assert_eq!(media.iter().map(Vec::len).sum::<usize>(), packets as usize);
        for (n, (first, (waiting, flows))) in media.into_iter().zip(before.states).enumerate() {
            let changed = flows.is_some() && self.egress.flowing(n) != flows;
            if (waiting || changed) && !first.is_empty() {
                let key_frame = first.into_iter().min_by_key(|(seq, _)| *seq).is_some_and(|(_, key_frame)| key_frame);
                assert!(key_frame, "in the order of its numbers, video begins with a key frame");
            }
        }
    }

    fn rtcp(&mut self, datagram: &[u8]) {
        let (before, mut feedback) = (self.egress.stats(), Vec::new());
        let taken = self.egress.receive_rtcp(self.now, datagram, &mut self.sent, &mut feedback);
        let after = self.egress.stats();
        assert_eq!(after.rtcp_received + after.rtcp_bad, before.rtcp_received + before.rtcp_bad + 1);
        assert_eq!(after.rtcp_bad > before.rtcp_bad, taken.is_err());
        assert!(feedback.len() <= 8, "each thing once a datagram");
        assert!(after.loss.is_finite() && (0.0..=1.0).contains(&after.loss));
        assert!(self.egress.twcc_results().count() <= 512);
        self.drain([false; 3]);
    }

    /// Reads what was sent. `may`: the sections that may send media now. Answers their packets: how
    /// far each is from the first, and whether it begins a key frame.
    fn drain(&mut self, may: [bool; 3]) -> [Vec<(i16, bool)>; 3] {
        let (mut media, mut bases) = ([const { Vec::new() }; 3], [None; 3]);
        let ends = self.sent.starts.iter().skip(1).copied().chain([self.sent.buffer.len()]);
        let bounds: Vec<(usize, usize)> = self.sent.starts.iter().copied().zip(ends).collect();
        let buffer = std::mem::take(&mut self.sent).buffer;
        for (start, end) in bounds {
            let datagram = &buffer[start..end];
            assert!(datagram.len() <= 2_048, "{}", datagram.len());
            if classify(datagram) == Class::Rtcp {
                Compound::new(datagram).for_each(|packet| assert!(packet.is_ok(), "we write what can be read"));
                continue;
            }
            let view = RtpView::parse(datagram).expect("we write what can be read");
            let twcc = view.extension(TWCC).and_then(|v| v.first_chunk::<2>()).map(|v| u16::from_be_bytes(*v));
            let twcc = twcc.expect("agreed on everywhere");
            assert!(self.twcc.is_none_or(|last| twcc == last.wrapping_add(1)), "numbers of one transport");
            self.twcc = Some(twcc);
            let (n, shown) =
                (0..3).zip(&mut self.shown).find(|(n, _)| SSRC[*n] == view.header.ssrc & !1).expect("ours");
            assert!(shown.carried.is_some() && !shown.paused, "nothing leaves a free or paused section");
            if view.header.ssrc == SSRC[n] {
                assert!(may[n], "only what is forwarded, or was held");
                let index = view.payload.last_chunk::<4>().map(|n| u32::from_be_bytes(*n) as usize);
                let key_frame = match index {
                    Some(n) => {
                        let (payload, key_frame) = self.given.get(n).expect("a payload that was given");
                        assert_eq!(unnumbered(shown.carried, payload), unnumbered(shown.carried, view.payload));
                        *key_frame
                    }
                    // In the place of padding, or of a layer that is left out, that came after a packet behind it: a
                    // number that nobody could repair.
                    None => false,
                };
                let base = *bases[n].get_or_insert(view.header.seq);
                media[n].push((view.header.seq.wrapping_sub(base).cast_signed(), key_frame));
                let before = shown.sent.insert(view.header.seq, (view.header.pt, view.payload.to_vec()));
                assert!(before.is_none(), "number {} was used twice", view.header.seq);
                shown.last = view.header.seq;
            } else {
                let (osn, payload) = view.payload.split_first_chunk::<2>().expect("RFC 4588 section 4");
                let (pt, sent) = shown.sent.get(&u16::from_be_bytes(*osn)).expect("only what was sent is sent again");
                assert_eq!((&sent[..], pt + 1), (payload, view.header.pt));
                assert!(shown.repairs.insert(view.header.seq), "number {} was used twice", view.header.seq);
            }
        }
        media
    }
}
