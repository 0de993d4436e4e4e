//! How the rate of one viewer's path is shared out among what it is sent.

use super::Carry;
use super::choice::choose;
use super::play::Playing;
use crate::api::View;
use crate::port::Post;
use crate::room::RoomMsg;
use rondo_media::congestion::allocation::{Allocator, Demand, LAYERS_MAX, Rank};
use rondo_media::congestion::{Estimate, OVERHEAD};
use rondo_media::receive::{LayerInfo, LayerMask};
use rondo_media::send::{Egress, Forwarded};
use rondo_media::units::{Bitrate, Deadline, Why};
use std::time::{Duration, Instant};

/// What a session remembers for it.
#[derive(Default)]
pub struct Sharing {
    pub allocator: Allocator,
    demands: Vec<Demand>,
    sound: Sound,
    /// Somebody is sent less than would be of use: a second may bring more.
    pub short: bool,
}

/// What sound takes, measured by the second.
#[derive(Default)]
struct Sound {
    bytes: u64,
    since: Option<Instant>,
    rate: Bitrate,
}

impl Sharing {
    /// While everything is sent as well as it is of use, only a fall of the rate changes anything.
    fn is_due(&self, now: Instant, target: Bitrate) -> bool {
        self.allocator.is_due(now, Some(target)) && (self.short || self.allocator.fell(Some(target)))
    }

    /// Sound was sent.
    pub fn sound(&mut self, sent: Forwarded) {
        self.sound.bytes += sent.bytes + u64::from(sent.packets) * OVERHEAD;
    }
}

impl Sound {
    /// The rate of the last second; who begins to speak counts at once, and who falls silent for a while yet.
    fn rate(&mut self, now: Instant) -> Bitrate {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        if passed >= Duration::from_millis(900) {
            let measured = Bitrate::of(std::mem::take(&mut self.bytes), passed);
            self.rate = measured.max(self.rate.percent(90));
            self.since = Some(now);
        }
        self.rate
    }
}

/// What a layer takes with all its headers, where that was measured; else what layers of its place usually take.
fn rate_of(info: &LayerInfo, place: usize, of: usize) -> Bitrate {
    // 1,150 bytes of payload come with some 76 of RTP, extensions, tag, UDP and IP.
    let usual = if of == 1 { 800 } else { [150, 500, 1_500].get(place).copied().unwrap_or(1_500) };
    info.bits_per_second.map_or(Bitrate::from_kbps(usual), Bitrate::from_bps).percent(107)
}

/// What a viewer may want of one video, of layers that come and of those that rest at their publisher. `most`: place of
/// the one that its view asks for.
fn demand(carry: &Carry, most: usize, shown: bool, speaks: bool) -> Demand {
    let View { width_px, height_px, priority, .. } = carry.view;
    let area_px = width_px.unwrap_or(0).saturating_mul(height_px.unwrap_or(0));
    let rank = Rank { priority: priority.unwrap_or(0), speaks, area_px };
    let mut demand = Demand { shown, rank, most, ..Demand::default() };
    // A better layer never counts for less than a worse one, however they were measured.
    let mut lowest = Bitrate::ZERO;
    for (place, info) in carry.layers.iter().enumerate().take(LAYERS_MAX) {
        if info.known {
            lowest = lowest.max(rate_of(info, place, carry.layers.len()));
            demand.layers[place] = Some(lowest);
        }
    }
    demand
}

impl Playing {
    fn estimate(&self) -> Option<Estimate> {
        self.egress.as_ref()?.estimate()
    }

    /// Shares the rate out anew if a second has passed, or the rate has fallen.
    pub(super) fn share_if_due(&mut self, now: Instant, room: &mut Post<RoomMsg>) {
        if let Some(target) = self.egress.as_ref().and_then(Egress::target)
            && self.sharing.is_due(now, target)
        {
            self.share(now, room);
        }
    }

    /// Shares the rate out anew.
    pub(super) fn share(&mut self, now: Instant, room: &mut Post<RoomMsg>) {
        let Some(estimate) = self.estimate() else { return };
        let mut demands = std::mem::take(&mut self.sharing.demands);
        demands.clear();
        demands.extend(self.sections.iter().map(|carried| match &carried.carry {
            Some(carry) if carried.is_video => demand(carry, carried.top, !carried.unwanted(self.remb), carried.speaks),
            Some(_) | None => Demand::default(),
        }));
        let sound = self.sharing.sound.rate(now);
        let available = available(&estimate, sound, &demands);
        let told = self.sharing.allocator.allocate(now, Some(available), sound, &demands);
        for (index, demand) in demands.iter().enumerate() {
            // While nothing of it comes, or is wanted, the last choice stands.
            if demand.shown && demand.layers.iter().any(Option::is_some) {
                self.give(now, index, room);
            }
        }
        self.sharing.demands = demands;
        self.sharing.short = told.short;
        if let Some(egress) = &mut self.egress {
            egress.set_wanted(if told.short { told.wanted } else { Bitrate::ZERO });
        }
    }

    /// A section gets the layer that was chosen for it, or nothing.
    fn give(&mut self, now: Instant, index: usize, room: &mut Post<RoomMsg>) {
        let place = self.sharing.allocator.layer(index);
        let (Some(egress), Some(carried)) = (&mut self.egress, self.sections.get_mut(index)) else { return };
        if carried.starved != place.is_none() {
            carried.starved = place.is_none();
            egress.pause(index, carried.held(self.remb));
            if let (Some(carry), false) = (&carried.carry, carried.starved) {
                super::play::ask(room, carry.track, carried.choice.layer);
            }
        }
        let (Some(carry), Some(place)) = (&carried.carry, place) else { return };
        let unknown = carry.layers.iter().filter(|info| !info.known);
        let unknown = unknown.fold(LayerMask::NONE, |all, info| all.with(info.layer));
        // Until the one that was chosen comes, the best below it; and one that never came may turn out to be worth it.
        let all = choose(&carry.layers, &carry.view);
        let below = choose(carry.layers.get(..=place).unwrap_or_default(), &carry.view);
        carried.wished = below.wished.and(all.wished.without(all.wished.without(unknown)));
        if let Some(choice) = below.now {
            self.take(now, index, choice, room);
        }
        self.follow(now, index, room);
    }

    /// When the rate is shared out anew if nothing happens.
    pub(super) fn share_deadline(&self) -> Option<Deadline> {
        self.egress.as_ref()?.target()?;
        let at = self.sharing.allocator.due_at().filter(|_| self.sharing.short)?;
        Some(Deadline { at, why: Why::Estimate })
    }
}

/// What may be shared out. While the path has told nothing, everybody is seen: where it begins is a guess, and a source
/// with one layer would else never begin.
fn available(estimate: &Estimate, sound: Bitrate, demands: &[Demand]) -> Bitrate {
    if estimate.proven {
        return estimate.target;
    }
    let bases = demands.iter().filter(|demand| demand.shown).filter_map(|demand| demand.layers.iter().flatten().next());
    bases.fold(sound, |sum, base| sum.saturating_add(*base)).max(estimate.target)
}
