//! The worker's loop: wait for datagrams, a deadline, a wake or the end; then let the core act and the actors run.
//!
//! One round is: at most `CALLS_MAX` receive calls, due deadlines, one turn for every actor that has
//! something to do, and one flush. `now` is read once for all of it. Nothing that goes wrong with the socket
//! ends the loop or makes it spin: errors are logged once a second and retried after a growing pause, during
//! which deadlines go on.
//!
//! The runtime tells when the socket is readable, unless the core wants it read on a tick: then the runtime does not
//! know the socket, so that no datagram wakes the thread.

use super::socket::{MediaReceiver, RecvBatch};
use super::sys;
use super::wheel::TimerKey;
use crate::count::WorkerCounters;
use rondo_media::units::Why;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::UdpSocket;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::sync::Notify;
use tokio::time::Sleep;

/// What the loop drives. No method may wait; each is called while the core is borrowed, so it may tell actors
/// (they run later) but not call what borrows the core again.
pub trait Core {
    /// When the next deadline comes ([`TimerWheel::next_deadline`](super::wheel::TimerWheel::next_deadline)).
    fn next_deadline(&mut self) -> Option<Instant>;
    /// Acts on the deadlines that have come, and lists them in `due`, which is empty before.
    fn expire(&mut self, now: Instant, due: &mut Vec<(TimerKey, Why)>);
    /// One receive call's datagrams, to be taken out of `batch`.
    fn datagrams(&mut self, now: Instant, batch: &mut RecvBatch);
    /// Once a round, after actors had a turn, and after a [`Wake::wake`]: send what has gathered. Must not wake
    /// the loop itself.
    fn flush(&mut self, now: Instant);
    /// How long after the last look at the socket the next one comes; `None`: when something is there. Asked at the
    /// end of each round.
    fn reads_every(&mut self, now: Instant) -> Option<Duration>;
}

/// Wakes the loop, from anything on its thread: an outbox is no longer empty, or a deadline is earlier than the
/// loop sleeps ([`TimerWheel::arm`](super::wheel::TimerWheel::arm) tells). The loop's turn comes after those of the actors that are already
/// waiting for theirs, so one wake before a batch is worked through sends all of it.
#[derive(Debug, Clone, Default)]
pub struct Wake(Rc<Alert>);

#[derive(Debug, Default)]
struct Alert {
    notify: Notify,
    /// A round is on: it ends with a flush and a look at the deadlines, so nobody needs to be woken for these.
    in_round: Cell<bool>,
}

impl Wake {
    /// Asks for a round; many calls before it are one.
    pub fn wake(&self) {
        if !self.0.in_round.get() {
            self.0.notify.notify_one();
        }
    }
}

/// Receive calls in one round: then actors get their turn, however many datagrams still wait.
const CALLS_MAX: usize = 8;
/// How often the kernel is asked for drops, at most.
const DROPS_EVERY: Duration = Duration::from_secs(1);
/// Pause between two looks at a socket that the runtime would not take.
const LOOKS_WITHOUT_RUNTIME: Duration = Duration::from_millis(4);
/// How often an error is logged, at most.
const LOG_EVERY: Duration = Duration::from_secs(1);
/// Pause after the second receive error in a row; it doubles with each further one up to `PAUSE_MAX`.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Runs the loop of one worker until `stop` is ready. Must be spawned on the worker's thread (`spawn_local`),
/// whose runtime has I/O and time enabled.
///
/// # Errors
/// Only before the first round: the socket cannot be registered with this thread's runtime.
pub async fn drive<C: Core>(
    core: Rc<RefCell<C>>,
    receiver: MediaReceiver,
    wake: Wake,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let watch = Watch::told(receiver.socket())?;
    let counters = Arc::clone(receiver.counters());
    Loop::new(core, receiver, counters).run(watch, &wake, stop).await;
    Ok(())
}

/// The socket as this thread's runtime knows it.
type Registered = AsyncFd<Arc<UdpSocket>>;

