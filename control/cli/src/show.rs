//! Tables of the state in full, as text of at most 100 columns; `summary` is the page without them.

use crate::activity::reword;
use crate::box_names::named_box;
use crate::branches::branches;
use crate::flows::{failed, flow_lines, given_up, legend, rates, units, worst_loss};
use crate::neighbours::neighbour_table;
use crate::part::Show;
use crate::sessions::session_table;
use crate::split::{split_counts, split_fault};
use crate::summary::summary;
use crate::table::{Align, count, duration, percent, sentence, table, wrapped};
use recoded_api::keys::{FLOW, Key, Role};
use recoded_api::v1::{Engine, Flow, Link, Neighbour, State, Worker};
use recoded_counters::tunnel::QueueDrop;
use recoded_counters::{Table, Unit, engine, flow, link, split, tunnel, verdict, worker};
use serde_json::Value;
use std::collections::BTreeMap;

use Align::{Left, Right};

/// The code of sources that choose it from their configuration.
const AUTO: &str = "auto";

/// Shows the state, or a part of it.
pub fn show(state: &State, what: Option<Show>) -> String {
    match what {
        None => summary(state),
        Some(Show::All) => overview(state),
        Some(Show::Flows) => flow_tables(&state.flows) + &flow_details(&state.flows),
        Some(Show::Links) => link_table(&state.links) + &link_details(&state.links),
        Some(Show::Workers) => worker_table(&state.workers),
        Some(Show::Config) => state.config.clone(),
        Some(Show::Drops) => drop_table(state) + &drop_details(state),
        Some(Show::Engine) => engine_line(&state.engine) + &engine_details(&state.engine),
    }
}

/// Every part in full.
fn overview(state: &State) -> String {
    let mut text = format!(
        "recoded {}, edition {}, up {}, field arithmetic by {}\n",
        state.version,
        state.edition,
        duration(state.uptime_seconds),
        state.kernel
    );
    let full = |part| show(state, Some(part));
    let mut worded = state.clone();
    reword(&mut worded);
    let parts = [
        ("LINKS", full(Show::Links)),
        ("TUNNELS", tunnel_table(state) + &tunnel_reasons(state)),
        ("FLOWS", flow_lines(&worded.flows) + "\n" + &full(Show::Flows)),
        ("SESSIONS", session_table(&state.sessions)),
        ("WORKERS", full(Show::Workers)),
        ("DROPS", full(Show::Drops)),
        ("ENGINE", full(Show::Engine)),
    ];
    let filled = parts.into_iter().filter(|(_, part)| !part.is_empty());
    text.extend(filled.map(|(title, part)| format!("\n{title}\n{part}")));
    text
}

/// The engine for large generations, and why it is used.
pub fn engine_line(engine: &Engine) -> String {
    let who = match (engine.up, engine.mode.as_str(), engine.reason.as_str()) {
        (_, "cpu", _) => "the CPU does everything".to_owned(),
        (true, "cuda" | "fpga", _) => format!("{} whenever it has room", card(engine)),
        (true, ..) => format!("{} or the CPU, whichever is faster", card(engine)),
        (false, _, "") => "the CPU, until a card is found".to_owned(),
        (false, _, reason) => format!("the CPU does everything: {reason}"),
    };
    sentence(&engine.mode, &who)
}

/// The card with its name, if the daemon reports it.
fn card(engine: &Engine) -> String {
    let name = &engine.device;
    if name.is_empty() { "the card".to_owned() } else { format!("the card ({name})") }
}

