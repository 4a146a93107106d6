//! Reed-Solomon codes.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping};
use recoded_library as library;

use crate::buffer::{Input, Output, check_overlap};
use crate::errors::refused;

/// A Reed-Solomon code.
#[pyclass(module = "recoded", frozen)]
pub struct ReedSolomon(library::ReedSolomon);

#[pymethods]
impl ReedSolomon {
    #[new]
    fn new(data: usize, parity: usize) -> PyResult<Self> {
        library::ReedSolomon::new(data, parity).map(Self).map_err(refused)
    }

    #[getter]
    fn data(&self) -> usize {
        self.0.data()
    }

    #[getter]
    fn parity(&self) -> usize {
        self.0.parity()
    }

    fn encode<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let data = Input::all(data)?;
        let data: Vec<&[u8]> = data.iter().map(Input::bytes).collect();
        let bytes = data.first().map_or(0, |buffer| buffer.len());
        let parity =
            self.compute(py, bytes, self.0.parity(), |code, parity| code.encode(&data, parity))?;
        Ok(parity.iter().map(|buffer| PyBytes::new(py, buffer)).collect())
    }

    fn encode_into(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        parity: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (data, mut parity) = (Input::all(data)?, Output::all(parity)?);
        check_overlap(&data, &parity)?;
        let data: Vec<&[u8]> = data.iter().map(Input::bytes).collect();
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Output::bytes).collect();
        py.detach(|| self.0.encode(&data, &mut parity)).map_err(refused)
    }

    fn recover<'py>(
        &self,
        py: Python<'py>,
        intact: &Bound<'py, PyMapping>,
        lost: Vec<usize>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (mut ids, intact) = Self::intact(intact)?;
        let intact: Vec<&[u8]> = intact.iter().map(Input::bytes).collect();
        ids.extend(&lost);
        let bytes = intact.first().map_or(0, |buffer| buffer.len());
        // More cannot be lost; the code refuses them below, before their memory is reserved.
        let count = lost.len().min(self.0.data() + self.0.parity());
        let recovered =
            self.compute(py, bytes, count, |code, lost| code.recover(&ids, &intact, lost))?;
        let result = PyDict::new(py);
        for (id, buffer) in lost.into_iter().zip(&recovered) {
            result.set_item(id, PyBytes::new(py, buffer))?;
        }
        Ok(result)
    }

    fn recover_into(
        &self,
        py: Python<'_>,
        intact: &Bound<'_, PyMapping>,
        lost: &Bound<'_, PyMapping>,
    ) -> PyResult<()> {
        let (mut ids, intact) = Self::intact(intact)?;
        let mut outputs = Vec::new();
        for item in lost.items()?.iter() {
            let (id, buffer): (usize, Bound<'_, PyAny>) = item.extract()?;
            ids.push(id);
            outputs.push(Output::new(&buffer)?);
        }
        check_overlap(&intact, &outputs)?;
        let intact: Vec<&[u8]> = intact.iter().map(Input::bytes).collect();
        let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().map(Output::bytes).collect();
        py.detach(|| self.0.recover(&ids, &intact, &mut outputs)).map_err(refused)
    }
}

impl ReedSolomon {
    /// Ids and buffers of a mapping, in its order.
    fn intact(intact: &Bound<'_, PyMapping>) -> PyResult<(Vec<usize>, Vec<Input>)> {
        let (mut ids, mut buffers) = (Vec::new(), Vec::new());
        for item in intact.items()?.iter() {
            let (id, buffer): (usize, Bound<'_, PyAny>) = item.extract()?;
            ids.push(id);
            buffers.push(Input::new(&buffer)?);
        }
        Ok((ids, buffers))
    }

    /// Runs `code` without the lock of Python, with new buffers for its results.
    fn compute(
        &self,
        py: Python<'_>,
        bytes: usize,
        count: usize,
        code: impl FnOnce(&library::ReedSolomon, &mut [&mut [u8]]) -> Result<(), library::Error> + Send,
    ) -> PyResult<Vec<Vec<u8>>> {
        py.detach(|| {
            let mut results = vec![vec![0; bytes]; count];
            let mut places: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();
            code(&self.0, &mut places)?;
            Ok(results)
        })
        .map_err(refused)
    }
}
