//! A network in one file, the same on every box: finds which box this host is, and derives the
//! configuration of that box.
//!
//! ```text
//!  file -> Network -> this box: --name, its private key, or its address -> interfaces of this
//!  host -> text of one box -> Config, as if that text were the file
//! ```
//!
//! Only the supervisor and commands run this: it reads the key, and queries Linux and the resolver.

use crate::config::error::{ConfigError, ConfigErrors};
use crate::config::names::Names;
use crate::config::{Config, budget};
use recoded_host::{OwnAddresses, all_own_addresses, outgoing};
use recoded_network::{
    Auth, Found, Network, NetworkErrors, Node, NodeAddress, Parsed, Parser, Refusal, Stream, Ways,
};
use recoded_runtime::secure::{KeyError, PrivateKey, PublicKey, key_file};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Longest wait for the resolver; a working one answers within a second.
const PATIENCE: Duration = Duration::from_secs(3);

/// Linux's name of the loopback interface in every network namespace.
const LOOPBACK: &str = "lo";

/// Why the part of this host in a network is unknown.
#[derive(Debug, thiserror::Error)]
pub enum OwnError {
    /// The file has mistakes.
    #[error(transparent)]
    Network(#[from] NetworkErrors),
    /// `--name` names no box.
    #[error("{file}: there is no box {name}: the boxes are {boxes}")]
    NoBox {
        /// The file.
        file: String,
        /// The name.
        name: String,
        /// The boxes.
        boxes: String,
    },
    /// The key that tells which box this is cannot be read.
    #[error("{file}: which box is this host? {source} (recodectl genkey writes such a file)")]
    Key {
        /// The file.
        file: String,
        /// The fault.
        source: KeyError,
    },
    /// No box has the key of this host.
    #[error(
        "{file}: no box has the key of this host, whose public part is {key}: write it as key in \
         the line of this box"
    )]
    UnknownKey {
        /// The file.
        file: String,
        /// The public key of this host.
        key: PublicKey,
    },
    /// The box that `--name` names has another key.
    #[error(
        "{file}:{line}: box {name} has another key than this host, whose public part is {key}: \
         correct --name, or key in that line"
    )]
    OtherKey {
        /// The file.
        file: String,
        /// The line of the box.
        line: usize,
        /// Its name.
        name: String,
        /// The public key of this host.
        key: PublicKey,
    },
    /// The address of this box is on the loopback interface, and its neighbours are elsewhere.
    #[error(
        "{file}:{line}: box {name} has {address} on lo, over which no neighbour is reached: give the \
         address to the interface that leads there (ip address add {address} dev {interface}), or \
         write the address of that interface"
    )]
    Loopback {
        /// The file.
        file: String,
        /// The line of the box.
        line: usize,
        /// Its name.
        name: String,
        /// The address.
        address: IpAddr,
        /// The interface of the route to a neighbour.
        interface: String,
    },
    /// Without keys, no address or several of them tell which box this is.
    #[error(
        "{file}: without keys a box is found by its address, and this host has the addresses of \
         {count} boxes: start it with --name and one of {boxes}"
    )]
    NoAddress {
        /// The file.
        file: String,
        /// Boxes whose addresses this host has.
        count: usize,
        /// All boxes.
        boxes: String,
    },
}

/// Whether a text is the file of a network. Text that is not TOML is not.
pub fn is_network(text: &str) -> bool {
    let table = text.parse::<toml::Table>();
    table.is_ok_and(|table| ["boxes", "nodes", "path"].iter().any(|key| table.contains_key(*key)))
}

/// Reads a network and checks it, including the configurations of all boxes.
///
/// # Errors
/// Every mistake, in order of lines.
pub fn parse(file: &str, text: &str) -> Result<Network, NetworkErrors> {
    Network::parse(file, text, &DaemonParser)
}

/// The same for boxes without keys: none is required.
///
/// # Errors
/// As [`parse`].
pub fn parse_without_keys(file: &str, text: &str) -> Result<Network, NetworkErrors> {
    Network::parse_without_keys(file, text, &DaemonParser)
}

