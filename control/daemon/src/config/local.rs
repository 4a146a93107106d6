//! Our own address on a link whose `local` is not written: that of its interface.
//!
//! ```text
//!  addresses of the interface (recoded_host) --+
//!  neighbours of the link in the document -----+-> choose: one, or why none -> Names
//! ```
//!
//! The supervisor chooses and hands on what it chose, since the dataplane process runs with it
//! until the daemon stops: tables and sockets are made for one address. A check of the file alone
//! has no interfaces; the address is unspecified then, of the family of the neighbours.

use super::Address;
use super::document::{Document, Section};
use super::error::ConfigError;
use super::names::{Names, is_host_name, places};
use super::reader::{Reader, unicast};
use recoded_host::{OwnAddresses, own_addresses, shares_prefix};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use toml::Value;

/// What all errors say that can be done.
const CURE: &str = "write this host's address on the link";

/// A link whose `local` is not written.
struct Unwritten {
    /// Its place among the links.
    index: usize,
    interface: String,
    /// Neighbours by address, all of the family of the first.
    addresses: Vec<IpAddr>,
    /// Neighbours by host name.
    names: Vec<String>,
}

impl Names {
    /// Asks for all that a document leaves to this host: addresses of host names, and of the
    /// interfaces of links. What was known before holds where a resolver does not answer, and where
    /// an interface is gone. Takes as long as the resolver does.
    pub fn look_up(document: &Document, before: &Names) -> Names {
        let wanted = document.host_names();
        let names = Names::ask(wanted.iter().map(String::as_str)).after(before).only(&wanted);
        if document.unwritten().is_empty() {
            return names;
        }
        names.choosing(document, own_addresses().map_err(|error| error.to_string()), before)
    }

    /// The same, with what is left to this host by `in_force`: the addresses of its interfaces are
    /// those that a process has sockets for, whatever interfaces have now.
    #[must_use]
    pub fn beside(mut self, in_force: &Document, known: &Names) -> Names {
        for name in in_force.host_names() {
            if let Some(found) = known.hosts.get(&name) {
                self.hosts.entry(name).or_insert_with(|| found.clone());
            }
        }
        for Unwritten { interface, .. } in in_force.unwritten() {
            if let Some(own) = known.own.get(&interface) {
                self.own.insert(interface, own.clone());
            }
        }
        self
    }

    fn choosing(
        mut self,
        document: &Document,
        found: Result<OwnAddresses, String>,
        before: &Names,
    ) -> Names {
        for Unwritten { interface, addresses, names, .. } in document.unwritten() {
            let known = before.own.get(&interface).filter(|own| own.is_ok()).cloned();
            let lacks = |why: String| Err(format!("{why}, or {CURE}"));
            let own = match found.as_ref().map(|found| found.get(&interface)) {
                Err(error) => known.unwrap_or_else(|| lacks(error.clone())),
                Ok(None) => known.unwrap_or_else(|| {
                    lacks(format!("there is no interface {interface} here: correct interface"))
                }),
                Ok(Some(own)) if own.is_empty() => known.unwrap_or_else(|| {
                    lacks(format!("{interface} has no address here: give it one"))
                }),
                Ok(Some(own)) => {
                    let named = names.iter().filter_map(|name| self.hosts.get(name));
                    let named = named.map(|found| found.addresses.clone());
                    let hops = addresses.iter().map(|address| vec![*address]).chain(named);
                    choose(&interface, own, &hops.collect::<Vec<_>>())
                }
            };
            self.own.insert(interface, own);
        }
        self
    }
}

impl Document {
    /// Whether it leaves something to the host that it is for.
    pub fn asks_host(&self) -> bool {
        !self.host_names().is_empty() || !self.unwritten().is_empty()
    }

    fn unwritten(&self) -> Vec<Unwritten> {
        let links = self.links.iter().enumerate();
        let unwritten = links.filter(|(_, link)| link.get("local").is_none());
        unwritten.map(|(index, link)| self.unwritten_at(index, link)).collect()
    }

