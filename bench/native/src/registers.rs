//! Vector register state left over between routines.

/// Clears the upper parts of vector registers, if there are any. Handwritten routines do not always
/// do so before they return, and stale upper parts make later 16-byte instructions several times
/// slower on some processors. A benchmark that runs routines in turns would charge this to the
/// wrong one.
pub fn forget_wide_registers() {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        // SAFETY: AVX was detected; the compiler knows that this changes vector registers.
        unsafe { core::arch::x86_64::_mm256_zeroupper() };
    }
}
