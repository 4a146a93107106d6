//! Pacing of a shard: when a source accepts packets from its tunnel, and the backlog that a node
//! reports to its upstream neighbour.

use crate::config::params::Nanos;
use crate::hop::receive::link_report::Onward;
use crate::shard::Shard;
use crate::stage::RoleState;

impl Shard {
    /// State beyond this node, for link reports: backlog, round trip, missing packets.
    pub(super) fn onward(&mut self, now: Nanos) -> Onward {
        let upstream = self.upstreams.place();
        let symbol_bytes = self.present.params.symbol_bytes;
        match &mut self.present.state {
            RoleState::StreamRelay(relay) => Onward {
                backlog: relay.backlog(now, symbol_bytes),
                beyond: relay.path_round_trip(),
                missing: relay.missing(upstream),
            },
            RoleState::Relay(relay) => Onward {
                backlog: relay.mender.waits(now),
                beyond: relay.mender.link.path_round_trip(),
                ..Onward::default()
            },
            RoleState::StreamSink(sink) => {
                Onward { missing: sink.missing(upstream), ..Onward::default() }
            }
            _ => Onward::default(),
        }
    }

    /// Sum of the round trips of all hops from this source, as far as known.
    pub(crate) fn path_round_trip(&self) -> Nanos {
        match &self.present.state {
            RoleState::StreamSource(source) => source.path_round_trip(),
            state => state.mender().map_or(0, |mender| mender.link.path_round_trip()),
        }
    }

    /// Whether everything that entered this source has arrived at a next hop.
    pub(crate) fn is_settled(&mut self, now: Nanos) -> bool {
        match &mut self.present.state {
            RoleState::StreamSource(source) => source.is_settled(now),
            _ => true,
        }
    }

    /// Whether some of several paths do not answer, and others carry their traffic.
    pub(crate) fn lacks_paths(&self) -> bool {
        matches!(&self.present.state, RoleState::StreamSource(source) if source.lacks_paths())
    }

    /// Whether a packet from a tunnel is accepted; otherwise when to retry, if that is known.
    pub(crate) fn opens_at(&mut self, now: Nanos) -> Result<(), Option<Nanos>> {
        match &mut self.present.state {
            RoleState::StreamSource(source) => source.opens_at(now),
            #[cfg(feature = "bats")]
            RoleState::BatsSource(source) => source.opens_at(now),
            state => state.mender().map_or(Ok(()), |mender| mender.opens_at(now)),
        }
    }
}
