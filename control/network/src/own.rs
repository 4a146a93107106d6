//! A box in its network: the interfaces that it finds on its host.

use crate::boxes;
use crate::model::{End, Network, NodeAddress};
use std::collections::{BTreeMap, BTreeSet};

/// A way from this host to a neighbour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The interface.
    pub interface: String,
    /// Whether the interface has the address that the file gives for this host.
    pub has_address: bool,
}

/// The interfaces and routes of this host.
pub trait Ways {
    /// The interface that has the address `own`, otherwise that of the route to `neighbour`; none
    /// if there is no route. `written` is the interface in the file.
    fn find(
        &self,
        written: Option<&str>,
        own: &NodeAddress,
        neighbour: &NodeAddress,
    ) -> Option<Found>;
}

impl Network {
    /// Completes the ends of `node`, which runs on this host. An interface that is not found keeps
    /// a name that no interface has.
    pub fn find_interfaces(&mut self, node: usize, ways: &dyn Ways) {
        if !self.is_shared() {
            return;
        }
        let tunnels = boxes::of(self, node).tunnels;
        let tunnels: BTreeSet<String> = tunnels.into_iter().map(|tunnel| tunnel.name).collect();
        for link in &mut self.links {
            let [one, other] = &mut link.ends;
            let (end, far) = match node {
                node if node == one.node => (one, &*other),
                node if node == other.node => (other, &*one),
                _ => continue,
            };
            let written = (!end.is_found).then_some(end.interface.as_str());
            let found = ways.find(written, &end.place, &far.place);
            // A route that leads into the own tunnel is for its users.
            if let Some(found) = found.filter(|found| !tunnels.contains(&found.interface)) {
                end.is_translated = !found.has_address;
                if end.is_found {
                    end.interface = found.interface;
                }
            }
        }
        // A link of the daemon sends from one address, or from those that Linux chooses.
        let mut places: BTreeMap<String, Vec<NodeAddress>> = BTreeMap::new();
        for end in self.ends_of(node) {
            let known = places.entry(end.interface.clone()).or_default();
            if !known.contains(&end.place) {
                known.push(end.place.clone());
            }
        }
        for end in self.ends_of(node) {
            end.is_translated |= places.get(&end.interface).is_some_and(|known| known.len() > 1);
        }
    }

    fn ends_of(&mut self, node: usize) -> impl Iterator<Item = &mut End> {
        let ends = self.links.iter_mut().flat_map(|link| &mut link.ends);
        ends.filter(move |end| end.node == node)
    }
}
