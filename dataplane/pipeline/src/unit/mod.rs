//! Roles of a node, and what generations and batches share in each: source, relay, sink.

pub(crate) mod context;

pub(crate) mod role;

pub(crate) mod tags;

pub(crate) mod convergence;

pub(crate) mod source;

pub(crate) mod relay;

pub(crate) mod sink;
