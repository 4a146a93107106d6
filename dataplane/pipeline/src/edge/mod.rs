//! IP packets in and out of symbols: `[length][bytes]`, back to back.

pub(crate) mod packing;

pub(crate) mod framing;