fn engine_details(engine: &Engine) -> String {
    let facts = [
        named("offered", engine.offered),
        named("taken", engine.taken),
        named("offloaded", engine.offloaded),
        named("bytes", engine.offloaded_bytes),
    ];
    let mut text = wrapped("generations", &facts);
    if engine.up && !engine.reason.is_empty() {
        text.push_str(&sentence("last failure", &engine.reason));
    }
    // The others are shown above.
    let is_event =
        |name: &str| engine::TABLE.find(name).is_none_or(|counter| counter.unit == Unit::Events);
    let mut events = engine.counters.clone();
    events.retain(|name, _| is_event(name));
    let reasons = [
        ("events", engine::TABLE, &events),
        ("declined", engine::DECLINED, &engine.declined),
        ("redone", engine::REDONE, &engine.redone),
        ("bundles", engine::BUNDLES, &engine.bundles),
    ];
    for (name, table, counts) in reasons {
        text.push_str(&wrapped(name, &or_none(nonzero(counts))));
        text.push_str(&cures(&table, counts).concat());
    }
    text.push_str(&wrapped("of size", &or_none(doubling(&engine.bundle_bytes, 4, "KiB"))));
    text.push_str(&wrapped("after", &or_none(doubling(&engine.latency_us, 1, "us"))));
    text
}

/// Buckets whose upper bounds double.
fn doubling(counts: &[u64], first: u64, unit: &str) -> Vec<String> {
    let buckets = counts.iter().enumerate().filter(|(_, number)| **number > 0);
    buckets
        .map(|(index, number)| format!("to {} {unit} {}", first << index, count(*number)))
        .collect()
}

fn link_table(links: &[Link]) -> String {
    let head = [
        ("name", Left),
        ("interface", Left),
        ("address", Left),
        ("XDP", Left),
        ("sockets", Left),
        ("received", Right),
        ("sent", Right),
        ("neighbours", Right),
    ];
    let rows = links.iter().map(|link| {
        let resolved = link.neighbours.iter().filter(|neighbour| neighbour.resolved).count();
        [
            link.name.clone(),
            link.interface.clone(),
            link.local.clone(),
            link.xdp_mode.clone(),
            link.socket_mode.clone(),
            count(link.received_packets),
            count(link.sent_packets),
            format!("{resolved} of {}", link.neighbours.len()),
        ]
    });
    table(head, &rows.collect::<Vec<_>>())
}

/// Fault of the interface.
fn link_trouble(link: &Link) -> Option<String> {
    let Link { interface, .. } = link;
    match link.state.as_str() {
        "waiting" => Some(format!("waiting: {}; packets for it are dropped meanwhile", link.waits)),
        "down" => Some(format!("{interface} is down: `ip link set {interface} up`")),
        _ => None,
    }
}

fn link_details(links: &[Link]) -> String {
    let mut text = String::new();
    for link in links {
        let name = format!("{} on {}", link.name, link.interface);
        let mut facts = vec![format!("MTU {}", link.mtu), format!("queues {}", link.queues)];
        if !link.state.is_empty() {
            facts.insert(0, link.state.clone());
        }
        facts.push(match link.rate_mbit {
            Some(rate) => format!("paced to {rate} Mbit/s"),
            None => "not paced".to_owned(),
        });
        let neighbours = link.neighbours.iter().map(|neighbour| {
            let state = if neighbour.resolved { "resolved" } else { "does not answer" };
            let Neighbour { address, version, clock_ahead_seconds: ahead, .. } = neighbour;
            let said = neighbour.said_ago_seconds.map_or(String::new(), |ago| {
                let there = neighbour.packet_bytes_there;
                let there = there.filter(|_| neighbour.packet_bytes != there);
                let mtu = there.map_or(String::new(), |bytes| {
                    format!(", carries {bytes} bytes of UDP payload there")
                });
                format!(", recoded {version} {ago:.0} s ago, clock {ahead:+} s{mtu}")
            });
            format!("{} {state}{said}", named_box(&neighbour.name, address))
        });
        let moved = link.neighbours.iter().filter(|neighbour| neighbour.moves > 0).map(|it| {
            let Neighbour { address, endpoint, moves, .. } = it;
            format!("{address} at {endpoint} after {moves} moves")
        });
        text.push_str(&format!("\n{name}\n"));
        text.push_str(&wrapped("link", &facts));
        let reason = if link.reason.is_empty() { "the best mode there is" } else { &link.reason };
        text.push_str(&sentence("mode", reason));
        if let Some(trouble) = link_trouble(link) {
            text.push_str(&sentence("trouble", &trouble));
        }
        text.push_str(&wrapped("neighbours", &or_none(neighbours.chain(moved).collect())));
        if !link.not_neighbours.is_empty() {
            text.push_str(&wrapped("dropped from", &link.not_neighbours));
        }
        let bytes = [("received", link.received_bytes), ("sent", link.sent_bytes)];
        text.push_str(&wrapped("bytes", &bytes.map(|(name, bytes)| named(name, bytes))));
        text.push_str(&wrapped("faults", &or_none(nonzero(&link.faults))));
        text.push_str(&cures(&link::TABLE, &link.faults).concat());
    }
    text
}

