//! What travels between actors: never one packet, always a batch that every receiver shares.

use bytes::Bytes;
use rondo_media::codec::{Format, Kind};
use rondo_media::packet::{Packet, Payload, StreamClock};
use rondo_media::room::TrackKey;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// Packets of one track that became ready together: an audio packet or two, or one video frame.
#[derive(Debug)]
pub struct Batch {
    /// Which track of the room.
    pub track: TrackKey,
    /// Which of its simulcast layers; 0 where it has none.
    pub layer: u8,
    /// Counts the streams (SSRCs) that the layer has had: a new one starts a new sequence.
    pub epoch: u32,
    /// Audio is delivered before video.
    pub kind: Kind,
    /// What the packets carry.
    pub format: Format,
    /// Capture time of the stream, for sender reports.
    pub clock: StreamClock,
    /// What a viewer who begins here must have first, where the stream is H.264 and a key frame begins.
    pub parameter_sets: Option<Arc<[Payload]>>,
    /// In order of arrival.
    pub packets: Vec<Packet>,
}

/// One datagram for a session.
#[derive(Debug, Clone)]
pub struct Datagram {
    /// Index of the session's transport.
    pub transport: u8,
    /// Where it came from.
    pub from: SocketAddr,
    /// The local address it was sent to.
    pub to: SocketAddr,
    /// Contents; a slice of the receive call's buffer.
    pub bytes: Bytes,
}

/// Memory of batches and of lists of datagrams, used again once nobody has it any more.
#[derive(Debug, Default)]
pub struct Pool {
    /// Every batch shared lately, longest ago first.
    shared: VecDeque<Arc<Batch>>,
    lists: Vec<Vec<Datagram>>,
}

/// Batches remembered; when more are in use at once, further ones are made and not remembered. Their payloads, shared
/// with the rings, live until their memory is used again.
const BATCHES_MAX: usize = 64;
/// Batches asked whether they are free before one is made.
const TRIES: usize = 4;
/// Lists kept: as many as sessions are heard in one round of a large room.
const LISTS_MAX: usize = 1_024;
/// The longest list kept, in datagrams.
const LIST_LEN_MAX: usize = 256;
/// Room in a new list, of packets or of datagrams: most never need more.
const LIST_LEN: usize = 8;

impl Pool {
    /// Shares a batch; also answers an empty list for the packets of the next one.
    pub fn share(&mut self, mut batch: Batch) -> (Arc<Batch>, Vec<Packet>) {
        for _ in 0..TRIES.min(self.shared.len()) {
            let Some(mut oldest) = self.shared.pop_front() else { break };
            let Some(free) = Arc::get_mut(&mut oldest) else {
                // A viewer that is behind still has it.
                self.shared.push_back(oldest);
                continue;
            };
            std::mem::swap(free, &mut batch);
            self.shared.push_back(Arc::clone(&oldest));
            let mut packets = batch.packets;
            packets.clear();
            return (oldest, packets);
        }
        let packets = Vec::with_capacity(batch.packets.len().max(LIST_LEN));
        let batch = Arc::new(batch);
        if self.shared.len() < BATCHES_MAX {
            self.shared.push_back(Arc::clone(&batch));
        }
        (batch, packets)
    }

    /// An empty list of datagrams.
    pub fn list(&mut self) -> Vec<Datagram> {
        self.lists.pop().unwrap_or_else(|| Vec::with_capacity(LIST_LEN))
    }

    /// Takes a list back that has been read.
    pub fn give_back(&mut self, mut list: Vec<Datagram>) {
        list.clear();
        if self.lists.len() < LISTS_MAX && list.capacity() <= LIST_LEN_MAX {
            self.lists.push(list);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rondo_media::codec::Codec;
    use std::time::Instant;

    fn batch(n: u32, packets: Vec<Packet>) -> Batch {
        let at = Instant::now();
        Batch {
            track: TrackKey(n),
            layer: 0,
            epoch: 0,
            kind: Kind::Audio,
            format: Format { codec: Codec::Opus, profile: 0, packetization: 0 },
            clock: StreamClock { at, rtp_time: 0, synced: false },
            parameter_sets: None,
            packets,
        }
    }

    #[test]
    fn a_batch_that_everybody_has_read_is_used_again_with_its_list() {
        let mut pool = Pool::default();
        let (first, list) = pool.share(batch(1, Vec::with_capacity(10)));
        let place = Arc::as_ptr(&first);
        let (second, list) = pool.share(batch(2, list));
        assert_ne!(Arc::as_ptr(&second), place, "somebody still reads the first");
        assert_eq!((first.track, second.track), (TrackKey(1), TrackKey(2)));
        drop(first);
        let (third, list) = pool.share(batch(3, list));
        assert_eq!((Arc::as_ptr(&third), third.track), (place, TrackKey(3)));
        assert_eq!((list.len(), list.capacity()), (0, 10), "the list of the first");
        assert_eq!(second.track, TrackKey(2), "what somebody reads does not change");
    }

    #[test]
    fn a_reader_that_never_lets_go_costs_a_try_and_memory_stays_bounded() {
        let mut pool = Pool::default();
        let held: Vec<_> = (0..1_000).map(|n| pool.share(batch(n, Vec::new())).0).collect();
        assert_eq!(pool.shared.len(), BATCHES_MAX);
        assert!(held.iter().enumerate().all(|(n, b)| b.track == TrackKey(n as u32)));
        drop(held);
        let stuck = pool.share(batch(1, Vec::new())).0;
        for n in 0..1_000 {
            let (shared, _) = pool.share(batch(n, Vec::new()));
            assert!(!Arc::ptr_eq(&shared, &stuck));
            assert_eq!(Arc::strong_count(&shared), 2, "one of the pool's");
        }
        assert_eq!(pool.shared.len(), BATCHES_MAX);
    }

    #[test]
    fn lists_come_back_empty_and_neither_too_many_nor_too_long() {
        let mut pool = Pool::default();
        let datagram = || Datagram {
            transport: 0,
            from: SocketAddr::from(([127, 0, 0, 1], 1)),
            to: SocketAddr::from(([127, 0, 0, 1], 2)),
            bytes: Bytes::new(),
        };
        pool.give_back(vec![datagram(), datagram()]);
        let list = pool.list();
        assert_eq!((list.len(), list.capacity()), (0, 2));
        pool.give_back(vec![datagram(); LIST_LEN_MAX + 1]);
        assert_eq!(pool.list().capacity(), LIST_LEN);
        for _ in 0..2 * LISTS_MAX {
            pool.give_back(vec![datagram()]);
        }
        assert_eq!(pool.lists.len(), LISTS_MAX);
    }
}
