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

/// Bits a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bitrate(u64);

impl Bitrate {
    /// Nothing at all.
    pub const ZERO: Bitrate = Bitrate(0);

    /// So many bits a second.
    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// So many thousands of bits a second.
    pub const fn from_kbps(kbps: u64) -> Self {
        Self(kbps.saturating_mul(1_000))
    }

    /// In bits a second.
    pub const fn bps(self) -> u64 {
        self.0
    }

    /// What is left of it.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Both together.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// A part or a multiple of it, in percent.
    #[must_use]
    pub const fn percent(self, percent: u64) -> Self {
        Self(self.0.saturating_mul(percent) / 100)
    }

    /// The bytes that it brings in a time, rounded down.
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bits = u128::from(self.0) * time.as_nanos() / 1_000_000_000;
        u64::try_from(bits / 8).unwrap_or(u64::MAX)
    }

    /// The rate at which `bytes` take `time`; the greatest there is for no time.
    pub fn of(bytes: u64, time: Duration) -> Self {
        let bits = u128::from(bytes) * 8_000_000_000;
        Self(bits.checked_div(time.as_nanos()).map_or(u64::MAX, |bps| u64::try_from(bps).unwrap_or(u64::MAX)))
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
    /// A path is probed, or has not been heard of.
    Estimate,
    /// Video that waited may leave.
    Pacer,
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
    pub const ALL: [Why; 15] = [
        Why::Transport,
        Why::FrameHold,
        Why::SenderReport,
        Why::Estimate,
        Why::Pacer,
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
            Why::Estimate => "estimate",
            Why::Pacer => "pacer",
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
