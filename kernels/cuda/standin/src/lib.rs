//! A stand-in for libcuda, for tests: the driver's functions that `recoded-cuda` calls, with
//! kernels that run on this CPU, and with faults that a test requests.
//!
//! The library is built next to this crate. Point a child process at it:
//!
//! ```no_run
//! let mut command = std::process::Command::new("some-program-that-codes-on-cards");
//! command
//!     .env("LD_LIBRARY_PATH", recoded_cuda_standin::folder())
//!     .env("STANDIN_FAULTS", "cuLaunchKernel@3=719");
//! ```
//!
//! `driver.cpp` lists the variables.

#![forbid(unsafe_code)]

use std::path::Path;

// So that the kernels are built before the library that contains them.
use recoded_cuda_shim as _;

/// The folder that holds `libcuda.so.1`, for `LD_LIBRARY_PATH`.
#[must_use]
pub fn folder() -> &'static Path {
    Path::new(env!("RECODED_STANDIN_FOLDER"))
}

/// The folder of a libnvrtc that compiles nothing and reports success.
#[must_use]
pub fn nvrtc_folder() -> &'static Path {
    Path::new(env!("RECODED_NVRTC_FOLDER"))
}

/// The folder of a libcuda that lacks every function.
#[must_use]
pub fn stub_folder() -> &'static Path {
    Path::new(env!("RECODED_STUB_FOLDER"))
}
