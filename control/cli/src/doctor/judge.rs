//! Findings from two looks at a daemon, some time apart.

use super::roots::WAITING_FOR;
use crate::activity::{
    SILENCE_CURE, SILENT_SECONDS, Silence, carries, other_protocol, silence, who,
};
use crate::sessions::is_of_source;
use crate::split::split_trouble;
use recoded::state::AWAITED;
use recoded_api::v1::{Flow, Link, Neighbour, State};
use recoded_counters::{Counter, Table, flow, link, split, tunnel, verdict, worker};
use recoded_host::{Finding, Level};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Default port of coded packets.
const PORT_DEFAULT: u16 = 9426;

/// Uptime after which neighbours should have responded.
const SETTLED_SECONDS: u64 = 10;

/// Clock difference that is reported.
const CLOCK_SECONDS: u64 = 30;

/// Prefix of the cure of counters that rise occasionally in normal operation. From this many counts
/// between two looks on, they are reported.
const HARMLESS: &str = "Nothing";
const HARMLESS_MOST: u64 = 100;

/// Drop reasons that stop a flow completely. Others may affect only a few packets.
const FATAL: [&str; 18] = [
    "unknown_flow",
    "unknown_peer",
    "wrong_role",
    "wrong_code",
    "oversize",
    "version",
    "drop_version",
    "drop_unknown_flow",
    "rx_icmp_no_port",
    "rx_icmp_unreachable",
    "handshake",
    "no_memory",
    "rx_not_ours",
    "tx_no_neighbour",
    "tx_oversize",
    "sealed_refused",
    "tx_bursts_ended",
    "rx_merging_ended",
];

/// Reasons that rise at every start: neighbours send before this node's flows have sockets, and
/// this node before it knows their addresses. Ignored until a process has settled.
const STARTING: [&str; 2] = ["drop_unknown_flow", "tx_no_neighbour"];

/// The UDP port of coded packets in the active configuration.
pub fn port(state: &State) -> u16 {
    let config: toml::Table = state.config.parse().unwrap_or_default();
    let port = config.get("daemon").and_then(|daemon| daemon.get("port")?.as_integer());
    port.and_then(|port| u16::try_from(port).ok()).unwrap_or(PORT_DEFAULT)
}

/// All findings.
pub fn judge(before: &State, after: &State) -> Vec<Finding> {
    let mut findings = Vec::new();
    links(after, &mut findings);
    auth(after, &mut findings);
    sessions(before, after, &mut findings);
    tunnels(after, &mut findings);
    for flow in &after.flows {
        self::flow(flow, &mut findings);
    }
    counters(before, after, &mut findings);
    findings
}

fn links(state: &State, findings: &mut Vec<Finding>) {
    for link in &state.links {
        let subject = format!("link {}", link.name);
        if !link.waits.is_empty() {
            let cure = "packets for it are dropped meanwhile; the daemon tries again by itself";
            findings.push(error(&subject, format!("waiting: {}", link.waits), cure.into()));
            continue;
        }
        for it in link.neighbours.iter().filter(|neighbour| !neighbour.waits.is_empty()) {
            let default = (it.waits.as_str(), "write an address of the family of the link");
            let (cause, cure) = it.waits.rsplit_once(": ").unwrap_or(default);
            let is_awaited = it.waits == AWAITED;
            let is_new = state.uptime_seconds as f64 <= SILENT_SECONDS;
            let level = match is_awaited {
                true => absent_level(state, link, it, is_new),
                false => Level::Error,
            };
            let cause = format!("{WAITING_FOR}{}: {cause}", it.address);
            let (subject, cure) = (subject.clone(), cure.to_owned());
            findings.push(Finding { level, subject, cause, cure, mend: Vec::new() });
        }
        if !matches!(link.state.as_str(), "" | "up") {
            let cause = format!("{} is {}", link.interface, link.state);
            let cure = format!("see ip link show {}", link.interface);
            findings.push(error(&subject, cause, cure));
        }
        let is_silent = |it: &&Neighbour| !it.resolved && it.waits.is_empty();
        // With UDP sockets, Linux resolves neighbours.
        let silent = link.neighbours.iter().filter(is_silent);
        for neighbour in silent.filter(|_| link.socket_mode != "udp") {
            findings.push(error(
                &subject,
                format!("the Ethernet address of {} is not known", who(link, neighbour)),
                "check that it is up, on this link, and answers ARP or neighbour discovery".into(),
            ));
        }
        unheard(state, link, findings);
        for neighbour in &link.neighbours {
            talked(&state.version, link, neighbour, findings);
        }
    }
}

