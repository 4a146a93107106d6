//! A line of hosts with a lossy, slow link between each pair, all in network namespaces.
//!
//! ```text
//!   h0            x1             h1            x2             h2
//!  (source) east--west (link) east--west (relay) east--west (link) east--west (sink)
//!     10.77.1.1                10.77.1.2  10.77.2.1                10.77.2.2
//!       \___ mgmt 10.76.0.1 ____________________________ mgmt 10.76.0.2 ___/
//! ```
//!
//! A link is a namespace of its own because AF_XDP bypasses the queueing disciplines of the sending
//! host. The emulator fills it: programs inside Linux for loss and rate, a thread of this process
//! for everything that takes time.
//!
//! The `mgmt` pair joins the two ends without loss, for the control connections of measuring tools
//! only: see [`Bed::side_path`].
//!
//! Networks that are not lines ([`BedConfig::graph`]) differ only in interface names (`l1` and so
//! on, after the number of the link) and have no `mgmt` pair.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::config::{BedConfig, LinkConfig, Loss};
use crate::counters::LinkCounters;
use crate::emulator::{Emulator, TimedLinks};
use crate::namespace::Namespace;
use crate::{BedError, sweep};

/// Payload-carrying MTU of every interface of the bed, in bytes.
pub const MTU_BYTES: usize = 1500;

/// How many packets on the last link mean that a stream has been opened.
const FLOWING_PACKETS: u64 = 10;

/// Timeout for the start of a stream.
const FLOW_PATIENCE: Duration = Duration::from_secs(10);

/// TCP in an IP header.
const PROTOCOL_TCP: u8 = 6;

/// The kernel parameter that selects TCP's congestion control.
const CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";

/// Routing table with the route over `mgmt`.
const SIDE_TABLE: u32 = 77;

/// A bed that is up. Dropping it removes every trace.
#[derive(Debug)]
pub struct Bed {
    prefix: String,
    directory: PathBuf,
    hosts: Vec<Namespace>,
    links: Vec<Link>,
    is_line: bool,
    timed: TimedLinks,
    seed: u64,
    keep: bool,
}

#[derive(Debug)]
struct Link {
    namespace: Namespace,
    /// Hosts in the west and in the east.
    ends: (usize, usize),
    config: LinkConfig,
    emulator: Emulator,
}

impl Link {
    fn set(&mut self, config: LinkConfig) -> Result<(), BedError> {
        config.check()?;
        self.emulator.set(&self.config, &config)?;
        self.config = config;
        Ok(())
    }
}

impl Bed {
    /// Builds the namespaces, links, routes and loss programs.
    ///
    /// # Errors
    /// When a parameter is out of range, a tool is missing, or Linux refuses (usually without
    /// root). Everything built so far is removed.
    pub fn build(config: &BedConfig) -> Result<Bed, BedError> {
        Bed::build_on(config, None)
    }

    /// Builds a second line of hosts with the same addresses, whose packets share the links of this
    /// bed: rate, queue, losses and counters cover both. The hosts of one line do not see those of
    /// the other. Change links only through the first bed, and drop it last.
    ///
    /// # Errors
    /// As for [`Bed::build`], and if a link is not timed.
    pub fn build_beside(&self) -> Result<Bed, BedError> {
        let links = self.links.iter().map(|link| link.config).collect();
        let ends = self.links.iter().map(|link| link.ends).collect();
        let config = BedConfig { links, ends, neighbours_known: true, queues: 1, seed: self.seed };
        Bed::build_on(&config, Some(self))
    }