/// The configuration of this host: `text` itself, unless that is a network.
///
/// # Errors
/// Mistakes in the network, or it is not known which box this host is.
pub fn own(file: &str, text: &str, name: Option<&str>) -> Result<String, OwnError> {
    if !is_network(text) {
        return Ok(text.to_owned());
    }
    let mut network = parse(file, text)?;
    // Without an answer of Linux, interfaces that are not written stay unknown, and are waited for.
    let host = Host { own: all_own_addresses().unwrap_or_default() };
    let node = find(&network, name, &host)?;
    refuse_loopback(&network, node, &host)?;
    network.find_interfaces(node, &host);
    Ok(network.meaning(node))
}

/// Linux sends from a link's interface only, so an address on lo serves neighbours on this host
/// alone.
fn refuse_loopback(network: &Network, node: usize, host: &Host) -> Result<(), OwnError> {
    let ends = network.links.iter().filter_map(|link| link.seen_from(node));
    for (end, far) in ends.filter(|(end, _)| end.is_found) {
        let own = host.addresses(&end.place);
        let on_loopback = |address: &&IpAddr| {
            host.interface(&[**address]).is_some_and(|interface| interface == LOOPBACK)
        };
        let Some(address) = own.iter().find(on_loopback) else { continue };
        let there = host.addresses(&far.place).into_iter().map(Some).chain([None]);
        let interface = there.filter_map(|to| outgoing(to).ok().flatten()).next();
        if interface.as_deref() == Some(LOOPBACK) {
            continue;
        }
        let Node { name, line, .. } = &network.nodes[node];
        return Err(OwnError::Loopback {
            file: network.file.clone(),
            line: *line,
            name: name.clone(),
            address: *address,
            interface: interface.unwrap_or_else(|| "INTERFACE".to_owned()),
        });
    }
    Ok(())
}

/// Finds the box that `--name` names.
///
/// # Errors
/// [`OwnError::NoBox`].
pub fn named(network: &Network, name: &str) -> Result<usize, OwnError> {
    let names = || network.nodes.iter().map(|node| node.name.as_str());
    names().position(|known| known == name).ok_or_else(|| OwnError::NoBox {
        file: network.file.clone(),
        name: name.to_owned(),
        boxes: names().collect::<Vec<_>>().join(", "),
    })
}

/// The box that this host is.
fn find(network: &Network, name: Option<&str>, host: &Host) -> Result<usize, OwnError> {
    let file = network.file.clone();
    let names: Vec<&str> = network.nodes.iter().map(|node| node.name.as_str()).collect();
    let boxes = names.join(", ");
    if let Some(name) = name {
        let found = named(network, name)?;
        let Node { key, line, .. } = &network.nodes[found];
        return match (key, key_of(&network.nodes[found])) {
            (Some(known), Ok(key)) if *known != key && network.auth != Auth::None => {
                Err(OwnError::OtherKey { file, line: *line, name: name.to_owned(), key })
            }
            _ => Ok(found),
        };
    }
    if network.auth == Auth::None {
        let has = |place: &NodeAddress| host.interface(&host.addresses(place)).is_some();
        let nodes = network.nodes.iter().enumerate();
        let own = nodes.filter(|(_, node)| node.uplinks.places().any(has));
        let own: Vec<usize> = own.map(|(index, _)| index).collect();
        return match own[..] {
            [one] => Ok(one),
            _ => Err(OwnError::NoAddress { file, count: own.len(), boxes }),
        };
    }
    let mut fault = None;
    let mut seen = BTreeSet::new();
    for node in network.nodes.iter().filter(|node| seen.insert(node.private_key.clone())) {
        match key_of(node) {
            Ok(key) => {
                let is_it =
                    |box_: &Node| box_.key == Some(key) && box_.private_key == node.private_key;
                match network.nodes.iter().position(is_it) {
                    Some(found) => return Ok(found),
                    None => fault = Some(OwnError::UnknownKey { file: file.clone(), key }),
                }
            }
            Err(source) => {
                fault.get_or_insert(OwnError::Key { file: file.clone(), source });
            }
        }
    }
    Err(fault.unwrap_or(OwnError::NoAddress { file, count: 0, boxes }))
}

