//! Random coefficients that a device and this CPU make alike from a seed.

use recoded_gf::FieldOrder;

use crate::rlnc::{Density, Generator, Seeded};

/// Fills `row`, row number `index` of the matrix that `seed` stands for: the vector that a packet
/// with the seed `seed + index` has ([`Seeded`], TinyMT32 of RFC 8682), so that a sink can be told
/// four bytes instead of a vector.
pub fn draw(seed: u32, index: usize, field: FieldOrder, row: &mut [u8]) {
    // Matrices have at most 1024 rows.
    Seeded::new(seed.wrapping_add(index as u32), Density::UNIFORM).fill(field, row);
}
