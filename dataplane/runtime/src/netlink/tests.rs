//! Reads Linux's description of an interface.

use super::*;

/// The Ethernet address of an interface with this type and address.
fn mac(kind: LinkLayerType, address: &[u8]) -> Option<Mac> {
    let mut message = LinkMessage::default();
    message.header.link_layer_type = kind;
    message.attributes = vec![LinkAttribute::Address(address.to_vec()), LinkAttribute::Mtu(9)];
    let found = read_interface(&message);
    assert_eq!(found.mtu, 9, "{kind:?}");
    found.mac
}

#[test]
fn only_ethernet_has_an_ethernet_address_and_all_have_the_rest() {
    let address = [2, 0, 0, 0, 0, 1];
    assert_eq!(mac(LinkLayerType::Ether, &address), Some(address));
    assert_eq!(mac(LinkLayerType::Loopback, &[0; 6]), Some([0; 6]));
    // GRE and SIT tunnels have the IPv4 address of their end, GRE over IPv6 its IPv6 address.
    assert_eq!(mac(LinkLayerType::Ipgre, &[10, 0, 0, 1]), None);
    assert_eq!(mac(LinkLayerType::Sit, &address), None);
    assert_eq!(mac(LinkLayerType::Infiniband, &[0; 20]), None);
    for kind in [LinkLayerType::Ppp, LinkLayerType::Rawip, LinkLayerType::None] {
        assert_eq!(mac(kind, &[]), None);
    }
}
