//! Tags of symbols and seals of reports at a shard: verification, and the handling of refused
//! symbols and of the neighbour that sent them.

use crate::config::params::Nanos;
use crate::config::report::DropReason;
use crate::env::egress::{Egress, Keys, ReportFate};
use crate::env::io::Io;
use crate::hop::receive::feedback::BYTES_MAX;
use crate::packet::arrival::{Arrival, Data};
use crate::shard::Shard;
use crate::stage::{RoleState, each};
use crate::unit::role::Lifecycle;
use crate::unit::tags;
use recoded_wire::feedback::{covered_by_seal, is_of_sink, seal_of};
use recoded_wire::frames::{Frames, Span};

/// This long after the first valid tag, no symbol is under earlier keys: streams keep symbols for 4
/// s.
const SETTLED_NANOS: Nanos = 5_000_000_000;

impl Shard {
    /// Verifies the symbol of a packet that was admitted; see [`tags::verify`].
    ///
    /// # Errors
    /// The reason why it must be dropped.
    #[inline]
    pub(crate) fn verify<'a>(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        arrival: &Arrival<'a>,
    ) -> Result<Option<Arrival<'a>>, DropReason> {
        match tags::verify(io, &self.present.params, arrival) {
            Ok(verified) => {
                self.counters.tag_verified += u64::from(verified.is_some());
                if verified.is_some() && self.verified_at.is_none() {
                    self.verified_at = Some(io.now);
                }
                Ok(verified)
            }
            Err(reason) => {
                match reason {
                    DropReason::WrongSymbolTag => {
                        self.counters.tag_refused += 1;
                        self.give_up(arrival, io.now);
                        self.distrust(io, 1);
                    }
                    // There are keys, so it belongs to a session before this node started. If it
                    // were not acknowledged, it would keep the neighbour's window full.
                    DropReason::NoSymbolKeys
                        if self.verified_at.is_some()
                            || io.egress.keys().is_some_and(|keys| keys.has_keys(self.id)) =>
                    {
                        self.give_up(arrival, io.now);
                    }
                    _ => {}
                }
                Err(reason)
            }
        }
    }

    /// Verifies a feedback packet at a source, before it can change any state. Those without items
    /// of a sink are a relay's own, authenticated by its hop.
    ///
    /// # Errors
    /// The packet must be dropped.
    //= docs/protocol §2.8(g)
    pub(super) fn verify_report(
        &self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        payload: Span,
    ) -> Result<ReportFate, DropReason> {
        let Io { frames, egress, .. } = &mut *io;
        let packet = frames.bytes(payload);
        if !self.present.params.has_edge_keys() || !is_of_sink(packet) {
            return Ok(ReportFate::New);
        }
        let keys = egress.keys().ok_or(DropReason::WrongReport)?;
        let mut covered = [0; BYTES_MAX];
        let covered = covered_by_seal(packet, &mut covered).ok_or(DropReason::WrongReport)?;
        let fate = keys.verify_report(self.id, covered, seal_of(packet));
        fate.map_err(|_| DropReason::WrongReport)
    }

    /// Notes wrong tags of the neighbour that last sent a packet. Not at first: packets in flight
    /// when a node starts may be under keys that it does not have.
    pub(super) fn distrust(&mut self, io: &mut Io<'_, impl Frames, impl Egress>, wrong: u64) {
        if self.verified_at.is_none_or(|at| at.saturating_add(SETTLED_NANOS) > io.now) {
            return;
        }
        let most = self.present.params.wrong_tags_max;
        let upstream = self.upstreams.present_mut();
        for _ in 0..wrong {
            if upstream.quarantine.note(most, io.now) {
                self.counters.quarantines += 1;
                upstream.peer.into_iter().for_each(|peer| io.egress.distrust(peer));
            }
        }
    }

    /// Acknowledges a refused symbol of a stream to the neighbour: a retransmission would be the
    /// same.
    fn give_up(&mut self, arrival: &Arrival<'_>, now: Nanos) {
        let Data::Stream(packet) = &arrival.data else { return };
        let Some(symbol) = packet.symbol() else { return };
        let place = self.upstreams.place();
        if !each!(&mut self.present.state, role => role.abandon(place, &symbol)) {
            return;
        }
        let bytes = usize::from(arrival.payload.len);
        self.upstreams.present_mut().track(arrival.data.header(), bytes, false, now);
        self.wake(now);
    }
}