/// Neighbours that send nothing, with or without traffic.
fn unheard(state: &State, link: &Link, findings: &mut Vec<Finding>) {
    for it in &link.neighbours {
        let subject = format!("link {}", link.name);
        if let Some([cause, cure]) = other_protocol(state, link, it) {
            findings.push(error(&subject, cause, cure));
            continue;
        }
        let Some(Silence { words, is_new }) = silence(state, link, it) else { continue };
        let level = absent_level(state, link, it, is_new);
        let cause = format!("{} {words}", who(link, it));
        let cure = SILENCE_CURE.to_owned();
        findings.push(Finding { level, subject, cause, cure, mend: Vec::new() });
    }
}

/// An absent neighbour is no error at first, and a box that roams may sleep while others carry
/// packets.
fn absent_level(state: &State, link: &Link, neighbour: &Neighbour, is_new: bool) -> Level {
    let is_harmless = is_new || roams(state, link, neighbour) && carries(state);
    if is_harmless { Level::Warning } else { Level::Error }
}

/// Whether the address of a neighbour may change, by the active configuration.
fn roams(state: &State, link: &Link, neighbour: &Neighbour) -> bool {
    let is_awaited = neighbour.address.parse::<IpAddr>().is_err();
    let config: toml::Table = state.config.parse().unwrap_or_default();
    let written = config.get("neighbour").and_then(|all| all.as_array());
    let mut written = written.into_iter().flatten();
    let is_it = |it: &toml::Value, key: &str, value: &str| {
        it.get(key).and_then(|it| it.as_str()) == Some(value)
    };
    is_awaited
        || written.any(|it| {
            let is_here = is_it(it, "link", &link.name) && is_it(it, "address", &neighbour.address);
            is_here && it.get("roams").and_then(|it| it.as_bool()) == Some(true)
        })
}

/// Findings from the neighbours' own reports.
fn talked(version: &str, link: &Link, neighbour: &Neighbour, findings: &mut Vec<Finding>) {
    let (who, ahead) = (who(link, neighbour), neighbour.clock_ahead_seconds);
    let subject = &format!("link {}", link.name);
    for it in &neighbour.disagreements {
        findings.push(error(subject, it.cause.clone(), it.cure.clone()));
    }
    if neighbour.said_ago_seconds.is_none() {
        return;
    }
    if neighbour.version != version {
        findings.push(warning(
            subject,
            format!("{who} runs recoded {}, this box {version}", neighbour.version),
            "run the same version on both, once it can be".into(),
        ));
    }
    if ahead.unsigned_abs() > CLOCK_SECONDS {
        let how = if ahead > 0 { "ahead of" } else { "behind" };
        findings.push(warning(
            subject,
            format!("the clock of {who} is {} s {how} this box's", ahead.unsigned_abs()),
            "have both follow NTP: logs cannot be compared, and restarts may find no keys".into(),
        ));
    }
    let ends = neighbour.packet_bytes.zip(neighbour.packet_bytes_there);
    if let Some((here, there)) = ends.filter(|(here, there)| here != there) {
        findings.push(warning(
            subject,
            format!("packets to {who} may have {here} bytes of UDP payload here and {there} there"),
            "set the same MTU at both ends of the link: longer packets are lost".into(),
        ));
    }
}

/// Whether this node has keys at all, according to the active configuration.
fn auth(state: &State, findings: &mut Vec<Finding>) {
    let config: toml::Table = state.config.parse().unwrap_or_default();
    let Some(daemon) = config.get("daemon") else { return };
    let is_none = daemon.get("auth").and_then(|auth| auth.as_str()) == Some("none");
    let has_key = daemon.get("private_key").is_some();
    if has_key && !is_none {
        return;
    }
    let (cause, cure) = match has_key {
        true => {
            ("auth = \"none\" is written, although there is a private_key", "write auth = \"full\"")
        }
        false => (
            "this box has no keys (auth = \"none\")",
            "make one with recodectl genkey and name its file as private_key, on every box",
        ),
    };
    let cause = format!("{cause}: anyone on the path can read, change and forge packets");
    findings.push(warning("keys", cause, cure.into()));
}

