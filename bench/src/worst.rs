//! `bench worst`: the longest time that one packet keeps a worker, by role and code.
//!
//! ```text
//!  source ── its packets, some lost ──► relay ── its packets, some lost ──► sink     recorded once
//!  each node alone: the same packets again and again; of each packet the shortest time is kept
//! ```
//!
//! Everything is seeded, so packet n does the same work in every round. Other load on the machine
//! lengthens some of its times but not all, so the shortest is the packet's own.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use recoded_gf::FieldOrder;
use recoded_pipeline::memory::{HeapFrames, Probe};
use recoded_pipeline::open::{OpenRequest, Opener};
use recoded_pipeline::params::{
    BatsParams, FlowCode, FlowParams, Interleave, Nanos, PeerId, Profile, Redundancy, Role,
    ShardId, Snapshot, StreamParams, TunnelId,
};
use recoded_pipeline::plan::{PlanMaker, PlanReply};
use recoded_pipeline::recorder::{Recorder, Requests};
use recoded_pipeline::{Datagram, Pipeline};
use recoded_wire::feedback::{FeedbackHeader, HopReport, Item, Writer};
use recoded_wire::frames::Span;
use recoded_wire::header::{Flags, Header, PacketType};
use serde::Serialize;

use crate::cores;
use crate::error::BenchError;
use crate::kernels::choose_core;
use crate::machine::Machine;
use crate::results::write_json;

/// Measure the longest time that one packet keeps a worker
///
/// Sources, relays and sinks of every code, at full-size packets and 10 % loss, and a source that
/// is sent reports with as many items as fit. A packet that completes no unit (generation, block,
/// symbol of a stream) should take less than 50 microseconds; one that does may take as long as its
/// multiplications besides, which are timed by themselves, and so for each where it completes
/// several. Plans are made, and memory is allocated, elsewhere, as in a daemon.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  cargo run --release -p bench -- worst --quick
  cargo run --release -p bench -- worst --json bench/results/worst.json")]
pub struct WorstOptions {
    /// Also write everything to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Few packets and rounds: enough to see that it works
    #[arg(long)]
    quick: bool,
    /// Core to run on [default: the last that may be used]
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
}

/// A node under one kind of packets, in microseconds.
#[derive(Serialize)]
struct NodeTimes {
    code: String,
    node: &'static str,
    packets: usize,
    median: f64,
    /// Of packets that complete no unit.
    worst: f64,
    /// Multiplications of that packet.
    worst_multiplying: f64,
    /// For packets that complete units, without their multiplications, per unit: one that closes a
    /// gap delivers all packets that waited behind it. None if no packet completes a unit.
    worst_completing: Option<f64>,
    /// Multiplications of that packet.
    completing_multiplying: Option<f64>,
    /// Whether both are within the aim.
    met: bool,
}

#[derive(Serialize)]
struct WorstCaseReport {
    machine: Machine,
    aim_micros: f64,
    rounds: usize,
    rows: Vec<NodeTimes>,
}

/// Input of a call: an IP packet for a source, or a UDP payload from a neighbour, with its time.
enum Input {
    Ip(Vec<u8>, Nanos),
    Payload(PeerId, Vec<u8>, Nanos),
}

/// Answers to the requests of one input.
struct Answers {
    plan: Option<PlanReply>,
    open: Option<OpenRequest>,
}

impl Input {
    /// Arrival time.
    fn at(&self) -> Nanos {
        let (Input::Ip(_, now) | Input::Payload(_, _, now)) = self;
        *now
    }
}

/// Time of the multiplications of frames' contents.
#[derive(Default)]
struct Multiplying {
    started: Option<Instant>,
    total: Duration,
}

impl Probe for Multiplying {
    fn combining(&mut self, _sources: &[Span], _destinations: &[Span]) {
        self.started = Some(Instant::now());
    }

    fn combined(&mut self) {
        self.total += self.started.take().map_or(Duration::ZERO, |started| started.elapsed());
    }
}

/// Time of an input in nanoseconds, and the part spent on multiplications.
#[derive(Copy, Clone, Debug)]
struct Taken {
    nanos: u64,
    multiplying: u64,
}

impl Taken {
    /// But for its multiplications.
    fn rest(&self) -> u64 {
        self.nanos.saturating_sub(self.multiplying)
    }
}

