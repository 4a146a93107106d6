//! The sending side of a hop: packets in flight, loss recovery, path MTU, keepalives.

pub(crate) mod next_hops;

pub(crate) mod in_flight;

pub(crate) mod link_sender;

pub(crate) mod round_trip;

pub(crate) mod keepalive;

pub(crate) mod mender;

pub(crate) mod repair;

pub(crate) mod liveness;

pub(crate) mod path_mtu;

pub(crate) mod path_size;
