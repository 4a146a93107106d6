//! `[[flow]]`: identity, neighbours, and the parameters that may change while it runs.

use super::auth::FlowKeys;
use super::auto::{self, Facts};
use super::code::CodeSettings;
use super::document::Section;
use super::error::ConfigError;
use super::find;
use super::fit::default_tunnel_mtu;
use super::reader::{Reader, float, shown, unicast};
use super::symbol::{Mtus, Paths, SYMBOL_BYTES_MAX, SYMBOL_BYTES_MIN, SymbolRoom, symbol_bytes_in};
use super::{Flow, Link, Neighbour, Tunnel, Written, refuse_duplicates};
use recoded_api::keys::{FLOW, Role as Kind};
use recoded_pipeline::egress::{STRICT_TAG_BYTES, TAG_BYTES};
use recoded_pipeline::params::{
    FlowCode, FlowParams, NEXT_HOPS_MAX, Nanos, PeerId, Recoding, Redundancy, Role, Spread,
    StreamParams, TunnelId, WRONG_TAGS_MAX, sealing_bytes,
};
use recoded_runtime::FrameSize;
use recoded_wire::shard::SHARDS_MAX;
use recoded_wire::steer::FLOWS_MAX;
use toml::Value;

/// Sections that flows refer to. Hops are collected as flows name them.
pub struct Context<'a> {
    /// The links.
    pub links: &'a [Link],
    /// The tunnels, and whether each has a configured MTU.
    pub tunnels: &'a [(Tunnel, bool)],
    /// MTUs of the interfaces.
    pub mtus: &'a Mtus,
    /// Size of frames.
    pub frame_size: FrameSize,
    /// Hops so far.
    pub hops: &'a mut Vec<Neighbour>,
}

impl Context<'_> {
    fn paths(&self) -> Paths<'_> {
        let Context { links, mtus, frame_size, .. } = *self;
        Paths { links, hops: self.hops, mtus, frame_size }
    }
}

/// Reads one flow. Returns `None` if a required part is missing; the error is then recorded.
pub fn flow(
    section: &Section,
    index: usize,
    generations: usize,
    workers: usize,
    context: &mut Context<'_>,
    errors: &mut Vec<ConfigError>,
) -> Option<Flow> {
    let mut reader = Reader::new(section, index, errors);
    let reader = &mut reader;
    reader.known(&FLOW);
    let id = number(reader);
    let kind = kind(reader)?;
    refuse_other_roles(reader, kind);

    let tunnel = if kind == Kind::Relay { None } else { tunnel(reader, context) };
    let upstreams = if kind == Kind::Source { None } else { upstreams(reader, context) };
    let spread = spread(reader);
    let next_hops = if kind == Kind::Sink { Some(Vec::new()) } else { next_hops(reader, context) };
    let redundancy_max = redundancy_max(reader);
    let redundancy = redundancy(reader, redundancy_max);
    let repair = reader.truth("repair").unwrap_or(true);
    let shards = shards(reader, workers);
    let given_bytes = given_symbol_bytes(reader);
    let keys = FlowKeys::read(reader);
    let written =
        if kind == Kind::Source { CodeSettings::read(reader) } else { Some(CodeSettings::LEARNED) };
    let coding = written.unwrap_or_else(|| {
        let hops = next_hops.as_deref().unwrap_or_default();
        let facts = facts(context, tunnel, hops, given_bytes, &keys);
        auto::read(reader, &Facts { repair, redundancy, shards, ..facts })
    });
    let coding = fit_window(reader, context, next_hops.as_deref(), given_bytes, coding);
    let symbol_bytes = match kind {
        Kind::Source => {
            source_symbol_bytes(reader, context, next_hops.as_deref(), given_bytes, coding)
        }
        // An upper bound: frames hold no more.
        _ => Some(given_bytes.unwrap_or(usize::MAX).min(symbol_bytes_in(context.frame_size))),
    };
    let target_loss = reader
        .number("target_loss", 1e-9..=0.5, "a share of generations from 1e-9 to 0.5")
        .unwrap_or(1e-4);
    let (flush_timeout_nanos, generation_timeout_nanos, hold_timeout_nanos) =
        timeouts(reader, kind);
    let (recoding, adaptive) = (recoding(reader), reader.truth("adaptive").unwrap_or(true));
    refuse_spread(reader, spread, kind, &coding.code);
    refuse_open_loop(reader, spread, redundancy, &coding.code);
    let (onward_share, lag_timeout_nanos) = (onward_share(reader), lag_timeout(reader));
    let (role, further_upstreams) = role(kind, tunnel, upstreams)?;
    let params = FlowParams {
        id: id?,
        role,
        next_hops: next_hops?,
        shards: u8::try_from(shards).unwrap_or(1),
        code: coding.code,
        field: coding.field,
        generation_size: coding.generation_size,
        symbol_bytes: symbol_bytes?,
        redundancy,
        target_loss,
        redundancy_max,
        flush_timeout_nanos,
        generation_timeout_nanos,
        hold_timeout_nanos,
        spread,
        lag_timeout_nanos,
        further_upstreams,
        recoding,
        onward_share,
        adaptive,
        repair,
        sealed: keys.seal(),
        tagged: keys.tag(),
        strict: keys.strict(),
        wrong_tags_max: wrong_tags_max(reader),
        generations,
    };
    refuse_beyond_frame(reader, &params, context.frame_size);
    Some(keys.of(params, Written::read(reader, written.is_some(), given_bytes.is_some())))
}

