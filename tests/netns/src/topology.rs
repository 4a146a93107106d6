//! Networks that are not lines: two paths, a tree, the butterfly. Each is a bed and a `net.toml`,
//! and `control/network` derives the configuration of every host from it.
//!
//! ```text
//!  paths           s ─── fast ─── d        tree   s ─┬─ a ─┬─ t1       butterfly  s ─┬─ a ─┬── t
//!                   \_ r ─ slow _/                   │     └─ ...                    │     c ─ d
//!                                                    └─ b ─┬─ ...                    └─ b ─┴── u
//! ```
//! In the butterfly a and b send to a receiver each and to c, and d to both receivers.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::{Bed, BedConfig, BedError, Daemon, DirectionConfig, LinkConfig, Loss};

/// Address of all receivers in the tunnel.
pub const RECEIVER: [u8; 4] = [10, 99, 0, 2];

/// Port of the datagrams that probe whether receivers are reachable.
pub(crate) const PORT: u16 = 7099;

/// Timeout until a network carries packets.
const PATIENCE: Duration = Duration::from_secs(15);

/// Most sinks of a tree: with a link each, and two to the relays.
pub const SINKS_MAX: usize = 14;

/// The faster path: rate, loss, one-way delay.
pub const FAST: PathLink = PathLink { rate_mbit: 100.0, loss: 0.10, delay_ms: 20 };

/// The slower one.
pub const SLOW: PathLink = PathLink { rate_mbit: 50.0, loss: 0.02, delay_ms: 60 };

/// Rate of the links of a tree: eight unicast copies fit.
pub const TREE_MBIT: f64 = 300.0;

/// One-way delay of each of them.
pub const TREE_DELAY_MS: u64 = 10;

/// Loss of the links of a tree to its relays.
pub const TO_RELAYS: [f64; 2] = [0.10, 0.05];

/// Loss of those to its sinks, in turn.
const TO_SINKS: [f64; 8] = [0.01, 0.02, 0.05, 0.08, 0.10, 0.12, 0.15, 0.20];

/// Rate of each link of the butterfly.
pub const UNIT_MBIT: f64 = 20.0;

/// Loss of each of them.
pub const UNIT_LOSS: f64 = 0.02;

/// Bytes of IP packets that fill a symbol of the butterfly.
pub const UNIT_PACKET_BYTES: usize = 1300;

/// Difference between a symbol and the tunnel's MTU. Longer packets are sent as two fragments.
const UNIT_FRAMING_BYTES: usize = 3;

/// Symbols of a generation there.
pub const UNIT_SYMBOLS: usize = 256;

/// Packets of each source that a link carries: half of them, plus redundancy for losses.
const UNIT_PACKETS: usize = 135;

/// Planned share of the butterfly's links, the rest being for repairs; and bytes of one of its
/// coded packets on a link.
const UNIT_LOAD: f64 = 0.96;
const UNIT_WIRE_BYTES: f64 = 1450.0;

/// A link that is one path.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct PathLink {
    /// Rate in Mbit/s with Ethernet headers.
    pub rate_mbit: f64,
    /// Share of packets lost.
    pub loss: f64,
    /// One-way delay.
    pub delay_ms: u64,
}

impl PathLink {
    /// Capacity after losses, in Mbit/s.
    pub fn carries_mbit(&self) -> f64 {
        self.rate_mbit * (1.0 - self.loss)
    }

    /// The link of the bed.
    pub fn config(&self) -> LinkConfig {
        let direction = DirectionConfig::new(Loss::independent(self.loss), self.rate_mbit);
        let delay = Duration::from_millis(self.delay_ms);
        LinkConfig { timed: true, ..LinkConfig::both(DirectionConfig { delay, ..direction }) }
    }
}

/// A network: hosts, the links between them, and one path of its `net.toml`.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Name of the network.
    pub name: &'static str,
    /// Names of its hosts, the source first.
    pub hosts: Vec<String>,
    /// Links as pairs of host numbers, in the direction of traffic.
    pub links: Vec<(usize, usize, LinkConfig)>,
    /// Ways from the source to receivers.
    pub ways: Vec<Vec<usize>>,
    /// Lines of `[daemon]`.
    pub daemon: &'static str,
    /// Further lines of `[[path]]`.
    pub keys: String,
}

impl Topology {
    /// Two paths between s and d: link 1 is the faster one; the slower one is link 3, behind a
    /// relay and the lossless link 2.
    pub fn paths() -> Topology {
        let access = LinkConfig::new(Loss::independent(0.0), 1000.0);
        Topology {
            name: "paths",
            hosts: names(&["s", "r", "d"]),
            links: vec![(0, 2, FAST.config()), (0, 1, access), (1, 2, SLOW.config())],
            ways: vec![vec![0, 2], vec![0, 1, 2]],
            daemon: "",
            keys: String::new(),
        }
    }

