//! Builds the state that the control socket shows, from configuration and observation.

use crate::awaited::name_awaited;
use crate::branches::{arrivals, carries_mbit};
use crate::config::auth::Auth;
use crate::config::code::Word;
use crate::config::render::{recoding, spread};
use crate::config::{Config, Flow as FlowConfig};
use crate::dataplane::Observation;
use crate::rates::{Rate, Rates};
use crate::theory;
use recoded_api::v1::{
    Engine, Flow, FlowNeighbour, HopLoss, Link, Parameters, Remote, Session, Split, State, Tunnel,
};
use recoded_pipeline::params::{FlowCode, FlowParams, Nanos, PeerId, Redundancy, Role};
use recoded_pipeline::report::{BlackHole, FlowCounters, FlowReport, NextHop, Remainder};
use recoded_runtime::secure::TRAILER_BYTES;
use recoded_runtime::{SessionReport, Sessions, ip_packet_bytes};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// Why a flow waits whose neighbour has no known address.
pub const AWAITED: &str = "its address is known once it sends: see that recoded runs there";

/// Silence after which a flow is quiet: as long as a next hop may be silent, and more than two
/// samples.
const QUIET_SECONDS: f64 = 3.0;

const ETHERNET_BYTES: usize = 14;

/// The complete state.
pub fn state(
    config: &Config,
    edition: u64,
    uptime: Duration,
    seen: Observation,
    rates: &Rates,
) -> State {
    State { config: config.to_toml(), ..observed(config, edition, uptime, seen, rates) }
}

/// The same without the text of the configuration.
pub fn observed(
    config: &Config,
    edition: u64,
    uptime: Duration,
    mut seen: Observation,
    rates: &Rates,
) -> State {
    for (index, link) in seen.links.iter_mut().enumerate() {
        let written = config.links.get(index).filter(|link| !link.local.is_unspecified());
        if let Some(written) = written {
            link.local = written.local.to_string();
        }
        let hops = config.hops.iter().filter(|hop| hop.link == index);
        for (neighbour, hop) in link.neighbours.iter_mut().zip(hops) {
            neighbour.name = config.box_name(hop).to_owned();
            if config.is_awaited(hop) {
                name_awaited(neighbour, hop.address, &config.links[index].name, config.shown(hop));
            }
            if let Some(trouble) = config.trouble(hop) {
                neighbour.address = config.written(hop);
                neighbour.waits = trouble.to_owned();
            } else if config.is_awaited(hop) && neighbour.said_ago_seconds.is_none() {
                neighbour.waits = AWAITED.to_owned();
            }
        }
    }
    let flows = config.flows.iter().map(|flow| {
        let id = flow.params.id;
        let reports = seen.flows.iter().flatten().filter(|report| report.id == id);
        let gone = seen.remainders.iter().filter(|remainder| remainder.flow == id);
        let reports = reports.collect::<Vec<_>>();
        let shown = show_flow(config, flow, &reports, gone, seen.at, rates.of(id));
        let waits = flow_waits(config, &flow.params, &seen.links);
        match waits.is_empty() {
            true => shown,
            false => Flow { state: Some("waiting".into()), waits, ..shown },
        }
    });
    let tunnels = config.tunnels.iter().enumerate().map(|(index, tunnel)| {
        let seen = seen.tunnels.get(index).cloned().unwrap_or_default();
        let mtu_configured = tunnel.mtu.into();
        let addresses = tunnel.addresses.iter();
        Tunnel {
            name: tunnel.name.clone(),
            addresses: addresses.map(|(address, prefix)| format!("{address}/{prefix}")).collect(),
            mtu: if seen.mtu > 0 { seen.mtu } else { mtu_configured },
            mtu_configured,
            split: tunnel.tcp_split.map(|peer| split(peer, seen.split)),
            ..seen
        }
    });
    State {
        version: env!("CARGO_PKG_VERSION").into(),
        protocol: recoded_wire::header::VERSION.into(),
        edition,
        uptime_seconds: uptime.as_secs(),
        kernel: recoded_gf::Kernel::best().name().into(),
        flows: flows.collect(),
        tunnels: tunnels.collect(),
        links: seen.links,
        workers: seen.workers,
        engine: Engine { mode: config.daemon.engine.name().into(), ..seen.engine },
        sessions: sessions(config, &seen.sessions),
        verdicts: seen.verdicts,
        drops: seen.drops,
        config: String::new(),
    }
}

