//! A thread that moves the packets of its clients: batches in, deadlines out.

use crate::client::{Client, Notes, State, wall_clock};
use crate::machine;
use crate::tally::{JoinTimes, Tally, Window};
use mio::{Events, Interest, Poll, Token};
use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{RecvMeta, UdpSocketState};
use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// Sockets are looked at this often, as a network card moderates its interrupts: a wake-up for every packet would be paid in
/// the send call of a server on the same machine. Latency does not suffer, because the kernel stamps what it receives.
const COALESCE: Duration = Duration::from_micros(500);
/// str0m's deadlines are looked at this often.
const TIMERS: Duration = Duration::from_millis(1);
/// Larger than any datagram of a path with an MTU of 1,500.
const SLOT_BYTES: usize = 2048;
const EVENTS: usize = 512;

/// What all threads share.
#[derive(Debug)]
pub struct Shared {
    /// Which packets are measured.
    pub window: Window,
    /// Set to end the threads.
    pub stop: AtomicBool,
}

/// One second of a thread.
pub struct Second {
    /// Which thread.
    pub thread: usize,
    /// What it counted.
    pub tally: Tally,
    /// How long the second was.
    pub length: Duration,
    /// Clients whose media flows.
    pub connected: usize,
    /// Clients that ended by themselves.
    pub failed: usize,
}

/// What is left of a thread.
pub struct Outcome {
    /// How long joins took.
    pub joins: JoinTimes,
    /// Its clients: their sockets stay open until the server has been told.
    pub clients: Vec<Client>,
}

/// A running thread.
pub struct Thread {
    /// Where clients go.
    pub clients: Sender<Client>,
    /// Its end.
    pub handle: std::thread::JoinHandle<io::Result<Outcome>>,
}

/// Starts thread `number`.
///
/// # Errors
/// What the system said.
pub fn start(number: usize, shared: Arc<Shared>, seconds: UnboundedSender<Second>) -> io::Result<Thread> {
    let (clients, arriving) = std::sync::mpsc::channel();
    let handle = std::thread::Builder::new().name(format!("load-{number}")).spawn(move || {
        let mut io = Io {
            number,
            shared,
            arriving,
            poll: Poll::new()?,
            places: Vec::new(),
            senders: Vec::new(),
            tally: Tally::default(),
            joins: JoinTimes::default(),
            buffers: vec![0; quinn_udp::BATCH_SIZE * SLOT_BYTES].into(),
        };
        io.run(&seconds)?;
        Ok(io.finish())
    })?;
    Ok(Thread { clients, handle })
}

/// A client and how its socket is read.
struct Place {
    client: Client,
    socket: UdpSocketState,
}

struct Io {
    number: usize,
    shared: Arc<Shared>,
    arriving: Receiver<Client>,
    poll: Poll,
    places: Vec<Place>,
    /// Places of publishers.
    senders: Vec<usize>,
    tally: Tally,
    joins: JoinTimes,
    /// `BATCH_SIZE` slots of `SLOT_BYTES`, into which the kernel writes.
    buffers: Box<[u8]>,
}

impl Io {
    fn run(&mut self, seconds: &UnboundedSender<Second>) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        let (mut timers_at, mut second_began) = (Instant::now(), Instant::now());
        let mut cpu = machine::thread_cpu().unwrap_or_default();
        while !self.shared.stop.load(Relaxed) {
            while let Ok(client) = self.arriving.try_recv() {
                self.seat(client)?;
            }
            let now = Instant::now();
            if now >= timers_at {
                timers_at = now + TIMERS;
                self.wake(now);
            }
            let next = self.send_due().unwrap_or(now + COALESCE);
            pause(next.saturating_duration_since(Instant::now()).min(COALESCE));
            match self.poll.poll(&mut events, Some(Duration::ZERO)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let mut next = self.next_due();
            for event in &events {
                let Token(place) = event.token();
                while self.receive(place)? {}
                // A publisher does not wait for everybody's packets to be decrypted.
                if next.is_some_and(|next| next <= Instant::now()) {
                    next = self.send_due();
                }
            }
            let length = second_began.elapsed();
            if length >= Duration::from_secs(1) {
                second_began += length;
                let busy = machine::thread_cpu().unwrap_or_default();
                self.tally.busy = busy.saturating_sub(cpu);
                cpu = busy;
                // Nobody listens when the run is being ended.
                let _ = seconds.send(self.second(length));
            }
        }
        let _ = seconds.send(self.second(second_began.elapsed()));
        Ok(())
    }

