//! XDP programs in a build without them: the names of `xdp`, where loading always fails.

use crate::bpf_link::LeftPrograms;
use crate::error::StartError;
use crate::netlink::Netlink;
use crate::other_versions::OtherVersions;
use crate::report::Verdicts;
use crate::topology::Topology;
use recoded_xsk::{ModePreference, XdpMode, XskError};
use std::convert::Infallible;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

/// No map can fail.
pub(crate) type MapError = Infallible;

/// A program on an interface: there is none.
pub(crate) struct Program(Infallible);

impl Program {
    pub(crate) fn set_neighbours(&mut self, _: &[IpAddr]) -> Result<(), MapError> {
        match self.0 {}
    }

    pub(crate) fn detach(&mut self) -> Result<(), String> {
        match self.0 {}
    }

    pub(crate) fn link(&self) -> Option<OwnedFd> {
        match self.0 {}
    }

    pub(crate) fn set_socket(&mut self, _: u32, _: BorrowedFd<'_>) -> Result<(), MapError> {
        match self.0 {}
    }

    pub(crate) fn unset_socket(&mut self, _: u32) -> Result<(), MapError> {
        match self.0 {}
    }

    pub(crate) fn set_flow(&mut self, _: u32, _: bool) -> Result<(), MapError> {
        match self.0 {}
    }

    pub(crate) fn add_verdicts(&self, _: &mut Verdicts) -> Result<(), MapError> {
        match self.0 {}
    }

    pub(crate) fn not_neighbours(&self) -> Result<Vec<IpAddr>, MapError> {
        match self.0 {}
    }

    pub(crate) fn other_versions(&self) -> Result<OtherVersions, MapError> {
        match self.0 {}
    }
}

/// A program on an interface: there is none.
pub(crate) struct Placed {
    pub(crate) interface: String,
    pub(crate) index: u32,
    pub(crate) queues: u32,
    pub(crate) local: IpAddr,
    pub(crate) program: Program,
    pub(crate) mode: XdpMode,
    pub(crate) reason: String,
}

/// A program that is loaded and not attached: there is none.
pub(crate) struct Loaded(Infallible);

impl Loaded {
    pub(crate) fn new(_: &Topology, _: usize, _: &Netlink) -> Result<Loaded, StartError> {
        Err(XskError::NotBuilt.into())
    }

    pub(crate) fn attach(
        self,
        _: ModePreference,
        _: &Netlink,
        _: &mut LeftPrograms,
    ) -> Result<Placed, StartError> {
        match self.0 {}
    }
}
