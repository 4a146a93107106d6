//! What the control socket carries, version 1. Types that derive `Type` are whole replies, those
//! that derive `CustomType` are parts of them and have names in the interface description.
//!
//! Counters count from the daemon's start and never go down. They come by name:
//! `dataplane/counters` lists them with their meanings. Sizes are bytes, losses are shares
//! from 0 to 1. Keys are stable: they may gain siblings, they never change, and disappear only
//! with the code that they describe.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use zlink::introspect::{CustomType, Type};

mod neighbours;
mod split;

pub use neighbours::{Disagreement, FlowNeighbour, FlowUpstream, Neighbour};
pub use split::Split;

/// Everything a daemon knows about itself.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, Type)]
pub struct State {
    /// Version of the daemon.
    pub version: String,
    /// Version of the protocol between boxes; 0 from daemons that do not report it.
    #[serde(default)]
    pub protocol: u64,
    /// Edition of the configuration that was published last; 1 is that of the file at the start.
    pub edition: u64,
    /// Seconds since the daemon started.
    pub uptime_seconds: u64,
    /// Field arithmetic in use, by instruction set.
    pub kernel: String,
    /// Links, in configuration order.
    pub links: Vec<Link>,
    /// Workers; each polls the receive queues that it owns.
    pub workers: Vec<Worker>,
    /// Flows, in configuration order, summed over workers.
    pub flows: Vec<Flow>,
    /// Tunnels, in configuration order.
    pub tunnels: Vec<Tunnel>,
    /// Packets seen by the XDP program, by its verdict.
    pub verdicts: BTreeMap<String, u64>,
    /// Packets dropped by the pipeline, by reason, summed over workers. Every reason is listed.
    pub drops: BTreeMap<String, u64>,
    /// Who does bulk work.
    pub engine: Engine,
    /// Sessions with neighbours and with other ends of flows that have keys.
    #[serde(default)]
    pub sessions: Vec<Session>,
    /// The active configuration, as TOML with every key written out.
    pub config: String,
}

/// What was agreed on with a neighbour, or with the other end of a flow.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, CustomType)]
pub struct Session {
    /// link:address of a neighbour, link:name while its address is not known; flow and its number;
    /// source of flow and its number at a relay.
    pub with: String,
    /// Name of the box; empty if the configuration has none.
    #[serde(default)]
    pub name: String,
    /// The public key that the other one must have.
    pub key: String,
    /// Seconds since the keys in use were agreed on; null while there are none.
    pub age_seconds: Option<f64>,
    /// Handshakes that were finished; with one_way, epochs announced.
    pub handshakes: u64,
    /// Messages that were refused.
    pub refused: u64,
    /// Why the last one was; empty when none was.
    pub refusal: String,
    /// Whether keys come of a pre-shared key, without an answer.
    pub one_way: bool,
}

/// Who solves large generations, and what became of those that were offered to an accelerator.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, CustomType)]
pub struct Engine {
    /// auto, cpu, cuda or fpga, as configured.
    pub mode: String,
    /// Whether an accelerator is in use.
    pub up: bool,
    /// Which one, and whether it is simulated; empty while there is none.
    #[serde(default)]
    pub device: String,
    /// Why none is, or why the last one failed; empty when none ever did.
    pub reason: String,
    /// Generations that workers offered.
    pub offered: u64,
    /// Of these, taken.
    pub taken: u64,
    /// Of these, solved by the accelerator.
    pub offloaded: u64,
    /// Bytes copied to the accelerator and back for them.
    pub offloaded_bytes: u64,
    /// Offered and left to the worker, by reason.
    pub declined: BTreeMap<String, u64>,
    /// Taken and done again by the CPU, by the accelerator's fault.
    pub redone: BTreeMap<String, u64>,
    /// Bundles, by why they were closed.
    pub bundles: BTreeMap<String, u64>,
    /// Bundles by size: up to 4 KiB, 8 KiB, 16 KiB and on.
    pub bundle_bytes: Vec<u64>,
    /// Bundles by the time from their first generation to its result: up to 1 us, 2 us, 4 us and
    /// on.
    pub latency_us: Vec<u64>,
    /// Every counter that is not by reason, by name; those above too.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
}

/// Who does bulk work from now on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, Type)]
pub struct EngineSet {
    /// The state after the change.
    pub engine: Engine,
}