/// Split connections of a tunnel: as seen, unless that was with another edge.
fn split(peer: IpAddr, seen: Option<Split>) -> Split {
    let peer = peer.to_string();
    let starting = || Split { peer: peer.clone(), state: "starting".into(), ..Split::default() };
    seen.filter(|seen| seen.peer == peer).unwrap_or_else(starting)
}

/// The reason why a flow waits: all its next hops wait, or all its upstreams do.
fn flow_waits(config: &Config, params: &FlowParams, links: &[Link]) -> String {
    let waits = |id: PeerId| {
        let hop = config.hops.get(usize::from(id.0))?;
        let link = links.get(hop.link).filter(|link| !link.waits.is_empty());
        let link = link.map(|link| format!("link {}: {}", link.name, link.waits));
        let trouble = || {
            let place =
                config.hops.iter().filter(|it| it.link == hop.link).position(|it| it == hop)?;
            let neighbour = links.get(hop.link)?.neighbours.get(place)?;
            let is_awaited = config.is_awaited(hop) && neighbour.said_ago_seconds.is_none();
            config.trouble(hop).or_else(|| is_awaited.then_some(AWAITED))
        };
        let shown = match config.is_awaited(hop) {
            true => config.shown(hop),
            false => config.written(hop),
        };
        link.or_else(|| Some(format!("{shown}: {}", trouble()?)))
    };
    let all_of = |peers: Vec<PeerId>| {
        let all: Option<BTreeSet<String>> = peers.into_iter().map(waits).collect();
        all.filter(|all| !all.is_empty())
    };
    let next_hops = all_of(params.next_hops.clone());
    let found = next_hops.or_else(|| all_of(params.upstreams().collect())).unwrap_or_default();
    found.into_iter().collect::<Vec<_>>().join("; ")
}

/// Parameters as configured, as far as they apply to the role; with `auto`, those of the chosen
/// code.
pub fn parameters(flow: &FlowConfig) -> Parameters {
    let params = &flow.params;
    let code = if flow.written.code { params.code.name() } else { Word::Auto.name() };
    let source = matches!(params.role, Role::Source { .. });
    let relay = matches!(params.role, Role::Relay { .. });
    let sink = matches!(params.role, Role::Sink { .. });
    let micros = |nanos: u64| nanos / 1_000;
    Parameters {
        shards: source.then(|| params.shards.into()),
        code: source.then(|| code.into()),
        field: source.then(|| params.field.order().into()),
        symbol_bytes: count(params.symbol_bytes),
        redundancy: source.then(|| match params.redundancy {
            Redundancy::Auto => "auto".into(),
            Redundancy::Fixed(factor) => factor.to_string(),
        }),
        target_loss: source.then_some(params.target_loss),
        redundancy_max: (!sink).then_some(params.redundancy_max),
        flush_timeout_us: source.then(|| micros(params.flush_timeout_nanos)),
        generation_timeout_us: (!source).then(|| micros(params.generation_timeout_nanos)),
        hold_timeout_us: sink.then(|| micros(params.hold_timeout_nanos)),
        recoding: relay.then(|| recoding(params.recoding).into()),
        adaptive: relay.then_some(params.adaptive),
        repair: (!relay).then_some(params.repair),
        ..if source { code_parameters(params) } else { Parameters::default() }
    }
}

/// Parameters that depend on the code.
fn code_parameters(params: &FlowParams) -> Parameters {
    match params.code {
        FlowCode::Rlnc => Parameters {
            generation_size: Some(count(params.generation_size)),
            ..Parameters::default()
        },
        #[cfg(feature = "bats")]
        FlowCode::Bats(bats) => bats_parameters(params, &bats),
        FlowCode::Stream(stream) => Parameters {
            stream_symbols: Some(count(stream.window_symbols)),
            stream_profile: Some(stream.profile.name().into()),
            ..Parameters::default()
        },
    }
}

/// Parameters of a BATS flow.
#[cfg(feature = "bats")]
fn bats_parameters(params: &FlowParams, bats: &recoded_pipeline::params::BatsParams) -> Parameters {
    use recoded_pipeline::params::Interleave;
    Parameters {
        block_symbols: Some(count(bats.source_symbols)),
        batch_size: Some(count(params.generation_size)),
        profile: Some(bats.profile.name().into()),
        generator_bits: Some(bats.generator_bits.into()),
        interleave: Some(match bats.interleave {
            Interleave::Auto => "auto".into(),
            Interleave::Fixed(depth) => depth.to_string(),
        }),
        ..Parameters::default()
    }
}

