//! Sink edge: coded packets in, IP packets out. The common interface of all sinks, and the shared
//! part of sinks that decode units: generations or blocks.

mod delivery;

pub(crate) mod pace;

mod trial;

mod requests;

pub(crate) mod unit;

pub(crate) mod units;

use crate::env::egress::{Egress, Ticket};
use crate::packet::arrival::{Arrival, Fate};
use crate::unit::context::Context;
use crate::unit::role::Lifecycle;
use recoded_wire::frames::Frames;

/// The sink of a flow.
pub(crate) trait SinkCode: Lifecycle {
    /// Handles a data packet.
    fn receive(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        arrival: &Arrival<'_>,
    ) -> Fate;

    /// Takes the result of an accelerator; see [`unit::Unit::solved`].
    fn solved<'a>(
        &mut self,
        _cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        _ticket: Ticket,
        _rows: impl Iterator<Item = &'a [u8]>,
    ) {
    }
}
