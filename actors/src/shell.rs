//! The only generic actix glue: a plain struct that implements [`Receive`] becomes an actor.
//!
//! The shell reads the clock once per message, enters the span that travelled with it, arms the struct's
//! deadline, and catches its panics: actix restarts nothing on a panic, so the parent is told and decides.

use crate::port::{Port, Refused, Tell};
use actix::dev::ToEnvelope;
use actix::{Actor, AsyncContext, Context, Handler, Message};
use rondo_media::units::Deadline;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// An actor's logic. It knows no framework: the simulator runs the same struct.
pub trait Receive: 'static {
    /// The one message type it takes.
    type Msg: Send + 'static;
    /// Takes a message.
    fn receive(&mut self, now: Instant, msg: Self::Msg);
    /// The deadline it asked for has come.
    fn wake(&mut self, now: Instant);
    /// When it next wants to be woken, and why.
    fn deadline(&self) -> Option<Deadline>;
    /// It has done its work and can be dropped.
    fn finished(&self) -> bool;
}

/// Where a shell's deadline is kept.
pub trait Alarm: 'static {
    /// Arms the one deadline of this actor; `None` disarms.
    fn set(&mut self, deadline: Option<Deadline>);
}

/// What ends an actor, told to its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It finished.
    Finished,
    /// It panicked; its state is lost.
    Panicked,
}

/// Wakes an actor whatever its message type.
pub trait Woken: Send + Sync {
    /// Queues a wake-up.
    ///
    /// # Errors
    /// `Full` when the queue is full: try again soon. `Gone` when the actor has ended.
    fn wake(&self) -> Result<(), Refused<()>>;
}

/// A message on its way: trace context crosses the mailbox with it.
struct Traced<M> {
    span: tracing::Span,
    mail: Mail<M>,
}

enum Mail<M> {
    Message(M),
    Wake,
}

impl<M: Send + 'static> Message for Traced<M> {
    type Result = ();
}

thread_local! {
    static ALIVE: Cell<usize> = const { Cell::new(0) };
}

/// Actors whose task lives on this thread: also those that have ended and are still held by something.
pub fn alive() -> usize {
    ALIVE.get()
}

/// Counts an actor for as long as its task has it.
struct Alive;

impl Alive {
    fn new() -> Self {
        ALIVE.set(ALIVE.get() + 1);
        Self
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        // At the end of a thread the count may be gone before the last actor.
        let _ = ALIVE.try_with(|alive| alive.set(alive.get() - 1));
    }
}

/// The framework's side of one actor.
pub struct Shell<A: Receive> {
    logic: Option<A>,
    alarm: Option<Box<dyn Alarm>>,
    on_end: Option<Box<dyn FnOnce(Ending)>>,
    depth: Arc<AtomicUsize>,
    armed: Option<Deadline>,
    mailbox: usize,
    _alive: Alive,
}

impl<A: Receive + Unpin> Shell<A> {
    /// Starts an actor on the current thread's arbiter.
    ///
    /// `make` gets the actor's own port; `alarm` gets a handle that wakes it; `on_end` hears how it ended.
    pub fn start(
        bound: usize,
        make: impl FnOnce(Port<A::Msg>) -> A + 'static,
        alarm: impl FnOnce(Arc<dyn Woken>) -> Box<dyn Alarm> + 'static,
        on_end: impl FnOnce(Ending) + 'static,
    ) -> Port<A::Msg> {
        let depth = Arc::new(AtomicUsize::new(0));
        let shared = depth.clone();
        let addr = Self::create(move |ctx| Self::build(ctx, shared, bound, make, alarm, on_end));
        Arc::new(Door { addr, depth, bound })
    }

    /// Starts an actor on another thread's arbiter; `make` runs there.
    pub fn start_in(
        arbiter: &actix::ArbiterHandle,
        bound: usize,
        make: impl FnOnce(Port<A::Msg>) -> A + Send + 'static,
        alarm: impl FnOnce(Arc<dyn Woken>) -> Box<dyn Alarm> + Send + 'static,
        on_end: impl FnOnce(Ending) + Send + 'static,
    ) -> Port<A::Msg> {
        let depth = Arc::new(AtomicUsize::new(0));
        let shared = depth.clone();
        let addr = Self::start_in_arbiter(arbiter, move |ctx| Self::build(ctx, shared, bound, make, alarm, on_end));
        Arc::new(Door { addr, depth, bound })
    }

    fn build(
        ctx: &Context<Self>,
        depth: Arc<AtomicUsize>,
        bound: usize,
        make: impl FnOnce(Port<A::Msg>) -> A,
        alarm: impl FnOnce(Arc<dyn Woken>) -> Box<dyn Alarm>,
        on_end: impl FnOnce(Ending) + 'static,
    ) -> Self {
        let port = Arc::new(Door { addr: ctx.address(), depth: depth.clone(), bound });
        Self {
            alarm: Some(alarm(port.clone())),
            logic: Some(make(port)),
            on_end: Some(Box::new(on_end)),
            depth,
            armed: None,
            mailbox: bound,
            _alive: Alive::new(),
        }
    }

