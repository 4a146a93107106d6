//! `[daemon]`, `[[link]]` and `[[tunnel]]`: fixed for the life of the process.

use super::budget;
use super::document::Section;
use super::error::ConfigError;
use super::reader::{Reader, shown, unicast};
use super::refuse_duplicates;
use super::routes;
use super::small::Defaults;
use super::{Backend, Daemon, EngineChoice, Idle, Link, Sandbox, Tunnel, XdpMode};
use recoded_api::keys;
use recoded_fpga::CARD_RULE;
use recoded_runtime::{Address, FrameSize, TUNNEL_ADDRESSES_MAX, tunnel_mtu_min};
use recoded_wire::DEFAULT_PORT;
use recoded_wire::steer::XSKS_MAX;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Words of `idle`.
pub const IDLE: [(&str, Idle); 3] =
    [("busy", Idle::Busy), ("adaptive", Idle::Adaptive), ("interrupt", Idle::Interrupt)];

/// Words of `exit`: IPv4, IPv6.
pub const EXITS: [(&str, [bool; 2]); 3] =
    [("ipv4", [true, false]), ("ipv6", [false, true]), ("both", [true, true])];

/// Words of `xdp_mode`.
pub const XDP_MODES: [(&str, XdpMode); 4] = [
    ("auto", XdpMode::Auto),
    ("zero-copy", XdpMode::ZeroCopy),
    ("native", XdpMode::Native),
    ("generic", XdpMode::Generic),
];

/// Words of `backend`.
pub const BACKENDS: [(&str, Backend); 3] =
    [("auto", Backend::Auto), ("xdp", Backend::Xdp), ("udp", Backend::Udp)];

/// Words of `sandbox`.
pub const SANDBOX: [(&str, Sandbox); 2] = [("on", Sandbox::On), ("off", Sandbox::Off)];

/// Rule of `engine`.
pub const ENGINE_RULE: &str = "it is \"auto\", \"cpu\", \"cuda\" or \"fpga\"";

/// Rule of `user`.
const USER_RULE: &str =
    "it is the name or number of a user, of 1 to 32 letters, digits, -, _ and .";

/// Longest user name in Linux.
const USER_BYTES_MAX: usize = 32;

/// Rule of `metrics`.
const METRICS_RULE: &str = "it is an IP address and a port, such as 127.0.0.1:9427 or [::1]:9427";

/// MTU of a tunnel that has no source flow.
pub const TUNNEL_MTU_DEFAULT: u16 = 1400;

/// Longest path of a Unix socket.
const SOCKET_BYTES_MAX: usize = 107;
/// Fewest frames that let a worker fill its rings and hold a few generations.
const FRAMES_MIN: u64 = 1024;
/// Most frames of a worker: 2 GiB.
const FRAMES_MAX: u64 = 1 << 20;
/// Largest number of cores Linux is built for on servers.
const CORES_MAX: usize = 8192;
/// Largest MTU of a tunnel.
const TUNNEL_MTU_MAX: u64 = 9216;

/// Default number of frames of a worker: about 32 MiB of any size.
fn frames_of(size: FrameSize) -> u32 {
    match size {
        FrameSize::SMALL => 16_384,
        FrameSize::PAGE => 8192,
        _ => 4096,
    }
}

/// Reads `[daemon]`.
pub fn daemon(section: &Section, frame_size: FrameSize, errors: &mut Vec<ConfigError>) -> Daemon {
    let defaults = Defaults::here();
    let mut reader = Reader::new(section, 0, errors);
    reader.known(&keys::DAEMON);
    let socket = reader.text("socket", "an absolute path of at most 107 bytes", |text| {
        let fits = text.starts_with('/') && text.len() <= SOCKET_BYTES_MAX;
        (fits && !text.contains('\0')).then(|| PathBuf::from(text))
    });
    let (private_key, auth) = super::auth::daemon(&mut reader);
    let queues = u64::from(XSKS_MAX);
    let workers = reader.integer("workers", 1..=queues, "there are 1 to 64");
    let workers = usize::try_from(workers.unwrap_or(1)).unwrap_or(1);
    let frames =
        reader.integer("frames", FRAMES_MIN..=FRAMES_MAX, "a worker has 1024 to 1048576 frames");
    let port = reader.integer("port", 1..=65535, "UDP ports are 1 to 65535");
    Daemon {
        socket: socket.unwrap_or_else(|| PathBuf::from(recoded_api::SOCKET_DEFAULT)),
        workers,
        cores: cores(&mut reader, workers),
        idle: reader
            .choice("idle", &IDLE, "it is \"busy\", \"adaptive\" or \"interrupt\"")
            .unwrap_or(Idle::Adaptive),
        frames: frames
            .and_then(|frames| u32::try_from(frames).ok())
            .unwrap_or(frames_of(frame_size) / defaults.frames_part),
        port: port.and_then(|port| u16::try_from(port).ok()).unwrap_or(DEFAULT_PORT),
        xdp_mode: reader
            .choice(
                "xdp_mode",
                &XDP_MODES,
                "it is \"auto\", \"zero-copy\", \"native\" or \"generic\"",
            )
            .unwrap_or(XdpMode::Auto),
        generations: reader
            .integer("generations", 2..=4096, "a flow holds 2 to 4096 generations")
            .and_then(|generations| usize::try_from(generations).ok())
            .unwrap_or(256),
        memory: budget::read(&mut reader).unwrap_or(defaults.memory),
        engine: reader.choice("engine", &EngineChoice::NAMES, ENGINE_RULE).unwrap_or_default(),
        fpga: reader.text("fpga", CARD_RULE, |text| text.parse().ok()),
        metrics: reader.text("metrics", METRICS_RULE, metrics),
        private_key,
        auth,
        standby: reader.truth("standby").unwrap_or(defaults.standby),
        sandbox: reader
            .choice("sandbox", &SANDBOX, "it is \"on\" or \"off\"")
            .unwrap_or(Sandbox::On),
        user: reader.text("user", USER_RULE, user),
    }
}