    fn unwritten_at(&self, index: usize, link: &Section) -> Unwritten {
        let text = |key| link.get(key).and_then(|entry| entry.value.as_str()).unwrap_or_default();
        let mut of_link = Unwritten {
            index,
            interface: text("interface").to_owned(),
            addresses: Vec::new(),
            names: Vec::new(),
        };
        let mut neighbours = self.neighbours.clone();
        let mut flows = self.flows.clone();
        for place in neighbours.iter_mut().chain(&mut flows).flat_map(places) {
            let Some(written) = place.value.as_str().filter(|_| place.link == text("name")) else {
                continue;
            };
            let first = of_link.addresses.first().copied();
            let is_like = |it: IpAddr| first.is_none_or(|first| first.is_ipv4() == it.is_ipv4());
            match unicast(written) {
                Some(address) if is_like(address) => of_link.addresses.push(address),
                Some(_) => {}
                None if is_host_name(written) => of_link.names.push(written.to_owned()),
                None => {}
            }
        }
        of_link
    }

    /// Puts our own addresses where `local` is not written; without `names`, for a check of the
    /// file alone, unspecified ones. Returns which links have IPv4, by name, as far as it is known.
    pub(super) fn resolve_own(
        &mut self,
        names: Option<&Names>,
        errors: &mut Vec<ConfigError>,
    ) -> BTreeMap<String, bool> {
        let mut unknown = Vec::new();
        for Unwritten { index, interface, addresses, names: by_name } in self.unwritten() {
            let own = names.map(|names| names.own.get(&interface).cloned());
            let own = own.map(|own| {
                own.unwrap_or_else(|| Err(format!("{interface} was not asked for: {CURE}")))
            });
            // A link without an interface is refused for that.
            if let Some(Err(rule)) = own.as_ref().filter(|_| !interface.is_empty()) {
                Reader::new(&self.links[index], index, errors).require("local", None::<()>, rule);
            }
            let is_ipv6 = addresses.first().is_some_and(IpAddr::is_ipv6);
            let none: IpAddr =
                if is_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
            let address = own.and_then(Result::ok);
            if address.is_none() && addresses.is_empty() && !by_name.is_empty() {
                unknown.push(index);
            }
            let address = address.unwrap_or(none).to_string();
            self.links[index].set("local", Value::String(address));
        }
        let known = self.links.iter().enumerate().filter(|(index, _)| !unknown.contains(index));
        known.filter_map(|(_, link)| family(link)).collect()
    }
}

/// The address from which neighbours are sent to: the one in whose subnet one of them is, else the
/// only one of their family. Each of `hops` may have several addresses, or none that is known.
fn choose(interface: &str, own: &[Address], hops: &[Vec<IpAddr>]) -> Result<IpAddr, String> {
    let is_like = |own: IpAddr, hop: &[IpAddr]| {
        hop.is_empty() || hop.iter().any(|it| it.is_ipv4() == own.is_ipv4())
    };
    let suits = |(own, _): &&Address| hops.iter().all(|hop| is_like(*own, hop));
    let all: Vec<Address> = own.iter().filter(suits).copied().collect();
    let is_near = |(own, prefix): &&Address| {
        hops.iter().flatten().any(|hop| shares_prefix(*own, *hop, *prefix))
    };
    // Neighbours behind a router have no route to an address that is of one link only.
    let is_routed = |(own, _): &&Address| match own {
        IpAddr::V6(own) => !own.is_unicast_link_local(),
        IpAddr::V4(_) => true,
    };
    let near: Vec<Address> = all.iter().filter(is_near).copied().collect();
    let routed: Vec<Address> = all.iter().filter(is_routed).copied().collect();
    match &near[..] {
        [(address, _)] => return Ok(*address),
        [] => {}
        several => return Err(ambiguous(interface, several)),
    }
    match &routed[..] {
        [(address, _)] => Ok(*address),
        [] => Err(format!(
            "{interface} has none that suits its neighbours, but {}: add one, or {CURE}",
            listed(own)
        )),
        several => Err(ambiguous(interface, several)),
    }
}

fn ambiguous(interface: &str, own: &[Address]) -> String {
    let listed = listed(own);
    format!(
        "{interface} has several that it could be, {listed}: write the one that neighbours know"
    )
}

fn listed(own: &[Address]) -> String {
    let shown = own.iter().map(|(address, prefix)| format!("{address}/{prefix}"));
    shown.collect::<Vec<_>>().join(", ")
}

/// Name of a link, and whether its own address is IPv4.
fn family(link: &Section) -> Option<(String, bool)> {
    let text = |key| link.get(key).and_then(|entry| entry.value.as_str());
    let local: IpAddr = text("local")?.parse().ok()?;
    Some((text("name")?.to_owned(), local.is_ipv4()))
}

#[cfg(test)]
mod tests;
