//! Scenarios from seeds. Every number is drawn here; the differences between codes are in [`Code`].

use std::ops::Range;

use recoded_code::theory::LossModel;
use recoded_gf::FieldOrder;
use recoded_pipeline::params::{FlowCode, FlowParams, Nanos, Recoding, Redundancy};

use crate::code::{self, Code};
use crate::link::{Link, Rate};
use crate::protection::Protection;
use crate::random::{Random, Stream};
use crate::scenario::{Change, Hop, Promise, Scenario, Threads};
use crate::traffic::Traffic;
use crate::trouble::Trouble;

/// Symbols times nodes of one run: a few ten milliseconds of work.
const WORK: usize = 4000;

/// Symbols a table may hold, over all generations. Long lines get fewer, to save memory.
const TABLE_SYMBOLS: usize = 2048;
const TABLE_SYMBOLS_LONG: usize = 512;
const LONG_HOPS: usize = 12;
/// Packets of each shard that enter alone before and after the bursts: enough that the sink is
/// unlikely to miss all of them.
const ALONE: u32 = 5;

const MILLI: Nanos = 1_000_000;

/// Kind of network that a seed draws.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Weather {
    /// Up to a quarter of the packets is lost from end to end, with matching memory and timeouts:
    /// everything must be delivered, through parameter changes and restarts of relays too.
    Fair,
    /// Fair, except for a moment: an end restarts or a link falls silent. Later packets arrive.
    Squall,
    /// Any loss, any timeout, too little memory, overflowing queues: only order and integrity are
    /// promised.
    Rough,
    /// As rough, and links alter packets: nothing is promised except the invariants of nodes.
    Hostile,
}

/// Parameters that shape packets; they may change while a flow runs.
#[derive(Copy, Clone, Debug)]
struct Shape {
    kind: Code,
    code: FlowCode,
    field: FieldOrder,
    size: usize,
    symbol_bytes: usize,
}

/// Shards, workers and inner flows of the flow.
#[derive(Copy, Clone, Debug)]
struct Spread {
    shards: u8,
    /// Inner flows.
    flows: u32,
    workers_max: usize,
    threads: Threads,
}

/// A scenario being drawn.
struct Draft {
    random: Random,
    weather: Weather,
    hops: usize,
    spread: Spread,
    protection: Protection,
    shapes: Vec<Shape>,
    bytes_max: usize,
    /// One way, end to end, at most.
    trip_nanos: Nanos,
}

impl Scenario {
    /// Draws a line: any network conditions, any code.
    #[must_use]
    pub fn line_from_seed(seed: u64) -> Scenario {
        let mut random = Random::new(seed, Stream::Scenario);
        let weather = match random.among(0..=19) {
            0..=9 => Weather::Fair,
            10..=11 => Weather::Squall,
            12..=16 => Weather::Rough,
            _ => Weather::Hostile,
        };
        let code = random.pick(code::DRAWN);
        Draft::new(seed, random, weather, code).scenario(seed)
    }
}

impl Draft {
    fn new(seed: u64, mut random: Random, weather: Weather, kind: Code) -> Draft {
        let hops = match random.among(0..=9) {
            0..=5 => random.size(1..=4),
            6..=8 => random.size(5..=LONG_HOPS),
            _ => random.size(LONG_HOPS + 1..=50),
        };
        let is_fair = is_bounded(weather);
        let mut shapes = vec![shape(&mut random, kind, hops, is_fair)];
        for _ in 1..random.pick(&[1, 1, 1, 2, 4]) {
            let is_other_code = random.chance(0.25);
            let kind = if is_other_code { random.pick(code::DRAWN) } else { kind };
            let drawn = shape(&mut random, kind, hops, is_fair);
            let before = shapes.iter().find(|shape| shape.kind == kind);
            let next = before.map_or(drawn, |before| Shape {
                code: before.code,
                size: if kind.may_change_size() { drawn.size } else { before.size },
                ..drawn
            });
            shapes.push(next);
        }
        let protection = Protection::draw(seed);
        let taken = protection.packet_bytes() + protection.symbol_bytes();
        shapes.iter_mut().for_each(|shape| shape.symbol_bytes += taken);
        let trip = [0, 1000, MILLI, 5 * MILLI, 20 * MILLI, 60 * MILLI];
        let trip_nanos = random.pick(&trip);
        let bytes_max = random.pick(&[40, 100, 200, 600, 1400]);
        let spread = Spread::draw(&mut Random::new(seed, Stream::Workers), hops, is_fair);
        let mut draft =
            Draft { random, weather, hops, spread, protection, shapes, bytes_max, trip_nanos };
        draft.bytes_max = draft.bytes_max.min(draft.capacity());
        draft
    }

