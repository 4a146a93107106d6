//! The interface of all roles of all codes: sources, relays and sinks. A role implements what
//! differs from the defaults, so that a shard never asks which code it has.

use crate::config::params::{FlowParams, Nanos, PeerId};
use crate::config::report::{DropReason, FlowReport};
use crate::config::segmentation::Comparison;
use crate::env::egress::{Egress, Ticket};
use crate::hop::receive::link_report::Onward;
use crate::hop::send::mender::Mender;
use crate::packet::arrival::{Arrival, Fate};
use crate::plan::Plan;
use crate::unit::context::Context;
use recoded_wire::feedback::FeedbackHeader;
use recoded_wire::frames::{Frames, Span};
use recoded_wire::link::LinkReport;
use recoded_wire::stream::StreamSymbol;

/// The state of a role.
pub(crate) trait Lifecycle {
    /// Runs due timers. Returns when to call it again.
    fn tick(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> Option<Nanos>;

    /// When to call [`Lifecycle::tick`] next, after a packet arrived.
    fn wake(&self, params: &FlowParams, now: Nanos) -> Option<Nanos>;

    /// Writes its state into a report.
    fn fill(&self, report: &mut FlowReport);

    /// Number of units held, each with frames.
    fn held(&self) -> usize {
        0
    }

    /// Closes open units, as before a change of parameters or a shutdown.
    fn drain(&mut self, _cx: &mut Context<'_, '_, impl Frames, impl Egress>) {}

    /// Evicts the oldest unit, to free frames. Returns false when none is held.
    fn evict_oldest(&mut self, _cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> bool {
        false
    }

    /// Releases all frames.
    fn release(&mut self, _frames: &mut impl Frames) {}

    /// Relay or sink: handles a data packet.
    fn receive(
        &mut self,
        _cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        _arrival: &Arrival<'_>,
    ) -> Fate {
        Fate::Dropped(DropReason::WrongRole)
    }

    /// Sink: takes the result of an accelerator; see [`super::sink::unit::Unit::solved`].
    fn solved<'a>(
        &mut self,
        _cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        _ticket: Ticket,
        _rows: impl Iterator<Item = &'a [u8]>,
    ) {
    }

    /// Relay: passes a report of a downstream node on upstream, after answering the NACKs that it
    /// can.
    fn hand_up(
        &mut self,
        _cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        _peer: PeerId,
        _payload: Span,
        _header: FeedbackHeader,
    ) -> Fate {
        Fate::Dropped(DropReason::WrongRole)
    }

    /// Source or relay: processes a link report of next hop `peer`, and sends the packets that it
    /// lacks.
    fn hear_link(
        &mut self,
        _cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        _peer: PeerId,
        _report: &LinkReport,
        _payload: Span,
    ) -> Result<(), DropReason> {
        Err(DropReason::WrongCode)
    }

    /// Adopts a plan that it requested.
    fn planned(&mut self, _plan: Plan) {}

    /// Relay or sink: follows a change of the upstreams.
    fn adopt(&mut self, _params: &FlowParams) {}

    /// The sending side of a hop that repairs its losses, of generations and batches.
    fn mender(&self) -> Option<&Mender> {
        None
    }

    /// The same, to change it.
    fn mender_mut(&mut self) -> Option<&mut Mender> {
        None
    }

    /// Applies the pace of the link to a next hop, and returns the outcomes of packets reported
    /// since the last call.
    fn apply_pace(&mut self, _peer: PeerId, pace: Option<f64>) -> Comparison {
        self.mender_mut().map_or_else(Comparison::default, |mender| mender.link.settle(pace))
    }

    /// State beyond this node, for link reports to the neighbour at index `upstream`.
    fn onward(&mut self, _now: Nanos, _symbol_bytes: usize, _upstream: usize) -> Onward {
        Onward::default()
    }

    /// Source: whether a packet may enter; otherwise when to check again, if known.
    fn opens_at(&mut self, now: Nanos) -> Result<(), Option<Nanos>> {
        self.mender().map_or(Ok(()), |mender| mender.opens_at(now))
    }

    /// Source: sum of the round trips of all hops, as far as known.
    fn path_round_trip(&self) -> Nanos {
        self.mender().map_or(0, |mender| mender.link.path_round_trip())
    }

    /// Source: whether everything that entered has arrived at a next hop.
    fn is_settled(&mut self, _now: Nanos) -> bool {
        true
    }

    /// Source: whether some of several paths do not answer, and others carry their traffic.
    fn lacks_paths(&self) -> bool {
        false
    }

    /// Relay or sink of a stream: stops requesting a refused symbol from a neighbour, as others may
    /// have the original. Returns whether it was requested.
    fn abandon(&mut self, _upstream: usize, _symbol: &StreamSymbol) -> bool {
        false
    }
}
