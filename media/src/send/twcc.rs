//! Transport-wide numbers, what was sent with them, and what came of it
//! (draft-holmer-rmcat-transport-wide-cc-extensions-01).

use crate::wire::rtcp::{TICK_US, Twcc};
use std::time::{Duration, Instant};

/// Packets remembered: 5 s of 400 packets/s, at 8 bytes each.
const HISTORY: usize = 2048;

/// Results of one feedback that are kept for [`TwccHistory::results`]; all are counted.
const RESULTS_MAX: usize = 512;

/// Bits of [`Sent::len_and_state`].
const LEN: u16 = 0x3fff;
const REPORTED_LOST: u16 = 0x4000;
const ACKED: u16 = 0x8000;

/// One sent packet; lengths of 16 KiB and more are kept as 16 KiB − 1.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    /// Microseconds after the epoch, modulo 2^32 (71 min, against seconds until a report).
    at_us: u32,
    seq: u16,
    len_and_state: u16,
}

/// What became of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TwccResult {
    /// Transport-wide number.
    pub seq: u16,
    /// When we sent it.
    pub sent: Instant,
    /// When it arrived: microseconds on the peer's clock, from a zero of its own, the same in all results of a
    /// transport; `None`: lost, or not arrived when the peer reported.
    pub arrived_us: Option<i64>,
    /// Bytes sent in RTP: header, payload and tag.
    pub len: u16,
}

#[derive(Debug, Clone, Copy)]
struct Result {
    seq: u16,
    len: u16,
    at_us: u32,
    /// Ticks of 250 µs after the reference time of the feedback.
    ticks: Option<i32>,
}

/// Numbers the packets of one transport and matches what the peer reports of them.
///
/// 16 KiB, allocated with the first packet, so only where transport-wide feedback was agreed on.
#[derive(Debug, Default)]
pub(super) struct TwccHistory {
    next: u16,
    sent: Vec<Sent>,
    /// When the first packet was sent, and the last.
    span: Option<(Instant, Instant)>,
    reference: Option<i64>,
    results: Vec<Result>,
    counts: TwccCounts,
}

/// Packets of which a report came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TwccCounts {
    /// Arrived.
    pub acked: u64,
    /// Reported as missing, and not as arrived since.
    pub lost: u64,
}

impl TwccHistory {
    /// The number of the next packet.
    pub fn next(&self) -> u16 {
        self.next
    }

    /// When the last packet was sent.
    pub fn last_sent(&self) -> Option<Instant> {
        self.span.map(|(_, last)| last)
    }

    /// The next packet was sent.
    pub fn sent(&mut self, now: Instant, len: usize) {
        if self.sent.is_empty() {
            // All entries name a number that is not their own.
            self.sent = (0..HISTORY).map(|i| Sent { seq: i as u16 ^ 1, ..Sent::default() }).collect();
        }
        let (epoch, _) = self.span.unwrap_or((now, now));
        self.span = Some((epoch, now));
        let sent = Sent { at_us: us(epoch, now), seq: self.next, len_and_state: len.min(usize::from(LEN)) as u16 };
        if let Some(entry) = self.sent.get_mut(usize::from(self.next) % HISTORY) {
            *entry = sent;
        }
        self.next = self.next.wrapping_add(1);
    }

    /// Matches a feedback. Statuses beyond the history are not walked.
    pub fn receive(&mut self, twcc: &Twcc<'_>) {
        let reference = self.extend(twcc.reference);
        self.reference = Some(reference);
        self.results.clear();
        for status in twcc.statuses().take(HISTORY) {
            let Some(sent) = self.sent.get_mut(usize::from(status.seq) % HISTORY) else { return };
            if sent.seq != status.seq || sent.len_and_state & ACKED != 0 {
                continue;
            }
            let known_lost = sent.len_and_state & REPORTED_LOST != 0;
            match status.ticks {
                Some(_) => {
                    sent.len_and_state |= ACKED;
                    self.counts.acked += 1;
                    self.counts.lost -= u64::from(known_lost);
                }
                None if known_lost => continue,
                None => {
                    sent.len_and_state |= REPORTED_LOST;
                    self.counts.lost += 1;
                }
            }
            if self.results.len() < RESULTS_MAX {
                let ticks = status.ticks.map(|t| t as i32);
                let (at_us, len) = (sent.at_us, sent.len_and_state & LEN);
                self.results.push(Result { seq: status.seq, len, at_us, ticks });
            }
        }
    }

    pub fn counts(&self) -> TwccCounts {
        self.counts
    }

