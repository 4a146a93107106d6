//! The same traffic through the tunnel `rec0`, recoded at every relay.

use std::path::Path;
use std::time::{Duration, Instant};

use recoded_api::v1::{Flow, State};
use recoded_netns::traffic::{Download, Fetch, Iperf, UdpLoad, UdpOutcome, sha256};
use recoded_netns::{AuthPlan, Bed, BedError, Daemon, FlowPlan, LinePlan, Towards, TunnelPlan};

use crate::options::{Auth, Code, DemoOptions};
use crate::progress::Note;

/// Flow of the protected traffic, source to sink.
pub const DATA_FLOW: u32 = 1;

/// Its reverse, for acknowledgements.
pub const REVERSE_FLOW: u32 = 2;

/// Flow of the rank probe.
pub const PROBE_FLOW: u32 = 3;

/// Tunnel of the protected traffic.
pub const TUNNEL: TunnelPlan = TunnelPlan { name: "rec0", network: 99, mtu: None };

/// Tunnel of the rank probe.
pub const PROBE_TUNNEL: TunnelPlan = TunnelPlan { name: "probe0", network: 98, mtu: None };

/// Bytes per symbol of the probe: rank does not depend on it, and small packets take less time. Its
/// tunnel's MTU, up to forty less, must still be one that IPv4 guarantees (576).
pub const PROBE_SYMBOL_BYTES: usize = 616;

/// Daemons send at this share of a link's rate, so that queues build up in front of the tunnel,
/// where TCP sees them, and not in the links, where a generation would be cut.
const PACE: f64 = 0.97;

/// Offered UDP load as a share of capacity.
const LOAD: f64 = 0.6;

/// Bytes of every packet on a link: Ethernet, IPv4, UDP, the Recoded header, the tag of the hop.
const HEADER_BYTES: usize = 14 + 20 + 8 + 16 + 13;

/// Bytes that encryption adds to an IP packet.
const SEALING_BYTES: usize = 2 + 25;

/// Tag bytes at the end of a symbol that relays verify.
const TAG_BYTES: usize = 8;

/// Bytes of a packet's generation header.
const GENERATION_BYTES: f64 = 4.0;

/// Bytes of a BATS packet's batch and block header.
const BATCH_BYTES: f64 = 4.0 + 8.0;

/// Bytes of a stream packet's header.
const STREAM_BYTES: f64 = 8.0;

/// Slowest goodput before a download times out, as a share of the link rate.
const PATIENCE_SHARE: f64 = 0.01;

/// The daemons' configuration.
pub fn plan(options: &DemoOptions) -> LinePlan {
    let flow = |id, towards, tunnel: &TunnelPlan| FlowPlan {
        code: options.plan_of(options.code),
        field: options.field_order().order(),
        generation_size: options.generation_size(),
        ..FlowPlan::new(id, towards, tunnel.name)
    };
    // Acknowledgements are few, small and urgent, and do not fill blocks.
    let reverse = match options.chosen() {
        Code::Rlnc | Code::Stream => flow(REVERSE_FLOW, Towards::West, &TUNNEL),
        _ => FlowPlan::new(REVERSE_FLOW, Towards::West, TUNNEL.name),
    };
    let probe = FlowPlan {
        code: options.plan_of(options.chosen()),
        symbol_bytes: Some(PROBE_SYMBOL_BYTES),
        // Exactly as many packets as symbols on every hop, without repairs. A stream would be an
        // open loop, and its hops repair.
        redundancy: (options.chosen() != Code::Stream).then_some(1.0),
        repair: false,
        flush_timeout_us: Some(100_000),
        hold_timeout_us: Some(20_000),
        ..flow(PROBE_FLOW, Towards::East, &PROBE_TUNNEL)
    };
    // A packet fills a symbol exactly: with its length, unless it is of a stream; and with its
    // envelope, in front of the tag of the symbol.
    let framing = if options.chosen() == Code::Stream { 0 } else { 2 };
    let is_full = options.auth == Auth::Full;
    let sealing = if is_full { SEALING_BYTES + TAG_BYTES } else { 0 };
    let probe_mtu = PROBE_SYMBOL_BYTES - framing - sealing;
    let auth = (options.auth != Auth::None)
        .then(|| AuthPlan::new(options.auth.name(), options.hop_count()));
    let large = options.generation_size() > 32;
    LinePlan {
        hops: options.hop_count(),
        // A stream finds each link's rate by itself.
        pace_mbit: (options.chosen() != Code::Stream).then_some(PACE * options.rate_mbit()),
        tunnels: vec![TUNNEL, TunnelPlan { mtu: Some(probe_mtu), ..PROBE_TUNNEL }],
        flows: vec![flow(DATA_FLOW, Towards::East, &TUNNEL), reverse, probe],
        // A flow may hold this many generations; fewer if they are large, so that memory stays
        // bounded.
        generations: if large { 16 } else { 256 },
        auth,
        frames: if large || options.chosen() == Code::Bats { 16_384 } else { 8_192 },
        ..LinePlan::protected(options.hop_count())
    }
}

/// A download through the tunnel.
pub struct Downloaded {
    /// Report of curl.
    pub download: Download,
    /// Whether the file that arrived is the file that was sent.
    pub sha256_ok: bool,
    /// Packets sent by the source per source symbol.
    pub overhead: f64,
}

