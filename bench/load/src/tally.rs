//! What is counted, and which packets count.

use crate::histogram::{Histogram, Percentiles};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The measured time, shared by all threads. A packet belongs to it by its send stamp.
#[derive(Debug)]
pub struct Window {
    begin_ns: AtomicU64,
    end_ns: AtomicU64,
    /// Packets sent inside, by stream id.
    sent: Vec<AtomicU64>,
}

impl Window {
    /// Not begun yet.
    pub fn new(streams: usize) -> Self {
        let sent = std::iter::repeat_with(AtomicU64::default).take(streams).collect();
        Self { begin_ns: u64::MAX.into(), end_ns: u64::MAX.into(), sent }
    }

    /// It begins at `at`, since 1970.
    pub fn begin(&self, at: Duration) {
        self.begin_ns.store(nanos(at), Relaxed);
    }

    /// It ends at `at`, since 1970.
    pub fn end(&self, at: Duration) {
        self.end_ns.store(nanos(at), Relaxed);
    }

    /// Whether `at`, since 1970, lies inside.
    pub fn holds(&self, at: Duration) -> bool {
        (self.begin_ns.load(Relaxed)..self.end_ns.load(Relaxed)).contains(&nanos(at))
    }

    /// A packet of `stream` was sent at `at`.
    pub fn sent(&self, stream: u32, at: Duration) {
        if self.holds(at)
            && let Some(count) = self.sent.get(stream as usize)
        {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Packets of `stream` sent inside.
    pub fn sent_of(&self, stream: u32) -> u64 {
        self.sent.get(stream as usize).map_or(0, |count| count.load(Relaxed))
    }
}

fn nanos(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}

/// Counts of one thread, of a second or of the whole run.
#[derive(Clone, Default)]
pub struct Tally {
    /// Packets sent.
    pub sent: u64,
    /// Bytes of their payloads.
    pub sent_bytes: u64,
    /// Packets received, duplicates left out.
    pub received: u64,
    /// Those sent inside the window.
    pub received_inside: u64,
    /// Bytes of the payloads of `received_inside`.
    pub bytes_inside: u64,
    /// Packets that had been received before.
    pub duplicates: u64,
    /// Packets that came after a newer one of their stream.
    pub reordered: u64,
    /// Packets without a stamp of ours.
    pub foreign: u64,
    /// Datagrams that the system did not take.
    pub send_errors: u64,
    /// Key frames asked for.
    pub key_frames_asked: u64,
    /// How late publishers were.
    pub late: Histogram,
    /// Latency of all packets.
    pub latency: Histogram,
    /// Latency of audio sent inside the window.
    pub audio_inside: Histogram,
    /// Latency of video sent inside the window.
    pub video_inside: Histogram,
    /// CPU time of the thread.
    pub busy: Duration,
}

impl Tally {
    /// A packet came for the first time.
    pub fn received(&mut self, bytes: usize, inside: bool) {
        self.received += 1;
        if inside {
            self.received_inside += 1;
            self.bytes_inside += bytes as u64;
        }
    }

    /// It had been on its way this long.
    pub fn latency(&mut self, video: bool, latency: Duration, inside: bool) {
        self.latency.record(latency);
        if inside {
            (if video { &mut self.video_inside } else { &mut self.audio_inside }).record(latency);
        }
    }

    /// Adds another one's.
    pub fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.received += other.received;
        self.received_inside += other.received_inside;
        self.bytes_inside += other.bytes_inside;
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.foreign += other.foreign;
        self.send_errors += other.send_errors;
        self.key_frames_asked += other.key_frames_asked;
        self.late.merge(&other.late);
        self.latency.merge(&other.latency);
        self.audio_inside.merge(&other.audio_inside);
        self.video_inside.merge(&other.video_inside);
        self.busy += other.busy;
    }
}

/// How long joins took.
#[derive(Clone, Default)]
pub struct JoinTimes {
    /// POST to answer.
    pub answer: Histogram,
    /// Answer to ICE connected.
    pub ice: Histogram,
    /// ICE to DTLS finished.
    pub dtls: Histogram,
    /// POST to DTLS finished.
    pub connected: Histogram,
    /// POST to a viewer's first packet.
    pub first_packet: Histogram,
}

/// What a report shows of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct JoinPercentiles {
    /// POST to answer.
    pub answer: Percentiles,
    /// Answer to ICE connected.
    pub ice: Percentiles,
    /// ICE to DTLS finished.
    pub dtls: Percentiles,
    /// POST to DTLS finished.
    pub connected: Percentiles,
    /// POST to a viewer's first packet.
    pub first_packet: Percentiles,
}

impl JoinTimes {
    /// Adds another one's.
    pub fn merge(&mut self, other: &Self) {
        self.answer.merge(&other.answer);
        self.ice.merge(&other.ice);
        self.dtls.merge(&other.dtls);
        self.connected.merge(&other.connected);
        self.first_packet.merge(&other.first_packet);
    }

    /// What a report shows.
    pub fn percentiles(&self) -> JoinPercentiles {
        JoinPercentiles {
            answer: self.answer.percentiles(),
            ice: self.ice.percentiles(),
            dtls: self.dtls.percentiles(),
            connected: self.connected.percentiles(),
            first_packet: self.first_packet.percentiles(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_counts_what_was_sent_from_its_begin_to_before_its_end() {
        let window = Window::new(2);
        let at = Duration::from_millis;
        window.sent(1, at(5));
        window.begin(at(10));
        [5, 10, 15].into_iter().for_each(|ms| window.sent(1, at(ms)));
        window.end(at(20));
        [19, 20, 25].into_iter().for_each(|ms| window.sent(1, at(ms)));
        // A stream that nobody planned is no reason to fail.
        window.sent(7, at(15));
        assert_eq!([window.sent_of(0), window.sent_of(1), window.sent_of(7)], [0, 3, 0]);
        assert!(window.holds(at(10)) && !window.holds(at(20)));
    }
}
