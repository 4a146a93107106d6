//! Versions, and texts of codes.

use std::ffi::{c_char, c_int};

use super::query;
use crate::{RECODED_ABI_VERSION, Status};

/// The version of the ABI of the library in use. A program may compare it with
/// `RECODED_ABI_VERSION` of the header it was compiled with. From any thread.
#[unsafe(no_mangle)]
pub extern "C" fn recoded_abi_version() -> u32 {
    RECODED_ABI_VERSION
}

/// The version of the library, such as "0.1.0". The text lasts as long as the program. From any
/// thread.
#[unsafe(no_mangle)]
pub extern "C" fn recoded_version() -> *const c_char {
    VERSION.as_ptr().cast()
}

/// A text in English for a code that a call returned, "unknown code" for others; never NULL. It
/// lasts as long as the program. From any thread.
#[unsafe(no_mangle)]
pub extern "C" fn recoded_error_text(code: c_int) -> *const c_char {
    let text = query(|| Status::of(code).map(Status::text)).to_bytes_with_nul();
    if text.len() > 1 { text.as_ptr().cast() } else { c"unknown code".as_ptr() }
}

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
