//! Benchmark inputs: block shapes, source symbols, ways to form batches.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use recoded_code::bats::{Code, Operand, PAPER_ROW_DEGREES, Params, ParamsError, Profile, Rows};
use recoded_gf::Field;
use serde::Serialize;

use crate::error::BenchError;
use crate::kernels::memory::Layout;

/// Size of a block, its batches and its symbols.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BlockShape {
    /// Source symbols (K).
    pub symbols: usize,
    /// Coded symbols of a batch (M).
    pub batch_size: usize,
    /// Bytes of a symbol (T).
    pub bytes: usize,
}

impl BlockShape {
    /// The one that targets are about.
    pub const TARGET: BlockShape = BlockShape { symbols: 256, batch_size: 16, bytes: 1428 };

    /// Those of the published table, the one of the targets first.
    pub fn published() -> Vec<BlockShape> {
        let mut shapes = vec![BlockShape::TARGET];
        for (symbols, batch_size) in [(256, 16), (256, 32), (1024, 16), (1024, 32)] {
            let sizes = [1428, 1024, 256, 64].into_iter();
            shapes.extend(sizes.map(|bytes| BlockShape { symbols, batch_size, bytes }));
        }
        shapes.remove(1);
        shapes
    }
}

/// A block that everybody works on.
pub struct Block {
    /// Its size.
    pub shape: BlockShape,
    /// The source symbols.
    pub sources: Vec<&'static [u8]>,
    /// Of everything random about it.
    pub seed: u64,
}

impl Block {
    /// A block of random bytes.
    pub fn draw(shape: BlockShape, seed: u64) -> Block {
        let mut random = SmallRng::seed_from_u64(seed);
        let sources = Layout::packed(shape.symbols, shape.bytes).random(&mut random);
        Block { shape, sources, seed }
    }

    /// Source symbols, followed by those of the precode.
    pub fn intermediate(&self, code: &Code) -> Vec<&'static [u8]> {
        let mut rows = Rows::new(self.shape.bytes);
        for (index, source) in self.sources.iter().enumerate() {
            rows.set(Operand::Symbol(index as u16), source);
        }
        let Ok(()) = code.precode_symbols(&mut rows);
        let parity = self.sources.len()..code.intermediate_symbols();
        let room = Layout::packed(parity.len(), self.shape.bytes).zeros();
        let parity = parity.zip(room).map(|(index, room)| {
            room.copy_from_slice(rows.get(Operand::Symbol(index as u16)).unwrap_or_default());
            &*room
        });
        self.sources.iter().copied().chain(parity).collect()
    }
}

/// One way to form batches.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Variant {
    /// Display name.
    pub name: &'static str,
    profile: Profile,
    /// Uses the paper's row degrees instead of this project's.
    is_paper: bool,
}

impl Variant {
    /// The default one, which targets are about.
    pub const DEFAULT: Variant =
        Variant { name: "cyclic-shift", profile: Profile::CyclicShift, is_paper: false };

    /// All that are measured at the targets' shape.
    pub const ALL: [Variant; 3] = [
        Variant::DEFAULT,
        Variant {
            name: "cyclic-shift, paper's degrees",
            profile: Profile::CyclicShift,
            is_paper: true,
        },
        Variant { name: "precoded", profile: Profile::Precoded, is_paper: false },
    ];

    /// The code of a block.
    ///
    /// # Errors
    /// There is none of this shape.
    pub fn code(&self, shape: BlockShape) -> Result<Code, ParamsError> {
        let BlockShape { symbols: source_symbols, batch_size, .. } = shape;
        let params =
            Params { source_symbols, batch_size, profile: self.profile, ..Params::default() };
        match self.is_paper {
            true => Code::with_row_degrees(params, &PAPER_ROW_DEGREES),
            false => Code::new(params),
        }
    }
}

/// The error for a wrong result of this project's code.
pub fn wrong(kernel: &'static str, n: usize, bytes: usize) -> BenchError {
    let field = Field::Gf256x11D.to_string();
    BenchError::Wrong { kernel, operation: "block", field, n, bytes }
}
