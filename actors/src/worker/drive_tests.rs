use super::*;
use crate::worker::outbox::Outbox;
use crate::worker::socket::{MediaSender, MediaSocket};
use crate::worker::wheel::TimerWheel;
use rondo_media::units::Deadline;
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::task::Poll;
use tokio::sync::oneshot;

/// Longest wait for a condition; the tests wait for far less.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends everything back to where it came from, and remembers what it was told.
struct Echo {
    wheel: TimerWheel,
    outbox: Outbox,
    sender: MediaSender,
    expired: Vec<(u32, Why)>,
    received: u64,
    /// Something happened.
    told: Rc<Notify>,
    /// Key 0 is armed again this long after it has fired.
    every: Option<Duration>,
    /// How the socket is read.
    reads_every: Option<Duration>,
}

impl Core for Echo {
    fn next_deadline(&mut self) -> Option<Instant> {
        self.wheel.next_deadline()
    }
    fn expire(&mut self, now: Instant, due: &mut Vec<(TimerKey, Why)>) {
        self.wheel.expire(now, due);
        if due.is_empty() {
            return;
        }
        self.expired.extend(due.iter().map(|(key, why)| (key.0, *why)));
        if let Some(every) = self.every {
            let _ = self.wheel.arm(TimerKey(0), Some(Deadline { at: now + every, why: Why::Statistics }));
        }
        self.told.notify_one();
    }
    fn datagrams(&mut self, _now: Instant, batch: &mut RecvBatch) {
        for datagram in batch.drain() {
            self.received += 1;
            self.outbox.push(datagram.from, &datagram.bytes);
        }
        self.told.notify_one();
    }
    fn flush(&mut self, _now: Instant) {
        self.sender.send(&self.outbox);
        self.outbox.clear();
    }
    fn reads_every(&mut self, _now: Instant) -> Option<Duration> {
        self.reads_every
    }
}

struct Bench {
    addr: SocketAddr,
    core: Rc<RefCell<Echo>>,
    wake: Wake,
    counters: Arc<WorkerCounters>,
    told: Rc<Notify>,
}

impl Bench {
    fn new() -> (Self, MediaReceiver) {
        let socket = MediaSocket::open(Ipv4Addr::LOCALHOST.into(), 0).unwrap();
        let addr = socket.addr();
        let counters = Arc::new(WorkerCounters::default());
        let (receiver, sender) = socket.split(Arc::clone(&counters));
        let told = Rc::new(Notify::new());
        let core = Echo {
            wheel: TimerWheel::new(Instant::now(), Arc::default()),
            outbox: Outbox::new(),
            sender,
            expired: Vec::new(),
            received: 0,
            told: Rc::clone(&told),
            every: None,
            reads_every: None,
        };
        (Self { addr, core: Rc::new(RefCell::new(core)), wake: Wake::default(), counters, told }, receiver)
    }

    fn arm(&self, key: u32, after: Duration, why: Why) {
        if self.core.borrow_mut().wheel.arm(TimerKey(key), Some(Deadline { at: Instant::now() + after, why })) {
            self.wake.wake();
        }
    }

