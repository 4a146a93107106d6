//! Kernels for single matrices, compiled while the program runs, as Gibraltar does.
//!
//! NVRTC takes up to two seconds for one, so a thread of its own compiles while products go on by the
//! techniques for all matrices. Where libnvrtc is missing or fails, they go on like that for ever.

use std::ffi::{CStr, CString};
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use cudarc::nvrtc::{result, sys};

use crate::reed_solomon_source::{PRELUDE, PRODUCTS_MAX, source};

/// A matrix, and code that multiplies by it.
pub struct Compiled {
    pub matrix: Matrix,
    /// For the card that the compiler was made for.
    pub cubin: Vec<u8>,
}

/// Row-major coefficients without gaps.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Matrix {
    pub coefficients: Box<[u8]>,
    pub columns: usize,
}

impl Matrix {
    pub fn rows(&self) -> usize {
        self.coefficients.len() / self.columns
    }

    /// What its kernel is called, without `recoded_`: that of a code k+m is `reed_solomon_k_m`.
    pub fn kernel(&self) -> String {
        format!("reed_solomon_{}_{}", self.columns, self.rows())
    }
}

/// Compiles for one card, one matrix after another.
pub struct Compiler {
    wanted: Option<Sender<Matrix>>,
    compiled: Receiver<Compiled>,
    known: Vec<Matrix>,
}

impl Compiler {
    /// A compiler for cards of that compute capability, times ten; it starts with the first matrix.
    pub fn new(capability: u32) -> Self {
        let (wanted, matrices) = mpsc::channel::<Matrix>();
        let (done, compiled) = mpsc::channel();
        let work = move || {
            for matrix in matrices {
                // cudarc panics where a library lacks a function; that ends this thread only.
                let cubin = panic::catch_unwind(AssertUnwindSafe(|| compile(&matrix, capability)));
                let Ok(Some(cubin)) = cubin else { continue };
                if done.send(Compiled { matrix, cubin }).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("recoded-nvrtc".into()).spawn(work);
        Self { wanted: thread.is_ok().then_some(wanted), compiled, known: Vec::new() }
    }

    /// Has code made for a matrix, unless that was asked before or is not worth it.
    pub fn want(&mut self, coefficients: &[u8], columns: usize) {
        let is_matrix = columns > 0 && coefficients.len().is_multiple_of(columns);
        if !is_matrix || coefficients.is_empty() || coefficients.len() > PRODUCTS_MAX {
            return;
        }
        let matrix = Matrix { coefficients: coefficients.into(), columns };
        if self.known.len() < MATRICES_MAX && !self.known.contains(&matrix) {
            self.known.push(matrix.clone());
            if let Some(wanted) = &self.wanted {
                // The thread only ends when this end does.
                let _ = wanted.send(matrix);
            }
        }
    }

    /// The next matrix that is ready.
    pub fn poll(&self) -> Option<Compiled> {
        self.compiled.try_recv().ok()
    }
}

/// Code for one matrix; `None` where libnvrtc is missing or refuses.
fn compile(matrix: &Matrix, capability: u32) -> Option<Vec<u8>> {
    // SAFETY: loading libnvrtc runs its initialisers, which is what using it means.
    if !unsafe { sys::is_culib_present() } {
        return None;
    }
    let kernel = source(&matrix.kernel(), &matrix.coefficients, matrix.columns);
    let text = CString::new(format!("{PRELUDE}{kernel}")).ok()?;
    let program = Program::new(&text)?;
    program.compile(&[format!("--gpu-architecture=sm_{capability}"), "--std=c++17".into()])
}

/// A program of NVRTC, which keeps pointers to its text.
struct Program<'a> {
    raw: sys::nvrtcProgram,
    _text: &'a CStr,
}

impl<'a> Program<'a> {
    fn new(text: &'a CStr) -> Option<Self> {
        let raw = result::create_program(text, None).ok()?;
        Some(Self { raw, _text: text })
    }

    fn compile(&self, options: &[String]) -> Option<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the program exists; sizes and bytes are written where they have room.
        unsafe {
            result::compile_program(self.raw, options).ok()?;
            sys::nvrtcGetCUBINSize(self.raw, &raw mut bytes).result().ok()?;
            let mut cubin = vec![0_u8; bytes];
            sys::nvrtcGetCUBIN(self.raw, cubin.as_mut_ptr().cast()).result().ok()?;
            Some(cubin)
        }
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: it was made here and is used no more.
        let _ = unsafe { result::destroy_program(self.raw) };
    }
}

/// Code of all of them stays on the card.
const MATRICES_MAX: usize = 32;
