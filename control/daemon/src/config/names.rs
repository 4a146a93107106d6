//! Host names of neighbours: looked up with the system's resolver and replaced by addresses before
//! any other rule applies. Own addresses, which interfaces have, take the same path
//! ([`super::local`]).
//!
//! ```text
//!  file -> Document -> resolve: names become addresses -> Config, which remembers the names
//!                        ^
//!  the system's resolver -> Names (supervisor; the dataplane process gets them from there)
//! ```
//!
//! The resolver waits for other hosts, so it runs in separate threads and never in the process that
//! sees packets.

use super::document::{Document, Named, Section};
use super::reader::is_unicast;
use super::{Config, Neighbour};
use recoded_network::is_host_name;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use toml::Value;

/// Names looked up concurrently: each takes a thread while it waits.
const ASKED_AT_ONCE: usize = 16;

/// Lookup results for a configuration: names of other hosts, and this host's interfaces.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Names {
    /// Resolver result for each host name.
    #[serde(flatten)]
    pub(super) hosts: BTreeMap<String, Resolution>,
    /// Whether links whose `local` and neighbours are not written as addresses use IPv4, by
    /// interface. The serialised key is not a valid host name.
    #[serde(default, rename = "have IPv4", skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) families: BTreeMap<String, bool>,
}

/// Resolver result for a host name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Resolution {
    /// Unicast addresses, the preferred one first.
    pub(super) addresses: Vec<IpAddr>,
    /// Why there are none.
    pub(super) trouble: String,
}

impl Names {
    /// Queries the system's resolver: files, DNS, or whatever else the host is configured for.
    /// Blocks until it replies, which may take seconds for a name that does not exist.
    pub fn ask<'a>(names: impl IntoIterator<Item = &'a str>) -> Names {
        Names::ask_by(names, &|name| {
            Ok((name, 0).to_socket_addrs()?.map(|found| found.ip().to_canonical()).collect())
        })
    }

    /// The same with a timeout; names that the resolver has not returned by then have no address.
    pub fn ask_within(names: Vec<String>, patience: Duration) -> Names {
        let (tell, told) = mpsc::channel();
        let deadline = Instant::now() + patience;
        for some in names.chunks(ASKED_AT_ONCE) {
            let (some, tell) = (some.to_vec(), tell.clone());
            // The thread outlives this call if the resolver is slow; a name costs at most one
            // thread.
            let asked = std::thread::Builder::new().name("recoded-names".into()).spawn(move || {
                let _ = tell.send(Names::ask(some.iter().map(String::as_str)));
            });
            if let Err(error) = asked {
                tracing::error!(%error, "host names need a thread: raise the process's limits");
            }
        }
        drop(tell);
        let mut all = Names::default();
        while let Ok(found) = told.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            all.hosts.extend(found.hosts);
        }
        for name in names {
            all.hosts.entry(name).or_insert_with(|| Resolution {
                trouble: format!("nothing within {} s", patience.as_secs()),
                ..Resolution::default()
            });
        }
        all
    }

    fn ask_by<'a>(
        names: impl IntoIterator<Item = &'a str>,
        resolver: &(dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Sync),
    ) -> Names {
        let names: BTreeSet<&str> = names.into_iter().collect();
        let names: Vec<&str> = names.into_iter().collect();
        let look = |name: &str| match resolver(name) {
            Err(error) => Resolution { trouble: error.to_string(), ..Resolution::default() },
            Ok(mut addresses) => {
                addresses.retain(|address| is_unicast(*address));
                let mut seen = BTreeSet::new();
                addresses.retain(|address| seen.insert(*address));
                let trouble = if addresses.is_empty() { "it has no address" } else { "" };
                Resolution { addresses, trouble: trouble.to_owned() }
            }
        };
        let mut found = BTreeMap::new();
        for some in names.chunks(ASKED_AT_ONCE) {
            let answers: Vec<Resolution> = std::thread::scope(|scope| {
                let threads: Vec<_> = some.iter().map(|name| scope.spawn(|| look(name))).collect();
                threads.into_iter().map(|it| it.join().unwrap_or_default()).collect()
            });
            found.extend(some.iter().map(|name| (*name).to_owned()).zip(answers));
        }
        Names { hosts: found, families: BTreeMap::new() }
    }

    /// Merges previous results: an address that a name still has stays first, so that a round-robin
    /// resolver causes no changes, and a name without an answer keeps its addresses.
    #[must_use]
    pub fn after(mut self, before: &Names) -> Names {
        for (name, known) in &before.hosts {
            let found = self.hosts.entry(name.clone()).or_default();
            if found.addresses.is_empty() {
                found.addresses.clone_from(&known.addresses);
            }
            let place = |address: &IpAddr| known.addresses.iter().position(|it| it == address);
            found.addresses.sort_by_key(|address| place(address).unwrap_or(usize::MAX));
        }
        for (interface, is_ipv4) in &before.families {
            self.families.entry(interface.clone()).or_insert(*is_ipv4);
        }
        self
    }

    /// Whether no host name is known.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Host names that are among `wanted`.
    #[must_use]
    pub fn only(mut self, wanted: &BTreeSet<String>) -> Names {
        self.hosts.retain(|name, _| wanted.contains(name));
        self
    }

    /// Whether a host name was looked up.
    pub fn has(&self, name: &str) -> bool {
        self.hosts.contains_key(name)
    }

    /// Addresses of a host name.
    pub fn addresses(&self, name: &str) -> Vec<IpAddr> {
        self.hosts.get(name).map(|found| found.addresses.clone()).unwrap_or_default()
    }

    /// Host names that have no address.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        let unknown = self.hosts.iter().filter(|(_, found)| found.addresses.is_empty());
        unknown.map(|(name, _)| name.as_str())
    }

    /// The address for a name on a link of this family, or why there is none.
    fn address(&self, name: &str, family: Option<bool>) -> Result<IpAddr, String> {
        let found = self.hosts.get(name).cloned().unwrap_or_default();
        let suits = |address: &&IpAddr| family.is_none_or(|is_ipv4| is_ipv4 == address.is_ipv4());
        if let Some(address) = found.addresses.iter().find(suits) {
            return Ok(*address);
        }
        if found.addresses.is_empty() {
            return Err(format!(
                "it does not resolve (this host's resolver says: {}): correct it, write the \
                 address, or have the name known in /etc/hosts or by DNS (getent ahosts {name} \
                 shows what is known)",
                if found.trouble.is_empty() { "nothing" } else { &found.trouble }
            ));
        }
        let (other, own) = if family == Some(true) { ("IPv6", "IPv4") } else { ("IPv4", "IPv6") };
        Err(format!("it has {other} addresses only, and the link has {own}"))
    }
}