fn user(text: &str) -> Option<String> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = (1..=USER_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_of_name);
    is_name.then(|| text.to_owned())
}

fn metrics(text: &str) -> Option<SocketAddr> {
    text.parse().ok().filter(|address: &SocketAddr| address.port() > 0)
}

fn cores(reader: &mut Reader<'_>, workers: usize) -> Option<Vec<usize>> {
    let value = reader.value("cores")?;
    let rule = "it lists the core of each worker, as many as `workers`, each once";
    let Some(items) = value.as_array() else {
        reader.refuse("cores", "is not a list", rule);
        return None;
    };
    let mut cores = Vec::new();
    for item in items {
        let core = item.as_integer().and_then(|core| usize::try_from(core).ok());
        match core {
            Some(core) if core < CORES_MAX && !cores.contains(&core) => cores.push(core),
            _ => {
                reader.refuse("cores", "is not allowed", rule);
                return None;
            }
        }
    }
    if cores.len() != workers {
        reader.refuse("cores", "is too long or too short", rule);
        return None;
    }
    Some(cores)
}

/// Reads every `[[link]]`. An invalid link still gets an entry if it has a name, so that flows that
/// refer to it are not blamed.
pub fn links(sections: &[Section], errors: &mut Vec<ConfigError>) -> Vec<Link> {
    let mut links = Vec::new();
    for (index, section) in sections.iter().enumerate() {
        let mut reader = Reader::new(section, index, errors);
        reader.known(&keys::LINK);
        let rule = "a name has 1 to 32 letters, digits, - and _";
        let name = reader.text("name", rule, link_name);
        let name = reader.require("name", name, rule);
        let rule = "it is the interface's name as `ip link` shows it";
        let interface = reader.text("interface", rule, interface_name);
        let interface = reader.require("interface", interface, rule);
        let rule = "it is this host's IP address on the link, or 0.0.0.0 or :: for any";
        let local = reader.text("local", rule, own_address);
        let local = reader.require("local", local, rule);
        let is_local_written = section.get("local").is_some_and(|entry| entry.line.is_some());
        let backend = reader.choice("backend", &BACKENDS, "it is \"auto\", \"xdp\" or \"udp\"");
        let is_any = is_local_written && local.is_some_and(|local| local.is_unspecified());
        if backend == Some(Backend::Xdp) && is_any {
            let rule =
                "AF_XDP needs this host's IP address on the link; backend = \"udp\" does not";
            reader.refuse("local", "does not apply", rule);
        }
        let rate_mbit = reader.mbit("rate_mbit", 0.001..=1e6);
        let Some(name) = name else { continue };
        links.push(Link {
            name,
            interface: interface.unwrap_or_default(),
            local: local.unwrap_or(IpAddr::from([0, 0, 0, 0])),
            is_local_written,
            backend: backend.unwrap_or_default(),
            rate_mbit,
        });
    }
    refuse_duplicates(sections, "name", "each link has a name of its own", errors);
    refuse_duplicates(
        sections,
        "interface",
        "an interface belongs to one link; several neighbours can share that link",
        errors,
    );
    links
}

