//! Firewall rules of this host, and whether they pass a UDP packet of a link.
//!
//! ```text
//!  nft -j list ruleset ─────> nft ──┐
//!                                   ├─> Chain, Rule, Match ─> decide ─> Decision
//!  iptables-legacy-save ─> iptables ┘
//! ```
//!
//! A match that is not understood may be true or false: a packet is reported as dropped only if no
//! such match could have accepted it.

use crate::shares_prefix;
use std::net::IpAddr;

pub mod iptables;

pub mod nft;

/// Nesting limit. Linux refuses chains that jump in a loop, and deeper nesting than this.
const DEPTH_MAX: usize = 16;

/// A chain of rules.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Chain {
    /// Its table, with the family: `inet filter`.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Hook at which packets enter it; none if only other chains lead to it.
    pub hook: Option<Hook>,
    /// Order of chains at a hook.
    pub priority: i64,
    /// Whether its default policy is to drop.
    pub drops: bool,
    /// Families of packets that pass it: IPv4, IPv6.
    pub families: [bool; 2],
    /// The program that owns the rules.
    pub owner: Owner,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// Hooks at which packets enter a chain.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Hook {
    /// Packets to this host.
    Input,
    /// Packets from this host.
    Output,
    /// All arriving packets, before routing.
    Prerouting,
}

/// The program that owns the rules.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Owner {
    /// nft.
    #[default]
    Nft,
    /// iptables-legacy or ip6tables-legacy.
    Iptables,
}

/// A rule: its verdict applies if all matches are true.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rule {
    /// All of them.
    pub matches: Vec<Match>,
    /// The action.
    pub verdict: Verdict,
}

/// Action of a rule.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Verdict {
    /// No decision, such as counting.
    #[default]
    Continue,
    /// The packet passes this chain.
    Accept,
    /// It is dropped or refused.
    Drop,
    /// It is redirected to another address or port.
    Divert,
    /// Evaluates the rules of another chain, then those after this one unless they decide.
    Jump(String),
    /// Evaluates the rules of another chain, and none after this one.
    Goto(String),
    /// Leaves this chain.
    Return,
    /// Not understood.
    Unknown,
}

/// A condition.
#[derive(Clone, PartialEq, Debug)]
pub enum Match {
    /// The packet's value is one of these.
    Is(Field, Vec<Value>),
    /// It is none of them.
    IsNot(Field, Vec<Value>),
    /// Not understood.
    Unknown,
}

/// A property of a packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Field {
    /// Incoming interface.
    In,
    /// Outgoing interface.
    Out,
    /// Protocol above IP.
    Protocol,
    /// IPv4 or IPv6.
    Family,
    /// UDP source port.
    SourcePort,
    /// UDP destination port.
    Port,
    /// Source address.
    Source,
    /// Destination address.
    Destination,
    /// Connection tracking state.
    State,
}

/// A value of a condition.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A name, or a prefix if it ends with `*`.
    Text(String),
    /// A number, or a range.
    Range(u64, u64),
    /// Addresses with the same prefix.
    Prefix(IpAddr, u8),
    /// Not understood.
    Unknown,
}

/// A packet between neighbours.
#[derive(Copy, Clone, Debug)]
pub struct Packet<'a> {
    /// The interface of the link.
    pub interface: &'a str,
    /// The neighbour.
    pub neighbour: IpAddr,
    /// The local address, if known.
    pub local: Option<IpAddr>,
    /// The port of both ends.
    pub port: u16,
    /// Whether Linux has seen packets of the other direction.
    pub is_established: bool,
    /// Hook at which it enters the rules.
    pub hook: Hook,
}

/// Outcome for a packet.
#[derive(Clone, PartialEq, Debug)]
pub enum Decision<'a> {
    /// It passes, or may.
    Passes,
    /// This chain drops it.
    Dropped(&'a Chain),
    /// This chain redirects it.
    Diverted(&'a Chain),
}

/// Outcome for a packet in all chains of its hook.
pub fn decide<'a>(chains: &'a [Chain], packet: &Packet) -> Decision<'a> {
    let family = usize::from(packet.neighbour.is_ipv6());
    let is_entered = |chain: &&Chain| chain.hook == Some(packet.hook) && chain.families[family];
    let mut entered: Vec<&Chain> = chains.iter().filter(is_entered).collect();
    entered.sort_by_key(|chain| chain.priority);
    for chain in entered {
        match outcome(chains, chain, packet, 0) {
            Outcome::Dropped => return Decision::Dropped(chain),
            Outcome::Undecided if chain.drops => return Decision::Dropped(chain),
            Outcome::Diverted => return Decision::Diverted(chain),
            Outcome::Accepted | Outcome::Undecided | Outcome::Unknown => {}
        }
    }
    Decision::Passes
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Outcome {
    Accepted,
    Dropped,
    Diverted,
    Undecided,
    Unknown,
}

