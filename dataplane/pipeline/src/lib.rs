//! From packet to flow to batch to recoded or decoded packets.
//!
//! ```text
//!  TUN ──ingress──► source ──┐
//!                            ├─► combine ─► emit ──► Egress::transmit ──► next hops
//!  rings ──receive─► relay ──┘
//!        └─────────► sink ─► decode ─► framing ─► Egress::deliver ──► TUN
//!                     └── feedback ─► upstream ─► source
//! ```
//!
//! No I/O, no clock, no unsafe: bytes and `now` in, bytes and verdicts out, so that AF_XDP, the
//! simulator and the fuzzer drive the same code. Tables are allocated when a flow is created; the
//! packet path allocates nothing. Received symbols stay in their frames while their generation
//! lives; combinations are written straight into frames that are then transmitted.
//!
//! Every received packet is counted in exactly one of forwarded, consumed and dropped-by-reason.

#![forbid(unsafe_code)]

pub mod params;

mod budget;

mod flow;

mod role;

mod peer;

mod edge;

mod source;

mod relay;

mod sink;

mod rlnc;

#[cfg(feature = "bats")]
mod bats;

mod window;

mod incoming;

mod batch;

mod combine;

mod table;

mod layout;

mod rank;

mod io;

pub mod plan;

pub mod egress;

pub mod report;

pub mod memory;

use batch::PacketView;
use combine::Combiner;
use egress::{Egress, Ticket};
use flow::Flow;
use io::{Arrival, Data, Fate, Io, earlier};
use params::{Nanos, Snapshot};
use plan::PlanReply;
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Header, HeaderError, PacketType, SIZE_MAX, parse_coded};
use recoded_wire::window::parse_window;
use report::{DropReason, PacketCounters, Report};

/// One worker's pipeline.
pub struct Pipeline {
    edition: u64,
    /// Sorted by flow id.
    flows: Vec<Flow>,
    combiner: Combiner,
    /// The unpacked coding vector of the packet at hand.
    vector: Box<[u8; SIZE_MAX]>,
    packets: PacketCounters,
}

impl Pipeline {
    /// Builds the tables of every flow in `snapshot`. `seed` starts the coefficient generator; give
    /// each start of a program another one.
    pub fn new(snapshot: &Snapshot, seed: u64) -> Pipeline {
        let mut combiner = Combiner::new(seed);
        let mut flows: Vec<Flow> =
            snapshot.flows.iter().map(|params| Flow::new(params, &mut combiner)).collect();
        flows.sort_by_key(|flow| flow.params.id);
        let (vector, packets) = (Box::new([0; SIZE_MAX]), PacketCounters::default());
        Pipeline { edition: snapshot.edition, flows, combiner, vector, packets }
    }

    /// Adopts a new snapshot: flows appear, disappear or change parameters. Call between bursts.
    /// No packet is lost to it: what is open ends under the old parameters. Allocates for what is
    /// new.
    pub fn apply(
        &mut self,
        snapshot: &Snapshot,
        frames: &mut impl Frames,
        egress: &mut impl Egress,
        now: Nanos,
    ) {
        self.edition = snapshot.edition;
        let mut io = Io { frames, egress, combiner: &mut self.combiner, now };
        let wanted = |id: u32| snapshot.flows.iter().find(|params| params.id == id);
        for flow in &mut self.flows {
            match wanted(flow.params.id) {
                Some(params) => flow.apply(params, &mut io),
                None => {
                    flow.drain(&mut io);
                    flow.release(io.frames);
                }
            }
        }
        self.flows.retain(|flow| wanted(flow.params.id).is_some());
        for params in &snapshot.flows {
            if !self.flows.iter().any(|flow| flow.params.id == params.id) {
                self.flows.push(Flow::new(params, io.combiner));
            }
        }
        self.flows.sort_by_key(|flow| flow.params.id);
    }

    /// Handles a received packet. Takes over one reference to `payload.frame`, whose span is a UDP
    /// payload.
    pub fn receive(
        &mut self,
        frames: &mut impl Frames,
        egress: &mut impl Egress,
        payload: Span,
        now: Nanos,
    ) {
        let mut io = Io { frames, egress, combiner: &mut self.combiner, now };
        if io.frames.scarce() {
            relieve(&mut self.flows, &mut io);
        }
        let fate = dispatch(&mut self.flows, &mut io, &mut self.vector, payload);
        self.packets.received += 1;
        match fate {
            Fate::Forwarded => self.packets.forwarded += 1,
            Fate::Consumed => self.packets.consumed += 1,
            Fate::Dropped(reason) => self.packets.dropped[reason as usize] += 1,
        }
        // A role that keeps the frame holds a reference of its own by now.
        frames.release(payload.frame);
    }

