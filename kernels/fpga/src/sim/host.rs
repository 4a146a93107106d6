//! Memory of the host that a simulated card reaches by DMA: plays the part of an IOMMU.

#![allow(unsafe_code)]

use std::io;
use std::ptr;

use crate::transport::arenas::{Access, Iommu};

/// Pages of this process that the card reaches, by its addresses.
#[derive(Default)]
pub struct HostMemory {
    pages: Vec<Pages>,
}

struct Pages {
    there: u64,
    here: usize,
    bytes: u64,
    access: Access,
}

impl Iommu for HostMemory {
    fn map(&mut self, here: usize, there: u64, bytes: u64, access: Access) -> io::Result<()> {
        self.pages.push(Pages { there, here, bytes, access });
        Ok(())
    }

    fn unmap(&mut self, there: u64, bytes: u64) -> io::Result<()> {
        self.pages.retain(|pages| (pages.there, pages.bytes) != (there, bytes));
        Ok(())
    }
}

impl HostMemory {
    /// A beat at `address`; `None` if the card reaches nothing there.
    pub fn read<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let from = self.find(address, N, Access::Read)?;
        let mut beat = [0; N];
        // SAFETY: `find` has checked that these bytes lie in pages that are mapped, which are not
        // freed before they are unmapped (`Arenas`), and nothing refers to `beat` but this.
        unsafe { ptr::copy_nonoverlapping(from, beat.as_mut_ptr(), N) };
        Some(beat)
    }

    /// Writes the bytes of a beat that `strobe` selects; `false` if it may not be written.
    pub fn write<const N: usize>(&self, address: u64, beat: &[u8; N], strobe: u64) -> bool {
        let Some(to) = self.find(address, N, Access::ReadWrite) else { return false };
        for (index, byte) in beat.iter().enumerate().filter(|(index, _)| strobe >> index & 1 == 1) {
            // SAFETY: as in `read`; the pages were exclusively borrowed when they were mapped for
            // writing, and their owner does not access them while the card has a job over them.
            unsafe { to.add(index).write(*byte) };
        }
        true
    }

    fn find(&self, address: u64, bytes: usize, access: Access) -> Option<*mut u8> {
        self.pages.iter().filter(|pages| pages.access >= access).find_map(|pages| {
            let offset = address.checked_sub(pages.there)?;
            let end = offset.checked_add(bytes as u64).filter(|end| *end <= pages.bytes);
            end.map(|_| ptr::with_exposed_provenance_mut(pages.here + offset as usize))
        })
    }
}
