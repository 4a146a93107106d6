//! The neighbours that a shard receives from: one, or several where paths merge. Per upstream: the
//! link sequence numbers received, the loss of the link, the time of the newest packet, and the
//! reports sent to it.

pub(crate) mod link_report;

pub(crate) mod sequence;

pub(crate) mod shares;

pub(crate) mod lateness;

pub(crate) mod loss;

mod quarantine;

pub(crate) mod feedback;

use crate::base::time::earlier;
use crate::config::params::{FlowParams, Nanos, PeerId, ShardId};
use crate::config::report::{DropReason, HopLoss, UpstreamLink};
use crate::env::combine::Combiner;
use crate::env::egress::Egress;
use crate::env::io::Io;
use feedback::Reporter;
use link_report::{Arrivals, Onward};
use loss::LossTracker;
use quarantine::Quarantine;
use recoded_wire::frames::Frames;
use recoded_wire::header::Header;
use sequence::{Arrived, Sequences};
use shares::Shares;

/// An upstream silent for this long cannot replace one in quarantine.
const HEARD_NANOS: Nanos = 3_000_000_000;

/// A neighbour that the shard receives from. A source has none, and receives nothing.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub peer: Option<PeerId>,
    /// Its index among the upstreams of the shard.
    pub place: usize,
    sequences: Sequences,
    pub loss: LossTracker,
    pub reporter: Reporter,
    pub quarantine: Quarantine,
    arrivals: Arrivals,
    /// Whether the current packet was redundant for a unit that is still incomplete.
    was_useless: bool,
    /// The newest packet and its arrival time.
    newest: Option<(Header, Nanos)>,
}

impl Upstream {
    pub(crate) fn new(shard: ShardId, peer: Option<PeerId>, combiner: &mut Combiner) -> Self {
        Self {
            peer,
            place: 0,
            sequences: Sequences::default(),
            loss: LossTracker::default(),
            reporter: Reporter::new(shard, peer, combiner),
            quarantine: Quarantine::default(),
            arrivals: Arrivals::new(),
            was_useless: false,
            newest: None,
        }
    }

    /// Records the arrival of a data packet, before it is processed.
    ///
    /// # Errors
    /// [`DropReason::Replayed`] when the packet is a duplicate.
    pub(crate) fn arrived(&mut self, header: &Header, now: Nanos) -> Result<(), DropReason> {
        match self.sequences.arrived(header.link_sequence, now) {
            Arrived::First => self.loss.arrived(header.hop_index, 0),
            Arrived::Newer { lost } => self.loss.arrived(header.hop_index, lost),
            Arrived::Late => self.loss.arrived_late(),
            Arrived::Replayed => return Err(DropReason::Replayed),
        }
        self.newest = Some((*header, now));
        self.was_useless = false;
        self.reporter.note(now);
        Ok(())
    }

    /// Records a packet of a code with per-hop retransmission, already passed to
    /// [`Upstream::arrived`]: its bytes, and whether the neighbour waits for a report on it.
    pub(crate) fn track(&mut self, header: &Header, bytes: usize, is_asked: bool, now: Nanos) {
        if !self.was_useless {
            self.arrivals.note(header.link_sequence, bytes, is_asked, now);
        }
    }

    /// Notes that the current packet, of a stream, requests a report.
    pub(crate) fn asked(&mut self) {
        self.arrivals.asked();
    }

    /// Notes that the current packet was redundant for an incomplete unit: it is reported as lost.
    pub(crate) fn note_useless(&mut self) {
        self.was_useless = true;
    }

    /// When a link report is due.
    pub(crate) fn link_report_due(&self) -> Option<Nanos> {
        self.arrivals.due()
    }

    /// Sends a link report; `onward` carries the delay of the newest data in this node and the
    /// missing packets.
    pub(crate) fn report_link(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        shard: ShardId,
        onward: Onward,
    ) {
        let Some(peer) = self.peer else { return };
        let epoch = self.epoch();
        self.arrivals.report(io, shard, peer, epoch, onward, self.reporter.numbers());
    }

    /// Hop index of arriving packets: the number of links before the incoming one.
    pub(crate) fn hop_index(&self) -> u8 {
        self.newest.map_or(0, |(header, _)| header.hop_index)
    }

