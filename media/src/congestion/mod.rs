//! What each link carries: the rate that a viewer's path takes, and what is sent with it.

pub mod allocation;
