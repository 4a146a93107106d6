//! A virtual machine that Linux reports as restored from a snapshot, or copied.

use std::time::{Duration, Instant};

use crate::common;
use crate::processes::{line_with, probe, wait_for_another};
use recoded_netns::{AuthPlan, Namespace};
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, sendto, socket_with};

/// As the driver `vmgenid` has Linux form it.
const EVENT: &[u8] = b"change@/devices/platform/VMGENCTR:00\0ACTION=change\0\
    DEVPATH=/devices/platform/VMGENCTR:00\0SUBSYSTEM=platform\0NEW_VMGENID=1\0";
/// The least type of a message that netlink does not take for one of its own.
const TYPE: u16 = 0x10;
const REQUEST: u16 = 1;

/// Sends bytes from a socket with a port, to Linux or to a group of listeners.
fn send(host: &Namespace, bytes: &[u8], groups: u32) {
    let sent = host.inside(|| {
        let kind = (AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC);
        let socket = socket_with(kind.0, kind.1, kind.2, Some(KOBJECT_UEVENT))?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        sendto(&socket, bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, groups))
    });
    sent.unwrap().unwrap();
}

/// Has Linux send an event as its own to this namespace only: the privilege of root.
fn from_linux(host: &Namespace, event: &[u8]) {
    let length = 16 + event.len() as u32;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend([TYPE.to_ne_bytes(), REQUEST.to_ne_bytes()].concat());
    message.extend([0; 8]);
    send(host, &[&message[..], event].concat(), 0);
}

/// G5: the event was not read, so keys and numbers were used twice until a neighbour showed it.
#[test]
fn box_that_linux_reports_as_restored_has_new_keys_at_once() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, mut daemons) = line_with(Some(AuthPlan::new("full", 2)));
    let relay = &bed.hosts()[1];
    let before = daemons[1].dataplane_pid().unwrap();

    // An event of a process, and other events of Linux.
    send(relay, EVENT, 1);
    from_linux(relay, b"change@/devices/virtual/net/lo\0ACTION=change\0SUBSYSTEM=net\0");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(daemons[1].dataplane_pid().unwrap(), before, "{}", daemons[1].log());

    let stream = probe(&bed, 4);
    std::thread::sleep(Duration::from_secs(1));
    let begun = Instant::now();
    from_linux(relay, EVENT);
    wait_for_another(&mut daemons[1], before);
    println!("another process answers after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(5), "a neighbour showed it");
    let log = daemons[1].log();
    assert!(log.contains("this box was set back to a snapshot"), "{log}");

    let outcome = stream.finish().unwrap();
    let gap = outcome.longest_gap_millis();
    println!("longest gap {gap:.0} ms, {} of {} came", outcome.came, outcome.sent);
    assert!(outcome.rate_between(3000.0, 4000.0) > 400.0, "packets do not flow again");
    let after = daemons[1].dataplane_pid().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(daemons[1].dataplane_pid().unwrap(), after, "once for one event");
}
