//! RLNC at a relay.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use recoded_library as library;

use crate::buffer::{Input, Output, check_overlap};
use crate::encoder::seed_or_random;
use crate::errors::refused;

/// A relay of a generation.
#[pyclass(module = "recoded")]
pub struct Recoder(library::Recoder);

#[pymethods]
impl Recoder {
    #[new]
    #[pyo3(signature = (generation_size, symbol_bytes, *, seed=None))]
    fn new(
        py: Python<'_>,
        generation_size: usize,
        symbol_bytes: usize,
        seed: Option<u64>,
    ) -> PyResult<Self> {
        let seed = seed_or_random(py, seed)?;
        library::Recoder::new(generation_size, symbol_bytes, seed).map(Self).map_err(refused)
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
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn reset(&mut self) -> PyResult<()> {
        self.0.reset().map_err(refused)
    }

    fn add(
        &mut self,
        py: Python<'_>,
        vector: &Bound<'_, PyAny>,
        symbol: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (vector, symbol) = (Input::new(vector)?, Input::new(symbol)?);
        let (vector, symbol) = (vector.bytes(), symbol.bytes());
        py.detach(|| self.0.add(vector, symbol)).map_err(refused)
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
