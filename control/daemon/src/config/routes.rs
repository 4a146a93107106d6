//! `routes` of a tunnel: subnets behind its other end.

use super::document::Section;
use super::error::ConfigError;
use super::reader::{Reader, shown};
use super::{Address, Neighbour};
use ipnet::IpNet;

/// Most routes of a tunnel. Each costs Linux some hundred bytes, and a look at them twice a second.
const ROUTES_MAX: usize = 256;

/// Reads the key of a tunnel with these addresses.
pub(super) fn read(reader: &mut Reader<'_>, addresses: &[Address]) -> Option<Vec<Address>> {
    let routes = list(reader)?;
    let is_inside = |(route, _): &Address| {
        addresses.is_empty() || addresses.iter().any(|(own, _)| own.is_ipv4() == route.is_ipv4())
    };
    let Some(index) = routes.iter().position(|route| !is_inside(route)) else {
        return Some(routes);
    };
    let (address, prefix) = routes[index];
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let rule = format!("the tunnel carries no {family}: give it an {family} address, too");
    let (part, shown) = (format!("routes[{index}]"), format!("\"{address}/{prefix}\""));
    reader.refuse_part("routes", part, shown, "does not fit the tunnel", &rule);
    None
}

fn list(reader: &mut Reader<'_>) -> Option<Vec<Address>> {
    let rule = "it is a list of up to 256 subnets behind the other end, such as \
                [\"192.168.7.0/24\", \"fd00:7::/64\"]";
    let value = reader.value("routes")?;
    let Some(items) = value.as_array().filter(|items| items.len() <= ROUTES_MAX) else {
        reader.refuse("routes", "is not such a list", rule);
        return None;
    };
    let mut routes: Vec<Address> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let net: Option<IpNet> = item.as_str().and_then(|text| text.parse().ok());
        let whole;
        let (verdict, rule) = match net {
            None => ("is not a subnet", rule),
            Some(net) if net.addr() != net.network() => {
                whole = format!("a subnet begins with its first address: {}", net.trunc());
                ("is an address within a subnet", whole.as_str())
            }
            Some(net) if net.addr().is_multicast() => {
                ("is not unicast", "multicast is not routed into tunnels")
            }
            Some(net) if routes.contains(&(net.addr(), net.prefix_len())) => {
                ("is a repetition", "each subnet is listed once")
            }
            Some(net) => {
                routes.push((net.addr(), net.prefix_len()));
                continue;
            }
        };
        reader.refuse_part("routes", format!("routes[{index}]"), shown(item), verdict, rule);
        return None;
    }
    Some(routes)
}

/// Refuses subnets that two tunnels have, and those with an address of a neighbour: its coded
/// packets would enter the tunnel again. Default routes have rules that keep them out.
pub(super) fn check(tunnels: &[Section], hops: &[Neighbour], errors: &mut Vec<ConfigError>) {
    let mut seen: Vec<Address> = Vec::new();
    for (index, section) in tunnels.iter().enumerate() {
        let mut reader = Reader::new(section, index, errors);
        let routes = list(&mut reader).unwrap_or_default();
        for (position, (address, prefix)) in routes.into_iter().enumerate() {
            let Ok(net) = IpNet::new(address, prefix) else { continue };
            let (part, shown) = (format!("routes[{position}]"), format!("\"{net}\""));
            let mut inside = hops.iter().filter(|_| prefix > 0);
            if let Some(hop) = inside.find(|hop| net.contains(&hop.address)) {
                let rule = format!(
                    "it contains the neighbour {}, whose packets would enter the tunnel: list \
                     subnets without it, or {}, which leaves neighbours outside",
                    hop.address,
                    if hop.address.is_ipv4() { "0.0.0.0/0" } else { "::/0" }
                );
                reader.refuse_part("routes", part, shown, "leads links into the tunnel", &rule);
            } else if seen.contains(&(address, prefix)) {
                let rule = "each subnet is behind one tunnel";
                reader.refuse_part("routes", part, shown, "is taken", rule);
            } else {
                seen.push((address, prefix));
            }
        }
    }
}
