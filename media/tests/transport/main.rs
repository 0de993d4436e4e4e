//! Transports against a real peer (a full str0m client) on virtual time, and against what offers may hold.

mod handshake;
mod hostile;
mod net;
mod offers;
mod plain;
mod play;
mod publish;
mod restart;
mod simulcast;
mod srtp;
mod vectors;