    /// Lets the logic do something, then follows its deadline; says how it ended, where it did.
    fn step(&mut self, act: impl FnOnce(&mut A)) -> Option<Ending> {
        let logic = self.logic.as_mut()?;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            act(logic);
            (logic.finished(), logic.deadline())
        }));
        match outcome {
            Ok((true, _)) => Some(Ending::Finished),
            Ok((false, deadline)) => {
                if deadline != self.armed {
                    self.armed = deadline;
                    if let Some(alarm) = &mut self.alarm {
                        alarm.set(deadline);
                    }
                }
                None
            }
            Err(_) => Some(Ending::Panicked),
        }
    }

    fn end(&mut self, ending: Ending) {
        if let Some(alarm) = &mut self.alarm {
            alarm.set(None);
        }
        // A poisoned struct may panic once more while it is dropped; that must not take the thread along.
        let logic = self.logic.take();
        let _ = catch_unwind(AssertUnwindSafe(move || drop(logic)));
        if let Some(on_end) = self.on_end.take() {
            on_end(ending);
        }
    }
}

impl<A: Receive + Unpin> Actor for Shell<A> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // The depth that `Door` counts is the bound; actix's own only has to be no smaller.
        ctx.set_mailbox_capacity(self.mailbox * 2);
        // It may have a deadline and never get a message: a room that nobody enters ends by itself.
        if let Some(ending) = self.step(|_| {}) {
            self.end(ending);
            actix::ActorContext::stop(ctx);
        }
    }
}

impl<A: Receive + Unpin> Handler<Traced<A::Msg>> for Shell<A> {
    type Result = ();

    fn handle(&mut self, traced: Traced<A::Msg>, ctx: &mut Self::Context) {
        self.depth.fetch_sub(1, Ordering::Relaxed);
        let woken = matches!(traced.mail, Mail::Wake);
        if woken {
            self.armed = None;
        }
        let ending = {
            let _entered = (!traced.span.is_none()).then(|| traced.span.enter());
            self.step(|logic| match traced.mail {
                Mail::Message(msg) => logic.receive(Instant::now(), msg),
                Mail::Wake => logic.wake(Instant::now()),
            })
        };
        if let Some(ending) = ending {
            self.end(ending);
            actix::ActorContext::stop(ctx);
        }
    }
}

/// A port on a shell.
struct Door<A: Receive + Unpin> {
    addr: actix::Addr<Shell<A>>,
    depth: Arc<AtomicUsize>,
    bound: usize,
}

impl<A: Receive + Unpin> Door<A> {
    fn send(&self, mail: Mail<A::Msg>) -> Result<(), Refused<Mail<A::Msg>>>
    where
        Context<Shell<A>>: ToEnvelope<Shell<A>, Traced<A::Msg>>,
    {
        if self.depth.fetch_add(1, Ordering::Relaxed) >= self.bound {
            self.depth.fetch_sub(1, Ordering::Relaxed);
            return Err(if self.addr.connected() { Refused::Full(mail) } else { Refused::Gone(mail) });
        }
        let span = match &mail {
            Mail::Message(_) => tracing::Span::current(),
            Mail::Wake => tracing::Span::none(),
        };
        self.addr.try_send(Traced { span, mail }).map_err(|error| {
            self.depth.fetch_sub(1, Ordering::Relaxed);
            match error {
                actix::dev::SendError::Full(traced) => Refused::Full(traced.mail),
                actix::dev::SendError::Closed(traced) => Refused::Gone(traced.mail),
            }
        })
    }
}

impl<A: Receive + Unpin> Tell<A::Msg> for Door<A> {
    fn tell(&self, msg: A::Msg) -> Result<(), Refused<A::Msg>> {
        self.send(Mail::Message(msg)).map_err(|refused| match refused {
            Refused::Full(Mail::Message(msg)) => Refused::Full(msg),
            Refused::Gone(Mail::Message(msg)) => Refused::Gone(msg),
            Refused::Full(Mail::Wake) | Refused::Gone(Mail::Wake) => unreachable!("a message came back as a wake-up"),
        })
    }
}