fn outcome(chains: &[Chain], chain: &Chain, packet: &Packet, depth: usize) -> Outcome {
    if depth > DEPTH_MAX {
        return Outcome::Unknown;
    }
    for rule in &chain.rules {
        let Some(is_certain) = applies(rule, packet) else { continue };
        let target = |name: &str| {
            let mut all = chains.iter();
            let found = all.find(|it| it.table == chain.table && it.name == name);
            found.map_or(Outcome::Unknown, |found| outcome(chains, found, packet, depth + 1))
        };
        let found = match &rule.verdict {
            Verdict::Continue => continue,
            Verdict::Accept => Outcome::Accepted,
            Verdict::Drop => Outcome::Dropped,
            Verdict::Divert => Outcome::Diverted,
            Verdict::Unknown => Outcome::Unknown,
            Verdict::Return if is_certain => return Outcome::Undecided,
            Verdict::Return => Outcome::Unknown,
            Verdict::Jump(name) => match target(name) {
                Outcome::Undecided => continue,
                found => found,
            },
            Verdict::Goto(name) if is_certain => return target(name),
            Verdict::Goto(name) => target(name),
        };
        match found {
            found if is_certain => return found,
            // It may be accepted here.
            Outcome::Accepted | Outcome::Unknown => return Outcome::Unknown,
            _ => {}
        }
    }
    Outcome::Undecided
}

/// Whether the rule certainly applies; `None` if it certainly does not.
fn applies(rule: &Rule, packet: &Packet) -> Option<bool> {
    let mut is_certain = true;
    for one in &rule.matches {
        match one.holds(packet) {
            Some(true) => {}
            Some(false) => return None,
            None => is_certain = false,
        }
    }
    Some(is_certain)
}

impl Match {
    /// Whether it is true of a packet; `None` if unknown.
    fn holds(&self, packet: &Packet) -> Option<bool> {
        match self {
            Match::Is(field, values) => any(*field, values, packet),
            Match::IsNot(field, values) => any(*field, values, packet).map(|holds| !holds),
            Match::Unknown => None,
        }
    }
}

fn any(field: Field, values: &[Value], packet: &Packet) -> Option<bool> {
    let mut is_known = true;
    for value in values {
        match value.is(field, packet) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => is_known = false,
        }
    }
    is_known.then_some(false)
}

impl Value {
    fn is(&self, field: Field, packet: &Packet) -> Option<bool> {
        let is_in = packet.hook != Hook::Output;
        let ends = (Some(packet.neighbour), packet.local);
        let (source, destination) = if is_in { ends } else { (ends.1, ends.0) };
        match (field, self) {
            (_, Value::Unknown) => None,
            (Field::In, Value::Text(name)) => Some(is_in && is_named(packet.interface, name)),
            (Field::Out, Value::Text(name)) => Some(!is_in && is_named(packet.interface, name)),
            (Field::Protocol, Value::Text(name)) => Some(name == "udp"),
            (Field::Protocol, Value::Range(low, high)) => Some((*low..=*high).contains(&17)),
            (Field::Family, Value::Text(name)) => {
                Some((name == "ipv6") == packet.neighbour.is_ipv6())
            }
            (Field::Port | Field::SourcePort, Value::Range(low, high)) => {
                Some((*low..=*high).contains(&u64::from(packet.port)))
            }
            (Field::State, Value::Text(name)) => Some(match name.as_str() {
                "new" => !packet.is_established,
                "established" => packet.is_established,
                // Untracked packets are neither; the raw table is not examined.
                "untracked" => return None,
                _ => false,
            }),
            (Field::Source, Value::Prefix(of, bits)) => Some(shares_prefix(source?, *of, *bits)),
            (Field::Destination, Value::Prefix(of, bits)) => {
                Some(shares_prefix(destination?, *of, *bits))
            }
            _ => None,
        }
    }
}

fn is_named(interface: &str, pattern: &str) -> bool {
    match pattern.strip_suffix(['*', '+']) {
        Some(start) => interface.starts_with(start),
        None => interface == pattern,
    }
}
