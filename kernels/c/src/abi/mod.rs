//! The boundary: every function that C programs call, and all unsafe code of this crate.
//!
//! Each function first checks its arguments, then makes slices and references of its pointers, and
//! leaves the rest to safe code. `call` keeps panics from crossing the boundary.
//!
//! [`version`]: versions and texts. [`gibraltar`]: the six calls of Gibraltar. [`reed_solomon`],
//! [`encoder`], [`recoder`], [`decoder`]: this library's own. `memory`, `packet`: pointers.
#![allow(unsafe_code)]

pub mod version;

pub mod reed_solomon;

pub mod encoder;

pub mod recoder;

pub mod decoder;

pub mod gibraltar;

mod memory;

mod packet;

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Status;

/// Runs the body of a call and returns its code, [`Status::Internal`] if it panics.
fn call(body: impl FnOnce() -> Result<(), Status>) -> c_int {
    let status = catch(body).unwrap_or(Err(Status::Internal));
    status.err().unwrap_or(Status::Ok) as c_int
}

/// Runs the body of a call that has no code to return; the default of its type if it panics.
fn query<T: Default>(body: impl FnOnce() -> Option<T>) -> T {
    catch(body).flatten().unwrap_or_default()
}

/// `None` if the body panics. State behind it may be inconsistent then, which is safe: the objects
/// of this library hold no unsafe code.
fn catch<T>(body: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => Some(value),
        Err(payload) => {
            // Its destructor could panic as well.
            std::mem::forget(payload);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_become_codes() {
        assert_eq!(call(|| panic!("a fault, caught")), Status::Internal as c_int);
        assert_eq!(call(|| Err(Status::Size)), Status::Size as c_int);
        assert_eq!(call(|| Ok(())), 0);
        assert_eq!(query::<usize>(|| panic!("a fault, caught")), 0);
        assert_eq!(query(|| Some(7)), 7);
    }
}
