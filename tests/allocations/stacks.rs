//! An allocator that notes the stacks of the worker's allocations, and whose they are.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The owner that stands for our crates.
pub const OURS: &str = "ours";

/// Return addresses that tell one stack from another.
const DEPTH: usize = 32;

type Addresses = [usize; DEPTH];

/// See the module.
pub struct Noting;

static NOTES: AtomicBool = AtomicBool::new(false);
static LOST: AtomicU64 = AtomicU64::new(0);
static STACKS: Mutex<Option<HashMap<Addresses, (u64, Backtrace)>>> = Mutex::new(None);

/// What a thread is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Thread {
    Unknown,
    Worker,
    Other,
}

thread_local! {
    static THREAD: Cell<Thread> = const { Cell::new(Thread::Unknown) };
    /// An allocation is being noted: what that allocates is not.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Begins to note, or ends.
pub fn note(notes: bool) {
    NOTES.store(notes, Ordering::SeqCst);
}

fn allocated() {
    if !NOTES.load(Ordering::Relaxed) {
        return;
    }
    // The cells may be gone while a thread ends.
    if BUSY.try_with(|busy| busy.replace(true)) != Ok(false) {
        return;
    }
    if is_worker() {
        keep();
    }
    let _ = BUSY.try_with(|busy| busy.set(false));
}

fn is_worker() -> bool {
    THREAD.with(|thread| {
        if thread.get() == Thread::Unknown {
            // actix's name of an Arbiter's thread; the server has one for its one worker.
            let arbiter = std::thread::current().name().is_some_and(|name| name.contains("arbiter"));
            thread.set(if arbiter { Thread::Worker } else { Thread::Other });
        }
        thread.get() == Thread::Worker
    })
}

fn keep() {
    let mut addresses: Addresses = [0; DEPTH];
    // SAFETY: the function writes at most `DEPTH` pointers, for which there is room; a pointer is as long as a usize.
    unsafe { libc::backtrace(addresses.as_mut_ptr().cast(), DEPTH as libc::c_int) };
    let Ok(mut stacks) = STACKS.lock() else {
        LOST.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let noted = stacks.get_or_insert_default().entry(addresses);
    noted.or_insert_with(|| (0, Backtrace::force_capture())).0 += 1;
}

// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocated();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        allocated();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// What was noted.
pub struct Noted {
    /// Owner, how many times, and the stack, innermost function first.
    pub stacks: Vec<(String, u64, String)>,
    /// Allocations that could not be noted.
    pub lost: u64,
}

/// Takes what was noted.
pub fn take() -> Noted {
    let stacks = STACKS.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
    let named = stacks.into_values().map(|(times, stack)| {
        let stack = stack.to_string();
        (owner(&stack), times, stack)
    });
    Noted { stacks: named.collect(), lost: LOST.load(Ordering::Relaxed) }
}

/// Crates that allocate for whoever calls them: the standard library and containers.
const ON_BEHALF: [&str; 7] = ["std", "core", "alloc", "hashbrown", "bytes", "smallvec", "stacks"];

/// Whose an allocation is, from its stack as the standard library prints it: [`OURS`], or a crate of others.
pub fn owner(stack: &str) -> String {
    let mut frames = Vec::<(&str, Option<&str>)>::new();
    for line in stack.lines().map(str::trim) {
        match (line.strip_prefix("at "), line.split_once(": ")) {
            (Some(file), _) => {
                if let Some(last) = frames.last_mut() {
                    last.1 = Some(file);
                }
            }
            (None, Some((_, function))) => frames.push((function, None)),
            (None, None) => {}
        }
    }
    let crates = frames.iter().map(|(function, file)| file.and_then(crate_of_file).unwrap_or(crate_of_name(function)));
    let mut callers = crates.filter(|name| !ON_BEHALF.contains(name) && !name.starts_with("__"));
    callers.next().unwrap_or("nobody").to_owned()
}

/// The crate that a source file is of: inlined functions have a file, but no path of modules.
fn crate_of_file(file: &str) -> Option<&str> {
    if file.contains("/tests/allocations/") {
        return Some("stacks");
    }
    if file.starts_with("/rustc/") || file.contains("/rustlib/src/") {
        return Some("std");
    }
    if let Some((_, within)) = file.split_once("/registry/src/") {
        // <index>/<crate>-<version>/…
        let folder = within.split('/').nth(1)?;
        return folder.rsplit_once('-').map(|(name, _)| name);
    }
    ["actors/src/", "media/src/", "./src/"].iter().any(|ours| file.contains(ours)).then_some(OURS)
}

/// The crate that a function's path begins with; of a method of a trait, that of the type.
fn crate_of_name(function: &str) -> &str {
    let path = function.trim_start_matches(['<', '&', '[', '(', '*']);
    let name = path.split([':', '<', '>', ' ', '[', '{']).next().unwrap_or(path);
    if name.starts_with("rondo") {
        return OURS;
    }
    if path[name.len()..].starts_with("::") {
        return name;
    }
    // `<T as core::convert::Into<U>>::into`, `_Unwind_Backtrace`, `main`: of nobody in particular.
    match function.split_once(" as ") {
        Some((_, of_trait)) => of_trait.split("::").next().unwrap_or("core"),
        None => "__",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_belongs_to_the_innermost_function_that_is_not_the_standard_librarys() {
        let of = |frames: &[&str]| {
            let lines = frames.iter().enumerate().map(|(n, frame)| format!("  {n}: {frame}\n"));
            owner(&lines.collect::<String>())
        };
        let ingress = "rondo_actors::worker::ingress::Ingress::datagram";
        assert_eq!(of(&["alloc::raw_vec::RawVec<T,A>::grow_one", ingress]), OURS);
        assert_eq!(of(&["<alloc::vec::Vec<T> as core::clone::Clone>::clone", ingress]), OURS);
        assert_eq!(of(&["<rondo_media::packet::Packet as core::clone::Clone>::clone", "actix::fut::run"]), OURS);
        assert_eq!(of(&["alloc::boxed::Box<T>::new", "actix::address::envelope::Envelope<A>::new", ingress]), "actix");
        assert_eq!(of(&["<str0m::Rtc>::poll_output", ingress]), "str0m");
        assert_eq!(of(&["bytes::bytes_mut::BytesMut::reserve_inner", "{closure#0}\n at ./actors/src/a.rs:1:2"]), OURS);
        let inlined = "push\n at /home/x/.cargo/registry/src/index-1/actix-0.13.5/src/address/queue.rs:9:1";
        assert_eq!(of(&["exchange_malloc\n  at /rustc/0/library/alloc/src/boxed.rs:1:1", inlined, ingress]), "actix");
        assert_eq!(of(&["core::ptr::write"]), "nobody");
    }
}
