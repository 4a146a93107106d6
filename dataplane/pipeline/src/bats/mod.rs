//! The edges of BATS flows. Relays need nothing from here: they treat a batch as a generation.
//!
//! ```text
//!  TUN -> source: block of symbols -> batches -> relays -> sink: decoder per block -> TUN
//! ```

pub(crate) mod source;

mod block;

pub(crate) mod sent_batches;

pub(crate) mod plan;

pub(crate) mod received;

mod rows;
