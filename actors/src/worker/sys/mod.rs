//! System calls that no crate of ours wraps: the only unsafe code of this crate.

mod linux;
#[cfg(test)]
pub use linux::without_checksums;
pub use linux::{Buffer, Mmsg, kernel_drops, poll_writable, set_buffer_by_force, without_timestamps};