/// `gone` holds the counters of removed shards, `at` is the time of the reports, and `rate` comes
/// from samples.
fn show_flow<'a>(
    config: &Config,
    flow: &FlowConfig,
    reports: &[&FlowReport],
    gone: impl Iterator<Item = &'a Remainder>,
    at: Nanos,
    rate: Rate,
) -> Flow {
    let params = &flow.params;
    let (role, tunnel) = match params.role {
        Role::Source { tunnel } => ("source", Some(tunnel)),
        Role::Relay { .. } => ("relay", None),
        Role::Sink { tunnel, .. } => ("sink", Some(tunnel)),
    };
    let hop = |id| config.hop_name(id);
    // Workers differ only in the newest generation; the first with a report represents all.
    let newest = reports.iter().max_by_key(|report| report.counters.received);
    let mut counters = counters(reports, newest.copied());
    gone.for_each(|remainder| counters += &remainder.counters);
    let mut hops = hop_losses(reports);
    // Relays and sinks learn their parameters from packets.
    let is_source = matches!(params.role, Role::Source { .. });
    let in_use = newest.filter(|report| is_source || report.counters.received > 0);
    let in_use = in_use.map(|it| (&it.code, it.field, it.generation_size, it.symbol_bytes));
    let configured = (&params.code, params.field, params.generation_size, params.symbol_bytes);
    let in_use = in_use.or(is_source.then_some(configured));
    let arrived = newest.map_or(Vec::new(), |report| theory::arrived(params, report, &hops));
    hops.iter_mut().zip(&arrived).for_each(|(hop, share)| hop.arrived_theory = Some(*share));
    let expected = newest.and_then(|report| theory::expected_rank(report, &arrived));
    let is_mended = newest.is_some_and(|report| report.is_mended);
    let next_hops = NextHop::joined(reports.iter().flat_map(|report| &report.next_hops), at);
    let overhead_theory = theory::overhead(params, expected, is_mended, &hops, &next_hops);
    let delay = decode_delay(&counters);
    let neighbours = neighbours(config, next_hops, at);
    let ago = |then: Nanos| at.saturating_sub(then) as f64 / 1e9;
    let (received_ago, heard_ago) = (rate.received_at.map(ago), rate.heard_at.map(ago));
    Flow {
        state: flow_state(params, &neighbours, received_ago, rate).map(str::to_owned),
        waits: String::new(),
        heard_ago_seconds: heard_ago.filter(|_| is_source && neighbours.is_empty()),
        goodput_mbit: rate.goodput_mbit.filter(|_| tunnel.is_some()),
        wire_mbit: wire_mbit(config, params, rate),
        received_ago_seconds: received_ago.filter(|_| !is_source),
        id: params.id.into(),
        role: role.into(),
        tunnel: tunnel.map(|id| config.tunnels[usize::from(id.0)].name.clone()),
        next_hops: params.next_hops.iter().map(|id| hop(*id)).collect(),
        spread: (params.next_hops.len() > 1).then(|| spread(params.spread).into()),
        carries_mbit: carries_mbit(params, &neighbours),
        neighbours,
        arrivals: arrivals(config, reports, at),
        upstreams: params.upstreams().map(hop).collect(),
        end: flow.edge_name.clone(),
        parameters: parameters(flow),
        code: in_use.map_or(String::new(), |(code, ..)| code.name().into()),
        epoch: newest.map_or(0, |report| report.epoch.into()),
        field: in_use.map_or(0, |(_, field, ..)| field.order().into()),
        generation_size: in_use.map_or(0, |(_, _, size, _)| count(size)),
        symbol_bytes: in_use.map_or(0, |(.., bytes)| count(bytes)),
        planned: newest.map_or(0, |report| count(report.planned)),
        held: reports.iter().map(|report| count(report.held)).sum(),
        hops,
        residual_loss: residual_loss(role, &counters, reports),
        remote: remote(reports),
        rank_ratio: rank_ratio(&counters.rank_histogram),
        rank_theory: expected,
        overhead: overhead(role, &counters),
        overhead_theory,
        decode_delay_mean_us: delay.map(|(mean, _)| mean),
        decode_delay_max_us: delay.map(|(_, max)| max),
        counters: counters.iter().map(|(counter, sum)| (counter.name.to_owned(), sum)).collect(),
        rank_histogram: counters.rank_histogram,
    }
}

