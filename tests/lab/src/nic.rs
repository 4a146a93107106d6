//! The network interface cards of machines, and their names in QEMU.

use serde_json::{Value, json};

/// A network interface card that QEMU emulates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nic {
    /// Intel 82576: several queues, RSS, zero copy.
    Igb,
    /// virtio-net as most hosts configure it.
    Virtio,
    /// virtio-net behind an IOMMU, which zero copy needs.
    VirtioIommu,
    /// VMware's.
    Vmxnet3,
    /// Intel 82574: the driver has no XDP.
    E1000e,
}

impl Nic {
    /// QEMU's name for the device, and its properties.
    fn device(self) -> Value {
        match self {
            Nic::Igb => json!({ "driver": "igb" }),
            Nic::Virtio => json!({ "driver": "virtio-net-pci", "disable-legacy": "on" }),
            Nic::VirtioIommu => json!({
                "driver": "virtio-net-pci", "disable-legacy": "on", "iommu_platform": true,
            }),
            Nic::Vmxnet3 => json!({ "driver": "vmxnet3" }),
            Nic::E1000e => json!({ "driver": "e1000e" }),
        }
    }

    /// Name of the driver's module.
    pub fn driver(self) -> &'static str {
        match self {
            Nic::Igb => "igb",
            Nic::Virtio | Nic::VirtioIommu => "virtio_net",
            Nic::Vmxnet3 => "vmxnet3",
            Nic::E1000e => "e1000e",
        }
    }

    /// The device at one end of a pair with this number, as QEMU's `-device` and the command
    /// `device_add` have it.
    pub fn plug(self, pair: usize, end: usize) -> Value {
        let mut device = self.device();
        device["id"] = card(pair, end).into();
        device["bus"] = port(pair, end).into();
        device["mac"] = mac(pair, end).into();
        device["netdev"] = netdev(pair, end).into();
        device["romfile"] = "".into();
        device
    }
}

/// QEMU's name for the card at one end of a pair.
pub fn card(pair: usize, end: usize) -> String {
    format!("{}-device", netdev(pair, end))
}

/// QEMU's name for the port of a hub at one end of a pair.
pub fn netdev(pair: usize, end: usize) -> String {
    format!("nic{pair}{}", ["a", "b"][end])
}

/// QEMU's name for the slot of a card.
pub fn port(pair: usize, end: usize) -> String {
    format!("port{}", 2 * pair + end + 1)
}

/// The MAC address of interface 0 or 1 of the pair with this number.
pub fn mac(pair: usize, end: usize) -> String {
    format!("52:54:00:00:{:02x}:{:02x}", pair + 1, end + 1)
}