/// How the loop learns that something has arrived.
enum Watch {
    /// The runtime tells.
    Told(Registered),
    /// The loop looks, and does everything else then, too.
    Looks { socket: Arc<UdpSocket>, at: Instant },
}

impl Watch {
    fn told(socket: &Arc<UdpSocket>) -> io::Result<Self> {
        sys::readable(Arc::clone(socket)).map(Self::Told)
    }

    /// Goes over to what the core wants. What arrived in between is not lost: registering tells what is there.
    fn follow(self, reads_every: Option<Duration>, now: Instant) -> Self {
        match (self, reads_every) {
            (Self::Told(registered), Some(every)) => Self::Looks { socket: registered.into_inner(), at: now + every },
            (Self::Looks { socket, at }, None) => Self::told(&socket).unwrap_or_else(|error| {
                // Out of memory or descriptors: looking goes on, and this is tried again.
                tracing::warn!(%error, "the media socket cannot be registered; it is read on a tick");
                Self::Looks { socket, at: at.max(now + LOOKS_WITHOUT_RUNTIME) }
            }),
            (same @ (Self::Told(_) | Self::Looks { .. }), _) => same,
        }
    }

    fn looks_at(&self) -> Option<Instant> {
        match self {
            Self::Told(_) => None,
            Self::Looks { at, .. } => Some(*at),
        }
    }

    /// The socket has been read.
    fn read(&mut self, emptied: bool, now: Instant, reads_every: Option<Duration>) {
        if let Self::Looks { at, .. } = self {
            *at = if emptied { now + reads_every.unwrap_or_default() } else { now };
        }
    }
}

/// Where datagrams come from.
trait Source {
    fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize>;
    fn count_drops(&mut self);
}

impl Source for MediaReceiver {
    fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        MediaReceiver::recv(self, batch)
    }
    fn count_drops(&mut self) {
        MediaReceiver::count_drops(self);
    }
}

/// What ended a wait.
enum Woken<'a> {
    Stop,
    Readable(AsyncFdReadyGuard<'a, Arc<UdpSocket>>),
    /// It is time to look at the socket.
    Looks,
    /// A deadline, the end of a pause, or a wake: what is due shows itself.
    Other,
}

struct Loop<C, S> {
    core: Rc<RefCell<C>>,
    source: S,
    batch: RecvBatch,
    due: Vec<(TimerKey, Why)>,
    trouble: Trouble,
    drops_asked: Option<Instant>,
    counters: Arc<WorkerCounters>,
}

impl<C: Core, S: Source> Loop<C, S> {
    fn new(core: Rc<RefCell<C>>, source: S, counters: Arc<WorkerCounters>) -> Self {
        Self {
            core,
            source,
            batch: RecvBatch::new(),
            due: Vec::new(),
            trouble: Trouble::default(),
            drops_asked: None,
            counters,
        }
    }

    async fn run(mut self, mut watch: Watch, wake: &Wake, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let mut alarm = pin!(tokio::time::sleep(Duration::ZERO));
        loop {
            wake.0.in_round.set(false);
            let woken = self.wait(&watch, stop.as_mut(), alarm.as_mut(), wake).await;
            wake.0.in_round.set(true);
            let now = Instant::now();
            self.counters.rounds.add(1);
            let emptied = match woken {
                Woken::Stop => break,
                Woken::Readable(mut guard) => {
                    let emptied = self.receive(now);
                    if emptied {
                        // The kernel stopped because its queue was empty. What arrived since is a new edge of
                        // the edge-triggered readiness, which the runtime has not looked at yet: none is missed.
                        guard.clear_ready();
                    }
                    Some(emptied)
                }
                Woken::Looks => Some(self.receive(now)),
                Woken::Other => None,
            };
            if self.expire(now) | emptied.is_some() {
                // Being readable does not yield by itself: without this actors would starve under load. A mere
                // wake needs none: the actors that were waiting when it came have had their turn.
                tokio::task::yield_now().await;
            }
            self.core.borrow_mut().flush(now);
            let reads_every = self.core.borrow_mut().reads_every(now);
            if let Some(emptied) = emptied {
                watch.read(emptied, now, reads_every);
            }
            watch = watch.follow(reads_every, now);
        }
        self.core.borrow_mut().flush(Instant::now());
    }

