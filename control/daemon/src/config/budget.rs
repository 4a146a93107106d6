//! `memory`: bounds the daemon's allocations for packets and flows, and checks a configuration
//! against it.
//!
//! Frames, queues of tunnels and tables of sources are allocated when workers start or a flow is
//! created, so their sum is known beforehand. Relays and sinks allocate according to the packets
//! that they receive: at least one shard of usual size each, and at most the rest of the budget.
//! The default grows with the number of flows, so that each can open.

use super::code::STREAM_SYMBOLS;
use super::document::Section;
use super::error::ConfigError;
use super::reader::Reader;
use super::{Daemon, Flow};
use recoded_pipeline::params::{FlowCode, Role, StreamParams};
use recoded_runtime::{FrameSize, tunnel_queue_bytes, worker_memory_bytes};

/// Default budget: enough for dozens of usual flows, not for a mistyped size.
pub const MEMORY_DEFAULT: u64 = 512 << 20;

/// Smallest budget: the fewest frames, and a flow.
const MEMORY_MIN: u64 = 4 << 20;

/// Largest budget: a larger one is more likely a typing error than a real machine.
const MEMORY_MAX: u64 = 1 << 40;

/// Consumers that an error message names.
const NAMED_MAX: usize = 3;

/// Fewest packets that a stream keeps when memory limits it: 50 ms at 60 Mbit/s.
const WINDOW_MIN: usize = 512;

/// Units in ascending order.
const UNITS: [(&str, u64); 2] = [("MiB", 1 << 20), ("GiB", 1 << 30)];

/// Number of interfaces that workers allocate for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Interfaces {
    /// Links, each with a socket per worker.
    pub links: usize,
    /// Tunnels, each with a queue per worker.
    pub tunnels: usize,
}

/// Allocations that do not depend on flows.
#[derive(Copy, Clone)]
pub struct Base<'a> {
    /// `[daemon]`.
    pub daemon: &'a Daemon,
    /// The interfaces.
    pub interfaces: Interfaces,
    /// Size of frames.
    pub frame_size: FrameSize,
}

/// Reads `memory`.
pub fn read(reader: &mut Reader<'_>) -> Option<u64> {
    let rule = "it is a size of 4 MiB to 1024 GiB, such as \"512 MiB\" or \"2 GiB\"";
    reader.text("memory", rule, parse)
}

/// Parses `512 MiB`, and `512M` as systemd writes it.
fn parse(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let named = |(name, _): &&(&str, u64)| unit == *name || unit == &name[..1];
    let (_, factor) = UNITS.iter().find(named)?;
    let bytes = number.parse::<u64>().ok()?.checked_mul(*factor)?;
    (MEMORY_MIN..=MEMORY_MAX).contains(&bytes).then_some(bytes)
}

/// Formats a size for `memory`.
pub fn written(bytes: u64) -> String {
    let whole = |(_, factor): &&(&str, u64)| bytes.is_multiple_of(*factor);
    let (name, factor) = UNITS.iter().rev().find(whole).unwrap_or(&UNITS[0]);
    format!("{} {name}", bytes / factor)
}

/// Formats a size for a sentence.
pub fn shown(bytes: u64) -> String {
    let mebibytes = bytes as f64 / (1 << 20) as f64;
    if mebibytes >= 1024.0 {
        format!("{:.1} GiB", mebibytes / 1024.0)
    } else {
        format!("{:.0} MiB", mebibytes.ceil())
    }
}

/// All allocations by purpose.
fn consumers(base: Base<'_>, flows: &[Flow]) -> Vec<(String, u64)> {
    let Base { daemon, interfaces, frame_size } = base;
    let on_all = |bytes: usize| (bytes as u64).saturating_mul(daemon.workers as u64);
    let flow = |Flow { params, .. }: &Flow| {
        let role = match params.role {
            Role::Source { .. } => "source",
            Role::Relay { .. } => "relay",
            Role::Sink { .. } => "sink",
        };
        let shards = match params.role {
            Role::Source { .. } => u64::from(params.shards),
            _ => 1,
        };
        let bytes = (params.memory_bytes() as u64).saturating_mul(shards);
        (format!("flow {} ({role})", params.id), bytes)
    };
    let Interfaces { links, tunnels } = interfaces;
    let mut consumers: Vec<_> = flows.iter().map(flow).collect();
    let frames = worker_memory_bytes(daemon.frames, frame_size, links);
    consumers.push(("frames".to_owned(), on_all(frames)));
    consumers.push((
        "queues of tunnels".to_owned(),
        on_all(tunnels * tunnel_queue_bytes(daemon.workers, tunnels)),
    ));
    consumers
}

