//! What a worker is about to send: finished datagrams back to back, and the runs they make.
//!
//! A run is what one GSO send carries: datagrams to one destination, back to back, all of one size but the
//! last, which may be shorter and then closes the run. Datagrams to one destination leave in the order in
//! which they came. The outbox is emptied by the worker once a round, and in between when it
//! [`wants_flush`](Outbox::wants_flush): in a small buffer the bytes are still in the cache when they are sent.

use super::demux::canonical;
use rondo_media::send::PacketSink;
use std::net::SocketAddr;

/// Consecutive datagrams that one send can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Where to, IPv4-mapped addresses as IPv4.
    pub dest: SocketAddr,
    /// Size of every datagram but the last, in bytes.
    pub segment_bytes: usize,
    /// Where the first begins in the outbox.
    pub start: usize,
    /// Where the last ends.
    pub end: usize,
    /// Datagrams.
    pub count: usize,
}

/// Datagrams in a run; what kernels since 4.18 take in one send.
pub const RUN_DATAGRAMS_MAX: usize = 64;
/// Bytes in a run: a send carries less than 64 KiB, headers included.
pub const RUN_BYTES_MAX: usize = 65_000;
/// Bytes from which on the outbox wants to be emptied.
pub const FLUSH_BYTES: usize = 256 * 1024;
/// Runs from which on the outbox wants to be emptied.
pub const FLUSH_RUNS: usize = 256;
/// Bytes from which on datagrams are refused: somebody writes on without ever emptying.
pub const BYTES_MAX: usize = 4 * FLUSH_BYTES;

/// Finished datagrams and their runs.
#[derive(Debug)]
pub struct Outbox {
    bytes: Vec<u8>,
    runs: Vec<Run>,
    datagrams: usize,
    refused: u64,
}

impl Default for Outbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Outbox {
    /// An empty outbox with room for what it holds between two flushes.
    pub fn new() -> Self {
        // A writer looks at `wants_flush` after a batch of its own, which may be a large frame.
        Self {
            bytes: Vec::with_capacity(FLUSH_BYTES + RUN_BYTES_MAX),
            runs: Vec::with_capacity(2 * FLUSH_RUNS),
            datagrams: 0,
            refused: 0,
        }
    }

    /// A sink for datagrams to `dest`.
    pub fn to(&mut self, dest: SocketAddr) -> Sink<'_> {
        Sink { outbox: self, dest: canonical(dest) }
    }

    /// Appends a copy of one datagram.
    pub fn push(&mut self, dest: SocketAddr, datagram: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(datagram);
        self.finish(canonical(dest), start);
    }

    /// Enough has been gathered: the writer should have it sent before it goes on.
    pub fn wants_flush(&self) -> bool {
        self.bytes.len() >= FLUSH_BYTES || self.runs.len() >= FLUSH_RUNS
    }

    /// Nothing is waiting.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Datagrams waiting.
    pub fn datagrams(&self) -> usize {
        self.datagrams
    }

    /// Datagrams refused so far: empty, longer than a run may be, or beyond [`BYTES_MAX`]. The latter two are
    /// bugs of the writer.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The runs, in the order in which they are to be sent.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The bytes of a run of this outbox; empty for one that is not.
    pub fn bytes(&self, run: &Run) -> &[u8] {
        self.bytes.get(run.start..run.end).unwrap_or_default()
    }

    /// Forgets everything that was waiting; memory is kept.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
        self.datagrams = 0;
    }

    fn finish(&mut self, dest: SocketAddr, start: usize) {
        let end = self.bytes.len();
        let len = end.saturating_sub(start);
        if len == 0 || len > RUN_BYTES_MAX || end > BYTES_MAX {
            self.bytes.truncate(start);
            self.refused += 1;
            return;
        }
        self.datagrams += 1;
        if let Some(run) = self.runs.last_mut()
            && run.takes(dest, start, len)
        {
            run.end = end;
            run.count += 1;
            return;
        }
        self.runs.push(Run { dest, segment_bytes: len, start, end, count: 1 });
    }
}

impl Run {
    fn takes(&self, dest: SocketAddr, start: usize, len: usize) -> bool {
        let bytes = self.end - self.start;
        self.dest == dest
            && self.end == start
            && len <= self.segment_bytes
            && bytes == self.segment_bytes * self.count
            && self.count < RUN_DATAGRAMS_MAX
            && bytes + len <= RUN_BYTES_MAX
    }
}

/// Writes datagrams for one destination into the outbox.
#[derive(Debug)]
pub struct Sink<'a> {
    outbox: &'a mut Outbox,
    dest: SocketAddr,
}