/// Reads `shards`; the default is the number of workers.
fn shards(reader: &mut Reader<'_>, workers: usize) -> usize {
    let range = 1..=SHARDS_MAX as u64;
    reader.whole("shards", range, "a flow has 1 to 16 shards", workers.min(SHARDS_MAX))
}

/// Reads `wrong_tags_max`.
fn wrong_tags_max(reader: &mut Reader<'_>) -> u32 {
    let rule = "it is a number of packets, 0 to 1000000";
    let number = reader.integer("wrong_tags_max", 0..=1_000_000, rule);
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or(WRONG_TAGS_MAX)
}

/// Reads `role`.
fn kind(reader: &mut Reader<'_>) -> Option<Kind> {
    let kinds = [("source", Kind::Source), ("relay", Kind::Relay), ("sink", Kind::Sink)];
    let rule = "it is \"source\", \"relay\" or \"sink\"";
    let kind = reader.choice("role", &kinds, rule);
    reader.require("role", kind, rule)
}

/// Reads the role, and all upstreams but the first.
fn role(
    kind: Kind,
    tunnel: Option<TunnelId>,
    upstreams: Option<Vec<PeerId>>,
) -> Option<(Role, Vec<PeerId>)> {
    if kind == Kind::Source {
        return Some((Role::Source { tunnel: tunnel? }, Vec::new()));
    }
    let mut upstreams = upstreams?;
    let further = upstreams.split_off(upstreams.len().min(1));
    let upstream = *upstreams.first()?;
    let role = match kind {
        Kind::Relay => Role::Relay { upstream },
        _ => Role::Sink { tunnel: tunnel?, upstream },
    };
    Some((role, further))
}

/// Reads `id`.
fn number(reader: &mut Reader<'_>) -> Option<u32> {
    let rule = "it is the number of the flow in every packet, 0 to 4294967295, the same on every \
                host of the path";
    let id = reader.integer("id", 0..=u64::from(u32::MAX), rule);
    reader.require("id", id, rule).and_then(|id| u32::try_from(id).ok())
}

fn recoding(reader: &mut Reader<'_>) -> Recoding {
    let recodings = [("systematic", Recoding::Systematic), ("random", Recoding::Random)];
    let rule = "it is \"systematic\" or \"random\"";
    reader.choice("recoding", &recodings, rule).unwrap_or(Recoding::Systematic)
}

