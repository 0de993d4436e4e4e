//! Event streams: a numbered log of the last minute, and bounded queues to whoever listens.

use super::Room;
use crate::api::{EventFeed, Numbered, Refusal, RoomEvent, SectionAssignment};
use crate::room::members::Role;
use rondo_media::ids::SessionId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// How long an event can be asked for again (interfaces §6).
const RESUME: Duration = Duration::from_secs(60);
/// Events kept for that at most.
const KEPT: usize = 1_024;
/// Bytes of text in them at most: names and metadata are the participants'.
const KEPT_BYTES: usize = 1 << 20;
/// Events that a reader may be behind before its stream is closed.
const BEHIND: usize = 256;

/// The room's event log and its readers.
pub struct Feeds {
    /// By whose private events come along: an event for one session is no work for the others.
    readers: BTreeMap<Option<SessionId>, Vec<mpsc::Sender<Numbered>>>,
    log: VecDeque<Logged>,
    log_bytes: usize,
    next_id: u64,
    limit: usize,
}

struct Logged {
    at: Instant,
    bytes: usize,
    audience: Option<SessionId>,
    numbered: Numbered,
}

/// What became of the readers while an event was handed out.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// Streams closed because their reader was too far behind.
    pub too_slow: u64,
}

impl Feeds {
    /// No reader yet; at most `limit`. Numbers begin at `first_id`: the time of opening, so that a reader of a room
    /// that had this name before is not taken for one of this.
    pub fn new(limit: usize, first_id: u64) -> Self {
        Self { readers: BTreeMap::new(), log: VecDeque::new(), log_bytes: 0, next_id: first_id.max(1), limit }
    }

    /// Numbers an event, keeps it for a minute and hands it to its audience: everybody, or one session.
    pub fn publish(&mut self, now: Instant, audience: Option<SessionId>, event: RoomEvent) -> Handed {
        let bytes = weight(&event);
        let numbered = Numbered { id: self.next_id, event: Arc::new(event) };
        self.next_id += 1;
        let mut handed = Handed::default();
        let mut hand = |queue: &mpsc::Sender<Numbered>| match queue.try_send(numbered.clone()) {
            Ok(()) => true,
            Err(TrySendError::Closed(_)) => false,
            Err(TrySendError::Full(_)) => {
                handed.too_slow += 1;
                false
            }
        };
        match audience {
            None => self.readers.retain(|_, queues| {
                queues.retain(&mut hand);
                !queues.is_empty()
            }),
            Some(_) => self.readers.get_mut(&audience).into_iter().for_each(|queues| queues.retain(&mut hand)),
        }
        self.log.push_back(Logged { at: now, bytes, audience, numbered });
        self.log_bytes += bytes;
        while self.log.len() > KEPT
            || self.log_bytes > KEPT_BYTES
            || self.log.front().is_some_and(|e| now.saturating_duration_since(e.at) > RESUME)
        {
            self.log_bytes -= self.log.pop_front().map_or(0, |oldest| oldest.bytes);
        }
        handed
    }

    /// The events after `after` that `me` may see; none if they are not all here any more.
    fn since(&self, after: u64, me: Option<SessionId>) -> Option<Vec<Numbered>> {
        let oldest = self.log.front().map_or(self.next_id, |e| e.numbered.id);
        (after < self.next_id && after + 1 >= oldest).then(|| {
            let mine = |e: &&Logged| e.numbered.id > after && (e.audience.is_none() || e.audience == me);
            self.log.iter().filter(mine).map(|e| e.numbered.clone()).collect()
        })
    }

    fn open(&mut self, me: Option<SessionId>) -> Result<mpsc::Receiver<Numbered>, Refusal> {
        self.readers.retain(|_, queues| {
            queues.retain(|queue| !queue.is_closed());
            !queues.is_empty()
        });
        if self.readers.values().map(Vec::len).sum::<usize>() >= self.limit {
            return Err(Refusal::TooManyStreams { limit: self.limit });
        }
        let (queue, next) = mpsc::channel(BEHIND);
        self.readers.entry(me).or_default().push(queue);
        Ok(next)
    }

    /// Ends every stream.
    pub fn end(&mut self) {
        self.readers.clear();
    }
}

