//! Random coefficients that a device and this CPU derive identically from a seed.

use recoded_gf::FieldOrder;

use crate::rlnc::{Density, Generator, Seeded};

/// Fills `row`, row number `index` of the matrix of `seed`: the vector of a packet with the seed
/// `seed + index` ([`Seeded`], TinyMT32 of RFC 8682), so that four bytes replace the vector on the
/// way to a sink.
pub fn draw(seed: u32, index: usize, field: FieldOrder, row: &mut [u8]) {
    // Matrices have at most 1024 rows.
    Seeded::new(seed.wrapping_add(index as u32), Density::UNIFORM).fill(field, row);
}
