//! RLNC at the source.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use recoded_library as library;

use crate::buffer::{Input, Output, check_overlap};
use crate::errors::refused;

/// The source of a generation.
#[pyclass(module = "recoded")]
pub struct Encoder(library::Encoder);

/// The seed, or a random one from Python.
pub fn seed_or_random(py: Python<'_>, seed: Option<u64>) -> PyResult<u64> {
    match seed {
        Some(seed) => Ok(seed),
        None => py.import("secrets")?.call_method1("randbits", (u64::BITS,))?.extract(),
    }
}

#[pymethods]
impl Encoder {
    #[new]
    #[pyo3(signature = (generation_size, symbol_bytes, *, seed=None))]
    fn new(
        py: Python<'_>,
        generation_size: usize,
        symbol_bytes: usize,
        seed: Option<u64>,
    ) -> PyResult<Self> {
        let seed = seed_or_random(py, seed)?;
        library::Encoder::new(generation_size, symbol_bytes, seed).map(Self).map_err(refused)
    }

    #[getter]
    fn generation_size(&self) -> usize {
        self.0.size()
    }

    #[getter]
    fn symbol_bytes(&self) -> usize {
        self.0.symbol_bytes()
    }

    #[getter]
    fn present(&self) -> usize {
        self.0.present()
    }

    fn set_systematic(&mut self, is_systematic: bool) {
        self.0.set_systematic(is_systematic);
    }

    fn reset(&mut self) {
        self.0.reset();
    }

    fn add(&mut self, py: Python<'_>, symbol: &Bound<'_, PyAny>) -> PyResult<()> {
        let symbol = Input::new(symbol)?;
        let bytes = symbol.bytes();
        py.detach(|| self.0.add(bytes)).map_err(refused)
    }

    fn take<'py>(
        &mut self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let mut vector = vec![0; self.0.size()];
        let symbol = PyBytes::new_with(py, self.0.symbol_bytes(), |symbol| {
            py.detach(|| self.0.take(&mut vector, symbol)).map_err(refused)
        })?;
        Ok((PyBytes::new(py, &vector), symbol))
    }

    fn take_into(
        &mut self,
        py: Python<'_>,
        vector: &Bound<'_, PyAny>,
        symbol: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let mut packet = [Output::new(vector)?, Output::new(symbol)?];
        check_overlap(&[], &packet)?;
        let [vector, symbol] = packet.each_mut().map(Output::bytes);
        py.detach(|| self.0.take(vector, symbol)).map_err(refused)
    }
}