    /// Takes an IP packet from the tunnel of source flow `flow`; ignored when there is no such
    /// flow.
    pub fn ingress(
        &mut self,
        frames: &mut impl Frames,
        egress: &mut impl Egress,
        flow: u32,
        packet: &[u8],
        now: Nanos,
    ) {
        let mut io = Io { frames, egress, combiner: &mut self.combiner, now };
        if io.frames.scarce() {
            relieve(&mut self.flows, &mut io);
        }
        if let Some(index) = find(&self.flows, flow) {
            self.flows[index].ingress(&mut io, packet);
        }
    }

    /// Takes what an accelerator computed of a product that [`Egress::offload`] took: its rows, or
    /// fewer when it failed, and the product is done here then. Ignored when its generation is
    /// gone.
    pub fn solved<'a>(
        &mut self,
        frames: &mut impl Frames,
        egress: &mut impl Egress,
        ticket: Ticket,
        rows: impl Iterator<Item = &'a [u8]>,
        now: Nanos,
    ) {
        let mut io = Io { frames, egress, combiner: &mut self.combiner, now };
        if let Some(index) = find(&self.flows, ticket.flow) {
            self.flows[index].solved(&mut io, ticket, rows);
        }
    }

    /// Takes over a plan that a flow asked for; see [`Egress::plan`]. Ignored when the flow is
    /// gone.
    pub fn planned(&mut self, reply: PlanReply) {
        if let Some(index) = find(&self.flows, reply.flow) {
            self.flows[index].planned(reply.plan);
        }
    }

    /// Lets timers act. Cheap when nothing is due: call it after every burst, and again at the time
    /// it returns.
    pub fn tick(
        &mut self,
        frames: &mut impl Frames,
        egress: &mut impl Egress,
        now: Nanos,
    ) -> Option<Nanos> {
        let mut io = Io { frames, egress, combiner: &mut self.combiner, now };
        self.flows.iter_mut().fold(None, |deadline, flow| earlier(deadline, flow.tick(&mut io)))
    }

    /// Closes every open generation, as before a shutdown.
    pub fn drain(&mut self, frames: &mut impl Frames, egress: &mut impl Egress, now: Nanos) {
        let mut io = Io { frames, egress, combiner: &mut self.combiner, now };
        for flow in &mut self.flows {
            flow.drain(&mut io);
        }
    }

    /// Lets every frame go: nothing is held afterwards.
    pub fn release(&mut self, frames: &mut impl Frames) {
        for flow in &mut self.flows {
            flow.release(frames);
        }
    }

    /// A copy of all counters. Allocates: for housekeeping, not for the packet path.
    pub fn report(&self) -> Report {
        Report {
            edition: self.edition,
            packets: self.packets,
            flows: self.flows.iter().map(Flow::report).collect(),
        }
    }
}

fn find(flows: &[Flow], id: u32) -> Option<usize> {
    flows.binary_search_by_key(&id, |flow| flow.params.id).ok()
}

fn dispatch<F: Frames, E: Egress>(
    flows: &mut [Flow],
    io: &mut Io<'_, F, E>,
    vector: &mut [u8; SIZE_MAX],
    payload: Span,
) -> Fate {
    let bytes = io.frames.bytes(payload);
    let header = match Header::parse(bytes) {
        Ok(header) => header,
        Err(error) => return Fate::Dropped(reason(error)),
    };
    let Some(index) = find(flows, header.flow) else {
        return Fate::Dropped(DropReason::UnknownFlow);
    };
    let flow = &mut flows[index];
    match header.packet_type {
        PacketType::Feedback => flow.receive_feedback(io, payload, header),
        PacketType::Generation | PacketType::Bats => match parse_coded(bytes) {
            Ok(coded) => match PacketView::new(payload, &coded, vector) {
                Some(view) => {
                    flow.receive(io, &Arrival { payload, data: Data::Coded { header, view } })
                }
                None => Fate::Dropped(DropReason::Malformed),
            },
            Err(error) => Fate::Dropped(reason(error)),
        },
        PacketType::Window => match parse_window(bytes) {
            Ok(packet) => flow.receive(io, &Arrival { payload, data: Data::Window(packet) }),
            Err(error) => Fate::Dropped(reason(error)),
        },
        _ => Fate::Dropped(DropReason::WrongRole),
    }
}

fn reason(error: HeaderError) -> DropReason {
    match error {
        HeaderError::Truncated => DropReason::Truncated,
        HeaderError::Version(_) | HeaderError::Type(_) => DropReason::Version,
        HeaderError::Flags(_) => DropReason::Malformed,
    }
}

/// Frees frames under pressure: one unit of the flow that holds most goes, per packet.
fn relieve<F: Frames, E: Egress>(flows: &mut [Flow], io: &mut Io<'_, F, E>) {
    if let Some(flow) = flows.iter_mut().max_by_key(|flow| flow.held()) {
        flow.evict_oldest(io);
    }
}
