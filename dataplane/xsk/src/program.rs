//! Another XDP program behind the `bpf_link` that holds one on an interface.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Puts a loaded `program` in place of the one that `link` holds: no packet passes in between, and
/// none of what attaching anew costs is done.
///
/// # Errors
/// What Linux answers (`BPF_LINK_UPDATE`, since 5.9): the link has lost its interface, or the
/// descriptors are not of a link and of a program that fits it.
pub fn replace_program(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let (link, program) = (link.as_raw_fd(), program.as_raw_fd());
    // SAFETY: libbpf reads no options where their pointer is null, and the descriptors are open as
    // long as they are borrowed here; Linux checks what they are.
    let answer = unsafe { libbpf_sys::bpf_link_update(link, program, ptr::null()) };
    // libbpf 1 returns the negative error number.
    if answer < 0 { Err(io::Error::from_raw_os_error(-answer)) } else { Ok(()) }
}