/// Refuses sizes whose longest packet exceeds a frame: headroom, header, coding vector and symbol.
fn refuse_beyond_frame(reader: &mut Reader<'_>, params: &FlowParams, frame_size: FrameSize) {
    let (needed, frame_bytes) = (params.frame_bytes_min(), frame_size.bytes());
    if needed <= frame_bytes {
        return;
    }
    let before = needed - params.symbol_bytes;
    let with = match params.role {
        Role::Source { .. } => format!(" with generation_size {}", params.generation_size),
        _ => String::new(),
    };
    let rule = format!(
        "a frame has {frame_bytes} bytes, of which headers and coding vectors take up to {before}{with}, \
         which leaves {} for a symbol",
        frame_bytes.saturating_sub(before),
    );
    let bytes = params.symbol_bytes.to_string();
    reader.refuse_part("symbol_bytes", "symbol_bytes".into(), bytes, "is too large", &rule);
}

/// Applies the rules over all flows.
pub fn check_together(
    sections: &[Section],
    flows: &[Flow],
    tunnels: &[(Tunnel, bool)],
    errors: &mut Vec<ConfigError>,
) {
    refuse_duplicates(sections, "id", "a host has one role in a flow", errors);
    let most = usize::try_from(FLOWS_MAX).unwrap_or(usize::MAX);
    if let Some(section) = sections.get(most) {
        let rule = format!("the XDP program knows at most {most} flows");
        Reader::new(section, most, errors).refuse("id", "is one too many", &rule);
    }
    for (index, (tunnel, _)) in tunnels.iter().enumerate() {
        let sources: Vec<u32> = flows.iter().filter(|flow| flow.feeds(index)).map(id).collect();
        let Some(second) = sources.get(1) else {
            continue;
        };
        let at = sections.iter().position(|section| {
            section.get("id").and_then(|entry| entry.value.as_integer()) == Some(i64::from(*second))
        });
        let Some(at) = at else { continue };
        let rule = format!("packets of {} already go to flow {}", tunnel.name, sources[0]);
        Reader::new(&sections[at], at, errors).refuse("tunnel", "is taken", &rule);
    }
}

fn id(flow: &Flow) -> u32 {
    flow.params.id
}

/// Keys without effect mislead readers of the file, so they are refused.
fn refuse_other_roles(reader: &mut Reader<'_>, kind: Kind) {
    for key in FLOW.keys {
        if let Some(rule) = key.why_not(kind) {
            reader.unsuitable(key.name, &rule);
        }
    }
}

fn tunnel(reader: &mut Reader<'_>, context: &Context<'_>) -> Option<TunnelId> {
    let known: Vec<&str> = context.tunnels.iter().map(|(tunnel, _)| tunnel.name.as_str()).collect();
    let mut known_names = String::new();
    let named =
        reader.text("tunnel", "it is the name of a [[tunnel]]", |text| Some(text.to_owned()));
    let named = reader.require("tunnel", named, "sources and sinks name a [[tunnel]]")?;
    let index = find(&named, &known).map_err(|names| known_names = names).ok();
    if index.is_none() {
        reader.refuse("tunnel", "is unknown", &format!("the tunnels are {known_names}"));
    }
    index.and_then(|index| u16::try_from(index).ok()).map(TunnelId)
}

/// Reads `upstream`: one, or a list if paths merge.
fn upstreams(reader: &mut Reader<'_>, context: &mut Context<'_>) -> Option<Vec<PeerId>> {
    let rule =
        "relays and sinks say where feedback goes: { link = \"west\", address = \"10.0.1.1\" }";
    let value = reader.value("upstream");
    let value = reader.require("upstream", value, rule)?;
    match value.as_array() {
        None => hop(reader, context, "upstream", "upstream", value, rule).map(|hop| vec![hop]),
        Some(items) => {
            hop_list(reader, context, "upstream", "a flow has 1 to 8 upstreams", items, rule)
        }
    }
}

/// Reads `spread`.
fn spread(reader: &mut Reader<'_>) -> Spread {
    let spreads = [("every", Spread::Every), ("sum", Spread::Sum), ("backup", Spread::Backup)];
    let rule = "it is \"every\", \"sum\" or \"backup\"";
    reader.choice("spread", &spreads, rule).unwrap_or(Spread::Every)
}

