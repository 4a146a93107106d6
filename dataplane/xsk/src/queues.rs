//! Number of queues of an interface.
//!
//! The driver is queried (`ETHTOOL_GCHANNELS`, the figures of `ethtool -l`). If it does not answer,
//! queues are counted in sysfs, provided that sysfs shows the same network namespace; otherwise
//! there is one of each. The query needs no privilege, and applies to the network namespace that
//! [`Ethtool`] was opened in.

use std::{
    ffi::CString,
    fs, io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    path::Path,
};

/// Queues of an interface that are in use.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Queues {
    /// For receiving.
    pub receive: u32,
    /// For sending.
    pub transmit: u32,
}

impl Queues {
    /// Assumed for an interface about which nothing is known.
    pub const ONE: Queues = Queues { receive: 1, transmit: 1 };
}

/// A socket for queries to drivers.
#[derive(Debug)]
pub struct Ethtool(OwnedFd);

/// `struct ethtool_channels` of `linux/ethtool.h`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max_receive: u32,
    max_transmit: u32,
    max_other: u32,
    max_combined: u32,
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

/// `ETHTOOL_GCHANNELS` of `linux/ethtool.h`.
const GET_CHANNELS: u32 = 0x3c;

impl Ethtool {
    /// Opens the socket in the network namespace of this thread.
    ///
    /// # Errors
    /// Error of Linux when no descriptor is available.
    pub fn open() -> io::Result<Ethtool> {
        // SAFETY: no pointer is passed.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: Linux has just opened the descriptor, and nothing else has it.
        Ok(Ethtool(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The queues of an interface that are in use.
    ///
    /// # Errors
    /// There is no such interface, or its driver does not answer at the moment.
    pub fn queues(&self, interface: &str) -> io::Result<Queues> {
        match self.channels(interface) {
            Ok(channels) => Ok(Queues {
                receive: channels.receive.saturating_add(channels.combined).max(1),
                transmit: channels.transmit.saturating_add(channels.combined).max(1),
            }),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                Ok(in_sysfs(interface).unwrap_or(Queues::ONE))
            }
            Err(error) => Err(error),
        }
    }

    fn channels(&self, interface: &str) -> io::Result<Channels> {
        let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
        let mut name = [0; libc::IFNAMSIZ];
        // The last byte stays zero.
        if interface.len() >= name.len() {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (place, byte) in name.iter_mut().zip(interface.bytes()) {
            *place = byte as libc::c_char;
        }
        let mut request = libc::ifreq {
            ifr_name: name,
            ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: (&raw mut channels).cast() },
        };
        // Each C library has a type of its own for it.
        let command = libc::SIOCETHTOOL as libc::Ioctl;
        // SAFETY: the request and the structure that it points to live until the call returns, and
        // Linux writes no more to the latter than the command's structure has.
        let answer = unsafe { libc::ioctl(self.0.as_raw_fd(), command, &raw mut request) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(channels) }
    }
}

/// Queues in use that sysfs lists, if it shows the network namespace of this thread.
fn in_sysfs(interface: &str) -> Option<Queues> {
    let folder = Path::new("/sys/class/net").join(interface);
    let listed: u32 = fs::read_to_string(folder.join("ifindex")).ok()?.trim().parse().ok()?;
    let name = CString::new(interface).ok()?;
    // SAFETY: the name ends with a zero and lives until the call returns.
    if unsafe { libc::if_nametoindex(name.as_ptr()) } != listed {
        return None;
    }
    let mut queues = Queues { receive: 0, transmit: 0 };
    for entry in fs::read_dir(folder.join("queues")).ok()?.flatten() {
        match entry.file_name().as_encoded_bytes() {
            [b'r', b'x', b'-', ..] => queues.receive += 1,
            [b't', b'x', b'-', ..] => queues.transmit += 1,
            _ => {}
        }
    }
    Some(Queues { receive: queues.receive.max(1), transmit: queues.transmit.max(1) })
}
