//! What one routine leaves behind in the registers for the next.

/// Clears the upper parts of vector registers, where there are any. Routines written by hand do not
/// always do so when they return, and as long as something is left there, instructions of 16 bytes
/// that come later are several times slower on some processors. A benchmark that runs routines in
/// turns would charge one for what another left behind.
pub fn forget_wide_registers() {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        // SAFETY: AVX was detected; the compiler knows that this changes vector registers.
        unsafe { core::arch::x86_64::_mm256_zeroupper() };
    }
}
