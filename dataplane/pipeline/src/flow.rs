//! One flow on one node: which role it plays.

#[cfg(feature = "bats")]
use crate::bats::received::ReceivedBlock;
#[cfg(feature = "bats")]
use crate::bats::source::BatsSource;
use crate::combine::Combiner;
use crate::egress::{Egress, Ticket};
use crate::emit::NextHops;
use crate::io::{Fate, Io, earlier};
use crate::params::{FlowCode, FlowParams, Nanos, Role};
use crate::plan::Plan;
use crate::relay::Relay;
use crate::report::{DropReason, FlowCounters, FlowReport};
use crate::sink::Sink;
use crate::sink::generation::Generation;
use crate::source::Source;
use crate::window::sink::WindowSink;
use crate::window::source::WindowSource;
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::Header;
use recoded_wire::window::WindowPacket;

use crate::batch::PacketView;

/// The state of a role.
pub(crate) enum State {
    Source(Box<Source>),
    #[cfg(feature = "bats")]
    BatsSource(Box<BatsSource>),
    WindowSource(Box<WindowSource>),
    Relay(Box<Relay>),
    Sink(Box<Sink<Generation>>),
    #[cfg(feature = "bats")]
    BatsSink(Box<Sink<ReceivedBlock>>),
    WindowSink(Box<WindowSink>),
}

/// A flow: parameters, counters, state.
pub(crate) struct Flow {
    pub params: FlowParams,
    pub counters: FlowCounters,
    state: State,
    /// When [`Flow::tick`] has something to do; it may be early, never late.
    deadline: Option<Nanos>,
}

impl Flow {
    pub(crate) fn new(params: &FlowParams, combiner: &mut Combiner) -> Flow {
        let state = match (&params.role, &params.code) {
            #[cfg(feature = "bats")]
            (Role::Source { .. }, FlowCode::Bats(bats)) => {
                State::BatsSource(Box::new(BatsSource::new(params, bats, combiner)))
            }
            (Role::Source { .. }, FlowCode::Window(code)) => {
                State::WindowSource(Box::new(WindowSource::new(params, *code, combiner)))
            }
            (Role::Source { .. }, FlowCode::Rlnc) => {
                State::Source(Box::new(Source::new(params, combiner)))
            }
            (Role::Relay { .. }, _) => State::Relay(Box::new(Relay::new(params, combiner))),
            #[cfg(feature = "bats")]
            (Role::Sink { .. }, FlowCode::Bats(code)) => {
                State::BatsSink(Box::new(Sink::new(ReceivedBlock::table(params, code), combiner)))
            }
            (Role::Sink { .. }, FlowCode::Window(code)) => {
                State::WindowSink(Box::new(WindowSink::new(params, code, combiner)))
            }
            (Role::Sink { .. }, FlowCode::Rlnc) => {
                State::Sink(Box::new(Sink::new(Generation::table(params), combiner)))
            }
        };
        Flow { params: params.clone(), counters: FlowCounters::default(), state, deadline: None }
    }

    /// Adopts changed parameters, keeping the state where it still fits.
    pub(crate) fn apply(&mut self, params: &FlowParams, io: &mut Io<'_, impl Frames, impl Egress>) {
        let is_same_code =
            std::mem::discriminant(&self.params.code) == std::mem::discriminant(&params.code);
        let fits = std::mem::discriminant(&self.params.role)
            == std::mem::discriminant(&params.role)
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
            && (self.params.generation_size == params.generation_size
                || matches!(params.role, Role::Source { .. }));
        if !fits {
            self.drain(io);
            self.release(io.frames);
            // Generations, blocks and symbols are not to be added up.
            let counters = if is_same_code {
                std::mem::take(&mut self.counters)
            } else {
                FlowCounters::default()
            };
            let mut changed = Flow { counters, ..Flow::new(params, io.combiner) };
            // The next hops follow the link sequence numbers through any change.
            if let (Some(new), Some(old)) = (changed.hops(), self.hops()) {
                std::mem::swap(new, old);
                new.update(&params.next_hops, io.combiner);
            }
            *self = changed;
            return;
        }
        match &mut self.state {
            State::Source(source) => source.apply(&self.params, params, &mut self.counters, io),
            #[cfg(feature = "bats")]
            State::BatsSource(source) => {
                source.apply(&self.params, params, &mut self.counters, io);
            }
            State::WindowSource(source) => {
                source.apply(&self.params, params, &mut self.counters, io);
            }
            State::Relay(relay) => relay.apply(params, io.combiner),
            // Sinks follow what packets say.
            _ => {}
        }
        self.params = params.clone();
    }

