//! The Python module `recoded`: random linear network coding and Reed-Solomon codes for programs in
//! Python.
//!
//! ```text
//!  Python --> classes of this crate: buffers become slices, the lock of Python is released
//!         --> recoded-library, in safe Rust --> bytes, or an exception
//! ```
//!
//! `python/recoded/__init__.pyi` has the signatures and texts for users. Unsafe code is in
//! `buffer` only.
#![deny(unsafe_code)]

mod buffer;

mod errors;

mod encoder;

mod recoder;

mod decoder;

mod reed_solomon;

use pyo3::prelude::*;

/// The compiled part of the package `recoded`.
#[pymodule]
fn _recoded(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("NotReadyError", module.py().get_type::<errors::NotReadyError>())?;
    module.add_class::<encoder::Encoder>()?;
    module.add_class::<recoder::Recoder>()?;
    module.add_class::<decoder::Decoder>()?;
    module.add_class::<reed_solomon::ReedSolomon>()
}