fn tunnel_table(state: &State) -> String {
    if state.tunnels.is_empty() {
        return String::new();
    }
    let head = [
        ("name", Left),
        ("address", Left),
        ("MTU", Right),
        ("offload", Left),
        ("read", Right),
        ("queued", Right),
        ("marked", Right),
        ("dropped", Right),
        ("written", Right),
    ];
    let rows = state.tunnels.iter().flat_map(|tunnel| {
        let counters = [&tunnel.counters, &tunnel.faults];
        let of = |name: &str| counters.iter().find_map(|counts| counts.get(name)).copied();
        let dropped = QueueDrop::TABLE.iter().filter_map(|counter| of(counter.name)).sum();
        let offload = if tunnel.offload.is_empty() { "-" } else { &tunnel.offload };
        let mut addresses = tunnel.addresses.iter().cloned();
        let row = [
            tunnel.name.clone(),
            addresses.next().unwrap_or_default(),
            tunnel.mtu.to_string(),
            offload.to_owned(),
            count(tunnel.read_packets),
            count(of("queued_packets").unwrap_or_default()),
            count(of("queue_marked").unwrap_or_default()),
            count(dropped),
            count(tunnel.written_packets),
        ];
        let further = addresses.map(|address| {
            let mut row: [String; 9] = Default::default();
            row[1] = address;
            row
        });
        std::iter::once(row).chain(further).collect::<Vec<_>>()
    });
    table(head, &rows.collect::<Vec<_>>())
}

/// Missing tunnels, and why a tunnel is not in the best mode.
fn tunnel_reasons(state: &State) -> String {
    let mut text = String::new();
    for tunnel in &state.tunnels {
        let mut notes = Vec::new();
        match tunnel.state.as_str() {
            "gone" => notes.push("another program deleted it; it is recreated"),
            "no-carrier" => notes.push("no carrier: no next hop of its flow answers"),
            _ => {}
        }
        let mtu = format!(
            "MTU {} instead of {}: its path carries no larger packets",
            tunnel.mtu, tunnel.mtu_configured
        );
        if tunnel.mtu < tunnel.mtu_configured {
            notes.push(&mtu);
        }
        if !tunnel.reason.is_empty() {
            notes.push(&tunnel.reason);
        }
        let split = [tunnel.split.as_ref().map(split_counts), split_fault(tunnel)];
        let split: Vec<String> = split.into_iter().flatten().collect();
        notes.extend(split.iter().map(String::as_str));
        if !notes.is_empty() {
            text.push_str(&sentence(&tunnel.name, &notes.join("; ")));
        }
    }
    text
}