    /// Whether a packet arrived within [`HEARD_NANOS`].
    pub(crate) fn is_heard(&self, now: Nanos) -> bool {
        self.newest.is_some_and(|(_, at)| at.saturating_add(HEARD_NANOS) > now)
    }

    /// Arrival time of the newest packet.
    pub(crate) fn heard_at(&self) -> Option<Nanos> {
        self.newest.map(|(_, at)| at)
    }

    /// Epoch of the newest packet.
    pub(crate) fn epoch(&self) -> u8 {
        self.newest.map_or(0, |(header, _)| header.epoch)
    }
}

/// All upstreams; a source has one that never sends.
#[derive(Debug)]
pub(crate) struct Upstreams {
    all: Vec<Upstream>,
    /// The upstream of the newest packet; requests go there.
    present: usize,
    /// Distribution of received packets over the upstreams.
    shares: Shares,
}

impl Upstreams {
    pub(crate) fn new(shard: ShardId, params: &FlowParams, combiner: &mut Combiner) -> Self {
        let mut upstreams = Self { all: Vec::new(), present: 0, shares: Shares::default() };
        upstreams.update(shard, params, combiner);
        upstreams
    }

    /// Replaces the list; the state of an upstream that remains is kept.
    pub(crate) fn update(&mut self, shard: ShardId, params: &FlowParams, combiner: &mut Combiner) {
        let mut before = std::mem::take(&mut self.all);
        for peer in params.upstreams() {
            let known = before.iter().position(|upstream| upstream.peer == Some(peer));
            let new = || Upstream::new(shard, Some(peer), combiner);
            let mut upstream = known.map_or_else(new, |place| before.swap_remove(place));
            upstream.place = self.all.len();
            self.all.push(upstream);
        }
        if self.all.is_empty() {
            self.all.push(Upstream::new(shard, None, combiner));
        }
        (self.present, self.shares) = (0, Shares::default());
    }

    /// The upstream of the newest packet.
    pub(crate) fn present(&self) -> &Upstream {
        &self.all[self.present]
    }

    pub(crate) fn present_mut(&mut self) -> &mut Upstream {
        &mut self.all[self.present]
    }

    /// Number of upstreams.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Index of the current upstream.
    pub(crate) fn place(&self) -> usize {
        self.present
    }

    /// Makes the upstream at `place` current.
    pub(crate) fn choose(&mut self, place: usize) {
        self.present = place;
    }

    /// Makes `peer` current. Returns false if it is not an upstream.
    pub(crate) fn choose_peer(&mut self, peer: PeerId) -> bool {
        let place = self.all.iter().position(|upstream| upstream.peer == Some(peer));
        self.present = place.unwrap_or(self.present);
        place.into_iter().for_each(|place| self.shares.note(place));
        place.is_some()
    }

    /// Whether the current upstream is in quarantine and to be ignored: another one is active, or
    /// still has time to take over.
    #[inline]
    pub(crate) fn is_shut_out(&self, now: Nanos) -> bool {
        let quarantine = self.present().quarantine;
        quarantine.is_on(now) && {
            let begun = quarantine.has_begun_since(now.saturating_sub(HEARD_NANOS));
            let others = self.all.iter().filter(|other| other.place != self.present);
            let mut others = others.filter(|other| !other.quarantine.is_on(now));
            others.any(|other| begun || other.is_heard(now))
        }
    }

    /// When a report to any of them is due.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.all.iter().fold(None, |due, upstream| {
            earlier(due, earlier(upstream.reporter.due(), upstream.link_report_due()))
        })
    }

    /// Loss estimates of the incoming links.
    pub(crate) fn losses(&self) -> impl Iterator<Item = HopLoss> {
        self.all.iter().filter_map(|upstream| upstream.loss.estimate())
    }

    /// The state of each upstream.
    pub(crate) fn report(&self) -> Vec<UpstreamLink> {
        let link = |upstream: &Upstream| {
            let (loss, heard_at) = (upstream.loss.estimate(), upstream.heard_at());
            let share = self.shares.of(upstream.place);
            upstream.peer.map(|peer| UpstreamLink { peer, loss, heard_at, share })
        };
        self.all.iter().filter_map(link).collect()
    }
}
