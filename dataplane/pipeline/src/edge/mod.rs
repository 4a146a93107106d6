//! IP packets in and out of symbols: `[length][bytes]`, back to back; and their traffic classes.

pub mod class;

pub(crate) mod packing;

pub(crate) mod framing;

pub(crate) mod outlet;
