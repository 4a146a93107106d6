//! `routes`: subnets behind a box, and those that a path carries to its last box.

use crate::reader::{Entry, Reader};
use ipnet::IpNet;

const NODE_RULE: &str = "it lists the subnets behind the box, each from its first address: \
                         [\"192.168.7.0/24\", \"fd00:7::/64\"]";
const PATH_RULE: &str = "it lists the subnets that the first box sends to the last one, each from \
                         its first address: [\"0.0.0.0/0\", \"::/0\"] is everything";

/// Reads the subnets behind a node.
pub(crate) fn of_node(reader: &mut Reader<'_, '_>) -> Vec<IpNet> {
    let Some(entry) = reader.take("routes") else { return Vec::new() };
    let nets = list(&entry);
    if nets.is_none() {
        reader.wrong(&entry, NODE_RULE);
    }
    nets.unwrap_or_default()
}

/// Reads the subnets that the first box of a path sends to the last one, of this many receivers.
pub(crate) fn of_path(reader: &mut Reader<'_, '_>, receivers: usize) -> Vec<IpNet> {
    let Some(entry) = reader.take("routes") else { return Vec::new() };
    let nets = list(&entry);
    match &nets {
        None => reader.wrong(&entry, PATH_RULE),
        Some(_) if receivers > 1 => reader.wrong(&entry, "a path with routes has one receiver"),
        Some(_) => {}
    }
    nets.unwrap_or_default()
}

/// A list of subnets, each from its first address.
fn list(entry: &Entry<'_>) -> Option<Vec<IpNet>> {
    let net = |text: &str| text.parse().ok().filter(|net: &IpNet| net.trunc() == *net);
    let items = entry.value.as_array()?;
    items.iter().map(|item| net(item.get_ref().as_str()?)).collect()
}
