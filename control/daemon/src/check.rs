//! Requirements of a configuration on its host, for `recoded_host`.

use crate::config::{self, Backend, Config, budget};
use crate::keys::Keys;
use crate::node;
use crate::split;
use recoded_host::{Exit, Finding, HostPlan, Level, Link, Network, Sockets};
use recoded_runtime::topology::Topology;
use recoded_runtime::{
    HAS_AF_XDP, Interface, NO_AF_XDP, NO_AF_XDP_CURE, UDP_SOCKET_BYTES, ip_packet_bytes_max,
    why_udp, worker_memory_bytes,
};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;

/// Derives the requirements of `config`. If a daemon answers on its control socket, the existing
/// tunnels and XDP programs are its own.
pub fn plan(config: &Config) -> HostPlan {
    let daemon = &config.daemon;
    let topology = node::topology(config, Keys::none(config));
    let links = config.links.iter().enumerate().map(|(index, link)| Link {
        name: link.name.clone(),
        interface: link.interface.clone(),
        local: Some(link.local).filter(|local| !local.is_unspecified()),
        neighbours: config
            .hops
            .iter()
            .filter(|hop| hop.link == index)
            .map(|hop| hop.address)
            .collect(),
        sockets: sockets(link, index, &topology),
    });
    let networks = config.tunnels.iter().flat_map(|tunnel| {
        let of = |(address, prefix): &(IpAddr, u8)| Network {
            tunnel: tunnel.name.clone(),
            address: *address,
            prefix: *prefix,
        };
        tunnel.addresses.iter().map(of)
    });
    let processes = if daemon.standby { 2 } else { 1 };
    let link_count = config.links.len();
    let frames_bytes = worker_memory_bytes(daemon.frames, config.frame_size, link_count);
    let worker_bytes = processes * frames_bytes;
    HostPlan {
        links: links.collect(),
        tunnels: config.tunnels.iter().map(|tunnel| tunnel.name.clone()).collect(),
        networks: networks.collect(),
        exits: exits(config),
        port: Some(daemon.port),
        locked_bytes: u64::try_from(worker_bytes.saturating_mul(daemon.workers)).unwrap_or(0),
        socket_bytes: u64::try_from(UDP_SOCKET_BYTES).ok(),
        packet_bytes_max: u32::try_from(ip_packet_bytes_max(config.frame_size)).ok(),
        is_running: UnixStream::connect(&daemon.socket).is_ok(),
    }
}

/// Tunnels whose other ends send to any destination by this host.
pub fn exits(config: &Config) -> Vec<Exit> {
    let tunnels = config.tunnels.iter().filter(|tunnel| tunnel.exit != [false; 2]);
    tunnels.map(|it| Exit { tunnel: it.name.clone(), families: it.exit }).collect()
}

/// A finding for each link that requires AF_XDP sockets, if this build has none.
pub fn not_built(config: &Config) -> Vec<Finding> {
    let links = config.links.iter().filter(|link| !HAS_AF_XDP && link.backend == Backend::Xdp);
    let found = links.map(|link| Finding {
        level: Level::Error,
        subject: format!("link {}", link.name),
        cause: NO_AF_XDP.to_owned(),
        cure: NO_AF_XDP_CURE.to_owned(),
        mend: Vec::new(),
    });
    found.collect()
}

/// A finding if the streams of all flows do not fit `memory` even with the smallest windows: those
/// that open last are refused.
pub fn short_memory(config: &Config) -> Option<Finding> {
    let needed = budget::needed_beyond_memory(config.base(), &config.flows)?;
    let [memory, needed] = [config.daemon.memory, needed].map(budget::shown);
    Some(Finding {
        level: Level::Warning,
        subject: "memory".to_owned(),
        cause: format!(
            "the streams of this configuration take up to {needed}, and memory is {memory}: those \
             that begin last may be refused"
        ),
        cure: format!("write memory under [daemon]: at least {needed}, if the box has it"),
        mend: Vec::new(),
    })
}

/// Findings if TCP connections are to be split, and a program for it is not installed.
pub fn split_programs(config: &Config) -> Vec<Finding> {
    let Some(tunnel) = config.tunnels.iter().find(|tunnel| tunnel.tcp_split.is_some()) else {
        return Vec::new();
    };
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_in_path =
        |program: &str| std::env::split_paths(&folders).any(|it| it.join(program).is_file());
    let missing = [
        (!is_in_path("nft"), "nft", "install it (package nftables)"),
        (!is_in_path("ip"), "ip", "install it (package iproute2)"),
        (split::program().is_err(), "recoded-split", "install it in the folder of recoded"),
    ];
    let missing = missing.into_iter().filter(|(is_missing, ..)| *is_missing);
    let finding = |(_, program, cure): (bool, &str, &str)| Finding {
        level: Level::Error,
        subject: format!("tunnel {}", tunnel.name),
        cause: format!("tcp_split needs the program {program}, which is not there"),
        cure: format!("{cure}, or take tcp_split away"),
        mend: Vec::new(),
    };
    missing.map(finding).collect()
}

/// Whether a link may get AF_XDP sockets, as far as is known before the daemon starts.
pub fn may_use_xdp(config: &Config) -> bool {
    let topology = node::topology(config, Keys::none(config));
    let mut links = config.links.iter().enumerate();
    links.any(|(index, link)| sockets(link, index, &topology) != Sockets::Udp)
}

/// The kind of socket that carries a link's packets, as far as is known before the daemon starts.
fn sockets(link: &config::Link, index: usize, topology: &Topology) -> Sockets {
    match link.backend {
        Backend::Xdp => Sockets::Xdp,
        Backend::Udp => Sockets::Udp,
        Backend::Auto if !HAS_AF_XDP => Sockets::Udp,
        Backend::Auto => match Interface::query(&link.interface) {
            Ok(interface) if why_udp(topology, index, &interface).is_some() => Sockets::Udp,
            _ => Sockets::Either,
        },
    }
}

#[cfg(test)]
mod tests {
    /// `--check` and links name the same version.
    #[test]
    fn oldest_linux_with_af_xdp_is_one() {
        assert_eq!(recoded_host::LINUX_MIN_XDP, recoded_runtime::LINUX_MIN_XDP);
    }

    /// Interfaces are found without the routes that the runtime adds.
    #[test]
    fn table_of_default_routes_into_tunnels_is_one() {
        assert_eq!(recoded_host::EXIT_TABLE, recoded_runtime::EXIT_TABLE);
    }
}
