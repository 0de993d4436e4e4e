//! Transports are built on the blocking pool, so many at once as there are cores; a crowd waits in a queue with a bound.

use crate::api::Refusal;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Joins that may be built or wait for it at once. At 0.2–1.3 ms each the last one waits a fraction of a second.
const PLACES: usize = 512;

/// The queue before the blocking pool.
pub struct Builds {
    places: Arc<Semaphore>,
    running: Arc<Semaphore>,
}

impl Builds {
    /// A queue for `at_once` builds at a time.
    pub fn new(at_once: usize) -> Self {
        Self::with_places(at_once, PLACES)
    }

    fn with_places(at_once: usize, places: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(places)), running: Arc::new(Semaphore::new(at_once.max(1))) }
    }

    /// Runs `build` when its turn comes.
    ///
    /// # Errors
    /// `Busy` when the queue is full, `Internal` when `build` panicked.
    pub async fn run<T: Send + 'static>(&self, build: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
        let busy = Refusal::Busy { retry_after_s: 1 };
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| busy)?;
        let turn = Arc::clone(&self.running).acquire_owned().await.map_err(|_| Refusal::Internal)?;
        // The permits go along: an asker that hangs up does not stop what has begun.
        let built = tokio::task::spawn_blocking(move || {
            let _held = (place, turn);
            build()
        });
        built.await.map_err(|_| Refusal::Internal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn the_queue_has_a_bound_and_an_asker_that_hangs_up_leaves_its_place_when_the_work_is_done() {
        let builds = Arc::new(Builds::with_places(1, 2));
        let (go, gate) = mpsc::channel::<()>();
        let held = || {
            let builds = Arc::clone(&builds);
            move |build: Box<dyn FnOnce() -> u8 + Send>| tokio::spawn(async move { builds.run(build).await })
        };
        let first = held()(Box::new(move || gate.recv().map_or(0, |()| 1)));
        while builds.running.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let second = held()(Box::new(|| 2));
        while builds.places.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let full = builds.run(|| 3).await;
        assert!(matches!(full, Err(Refusal::Busy { retry_after_s: 1 })), "{full:?}");
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        assert_eq!(builds.running.available_permits(), 0, "what has begun still runs");
        go.send(()).unwrap();
        assert_eq!(second.await.unwrap().unwrap(), 2);
        let panicked = builds.run(|| -> u8 { panic!("a build that fails") }).await;
        assert!(matches!(panicked, Err(Refusal::Internal)), "{panicked:?}");
        assert_eq!(builds.run(|| 4).await.unwrap(), 4, "a panic gives its place back");
    }
}