fn flow_table(flows: &[Flow]) -> String {
    let head = [
        ("flow", Right),
        ("role", Left),
        ("code", Left),
        ("field", Right),
        ("symbols", Right),
        ("bytes", Right),
        ("planned", Right),
        ("loss", Right),
        ("rank", Right),
        ("in", Right),
        ("out", Right),
        ("failed", Right),
    ];
    let rows = flows.iter().map(|flow| {
        let (packets_in, packets_out) = in_and_out(flow);
        let worst = worst_loss(flow);
        let remote = flow.remote.as_ref();
        let rank = flow.rank_ratio.or_else(|| remote?.rank_ratio);
        [
            flow.id.to_string(),
            flow.role.clone(),
            if flow.code.is_empty() { "-".into() } else { flow.code.clone() },
            known(flow.field),
            known(flow.generation_size),
            known(flow.symbol_bytes),
            flow.planned.to_string(),
            worst.map_or("-".into(), percent),
            rank.map_or("-".into(), |rank| format!("{rank:.4}")),
            count(packets_in),
            count(packets_out),
            count(failed(flow)),
        ]
    });
    table(head, &rows.collect::<Vec<_>>())
}

/// The flows, and the next hops of those that have reports of them.
fn flow_tables(flows: &[Flow]) -> String {
    let parts = [flow_table(flows) + &legend(), neighbour_table(flows), branches(flows)];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

/// A value that a relay or sink learns from packets; 0 before the first.
fn known(number: u64) -> String {
    if number == 0 { "-".into() } else { number.to_string() }
}

/// Packets into and out of a flow on this host, for any role.
fn in_and_out(flow: &Flow) -> (u64, u64) {
    let kinds = ["sent_systematic", "sent_coded", "sent_forwarded", "sent_recoded", "sent_repair"];
    let sent = kinds.iter().map(|kind| flow.count(kind)).sum();
    match flow.role.as_str() {
        "source" => (flow.count("ingress_packets"), sent),
        "sink" => (flow.count("received"), flow.count("delivered_packets")),
        _ => (flow.count("received"), sent),
    }
}

fn flow_details(flows: &[Flow]) -> String {
    let mut text = String::new();
    for flow in flows {
        text.push_str(&format!("\nflow {}: {}\n", flow.id, path(flow)));
        text.push_str(&wrapped("parameters", &parameters(flow)));
        let losses = flow.hops.iter().map(|hop| {
            format!("hop {} {} in runs of {:.1}", hop.hop, percent(hop.loss), hop.burst_mean)
        });
        text.push_str(&wrapped("loss", &or_none(losses.collect())));
        text.push_str(&wrapped(units(flow), &generations(flow)));
        if let Some(remote) = &flow.remote {
            let heard = [
                format!("newest {}", remote.newest),
                named("complete", remote.complete),
                named("failed", remote.failed),
            ];
            text.push_str(&wrapped("at the sink", &heard));
        }
        text.push_str(&wrapped("residual", &or_none(given_up(flow).into_iter().collect())));
        text.push_str(&wrapped("packets", &or_none(counted(flow, |unit| unit == Unit::Packets))));
        text.push_str(&wrapped("bytes", &or_none(counted(flow, |unit| unit == Unit::Bytes))));
        text.push_str(&wrapped("other", &or_none(others(flow))));
        let wire = flow.wire_mbit.map(|wire| format!("{wire:.1} Mbit/s on the wire"));
        text.push_str(&wrapped(
            "last second",
            &or_none(rates(flow).or(wire).into_iter().collect()),
        ));
        text.push_str(&wrapped("efficiency", &or_none(efficiency(flow))));
        let ranks = flow.rank_histogram.iter().enumerate().filter(|(_, count)| **count > 0);
        let ranks = ranks.map(|(rank, number)| format!("{rank}: {}", count(*number)));
        text.push_str(&wrapped("ranks", &or_none(ranks.collect())));
    }
    text
}

fn path(flow: &Flow) -> String {
    let next = flow.next_hops.join(" and ");
    let (tunnel, upstream) = (flow.tunnel.as_deref().unwrap_or("-"), flow.upstreams.join(" and "));
    match flow.role.as_str() {
        "source" => format!("source, from {tunnel} to {next}"),
        "sink" => format!("sink, from {upstream} to {tunnel}"),
        role => format!("{role}, from {upstream} to {next}"),
    }
}

/// Keys and values that the flow has.
fn parameters(flow: &Flow) -> Vec<String> {
    let values = serde_json::to_value(&flow.parameters).unwrap_or_default();
    let is_role = |role: &Role| role.name() == flow.role;
    let of_role = |key: &Key| key.roles.iter().any(is_role);
    let code = flow.parameters.code.as_deref();
    let is_auto = code == Some(AUTO);
    let code = if is_auto { Some(flow.code.as_str()) } else { code };
    let items =
        FLOW.keys.iter().filter(|key| key.code.is_none() || code.is_none_or(|_| key.code == code));
    let items = items.filter_map(|key| {
        let name = Some(key).filter(|key| of_role(key))?.name;
        match values.get(key.name)? {
            Value::Null => None,
            Value::String(word) if is_auto && name == "code" => {
                Some(format!("{name} {word}: {}", flow.code))
            }
            Value::String(word) => Some(format!("{name} {word}")),
            // As in a file: 4, not 4.0.
            Value::Number(number) => number.as_f64().map(|number| format!("{name} {number}")),
            value => Some(format!("{name} {value}")),
        }
    });
    items.collect()
}

/// Packets sent per packet delivered, compared with theory, and decoding delay.
fn efficiency(flow: &Flow) -> Vec<String> {
    let mut items = Vec::new();
    let theory =
        |theory: Option<f64>| theory.map_or(String::new(), |it| format!(", theory {it:.4}"));
    let rank = flow.rank_ratio.or_else(|| flow.remote.as_ref()?.rank_ratio);
    items.extend(rank.map(|rank| format!("rank {rank:.4}{}", theory(flow.rank_theory))));
    items.extend(
        flow.overhead
            .map(|it| format!("{it:.4} packets per symbol{}", theory(flow.overhead_theory))),
    );
    let delays = flow.decode_delay_mean_us.zip(flow.decode_delay_max_us);
    items.extend(delays.map(|(mean, max)| {
        format!("decoded after {} on average, {} at most", millis(mean), millis(max))
    }));
    items
}

fn millis(micros: f64) -> String {
    format!("{:.1} ms", micros / 1e3)
}

fn generations(flow: &Flow) -> Vec<String> {
    let mut items = vec![format!("epoch {}", flow.epoch), named("held", flow.held)];
    items.extend(counted(flow, |unit| unit == Unit::Generations));
    items
}

/// Non-zero counters of these units, in the order of their table.
fn counted(flow: &Flow, is_wanted: fn(Unit) -> bool) -> Vec<String> {
    let wanted = flow::TABLE.counters().filter(|counter| is_wanted(counter.unit));
    let counts = wanted.map(|counter| (counter.name, flow.count(counter.name)));
    counts.filter(|(_, number)| *number > 0).map(|(name, number)| named(name, number)).collect()
}

/// Counters of other units, and those unknown to this version. Delays are shown as a mean.
fn others(flow: &Flow) -> Vec<String> {
    let mut items =
        counted(flow, |unit| matches!(unit, Unit::Symbols | Unit::Requests | Unit::Events));
    let unknown = flow.counters.iter().filter(|(name, _)| flow::TABLE.find(name).is_none());
    let unknown = unknown.filter(|(_, number)| **number > 0);
    items.extend(unknown.map(|(name, number)| named(name, *number)));
    items
}

fn worker_table(workers: &[Worker]) -> String {
    let head = [
        ("worker", Right),
        ("core", Right),
        ("idle", Left),
        ("edition", Right),
        ("received", Right),
        ("forwarded", Right),
        ("consumed", Right),
        ("dropped", Right),
        ("frames free", Right),
        ("fill", Right),
        ("held", Right),
        ("tx", Right),
    ];
    let rows = workers.iter().map(|worker| {
        [
            worker.index.to_string(),
            worker.core.map_or("-".into(), |core| core.to_string()),
            worker.idle.clone(),
            worker.edition.to_string(),
            count(worker.received),
            count(worker.forwarded),
            count(worker.consumed),
            count(worker.dropped),
            count(worker.frames.free),
            count(worker.frames.fill),
            count(worker.frames.held),
            count(worker.frames.tx),
        ]
    });
    table(head, &rows.collect::<Vec<_>>())
}

/// Place of drops or faults, the table of their reasons, and counts.
type DropSource = (String, Table, BTreeMap<String, u64>);

fn places(state: &State) -> Vec<DropSource> {
    let dropped = state.verdicts.iter().filter(|(verdict, _)| verdict.starts_with("drop"));
    let dropped = dropped.map(|(name, number)| (name.clone(), *number)).collect();
    let mut places = vec![
        ("XDP program".to_owned(), verdict::TABLE, dropped),
        ("pipeline".to_owned(), worker::TABLE, state.drops.clone()),
    ];
    places.extend(state.workers.iter().map(|worker| {
        let counts = BTreeMap::from([("panics".to_owned(), worker.panics)]);
        (format!("worker {}", worker.index), worker::FAULTS, counts)
    }));
    places.extend(
        state
            .links
            .iter()
            .map(|link| (format!("link {}", link.name), link::TABLE, link.faults.clone())),
    );
    places.extend(
        state.tunnels.iter().map(|tunnel| {
            (format!("tunnel {}", tunnel.name), tunnel::TABLE, tunnel.faults.clone())
        }),
    );
    let splits = state.tunnels.iter().filter_map(|it| Some((it, it.split.as_ref()?)));
    places.extend(splits.map(|(tunnel, split)| {
        (format!("split TCP of {}", tunnel.name), split::TABLE, split.faults.clone())
    }));
    places.extend(
        state
            .flows
            .iter()
            .map(|flow| (format!("flow {}", flow.id), flow::TABLE, flow_faults(flow))),
    );
    places.iter_mut().for_each(|(_, _, counts)| counts.retain(|_, number| *number > 0));
    places
}

/// All drops and faults, by place and reason.
fn drop_table(state: &State) -> String {
    let mut rows = Vec::new();
    for (place, _, counts) in places(state) {
        let reasons = counts.into_iter();
        rows.extend(reasons.map(|(reason, number)| [place.clone(), reason, count(number)]));
    }
    if rows.is_empty() {
        return "nothing was dropped\n".to_owned();
    }
    table([("place", Left), ("reason", Left), ("count", Right)], &rows)
}

/// Meanings of the reasons in [`drop_table`], and fixes; each once.
fn drop_details(state: &State) -> String {
    let mut lines = Vec::new();
    for (_, table, counts) in places(state) {
        let new = cures(&table, &counts);
        lines.extend(new.into_iter().filter(|line| !lines.contains(line)).collect::<Vec<_>>());
    }
    if lines.is_empty() { String::new() } else { format!("\n{}", lines.concat()) }
}

/// Counters of a flow that are faults.
pub fn flow_faults(flow: &Flow) -> BTreeMap<String, u64> {
    let faults = flow::TABLE.counters().filter(|counter| counter.is_fault());
    faults.map(|counter| (counter.name.to_owned(), flow.count(counter.name))).collect()
}

/// Meanings of the non-zero counters, and fixes.
fn cures(table: &Table, counts: &BTreeMap<String, u64>) -> Vec<String> {
    let counted = counts.iter().filter(|(_, number)| **number > 0);
    let known = counted.filter_map(|(name, _)| table.find(name));
    known
        .map(|counter| {
            let words = format!("{} {}", counter.meaning, counter.cure);
            sentence(counter.name, words.trim_end())
        })
        .collect()
}

fn named(name: &str, number: u64) -> String {
    format!("{name} {}", count(number))
}

fn nonzero(reasons: &BTreeMap<String, u64>) -> Vec<String> {
    reasons.iter().filter(|(_, n)| **n > 0).map(|(name, n)| named(name, *n)).collect()
}

fn or_none(items: Vec<String>) -> Vec<String> {
    if items.is_empty() { vec!["none".to_owned()] } else { items }
}