/// Mbit/s on the wire to the next hops, whose headers may differ in length.
fn wire_mbit(config: &Config, params: &FlowParams, rate: Rate) -> Option<f64> {
    let (packets, payloads) = rate.sent?;
    let tag = if config.daemon.auth == Auth::None { 0 } else { TRAILER_BYTES };
    let headers = params.next_hops.iter().map(|hop| {
        let address = config.hops[usize::from(hop.0)].address;
        ETHERNET_BYTES + ip_packet_bytes(address, tag)
    });
    let hops = headers.len();
    let headers = headers.sum::<usize>() as f64 / hops as f64;
    (hops > 0).then_some((payloads + packets * headers) * 8e-6)
}

/// State of a flow, from responses and arrivals. Streams know whether next hops respond; sources of
/// other codes rely on feedback while they send. Unknown at the source of an open loop, whose next
/// hops need not respond.
fn flow_state(
    params: &FlowParams,
    neighbours: &[FlowNeighbour],
    received_ago: Option<f64>,
    rate: Rate,
) -> Option<&'static str> {
    let is_source = matches!(params.role, Role::Source { .. });
    if is_source && params.is_open_loop() {
        return None;
    }
    if !neighbours.is_empty() && neighbours.iter().all(|hop| hop.silent) {
        return Some("down");
    }
    if is_source {
        if neighbours.is_empty() {
            return other_source_state(params, rate);
        }
        let is_heard = neighbours.iter().any(|hop| hop.heard_ago_seconds.is_some());
        return Some(if is_heard { "up" } else { "waiting" });
    }
    Some(match received_ago {
        None => "waiting",
        Some(seconds) if seconds <= QUIET_SECONDS => "up",
        Some(_) => "quiet",
    })
}

/// State of a source that is not a stream. Unknown if its configuration rules out feedback.
fn other_source_state(params: &FlowParams, rate: Rate) -> Option<&'static str> {
    let is_answered = (rate.unanswered as f64) < QUIET_SECONDS * 1e9;
    let state = match (rate.heard_at, rate.sent) {
        (None, _) if is_answered => "waiting",
        _ if !is_answered => "down",
        (_, Some((packets, _))) if packets > 0.0 => "up",
        _ => "quiet",
    };
    params.repair.then_some(state)
}

/// Packets per source symbol.
fn overhead(role: &str, counters: &FlowCounters) -> Option<f64> {
    let packets = match role {
        "source" => counters.sent_systematic + counters.sent_coded + counters.sent_repair,
        _ => counters.received,
    };
    let symbols = counters.source_symbols;
    (symbols > 0).then(|| packets as f64 / symbols as f64)
}

/// Mean and longest time to decode generations or blocks, in microseconds.
fn decode_delay(counters: &FlowCounters) -> Option<(f64, f64)> {
    let micros = |nanos: u64| nanos as f64 / 1e3;
    let (complete, max) = (counters.generations_complete, counters.decode_delay_nanos_max);
    let mean = micros(counters.decode_delay_nanos) / complete as f64;
    (max > 0 && complete > 0).then(|| (mean, micros(max)))
}

/// The sink's last report, from the worker that received the newest.
fn remote(reports: &[&FlowReport]) -> Option<Remote> {
    let heard = reports.iter().filter_map(|report| report.remote.as_ref());
    let remote = heard.max_by_key(|remote| remote.newest)?;
    let rank_histogram: Vec<u64> = remote.rank_histogram.iter().map(|n| u64::from(*n)).collect();
    Some(Remote {
        newest: remote.newest.into(),
        complete: remote.complete.into(),
        failed: remote.failed.into(),
        rank_ratio: rank_ratio(&rank_histogram),
        rank_histogram,
    })
}

/// Share of generations or symbols that were abandoned: at a sink from its own counters, at a
/// source from the last report of the sink to each of its shards.
fn residual_loss(role: &str, counters: &FlowCounters, reports: &[&FlowReport]) -> Option<f64> {
    let (failed, ended) = match role {
        "sink" => (counters.generations_failed, counters.generations),
        _ => reports.iter().filter_map(|report| report.remote.as_ref()).fold(
            (0, 0),
            |(failed, ended), remote| {
                let given_up = u64::from(remote.failed);
                (failed + given_up, ended + given_up + u64::from(remote.complete))
            },
        ),
    };
    (ended > 0).then(|| failed as f64 / ended as f64)
}

