//! Jerasure 2: Reed-Solomon codes over GF(256) by Vandermonde matrices, with GF-Complete below.
//!
//! Signatures are those of `jerasure.h` and `reed_sol.h`. The library allocates each coding matrix
//! and has no function to free it: a matrix of at most 256 numbers is lost for each code.

use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};
use std::slice;

use crate::library::{LoadError, Open};

type CodingMatrix = unsafe extern "C" fn(c_int, c_int, c_int) -> *mut c_int;
type Encode = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    *mut c_int,
    *mut *mut c_char,
    *mut *mut c_char,
    c_int,
);
type Decode = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    *mut c_int,
    c_int,
    *mut c_int,
    *mut *mut c_char,
    *mut *mut c_char,
    c_int,
) -> c_int;

/// The library. Its tables are set up by the first call, hence the mutable borrows.
pub struct Jerasure {
    /// The file that is in use.
    pub path: PathBuf,
    coding_matrix: CodingMatrix,
    encode: Encode,
    decode: Decode,
    /// Closed last.
    _open: Open,
}

/// A code of k data and m parity buffers.
pub struct VandermondeCode {
    data: usize,
    parity: usize,
    /// A row of k coefficients for each parity buffer.
    matrix: Vec<c_int>,
}

impl Jerasure {
    /// Opens the installed library.
    ///
    /// # Errors
    /// If it is not installed, or not this library.
    pub fn load() -> Result<Jerasure, LoadError> {
        // SAFETY: the library has no initialisation of its own.
        let open = unsafe { Open::new(Path::new(FILE), "libjerasure2") }?;
        // SAFETY: the types are those of the headers; `_open` keeps the library as long as they
        // are used.
        let (coding_matrix, encode, decode) = unsafe {
            (
                open.function::<CodingMatrix>("reed_sol_vandermonde_coding_matrix")?,
                open.function::<Encode>("jerasure_matrix_encode")?,
                open.function::<Decode>("jerasure_matrix_decode")?,
            )
        };
        let path = open.path(encode as usize);
        Ok(Jerasure { path, coding_matrix, encode, decode, _open: open })
    }

    /// The code of `data` data and `parity` parity buffers; `None` if the library has none.
    pub fn code(&mut self, data: usize, parity: usize) -> Option<VandermondeCode> {
        if data == 0 || parity == 0 || data.saturating_add(parity) > 1 << BITS {
            return None;
        }
        // SAFETY: the function reads its arguments only.
        let matrix = unsafe { (self.coding_matrix)(data as c_int, parity as c_int, BITS) };
        if matrix.is_null() {
            return None;
        }
        // SAFETY: the matrix has this many coefficients.
        let matrix = unsafe { slice::from_raw_parts(matrix, data * parity) }.to_vec();
        Some(VandermondeCode { data, parity, matrix })
    }

    /// Computes all parity buffers.
    ///
    /// # Panics
    /// If the number of buffers or their lengths contradict each other, or a length is no multiple
    /// of 16.
    pub fn encode(&mut self, code: &VandermondeCode, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        let bytes = code.check(data.iter().map(|it| it.len()), parity);
        assert_eq!(data.len(), code.data);
        let mut sources: Vec<_> = data.iter().map(|it| it.as_ptr().cast_mut().cast()).collect();
        let mut targets = pointers(parity);
        let mut matrix = code.matrix.clone();
        let (k, m) = (code.data as c_int, code.parity as c_int);
        // SAFETY: as many coefficients and pointers as announced, each pointer to `bytes` bytes.
        // Sources and coefficients are only read.
        unsafe {
            (self.encode)(
                k,
                m,
                BITS,
                matrix.as_mut_ptr(),
                sources.as_mut_ptr(),
                targets.as_mut_ptr(),
                bytes,
            );
        }
    }

    /// Computes the buffers `erased` in place: ids 0 to k - 1 are data, then parity. Returns false
    /// if they cannot be recovered.
    ///
    /// # Panics
    /// As for [`Jerasure::encode`], or if an id is out of range.
    pub fn recover(
        &mut self,
        code: &VandermondeCode,
        erased: &[usize],
        data: &mut [&mut [u8]],
        parity: &mut [&mut [u8]],
    ) -> bool {
        let bytes = code.check(data.iter().map(|it| it.len()), parity);
        assert_eq!(data.len(), code.data);
        assert!(erased.iter().all(|id| *id < code.data + code.parity));
        let mut ids: Vec<c_int> = erased.iter().map(|id| *id as c_int).collect();
        ids.push(-1);
        let mut matrix = code.matrix.clone();
        let (mut sources, mut targets) = (pointers(data), pointers(parity));
        let (k, m) = (code.data as c_int, code.parity as c_int);
        // SAFETY: as many coefficients and pointers as announced, each pointer to `bytes` bytes
        // that nothing else refers to; the list of ids ends with -1. The first row of the matrix
        // is all ones, as `row_k_ones` states.
        let answer = unsafe {
            (self.decode)(
                k,
                m,
                BITS,
                matrix.as_mut_ptr(),
                1,
                ids.as_mut_ptr(),
                sources.as_mut_ptr(),
                targets.as_mut_ptr(),
                bytes,
            )
        };
        answer == 0
    }
}

impl VandermondeCode {
    /// Bytes of each buffer.
    fn check(&self, mut lengths: impl Iterator<Item = usize>, parity: &[&mut [u8]]) -> c_int {
        assert_eq!(parity.len(), self.parity);
        let bytes = parity[0].len();
        assert!(bytes.is_multiple_of(16) && bytes <= c_int::MAX as usize, "{bytes} bytes");
        assert!(lengths.all(|it| it == bytes) && parity.iter().all(|it| it.len() == bytes));
        bytes as c_int
    }
}

fn pointers(buffers: &mut [&mut [u8]]) -> Vec<*mut c_char> {
    buffers.iter_mut().map(|it| it.as_mut_ptr().cast()).collect()
}

/// Name of the library in Debian.
const FILE: &str = "libJerasure.so.2";
/// Bits of an element.
const BITS: c_int = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::skip;

    #[test]
    fn recover_restores_two_lost_data_buffers() {
        let mut library = match Jerasure::load() {
            Ok(library) => library,
            Err(error) => return skip(&error),
        };
        let code = library.code(3, 2).expect("there is such a code");
        assert!(library.code(200, 57).is_none());
        let data = [[1; 64], [7; 64], [0x80; 64]];
        let (mut p, mut q) = ([0; 64], [0; 64]);
        library.encode(&code, &data.each_ref().map(|it| &it[..]), &mut [&mut p, &mut q]);
        assert_eq!(p, [0x86; 64]);
        let (mut a, mut b, mut c) = ([0; 64], [7; 64], [0; 64]);
        let mut buffers = [&mut a[..], &mut b, &mut c];
        assert!(library.recover(&code, &[0, 2], &mut buffers, &mut [&mut p, &mut q]));
        assert_eq!([a, b, c], data);
    }
}
