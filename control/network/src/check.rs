//! Checks the file of every node with the daemon's own parser: a file that it refuses is a mistake
//! in the network.

use crate::boxes::{self, BoxLink, Needs};
use crate::model::{Extra, Network, Path};
use crate::{Fault, NetworkError, links, render};
use recoded::config::error::ConfigError;
use recoded::config::{Config, budget};
use std::collections::{BTreeMap, BTreeSet};

/// Parses the file of every node with the daemon's parser. Its errors are reported once for all
/// nodes, by the lines of the network that cause them. Returns [`Network::windows`].
pub(crate) fn check(
    network: &Network,
    errors: &mut Vec<NetworkError>,
) -> BTreeMap<(usize, u32), usize> {
    let mut said = BTreeSet::new();
    let mut configs = Vec::new();
    for (index, node) in network.nodes.iter().enumerate() {
        let needs = boxes::of(network, index);
        let text = render::render(network, index);
        // MTUs depend on the node, so they count as the default here.
        let refused = match Config::parse(&node.name, &text, &|_| None) {
            Ok((_, _, config)) => {
                configs.push(config);
                continue;
            }
            Err(refused) => refused,
        };
        for error in refused.errors {
            let fault = ConfigError { place: String::new(), ..error.clone() }.to_string();
            let (place, line) = origin(network, &needs, &error.place, &fault)
                .unwrap_or_else(|| (String::new(), node.line));
            if !said.insert((line, fault)) {
                continue;
            }
            let fault = Fault::Refused { node: node.name.clone(), message: error.to_string() };
            errors.push(NetworkError { line, place, fault });
        }
    }
    if errors.is_empty() { windows(network, &configs) } else { BTreeMap::new() }
}

/// Sources whose streams would exceed the memory of another node of their path, and the packets
/// that fit there: a hub of many boxes has less per flow than a box with one.
fn windows(network: &Network, configs: &[Config]) -> BTreeMap<(usize, u32), usize> {
    let fits = |config: &Config| budget::window(config.base(), &config.flows);
    let most: Vec<usize> = configs.iter().map(fits).collect();
    let least_of = |path: &Path| {
        let passed = most.iter().enumerate().filter(|(node, _)| path.passes(*node));
        passed.map(|(_, window)| *window).min()
    };
    let mut windows = BTreeMap::new();
    for (node, config) in configs.iter().enumerate() {
        for flow in config.flows.iter().filter(|flow| !flow.written.stream_symbols) {
            let Some(window) = flow.window() else { continue };
            // A path has its own number, and the return path has the next one.
            let begun = network.paths.iter().filter(|path| path.id <= flow.params.id);
            let path = begun.max_by_key(|path| path.id);
            let least = path.and_then(least_of).unwrap_or(usize::MAX);
            if least < window {
                windows.insert((node, flow.params.id), least);
            }
        }
    }
    windows
}

/// The part of the network that causes an entry in a node's file, and its line. If `fault` begins
/// with a written key, that key's line.
fn origin(
    network: &Network,
    needs: &Needs<'_>,
    place: &str,
    fault: &str,
) -> Option<(String, usize)> {
    let (kind, name) = place.split_once(' ').unwrap_or((place, ""));
    let key = fault.split([' ', '=']).next().unwrap_or_default();
    let line = |extras: &[Extra], else_line| {
        extras.iter().find(|extra| extra.key == key).map_or(else_line, |extra| extra.line)
    };
    let nodes = &network.nodes;
    Some(match kind {
        "daemon" => {
            let written = needs.daemon.iter().find(|extra| extra.key == key)?;
            ("daemon".to_owned(), written.line)
        }
        "link" => {
            let BoxLink { end, link, .. } = needs.links.iter().find(|link| link.name == name)?;
            (links::name(link, nodes), line(&link.extras, end.line))
        }
        "tunnel" => {
            let path = needs.tunnels.iter().find(|tunnel| tunnel.name == name)?.path;
            (path.place(nodes), line(&path.tunnel_extras, path.line))
        }
        "neighbour" => {
            // Neighbours have no names.
            let number: usize = name.strip_prefix("number ")?.parse().ok()?;
            let node = &nodes[needs.neighbours.get(number.checked_sub(1)?)?.node];
            (format!("node {}", node.name), node.line)
        }
        "flow" => {
            let path = needs.flows.iter().find(|flow| flow.id.to_string() == name)?.path;
            (path.place(nodes), line(&path.flow_extras, path.line))
        }
        _ => return None,
    })
}
