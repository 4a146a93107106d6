//! A simulation: nodes in a line or a graph, the links between them, traffic, and changes during
//! the run. Plain data: a scenario and its seed decide a run completely.

use std::ops::Range;

use recoded_gf::FieldOrder;
use recoded_pipeline::params::{FlowParams, Nanos, Role};

use crate::attack::Attack;
use crate::code::Code;
use crate::liar::Liar;
use crate::link::Link;
use crate::traffic::{DOWN, FLOW, TUNNEL, Traffic, UP};

/// A run, before it starts.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Seed of all random choices.
    pub seed: u64,
    /// The links; in a line from the source on.
    pub hops: Vec<Hop>,
    /// The nodes that each link connects: first the one towards the source.
    pub edges: Vec<(usize, usize)>,
    /// Parameters of each node: the source first; in a line then relays, and the sink.
    pub nodes: Vec<FlowParams>,
    /// Workers of each node.
    pub workers: Vec<usize>,
    /// Cooperation between the threads of a node.
    pub threads: Threads,
    /// Frames of each worker.
    pub frames: usize,
    /// Delay from an input until a node checks its timers. 0 means after every packet; otherwise
    /// packets that arrive meanwhile form one burst, as from a ring.
    pub poll_nanos: Nanos,
    /// Packets that enter the source's tunnel.
    pub traffic: Traffic,
    /// Changes during the run, by time.
    pub changes: Vec<(Nanos, Change)>,
    /// Whether nodes verify that packets come from their neighbours: attackers have no keys.
    pub hop_tags: bool,
    /// Attackers.
    pub attacks: Vec<Attack>,
    /// Relays that lie.
    pub liars: Vec<Liar>,
    /// Conditions beyond the invariants of every run.
    pub promise: Promise,
}

/// A link in both directions.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Hop {
    /// Towards the sink.
    pub down: Link,
    /// Towards the source: feedback.
    pub up: Link,
}

/// Cooperation between the threads of a node: one creates stages for workers, and workers hand over
/// packets.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Threads {
    /// Maximum time to create a stage; 0 creates it at once, in the worker.
    pub nanos_max: Nanos,
    /// Probability that the thread that creates stages is busy.
    pub busy: f64,
    /// Probability that there is no memory.
    pub refused: f64,
    /// Capacity of a worker's queue of packets handed over.
    pub queue_packets: usize,
}

impl Threads {
    /// Workers create their own stages.
    pub const HERE: Threads =
        Threads { nanos_max: 0, busy: 0.0, refused: 0.0, queue_packets: 4096 };
}

/// Something that happens to the network during a run.
#[derive(Clone, Debug)]
pub enum Change {
    /// A node gets other parameters at run time. Code and sizes matter only at the source; relays
    /// and sinks learn them from packets.
    Params {
        /// Which node, 0 for the source.
        node: usize,
        /// The parameters.
        params: Box<FlowParams>,
    },
    /// A node restarts at once, with only its parameters.
    Restart {
        /// Which node.
        node: usize,
    },
    /// A node does nothing for a while: a stopped process, a suspended virtual machine. Packets
    /// that arrive meanwhile wait, up to the size of its receive ring.
    Stop {
        /// Which node.
        node: usize,
        /// Duration.
        nanos: Nanos,
    },
    /// The queues of a node are chosen by another hash from now on.
    Rehash {
        /// Which node.
        node: usize,
    },
    /// A link treats packets differently from now on.
    Link {
        /// Which link.
        hop: usize,
        /// How.
        link: Hop,
    },
}

/// What a scenario promises beyond the invariants of every run.
#[derive(Clone, PartialEq, Debug)]
pub struct Promise {
    /// Delivered packets equal those sent: bytes, order, no repetition. Always promised unless
    /// links corrupt packets, since packets are not authenticated.
    pub intact: bool,
    /// The same except for order, whatever links and attackers do: the flow is sealed.
    pub genuine: bool,
    /// Packets that enter during this time must be delivered, with the exceptions below.
    pub delivered: Option<Range<Nanos>>,
    /// Number of these packets that may be missing.
    pub missing_max: u64,
    /// Packets that enter at these times may be lost: nodes open stages for other sizes or another
    /// code.
    pub opening: Vec<Range<Nanos>>,
    /// At these times two stages of the sink deliver, each in order.
    pub unordered: Vec<Range<Nanos>>,
    /// Packets delivered this long after they were due may follow later packets: a stream delivers
    /// a packet that it no longer waits for as soon as it arrives.
    pub late_nanos: Nanos,
}