    /// Longest IP packet that fits into every generation, block or symbol.
    fn capacity(&self) -> usize {
        let unit = |shape: &Shape| code::unit(&shape.code, shape.size);
        let capacity =
            |shape: &Shape| code::bytes_max(&shape.code, unit(shape), self.payload_bytes(shape));
        let capacity = self.shapes.iter().map(capacity).min();
        capacity.map_or(Traffic::BYTES_MIN, |bytes| bytes - self.protection.packet_bytes())
    }

    /// Number of packets of `bytes` that fit into every generation, block or symbol.
    fn fitting(&self, bytes: usize) -> usize {
        let framing = self.framing();
        ((self.capacity() + framing) / (bytes + framing)).max(1)
    }

    /// Additional bytes per packet in generations and blocks.
    fn framing(&self) -> usize {
        2 + self.protection.packet_bytes()
    }

    fn payload_bytes(&self, shape: &Shape) -> usize {
        shape.symbol_bytes - self.protection.symbol_bytes()
    }

    /// These parameters in every shape.
    fn shaped<'a>(&'a self, params: &'a FlowParams) -> impl Iterator<Item = FlowParams> + 'a {
        self.shapes.iter().map(|shape| {
            let mut params = params.clone();
            shape.set(&mut params);
            params
        })
    }

    fn is_bounded(&self) -> bool {
        is_bounded(self.weather)
    }

    fn scenario(mut self, seed: u64) -> Scenario {
        let links = self.links();
        let params = self.params();
        let traffic = self.traffic(&params);
        let frames = self.frames(&params);
        let mut scenario = Scenario::line(seed, self.hops, Link::CLEAN).with(|node| {
            let role = node.role.clone();
            *node = self.protection.of(FlowParams { role, ..params.clone() });
        });
        let first = self.shapes[0];
        first.set(&mut scenario.nodes[0]);
        self.spread.set(&mut scenario);
        scenario.poll_nanos = self.random.pick(&[0, 0, 10_000, 100_000, MILLI]);
        scenario.hops = links;
        scenario.hop_tags = self.protection.hops;
        scenario.traffic = traffic;
        scenario.frames = frames;
        self.rates(&mut scenario);
        let mut trouble = Trouble::new(seed);
        trouble.pause(&mut scenario.traffic);
        self.changes(&mut scenario);
        trouble.attack(&mut scenario, first.kind, self.is_bounded());
        trouble.stop(&mut scenario);
        trouble.rehash(&mut scenario);
        self.pollute(&mut scenario);
        self.openings(&mut scenario);
        scenario
    }

    /// Draws losses, delays and other properties, link by link.
    fn links(&mut self) -> Vec<Hop> {
        let bounded = self.is_bounded();
        let burst_max =
            self.shapes.iter().map(|shape| shape.kind.burst_max()).fold(f64::INFINITY, f64::min);
        let through = if bounded { self.random.between(0.75, 1.0) } else { 0.0 };
        let weights: Vec<f64> = (0..self.hops).map(|_| self.random.unit()).collect();
        let total: f64 = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let is_bursty = self.random.chance(0.3);
        let is_lossless = self.random.chance(0.1);
        let loses_feedback = self.random.chance(0.7);
        let base = self.base_link();
        let hop = |weight: f64| {
            let loss = match (is_lossless, bounded) {
                (true, _) => 0.0,
                (_, true) => 1.0 - through.powf(weight / total),
                (_, false) => weight * self.random.pick(&[0.1, 0.3, 0.9]),
            };
            let burst_mean = match (is_bursty, bounded) {
                (true, true) => self.random.between(1.0, burst_max),
                (true, false) => self.random.between(1.0, 40.0),
                _ => 1.0,
            };
            let down = Link { loss: LossModel { loss, burst_mean }, ..base };
            let up = if loses_feedback { down } else { Link { loss: Link::CLEAN.loss, ..base } };
            Hop { down, up }
        };
        let mut hops: Vec<Hop> = weights.into_iter().map(hop).collect();
        if self.weather == Weather::Hostile {
            // On one link only: every hop answers packets of a generation with its whole plan, so
            // several such links would cause a storm.
            let hop = self.random.size(0..=self.hops - 1);
            hops[hop].down.corruption = self.random.pick(&[0.01, 0.1, 0.5]);
            hops[hop].up.corruption = self.random.pick(&[0.0, 0.1, 0.5]);
        }
        hops
    }

