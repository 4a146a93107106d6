//! Memory mapped here and used by a device at the same time: no reference into it may exist, so
//! everything is copied.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, fence};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// Mapped pages.
pub(super) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the pages belong to this value alone, in whichever thread it is.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Zeroed pages of the host.
    pub fn anonymous(bytes: usize) -> io::Result<Self> {
        // Shared, so that no child process makes Linux replace the pages that the device has.
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: Linux chooses the place, so no other mapping is replaced.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, flags) }?;
        Self::own(start, bytes)
    }

    /// Pages of a file or device.
    pub fn of(file: impl AsFd, offset: u64, bytes: usize) -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: as above.
        let start = unsafe { mmap(ptr::null_mut(), bytes, access, flags, file, offset) }?;
        Self::own(start, bytes)
    }

    fn own(start: *mut c_void, bytes: usize) -> io::Result<Self> {
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, bytes })
    }

    /// Its address, for the IOMMU.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies bytes that a device may be writing: any mixture of old and new bytes.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        let from = self.at(offset, to.len());
        // SAFETY: `at` has checked that it lies in the pages, which stay; no Rust reference points
        // to them, so `to` does not overlap.
        unsafe { ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        // Data read after a completion is not older than it. The partner is the device.
        fence(Ordering::Acquire);
    }

    pub fn write(&self, offset: usize, from: &[u8]) {
        let to = self.at(offset, from.len());
        // SAFETY: as in `read`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }

    /// Reads a register.
    pub fn read32(&self, offset: usize) -> u32 {
        let register = self.at(offset, 4).cast::<u32>();
        assert!(register.is_aligned(), "registers are at multiples of 4");
        // SAFETY: `at` has checked that it lies in the pages; it is aligned.
        u32::from_le(unsafe { register.read_volatile() })
    }

    /// Writes a register.
    pub fn write32(&self, offset: usize, value: u32) {
        let register = self.at(offset, 4).cast::<u32>();
        assert!(register.is_aligned(), "registers are at multiples of 4");
        // Earlier writes are in memory before the doorbell rings. The partner is the device.
        fence(Ordering::SeqCst);
        // SAFETY: as in `read32`.
        unsafe { register.write_volatile(value.to_le()) };
    }

    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(is_inside, "{bytes} bytes at {offset} of {}", self.bytes);
        // SAFETY: the offset was just checked to lie in the pages.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the pages are this value's alone; no reference into them exists.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "pages that were mapped can be unmapped");
    }
}

/// Backs this process's unwritten pages with memory, as the first write to each would. Otherwise a
/// device that may only read them would get Linux's shared zero page, and never see later writes.
/// Linux 5.14.
///
/// # Errors
/// Linux's error: an older version, no memory, or no such pages.
pub(super) fn populate(start: usize, bytes: usize) -> io::Result<()> {
    let start = ptr::with_exposed_provenance_mut(start);
    // SAFETY: this changes no byte of these pages and unmaps none; unmapped pages are an error.
    unsafe { madvise(start, bytes, Advice::LinuxPopulateWrite) }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapping_copies_within_its_pages_only() {
        let pages = Mapping::anonymous(4096).expect("memory");
        pages.write(4090, &[1, 2, 3, 4, 5, 6]);
        let mut read = [9; 8];
        pages.read(4088, &mut read);
        assert_eq!(read, [0, 0, 1, 2, 3, 4, 5, 6]);
        pages.write32(8, 0x1234_5678);
        assert_eq!(pages.read32(8), 0x1234_5678);
        pages.read(8, &mut read[..4]);
        assert_eq!(read[..4], [0x78, 0x56, 0x34, 0x12]);
    }

    #[test]
    fn populating_keeps_what_is_written_and_refuses_what_is_not_mapped() {
        let pages = Mapping::anonymous(8192).expect("memory");
        pages.write(5000, &[7]);
        let start = pages.address() as usize;
        populate(start, 8192).expect("the pages are mapped");
        let mut read = [0; 2];
        pages.read(4999, &mut read);
        assert_eq!(read, [0, 7]);
        drop(pages);
        assert!(populate(4096, 4096).is_err(), "nothing is mapped where null points");
    }

    #[test]
    #[should_panic = "2 bytes at 4095 of 4096"]
    fn mapping_is_not_read_beyond_its_end() {
        let pages = Mapping::anonymous(4096).expect("memory");
        pages.read(4095, &mut [0; 2]);
    }
}