    fn build_on(config: &BedConfig, shared: Option<&Bed>) -> Result<Bed, BedError> {
        config.check()?;
        let prefix = sweep::register()?;
        let directory = sweep::directory(&prefix);
        let mut bed = Bed {
            prefix,
            directory,
            hosts: Vec::new(),
            links: Vec::new(),
            is_line: config.is_line(),
            timed: TimedLinks::default(),
            seed: config.seed,
            keep: false,
        };
        for index in 0..config.hosts() {
            bed.hosts.push(Namespace::create(format!("{}-h{index}", bed.prefix))?);
        }
        for number in 1..=config.links.len() {
            let link = bed.build_link(number, config, shared)?;
            bed.links.push(link);
        }
        bed.build_routes()?;
        if bed.is_line {
            bed.build_side_path()?;
        }
        Ok(bed)
    }

    /// Number of lossy links.
    pub fn hops(&self) -> usize {
        self.links.len()
    }

    /// The hosts; of a line in order: source, relays, sink.
    pub fn hosts(&self) -> &[Namespace] {
        &self.hosts
    }

    /// The host that sends the traffic.
    pub fn source(&self) -> &Namespace {
        &self.hosts[0]
    }

    /// The host that receives the traffic: the last one.
    pub fn sink(&self) -> &Namespace {
        &self.hosts[self.hosts.len() - 1]
    }

    /// Interfaces of link `number` (from 1) at the hosts west and east of it.
    pub fn interfaces(&self, number: usize) -> [String; 2] {
        match self.is_line {
            true => ["east".into(), "west".into()],
            false => [format!("l{number}"), format!("l{number}")],
        }
    }

