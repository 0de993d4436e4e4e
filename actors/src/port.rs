//! How actors are spoken to: what everyone sees instead of an `actix::Addr`.
//!
//! A port has a bound. Full is a value that somebody handles: a media batch is dropped and counted, a control
//! message is kept in a [`Post`] and tried again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A message that was not taken, given back.
#[derive(Debug)]
pub enum Refused<M> {
    /// The actor's queue is at its bound.
    Full(M),
    /// The actor has ended.
    Gone(M),
}

/// The one way to speak to an actor.
pub trait Tell<M>: Send + Sync {
    /// Queues `msg`.
    ///
    /// # Errors
    /// Gives the message back if the queue is full or the actor has ended.
    fn tell(&self, msg: M) -> Result<(), Refused<M>>;
}

/// A shared handle on an actor that takes `M`.
pub type Port<M> = Arc<dyn Tell<M>>;

/// Where an answer goes. Dropping it tells the asker that there will be none.
#[derive(Debug)]
pub struct Reply<T>(oneshot::Sender<T>);

impl<T> Reply<T> {
    /// A reply and the place to wait for it.
    pub fn pair() -> (Self, oneshot::Receiver<T>) {
        let (tx, rx) = oneshot::channel();
        (Self(tx), rx)
    }

    /// Answers. An asker that no longer waits is nobody's loss.
    pub fn answer(self, value: T) {
        let _ = self.0.send(value);
    }
}

/// Control messages that must arrive: what the port refuses as full is kept, in order, and tried again.
pub struct Post<M> {
    port: Port<M>,
    backlog: VecDeque<M>,
    retry_at: Option<Instant>,
    gone: bool,
}

/// Messages one post keeps at most; an actor that is so far behind is treated as gone.
const BACKLOG: usize = 1_024;
/// Pause before a full port is tried again.
const RETRY: Duration = Duration::from_millis(5);

impl<M> Post<M> {
    /// A post to `port`.
    pub fn new(port: Port<M>) -> Self {
        Self { port, backlog: VecDeque::new(), retry_at: None, gone: false }
    }

    /// The port itself, for messages that may be dropped.
    pub fn port(&self) -> &Port<M> {
        &self.port
    }

    /// The receiver has ended, or is hopelessly behind.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Sends `msg`, now or soon.
    pub fn post(&mut self, now: Instant, msg: M) {
        if self.gone {
            return;
        }
        self.backlog.push_back(msg);
        if self.backlog.len() > BACKLOG {
            self.gone = true;
            self.backlog = VecDeque::new();
            self.retry_at = None;
        } else if self.retry_at.is_none() {
            self.retry(now);
        }
    }

    /// When to call [`Post::retry`].
    pub fn deadline(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Tries what is kept again.
    pub fn retry(&mut self, now: Instant) {
        self.retry_at = None;
        while let Some(msg) = self.backlog.pop_front() {
            match self.port.tell(msg) {
                Ok(()) => {}
                Err(Refused::Full(msg)) => {
                    self.backlog.push_front(msg);
                    self.retry_at = Some(now + RETRY);
                    return;
                }
                Err(Refused::Gone(_)) => {
                    self.gone = true;
                    self.backlog = VecDeque::new();
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    struct Bounded {
        taken: Mutex<Vec<u32>>,
        room: Mutex<usize>,
    }
    impl Tell<u32> for Bounded {
        fn tell(&self, msg: u32) -> Result<(), Refused<u32>> {
            let mut room = self.room.lock().unwrap();
            if *room == 0 {
                return Err(Refused::Full(msg));
            }
            *room -= 1;
            self.taken.lock().unwrap().push(msg);
            Ok(())
        }
    }

    #[test]
    fn a_full_port_delays_control_messages_and_loses_none() {
        let port = Arc::new(Bounded { taken: Mutex::default(), room: Mutex::new(2) });
        let mut post = Post::new(port.clone() as Port<u32>);
        let t0 = Instant::now();
        for n in 0..5 {
            post.post(t0, n);
        }
        assert_eq!(*port.taken.lock().unwrap(), [0, 1]);
        assert_eq!(post.deadline(), Some(t0 + RETRY));
        *port.room.lock().unwrap() = 10;
        post.retry(t0 + RETRY);
        assert_eq!(*port.taken.lock().unwrap(), [0, 1, 2, 3, 4]);
        assert_eq!(post.deadline(), None);
    }

    #[test]
    fn a_hopeless_backlog_is_bounded_and_counts_as_gone() {
        let port = Arc::new(Bounded { taken: Mutex::default(), room: Mutex::new(0) });
        let mut post = Post::new(port as Port<u32>);
        for n in 0..2_000 {
            post.post(Instant::now(), n);
        }
        assert!(post.is_gone());
        assert_eq!((post.backlog.len(), post.deadline()), (0, None));
    }
}
