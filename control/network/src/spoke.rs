//! A box that joins a hub: its line, the path between the two, and addresses for its tunnel.
//! Comments and formatting of the file stay, and so do ids of flows and tunnels of other boxes.

use crate::entry::{TUNNELS, document};
use crate::{BoxEntry, EntryError, Network, NodeAddress, with_boxes};
use ipnet::{IpNet, Ipv4Net};
use std::net::IpAddr;
use toml_edit::{Array, ArrayOfTables, Item, Table, Value};

/// Networks of tunnels are taken from this one around [`TUNNELS`]: 16,384 boxes.
const POOL_PREFIX: u8 = 16;

/// Two addresses, and those of the network and of broadcast.
const TUNNEL_PREFIX: u8 = 30;

/// Addresses of a tunnel.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Ends {
    /// That of the hub.
    pub hub: IpNet,
    /// That of the box.
    pub spoke: IpNet,
}

/// The path between a hub and a box.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spoke {
    /// Name of the hub.
    pub hub: String,
    /// Addresses of the tunnel.
    pub ends: Ends,
    /// Id of the flow to the box; the return flow has the next one.
    pub id: u32,
}

impl Ends {
    /// The first two addresses of a network; none if it has less.
    pub fn of(network: IpNet) -> Option<Ends> {
        let mut hosts = network.hosts();
        let mut next = || IpNet::new(hosts.next()?, network.prefix_len()).ok();
        Some(Ends { hub: next()?, spoke: next()? })
    }

    /// The network of both.
    pub fn network(&self) -> IpNet {
        self.hub.trunc()
    }
}

/// Addresses for a tunnel between box `hub` and another one. If no path has the network of the
/// hub's own address, that one is used, otherwise the first free one. None of `avoided` overlaps.
pub fn free_ends(network: &Network, hub: usize, avoided: &[IpNet]) -> Option<Ends> {
    let written = &network.nodes[hub].tunnel;
    let others = network.nodes.iter().enumerate().filter(|(node, _)| *node != hub);
    let mut taken: Vec<IpNet> = network.paths.iter().flat_map(|it| it.tunnel.concat()).collect();
    taken.extend(others.flat_map(|(_, node)| node.tunnel.clone()));
    for node in &network.nodes {
        // A default route leaves room for the networks of tunnels.
        taken.extend(node.routes.iter().filter(|net| net.prefix_len() > 0));
        let places = node.uplinks.places().filter_map(NodeAddress::address);
        taken.extend(places.map(IpNet::from));
    }
    if let [own] = written[..]
        && !taken.iter().any(|net| overlap(net, &own))
    {
        let mut hosts = own.hosts().filter(|address| *address != own.addr());
        let address: Option<IpAddr> = hosts.next();
        let spoke = address.and_then(|address| IpNet::new(address, own.prefix_len()).ok());
        if let Some(spoke) = spoke {
            return Some(Ends { hub: own, spoke });
        }
    }
    taken.extend(written);
    taken.extend(avoided);
    let pool = Ipv4Net::new(TUNNELS, POOL_PREFIX).ok()?.trunc();
    let mut nets = pool.subnets(TUNNEL_PREFIX).ok()?.map(IpNet::V4);
    nets.find(|free| !taken.iter().any(|net| overlap(net, free))).and_then(Ends::of)
}

fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(&other.network()) || other.contains(&one.network())
}

/// Returns `text` with a box and its path to a hub. The path between the only two boxes before,
/// which need not be written, is written first.
///
/// # Errors
/// [`EntryError`]: the text, or the box is in it.
pub fn with_spoke(text: &str, entry: &BoxEntry, spoke: &Spoke) -> Result<String, EntryError> {
    let mut before = document(text)?;
    let names = |item: Option<&Item>| -> Vec<String> {
        let boxes = item.and_then(Item::as_table_like).into_iter();
        boxes.flat_map(|boxes| boxes.iter().map(|(name, _)| name.to_owned())).collect()
    };
    let mut boxes = names(before.get("boxes"));
    if boxes.contains(&entry.name) {
        return Err(EntryError::Known(entry.name.clone()));
    }
    let paths = before.entry("path").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    if paths.as_array_of_tables().is_some_and(ArrayOfTables::is_empty) && boxes.len() == 2 {
        // The direction that `parse` derives.
        boxes.sort();
        push(paths, path(&boxes, None, 1))?;
    }
    let via = [spoke.hub.clone(), entry.name.clone()];
    push(paths, path(&via, Some(&spoke.ends), spoke.id))?;
    with_boxes(&before.to_string(), &[entry.to_string()])
}

fn path(via: &[String], ends: Option<&Ends>, id: u32) -> Table {
    let list = |items: &[String]| items.iter().map(String::as_str).collect::<Array>();
    let mut path = Table::new();
    path.insert("via", toml_edit::value(list(via)));
    if let Some(Ends { hub, spoke }) = ends {
        path.insert("tunnel", toml_edit::value(list(&[hub.to_string(), spoke.to_string()])));
    }
    // Ids by the order of paths would change if one before were removed.
    path.insert("id", toml_edit::value(i64::from(id)));
    path
}

fn push(paths: &mut Item, path: Table) -> Result<(), EntryError> {
    match paths {
        Item::ArrayOfTables(tables) => tables.push(path),
        Item::Value(Value::Array(array)) => array.push(path.into_inline_table()),
        _ => return Err(EntryError::Syntax("path is not [[path]]".into())),
    }
    Ok(())
}
