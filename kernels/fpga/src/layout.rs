//! The interface between host and card: register offsets, descriptors, completions, codes.
//!
//! This is the only table of them. [`system_verilog`] generates `rtl/layout_pkg.sv` from it; a test
//! fails when the two differ.

use std::fmt::Write;

/// Read at [`register::MAGIC`]: "RCDF" in ASCII.
pub const MAGIC_VALUE: u32 = 0x5243_4446;

/// Raised when anything here changes.
pub const VERSION_VALUE: u32 = 1;

/// Constants of a module, with their table.
macro_rules! constants {
    ($(#[$meta:meta])* $module:ident: $type:ty { $($(#[$note:meta])* $name:ident = $value:expr,)* }) => {
        $(#[$meta])*
        pub mod $module {
            $($(#[$note])* pub const $name: $type = $value;)*

            /// All of them, with their names.
            pub const ALL: &[(&str, $type)] = &[$((stringify!($name), $name),)*];
        }
    };
}

constants! {
    /// Offsets of the register page, in bytes. All registers have 32 bits.
    register: u32 {
        /// Read: [`MAGIC_VALUE`](super::MAGIC_VALUE).
        MAGIC = 0x00,
        /// Read: [`VERSION_VALUE`](super::VERSION_VALUE).
        VERSION = 0x04,
        /// Read: lanes, sources and destinations of the tile, columns of tables made at once; a
        /// byte each, the first lowest.
        SHAPE = 0x08,
        /// Read: the most rows of a matrix side (low half), the most bytes of a row (high half).
        LIMITS = 0x0C,
        /// Read: kHz of the card's clock.
        CLOCK = 0x10,
        /// Read: identifier of the bitstream.
        BUILD_ID = 0x14,
        /// Bits of [`control`](super::control).
        CONTROL = 0x20,
        /// Read: bits of [`state`](super::state).
        STATUS = 0x24,
        /// Bits of [`error`](super::error) that stay set until 1 is written to them.
        ERROR = 0x28,
        /// Address of the ring of descriptors, a multiple of 64.
        SUBMISSION_BASE_LOW = 0x30,
        /// Its high half.
        SUBMISSION_BASE_HIGH = 0x34,
        /// Logarithm of its entries, at most 15.
        SUBMISSION_LOG2 = 0x38,
        /// Doorbell: descriptors written since the last reset, modulo 2^32.
        SUBMISSION_TAIL = 0x3C,
        /// Address of the ring of completions, a multiple of 64.
        COMPLETION_BASE_LOW = 0x40,
        /// Its high half.
        COMPLETION_BASE_HIGH = 0x44,
        /// Logarithm of its entries, at most 15.
        COMPLETION_LOG2 = 0x48,
        /// Completions that the host has taken since the last reset, modulo 2^32.
        COMPLETION_HEAD = 0x4C,
        /// Completions per interrupt; fewer interrupt when no other job is in progress.
        INTERRUPT_COALESCE = 0x50,
        /// Read: completions in the host's memory since the last reset, modulo 2^32.
        COMPLETION_TAIL = 0x54,
        /// The first of [`counter`](super::counter), 64 bits each. Reading a low half keeps the
        /// high half for the next read.
        COUNTER_FIRST = 0x80,
    }
}

constants! {
    /// Bits of [`register::CONTROL`].
    control: u32 {
        /// Descriptors are fetched.
        RUN = 0,
        /// Drops all transactions not yet begun on the bus, then restarts the engine.
        RESET = 1,
    }
}

constants! {
    /// Bits of [`register::STATUS`].
    state: u32 {
        /// Descriptors are fetched.
        RUNNING = 0,
        /// No job is in progress.
        IDLE = 1,
        /// A reset has not ended, as memory has not responded.
        RESETTING = 2,
    }
}

constants! {
    /// Bits of [`register::ERROR`].
    error: u32 {
        /// A doorbell for more descriptors than the ring has; it was ignored.
        DOORBELL = 0,
        /// A descriptor could not be read.
        DESCRIPTOR = 1,
        /// A read failed.
        READ = 2,
        /// A destination could not be written.
        WRITE = 3,
        /// A completion could not be written.
        COMPLETION = 4,
    }
}

constants! {
    /// Numbers of the counters, which count since the card was configured.
    counter: u32 {
        /// Clocks.
        CYCLES = 0,
        /// Clocks with a job in progress.
        BUSY = 1,
        /// Clocks with sources ready, but no tables.
        STALL_TABLES = 2,
        /// Clocks of a job without sources.
        STALL_INPUT = 3,
        /// Clocks with both ready, but no bank for the destinations.
        STALL_OUTPUT = 4,
        /// Jobs completed.
        JOBS = 5,
        /// Bytes of source rows read.
        BYTES_IN = 6,
        /// Bytes of destination rows written.
        BYTES_OUT = 7,
        /// Beats and bursts that failed.
        AXI_ERRORS = 8,
    }
}

constants! {
    /// The operation of a descriptor.
    op: u8 {
        /// `destinations = coefficients * sources`.
        MULTIPLY = 0,
        /// No operation: runs after all jobs before it and before all jobs after it.
        BARRIER = 1,
        /// No operation.
        NOP = 2,
    }
}

constants! {
    /// Fields of coefficients and symbols. A byte packs as many elements as fit.
    field: u8 {
        /// One element a byte.
        GF256 = 0,
        /// Two.
        GF16 = 1,
        /// Four.
        GF4 = 2,
        /// Eight.
        GF2 = 3,
    }
}

constants! {
    /// Bits of a descriptor's flags.
    flag: u16 {
        /// `sources` is the address of row 0, not of a list of addresses.
        SOURCE_STRIDE = 0,
        /// `destinations` is the address of row 0, not of a list of addresses.
        DESTINATION_STRIDE = 1,
    }
}

constants! {
    /// The outcome of a job.
    status: u16 {
        /// Done.
        OK = 0,
        /// No such operation.
        OPERATION = 1,
        /// No such field.
        FIELD = 2,
        /// No rows, or too many.
        SIZE = 3,
        /// No bytes, or too many.
        LENGTH = 4,
        /// An address is null, or that of a list or of coefficients is no multiple of 64.
        ADDRESS = 5,
        /// Memory refused a read; destinations may contain wrong bytes.
        READ = 6,
        /// Memory refused a write.
        WRITE = 7,
        /// The descriptor could not be read. The tag is all ones.
        DESCRIPTOR = 8,
    }
}

/// Fields of a descriptor, in order, with their bytes. All are little-endian.
pub const DESCRIPTOR: [(&str, usize); 15] = [
    ("op", 1),
    ("field", 1),
    ("flags", 2),
    ("tag", 4),
    ("k", 2),
    ("n", 2),
    ("row_bytes", 4),
    ("coefficients", 8),
    ("sources", 8),
    ("destinations", 8),
    ("source_stride", 4),
    ("destination_stride", 4),
    ("polynomial", 1),
    ("reserved", 7),
    ("reserved_more", 8),
];

/// Fields of a completion, in order, with their bytes.
pub const COMPLETION: [(&str, usize); 5] =
    [("tag", 4), ("status", 2), ("phase", 2), ("cycles", 4), ("reserved", 4)];

/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = bytes(&DESCRIPTOR);

/// Bytes of a completion.
pub const COMPLETION_BYTES: usize = bytes(&COMPLETION);

/// A job in the card's format.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Descriptor {
    /// Of [`op`].
    pub op: u8,
    /// Of [`field`].
    pub field: u8,
    /// Bits of [`flag`].
    pub flags: u16,
    /// Returned with the completion.
    pub tag: u32,
    /// Sources.
    pub k: u16,
    /// Destinations.
    pub n: u16,
    /// Bytes of each row.
    pub row_bytes: u32,
    /// Address of the coefficients in tile order.
    pub coefficients: u64,
    /// Address of row 0 or of the list of rows.
    pub sources: u64,
    /// Address of row 0 or of the list of rows.
    pub destinations: u64,
    /// Bytes from one source to the next.
    pub source_stride: u32,
    /// Bytes from one destination to the next.
    pub destination_stride: u32,
    /// The reducing polynomial without its leading term.
    pub polynomial: u8,
}

impl Descriptor {
    /// The card's format.
    #[must_use]
    pub fn to_bytes(self) -> [u8; DESCRIPTOR_BYTES] {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        let fields: [&[u8]; 13] = [
            &[self.op],
            &[self.field],
            &self.flags.to_le_bytes(),
            &self.tag.to_le_bytes(),
            &self.k.to_le_bytes(),
            &self.n.to_le_bytes(),
            &self.row_bytes.to_le_bytes(),
            &self.coefficients.to_le_bytes(),
            &self.sources.to_le_bytes(),
            &self.destinations.to_le_bytes(),
            &self.source_stride.to_le_bytes(),
            &self.destination_stride.to_le_bytes(),
            &[self.polynomial],
        ];
        let mut start = 0;
        for field in fields {
            bytes[start..start + field.len()].copy_from_slice(field);
            start += field.len();
        }
        bytes
    }
}

/// The card's report of a job.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The descriptor's.
    pub tag: u32,
    /// Of [`status`].
    pub status: u16,
    /// Phase bit: it changes with every round of the ring.
    pub phase: bool,
    /// Clocks from the descriptor's arrival to this completion.
    pub cycles: u32,
}

impl Completion {
    /// Parses the card's format.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; COMPLETION_BYTES]) -> Self {
        let word = |index: usize| {
            let place = 4 * index;
            u32::from_le_bytes([bytes[place], bytes[place + 1], bytes[place + 2], bytes[place + 3]])
        };
        let status = word(1) as u16;
        Self { tag: word(0), status, phase: word(1) >> 16 & 1 == 1, cycles: word(2) }
    }
}

/// The package that the RTL imports.
#[must_use]
pub fn system_verilog() -> String {
    let mut text = String::from(
        "// Written from the table in src/layout.rs: see its test. Not to be edited.\n\
         package layout_pkg;\n",
    );
    let mut constant = |bits: usize, name: &str, value: u32| {
        let _ = writeln!(text, "  localparam logic [{}:0] {name} = {bits}'h{value:X};", bits - 1);
    };
    constant(32, "MAGIC_VALUE", MAGIC_VALUE);
    constant(32, "VERSION_VALUE", VERSION_VALUE);
    register::ALL.iter().for_each(|(name, value)| constant(12, name, *value));
    let prefixed = |prefix: &str, name: &str| format!("{prefix}_{name}");
    op::ALL.iter().for_each(|(name, value)| constant(8, &prefixed("OP", name), (*value).into()));
    for (name, value) in field::ALL {
        constant(8, &prefixed("FIELD", name), (*value).into());
    }
    for (name, value) in status::ALL {
        constant(16, &prefixed("STATUS", name), (*value).into());
    }
    let mut number = |prefix: &str, name: &str, value: u32| {
        let _ = writeln!(text, "  localparam int {prefix}_{name} = {value};");
    };
    control::ALL.iter().for_each(|(name, value)| number("CONTROL", name, *value));
    state::ALL.iter().for_each(|(name, value)| number("STATE", name, *value));
    error::ALL.iter().for_each(|(name, value)| number("ERROR", name, *value));
    counter::ALL.iter().for_each(|(name, value)| number("COUNT", name, *value));
    flag::ALL.iter().for_each(|(name, value)| number("FLAG", name, (*value).into()));
    number("DESCRIPTOR", "BYTES", DESCRIPTOR_BYTES as u32);
    number("COMPLETION", "BYTES", COMPLETION_BYTES as u32);
    let _ = writeln!(text, "  localparam int ERRORS = {};", error::ALL.len());
    let _ = writeln!(text, "  localparam int COUNTERS = {};", counter::ALL.len());
    for (name, fields) in [("descriptor_t", &DESCRIPTOR[..]), ("completion_t", &COMPLETION[..])] {
        let _ = writeln!(text, "  typedef struct packed {{");
        for (field, bytes) in fields.iter().rev() {
            let _ = writeln!(text, "    logic [{}:0] {field};", 8 * bytes - 1);
        }
        let _ = writeln!(text, "  }} {name};");
    }
    text.push_str("endpackage\n");
    text
}

const fn bytes(fields: &[(&str, usize)]) -> usize {
    let (mut total, mut index) = (0, 0);
    while index < fields.len() {
        total += fields[index].1;
        index += 1;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, fs};

    /// `RECODED_BLESS=1` writes the package.
    #[test]
    fn system_verilog_package_is_that_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/rtl/layout_pkg.sv");
        if env::var_os("RECODED_BLESS").is_some() {
            fs::write(path, system_verilog()).expect("the sources are writable");
        }
        let kept = fs::read_to_string(path).expect("the package is part of the sources");
        assert_eq!(kept, system_verilog(), "RECODED_BLESS=1 writes it");
    }

    #[test]
    fn descriptor_has_its_fields_where_the_table_says() {
        let offset = |name: &str| {
            let before = DESCRIPTOR.iter().take_while(|(field, _)| *field != name);
            before.map(|(_, bytes)| bytes).sum::<usize>()
        };
        let descriptor = Descriptor {
            k: 0x0102,
            row_bytes: 0x0304_0506,
            destinations: 0x1122_3344_5566_7788,
            polynomial: 0x1D,
            ..Descriptor::default()
        };
        let bytes = descriptor.to_bytes();
        assert_eq!(bytes[offset("k")..][..2], [2, 1]);
        assert_eq!(bytes[offset("row_bytes")..][..4], [6, 5, 4, 3]);
        assert_eq!(bytes[offset("destinations")], 0x88);
        assert_eq!(bytes[offset("polynomial")], 0x1D);
        assert_eq!((DESCRIPTOR_BYTES, COMPLETION_BYTES), (64, 16));
    }

    #[test]
    fn registers_do_not_overlap() {
        for pair in register::ALL.windows(2) {
            assert!(pair[0].1 < pair[1].1, "{pair:?}");
        }
        let end = register::COUNTER_FIRST as usize + 8 * counter::ALL.len();
        assert!(end <= 4096, "the page ends");
    }

    #[test]
    fn completion_is_parsed_as_it_is_laid_out() {
        let bytes = [4, 3, 2, 1, 7, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        let expected = Completion { tag: 0x0102_0304, status: 7, phase: true, cycles: 9 };
        assert_eq!(Completion::from_bytes(&bytes), expected);
    }
}
