//! How the host reaches a card: its register page, memory that both can reach, and waiting.
//!
//! | transport | registers | memory that the card reads and writes | bundles | run on a card |
//! |---|---|---|---|---|
//! | `sim::Simulation` | of the simulated RTL | of a model | copied, or where they lie | is none |
//! | [`xdma`] | character device | the card's own, through character devices | copied | no |
//! | [`vfio`] | a mapped BAR | the host's, through the IOMMU | where they lie | no |

pub(crate) mod arenas;
mod window;

pub mod xdma;

mod mapping;

pub mod vfio;

use std::io;
use std::time::Duration;

use recoded_code::engine::Arena;

/// A way to a card. Whatever the way, [`Driver`](crate::Driver) is the same.
pub trait Transport: Send {
    /// Reads a register; all ones when the card does not answer, as on PCIe.
    fn read32(&mut self, offset: u32) -> u32;

    /// Writes a register.
    fn write32(&mut self, offset: u32, value: u32);

    /// Zeroed memory of at least `bytes` that host and card reach, at a multiple of 4,096. It stays
    /// until the transport is dropped.
    ///
    /// # Errors
    /// [`MemoryError::NoRoom`].
    fn allocate(&mut self, bytes: usize) -> Result<u64, MemoryError>;

    /// Copies `bytes` to `address`.
    ///
    /// # Errors
    /// [`MemoryError::Outside`] when they are not in memory from [`Transport::allocate`].
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryError>;

    /// Copies what lies at `address` to `bytes`.
    ///
    /// # Errors
    /// [`MemoryError::Outside`] when it is not in memory from [`Transport::allocate`].
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryError>;

    /// Lets the card read `arena` where it lies, until that is freed; the address by which it does.
    /// `None` where the card does not reach it, so that it has to be copied: the card has memory of
    /// its own, there are too many arenas, or Linux refuses.
    fn share(&mut self, arena: &Arena) -> Option<u64> {
        let _ = arena;
        None
    }

    /// The same for reading and writing. What the card is to write must not be looked at before.
    fn share_mut(&mut self, arena: &mut Arena) -> Option<u64> {
        let _ = arena;
        None
    }

    /// Ends all sharing, for good: whatever the card does, it reaches none of these arenas
    /// afterwards. False where it may still reach one, whose memory must never be used again.
    fn unshare(&mut self) -> bool {
        true
    }

    /// What it is, for people: `simulated`, or which device.
    fn describe(&self) -> String;

    /// Called before the host looks for completions without waiting: a simulated card works while
    /// this runs, others need nothing.
    fn advance(&mut self) {}

    /// Waits until the card interrupts, at most so long.
    fn wait(&mut self, timeout: Duration);

    /// Time since the transport was opened, by the clock that the card works by: a simulated card
    /// is hundreds of times slower than a real one, and is not late for that.
    fn now(&self) -> Duration;
}

/// Memory that host and card share was not to be had, or not there.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryError {
    /// None left.
    #[error("no room for {bytes} bytes that the card can reach")]
    NoRoom {
        /// How many were wanted.
        bytes: usize,
    },
    /// The device that copies failed.
    #[error("copying {bytes} bytes to or from {address:#x} of the card failed: {kind}")]
    Device {
        /// The first one.
        address: u64,
        /// How many.
        bytes: usize,
        /// What Linux says.
        kind: io::ErrorKind,
    },
    /// Not allocated.
    #[error("{bytes} bytes at {address:#x} are not shared with the card")]
    Outside {
        /// The first one.
        address: u64,
        /// How many.
        bytes: usize,
    },
}
