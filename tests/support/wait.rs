//! Waiting for a condition. There is no sleep here that a test relies on: too short a pause only asks once more.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A value that one thread changes and others wait for.
#[derive(Debug, Default)]
pub struct Watched<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T: Clone + std::fmt::Debug> Watched<T> {
    /// Changes the value and wakes who waits.
    pub fn update(&self, change: impl FnOnce(&mut T)) {
        // A test that failed while it held the lock must not fail the others with it.
        change(&mut self.value.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// The value as it is.
    pub fn get(&self) -> T {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The value as soon as `holds` is true of it.
    ///
    /// # Errors
    /// The last value, when `within` is over.
    pub fn wait_until(&self, within: Duration, mut holds: impl FnMut(&T) -> bool) -> Result<T, T> {
        let guard = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, timeout) = self
            .changed
            .wait_timeout_while(guard, within, |value| !holds(value))
            .unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() { Err(guard.clone()) } else { Ok(guard.clone()) }
    }
}

/// Asks until there is an answer, with a short pause between; for what cannot notify, such as an HTTP resource.
///
/// # Panics
/// With `what` when `within` is over.
pub fn poll<T>(what: &str, within: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < within, "not within {within:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}
