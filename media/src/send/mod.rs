//! The send side of one viewer: from a shared packet to a protected datagram, and back from its reports.

mod control;
mod egress;
pub mod forwarding;
mod header;
mod link;
mod pacing;
mod pictures;
mod report;
mod rewrite;
mod rtx;
pub mod srtp;
mod stream;
mod times;
mod twcc;

pub use egress::{Answered, Egress, EgressConfig, EgressStats, Feedback, Forwarded, NoFormat, RtcpRefused};
pub use pictures::LayersMax;
pub use rewrite::{SeqRewriter, Unplaced, WINDOW};
pub use srtp::Protection;
pub use times::TimeRewriter;
pub use twcc::TwccResult;

/// Where finished datagrams go. One sink writes to one destination; the worker behind it gathers runs of
/// equal size into one GSO send.
pub trait PacketSink {
    /// The buffer to append one datagram to. Whatever was in it before must stay.
    fn buffer(&mut self) -> &mut Vec<u8>;
    /// The datagram that begins at `start` in the buffer is complete.
    fn finish(&mut self, start: usize);
}

/// Where virtual time begins in tests.
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an Instant cannot be made otherwise; only distances to it matter")]
fn origin() -> std::time::Instant {
    std::time::Instant::now()
}
