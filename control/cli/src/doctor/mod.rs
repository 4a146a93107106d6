//! `recodectl doctor`: queries the daemon, this host and its neighbours for causes of packet loss,
//! and suggests fixes.
//!
//! ```text
//!  state -- a second or more, probes meanwhile -- state -> judge ─┐
//!                        └> answers "port unreachable" ───────────┼─> findings
//!  links and tunnels of the state -> recoded_host ────────────────┘
//! ```
//!
//! Changes nothing. A probe is an empty UDP datagram to the port of the neighbour's daemon, which
//! drops and counts it. If no daemon runs there, Linux responds with "port unreachable".

mod judge;
mod namespace;
mod probe;
mod roots;

use crate::box_names::BoxNames;
use crate::table::{COLUMNS, paragraph, sentence};
use namespace::NamespaceAccess;
use recoded::config::Config;
use recoded_api::client::{Client, ClientError};
use recoded_api::v1::{State, Tunnel};
use recoded_host::{Exit, FactsError, Finding, HostPlan, Level, Link, Network, Sockets};
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Why there is no diagnosis.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The daemon does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Linux does not answer.
    #[error(transparent)]
    Facts(#[from] FactsError),
}

/// Prefix of the causes of waiting links, from the daemon and from the host.
const WAITING: &str = "waiting: ";
const HOST_WAITS: &str = "waits for ";

/// The result.
#[derive(Debug, Serialize)]
pub struct Diagnosis {
    /// Findings that are errors.
    pub errors: usize,
    /// Findings that are warnings.
    pub warnings: usize,
    /// The objects checked, in words.
    looked_at: String,
    /// The findings.
    findings: Vec<Shown>,
    /// Links with UDP sockets, and why; these are not faults.
    notes: Vec<Note>,
    /// For text; values have addresses.
    #[serde(skip)]
    names: BoxNames,
}

/// A remark about a subject.
#[derive(Debug, Serialize)]
struct Note {
    subject: String,
    text: String,
}

impl Note {
    /// The note for a link with UDP sockets.
    fn of(link: &recoded_api::v1::Link) -> Option<Note> {
        let has_reason = link.waits.is_empty() && !link.reason.is_empty();
        (has_reason && link.socket_mode == "udp").then(|| Note {
            subject: format!("link {}", link.name),
            text: format!("it has UDP sockets: {}", link.reason),
        })
    }
}

/// A finding under stable keys.
#[derive(Debug, Serialize)]
struct Shown {
    level: &'static str,
    subject: String,
    cause: String,
    cure: String,
    /// The finding that causes it, which must be fixed first.
    #[serde(skip_serializing_if = "Option::is_none")]
    follows_from: Option<String>,
}

/// Observes for `seconds` seconds.
///
/// # Errors
///
/// The daemon or Linux does not answer.
pub fn examine(socket: &Path, seconds: u64) -> Result<Diagnosis, DoctorError> {
    let mut client = Client::connect(socket)?;
    let before = client.state()?;
    let plan = HostPlan { exits: exits(&client.config()?), ..plan(&before) };
    let time = Duration::from_secs(seconds);
    let look = || {
        let answers = probe::neighbours(&plan, judge::port(&before), time);
        recoded_host::check(&plan).map(|host| host.into_iter().chain(answers).collect::<Vec<_>>())
    };
    let mut findings = match NamespaceAccess::of(socket, &before).run(look) {
        Some(found) => found?,
        None => {
            std::thread::sleep(time);
            vec![elsewhere()]
        }
    };
    let after = client.state()?;
    findings.extend(judge::judge(&before, &after));
    join_waits(&mut findings);
    Ok(diagnosis(&after, findings))
}

/// Merges findings about a waiting link: the daemon reports the state, and the check of the host
/// knows the fix.
fn join_waits(findings: &mut Vec<Finding>) {
    let is_of_host =
        |it: &mut Finding| it.level == Level::Warning && it.cause.starts_with(HOST_WAITS);
    let of_host: Vec<Finding> = findings.extract_if(.., is_of_host).collect();
    for host in of_host {
        let mut found = findings.iter_mut();
        match found.find(|it| it.subject == host.subject && it.cause.starts_with(WAITING)) {
            Some(finding) => finding.cure = format!("{}; {}", host.cure, finding.cure),
            None => findings.push(host),
        }
    }
}