fn sessions(before: &State, state: &State, findings: &mut Vec<Finding>) {
    for session in state.sessions.iter().filter(|session| session.age_seconds.is_some()) {
        let mut older = before.sessions.iter();
        let old = older.find(|old| old.with == session.with).map_or(0, |old| old.refused);
        let refused = session.refused.saturating_sub(old);
        if refused > 0 {
            let reason = &session.refusal;
            findings.push(warning(
                &format!("session with {}", session.with),
                format!("{refused} handshakes were refused while looking ({reason})"),
                "compare the keys of both hosts with recodectl pubkey; if they match, look for \
                 forged packets"
                    .into(),
            ));
        }
    }
    for session in state.sessions.iter().filter(|session| session.age_seconds.is_none()) {
        let (cause, cure) = match session.refusal.as_str() {
            "" if is_of_source(session) => (
                "no columns of tags came: symbols are mixed unverified".to_owned(),
                "see that it has this host's public key (recodectl pubkey) among its relay_keys, \
                 and that source_key here is its key"
                    .to_owned(),
            ),
            "" if session.one_way => (
                "there are no keys: none of its epochs came".to_owned(),
                "check that recoded runs there, has one_way for this host, and that its packets \
                 arrive here"
                    .to_owned(),
            ),
            reason if session.one_way => (
                format!("there are no keys: the last ones were refused ({reason})"),
                "compare the pre-shared keys of both hosts, their public keys with recodectl \
                 pubkey, and one_way"
                    .to_owned(),
            ),
            "" => (
                "there are no keys: it does not answer handshakes".to_owned(),
                "check that recoded runs there, knows this host's public key (recodectl pubkey), \
                 and that packets pass in both directions"
                    .to_owned(),
            ),
            reason => (
                format!("there are no keys: the last handshake was refused ({reason})"),
                "compare the keys of both hosts with recodectl pubkey, their pre-shared keys, \
                 and their clocks"
                    .to_owned(),
            ),
        };
        let cause = match session.with.starts_with("flow ") && !session.name.is_empty() {
            true => cause.replacen("no keys", &format!("no keys with {}", session.name), 1),
            false => cause,
        };
        findings.push(error(&format!("session with {}", session.with), cause, cure));
    }
}

fn tunnels(state: &State, findings: &mut Vec<Finding>) {
    for tunnel in &state.tunnels {
        let subject = format!("tunnel {}", tunnel.name);
        // The connections then pass as they are, or wait for the other edge.
        if let Some((cause, cure)) = split_trouble(tunnel) {
            findings.push(error(&subject, cause, cure.into()));
        }
        match tunnel.state.as_str() {
            "" | "present" => {}
            "no-carrier" => findings.push(error(
                &subject,
                "it has no carrier, since no next hop of its stream answers".into(),
                "see the findings about its next hops".into(),
            )),
            state => findings.push(error(
                &subject,
                format!("it is {state}"),
                "find out who deletes the interface; it is made again".into(),
            )),
        }
        if tunnel.mtu < tunnel.mtu_configured {
            findings.push(warning(
                &subject,
                format!(
                    "the path carries packets of {} bytes, fewer than the {} configured",
                    tunnel.mtu, tunnel.mtu_configured
                ),
                "raise the MTU of the path, or set mtu of the tunnel to it".into(),
            ));
        }
    }
}