    /// The packets that the last feedback told something new about, in order of number; at most 512.
    pub fn results(&self) -> impl Iterator<Item = TwccResult> + '_ {
        let reference_us = self.reference.unwrap_or(0) * 64_000;
        // Results are of packets that were sent, so there is a span.
        self.span.into_iter().flat_map(move |(epoch, last)| {
            self.results.iter().map(move |r| {
                let before_last = Duration::from_micros(u64::from(us(epoch, last).wrapping_sub(r.at_us)));
                TwccResult {
                    seq: r.seq,
                    sent: last.checked_sub(before_last).unwrap_or(epoch),
                    arrived_us: r.ticks.map(|t| reference_us + i64::from(t) * TICK_US),
                    len: r.len,
                }
            })
        })
    }

    /// A reference time without its wrap at 2^24 units (12 days): the one nearest to the last.
    fn extend(&self, reference: i32) -> i64 {
        let Some(last) = self.reference else { return i64::from(reference) };
        let step = reference.wrapping_sub(last as i32) << 8 >> 8;
        last + i64::from(step)
    }
}

fn us(epoch: Instant, at: Instant) -> u32 {
    at.saturating_duration_since(epoch).as_micros() as u32
}

#[cfg(test)]
mod tests {
    use super::super::origin;
    use super::*;
    use crate::wire::rtcp::{Compound, Packet, TwccWriter};

    fn feed(history: &mut TwccHistory, bytes: &[u8]) {
        match Compound::new(bytes).next() {
            Some(Ok(Packet::Twcc(twcc))) => history.receive(&twcc),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_entry_is_8_bytes() {
        assert_eq!(std::mem::size_of::<Sent>(), 8);
    }

    #[test]
    fn every_packet_is_told_of_with_its_times_and_its_size() {
        let t0 = origin();
        let ms = Duration::from_millis;
        let mut history = TwccHistory::default();
        for i in 0..10 {
            assert_eq!(history.next(), i as u16);
            history.sent(t0 + ms(i * 5), 100 + i as usize);
        }
        let mut writer = TwccWriter::new(1, 2);
        let mut bytes = Vec::new();
        // The peer's clock reads 700 s more; packet 3 is missing.
        let arrivals: Vec<_> = (0..10).map(|i| (i != 3).then_some(700_000_000 + 5_000 * i)).collect();
        writer.write(&mut bytes, 0, &arrivals);
        feed(&mut history, &bytes);
        assert_eq!(history.counts(), TwccCounts { acked: 9, lost: 1 });
        let results: Vec<_> = history.results().collect();
        assert_eq!(results.len(), 10);
        for (i, result) in (0..).zip(&results) {
            let arrived_us = (i != 3).then_some(700_000_000 + 5_000 * i as i64);
            let expected = TwccResult { seq: i as u16, sent: t0 + ms(i * 5), arrived_us, len: 100 + i as u16 };
            assert_eq!(*result, expected);
        }
        // The same again tells nothing new; the missing one came late and is lost no more.
        feed(&mut history, &bytes);
        assert_eq!((history.counts(), history.results().count()), (TwccCounts { acked: 9, lost: 1 }, 0));
        bytes.clear();
        writer.write(&mut bytes, 3, &[Some(700_100_000)]);
        feed(&mut history, &bytes);
        assert_eq!(history.counts(), TwccCounts { acked: 10, lost: 0 });
        assert_eq!(history.results().map(|r| r.seq).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn numbers_and_the_reference_wrap_and_what_was_never_sent_is_ignored() {
        let t0 = origin();
        let mut history = TwccHistory::default();
        (0..65_530 + 10).for_each(|_| history.sent(t0, 1_200));
        let mut writer = TwccWriter::new(1, 2);
        let wrap_us = 64_000u64 << 24;
        let mut bytes = Vec::new();
        let arrivals: Vec<_> = (0..10).map(|i| Some(wrap_us - 2_000 + 250 * i)).collect();
        writer.write(&mut bytes, 65_528, &arrivals);
        feed(&mut history, &bytes);
        let first: Vec<_> = history.results().map(|r| r.arrived_us.unwrap()).collect();
        assert_eq!(first.len(), 10, "65,528 to 1");
        bytes.clear();
        writer.write(&mut bytes, 2, &[Some(wrap_us + 1_000), Some(wrap_us + 1_250), Some(wrap_us + 1_500)]);
        feed(&mut history, &bytes);
        let second: Vec<_> = history.results().map(|r| r.arrived_us.unwrap()).collect();
        assert_eq!(second.len(), 2, "number 4 was not sent yet");
        assert_eq!(second[0] - first[0], 3_000);
        assert_eq!(history.counts().acked, 12);
        // 30 bytes announce 65,535 packets: walked only as far as the history goes.
        let flood = [
            0x8f, 205, 0, 8, 0, 0, 0, 1, 0, 0, 0, 2, 0, 9, 0xff, 0xff, 0, 0, 0, 0, 0x1f, 0xff, 0x1f, 0xff, 0x1f, 0xff,
            0x1f, 0xff, 0x1f, 0xff, 0x1f, 0xff, 0x1f, 0xff, 0x1f, 0xff,
        ];
        let flood = [&flood[..3], &[9], &flood[4..], &[0x1f, 0xff, 0, 0]].concat();
        feed(&mut history, &flood);
        assert!(history.results().count() <= RESULTS_MAX);
    }
}
