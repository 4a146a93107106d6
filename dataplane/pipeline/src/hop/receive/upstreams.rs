//! The neighbours that a shard is received from: one, or several where paths merge.

use crate::base::time::earlier;
use crate::config::params::{FlowParams, Nanos, PeerId, ShardId};
use crate::config::report::{HopLoss, UpstreamLink};
use crate::env::combine::Combiner;
use crate::hop::receive::shares::Shares;
use crate::hop::receive::{HEARD_NANOS, Upstream};

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
