//! Pacing of a shard: when a source accepts packets from its tunnel, and the backlog that a node
//! reports to its upstream neighbour.

use crate::config::params::Nanos;
use crate::hop::receive::link_report::Onward;
use crate::shard::Shard;
use crate::stage::{RoleState, each};
use crate::unit::role::Lifecycle;

impl Shard {
    /// State beyond this node, for link reports: backlog, round trip, missing packets.
    pub(super) fn onward(&mut self, now: Nanos) -> Onward {
        let upstream = self.upstreams.place();
        let symbol_bytes = self.present.params.symbol_bytes;
        each!(&mut self.present.state, role => role.onward(now, symbol_bytes, upstream))
    }

    /// Sum of the round trips of all hops from this source, as far as known.
    pub(crate) fn path_round_trip(&self) -> Nanos {
        each!(&self.present.state, role => role.path_round_trip())
    }

    /// Whether everything that entered this source has arrived at a next hop.
    pub(crate) fn is_settled(&mut self, now: Nanos) -> bool {
        each!(&mut self.present.state, role => role.is_settled(now))
    }

    /// Whether some of several paths do not answer, and others carry their traffic.
    pub(crate) fn lacks_paths(&self) -> bool {
        each!(&self.present.state, role => role.lacks_paths())
    }

    /// Whether a packet from a tunnel is accepted; otherwise when to retry, if that is known.
    pub(crate) fn opens_at(&mut self, now: Nanos) -> Result<(), Option<Nanos>> {
        each!(&mut self.present.state, role => role.opens_at(now))
    }
}