impl<A: Receive + Unpin> Woken for Door<A> {
    fn wake(&self) -> Result<(), Refused<()>> {
        self.send(Mail::Wake).map_err(|refused| match refused {
            Refused::Full(_) => Refused::Full(()),
            Refused::Gone(_) => Refused::Gone(()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::Reply;
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::time::Duration;

    enum Msg {
        Count(Reply<u32>),
        Panic,
        Finish,
        Wait(std::sync::mpsc::Receiver<()>),
    }

    #[derive(Default)]
    struct Counter {
        counted: u32,
        woken: u32,
        done: bool,
        wake_at: Option<Deadline>,
    }

    impl Receive for Counter {
        type Msg = Msg;
        fn receive(&mut self, _now: Instant, msg: Msg) {
            match msg {
                Msg::Count(reply) => {
                    self.counted += 1;
                    reply.answer(self.counted);
                }
                Msg::Panic => panic!("this test panics on purpose"),
                Msg::Finish => self.done = true,
                Msg::Wait(until) => {
                    let _ = until.recv();
                }
            }
        }
        fn wake(&mut self, _now: Instant) {
            self.woken += 1;
        }
        fn deadline(&self) -> Option<Deadline> {
            self.wake_at
        }
        fn finished(&self) -> bool {
            self.done
        }
    }

    /// Remembers what was armed.
    #[derive(Clone, Default)]
    struct Armed(Rc<RefCell<Vec<Option<Deadline>>>>);
    impl Alarm for Armed {
        fn set(&mut self, deadline: Option<Deadline>) {
            self.0.borrow_mut().push(deadline);
        }
    }

    fn start(bound: usize, logic: Counter) -> (Port<Msg>, Rc<RefCell<Option<Ending>>>, Armed) {
        let (ended, armed) = (Rc::new(RefCell::new(None)), Armed::default());
        let (hears, alarm) = (ended.clone(), armed.clone());
        let port = Shell::start(
            bound,
            |_| logic,
            |_| Box::new(alarm) as Box<dyn Alarm>,
            move |ending| *hears.borrow_mut() = Some(ending),
        );
        (port, ended, armed)
    }

    async fn count(port: &Port<Msg>) -> Option<u32> {
        let (reply, answer) = Reply::pair();
        port.tell(Msg::Count(reply)).ok()?;
        tokio::time::timeout(Duration::from_secs(5), answer).await.ok()?.ok()
    }

    #[test]
    fn a_panic_ends_one_actor_its_parent_hears_and_others_go_on() {
        actix_rt::System::new().block_on(async {
            let (fragile, ended, _) = start(8, Counter::default());
            let (steady, _, _) = start(8, Counter::default());
            assert_eq!(count(&fragile).await, Some(1));
            assert!(fragile.tell(Msg::Panic).is_ok());
            // The question queued behind the panic gets no answer, and says so at once.
            assert_eq!(count(&fragile).await, None);
            assert_eq!(*ended.borrow(), Some(Ending::Panicked));
            assert!(matches!(fragile.tell(Msg::Finish), Err(Refused::Gone(Msg::Finish))));
            assert_eq!(count(&steady).await, Some(1));
        });
    }

    #[test]
    fn a_finished_actor_is_gone_and_its_deadline_with_it() {
        actix_rt::System::new().block_on(async {
            let wake_at = Some(Deadline { at: Instant::now(), why: rondo_media::units::Why::Nack });
            let (port, ended, armed) = start(8, Counter { wake_at, ..Counter::default() });
            assert_eq!(count(&port).await, Some(1));
            assert!(port.tell(Msg::Finish).is_ok());
            assert_eq!(count(&port).await, None);
            assert_eq!(*ended.borrow(), Some(Ending::Finished));
            assert_eq!(*armed.0.borrow(), [wake_at, None]);
        });
    }

    #[test]
    fn a_deadline_is_armed_before_the_first_message() {
        actix_rt::System::new().block_on(async {
            let wake_at = Some(Deadline { at: Instant::now(), why: rondo_media::units::Why::RoomLifetime });
            let (port, _, armed) = start(8, Counter { wake_at, ..Counter::default() });
            tokio::task::yield_now().await;
            assert_eq!(*armed.0.borrow(), [wake_at]);
            assert_eq!(count(&port).await, Some(1));
            assert_eq!(*armed.0.borrow(), [wake_at], "nothing has changed");
        });
    }

    #[test]
    fn a_full_queue_gives_the_message_back_and_takes_again_when_it_has_room() {
        actix_rt::System::new().block_on(async {
            let arbiter = actix_rt::Arbiter::new();
            let port = Shell::start_in(
                &arbiter.handle(),
                4,
                |_| Counter::default(),
                |_| Box::new(NeverArmed) as Box<dyn Alarm>,
                |_| {},
            );
            let (go_on, until) = std::sync::mpsc::channel();
            assert!(port.tell(Msg::Wait(until)).is_ok());
            let (mut taken, mut refused, mut answers) = (0, 0, Vec::new());
            for _ in 0..100 {
                let (reply, answer) = Reply::pair();
                match port.tell(Msg::Count(reply)) {
                    Ok(()) => {
                        (taken, answers) = (taken + 1, {
                            answers.push(answer);
                            answers
                        })
                    }
                    Err(Refused::Full(Msg::Count(_))) => refused += 1,
                    Err(_) => panic!("neither taken nor full"),
                }
            }
            // The one that waits may have left the queue already, or not.
            assert!(taken == 3 || taken == 4, "{taken} taken at a bound of 4");
            assert_eq!(taken + refused, 100);
            go_on.send(()).expect("the actor waits");
            for answer in answers {
                assert!(answer.await.is_ok(), "what was taken is handled");
            }
            assert!(count(&port).await.is_some());
            arbiter.stop();
        });
    }

    struct NeverArmed;
    impl Alarm for NeverArmed {
        fn set(&mut self, _deadline: Option<Deadline>) {}
    }
}