/// Upper bound on the bytes that workers allocate for packets and flows.
pub fn needed(base: Base<'_>, flows: &[Flow]) -> u64 {
    consumers(base, flows).iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
}

/// Bytes that frames and queues leave for flows: tables of sources, and state that packets announce
/// at relays and sinks.
pub fn for_flows(base: Base<'_>) -> u64 {
    base.daemon.memory.saturating_sub(needed(base, &[]))
}

/// Sizes the windows of streams without `stream_symbols` so that together they fit `memory`:
/// smaller at a hub of many tunnels than on a box with one.
pub fn fit_windows(base: Base<'_>, flows: &mut [Flow]) {
    let window = window(base, flows);
    flows.iter_mut().for_each(|flow| narrow(flow, window));
}

/// The largest window, a power of two, that lets all streams of a node fit `memory`. Never below
/// [`WINDOW_MIN`] packets, even if the streams then do not fit.
pub fn window(base: Base<'_>, flows: &[Flow]) -> usize {
    let halves = std::iter::successors(Some(STREAM_SYMBOLS), |window| Some(window / 2));
    // A default that grew for many flows has them begin. Windows are those of the usual default, so
    // that every box renders the same ones, whatever memory it has.
    let mut daemon = base.daemon.clone();
    daemon.memory = daemon.memory.min(MEMORY_DEFAULT);
    let usual = Base { daemon: &daemon, ..base };
    let has_grown = base.daemon.memory <= default_for(usual, flows, MEMORY_MAX);
    let base = if has_grown { usual } else { base };
    let fits = |window: &usize| needed_at(base, flows, *window) <= base.daemon.memory;
    halves.take_while(|window| *window > WINDOW_MIN).find(fits).unwrap_or(WINDOW_MIN)
}

/// [`needed`] once all streams are open with windows of at most `window`. Those that pass or end
/// here count, too: their sources announce their windows.
fn needed_at(base: Base<'_>, flows: &[Flow], window: usize) -> u64 {
    let mut flows = flows.to_vec();
    for flow in &mut flows {
        narrow(flow, window);
        if !matches!(flow.params.role, Role::Source { .. }) {
            flow.params.code = FlowCode::Stream(StreamParams::new(window));
        }
    }
    needed(base, &flows)
}

/// [`needed`] once all streams are open with the smallest windows, if `memory` is less: the streams
/// that open last are then refused.
pub fn needed_beyond_memory(base: Base<'_>, flows: &[Flow]) -> Option<u64> {
    Some(needed_at(base, flows, WINDOW_MIN)).filter(|needed| *needed > base.daemon.memory)
}

/// Default of `memory` for these flows: that of the box, doubled until all streams fit with the
/// smallest windows, and at most `most` bytes. Sizes that are written do not raise it: they may be
/// mistyped.
pub fn default_for(base: Base<'_>, flows: &[Flow], most: u64) -> u64 {
    let usual = |flow: &&Flow| flow.window().is_none() || !flow.written.stream_symbols;
    let flows: Vec<Flow> = flows.iter().filter(usual).cloned().collect();
    let frames_and_queues = needed(base, &[]);
    let streams = needed_at(base, &flows, WINDOW_MIN).saturating_sub(frames_and_queues);
    let needed = streams.saturating_add(frames_and_queues.min(MEMORY_DEFAULT / 2));
    let mut memory = base.daemon.memory;
    while memory < needed && memory <= most / 2 {
        memory *= 2;
    }
    memory
}

/// Limits a stream to `window` packets if its size is not configured.
fn narrow(flow: &mut Flow, window: usize) {
    if let FlowCode::Stream(stream) = &mut flow.params.code
        && !flow.written.stream_symbols
    {
        stream.window_symbols = stream.window_symbols.min(window);
    }
}