/// Sums counters, with histograms as long as that of the worker with the newest: lengths differ
/// only until all workers have seen the source's newest parameters.
fn counters(reports: &[&FlowReport], newest: Option<&FlowReport>) -> FlowCounters {
    let mut sum = newest.map_or_else(FlowCounters::default, |report| report.counters.clone());
    let others =
        reports.iter().filter(|report| newest.is_none_or(|it| !std::ptr::eq(it, **report)));
    others.for_each(|report| sum += &report.counters);
    sum
}

/// Mean rank of full-size generations over their size, which is the last index.
fn rank_ratio(histogram: &[u64]) -> Option<f64> {
    let size = histogram.len().checked_sub(1).filter(|size| *size > 0)?;
    let generations: u64 = histogram.iter().sum();
    let ranks = histogram.iter().zip(0_u64..).map(|(count, rank)| count * rank).sum::<u64>();
    (generations > 0).then(|| ranks as f64 / (generations as f64 * size as f64))
}

/// The next hops of a stream, from their reports up to `now`.
fn neighbours(config: &Config, next_hops: Vec<NextHop>, now: Nanos) -> Vec<FlowNeighbour> {
    let micros = |nanos: Nanos| nanos as f64 / 1e3;
    let packet = |hop: &NextHop, payload: u16| {
        let there = &config.hops[usize::from(hop.peer.0)];
        // The pipeline counts packets without the tag of a hop with keys.
        let tag = if config.known(there).is_some() { TRAILER_BYTES } else { 0 };
        Some(count(ip_packet_bytes(there.address, usize::from(payload) + tag)))
    };
    let neighbour = |hop: NextHop| FlowNeighbour {
        next_hop: config.hop_name(hop.peer),
        lost_packet_bytes: hop.black_hole.and_then(|hole| packet(&hop, hole.lost_bytes)),
        arrived_packet_bytes: hop
            .black_hole
            .filter(|hole| hole.came_bytes > 0)
            .and_then(|hole| packet(&hop, hole.came_bytes)),
        needed_packet_bytes: hop
            .black_hole
            .filter(BlackHole::is_below_tunnels)
            .and_then(|hole| packet(&hop, hole.needed_bytes)),
        rate_mbit: hop.bytes_per_second * 8.0 / 1e6,
        round_trip_us: hop.heard.map(|heard| micros(heard.round_trip_nanos)),
        queue_us: hop.heard.map(|heard| micros(heard.queue_nanos)),
        loss: hop.heard.and_then(|heard| heard.loss),
        silent: hop.is_silent(),
        heard_ago_seconds: hop.heard.map(|heard| now.saturating_sub(heard.at) as f64 / 1e9),
        share: hop.branch.share,
        in_doubt: hop.branch.is_in_doubt,
        behind_us: hop
            .heard
            .map(|_| hop.branch.waits_since.map_or(0.0, |since| micros(now.saturating_sub(since)))),
    };
    next_hops.into_iter().map(neighbour).collect()
}

/// Sessions with neighbours, then those with other ends of flows, then grants of sources.
fn sessions(config: &Config, seen: &Sessions) -> Vec<Session> {
    let session = |with, name: &str, report: &SessionReport| Session {
        with,
        name: name.to_owned(),
        key: report.key.clone(),
        age_seconds: report.age_nanos.map(|nanos| nanos as f64 / 1e9),
        handshakes: report.handshakes,
        refused: report.refused,
        refusal: report.refusal.clone(),
        one_way: report.one_way,
    };
    let hops = (0..).zip(&seen.hops).filter_map(|(id, report)| Some((id, report.as_ref()?)));
    let hops = hops.map(|(id, report)| {
        let name = config.hops.get(usize::from(id)).map_or("", |hop| config.box_name(hop));
        session(config.hop_name(PeerId(id)), name, report)
    });
    let end = |id: u32| config.flows.iter().find(|flow| flow.params.id == id);
    let edges = seen.edges.iter().map(|(flow, report)| {
        let name = end(*flow).map_or("", |flow| flow.edge_name.as_str());
        session(format!("flow {flow}"), name, report)
    });
    let columns = seen.columns.iter();
    let columns =
        columns.map(|(flow, report)| session(format!("source of flow {flow}"), "", report));
    hops.chain(edges).chain(columns).collect()
}

