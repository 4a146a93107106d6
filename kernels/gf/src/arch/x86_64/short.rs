//! The matrix product of symbols that fit one register.
//!
//! Such a product uses a coefficient once before it needs the next one. By `affine` that costs two
//! dependent loads: the coefficient, then its bit matrix. `vgf2p8mulb` multiplies by the
//! coefficient itself, but modulo 0x11B, so all operands are mapped to that field and the sums are
//! mapped back (`Tables::to_11b`):
//!
//! ```text
//!  coefficients  a register of them at a time  --to_11b-->  bytes, each loaded into all of a
//!                                                           register where it multiplies
//!  sources       one register each             --to_11b-->  held for all strips of destinations
//!  sums          one register a destination    --from_11b--> destinations
//! ```
//!
//! All coefficients are mapped first, so that the loop waits for them once.

/// Destinations of a strip, whose sums stay in registers; fewer are not worthwhile.
pub const SHORT_STRIP: usize = 8;

/// Coefficients of one product.
pub const SHORT_COEFFICIENTS: usize = 1024;

/// Defines `matmul_short`.
macro_rules! short_symbols {
    (
        $features:tt, splat: $splat:ident, byte: $byte:ident, affine: $affine:ident,
        multiply: $multiply:ident
    ) => {
        /// `matmul` of slices of at most `VECTOR` bytes; does nothing and returns false if that is
        /// not faster.
        #[target_feature(enable = $features)]
        pub fn matmul_short(
            tables: &'static Tables,
            coefficients: &[u8],
            sources: &[&[u8]],
            destinations: &mut [&mut [u8]],
            accumulate: bool,
        ) -> bool {
            use crate::arch::x86_64::short::{SHORT_COEFFICIENTS, SHORT_STRIP};

            let columns = sources.len();
            let serves = destinations.len().is_multiple_of(SHORT_STRIP)
                && (1..=SOURCES).contains(&columns)
                && coefficients.len() <= SHORT_COEFFICIENTS
                && tables.field.order() == 256;
            if !serves {
                return false;
            }
            let to_11b = $splat(tables.to_11b.cast_signed());
            let mut factors =
                [const { MaybeUninit::<[u8; VECTOR]>::uninit() }; SHORT_COEFFICIENTS / VECTOR];
            for (room, group) in factors.iter_mut().zip(coefficients.chunks(VECTOR)) {
                let mut bytes = [0; VECTOR];
                store(&mut bytes, $affine::<0>(load_short(group), to_11b));
                room.write(bytes);
            }
            let factors = factors.as_ptr().cast::<u8>();
            // SAFETY: the loop wrote whole registers, and their first bytes belong to the
            // coefficients; there is room for all of them.
            let factors = unsafe { core::slice::from_raw_parts(factors, coefficients.len()) };
            let bytes = destinations.first().map_or(0, |destination| destination.len());
            let mut held = [const { MaybeUninit::<Vector>::uninit() }; SOURCES];
            for (held, source) in held.iter_mut().zip(sources) {
                // A common length makes one mask for all.
                held.write($affine::<0>(load_short(&source[..bytes]), to_11b));
            }
            let held = held.as_ptr().cast::<Vector>();
            // SAFETY: the loop wrote one for each source.
            let held = unsafe { core::slice::from_raw_parts(held, columns) };
            let pass = Pass { tables, coefficients: factors, columns, sources, bytes, accumulate };
            let mut row = 0;
            for strip in destinations.as_chunks_mut::<SHORT_STRIP>().0 {
                short_strip(&pass, held, row, strip);
                row += SHORT_STRIP;
            }
            true
        }

        /// A strip of destinations in the other field; the first belongs to `row`.
        #[target_feature(enable = $features)]
        #[inline]
        fn short_strip(
            pass: &Pass<'_>,
            held: &[Vector],
            row: usize,
            strip: &mut [&mut [u8]; crate::arch::x86_64::short::SHORT_STRIP],
        ) {
            use crate::arch::x86_64::short::SHORT_STRIP;

            let columns = held.len();
            let mut rows = [&[][..]; SHORT_STRIP];
            for d in 0..SHORT_STRIP {
                rows[d] = &pass.coefficients[(row + d) * columns..][..columns];
            }
            let mut sums = [zero(); SHORT_STRIP];
            let mut column = 0;
            while column + 1 < columns {
                let (even, odd) = (held[column], held[column + 1]);
                for d in 0..SHORT_STRIP {
                    let even = $multiply(even, $byte(rows[d][column].cast_signed()));
                    let odd = $multiply(odd, $byte(rows[d][column + 1].cast_signed()));
                    sums[d] = xor3(sums[d], even, odd);
                }
                column += 2;
            }
            if column < columns {
                for d in 0..SHORT_STRIP {
                    let factor = $byte(rows[d][column].cast_signed());
                    sums[d] = xor(sums[d], $multiply(held[column], factor));
                }
            }
            let from_11b = $splat(pass.tables.from_11b.cast_signed());
            for d in 0..SHORT_STRIP {
                let destination = &mut strip[d][..pass.bytes];
                let mut vector = $affine::<0>(sums[d], from_11b);
                if pass.accumulate {
                    vector = xor(vector, load_short(destination));
                }
                store_short(destination, vector);
            }
        }
    };
}
pub(super) use short_symbols;
