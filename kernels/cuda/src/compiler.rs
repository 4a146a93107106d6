//! Kernels for single matrices, compiled while the program runs, as Gibraltar does.
//!
//! NVRTC takes up to two seconds for one, so a thread of its own compiles while products continue
//! with the techniques for all matrices. If libnvrtc is missing or fails, they continue like that
//! indefinitely.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use libloading::Library;

use crate::reed_solomon_source::{PRELUDE, PRODUCTS_MAX, source};

/// A matrix, and compiled code that multiplies by it.
pub struct Compiled {
    pub matrix: Matrix,
    /// For the card of the compiler.
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

    /// Its kernel's name, without `recoded_`: that of a code k+m is `reed_solomon_k_m`.
    pub fn kernel(&self) -> String {
        format!("reed_solomon_{}_{}", self.columns, self.rows())
    }
}

/// Compiles for one card, one matrix after another.
pub struct Compiler {
    wanted: Option<Sender<Matrix>>,
    /// `None` only during the drop.
    compiled: Option<Receiver<Result<Compiled, CompileError>>>,
    known: Vec<Matrix>,
    thread: Option<JoinHandle<()>>,
}

impl Compiler {
    /// A compiler for cards of that compute capability, times ten; it starts with the first matrix.
    pub fn new(capability: u32) -> Self {
        let (wanted, matrices) = mpsc::channel::<Matrix>();
        let (done, compiled) = mpsc::channel();
        let work = move || {
            // Loaded when there is something to compile.
            let mut nvrtc = None;
            for matrix in matrices {
                let nvrtc = nvrtc.get_or_insert_with(Nvrtc::load).as_ref().map_err(Clone::clone);
                let cubin = nvrtc.and_then(|nvrtc| compile(nvrtc, &matrix, capability));
                if done.send(cubin.map(|cubin| Compiled { matrix, cubin })).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("recoded-nvrtc".into()).spawn(work).ok();
        let wanted = thread.is_some().then_some(wanted);
        Self { wanted, compiled: Some(compiled), known: Vec::new(), thread }
    }

    /// Requests code for a matrix, unless that was requested before or is not worthwhile.
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

    /// The next finished matrix, or the reason why there will be none.
    pub fn poll(&self) -> Option<Result<Compiled, CompileError>> {
        self.compiled.as_ref()?.try_recv().ok()
    }
}

/// Waits for the compilation in progress, as no process should end inside a compiler; later
/// requests are not begun.
impl Drop for Compiler {
    fn drop(&mut self) {
        (self.wanted, self.compiled) = (None, None);
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

/// Code for one matrix, or the reason why there is none.
fn compile(nvrtc: &Nvrtc, matrix: &Matrix, capability: u32) -> Result<Vec<u8>, CompileError> {
    let name = matrix.kernel();
    let kernel = source(&name, &matrix.coefficients, matrix.columns);
    // Blocks of all such kernels have the thread count of `reed_solomon` in `job.h`.
    let text = format!("{PRELUDE}#define {name}_threads reed_solomon_threads\n{kernel}");
    let text = CString::new(text).map_err(|_| CompileError::Text)?;
    let architecture = CString::new(format!("--gpu-architecture=sm_{capability}"));
    let architecture = architecture.map_err(|_| CompileError::Text)?;
    nvrtc.compile(&text, &[&architecture, c"--std=c++17"])
}

/// The reason why a matrix has no code of its own.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CompileError {
    /// libnvrtc is missing.
    #[error("libnvrtc is not installed")]
    Missing,
    /// libnvrtc lacks a function.
    #[error("libnvrtc lacks {function}")]
    Lacking {
        /// The function.
        function: &'static str,
    },
    /// libnvrtc refused.
    #[error("{function} failed ({code})")]
    Refused {
        /// The function.
        function: &'static str,
        /// `nvrtcResult`.
        code: c_int,
    },
    /// The text has a zero byte.
    #[error("the text of a kernel has a zero byte")]
    Text,
}

/// libnvrtc, of whichever version is installed. (cudarc panics if it or a function of it is
/// missing, and knows the names of one version only.)
struct Nvrtc {
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    cubin_bytes: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
}

type Program = *mut c_void;

impl Nvrtc {
    fn load() -> Result<Self, CompileError> {
        // SAFETY: loading libnvrtc runs its initialisers, which is part of using it.
        let library = NAMES.into_iter().find_map(|name| unsafe { Library::new(name) }.ok());
        // For the lifetime of the process: it does not survive being unloaded, and is needed again
        // anyway.
        let library: &Library = Box::leak(Box::new(library.ok_or(CompileError::Missing)?));
        // SAFETY: the signatures are those of nvrtc.h, and the library stays.
        unsafe {
            Ok(Self {
                create: function(library, "nvrtcCreateProgram")?,
                compile: function(library, "nvrtcCompileProgram")?,
                cubin_bytes: function(library, "nvrtcGetCUBINSize")?,
                cubin: function(library, "nvrtcGetCUBIN")?,
                destroy: function(library, "nvrtcDestroyProgram")?,
            })
        }
    }

    fn compile(&self, text: &CStr, options: &[&CStr]) -> Result<Vec<u8>, CompileError> {
        let refused = |function, code| match code {
            0 => Ok(()),
            code => Err(CompileError::Refused { function, code }),
        };
        let mut program: Program = ptr::null_mut();
        let (name, none) = (c"reed_solomon.cu".as_ptr(), ptr::null());
        // SAFETY: texts outlive the program, which is not used after it is destroyed; sizes and
        // bytes are written to sufficient room.
        unsafe {
            let made = (self.create)(&raw mut program, text.as_ptr(), name, 0, none, none);
            refused("nvrtcCreateProgram", made)?;
            let code = || {
                let options: Vec<*const c_char> =
                    options.iter().map(|text| text.as_ptr()).collect();
                let count = options.len() as c_int;
                let compiled = (self.compile)(program, count, options.as_ptr());
                refused("nvrtcCompileProgram", compiled)?;
                let mut bytes = 0;
                let sized = (self.cubin_bytes)(program, &raw mut bytes);
                refused("nvrtcGetCUBINSize", sized)?;
                let mut cubin = vec![0_u8; bytes];
                refused("nvrtcGetCUBIN", (self.cubin)(program, cubin.as_mut_ptr().cast()))?;
                Ok(cubin)
            };
            let code = code();
            (self.destroy)(&raw mut program);
            code
        }
    }
}

/// # Safety
/// `T` must be the type of that function, and not be called without the library.
unsafe fn function<T: Copy>(library: &Library, name: &'static str) -> Result<T, CompileError> {
    // SAFETY: by contract.
    let symbol = unsafe { library.get::<T>(name) };
    symbol.map(|symbol| *symbol).map_err(|_| CompileError::Lacking { function: name })
}

/// Names of libnvrtc, the latest version first.
const NAMES: [&str; 4] = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"];

/// Code of all of them stays on the card.
const MATRICES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_code::reed_solomon::ReedSolomon;
    use std::time::Duration;

    #[test]
    fn matrix_is_compiled_once_or_it_is_said_why_not() {
        let code = ReedSolomon::new(10, 4).expect("a small code");
        let mut compiler = Compiler::new(90);
        compiler.want(code.generator(), 10);
        compiler.want(code.generator(), 10);
        // No matrices, or not worthwhile.
        compiler.want(&[], 10);
        compiler.want(&[1, 2, 3], 2);
        compiler.want(&[1, 2, 3], 0);
        compiler.want(&vec![1; PRODUCTS_MAX + 1], 1);
        match compiler
            .compiled
            .as_ref()
            .expect("there")
            .recv_timeout(Duration::from_secs(60))
            .expect("an answer")
        {
            Ok(Compiled { matrix, cubin }) => {
                assert_eq!(matrix.kernel(), "reed_solomon_10_4");
                assert!(cubin.starts_with(b"\x7fELF"), "code for a card");
            }
            Err(CompileError::Missing) => println!("skipped: no libnvrtc on this machine"),
            Err(error) => panic!("{error}"),
        }
        assert!(compiler.poll().is_none(), "once");
        assert_eq!(compiler.known.len(), 1);
    }
}
