//! The one copy of what a stream received lately: fan-out reads it by a cursor, others by number.

use crate::packet::Packet;

/// A fixed number of packets, in order of arrival, findable by sequence number.
///
/// Readers keep a cursor: the count of arrivals they have read. A reader that falls behind by more than the
/// capacity misses what was overwritten; the packets themselves are shared, so whoever has one keeps it.
#[derive(Debug)]
pub struct Ring {
    /// Arrival number `n` is at `n % capacity`.
    packets: Vec<Packet>,
    /// Arrival number of `ext_seq` at `ext_seq % capacity`, with the number it stands for.
    by_seq: Vec<(u64, u64)>,
    capacity: usize,
    arrivals: u64,
}

const EMPTY: (u64, u64) = (u64::MAX, 0);

impl Ring {
    /// A ring that keeps the last `capacity` packets (at least one). Memory for them is taken with the first.
    pub fn new(capacity: usize) -> Self {
        Self { packets: Vec::new(), by_seq: Vec::new(), capacity: capacity.max(1), arrivals: 0 }
    }

    /// Packets kept at most.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The cursor of a reader that wants what comes next.
    pub fn head(&self) -> u64 {
        self.arrivals
    }

    /// Adds a packet; the oldest arrival goes when the ring is full. The caller keeps duplicates out.
    pub fn insert(&mut self, packet: Packet) {
        if self.by_seq.is_empty() {
            self.by_seq.resize(self.capacity, EMPTY);
            self.packets.reserve_exact(self.capacity);
        }
        let seq_slot = self.slot(packet.ext_seq);
        if let Some(place) = self.by_seq.get_mut(seq_slot)
            // A straggler does not hide the newer packet that has its place; readers by cursor still get it.
            && (*place == EMPTY || place.0 <= packet.ext_seq)
        {
            *place = (packet.ext_seq, self.arrivals);
        }
        let slot = self.slot(self.arrivals);
        match self.packets.get_mut(slot) {
            Some(place) => *place = packet,
            None => self.packets.push(packet),
        }
        self.arrivals += 1;
    }

    /// The packet with this number, if it is among those kept.
    pub fn get(&self, ext_seq: u64) -> Option<&Packet> {
        let (found, arrival) = *self.by_seq.get(self.slot(ext_seq))?;
        if found != ext_seq || arrival < self.oldest() {
            return None;
        }
        self.packets.get(self.slot(arrival)).filter(|packet| packet.ext_seq == ext_seq)
    }

    /// Packets from `cursor` on, in order of arrival; those already overwritten are left out.
    pub fn since(&self, cursor: u64) -> impl Iterator<Item = &Packet> {
        let from = cursor.max(self.oldest());
        (from..self.arrivals.max(from)).filter_map(|arrival| self.packets.get(self.slot(arrival)))
    }

    /// The lowest cursor that misses nothing.
    pub fn oldest(&self) -> u64 {
        self.arrivals.saturating_sub(self.capacity as u64)
    }

    fn slot(&self, number: u64) -> usize {
        (number % self.capacity as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::time::Instant;

    fn packet(ext_seq: u64, arrived: Instant) -> Packet {
        Packet {
            ext_seq,
            rtp_time: 0,
            marker: false,
            key_frame: false,
            level: None,
            arrived,
            payload: Arc::from(ext_seq.to_be_bytes()),
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    fn a_reader_shares_the_payload_and_a_slow_one_misses_only_what_was_overwritten() {
        let now = Instant::now();
        let mut ring = Ring::new(4);
        for ext_seq in 0..6 {
            ring.insert(packet(ext_seq, now));
        }
        assert_eq!(ring.since(0).map(|p| p.ext_seq).collect::<Vec<_>>(), [2, 3, 4, 5]);
        assert_eq!(ring.since(4).map(|p| p.ext_seq).collect::<Vec<_>>(), [4, 5]);
        assert_eq!(ring.since(99).count(), 0);
        let kept = Arc::clone(&ring.get(5).unwrap().payload);
        assert!(Arc::ptr_eq(&kept, &ring.since(5).next().unwrap().payload));
        assert!(ring.get(1).is_none());
    }

    proptest! {
        /// Arrivals read by cursor are the last ones of a plain list; a number is found if it is among those and
        /// no higher number could have taken its place, and what is found is what was put in.
        #[test]
        fn the_ring_agrees_with_a_list(
            capacity in 1..20usize,
            start in prop_oneof![Just(0u64), 65_000..66_000u64, (1u64 << 32) - 20..(1u64 << 32)],
            steps in proptest::collection::vec(prop_oneof![8 => -4..6i64, 1 => -50..60i64], 1..200),
            cursor in 0..200u64,
        ) {
            #[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
            let now = Instant::now();
            let mut ring = Ring::new(capacity);
            let mut list: Vec<u64> = Vec::new();
            let mut at = start + 100;
            for step in steps {
                at = at.saturating_add_signed(step);
                if list.contains(&at) {
                    continue;
                }
                list.push(at);
                ring.insert(packet(at, now));
                let highest = list.iter().copied().max().unwrap_or(at);
                let kept = &list[list.len().saturating_sub(capacity)..];
                for ext_seq in highest.saturating_sub(70)..=highest + 1 {
                    let found = ring.get(ext_seq);
                    prop_assert!(found.is_none_or(|p| p.payload[..] == ext_seq.to_be_bytes()));
                    if kept.contains(&ext_seq) && highest - ext_seq < capacity as u64 {
                        prop_assert!(found.is_some(), "{} of {:?}", ext_seq, kept);
                    }
                    prop_assert!(kept.contains(&ext_seq) || found.is_none());
                }
                let from = usize::try_from(cursor).unwrap().min(list.len()).max(list.len().saturating_sub(capacity));
                prop_assert_eq!(ring.since(cursor).map(|p| p.ext_seq).collect::<Vec<_>>(), &list[from..]);
                prop_assert!(ring.packets.len() <= capacity && ring.by_seq.len() == capacity);
            }
        }
    }
}
