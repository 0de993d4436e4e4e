//! Video that waits for its turn. Sound never does, and nothing does while the path has room.
//!
//! What waits has no numbers yet: what is dropped leaves no hole, and the section goes on as after a pause.

use super::PacketSink;
use super::egress::{Egress, Forwarded};
use crate::codec::Kind;
use crate::congestion::{Estimator, OVERHEAD, Pacer};
use crate::packet::{Packet, Payload, StreamClock};
use crate::units::{Bitrate, Deadline, Why};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Header, extensions, tag and what is below them, about.
const HEADERS: u64 = OVERHEAD + 44;
/// No packet is longer.
const PACKET_MAX: u64 = 1_500;

/// What waits for one viewer, in the order it came, and how much may leave.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    pacer: Pacer,
    queue: VecDeque<Held>,
    /// A section and layer of which a packet that had waited was no use without a key frame.
    wants: Option<(usize, u8)>,
    /// Packets that have waited and were sent.
    pub waited: u64,
    /// Packets that were dropped because they had waited for too long, or too many did.
    pub late: u64,
}

#[derive(Debug)]
struct Held {
    since: Instant,
    section: usize,
    layer: u8,
    clock: StreamClock,
    packet: Packet,
    /// What its decoder must have before it.
    lead: Option<Arc<[Payload]>>,
}

impl Pacing {
    /// A picture that is later than this is of no use; its end would come later still.
    const LATE: Duration = Duration::from_millis(400);
    /// 10 Mbit/s for as long as that.
    const PACKETS_MAX: usize = 512;

    /// Whether a batch may go right through. As a rule it may, and nothing else is asked.
    pub fn passes(&mut self, now: Instant, kind: Kind, estimate: Option<Bitrate>, packets: &[Packet]) -> bool {
        if kind == Kind::Audio {
            return true;
        }
        self.pacer.tick(now, estimate);
        let bytes = || packets.iter().map(|packet| packet.payload.len() as u64 + HEADERS).sum();
        self.queue.is_empty()
            && (self.pacer.takes(packets.len() as u64 * PACKET_MAX)
                || self.pacer.takes(bytes())
                || packets.len() <= 1 && self.pacer.is_open())
    }

    /// It was forwarded: nothing of it waits.
    pub fn passed(&mut self, forwarded: &Forwarded, section: usize, layer: u8) -> bool {
        self.pacer.sent(forwarded.bytes + u64::from(forwarded.packets) * OVERHEAD);
        self.wants.take_if(|wants| *wants == (section, layer)).is_some()
    }

    /// A section was paused, or is another source's: what waits for it is not sent.
    pub fn forget(&mut self, section: usize) {
        self.wants = self.wants.filter(|(of, _)| *of != section);
        if !self.queue.is_empty() {
            self.queue.retain(|held| held.section != section);
        }
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn holds(&self, section: usize, layer: u8) -> bool {
        self.queue.iter().any(|held| held.section == section && held.layer == layer)
    }

    /// Puts a batch behind what waits, in the order of its numbers: it is sent packet by packet, and a layer begins with
    /// the first of its key frame.
    fn hold(&mut self, batch: &Batch<'_>, lead: Option<Arc<[Payload]>>) {
        let first = self.queue.len();
        let Batch { now: since, section, layer, clock, packets } = *batch;
        let held = |packet: &Packet| Held { since, section, layer, clock, packet: packet.clone(), lead: None };
        self.queue.extend(packets.iter().map(held));
        if !packets.is_sorted_by_key(|packet| packet.ext_seq)
            && let Some(batch) = self.queue.make_contiguous().get_mut(first..)
        {
            batch.sort_unstable_by_key(|held| held.packet.ext_seq);
        }
        if let Some(held) = self.queue.iter_mut().skip(first).find(|held| held.packet.key_frame) {
            held.lead = lead;
        }
    }
}

/// What [`Egress::forward`] was given.
#[derive(Clone, Copy)]
pub(super) struct Batch<'a> {
    pub now: Instant,
    pub section: usize,
    pub layer: u8,
    pub clock: StreamClock,
    pub packets: &'a [Packet],
}