/// Streams are spread over paths, and generations are spread round robin; other codes send
/// everything to every next hop.
fn refuse_spread(reader: &mut Reader<'_>, spread: Spread, kind: Kind, code: &FlowCode) {
    let is_able = match code {
        FlowCode::Stream(_) => true,
        FlowCode::Rlnc => spread == Spread::Sum,
        #[cfg(feature = "bats")]
        FlowCode::Bats(_) => false,
    };
    if kind == Kind::Source && !is_able && spread != Spread::Every {
        let rule = "code = \"stream\" can be spread over paths, rlnc only as \"sum\"";
        reader.refuse("spread", "does not suit the code", rule);
    }
}

/// The state of paths comes from reports, which an open loop does not have.
fn refuse_open_loop(
    reader: &mut Reader<'_>,
    spread: Spread,
    redundancy: Redundancy,
    code: &FlowCode,
) {
    let is_open_loop = code.is_stream() && matches!(redundancy, Redundancy::Fixed(_));
    if is_open_loop && spread != Spread::Every {
        let rule = "the state of paths comes from reports, which a stream with a fixed redundancy \
                    does not use: write redundancy = \"auto\" or spread = \"every\"";
        reader.refuse("spread", "does not suit a fixed redundancy", rule);
    }
}

/// Reads `onward_share`.
fn onward_share(reader: &mut Reader<'_>) -> f64 {
    let rule = "a share of the packets from 0.01 to 1";
    reader.number("onward_share", 0.01..=1.0, rule).unwrap_or(1.0)
}

/// Reads `lag_timeout_us`.
fn lag_timeout(reader: &mut Reader<'_>) -> Nanos {
    reader.microseconds("lag_timeout_us", 1_000..=10_000_000).unwrap_or(500_000) * 1_000
}

fn next_hops(reader: &mut Reader<'_>, context: &mut Context<'_>) -> Option<Vec<PeerId>> {
    let rule = "sources and relays list where packets go: \
                [{ link = \"east\", address = \"10.0.2.2\" }]";
    let value = reader.value("next_hops");
    let value = reader.require("next_hops", value, rule)?;
    let Some(items) = value.as_array() else {
        reader.refuse("next_hops", "is not a list", rule);
        return None;
    };
    hop_list(reader, context, "next_hops", "a flow has 1 to 8 next hops", items, rule)
}

/// Reads the 1 to 8 distinct neighbours of a key. `count` is the rule on their number, `rule` that
/// on each.
fn hop_list(
    reader: &mut Reader<'_>,
    context: &mut Context<'_>,
    key: &'static str,
    count: &str,
    items: &[Value],
    rule: &str,
) -> Option<Vec<PeerId>> {
    if items.is_empty() || items.len() > NEXT_HOPS_MAX {
        reader.refuse(key, "is too short or too long", count);
        return None;
    }
    let mut hops = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let part = format!("{key}[{index}]");
        let id = hop(reader, context, key, &part, item, rule)?;
        if hops.contains(&id) {
            let rule = "each neighbour is listed once";
            reader.refuse_part(key, part, shown(item), "is a repetition", rule);
        }
        hops.push(id);
    }
    Some(hops)
}

