//! Routing rules that keep packets of links outside of a tunnel with a default route.
//!
//! ```text
//!  9420: oif eth0 lookup main                       sockets of links, which are bound to eth0
//!  9421: from 192.0.2.10 lookup main                answers from this host's address on eth0
//!  9422: lookup main suppress_prefixlength 0        all routes of the host but its default ones
//!  9423: lookup 9426                                the default route into the tunnel
//! ```
//!
//! Packets need no mark: sockets of links are bound to an interface, and Linux then uses only
//! routes by it. With the second rule, a strict `rp_filter` accepts packets of neighbours, and
//! connections from outside to this host are answered where they came from.

use super::Netlink;
use crate::error::StartError;
use futures_util::stream::StreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{RouteHeader, RouteProtocol};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{Error, IpVersion};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::pin::pin;

/// Protocol number of these rules and of routes into tunnels, which no routing daemon has.
pub(super) const TUNNEL_PROTOCOL: RouteProtocol = RouteProtocol::Other(83);

/// The table of default routes into tunnels.
pub const EXIT_TABLE: u32 = 9426;

/// Priority of the first rule. Rules of others are usually above 32000, or below 10000 to go first.
const PRIORITY_FIRST: u32 = 9420;

/// EOPNOTSUPP and EAFNOSUPPORT.
const ABSENT: [i32; 2] = [95, 97];

/// The packets that a rule is for, in the order of evaluation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Selector {
    /// Packets of sockets that are bound to this interface.
    Bound(String),
    /// Packets from this address.
    From(IpAddr),
    /// Packets that another route than a default one leads to their destination.
    Specific,
    /// All packets.
    All,
}

/// A rule of this program.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rule {
    pub(crate) selector: Selector,
    pub(crate) is_ipv4: bool,
}

impl Rule {
    fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        let header = &mut message.header;
        header.family = if self.is_ipv4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
        header.action = RuleAction::ToTable;
        let (order, attribute, table) = match &self.selector {
            Selector::Bound(name) => (0, Some(RuleAttribute::Oifname(name.clone())), None),
            Selector::From(address) => {
                header.src_len = if address.is_ipv4() { 32 } else { 128 };
                (1, Some(RuleAttribute::Source(*address)), None)
            }
            Selector::Specific => (2, Some(RuleAttribute::SuppressPrefixLen(0)), None),
            Selector::All => (3, None, Some(EXIT_TABLE)),
        };
        if table.is_none() {
            header.table = RouteHeader::RT_TABLE_MAIN;
        }
        message.attributes.extend([
            RuleAttribute::Priority(PRIORITY_FIRST + order),
            RuleAttribute::Protocol(TUNNEL_PROTOCOL),
        ]);
        message.attributes.extend(attribute.into_iter().chain(table.map(RuleAttribute::Table)));
        message
    }

    /// The rule that a message describes; none if it differs from all that this program adds.
    fn read(message: &RuleMessage) -> Option<Rule> {
        let is_ipv4 = message.header.family == AddressFamily::Inet;
        let mut selector = Selector::All;
        let (mut table, mut priority) = (u32::from(message.header.table), 0);
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Oifname(name) => selector = Selector::Bound(name.clone()),
                RuleAttribute::Source(address) => selector = Selector::From(*address),
                RuleAttribute::SuppressPrefixLen(0) => selector = Selector::Specific,
                RuleAttribute::Table(id) => table = *id,
                RuleAttribute::Priority(number) => priority = *number,
                _ => {}
            }
        }
        let rule = Rule { selector, is_ipv4 };
        let known = rule.message();
        let is_at = |attribute: &RuleAttribute| *attribute == RuleAttribute::Priority(priority);
        let known_table = match rule.selector {
            Selector::All => EXIT_TABLE,
            _ => u32::from(RouteHeader::RT_TABLE_MAIN),
        };
        (known.attributes.iter().any(is_at) && table == known_table).then_some(rule)
    }
}

