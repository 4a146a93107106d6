//! The one call for TUN interfaces that tun-rs has not.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Lets a TUN interface end with its last descriptor, of which `queue` is one. It ends so wherever
/// it is: an administrator may have moved it to another network namespace.
///
/// # Errors
///
/// The descriptor is none of a TUN interface.
pub fn end_with_descriptors(queue: BorrowedFd<'_>) -> io::Result<()> {
    let is_lasting: libc::c_ulong = 0;
    // SAFETY: the descriptor is open, and the argument of TUNSETPERSIST is a number.
    let answer = unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETPERSIST, is_lasting) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
