//! What the actors of one worker share without a message: timers, demux table, outbox, counters.
//!
//! One `Local` per worker thread, reached through an `Rc`; the simulator makes one per simulated worker. It
//! is borrowed for one call at a time and never across one into another actor.

use crate::api::{Limits, RoomTimes};
use crate::batch::Pool;
use crate::count::{Failures, WorkerCounters, WorkerHeld};
use crate::port::Port;
use crate::room::{Room, RoomMsg};
use crate::session::{Session, SessionMsg};
use crate::shell::{Ending, Woken};
use crate::worker::demux::{Demux, Route};
use crate::worker::outbox::Outbox;
use crate::worker::tick::Tick;
use crate::worker::wheel::{TimerKey, TimerWheel, WakeCounts};
use rondo_media::ids::{Random, RoomId};
use rondo_media::units::{Deadline, WallClock};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a worker's surroundings do for its actors: actix and a socket, or the simulator.
pub trait Host: 'static {
    /// Makes a session actor; `on_end` hears of a panic.
    fn session(&self, local: &Rc<Local>, make: MakeSession, on_end: OnEnd) -> Port<SessionMsg>;
    /// Asks for [`Local::flush`] after the messages that are queued now.
    fn flush_soon(&self);
    /// Sends everything in the outbox, which is then empty.
    fn send(&self, outbox: &mut Outbox);
    /// A deadline came closer than the one the worker sleeps to.
    fn wake_earlier(&self);
}

/// Makes a session on its worker.
pub type MakeSession = Box<dyn FnOnce(Port<SessionMsg>) -> Session>;
/// Makes a room on its worker, from the worker's local state and the room's own port.
pub type MakeRoom = Box<dyn FnOnce(&Rc<Local>, Port<RoomMsg>) -> Room + Send>;
/// Hears how an actor ended.
pub type OnEnd = Box<dyn FnOnce(Ending)>;

/// A worker's share of everything.
pub struct Local {
    /// Index of the worker.
    pub worker: usize,
    /// Bounds.
    pub limits: Limits,
    /// Lifetimes of rooms.
    pub times: RoomTimes,
    /// The wall clock, for sender reports and time stamps of records.
    pub wall: WallClock,
    /// Counters of this worker.
    pub counters: Arc<WorkerCounters>,
    /// Joins that never came up, by reason.
    pub failures: Arc<Failures>,
    /// Address to session.
    pub demux: RefCell<Demux>,
    /// Datagrams of this round.
    outbox: RefCell<Outbox>,
    /// Memory of what actors tell each other.
    pub pool: RefCell<Pool>,
    tick: RefCell<Tick>,
    wheel: RefCell<TimerWheel>,
    wakers: RefCell<Slab<Arc<dyn Woken>>>,
    random: RefCell<Box<dyn Random>>,
    slots: RefCell<Slab<Slot>>,
    flush_asked: Cell<bool>,
    refused_seen: Cell<u64>,
    host: Box<dyn Host>,
}

struct Slot {
    room: RoomId,
    port: Option<Port<SessionMsg>>,
}

impl Local {
    /// The local state of worker `worker`.
    #[allow(clippy::too_many_arguments, reason = "made in two places only: the runtime and the simulator")]
    pub fn new(
        worker: usize,
        limits: Limits,
        times: RoomTimes,
        wall: WallClock,
        counters: Arc<WorkerCounters>,
        failures: Arc<Failures>,
        now: Instant,
        wakeups: Arc<WakeCounts>,
        random: Box<dyn Random>,
        host: Box<dyn Host>,
    ) -> Rc<Self> {
        // A transport that ended a moment ago may still be in the table when the next one comes.
        let transports = limits.sessions_per_worker * limits.transports_per_session * 2;
        Rc::new(Self {
            worker,
            limits,
            times,
            wall,
            counters,
            failures,
            demux: RefCell::new(Demux::new(transports)),
            outbox: RefCell::new(Outbox::new()),
            pool: RefCell::default(),
            tick: RefCell::new(Tick::new(now)),
            wheel: RefCell::new(TimerWheel::new(now, wakeups)),
            wakers: RefCell::default(),
            random: RefCell::new(random),
            slots: RefCell::default(),
            flush_asked: Cell::new(false),
            refused_seen: Cell::new(0),
            host,
        })
    }

    /// The surroundings.
    pub fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// Runs `f` with the worker's random source.
    pub fn with_random<R>(&self, f: impl FnOnce(&mut dyn Random) -> R) -> R {
        f(&mut **self.random.borrow_mut())
    }

    /// Runs `f` with the outbox, then sees to it that what it wrote is sent: soon, or at once when the outbox
    /// has reached its cap.
    pub fn write<R>(&self, f: impl FnOnce(&mut Outbox) -> R) -> R {
        let mut outbox = self.outbox.borrow_mut();
        let result = f(&mut outbox);
        let refused = outbox.refused();
        self.counters.outbox_refused.add(refused - self.refused_seen.replace(refused));
        if outbox.wants_flush() {
            self.send(&mut outbox);
        } else if !outbox.is_empty() && !self.flush_asked.replace(true) {
            self.host.flush_soon();
        }
        result
    }

    /// Sends what is in the outbox.
    pub fn flush(&self) {
        self.flush_asked.set(false);
        let mut outbox = self.outbox.borrow_mut();
        if !outbox.is_empty() {
            self.send(&mut outbox);
        }
    }

