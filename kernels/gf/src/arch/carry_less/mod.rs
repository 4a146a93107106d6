//! Methods to add up carry-less products, and the call through their function pointers: see
//! [`crate::CarryLess`], which checks lengths.

mod portable;

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod aarch64;

#[cfg(target_arch = "x86_64")]
mod x86_64;

/// Methods compiled into this build, slowest first.
pub(crate) static WAYS: &[CarryLessMethod] = &[
    portable::WAY,
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    aarch64::BYTES,
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    aarch64::PMULL,
    #[cfg(target_arch = "x86_64")]
    x86_64::SSE,
    #[cfg(target_arch = "x86_64")]
    x86_64::AVX512,
];

/// One method. `sum` may only be called when `is_available` has returned true.
pub(crate) struct CarryLessMethod {
    pub name: &'static str,
    is_available: fn() -> bool,
    /// Sum over a message and a key as long as its whole blocks of 16 bytes.
    sum: unsafe fn(key: &[u8], message: &[u8]) -> u128,
}

impl CarryLessMethod {
    /// The method, if this CPU has it.
    pub fn detect(&'static self) -> Option<Available> {
        (self.is_available)().then_some(Available(self))
    }
}

/// A method that was detected on this CPU.
#[derive(Copy, Clone)]
pub(crate) struct Available(&'static CarryLessMethod);

impl Available {
    /// The method that every CPU has.
    pub const PORTABLE: Self = Self(&WAYS[0]);

    pub fn way(self) -> &'static CarryLessMethod {
        self.0
    }

    #[inline]
    pub fn sum(self, key: &[u8], message: &[u8]) -> u128 {
        // SAFETY: `Available` exists only for a way whose CPU features were detected.
        unsafe { (self.0.sum)(key, message) }
    }
}

/// A block of 16 bytes that begins with `bytes`, with zeros behind them.
fn padded(bytes: &[u8]) -> [u8; 16] {
    let mut block = [0; 16];
    for (to, from) in block.iter_mut().zip(bytes) {
        *to = *from;
    }
    block
}