/// Checks that are impossible from here.
fn elsewhere() -> Finding {
    Finding {
        level: Level::Warning,
        subject: "host".into(),
        cause: "the daemon is in another network namespace, such as that of a container: \
                interfaces, routes, firewall and neighbours were not looked at"
            .into(),
        cure: "run this as root, or in that namespace (docker exec, ip netns exec, nsenter \
               --net --target PID)"
            .into(),
        mend: Vec::new(),
    }
}

fn diagnosis(state: &State, mut findings: Vec<Finding>) -> Diagnosis {
    let causes = roots::of(state, &findings);
    let levels: Vec<Level> = findings.iter().map(|it| it.level).collect();
    for (finding, cause) in findings.iter_mut().zip(&causes) {
        finding.level = cause.map_or(finding.level, |at| finding.level.min(levels[at]));
    }
    let is_cause = |at: usize| causes.contains(&Some(at));
    let subjects: Vec<String> = findings.iter().map(|it| it.subject.clone()).collect();
    let mut findings: Vec<(usize, Finding)> = findings.into_iter().enumerate().collect();
    findings.sort_by_key(|(at, it)| (std::cmp::Reverse(it.level), !is_cause(*at)));
    let is_root = |at: usize, level| level == Level::Error && causes[at].is_none();
    let errors = findings.iter().filter(|(at, it)| is_root(*at, it.level)).count();
    let is_warning = |at: usize, level| level == Level::Warning && causes[at].is_none();
    let warnings = findings.iter().filter(|(at, it)| is_warning(*at, it.level)).count();
    let (links, flows) = (state.links.len(), state.flows.len());
    let (tunnels, sessions) = (state.tunnels.len(), state.sessions.len());
    Diagnosis {
        errors,
        warnings,
        looked_at: format!(
            "links {links}, tunnels {tunnels}, flows {flows}, sessions {sessions}, this host"
        ),
        findings: order(findings, &causes, &subjects),
        notes: state.links.iter().filter_map(Note::of).collect(),
        names: BoxNames::of(state),
    }
}

/// Places a finding right after its cause.
fn order(
    findings: Vec<(usize, Finding)>,
    causes: &[Option<usize>],
    subjects: &[String],
) -> Vec<Shown> {
    let (roots, mut rest): (Vec<_>, Vec<_>) =
        findings.into_iter().partition(|(at, _)| causes[*at].is_none());
    let mut shown = Vec::new();
    for (at, Finding { level, subject, cause, cure, .. }) in roots {
        shown.push(Shown { level: level.name(), subject, cause, cure, follows_from: None });
        for (_, it) in rest.extract_if(.., |(of, _)| causes[*of] == Some(at)) {
            let Finding { level, subject, cause, cure, .. } = it;
            let follows_from = Some(subjects[at].clone());
            shown.push(Shown { level: level.name(), subject, cause, cure, follows_from });
        }
    }
    shown
}

/// Formats the diagnosis as text.
pub fn text(diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    let mut findings = diagnosis.findings.iter().peekable();
    while let Some(Shown { level, subject, cause, cure, .. }) = findings.next() {
        let label = if *level == Level::Error.name() { "FAIL" } else { "warn" };
        let named = |text: &str| diagnosis.names.in_text(text);
        let (label, words) = (named(&format!("{label} {subject}")), format!("{cause}: {cure}"));
        text.push_str(&sentence(&label, &named(&words)));
        let mut follow: Vec<String> = Vec::new();
        while let Some(it) = findings.next_if(|it| it.follows_from.is_some()) {
            if it.subject != *subject && !follow.contains(&named(&it.subject)) {
                follow.push(named(&it.subject));
            }
        }
        if !follow.is_empty() {
            let (count, list) = (follow.len(), follow.join(", "));
            let verb = if count == 1 { "follows" } else { "follow" };
            text.push_str(&sentence("", &format!("{count} more {verb} from it: {list}")));
        }
    }
    for Note { subject, text: note } in &diagnosis.notes {
        text.push_str(&sentence(&format!("note {subject}"), note));
    }
    let (errors, warnings) = (diagnosis.errors, diagnosis.warnings);
    let found = if errors + warnings == 0 { "no fault found; " } else { "" };
    let looked_at = &diagnosis.looked_at;
    let end = format!("{found}errors {errors}, warnings {warnings}; looked at {looked_at}");
    text + &paragraph(&end, COLUMNS)
}

