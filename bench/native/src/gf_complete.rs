//! GF-Complete, the arithmetic under Jerasure: GF(256) modulo 0x11D, region multiply.
//!
//! Signatures and the layout of `gf_t` are those of `gf_complete.h`.

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use crate::library::{LoadError, Open};

type InitEasy = unsafe extern "C" fn(*mut Gf, c_int) -> c_int;
type Free = unsafe extern "C" fn(*mut Gf, c_int) -> c_int;
type MultiplyRegion = unsafe extern "C" fn(*mut Gf, *mut c_void, *mut c_void, u32, c_int, c_int);

/// `gf_t`.
#[repr(C)]
struct Gf {
    multiply: *mut c_void,
    divide: *mut c_void,
    inverse: *mut c_void,
    multiply_region: Option<MultiplyRegion>,
    extract_word: *mut c_void,
    scratch: *mut c_void,
}

/// The library, set up for GF(256).
pub struct GfComplete {
    /// The file that is in use.
    pub path: PathBuf,
    field: Box<Gf>,
    multiply_region: MultiplyRegion,
    free: Free,
    /// Closed last.
    _open: Open,
}

impl GfComplete {
    /// Opens the installed library.
    ///
    /// # Errors
    /// If it is not installed, or not this library.
    pub fn load() -> Result<GfComplete, LoadError> {
        // SAFETY: the library has no initialisation of its own.
        let open = unsafe { Open::new(Path::new(FILE), "libgf-complete1") }?;
        // SAFETY: the types are those of the header; `_open` keeps the library as long as they are
        // used.
        let (init, free) = unsafe {
            (open.function::<InitEasy>("gf_init_easy")?, open.function::<Free>("gf_free")?)
        };
        let mut field = Box::new(Gf {
            multiply: ptr::null_mut(),
            divide: ptr::null_mut(),
            inverse: ptr::null_mut(),
            multiply_region: None,
            extract_word: ptr::null_mut(),
            scratch: ptr::null_mut(),
        });
        // SAFETY: `field` is a `gf_t` at an address that stays.
        let answer = unsafe { init(&raw mut *field, BITS) };
        let Some(multiply_region) = field.multiply_region.filter(|_| answer != 0) else {
            return Err(LoadError::Start { file: open.file().to_owned() });
        };
        let path = open.path(init as usize);
        Ok(GfComplete { path, field, multiply_region, free, _open: open })
    }

    /// `destination += coefficient * source`.
    ///
    /// # Panics
    /// When the lengths differ, or the addresses modulo 16, which the library does not support.
    pub fn madd(&mut self, destination: &mut [u8], coefficient: u8, source: &[u8]) {
        self.region(destination, coefficient, source, 1);
    }

    /// `destination = coefficient * source`.
    ///
    /// # Panics
    /// Like [`GfComplete::madd`].
    pub fn mul(&mut self, destination: &mut [u8], coefficient: u8, source: &[u8]) {
        self.region(destination, coefficient, source, 0);
    }

    fn region(&mut self, destination: &mut [u8], coefficient: u8, source: &[u8], add: c_int) {
        assert_eq!(destination.len(), source.len());
        assert_eq!(destination.as_ptr().addr() % 16, source.as_ptr().addr() % 16);
        let from = source.as_ptr().cast_mut().cast();
        let to = destination.as_mut_ptr().cast();
        let bytes = source.len() as c_int;
        // SAFETY: the field is set up and both slices have this length; the source is only read.
        unsafe {
            (self.multiply_region)(&raw mut *self.field, from, to, coefficient.into(), bytes, add);
        }
    }
}

impl Drop for GfComplete {
    fn drop(&mut self) {
        // SAFETY: the field was set up by this library and is not used again.
        unsafe { (self.free)(&raw mut *self.field, 1) };
    }
}

/// Name of the library in Debian.
const FILE: &str = "libgf_complete.so.1";
/// Bits of an element.
const BITS: c_int = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::skip;

    #[test]
    fn mul_and_madd_multiply_modulo_0x11d() {
        let mut library = match GfComplete::load() {
            Ok(library) => library,
            Err(error) => return skip(&error),
        };
        #[repr(align(16))]
        struct Aligned([u8; 64]);
        let (source, mut result) = (Aligned([0x80; 64]), Aligned([0; 64]));
        library.mul(&mut result.0, 2, &source.0);
        assert_eq!(result.0, [0x1D; 64]);
        library.madd(&mut result.0, 2, &source.0);
        assert_eq!(result.0, [0; 64]);
    }
}
