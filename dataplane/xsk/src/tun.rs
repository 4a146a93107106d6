//! The one call for TUN interfaces that tun-rs lacks.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Makes a TUN interface end with its last descriptor; `queue` is one of them. That works even if
/// an administrator has moved it to another network namespace.
///
/// # Errors
///
/// The descriptor does not belong to a TUN interface.
pub fn end_with_descriptors(queue: BorrowedFd<'_>) -> io::Result<()> {
    let is_lasting: libc::c_ulong = 0;
    // SAFETY: the descriptor is open, and the argument of TUNSETPERSIST is a number.
    let answer = unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETPERSIST, is_lasting) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