    fn hops(&mut self) -> Option<&mut NextHops> {
        match &mut self.state {
            State::Source(source) => Some(source.hops_mut()),
            #[cfg(feature = "bats")]
            State::BatsSource(source) => Some(source.hops_mut()),
            State::WindowSource(source) => Some(source.hops_mut()),
            State::Relay(relay) => Some(relay.hops_mut()),
            _ => None,
        }
    }

    /// Generations held.
    pub(crate) fn held(&self) -> usize {
        match &self.state {
            State::Source(source) => source.held(),
            #[cfg(feature = "bats")]
            State::BatsSource(source) => source.held(),
            State::Relay(relay) => relay.held(),
            State::Sink(sink) => sink.held(),
            #[cfg(feature = "bats")]
            State::BatsSink(sink) => sink.held(),
            // The codec has memory of its own.
            State::WindowSource(_) | State::WindowSink(_) => 0,
        }
    }

    /// Handles a packet of a generation or batch.
    pub(crate) fn receive_coded(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        payload: Span,
        header: Header,
        view: &PacketView,
    ) -> Fate {
        // A relay serves every code.
        let wanted = match self.params.code {
            FlowCode::Rlnc => view.block.is_none(),
            #[cfg(feature = "bats")]
            FlowCode::Bats(_) => view.block.is_some(),
            FlowCode::Window(_) => false,
        };
        match self.params.role {
            Role::Source { .. } => return Fate::Dropped(DropReason::WrongRole),
            Role::Sink { .. } if !wanted => return Fate::Dropped(DropReason::WrongCode),
            _ => {}
        }
        if view.size > self.params.generation_size
            || usize::from(view.symbol_bytes) > self.params.symbol_bytes
        {
            return Fate::Dropped(DropReason::Oversize);
        }
        self.counters.received += 1;
        let (params, counters) = (&self.params, &mut self.counters);
        let (fate, wake) = match &mut self.state {
            State::Relay(relay) => {
                let fate = relay.receive(params, counters, io, payload, header, view);
                (fate, relay.wake(params, io.now))
            }
            State::Sink(sink) => {
                let fate = sink.receive(params, counters, io, payload, header, view);
                (fate, sink.wake(params, io.now))
            }
            #[cfg(feature = "bats")]
            State::BatsSink(sink) => {
                let fate = sink.receive(params, counters, io, payload, header, view);
                (fate, sink.wake(params, io.now))
            }
            _ => return Fate::Dropped(DropReason::WrongRole),
        };
        self.deadline = earlier(self.deadline, wake);
        fate
    }

    /// Handles a packet of a window flow.
    pub(crate) fn receive_window(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        payload: Span,
        packet: &WindowPacket,
    ) -> Fate {
        match (&self.params.role, &self.params.code) {
            (Role::Source { .. }, _) => return Fate::Dropped(DropReason::WrongRole),
            (Role::Relay { .. }, _) | (Role::Sink { .. }, FlowCode::Window(_)) => {}
            (Role::Sink { .. }, _) => return Fate::Dropped(DropReason::WrongCode),
        }
        if usize::from(packet.symbol_bytes) > self.params.symbol_bytes {
            return Fate::Dropped(DropReason::Oversize);
        }
        self.counters.received += 1;
        let (params, counters) = (&self.params, &mut self.counters);
        let (fate, wake) = match &mut self.state {
            State::Relay(relay) => {
                let fate = relay.pass(counters, io, payload, packet);
                (fate, relay.wake(params, io.now))
            }
            State::WindowSink(sink) => {
                let fate = sink.receive(params, counters, io, payload, packet);
                (fate, sink.wake(params))
            }
            _ => return Fate::Dropped(DropReason::WrongRole),
        };
        self.deadline = earlier(self.deadline, wake);
        fate
    }

    /// Takes an IP packet; only a source does anything with it.
    pub(crate) fn ingress(&mut self, io: &mut Io<'_, impl Frames, impl Egress>, packet: &[u8]) {
        let (params, counters) = (&self.params, &mut self.counters);
        let wake = match &mut self.state {
            State::Source(source) => {
                source.ingress(params, counters, io, packet);
                source.wake(params)
            }
            #[cfg(feature = "bats")]
            State::BatsSource(source) => {
                source.ingress(params, counters, io, packet);
                source.wake(params, io.now)
            }
            State::WindowSource(source) => {
                source.ingress(params, counters, io, packet);
                source.wake(params)
            }
            _ => None,
        };
        self.deadline = earlier(self.deadline, wake);
    }

