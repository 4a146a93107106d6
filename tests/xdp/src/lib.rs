//! Drives the committed eBPF objects with BPF_PROG_TEST_RUN: one packet in, one verdict out.
//!
//! [`steering`] wraps `ebpf/recoded.bpf.o`, [`link`] wraps `ebpf/link.bpf.o`, [`packets`] builds
//! frames, and [`mod@reference`] is an independent implementation of the verdict. The tests are in
//! the `tests` folder. Linux runs the programs: CAP_BPF and CAP_NET_ADMIN are required ([`or_skip`]
//! handles their absence), and no interface is touched.

#![forbid(unsafe_code)]

pub mod packets;

pub mod steering;

pub mod reference;

pub mod link;

use std::error::Error;
use std::io;

use rustix::io::Errno;

/// The value, or `None` with the reason printed when this process may not load programs.
///
/// # Panics
/// On any other error, and on a missing permission when `RECODED_REQUIRE_ALL=1` is set.
pub fn or_skip<T>(result: Result<T, Box<dyn Error>>) -> Option<T> {
    let error = match result {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    assert!(is_permission(error.as_ref()), "the object does not load: {error:?}");
    let reason = "skipped: loading eBPF programs needs root, or CAP_BPF and CAP_NET_ADMIN";
    assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none_or(|value| value != "1"), "{reason}");
    eprintln!("{reason}: {error:?}");
    None
}

fn is_permission(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        // EPERM only: the verifier's refusals are EACCES, and a refused program is a failure.
        if let Some(error) = error.downcast_ref::<io::Error>()
            && error.raw_os_error() == Some(Errno::PERM.raw_os_error())
        {
            return true;
        }
        next = error.source();
    }
    false
}