impl Hop {
    /// A link that is the same in both directions.
    #[must_use]
    pub fn both(link: Link) -> Hop {
        Hop { down: link, up: link }
    }
}

impl Scenario {
    /// A line of `hops` equal links under generations of 16 symbols of 200 bytes over GF(16), with
    /// automatic redundancy and repair; 1,000 packets of 24 to 500 bytes, eight a millisecond.
    /// Nothing about delivery is promised.
    #[must_use]
    pub fn line(seed: u64, hops: usize, link: Link) -> Scenario {
        let hops = hops.max(1);
        Scenario {
            seed,
            hops: vec![Hop::both(link); hops],
            edges: (0..hops).map(|hop| (hop, hop + 1)).collect(),
            nodes: (0..=hops).map(|node| flow_params(role(node, hops))).collect(),
            workers: vec![1; hops + 1],
            threads: Threads::HERE,
            frames: 4096,
            poll_nanos: 0,
            traffic: Traffic {
                packets: 1000,
                alone: (0, 0),
                bytes: Traffic::BYTES_MIN..=500,
                interval_nanos: 1_000_000,
                alone_nanos: 1_000_000,
                burst: 8,
                pauses: None,
                flows: 1,
            },
            changes: Vec::new(),
            hop_tags: false,
            attacks: Vec::new(),
            liars: Vec::new(),
            promise: Promise {
                intact: true,
                genuine: false,
                delivered: None,
                missing_max: 0,
                opening: Vec::new(),
                unordered: Vec::new(),
                late_nanos: Nanos::MAX,
            },
        }
    }

    /// Edits the parameters of every node.
    #[must_use]
    pub fn with(mut self, edit: impl FnMut(&mut FlowParams)) -> Scenario {
        self.nodes.iter_mut().for_each(edit);
        self
    }

    /// The same flow with another code and its usual parameters: blocks of 96 symbols.
    #[must_use]
    pub fn coded(self, code: Code) -> Scenario {
        let usual = code.usual();
        let mut coded = self.with(|node| node.code = usual);
        if code == Code::Stream {
            // An IP packet is one symbol.
            let symbol_bytes = *coded.traffic.bytes.end();
            coded = coded.with(|node| {
                node.field = FieldOrder::TwoFiftySix;
                node.symbol_bytes = node.symbol_bytes.max(symbol_bytes);
            });
            coded.promise.late_nanos = coded.nodes[0].hold_timeout_nanos;
        }
        coded
    }

    /// Duration of the effects of a disturbance: relays close open units, the sink gives up the
    /// ones it waits for.
    #[must_use]
    pub fn settle_nanos(&self) -> Nanos {
        let timeouts =
            |node: &FlowParams| node.generation_timeout_nanos.max(node.flush_timeout_nanos);
        let trip = |hop: &Hop| hop.down.delay_nanos + hop.down.jitter_nanos;
        let hold = self.nodes.iter().map(|node| node.hold_timeout_nanos).max().unwrap_or(0);
        self.nodes.iter().map(timeouts).sum::<Nanos>()
            + self.hops.iter().map(trip).sum::<Nanos>()
            + 2 * hold
    }

    /// Time after which a disturbance at `at` has no more effect: nodes that stop in between keep
    /// their state.
    #[must_use]
    pub fn settled_at(&self, at: Nanos) -> Nanos {
        let settle = self.settle_nanos();
        self.changes.iter().fold(at + settle, |settled, (begins, change)| match change {
            Change::Stop { nanos, .. } if *begins < settled && begins + nanos > at => {
                settled.max(begins + nanos + settle)
            }
            _ => settled,
        })
    }

    /// Whether nodes accept only unaltered packets of their neighbours.
    pub(crate) fn is_genuine(&self) -> bool {
        let is_outside = self.attacks.is_empty() || self.hop_tags;
        is_outside && self.liars.is_empty() && self.promise.intact
    }

    /// Promises that everything is delivered.
    #[must_use]
    pub fn deliver_all(mut self) -> Scenario {
        self.promise.delivered = Some(0..Nanos::MAX);
        self
    }
}

fn role(node: usize, hops: usize) -> Role {
    match node {
        0 => Role::Source { tunnel: TUNNEL },
        _ if node == hops => Role::Sink { tunnel: TUNNEL, upstream: UP },
        _ => Role::Relay { upstream: UP },
    }
}

/// The parameters that scenarios start from.
pub(crate) fn flow_params(role: Role) -> FlowParams {
    FlowParams { symbol_bytes: 200, ..FlowParams::new(FLOW, role, vec![DOWN]) }
}
