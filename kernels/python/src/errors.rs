//! Refused calls as exceptions.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyIndexError, PyMemoryError, PyValueError};
use pyo3::prelude::*;
use recoded_code::rlnc;
use recoded_library::Error;

create_exception!(
    recoded,
    NotReadyError,
    PyException,
    "There is nothing to code yet, or the symbol is not decoded yet."
);

/// The exception for a refused call.
pub fn refused(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Rlnc(rlnc::Error::NotDecoded { .. }) => NotReadyError::new_err(text),
        Error::Rlnc(rlnc::Error::Present { .. }) => NotReadyError::new_err("nothing to code yet"),
        Error::Rlnc(rlnc::Error::Index { .. }) => PyIndexError::new_err(text),
        Error::Memory { .. } => PyMemoryError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}
