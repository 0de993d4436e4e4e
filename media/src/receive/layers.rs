//! The simulcast layers of one publisher's section: which of them come, how large they are and what they cost.

use crate::codec::vp9::SpatialSizes;
use crate::transport::LAYERS_MAX;
use crate::units::{Deadline, Why};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One layer of a track, as its viewers choose by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerInfo {
    /// Its number: its place in the publisher's offer.
    pub layer: u8,
    /// Packets of it come.
    pub available: bool,
    /// Packets of it have come, now or before.
    pub known: bool,
    /// Payload, measured over the last second that was whole; `None` before that.
    pub bits_per_second: Option<u64>,
    /// Frames a second, as above.
    pub fps: Option<u8>,
    /// Width and height in pixels, where its key frames tell.
    pub size: Option<(u16, u16)>,
    /// The highest temporal layer of it; 0 where there are none.
    pub temporal_max: u8,
    /// Sizes of the spatial layers inside it, where there are any and they tell.
    pub spatial: Option<SpatialSizes>,
}

/// Some layers of a track.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LayerMask(u8);

impl LayerMask {
    /// No layer.
    pub const NONE: Self = Self(0);

    /// One layer.
    pub fn of(layer: u8) -> Self {
        Self(1u8.checked_shl(u32::from(layer)).unwrap_or(0))
    }

    /// The first `count` layers.
    pub fn first(count: usize) -> Self {
        (0..count.min(LAYERS_MAX)).fold(Self::NONE, |all, layer| all.with(layer as u8))
    }

    /// With one more layer.
    #[must_use]
    pub fn with(self, layer: u8) -> Self {
        Self(self.0 | Self::of(layer).0)
    }

    /// With the layers of another.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Without the layers of another.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether a layer is among them.
    pub fn contains(self, layer: u8) -> bool {
        self.0 & Self::of(layer).0 != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Their numbers, up to [`LAYERS_MAX`].
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..LAYERS_MAX as u8).filter(move |layer| self.contains(*layer))
    }
}

/// All layers of a track, lowest quality first; shared by everybody who watches it.
pub type LayerList = Arc<[LayerInfo]>;

/// A packet as this measures it.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// RTP time: packets of one frame have the same.
    pub rtp_time: u32,
    /// Payload.
    pub bytes: usize,
    /// Of the key frame that begins with it.
    pub size: Option<(u16, u16)>,
    /// The same of each of its spatial layers.
    pub spatial: Option<SpatialSizes>,
    /// Temporal layer; 0 where there is none.
    pub temporal: u8,
    /// It begins a key frame.
    pub key_frame: bool,
}

/// See the module. Layers are *as they come*: one that never came, or that stopped while others go on, is not available;
/// where all have stopped, none is after a while.
///
/// They are in order of picture size where all of those that come tell one; else as in the offer, but that a layer with
/// clearly more bits a second than the one above it takes its place, until that is clearly the other way round.
#[derive(Debug)]
pub struct Layers {
    each: Vec<Layer>,
    /// Numbers of the layers, lowest quality first.
    order: Vec<u8>,
    /// When the second began that is measured now.
    since: Option<Instant>,
    told: Option<LayerList>,
    changed: bool,
}

#[derive(Debug, Clone, Default)]
struct Layer {
    last: Option<Instant>,
    available: bool,
    rtp_time: Option<u32>,
    bytes: u64,
    frames: u32,
    bits_per_second: Option<u64>,
    fps: Option<u8>,
    size: Option<(u16, u16)>,
    temporal_max: u8,
    spatial: Option<SpatialSizes>,
    /// Frames since another layer came last.
    alone: u32,
    /// The newest key frame: its RTP time and bytes so far.
    key_frame: Option<(u32, u64)>,
}

impl Layers {
    /// A layer that is silent for so long while others go on has stopped.
    pub const STOPPED_AFTER: Duration = Duration::from_millis(500);
    /// Frames of another layer in that time, at least: a pause of all layers stops none.
    const STOPPED_FRAMES: u32 = 3;
    /// Where there are several: when all of them are silent for so long, the publisher may have stopped sending the others
    /// by our own wish. Long enough for a shared screen on which nothing moves.
    pub const ALL_STOPPED_AFTER: Duration = Duration::from_secs(2);
    const MEASURED_OVER: Duration = Duration::from_secs(1);

