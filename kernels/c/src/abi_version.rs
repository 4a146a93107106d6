//! The version of the ABI, which the build script reads as well.

/// Version of the ABI that this header describes. It changes when a program that was compiled with
/// an older header no longer works; it is part of the name of the shared library.
pub const RECODED_ABI_VERSION: u32 = 1;