/// Reads one `{ link, address }`.
fn hop(
    reader: &mut Reader<'_>,
    context: &mut Context<'_>,
    key: &'static str,
    part: &str,
    value: &Value,
    rule: &str,
) -> Option<PeerId> {
    let mut refuse = |name: &str, value: Option<&Value>, verdict, rule: &str| {
        let value = value.map_or_else(|| "(nothing)".to_owned(), shown);
        reader.refuse_part(key, format!("{part}{name}"), value, verdict, rule);
        None
    };
    let Some(table) = value.as_table() else {
        return refuse("", Some(value), "is not a next hop", rule);
    };
    if let Some((name, value)) =
        table.iter().find(|(name, _)| !matches!(name.as_str(), "link" | "address"))
    {
        return refuse(
            &format!(".{name}"),
            Some(value),
            "is unknown",
            "a hop has link and address",
        );
    }
    let known: Vec<&str> = context.links.iter().map(|link| link.name.as_str()).collect();
    let named = table.get("link");
    let link = match find(named.and_then(Value::as_str).unwrap_or_default(), &known) {
        Ok(link) => link,
        Err(names) => {
            return refuse(".link", named, "is unknown", &format!("the links are {names}"));
        }
    };
    let written = table.get("address");
    let Some(address) = written.and_then(Value::as_str).and_then(unicast) else {
        let rule = "it is the neighbour's IP address on the link, or its host name";
        return refuse(".address", written, "is not an address", rule);
    };
    let Link { local, is_local_written, .. } = context.links[link];
    if address == local {
        return refuse(
            ".address",
            written,
            "is a local address",
            "it is the neighbour's IP address",
        );
    }
    // An invalid `local` reads as 0.0.0.0, and was already reported.
    let is_known = !is_local_written || local != std::net::Ipv4Addr::UNSPECIFIED;
    if address.is_ipv4() != local.is_ipv4() && is_known {
        let rule = match local.is_unspecified() && !is_local_written {
            true => "the neighbours of a link are all IPv4, or all IPv6".to_owned(),
            false => format!("the link's own address is {local}: both are IPv4 or both IPv6"),
        };
        return refuse(".address", written, "does not fit the link", &rule);
    }
    hop_id(context.hops, Neighbour { link, address })
}

fn hop_id(hops: &mut Vec<Neighbour>, hop: Neighbour) -> Option<PeerId> {
    let index = hops.iter().position(|known| *known == hop).unwrap_or_else(|| {
        hops.push(hop);
        hops.len() - 1
    });
    u16::try_from(index).ok().map(PeerId)
}

/// Reads `symbol_bytes`, if it is written.
fn given_symbol_bytes(reader: &mut Reader<'_>) -> Option<usize> {
    let rule = format!("a symbol has {SYMBOL_BYTES_MIN} to {SYMBOL_BYTES_MAX} bytes");
    let range = SYMBOL_BYTES_MIN as u64..=SYMBOL_BYTES_MAX as u64;
    let given = reader.integer("symbol_bytes", range, &rule);
    given.and_then(|bytes| usize::try_from(bytes).ok())
}

/// The facts that an automatic code depends on, except keys that set them directly.
fn facts(
    context: &Context<'_>,
    tunnel: Option<TunnelId>,
    next_hops: &[PeerId],
    given: Option<usize>,
    keys: &FlowKeys,
) -> Facts {
    let room = context.paths().room_behind(CodeSettings::STREAM.header_bytes(), next_hops);
    let symbol_bytes = match given {
        Some(bytes) if bytes > room.most => 0,
        Some(bytes) => bytes,
        None => room.default,
    };
    // Sealed flows also have tags.
    let tag_bytes = match (keys.seal(), keys.strict()) {
        (false, _) => 0,
        (true, false) => TAG_BYTES,
        (true, true) => STRICT_TAG_BYTES,
    };
    let symbol_bytes = symbol_bytes.saturating_sub(sealing_bytes(keys.seal()) + tag_bytes);
    let tunnel = tunnel.and_then(|id| context.tunnels.get(usize::from(id.0)));
    let packet_bytes = tunnel.map_or(0, |(tunnel, is_given)| match is_given {
        true => tunnel.mtu,
        false => default_tunnel_mtu(&tunnel.addresses, symbol_bytes),
    });
    Facts {
        repair: true,
        redundancy: Redundancy::Auto,
        shards: 1,
        packet_bytes: packet_bytes.into(),
        symbol_bytes,
    }
}