/// A node, fresh for every round.
struct Node {
    params: FlowParams,
    pipeline: Pipeline,
    frames: HeapFrames<Multiplying>,
    outputs: Recorder,
}

impl Node {
    fn new(params: &FlowParams) -> Node {
        let snapshot = Snapshot { edition: 1, flows: vec![params.clone()] };
        let outputs = Recorder {
            plans: Requests::elsewhere(),
            stages: Requests::elsewhere(),
            ..Recorder::counting(FRAMES, None)
        };
        let frames = HeapFrames::probed(FRAMES, FRAME_BYTES, Multiplying::default());
        let pipeline = Pipeline::new(&snapshot, SEED);
        Node { params: params.clone(), pipeline, frames, outputs }
    }

    /// Processes one input; returns the pipeline's time for it, including timers.
    fn take(&mut self, input: &Input) -> Taken {
        let Node { pipeline, frames, outputs, .. } = self;
        let span = match input {
            Input::Payload(_, bytes, _) => frames.receive(bytes),
            Input::Ip(..) => None,
        };
        frames.probe.total = Duration::ZERO;
        let started = Instant::now();
        let now = match input {
            Input::Ip(packet, now) => {
                pipeline.ingress(frames, outputs, SHARD, packet, *now);
                *now
            }
            Input::Payload(peer, _, now) => {
                if let Some(span) = span {
                    let datagram = Datagram::best_effort(Some(*peer), span);
                    pipeline.receive(frames, outputs, datagram, *now);
                }
                *now
            }
        };
        pipeline.tick(frames, outputs, now);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Taken { nanos: nanos(started.elapsed()), multiplying: nanos(frames.probe.total) }
    }

    /// The packets sent, as bytes; their frames are released.
    fn drain(&mut self) -> Vec<Vec<u8>> {
        let Node { frames, outputs, .. } = self;
        outputs.take_sent(frames).into_iter().map(|(_, bytes)| bytes).collect()
    }

    /// Gives it the answers to its requests.
    fn answer(&mut self, answers: &Answers, now: Nanos) {
        let Node { params, pipeline, frames, outputs } = self;
        outputs.plans.asked.clear();
        outputs.stages.asked.clear();
        if let Some(reply) = &answers.plan {
            pipeline.planned(reply.clone());
        }
        if let Some(request) = &answers.open {
            let opened = Opener::new(SEED).open(request, params);
            drop(pipeline.opened(frames, outputs, opened, now));
        }
    }

    /// Units completed so far.
    fn completed(&self) -> u64 {
        let report = self.pipeline.report();
        report.flows.iter().map(|flow| flow.counters.generations).sum()
    }
}

/// One run of a node over its inputs: packets sent, units completed, and answers to its requests,
/// by input.
struct Recording {
    sent: Vec<(Vec<u8>, Nanos)>,
    /// Units completed, by input.
    completing: Vec<u64>,
    answers: Vec<Answers>,
}

fn record(params: &FlowParams, inputs: &[Input], maker: &mut PlanMaker) -> Recording {
    let mut node = Node::new(params);
    let mut recording = Recording { sent: Vec::new(), completing: Vec::new(), answers: Vec::new() };
    for input in inputs {
        let before = node.completed();
        node.take(input);
        recording.completing.push(node.completed() - before);
        recording.sent.extend(node.drain().into_iter().map(|bytes| (bytes, input.at())));
        let plan = node.outputs.plans.asked.last().map(|request| maker.make(request));
        let answers = Answers { plan, open: node.outputs.stages.asked.last().copied() };
        node.answer(&answers, input.at());
        recording.answers.push(answers);
    }
    recording
}

/// Time of every input: the minimum of all rounds.
fn time(params: &FlowParams, inputs: &[Input], recording: &Recording, rounds: usize) -> Vec<Taken> {
    let never = Taken { nanos: u64::MAX, multiplying: 0 };
    let mut shortest = vec![never; inputs.len()];
    for _ in 0..rounds {
        let mut node = Node::new(params);
        for (index, input) in inputs.iter().enumerate() {
            let taken = node.take(input);
            if taken.nanos < shortest[index].nanos {
                shortest[index] = taken;
            }
            let Node { frames, outputs, .. } = &mut node;
            outputs.release(frames);
            node.answer(&recording.answers[index], input.at());
        }
    }
    shortest
}

