//! RLNC at the sink.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use recoded_library as library;

use crate::buffer::{Input, Output};
use crate::errors::refused;

/// The sink of a generation.
#[pyclass(module = "recoded")]
pub struct Decoder(library::Decoder);

#[pymethods]
impl Decoder {
    #[new]
    fn new(generation_size: usize, symbol_bytes: usize) -> PyResult<Self> {
        library::Decoder::new(generation_size, symbol_bytes).map(Self).map_err(refused)
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

    #[getter]
    fn decoded(&self) -> usize {
        self.0.decoded()
    }

    #[getter]
    fn is_complete(&self) -> bool {
        self.0.is_complete()
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

    fn next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<(usize, Bound<'py, PyBytes>)>> {
        let mut index = None;
        let symbol = PyBytes::new_with(py, self.0.symbol_bytes(), |symbol| {
            index = py.detach(|| self.0.next(symbol)).map_err(refused)?;
            Ok(())
        })?;
        Ok(index.map(|index| (index, symbol)))
    }

    fn symbol<'py>(&mut self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, self.0.symbol_bytes(), |symbol| {
            py.detach(|| self.0.symbol(index, symbol)).map_err(refused)
        })
    }

    fn decode<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, self.0.size() * self.0.symbol_bytes(), |data| {
            py.detach(|| self.0.decode(data)).map_err(refused)
        })
    }

    fn decode_into(&mut self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut data = Output::new(data)?;
        let bytes = data.bytes();
        py.detach(|| self.0.decode(bytes)).map_err(refused)
    }
}
