//! Links between neighbours of `[boxes]`, derived from the paths: every box derives the same ones.
//!
//! ```text
//!  path a - b - c, no [[link]] a - b -> the two nearest addresses of a and b, one link
//!  uplinks of a box                  -> one link for each: parallel paths
//!  a box without an address          -> awaited: its neighbours learn its address when it sends
//! ```

use crate::model::{End, Link, Network, Node, NodeAddress, Uplink, Uplinks};
use crate::reader::Reader;
use crate::{Fault, NetworkError, links};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Adds a link for every hop of a path between boxes that have none.
pub(crate) fn derive(network: &mut Network, errors: &mut Vec<NetworkError>) {
    let hops: Vec<(usize, usize)> =
        network.paths.iter().flat_map(crate::model::Path::hops).collect();
    for (from, to) in hops {
        // A loop is another mistake.
        if from == to || network.links_between(from, to).next().is_some() {
            continue;
        }
        for link in between(&network.nodes, from, to, awaited(&network.links)) {
            let place = links::name(&link, &network.nodes);
            let mut reader = Reader::new(place, link.line, Vec::new(), errors);
            if link.ends.iter().all(|end| matches!(end.place, NodeAddress::Awaited(_))) {
                let [one, other] = [from, to].map(|node| network.nodes[node].name.clone());
                reader.refuse(link.line, Fault::NoPlace { one, other });
                break;
            }
            links::check(&mut reader, &link, &network.nodes, &network.links);
            network.links.push(link);
        }
    }
}

/// The number of ends whose address is awaited.
fn awaited(links: &[Link]) -> usize {
    let ends = links.iter().flat_map(|link| &link.ends);
    ends.filter(|end| matches!(end.place, NodeAddress::Awaited(_))).count()
}

/// The links between two boxes. `awaited` counts the ends before that wait for an address.
fn between(nodes: &[Node], from: usize, to: usize, mut awaited: usize) -> Vec<Link> {
    let (one, other) = (ways(&nodes[from]), ways(&nodes[to]));
    let mut chosen: Vec<(usize, usize)> =
        (0..one.len()).flat_map(|one| (0..other.len()).map(move |other| (one, other))).collect();
    let is_each = |node: usize| matches!(nodes[node].uplinks, Uplinks::Each(_));
    let place =
        |ways: &[Uplink], way: usize| ways[way].place.as_ref().and_then(NodeAddress::address);
    if !is_each(from) && !is_each(to) {
        // The first of those that are equally near.
        chosen.sort_by_key(|(left, right)| {
            std::cmp::Reverse(nearness(place(&one, *left), place(&other, *right)))
        });
        chosen.truncate(1);
    } else if !is_each(from) {
        chosen.retain(|(left, _)| *left == 0);
    } else if !is_each(to) {
        chosen.retain(|(_, right)| *right == 0);
    }
    let mut links = Vec::new();
    for (left, right) in chosen {
        let is_ipv6 =
            [place(&one, left), place(&other, right)].into_iter().flatten().any(|it| it.is_ipv6());
        let mut end = |node: usize, ways: &[Uplink], way: usize| {
            let Uplink { interface, place } = &ways[way];
            let place = place.clone().unwrap_or_else(|| {
                awaited += 1;
                NodeAddress::Awaited(nowhere(is_ipv6, awaited))
            });
            let found = interface.clone().unwrap_or_else(|| format!("auto{way}"));
            let is_found = interface.is_none();
            End { is_found, ..End::written(node, found, place, nodes[node].line) }
        };
        let ends = [end(from, &one, left), end(to, &other, right)];
        let line = nodes[to].line;
        links.push(Link { ends, extras: Vec::new(), shared: Vec::new(), line });
    }
    links
}

/// Ways into the network of a box.
fn ways(node: &Node) -> Vec<Uplink> {
    match &node.uplinks {
        Uplinks::At(at) => at.clone(),
        Uplinks::Each(interfaces) => {
            let uplink = |name: &String| Uplink { interface: Some(name.clone()), place: None };
            interfaces.iter().map(uplink).collect()
        }
    }
}

/// Bits that two addresses share in front; less than 0 if they are not of one family.
fn nearness(one: Option<IpAddr>, other: Option<IpAddr>) -> i64 {
    let bits = match (one, other) {
        (Some(IpAddr::V4(one)), Some(IpAddr::V4(other))) => {
            (u32::from(one) ^ u32::from(other)).leading_zeros()
        }
        (Some(IpAddr::V6(one)), Some(IpAddr::V6(other))) => {
            (u128::from(one) ^ u128::from(other)).leading_zeros()
        }
        (Some(_), Some(_)) => return -1,
        _ => 0,
    };
    i64::from(bits)
}

/// An address that no host has (RFC 1122, section 3.2.1.3; RFC 6666), another one for each number.
fn nowhere(is_ipv6: bool, number: usize) -> IpAddr {
    let number = u32::try_from(number).unwrap_or(u32::MAX).min(0x00ff_ffff);
    match is_ipv6 {
        true => Ipv6Addr::from((0x0100_u128 << 112) | u128::from(number)).into(),
        false => Ipv4Addr::from(number).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_one_subnet_are_nearer_than_others_and_families_do_not_mix() {
        let ip = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        let near = nearness(ip("192.0.2.1"), ip("192.0.2.2"));
        assert!(near > nearness(ip("192.0.2.1"), ip("198.51.100.1")));
        assert!(nearness(None, ip("192.0.2.1")) > nearness(ip("fd00::1"), ip("192.0.2.1")));
        assert_eq!(nowhere(false, 2).to_string(), "0.0.0.2");
        assert_eq!(nowhere(true, 2).to_string(), "100::2");
    }
}
