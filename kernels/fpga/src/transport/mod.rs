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

/// The connection to a card. [`Driver`](crate::Driver) is the same for every transport.
pub trait Transport: Send {
    /// Reads a register; all ones if the card does not respond, as on PCIe.
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

    /// Copies the bytes at `address` to `bytes`.
    ///
    /// # Errors
    /// [`MemoryError::Outside`] when it is not in memory from [`Transport::allocate`].
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryError>;

    /// Lets the card read `arena` in place, until that is freed; returns the address for the card.
    /// `None` if the card does not reach it, so that it must be copied: the card has memory of its
    /// own, there are too many arenas, or Linux refuses.
    fn share(&mut self, arena: &Arena) -> Option<u64> {
        let _ = arena;
        None
    }

    /// The same for reading and writing. The host must not access the memory before the card has
    /// written it.
    fn share_mut(&mut self, arena: &mut Arena) -> Option<u64> {
        let _ = arena;
        None
    }

    /// Ends all sharing permanently: whatever the card does, it reaches none of these arenas
    /// afterwards. False if it may still reach one, whose memory must never be reused.
    fn unshare(&mut self) -> bool {
        true
    }

    /// A description for users: `simulated`, or the device.
    fn describe(&self) -> String;

    /// Called before the host polls for completions: a simulated card works during this call,
    /// others need nothing.
    fn advance(&mut self) {}

    /// Waits for an interrupt of the card, at most `timeout`.
    fn wait(&mut self, timeout: Duration);

    /// Time since the transport was opened, by the card's clock: a simulated card is hundreds of
    /// times slower than a real one, which does not make it late.
    fn now(&self) -> Duration;
}

/// Shared memory of host and card is exhausted or missing.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryError {
    /// None left.
    #[error("no room for {bytes} bytes that the card can reach")]
    NoRoom {
        /// The requested bytes.
        bytes: usize,
    },
    /// The device that copies failed.
    #[error("copying {bytes} bytes to or from {address:#x} of the card failed: {kind}")]
    Device {
        /// The first address.
        address: u64,
        /// Number of bytes.
        bytes: usize,
        /// Linux's error.
        kind: io::ErrorKind,
    },
    /// Not allocated.
    #[error("{bytes} bytes at {address:#x} are not shared with the card")]
    Outside {
        /// The first address.
        address: u64,
        /// Number of bytes.
        bytes: usize,
    },
}