/// The daemon's requirements on its host, from its state.
fn plan(state: &State) -> HostPlan {
    let links = state.links.iter().map(|link| Link {
        name: link.name.clone(),
        interface: link.interface.clone(),
        local: link.local.parse().ok(),
        neighbours: neighbours(state, &link.name).into_iter().collect(),
        sockets: if link.socket_mode == "udp" { Sockets::Udp } else { Sockets::Xdp },
    });
    HostPlan {
        links: links.collect(),
        tunnels: state.tunnels.iter().map(|tunnel| tunnel.name.clone()).collect(),
        networks: state.tunnels.iter().flat_map(networks).collect(),
        port: Some(judge::port(state)),
        is_running: true,
        ..HostPlan::default()
    }
}

/// Tunnels whose other ends send to any destination by this host, by the active configuration.
fn exits(config: &str) -> Vec<Exit> {
    let parsed = Config::parse("active configuration", config, &|_| None);
    parsed.map(|(.., config)| recoded::check::exits(&config)).unwrap_or_default()
}

fn networks(tunnel: &Tunnel) -> impl Iterator<Item = Network> {
    tunnel.addresses.iter().filter_map(|text| {
        let (address, prefix) = text.split_once('/')?;
        let (address, prefix) = (address.parse().ok()?, prefix.parse().ok()?);
        Some(Network { tunnel: tunnel.name.clone(), address, prefix })
    })
}