    /// `count` layers, at least one, at most [`LAYERS_MAX`].
    pub fn new(count: usize) -> Self {
        let each = vec![Layer::default(); count.clamp(1, LAYERS_MAX)];
        let order = (0..each.len() as u8).collect();
        Self { each, order, since: None, told: None, changed: false }
    }

    /// A new packet of a layer.
    pub fn received(&mut self, now: Instant, layer: u8, packet: Measured) {
        let Some(this) = self.each.get_mut(usize::from(layer)) else { return };
        this.bytes += packet.bytes as u64;
        // A repaired packet of an earlier frame begins none.
        let new_frame = this.rtp_time.is_none_or(|last| packet.rtp_time.wrapping_sub(last).cast_signed() > 0);
        if new_frame {
            this.rtp_time = Some(packet.rtp_time);
            this.frames += 1;
        }
        this.last = Some(now);
        self.changed |= !this.available || packet.temporal > this.temporal_max;
        this.available = true;
        this.temporal_max = this.temporal_max.max(packet.temporal);
        if packet.key_frame && this.key_frame.is_none_or(|(time, _)| time != packet.rtp_time) {
            this.key_frame = Some((packet.rtp_time, 0));
        }
        if let Some((time, bytes)) = &mut this.key_frame
            && *time == packet.rtp_time
        {
            *bytes += packet.bytes as u64;
        }
        if packet.size.is_some() && (this.size, this.spatial) != (packet.size, packet.spatial) {
            (this.size, this.spatial) = (packet.size, packet.spatial);
            self.changed = true;
            self.rank();
        }
        if new_frame {
            self.judge(now, layer);
        }
        self.measure(now);
    }

    /// A frame of `layer` began: others that have been silent for too long have stopped.
    fn judge(&mut self, now: Instant, layer: u8) {
        for (index, other) in self.each.iter_mut().enumerate() {
            if index == usize::from(layer) {
                other.alone = 0;
                continue;
            }
            other.alone += 1;
            let silent = other.last.is_none_or(|last| now.saturating_duration_since(last) >= Self::STOPPED_AFTER);
            if other.available && silent && other.alone >= Self::STOPPED_FRAMES {
                other.stop();
                self.changed = true;
            }
        }
    }

    /// When the silence of all layers is to be noticed.
    pub fn deadline(&self) -> Option<Deadline> {
        if self.each.len() < 2 || !self.each.iter().any(|layer| layer.available) {
            return None;
        }
        let newest = self.each.iter().filter_map(|layer| layer.last).max()?;
        Some(Deadline { at: newest + Self::ALL_STOPPED_AFTER, why: Why::Layers })
    }

    /// Notices it.
    pub fn wake(&mut self, now: Instant) {
        if self.deadline().is_some_and(|deadline| deadline.at <= now) {
            self.each.iter_mut().for_each(Layer::stop);
            self.changed = true;
        }
    }

    /// Ends the second that is measured, if it is over.
    fn measure(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        if passed < Self::MEASURED_OVER {
            return;
        }
        self.since = Some(now);
        let ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX).max(1);
        // After a pause there is no whole second to measure.
        let paused = passed >= 2 * Self::MEASURED_OVER;
        for layer in &mut self.each {
            let (bytes, frames) = (std::mem::take(&mut layer.bytes), std::mem::take(&mut layer.frames));
            // One that began in this second has no whole one yet.
            if layer.available && !paused && (bytes > 0 || layer.bits_per_second.is_some()) {
                layer.bits_per_second = Some(bytes * 8_000 / ms);
                layer.fps = Some(u8::try_from((u64::from(frames) * 1_000 + ms / 2) / ms).unwrap_or(u8::MAX));
            }
        }
        self.rank();
        self.changed |= self.rates_moved();
    }

    /// Puts the layers in order.
    fn rank(&mut self) {
        let each = &self.each;
        let of = |layer: &u8| each.get(usize::from(*layer));
        let area = |layer: &u8| {
            of(layer).and_then(|l| l.size).map_or(0, |(width, height)| u32::from(width) * u32::from(height))
        };
        if each.iter().filter(|layer| layer.available).all(|layer| layer.size.is_some()) {
            // Among equals the offer decides.
            self.order.sort_by_key(|layer| (area(layer), *layer));
            return;
        }
        let rate = |layer: &u8| of(layer).filter(|l| l.available).and_then(|l| l.bits_per_second);
        for _ in 1..self.order.len() {
            for at in 1..self.order.len() {
                let [lower, upper] = [at - 1, at].map(|at| self.order.get(at).and_then(rate));
                if lower.zip(upper).is_some_and(|(lower, upper)| lower > upper + upper / 2) {
                    self.order.swap(at - 1, at);
                }
            }
        }
    }

    /// Whether a bit rate is a fifth away from what was told, or was not told at all.
    fn rates_moved(&self) -> bool {
        let Some(told) = &self.told else { return true };
        told.iter().any(|told| {
            let now = self.each.get(usize::from(told.layer)).and_then(|layer| layer.bits_per_second);
            match (told.bits_per_second, now) {
                (Some(told), Some(now)) => told.abs_diff(now) > told / 5,
                (told, now) => told != now,
            }
        })
    }

    /// What is to be told of the layers, if that has changed: availability at once, bit rates each second at most.
    pub fn news(&mut self) -> Option<LayerList> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let all: LayerList = self.list().into();
        self.told = Some(Arc::clone(&all));
        Some(all)
    }

    /// All layers, lowest quality first.
    pub fn list(&self) -> Vec<LayerInfo> {
        let info = |number: &u8| Some(self.each.get(usize::from(*number))?.info(*number));
        self.order.iter().filter_map(info).collect()
    }

    /// Bytes of the newest key frame of a layer, as far as it has come, and the layer's bit rate.
    pub fn key_frame_cost(&self, layer: u8) -> Option<(u64, u64)> {
        let layer = self.each.get(usize::from(layer))?;
        Some((layer.key_frame?.1, layer.bits_per_second?))
    }
}

