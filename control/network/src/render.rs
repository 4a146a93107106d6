//! The configuration of one node as TOML: one line for each link, tunnel, neighbour and flow.

use crate::boxes::{self, BoxFlow, BoxHop, BoxTunnel};
use crate::model::{Auth, Extra, Network};
use recoded_api::keys::Role;
use toml_edit::{Array, InlineTable, Value};

/// Renders `recoded.toml` of node `node`. Keys with default values are omitted.
pub(crate) fn render(network: &Network, node: usize) -> String {
    let needs = boxes::of(network, node);
    let name = &network.nodes[node].name;
    let file = network.file.rsplit('/').next().unwrap_or_default();
    let file: String = file.chars().filter(|letter| !letter.is_control()).collect();
    let mut text = format!("# {name} of {file}, by recodectl render: change it there.\n");
    match network.auth {
        Auth::None => {}
        auth => {
            let path = Value::from(network.nodes[node].private_key.as_str());
            text += &format!("daemon.private_key = {path}\n");
            if auth == Auth::Hop {
                text += "daemon.auth = \"hop\"\n";
            }
        }
    }
    for Extra { key, value, .. } in needs.daemon {
        text += &format!("daemon.{key} = {value}\n");
    }
    let links = needs.links.iter().map(|link| {
        let mut table = InlineTable::new();
        table.insert("name", link.name.as_str().into());
        table.insert("interface", link.end.interface.as_str().into());
        let local = link.link.local(link.end, &network.nodes[node]);
        table.insert("local", local.to_string().into());
        with(table, link.link.extras.iter())
    });
    text += &lines("link", links);
    text += &lines("tunnel", needs.tunnels.iter().map(tunnel_table));
    let neighbours = needs.neighbours.iter().map(|hop| neighbour_table(network, hop));
    text += &lines("neighbour", neighbours);
    let flows = needs.flows.iter().map(|flow| {
        let mut table = InlineTable::new();
        table.insert("id", i64::from(flow.id).into());
        table.insert("role", flow.role.name().into());
        if let Some(tunnel) = &flow.tunnel {
            table.insert("tunnel", tunnel.as_str().into());
        }
        match &flow.upstreams[..] {
            [] => {}
            [one] => drop(table.insert("upstream", hop_table(one).into())),
            several => drop(table.insert("upstream", hop_tables(several).into())),
        }
        if !flow.next_hops.is_empty() {
            table.insert("next_hops", hop_tables(&flow.next_hops).into());
        }
        if let Some(spread) = flow.spread {
            table.insert("spread", spread.into());
        }
        if flow.is_copied {
            table.insert("stream_profile", "interactive".into());
        }
        keys(&mut table, flow);
        if let Some(name) = flow.edge_name {
            table.insert("edge_name", name.into());
        }
        // Repair requests would never arrive, and auto selects a code that needs reports.
        let is_written = flow.extras.iter().any(|extra| extra.key == "repair");
        if flow.is_one_way && flow.role != Role::Relay && !is_written {
            table.insert("repair", false.into());
        }
        if let Some(window) = network.windows.get(&(node, flow.id)) {
            table.insert("stream_symbols", i64::try_from(*window).unwrap_or(i64::MAX).into());
        }
        with(table, flow.extras.iter().copied())
    });
    text + &lines("flow", flows)
}

/// A neighbour and its key.
fn neighbour_table(network: &Network, hop: &BoxHop<'_>) -> InlineTable {
    let mut table = hop_table(hop);
    if let Some(key) = &network.nodes[hop.node].key {
        table.insert("public_key", key.to_string().into());
    }
    if network.nodes[hop.node].roams {
        table.insert("roams", true.into());
    }
    // Paths without a return path have no handshakes, which carry the path number.
    let path = network.path_number(hop.over);
    if path > 0 && !hop.over.is_one_way() {
        table.insert("path", i64::try_from(path).unwrap_or(i64::MAX).into());
    }
    table.insert("name", network.nodes[hop.node].name.as_str().into());
    with(table, hop.over.shared.iter())
}

/// Keys of the other end, of relays that verify, and of the source.
fn keys(table: &mut InlineTable, flow: &BoxFlow<'_>) {
    if let Some(key) = &flow.edge {
        table.insert("edge_key", key.to_string().into());
        if flow.is_in_group {
            table.insert("edge_group", true.into());
        } else if flow.is_one_way {
            table.insert("edge_one_way", true.into());
        }
    }
    if !flow.sinks.is_empty() {
        let keys = Array::from_iter(flow.sinks.iter().map(ToString::to_string));
        table.insert("sink_keys", keys.into());
    }
    if !flow.relays.is_empty() {
        let keys = Array::from_iter(flow.relays.iter().map(ToString::to_string));
        table.insert("relay_keys", keys.into());
    }
    if let Some(key) = &flow.source {
        table.insert("source_key", key.to_string().into());
    }
}

fn tunnel_table(tunnel: &BoxTunnel<'_>) -> InlineTable {
    let mut table = InlineTable::new();
    table.insert("name", tunnel.name.as_str().into());
    let addresses = tunnel.addresses.iter().map(|net| Value::from(net.to_string()));
    let addresses = match tunnel.addresses {
        [one] => one.to_string().into(),
        _ => Value::Array(addresses.collect()),
    };
    table.insert("address", addresses);
    if !tunnel.routes.is_empty() {
        let nets = tunnel.routes.iter().map(|route| route.net.to_string());
        table.insert("routes", Value::Array(nets.collect()));
    }
    if let Some(families) = tunnel.exit {
        table.insert("exit", families.into());
    }
    if let Some(peer) = tunnel.tcp_split {
        table.insert("tcp_split", peer.to_string().into());
    }
    with(table, tunnel.path.tunnel_extras.iter())
}

fn hop_tables(hops: &[BoxHop<'_>]) -> Array {
    Array::from_iter(hops.iter().map(hop_table))
}

fn hop_table(hop: &BoxHop<'_>) -> InlineTable {
    let mut table = InlineTable::new();
    table.insert("link", hop.link.as_str().into());
    table.insert("address", hop.place.to_string().into());
    table
}

fn with<'a>(mut table: InlineTable, extras: impl Iterator<Item = &'a Extra>) -> InlineTable {
    for Extra { key, value, .. } in extras {
        table.insert(key.as_str(), value.clone());
    }
    table
}

/// An array of tables, one per line; empty if there are none.
fn lines(key: &str, tables: impl Iterator<Item = InlineTable>) -> String {
    let tables: Vec<String> = tables.map(|table| table.to_string().trim().to_owned()).collect();
    if tables.is_empty() {
        return String::new();
    }
    let between = format!(",\n{}", " ".repeat(key.len() + 4));
    format!("{key} = [{}]\n", tables.join(&between))
}