/// Addresses on a link that flows send to or receive from.
fn neighbours(state: &State, link: &str) -> BTreeSet<IpAddr> {
    let named = state.flows.iter().flat_map(|flow| flow.next_hops.iter().chain(&flow.upstreams));
    let here = named.filter_map(|name| name.split_once(':').filter(|(of, _)| *of == link));
    here.filter_map(|(_, address)| address.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed::{self, assert_golden};
    use recoded_api::v1::Session;

    /// Output for a fixed state, without checks of host and neighbours.
    fn said(before: &State, after: &State) -> String {
        text(&diagnosis(after, judge::judge(before, after)))
    }

    #[test]
    fn diagnosis_of_a_fixed_state_is_golden() {
        let before = fixed::state();
        let mut after = fixed::state();
        after.drops.insert("replayed".into(), 150);
        if let Some(number) = after.links[1].faults.get_mut("tx_no_neighbour") {
            *number += 4;
        }
        let Session { refused, refusal, .. } = &mut after.sessions[0];
        (*refused, *refusal) = (2, "the handshake does not decrypt".into());
        let text = said(&before, &after);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert_golden("doctor.txt", &text);
    }

    #[test]
    fn idle_path_has_no_finding_although_the_first_second_dropped_packets() {
        let idle = fixed::line::idle();
        assert!(idle.links[0].faults["tx_no_neighbour"] > 0, "those of the start");
        let found = diagnosis(&idle, judge::judge(&idle, &idle));
        assert_eq!((found.errors, found.warnings), (0, 0), "{}", text(&found));
        assert!(text(&found).contains("\nno fault found; errors 0,"), "{}", text(&found));
    }

    #[test]
    fn neighbour_that_is_awaited_or_dead_is_named_and_all_else_follows() {
        let awaited = fixed::line::awaited();
        let mut dead = fixed::line::idle();
        dead.links[0].neighbours[0].said_ago_seconds = Some(45.0);
        dead.sessions.iter_mut().for_each(|it| it.age_seconds = None);
        let mut never = fixed::line::idle();
        never.links[0].neighbours[0].said_ago_seconds = None;
        never.sessions.truncate(1);
        never.sessions[0].age_seconds = None;
        let texts = [&awaited, &dead, &never].map(|state| said(state, state));
        assert!(texts.iter().all(|text| text.lines().all(|it| it.chars().count() <= 80)));
        assert!(texts.iter().all(|text| !text.contains("0.0.0.")));
        assert_golden("doctor-line.txt", &texts.join("\n"));
        // A process that has just started has not been told of its neighbours.
        never.uptime_seconds = 5;
        let text = said(&never, &never);
        assert!(
            text.contains("warn link wan") && text.contains("has not been heard yet"),
            "{text}"
        );
        assert!(text.contains("1 more follows from it: session with"), "{text}");
        assert!(text.contains("\nerrors 0, warnings 1"), "{text}");
    }

    /// A laptop that sleeps was once a failure of the hub that serves others.
    #[test]
    fn roaming_box_that_sleeps_is_a_warning_while_another_path_carries() {
        let mut hub = fixed::line::idle();
        let mut laptop = hub.links[0].neighbours[0].clone();
        (laptop.address, laptop.name) = ("laptop".into(), "laptop".into());
        laptop.said_ago_seconds = Some(4000.0);
        hub.links[0].neighbours.push(laptop);
        let mut flow = hub.flows[1].clone();
        (flow.id, flow.upstreams) = (4, vec!["wan:laptop".into()]);
        hub.flows.push(flow);
        let mut session = hub.sessions[0].clone();
        (session.with, session.age_seconds) = ("wan:laptop".into(), None);
        hub.sessions.push(session);
        let found = |state: &State| {
            let found = diagnosis(state, judge::judge(state, state));
            (found.errors, found.warnings)
        };
        assert_eq!(found(&hub), (0, 1), "{}", said(&hub, &hub));
        let text = said(&hub, &hub);
        assert!(text.contains("warn link wan wan:laptop was last heard 4000 s ago"), "{text}");
        let mut awaited = hub.clone();
        awaited.links[0].neighbours[1].waits = recoded::state::AWAITED.into();
        awaited.links[0].neighbours[1].said_ago_seconds = None;
        assert_eq!(found(&awaited), (0, 1), "{}", said(&awaited, &awaited));
        // By an address that is configured, and roams.
        let mut placed = hub.clone();
        placed.links[0].neighbours[1].address = "192.0.2.9".into();
        placed.flows[2].upstreams = vec!["wan:192.0.2.9".into()];
        placed.sessions[2].with = "wan:192.0.2.9".into();
        assert_eq!(found(&placed).0, 1, "{}", said(&placed, &placed));
        let neighbour = "[[neighbour]]\nlink = \"wan\"\naddress = \"192.0.2.9\"\nroams = true\n";
        placed.config += neighbour;
        assert_eq!(found(&placed), (0, 1), "{}", said(&placed, &placed));
        // Nothing can pass.
        hub.links[0].neighbours[0].said_ago_seconds = Some(45.0);
        hub.sessions[0].age_seconds = Some(90.0);
        assert_eq!(found(&hub).0, 2, "{}", said(&hub, &hub));
    }

    /// A neighbour that was down during the start is not reported later.
    #[test]
    fn link_that_waits_is_one_finding_with_the_cure_that_the_host_has() {
        let finding = |level, subject: &str, cause: &str, cure: &str| Finding {
            level,
            subject: subject.into(),
            cause: cause.into(),
            cure: cure.into(),
            mend: Vec::new(),
        };
        let other = finding(Level::Warning, "link lan", "waits for an address", "give it one");
        let mut findings = vec![
            finding(Level::Warning, "link wan", "waits for wan9: it is missing", "plug it in"),
            other.clone(),
            finding(Level::Error, "link wan", "waiting: interface wan9 is missing", "it retries"),
        ];
        join_waits(&mut findings);
        let joined = finding(
            Level::Error,
            "link wan",
            "waiting: interface wan9 is missing",
            "plug it in; it retries",
        );
        assert_eq!(findings, [joined, other]);
    }

    #[test]
    fn icmp_errors_are_errors_while_they_come_and_nothing_afterwards() {
        let with = |count| {
            let mut state = fixed::state();
            state.links[0].faults.insert("rx_icmp_no_port".into(), count);
            state
        };
        assert!(!said(&with(5), &with(5)).contains("rx_icmp_no_port"));
        let text = said(&with(5), &with(7));
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let link = &fixed::state().links[0].name;
        let cause = format!("FAIL link {link} rx_icmp_no_port, 2 more while looking");
        assert!(words.contains(&cause) && words.contains("Start recoded there"), "{text}");
    }

    /// Neighbours send before the flows of a starting node have sockets.
    #[test]
    fn packets_of_unknown_flows_are_errors_while_they_come_and_not_those_of_the_start() {
        let with = |count, uptime_seconds| {
            let mut state = State { uptime_seconds, ..fixed::state() };
            state.verdicts.insert("drop_unknown_flow".into(), count);
            state
        };
        let named = |before: (u64, u64), after: (u64, u64)| {
            let text = said(&with(before.0, before.1), &with(after.0, after.1));
            text.contains("drop_unknown_flow")
        };
        assert!(!named((40, 1), (90, 3)), "while it starts");
        assert!(!named((90, 600), (90, 602)), "counted at the start");
        assert!(named((90, 600), (95, 602)), "counted now");
    }

    #[test]
    fn packets_to_another_address_are_an_error_with_its_cure() {
        let with = |count| {
            let mut state = fixed::state();
            state.links[0].faults.insert("rx_not_ours".into(), count);
            state
        };
        let text = said(&with(5), &with(9));
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("FAIL link west rx_not_ours, 4 more while looking"), "{text}");
        assert!(words.contains("Compare address and port with next_hops and port"), "{text}");
        assert!(!said(&with(0), &with(0)).contains("rx_not_ours"));
    }

    /// The warnings of the first link if its neighbour reports these values.
    fn warned_of(version: &str, clock_ahead_seconds: i64) -> String {
        let mut state = fixed::state();
        let neighbour = &mut state.links[0].neighbours[0];
        neighbour.version = version.into();
        neighbour.clock_ahead_seconds = clock_ahead_seconds;
        let mut findings = judge::judge(&state, &state);
        findings.retain(|it| it.level == Level::Warning && it.subject == "link west");
        let words = findings.iter().map(|it| format!("{}: {}\n", it.cause, it.cure));
        words.collect()
    }

    #[test]
    fn clock_of_a_neighbour_that_is_an_hour_off_is_named_and_a_few_seconds_are_not() {
        let ours = fixed::state().version;
        let said = warned_of(&ours, 3600);
        assert!(said.contains("the clock of 10.0.1.1 is 3600 s ahead of this box's"), "{said}");
        assert!(said.contains("have both follow NTP"), "{said}");
        let said = warned_of(&ours, -3600);
        assert!(said.contains("the clock of 10.0.1.1 is 3600 s behind this box's"), "{said}");
        assert_eq!(warned_of(&ours, 5), "");
    }

    #[test]
    fn version_of_a_neighbour_that_is_another_one_is_named() {
        let said = warned_of("9.9.9", 0);
        let own = fixed::state().version;
        let cause = format!("10.0.1.1 runs recoded 9.9.9, this box {own}");
        assert!(said.starts_with(&cause) && said.contains("the same version on both"), "{said}");
        assert_eq!(warned_of(&own, 0), "");
    }

    #[test]
    fn ends_of_a_link_with_different_mtus_are_named_and_equal_ones_are_not() {
        let with = |here, there| {
            let mut state = fixed::state();
            let neighbour = &mut state.links[0].neighbours[0];
            (neighbour.packet_bytes, neighbour.packet_bytes_there) = (here, there);
            said(&state, &state)
        };
        let text = with(Some(1472), Some(1372));
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let cause = "packets to 10.0.1.1 may have 1472 bytes of UDP payload here and 1372 there";
        assert!(words.contains(cause), "{text}");
        assert!(words.contains("set the same MTU at both ends of the link"), "{text}");
        assert!(!with(Some(1472), Some(1472)).contains("UDP payload"));
        assert!(!with(Some(1472), None).contains("UDP payload"));
    }

    #[test]
    fn link_with_udp_sockets_has_a_note_that_says_why_and_is_nothing_wrong() {
        let mut state = fixed::state();
        let before = diagnosis(&state, judge::judge(&state, &state));
        let link = &mut state.links[0];
        (link.socket_mode, link.waits) = ("udp".into(), String::new());
        link.reason = "its packets have no Ethernet header, which AF_XDP needs".into();
        let after = diagnosis(&state, judge::judge(&state, &state));
        let words = text(&after).split_whitespace().collect::<Vec<_>>().join(" ");
        let note = "note link west it has UDP sockets: its packets have no Ethernet header";
        assert!(words.contains(note), "{words}");
        assert_eq!((after.errors, after.warnings), (before.errors, before.warnings));
    }

    #[test]
    fn node_without_keys_is_warned_of_and_one_with_keys_is_not() {
        let with = |config: &str| State { config: config.into(), ..fixed::state() };
        let warned = |config| {
            let state = with(config);
            said(&state, &state).contains("warn keys")
        };
        assert!(warned("[daemon]\nworkers = 1\n"));
        assert!(warned("[daemon]\nauth = \"none\"\nprivate_key = \"/etc/k\"\n"));
        assert!(!warned("[daemon]\nauth = \"full\"\nprivate_key = \"/etc/k\"\n"));
        assert!(!warned(""), "a daemon that does not say");
    }
}
