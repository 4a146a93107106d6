//! Links without a configured `local`: the own address is that of the interface and follows its
//! changes (`dataplane/runtime`, `own`). Here it is the unspecified address, in the family of the
//! neighbours.
//!
//! ```text
//!  neighbours by address -----------------------------------> family of the link
//!  neighbours by name -> the resolver -> addresses --^
//!                        interfaces (recoded_host) --^
//! ```

use super::document::{Document, Section};
use super::names::{Names, places};
use super::reader::unicast;
use recoded_host::{OwnAddresses, own_addresses};
use recoded_network::is_host_name;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use toml::Value;

/// A link without a configured `local`.
struct Unwritten {
    /// Its index among the links.
    index: usize,
    interface: String,
    /// Whether its neighbours use IPv4, by the first one written as an address.
    is_ipv4: Option<bool>,
    /// Neighbours by host name.
    names: Vec<String>,
}

impl Names {
    /// Looks up all that a document leaves to this host: addresses of host names. Previous results
    /// stay if the resolver does not answer within `patience`.
    pub fn look_up(document: &Document, before: &Names, patience: Duration) -> Names {
        let wanted = document.host_names();
        let asked = Names::ask_within(wanted.iter().cloned().collect(), patience);
        let mut names = asked.after(before).only(&wanted);
        let own = own_addresses().unwrap_or_default();
        for Unwritten { interface, is_ipv4, names: hosts, .. } in document.unwritten() {
            let known = before.families.get(&interface).copied();
            if let Some(family) = names.family(&hosts, &own, &interface).or(known)
                && is_ipv4.is_none()
            {
                names.families.insert(interface, family);
            }
        }
        names
    }

    /// The family that neighbours given by name share with the interface; if none, that of the
    /// first.
    fn family(&self, hosts: &[String], own: &OwnAddresses, interface: &str) -> Option<bool> {
        let addresses = |host: &String| {
            let found = self.hosts.get(host).map(|found| &found.addresses[..]);
            found.filter(|addresses| !addresses.is_empty())
        };
        let own = own.get(interface).map(Vec::as_slice).unwrap_or_default();
        let has = |family: bool| {
            let is_there = own.is_empty() || own.iter().any(|(it, _)| it.is_ipv4() == family);
            let mut known = hosts.iter().filter_map(addresses);
            is_there && known.all(|all| all.iter().any(|it| it.is_ipv4() == family))
        };
        let first = hosts.iter().find_map(addresses)?.first()?.is_ipv4();
        [first, !first].into_iter().find(|family| has(*family)).or(Some(first))
    }
}

impl Document {
    /// Whether the document depends on lookups of this host.
    pub fn asks_host(&self) -> bool {
        !self.host_names().is_empty()
    }

    fn unwritten(&self) -> Vec<Unwritten> {
        let links = self.links.iter().enumerate();
        let unwritten = links.filter(|(_, link)| link.get("local").is_none());
        unwritten.map(|(index, link)| self.unwritten_at(index, link)).collect()
    }

    fn unwritten_at(&self, index: usize, link: &Section) -> Unwritten {
        let text = |key| link.get(key).and_then(|entry| entry.value.as_str()).unwrap_or_default();
        let interface = text("interface").to_owned();
        let mut of_link = Unwritten { index, interface, is_ipv4: None, names: Vec::new() };
        let mut neighbours = self.neighbours.clone();
        let mut flows = self.flows.clone();
        for place in neighbours.iter_mut().chain(&mut flows).flat_map(places) {
            let Some(written) = place.value.as_str().filter(|_| place.link == text("name")) else {
                continue;
            };
            match unicast(written) {
                Some(address) => {
                    of_link.is_ipv4.get_or_insert(address.is_ipv4());
                }
                None if is_host_name(written) => of_link.names.push(written.to_owned()),
                None => {}
            }
        }
        of_link
    }

    /// Inserts unspecified addresses for missing `local` keys. Returns by link name whether it uses
    /// IPv4, as far as known.
    pub(super) fn resolve_own(&mut self, names: Option<&Names>) -> BTreeMap<String, bool> {
        let mut unknown = Vec::new();
        for Unwritten { index, interface, is_ipv4, names: hosts } in self.unwritten() {
            let found = names.and_then(|names| names.families.get(&interface).copied());
            let family = is_ipv4.or(found);
            if family.is_none() && !hosts.is_empty() {
                unknown.push(index);
            }
            let any: IpAddr = match family {
                Some(false) => Ipv6Addr::UNSPECIFIED.into(),
                _ => Ipv4Addr::UNSPECIFIED.into(),
            };
            self.links[index].set("local", Value::String(any.to_string()));
        }
        let known = self.links.iter().enumerate().filter(|(index, _)| !unknown.contains(index));
        known.filter_map(|(_, link)| family(link)).collect()
    }
}

/// Name of a link, and whether its own address is IPv4.
fn family(link: &Section) -> Option<(String, bool)> {
    let text = |key| link.get(key).and_then(|entry| entry.value.as_str());
    let local: IpAddr = text("local")?.parse().ok()?;
    Some((text("name")?.to_owned(), local.is_ipv4()))
}

#[cfg(test)]
mod tests;
