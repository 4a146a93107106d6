//! A line of hosts with a lossy, slow link between each pair, all in network namespaces.
//!
//! ```text
//!   h0            x1             h1            x2             h2
//!  (source) east--west (link) east--west (relay) east--west (link) east--west (sink)
//!     10.77.1.1                10.77.1.2  10.77.2.1                10.77.2.2
//!       \___ mgmt 10.76.0.1 ____________________________ mgmt 10.76.0.2 ___/
//! ```
//!
//! A link is a namespace of its own because AF_XDP bypasses the queueing disciplines of the host
//! that sends. A packet that enters a link meets the loss program at clsact ingress, is redirected
//! to the other side if it survives, and leaves through a token bucket. Loss, rate and queue are
//! the same in both directions. Packets pass veth as ordinary Linux buffers (the redirect ends in
//! `dev_queue_xmit`, not in `ndo_xdp_xmit`), so the peers need neither XDP nor GRO for it.
//!
//! The `mgmt` pair joins the two ends without loss, for the control connections of measuring tools
//! only: see [`Bed::side_path`].

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::emulator::{Emulator, LinkCounters, Loss};
use crate::namespace::Namespace;
use crate::{BedError, sweep};

/// Most lossy links in a line: each adds two namespaces and a daemon.
pub const HOPS_MAX: usize = 10;

/// Payload-carrying MTU of every interface of the bed, in bytes.
pub const MTU_BYTES: usize = 1500;

/// Bytes of a full packet with its Ethernet header, as a token bucket counts it.
const PACKET_BYTES: f64 = 1514.0;

/// How long a full queue takes to drain. A queue this short keeps the round-trip time of ten hops
/// under half a second when it is full; a shorter one drops the bursts in which a generation
/// leaves.
const QUEUE_SECONDS: f64 = 0.025;

/// Least room in a queue, so that slow links still hold a few generations.
const QUEUE_PACKETS_MIN: f64 = 64.0;

/// Token bucket depth: large enough that a timer late by a millisecond costs no rate at 300 Mbit/s,
/// small enough that a burst through it does not look like a faster link.
const BUCKET_BYTES: f64 = 40_000.0;

/// How many packets on the last link mean that a stream has been opened.
const FLOWING_PACKETS: u64 = 10;

/// How long a stream may take to start.
const FLOW_PATIENCE: Duration = Duration::from_secs(10);

/// TCP in an IP header.
const PROTOCOL_TCP: u8 = 6;

/// Routing table with the route over `mgmt`.
const SIDE_TABLE: u32 = 77;

/// What a bed should be like.
#[derive(Clone, Debug)]
pub struct BedConfig {
    /// Number of lossy links, 1 to [`HOPS_MAX`]; there is one host more.
    pub hops: usize,
    /// Loss of every link, each direction.
    pub loss: Loss,
    /// Rate of every link, each direction, in Mbit/s counted with Ethernet headers.
    pub rate_mbit: f64,
    /// Whether hosts know each other's MAC addresses from the start; otherwise they ask by ARP,
    /// whose packets are lost like any other.
    pub neighbours_known: bool,
    /// Receive queues of every interface of the hosts: workers that a daemon can have.
    pub queues: usize,
}

/// A bed that is up. Dropping it removes every trace.
#[derive(Debug)]
pub struct Bed {
    prefix: String,
    directory: PathBuf,
    hosts: Vec<Namespace>,
    links: Vec<Link>,
    keep: bool,
}

#[derive(Debug)]
struct Link {
    namespace: Namespace,
    emulator: Emulator,
}

impl Bed {
    /// Builds the namespaces, links, routes and loss programs.
    ///
    /// # Errors
    /// When a parameter is out of range, a tool is missing, or Linux refuses (not root, mostly).
    /// Whatever was built by then is removed again.
    pub fn build(config: &BedConfig) -> Result<Bed, BedError> {
        check(config)?;
        let prefix = sweep::register()?;
        let directory = sweep::directory(&prefix);
        let mut bed = Bed { prefix, directory, hosts: Vec::new(), links: Vec::new(), keep: false };
        for index in 0..=config.hops {
            bed.hosts.push(Namespace::create(format!("{}-h{index}", bed.prefix))?);
        }
        for number in 1..=config.hops {
            let link = bed.build_link(number, config)?;
            bed.links.push(link);
        }
        bed.build_routes()?;
        bed.build_side_path()?;
        Ok(bed)
    }

    /// Number of lossy links.
    pub fn hops(&self) -> usize {
        self.links.len()
    }

    /// The hosts in line: source, relays, sink.
    pub fn hosts(&self) -> &[Namespace] {
        &self.hosts
    }

    /// The host the traffic comes from.
    pub fn source(&self) -> &Namespace {
        &self.hosts[0]
    }

    /// The host the traffic goes to.
    pub fn sink(&self) -> &Namespace {
        &self.hosts[self.hops()]
    }

