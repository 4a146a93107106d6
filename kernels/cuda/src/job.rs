//! The mirror of `job.h`: the input of a kernel and its number of blocks.
//!
//! See `job.h` for the meaning of the fields; a test compares the two.

use recoded_gf::{Field, FieldOrder};

/// One job; a launch does any number of them. Offsets are bytes from the start of the arena.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[repr(C, align(16))]
pub struct Job {
    /// Row-major coefficients, in the technique's form.
    pub coefficients: u64,
    /// `depth` rows of `symbol_bytes` bytes, in the technique's form.
    pub sources: u64,
    /// `rows` rows of `symbol_bytes` bytes.
    pub destinations: u64,
    /// Bytes from one row of coefficients to the next one.
    pub coefficient_stride: u32,
    /// Bytes from one source to the next one.
    pub source_stride: u32,
    /// Bytes from one destination to the next one.
    pub destination_stride: u32,
    /// Bytes of a source and of a destination.
    pub symbol_bytes: u32,
    /// Destinations.
    pub rows: u32,
    /// Sources.
    pub depth: u32,
    /// Blocks of the jobs before this one in the launch.
    pub first_block: u32,
    /// Code of the tables: see [`Job::field_code`].
    pub field: u8,
    /// [`Job::ACCUMULATE`] or 0.
    pub flags: u8,
    /// Subfield of random coefficients: [`FieldOrder::code`].
    pub order: u8,
    /// Zero.
    pub reserved: u8,
    /// A parameter of the kernel.
    pub parameter: u64,
}

impl Job {
    /// Flag: add to the destinations instead of overwriting them.
    pub const ACCUMULATE: u8 = 1;

    /// The value of [`Job::field`] for a field.
    #[must_use]
    pub fn field_code(field: Field) -> u8 {
        let place = Field::ALL.iter().position(|&known| known == field);
        place.map_or(u8::MAX, |place| place as u8)
    }

    /// Bytes of state that the kernels `invert_*` share for each matrix.
    pub const INVERSE_STATE_BYTES: u64 = 16 + 2 * 1024 + 2 * 128;

    /// Columns that a launch of `invert_panel` eliminates.
    pub const INVERSE_PANEL: u32 = 32;

    /// Bytes of the state that `decode_progressive` keeps for each of its blocks, for a generation
    /// of `size` symbols.
    #[must_use]
    pub const fn progressive_state_bytes(size: u32) -> u32 {
        let stride = size.next_multiple_of(16);
        16 + stride + size * stride
    }

    /// The value of [`Job::order`] for a subfield.
    #[must_use]
    pub fn order_code(order: FieldOrder) -> u8 {
        order.code()
    }
}

/// The result of kernels that return a number, at the offset [`Job::parameter`].
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Returned {
    /// The number.
    pub value: u32,
    /// Anything.
    pub reserved: [u32; 3],
}

/// Bytes of the constant tables of all fields, which the kernel `field_tables` fills.
pub const TABLES_BYTES: usize = 5 * 11312;

/// Instructions of one round of the kernels `probe_*`: per thread, per warp for bmma, per four
/// warps for wgmma.
pub const PROBE_OPERATIONS: u32 = 64;

/// Launch parameters of the kernel `recoded_<name>`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Name of the kernel without `recoded_`.
    pub name: &'static str,
    /// Threads of a block.
    pub threads: u32,
    /// Rows of one unit of work.
    pub unit_rows: u32,
    /// Bytes of each row of one unit of work.
    pub unit_bytes: u32,
    /// Units that one block does.
    pub units_per_block: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
}

impl Geometry {
    /// The kernel of that name, without `recoded_`.
    #[must_use]
    pub fn of(name: &str) -> Option<&'static Self> {
        KERNELS.iter().find(|kernel| kernel.name == name)
    }

    /// Blocks of a job of `rows` rows of `symbol_bytes` bytes.
    #[must_use]
    pub fn blocks(&self, rows: u32, symbol_bytes: u32) -> u32 {
        let units = rows.div_ceil(self.unit_rows) * symbol_bytes.div_ceil(self.unit_bytes);
        units.div_ceil(self.units_per_block)
    }
}

/// The form of coefficients or sources that a technique expects.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Form {
    /// Unchanged elements.
    Plain,
    /// Logarithms, 0xFF for zero.
    LogFf,
    /// Logarithms plus 1, 0 for zero.
    Log00,
    /// Bit planes of 8 coefficients.
    Planes,
    /// Fragments of the binary matrix product.
    Bits,
    /// Columns of the binary matrix product of a warpgroup.
    Tiles,
}

impl Form {
    /// The kernel that converts plain elements to this form, without `recoded_`.
    #[must_use]
    pub const fn kernel(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::LogFf => Some("prepare_log_ff"),
            Self::Log00 => Some("prepare_log_00"),
            Self::Planes => Some("prepare_planes"),
            Self::Bits => Some("prepare_bits"),
            Self::Tiles => Some("prepare_tiles"),
        }
    }

    /// The stride of this form of a matrix whose plain rows of `columns` elements lie `stride`
    /// bytes apart.
    #[must_use]
    pub const fn stride(self, columns: u32, stride: u32) -> u32 {
        match self {
            Self::Plain | Self::LogFf | Self::Log00 => stride,
            Self::Planes => (8 * columns.div_ceil(8)).next_multiple_of(16),
            Self::Bits => 8192 * columns.div_ceil(32),
            Self::Tiles => 4096 * columns.div_ceil(32),
        }
    }

    /// Bytes of this form of a matrix of `rows` rows, given its [`Form::stride`].
    #[must_use]
    pub const fn bytes(self, rows: u32, stride: u32) -> u64 {
        let rows = match self {
            Self::Bits => rows.div_ceil(32),
            Self::Tiles => rows.div_ceil(16),
            _ => rows,
        };
        rows as u64 * stride as u64
    }
}