    /// Lets a relay alter payload if the flow is sealed: then delivered packets must still be
    /// genuine.
    fn pollute(&self, scenario: &mut Scenario) {
        scenario.promise.genuine = self.protection.sealed;
        if !self.protection.sealed || self.is_bounded() {
            return;
        }
        let mut random = Random::new(scenario.seed, Stream::Sealed);
        // The first number decides whether it is sealed.
        random.number();
        let hop = random.size(0..=self.hops - 1);
        let pollution = random.pick(&[0.0, 0.02, 0.2]);
        if pollution > 0.0 {
            scenario.hops[hop].down.pollution = pollution;
            scenario.promise.intact = false;
        }
    }

    /// Properties common to all links.
    fn base_link(&mut self) -> Link {
        let delay_nanos = self.trip_nanos / self.hops as Nanos;
        let jitter_nanos = self.random.pick(&[0, 0, delay_nanos / 8, delay_nanos / 2]);
        Link {
            delay_nanos: delay_nanos - jitter_nanos.min(delay_nanos),
            jitter_nanos,
            keeps_order: self.random.chance(0.7),
            // Repairs and reports pass one for one, so copies of copies must not become a storm.
            duplication: self.random.pick(&[0.0, 0.0, 0.0, 0.1, 0.5]) / self.hops as f64,
            ..Link::CLEAN
        }
    }

    /// Parameters of relays and sink: the most that any shape needs.
    fn params(&mut self) -> FlowParams {
        let generation_size = self.shapes.iter().map(|shape| shape.size).max().unwrap_or(1);
        let symbol_bytes = self.shapes.iter().map(|shape| shape.symbol_bytes).max().unwrap_or(1);
        let table = if self.hops > LONG_HOPS { TABLE_SYMBOLS_LONG } else { TABLE_SYMBOLS };
        let generations = (table / generation_size).clamp(8, 64);
        let base = Scenario::line(0, 1, Link::CLEAN).nodes.swap_remove(0);
        let random = &mut self.random;
        let mut params = FlowParams {
            generation_size,
            symbol_bytes,
            generations,
            code: self.shapes[0].code,
            shards: self.spread.shards,
            adaptive: random.chance(0.5),
            recoding: random.pick(&[Recoding::Systematic, Recoding::Systematic, Recoding::Random]),
            flush_timeout_nanos: random.pick(&[100_000, MILLI, 10 * MILLI]),
            generation_timeout_nanos: random.pick(&[5 * MILLI, 20 * MILLI]),
            hold_timeout_nanos: 250 * MILLI + 10 * self.trip_nanos,
            redundancy: match random.among(0..=3) {
                0 => Redundancy::Fixed(random.between(2.0, 3.0)),
                _ => Redundancy::Auto,
            },
            ..base
        };
        if !self.is_bounded() {
            self.roughen(&mut params);
        }
        // Relays that close generations early would send a full plan for a part.
        let fills = 2 * params.flush_timeout_nanos + self.trip_nanos;
        if self.is_bounded() {
            params.generation_timeout_nanos = params.generation_timeout_nanos.max(fills);
        }
        params
    }