impl Document {
    /// Host names in the document.
    pub fn host_names(&self) -> BTreeSet<String> {
        let mut copy = self.clone();
        let sections = copy.neighbours.iter_mut().chain(&mut copy.flows);
        let places = sections.flat_map(places);
        places.filter_map(|place| place.name().map(str::to_owned)).collect()
    }

    /// Replaces host names by addresses from `names`; without `names`, for a check of the file
    /// alone, by addresses that no host has. Unresolved names get such addresses, too, so that the
    /// rest can be checked and run ([`Named::trouble`]). An own address that is not written is
    /// unspecified, in the family of the neighbours.
    pub fn resolve(&mut self, names: Option<&Names>) {
        let mut named = Vec::<Named>::new();
        let families = self.resolve_own(names);
        for sections in [&mut self.neighbours, &mut self.flows] {
            for place in sections.iter_mut().flat_map(places) {
                let Some(name) = place.name().map(str::to_owned) else { continue };
                let AddressEntry { link, value, .. } = place;
                let known = named.iter().find(|it| it.link == link && it.name == name);
                if let Some(known) = known {
                    *value = Value::String(known.address.to_string());
                    continue;
                }
                let family = families.get(&link).copied();
                let found = names.map(|names| names.address(&name, family)).transpose();
                let (address, trouble) = match found {
                    Ok(found) => (found, String::new()),
                    Err(trouble) => (None, trouble),
                };
                let address = address.unwrap_or_else(|| none(family, named.len()));
                *value = Value::String(address.to_string());
                named.push(Named { link, address, name, trouble });
            }
        }
        self.named = named;
    }
}

impl Config {
    /// The address of a neighbour as it is written: its name, if it has one.
    pub fn written(&self, hop: &Neighbour) -> String {
        written(&self.named, &self.links[hop.link].name, hop.address)
    }
}

impl Config {
    /// Why the host name of a neighbour has no address, if it has none.
    pub fn trouble(&self, hop: &Neighbour) -> Option<&str> {
        let link = &self.links[hop.link].name;
        let found = self.named.iter().find(|it| it.link == *link && it.address == hop.address);
        found.map(|it| it.trouble.as_str()).filter(|trouble| !trouble.is_empty())
    }
}

/// The address of a neighbour as the file has it.
pub fn written(named: &[Named], link: &str, address: IpAddr) -> String {
    let found = named.iter().find(|it| it.link == link && it.address == address);
    found.map_or_else(|| address.to_string(), |it| it.name.clone())
}

/// Position of a neighbour's address in a file.
pub(super) struct AddressEntry<'a> {
    /// Name of the link.
    pub(super) link: String,
    pub(super) value: &'a mut Value,
}

impl AddressEntry<'_> {
    /// The host name at this position, if there is one.
    fn name(&self) -> Option<&str> {
        self.value.as_str().filter(|text| is_host_name(text))
    }
}

