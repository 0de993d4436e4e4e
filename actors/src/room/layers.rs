//! Which layers of a track anybody follows: the room sends each viewer no others, and tells the publisher what nobody wants.

use super::Room;
use super::members::{Track, Viewer, numbered};
use crate::api::{LayerWanted, RoomEvent};
use crate::port::Port;
use crate::session::SessionMsg;
use rondo_media::codec::Kind;
use rondo_media::ids::SessionId;
use rondo_media::receive::{LayerList, LayerMask};
use rondo_media::room::TrackKey;
use rondo_media::transport::LAYERS_MAX;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A layer is told unwanted when nobody has wanted it for so long: who turns a page back finds it still there.
const UNWANTED_AFTER: Duration = Duration::from_secs(2);

/// The section of a viewer that carries a track.
pub struct Subscriber {
    pub port: Port<SessionMsg>,
    pub section: u16,
    /// The viewer wants nothing of it now.
    pub paused: bool,
    /// The layers that its session follows.
    pub follows: LayerMask,
}

impl Subscriber {
    /// The layers that are sent to it.
    fn wants(&self) -> LayerMask {
        if self.paused { LayerMask::NONE } else { self.follows }
    }
}

/// Who sees a track, in the order they came, and how many want each of its layers. Changes come in by the methods alone, so
/// that the count is right.
#[derive(Default)]
pub struct Audience {
    subscribers: BTreeMap<Viewer, Subscriber>,
    wanted_by: [u32; LAYERS_MAX],
}

impl Audience {
    fn count(&mut self, before: LayerMask, after: LayerMask) {
        for (layer, by) in (0u8..).zip(&mut self.wanted_by) {
            *by = *by + u32::from(after.contains(layer)) - u32::from(before.contains(layer));
        }
    }

    /// One more, or another section for one who is there.
    pub fn insert(&mut self, viewer: Viewer, subscriber: Subscriber) {
        let after = subscriber.wants();
        let before = self.subscribers.insert(viewer, subscriber).map_or(LayerMask::NONE, |before| before.wants());
        self.count(before, after);
    }

    /// One less.
    pub fn remove(&mut self, viewer: Viewer) {
        if let Some(before) = self.subscribers.remove(&viewer) {
            self.count(before.wants(), LayerMask::NONE);
        }
    }

    /// One wants something else.
    pub fn change(&mut self, viewer: Viewer, change: impl FnOnce(&mut Subscriber)) {
        let Some(subscriber) = self.subscribers.get_mut(&viewer) else { return };
        let before = subscriber.wants();
        change(subscriber);
        let after = subscriber.wants();
        self.count(before, after);
    }

    /// Everybody.
    pub fn iter(&self) -> impl Iterator<Item = (&Viewer, &Subscriber)> {
        self.subscribers.iter()
    }

    /// Some of them.
    pub fn range(&self, viewers: RangeInclusive<Viewer>) -> impl Iterator<Item = (&Viewer, &Subscriber)> {
        self.subscribers.range(viewers)
    }

    /// One of them.
    pub fn get(&self, viewer: Viewer) -> Option<&Subscriber> {
        self.subscribers.get(&viewer)
    }

    /// Those to whom a layer is sent.
    pub fn of_layer(&self, layer: u8) -> impl Iterator<Item = (&Viewer, &Subscriber)> {
        self.subscribers.iter().filter(move |(_, subscriber)| subscriber.wants().contains(layer))
    }

    /// The layers that somebody wants.
    fn wanted(&self) -> LayerMask {
        let wanted = (0u8..).zip(self.wanted_by).filter(|(_, by)| *by > 0);
        wanted.fold(LayerMask::NONE, |all, (layer, _)| all.with(layer))
    }
}

/// What a track's publisher was told of its layers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Told {
    /// Its session: wanted now.
    session: LayerMask,
    /// Its page: not wanted for a while.
    unwanted: LayerMask,
    /// Since when nobody has wanted what the page was not told of yet.
    fading: [Option<Instant>; LAYERS_MAX],
    /// The room wakes for it.
    armed: bool,
}

impl Told {
    fn fades_at(&self) -> Option<Instant> {
        self.fading.iter().flatten().min().map(|since| *since + UNWANTED_AFTER)
    }
}

/// A track has as many layers as names, or one without a name.
pub fn all_layers(names: &[String]) -> LayerMask {
    LayerMask::first(names.len().max(1))
}

/// What a session follows before it has chosen: of a track without layers everything.
pub fn follows_at_first(names: &[String]) -> LayerMask {
    if names.len() > 1 { LayerMask::NONE } else { LayerMask::of(0) }
}

impl Track {
    /// As its page is told.
    fn layers_wanted(&self) -> RoomEvent {
        let name = |layer: u8| self.names.get(usize::from(layer)).cloned();
        let wanted = |layer: u8| !self.told.unwanted.contains(layer);
        let layers =
            all_layers(&self.names).iter().map(|layer| LayerWanted { rid: name(layer), wanted: wanted(layer) });
        RoomEvent::LayersWanted { track: self.id, layers: layers.collect() }
    }
}

impl Room {
    /// A session follows other layers of a track than before.
    pub(super) fn follows(&mut self, now: Instant, key: TrackKey, viewer: Viewer, section: u16, layers: LayerMask) {
        let Some(track) = self.tracks.get_mut(&key) else { return };
        track.audience.change(viewer, |subscriber| {
            // It may speak of a section that carries something else by now.
            if subscriber.section == section {
                subscriber.follows = layers;
            }
        });
        self.judge_layers(now, key);
    }

