//! The VFIO requests, and the only calls of them that the compiler cannot check.

#![allow(unsafe_code)]

use std::ffi::{CString, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A request, with the numbers that are passed by value. Others have an argument in memory; a
/// structure begins with its own size.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Of the container: 0.
    GetApiVersion,
    /// Of the container: 1 if it supports this kind of IOMMU.
    CheckExtension(u32),
    /// Of the container.
    SetIommu(u32),
    /// Size, flags.
    GroupGetStatus,
    /// The container's descriptor.
    GroupSetContainer,
    /// Size, flags, index, offset of capabilities, bytes (64), offset (64).
    DeviceGetRegionInfo,
    /// Size, flags, index, count.
    DeviceGetIrqInfo,
    /// Size, flags, index, first, count, eventfd.
    DeviceSetIrqs,
    /// Nothing.
    DeviceReset,
    /// Size, flags, address here (64), of the card (64), bytes (64).
    MapDma,
    /// Size, flags, address of the card (64), bytes (64).
    UnmapDma,
    /// Size, flags, iommufd, number of the device (out).
    DeviceBindIommufd,
    /// Size, flags, number of the space.
    DeviceAttach,
    /// Of iommufd. Size, flags, number of the space (out).
    IoasAlloc,
    /// Of iommufd. Size, flags, number of the space, 0, address here (64), bytes (64), of the card
    /// (64).
    IoasMap,
    /// Of iommufd. Size, number of the space, address of the card (64), bytes (64).
    IoasUnmap,
}

impl Request {
    /// Its number after [`VFIO_BASE`], the value argument, and the bytes of its memory argument.
    const fn parts(self) -> (u32, u32, usize) {
        match self {
            Self::GetApiVersion => (0, 0, 0),
            Self::CheckExtension(kind) => (1, kind, 0),
            Self::SetIommu(kind) => (2, kind, 0),
            Self::GroupGetStatus => (3, 0, 8),
            Self::GroupSetContainer => (4, 0, 4),
            Self::DeviceGetRegionInfo => (8, 0, 32),
            Self::DeviceGetIrqInfo => (9, 0, 16),
            Self::DeviceSetIrqs => (10, 0, 24),
            Self::DeviceReset => (11, 0, 0),
            Self::MapDma => (13, 0, 32),
            Self::UnmapDma => (14, 0, 24),
            Self::DeviceBindIommufd => (18, 0, 16),
            Self::DeviceAttach => (19, 0, 12),
            // From 0x80 on, of the same type.
            Self::IoasAlloc => (0x81 - VFIO_BASE, 0, 12),
            Self::IoasMap => (0x85 - VFIO_BASE, 0, 40),
            Self::IoasUnmap => (0x86 - VFIO_BASE, 0, 24),
        }
    }

    /// The bytes of its argument.
    #[must_use]
    pub const fn argument_bytes(self) -> usize {
        self.parts().2
    }
}

/// Linux's interface: the requests that files and pipes cannot replace.
pub trait Linux: Send {
    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// Linux's error.
    fn open(&mut self, path: &Path) -> io::Result<OwnedFd>;

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// Linux's error.
    fn read_link(&mut self, path: &Path) -> io::Result<PathBuf>;

    /// The name of the entry of a folder.
    ///
    /// # Errors
    /// Linux's error, or an empty folder.
    fn entry(&mut self, folder: &Path) -> io::Result<OsString>;

    /// The device of a group.
    ///
    /// # Errors
    /// Linux's error.
    fn device(&mut self, group: BorrowedFd<'_>, address: &str) -> io::Result<OwnedFd>;

    /// Any other request. `argument` is read and written; its length is
    /// [`Request::argument_bytes`].
    ///
    /// # Errors
    /// Linux's error.
    fn call(
        &mut self,
        fd: BorrowedFd<'_>,
        request: Request,
        argument: &mut [u8],
    ) -> io::Result<i32>;
}

/// The running Linux.
#[derive(Copy, Clone, Debug)]
pub struct Kernel;

impl Linux for Kernel {
    fn open(&mut self, path: &Path) -> io::Result<OwnedFd> {
        OpenOptions::new().read(true).write(true).open(path).map(File::into)
    }