/// Losses by hop, averaged over the workers that know them.
fn hop_losses(reports: &[&FlowReport]) -> Vec<HopLoss> {
    let mut hops: Vec<(HopLoss, f64)> = Vec::new();
    for loss in reports.iter().flat_map(|report| &report.hops) {
        if !loss.loss.is_finite() || !loss.burst_mean.is_finite() {
            continue;
        }
        let hop = u64::from(loss.hop);
        let index = hops.iter().position(|(known, _)| known.hop == hop).unwrap_or_else(|| {
            hops.push((HopLoss { hop, ..HopLoss::default() }, 0.0));
            hops.len() - 1
        });
        let (sum, workers) = &mut hops[index];
        sum.loss += loss.loss;
        sum.burst_mean += loss.burst_mean;
        *workers += 1.0;
    }
    hops.sort_by_key(|(loss, _)| loss.hop);
    let mean = |(loss, workers): (HopLoss, f64)| HopLoss {
        hop: loss.hop,
        loss: loss.loss / workers,
        burst_mean: loss.burst_mean / workers,
        arrived_theory: None,
    };
    hops.into_iter().map(mean).collect()
}

/// A count in the control socket's type.
fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_pipeline::report::{Branch, Planned};

    const SOURCE: &str = r#"
[[link]]
name = "west"
interface = "eth0"
local = "10.0.1.3"
[[tunnel]]
name = "rec0"
address = "10.99.0.1/24"
[[flow]]
id = 1
role = "source"
tunnel = "rec0"
next_hops = [{ link = "west", address = "10.0.1.1" }]
"#;

    const KEYS: &str = r#"edge_key = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="
[[neighbour]]
link = "west"
address = "10.0.1.1"
public_key = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="
[daemon]
private_key = "/etc/recoded/private.key"
"#;

    /// A placeholder such as 0.0.0.1 was once shown as the address of a neighbour.
    #[test]
    fn neighbour_without_an_address_has_the_name_of_its_box_or_its_key() {
        let keys = KEYS.replace("[[neighbour]]", "edge_name = \"server\"\n[[neighbour]]");
        let text = format!("{SOURCE}{keys}").replace("10.0.1.1", "0.0.0.1");
        let roaming = text.replace("[daemon]", "roams = true\nname = \"laptop\"\n[daemon]");
        let shown = |text: &str| {
            let config = Config::parse("test.toml", text, &|_| None).expect("a configuration").2;
            let again = Config::parse("test.toml", &config.to_toml(), &|_| None);
            assert_eq!(again.expect("what is rendered is valid").2, config);
            assert_eq!(config.flows[0].edge_name, "server");
            config.hop_name(PeerId(0))
        };
        assert_eq!(shown(&roaming), "west:laptop");
        assert_eq!(shown(&roaming.replace("name = \"laptop\"\n[", "[")), "west:key-3p7bfXt9");
        let known = roaming.replace("0.0.0.1", "10.0.1.1");
        assert_eq!(shown(&known), "west:10.0.1.1", "an address that is known is shown");
    }

    /// The tag of a hop with keys was once left out, so that paths of the named MTU lost packets.
    #[test]
    fn packet_sizes_of_a_path_include_the_tag_of_a_hop_with_keys() {
        let black_hole = BlackHole { came_bytes: 500, lost_bytes: 600, needed_bytes: 643 };
        let hop = NextHop {
            peer: PeerId(0),
            bytes_per_second: 0.0,
            heard: None,
            silence: 0,
            black_hole: Some(black_hole),
            planned: Planned::default(),
            branch: Branch::default(),
        };
        for (keys, tag) in [("", 0), (KEYS, TRAILER_BYTES as u64)] {
            let text = format!("{SOURCE}{keys}");
            let config = Config::parse("test.toml", &text, &|_| None).expect("a configuration").2;
            let seen = neighbours(&config, vec![hop], 0).remove(0);
            assert_eq!(seen.needed_packet_bytes, Some(671 + tag));
            assert_eq!(seen.lost_packet_bytes, Some(628 + tag));
            assert_eq!(seen.arrived_packet_bytes, Some(528 + tag));
        }
    }
}