    /// The publisher's session has seen layers come or go, or measured them: everybody who watches chooses anew.
    pub(super) fn layers_changed(&mut self, now: Instant, key: TrackKey, layers: &LayerList) {
        let Some(track) = self.tracks.get_mut(&key) else { return };
        track.layers = Arc::clone(layers);
        for (viewer, subscriber) in track.audience.iter() {
            let (transport, section) = (viewer.transport, subscriber.section);
            if let Some(member) = numbered(&mut self.members, viewer.participant) {
                let layers = Arc::clone(layers);
                member.port.post(now, SessionMsg::Layers { transport, section, track: key, layers });
            }
        }
    }

    /// Whoever follows a layer of the track needs a key frame of it.
    pub(super) fn key_frames_wanted(&mut self, now: Instant, key: TrackKey) {
        let wanted = self.tracks.get(&key).map_or(LayerMask::NONE, |track| track.audience.wanted());
        self.key_frame_wanted(now, key, wanted);
    }

    /// Judges which layers of a track are wanted, after anything that may have changed it: who watches, who has paused,
    /// what is followed, whether the track is muted. The session of the publisher hears of it at once, and repeats no key
    /// frame request that nobody needs. Its page hears at once of what is wanted again, and of what is not when that
    /// has been so for a while.
    pub(super) fn judge_layers(&mut self, now: Instant, key: TrackKey) {
        let Some(track) = self.tracks.get_mut(&key).filter(|t| t.kind == Kind::Video && t.started()) else { return };
        let wanted = if track.muted { LayerMask::NONE } else { track.audience.wanted() };
        let told = &mut track.told;
        if told.session != wanted {
            told.session = wanted;
            if let Some(member) = numbered(&mut self.members, track.participant) {
                member.port.post(now, SessionMsg::Wanted { track: key, layers: wanted });
            }
        }
        let all = all_layers(&track.names);
        let mut news = false;
        for (layer, fading) in (0u8..).zip(&mut told.fading) {
            let unwanted = all.contains(layer) && !wanted.contains(layer) && !told.unwanted.contains(layer);
            match fading {
                Some(since) if unwanted && *since + UNWANTED_AFTER <= now => {
                    told.unwanted = told.unwanted.with(layer);
                    *fading = None;
                    news = true;
                }
                Some(_) if unwanted => {}
                None if unwanted => *fading = Some(now),
                _ => *fading = None,
            }
        }
        let back = told.unwanted.without(told.unwanted.without(wanted));
        if !back.is_empty() {
            told.unwanted = told.unwanted.without(wanted);
            news = true;
        }
        // Once is enough: what fades later is looked at again then.
        if let Some(at) = told.fades_at().filter(|_| !told.armed) {
            told.armed = true;
            self.fading.insert((at, key));
        }
        if news {
            let (session, event) = (track.session, track.layers_wanted());
            self.emit(now, Some(session), event);
        }
    }

    /// What the page of a session must know of its tracks that a snapshot does not tell.
    pub(super) fn layers_unwanted(&self, session: SessionId) -> impl Iterator<Item = RoomEvent> {
        let mine =
            self.tracks.values().filter(move |track| track.session == session && !track.told.unwanted.is_empty());
        mine.map(Track::layers_wanted)
    }

    /// Tells what nobody has wanted for long enough.
    pub(super) fn wake_layers(&mut self, now: Instant) {
        while let Some((at, key)) = self.fading.first().copied().filter(|(at, _)| *at <= now) {
            self.fading.remove(&(at, key));
            if let Some(track) = self.tracks.get_mut(&key) {
                track.told.armed = false;
            }
            self.judge_layers(now, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{Refused, Tell};

    struct Deaf;
    impl Tell<SessionMsg> for Deaf {
        fn tell(&self, _: SessionMsg) -> Result<(), Refused<SessionMsg>> {
            Ok(())
        }
    }

    fn subscriber(follows: LayerMask) -> Subscriber {
        Subscriber { port: Arc::new(Deaf), section: 0, paused: false, follows }
    }

    #[test]
    fn the_count_follows_every_change() {
        let mut audience = Audience::default();
        let viewers = [0, 1, 2].map(|participant| Viewer { participant, transport: 0 });
        let wanted = |audience: &Audience| audience.wanted().iter().collect::<Vec<_>>();
        audience.insert(viewers[0], subscriber(LayerMask::of(0)));
        audience.insert(viewers[1], subscriber(LayerMask::of(0).with(2)));
        assert_eq!(wanted(&audience), [0, 2]);
        assert_eq!(audience.of_layer(0).count(), 2);
        audience.insert(viewers[1], subscriber(LayerMask::of(1)));
        assert_eq!(wanted(&audience), [0, 1], "another section takes the place of the first");
        audience.change(viewers[0], |subscriber| subscriber.paused = true);
        audience.change(viewers[2], |_| unreachable!("nobody"));
        assert_eq!(wanted(&audience), [1]);
        audience.change(viewers[0], |subscriber| subscriber.follows = LayerMask::of(2));
        assert_eq!(wanted(&audience), [1], "what is paused wants nothing");
        audience.change(viewers[0], |subscriber| subscriber.paused = false);
        assert_eq!(wanted(&audience), [1, 2]);
        viewers.iter().for_each(|viewer| audience.remove(*viewer));
        audience.remove(viewers[0]);
        assert_eq!(audience.wanted_by, [0; 3]);
    }
}
