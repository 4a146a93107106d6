//! `[[link]]`: adjacent nodes, and the interfaces between them.

use crate::host_name::is_host_name;
use crate::model::{End, Link, Node, NodeAddress, extra};
use crate::reader::{Reader, Text, listed};
use crate::{Fault, NetworkError};
use recoded_api::keys::LINK;
use std::net::IpAddr;
use toml::de::DeTable;

const END_RULE: &str = "write the address and the interface of this end as ip does: \"192.0.2.1 dev eth0\"; instead \
     of the address its host name will do";

/// Keys of `[[neighbour]]` that both ends of a link share.
const SHARED: [&str; 2] = ["preshared_key", "one_way"];

/// Reads one link, which must not conflict with `earlier` ones.
pub(crate) fn link(
    text: &Text<'_>,
    table: &DeTable<'_>,
    line: usize,
    nodes: &[Node],
    earlier: &[Link],
    errors: &mut Vec<NetworkError>,
) -> Option<Link> {
    let mut reader = Reader::new("link".to_owned(), line, text.entries(table), errors);
    let (mut ends, mut extras, mut whole, mut written) = (Vec::new(), Vec::new(), true, 0);
    let mut shared = Vec::new();
    for entry in reader.rest() {
        if SHARED.contains(&entry.key) {
            shared.push(extra(&entry));
            continue;
        }
        let structural = ["name", "interface", "local"];
        if LINK.find(entry.key).is_some() && !structural.contains(&entry.key) {
            extras.push(extra(&entry));
            continue;
        }
        written += 1;
        let node = nodes.iter().position(|node| node.name == entry.key);
        let end = entry.value.as_str().and_then(end);
        if node.is_none() {
            let names = listed(nodes.iter().map(|node| node.name.as_str()));
            let hint = format!(
                "the boxes are {names}; besides, a link has rate_mbit, preshared_key and one_way"
            );
            reader.refuse(entry.line, Fault::NoNode { name: entry.key.to_owned(), hint });
        }
        if end.is_none() {
            reader.wrong(&entry, END_RULE);
        }
        match (node, end) {
            (Some(node), Some((place, interface))) => {
                ends.push(End::written(node, interface, place, entry.line));
            }
            _ => whole = false,
        }
    }
    if written != 2 {
        reader.refuse(line, Fault::Ends { count: written });
    }
    let ends: [End; 2] = ends.try_into().ok().filter(|_| whole && written == 2)?;
    let link = Link { ends, extras, shared, line };
    reader.place = name(&link, nodes);
    check(&mut reader, &link, nodes, earlier);
    Some(link)
}

/// Name of a link in messages.
pub(crate) fn name(link: &Link, nodes: &[Node]) -> String {
    let [one, other] = &link.ends;
    format!("link {} - {}", nodes[one.node].name, nodes[other.node].name)
}

fn end(text: &str) -> Option<(NodeAddress, String)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [at, "dev", interface] = words[..] else { return None };
    Some((place(at)?, self::interface(interface)?))
}

/// An address that one host can have, or a host name.
pub(crate) fn place(text: &str) -> Option<NodeAddress> {
    match text.parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() || address.is_multicast() => None,
        Ok(address) => Some(NodeAddress::Address(address)),
        Err(_) => is_host_name(text).then(|| NodeAddress::Name(text.to_owned())),
    }
}

/// A name that an interface can have.
pub(crate) fn interface(text: &str) -> Option<String> {
    let is_plain = !text.chars().any(|it| it == '/' || it.is_whitespace() || it.is_control());
    ((1..=15).contains(&text.len()) && is_plain).then(|| text.to_owned())
}

/// Applies the rules of links, against those before it.
pub(crate) fn check(reader: &mut Reader<'_, '_>, link: &Link, nodes: &[Node], earlier: &[Link]) {
    let [one, other] = &link.ends;
    if let (Some(one), Some(other)) = (one.place.address(), other.place.address())
        && one.is_ipv4() != other.is_ipv4()
    {
        let (one, other) = (one.to_string(), other.to_string());
        reader.refuse(link.line, Fault::Families { one, other });
    }
    if one.place == other.place {
        reader.refuse(other.line, taken(other, one, nodes));
    }
    for before in earlier {
        // Between the same nodes it is another path if one of them uses another interface.
        let is_known = |end: &End| {
            let mut ends = before.ends.iter();
            ends.any(|there| there.node == end.node && there.interface == end.interface)
        };
        if is_known(one) && is_known(other) {
            reader.refuse(link.line, Fault::SecondLink { line: before.line });
        }
        for (end, there) in [one, other]
            .into_iter()
            .flat_map(|end| before.ends.iter().map(move |there| (end, there)))
        {
            check_ends(reader, end, there, nodes);
        }
        // One interface, one [[link]] of the daemon, one set of keys.
        check_extras(reader, link, before);
    }
}

fn check_ends(reader: &mut Reader<'_, '_>, end: &End, there: &End, nodes: &[Node]) {
    let same_node = end.node == there.node;
    let same_interface = same_node && end.interface == there.interface;
    if end.place == there.place && !same_interface && end.place.address().is_some() {
        reader.refuse(end.line, taken(end, there, nodes));
    }
    let is_awaited = |end: &End| matches!(end.place, NodeAddress::Awaited(_));
    if same_interface && end.place != there.place && !is_awaited(end) && !is_awaited(there) {
        let fault = Fault::Taken {
            what: format!("interface {}", end.interface),
            owner: format!("address {}", there.place),
            line: there.line,
            rule: "an interface has one address for coded packets: write the same one",
        };
        reader.refuse(end.line, fault);
    }
}

fn check_extras(reader: &mut Reader<'_, '_>, link: &Link, before: &Link) {
    let shared = link.ends.iter().find(|end| {
        before.ends.iter().any(|there| there.node == end.node && there.interface == end.interface)
    });
    let words = |link: &Link| {
        let words = link.extras.iter().map(|extra| format!("{} = {}", extra.key, extra.value));
        words.collect::<Vec<_>>()
    };
    if let Some(shared) = shared.filter(|_| words(link) != words(before)) {
        let fault = Fault::Taken {
            what: format!("interface {}", shared.interface),
            owner: format!(
                "another link with {}",
                match words(before) {
                    words if words.is_empty() => "no rate".to_owned(),
                    words => words.join(", "),
                }
            ),
            line: before.line,
            rule: "links of one interface have one rate: write the same in both",
        };
        reader.refuse(link.line, fault);
    }
}

fn taken(end: &End, there: &End, nodes: &[Node]) -> Fault {
    Fault::Taken {
        what: format!("address {}", end.place),
        owner: format!("{} dev {}", nodes[there.node].name, there.interface),
        line: there.line,
        rule: "each interface of each box has an address of its own",
    }
}
