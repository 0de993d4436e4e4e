//! Wire formats: parse and emit only.

pub mod rtcp;