fn row(
    code: &str,
    node: &'static str,
    params: &FlowParams,
    inputs: &[Input],
    maker: &mut PlanMaker,
    rounds: usize,
) -> (NodeTimes, Recording) {
    let recording = record(params, inputs, maker);
    let taken = time(params, inputs, &recording, rounds);
    let all = || taken.iter().zip(&recording.completing);
    let longest = all().filter(|(_, units)| **units == 0).max_by_key(|(taken, _)| taken.nanos);
    let longest = longest.map(|(taken, _)| taken);
    let rest = |taken: &Taken, units: u64| taken.rest() / units;
    let completing = all().filter(|(_, units)| **units > 0);
    let completing = completing.max_by_key(|(taken, units)| rest(taken, **units));
    let micros = |nanos: u64| nanos as f64 / 1e3;
    let worst = longest.map_or(0.0, |taken| micros(taken.nanos));
    let worst_completing = completing.map(|(taken, units)| micros(rest(taken, *units)));
    let mut sorted: Vec<u64> = taken.iter().map(|taken| taken.nanos).collect();
    sorted.sort_unstable();
    let row = NodeTimes {
        code: code.to_owned(),
        node,
        packets: inputs.len(),
        median: sorted.get(sorted.len() / 2).map_or(0.0, |nanos| micros(*nanos)),
        worst,
        worst_multiplying: longest.map_or(0.0, |taken| micros(taken.multiplying)),
        worst_completing,
        completing_multiplying: completing.map(|(taken, _)| micros(taken.multiplying)),
        met: worst <= AIM_MICROS && worst_completing.is_none_or(|rest| rest <= AIM_MICROS),
    };
    (row, recording)
}

/// Source, relay and sink of one code, and a source under feedback.
fn rows(name: &str, params: &FlowParams, count: u32, rounds: usize) -> Vec<NodeTimes> {
    let mut maker = PlanMaker::new();
    let role = |role| FlowParams { role, ..params.clone() };
    let source = role(Role::Source { tunnel: TunnelId(0) });
    let packets: Vec<Input> = (0..count).map(|n| Input::Ip(ip_packet(n), at(n))).collect();
    let (of_source, sent) = row(name, "source", &source, &packets, &mut maker, rounds);
    let relay = role(Role::Relay { upstream: UPSTREAM });
    let arriving = lossy(sent.sent, 0);
    let (of_relay, sent) = row(name, "relay", &relay, &arriving, &mut maker, rounds);
    let sink = role(Role::Sink { tunnel: TunnelId(0), upstream: UPSTREAM });
    let arriving = lossy(sent.sent, 1);
    let (of_sink, _) = row(name, "sink", &sink, &arriving, &mut maker, rounds);
    let reports: Vec<Input> =
        (0..count).map(|n| Input::Payload(NEXT_HOP, feedback(n), at(n))).collect();
    let node = "source, reports of 117 hops";
    let (of_reports, _) = row(name, node, &source, &reports, &mut maker, rounds);
    vec![of_source, of_relay, of_sink, of_reports]
}

/// Data packets that arrive: one in ten is lost.
fn lossy(sent: Vec<(Vec<u8>, Nanos)>, turn: u64) -> Vec<Input> {
    let is_data = |bytes: &[u8]| {
        Header::parse(bytes).is_ok_and(|header| header.packet_type != PacketType::Feedback)
    };
    let mut state = 0x9E37_79B9_7F4A_7C15 ^ turn;
    let mut arrives = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        !state.is_multiple_of(10)
    };
    let data = sent.into_iter().filter(|(bytes, _)| is_data(bytes) && arrives());
    data.map(|(bytes, now)| Input::Payload(UPSTREAM, bytes, now)).collect()
}

/// A report that names as many hops as a packet holds.
fn feedback(number: u32) -> Vec<u8> {
    let common = Header {
        packet_type: PacketType::Feedback,
        flags: Flags(0),
        epoch: 0,
        shard: SHARD.shard,
        flow: SHARD.flow,
        link_sequence: number,
        hop_index: 0,
    };
    let mut bytes = vec![0; 1432];
    FeedbackHeader { common, node: 9, number }.write(&mut bytes);
    let mut writer = Writer::new(&mut bytes);
    for item in 0..117 {
        let loss = ((number + item) % 60) as f32 / 100.0;
        writer.push(Item::Hop(HopReport { hop: 0, loss, burst_mean: 1.0 }));
    }
    let length = writer.finish();
    bytes.truncate(length);
    bytes
}

