//! Three hosts in a row, in network namespaces of this process.
//!
//! ```text
//!   A  vA 10.0.1.1 ---- vRi 10.0.1.2  R  vRo 10.0.2.1 ---- vB 10.0.2.2  B
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use recoded_runtime::encap::Mac;

use crate::error::BenchError;
use crate::namespace::{Namespace, run};

/// Interface of the load.
pub const LOAD: End = End::new("vA", 1, 1);
/// Ingress interface of the measured host.
pub const IN: End = End::new("vRi", 1, 2);
/// Egress interface of the measured host.
pub const OUT: End = End::new("vRo", 2, 1);
/// Interface at which packets are counted.
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
    /// The host that generates the load.
    pub a: Namespace,
    /// The measured host.
    pub r: Namespace,
    /// The host that counts packets.
    pub b: Namespace,
}

impl Bed {
    /// Sets up namespaces, cables with `queues` queues each way, addresses, routes and neighbours.
    ///
    /// # Errors
    /// [`BenchError::Command`] or [`BenchError::Os`] when Linux refuses one of them.
    pub fn build(queues: usize) -> Result<Bed, BenchError> {
        let bed = Bed { a: Namespace::new()?, r: Namespace::new()?, b: Namespace::new()? };
        cable(&bed.a, &LOAD, &bed.r, &IN, queues)?;
        cable(&bed.r, &OUT, &bed.b, &SINK, queues)?;
        bed.r.sysctl("net/ipv4/ip_forward", "1")?;
        // Nothing resolves addresses during a measurement.
        neighbour(&bed.r, &IN, &LOAD)?;
        neighbour(&bed.r, &OUT, &SINK)?;
        neighbour(&bed.a, &LOAD, &IN)?;
        Ok(bed)
    }
}

/// Connects `left` and `right` with a cable of `queues` queues each way.
fn cable(
    left: &Namespace,
    left_end: &End,
    right: &Namespace,
    right_end: &End,
    queues: usize,
) -> Result<(), BenchError> {
    let (left_mac, right_mac) = (left_end.mac_text(), right_end.mac_text());
    let queues = format!("numtxqueues {queues} numrxqueues {queues}");
    run(Command::new("ip").args(
        format!(
            "link add {} address {left_mac} {queues} netns {} type veth \
                 peer name {} address {right_mac} {queues} netns {}",
            left_end.name,
            left.pid(),
            right_end.name,
            right.pid()
        )
        .split_whitespace(),
    ))?;
    raise(left, left_end)?;
    raise(right, right_end)
}

fn raise(namespace: &Namespace, end: &End) -> Result<(), BenchError> {
    // No router solicitations among the packets that are counted.
    namespace.sysctl(&format!("net/ipv6/conf/{}/disable_ipv6", end.name), "1")?;
    namespace.ip(&format!("address add {}/24 dev {}", end.address, end.name))?;
    namespace.ip(&format!("link set {} mtu 1500 up", end.name))
}

fn neighbour(namespace: &Namespace, near: &End, far: &End) -> Result<(), BenchError> {
    let (address, mac) = (far.address, far.mac_text());
    let device = near.name;
    namespace.ip(&format!("neighbour replace {address} lladdr {mac} dev {device} nud permanent"))
}
