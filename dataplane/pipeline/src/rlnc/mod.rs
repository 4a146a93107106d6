//! Random linear network coding over generations, at the edges. Relays need nothing from here.
//!
//! ```text
//!  TUN -> source: generation of symbols -> relays -> sink: elimination per generation -> TUN
//! ```

pub(crate) mod source;

pub(crate) mod redundancy;

pub(crate) mod generation;
