//! Stories told on the simulator: whole rooms in virtual time, over bad links, from seeds.

mod audible;
mod encrypted;
mod feedback;
mod layered;
mod layers;
mod lifecycle;
mod loss;
mod plain;
mod quality;
mod rtc;
mod tick;
mod world;
