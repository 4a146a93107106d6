//! Addresses of this host's interfaces from which Linux sends by itself.

use crate::facts::{self, FactsError};
use crate::netlink::all;
use rtnetlink::packet_route::address::{AddressHeaderFlags, AddressMessage};
use rtnetlink::{Error, Handle};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Interfaces by name, each with its addresses and the lengths of their prefixes.
pub type OwnAddresses = BTreeMap<String, Vec<(IpAddr, u8)>>;

/// What Linux does not send from unless it is told to: the second address of an IPv4 subnet, a
/// temporary IPv6 address (the same bit), one that is about to go, one that another host has.
const PASSED_OVER: AddressHeaderFlags = AddressHeaderFlags::Secondary
    .union(AddressHeaderFlags::Deprecated)
    .union(AddressHeaderFlags::Dadfailed);

/// Every interface in the network namespace of the calling thread, and its addresses but for those
/// that Linux passes over when it chooses one to send from.
///
/// # Errors
///
/// Linux does not answer questions about its interfaces.
pub fn own_addresses() -> Result<OwnAddresses, FactsError> {
    facts::with_handle(async |handle| look(&handle).await)
}

async fn look(handle: &Handle) -> Result<OwnAddresses, Error> {
    let links = all(handle.link().get().execute(), usize::MAX).await?;
    let faces = links.iter().filter_map(facts::face);
    let names: BTreeMap<u32, String> = faces.map(|face| (face.index, face.name)).collect();
    let messages = all(handle.address().get().execute(), usize::MAX).await?;
    let mut found: OwnAddresses = names.values().map(|name| (name.clone(), Vec::new())).collect();
    for message in messages.iter().filter(|message| is_sent_from(message)) {
        let Some(own) = facts::address(message) else { continue };
        if let Some(addresses) = names.get(&own.index).and_then(|name| found.get_mut(name)) {
            addresses.push((own.address, own.prefix));
        }
    }
    Ok(found)
}

fn is_sent_from(message: &AddressMessage) -> bool {
    !message.header.flags.intersects(PASSED_OVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interface_is_listed_and_a_second_address_of_a_subnet_is_passed_over() {
        assert!(own_addresses().expect("netlink").contains_key("lo"), "each namespace has one");
        let mut message = AddressMessage::default();
        assert!(is_sent_from(&message));
        message.header.flags = AddressHeaderFlags::Permanent;
        assert!(is_sent_from(&message));
        message.header.flags |= AddressHeaderFlags::Secondary;
        assert!(!is_sent_from(&message));
    }
}
