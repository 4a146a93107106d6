//! Three hosts in a row, in network namespaces of this process.
//!
//! ```text
//!   A  vA 10.0.1.1 ---- vRi 10.0.1.2  R  vRo 10.0.2.1 ---- vB 10.0.2.2  B
//! ```
//!
//! The namespaces have no names: each is kept by a `cat` that ends when this process does, however
//! it does. So nothing is left behind and two runs do not collide.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::thread;

use recoded_runtime::encap::Mac;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::BenchError;

/// Interface of the load.
pub const LOAD: End = End::new("vA", 1, 1);
/// Interface by which packets enter the host that is measured.
pub const IN: End = End::new("vRi", 1, 2);
/// Interface by which they leave it.
pub const OUT: End = End::new("vRo", 2, 1);
/// Interface where they are counted.
pub const SINK: End = End::new("vB", 2, 2);

/// One end of a cable.
pub struct End {
    /// Name of the interface.
    pub name: &'static str,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its IP address.
    pub address: IpAddr,
}

impl End {
    const fn new(name: &'static str, cable: u8, side: u8) -> End {
        End {
            name,
            mac: [2, 0, 0, 0, cable, side],
            address: IpAddr::V4(Ipv4Addr::new(10, 0, cable, side)),
        }
    }

    fn mac_text(&self) -> String {
        let [a, b, c, d, e, f] = self.mac;
        format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// The three hosts.
pub struct Bed {
    /// Where the load is made.
    pub a: Namespace,
    /// What is measured.
    pub r: Namespace,
    /// Where packets are counted.
    pub b: Namespace,
}

impl Bed {
    /// Makes namespaces, cables, addresses, routes and neighbours.
    ///
    /// # Errors
    /// [`BenchError::Command`] or [`BenchError::Os`] when Linux refuses one of them.
    pub fn build() -> Result<Bed, BenchError> {
        let bed = Bed { a: Namespace::new()?, r: Namespace::new()?, b: Namespace::new()? };
        bed.cable((&bed.a, &LOAD), (&bed.r, &IN))?;
        bed.cable((&bed.r, &OUT), (&bed.b, &SINK))?;
        bed.r.sysctl("net/ipv4/ip_forward", "1")?;
        // Nothing resolves addresses during a measurement.
        bed.r.neighbour(&IN, &LOAD)?;
        bed.r.neighbour(&OUT, &SINK)?;
        bed.a.neighbour(&LOAD, &IN)?;
        Ok(bed)
    }

    fn cable(
        &self,
        (left, left_end): (&Namespace, &End),
        (right, right_end): (&Namespace, &End),
    ) -> Result<(), BenchError> {
        let (left_mac, right_mac) = (left_end.mac_text(), right_end.mac_text());
        let queues = "numtxqueues 1 numrxqueues 1";
        run(Command::new("ip").args(
            format!(
                "link add {} address {left_mac} {queues} netns {} type veth \
                     peer name {} address {right_mac} {queues} netns {}",
                left_end.name, left.pid, right_end.name, right.pid
            )
            .split_whitespace(),
        ))?;
        left.raise(left_end)?;
        right.raise(right_end)
    }
}

/// A network namespace that lives as long as this value.
pub struct Namespace {
    file: File,
    pid: u32,
    holder: Child,
}

impl Namespace {
    fn new() -> Result<Namespace, BenchError> {
        let mut holder = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(BenchError::os("starting `unshare` (util-linux)"))?;
        // What `cat` repeats says that the process is in its namespace by now.
        let mut echo = [0];
        if let (Some(stdin), Some(stdout)) = (&mut holder.stdin, &mut holder.stdout) {
            stdin
                .write_all(b"\n")
                .and_then(|()| stdout.read_exact(&mut echo))
                .map_err(BenchError::os("making a network namespace"))?;
        }
        let pid = holder.id();
        let file = File::open(format!("/proc/{pid}/ns/net"))
            .map_err(BenchError::os("opening a network namespace"))?;
        Ok(Namespace { file, pid, holder })
    }

    /// Moves the calling thread, and threads it starts later, into the namespace.
    ///
    /// # Errors
    /// [`BenchError::Os`].
    pub fn enter(&self) -> Result<(), BenchError> {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(BenchError::os("entering a network namespace"))
    }

    /// Runs `work` on a thread of its own in the namespace.
    ///
    /// # Errors
    /// [`BenchError::Thread`] when it panics, else what `work` returns.
    pub fn inside<R: Send>(
        &self,
        work: impl FnOnce() -> Result<R, BenchError> + Send,
    ) -> Result<R, BenchError> {
        thread::scope(|scope| {
            let thread = scope.spawn(|| self.enter().and_then(|()| work()));
            thread.join().unwrap_or(Err(BenchError::Thread("set-up")))
        })
    }

    fn sysctl(&self, path: &str, value: &str) -> Result<(), BenchError> {
        self.inside(|| {
            std::fs::write(format!("/proc/sys/{path}"), value)
                .map_err(BenchError::os(format!("writing /proc/sys/{path}")))
        })
    }

    fn raise(&self, end: &End) -> Result<(), BenchError> {
        // No router solicitations among the packets that are counted.
        self.sysctl(&format!("net/ipv6/conf/{}/disable_ipv6", end.name), "1")?;
        self.ip(&format!("address add {}/24 dev {}", end.address, end.name))?;
        self.ip(&format!("link set {} mtu 1500 up", end.name))
    }

    fn neighbour(&self, near: &End, far: &End) -> Result<(), BenchError> {
        let (address, mac) = (far.address, far.mac_text());
        let device = near.name;
        self.ip(&format!("neighbour replace {address} lladdr {mac} dev {device} nud permanent"))
    }

    fn ip(&self, arguments: &str) -> Result<(), BenchError> {
        run(Command::new("nsenter")
            .arg(format!("--net=/proc/{}/ns/net", self.pid))
            .arg("ip")
            .args(arguments.split(' ')))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        // It ends by itself; waiting only avoids a zombie.
        let _ = self.holder.wait();
    }
}

fn run(command: &mut Command) -> Result<(), BenchError> {
    let text = || {
        let arguments = command.get_args().map(|argument| argument.to_string_lossy());
        let program = command.get_program().to_string_lossy();
        std::iter::once(program).chain(arguments).collect::<Vec<_>>().join(" ")
    };
    let line = text();
    let output =
        command.output().map_err(BenchError::os(format!("starting `{line}` (iproute2)")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(BenchError::Command {
        command: line,
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
