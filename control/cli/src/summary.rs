//! `recodectl show`: one page, at most 24 lines of 80 columns for one path over two boxes and a
//! relay. `show -v` has the rest.
//!
//! ```text
//!  links, tunnels -> a line each       neighbours, flows -> a row each
//!  faults         -> sentences, as many as fit; the others are a number
//! ```

use crate::activity::{
    SILENCE_CURE, flow_word, heard, hop_of, neighbour_word, other_protocol, silence,
};
use crate::box_names::{BoxNames, named_box};
use crate::flows::worst_loss;
use crate::neighbours::hop_faults;
use crate::remark::Remark;
use crate::sessions::remark;
use crate::split::{split_counts, split_fault};
use crate::table::{
    Align, clipped, duration, known, millis, percent, residual, sentence, table, wrapped,
};
use recoded_api::v1::{Flow, FlowNeighbour, Link, Neighbour, Session, State, Tunnel};

use Align::{Left, Right};

/// Explains the columns of the page.
pub const LEGEND: &str = "\
Columns of the summary:
  limit     Mbit/s that the link is estimated to carry
  loss      of this hop; under FLOWS, of the worst hop, before repair
  trip ms   round trip
  heard s   seconds since the last packet
  Mbit/s    IP packets
  wire      Mbit/s sent, headers and repairs included
  residual  share that the sink gave up
  -         not known, or nothing was sent";

/// Lines of a terminal.
const LINES: usize = 24;

/// Faults that are shown on any page, however long the tables are.
const FAULTS_LEAST: usize = 2;

/// Widths of a name and of both ends of a flow: the tables then fit 80 columns.
const NAME_COLUMNS: usize = 20;

/// The page.
pub fn summary(state: &State) -> String {
    let names = BoxNames::of(state);
    let State { version, edition, uptime_seconds, .. } = state;
    let up = duration(*uptime_seconds);
    let mut text = format!("recoded {version}, up {up}, configuration edition {edition}\n");
    let parts = [
        ("LINKS", state.links.iter().map(link).collect()),
        ("TUNNELS", state.tunnels.iter().map(tunnel).collect()),
        ("NEIGHBOURS", neighbours(state, &names)),
        ("FLOWS", flows(state, &names)),
    ];
    let filled = parts.into_iter().filter(|(_, part): &(_, String)| !part.is_empty());
    text.extend(filled.map(|(title, part)| format!("\n{title}\n{part}")));
    let room = LINES.saturating_sub(text.lines().count() + 2);
    let faults = fitting(&faults(state, &names), room);
    if faults.is_empty() { text } else { text + "\nFAULTS\n" + &faults }
}

/// As many faults as fit this number of lines.
fn fitting(faults: &[String], room: usize) -> String {
    let (mut text, mut lines) = (String::new(), 0);
    for (shown, fault) in faults.iter().enumerate() {
        lines += fault.lines().count();
        // A line for the number of those that do not fit.
        let is_last = shown + 1 == faults.len();
        if shown >= FAULTS_LEAST && lines + usize::from(!is_last) > room {
            let left = faults.len() - shown;
            return text + &sentence("", &format!("{left} more: recodectl doctor"));
        }
        text += fault;
    }
    text
}

fn link(link: &Link) -> String {
    let Link { name, interface, local, state, mtu, .. } = link;
    let sockets = if link.socket_mode == "udp" { "UDP sockets" } else { "AF_XDP" };
    let mut facts = vec![state.clone(), local.clone(), format!("MTU {mtu}"), sockets.to_owned()];
    if interface != name {
        facts.insert(1, interface.clone());
    }
    facts.retain(|fact| !fact.is_empty());
    wrapped(name, &facts)
}

fn tunnel(tunnel: &Tunnel) -> String {
    let state = if tunnel.state == "present" { "up" } else { &tunnel.state };
    let mut facts = vec![state.to_owned()];
    facts.extend(tunnel.addresses.iter().cloned());
    facts.push(format!("MTU {}", tunnel.mtu));
    facts.extend(tunnel.split.as_ref().map(split_counts));
    facts.retain(|fact| !fact.is_empty());
    wrapped(&tunnel.name, &facts)
}