/// Reads every `[[tunnel]]`, and reports whether its MTU was written.
pub fn tunnels(
    sections: &[Section],
    links: &[Link],
    errors: &mut Vec<ConfigError>,
) -> Vec<(Tunnel, bool)> {
    let mut tunnels = Vec::new();
    for (index, section) in sections.iter().enumerate() {
        let mut reader = Reader::new(section, index, errors);
        reader.known(&keys::TUNNEL);
        let rule = "it is the TUN interface to create: 1 to 15 bytes, no space, no slash";
        let name = reader.text("name", rule, interface_name);
        let name = reader.require("name", name, rule);
        let addresses = addresses(&mut reader).unwrap_or_default();
        let least = tunnel_mtu_min(&addresses);
        let rule = format!("a tunnel's MTU is {least} to {TUNNEL_MTU_MAX}");
        let mtu = reader.integer("mtu", u64::from(least)..=TUNNEL_MTU_MAX, &rule);
        let routes = routes::read(&mut reader, &addresses).unwrap_or_default();
        let rule = "it is \"ipv4\", \"ipv6\" or \"both\"";
        let exit = reader.choice("exit", &EXITS, rule).unwrap_or_default();
        let kill_switch = reader.truth("kill_switch").unwrap_or(false);
        let tcp_split = tcp_split(&mut reader, &addresses);
        if links.iter().any(|link| Some(&link.interface) == name.as_ref()) {
            let rule =
                "a link uses the interface of this name; a tunnel is an interface of its own";
            reader.refuse("name", "is taken", rule);
        }
        let Some(name) = name else { continue };
        let given = mtu.and_then(|mtu| u16::try_from(mtu).ok());
        let mtu = given.unwrap_or(TUNNEL_MTU_DEFAULT);
        let tunnel = Tunnel { name, addresses, routes, exit, mtu, kill_switch, tcp_split };
        tunnels.push((tunnel, given.is_some()));
    }
    refuse_duplicates(sections, "name", "each tunnel is an interface of its own", errors);
    tunnels
}

/// Reads `tcp_split` of a tunnel with these addresses.
fn tcp_split(reader: &mut Reader<'_>, addresses: &[Address]) -> Option<IpAddr> {
    let rule = "it is the address of the other end in the tunnel, such as \"10.99.0.2\"";
    let peer = reader.text("tcp_split", rule, unicast)?;
    if addresses.iter().any(|(own, _)| *own == peer) {
        reader.refuse("tcp_split", "is this end's own address", rule);
    } else if !addresses.is_empty()
        && addresses.iter().all(|(own, _)| own.is_ipv4() != peer.is_ipv4())
    {
        let rule = "the tunnel has an address of the same family, IPv4 or IPv6, at both ends";
        reader.refuse("tcp_split", "does not fit the tunnel", rule);
    } else {
        return Some(peer);
    }
    None
}

/// Reads `address` of a tunnel: one, or a list.
fn addresses(reader: &mut Reader<'_>) -> Option<Vec<Address>> {
    let rule =
        "it is an IP address with a prefix length, such as 10.99.0.1/24, or a list of 1 to 8";
    let value = reader.value("address");
    let value = reader.require("address", value, rule)?;
    let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    if !(1..=TUNNEL_ADDRESSES_MAX).contains(&items.len()) {
        reader.refuse("address", "is too short or too long", rule);
        return None;
    }
    let mut addresses: Vec<Address> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let part = match value.is_array() {
            true => format!("address[{index}]"),
            false => "address".to_owned(),
        };
        let (verdict, rule) = match item.as_str() {
            None => ("is not a text in quotes", rule),
            Some(text) => match network(text) {
                None => ("is not allowed", rule),
                Some((address, _)) if addresses.iter().any(|(known, _)| *known == address) => {
                    ("is a repetition", "each address is listed once")
                }
                Some(address) => {
                    addresses.push(address);
                    continue;
                }
            },
        };
        reader.refuse_part("address", part, shown(item), verdict, rule);
        return None;
    }
    Some(addresses)
}

/// Parses one unicast address, or the unspecified one.
fn own_address(text: &str) -> Option<IpAddr> {
    let any = text.parse().ok().filter(IpAddr::is_unspecified);
    any.or_else(|| unicast(text))
}

fn link_name(text: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let fits = (1..=32).contains(&text.len()) && text.bytes().all(plain);
    fits.then(|| text.to_owned())
}

/// Accepts what Linux does (`dev_valid_name`), except characters that a shell would interpret.
fn interface_name(text: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':' && byte != b'%';
    let fits = (1..=15).contains(&text.len()) && text.bytes().all(plain);
    (fits && text != "." && text != "..").then(|| text.to_owned())
}

fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let address = unicast(address)?;
    let prefix: u8 = prefix.parse().ok()?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    (1..=longest).contains(&prefix).then_some((address, prefix))
}
