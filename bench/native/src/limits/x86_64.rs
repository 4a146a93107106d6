//! Loops for x86: 16, 32 and 64 bytes per register.
//!
//! A product by a constant is one `gf2p8affineqb`. Without GFNI it takes two `pshufb`, so half
//! their rate is counted: the masks, shifts and sums of that method use other ports.

use core::arch::x86_64::*;
use std::hint::black_box;

use super::{CHAINS, Kind, Probe, STEPS};

/// Every loop of this module.
pub(super) static PROBES: &[Probe] = &[
    products("pshufb xmm", sse::WIDTH, 2, || is_x86_feature_detected!("ssse3"), pshufb_xmm),
    products("vpshufb ymm", avx::WIDTH, 2, || is_x86_feature_detected!("avx2"), pshufb_ymm),
    products(
        "vgf2p8affineqb ymm",
        avx::WIDTH,
        1,
        || is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx2"),
        affine_ymm,
    ),
    products(
        "vgf2p8affineqb zmm",
        avx512::WIDTH,
        1,
        || is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx512f"),
        affine_zmm,
    ),
    memory(Kind::Load, "movdqu xmm", sse::WIDTH, sse::is_available, sse::load),
    memory(Kind::Load, "vmovdqu ymm", avx::WIDTH, avx::is_available, avx::load),
    memory(Kind::Load, "vmovdqu64 zmm", avx512::WIDTH, avx512::is_available, avx512::load),
    memory(Kind::Store, "movdqu xmm", sse::WIDTH, sse::is_available, sse::store),
    memory(Kind::Store, "vmovdqu ymm", avx::WIDTH, avx::is_available, avx::store),
    memory(Kind::Store, "vmovdqu64 zmm", avx512::WIDTH, avx512::is_available, avx512::store),
    memory(Kind::Add, "pxor xmm", sse::WIDTH, sse::is_available, sse::add),
    memory(Kind::Add, "vpxor ymm", avx::WIDTH, avx::is_available, avx::add),
    memory(Kind::Add, "vpxorq zmm", avx512::WIDTH, avx512::is_available, avx512::add),
];

/// `instructions` per product.
const fn products(
    name: &'static str,
    vector_bytes: usize,
    instructions: usize,
    is_available: fn() -> bool,
    pass: unsafe fn(&mut [u8], usize),
) -> Probe {
    let products = CHAINS * STEPS * vector_bytes / instructions;
    Probe { kind: Kind::Products, name, vector_bytes, is_available, pass, products }
}

const fn memory(
    kind: Kind,
    name: &'static str,
    vector_bytes: usize,
    is_available: fn() -> bool,
    pass: unsafe fn(&mut [u8], usize),
) -> Probe {
    Probe { kind, name, vector_bytes, is_available, pass, products: 0 }
}

/// A loop in registers: `CHAINS` values, each replaced by `$step` of itself.
macro_rules! register_loop {
    ($name:ident, $features:literal, $start:expr, $step:expr) => {
        #[target_feature(enable = $features)]
        fn $name(_: &mut [u8], times: usize) {
            let mut chains = black_box([$start; CHAINS]);
            let other = black_box($start);
            for _ in 0..times * STEPS {
                for chain in &mut chains {
                    *chain = $step(*chain, other);
                }
            }
            black_box(chains);
        }
    };
}

register_loop!(pshufb_xmm, "ssse3", _mm_set1_epi8(3), |chain, mask| _mm_shuffle_epi8(chain, mask));
register_loop!(pshufb_ymm, "avx2", _mm256_set1_epi8(3), |chain, mask| {
    _mm256_shuffle_epi8(chain, mask)
});
register_loop!(affine_ymm, "gfni,avx2", _mm256_set1_epi8(3), |chain, map| {
    _mm256_gf2p8affine_epi64_epi8::<0>(chain, map)
});
register_loop!(affine_zmm, "gfni,avx512f", _mm512_set1_epi8(3), |chain, map| {
    _mm512_gf2p8affine_epi64_epi8::<0>(chain, map)
});

/// The loops over memory for one width.
macro_rules! memory_loops {
    ($module:ident, $feature:tt, $Vector:ty, $load:ident, $store:ident, $zero:ident, $or:ident, $xor:ident) => {
        mod $module {
            use super::*;
            use crate::limits::BLOCK_BYTES;

            pub(super) const WIDTH: usize = size_of::<$Vector>();
            /// Registers in flight per step of a loop.
            const GROUP: usize = 4;

            pub(super) fn is_available() -> bool {
                is_x86_feature_detected!($feature)
            }

            #[target_feature(enable = $feature)]
            pub(super) fn load(buffer: &mut [u8], times: usize) {
                let mut seen = [$zero(); GROUP];
                for _ in 0..times {
                    for group in black_box(&mut *buffer).chunks_exact(GROUP * WIDTH) {
                        for (index, seen) in seen.iter_mut().enumerate() {
                            // SAFETY: a group holds `GROUP` registers.
                            let value = unsafe { $load(group.as_ptr().add(index * WIDTH).cast()) };
                            *seen = $or(*seen, value);
                        }
                    }
                }
                black_box(seen);
            }

            #[target_feature(enable = $feature)]
            pub(super) fn store(buffer: &mut [u8], times: usize) {
                let value = black_box($zero());
                for _ in 0..times {
                    for group in black_box(&mut *buffer).chunks_exact_mut(GROUP * WIDTH) {
                        for index in 0..GROUP {
                            // SAFETY: a group holds `GROUP` registers.
                            unsafe { $store(group.as_mut_ptr().add(index * WIDTH).cast(), value) };
                        }
                    }
                }
            }

            #[target_feature(enable = $feature)]
            pub(super) fn add(buffer: &mut [u8], times: usize) {
                debug_assert_eq!(buffer.len() % BLOCK_BYTES, 0);
                let (destination, source) = buffer.split_at_mut(buffer.len() / 2);
                for _ in 0..times {
                    let groups = black_box(&mut *destination).chunks_exact_mut(GROUP * WIDTH);
                    for (to, from) in groups.zip(source.chunks_exact(GROUP * WIDTH)) {
                        for at in (0..GROUP * WIDTH).step_by(WIDTH) {
                            // SAFETY: both groups hold `GROUP` registers.
                            unsafe {
                                let to = to.as_mut_ptr().add(at).cast();
                                let from = $load(from.as_ptr().add(at).cast());
                                $store(to, $xor($load(to), from));
                            }
                        }
                    }
                }
            }
        }
    };
}

memory_loops!(
    sse,
    "sse2",
    __m128i,
    _mm_loadu_si128,
    _mm_storeu_si128,
    _mm_setzero_si128,
    _mm_or_si128,
    _mm_xor_si128
);
memory_loops!(
    avx,
    "avx2",
    __m256i,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_setzero_si256,
    _mm256_or_si256,
    _mm256_xor_si256
);
memory_loops!(
    avx512,
    "avx512f",
    __m512i,
    _mm512_loadu_si512,
    _mm512_storeu_si512,
    _mm512_setzero_si512,
    _mm512_or_si512,
    _mm512_xor_si512
);