    /// Handles a feedback packet: the source reads it, a relay hands it upstream.
    pub(crate) fn receive_feedback(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        payload: Span,
        header: Header,
    ) -> Fate {
        match &mut self.state {
            State::Source(source) => {
                source.receive_feedback(&self.params, &mut self.counters, io, payload, header);
                Fate::Consumed
            }
            #[cfg(feature = "bats")]
            State::BatsSource(source) => {
                source.receive_feedback(&self.params, &mut self.counters, io, payload, header);
                self.deadline = earlier(self.deadline, source.wake(&self.params, io.now));
                Fate::Consumed
            }
            State::WindowSource(source) => {
                source.receive_feedback(&self.params, io, payload, header);
                Fate::Consumed
            }
            State::Relay(relay) if header.hop_index < u8::MAX => {
                relay.hand_up(&self.params, &mut self.counters, io, payload, header)
            }
            _ => Fate::Dropped(DropReason::WrongRole),
        }
    }

    /// Takes what an accelerator computed.
    pub(crate) fn solved<'a>(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        ticket: Ticket,
        rows: impl Iterator<Item = &'a [u8]>,
    ) {
        if let State::Sink(sink) = &mut self.state {
            sink.solved(&self.params, &mut self.counters, io, ticket, rows);
        }
    }

    /// Takes over a plan that was asked for.
    pub(crate) fn planned(&mut self, plan: Plan) {
        match &mut self.state {
            State::Source(source) => source.adopt(plan),
            #[cfg(feature = "bats")]
            State::BatsSource(source) => source.adopt(plan),
            State::WindowSource(source) => source.adopt(plan),
            State::Relay(relay) => relay.adopt(plan),
            _ => {}
        }
    }

    /// Lets timers act; returns the next deadline.
    pub(crate) fn tick(&mut self, io: &mut Io<'_, impl Frames, impl Egress>) -> Option<Nanos> {
        if self.deadline.is_some_and(|deadline| deadline <= io.now) {
            let (params, counters) = (&self.params, &mut self.counters);
            self.deadline = match &mut self.state {
                State::Source(source) => source.tick(params, counters, io),
                #[cfg(feature = "bats")]
                State::BatsSource(source) => source.tick(params, counters, io),
                State::WindowSource(source) => source.tick(params, counters, io),
                State::Relay(relay) => relay.tick(params, counters, io),
                State::Sink(sink) => sink.tick(params, counters, io),
                #[cfg(feature = "bats")]
                State::BatsSink(sink) => sink.tick(params, counters, io),
                State::WindowSink(sink) => sink.tick(params, counters, io),
            };
        }
        self.deadline
    }

    /// Ends the oldest generation held, to free frames. False when none is held.
    pub(crate) fn evict_oldest(&mut self, io: &mut Io<'_, impl Frames, impl Egress>) -> bool {
        let (params, counters) = (&self.params, &mut self.counters);
        match &mut self.state {
            State::Source(source) => source.evict_oldest(counters, io),
            #[cfg(feature = "bats")]
            State::BatsSource(source) => source.evict_oldest(counters, io),
            State::Relay(relay) => relay.evict_oldest(params, counters, io),
            State::Sink(sink) => sink.evict_oldest(params, counters, io),
            #[cfg(feature = "bats")]
            State::BatsSink(sink) => sink.evict_oldest(params, counters, io),
            State::WindowSource(_) | State::WindowSink(_) => false,
        }
    }

    /// Closes what is open.
    pub(crate) fn drain(&mut self, io: &mut Io<'_, impl Frames, impl Egress>) {
        let (params, counters) = (&self.params, &mut self.counters);
        match &mut self.state {
            State::Source(source) => source.close(params, counters, io),
            #[cfg(feature = "bats")]
            State::BatsSource(source) => source.drain(params, counters, io),
            State::WindowSource(source) => source.drain(params, counters, io),
            State::WindowSink(sink) => sink.drain(params, counters, io),
            State::Relay(relay) => relay.drain(params, counters, io),
            _ => {}
        }
    }

    /// Lets all frames go.
    pub(crate) fn release(&mut self, frames: &mut impl Frames) {
        match &mut self.state {
            State::Source(source) => source.release(frames),
            #[cfg(feature = "bats")]
            State::BatsSource(source) => source.release(frames),
            State::Relay(relay) => relay.release(frames),
            State::Sink(sink) => sink.release(frames),
            #[cfg(feature = "bats")]
            State::BatsSink(sink) => sink.release(frames),
            State::WindowSource(_) | State::WindowSink(_) => {}
        }
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
        match &self.state {
            State::Source(source) => source.fill(&mut report),
            #[cfg(feature = "bats")]
            State::BatsSource(source) => source.fill(&mut report),
            State::WindowSource(source) => source.fill(&mut report),
            State::Relay(relay) => relay.fill(&mut report),
            State::Sink(sink) => sink.fill(&mut report),
            #[cfg(feature = "bats")]
            State::BatsSink(sink) => sink.fill(&mut report),
            State::WindowSink(sink) => sink.fill(&mut report),
        }
        report
    }
}