/// Bytes of what people wrote in an event; everything else in it is small.
fn weight(event: &RoomEvent) -> usize {
    match event {
        RoomEvent::ParticipantJoined { participant } | RoomEvent::ParticipantUpdated { participant } => {
            participant.name.len() + participant.metadata.len()
        }
        RoomEvent::Snapshot { .. }
        | RoomEvent::RoomStarted { .. }
        | RoomEvent::RoomFinished { .. }
        | RoomEvent::ParticipantLeft { .. }
        | RoomEvent::TrackPublished { .. }
        | RoomEvent::TrackUnpublished { .. }
        | RoomEvent::TrackMuted { .. }
        | RoomEvent::TrackUnmuted { .. }
        | RoomEvent::Speakers { .. }
        | RoomEvent::SectionAssigned(_)
        | RoomEvent::SectionsFull { .. }
        | RoomEvent::CodecUnsupported { .. }
        | RoomEvent::LayersWanted { .. }
        | RoomEvent::StreamState { .. }
        | RoomEvent::Quality { .. }
        | RoomEvent::MessageToYou { .. } => 0,
    }
}

impl Room {
    /// Tells an event to everybody, or to one session.
    pub(super) fn emit(&mut self, now: Instant, audience: Option<SessionId>, event: RoomEvent) {
        let handed = self.feeds.publish(now, audience, event);
        self.local.counters.event_streams_too_slow.add(handed.too_slow);
    }

    pub(super) fn open_feed(&mut self, me: Option<SessionId>, after: Option<u64>) -> Result<EventFeed, Refusal> {
        let next = self.feeds.open(me)?;
        let missed = after.and_then(|after| self.feeds.since(after, me));
        let first = missed.unwrap_or_else(|| {
            let snapshot = RoomEvent::Snapshot {
                room: self.info(),
                sections: me.map(|me| self.sections_of(me)).unwrap_or_default(),
                you: me,
                speakers: self.speaking.iter().map(ToString::to_string).collect(),
            };
            let wanted = me.into_iter().flat_map(|me| self.layers_unwanted(me));
            let id = self.feeds.next_id - 1;
            std::iter::once(snapshot).chain(wanted).map(|event| Numbered { id, event: Arc::new(event) }).collect()
        });
        Ok(EventFeed { first, next })
    }

    fn sections_of(&self, me: SessionId) -> Vec<SectionAssignment> {
        let Some(member) = self.members.iter().find(|m| m.session == me) else { return Vec::new() };
        let mut all = Vec::new();
        for attachment in member.transports.iter().flatten() {
            let Role::Play(plays) = &attachment.role else { continue };
            let told = |(section, key)| plays.assignment(attachment.id, section, self.tracks.get(&key));
            all.extend(plays.sections.held().map(told));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rondo_media::ids::Random;

    struct Zeros(u8);
    impl Random for Zeros {
        fn fill(&mut self, out: &mut [u8]) {
            out.fill(self.0);
        }
    }
    fn session(n: u8) -> SessionId {
        SessionId::generate(&mut Zeros(n))
    }
    fn event() -> RoomEvent {
        RoomEvent::Speakers { identities: vec![] }
    }
    fn ids(events: &[Numbered]) -> Vec<u64> {
        events.iter().map(|e| e.id).collect()
    }

    #[test]
    fn a_stream_resumes_within_a_minute_and_private_events_stay_private() {
        let (ann, bob) = (session(1), session(2));
        let t0 = Instant::now();
        let mut feeds = Feeds::new(4, 1);
        feeds.publish(t0, None, event());
        feeds.publish(t0, Some(ann), event());
        feeds.publish(t0 + Duration::from_secs(30), None, event());
        assert_eq!(feeds.since(0, Some(ann)).map(|e| ids(&e)), Some(vec![1, 2, 3]));
        assert_eq!(feeds.since(1, Some(bob)).map(|e| ids(&e)), Some(vec![3]));
        assert_eq!(feeds.since(3, None).map(|e| ids(&e)), Some(vec![]));
        assert!(feeds.since(4, None).is_none(), "an id that was never given starts anew");
        feeds.publish(t0 + Duration::from_secs(61), None, event());
        assert!(feeds.since(1, Some(ann)).is_none(), "event 2 is forgotten: only a snapshot is right");
        assert_eq!(feeds.since(2, None).map(|e| ids(&e)), Some(vec![3, 4]));
    }

    #[test]
    fn a_reader_that_is_too_slow_is_closed_and_counted_and_the_log_is_bounded() {
        let mut feeds = Feeds::new(1, 1);
        let mut slow = feeds.open(None).unwrap();
        assert!(feeds.open(None).is_err(), "one stream is the limit here");
        let now = Instant::now();
        let mut too_slow = 0;
        for _ in 0..5_000 {
            too_slow += feeds.publish(now, None, event()).too_slow;
        }
        assert_eq!((too_slow, feeds.log.len()), (1, KEPT));
        let mut read = 0;
        while slow.try_recv().is_ok() {
            read += 1;
        }
        assert_eq!(read, BEHIND);
        assert!(feeds.open(None).is_ok(), "the closed one no longer counts");
    }
}