    /// A source, two relays, and `sinks` behind them in turn, at most [`SINKS_MAX`]; 10 ms per
    /// link.
    pub fn tree(sinks: usize) -> Topology {
        let link = |loss| PathLink { rate_mbit: TREE_MBIT, loss, delay_ms: TREE_DELAY_MS }.config();
        let sinks = sinks.clamp(2, SINKS_MAX);
        let relay = |sink: usize| 1 + relay_of(sink, sinks);
        let to_relays = TO_RELAYS.iter().enumerate().map(|(at, loss)| (0, at + 1, link(*loss)));
        let to_sinks =
            (0..sinks).map(|sink| (relay(sink), 3 + sink, link(TO_SINKS[sink % TO_SINKS.len()])));
        let mut hosts = names(&["s", "a", "b"]);
        hosts.extend((1..=sinks).map(|sink| format!("t{sink}")));
        Topology {
            name: "tree",
            hosts,
            links: to_relays.chain(to_sinks).collect(),
            ways: (0..sinks).map(|sink| vec![0, relay(sink), 3 + sink]).collect(),
            daemon: "",
            keys: String::new(),
        }
    }

    /// Loss of the two links in front of each sink of a tree.
    pub fn tree_losses(sinks: usize) -> Vec<[f64; 2]> {
        let sinks = sinks.clamp(2, SINKS_MAX);
        let of = |sink: usize| [TO_RELAYS[relay_of(sink, sinks)], TO_SINKS[sink % TO_SINKS.len()]];
        (0..sinks).map(of).collect()
    }

    /// The butterfly: s has the data of two sources, one for each branch. Each branch sends to one
    /// receiver, t or u, and to c, whose only link leads to d, which serves both receivers.
    pub fn butterfly() -> Topology {
        let unit = PathLink { rate_mbit: UNIT_MBIT, loss: UNIT_LOSS, delay_ms: 2 }.config();
        // A relay that combines sends all packets of a generation in one burst.
        let long = |way| DirectionConfig { queue: Duration::from_millis(200), ..way };
        let (eastward, westward) = (long(unit.eastward), long(unit.westward));
        let link = LinkConfig { eastward, westward, ..unit };
        let ends = [(0, 1), (0, 2), (1, 5), (1, 3), (2, 6), (2, 3), (3, 4), (4, 5), (4, 6)];
        let redundancy = 2.0 * UNIT_PACKETS as f64 / UNIT_SYMBOLS as f64;
        Topology {
            name: "butterfly",
            hosts: names(&["s", "a", "b", "c", "d", "t", "u"]),
            links: ends.map(|(west, east)| (west, east, link)).to_vec(),
            ways: vec![vec![0, 1, 5], vec![0, 2, 6], vec![0, 1, 3, 4, 5], vec![0, 2, 3, 4, 6]],
            // Of 256 symbols each.
            daemon: "generations = 32\n",
            keys: format!(
                "code = \"rlnc\"\nfield = 4\ngeneration_size = {UNIT_SYMBOLS}\nsymbol_bytes = {}\n\
                 redundancy = {redundancy}\nspread = \"sum\"\nonward_share = 0.5\n\
                 recoding = \"random\"\nflush_timeout_us = 200000\n\
                 generation_timeout_us = 200000\nhold_timeout_us = 1000000\n",
                UNIT_PACKET_BYTES + UNIT_FRAMING_BYTES
            ),
        }
    }

    /// IP packets per second that the links of the butterfly carry to both receivers.
    pub fn butterfly_rate() -> f64 {
        let packets = UNIT_LOAD * UNIT_MBIT * 1e6 / 8.0 / UNIT_WIRE_BYTES;
        packets * UNIT_SYMBOLS as f64 / UNIT_PACKETS as f64
    }

    /// The address of a sink of the tree on its link, for plain traffic; the first is 0.
    pub fn leaf_address(sink: usize) -> IpAddr {
        // After the links of the relays.
        Bed::east_address(TO_RELAYS.len() + 1 + sink)
    }

    /// The same with further lines for its path.
    pub fn with(mut self, keys: &str) -> Topology {
        self.keys += keys;
        self
    }

