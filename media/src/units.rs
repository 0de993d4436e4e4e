//! Units that cannot be mixed up, and the wall clock as an argument.

use std::time::{Duration, Instant};

/// A moment when something wants to be woken, and why: wake-ups are counted by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// When.
    pub at: Instant,
    /// Why.
    pub why: Why,
}

impl Deadline {
    /// The earlier of two optional deadlines.
    pub fn earlier(a: Option<Deadline>, b: Option<Deadline>) -> Option<Deadline> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if b.at < a.at { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

/// Reasons to be woken; a closed set, because each is a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    /// ICE, DTLS, SRTP or RTCP timers of a transport.
    Transport,
    /// An unfinished video frame waits for its marker no longer.
    FrameHold,
    /// A sender report is due.
    SenderReport,
    /// A retransmission is to be asked for (again).
    Nack,
    /// A key frame request that was held back is due.
    KeyFrame,
    /// A join is not connected in time.
    JoinDeadline,
    /// A peer has been silent for too long.
    Liveness,
    /// A room's empty or departure timeout.
    RoomLifetime,
    /// The active speakers are judged again.
    Speakers,
    /// A child that failed is made anew.
    Restart,
    /// Draining ends.
    Drain,
    /// All layers of a publisher are silent, or it is told which of them nobody wants.
    Layers,
    /// Statistics are gathered.
    Statistics,
}

impl Why {
    /// Every reason, in label order.
    pub const ALL: [Why; 13] = [
        Why::Transport,
        Why::FrameHold,
        Why::SenderReport,
        Why::Nack,
        Why::KeyFrame,
        Why::JoinDeadline,
        Why::Liveness,
        Why::RoomLifetime,
        Why::Speakers,
        Why::Restart,
        Why::Drain,
        Why::Layers,
        Why::Statistics,
    ];

    /// The metric label.
    pub fn label(self) -> &'static str {
        match self {
            Why::Transport => "transport",
            Why::FrameHold => "frame_hold",
            Why::SenderReport => "sender_report",
            Why::Nack => "nack",
            Why::KeyFrame => "key_frame",
            Why::JoinDeadline => "join_deadline",
            Why::Liveness => "liveness",
            Why::RoomLifetime => "room_lifetime",
            Why::Speakers => "speakers",
            Why::Restart => "restart",
            Why::Drain => "drain",
            Why::Layers => "layers",
            Why::Statistics => "statistics",
        }
    }
}

/// The wall clock, fixed to the monotonic one at a moment the shell chose.
#[derive(Debug, Clone, Copy)]
pub struct WallClock {
    at: Instant,
    unix: Duration,
}

/// Seconds between the NTP era (1900) and the Unix epoch (1970).
const NTP_UNIX_OFFSET_S: u64 = 2_208_988_800;

impl WallClock {
    /// `unix`: time since 1970 when the monotonic clock read `at`.
    pub fn new(at: Instant, unix: Duration) -> Self {
        Self { at, unix }
    }

    /// NTP timestamp (RFC 3550 §4): 32 bits of seconds since 1900, 32 bits of fraction.
    pub fn ntp(&self, now: Instant) -> u64 {
        let since = match now.checked_duration_since(self.at) {
            Some(later) => self.unix + later,
            None => self.unix.saturating_sub(self.at - now),
        };
        let seconds = (since.as_secs() + NTP_UNIX_OFFSET_S) & 0xffff_ffff;
        let fraction = (u64::from(since.subsec_nanos()) << 32) / 1_000_000_000;
        (seconds << 32) | fraction
    }

    /// Milliseconds since 1970.
    pub fn unix_ms(&self, now: Instant) -> u64 {
        let since = match now.checked_duration_since(self.at) {
            Some(later) => self.unix + later,
            None => self.unix.saturating_sub(self.at - now),
        };
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}
