//! The applied configuration as TOML, with every key of its role and code written out.

use super::auth::{Known, NeighbourKey, PROFILES, word};
use super::code::Word;
use super::daemon::{EXITS, IDLE, SANDBOX, XDP_MODES};
use super::writer::{key, whole};
use super::{Address, Config, Daemon, Flow};
use recoded_pipeline::params::{
    FlowCode, FlowParams, PeerId, Recoding, Redundancy, Role, Spread, TunnelId,
};
use toml::Value;

/// Writes `config`; parsing the text gives it again.
pub fn render(config: &Config) -> String {
    let mut text = String::new();
    daemon(&mut text, &config.daemon);
    for link in &config.links {
        text.push_str("\n[[link]]\n");
        key(&mut text, "name", link.name.as_str());
        key(&mut text, "interface", link.interface.as_str());
        if link.is_local_written {
            key(&mut text, "local", link.local.to_string());
        }
        key(&mut text, "backend", link.backend.name());
        if let Some(rate) = link.rate_mbit {
            key(&mut text, "rate_mbit", rate);
        }
    }
    for tunnel in &config.tunnels {
        text.push_str("\n[[tunnel]]\n");
        key(&mut text, "name", tunnel.name.as_str());
        key(&mut text, "address", addresses(&tunnel.addresses));
        key(&mut text, "routes", routes(&tunnel.routes));
        if let Some((word, _)) = EXITS.iter().find(|(_, exit)| *exit == tunnel.exit) {
            key(&mut text, "exit", *word);
        }
        key(&mut text, "mtu", i64::from(tunnel.mtu));
        key(&mut text, "kill_switch", tunnel.kill_switch);
        if let Some(peer) = tunnel.tcp_split {
            key(&mut text, "tcp_split", peer.to_string());
        }
    }
    for NeighbourKey { neighbour, known, roams, path, name } in &config.neighbours {
        text.push_str("\n[[neighbour]]\n");
        key(&mut text, "link", config.links[neighbour.link].name.as_str());
        key(&mut text, "address", config.written(neighbour));
        keys(&mut text, ["public_key", "preshared_key"], known);
        key(&mut text, "one_way", known.one_way);
        key(&mut text, "roams", *roams);
        key(&mut text, "path", i64::from(*path));
        box_name(&mut text, "name", name);
    }
    for item in &config.flows {
        flow(&mut text, config, item);
    }
    text
}

/// Formats `address` of a tunnel.
fn addresses(addresses: &[Address]) -> Value {
    let mut written: Vec<Value> =
        addresses.iter().map(|(address, prefix)| format!("{address}/{prefix}").into()).collect();
    if written.len() == 1 { written.remove(0) } else { Value::Array(written) }
}

/// Formats `routes` of a tunnel.
fn routes(routes: &[Address]) -> Value {
    let written = routes.iter().map(|(address, prefix)| format!("{address}/{prefix}").into());
    Value::Array(written.collect())
}

/// Formats `redundancy`.
pub fn redundancy(redundancy: Redundancy) -> Value {
    match redundancy {
        Redundancy::Auto => "auto".into(),
        Redundancy::Fixed(factor) => factor.into(),
    }
}

/// Formats `recoding`.
pub fn recoding(recoding: Recoding) -> &'static str {
    match recoding {
        Recoding::Systematic => "systematic",
        Recoding::Random => "random",
    }
}

fn daemon(text: &mut String, daemon: &Daemon) {
    text.push_str("[daemon]\n");
    key(text, "socket", daemon.socket.to_string_lossy().into_owned());
    key(text, "workers", whole(daemon.workers));
    if let Some(cores) = &daemon.cores {
        key(text, "cores", cores.iter().map(|core| whole(*core)).collect::<Vec<_>>());
    }
    let idle = IDLE.iter().find(|(_, idle)| *idle == daemon.idle);
    key(text, "idle", idle.map_or("", |(name, _)| name));
    key(text, "frames", i64::from(daemon.frames));
    key(text, "port", i64::from(daemon.port));
    let mode = XDP_MODES.iter().find(|(_, mode)| *mode == daemon.xdp_mode);
    key(text, "xdp_mode", mode.map_or("", |(name, _)| name));
    key(text, "generations", whole(daemon.generations));
    key(text, "memory", super::budget::written(daemon.memory));
    key(text, "engine", daemon.engine.name());
    if let Some(card) = &daemon.fpga {
        key(text, "fpga", card.to_string());
    }
    if let Some(address) = &daemon.metrics {
        key(text, "metrics", address.to_string());
    }
    if let Some(path) = &daemon.private_key {
        key(text, "private_key", path.to_string_lossy().into_owned());
        key(text, "auth", word(daemon.auth));
    }
    key(text, "standby", daemon.standby);
    let sandbox = SANDBOX.iter().find(|(_, sandbox)| *sandbox == daemon.sandbox);
    key(text, "sandbox", sandbox.map_or("", |(name, _)| name));
    if let Some(user) = &daemon.user {
        key(text, "user", user.as_str());
    }
}

/// Writes the name of another box, if it is known.
fn box_name(text: &mut String, name: &str, value: &str) {
    if !value.is_empty() {
        key(text, name, value);
    }
}

/// Writes the keys of another host under `names`.
fn keys(text: &mut String, names: [&str; 2], known: &Known) {
    key(text, names[0], known.public.to_string());
    if let Some(path) = &known.preshared {
        key(text, names[1], path.to_string_lossy().into_owned());
    }
}