    /// Parameters that do not match the network.
    fn roughen(&mut self, params: &mut FlowParams) {
        let random = &mut self.random;
        params.generations = random.size(1..=params.generations);
        params.repair = random.chance(0.7);
        params.redundancy_max = random.between(1.0, 4.0);
        params.target_loss = random.pick(&[1e-1, 1e-3, 1e-6]);
        params.flush_timeout_nanos = random.among(0..=20 * MILLI);
        params.generation_timeout_nanos = random.among(0..=50 * MILLI);
        params.hold_timeout_nanos = random.among(0..=500 * MILLI);
        if random.chance(0.3) {
            params.redundancy = Redundancy::Fixed(random.between(1.0, 2.0));
        }
    }

    /// Packets at a pace at which a table outlasts a repair, or at any pace if nothing is promised.
    fn traffic(&mut self, params: &FlowParams) -> Traffic {
        let smallest = self.shapes.iter().map(|shape| self.payload_bytes(shape)).min().unwrap_or(1);
        let symbols = self.bytes_max.div_ceil(2 * smallest).max(1);
        let packets = (WORK / (self.hops + 1) / symbols).clamp(40, 600) as u32;
        let alone = self.spread.alone(self.hops);
        let bytes_min = self.random.pick(&[Traffic::BYTES_MIN, self.bytes_max]);
        let recovery = 50 * MILLI + 2 * params.generation_timeout_nanos + 10 * self.trip_nanos;
        let fitting = self.fitting(self.bytes_max);
        let mut burst = self.random.pick(&[1, 1, 4, 16, 64]);
        let table = self.shaped(params).map(|params| code::table(&params)).min().unwrap_or(1);
        if self.is_bounded() {
            // Concurrent packets must not fill more than a third of a table.
            burst = burst.min((table / 3 * fitting) as u32);
        }
        let generations = u64::from(burst).div_ceil(fitting as u64) + 1;
        let least = 2 * recovery * generations / table as u64;
        let interval_nanos = match self.is_bounded() {
            true => least.max(self.random.among(0..=20 * MILLI)),
            false => self.random.pick(&[10_000, MILLI, 20 * MILLI]),
        };
        Traffic {
            packets: packets + alone.0 + alone.1,
            alone,
            bytes: bytes_min..=self.bytes_max,
            interval_nanos,
            // A packet alone forms a generation or block of its own.
            alone_nanos: interval_nanos
                .max(2 * params.flush_timeout_nanos)
                .max(self.spread.threads.nanos_max + MILLI),
            burst,
            pauses: None,
            flows: self.spread.flows,
        }
    }

    fn frames(&mut self, params: &FlowParams) -> usize {
        let enough = self.shaped(params).map(|params| code::frames(&params)).max().unwrap_or(1);
        // A worker may have all shards.
        let enough = enough * usize::from(self.spread.shards);
        if self.is_bounded() || self.random.chance(0.5) {
            return enough;
        }
        self.random.size(64..=enough)
    }

    /// Limits the rate of some networks. If delivery is promised, packets that enter together pass
    /// within a millisecond, and fit into the queues.
    fn rates(&mut self, scenario: &mut Scenario) {
        if !self.random.chance(0.3) {
            return;
        }
        let params = &scenario.nodes[1];
        let symbol = self.shapes.iter().map(|shape| shape.symbol_bytes).min().unwrap_or(1);
        let symbols =
            scenario.traffic.burst as usize * (self.bytes_max + self.framing()).div_ceil(symbol);
        let packets = 4 * (symbols + 4 * params.generation_size);
        let bytes = packets * (params.symbol_bytes + 400);
        let rate = match self.is_bounded() {
            true => Rate { bits_per_second: 8000 * bytes as u64, queue_packets: 4 * packets },
            false => Rate {
                bits_per_second: self.random.among(100_000..=8000 * bytes as u64),
                queue_packets: self.random.size(1..=packets),
            },
        };
        for hop in &mut scenario.hops {
            (hop.down.rate, hop.up.rate) = (Some(rate), Some(rate));
        }
    }

