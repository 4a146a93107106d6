//! Sink edge: coded packets in, IP packets out. The shared part of sinks that decode units:
//! generations or blocks.

mod delivery;

pub(crate) mod pace;

mod trial;

mod requests;

pub(crate) mod unit;

pub(crate) mod units;
