//! Worker threads: which cores there are, and an Arbiter on one of them.

use actix_rt::Arbiter;
use core_affinity::CoreId;
use std::io;
use std::sync::mpsc;

/// What this process may use of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cores {
    /// Cores of the affinity mask, in order of number.
    ids: Vec<usize>,
    /// How many of them at a time, by the cgroup's quota; at least 1.
    parallelism: usize,
}

impl Cores {
    /// As the system tells it now: the affinity mask of this thread, and the standard library's reading of
    /// affinity and of the cgroup (v1, v2) quota.
    pub fn of_this_process() -> Self {
        let mut ids: Vec<usize> =
            core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect();
        ids.sort_unstable();
        let parallelism = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { ids, parallelism }
    }

    /// Workers that can run at the same time.
    pub fn parallelism(&self) -> usize {
        self.parallelism
    }

    /// The core for worker `index`: each its own, and round again when there are more workers than cores.
    ///
    /// `None` where the cores cannot be told, or where a quota allows less than the mask holds: then these cores
    /// are shared with others, who may pin themselves to the same, and the scheduler places better.
    pub fn for_worker(&self, index: usize) -> Option<usize> {
        if self.parallelism < self.ids.len() {
            return None;
        }
        self.ids.get(index.checked_rem(self.ids.len())?).copied()
    }
}

/// Starts the thread of worker `index`: an Arbiter with a runtime of its own, pinned to a core if `pin` says so
/// and the system lets it. Answers the Arbiter and the core.
///
/// # Errors
/// The thread or its runtime could not be made.
///
/// # Panics
/// Outside of an actix `System`.
pub fn spawn_arbiter(index: usize, pin: bool) -> io::Result<(Arbiter, Option<usize>)> {
    let wanted = if pin { Cores::of_this_process().for_worker(index) } else { None };
    let (tell, told) = mpsc::sync_channel(1);
    let arbiter = Arbiter::try_with_tokio_rt(move || {
        let pinned = wanted.filter(|core| core_affinity::set_for_current(CoreId { id: *core }));
        // The receiver waits below, so this is always heard.
        let _ = tell.send(pinned);
        tokio::runtime::Builder::new_current_thread().enable_all().build()
    })?;
    Ok((arbiter, told.recv().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_rt::ArbiterHandle;

    fn cores(ids: &[usize], parallelism: usize) -> Cores {
        Cores { ids: ids.to_vec(), parallelism }
    }

    #[test]
    fn each_worker_has_a_core_of_the_mask_and_more_workers_go_round() {
        let some = cores(&[2, 3, 7], 3);
        let got: Vec<_> = (0..5).map(|n| some.for_worker(n)).collect();
        assert_eq!(got, [Some(2), Some(3), Some(7), Some(2), Some(3)]);
    }

    #[test]
    fn nobody_is_pinned_under_a_quota_or_without_a_mask() {
        assert_eq!(cores(&[0, 1, 2, 3], 2).for_worker(0), None);
        assert_eq!(cores(&[], 1).for_worker(0), None);
    }

    /// Runs `f` on the Arbiter's thread and answers what it says.
    fn on<T: Send + 'static>(arbiter: &ArbiterHandle, f: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::sync_channel(1);
        assert!(arbiter.spawn_fn(move || tell.send(f()).unwrap()));
        told.recv_timeout(std::time::Duration::from_secs(10)).unwrap()
    }

    #[test]
    fn a_pinned_worker_runs_on_its_core_alone_and_others_wherever() {
        actix_rt::System::new().block_on(async {
            let mask = Cores::of_this_process();
            for (index, pin) in [(0, true), (1, true), (0, false)] {
                let (arbiter, core) = spawn_arbiter(index, pin).unwrap();
                assert_eq!(core, if pin { mask.for_worker(index) } else { None });
                let there = on(&arbiter.handle(), Cores::of_this_process);
                assert_eq!(there.ids, core.map_or_else(|| mask.ids.clone(), |core| vec![core]));
                arbiter.stop();
                arbiter.join().unwrap();
            }
        });
    }
}
