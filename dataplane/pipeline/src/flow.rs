//! One flow on one node: its parameters and counters, and the one place that tells roles and codes
//! apart.

#[cfg(feature = "bats")]
use crate::bats::received::ReceivedBlock;
#[cfg(feature = "bats")]
use crate::bats::source::BatsSource;
use crate::combine::Combiner;
use crate::egress::{Egress, Ticket};
use crate::io::{Arrival, Context, Data, Fate, Io, earlier};
use crate::params::{FlowCode, FlowParams, Nanos, Role};
use crate::peer::next_hops::NextHops;
use crate::plan::Plan;
use crate::relay::Relay;
use crate::report::{DropReason, FlowCounters, FlowReport};
use crate::rlnc::generation::Generation;
use crate::rlnc::source::RlncSource;
use crate::role::Lifecycle;
use crate::sink::SinkCode;
use crate::sink::units::UnitSink;
use crate::source::SourceCode;
use crate::window::sink::WindowSink;
use crate::window::source::WindowSource;
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::Header;

/// The state of a role.
enum State {
    RlncSource(Box<RlncSource>),
    #[cfg(feature = "bats")]
    BatsSource(Box<BatsSource>),
    WindowSource(Box<WindowSource>),
    Relay(Box<Relay>),
    RlncSink(Box<UnitSink<Generation>>),
    #[cfg(feature = "bats")]
    BatsSink(Box<UnitSink<ReceivedBlock>>),
    WindowSink(Box<WindowSink>),
}

/// Evaluates an expression over the role, whichever it is.
macro_rules! each {
    ($state:expr, $role:ident => $result:expr) => {
        match $state {
            State::RlncSource($role) => $result,
            #[cfg(feature = "bats")]
            State::BatsSource($role) => $result,
            State::WindowSource($role) => $result,
            State::Relay($role) => $result,
            State::RlncSink($role) => $result,
            #[cfg(feature = "bats")]
            State::BatsSink($role) => $result,
            State::WindowSink($role) => $result,
        }
    };
}

/// Evaluates an expression over a source, or another one where the role is not a source.
macro_rules! source {
    ($state:expr, $source:ident => $result:expr, $otherwise:expr) => {
        match $state {
            State::RlncSource($source) => $result,
            #[cfg(feature = "bats")]
            State::BatsSource($source) => $result,
            State::WindowSource($source) => $result,
            _ => $otherwise,
        }
    };
}

/// As `source`, of sinks.
macro_rules! sink {
    ($state:expr, $sink:ident => $result:expr, $otherwise:expr) => {
        match $state {
            State::RlncSink($sink) => $result,
            #[cfg(feature = "bats")]
            State::BatsSink($sink) => $result,
            State::WindowSink($sink) => $result,
            _ => $otherwise,
        }
    };
}

impl State {
    fn new(params: &FlowParams, combiner: &mut Combiner) -> Self {
        match (&params.role, &params.code) {
            (Role::Source { .. }, FlowCode::Rlnc) => {
                Self::RlncSource(Box::new(RlncSource::new(params, combiner)))
            }
            #[cfg(feature = "bats")]
            (Role::Source { .. }, FlowCode::Bats(code)) => {
                Self::BatsSource(Box::new(BatsSource::new(params, code, combiner)))
            }
            (Role::Source { .. }, FlowCode::Window(code)) => {
                Self::WindowSource(Box::new(WindowSource::new(params, *code, combiner)))
            }
            (Role::Relay { .. }, _) => Self::Relay(Box::new(Relay::new(params, combiner))),
            (Role::Sink { .. }, FlowCode::Rlnc) => {
                Self::RlncSink(Box::new(UnitSink::new(Generation::table(params), combiner)))
            }
            #[cfg(feature = "bats")]
            (Role::Sink { .. }, FlowCode::Bats(code)) => Self::BatsSink(Box::new(UnitSink::new(
                ReceivedBlock::table(params, code),
                combiner,
            ))),
            (Role::Sink { .. }, FlowCode::Window(code)) => {
                Self::WindowSink(Box::new(WindowSink::new(params, code, combiner)))
            }
        }
    }
}

/// A flow: parameters, counters, state.
pub(crate) struct Flow {
    pub params: FlowParams,
    pub counters: FlowCounters,
    hops: NextHops,
    state: State,
    /// When [`Flow::tick`] has something to do; it may be early, never late.
    deadline: Option<Nanos>,
}

/// The state of a flow, and the context that it works in.
fn split<'a, 'io, F, E>(
    flow: &'a mut Flow,
    io: &'a mut Io<'io, F, E>,
) -> (&'a mut State, Context<'a, 'io, F, E>) {
    let Flow { params, counters, hops, state, .. } = flow;
    (state, Context { params, counters, hops, io })
}

impl Flow {
    pub(crate) fn new(params: &FlowParams, combiner: &mut Combiner) -> Flow {
        Flow {
            params: params.clone(),
            counters: FlowCounters::default(),
            hops: NextHops::new(&params.next_hops, combiner),
            state: State::new(params, combiner),
            deadline: None,
        }
    }

    /// Adopts changed parameters, keeping the state where it still fits. The next hops follow the
    /// link sequence numbers through any change.
    pub(crate) fn apply(&mut self, params: &FlowParams, io: &mut Io<'_, impl Frames, impl Egress>) {
        let is_same_code =
            std::mem::discriminant(&self.params.code) == std::mem::discriminant(&params.code);
        if self.fits(params, is_same_code) {
            let (state, mut cx) = split(self, io);
            source!(state, source => source.apply(params, &mut cx), ());
        } else {
            self.drain(io);
            self.release(io.frames);
            self.state = State::new(params, io.combiner);
            if !is_same_code {
                // Generations, blocks and symbols are not to be added up.
                self.counters = FlowCounters::default();
            }
        }
        self.hops.update(&params.next_hops, io.combiner);
        self.params = params.clone();
        self.deadline = Some(io.now);
    }