    /// Changes during the run, and the promises that hold after them.
    fn changes(&mut self, scenario: &mut Scenario) {
        let end = scenario.traffic.end().max(1);
        let mut source = scenario.nodes[0].clone();
        let mut shapes = self.shapes.clone().into_iter().skip(1);
        let count = self.random.pick(&[0, 0, 1, 3]) + shapes.len();
        let mut times: Vec<Nanos> = (0..count).map(|_| self.random.among(0..=end)).collect();
        times.sort_unstable();
        for at in times {
            let change = match shapes.next() {
                Some(shape) => {
                    shape.set(&mut source);
                    Change::Params { node: 0, params: Box::new(source.clone()) }
                }
                None => self.mild_change(scenario),
            };
            scenario.changes.push((at, change));
        }
        let everything = Some(scenario.traffic.bursts());
        let delivered = match self.weather {
            Weather::Fair => everything,
            Weather::Squall => self.squall(scenario, end),
            Weather::Rough | Weather::Hostile => {
                if self.random.chance(0.3) {
                    self.squall(scenario, end);
                }
                None
            }
        };
        let intact = self.weather != Weather::Hostile || self.protection.hops;
        let traffic = &scenario.traffic;
        let fitting = self.fitting(*traffic.bytes.start());
        let redundancy = scenario.nodes[0].redundancy;
        let missing_max = self
            .shapes
            .iter()
            .map(|shape| code::missing_max(&shape.code, redundancy, traffic, fitting));
        let missing_max = missing_max.max().unwrap_or(0);
        let first = traffic.due(traffic.alone.0);
        let delivered = delivered.map(|time| time.start.max(first)..time.end);
        let is_open_loop =
            self.shapes.iter().any(|shape| code::is_open_loop(&shape.code, redundancy));
        // An open loop that starts in the middle may lose its first packets.
        let delivered = delivered.filter(|_| !(is_open_loop && self.changes_code()));
        let (opening, unordered) = (Vec::new(), Vec::new());
        let has_stream = self.shapes.iter().any(|shape| shape.kind == Code::Stream);
        let late_nanos = match has_stream {
            _ if is_open_loop => 0, // it does not wait for packets that no combination covers
            true => scenario.nodes[self.hops].hold_timeout_nanos,
            false => Nanos::MAX,
        };
        scenario.promise = Promise {
            intact,
            genuine: false,
            delivered,
            missing_max,
            opening,
            unordered,
            late_nanos,
        };
    }

    fn changes_code(&self) -> bool {
        self.shapes.iter().any(|shape| shape.kind != self.shapes[0].kind)
    }

    /// Records when nodes open stages for a new kind of packet. Packets lost then cause no NACK,
    /// because the sink starts with the first unit that arrives. Also records when two stages
    /// deliver.
    fn openings(&self, scenario: &mut Scenario) {
        let (mut opening, mut unordered) = (Vec::new(), Vec::new());
        let source = &scenario.nodes[0];
        let is_open_loop = code::is_open_loop(&source.code, source.redundancy);
        let mut before = vec![code::rounded(&scenario.nodes[0])];
        for (at, change) in &scenario.changes {
            let takes = self.openings_end(scenario, *at, self.hops);
            match change {
                Change::Params { node: 0, params } => {
                    let stage = code::rounded(params);
                    let is_taken = before.iter().any(|before| {
                        std::mem::discriminant(&before.code) == std::mem::discriminant(&stage.code)
                            && before.generation_size >= stage.generation_size
                    });
                    if !is_taken {
                        opening.push(*at..takes);
                    }
                    if !is_taken || self.changes_code() {
                        unordered.push(*at..scenario.settled_at(takes));
                    }
                    before.push(stage);
                }
                // Open loops send no NACKs.
                Change::Restart { .. } if is_open_loop => {
                    let takes = self.openings_end(scenario, *at, 1);
                    opening.push(at.saturating_sub(scenario.settle_nanos())..takes);
                }
                _ => {}
            }
        }
        (scenario.promise.opening, scenario.promise.unordered) = (opening, unordered);
    }

    /// Time when `nodes` in a row have opened the stages they request from `at` on. Each needs one
    /// packet of every shard that is neither lost nor refused.
    fn openings_end(&self, scenario: &Scenario, at: Nanos, nodes: usize) -> Nanos {
        let traffic = &scenario.traffic;
        let (steps, shards) = (ALONE + 2 * nodes as u32, u32::from(self.spread.shards));
        let packets = steps * shards.div_ceil(traffic.burst) * traffic.burst;
        let each = Nanos::from(steps) * (self.spread.threads.nanos_max + MILLI);
        let last = traffic.first_from(at) + packets;
        traffic.due(last).max(at + each) + scenario.settle_nanos()
    }

