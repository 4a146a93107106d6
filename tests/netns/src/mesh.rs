//! Many flows over one network: sixteen over twelve hosts; and one over a line, to compare them.
//!
//! ```text
//!  s0 ── r0 ── d0      each of four sources sends to each of four sinks; every relay has a link
//!        │╲╱│          to every other one, so that a flow takes two links or three
//!  s1 ── r1 ── d1
//!        ...
//! ```

use std::net::SocketAddr;

use crate::topology::{PORT, hosts_and_links, start_daemons, wait_until_reached};
use crate::{Bed, BedConfig, BedError, Daemon, LinkConfig, Loss};

/// Sources, relays and sinks each.
const SIDE: usize = 4;

/// Rate of each link.
pub const LINK_MBIT: f64 = 40.0;

/// Loss rate of each link.
pub const LINK_LOSS: f64 = 0.02;

/// Flows that share the link of a source, and of a sink.
pub const SHARING: usize = SIDE;

/// Configuration keys of every path. The default store per flow and direction is large for this
/// number of hosts on one machine, and links without delay need little of it.
const KEYS: &str = "code = \"stream\"\nstream_symbols = 4096\n";

/// Hosts, links, and flows that have a path and a tunnel each.
#[derive(Clone, Debug)]
pub struct Mesh {
    /// Names of the hosts.
    pub hosts: Vec<String>,
    /// Links by numbers of hosts.
    pub links: Vec<(usize, usize, LinkConfig)>,
    /// Flows: the hosts that each passes, its source first.
    pub flows: Vec<Vec<usize>>,
}

impl Mesh {
    /// Sixteen flows over twelve hosts.
    pub fn sixteen_flows() -> Mesh {
        let link = LinkConfig::new(Loss::independent(LINK_LOSS), LINK_MBIT);
        let (source, relay, sink) = (|at| at, |at| SIDE + at, |at| 2 * SIDE + at);
        let pairs = (0..SIDE).flat_map(|one| (one + 1..SIDE).map(move |other| (one, other)));
        let access = (0..SIDE).map(|at| (source(at), relay(at), link));
        let between = pairs.map(|(one, other)| (relay(one), relay(other), link));
        let leaves = (0..SIDE).map(|at| (relay(at), sink(at), link));
        let flow = |from: usize, to: usize| match from == to {
            true => vec![source(from), relay(from), sink(to)],
            false => vec![source(from), relay(from), relay(to), sink(to)],
        };
        let flows = (0..SIDE * SIDE).map(|number| flow(number / SIDE, number % SIDE));
        let named = |letter: char| (0..SIDE).map(move |number| format!("{letter}{number}"));
        Mesh {
            hosts: ['s', 'r', 'd'].into_iter().flat_map(named).collect(),
            links: access.chain(between).chain(leaves).collect(),
            flows: flows.collect(),
        }
    }

    /// One flow over a line with as many links as most of those flows use. Its hosts are numbered
    /// differently from those of a line bed, whose interfaces have other names.
    pub fn line() -> Mesh {
        let link = LinkConfig::new(Loss::independent(LINK_LOSS), LINK_MBIT);
        Mesh {
            hosts: ["s", "d", "r", "q"].map(str::to_owned).to_vec(),
            links: vec![(0, 2, link), (2, 3, link), (3, 1, link)],
            flows: vec![vec![0, 2, 3, 1]],
        }
    }

    /// Destination address of a flow.
    pub fn address(flow: usize) -> [u8; 4] {
        [10, 100, flow as u8, 2]
    }

    /// Its `net.toml`, interfaces and addresses as its bed has them.
    pub fn text(&self) -> String {
        let mut text = hosts_and_links(&self.hosts, &self.links, "");
        for (number, flow) in self.flows.iter().enumerate() {
            let names: Vec<&String> = flow.iter().map(|host| &self.hosts[*host]).collect();
            let [a, b, c, d] = Mesh::address(number);
            let ends = [format!("{a}.{b}.{c}.1/24"), format!("{a}.{b}.{c}.{d}/24")];
            text += &format!("[[path]]\nways = [{names:?}]\ntunnel = {ends:?}\n{KEYS}");
        }
        text
    }

    /// Builds its bed.
    ///
    /// # Errors
    /// As [`Bed::build`].
    pub fn build(&self, seed: u64) -> Result<Bed, BedError> {
        Bed::build(&BedConfig { seed, ..BedConfig::graph(&self.links) })
    }

    /// Starts a daemon on every host and waits until every flow carries packets.
    ///
    /// # Errors
    /// When the network is refused, a daemon does not start, or no packet arrives.
    pub fn start(&self, bed: &Bed) -> Result<Vec<Daemon>, BedError> {
        let daemons = start_daemons(bed, &self.text())?;
        let way = |(number, flow): (usize, &Vec<usize>)| {
            let to = SocketAddr::from((Mesh::address(number), PORT));
            (flow[0], flow[flow.len() - 1], to)
        };
        wait_until_reached(bed, &self.flows.iter().enumerate().map(way).collect::<Vec<_>>())?;
        Ok(daemons)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mesh_is_a_network_of_sixteen_flows_that_daemons_take() {
        for (mesh, hosts, flows) in [(Mesh::sixteen_flows(), 12, 16), (Mesh::line(), 4, 1)] {
            let network = recoded::network::parse("net.toml", &mesh.text());
            let network = network.unwrap_or_else(|errors| panic!("{errors}\n{}", mesh.text()));
            assert_eq!((network.files().len(), network.paths.len()), (hosts, flows));
            assert_eq!(BedConfig::graph(&mesh.links).hosts(), hosts);
        }
        // As many flows share the link of each source and of each sink.
        let mesh = Mesh::sixteen_flows();
        for (west, east, _) in &mesh.links {
            let uses = |flow: &&Vec<usize>| flow.windows(2).any(|pair| pair == [*west, *east]);
            let count = mesh.flows.iter().filter(uses).count();
            let is_access = *west < SIDE || *east >= 2 * SIDE;
            assert_eq!(count, if is_access { SHARING } else { 1 }, "{west} to {east}");
        }
    }
}
