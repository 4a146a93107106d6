//! The parts of a daemon's state that a user may choose.

use clap::ValueEnum;

/// A part of a daemon's state.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum Show {
    /// Flows: parameters, losses, ranks, counters; next hops of streams: rate, delay, loss
    Flows,
    /// Links: modes and why, neighbours, packets
    Links,
    /// Workers: cores, frames, packets
    Workers,
    /// The active configuration, as TOML
    Config,
    /// Everything that was dropped, by place and reason
    Drops,
    /// Who solves large generations: accelerator or CPU, and why
    Engine,
    /// All of these in full, but for the configuration
    All,
}
