//! AF_XDP in a build without it: the names of `af_xdp`, where opening always fails.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use recoded_counters::link::SocketStatistics;
use recoded_wire::frames::FrameId;

use crate::{
    burst::Received,
    error::XskError,
    mode::{ModePreference, SocketMode, XdpMode},
    umem::{FrameSize, Umem},
};

/// Whether this build has AF_XDP sockets.
pub const HAS_AF_XDP: bool = false;

/// Memory that AF_XDP sockets share: there is none.
#[derive(Debug)]
pub(crate) struct Shared {
    never: Never,
    pub(crate) base: NonNull<u8>,
}

#[derive(Copy, Clone, Debug)]
enum Never {}

impl Shared {
    pub(crate) fn map(_: NonZeroU32, _: FrameSize) -> Result<Shared, XskError> {
        Err(XskError::NotBuilt)
    }
}

/// An AF_XDP socket: there is none.
#[derive(Debug)]
pub struct Socket(Never);

#[expect(missing_docs, reason = "as in the build with AF_XDP")]
impl Socket {
    pub fn open(
        _: &mut Umem,
        _: &str,
        _: u32,
        _: ModePreference,
        _: XdpMode,
    ) -> Result<(Socket, SocketMode, String), XskError> {
        Err(XskError::NotBuilt)
    }

    pub fn open_for_receiving(
        umem: &mut Umem,
        interface: &str,
        queue: u32,
        preference: ModePreference,
        xdp: XdpMode,
    ) -> Result<(Socket, SocketMode, String), XskError> {
        Socket::open(umem, interface, queue, preference, xdp)
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }

    pub fn interface(&self) -> &str {
        match self.0 {}
    }

    pub fn queue(&self) -> u32 {
        match self.0 {}
    }

    pub fn receive(&mut self, _: &mut Umem, _: &mut Vec<Received>) -> usize {
        match self.0 {}
    }

    pub fn receive_at_most(&mut self, _: &mut Umem, _: &mut Vec<Received>, _: usize) -> usize {
        match self.0 {}
    }

    pub fn transmit(&mut self, _: &mut Umem, _: FrameId, _: u16, _: u16) -> bool {
        match self.0 {}
    }

    pub fn flush(&mut self) {
        match self.0 {}
    }

    pub fn unsent(&mut self) -> usize {
        match self.0 {}
    }

    pub fn complete(&mut self, _: &mut Umem) {
        match self.0 {}
    }

    pub fn pending(&self) -> usize {
        match self.0 {}
    }

    pub fn statistics(&mut self) -> SocketStatistics {
        match self.0 {}
    }
}

/// Replaces the program that `link` holds: there is none.
///
/// # Errors
/// Always.
pub fn replace_program(_: BorrowedFd<'_>, _: BorrowedFd<'_>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