    /// Waits until the core has seen enough.
    async fn until(&self, enough: impl Fn(&Echo) -> bool) {
        let wait = async {
            while !enough(&self.core.borrow()) {
                self.told.notified().await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("in time");
    }
}

fn on_worker<F: Future<Output = ()>>(test: F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

/// Runs the loop beside `test`, then stops it and waits for its end.
fn beside_loop<F: Future<Output = ()>>(test: impl FnOnce(Rc<Bench>) -> F) {
    on_worker(async {
        let (bench, receiver) = Bench::new();
        let bench = Rc::new(bench);
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async { drop(stopped.await) };
        let running = tokio::task::spawn_local(drive(Rc::clone(&bench.core), receiver, bench.wake.clone(), stopped));
        test(bench).await;
        drop(stop);
        tokio::time::timeout(PATIENCE, running).await.expect("the loop ends when it is told to").unwrap().unwrap();
    });
}

#[test]
fn a_thousand_datagrams_come_back_in_order() {
    beside_loop(async |bench: Rc<Bench>| {
        let peer = tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        peer.connect(bench.addr).await.unwrap();
        let mut buf = [0; 2_000];
        for burst in 0..20u32 {
            for n in 0..50 {
                let number = burst * 50 + n;
                peer.send(&number.to_be_bytes().repeat(1 + number as usize % 300)).await.unwrap();
            }
            for n in 0..50 {
                let number = burst * 50 + n;
                let len = tokio::time::timeout(PATIENCE, peer.recv(&mut buf)).await.expect("in time").unwrap();
                assert_eq!(&buf[..len], number.to_be_bytes().repeat(1 + number as usize % 300));
            }
        }
        assert_eq!(bench.counters.datagrams_received.get(), 1_000);
        assert_eq!(bench.counters.datagrams_sent.get(), 1_000);
        let rounds = bench.counters.rounds.get();
        assert!(rounds < 2_000, "{rounds} rounds");
    });
}

#[test]
fn a_deadline_earlier_than_the_sleep_wakes_the_loop() {
    beside_loop(async |bench: Rc<Bench>| {
        bench.arm(1, Duration::from_secs(3_600), Why::Liveness);
        bench.arm(2, Duration::from_millis(30), Why::Nack);
        tokio::task::yield_now().await;
        bench.arm(3, Duration::from_millis(10), Why::FrameHold);
        bench.until(|core| core.expired.len() == 2).await;
        assert_eq!(bench.core.borrow().expired, [(3, Why::FrameHold), (2, Why::Nack)]);
        assert_eq!(bench.counters.timer_wakeups.get(), 2);
        assert!(bench.counters.rounds.get() < 20, "{} rounds", bench.counters.rounds.get());
    });
}

#[test]
fn a_wake_sends_what_is_in_the_outbox() {
    beside_loop(async |bench: Rc<Bench>| {
        let peer = tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        bench.core.borrow_mut().outbox.push(peer.local_addr().unwrap(), b"from an actor");
        bench.wake.wake();
        let mut buf = [0; 100];
        let len = tokio::time::timeout(PATIENCE, peer.recv(&mut buf)).await.expect("in time").unwrap();
        assert_eq!(&buf[..len], b"from an actor");
    });
}

#[test]
fn what_was_waiting_is_sent_before_the_loop_ends() {
    on_worker(async {
        let (bench, receiver) = Bench::new();
        let peer = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        bench.core.borrow_mut().outbox.push(peer.local_addr().unwrap(), b"goodbye");
        drive(Rc::clone(&bench.core), receiver, bench.wake.clone(), std::future::ready(())).await.unwrap();
        assert_eq!(peer.recv(&mut [0; 100]).unwrap(), 7);
    });
}

/// 40 datagrams, after each of which the runtime looks for events, and a deadline within the tick: the thread is up once
/// a tick however many come. When the tick is over, nothing that arrived is forgotten.
#[test]
fn on_a_tick_nothing_wakes_the_loop_and_no_datagram_is_lost() {
    beside_loop(async |bench: Rc<Bench>| {
        let peer = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        peer.connect(bench.addr).unwrap();
        let tick = Duration::from_millis(100);
        bench.core.borrow_mut().reads_every = Some(tick);
        bench.arm(0, Duration::ZERO, Why::Statistics);
        bench.until(|core| core.expired.len() == 1).await;
        // The round of that deadline ends, and with it what wakes by datagrams.
        tokio::task::yield_now().await;
        let (before, began) = (bench.counters.rounds.get(), Instant::now());
        bench.arm(1, Duration::from_millis(1), Why::SenderReport);
        for n in 1..=40u8 {
            peer.send(&[n; 20]).unwrap();
            tokio::task::yield_now().await;
        }
        bench.until(|core| core.received == 40).await;
        let (ticks, rounds) = (began.elapsed().as_millis() as u64 / 100, bench.counters.rounds.get() - before);
        // One for arming a deadline earlier than the sleep.
        assert!(rounds <= ticks + 2, "{rounds} rounds in {ticks} ticks");
        assert_eq!(bench.core.borrow().expired.len(), 2, "the deadline came out with the look");
        for n in 41..=60u8 {
            bench.core.borrow_mut().reads_every = (n % 2 == 0).then_some(tick);
            bench.wake.wake();
            peer.send(&[n; 20]).unwrap();
            tokio::task::yield_now().await;
        }
        bench.core.borrow_mut().reads_every = None;
        bench.wake.wake();
        bench.until(|core| core.received == 60).await;
    });
}

/// Never says "empty": as a socket that is filled faster than it is read.
struct Flooded(Rc<Cell<u64>>);

impl Source for Flooded {
    fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        self.0.set(self.0.get() + 1);
        *batch = RecvBatch::full_for_tests();
        Ok(0)
    }
    fn count_drops(&mut self) {}
}

/// Under a flood an actor gets a turn after every eight receive calls, and deadlines are kept.
#[test]
fn a_flood_starves_neither_actors_nor_deadlines() {
    on_worker(async {
        let (bench, receiver) = Bench::new();
        let peer = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        peer.send_to(b"readable", bench.addr).unwrap();
        let calls = Rc::new(Cell::new(0));
        let watch = Watch::told(receiver.socket()).unwrap();
        let looping = Loop::new(Rc::clone(&bench.core), Flooded(Rc::clone(&calls)), Arc::clone(&bench.counters));
        bench.arm(5, Duration::from_millis(20), Why::SenderReport);
        let (stop, stopped) = oneshot::channel::<()>();
        let core = Rc::clone(&bench.core);
        let actor = tokio::task::spawn_local(async move {
            let mut turns = 0;
            while turns < 100 || core.borrow().expired.is_empty() {
                turns += 1;
                tokio::task::yield_now().await;
            }
            drop(stop);
        });
        // A loop that gives no turn cannot be timed out from its own thread: it gives up after many rounds.
        let gave_up = Rc::clone(&calls);
        let end = async {
            tokio::select! {
                _ = stopped => {}
                () = std::future::poll_fn(|_| if gave_up.get() < 5_000_000 { Poll::Pending } else { Poll::Ready(()) }) => {}
            }
        };
        looping.run(watch, &bench.wake, end).await;
        assert!(actor.is_finished());
        assert!(calls.get() <= 8 * bench.counters.rounds.get(), "{} calls", calls.get());
        assert_eq!(bench.core.borrow().expired, [(5, Why::SenderReport)]);
    });
}

/// Fails until it is told not to, then reads the socket.
struct Failing {
    receiver: MediaReceiver,
    fails: Rc<Cell<bool>>,
    calls: Rc<Cell<u32>>,
}

impl Source for Failing {
    fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        self.calls.set(self.calls.get() + 1);
        if self.fails.get() { Err(io::Error::from_raw_os_error(libc::EIO)) } else { self.receiver.recv(batch) }
    }
    fn count_drops(&mut self) {}
}

/// 40 deadlines of at least 5 ms each are at least 200 ms, in which a socket that always fails is tried at
/// once, once more, and after 5, 10, 20, 40, 80 ms … : eight times, not thousands. Then it is used again.
#[test]
fn a_failing_socket_is_retried_at_growing_pauses_while_deadlines_go_on() {
    on_worker(async {
        let (bench, receiver) = Bench::new();
        let (fails, calls) = (Rc::new(Cell::new(true)), Rc::new(Cell::new(0)));
        let watch = Watch::told(receiver.socket()).unwrap();
        let source = Failing { receiver, fails: Rc::clone(&fails), calls: Rc::clone(&calls) };
        let looping = Loop::new(Rc::clone(&bench.core), source, Arc::clone(&bench.counters));
        let peer = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        peer.send_to(b"readable", bench.addr).unwrap();
        let began = Instant::now();
        bench.core.borrow_mut().every = Some(Duration::from_millis(5));
        bench.arm(0, Duration::ZERO, Why::Statistics);
        let story = async {
            bench.until(|core| core.expired.len() >= 40).await;
            // The pauses double, so the tries grow with the logarithm of the time that passed.
            let most = 4 + (began.elapsed().as_millis() as u32 / 5).max(1).ilog2();
            assert!((4..=most).contains(&calls.get()), "{} calls, at most {most}", calls.get());
            fails.set(false);
            bench.until(|core| core.received == 1).await;
        };
        looping.run(watch, &bench.wake, story).await;
        assert_eq!(peer.recv(&mut [0; 100]).unwrap(), 8);
    });
}

#[test]
fn pauses_grow_from_5_ms_to_1_s_and_end_with_the_trouble() {
    let t0 = Instant::now();
    let error = io::Error::from_raw_os_error(libc::ENETDOWN);
    let mut trouble = Trouble::default();
    let pauses: Vec<Option<u128>> = (0..12)
        .map(|_| {
            trouble.note(t0, &error);
            trouble.pause_until.map(|until| (until - t0).as_millis())
        })
        .collect();
    let want = [0, 5, 10, 20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000].map(|ms| (ms > 0).then_some(ms));
    assert_eq!(pauses, want);
    trouble.over();
    assert_eq!((trouble.pause_until, trouble.logged), (None, Some(t0)));
    trouble.note(t0 + LOG_EVERY - Duration::from_nanos(1), &error);
    assert_eq!((trouble.pause_until, trouble.logged), (None, Some(t0)), "not logged again within a second");
    trouble.note(t0 + LOG_EVERY, &error);
    assert_eq!(trouble.logged, Some(t0 + LOG_EVERY));
}