    /// Numbers of the hosts that receive.
    pub fn receivers(&self) -> Vec<usize> {
        let mut found: Vec<usize> =
            self.ways.iter().filter_map(|way| way.last().copied()).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Builds its bed.
    ///
    /// # Errors
    /// As [`Bed::build`].
    pub fn build(&self, seed: u64) -> Result<Bed, BedError> {
        Bed::build(&BedConfig { seed, ..BedConfig::graph(&self.links) })
    }

    /// Its `net.toml`, interfaces and addresses as its bed has them.
    pub fn text(&self) -> String {
        let text = hosts_and_links(&self.hosts, &self.links, self.daemon);
        let way = |way: &Vec<usize>| way.iter().map(|host| &self.hosts[*host]).collect::<Vec<_>>();
        let ways: Vec<Vec<&String>> = self.ways.iter().map(way).collect();
        let [a, b, c, d] = RECEIVER;
        let mut ends = vec![format!("{a}.{b}.{c}.1/24")];
        ends.extend(self.receivers().iter().map(|_| format!("{a}.{b}.{c}.{d}/24")));
        text + &format!("[[path]]\nways = {ways:?}\ntunnel = {ends:?}\n{}", self.keys)
    }

    /// Starts a daemon on every host and waits until every receiver is reachable.
    ///
    /// # Errors
    /// When the network is refused, a daemon does not start, or no packet arrives.
    pub fn start(&self, bed: &Bed) -> Result<Vec<Daemon>, BedError> {
        let daemons = start_daemons(bed, &self.text())?;
        let to = SocketAddr::from((RECEIVER, PORT));
        let ways = self.receivers().into_iter().map(|host| (0, host, to));
        wait_until_reached(bed, &ways.collect::<Vec<_>>())?;
        Ok(daemons)
    }
}

/// A `net.toml` up to its paths, with these lines of `[daemon]`.
pub(crate) fn hosts_and_links(
    hosts: &[String],
    links: &[(usize, usize, LinkConfig)],
    daemon: &str,
) -> String {
    let mut text = format!("auth = \"none\"\n[daemon]\nframes = 8192\n{daemon}[nodes]\n");
    for name in hosts {
        text += &format!("{name} = {{}}\n");
    }
    for (number, (west, east, _)) in (1..).zip(links) {
        let (from, to) = (Bed::west_address(number), Bed::east_address(number));
        let (west, east) = (&hosts[*west], &hosts[*east]);
        text += &format!(
            "[[link]]\n{west} = \"{from} dev l{number}\"\n{east} = \"{to} dev l{number}\"\n"
        );
    }
    text
}

/// Starts a daemon on every host of a bed, as this `net.toml` has it.
///
/// # Errors
/// When the network is refused, or a daemon does not start.
pub(crate) fn start_daemons(bed: &Bed, text: &str) -> Result<Vec<Daemon>, BedError> {
    let refused = |detail: String| BedError::Output { program: "net.toml".into(), detail };
    let network = recoded::network::parse("net.toml", text);
    let files = network.map_err(|errors| refused(errors.to_string()))?.files();
    let start = |(index, file): (usize, &String)| {
        let own = |socket: &str| format!("daemon.socket = \"{socket}\"\n{file}");
        Daemon::start_with(bed, index, own)
    };
    std::thread::scope(|scope| {
        let threads = files.iter().enumerate().map(|file| scope.spawn(move || start(file)));
        let threads: Vec<_> = threads.collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Sends datagrams, each from a host to an address, until one has reached every receiving host. A
/// way is sender, receiver, address.
///
/// # Errors
/// When one is not reached in time.
pub(crate) fn wait_until_reached(
    bed: &Bed,
    ways: &[(usize, usize, SocketAddr)],
) -> Result<(), BedError> {
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let sockets = |(from, host, to): &(usize, usize, SocketAddr)| {
        let receiver = bed.hosts()[*host].udp_socket(*to)?;
        receiver.set_nonblocking(true).map_err(BedError::system("waiting for a network"))?;
        Ok((bed.hosts()[*from].udp_socket(any)?, receiver, *to))
    };
    let mut waiting = ways.iter().map(sockets).collect::<Result<Vec<_>, BedError>>()?;
    let deadline = Instant::now() + PATIENCE;
    while !waiting.is_empty() && Instant::now() < deadline {
        for (sender, _, to) in &waiting {
            // Fails while there is no route yet.
            let _ = sender.send_to(&[0; 16], *to);
        }
        std::thread::sleep(Duration::from_millis(20));
        waiting.retain(|(_, receiver, _)| receiver.recv(&mut [0; 64]).is_err());
    }
    if waiting.is_empty() {
        return Ok(());
    }
    let (left, all, seconds) = (waiting.len(), ways.len(), PATIENCE.as_secs());
    Err(BedError::Output {
        program: "recoded".into(),
        detail: format!("nothing came to {left} of {all} receivers in {seconds} s"),
    })
}

/// The relay in front of a sink of a tree, of two.
fn relay_of(sink: usize, sinks: usize) -> usize {
    usize::from(sink >= sinks.div_ceil(2))
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The daemon's own parser reads the file of every host.
    #[test]
    fn every_topology_is_a_network_that_daemons_take() {
        for topology in [Topology::paths(), Topology::tree(8), Topology::butterfly()] {
            let network = recoded::network::parse("net.toml", &topology.text());
            let network = network.unwrap_or_else(|errors| panic!("{errors}\n{}", topology.text()));
            assert_eq!(network.files().len(), topology.hosts.len());
            assert_eq!(network.paths[0].receivers().len(), topology.receivers().len());
            assert_eq!(BedConfig::graph(&topology.links).hosts(), topology.hosts.len());
        }
        assert_eq!(Topology::tree(99).receivers().len(), SINKS_MAX);
    }
}
