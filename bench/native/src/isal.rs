//! Intel's ISA-L: GF(256) modulo 0x11D, erasure coding.
//!
//! Debian's version, 2.30, has no GFNI routines; a newer one, opened by path, does. Signatures are
//! those of `isa-l/erasure_code.h`.

use std::ffi::{c_int, c_uchar};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::{fs, ptr};

use crate::library::{LoadError, Open};

type InitTables = unsafe extern "C" fn(c_int, c_int, *const c_uchar, *mut c_uchar);
type EncodeData =
    unsafe extern "C" fn(c_int, c_int, c_int, *mut c_uchar, *mut *mut c_uchar, *mut *mut c_uchar);
type VectorMad =
    unsafe extern "C" fn(c_int, c_int, c_int, *mut c_uchar, *mut c_uchar, *mut c_uchar);
type InvertMatrix = unsafe extern "C" fn(*mut c_uchar, *mut c_uchar, c_int) -> c_int;

/// The library.
pub struct Isal {
    /// The file that is in use; its name ends with the version.
    pub path: PathBuf,
    /// Whether it has routines for GFNI.
    pub has_gfni: bool,
    init_tables: InitTables,
    encode_data: EncodeData,
    vector_mad: VectorMad,
    invert_matrix: InvertMatrix,
    /// Closed last.
    _open: Open,
}

/// Coefficients as the library wants them: 32 bytes each.
pub struct Tables {
    bytes: Vec<u8>,
    sources: usize,
    destinations: usize,
}

/// Pointers to sources and destinations, ready for many calls.
pub struct Encode<'a> {
    sources: Vec<*mut c_uchar>,
    destinations: Vec<*mut c_uchar>,
    bytes: c_int,
    borrowed: PhantomData<(&'a [u8], &'a mut [u8])>,
}

impl Isal {
    /// Opens the library at `path`, or the installed one.
    ///
    /// # Errors
    /// If it is not installed, or not this library.
    pub fn load(path: Option<&Path>) -> Result<Isal, LoadError> {
        // SAFETY: ISA-L has no initialisation beyond choosing routines.
        let open = unsafe { Open::new(path.unwrap_or(Path::new(FILE)), "libisal2") }?;
        // SAFETY: the types are those of the header; `_open` keeps the library as long as they are
        // used.
        let (init_tables, encode_data, vector_mad, invert_matrix) = unsafe {
            (
                open.function::<InitTables>("ec_init_tables")?,
                open.function::<EncodeData>("ec_encode_data")?,
                open.function::<VectorMad>("gf_vect_mad")?,
                open.function::<InvertMatrix>("gf_invert_matrix")?,
            )
        };
        let path = open.path(encode_data as usize);
        let has_gfni = fs::read(&path).is_ok_and(|file| holds_affine(&file));
        Ok(Isal {
            path,
            has_gfni,
            init_tables,
            encode_data,
            vector_mad,
            invert_matrix,
            _open: open,
        })
    }

    /// Expands row-major coefficients, one row per destination.
    ///
    /// # Panics
    /// When `coefficients` is not `sources * destinations` long.
    pub fn tables(&self, coefficients: &[u8], sources: usize, destinations: usize) -> Tables {
        let bytes = vec![0; TABLE_BYTES * sources * destinations];
        let mut tables = Tables { bytes, sources, destinations };
        self.expand(coefficients, &mut tables);
        tables
    }

    /// Like [`Isal::tables`], but into existing tables.
    ///
    /// # Panics
    /// If the number of coefficients does not match the tables.
    pub fn expand(&self, coefficients: &[u8], tables: &mut Tables) {
        assert_eq!(coefficients.len(), tables.sources * tables.destinations);
        let (sources, destinations) = (tables.sources as c_int, tables.destinations as c_int);
        let bytes = tables.bytes.as_mut_ptr();
        // SAFETY: one byte is read and 32 are written per source and destination.
        unsafe { (self.init_tables)(sources, destinations, coefficients.as_ptr(), bytes) }
    }

    /// `destinations = coefficients * sources`.
    ///
    /// # Panics
    /// If the tables do not match the numbers of slices.
    pub fn encode(&self, tables: &mut Tables, slices: &mut Encode<'_>) {
        assert_eq!(tables.sources, slices.sources.len());
        assert_eq!(tables.destinations, slices.destinations.len());
        // SAFETY: as many tables and pointers as announced, each pointer to `bytes` bytes, borrowed
        // as long as `slices` lives. Sources are only read.
        unsafe {
            (self.encode_data)(
                slices.bytes,
                tables.sources as c_int,
                tables.destinations as c_int,
                tables.bytes.as_mut_ptr(),
                slices.sources.as_mut_ptr(),
                slices.destinations.as_mut_ptr(),
            );
        }
    }

