//! The three ways to multiply by a coefficient: `factor`, `split` and `product` of `fused.rs`.

/// The paper's `shuffle`: two byte shuffles, one table for the low nibbles, one for the high.
#[cfg(feature = "shuffle")]
macro_rules! shuffle {
    (
        $features:tt, splat: $splat:ident, shift: $shift:ident, shuffle: $shuffle:ident,
        lanes: $lanes:ident
    ) => {
        /// The shuffle tables of a coefficient, in every 128-bit lane.
        struct Factor {
            low: Vector,
            high: Vector,
        }

        /// A vector split into the low and the high half of each byte.
        #[derive(Copy, Clone)]
        struct Split {
            low: Vector,
            high: Vector,
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn factor<const W: usize>(tables: &Tables, c: u8) -> Factor {
            use core::arch::x86_64::_mm_loadu_si128;

            let pair = &tables.nibbles[usize::from(c)];
            // SAFETY: both pointers are to arrays of 16 bytes.
            let (low, high) = unsafe {
                let (low, high) = (pair.low.as_ptr(), pair.high.as_ptr());
                (_mm_loadu_si128(low.cast()), _mm_loadu_si128(high.cast()))
            };
            Factor { low: $lanes(low), high: $lanes(high) }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn split<const W: usize>(vector: Vector) -> Split {
            let mask = $splat(0x0F);
            Split { low: and(vector, mask), high: and($shift::<4>(vector), mask) }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn product<const W: usize>(factor: &Factor, split: &Split) -> Vector {
            xor($shuffle(factor.low, split.low), $shuffle(factor.high, split.high))
        }
    };
}
#[cfg(feature = "shuffle")]
pub(super) use shuffle;

/// The paper's `imul`: the bits of an element, taken one by one, times the products of the
/// coefficient with each of them, by integer multiplication.
macro_rules! imul {
    (
        $features:tt, $lane:ty, bytes: $bytes:ident, shift: $shift:ident, splat: $splat:ident,
        multiply: $multiply:ident
    ) => {
        /// The products of a coefficient with each bit of an element.
        type Factor = [u8; 8];

        /// The bits of each element, `W` vectors of them, in the lowest bit of its place.
        type Split = [Vector; 8];

        #[target_feature(enable = $features)]
        #[inline]
        fn factor<const W: usize>(tables: &Tables, c: u8) -> Factor {
            tables.columns[usize::from(c)]
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn split<const W: usize>(vector: Vector) -> Split {
            use core::arch::x86_64::_mm_cvtsi32_si128;

            let mask = $bytes($crate::arch::x86_64::product::lowest_bits(W));
            let mut bits = [vector; 8];
            for (i, bits) in bits.iter_mut().enumerate().take(W) {
                *bits = and($shift(vector, _mm_cvtsi32_si128(i as i32)), mask);
            }
            bits
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn product<const W: usize>(factor: &Factor, split: &Split) -> Vector {
            let mut sum = zero();
            for i in 0..W {
                // At most 255, so that bytes of a lane do not carry into each other.
                let column = $splat(<$lane>::from(factor[i]));
                sum = xor(sum, $multiply(split[i], column));
            }
            sum
        }
    };
}
pub(super) use imul;

/// One `vgf2p8affineqb`, which applies a bit matrix to each byte.
macro_rules! gfni {
    ($features:tt, splat: $splat:ident, affine: $affine:ident) => {
        type Factor = Vector;
        type Split = Vector;

        #[target_feature(enable = $features)]
        #[inline]
        fn factor<const W: usize>(tables: &Tables, c: u8) -> Factor {
            $splat(tables.affine[usize::from(c)].cast_signed())
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn split<const W: usize>(vector: Vector) -> Split {
            vector
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn product<const W: usize>(factor: &Factor, split: &Split) -> Vector {
            $affine::<0>(*split, *factor)
        }
    };
}
pub(super) use gfni;

/// The lowest bit of each `bits`-bit element of a byte.
pub(in crate::arch) const fn lowest_bits(bits: usize) -> i8 {
    match bits {
        1 => 0xFF_u8.cast_signed(),
        2 => 0x55,
        4 => 0x11,
        _ => 0x01,
    }
}
