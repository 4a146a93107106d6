//! Replacement of an XDP program behind the `bpf_link` that holds one on an interface.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Replaces the program that `link` holds with a loaded `program`: no packet passes in between, and
/// the cost of attaching again is avoided.
///
/// # Errors
/// Error of Linux (`BPF_LINK_UPDATE`, since 5.9): the link has lost its interface, or the
/// descriptors are not of a link and of a program that fits it.
pub fn replace_program(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let (link, program) = (link.as_raw_fd(), program.as_raw_fd());
    // SAFETY: libbpf reads no options if their pointer is null, and the descriptors are open as
    // long as they are borrowed here; Linux checks their types.
    let answer = unsafe { libbpf_sys::bpf_link_update(link, program, ptr::null()) };
    // libbpf 1 returns the negative error number.
    if answer < 0 { Err(io::Error::from_raw_os_error(-answer)) } else { Ok(()) }
}