    /// A change whose losses are all repaired.
    fn mild_change(&mut self, scenario: &Scenario) -> Change {
        let node = self.random.size(1..=self.hops);
        let is_relay = node < self.hops;
        let mut params = scenario.nodes[node].clone();
        match self.random.among(0..=2) {
            0 if is_relay => Change::Restart { node },
            1 if is_relay => {
                params.recoding = self.random.pick(&[Recoding::Systematic, Recoding::Random]);
                Change::Params { node, params: Box::new(params) }
            }
            _ => {
                params.generation_timeout_nanos *= self.random.among(1..=3);
                Change::Params { node, params: Box::new(params) }
            }
        }
    }

    /// An end restarts, or a link falls silent for a while. Returns the period after it, when
    /// packets must arrive again.
    fn squall(&mut self, scenario: &mut Scenario, end: Nanos) -> Option<Range<Nanos>> {
        let at = self.random.among(0..=end / 2);
        let quiet = self.random.among(0..=end / 4);
        let mut opened = 0;
        let change = match self.random.among(0..=2) {
            0 => Change::Restart { node: 0 },
            1 => {
                opened = self.openings_end(scenario, at, 1);
                Change::Restart { node: self.hops }
            }
            _ => {
                let hop = self.random.size(0..=self.hops - 1);
                let link = scenario.hops[hop];
                let silence = LossModel::independent(1.0);
                let silent = Hop {
                    down: Link { loss: silence, ..link.down },
                    up: Link { loss: silence, ..link.up },
                };
                scenario.changes.push((at + quiet, Change::Link { hop, link }));
                Change::Link { hop, link: silent }
            }
        };
        scenario.changes.push((at, change));
        scenario.changes.sort_by_key(|(at, _)| *at);
        let settled = scenario.settle_nanos().max(2 * scenario.traffic.interval_nanos);
        let from = opened.max(at + quiet + settled);
        Some(from..scenario.traffic.bursts().end)
    }
}

impl Spread {
    fn draw(random: &mut Random, hops: usize, is_fair: bool) -> Spread {
        let most = if hops > LONG_HOPS { 2 } else { 4 };
        let shards = random.among(1..=most) as u8;
        Spread {
            shards,
            flows: u32::from(shards) * random.pick(&[1, 2]),
            workers_max: most as usize,
            threads: Threads {
                nanos_max: random.pick(&[0, 300_000, 3 * MILLI, 3 * MILLI]),
                busy: random.pick(&[0.0, 0.05, 0.2]),
                refused: if is_fair { 0.0 } else { random.pick(&[0.0, 0.02, 0.2]) },
                queue_packets: if is_fair { 4096 } else { random.pick(&[4, 64, 4096]) },
            },
        }
    }

    /// Packets that enter alone before and after the bursts. Each node drops the first one of a
    /// shard while it opens a stage.
    fn alone(&self, hops: usize) -> (u32, u32) {
        let shards = u32::from(self.shards);
        (shards * (ALONE + 2 * hops as u32), shards * ALONE)
    }

    fn set(self, scenario: &mut Scenario) {
        let mut random = Random::new(scenario.seed, Stream::Workers);
        scenario.threads = self.threads;
        scenario.workers.fill_with(|| random.size(1..=self.workers_max));
    }
}

impl Shape {
    fn set(self, params: &mut FlowParams) {
        params.code = self.code;
        params.field = self.field;
        params.generation_size = self.size;
        params.symbol_bytes = self.symbol_bytes;
    }
}

fn shape(random: &mut Random, kind: Code, hops: usize, is_fair: bool) -> Shape {
    Shape {
        kind,
        code: kind.draw(random, is_fair),
        field: random.pick(kind.fields()),
        size: random.pick(kind.sizes(hops > 4, hops > LONG_HOPS)),
        symbol_bytes: random.size(kind.symbol_bytes_min()..=300),
    }
}

fn is_bounded(weather: Weather) -> bool {
    matches!(weather, Weather::Fair | Weather::Squall)
}