    /// Whether the state can go on under other parameters.
    fn fits(&self, params: &FlowParams, is_same_code: bool) -> bool {
        let is_source = matches!(params.role, Role::Source { .. });
        std::mem::discriminant(&self.params.role) == std::mem::discriminant(&params.role)
            && self.params.batches == params.batches
            && match params.role {
                Role::Source { .. } => is_same_code,
                Role::Relay { .. } => true,
                // A window sink holds symbols in memory of its own.
                Role::Sink { .. } => {
                    self.params.code == params.code
                        && (!matches!(params.code, FlowCode::Window(_))
                            || self.params.symbol_bytes == params.symbol_bytes)
                }
            }
            && (self.params.generation_size == params.generation_size || is_source)
    }

    /// Units held.
    pub(crate) fn held(&self) -> usize {
        each!(&self.state, role => role.held())
    }

    /// Handles a data packet.
    pub(crate) fn receive(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        arrival: &Arrival<'_>,
    ) -> Fate {
        if matches!(self.params.role, Role::Source { .. }) {
            return Fate::Dropped(DropReason::WrongRole);
        }
        if self.is_oversize(&arrival.data) {
            return Fate::Dropped(DropReason::Oversize);
        }
        self.counters.received += 1;
        let (state, mut cx) = split(self, io);
        let fate = match state {
            State::Relay(relay) => relay.receive(&mut cx, arrival),
            state => sink!(state, sink => sink.receive(&mut cx, arrival), {
                Fate::Dropped(DropReason::WrongRole)
            }),
        };
        self.wake(io.now);
        fate
    }

    /// Whether a packet exceeds what the flow accepts.
    fn is_oversize(&self, data: &Data<'_>) -> bool {
        let (size, symbol_bytes) = match data {
            Data::Coded { view, .. } => (view.size, view.symbol_bytes),
            Data::Window(packet) => (0, packet.symbol_bytes),
        };
        size > self.params.generation_size || usize::from(symbol_bytes) > self.params.symbol_bytes
    }

    /// Takes an IP packet; only a source does anything with it.
    pub(crate) fn ingress(&mut self, io: &mut Io<'_, impl Frames, impl Egress>, packet: &[u8]) {
        let (state, mut cx) = split(self, io);
        source!(
            state,
            source => {
                cx.counters.ingress_packets += 1;
                cx.counters.ingress_bytes += packet.len() as u64;
                source.ingress(&mut cx, packet);
            },
            ()
        );
        self.wake(io.now);
    }

    /// Handles a feedback packet: the source reads it, a relay hands it upstream.
    pub(crate) fn receive_feedback(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        payload: Span,
        header: Header,
    ) -> Fate {
        let (state, mut cx) = split(self, io);
        let fate = match state {
            State::Relay(relay) if header.hop_index < u8::MAX => {
                relay.hand_up(&mut cx, payload, header)
            }
            state => source!(
                state,
                source => {
                    source.receive_feedback(&mut cx, payload, header);
                    Fate::Consumed
                },
                Fate::Dropped(DropReason::WrongRole)
            ),
        };
        self.wake(io.now);
        fate
    }

    /// Notes when the role wants to be called, after something came.
    fn wake(&mut self, now: Nanos) {
        let wake = each!(&self.state, role => role.wake(&self.params, now));
        self.deadline = earlier(self.deadline, wake);
    }

    /// Takes what an accelerator computed.
    pub(crate) fn solved<'a>(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        ticket: Ticket,
        rows: impl Iterator<Item = &'a [u8]>,
    ) {
        let (state, mut cx) = split(self, io);
        sink!(state, sink => sink.solved(&mut cx, ticket, rows), ());
    }

    /// Takes over a plan that was asked for.
    pub(crate) fn planned(&mut self, plan: Plan) {
        match &mut self.state {
            State::Relay(relay) => relay.planned(plan),
            state => source!(state, source => source.planned(plan), ()),
        }
    }

    /// Lets timers act; returns the next deadline.
    pub(crate) fn tick(&mut self, io: &mut Io<'_, impl Frames, impl Egress>) -> Option<Nanos> {
        if self.deadline.is_some_and(|deadline| deadline <= io.now) {
            let (state, mut cx) = split(self, io);
            self.deadline = each!(state, role => role.tick(&mut cx));
        }
        self.deadline
    }

    /// Ends the oldest unit held, to free frames. False when none is held.
    pub(crate) fn evict_oldest(&mut self, io: &mut Io<'_, impl Frames, impl Egress>) -> bool {
        let (state, mut cx) = split(self, io);
        each!(state, role => role.evict_oldest(&mut cx))
    }

    /// Closes what is open.
    pub(crate) fn drain(&mut self, io: &mut Io<'_, impl Frames, impl Egress>) {
        let (state, mut cx) = split(self, io);
        each!(state, role => role.drain(&mut cx));
    }

    /// Lets all frames go.
    pub(crate) fn release(&mut self, frames: &mut impl Frames) {
        each!(&mut self.state, role => role.release(frames));
    }

    pub(crate) fn report(&self) -> FlowReport {
        let mut report = FlowReport {
            id: self.params.id,
            role: self.params.role.clone(),
            code: self.params.code,
            epoch: 0,
            field: self.params.field,
            generation_size: self.params.generation_size,
            symbol_bytes: self.params.symbol_bytes,
            planned: 0,
            hops: Vec::new(),
            remote: None,
            held: self.held(),
            counters: self.counters.clone(),
        };
        each!(&self.state, role => role.fill(&mut report));
        report
    }
}