impl Egress {
    /// Forwards what may leave of a batch that does not pass as it is; the rest waits.
    pub(super) fn forward_paced(&mut self, batch: &Batch<'_>, sink: &mut dyn PacketSink) -> Forwarded {
        let Batch { now, section, layer, clock, packets } = *batch;
        let (Some(stream), Some(pacing)) = (self.streams.get_mut(section), &mut self.pacing) else {
            return Forwarded::default();
        };
        if !pacing.holds(section, layer) && !stream.would_send(layer, packets) {
            return stream.forward(&mut self.link, now, layer, clock, packets, sink);
        }
        if pacing.queue.len() + packets.len() > Pacing::PACKETS_MAX {
            pacing.late += packets.len() as u64;
            self.drop_late(section);
            return Forwarded { wants_key_frame: true, ..Forwarded::default() };
        }
        pacing.hold(batch, stream.take_lead());
        let mut forwarded = self.release(now, Some(section), sink);
        let wants = self.pacing.as_mut().and_then(|pacing| pacing.wants.take_if(|wants| *wants == (section, layer)));
        forwarded.wants_key_frame = wants.is_some();
        forwarded
    }

    /// Sends what has waited for long enough. `told_of`: the section whose key frames are told.
    pub(super) fn release(&mut self, now: Instant, told_of: Option<usize>, sink: &mut dyn PacketSink) -> Forwarded {
        let mut released = Forwarded::default();
        let estimate = self.estimator.as_ref().and_then(Estimator::bound);
        let Some(pacing) = &mut self.pacing else { return released };
        if pacing.queue.is_empty() {
            return released;
        }
        pacing.pacer.tick(now, estimate);
        while let Some(pacing) = &mut self.pacing
            && let Some(front) = pacing.queue.front()
        {
            let section = front.section;
            if now.saturating_duration_since(front.since) >= Pacing::LATE {
                self.drop_late(section);
                continue;
            }
            if !pacing.pacer.is_open() {
                break;
            }
            let (Some(held), Some(stream)) = (pacing.queue.pop_front(), self.streams.get_mut(section)) else {
                continue;
            };
            if let Some(lead) = &held.lead {
                stream.lead(lead);
            }
            let packets = std::slice::from_ref(&held.packet);
            let sent = stream.forward(&mut self.link, now, held.layer, held.clock, packets, sink);
            pacing.pacer.sent(sent.bytes + u64::from(sent.packets) * OVERHEAD);
            if held.since < now {
                pacing.waited += u64::from(sent.packets);
            }
            if sent.wants_key_frame {
                pacing.wants = Some((section, held.layer));
            }
            released.packets += sent.packets;
            released.bytes += sent.bytes;
            released.key_frame |= sent.key_frame && told_of == Some(section);
        }
        released
    }

    /// What waits of a section is dropped, and it goes on with the next key frame.
    fn drop_late(&mut self, section: usize) {
        let (Some(stream), Some(pacing)) = (self.streams.get_mut(section), &mut self.pacing) else { return };
        let before = pacing.queue.len();
        pacing.forget(section);
        pacing.late += (before - pacing.queue.len()) as u64;
        stream.restart();
    }

    /// Bytes that may be sent again now.
    pub(super) fn repairs(&mut self, now: Instant) -> u64 {
        let estimate = self.estimator.as_ref().and_then(Estimator::bound);
        self.pacing.as_mut().map_or(u64::MAX, |pacing| {
            pacing.pacer.tick(now, estimate);
            pacing.pacer.repairs()
        })
    }

    /// So many bytes were.
    pub(super) fn repaired(&mut self, bytes: u64) {
        if let Some(pacing) = &mut self.pacing {
            pacing.pacer.sent(bytes);
        }
    }

    pub(super) fn pacing_deadline(&self) -> Option<Deadline> {
        let pacing = self.pacing.as_ref().filter(|pacing| !pacing.queue.is_empty())?;
        Some(Deadline { at: pacing.pacer.opens_at()?, why: Why::Pacer })
    }
}
