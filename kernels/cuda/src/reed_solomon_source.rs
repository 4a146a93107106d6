//! CUDA source of a product by one fixed matrix over GF(256) modulo 0x11D: a network of sums.
//!
//! Gibraltar compiles a kernel for each code k+m when its context is created, so that no property
//! of the code is looked up (Curry, Skjellum, Ward, Brightwell, section 4). This goes a step
//! further: the coefficients are in the code as well. Bit b of a coefficient decides whether a
//! source counts in the sum b of its destination; the sums of the subsets of four neighbouring
//! sources are shared by all destinations; Horner's rule combines the eight sums of each one at the
//! end. No tables, no multiplications: per destination and four sources eight additions of words.
//!
//! Text in, text out: NVRTC compiles it for a card, the shim's build for the CPU.

use std::collections::BTreeSet;
use std::fmt::Write;

/// The text that must precede the source: the run-time compiler has no files to include.
pub const PRELUDE: &str =
    concat!(include_str!("../job.h"), "\n", include_str!("../device/common.cuh"), "\n");

/// Products (rows times columns of the matrix) up to which this is worthwhile: 64+16, for example,
/// is 50 KB of code that takes NVRTC 2 s, and larger ones begin to spill registers. Beyond it,
/// multiply by a kernel for all matrices.
pub const PRODUCTS_MAX: usize = 1024;

/// Destinations computed at a time: eight sums of each are in registers.
const ROWS_AT_ONCE: usize = 12;
/// Sources whose subsets are summed: 15 sums at most.
const GROUP: usize = 4;

/// The source of `recoded_<kernel>`, which multiplies by the row-major matrix `coefficients` with
/// `columns` columns; without [`PRELUDE`].
#[must_use]
pub fn source(kernel: &str, coefficients: &[u8], columns: usize) -> String {
    let rows: Vec<&[u8]> = coefficients.chunks_exact(columns).collect();
    let mut text = format!(
        "KERNEL({kernel}) {{\n\
         \x20   const Job job = job_of_block(jobs, jobs_count);\n\
         \x20   const uint32_t begin = (blockIdx.x - job.first_block) * reed_solomon_units;\n\
         \x20   const Unit unit = unit_of(job, begin + threadIdx.x, reed_solomon_unit_rows, 4);\n\
         \x20   if (!unit.exists) return;\n\
         \x20   const Shape shape = shape_of(8, 0x1d);\n\
         \x20   const uint8_t *source = source_row(job, arena, 0) + unit.byte;\n"
    );
    for (index, some) in rows.chunks(ROWS_AT_ONCE).enumerate() {
        text.push_str("    {\n");
        write_rows(&mut text, some, index * ROWS_AT_ONCE);
        text.push_str("    }\n");
    }
    text.push_str("}\n");
    text
}

/// Writes the part that computes `rows`; the first is destination `first`.
fn write_rows(text: &mut String, rows: &[&[u8]], first: usize) {
    for row in 0..rows.len() {
        let sums: Vec<String> = (0..8).map(|bit| format!("a{row}_{bit} = 0")).collect();
        line(text, 2, format_args!("uint32_t {};", sums.join(", ")));
    }
    let columns = rows[0].len();
    for group in (0..columns).step_by(GROUP) {
        write_group(text, rows, group, GROUP.min(columns - group));
    }
    for row in 0..rows.len() {
        for bit in (0..7).rev() {
            let above = bit + 1;
            line(text, 2, format_args!("a{row}_{bit} ^= times_x(a{row}_{above}, shape);"));
        }
        let destination = format!("destination_row(job, arena, {}) + unit.byte", first + row);
        line(text, 2, format_args!("put(job, {destination}, a{row}_0);"));
    }
}

/// Adds `count` sources from `first` on to their sums.
fn write_group(text: &mut String, rows: &[&[u8]], first: usize, count: usize) {
    let subset = |row: &[u8], bit: usize| {
        (0..count).fold(0, |set, i| set | usize::from(row[first + i] >> bit & 1) << i)
    };
    let mut needed: BTreeSet<usize> =
        rows.iter().flat_map(|row| (0..8).map(|bit| subset(row, bit))).collect();
    needed.remove(&0);
    // The sum of a subset is the sum of the subset without its first source, plus that source.
    for mut set in needed.clone() {
        while set != 0 {
            needed.insert(set);
            needed.insert(set & set.wrapping_neg());
            set &= set - 1;
        }
    }
    line(text, 2, format_args!("{{"));
    for set in needed {
        let lowest = set & set.wrapping_neg();
        let value = if set == lowest {
            let source = first + set.trailing_zeros() as usize;
            format!("load<uint32_t>(source + {source} * (uint64_t)job.source_stride)")
        } else {
            format!("s{} ^ s{lowest}", set ^ lowest)
        };
        line(text, 3, format_args!("const uint32_t s{set} = {value};"));
    }
    for (index, row) in rows.iter().enumerate() {
        for bit in 0..8 {
            match subset(row, bit) {
                0 => {}
                set => line(text, 3, format_args!("a{index}_{bit} ^= s{set};")),
            }
        }
    }
    line(text, 2, format_args!("}}"));
}

fn line(text: &mut String, depth: usize, content: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{:1$}{content}", "", 4 * depth);
}
