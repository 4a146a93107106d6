//! Capabilities of this process.

use rustix::thread::{CapabilitySet, capabilities};

/// Needed to create tunnels.
pub(crate) const TUNNEL_CAPABILITY: &str = "CAP_NET_ADMIN";

/// Capabilities that AF_XDP needs and this process lacks; none if Linux does not report them.
pub(crate) fn missing_capabilities() -> Vec<&'static str> {
    let Ok(sets) = capabilities(None) else { return Vec::new() };
    let needed = [
        (TUNNEL_CAPABILITY, CapabilitySet::NET_ADMIN),
        ("CAP_NET_RAW", CapabilitySet::NET_RAW),
        ("CAP_BPF", CapabilitySet::BPF | CapabilitySet::SYS_ADMIN),
        ("CAP_PERFMON", CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN),
    ];
    let missing = needed.into_iter().filter(|(_, any)| !sets.effective.intersects(*any));
    missing.map(|(name, _)| name).collect()
}
