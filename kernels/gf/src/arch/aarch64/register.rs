//! The primitives of `fused.rs` that do not depend on how a level multiplies.

/// `Vector`, `load`, `store`, `load_short`, `store_short`, `zero`, `xor`, `xor3` and `and`.
macro_rules! register {
    () => {
        type Vector = core::arch::aarch64::uint8x16_t;
        const VECTOR: usize = 16;

        #[target_feature(enable = "neon")]
        #[inline]
        fn load(bytes: &[u8; VECTOR]) -> Vector {
            // SAFETY: the pointer is to an array as long as the register.
            unsafe { core::arch::aarch64::vld1q_u8(bytes.as_ptr()) }
        }

        #[target_feature(enable = "neon")]
        #[inline]
        fn store(bytes: &mut [u8; VECTOR], vector: Vector) {
            // SAFETY: as in `load`.
            unsafe { core::arch::aarch64::vst1q_u8(bytes.as_mut_ptr(), vector) };
        }

        #[target_feature(enable = "neon")]
        #[inline]
        fn load_short(bytes: &[u8]) -> Vector {
            let mut buffer = [0; VECTOR];
            buffer[..bytes.len()].copy_from_slice(bytes);
            load(&buffer)
        }

        #[target_feature(enable = "neon")]
        #[inline]
        fn store_short(bytes: &mut [u8], vector: Vector) {
            let mut buffer = [0; VECTOR];
            store(&mut buffer, vector);
            bytes.copy_from_slice(&buffer[..bytes.len()]);
        }

        #[target_feature(enable = "neon")]
        #[inline]
        fn zero() -> Vector {
            core::arch::aarch64::vdupq_n_u8(0)
        }

        #[target_feature(enable = "neon")]
        #[inline]
        fn xor(a: Vector, b: Vector) -> Vector {
            core::arch::aarch64::veorq_u8(a, b)
        }

        #[target_feature(enable = "neon")]
        #[inline]
        fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
            xor(a, xor(b, c))
        }

        #[target_feature(enable = "neon")]
        #[inline]
        fn and(a: Vector, b: Vector) -> Vector {
            core::arch::aarch64::vandq_u8(a, b)
        }
    };
}
pub(super) use register;
