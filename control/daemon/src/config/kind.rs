//! The roles that a flow may have on a host.

/// A role, without what it refers to.
#[derive(Copy, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Takes IP packets.
    Source,
    /// Recodes.
    Relay,
    /// Delivers IP packets.
    Sink,
}

/// Why relays and sinks do not have a key.
pub const LEARNED: &str = "only a source chooses it; relays and sinks learn it from packets";