    fn send(&self, outbox: &mut Outbox) {
        self.tick.borrow_mut().sent(outbox.datagrams());
        self.counters.runs_sent.add(outbox.runs().len() as u64);
        self.host.send(outbox);
    }

    /// A datagram was received.
    pub fn received_one(&self) {
        self.tick.borrow_mut().received_one();
    }

    /// A batch of video passed.
    pub fn saw_video(&self) {
        self.tick.borrow_mut().saw_video();
    }

    /// How long after the last look at the socket the next one comes; `None`: when something is there.
    pub fn reads_every(&self, now: Instant) -> Option<Duration> {
        self.tick.borrow_mut().reads_every(now)
    }

    /// A timer for an actor of this worker.
    pub fn timer(&self, wakes: Arc<dyn Woken>) -> TimerKey {
        TimerKey(self.wakers.borrow_mut().insert(wakes))
    }

    /// Gives a timer back.
    pub fn drop_timer(&self, key: TimerKey) {
        let _ = self.wheel.borrow_mut().arm(key, None);
        self.wakers.borrow_mut().remove(key.0);
    }

    /// Arms a timer.
    pub fn arm(&self, key: TimerKey, deadline: Option<Deadline>) {
        let earlier = self.wheel.borrow_mut().arm(key, deadline);
        if earlier {
            self.host.wake_earlier();
        }
    }

    /// When the worker must be woken at the latest.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.wheel.borrow_mut().next_deadline()
    }

    /// Wakes every actor whose deadline has come. One whose queue is full is tried again a millisecond later.
    pub fn expire(&self, now: Instant, due: &mut Vec<(TimerKey, rondo_media::units::Why)>) {
        due.clear();
        self.wheel.borrow_mut().expire(now, due);
        self.wake_all(now, due);
    }

    /// Wakes the actors of these timers.
    pub fn wake_all(&self, now: Instant, due: &[(TimerKey, rondo_media::units::Why)]) {
        for (key, why) in due.iter() {
            let waker = self.wakers.borrow().get(key.0).cloned();
            if let Some(Err(crate::port::Refused::Full(()))) = waker.map(|w| w.wake()) {
                self.counters.queue_full.add(1);
                let again = Deadline { at: now + Duration::from_millis(1), why: *why };
                let _ = self.wheel.borrow_mut().arm(*key, Some(again));
            }
        }
    }

    /// Reserves a session's place in the demux table.
    pub fn open_slot(&self, room: RoomId) -> u32 {
        self.slots.borrow_mut().insert(Slot { room, port: None })
    }

    /// Tells the worker who sits in a slot.
    pub fn fill_slot(&self, slot: u32, port: Port<SessionMsg>) {
        if let Some(entry) = self.slots.borrow_mut().get_mut(slot) {
            entry.port = Some(port);
        }
    }

    /// Frees a slot; nothing is routed to it any more.
    pub fn close_slot(&self, slot: u32) {
        let mut demux = self.demux.borrow_mut();
        // Also those of a session that panicked and said nothing of its transports.
        for transport in 0..=(self.limits.transports_per_session * 2).min(255) as u8 {
            demux.remove(Route { slot, transport });
        }
        self.slots.borrow_mut().remove(slot);
    }

    /// Tells what this worker holds; the actors are told by who runs them.
    pub fn tell_held(&self, held: &WorkerHeld) {
        held.slots.set(self.slots.borrow().len());
        held.timers.set(self.wakers.borrow().len());
        held.timers_armed.set(self.wheel.borrow().len());
        let demux = self.demux.borrow();
        held.demux_transports.set(demux.transports());
        held.demux_ufrags.set(demux.ufrags());
        held.demux_addresses.set(demux.addresses());
    }

    /// Who sits in a slot.
    pub fn session(&self, slot: u32) -> Option<Port<SessionMsg>> {
        self.slots.borrow().get(slot).and_then(|entry| entry.port.clone())
    }

    /// Slots and ports of the sessions of a room.
    pub fn sessions_of(&self, room: RoomId) -> Vec<(u32, Port<SessionMsg>)> {
        let slots = self.slots.borrow();
        slots.iter().filter(|(_, s)| s.room == room).filter_map(|(key, s)| Some((key, s.port.clone()?))).collect()
    }
}

/// Values at small stable numbers; freed numbers are used again.
#[derive(Debug)]
pub struct Slab<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { values: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Puts a value in; its number.
    pub fn insert(&mut self, value: T) -> u32 {
        if let Some(key) = self.free.pop() {
            self.values[key as usize] = Some(value);
            return key;
        }
        self.values.push(Some(value));
        (self.values.len() - 1) as u32
    }

    /// Takes a value out.
    pub fn remove(&mut self, key: u32) -> Option<T> {
        let value = self.values.get_mut(key as usize)?.take()?;
        self.free.push(key);
        Some(value)
    }

    /// The value at a number.
    pub fn get(&self, key: u32) -> Option<&T> {
        self.values.get(key as usize)?.as_ref()
    }

    /// The value at a number.
    pub fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        self.values.get_mut(key as usize)?.as_mut()
    }

    /// Numbers and values.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.values.iter().enumerate().filter_map(|(key, value)| Some((key as u32, value.as_ref()?)))
    }

    /// How many values are in.
    pub fn len(&self) -> usize {
        self.values.len() - self.free.len()
    }

    /// No value is in.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