/// One link: an interface, and the sockets on it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, CustomType)]
pub struct Link {
    /// Name in the configuration.
    pub name: String,
    /// Network interface.
    pub interface: String,
    /// The address of this node on it.
    pub local: String,
    /// up, down, or waiting; then packets for it are dropped.
    #[serde(default)]
    pub state: String,
    /// What it waits for; empty while it does not.
    #[serde(default)]
    pub waits: String,
    /// MTU of the interface, followed when it changes.
    pub mtu: u64,
    /// How the XDP program is attached: native or generic; none with UDP sockets.
    pub xdp_mode: String,
    /// How the AF_XDP sockets are bound: zero-copy or copy; udp with UDP sockets.
    pub socket_mode: String,
    /// Why no better mode is in use; empty when it is the best there is.
    pub reason: String,
    /// Receive queues served: all that the interface has; with UDP sockets, one per worker.
    pub queues: u64,
    /// Pace in Mbit/s, where one is configured.
    pub rate_mbit: Option<f64>,
    /// The next hops on this link.
    pub neighbours: Vec<Neighbour>,
    /// Addresses that are no neighbour's and whose packets were dropped last, eight at most.
    #[serde(default)]
    pub not_neighbours: Vec<String>,
    /// Packets received from the sockets.
    pub received_packets: u64,
    /// Bytes of those, Ethernet header included.
    pub received_bytes: u64,
    /// Packets handed to the interface.
    pub sent_packets: u64,
    /// Bytes of those, Ethernet header included.
    pub sent_bytes: u64,
    /// Every counter that is not a fault, by name; those above too.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// Everything that went wrong on the link, by reason.
    pub faults: BTreeMap<String, u64>,
}

/// One worker thread.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, CustomType)]
pub struct Worker {
    /// Index, which is also the queue it serves.
    pub index: u64,
    /// The core it is pinned to.
    pub core: Option<u64>,
    /// What it does when there is nothing to do: busy, adaptive or interrupt.
    pub idle: String,
    /// Edition of the configuration it works by.
    pub edition: u64,
    /// Where its frames are.
    pub frames: Frames,
    /// Packets received. Always equals forwarded + consumed + handed over + dropped, but for a few
    /// that wait.
    pub received: u64,
    /// Of these, sent on as they came.
    pub forwarded: u64,
    /// Of these, used up here.
    pub consumed: u64,
    /// Of these, given to the worker that has their shard, which counts them again.
    #[serde(default)]
    pub handed_over: u64,
    /// Of these, dropped.
    pub dropped: u64,
    /// Number of panics, each followed by a restart.
    #[serde(default)]
    pub panics: u64,
}

/// Where the frames of a worker are. The places sum to the total.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, CustomType)]
pub struct Frames {
    /// All frames.
    pub total: u64,
    /// Free.
    pub free: u64,
    /// Lent to the interfaces for receiving.
    pub fill: u64,
    /// Held by generations.
    pub held: u64,
    /// Queued for sending.
    pub tx: u64,
}