impl PacketSink for Sink<'_> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.outbox.bytes
    }

    fn finish(&mut self, start: usize) {
        self.outbox.finish(self.dest, start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dest(n: u8) -> SocketAddr {
        SocketAddr::new([10, 0, 0, n].into(), 5_000)
    }

    fn sizes(outbox: &Outbox) -> Vec<(usize, usize, usize)> {
        outbox.runs().iter().map(|run| (run.segment_bytes, run.end - run.start, run.count)).collect()
    }

    fn pushed(lens: &[(u8, usize)]) -> Outbox {
        let mut outbox = Outbox::new();
        for (to, len) in lens {
            outbox.push(dest(*to), &vec![*to; *len]);
        }
        outbox
    }

    #[test]
    fn a_frame_is_one_run_and_its_short_last_packet_closes_it() {
        let outbox = pushed(&[(1, 1_100), (1, 1_100), (1, 1_100), (1, 300), (1, 300), (1, 1_100)]);
        assert_eq!(sizes(&outbox), [(1_100, 3_600, 4), (300, 300, 1), (1_100, 1_100, 1)]);
        assert_eq!(outbox.datagrams(), 6);
    }

    #[test]
    fn another_destination_or_a_longer_datagram_begins_a_run() {
        let outbox = pushed(&[(1, 100), (2, 100), (1, 100), (1, 101)]);
        assert_eq!(sizes(&outbox), [(100, 100, 1), (100, 100, 1), (100, 100, 1), (101, 101, 1)]);
    }

    #[test]
    fn a_run_ends_at_64_datagrams_and_at_65_000_bytes() {
        assert_eq!(sizes(&pushed(&[(1, 100); 130])), [(100, 6_400, 64), (100, 6_400, 64), (100, 200, 2)]);
        // 65 × 1,000 would fit in bytes but 64 is the most; 54 × 1,200 = 64,800, a 55th is beyond.
        assert_eq!(sizes(&pushed(&[(1, 1_200); 55])), [(1_200, 64_800, 54), (1_200, 1_200, 1)]);
        assert_eq!(sizes(&pushed(&[(1, 32_500), (1, 32_500), (1, 1)])), [(32_500, 65_000, 2), (1, 1, 1)]);
    }

    #[test]
    fn the_sink_writes_in_place_and_mapped_destinations_are_the_same_as_ipv4() {
        let mut outbox = Outbox::new();
        let mapped = SocketAddr::new("::ffff:10.0.0.1".parse().unwrap(), 5_000);
        for to in [dest(1), mapped] {
            let mut sink = outbox.to(to);
            let start = sink.buffer().len();
            sink.buffer().extend_from_slice(b"hello");
            sink.finish(start);
        }
        assert_eq!(sizes(&outbox), [(5, 10, 2)]);
        assert_eq!(outbox.bytes(&outbox.runs()[0]), b"hellohello");
    }

    #[test]
    fn bytes_that_were_never_finished_are_in_no_run() {
        let mut outbox = pushed(&[(1, 10)]);
        outbox.to(dest(1)).buffer().extend_from_slice(b"abandoned");
        outbox.push(dest(1), &[2; 10]);
        assert_eq!(sizes(&outbox), [(10, 10, 1), (10, 10, 1)]);
        assert_eq!(outbox.bytes(&outbox.runs()[1]), [2; 10]);
    }

    #[test]
    fn it_wants_flush_at_256_kib_or_256_runs_and_clearing_keeps_the_memory() {
        let mut outbox = Outbox::new();
        for _ in 0..2 {
            let capacity = (outbox.bytes.capacity(), outbox.runs.capacity());
            for n in 0..256 {
                assert!(!outbox.wants_flush());
                outbox.push(dest((n % 2) as u8), &[0; 10]);
            }
            assert!(outbox.wants_flush());
            outbox.clear();
            assert!(outbox.is_empty() && !outbox.wants_flush() && outbox.datagrams() == 0);
            for _ in 0..262 {
                assert!(!outbox.wants_flush());
                outbox.push(dest(1), &[0; 1_001]);
            }
            assert!(outbox.wants_flush());
            outbox.clear();
            assert_eq!((outbox.bytes.capacity(), outbox.runs.capacity()), capacity);
        }
    }

    #[test]
    fn what_cannot_be_sent_is_refused_and_memory_stays_bounded() {
        let mut outbox = Outbox::new();
        outbox.push(dest(1), &[]);
        outbox.push(dest(1), &[0; RUN_BYTES_MAX + 1]);
        assert!(outbox.is_empty());
        assert_eq!(outbox.refused(), 2);
        for _ in 0..2_000 {
            outbox.push(dest(1), &[0; 1_000]);
        }
        assert_eq!(outbox.datagrams(), BYTES_MAX / 1_000);
        assert_eq!(outbox.refused(), 2 + 2_000 - (BYTES_MAX / 1_000) as u64);
    }

    proptest! {
        /// What GSO does with the runs (cut every segment_bytes) gives back the datagrams, in order.
        #[test]
        fn runs_cut_apart_are_the_datagrams(
            pushes in proptest::collection::vec((0u8..3, prop_oneof![Just(1_100usize), Just(160), 1usize..1_400]), 0..300)
        ) {
            let mut outbox = Outbox::new();
            let mut want = Vec::new();
            for (n, (to, len)) in pushes.into_iter().enumerate() {
                let datagram: Vec<u8> = (0..len).map(|i| (n * 7 + i) as u8).collect();
                outbox.push(dest(to), &datagram);
                want.push((dest(to), datagram));
            }
            let mut got = Vec::new();
            for run in outbox.runs() {
                prop_assert!(run.count <= 64 && run.end - run.start <= 65_000);
                let cut: Vec<&[u8]> = outbox.bytes(run).chunks(run.segment_bytes).collect();
                prop_assert_eq!(cut.len(), run.count);
                got.extend(cut.into_iter().map(|bytes| (run.dest, bytes.to_vec())));
            }
            prop_assert_eq!(got, want);
        }
    }
}