impl Layer {
    fn stop(&mut self) {
        // What it took is what it would take if it came again.
        (self.available, self.fps) = (false, None);
    }

    fn info(&self, layer: u8) -> LayerInfo {
        LayerInfo {
            layer,
            available: self.available,
            known: self.last.is_some(),
            bits_per_second: self.bits_per_second,
            fps: self.fps,
            size: self.size,
            temporal_max: self.temporal_max,
            spatial: self.spatial,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    fn start() -> Instant {
        Instant::now()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Frames of `layers`, one packet each, from `from` to `to`, 40 ms apart. Bytes by layer.
    fn run(layers: &mut Layers, t0: Instant, (from, to): (u64, u64), which: &[u8], bytes: [usize; 3]) {
        for at in (from..to).step_by(40) {
            for layer in which {
                let bytes = bytes[usize::from(*layer)];
                let packet = Measured {
                    rtp_time: at as u32 * 90,
                    bytes,
                    size: None,
                    spatial: None,
                    temporal: 0,
                    key_frame: at == 0,
                };
                layers.received(t0 + ms(at), *layer, packet);
            }
        }
    }

    fn available(layers: &Layers) -> Vec<u8> {
        let mut all: Vec<u8> = layers.list().iter().filter(|info| info.available).map(|info| info.layer).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn layers_are_as_they_come_and_one_that_stops_is_gone_after_half_a_second() {
        let (t0, mut layers) = (start(), Layers::new(3));
        assert_eq!(available(&layers), [0; 0]);
        run(&mut layers, t0, (0, 200), &[0, 1], [100; 3]);
        assert_eq!(available(&layers), [0, 1]);
        assert!(layers.news().is_some() && layers.news().is_none());
        // The last frame of layer 1 came at 160 ms.
        run(&mut layers, t0, (200, 660), &[0], [100; 3]);
        assert_eq!(available(&layers), [0, 1], "480 ms are not enough");
        run(&mut layers, t0, (680, 700), &[0], [100; 3]);
        assert_eq!(available(&layers), [0]);
        assert!(layers.news().is_some());
        run(&mut layers, t0, (720, 730), &[1], [100; 3]);
        assert_eq!(available(&layers), [0, 1], "with its first packet it is back");
    }

    #[test]
    fn a_pause_of_everything_stops_nothing() {
        let (t0, mut layers) = (start(), Layers::new(2));
        run(&mut layers, t0, (0, 200), &[0, 1], [100; 3]);
        run(&mut layers, t0, (5_000, 5_030), &[0], [100; 3]);
        assert_eq!(available(&layers), [0, 1], "who comes first after it is no witness");
        run(&mut layers, t0, (5_040, 5_200), &[0, 1], [100; 3]);
        assert_eq!(available(&layers), [0, 1]);
        // Unless it lasts, and somebody looks at the clock. The last frame came at 5,160 ms.
        let deadline = layers.deadline().unwrap();
        assert_eq!((deadline.at, deadline.why), (t0 + ms(7_160), Why::Layers));
        layers.news();
        layers.wake(t0 + ms(7_159));
        assert!(layers.news().is_none() && available(&layers) == [0, 1]);
        layers.wake(t0 + ms(7_160));
        assert!(layers.news().is_some() && available(&layers).is_empty());
        assert_eq!(layers.deadline(), None);
        let mut single = Layers::new(1);
        run(&mut single, t0, (0, 200), &[0], [100; 3]);
        assert_eq!(single.deadline(), None, "there is nothing else to send for");
    }

    #[test]
    fn rates_are_measured_by_the_second_and_told_when_they_moved() {
        let (t0, mut layers) = (start(), Layers::new(2));
        // 25 frames a second of 250 and 1,000 bytes: 50 and 200 kbit/s; the first second is not whole at 960 ms.
        run(&mut layers, t0, (0, 1_000), &[1, 0], [1_000, 250, 0]);
        assert!(layers.news().is_some_and(|news| news.iter().all(|info| info.bits_per_second.is_none())));
        run(&mut layers, t0, (1_000, 1_010), &[1, 0], [1_000, 250, 0]);
        let news = layers.news().unwrap();
        let told: Vec<_> = news.iter().map(|i| (i.layer, i.bits_per_second.unwrap(), i.fps.unwrap())).collect();
        // The packet that ends the second is in it, of the other layer it is in the next one.
        assert_eq!(told, [(1, 52_000, 26), (0, 200_000, 25)], "by bit rate, not as offered");
        let order = |layers: &Layers| layers.list().iter().map(|info| info.layer).collect::<Vec<_>>();
        run(&mut layers, t0, (1_040, 3_010), &[1, 0], [1_000, 250, 0]);
        assert!(layers.news().is_none(), "nothing has moved by a fifth");
        run(&mut layers, t0, (3_040, 5_010), &[1, 0], [500, 650, 0]);
        assert!(layers.news().is_some());
        assert_eq!(order(&layers), [1, 0], "a little more is no other order");
        run(&mut layers, t0, (5_040, 7_010), &[1, 0], [200, 650, 0]);
        assert_eq!(order(&layers), [0, 1]);
        // Nothing came for three seconds: no rate is measured of that.
        let before = layers.list();
        run(&mut layers, t0, (10_000, 10_010), &[1, 0], [200, 650, 0]);
        assert_eq!(layers.list(), before);
    }

    #[test]
    fn sizes_go_before_rates_and_before_the_offer() {
        let (t0, mut layers) = (start(), Layers::new(3));
        let key =
            |size, rtp_time| Measured { rtp_time, bytes: 1_000, size, spatial: None, temporal: 1, key_frame: true };
        layers.received(t0, 0, key(Some((1280, 720)), 1));
        layers.received(t0, 1, key(Some((320, 180)), 1));
        let order = |layers: &Layers| layers.list().iter().map(|info| info.layer).collect::<Vec<_>>();
        assert_eq!(order(&layers), [2, 1, 0], "one that has not come is below all");
        layers.received(t0, 2, key(None, 1));
        assert_eq!(order(&layers), [2, 1, 0], "one that does not tell changes nothing");
        layers.received(t0 + ms(1), 2, key(Some((640, 360)), 2));
        assert_eq!(order(&layers), [1, 2, 0]);
        assert_eq!(layers.list()[0].temporal_max, 1);
        let mut equal = Layers::new(3);
        [2, 0, 1].into_iter().for_each(|layer| equal.received(t0, layer, key(Some((640, 360)), 1)));
        assert_eq!(order(&equal), [0, 1, 2], "as offered");
    }

    #[test]
    fn a_key_frame_costs_its_bytes() {
        let (t0, mut layers) = (start(), Layers::new(1));
        let packet = |rtp_time, key_frame| Measured {
            rtp_time,
            bytes: 1_000,
            size: None,
            spatial: None,
            temporal: 0,
            key_frame,
        };
        for (at, rtp_time, key_frame) in [(0, 1, true), (1, 1, false), (2, 1, false), (40, 2, false), (1_000, 3, false)]
        {
            layers.received(t0 + ms(at), 0, packet(rtp_time, key_frame));
        }
        assert_eq!(layers.key_frame_cost(0), Some((3_000, 40_000)));
        assert_eq!(layers.key_frame_cost(1), None);
    }
}
