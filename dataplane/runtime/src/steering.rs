//! The XDP side of the flows: the flows that the program of each interface accepts.

use crate::attach::Attachment;
use crate::error::SnapshotError;
use crate::other_versions::OtherVersions;
use crate::report::Verdicts;
use recoded_pipeline::params::Snapshot;
use recoded_wire::steer::Verdict;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The programs, by link, and the flows that they accept.
pub(crate) struct Steering {
    pub(crate) attachments: Vec<Attachment>,
    flows: BTreeSet<u32>,
    /// Counters of programs whose interfaces are gone.
    ended: Verdicts,
}

impl Steering {
    pub(crate) fn new(attachments: Vec<Attachment>) -> Steering {
        Steering { attachments, flows: BTreeSet::new(), ended: Verdicts::default() }
    }

    /// Refuses flows that are not in `snapshot`.
    pub(crate) fn refuse_others(&mut self, snapshot: &Snapshot) -> Result<(), SnapshotError> {
        let wanted: BTreeSet<u32> = snapshot.flows.iter().map(|flow| flow.id).collect();
        let gone: Vec<u32> = self.flows.difference(&wanted).copied().collect();
        gone.into_iter().try_for_each(|flow| self.set_flow(flow, false))
    }

    /// Accepts the flows of `snapshot`.
    pub(crate) fn accept(&mut self, snapshot: &Snapshot) -> Result<(), SnapshotError> {
        let ids = snapshot.flows.iter().map(|flow| flow.id);
        let new: Vec<u32> = ids.filter(|id| !self.flows.contains(id)).collect();
        new.into_iter().try_for_each(|flow| self.set_flow(flow, true))
    }

    fn set_flow(&mut self, flow: u32, accept: bool) -> Result<(), SnapshotError> {
        for attachment in &mut self.attachments {
            attachment.set_flow(flow, accept).map_err(|error| SnapshotError::FlowTable {
                interface: attachment.interface().to_owned(),
                reason: error.to_string(),
            })?;
        }
        if accept {
            self.flows.insert(flow);
        } else {
            self.flows.remove(&flow);
        }
        Ok(())
    }

    /// Replaces the program of an interface that returned, and continues its counters.
    pub(crate) fn replace(&mut self, link: usize, attachment: Attachment) {
        let old = std::mem::replace(&mut self.attachments[link], attachment);
        if let Err(error) = old.add_verdicts(&mut self.ended) {
            tracing::warn!(%error, interface = old.interface(), "its verdicts are lost");
        }
    }

    /// Accepts the current flows on every interface again.
    pub(crate) fn accept_again(&mut self) -> Result<(), SnapshotError> {
        let flows: Vec<u32> = self.flows.iter().copied().collect();
        flows.into_iter().try_for_each(|flow| self.set_flow(flow, true))
    }

    /// Removes the sockets from the maps, so that no more packets arrive at them.
    pub(crate) fn release_sockets(&mut self) {
        self.attachments.iter_mut().for_each(Attachment::unset_sockets);
    }

    pub(crate) fn verdicts(&self) -> Vec<(&'static str, u64)> {
        let mut sum = self.ended;
        for attachment in &self.attachments {
            if let Err(error) = attachment.add_verdicts(&mut sum) {
                tracing::warn!(%error, interface = attachment.interface(), "no verdicts");
            }
        }
        Verdict::ALL.into_iter().map(Verdict::name).zip(sum).collect()
    }

    /// The addresses that the program of a link refused last.
    pub(crate) fn not_neighbours(&self, link: usize) -> Vec<IpAddr> {
        self.attachments[link].not_neighbours().unwrap_or_default()
    }

    /// The neighbours on a link that send packets of another version.
    pub(crate) fn other_versions(&self, link: usize) -> OtherVersions {
        self.attachments[link].other_versions().unwrap_or_default()
    }
}