    /// Folder for configs, sockets, logs and downloads; removed with the bed.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// First letters of the names of the bed's namespaces.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Address of the host west of link `number` (from 1), on that link: the host's `east`.
    pub fn west_address(number: usize) -> IpAddr {
        address(number, 1)
    }

    /// Address of the host east of link `number` (from 1), on that link: the host's `west`.
    pub fn east_address(number: usize) -> IpAddr {
        address(number, 2)
    }

    /// Address of the source, for plain traffic.
    pub fn source_address(&self) -> IpAddr {
        Bed::west_address(1)
    }

    /// Address of the sink, for plain traffic.
    pub fn sink_address(&self) -> IpAddr {
        Bed::east_address(self.hops())
    }

    /// Changes the loss of every link while traffic flows.
    ///
    /// # Errors
    /// When a map cannot be written.
    pub fn set_loss(&mut self, loss: Loss) -> Result<(), BedError> {
        loss.check()?;
        self.links.iter_mut().try_for_each(|link| link.emulator.set_loss(loss))
    }

    /// Waits until packets flow through the last link, then sets the loss of every link.
    ///
    /// iperf3 opens a UDP stream with one datagram each way and gives up when either is lost, so a
    /// plain measurement starts without loss. What passes until this call reacts is some
    /// milliseconds' worth of packets.
    ///
    /// # Errors
    /// When a map cannot be read or written, or nothing flows within ten seconds.
    pub fn set_loss_once_flowing(&mut self, loss: Loss) -> Result<(), BedError> {
        let last = self.hops() - 1;
        let before = self.links[last].emulator.counters()?.eastward.seen;
        let deadline = Instant::now() + FLOW_PATIENCE;
        while self.links[last].emulator.counters()?.eastward.seen < before + FLOWING_PACKETS {
            if Instant::now() > deadline {
                return Err(BedError::Emulator {
                    place: format!("link {}", last + 1),
                    detail: "no traffic".into(),
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.set_loss(loss)
    }

    /// What each link has seen and dropped since it was built.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn counters(&self) -> Result<Vec<LinkCounters>, BedError> {
        self.links.iter().map(|link| link.emulator.counters()).collect()
    }

    /// Packets that found a link's queue full since it was built, both directions of all links.
    ///
    /// # Errors
    /// When `tc` does not say.
    pub fn queue_drops(&self) -> Result<u64, BedError> {
        let mut drops = 0;
        for link in &self.links {
            let text = link.namespace.run("tc", "-s -j qdisc show")?;
            let queues: serde_json::Value = serde_json::from_str(&text).map_err(|error| {
                BedError::Output { program: "tc".into(), detail: error.to_string() }
            })?;
            let shapers = queues.as_array().into_iter().flatten();
            let shapers = shapers.filter(|queue| queue["kind"] == "tbf");
            drops += shapers.filter_map(|queue| queue["drops"].as_u64()).sum::<u64>();
        }
        Ok(drops)
    }

    /// Leaves everything up when this value is dropped. [`crate::sweep::sweep`] with `kept` removes
    /// it later.
    ///
    /// # Errors
    /// When the mark cannot be written.
    pub fn keep(&mut self) -> Result<(), BedError> {
        sweep::keep(&self.prefix)?;
        self.keep = true;
        Ok(())
    }

    fn build_link(&self, number: usize, config: &BedConfig) -> Result<Link, BedError> {
        let namespace = Namespace::create(format!("{}-x{number}", self.prefix))?;
        let (west, east) = (&self.hosts[number - 1], &self.hosts[number]);
        let queues = config.queues;
        veth((west, "east", mac(number, 1)), (&namespace, "west", mac(number, 0xa)), queues)?;
        veth((east, "west", mac(number, 2)), (&namespace, "east", mac(number, 0xb)), queues)?;
        west.ip(&format!("addr add {}/24 dev east", Bed::west_address(number)))?;
        east.ip(&format!("addr add {}/24 dev west", Bed::east_address(number)))?;
        for (host, interface) in [(west, "east"), (east, "west")] {
            // A partial checksum never becomes a real one on veth, and AF_XDP would carry it on as
            // it is; segmentation offload would hide many packets in one from the loss program.
            host.run("ethtool", &format!("-K {interface} tx off"))?;
        }
        if config.neighbours_known {
            let (a, b) = (Bed::west_address(number), Bed::east_address(number));
            west.ip(&format!(
                "neigh replace {b} lladdr {} dev east nud permanent",
                mac(number, 2)
            ))?;
            east.ip(&format!(
                "neigh replace {a} lladdr {} dev west nud permanent",
                mac(number, 1)
            ))?;
        }
        for side in ["west", "east"] {
            namespace.run("tc", &format!("qdisc add dev {side} clsact"))?;
            namespace.run("tc", &shaper(side, config.rate_mbit))?;
        }
        let emulator = Emulator::attach(&namespace, config.loss)?;
        Ok(Link { namespace, emulator })
    }

    /// Routes for plain forwarding from end to end.
    fn build_routes(&self) -> Result<(), BedError> {
        for (index, host) in self.hosts.iter().enumerate() {
            host.sysctl("net.ipv4.ip_forward", "1")?;
            set_congestion_control(host)?;
            for number in 1..=self.hops() {
                let subnet = format!("10.77.{number}.0/24");
                if number < index {
                    host.ip(&format!("route add {subnet} via {}", Bed::west_address(index)))?;
                } else if number > index + 1 {
                    host.ip(&format!("route add {subnet} via {}", Bed::east_address(index + 1)))?;
                }
            }
        }
        Ok(())
    }

    /// How TCP of this bed's hosts reacts to loss.
    ///
    /// # Errors
    /// When Linux does not say.
    pub fn congestion_control(&self) -> Result<String, BedError> {
        self.sink().read_sysctl("net.ipv4.tcp_congestion_control")
    }

    fn build_side_path(&self) -> Result<(), BedError> {
        let (source, sink) = (self.source(), self.sink());
        veth((source, "mgmt", mac(0, 1)), (sink, "mgmt", mac(0, 2)), 1)?;
        for (host, own, other) in [(source, 1, 2), (sink, 2, 1)] {
            host.ip(&format!("addr add 10.76.0.{own}/24 dev mgmt"))?;
            host.ip(&format!("route add default via 10.76.0.{other} table {SIDE_TABLE}"))?;
        }
        Ok(())
    }

    /// Sends TCP connections from the source to this port of the sink, when they use the addresses
    /// of the lossy links, over the lossless `mgmt` pair. iperf3 talks to its server over TCP while
    /// it measures UDP; over a lossy path that conversation would stall and end the measurement.
    ///
    /// # Errors
    /// When Linux refuses the rules.
    pub fn side_path(&self, port: u16) -> Result<(), BedError> {
        // By number: the name would need /etc/protocols, which small installations lack.
        let rule = format!("table {SIDE_TABLE} ipproto {PROTOCOL_TCP} to 10.77.0.0/16");
        self.source().ip(&format!("rule add {rule} dport {port}"))?;
        self.sink().ip(&format!("rule add {rule} sport {port}"))?;
        Ok(())
    }

    /// Namespace of link `number` (from 1).
    pub fn link(&self, number: usize) -> &Namespace {
        &self.links[number - 1].namespace
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if !self.keep {
            sweep::remove(&self.prefix);
        }
    }
}

/// Gives a host the congestion control that Linux ships with: this machine's default may be one
/// that ignores loss. Namespaces may only use what the machine allows them, and Reno is always
/// allowed.
fn set_congestion_control(host: &Namespace) -> Result<(), BedError> {
    let name = "net.ipv4.tcp_congestion_control";
    host.sysctl(name, "cubic").or_else(|_| host.sysctl(name, "reno"))
}

fn check(config: &BedConfig) -> Result<(), BedError> {
    if !(1..=HOPS_MAX).contains(&config.hops) {
        return Err(BedError::Parameter {
            what: "number of hops",
            value: config.hops.to_string(),
            rule: "it must be 1 to 10",
        });
    }
    if !(1.0..=10_000.0).contains(&config.rate_mbit) {
        return Err(BedError::Parameter {
            what: "link rate",
            value: config.rate_mbit.to_string(),
            rule: "it must be 1 to 10000 Mbit/s",
        });
    }
    config.loss.check()
}

/// Arguments for `tc` that limit what leaves by `interface`.
fn shaper(interface: &str, rate_mbit: f64) -> String {
    let bytes_per_second = rate_mbit * 1e6 / 8.0;
    let queue = (bytes_per_second * QUEUE_SECONDS).max(QUEUE_PACKETS_MIN * PACKET_BYTES);
    let bucket = BUCKET_BYTES.max(bytes_per_second * 1e-3);
    // `limit` is the whole room: the queue and the bucket.
    format!(
        "qdisc add dev {interface} root tbf rate {:.0}bit burst {bucket:.0} limit {:.0}",
        rate_mbit * 1e6,
        queue + bucket
    )
}

fn address(link: usize, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 77, link as u8, host))
}

/// A locally administered MAC address.
fn mac(link: usize, end: u8) -> String {
    format!("02:77:00:00:{link:02x}:{end:02x}")
}

/// Joins two namespaces. A packet that leaves by queue n of one side arrives at queue n of the
/// other.
fn veth(
    (left, left_name, left_mac): (&Namespace, &str, String),
    (right, right_name, right_mac): (&Namespace, &str, String),
    queues: usize,
) -> Result<(), BedError> {
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    left.ip(&format!(
        "link add {left_name} address {left_mac} mtu {MTU_BYTES} {queues} \
         type veth peer name {right_name} address {right_mac} mtu {MTU_BYTES} {queues} netns {}",
        right.name()
    ))?;
    left.ip(&format!("link set {left_name} up"))?;
    right.ip(&format!("link set {right_name} up"))?;
    Ok(())
}
