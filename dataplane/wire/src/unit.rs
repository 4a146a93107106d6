//! Units whose symbols have tags, as the pipeline names them and the keys are used: by numbering
//! space, number and context. Not a packet format; `docs/internals/tags.md` has the arithmetic.

/// Bytes of a [`TaggedUnit`]'s context.
pub const CONTEXT_BYTES: usize = 16;

/// Symbols of a stream per unit: a symbol's number modulo this is its index in the unit.
pub const STREAM_UNIT: u32 = 16;

/// Numbering space of units.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Space {
    /// The flow.
    pub flow: u32,
    /// The shard of the flow.
    pub shard: u8,
    /// Kind of the numbered units.
    pub kind: UnitKind,
}

/// Kinds of numbered units; the packet types of this crate.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum UnitKind {
    /// Coded symbols of a batch, by batch number through all blocks.
    Batch = 1,
    /// Source symbols of a generation, by generation number.
    Generation = 2,
    /// Symbols of a stream, by their number: symbol n is number n % [`STREAM_UNIT`] of unit
    /// n / [`STREAM_UNIT`].
    Stream = 5,
}

/// A unit, and the context that the tags of its symbols are bound to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TaggedUnit {
    /// Its numbering space.
    pub space: Space,
    /// Its number, which does not repeat while a key is valid.
    pub number: u64,
    /// Further fields shared by all of its packets; for a stream, the fields of this symbol or
    /// combination.
    pub context: [u8; CONTEXT_BYTES],
}

/// How a symbol was formed from its unit's symbols.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Formed<'a> {
    /// The source symbol of this index, as the source formed it.
    Source(usize),
    /// A combination with these coefficients, elements of GF(256).
    Combination(&'a [u8]),
}