/// A way to multiply, by name.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Technique {
    /// Its name.
    pub name: &'static str,
    /// Its kernel, without `recoded_`.
    pub kernel: &'static str,
    /// The form of coefficients.
    pub coefficients: Form,
    /// The form of sources.
    pub sources: Form,
    /// Whether it also serves packed fields, not only GF(256).
    pub packed: bool,
    /// The lowest and the highest supported compute capability, times ten.
    pub capability: (u32, u32),
}

macro_rules! kernels {
    ($(($name:ident, $threads:literal, $rows:literal, $bytes:literal, $units:literal,
        $shared:literal)),* $(,)?) => {
        &[$(Geometry {
            name: stringify!($name),
            threads: $threads,
            unit_rows: $rows,
            unit_bytes: $bytes,
            units_per_block: $units,
            shared_bytes: $shared,
        }),*]
    };
}

/// Every kernel of the device code, and `reed_solomon`, whose source depends on the code.
pub const KERNELS: &[Geometry] = kernels![
    (matmul_loop, 256, 1, 4, 256, 0),
    (matmul_table_0, 256, 1, 4, 256, 1024),
    (matmul_table_1, 256, 1, 4, 256, 1024),
    (matmul_table_2, 256, 1, 4, 256, 1024),
    (matmul_table_3, 256, 1, 4, 256, 1024),
    (matmul_table_4, 256, 1, 4, 256, 0),
    (matmul_table_5, 1024, 1, 4, 8192, 65536),
    (matmul_permute, 128, 16, 16, 128, 24576),
    (matmul_permute_narrow, 128, 4, 16, 128, 24576),
    (matmul_four_russians, 512, 64, 256, 1, 65536),
    (matmul_bmma, 128, 32, 256, 1, 14336),
    (matmul_wgmma, 128, 64, 512, 1, 83968),
    (field_tables, 256, 1, 1, 1, 0),
    (prepare_log_ff, 256, 1, 4, 256, 0),
    (prepare_log_00, 256, 1, 4, 256, 0),
    (prepare_planes, 256, 1, 8, 256, 0),
    (prepare_bits, 128, 32, 32, 1, 0),
    (prepare_tiles, 128, 16, 32, 1, 0),
    (random_coefficients, 64, 1, 1024, 64, 0),
    (invert, 256, 1024, 1024, 1, 43280),
    (invert_begin, 256, 32, 1024, 1, 0),
    (invert_panel, 1024, 1024, 1024, 1, 45328),
    (invert_update, 256, 1024, 32, 1, 43280),
    (invert_end, 256, 32, 1024, 1, 36864),
    (decode_progressive, 256, 1024, 1024, 1, 2064),
    (eliminate_row, 256, 1024, 1024, 1, 1024),
    (probe_permute, 256, 1, 1024, 1, 0),
    (probe_logic, 256, 1, 1024, 1, 0),
    (probe_shared, 256, 1, 1024, 1, 4096),
    (probe_bmma, 256, 1, 1024, 1, 0),
    (probe_wgmma, 256, 1, 1024, 1, 4096),
    (reed_solomon, 256, 1024, 4, 256, 0),
];

macro_rules! techniques {
    ($(($name:literal, $kernel:ident, $coefficients:ident, $sources:ident, $packed:literal,
        $from:literal, $to:literal)),* $(,)?) => {
        &[$(Technique {
            name: $name,
            kernel: stringify!($kernel),
            coefficients: Form::$coefficients,
            sources: Form::$sources,
            packed: $packed,
            capability: ($from, $to),
        }),*]
    };
}

/// Every technique for all shapes, in the order of the papers.
pub const TECHNIQUES: &[Technique] = techniques![
    ("loop", matmul_loop, Plain, Plain, true, 0, 9999),
    ("table-0", matmul_table_0, Plain, Plain, false, 0, 9999),
    ("table-1", matmul_table_1, LogFf, LogFf, false, 0, 9999),
    ("table-2", matmul_table_2, LogFf, LogFf, false, 0, 9999),
    ("table-3", matmul_table_3, Log00, Log00, false, 0, 9999),
    ("table-4", matmul_table_4, Log00, Log00, false, 0, 9999),
    ("table-5", matmul_table_5, Log00, Log00, false, 0, 9999),
    ("permute", matmul_permute, Plain, Plain, true, 0, 9999),
    ("permute-narrow", matmul_permute_narrow, Plain, Plain, true, 0, 9999),
    ("four-russians", matmul_four_russians, Planes, Plain, true, 0, 9999),
    ("bmma", matmul_bmma, Bits, Plain, true, 80, 99),
    ("wgmma", matmul_wgmma, Tiles, Plain, true, 90, 90),
];
