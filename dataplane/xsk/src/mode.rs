//! The mode ladder: zero copy, native copy, generic; from fastest to most widely supported.
//!
//! Two things are chosen. How the XDP program runs ([`XdpMode`]) is decided where it is attached,
//! in the runtime; whether packets are copied between the driver and the UMEM ([`SocketMode`]) is
//! decided by the socket. Generic XDP always copies. The reason for every better rung that was not
//! taken is kept as text, because a silent fallback is the first thing users ask about.

use std::fmt;

/// The configured mode.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum ModePreference {
    /// The best that works: zero copy, otherwise native copy, otherwise generic.
    #[default]
    Auto,
    /// Zero copy or an error.
    ZeroCopy,
    /// Native XDP with copying or an error; zero copy is not tried.
    Native,
    /// Generic XDP, which every interface has.
    Generic,
}

/// How the XDP program is attached.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// In Linux's network stack, after an skb was built.
    Generic,
}

/// How packets travel between the driver and the UMEM.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SocketMode {
    /// The device reads and writes the frames itself.
    ZeroCopy,
    /// Linux copies.
    Copy,
}

/// The active modes of a link and why they are not better.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActiveMode {
    /// How the program runs.
    pub xdp: XdpMode,
    /// How packets travel.
    pub socket: SocketMode,
    /// Why each better rung was not used; empty on the best one.
    pub reason: String,
}

impl fmt::Display for ModePreference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ModePreference::Auto => "auto",
            ModePreference::ZeroCopy => "zero-copy",
            ModePreference::Native => "native",
            ModePreference::Generic => "generic",
        })
    }
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        })
    }
}

impl fmt::Display for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SocketMode::ZeroCopy => "zero-copy",
            SocketMode::Copy => "copy",
        })
    }
}

/// The socket modes to try, best first, and why better ones are left out.
pub(crate) fn rungs(
    preference: ModePreference,
    xdp: XdpMode,
) -> (&'static [SocketMode], &'static str) {
    use SocketMode::{Copy, ZeroCopy};
    match (preference, xdp) {
        (ModePreference::ZeroCopy, _) => (&[ZeroCopy], ""),
        (ModePreference::Auto, XdpMode::Native) => (&[ZeroCopy, Copy], ""),
        (ModePreference::Auto, XdpMode::Generic) => (&[Copy], "zero copy: needs native XDP"),
        (ModePreference::Native, _) => (&[Copy], "zero copy: not tried, `native` is configured"),
        (ModePreference::Generic, _) => (&[Copy], "zero copy: not tried, `generic` is configured"),
    }
}