    /// Sleeps until something is to be done.
    async fn wait<'a>(
        &mut self,
        watch: &'a Watch,
        stop: Pin<&mut impl Future<Output = ()>>,
        mut alarm: Pin<&mut Sleep>,
        wake: &Wake,
    ) -> Woken<'a> {
        let deadline = self.core.borrow_mut().next_deadline();
        let pause = self.trouble.pause_until;
        // On a tick deadlines wait for the next look, and the look for the end of a pause.
        let (deadline, looks_at) = match watch.looks_at() {
            None => (deadline, None),
            Some(at) => (deadline.map(|deadline| deadline.max(at)), Some(pause.map_or(at, |pause| pause.max(at)))),
        };
        let until = [deadline, pause, looks_at].into_iter().flatten().min();
        if let Some(until) = until.map(tokio::time::Instant::from_std)
            && alarm.deadline() != until
        {
            alarm.as_mut().reset(until);
        }
        let looks = || looks_at.is_some_and(|at| at <= Instant::now());
        let looks_now = looks();
        let told = async {
            match watch {
                Watch::Told(registered) if pause.is_none() => registered.readable().await,
                Watch::Told(_) | Watch::Looks { .. } => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop => Woken::Stop,
            () = std::future::ready(()), if looks_now => Woken::Looks,
            // The only error is a runtime that is going away.
            Ok(guard) = told => Woken::Readable(guard),
            () = alarm, if until.is_some() => if looks() { Woken::Looks } else { Woken::Other },
            () = wake.0.notify.notified() => if looks() { Woken::Looks } else { Woken::Other },
        }
    }

    /// Answers whether the socket was emptied: what comes is waited for.
    fn receive(&mut self, now: Instant) -> bool {
        let mut emptied = false;
        for _ in 0..CALLS_MAX {
            match self.source.recv(&mut self.batch) {
                Ok(_) => {
                    self.trouble.over();
                    emptied = !self.batch.more();
                    self.core.borrow_mut().datagrams(now, &mut self.batch);
                    self.batch.clear();
                    if emptied {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    emptied = true;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.trouble.note(now, &error);
                    emptied = false;
                    break;
                }
            }
        }
        if self.drops_asked.is_none_or(|asked| now.saturating_duration_since(asked) >= DROPS_EVERY) {
            self.drops_asked = Some(now);
            self.source.count_drops();
        }
        emptied
    }

    /// Answers whether a deadline had come.
    fn expire(&mut self, now: Instant) -> bool {
        self.trouble.pause_until = self.trouble.pause_until.filter(|until| *until > now);
        self.due.clear();
        self.core.borrow_mut().expire(now, &mut self.due);
        if self.due.is_empty() {
            return false;
        }
        self.counters.timer_wakeups.add(1);
        true
    }
}

/// Errors of the socket, lately.
#[derive(Debug, Default)]
struct Trouble {
    in_a_row: u32,
    pause_until: Option<Instant>,
    logged: Option<Instant>,
}

impl Trouble {
    /// The socket works. When an error was last logged stays known.
    fn over(&mut self) {
        self.in_a_row = 0;
        self.pause_until = None;
    }

    /// The first error is retried at once: it may be a complaint that is over once it was told. Then the pause
    /// grows: 5 ms, 10 ms, … 1 s.
    fn note(&mut self, now: Instant, error: &io::Error) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.pause_until = self.in_a_row.checked_sub(2).map(|doublings| {
            // 5 ms · 2^8 is beyond a second already.
            now + PAUSE.saturating_mul(1 << doublings.min(8)).min(PAUSE_MAX)
        });
        if self.logged.is_none_or(|logged| now.saturating_duration_since(logged) >= LOG_EVERY) {
            self.logged = Some(now);
            tracing::warn!(%error, in_a_row = self.in_a_row, "receiving from the media socket failed; it is tried again");
        }
    }
}

#[cfg(test)]
#[path = "drive_tests.rs"]
mod tests;