/// The public key of this host, if it is that box.
fn key_of(node: &Node) -> Result<PublicKey, KeyError> {
    key_file::read::<PrivateKey>(Path::new(&node.private_key)).map(|key| key.public())
}

/// Interfaces, addresses and routes of this host.
struct Host {
    own: OwnAddresses,
}

impl Host {
    /// The addresses of a place. Loopback addresses of a name are known only to this host.
    fn addresses(&self, place: &NodeAddress) -> Vec<IpAddr> {
        match place {
            NodeAddress::Address(address) => vec![*address],
            NodeAddress::Name(name) => {
                let found = Names::ask_within(vec![name.clone()], PATIENCE).addresses(name);
                found.into_iter().filter(|address| !address.is_loopback()).collect()
            }
            NodeAddress::Awaited(_) => Vec::new(),
        }
    }

    /// The interface that has one of these addresses.
    fn interface(&self, addresses: &[IpAddr]) -> Option<&String> {
        let has = |known: &[(IpAddr, u8)]| known.iter().any(|(it, _)| addresses.contains(it));
        self.own.iter().find(|(_, known)| has(known)).map(|(name, _)| name)
    }
}

impl Ways for Host {
    fn find(
        &self,
        written: Option<&str>,
        own: &NodeAddress,
        neighbour: &NodeAddress,
    ) -> Option<Found> {
        let addresses = self.addresses(own);
        let found = self.interface(&addresses);
        let found_there = |interface: &str, has_address| {
            Some(Found { interface: interface.to_owned(), has_address })
        };
        if let Some(written) = written {
            return found_there(written, found.is_some_and(|found| found == written));
        }
        if let Some(found) = found {
            return found_there(found, true);
        }
        let routes = self.addresses(neighbour).into_iter().map(Some).chain([None]);
        let mut routes = routes.filter_map(|to| outgoing(to).ok().flatten());
        routes.find_map(|interface| found_there(&interface, false))
    }
}

/// The parser of configurations. MTUs depend on the host, so they count as the default here.
struct DaemonParser;

impl Parser for DaemonParser {
    fn parse(&self, name: &str, text: &str) -> Result<Parsed, Vec<Refusal>> {
        match Config::parse(name, text, &|_| None) {
            Ok((.., config)) => {
                let streams = config.flows.iter().filter(|flow| !flow.written.stream_symbols);
                let stream = |flow: &crate::config::Flow| {
                    Some(Stream { flow: flow.params.id, window: flow.window()? })
                };
                Ok(Parsed {
                    window_max: budget::window(config.base(), &config.flows),
                    streams: streams.filter_map(stream).collect(),
                })
            }
            Err(ConfigErrors { errors, .. }) => {
                let refusal = |error: ConfigError| Refusal {
                    message: error.to_string(),
                    fault: ConfigError { place: String::new(), ..error.clone() }.to_string(),
                    place: error.place,
                };
                Err(errors.into_iter().map(refusal).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Such a link was once made on lo, where no packet leaves the host.
    #[test]
    fn address_on_the_loopback_interface_is_refused_where_neighbours_are_elsewhere() {
        let refused = |own: &str, neighbour: &str| {
            let text = format!(
                "auth = \"none\"\n[boxes]\na = {{ at = \"{own}\", tunnel = \"10.99.0.1/24\" }}\n\
                 b = {{ at = \"{neighbour}\", tunnel = \"10.99.0.2/24\" }}\n"
            );
            let network = parse("net.toml", &text).expect("a network");
            let addresses = vec![(own.parse().expect("an address"), 32)];
            let host = Host { own: OwnAddresses::from([(LOOPBACK.to_owned(), addresses)]) };
            refuse_loopback(&network, 0, &host).err().map(|error| error.to_string())
        };
        let said = refused("198.51.100.5", "192.0.2.9").expect("no packet would leave");
        let words = "net.toml:3: box a has 198.51.100.5 on lo, over which no neighbour is reached: \
                     give the address to the interface that leads there";
        assert!(said.starts_with(words), "{said}");
        assert_eq!(refused("127.0.0.1", "127.0.0.2"), None, "both are on this host");
    }
}
