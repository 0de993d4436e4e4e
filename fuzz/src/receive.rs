//! One incoming stream, whatever order, times and payloads its packets have.

use super::time::origin;
use arbitrary::{Arbitrary, Unstructured};
use rondo_media::codec::{Codec, Format};
use rondo_media::packet::{AudioLevel, Packet};
use rondo_media::receive::{Received, StreamReceiver, TransportClock};
use rondo_media::transport::ReceivedRtp;
use std::collections::BTreeSet;
use std::time::Duration;

#[derive(Debug, Arbitrary)]
struct Script<'a> {
    codec: u8,
    first: u32,
    steps: Vec<Step<'a>>,
}

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    /// The next packets in order, one frame.
    Frame { packets: u8, ticks: u16, head: &'a [u8] },
    /// A packet somewhere else.
    Packet { seq: i16, ticks: i32, marker: bool, payload: &'a [u8] },
    /// Far away: a sender that begins anew.
    Jump { seq: i64, ticks: u32 },
    /// A sender report comes with the packets that follow.
    Report { ntp: u64, rtp_time: u32 },
    /// Time passes.
    Wait { us: u32 },
    /// Fan-out takes what there is.
    Take,
}

/// The longest time between two steps: a minute.
const WAIT_US_MAX: u32 = 60_000_000;
/// Packets of one script.
const PACKETS_MAX: usize = 20_000;

/// Each packet comes out once, in order of arrival, or is counted as overrun.
pub fn packets(data: &[u8]) {
    let Ok(script) = Script::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let codec = Codec::ALL[usize::from(script.codec) % Codec::ALL.len()];
    let mut run = Run {
        codec,
        now: origin(),
        stream: StreamReceiver::new(codec),
        clock: TransportClock::new(),
        seq: (1 << 20) + u64::from(script.first),
        rtp_time: script.first,
        report: None,
        kept: Vec::new(),
        handed: 0,
        out: Vec::new(),
    };
    for step in &script.steps {
        if run.kept.len() > PACKETS_MAX {
            break;
        }
        run.step(step);
    }
    run.now += Duration::from_secs(1);
    run.take();
    let (stats, handed) = (run.stream.stats(), run.handed as u64);
    assert_eq!(handed + stats.overrun, run.kept.len() as u64, "every packet comes out or is counted");
    assert_eq!(stats.packets, run.kept.len() as u64);
    assert_eq!(run.stream.deadline(), None, "nothing is held after its time");
}

struct Run {
    codec: Codec,
    now: std::time::Instant,
    stream: StreamReceiver,
    clock: TransportClock,
    seq: u64,
    rtp_time: u32,
    report: Option<(u64, u32)>,
    /// Numbers of what was kept, in order of arrival.
    kept: Vec<u64>,
    handed: usize,
    out: Vec<Packet>,
}

impl Run {
    fn step(&mut self, step: &Step<'_>) {
        match step {
            Step::Frame { packets, ticks, head } => {
                self.rtp_time = self.rtp_time.wrapping_add(u32::from(*ticks));
                for n in 0..*packets {
                    self.seq += 1;
                    let payload = if n == 0 { head } else { &[0x55; 8][..] };
                    self.receive(self.seq, self.rtp_time, n + 1 == *packets, payload);
                }
            }
            Step::Packet { seq, ticks, marker, payload } => {
                let seq = self.seq.saturating_add_signed(i64::from(*seq));
                let time = self.rtp_time.wrapping_add_signed(*ticks);
                self.receive(seq, time, *marker, payload);
            }
            Step::Jump { seq, ticks } => {
                // An extended number grows by half a cycle at most from one packet to the next.
                self.seq = self.seq.saturating_add_signed(*seq % (1 << 15));
                self.rtp_time = self.rtp_time.wrapping_add(*ticks);
            }
            Step::Report { ntp, rtp_time } => self.report = Some((*ntp, *rtp_time)),
            Step::Wait { us } => self.now += Duration::from_micros(u64::from(*us % WAIT_US_MAX)),
            Step::Take => self.take(),
        }
    }

    fn receive(&mut self, ext_seq: u64, rtp_time: u32, marker: bool, payload: &[u8]) {
        let level = payload.first().map(|byte| AudioLevel { dbov: byte & 0x7f, voice: byte & 0x80 != 0 });
        let rtp = ReceivedRtp {
            ssrc: 1,
            section: 0,
            layer: 0,
            format: Format { codec: self.codec, profile: 0, packetization: 0 },
            ext_seq,
            rtp_time,
            marker,
            level,
            payload: payload.into(),
            sender_report: self.report,
        };
        match self.stream.receive(self.now, &rtp, &mut self.clock) {
            Received::New { .. } => assert!(!payload.is_empty()),
            Received::PaddingOnly => assert!(payload.is_empty()),
            Received::Duplicate | Received::TooLate => return,
        }
        self.kept.push(ext_seq);
        assert!(self.stream.highest() >= Some(ext_seq));
        if let Some(clock) = self.stream.clock(&self.clock) {
            let _ = clock.rtp_time_at(self.now, self.codec.clock_hz());
        }
    }

    fn take(&mut self) {
        self.out.clear();
        self.stream.take_batch(self.now, &mut self.out);
        // What fan-out never had was the oldest: it lies between what it had before and what it has now.
        let begin = self.handed + self.stream.stats().overrun as usize;
        let want = &self.kept[begin..begin + self.out.len()];
        assert!(self.out.iter().map(|p| p.ext_seq).eq(want.iter().copied()), "in order of arrival, each once");
        let unique: BTreeSet<u64> = want.iter().copied().collect();
        assert_eq!(unique.len(), want.len(), "no number twice");
        self.handed += self.out.len();
        assert!(self.out.len() <= self.stream.ring().capacity());
    }
}