    fn read_link(&mut self, path: &Path) -> io::Result<PathBuf> {
        std::fs::read_link(path)
    }

    fn entry(&mut self, folder: &Path) -> io::Result<OsString> {
        let first = std::fs::read_dir(folder)?.next().ok_or(io::ErrorKind::NotFound)?;
        Ok(first?.file_name())
    }

    fn device(&mut self, group: BorrowedFd<'_>, address: &str) -> io::Result<OwnedFd> {
        let address = CString::new(address)?;
        // SAFETY: the request reads a string that ends with a zero.
        let fd = unsafe {
            libc::ioctl(group.as_raw_fd(), number(GROUP_GET_DEVICE_FD), address.as_ptr())
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: Linux has just opened it for this process.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn call(
        &mut self,
        fd: BorrowedFd<'_>,
        request: Request,
        argument: &mut [u8],
    ) -> io::Result<i32> {
        let (offset, value, bytes) = request.parts();
        assert_eq!(argument.len(), bytes, "{request:?} has an argument of this size");
        let begins_with_size = bytes > 4;
        assert!(
            !begins_with_size || argument[..4] == (bytes as u32).to_le_bytes(),
            "{request:?}: the argument says its size"
        );
        let result = if bytes == 0 {
            // SAFETY: these requests touch no memory of this process.
            unsafe { libc::ioctl(fd.as_raw_fd(), number(offset), libc::c_ulong::from(value)) }
        } else {
            // SAFETY: Linux reads and writes as many bytes as the argument says at its start, or
            // four, and it has that many. Memory named in the arguments is mapped, and stays so
            // until it is unmapped or its space closed: see `Vfio`.
            unsafe { libc::ioctl(fd.as_raw_fd(), number(offset), argument.as_mut_ptr()) }
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }
}

/// `_IO(';', 100 + offset)`.
const fn number(offset: u32) -> libc::Ioctl {
    ((VFIO_TYPE << 8) | (VFIO_BASE + offset)) as libc::Ioctl
}

const VFIO_TYPE: u32 = b';' as u32;
const VFIO_BASE: u32 = 100;

/// Takes the device's address as a string and returns a descriptor.
const GROUP_GET_DEVICE_FD: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    /// As defined in `linux/vfio.h`.
    #[test]
    fn numbers_are_those_of_linux() {
        let of = |request: Request| number(request.parts().0) as u64;
        assert_eq!(of(Request::GetApiVersion), 0x3B64);
        assert_eq!(of(Request::DeviceGetRegionInfo), 0x3B6C);
        assert_eq!(of(Request::MapDma), 0x3B71);
        assert_eq!(of(Request::DeviceBindIommufd), 0x3B76);
        assert_eq!(of(Request::DeviceAttach), 0x3B77);
        // And `linux/iommufd.h`.
        assert_eq!(of(Request::IoasAlloc), 0x3B81);
        assert_eq!(of(Request::IoasUnmap), 0x3B86);
        assert_eq!(number(GROUP_GET_DEVICE_FD) as u64, 0x3B6A);
    }

    /// A file that is no VFIO device refuses harmlessly.
    #[test]
    fn other_files_refuse() {
        let null = Kernel.open(Path::new("/dev/null")).expect("it is there");
        use std::os::fd::AsFd;
        let refused = Kernel.call(null.as_fd(), Request::GetApiVersion, &mut []);
        assert_eq!(refused.expect_err("no such request").raw_os_error(), Some(libc::ENOTTY));
        let mut status = [8, 0, 0, 0, 0, 0, 0, 0];
        assert!(Kernel.call(null.as_fd(), Request::GroupGetStatus, &mut status).is_err());
        assert!(Kernel.device(null.as_fd(), "0000:03:00.0").is_err());
        assert!(Kernel.entry(Path::new("/dev/null")).is_err());
        assert!(Kernel.device(null.as_fd(), "a\0b").is_err());
    }
}
