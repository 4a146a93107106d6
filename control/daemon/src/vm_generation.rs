//! Linux's event for a new VM generation: this virtual machine was restored from a snapshot, or is
//! a copy of one that runs (`docs/protocol` §3.6).
//!
//! ```text
//!  hypervisor: new generation id -> vmgenid driver: reseeds the random numbers, then a uevent
//!      "change@/devices/..." NEW_VMGENID=1 -> recoded-vm -> supervisor: another process
//! ```
//!
//! Linux sends it since 6.10 where the hypervisor has the device, to every network namespace of the
//! first user namespace. Without it, neighbours find out (§3.3(f)). Datagrams of other processes
//! are ignored: their sender has a port. A process with CAP_SYS_ADMIN can have Linux send any
//! event, and could as well end this one.

use rustix::io::Errno;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrAny, SocketFlags, SocketType, bind, recvfrom, socket_with,
    sockopt::set_socket_recv_buffer_size_force,
};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::Builder;
use tokio::sync::Notify;

/// The group of Linux's own events; udev sends to the second.
const GROUP: u32 = 1;
/// Linux's limit is 2048 bytes of variables and a path. Longer ones are ignored.
const EVENT_BYTES_MAX: usize = 8192;
/// Events that may wait while this process does not run: at half of it, the start of a machine with
/// many disks fills it. If it is full, Linux drops events, and neighbours find a new generation.
const WAITING_BYTES: usize = 1 << 20;

/// Listens for new generations.
pub struct VmGeneration {
    changed: Arc<Notify>,
}

impl VmGeneration {
    /// Begins to listen, on a thread of its own, if Linux has such events.
    pub fn listen() -> VmGeneration {
        let changed = Arc::new(Notify::new());
        let notify = changed.clone();
        let begin = |socket| {
            Builder::new().name("recoded-vm".into()).spawn(move || watch(&socket, &notify))
        };
        if let Err(error) = open().and_then(begin) {
            tracing::debug!(%error, "Linux reports no restored snapshots");
        }
        VmGeneration { changed }
    }

    /// Returns once this machine has another generation. May be dropped and called again.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

fn open() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, Some(KOBJECT_UEVENT))?;
    bind(&socket, &SocketAddrNetlink::new(0, GROUP))?;
    // Without the privilege Linux's default remains, which is 208 KiB.
    let _ = set_socket_recv_buffer_size_force(&socket, WAITING_BYTES);
    Ok(socket)
}

/// Reads events as long as the process lives.
fn watch(socket: &OwnedFd, changed: &Notify) {
    loop {
        match is_received(socket) {
            Ok(true) => changed.notify_one(),
            Ok(false) | Err(Errno::INTR) => {}
            Err(Errno::NOBUFS) => {
                tracing::debug!("Linux dropped events, perhaps that of a restored snapshot");
            }
            Err(error) => {
                tracing::warn!(%error, "Linux reports no restored snapshots any more");
                return;
            }
        }
    }
}

/// Reads one event. Whether it is from Linux, and reports a new generation.
fn is_received(socket: &OwnedFd) -> rustix::io::Result<bool> {
    let mut event = [0; EVENT_BYTES_MAX];
    let (_, length, sender) = recvfrom(socket, &mut event, RecvFlags::TRUNC)?;
    let event = event.get(..length);
    Ok(event.is_some_and(|event| is_from_linux(sender) && is_new_generation(event)))
}

/// Whether a datagram is from Linux and not from a process, which has a port other than 0.
fn is_from_linux(sender: Option<SocketAddrAny>) -> bool {
    let sender = sender.and_then(|sender| SocketAddrNetlink::try_from(sender).ok());
    sender.is_some_and(|sender| sender.pid() == 0)
}

/// Whether an event reports a new generation: `change@` and a path, then variables, each ended by a
/// zero byte.
fn is_new_generation(event: &[u8]) -> bool {
    let mut fields = event.split(|byte| *byte == 0);
    fields.next().is_some_and(|first| first.starts_with(b"change@/"))
        && fields.any(|field| field == b"NEW_VMGENID=1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, SocketAddrV4};

    /// As Linux 6.18 forms it under QEMU.
    const REAL: &[u8] = b"change@/devices/platform/VMGENCTR:00\0ACTION=change\0\
        DEVPATH=/devices/platform/VMGENCTR:00\0SUBSYSTEM=platform\0NEW_VMGENID=1\0\
        DRIVER=vmgenid\0MODALIAS=acpi:QEMUVGID:VM_GEN_COUNTER:\0SEQNUM=1042\0";
    /// As Linux 6.8 forms it.
    const ACPI: &[u8] = b"change@/devices/LNXSYSTM:00/LNXSYBUS:00/QEMUVGID:00\0ACTION=change\0\
        DEVPATH=/devices/LNXSYSTM:00/LNXSYBUS:00/QEMUVGID:00\0SUBSYSTEM=acpi\0NEW_VMGENID=1\0\
        SEQNUM=981";

    #[test]
    fn only_the_event_of_a_new_generation_is_one() {
        assert!(is_new_generation(REAL) && is_new_generation(ACPI));
        let others: [&[u8]; 9] = [
            b"",
            b"\0\0\0",
            b"add@/devices/virtual/net/veth0\0ACTION=add\0SUBSYSTEM=net\0SEQNUM=7\0",
            b"add@/devices/platform/VMGENCTR:00\0ACTION=add\0NEW_VMGENID=1\0",
            b"change@/devices/NEW_VMGENID=1\0ACTION=change\0",
            b"change@/devices/x\0ACTION=change\0NEW_VMGENID=10\0",
            b"change@/devices/x\0ACTION=change\0OLD_NEW_VMGENID=1\0NEW_VMGENID=0\0",
            b"NEW_VMGENID=1\0change@/devices/x\0",
            // As udev forms it for its listeners.
            b"libudev\0\xfe\xed\xca\xfe\0\0\0\x28NEW_VMGENID=1\0",
        ];
        for event in others {
            assert!(!is_new_generation(event), "{}", String::from_utf8_lossy(event));
        }
    }

    #[test]
    fn event_of_a_process_is_not_from_linux() {
        let netlink = |port, groups| SocketAddrAny::from(SocketAddrNetlink::new(port, groups));
        assert!(is_from_linux(Some(netlink(0, GROUP))));
        for port in [1, std::process::id(), u32::MAX] {
            assert!(!is_from_linux(Some(netlink(port, GROUP))), "port {port}");
        }
        let other = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        assert!(!is_from_linux(None) && !is_from_linux(Some(other.into())));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_fail(event in proptest::collection::vec(any::<u8>(), 0..400)) {
            is_new_generation(&event);
        }

        /// Part of an event is none, unless its variable is complete.
        #[test]
        fn part_of_an_event_reports_only_what_it_has(length in 0..REAL.len()) {
            let part = &REAL[..length];
            let is_complete = part.windows(13).any(|field| field == b"NEW_VMGENID=1");
            prop_assert_eq!(is_new_generation(part), is_complete);
        }
    }
}