fn neighbours(state: &State, names: &BoxNames) -> String {
    let head = [
        ("name", Left),
        ("link", Left),
        ("state", Left),
        ("limit", Right),
        ("loss", Right),
        ("trip ms", Right),
        ("heard s", Right),
    ];
    let of = |link: &Link| {
        let row = |it: &Neighbour| {
            let hop = hop_of(link, it);
            let reports = reports(state, &hop);
            let loss = reports.iter().filter_map(|it| it.loss).reduce(f64::max);
            let trip = reports.iter().filter_map(|it| it.round_trip_us).reduce(f64::max);
            // Before the first report the rate is a guess.
            let measured = reports.iter().filter(|it| it.round_trip_us.is_some());
            let rate = measured.map(|it| it.rate_mbit).reduce(f64::max);
            [
                clipped(&names.short(&hop), NAME_COLUMNS),
                link.name.clone(),
                neighbour_word(state, link, it).to_owned(),
                known(rate, 1),
                loss.map_or("-".into(), percent),
                millis(trip),
                known(heard(state, &hop, it), 1),
            ]
        };
        link.neighbours.iter().map(row).collect::<Vec<_>>()
    };
    let rows: Vec<_> = state.links.iter().flat_map(of).collect();
    if rows.is_empty() { String::new() } else { table(head, &rows) }
}

/// What flows know of a next hop.
fn reports<'a>(state: &'a State, hop: &str) -> Vec<&'a FlowNeighbour> {
    let all = state.flows.iter().flat_map(|flow| &flow.neighbours);
    all.filter(|it| it.next_hop == hop).collect()
}