fn ip_packet(number: u32) -> Vec<u8> {
    let mut packet = vec![number as u8; IP_BYTES];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(IP_BYTES as u16).to_be_bytes());
    packet
}

/// Arrival time of packet `number`.
fn at(number: u32) -> Nanos {
    Nanos::from(number) * PACKET_NANOS
}

/// Codes and sizes measured.
fn cases() -> Vec<(String, FlowParams)> {
    let base = FlowParams::new(SHARD.flow, Role::Source { tunnel: TunnelId(0) }, vec![NEXT_HOP]);
    // Sources get no loss reports, so redundancy is fixed to cover two links, with a margin.
    let base = FlowParams { redundancy: Redundancy::Fixed(1.4), ..base };
    let generations = |size: usize, field| {
        let name = format!("rlnc {size}, GF({})", FieldOrder::order(field));
        (name, FlowParams { generation_size: size, field, generations: 64, ..base.clone() })
    };
    let blocks = |symbols: usize, profile| {
        let code = FlowCode::Bats(BatsParams {
            source_symbols: symbols,
            profile,
            generator_bits: 8,
            interleave: Interleave::Auto,
        });
        let name = format!("bats {symbols}, {profile:?}");
        (name, FlowParams { code, generations: 4 * symbols / 16, ..base.clone() })
    };
    // With a fixed redundancy, streams need no reports.
    let open_loops = |symbols: usize| {
        let code = FlowCode::Stream(StreamParams::new(symbols));
        let field = FieldOrder::TwoFiftySix;
        (format!("stream {symbols}, open loop"), FlowParams { code, field, ..base.clone() })
    };
    vec![
        generations(16, FieldOrder::Sixteen),
        generations(64, FieldOrder::TwoFiftySix),
        generations(256, FieldOrder::TwoFiftySix),
        blocks(256, Profile::CyclicShift),
        blocks(1024, Profile::CyclicShift),
        blocks(1024, Profile::Precoded),
        open_loops(1024),
        open_loops(16_384),
    ]
}

/// Runs the benchmark, prints the table and writes the JSON.
///
/// # Errors
/// [`BenchError`]: one sentence, with the fix if there is one.
pub fn run(options: &WorstOptions) -> Result<(), BenchError> {
    let core = choose_core(options.core)?;
    cores::pin(core)?;
    let machine = Machine::describe();
    let (count, rounds) = if options.quick { (1200, 2) } else { (4000, 9) };
    println!(
        "| code | node | packets | median us | worst us, no unit completed (multiplications) | a unit \
         completed, but for multiplications (these) |"
    );
    println!("|---|---|---:|---:|---:|---:|");
    let mut all = Vec::new();
    for (name, params) in cases() {
        for row in rows(&name, &params, count, rounds) {
            let NodeTimes { code, node, packets, median, worst, worst_multiplying, .. } = &row;
            let completing = row.worst_completing.zip(row.completing_multiplying);
            let completing =
                completing.map_or("-".into(), |(rest, own)| format!("{rest:.1} ({own:.1})"));
            let worst = format!("{worst:.1} ({worst_multiplying:.1})");
            println!("| {code} | {node} | {packets} | {median:.2} | {worst} | {completing} |");
            all.push(row);
        }
    }
    let missed = all.iter().filter(|row| !row.met).count();
    println!(
        "\nat most {AIM_MICROS} us, or besides multiplications where a unit is completed: missed in \
         {missed} of {} rows",
        all.len()
    );
    if let Some(path) = &options.json {
        let report = WorstCaseReport { machine, aim_micros: AIM_MICROS, rounds, rows: all };
        write_json(path, &report)?;
    }
    Ok(())
}

/// Upper limit for a packet that completes no unit.
const AIM_MICROS: f64 = 50.0;
const SHARD: ShardId = ShardId { flow: 7, shard: 0 };
const NEXT_HOP: PeerId = PeerId(0);
const UPSTREAM: PeerId = PeerId(1);
const SEED: u64 = 0x5eed;
const FRAMES: usize = 32_768;
const FRAME_BYTES: usize = 2048;
const IP_BYTES: usize = 1300;

/// Between two packets: 300 Mbit/s.
const PACKET_NANOS: Nanos = 40_000;
