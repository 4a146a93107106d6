//! Errors of opening frames or sockets: one sentence each, with the remedy.

use std::{error::Error, io};

/// The cause of [`XskError::NotBuilt`].
pub const NO_AF_XDP: &str = "this build of recoded has UDP sockets only";

/// Its cure.
pub const NO_AF_XDP_CURE: &str =
    "set backend = \"udp\" in each [[link]], or install the Debian package, which has AF_XDP";

/// Why a UMEM or a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum XskError {
    /// The process lacks privilege.
    #[error(
        "not permitted to use AF_XDP: run as root or grant CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF"
    )]
    NotPermitted,

    /// No interface has this name in the current network namespace.
    #[error("no interface named `{interface}` here: check the name and the network namespace")]
    NoSuchInterface {
        /// The requested name.
        interface: String,
    },

    /// The interface has no queue of this number.
    #[error(
        "`{interface}` has no queue {queue}, although its driver counts more: report it with the \
         output of `ethtool -l {interface}`"
    )]
    NoSuchQueue {
        /// The interface.
        interface: String,
        /// The requested queue, counted from 0.
        queue: u32,
    },

    /// The interface is administratively down.
    #[error("`{interface}` is down: bring it up (`ip link set {interface} up`)")]
    InterfaceDown {
        /// The interface.
        interface: String,
    },

    /// Another AF_XDP socket holds the queue.
    #[error(
        "queue {queue} of `{interface}` is held by another AF_XDP socket: \
         stop the program that owns it (`ss --xdp -p` lists them)"
    )]
    Busy {
        /// The interface.
        interface: String,
        /// The queue, counted from 0.
        queue: u32,
    },

    /// This program was built without AF_XDP.
    #[error("{NO_AF_XDP}: {NO_AF_XDP_CURE}")]
    NotBuilt,

    /// Linux was built without AF_XDP.
    #[error(
        "this Linux kernel has no AF_XDP: use one of version 5.10 or newer with CONFIG_XDP_SOCKETS, or \
         set backend = \"udp\" in each [[link]]"
    )]
    NoAfXdp,

    /// Memory for the frames could not be mapped or locked.
    #[error(
        "cannot lock {bytes} bytes for {frames} frames: raise the memlock limit (`ulimit -l`, \
         systemd `LimitMEMLOCK=`), grant CAP_IPC_LOCK, or configure fewer frames"
    )]
    MemoryLimit {
        /// Requested frames.
        frames: u32,
        /// Their size in bytes.
        bytes: u64,
    },

    /// AF_XDP does not support frames of this size.
    #[error("AF_XDP has no frames of {0} bytes: use backend = \"udp\" or a smaller MTU")]
    FrameSize(usize),

    /// The number of frames is out of range.
    #[error("{frames} frames are out of range: configure {min} to {max}")]
    FrameCount {
        /// Requested frames.
        frames: u32,
        /// Smallest valid number.
        min: u32,
        /// Largest valid number.
        max: u32,
    },

    /// Zero copy was required and the driver refused it.
    #[error("`{interface}` cannot do zero copy ({reason}): configure the mode `auto` or `native`")]
    NoZeroCopy {
        /// The interface.
        interface: String,
        /// Error reported by Linux.
        reason: String,
    },

    /// An earlier socket of the worker runs in a mode that this interface cannot join.
    #[error(
        "`{interface}` cannot join the {mode} mode that its worker's other interfaces use ({reason}): \
         configure the mode `native`"
    )]
    MixedModes {
        /// The interface.
        interface: String,
        /// Mode of the open sockets.
        mode: crate::mode::SocketMode,
        /// Error reported by Linux.
        reason: String,
    },

    /// All sockets on the UMEM were dropped; libxdp cannot bind another one to it.
    #[error("all sockets on these frames were closed before `{interface}`: open new frames")]
    UmemSpent {
        /// The interface.
        interface: String,
    },

    /// Too few free frames are left to prime the socket's fill ring.
    #[error("no free frames left for `{interface}`: configure more frames per worker")]
    NoFrames {
        /// The interface.
        interface: String,
    },

    /// The linked xsk-rs is not the version this crate was written for.
    #[error("the linked xsk-rs has an unknown frame descriptor: build with the pinned version")]
    UnknownDescriptor,

    /// Any other error reported by Linux.
    #[error("{action} failed on `{subject}`: {source}")]
    Os {
        /// The attempted action.
        action: &'static str,
        /// The interface, or `UMEM`.
        subject: String,
        /// Error reported by Linux.
        source: io::Error,
    },
}

impl XskError {
    /// Classifies a failure to register `frames` frames of `frame_bytes`.
    pub(crate) fn from_umem(source: io::Error, frames: u32, frame_bytes: usize) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => XskError::NotPermitted,
            Some(libc::EAFNOSUPPORT | libc::ESOCKTNOSUPPORT) => XskError::NoAfXdp,
            Some(libc::ENOMEM | libc::ENOBUFS | libc::EAGAIN) => {
                XskError::MemoryLimit { frames, bytes: u64::from(frames) * frame_bytes as u64 }
            }
            _ => XskError::Os { action: "registering frames", subject: "UMEM".into(), source },
        }
    }

    /// Classifies a failure to open or bind a socket in copy mode, where Linux has no other use for
    /// these codes.
    pub(crate) fn from_bind(source: io::Error, interface: &str, queue: u32) -> Self {
        let interface = interface.to_owned();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => XskError::NotPermitted,
            Some(libc::EAFNOSUPPORT | libc::ESOCKTNOSUPPORT) => XskError::NoAfXdp,
            Some(libc::ENODEV | libc::ENXIO) => XskError::NoSuchInterface { interface },
            Some(libc::ENETDOWN) => XskError::InterfaceDown { interface },
            Some(libc::EBUSY) => XskError::Busy { interface, queue },
            Some(libc::EINVAL) => XskError::NoSuchQueue { interface, queue },
            _ => XskError::Os { action: "binding a socket", subject: interface, source },
        }
    }
}

/// The operating system's error inside an error of xsk-rs, which hides it as a source.
pub(crate) fn os_error(error: &(dyn Error + 'static)) -> io::Error {
    let code = error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>())
        .and_then(io::Error::raw_os_error);
    code.map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_of_linux_becomes_one_sentence_with_its_cure() {
        let umem = |code| XskError::from_umem(io::Error::from_raw_os_error(code), 8192, 2048);
        let bind = |code| XskError::from_bind(io::Error::from_raw_os_error(code), "eth0", 3);
        for (error, cure) in [
            (umem(libc::EPERM), "CAP_NET_RAW"),
            (umem(libc::EAFNOSUPPORT), "CONFIG_XDP_SOCKETS"),
            (umem(libc::ENOBUFS), "16777216 bytes for 8192 frames: raise the memlock limit"),
            (umem(libc::ENOMEM), "LimitMEMLOCK="),
            (bind(libc::EPERM), "run as root"),
            (bind(libc::ENODEV), "no interface named `eth0`"),
            (bind(libc::EINVAL), "`ethtool -l eth0`"),
            (bind(libc::ENETDOWN), "`ip link set eth0 up`"),
            (bind(libc::EBUSY), "queue 3 of `eth0` is held by another AF_XDP socket"),
            (bind(libc::EIO), "binding a socket failed on `eth0`: "),
        ] {
            let text = error.to_string();
            assert!(text.contains(cure), "{text}");
            assert!(!text.contains("  ") && !text.contains('\n'), "one line: {text}");
        }
    }
}
