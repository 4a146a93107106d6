//! Checks the file of every node with the daemon's own parser: a file that it refuses is a mistake
//! in the network. The daemon depends on this crate, so it passes its parser in.

use crate::boxes::{self, BoxLink, Needs};
use crate::model::{Extra, Network, Path};
use crate::{Fault, NetworkError, links, render};
use std::collections::{BTreeMap, BTreeSet};

/// The daemon's parser.
pub trait Parser {
    /// Parses the file of the node `name`.
    ///
    /// # Errors
    ///
    /// Every mistake in it.
    fn parse(&self, name: &str, text: &str) -> Result<Parsed, Vec<Refusal>>;
}

/// Results of parsing a file that other nodes depend on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parsed {
    /// Packets per stream that the memory of the node has room for.
    pub window_max: usize,
    /// Streams with a window that follows the memory.
    pub streams: Vec<Stream>,
}

/// A stream whose window is not written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Stream {
    /// Id of the flow.
    pub flow: u32,
    /// Packets in its window.
    pub window: usize,
}

/// A mistake in the file of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The section: `daemon`, `link east`, `flow 1`.
    pub place: String,
    /// The fault, without its place.
    pub fault: String,
    /// The whole message.
    pub message: String,
}

/// Parses the file of every node with the daemon's parser. Its errors are reported once for all
/// nodes, by the lines of the network that cause them. Returns [`Network::windows`].
pub(crate) fn check(
    network: &Network,
    parser: &dyn Parser,
    errors: &mut Vec<NetworkError>,
) -> BTreeMap<(usize, u32), usize> {
    let mut said = BTreeSet::new();
    let mut files = Vec::new();
    for (index, node) in network.nodes.iter().enumerate() {
        let needs = boxes::of(network, index);
        let refused = match parser.parse(&node.name, &render::render(network, index)) {
            Ok(parsed) => {
                files.push(parsed);
                continue;
            }
            Err(refused) => refused,
        };
        for Refusal { place, fault, message } in refused {
            let origin = origin(network, &needs, &place, &fault);
            let (place, line, is_written) =
                origin.unwrap_or_else(|| (String::new(), node.line, false));
            if !said.insert((line, fault.clone())) {
                continue;
            }
            let fault = match is_written {
                true => Fault::Own { message: fault },
                false => Fault::Refused { node: node.name.clone(), message },
            };
            errors.push(NetworkError { line, place, fault });
        }
    }
    if errors.is_empty() { windows(network, &files) } else { BTreeMap::new() }
}

/// Sources whose streams would exceed the memory of another node of their path, and the packets
/// that fit there: a hub of many boxes has less per flow than a box with one.
fn windows(network: &Network, files: &[Parsed]) -> BTreeMap<(usize, u32), usize> {
    let least_of = |path: &Path| {
        let passed = files.iter().enumerate().filter(|(node, _)| path.passes(*node));
        passed.map(|(_, parsed)| parsed.window_max).min()
    };
    let mut windows = BTreeMap::new();
    for (node, parsed) in files.iter().enumerate() {
        for Stream { flow, window } in &parsed.streams {
            // A path has its own number, and the return path has the next one.
            let begun = network.paths.iter().filter(|path| path.id <= *flow);
            let path = begun.max_by_key(|path| path.id);
            let least = path.and_then(least_of).unwrap_or(usize::MAX);
            if least < *window {
                windows.insert((node, *flow), least);
            }
        }
    }
    windows
}

/// The part of the network that causes an entry in a node's file, its line, and whether `fault`
/// begins with a key that is written there: then it is that key's line.
fn origin(
    network: &Network,
    needs: &Needs<'_>,
    place: &str,
    fault: &str,
) -> Option<(String, usize, bool)> {
    let (kind, name) = place.split_once(' ').unwrap_or((place, ""));
    let key = fault.split([' ', '=']).next().unwrap_or_default();
    let at = |place: String, extras: &[Extra], else_line| match extras
        .iter()
        .find(|extra| extra.key == key)
    {
        Some(extra) => (place, extra.line, true),
        None => (place, else_line, false),
    };
    let nodes = &network.nodes;
    Some(match kind {
        "daemon" => {
            let written = needs.daemon.iter().find(|extra| extra.key == key)?;
            ("daemon".to_owned(), written.line, true)
        }
        "link" => {
            let BoxLink { end, link, .. } = needs.links.iter().find(|link| link.name == name)?;
            at(links::name(link, nodes), &link.extras, end.line)
        }
        "tunnel" => {
            let tunnel = needs.tunnels.iter().find(|tunnel| tunnel.name == name)?;
            let number = key.strip_prefix("routes[").and_then(|rest| rest.split(']').next());
            if let Some(number) = number {
                let route = tunnel.routes.get(number.parse::<usize>().ok()?)?;
                let node = &nodes[route.node];
                return Some((format!("box {}", node.name), node.line, false));
            }
            let path = tunnel.path;
            at(path.place(nodes), &path.tunnel_extras, path.line)
        }
        "neighbour" => {
            // Neighbours have no names.
            let number: usize = name.strip_prefix("number ")?.parse().ok()?;
            let node = &nodes[needs.neighbours.get(number.checked_sub(1)?)?.node];
            (format!("box {}", node.name), node.line, false)
        }
        "flow" => {
            let path = needs.flows.iter().find(|flow| flow.id.to_string() == name)?.path;
            at(path.place(nodes), &path.flow_extras, path.line)
        }
        _ => return None,
    })
}