    /// `destination += coefficient * source`, the coefficient in tables for one source and one
    /// destination.
    ///
    /// # Panics
    /// When the lengths differ or are below 64, which the library does not support.
    pub fn madd(&self, tables: &mut Tables, destination: &mut [u8], source: &[u8]) {
        assert_eq!(destination.len(), source.len());
        assert!(source.len() >= 64 && tables.bytes.len() == TABLE_BYTES);
        let bytes = source.len() as c_int;
        let table = tables.bytes.as_mut_ptr();
        let source = source.as_ptr().cast_mut();
        // SAFETY: one table, and two slices of this length; the source is only read.
        unsafe { (self.vector_mad)(bytes, 1, 0, table, source, destination.as_mut_ptr()) }
    }

    /// Inverts `size` x `size` coefficients, which are destroyed; returns false if there is no
    /// inverse.
    ///
    /// # Panics
    /// When a matrix has another size.
    pub fn invert(&self, matrix: &mut [u8], inverse: &mut [u8], size: usize) -> bool {
        assert!(matrix.len() == size * size && inverse.len() == size * size);
        // SAFETY: both matrices are size * size bytes.
        let answer = unsafe {
            (self.invert_matrix)(matrix.as_mut_ptr(), inverse.as_mut_ptr(), size as c_int)
        };
        answer == 0
    }
}

impl<'a> Encode<'a> {
    /// Borrows the slices for its lifetime.
    ///
    /// # Panics
    /// When their lengths differ.
    pub fn new(sources: &[&'a [u8]], destinations: Vec<&'a mut [u8]>) -> Encode<'a> {
        let bytes = sources.first().map_or(0, |source| source.len());
        assert!(sources.iter().all(|source| source.len() == bytes));
        assert!(destinations.iter().all(|destination| destination.len() == bytes));
        Encode {
            sources: sources.iter().map(|source| source.as_ptr().cast_mut()).collect(),
            destinations: destinations.into_iter().map(<[u8]>::as_mut_ptr).collect(),
            bytes: bytes as c_int,
            borrowed: PhantomData,
        }
    }

    /// One of the destinations.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn destination(&self, index: usize) -> &[u8] {
        // SAFETY: the pointer and length of a slice that is borrowed as long as `self` lives, and
        // that is written only through a mutable borrow of `self`.
        unsafe { &*ptr::slice_from_raw_parts(self.destinations[index], self.bytes as usize) }
    }
}

/// Whether machine code contains the instruction `vgf2p8affineqb`: with a VEX or EVEX prefix,
/// opcode CE in the map 0F3A. Not all routines of the library are exported, so symbol names are no
/// evidence.
fn holds_affine(code: &[u8]) -> bool {
    let evex = |bytes: &[u8]| {
        bytes[0] == 0x62 && bytes[1] & 0x0F == 3 && bytes[2] & 0x87 == 0x85 && bytes[4] == 0xCE
    };
    // Data resembles code now and then, but not a dozen times.
    code.windows(5).filter(|bytes| evex(bytes)).take(AFFINE_MIN).count() == AFFINE_MIN
}

/// Name of version 2 of the library, the version in Debian and the current upstream one.
const FILE: &str = "libisal.so.2";
/// Bytes that the library wants per coefficient.
const TABLE_BYTES: usize = 32;
/// Occurrences of an instruction that are no accident.
const AFFINE_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::skip;

    /// The library, or a message that explains why the test is skipped.
    fn isal() -> Option<Isal> {
        match Isal::load(None) {
            Ok(isal) => Some(isal),
            Err(error) => {
                skip(&error);
                None
            }
        }
    }

    #[test]
    fn encode_and_madd_multiply_modulo_0x11d() {
        let Some(isal) = isal() else { return };
        let (source, mut made, mut sum) = ([0x80; 64], [0; 64], [1; 64]);
        let mut tables = isal.tables(&[2], 1, 1);
        let mut slices = Encode::new(&[&source], vec![&mut made]);
        isal.encode(&mut tables, &mut slices);
        assert_eq!(slices.destination(0), [0x1D; 64]);
        isal.madd(&mut tables, &mut sum, &source);
        assert_eq!(sum, [0x1C; 64]);
    }

    #[test]
    fn invert_of_its_own_inverse_and_of_a_singular_matrix() {
        let Some(isal) = isal() else { return };
        let mut inverse = [0; 4];
        assert!(isal.invert(&mut [1, 5, 0, 1], &mut inverse, 2));
        assert_eq!(inverse, [1, 5, 0, 1]);
        assert!(!isal.invert(&mut [1, 1, 1, 1], &mut inverse, 2));
    }

    #[test]
    fn load_of_what_is_not_there_says_what_to_install() {
        let error = Isal::load(Some(Path::new("/nowhere/libisal.so"))).err();
        let text = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains("apt install libisal2"), "{text}");
    }
}
