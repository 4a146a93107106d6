//! The primitives of `fused.rs` that depend only on the width of a register.

/// `Vector`, `load`, `store`, `zero`, `xor` and `and`.
macro_rules! register {
    (
        $features:tt, $vector:ident, $bytes:literal, load: $load:ident, store: $store:ident,
        zero: $zero:ident, xor: $xor:ident, and: $and:ident
    ) => {
        type Vector = $vector;
        const VECTOR: usize = $bytes;

        #[target_feature(enable = $features)]
        #[inline]
        fn load(bytes: &[u8; VECTOR]) -> Vector {
            // SAFETY: the pointer is to an array as long as the register.
            unsafe { $load(bytes.as_ptr().cast()) }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn store(bytes: &mut [u8; VECTOR], vector: Vector) {
            // SAFETY: as in `load`.
            unsafe { $store(bytes.as_mut_ptr().cast(), vector) };
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn zero() -> Vector {
            $zero()
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn xor(a: Vector, b: Vector) -> Vector {
            $xor(a, b)
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn and(a: Vector, b: Vector) -> Vector {
            $and(a, b)
        }
    };
}
pub(super) use register;

/// `xor3` in one instruction.
macro_rules! xor3_ternary {
    ($features:tt, $ternary:ident) => {
        #[target_feature(enable = $features)]
        #[inline]
        fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
            if cfg!(miri) {
                // Miri knows the other instructions of these levels, but not this one.
                return xor(a, xor(b, c));
            }
            // The truth table of a ^ b ^ c.
            $ternary::<0x96>(a, b, c)
        }
    };
}
pub(super) use xor3_ternary;

/// `xor3` in two instructions.
macro_rules! xor3_by_two {
    ($features:tt) => {
        #[target_feature(enable = $features)]
        #[inline]
        fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
            xor(a, xor(b, c))
        }
    };
}
pub(super) use xor3_by_two;

/// `load_short` and `store_short` through a buffer on the stack.
macro_rules! short_by_buffer {
    ($features:tt) => {
        #[target_feature(enable = $features)]
        #[inline]
        fn load_short(bytes: &[u8]) -> Vector {
            let mut buffer = [0; VECTOR];
            buffer[..bytes.len()].copy_from_slice(bytes);
            load(&buffer)
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn store_short(bytes: &mut [u8], vector: Vector) {
            let mut buffer = [0; VECTOR];
            store(&mut buffer, vector);
            bytes.copy_from_slice(&buffer[..bytes.len()]);
        }
    };
}
pub(super) use short_by_buffer;

/// `load_short` and `store_short` with a byte mask.
macro_rules! short_by_mask {
    ($features:tt, $mask:ty, load: $load:ident, store: $store:ident) => {
        #[target_feature(enable = $features)]
        #[inline]
        fn load_short(bytes: &[u8]) -> Vector {
            let mask = $crate::arch::x86_64::register::first_bytes(bytes.len()) as $mask;
            // SAFETY: the mask admits no byte beyond the slice; masked-off bytes are not accessed
            // and cannot fault.
            unsafe { $load(mask, bytes.as_ptr().cast()) }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn store_short(bytes: &mut [u8], vector: Vector) {
            let mask = $crate::arch::x86_64::register::first_bytes(bytes.len()) as $mask;
            // SAFETY: as in `load_short`, for writes.
            unsafe { $store(bytes.as_mut_ptr().cast(), mask, vector) };
        }
    };
}
pub(super) use short_by_mask;

/// Selects the first `bytes` of a 64-byte vector, all of it from 64 on.
#[inline]
pub(in crate::arch) const fn first_bytes(bytes: usize) -> u64 {
    if bytes >= 64 { u64::MAX } else { (1 << bytes) - 1 }
}
