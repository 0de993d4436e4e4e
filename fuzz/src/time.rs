//! Where virtual time begins.

use std::sync::OnceLock;
use std::time::Instant;

/// One moment for the whole process: only distances to it matter, and equal inputs must do equal things.
pub fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}