fn flows(state: &State, names: &BoxNames) -> String {
    let head = [
        ("flow", Right),
        ("role", Left),
        ("from, to", Left),
        ("state", Left),
        ("Mbit/s", Right),
        ("wire", Right),
        ("loss", Right),
        ("residual", Right),
    ];
    let rows = state.flows.iter().map(|flow| {
        [
            flow.id.to_string(),
            flow.role.clone(),
            clipped(&ends(flow, names), NAME_COLUMNS),
            flow_word(state, flow).to_owned(),
            known(flow.goodput_mbit, 1),
            known(flow.wire_mbit, 1),
            worst_loss(flow).map_or("-".into(), percent),
            flow.residual_loss.map_or("-".into(), residual),
        ]
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() { String::new() } else { table(head, &rows) }
}

/// The boxes that a flow comes from and goes to.
fn ends(flow: &Flow, names: &BoxNames) -> String {
    let all = |hops: &[String]| {
        let names = hops.iter().map(|hop| names.short(hop));
        names.collect::<Vec<_>>().join(", ")
    };
    let far = |hops: &[String]| if flow.end.is_empty() { all(hops) } else { flow.end.clone() };
    match flow.role.as_str() {
        "source" => format!("to {}", far(&flow.next_hops)),
        "sink" => format!("from {}", far(&flow.upstreams)),
        _ => format!("{} to {}", all(&flow.upstreams), all(&flow.next_hops)),
    }
}

/// Faults as sentences, causes before their consequences.
fn faults(state: &State, names: &BoxNames) -> Vec<String> {
    let mut faults: Vec<Remark> =
        state.links.iter().flat_map(|link| link_faults(state, link)).collect();
    let has_no_keys = |it: &&Session| it.age_seconds.is_none() && !follows(state, it);
    let sessions = state.sessions.iter().filter(has_no_keys);
    faults.extend(sessions.filter_map(remark));
    faults.extend(state.flows.iter().flat_map(hop_faults));
    let is_deaf =
        |flow: &&Flow| flow.state.as_deref() == Some("down") && flow.neighbours.is_empty();
    faults.extend(state.flows.iter().filter(is_deaf).map(|flow| {
        let words = "packets are sent, and no feedback arrives: check that the next boxes run and \
                     have this flow, and that packets pass in both directions";
        Remark::new(&format!("flow {}", flow.id), words)
    }));
    faults.extend(state.tunnels.iter().filter_map(tunnel_fault));
    let splits =
        state.tunnels.iter().filter_map(|it| Some(Remark::new(&it.name, &split_fault(it)?)));
    faults.extend(splits);
    faults.iter().map(|fault| fault.named(names)).collect()
}

/// Whether a session lacks keys because its neighbours are not there, which has a line already.
fn follows(state: &State, session: &Session) -> bool {
    let is_absent = |hop: &String| {
        let links = state.links.iter().filter(|link| hop.starts_with(&format!("{}:", link.name)));
        let mut links = links.map(|link| {
            let mut neighbours = link.neighbours.iter().filter(|it| hop_of(link, it) == *hop);
            let words = neighbours.next().map(|it| neighbour_word(state, link, it));
            !link.waits.is_empty() || matches!(words, Some("waiting" | "down" | "silent"))
        });
        links.any(|is_absent| is_absent)
    };
    let of_flow = session
        .with
        .rsplit_once("flow ")
        .and_then(|(_, id)| state.flows.iter().find(|flow| flow.id.to_string() == id));
    match of_flow {
        Some(flow) => flow.next_hops.iter().chain(&flow.upstreams).all(is_absent),
        None => is_absent(&session.with),
    }
}

fn link_faults(state: &State, link: &Link) -> Vec<Remark> {
    let Link { name, interface, .. } = link;
    let fault = |words: &str| Remark::new(name, words);
    match link.state.as_str() {
        "waiting" => {
            return vec![fault(&format!("waiting: {}; its packets are dropped", link.waits))];
        }
        "down" => {
            return vec![fault(&format!("{interface} is down: `ip link set {interface} up`"))];
        }
        _ => {}
    }
    let mut faults = Vec::new();
    for it in &link.neighbours {
        if !it.waits.is_empty() {
            faults.push(fault(&format!("waiting for {}: {}", it.address, it.waits)));
        } else if !it.resolved {
            let words = "does not answer ARP or neighbour discovery: check that it is up";
            faults.push(fault(&format!("{} {words}", named_box(&it.name, &it.address))));
        } else if let Some([cause, cure]) = other_protocol(state, link, it) {
            faults.push(fault(&format!("{cause}: {cure}")));
        } else if let Some(silence) = silence(state, link, it) {
            let who = named_box(&it.name, &it.address);
            faults.push(fault(&format!("{who} {}: {SILENCE_CURE}", silence.words)));
        }
        let disagreements = it.disagreements.iter();
        faults.extend(disagreements.map(|it| fault(&format!("{} ({})", it.cause, it.cure))));
    }
    faults
}

fn tunnel_fault(tunnel: &Tunnel) -> Option<Remark> {
    let Tunnel { mtu, mtu_configured, .. } = tunnel;
    let words = match tunnel.state.as_str() {
        "gone" => "another program deleted it; it is recreated".to_owned(),
        "no-carrier" => "no carrier: no next hop of its flow answers".to_owned(),
        _ if mtu < mtu_configured => {
            format!("MTU {mtu} instead of {mtu_configured}: its path carries no larger packets")
        }
        _ => return None,
    };
    Some(Remark::new(&tunnel.name, &words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed::{self, assert_golden, line};

    fn page(file: &str, state: &State) {
        let text = summary(state);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.lines().count() <= LINES, "{} lines\n{text}", text.lines().count());
        assert!(!text.contains("0.0.0."), "{text}");
        assert_golden(file, &text);
    }

    #[test]
    fn one_path_fits_a_terminal_on_every_box_idle_or_not() {
        page("show-end.txt", &line::end());
        page("show-relay.txt", &line::relay());
        page("show-idle.txt", &line::idle());
        page("show-awaited.txt", &line::awaited());
    }

    #[test]
    fn idle_box_has_no_fault_and_no_state_that_alarms() {
        let text = summary(&line::idle());
        assert!(!text.contains("FAULTS") && text.contains("idle"), "{text}");
        for word in ["waiting", "quiet", "silent", "down", "dropped", "no "] {
            assert!(!text.contains(word), "{word}:\n{text}");
        }
    }

    /// The page once had no fault where doctor failed.
    #[test]
    fn silent_neighbour_and_session_without_keys_have_a_line() {
        let mut state = line::idle();
        state.sessions[1].age_seconds = None;
        let text = summary(&state);
        let keys = text.split("FAULTS").nth(1).expect("faults");
        assert!(keys.contains("does not answer"), "{text}");
        state.links[0].neighbours[0].said_ago_seconds = Some(45.0);
        state.sessions[0].age_seconds = Some(90.0);
        let text = summary(&state);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let fault =
            "FAULTS wan relay (192.0.2.20) was last heard 45 s ago: check that recoded runs";
        assert!(words.contains(fault), "{text}");
        assert!(words.ends_with("in both directions"), "the session follows: {text}");
    }

    /// Names were once inserted into wrapped lines: these grew beyond 80 columns, and a hop at the
    /// end of a line got none.
    #[test]
    fn faults_with_names_fit_the_columns() {
        for letters in 1..40 {
            let mut state = line::relay();
            state.links[1].neighbours[0].name = "s".repeat(letters);
            state.flows[0].neighbours[0].lost_packet_bytes = Some(1400);
            state.flows[0].neighbours[0].arrived_packet_bytes = Some(1300);
            let text = summary(&state);
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(&format!("{} (lan:10.0.2.2),", "s".repeat(letters))), "{text}");
        }
    }

    #[test]
    fn faults_that_do_not_fit_are_a_number() {
        let text = summary(&fixed::state());
        assert!(text.contains("more: recodectl doctor"), "{text}");
        let one = vec![sentence("a", "b"); 5];
        assert_eq!(fitting(&one, 5).lines().count(), 5, "all fit");
        assert_eq!(fitting(&one, 4).lines().count(), 4, "three and the number of the others");
        assert!(fitting(&one, 4).contains("2 more"));
        assert_eq!(fitting(&one, 0).lines().count(), FAULTS_LEAST + 1);
    }
}