    fn second(&mut self, length: Duration) -> Second {
        let count = |is: fn(&State) -> bool| self.places.iter().filter(|place| is(place.client.state())).count();
        Second {
            thread: self.number,
            connected: count(|state| *state == State::Connected),
            failed: count(|state| matches!(state, State::Failed(_))),
            tally: std::mem::take(&mut self.tally),
            length,
        }
    }

    fn seat(&mut self, mut client: Client) -> io::Result<()> {
        let socket = UdpSocketState::new((&client.socket).into())?;
        // Off again: on loopback the kernel would then never cut a server's large sends into packets, a work that
        // every packet to a real network costs.
        if socket.gro_segments() > 1 {
            setsockopt(&client.socket, sockopt::UdpGroSegment, &false)?;
        }
        let place = self.places.len();
        self.poll.registry().register(&mut client.socket, Token(place), Interest::READABLE)?;
        if client.publishes() {
            self.senders.push(place);
        }
        self.places.push(Place { client, socket });
        self.with(place, |client, notes| client.wake(Instant::now(), notes));
        Ok(())
    }

    fn with(&mut self, place: usize, work: impl FnOnce(&mut Client, &mut Notes<'_>)) {
        let mut notes = Notes { window: &self.shared.window, tally: &mut self.tally, joins: &mut self.joins };
        if let Some(place) = self.places.get_mut(place) {
            work(&mut place.client, &mut notes);
        }
    }

    fn wake(&mut self, now: Instant) {
        for place in 0..self.places.len() {
            if self.places[place].client.wake_at <= now {
                self.with(place, |client, notes| client.wake(now, notes));
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.senders.iter().filter_map(|place| self.places[*place].client.due()).min()
    }

    /// Sends what is due; answers when the next is.
    fn send_due(&mut self) -> Option<Instant> {
        for sender in 0..self.senders.len() {
            let place = self.senders[sender];
            if self.places[place].client.due().is_some_and(|due| due <= Instant::now()) {
                self.with(place, |client, notes| client.send_due(notes));
            }
        }
        self.next_due()
    }

    /// Receives one batch; answers whether there may be more.
    fn receive(&mut self, place: usize) -> io::Result<bool> {
        let Some(Place { client, socket }) = self.places.get_mut(place) else { return Ok(false) };
        let mut metas = [RecvMeta::default(); quinn_udp::BATCH_SIZE];
        let mut slots = self.buffers.chunks_exact_mut(SLOT_BYTES);
        let mut vectors: [IoSliceMut<'_>; quinn_udp::BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(slots.next().unwrap_or_default()));
        let received = match socket.recv((&client.socket).into(), &mut vectors, &mut metas) {
            Ok(received) => received,
            // Nothing there, or the server refused what an earlier send brought it: ICE finds out by itself.
            Err(_) => return Ok(false),
        };
        let mut notes = Notes { window: &self.shared.window, tally: &mut self.tally, joins: &mut self.joins };
        for (meta, slot) in metas.iter().take(received).zip(self.buffers.chunks_exact(SLOT_BYTES)) {
            let kernel = meta.timestamp.unwrap_or_else(wall_clock);
            client.receive(meta.addr, slot.get(..meta.len).unwrap_or(slot), kernel, &mut notes);
        }
        Ok(received == quinn_udp::BATCH_SIZE)
    }

    fn finish(self) -> Outcome {
        let clients = self.places.into_iter().map(|place| place.client).collect();
        Outcome { joins: self.joins, clients }
    }
}

#[expect(clippy::disallowed_methods, reason = "this thread is the load tool's own; nobody waits for it")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