/// Refuses a configuration that needs more than its budget.
pub fn refuse_beyond(
    section: &Section,
    base: Base<'_>,
    flows: &[Flow],
    errors: &mut Vec<ConfigError>,
) {
    let (daemon, needed) = (base.daemon, needed(base, flows));
    if needed <= daemon.memory {
        return;
    }
    let mut consumers = consumers(base, flows);
    consumers.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let named = consumers.iter().take(NAMED_MAX);
    let mut largest: Vec<String> =
        named.map(|(name, bytes)| format!("{name} {}", shown(*bytes))).collect();
    if let Some(others) = consumers.len().checked_sub(NAMED_MAX).filter(|others| *others > 0) {
        largest.push(format!("{others} more"));
    }
    let rule = format!(
        "this configuration takes {}: {}: lower stream_symbols, generations or frames, or raise \
         memory",
        shown(needed),
        largest.join(", ")
    );
    let value = format!("\"{}\"", written(daemon.memory));
    Reader::new(section, 0, errors).refuse_part(
        "memory",
        "memory".into(),
        value,
        "is too little",
        &rule,
    );
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::super::tests::{HEAD, RELAY, SINK, errors, parse};
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        let sizes = [
            ("512 MiB", 512 << 20, "512 MiB"),
            ("512M", 512 << 20, "512 MiB"),
            ("2GiB", 2 << 30, "2 GiB"),
            ("1024 MiB", 1 << 30, "1 GiB"),
            ("1536 MiB", 3 << 29, "1536 MiB"),
        ];
        for (text, bytes, again) in sizes {
            assert_eq!(super::parse(text), Some(bytes), "{text}");
            assert_eq!(written(bytes), again);
            assert_eq!(super::parse(again), Some(bytes));
        }
        let bad =
            ["", "512", "MiB", "-1 MiB", "1.5 GiB", "512 MB", "3 MiB", "99999999999999999999 M"];
        for text in bad.into_iter().chain(["20000000 GiB", "512 MiB x", "1025 GiB"]) {
            assert_eq!(super::parse(text), None, "{text}");
        }
    }

    #[test]
    fn memory_that_is_no_size_is_refused() {
        for value in ["512", "\"lots\"", "\"1 MiB\""] {
            let said = errors(&format!("[daemon]\nmemory = {value}\n{HEAD}{RELAY}"));
            assert!(said.starts_with("relay.toml:2: daemon: memory = "), "{said}");
            assert!(said.ends_with("such as \"512 MiB\" or \"2 GiB\""), "{said}");
        }
    }

    #[test]
    fn configuration_above_its_memory_is_refused_and_the_largest_consumers_named() {
        let text = |memory: &str| {
            format!(
                "[daemon]\ngenerations = 4096\nframes = 1024\n{memory}{HEAD}{RELAY}[[flow]]\nid = 2\n{RELAY}\
                 [[flow]]\nid = 3\n{SINK}"
            )
        };
        let said = errors(&text("memory = \"16 MiB\"\n"));
        let expected =
            "relay.toml:4: daemon: memory = \"16 MiB\" is too little: this configuration takes ";
        assert!(said.starts_with(expected), "{said}");
        assert!(
            said.contains("takes 37 MiB: queues of tunnels ") && said.contains(", 2 more: lower"),
            "{said}"
        );
        let config = parse(&text("memory = \"64 MiB\"\n")).expect("enough");
        assert_eq!(config.daemon.memory, 64 << 20);
        assert!(config.to_toml().contains("memory = \"64 MiB\"\n"));
        let needed = needed(config.base(), &config.flows);
        assert!((16 << 20..=64 << 20).contains(&needed), "{needed}");
        // Without a source, only frames and queues reduce the memory for announced packets.
        assert!(for_flows(config.base()) > (64 << 20) - needed);
    }

    /// A hub with `clients` clients, each with a tunnel and a flow in each direction.
    fn hub(clients: usize, daemon: &str, source: &str) -> String {
        let mut text = format!("[daemon]\n{daemon}[[link]]\nname = \"l\"\ninterface = \"eth0\"\n");
        for client in 0..clients {
            let (tunnel, address) = (format!("rec{client}"), format!("10.1.{client}.2"));
            let flow = |id: usize| format!("[[flow]]\nid = {id}\ntunnel = \"{tunnel}\"\n");
            let place = format!("{{ link = \"l\", address = \"{address}\" }}");
            text += &format!(
                "[[tunnel]]\nname = \"{tunnel}\"\naddress = \"10.99.{client}.1/24\"\n\
                 {}role = \"source\"\nnext_hops = [{place}]\n{source}\
                 {}role = \"sink\"\nupstream = {place}\n",
                flow(2 * client),
                flow(2 * client + 1),
            );
        }
        text
    }

    /// Windows of all sources.
    fn windows(config: &Config) -> Vec<usize> {
        config.flows.iter().filter_map(Flow::window).collect()
    }

    #[test]
    fn streams_of_many_tunnels_fit_the_default_memory_and_share_it() {
        for (clients, window) in [(1, 32_768), (4, 16_384), (20, 4096), (64, 512), (200, 512)] {
            let config = parse(&hub(clients, "", "")).expect("it fits");
            assert_eq!(windows(&config), vec![window; clients], "{clients} clients");
            assert!(needed(config.base(), &config.flows) <= config.daemon.memory);
            assert_eq!(parse(&config.to_toml()).expect("valid"), config);
        }
        // More memory gives longer windows; a small box gets what fits.
        let config = parse(&hub(20, "memory = \"4 GiB\"\n", "")).expect("it fits");
        assert_eq!(windows(&config), vec![32_768; 20]);
        let config = parse(&hub(1, "memory = \"64 MiB\"\nframes = 4096\n", "")).expect("it fits");
        assert_eq!(windows(&config), [8192]);
        // Of 64 MB of memory, the least budget.
        let config = parse(&hub(1, "memory = \"32 MiB\"\nframes = 4096\n", "")).expect("it fits");
        assert_eq!(windows(&config), [1024]);
    }

    #[test]
    fn default_memory_grows_with_the_tunnels_of_a_hub_as_far_as_its_box_allows() {
        // Nothing else may be refused because of it: the sum of all that its clients open.
        for (clients, memory) in [(1, 512), (64, 512), (120, 1024), (200, 2048)] {
            let config = parse(&hub(clients, "", "")).expect("it fits");
            assert_eq!(config.daemon.memory >> 20, memory, "{clients} clients");
            assert_eq!(needed_beyond_memory(config.base(), &config.flows), None);
        }
        let config = parse(&hub(200, "memory = \"512 MiB\"\n", "")).expect("it starts");
        assert_eq!(config.daemon.memory, 512 << 20);
        let needed = needed_beyond_memory(config.base(), &config.flows).expect("it is too little");
        let most = |most: u64| default_for(config.base(), &config.flows, most << 20);
        assert_eq!(
            [most(512), most(900), most(1024), most(4096)].map(|it| it >> 20),
            [512, 512, 1024, 2048]
        );
        assert!(needed < 3 << 29, "{needed}");
    }

    #[test]
    fn windows_that_are_written_stay_and_are_refused_where_they_do_not_fit() {
        let config = parse(&hub(8, "", "stream_symbols = 16384\n")).expect("it fits");
        assert_eq!(windows(&config), vec![16_384; 8]);
        let said = errors(&hub(20, "", "stream_symbols = 32768\n"));
        assert!(said.contains("memory = \"512 MiB\" is too little"), "{said}");
        assert!(said.contains("flow 0 (source) 50 MiB"), "{said}");
    }

    #[test]
    fn every_worker_counts() {
        let text = |workers: usize| format!("[daemon]\nworkers = {workers}\n{HEAD}{RELAY}");
        let of = |workers| {
            let config = parse(&text(workers)).expect("valid");
            needed(config.base(), &config.flows)
        };
        // Each adds frames, and from four on queues; the flow starts on one of them.
        assert_eq!(of(12) - of(4), 4 * (of(6) - of(4)));
        assert!(of(4) > of(1) + 3 * (32 << 20));
        assert!(errors(&text(64)).contains("frames 2.1 GiB"), "{}", errors(&text(64)));
    }
}