    /// Folder for configs, sockets, logs and downloads; removed with the bed.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Seed of everything random on timed links.
    pub fn seed(&self) -> u64 {
        self.seed
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

    /// Address of the sink of a line, for plain traffic.
    pub fn sink_address(&self) -> IpAddr {
        Bed::east_address(self.hops())
    }

    /// Changes the loss of every link, both directions, while traffic flows.
    ///
    /// # Errors
    /// When the value is out of range or the emulator does not answer.
    pub fn set_loss(&mut self, loss: Loss) -> Result<(), BedError> {
        self.links.iter_mut().try_for_each(|link| link.set(link.config.with_loss(loss)))
    }

    /// Changes link `number` (from 1) while traffic flows. Packets that have left the queue arrive
    /// as planned; the queue is served at the new rate at once.
    ///
    /// # Errors
    /// When a value is out of range, a link built without time is to get it
    /// ([`LinkConfig::timed`]), or the emulator does not answer.
    pub fn set_link(&mut self, number: usize, config: LinkConfig) -> Result<(), BedError> {
        self.links[number - 1].set(config)
    }

    /// The configured properties of link `number` (from 1).
    pub fn link_config(&self, number: usize) -> LinkConfig {
        self.links[number - 1].config
    }

    /// Waits until packets flow through the last link, then sets the loss of every link.
    ///
    /// iperf3 opens a UDP stream with one datagram each way and aborts if either is lost, so a
    /// measurement starts without loss. Returns the packets that passed all links until then: some
    /// milliseconds' worth, and more on a busy machine.
    ///
    /// # Errors
    /// When a map cannot be read or written, or nothing flows within ten seconds.
    pub fn set_loss_once_flowing(&mut self, loss: Loss) -> Result<u64, BedError> {
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
        self.set_loss(loss)?;
        Ok(self.links[last].emulator.counters()?.eastward.seen - before)
    }

    /// Counters of each link since it was built.
    ///
    /// # Errors
    /// When a map cannot be read or the thread of a link does not answer.
    pub fn counters(&self) -> Result<Vec<LinkCounters>, BedError> {
        self.links.iter().map(|link| link.emulator.counters()).collect()
    }

    /// Packets that found a link's queue full since it was built, both directions of all links.
    ///
    /// # Errors
    /// When `tc` or the thread of a link does not answer.
    pub fn queue_drops(&self) -> Result<u64, BedError> {
        self.links.iter().map(|link| link.emulator.queue_drops()).sum()
    }

    /// Restarts the measurement of the longest sojourn on all timed links.
    ///
    /// # Errors
    /// When the thread of a link does not answer.
    pub fn reset_sojourns(&self) -> Result<(), BedError> {
        self.links.iter().try_for_each(|link| link.emulator.reset_sojourns())
    }

    /// Processor time that the timed links have used so far: the thread that carries them, and what
    /// Linux does on it for hosts that receive.
    ///
    /// # Errors
    /// If Linux does not report it.
    pub fn processor_time(&self) -> Result<Duration, BedError> {
        self.timed.processor_time()
    }

    /// Leaves everything up when this value is dropped. [`crate::sweep::sweep`] with `kept` removes
    /// it later.
    ///
    /// # Errors
    /// When a link is timed, which ends with this process, or the mark cannot be written.
    pub fn keep(&mut self) -> Result<(), BedError> {
        if self.links.iter().any(|link| link.emulator.is_timed()) {
            return Err(BedError::Parameter {
                what: "bed to keep",
                value: "one with timed links".into(),
                rule: "their emulator ends with this process",
            });
        }
        sweep::keep(&self.prefix)?;
        self.keep = true;
        Ok(())
    }

    fn build_link(
        &mut self,
        number: usize,
        config: &BedConfig,
        shared: Option<&Bed>,
    ) -> Result<Link, BedError> {
        let namespace = Namespace::create(format!("{}-x{number}", self.prefix))?;
        let ends = config.ends[number - 1];
        let (west, east) = (&self.hosts[ends.0], &self.hosts[ends.1]);
        let queues = config.queues;
        let [at_west, at_east] = &self.interfaces(number);
        let inside = |name, mac| VethEnd { namespace: &namespace, name, mac };
        let end = VethEnd { namespace: west, name: at_west, mac: mac(number, 1) };
        veth(&end, &inside("west", mac(number, 0xa)), queues)?;
        let end = VethEnd { namespace: east, name: at_east, mac: mac(number, 2) };
        veth(&end, &inside("east", mac(number, 0xb)), queues)?;
        west.ip(&format!("addr add {}/24 dev {at_west}", Bed::west_address(number)))?;
        east.ip(&format!("addr add {}/24 dev {at_east}", Bed::east_address(number)))?;
        for (host, interface) in [(west, at_west), (east, at_east)] {
            // veth never completes a partial checksum, and AF_XDP would forward it unchanged.
            // Segmentation offload would hide several packets in one from the loss program.
            host.run("ethtool", &format!("-K {interface} tx off"))?;
        }
        if config.neighbours_known {
            let (a, b) = (Bed::west_address(number), Bed::east_address(number));
            west.ip(&format!(
                "neigh replace {b} lladdr {} dev {at_west} nud permanent",
                mac(number, 2)
            ))?;
            east.ip(&format!(
                "neigh replace {a} lladdr {} dev {at_east} nud permanent",
                mac(number, 1)
            ))?;
        }
        let link = config.links[number - 1];
        let emulator = match shared {
            Some(bed) => bed.links[number - 1].emulator.join(&namespace)?,
            None => Emulator::start(&mut self.timed, &namespace, &link, config.seed, number)?,
        };
        Ok(Link { namespace, ends, config: link, emulator })
    }

    /// Routes for plain forwarding: to the networks of other links, by the shortest path.
    fn build_routes(&self) -> Result<(), BedError> {
        for (index, host) in self.hosts.iter().enumerate() {
            host.sysctl("net.ipv4.ip_forward", "1")?;
            set_default_congestion_control(host)?;
            let gateways = self.gateways(index);
            let mut routes = String::new();
            for (number, link) in (1..).zip(&self.links) {
                if link.ends.0 == index || link.ends.1 == index {
                    continue;
                }
                // Of two ends at equal distance, prefers the relay, so that a second path is really
                // one.
                let is_end = |host: usize| host == 0 || host + 1 == self.hosts.len();
                let ends = [link.ends.0, link.ends.1].into_iter();
                let near = ends.filter_map(|end| gateways[end].map(|way| (way, is_end(end))));
                let near = near.min_by_key(|((links, _), is_end)| (*links, *is_end));
                if let Some(((_, gateway), _)) = near {
                    let network = address(number, 0);
                    let _ = writeln!(routes, "route add {network}/24 via {gateway}");
                }
            }
            // All in one run: a hub of many boxes has tens of thousands of them.
            let file = self.directory.join("routes");
            std::fs::write(&file, routes).map_err(BedError::file(&file))?;
            host.ip(&format!("-batch {}", file.display()))?;
        }
        Ok(())
    }

    /// Number of links from a host to each other one, and the address of the next host.
    fn gateways(&self, from: usize) -> Vec<Option<(usize, IpAddr)>> {
        let mut found: Vec<Option<(usize, IpAddr)>> = vec![None; self.hosts.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            for (number, link) in (1..).zip(&self.links) {
                let (next, address) = match link.ends {
                    (west, east) if west == at => (east, Bed::east_address(number)),
                    (west, east) if east == at => (west, Bed::west_address(number)),
                    _ => continue,
                };
                if next != from && found[next].is_none() {
                    found[next] = found[at].map(|(far, way)| (far + 1, way)).or(Some((1, address)));
                    queue.push_back(next);
                }
            }
        }
        found
    }

    /// TCP congestion control of this bed's hosts.
    ///
    /// # Errors
    /// If Linux does not report it.
    pub fn congestion_control(&self) -> Result<String, BedError> {
        self.sink().read_sysctl(CONGESTION_CONTROL)
    }

    /// Changes the congestion control of new TCP connections of this bed's hosts, for example to
    /// `bbr`.
    ///
    /// # Errors
    /// If Linux does not support it, or not in namespaces.
    pub fn set_congestion_control(&self, name: &str) -> Result<(), BedError> {
        self.hosts.iter().try_for_each(|host| host.sysctl(CONGESTION_CONTROL, name))
    }

    fn build_side_path(&self) -> Result<(), BedError> {
        let (source, sink) = (self.source(), self.sink());
        let end = |namespace, at| VethEnd { namespace, name: "mgmt", mac: mac(0, at) };
        veth(&end(source, 1), &end(sink, 2), 1)?;
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
        // Their thread ends first: its sockets would keep the namespaces alive.
        self.links.clear();
        self.timed = TimedLinks::default();
        if !self.keep {
            sweep::remove(&self.prefix);
        }
    }
}

/// Gives a host Linux's own default congestion control: this machine's default may be one that
/// ignores loss. Namespaces may only use what the machine allows, and Reno is always allowed.
fn set_default_congestion_control(host: &Namespace) -> Result<(), BedError> {
    host.sysctl(CONGESTION_CONTROL, "cubic").or_else(|_| host.sysctl(CONGESTION_CONTROL, "reno"))
}

/// 10.77.LINK.HOST, and 10.78 and so on from link 256 on.
fn address(link: usize, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 77 + (link >> 8) as u8, link as u8, host))
}

/// A locally administered MAC address.
fn mac(link: usize, end: u8) -> String {
    format!("02:77:00:{:02x}:{:02x}:{end:02x}", link >> 8, link & 0xff)
}

/// One end of a veth pair.
struct VethEnd<'a> {
    /// Where it lies.
    namespace: &'a Namespace,
    /// Name of the interface.
    name: &'a str,
    /// Its Ethernet address.
    mac: String,
}

/// Joins two namespaces. A packet that leaves by queue n of one side arrives at queue n of the
/// other.
fn veth(left: &VethEnd<'_>, right: &VethEnd<'_>, queues: usize) -> Result<(), BedError> {
    let &VethEnd { namespace: left, name: left_name, mac: ref left_mac } = left;
    let &VethEnd { namespace: right, name: right_name, mac: ref right_mac } = right;
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
