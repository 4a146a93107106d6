//! Vector levels and the call through their function pointers.
//!
//! A [`Level`] is a row of function pointers that may need CPU features; [`Available`] is the
//! proof that this CPU has them, so its methods are safe. Callers (`kernel.rs`) have checked the
//! shapes: equal lengths, and one coefficient per destination and source.

mod naive;

#[cfg(target_arch = "x86_64")]
mod x86_64;

/// Levels compiled into this build, slowest first.
pub(crate) static LEVELS: &[Level] = &[
    naive::LEVEL,
    #[cfg(target_arch = "x86_64")]
    x86_64::avx2::LEVEL,
    #[cfg(target_arch = "x86_64")]
    x86_64::gfni512::LEVEL,
];

type Add = unsafe fn(dst: &mut [u8], src: &[u8]);
type Mul = unsafe fn(dst: &mut [u8], c: u8);
type Madd = unsafe fn(dst: &mut [u8], c: u8, src: &[u8]);
type Matmul = unsafe fn(
    coefficients: &[u8],
    sources: &[&[u8]],
    destinations: &mut [&mut [u8]],
    accumulate: bool,
);

/// One level: what it is called, whether this CPU has it, and its routines.
///
/// The routines may only be called when `is_available` has returned true.
pub(crate) struct Level {
    pub name: &'static str,
    is_available: fn() -> bool,
    add: Add,
    mul: Mul,
    madd: Madd,
    matmul: Matmul,
}

impl Level {
    /// The level, if this CPU can run it.
    pub fn detect(&'static self) -> Option<Available> {
        (self.is_available)().then_some(Available(self))
    }
}

/// A level that was detected on this CPU.
pub(crate) struct Available(&'static Level);

impl Available {
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    #[inline]
    pub fn add(&self, dst: &mut [u8], src: &[u8]) {
        // SAFETY: `Available` exists only for a level whose CPU features were detected.
        unsafe { (self.0.add)(dst, src) }
    }

    #[inline]
    pub fn mul(&self, dst: &mut [u8], c: u8) {
        // SAFETY: as in `add`.
        unsafe { (self.0.mul)(dst, c) }
    }

    #[inline]
    pub fn madd(&self, dst: &mut [u8], c: u8, src: &[u8]) {
        // SAFETY: as in `add`.
        unsafe { (self.0.madd)(dst, c, src) }
    }

    #[inline]
    pub fn matmul(
        &self,
        coefficients: &[u8],
        sources: &[&[u8]],
        destinations: &mut [&mut [u8]],
        accumulate: bool,
    ) {
        // SAFETY: as in `add`.
        unsafe { (self.0.matmul)(coefficients, sources, destinations, accumulate) }
    }
}
