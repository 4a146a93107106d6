//! Two interfaces that carry IP packets without an Ethernet header, and a cable between them: TUN
//! devices, as used by a raw-IP modem or a userspace VPN.
//!
//! ```text
//!  namespace a: wan0 <- device -> thread -> device -> wan0 :namespace b
//! ```

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use recoded_netns::Namespace;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// Name of the interface at both ends.
pub const NAME: &str = "wan0";
/// Its MTU: that of PPP over Ethernet, so that the value is not a default.
pub const MTU: u16 = 1492;

/// Longest packet of a device.
const PACKET_BYTES_MAX: usize = 1 << 16;
/// The cable is unplugged within this time.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Dropping it removes both interfaces.
pub struct Cable {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Cable {
    /// Makes both interfaces, up and without addresses.
    pub fn plug(near: &Namespace, far: &Namespace) -> Cable {
        let [near, far] = [near, far].map(|end| Arc::new(end.inside(device).unwrap()));
        let stop = Arc::new(AtomicBool::new(false));
        let ways = [(near.clone(), far.clone()), (far, near)];
        let thread = |(from, to): (Arc<SyncDevice>, Arc<SyncDevice>)| {
            let stop = stop.clone();
            std::thread::spawn(move || carry(&from, &to, &stop))
        };
        Cable { threads: ways.map(thread).into(), stop }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

fn device() -> SyncDevice {
    let builder = DeviceBuilder::new().name(NAME).layer(Layer::L3).mtu(MTU);
    let device = builder.build_sync().expect("a TUN device");
    device.set_nonblocking(true).expect("unblocked");
    device
}

/// Carries packets one way until the end or until an interface is deleted.
fn carry(from: &SyncDevice, to: &SyncDevice, stop: &AtomicBool) {
    let mut buffer = vec![0; PACKET_BYTES_MAX];
    while !stop.load(Relaxed) {
        let _ = poll(&mut [PollFd::new(&from.as_fd(), PollFlags::IN)], Some(&LOOK));
        loop {
            match from.recv(&mut buffer) {
                // A full device drops it, as a modem does.
                Ok(bytes) => drop(to.send(&buffer[..bytes])),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(_) => return,
            }
        }
    }
}
