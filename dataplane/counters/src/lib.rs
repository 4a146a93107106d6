//! Counters of a node. Each is declared once, in [`flow`], [`worker`], [`link`], [`tunnel`],
//! [`split`] or [`engine`], with its name, unit, meaning and, for a fault, its cure. Those of the
//! XDP program are declared in `recoded_wire`; [`verdict`] makes a table of them. The struct that a
//! worker increments, sums over workers, the control API, `recodectl` and the page
//! `docs/reference/counters.md` follow from the declarations.
//!
//! Place: a leaf. Plain integers, owned by one worker each and published between bursts; nothing
//! here is atomic, allocates on the packet path or does I/O.

#![forbid(unsafe_code)]

mod merge;
#[macro_use]
mod table;

pub mod engine;
pub mod flow;
pub mod link;
pub mod split;
pub mod tunnel;
pub mod verdict;
pub mod worker;

pub use table::{Counter, Table, Unit};

/// Every table.
pub const TABLES: [Table; 11] = [
    flow::TABLE,
    worker::TABLE,
    worker::FAULTS,
    link::TABLE,
    tunnel::TABLE,
    split::TABLE,
    verdict::TABLE,
    engine::TABLE,
    engine::DECLINED,
    engine::REDONE,
    engine::BUNDLES,
];
