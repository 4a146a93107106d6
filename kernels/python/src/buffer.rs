//! Buffers of Python as slices, without copies: `bytes`, `bytearray`, NumPy arrays of `uint8`, and
//! whatever else offers contiguous unsigned bytes.
//!
//! The lock of Python is released while slices are in use, as `hashlib` does. A program must not
//! change a buffer in another thread during a call: its results would be undefined. Objects keep
//! their memory in place while a `PyBuffer` exists.
#![allow(unsafe_code)]

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use recoded_library::overlap::{self, Range};

use crate::errors::refused;

/// A buffer that a call reads.
pub struct Input(PyBuffer<u8>);

/// A buffer that a call writes.
pub struct Output(PyBuffer<u8>);

impl Input {
    /// # Errors
    /// `BufferError` unless the object has contiguous unsigned bytes; `TypeError` if it has no
    /// buffer.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self(contiguous(object)?))
    }

    /// The buffers of a sequence, such as the rows of a NumPy array of two dimensions.
    ///
    /// # Errors
    /// As [`Input::new`].
    pub fn all(objects: &Bound<'_, PyAny>) -> PyResult<Vec<Self>> {
        objects.try_iter()?.map(|object| Self::new(&object?)).collect()
    }

    pub fn bytes(&self) -> &[u8] {
        let Some(bytes) = self.0.as_slice_ptr() else { return &[] };
        // SAFETY: memory that `self` holds in place; programs do not change it during a call.
        unsafe { bytes.as_ref() }
    }
}

impl Output {
    /// # Errors
    /// As [`Input::new`], and `BufferError` if the object is read-only.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = contiguous(object)?;
        if buffer.readonly() {
            return Err(PyBufferError::new_err("the buffer for results is read-only"));
        }
        Ok(Self(buffer))
    }

    /// The buffers of a sequence, such as the rows of a NumPy array of two dimensions.
    ///
    /// # Errors
    /// As [`Output::new`].
    pub fn all(objects: &Bound<'_, PyAny>) -> PyResult<Vec<Self>> {
        objects.try_iter()?.map(|object| Self::new(&object?)).collect()
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        let Some(mut bytes) = self.0.as_slice_ptr() else { return &mut [] };
        // SAFETY: memory that `self` holds in place, and that may be written; `check_overlap` has
        // compared it with the other buffers of the call, and programs do not use it meanwhile.
        unsafe { bytes.as_mut() }
    }
}

/// # Errors
/// `ValueError` if an output overlaps another buffer of the call.
pub fn check_overlap(inputs: &[Input], outputs: &[Output]) -> PyResult<()> {
    let inputs = inputs.iter().map(|Input(it)| Range::input(it.buf_ptr().addr(), it.len_bytes()));
    let outputs =
        outputs.iter().map(|Output(it)| Range::output(it.buf_ptr().addr(), it.len_bytes()));
    overlap::check(&mut inputs.chain(outputs).collect::<Vec<_>>()).map_err(refused)
}

fn contiguous(object: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    let buffer = PyBuffer::get(object)?;
    if buffer.is_c_contiguous() {
        Ok(buffer)
    } else {
        Err(PyBufferError::new_err("the buffer is not contiguous"))
    }
}