/// One flow.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, CustomType)]
pub struct Flow {
    /// Flow id on the wire.
    pub id: u64,
    /// source, relay or sink.
    pub role: String,
    /// Tunnel of a source or sink.
    pub tunnel: Option<String>,
    /// Source and sink: name of the box at the other end; empty if the configuration has none.
    #[serde(default)]
    pub end: String,
    /// Where coded packets go, as link:address, or link:name while the address is not known.
    pub next_hops: Vec<String>,
    /// Source and relay of a stream: the state of each next hop.
    #[serde(default)]
    pub neighbours: Vec<FlowNeighbour>,
    /// Source and relay with several next hops: what these get: every, sum or backup.
    #[serde(default)]
    pub spread: Option<String>,
    /// Source and relay of a stream with several next hops: Mbit/s that these carry after losses,
    /// headers included: of paths to one receiver the sum of those that answer, of receivers the
    /// least that does. Null before all that answer have reported.
    #[serde(default)]
    pub carries_mbit: Option<f64>,
    /// Where packets come from and feedback goes, as link:address: several where paths meet.
    pub upstreams: Vec<String>,
    /// Relay and sink: the state of each of these.
    #[serde(default)]
    pub arrivals: Vec<FlowUpstream>,
    /// Parameters as configured, those of its code also where that is automatic.
    pub parameters: Parameters,
    /// Code in use, as the newest packets have it: stream, rlnc or bats. Relay and sink: empty
    /// before the first packet, and so are field and sizes (0).
    #[serde(default)]
    pub code: String,
    /// Epoch of the parameters in use at the source, modulo 256.
    pub epoch: u64,
    /// Order of the field in use. Relay and sink: of the newest generation.
    pub field: u64,
    /// Generation or batch size in use. Relay and sink: of the newest generation or batch.
    pub generation_size: u64,
    /// Bytes per symbol in use.
    pub symbol_bytes: u64,
    /// Packets planned for a full generation.
    pub planned: u64,
    /// Generations held now.
    pub held: u64,
    /// Loss by hop. Source: what the hops report. Relay and sink: the incoming link.
    pub hops: Vec<HopLoss>,
    /// Source: what the sink said last about its generations.
    pub remote: Option<Remote>,
    /// Counters by name, faults among them, since the daemon started.
    pub counters: BTreeMap<String, u64>,
    /// Full-size generations or batches by the rank they closed with; index is the rank.
    pub rank_histogram: Vec<u64>,
    /// Mean rank of those over their size, where there are any.
    pub rank_ratio: Option<f64>,
    /// Residual loss: share of generations or blocks, or of the symbols of a stream, that were
    /// given up at the sink since its daemon started. Source: from the sink's latest report;
    /// it restarts after 2^32 of them.
    #[serde(default)]
    pub residual_loss: Option<f64>,
    /// Source: what theory expects `rank_ratio` to be at the sink, from the losses that the hops
    /// report and the packets planned.
    #[serde(default)]
    pub rank_theory: Option<f64>,
    /// Packets per source symbol, sent (source) or received (sink).
    #[serde(default)]
    pub overhead: Option<f64>,
    /// Source: what theory needs. BATS: packets per batch over the expected rank. Stream: what the
    /// losses of the first link take with the combinations that were planned; in an open loop the
    /// configured number, over all next hops. Generations and batches whose hops make up for their
    /// losses: what the losses of the first link take when nothing is sent in advance. Null for
    /// other generations.
    #[serde(default)]
    pub overhead_theory: Option<f64>,
    /// Sink: time from the first packet of a generation or block until it was complete, on average.
    /// Stream: how long a symbol was known to be missing, averaged over all symbols.
    #[serde(default)]
    pub decode_delay_mean_us: Option<f64>,
    /// The longest such time.
    #[serde(default)]
    pub decode_delay_max_us: Option<f64>,
    /// up; down while no next hop answers, although packets are sent; waiting for the first packet
    /// or report; quiet: nothing came to a relay or sink for 3 seconds, which may have nothing to
    /// get, or a source of another code than stream sends nothing. Null at such sources where
    /// repair is off, and at the source of an open loop: nothing has to come back.
    #[serde(default)]
    pub state: Option<String>,
    /// What its next hops or upstreams wait for, where none of them can be reached without; empty
    /// otherwise.
    #[serde(default)]
    pub waits: String,
    /// Source and sink: Mbit/s of IP packets over the last second.
    #[serde(default)]
    pub goodput_mbit: Option<f64>,
    /// Relay and sink: seconds since packets came, to a second; null before the first.
    #[serde(default)]
    pub received_ago_seconds: Option<f64>,
    /// Source and relay: Mbit/s that left for the next hops over the last second, headers of
    /// Ethernet, IP and UDP included, and tags between neighbours.
    #[serde(default)]
    pub wire_mbit: Option<f64>,
    /// Source of another code than stream: seconds since feedback came, to a second.
    #[serde(default)]
    pub heard_ago_seconds: Option<f64>,
}