/// Every address of a neighbour in a section.
pub(super) fn places(section: &mut Section) -> Vec<AddressEntry<'_>> {
    let link = name_of(section.get("link").map(|entry| &entry.value));
    let mut places = Vec::new();
    for entry in &mut section.entries {
        match (section.kind, entry.key.as_str()) {
            ("neighbour", "address") => {
                places.push(AddressEntry { link: link.clone(), value: &mut entry.value });
                continue;
            }
            ("flow", "next_hops" | "upstream") => {}
            _ => continue,
        }
        match &mut entry.value {
            Value::Array(items) => places.extend(items.iter_mut().filter_map(in_table)),
            value => places.extend(in_table(value)),
        }
    }
    places
}

/// The address in one `{ link, address }`.
fn in_table(value: &mut Value) -> Option<AddressEntry<'_>> {
    let Value::Table(table) = value else { return None };
    let link = name_of(table.get("link"));
    let value = table.get_mut("address")?;
    Some(AddressEntry { link, value })
}

fn name_of(link: Option<&Value>) -> String {
    link.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// An address that no host has (RFC 1122, section 3.2.1.3; RFC 6666).
fn none(family: Option<bool>, index: usize) -> IpAddr {
    let number = u16::try_from(index + 1).unwrap_or(u16::MAX);
    let [high, low] = number.to_be_bytes();
    match family {
        Some(false) => Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, number).into(),
        _ => Ipv4Addr::new(0, 0, high, low).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{HEAD, SOURCE};

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    fn names(known: &[(&str, &[&str])]) -> Names {
        Names::ask_by(known.iter().map(|(name, _)| *name), &|name| {
            let found = known.iter().find(|(known, _)| *known == name).expect("asked for");
            match found.1 {
                [] => Err(io::Error::other("no such name")),
                texts => Ok(ips(texts)),
            }
        })
    }

    fn parse(text: &str, names: Option<&Names>) -> Result<Config, String> {
        let parsed = Config::parse_on("f", text, &|_| None, names);
        parsed.map(|(.., config)| config).map_err(|errors| errors.to_string())
    }

    /// A source whose next hop is given by name.
    fn named() -> String {
        format!("{HEAD}{SOURCE}").replace("10.0.2.2", "relay.example")
    }

    #[test]
    fn name_stands_for_an_address_of_the_family_of_its_link_and_stays_in_the_text() {
        let found = names(&[("relay.example", &["fd00::2", "0.0.0.0", "10.0.2.7", "10.0.2.8"])]);
        let config = parse(&named(), Some(&found)).expect("valid");
        assert_eq!(config.hops[0].address, ips(&["10.0.2.7"])[0]);
        let written = config.to_toml();
        assert!(written.contains("address = \"relay.example\""), "{written}");
        assert_eq!(parse(&written, Some(&found)).expect("valid"), config);
    }

    #[test]
    fn unknown_name_and_one_of_the_other_family_wait_with_the_reason_and_the_cure() {
        let text = named();
        let trouble = |known: &[&str]| {
            let config = parse(&text, Some(&names(&[("relay.example", known)]))).expect("valid");
            config.trouble(&config.hops[0]).map(str::to_owned)
        };
        let unknown = "it does not resolve (this host's resolver says: no such name): correct it, \
                       write the address, or have the name known in /etc/hosts or by DNS (getent \
                       ahosts relay.example shows what is known)";
        assert_eq!(trouble(&[]).as_deref(), Some(unknown));
        let other = "it has IPv6 addresses only, and the link has IPv4";
        assert_eq!(trouble(&["fd00::2"]).as_deref(), Some(other));
        assert_eq!(trouble(&["10.0.2.7"]), None);
        // A check of the file alone does not need resolved names.
        assert!(parse(&text, None).is_ok());
    }

    #[test]
    fn address_that_a_name_still_has_stays_and_silence_of_the_resolver_changes_nothing() {
        let before = names(&[("a", &["10.0.0.1", "10.0.0.2"]), ("b", &["10.0.0.9"])]);
        let turned = names(&[("a", &["10.0.0.2", "10.0.0.1"]), ("b", &[])]).after(&before);
        assert_eq!(turned.address("a", None), Ok(ips(&["10.0.0.1"])[0]));
        assert_eq!(turned.address("b", None), Ok(ips(&["10.0.0.9"])[0]));
        let moved = names(&[("a", &["10.0.0.3"])]).after(&turned);
        assert_eq!(moved.address("a", None), Ok(ips(&["10.0.0.3"])[0]));
    }

    #[test]
    fn resolver_of_this_host_knows_it() {
        let found = Names::ask(["localhost"]);
        let address = found.address("localhost", None);
        assert!(address.is_ok_and(|address| address.is_loopback()), "{found:?}");
    }
}
