//! One neighbour: what is received from it, what is in flight to it, and the rate of the link.

pub(crate) mod receive;

pub(crate) mod send;

pub(crate) mod rate;