impl Flow {
    /// The counter of this name; 0 if the daemon does not have it.
    pub fn count(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// Whether its code is a stream: symbols instead of generations or blocks.
    pub fn is_stream(&self) -> bool {
        self.code == "stream"
    }
}

/// Parameters of a flow as configured. Keys that do not apply to the role are null.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, CustomType)]
pub struct Parameters {
    /// Source: streams that inner flows are spread over.
    #[serde(default)]
    pub shards: Option<u64>,
    /// Source: auto, stream, rlnc or bats. Relays and sinks see it by the packets.
    #[serde(default)]
    pub code: Option<String>,
    /// Order of the coefficient field: 2, 4, 16 or 256.
    pub field: Option<u64>,
    /// RLNC: symbols per generation.
    #[serde(default)]
    pub generation_size: Option<u64>,
    /// BATS: source symbols of a block.
    #[serde(default)]
    pub block_symbols: Option<u64>,
    /// BATS: packets per batch.
    #[serde(default)]
    pub batch_size: Option<u64>,
    /// BATS: how batches combine source symbols: cyclic-shift, precoded or baseline.
    #[serde(default)]
    pub profile: Option<String>,
    /// BATS: bits of the coefficients of these combinations.
    #[serde(default)]
    pub generator_bits: Option<u64>,
    /// BATS: "auto", or batches whose packets take turns.
    #[serde(default)]
    pub interleave: Option<String>,
    /// Stream: packets that every node keeps.
    #[serde(default)]
    pub stream_symbols: Option<u64>,
    /// Stream: what each hop sends in advance, balanced or interactive.
    #[serde(default)]
    pub stream_profile: Option<String>,
    /// Bytes per symbol. Relay and sink: the most they accept.
    pub symbol_bytes: u64,
    /// "auto", or packets per symbol as a number.
    pub redundancy: Option<String>,
    /// Share of generations that may stay incomplete under "auto".
    pub target_loss: Option<f64>,
    /// Cap of packets sent per symbol.
    pub redundancy_max: Option<f64>,
    /// A generation that stays short closes after this.
    pub flush_timeout_us: Option<u64>,
    /// Relay: an open generation closes after this. Sink: wait before a repair request.
    pub generation_timeout_us: Option<u64>,
    /// How long in-order delivery waits for a generation.
    pub hold_timeout_us: Option<u64>,
    /// systematic or random.
    pub recoding: Option<String>,
    /// Whether the packets for a batch of a BATS flow follow its rank.
    #[serde(default)]
    pub adaptive: Option<bool>,
    /// Whether the sink requests missing packets, or the source answers requests.
    pub repair: Option<bool>,
}

/// Loss of one hop.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, CustomType)]
pub struct HopLoss {
    /// Hop index, 0 for the link that leaves the source.
    pub hop: u64,
    /// Share of packets lost.
    pub loss: f64,
    /// Mean run of consecutive losses, at least 1.
    pub burst_mean: f64,
    /// Source: share of its packets, repairs included, that theory expects behind this hop: mean
    /// rank over the size of a generation or batch; 1 where hops make up for their losses. Null
    /// where theory has no value, as for an open loop.
    #[serde(default)]
    pub arrived_theory: Option<f64>,
}

/// What a sink told its source about the generations it ended since it started.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, CustomType)]
pub struct Remote {
    /// Newest generation it has seen.
    pub newest: u64,
    /// Generations that were complete.
    pub complete: u64,
    /// Generations given up with symbols missing.
    pub failed: u64,
    /// Full-size generations by the rank they ended with; index is the rank.
    pub rank_histogram: Vec<u64>,
    /// Mean rank of those over their size, where there are any.
    pub rank_ratio: Option<f64>,
}

/// One tunnel.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, CustomType)]
pub struct Tunnel {
    /// TUN interface.
    pub name: String,
    /// Its addresses, each with the length of its prefix.
    pub addresses: Vec<String>,
    /// Its MTU: the configured one, or less where the path of its stream carries less.
    pub mtu: u64,
    /// The configured one, or what follows from the file.
    #[serde(default)]
    pub mtu_configured: u64,
    /// present; no-carrier while no next hop of the stream that reads from it answers; or gone when
    /// it was deleted; the daemon recreates it.
    #[serde(default)]
    pub state: String,
    /// What crosses it many packets at a time: tcp+udp, tcp or none.
    #[serde(default)]
    pub offload: String,
    /// Why that is not better; empty when it is the best there is.
    #[serde(default)]
    pub reason: String,
    /// IP packets read from it.
    pub read_packets: u64,
    /// Bytes of those.
    pub read_bytes: u64,
    /// IP packets written to it.
    pub written_packets: u64,
    /// Bytes of those.
    pub written_bytes: u64,
    /// Every counter that is not a fault, by name; those above too.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// Everything that went wrong on the tunnel, by reason.
    pub faults: BTreeMap<String, u64>,
    /// Its TCP connections, where they end at both edges (`tcp_split`).
    #[serde(default)]
    pub split: Option<Split>,
}

/// Which daemon answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, Type)]
pub struct Version {
    /// Version of the daemon.
    pub version: String,
    /// The interface it speaks.
    pub interface: String,
    /// Field arithmetic in use, by instruction set.
    pub kernel: String,
    /// Edition of the active configuration.
    pub edition: u64,
}

/// A change that every worker has adopted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, Type)]
pub struct Adopted {
    /// The flow.
    pub flow: u64,
    /// Edition of the configuration that carries the change.
    pub edition: u64,
    /// The flow's parameters after the change.
    pub parameters: Parameters,
    /// Consequences of the change for other parameters; an older daemon reports none.
    #[serde(default)]
    pub notices: Vec<String>,
}

/// What another configuration changes, or changed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, Type)]
pub struct Reloaded {
    /// Each change, in the order of the file.
    pub changes: Vec<Change>,
    /// Whether the changes were applied; otherwise they were only listed.
    pub applied: bool,
    /// Whether another dataplane process takes over now; connections to this one end.
    pub replaces: bool,
    /// Active edition in this process.
    pub edition: u64,
    /// Number of the active configuration in the history.
    pub number: u64,
    /// Seconds until the rollback to the previous one, unless this one is confirmed.
    pub confirm_seconds: Option<u64>,
}

/// One change of the configuration.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, CustomType)]
pub struct Change {
    /// Section, key, and values before and after.
    pub what: String,
    /// Line in the file; null for a removed key or section.
    pub line: Option<u64>,
    /// live: no packet is lost. flow: that flow restarts. gap: another dataplane process takes
    /// over. restart: a running daemon cannot do it.
    pub cost: String,
}

/// The present and past configurations.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, Type)]
pub struct History {
    /// Oldest first; the last one is active.
    pub entries: Vec<HistoryEntry>,
    /// Where they are kept; null when in memory only.
    pub directory: Option<String>,
    /// Why the newest are not there; empty when they are.
    pub trouble: String,
    /// Seconds until the last one is taken back, unless it is confirmed.
    pub confirm_seconds_left: Option<u64>,
}

/// A configuration of the history.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, CustomType)]
pub struct HistoryEntry {
    /// Its number.
    pub number: u64,
    /// When it came into force, in seconds since 1970.
    pub at: u64,
    /// Seconds since then.
    pub age_seconds: u64,
    /// What brought it: start, reload, set, undo, unconfirmed (the one after it was not confirmed
    /// in time) or failed (no process ran with the one after it).
    pub cause: String,
}

/// A change was confirmed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, Type)]
pub struct Confirmed {
    /// Number of the confirmed configuration.
    pub number: u64,
}

/// Recent events.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, Type)]
pub struct Events {
    /// Those after the requested number, oldest first, as far as they are kept.
    pub events: Vec<Event>,
    /// Number of the newest; the next request continues after it. 0 when there was none.
    pub newest: u64,
    /// When the daemon began to count, in milliseconds since 1970. Another value means that another
    /// daemon counts, from 1 on.
    pub began_ms: u64,
}

/// One thing that happened.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, CustomType)]
pub struct Event {
    /// Its number. Numbers only go up; those of events that are no longer kept are missing.
    pub number: u64,
    /// When it was seen, in milliseconds since 1970.
    pub at_ms: u64,
    /// info, warning or error.
    pub level: String,
    /// What happened: flow_up, flow_waiting, flow_down, flow_quiet, flow_active, flow_changed,
    /// flow_added, flow_removed, next_hop_heard, next_hop_silent, session_up, session_rekeyed,
    /// session_down, session_refused, link_up, link_down, tunnel_up, tunnel_down, mtu_smaller,
    /// mtu_normal, mtu_changed, neighbour_disagrees, neighbour_agrees, neighbour_moved,
    /// rate_changed, drops_rising, engine_up, engine_down, worker_renewed, config_applied,
    /// config_undone, config_confirmed, process_started, process_ended or daemon_started. There may
    /// be more.
    pub kind: String,
    /// What it happened to: flow, link, tunnel or worker and its name, session with and whom;
    /// packets, engine, configuration, process or daemon.
    pub subject: String,
    /// More exactly: the next hop, or the counter of a drop reason; else empty.
    pub about: String,
    /// In words.
    pub text: String,
    /// How many events of this kind about the same were left out before it, because there were too
    /// many.
    pub left_out: u64,
}