/// A download through the tunnel, whole, with its hash compared.
///
/// # Errors
/// When curl fails to report, or a file cannot be read.
pub fn download(
    bed: &Bed,
    daemons: &[Daemon],
    file: &Path,
    rate_mbit: f64,
    note: &Note,
) -> Result<Downloaded, BedError> {
    let sent = Sent::by(&daemons[0].show()?)?;
    let bytes = std::fs::metadata(file).map_err(BedError::file(file))?.len();
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let patience = 20.0 + bytes as f64 * 8e-6 / (rate_mbit * PATIENCE_SHARE);
    let limit = Duration::from_secs_f64(patience);
    let copy = bed.directory().join("recoded.download");
    let mut fetch = Fetch::start(bed.sink(), TUNNEL.source_address(), &name, &copy, limit)?;
    while fetch.is_running() {
        let share = fetch.bytes() as f64 / bytes as f64;
        note.say(format_args!("{:.0} % of {:.0} MB", share * 100.0, bytes as f64 / 1e6));
        std::thread::sleep(Duration::from_millis(100));
    }
    let download = fetch.finish()?;
    let overhead = Sent::by(&daemons[0].show()?)?.overhead_since(&sent);
    let sha256_ok = download.complete && sha256(file)? == sha256(&copy)?;
    // The copy is no longer needed, and takes space.
    let _ = std::fs::remove_file(&copy);
    Ok(Downloaded { download, sha256_ok, overhead })
}

/// A UDP measurement through the tunnel.
pub struct Measured {
    /// Result of iperf3.
    pub findings: UdpOutcome,
    /// UDP payload offered.
    pub offered_mbit: f64,
    /// Capacity of the links for it.
    pub capacity_mbit: f64,
    /// Packets sent by the source per source symbol.
    pub overhead: f64,
    /// Share of a core that each daemon used, in path order.
    pub core_shares: Vec<f64>,
}

/// iperf3 through the tunnel, including its control connection, below capacity. `overhead` is the
/// measured number of packets per symbol for these losses.
///
/// # Errors
/// When iperf3 or a daemon fails.
pub fn udp(
    bed: &Bed,
    daemons: &[Daemon],
    rate_mbit: f64,
    seconds: u64,
    overhead: f64,
) -> Result<Measured, BedError> {
    let before = daemons[0].show()?;
    let payload_bytes = tunnel_payload_bytes(&before, &TUNNEL)?;
    let symbol_rate = PACE * rate_mbit / overhead;
    let packet_bytes = packet_bytes(flow(&before, DATA_FLOW)?);
    let capacity_mbit = symbol_rate * payload_bytes as f64 / packet_bytes;
    let load =
        UdpLoad { to: TUNNEL.sink_address(), payload_bytes, mbit: LOAD * capacity_mbit, seconds };
    let sent = Sent::by(&before)?;
    let (started, times) = (Instant::now(), processor_times(daemons)?);
    let findings = Iperf::start(bed.source(), bed.sink(), &load, bed.directory())?.finish()?;
    let (elapsed, after) = (started.elapsed().as_secs_f64(), processor_times(daemons)?);
    let overhead = Sent::by(&daemons[0].show()?)?.overhead_since(&sent);
    let core_shares = times.iter().zip(&after).map(|(before, after)| (after - before) / elapsed);
    let core_shares = core_shares.collect();
    Ok(Measured { findings, offered_mbit: load.mbit, capacity_mbit, overhead, core_shares })
}

/// Seconds of processor time of each daemon.
fn processor_times(daemons: &[Daemon]) -> Result<Vec<f64>, BedError> {
    daemons.iter().map(|daemon| Ok(daemon.processor_time()?.as_secs_f64())).collect()
}

/// Packets that the source of the protected flow has sent.
struct Sent {
    symbols: u64,
    packets: u64,
}

impl Sent {
    fn by(source: &State) -> Result<Sent, BedError> {
        let flow = flow(source, DATA_FLOW)?;
        let sent = ["sent_systematic", "sent_coded", "sent_repair"];
        let packets = sent.iter().map(|name| flow.count(name)).sum();
        Ok(Sent { symbols: flow.count("source_symbols"), packets })
    }

    /// Packets per source symbol since an earlier reading.
    fn overhead_since(&self, earlier: &Sent) -> f64 {
        let symbols = self.symbols - earlier.symbols;
        if symbols == 0 { 1.0 } else { (self.packets - earlier.packets) as f64 / symbols as f64 }
    }
}

/// UDP payload of a full-size packet through a tunnel, from its MTU.
///
/// # Errors
/// When the daemon does not know the tunnel.
pub fn tunnel_payload_bytes(state: &State, tunnel: &TunnelPlan) -> Result<usize, BedError> {
    let found = state.tunnels.iter().find(|known| known.name == tunnel.name);
    let mtu = found.and_then(|tunnel| usize::try_from(tunnel.mtu).ok());
    let payload = mtu.and_then(|mtu| mtu.checked_sub(20 + 8));
    payload.ok_or_else(|| BedError::Output {
        program: "recodectl".into(),
        detail: format!("no tunnel {} of a usable MTU", tunnel.name),
    })
}

/// A flow of a daemon.
///
/// # Errors
/// When the daemon does not know it.
pub fn flow(state: &State, id: u32) -> Result<&Flow, BedError> {
    state.flows.iter().find(|flow| flow.id == u64::from(id)).ok_or_else(|| BedError::Output {
        program: "recodectl".into(),
        detail: format!("no flow {id}"),
    })
}

/// Bytes of a coded packet of this flow on a link.
fn packet_bytes(flow: &Flow) -> f64 {
    let vector_bytes = flow.generation_size as f64 * (flow.field.max(2) as f64).log2() / 8.0;
    let coding_bytes = match flow.code.as_str() {
        "bats" => BATCH_BYTES + vector_bytes,
        "stream" => STREAM_BYTES,
        _ => GENERATION_BYTES + vector_bytes,
    };
    HEADER_BYTES as f64 + coding_bytes + flow.symbol_bytes as f64
}
