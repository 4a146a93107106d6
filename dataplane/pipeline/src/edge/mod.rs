//! IP packets in and out of symbols: `[length][bytes]`, back to back, sealed or not; and their
//! traffic classes and flows.

pub mod class;

pub mod inner;

pub(crate) mod packing;

pub(crate) mod framing;

pub(crate) mod outlet;

pub(crate) mod sealed;