/// Sets the code; the default window of a stream depends on the length of its symbols.
fn fit_window(
    reader: &mut Reader<'_>,
    context: &Context<'_>,
    next_hops: Option<&[PeerId]>,
    given: Option<usize>,
    coding: CodeSettings,
) -> CodeSettings {
    let FlowCode::Stream(stream) = coding.code else { return coding };
    if reader.value("stream_symbols").is_some() {
        return coding;
    }
    let hops = next_hops.unwrap_or_default();
    let default = || context.paths().room_behind(coding.header_bytes(), hops).default;
    let most = StreamParams::window_for(given.unwrap_or_else(default));
    let window_symbols = stream.window_symbols.min(most);
    CodeSettings { code: FlowCode::Stream(StreamParams { window_symbols, ..stream }), ..coding }
}

/// Source: the configured size if the next hops' MTU allows it, otherwise the size that the MTU
/// allows.
fn source_symbol_bytes(
    reader: &mut Reader<'_>,
    context: &Context<'_>,
    next_hops: Option<&[PeerId]>,
    given: Option<usize>,
    coding: CodeSettings,
) -> Option<usize> {
    let (size_key, size) = coding.size();
    let SymbolRoom { most, default, tightest } =
        context.paths().room_behind(coding.header_bytes(), next_hops?);
    let (address, interface, mtu) = tightest;
    let room = format!(
        "{interface} carries {mtu}-byte packets, which leave {most} bytes for a symbol to {address} \
         with {size_key} {size} and field {}",
        coding.field
    );
    let most_in_window = coding.code.symbol_bytes_max();
    if let Some(bytes) = given.filter(|bytes| *bytes > most_in_window && *bytes <= most) {
        let rule =
            format!("{size_key} {size} leaves {most_in_window} bytes for a symbol: lower it");
        let (key, value) = ("symbol_bytes", bytes.to_string());
        reader.refuse_part(key, key.into(), value, "is too large", &rule);
        return None;
    }
    let default = default.min(most_in_window);
    let (key, value, verdict) = match given {
        Some(bytes) if bytes > most => ("symbol_bytes", bytes, "is too large"),
        Some(bytes) => return Some(bytes),
        None if default < SYMBOL_BYTES_MIN => (size_key, size, "leaves no room"),
        None => return Some(default),
    };
    reader.refuse_part(key, key.into(), value.to_string(), verdict, &room);
    None
}

fn redundancy_max(reader: &mut Reader<'_>) -> f64 {
    let rule = "1 to 32 packets per symbol may be sent";
    reader.number("redundancy_max", 1.0..=32.0, rule).unwrap_or(4.0)
}

fn redundancy(reader: &mut Reader<'_>, redundancy_max: f64) -> Redundancy {
    let Some(value) = reader.value("redundancy") else {
        return Redundancy::Auto;
    };
    if value.as_str() == Some("auto") {
        return Redundancy::Auto;
    }
    match float(value) {
        Some(factor) if factor >= 1.0 && factor <= redundancy_max => Redundancy::Fixed(factor),
        Some(_) => {
            let rule = format!(
                "a factor is at least 1 and at most redundancy_max, which is {redundancy_max}"
            );
            reader.refuse("redundancy", "is out of range", &rule);
            Redundancy::Auto
        }
        None => {
            let rule = "it is \"auto\" or a factor of at least 1";
            reader.refuse("redundancy", "is not a choice", rule);
            Redundancy::Auto
        }
    }
}

/// Reads the flush, generation and hold timeouts.
fn timeouts(reader: &mut Reader<'_>, kind: Kind) -> (Nanos, Nanos, Nanos) {
    let flush = reader.microseconds("flush_timeout_us", 1..=1_000_000).unwrap_or(1_000);
    let generation = reader.microseconds("generation_timeout_us", 1..=10_000_000).unwrap_or(20_000);
    let hold = reader.microseconds("hold_timeout_us", 1..=60_000_000).unwrap_or(200_000);
    if kind == Kind::Sink && hold < generation {
        let key =
            if reader.has("hold_timeout_us") { "hold_timeout_us" } else { "generation_timeout_us" };
        let rule = format!(
            "delivery must wait (hold_timeout_us, {hold}) at least as long as a repair request \
             does (generation_timeout_us, {generation})"
        );
        reader.refuse(key, "does not fit", &rule);
    }
    (flush * 1_000, generation * 1_000, hold * 1_000)
}
