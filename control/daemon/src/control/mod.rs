//! The control socket: who may connect, how much they may ask, and for how long they may dawdle.

pub mod socket;

pub mod bounded;