impl Netlink {
    /// Makes the rules of this program those that are `wanted`. Rules of others stay. Returns
    /// whether anything changed.
    ///
    /// # Errors
    /// [`StartError::Netlink`]: Linux refuses; the rules may be incomplete then.
    pub(crate) fn keep_rules(&self, wanted: &BTreeSet<Rule>) -> Result<bool, StartError> {
        let failed = |error: Error| StartError::Netlink {
            reason: format!("rules for the default route into a tunnel: {error}"),
        };
        let mut present = BTreeSet::new();
        let mut surplus = Vec::new();
        for message in self.own_rules().map_err(failed)? {
            match Rule::read(&message).filter(|rule| wanted.contains(rule)) {
                Some(rule) if present.insert(rule.clone()) => {}
                rule => surplus.push((rule, message)),
            }
        }
        // Last first, so that nothing enters the tunnel that the earlier ones keep out.
        surplus.sort_by(|(one, _), (other, _)| other.cmp(one));
        let is_changed = !surplus.is_empty() || present.len() < wanted.len();
        for (_, message) in surplus {
            let removed = self.handle.rule().del(message).execute();
            self.executor.block_on(removed).map_err(failed)?;
        }
        for rule in wanted.difference(&present) {
            let mut request = self.handle.rule().add();
            *request.message_mut() = rule.message();
            self.executor.block_on(request.execute()).map_err(failed)?;
        }
        Ok(is_changed)
    }

    fn own_rules(&self) -> Result<Vec<RuleMessage>, Error> {
        let is_own = |rule: &RuleMessage| {
            rule.attributes.contains(&RuleAttribute::Protocol(TUNNEL_PROTOCOL))
        };
        self.executor.block_on(async {
            let mut found = Vec::new();
            for family in [IpVersion::V4, IpVersion::V6] {
                let mut rules = pin!(self.handle.rule().get(family).execute());
                while let Some(rule) = rules.next().await {
                    match rule {
                        Ok(rule) => found.extend(Some(rule).filter(is_own)),
                        // A Linux without rules, or without IPv6, has none.
                        Err(Error::NetlinkError(error)) if ABSENT.contains(&-error.raw_code()) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Ok(found)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(own: &str) -> BTreeSet<Rule> {
        let own: IpAddr = own.parse().unwrap();
        let selectors = [
            Selector::Bound("eth0".into()),
            Selector::From(own),
            Selector::Specific,
            Selector::All,
        ];
        let rule = |selector| Rule { selector, is_ipv4: own.is_ipv4() };
        selectors.into_iter().map(rule).collect()
    }

    #[test]
    fn rules_are_added_once_follow_an_address_and_go_while_those_of_others_stay() {
        crate::tunnel::in_namespace(|name| {
            let show = |family: &str| {
                let mut ip = std::process::Command::new("ip");
                let shown = ip.args(["-n", name, family, "rule", "show"]).output().unwrap().stdout;
                String::from_utf8(shown).unwrap()
            };
            let add = ["-n", name, "rule", "add", "pref", "9421", "from", "10.0.0.9", "table", "7"];
            assert!(std::process::Command::new("ip").args(add).status().unwrap().success());
            let before = [show("-4"), show("-6")];
            let netlink = Netlink::open().unwrap();
            let mut wanted = rules("192.0.2.1");
            wanted.extend(rules("2001:db8::1"));
            assert!(netlink.keep_rules(&wanted).unwrap());
            assert!(!netlink.keep_rules(&wanted).unwrap(), "{}", show("-4"));
            let shown = show("-4");
            for line in [
                "9420:\tfrom all oif eth0 lookup main proto 83",
                "9421:\tfrom 192.0.2.1 lookup main proto 83",
                "9422:\tfrom all lookup main suppress_prefixlength 0 proto 83",
                "9423:\tfrom all lookup 9426 proto 83",
            ] {
                let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
                let line = words(line);
                let bare = line.replace("oif eth0", "oif eth0 [detached]");
                let lines: Vec<String> = shown.lines().map(words).collect();
                assert!(lines.contains(&line) || lines.contains(&bare), "{shown}");
            }
            let moved = rules("192.0.2.7");
            assert!(netlink.keep_rules(&moved).unwrap());
            let shown = show("-4");
            assert!(shown.contains("192.0.2.7") && !shown.contains("192.0.2.1"), "{shown}");
            assert_eq!(show("-6"), before[1]);
            assert!(netlink.keep_rules(&BTreeSet::new()).unwrap());
            assert_eq!([show("-4"), show("-6")], before);
        });
    }
}
