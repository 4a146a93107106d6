//! Parameters of a block and its code.

use std::fmt;
use std::str::FromStr;

use crate::bats::precode::Precode;

/// Most source symbols of a block: 12 bits keep every index of an intermediate symbol in a `u16`,
/// and a block of that size already takes 6 MB of packets.
pub const SOURCE_SYMBOLS_MAX: usize = 4096;

/// Most intermediate symbols: source symbols and those of the precode.
pub const SYMBOLS_MAX: usize = 5120;

/// Most inactive symbols of one decoding.
pub const INACTIVE_MAX: usize = 1024;

/// Largest batch. A coding vector of 128 elements of GF(256) is a tenth of a packet.
pub const BATCH_SIZE_MAX: usize = 128;

/// How batches are formed from symbols.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Profile {
    /// Random degrees, symbols and coefficients: the procedures of RFC 9426, no precode.
    Baseline,
    /// The same over a precode (LDPC and HDPC symbols), which repairs symbols that random sampling
    /// leaves uncovered.
    Precoded,
    /// A base graph whose rows are shifted cyclically (CS-BATS): every symbol is covered equally
    /// often, by batches of a third of the work.
    #[default]
    CyclicShift,
}

impl Profile {
    /// Every profile, by code.
    pub const ALL: [Self; 3] = [Self::Baseline, Self::Precoded, Self::CyclicShift];

    /// Number on the wire, below 16.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Baseline => 0,
            Self::Precoded => 1,
            Self::CyclicShift => 2,
        }
    }

    /// The profile of a number on the wire.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Name in configurations and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Precoded => "precoded",
            Self::CyclicShift => "cyclic-shift",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = ParamsError;

    fn from_str(name: &str) -> Result<Self, ParamsError> {
        let found = Self::ALL.into_iter().find(|profile| profile.name() == name);
        found.ok_or_else(|| ParamsError::Profile { name: name.to_owned() })
    }
}

/// Everything both ends must agree on about a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Params {
    /// Source symbols of the block (K), 1 to [`SOURCE_SYMBOLS_MAX`].
    pub source_symbols: usize,
    /// Coded symbols of a batch (M), 1 to [`BATCH_SIZE_MAX`].
    pub batch_size: usize,
    /// How batches are formed.
    pub profile: Profile,
    /// Width of generator coefficients: 1, 2, 3, 4 or 8 bits. They are the elements of GF(256)
    /// below `2^generator_bits`, a *bounded-value generator*; 8 is the whole field.
    pub generator_bits: u8,
}

impl Default for Params {
    /// The block that is "frequently used" in practice: 256 symbols in batches of 16.
    fn default() -> Self {
        Self {
            source_symbols: 256,
            batch_size: 16,
            profile: Profile::CyclicShift,
            generator_bits: 8,
        }
    }
}

impl Params {
    /// These parameters, if they are within the limits of the code.
    ///
    /// # Errors
    /// [`ParamsError`] names the first one that is not.
    pub fn validated(self) -> Result<Self, ParamsError> {
        let (source_symbols, batch_size) = (self.source_symbols, self.batch_size);
        if !(1..=SOURCE_SYMBOLS_MAX).contains(&source_symbols) {
            return Err(ParamsError::SourceSymbols { source_symbols, max: SOURCE_SYMBOLS_MAX });
        }
        if !(1..=BATCH_SIZE_MAX).contains(&batch_size) {
            return Err(ParamsError::BatchSize { batch_size, max: BATCH_SIZE_MAX });
        }
        match self.generator_bits {
            1..=4 | 8 => Ok(self),
            bits => Err(ParamsError::GeneratorBits { bits }),
        }
    }
}

/// Limits of the blocks that an object supports.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most source symbols of a block.
    pub source_symbols_max: usize,
    /// Largest batch.
    pub batch_size_max: usize,
    /// Most batches of one block that are kept.
    pub batches_max: usize,
    /// Most inactive symbols of one decoding, at most [`INACTIVE_MAX`]. A block that needs more
    /// waits for further batches. With 0 there is no inactivation, only belief propagation.
    pub inactive_max: usize,
}

impl Limits {
    /// Limits for blocks of up to this size: three times the batches that the symbols fill, and
    /// eight more, so that half of all packets may be lost.
    #[must_use]
    pub fn of(source_symbols_max: usize, batch_size_max: usize) -> Self {
        Self {
            source_symbols_max,
            batch_size_max,
            batches_max: 3 * source_symbols_max.div_ceil(batch_size_max.max(1)) + 8,
            inactive_max: (source_symbols_max / 2 + 64).min(INACTIVE_MAX),
        }
    }

    /// Most intermediate symbols of a block within these limits.
    #[must_use]
    pub fn intermediate_symbols_max(&self) -> usize {
        let symbols = self.clamped().source_symbols_max;
        symbols + Precode::of(symbols).parity_symbols()
    }

    /// These limits, reduced to those of the code.
    #[must_use]
    pub(super) fn clamped(self) -> Self {
        Self {
            source_symbols_max: self.source_symbols_max.clamp(1, SOURCE_SYMBOLS_MAX),
            batch_size_max: self.batch_size_max.clamp(1, BATCH_SIZE_MAX),
            batches_max: self.batches_max.clamp(1, usize::from(u16::MAX)),
            inactive_max: self.inactive_max.min(INACTIVE_MAX),
        }
    }
}

/// The reason why parameters describe no code.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParamsError {
    /// K out of range.
    #[error("a block has 1 to {max} source symbols, not {source_symbols}")]
    SourceSymbols {
        /// The requested number.
        source_symbols: usize,
        /// The most supported here.
        max: usize,
    },
    /// M out of range.
    #[error("a batch has 1 to {max} coded symbols, not {batch_size}")]
    BatchSize {
        /// The requested number.
        batch_size: usize,
        /// The most supported here.
        max: usize,
    },
    /// An unsupported width.
    #[error("generator coefficients have 1, 2, 3, 4 or 8 bits, not {bits}")]
    GeneratorBits {
        /// The requested width.
        bits: u8,
    },
    /// No such profile.
    #[error("unknown profile `{name}`; there are: baseline, precoded, cyclic-shift")]
    Profile {
        /// The requested name.
        name: String,
    },
    /// An empty degree distribution.
    #[error("a degree distribution needs at least one degree")]
    NoDegrees,
    /// Row degrees that describe no base graph.
    #[error("a base graph has 1 to {max} rows, each of degree 1 to {degree_max}")]
    RowDegrees {
        /// Most rows.
        max: usize,
        /// Largest degree.
        degree_max: usize,
    },
}