fn flow(flow: &Flow, findings: &mut Vec<Finding>) {
    let subject = format!("flow {}", flow.id);
    for hop in &flow.neighbours {
        if hop.silent {
            let heard = hop.heard_ago_seconds.map_or("no report so far".to_owned(), |seconds| {
                format!("last report {seconds:.0} s ago")
            });
            findings.push(error(
                &subject,
                format!(
                    "{} does not answer, although packets are sent to it; {heard}",
                    hop.next_hop
                ),
                "check that recoded runs there with this flow, and that packets pass in both \
                 directions"
                    .into(),
            ));
        }
        if let Some(lost) = hop.lost_packet_bytes {
            let arrived = hop
                .arrived_packet_bytes
                .map_or(String::new(), |bytes| format!(", those of {bytes} bytes do"));
            let cure = match hop.needed_packet_bytes {
                Some(needed) => format!(
                    "raise the MTU of the path to {needed} bytes or more; until then full packets \
                     are lost, since no tunnel has so small an MTU"
                ),
                None => "raise the MTU of the path; until then the tunnel has a smaller one".into(),
            };
            findings.push(warning(
                &subject,
                format!("packets of {lost} bytes do not arrive at {}{arrived}", hop.next_hop),
                cure,
            ));
        }
    }
}

fn counters(before: &State, after: &State, findings: &mut Vec<Finding>) {
    let empty = BTreeMap::new();
    let is_settled = before.uptime_seconds.min(after.uptime_seconds) >= SETTLED_SECONDS;
    let mut look = |subject: &str, table: Table, old: Option<&Counts>, new: &Counts| {
        rising(subject, table, old.unwrap_or(&empty), new, is_settled, findings);
    };
    look("packets", worker::TABLE, Some(&before.drops), &after.drops);
    look("packets", verdict::TABLE, Some(&before.verdicts), &after.verdicts);
    for new in &after.links {
        let old = before.links.iter().find(|old| old.name == new.name).map(|old| &old.faults);
        look(&format!("link {}", new.name), link::TABLE, old, &new.faults);
    }
    for new in &after.tunnels {
        let old = before.tunnels.iter().find(|old| old.name == new.name).map(|old| &old.faults);
        look(&format!("tunnel {}", new.name), tunnel::TABLE, old, &new.faults);
    }
    let new = after.tunnels.iter().filter_map(|it| Some((&it.name, it.split.as_ref()?)));
    for (name, new) in new {
        let old = before.tunnels.iter().find(|old| old.name == *name);
        let old = old.and_then(|old| old.split.as_ref()).map(|old| &old.faults);
        look(&format!("split TCP of {name}"), split::TABLE, old, &new.faults);
    }
    for new in &after.flows {
        let old = before.flows.iter().find(|old| old.id == new.id).map(|old| &old.counters);
        look(&format!("flow {}", new.id), flow::TABLE, old, &new.counters);
    }
}

type Counts = BTreeMap<String, u64>;

fn rising(
    subject: &str,
    table: Table,
    old: &Counts,
    new: &Counts,
    is_settled: bool,
    findings: &mut Vec<Finding>,
) {
    let is_shown = |counter: &&Counter| {
        counter.is_fault() && (is_settled || !STARTING.contains(&counter.name))
    };
    for counter in table.counters().filter(is_shown) {
        let now = new.get(counter.name).copied().unwrap_or(0);
        let risen = now.saturating_sub(old.get(counter.name).copied().unwrap_or(0));
        let (is_fatal, name) = (FATAL.contains(&counter.name), counter.name);
        let is_harmless = counter.cure.starts_with(HARMLESS);
        // A counter that does not rise is history, such as that of the first second.
        if risen == 0 || !is_fatal && is_harmless && risen < HARMLESS_MOST {
            continue;
        }
        let level = if is_fatal { Level::Error } else { Level::Warning };
        let meaning = words(counter.meaning);
        let meaning = meaning.trim_end_matches('.');
        let cause = format!("{name}, {risen} more while looking ({meaning})");
        let cure = words(counter.cure);
        let (subject, mend) = (subject.to_owned(), Vec::new());
        findings.push(Finding { level, subject, cause, cure, mend });
    }
}

/// Joins the lines of a table's text.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn error(subject: &str, cause: String, cure: String) -> Finding {
    Finding { level: Level::Error, subject: subject.to_owned(), cause, cure, mend: Vec::new() }
}

fn warning(subject: &str, cause: String, cure: String) -> Finding {
    Finding { level: Level::Warning, subject: subject.to_owned(), cause, cure, mend: Vec::new() }
}