fn flow(text: &mut String, config: &Config, flow: &Flow) {
    let params = &flow.params;
    text.push_str("\n[[flow]]\n");
    key(text, "id", i64::from(params.id));
    let upstreams: Vec<PeerId> = params.upstreams().collect();
    match params.role {
        Role::Source { tunnel } => {
            key(text, "role", "source");
            key(text, "tunnel", tunnel_name(config, tunnel));
            key(text, "next_hops", hops(config, &params.next_hops));
            key(text, "spread", spread(params.spread));
            micros(text, "lag_timeout_us", params.lag_timeout_nanos);
            key(text, "shards", i64::from(params.shards));
            source_code(text, flow);
            symbol_bytes(text, flow);
            key(text, "redundancy", redundancy(params.redundancy));
            key(text, "target_loss", params.target_loss);
            key(text, "redundancy_max", params.redundancy_max);
            micros(text, "flush_timeout_us", params.flush_timeout_nanos);
            key(text, "repair", params.repair);
        }
        Role::Relay { .. } => {
            key(text, "role", "relay");
            key(text, "next_hops", hops(config, &params.next_hops));
            key(text, "spread", spread(params.spread));
            micros(text, "lag_timeout_us", params.lag_timeout_nanos);
            upstream(text, config, &upstreams);
            symbol_bytes(text, flow);
            key(text, "redundancy_max", params.redundancy_max);
            micros(text, "generation_timeout_us", params.generation_timeout_nanos);
            key(text, "recoding", recoding(params.recoding));
            key(text, "onward_share", params.onward_share);
            key(text, "adaptive", params.adaptive);
            key(text, "wrong_tags_max", i64::from(params.wrong_tags_max));
        }
        Role::Sink { tunnel, .. } => {
            key(text, "role", "sink");
            key(text, "tunnel", tunnel_name(config, tunnel));
            upstream(text, config, &upstreams);
            symbol_bytes(text, flow);
            micros(text, "generation_timeout_us", params.generation_timeout_nanos);
            micros(text, "hold_timeout_us", params.hold_timeout_nanos);
            key(text, "repair", params.repair);
            key(text, "wrong_tags_max", i64::from(params.wrong_tags_max));
            if flow.edge_group {
                key(text, "edge_group", true);
            }
        }
    }
    if let Some(known) = &flow.edge {
        keys(text, ["edge_key", "edge_preshared_key"], known);
        if known.one_way {
            key(text, "edge_one_way", true);
        }
    }
    box_name(text, "edge_name", &flow.edge_name);
    if params.sealed {
        let written = PROFILES.iter().find(|(_, strict)| *strict == params.strict);
        key(text, "edge_profile", written.map_or("", |(word, _)| *word));
    }
    for (name, keys) in [("sink_keys", &flow.sink_keys), ("relay_keys", &flow.relay_keys)] {
        if !keys.is_empty() {
            let keys = keys.iter().map(ToString::to_string);
            key(text, name, Value::Array(keys.map(Value::from).collect()));
        }
    }
    if let Some(source) = flow.source_key {
        key(text, "source_key", source.to_string());
    }
}

/// One neighbour, or a list.
fn upstream(text: &mut String, config: &Config, upstreams: &[PeerId]) {
    match upstreams {
        [one] => key(text, "upstream", hop(config, *one)),
        several => key(text, "upstream", hops(config, several)),
    }
}

/// Formats `spread`.
pub fn spread(spread: Spread) -> &'static str {
    match spread {
        Spread::Every => "every",
        Spread::Sum => "sum",
        Spread::Backup => "backup",
    }
}

/// An automatic choice is rendered as a comment.
fn source_code(text: &mut String, flow: &Flow) {
    if flow.written.code {
        code_keys(text, &flow.params);
    } else {
        key(text, "code", Word::Auto.name());
        let mut chosen = String::new();
        code_keys(&mut chosen, &flow.params);
        text.extend(chosen.lines().map(|line| format!("# auto: {line}\n")));
    }
    if let FlowCode::Stream(stream) = flow.params.code {
        if !flow.written.stream_symbols {
            text.push_str("# follows memory: ");
        }
        key(text, "stream_symbols", whole(stream.window_symbols));
        key(text, "stream_profile", stream.profile.name());
    }
}

fn code_keys(text: &mut String, params: &FlowParams) {
    key(text, "code", params.code.name());
    key(text, "field", i64::from(params.field.order()));
    match params.code {
        FlowCode::Rlnc => key(text, "generation_size", whole(params.generation_size)),
        #[cfg(feature = "bats")]
        FlowCode::Bats(bats) => super::bats::render_source(text, params, &bats),
        FlowCode::Stream(_) => {}
    }
}

/// A size that follows the MTU is rendered as a comment, so that the text can be used as a file
/// elsewhere.
fn symbol_bytes(text: &mut String, flow: &Flow) {
    if !flow.written.symbol_bytes {
        text.push_str("# follows the MTU: ");
    }
    key(text, "symbol_bytes", whole(flow.params.symbol_bytes));
}

fn tunnel_name(config: &Config, tunnel: TunnelId) -> String {
    config.tunnels[usize::from(tunnel.0)].name.clone()
}

fn hops(config: &Config, ids: &[PeerId]) -> Value {
    Value::Array(ids.iter().map(|id| hop(config, *id)).collect())
}

fn hop(config: &Config, id: PeerId) -> Value {
    let hop = config.hops[usize::from(id.0)];
    let mut table = toml::Table::new();
    table.insert("link".into(), config.links[hop.link].name.clone().into());
    table.insert("address".into(), config.written(&hop).into());
    Value::Table(table)
}

fn micros(text: &mut String, name: &str, nanos: u64) {
    key(text, name, whole(usize::try_from(nanos / 1_000).unwrap_or(usize::MAX)));
}
