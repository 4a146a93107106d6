//! Chooses the backend of a link whose configuration leaves it open (`backend = "auto"`).
//!
//! AF_XDP sockets are the default. UDP sockets are chosen if Linux or its administrator permits no
//! AF_XDP, if packets of the interface have no Ethernet header (PPP, raw-IP modems, VPNs), or if
//! UDP sockets were measured faster. The last is the case where plain packets enter or leave and
//! the interface is virtual (veth, a bridge) or takes the program in generic mode only. There Linux
//! copies every AF_XDP packet, but carries UDP packets 64 KiB at a time (`bench edge`). Between
//! links, AF_XDP still relays more packets than UDP sockets (`bench relay`).

use crate::attach::Attachment;
use crate::bpf_link::LeftPrograms;
use crate::capabilities::missing_capabilities;
use crate::error::StartError;
use crate::netlink::{Interface, Netlink};
use crate::topology::{Backend, Topology};
use crate::xdp::Loaded;
use recoded_xsk::{HAS_AF_XDP, ModePreference, NO_AF_XDP, XdpMode};
use rustix::system::uname;

/// The oldest Linux with all XDP features that links with AF_XDP sockets use.
pub const LINUX_MIN_XDP: (u32, u32) = (5, 10);

/// A prepared backend of a link.
pub(crate) enum Prepared {
    /// AF_XDP sockets behind this program.
    Program(Loaded),
    /// UDP sockets, and why.
    Sockets {
        /// Interface of the link.
        interface: String,
        /// Reason, for reports.
        reason: String,
    },
}

impl Prepared {
    /// Prepares everything that needs no change on the interface, which may have another program
    /// meanwhile.
    ///
    /// # Errors
    /// As [`attach`]; program errors only if the link requires AF_XDP.
    pub(crate) fn new(
        topology: &Topology,
        link: usize,
        netlink: &Netlink,
    ) -> Result<Prepared, StartError> {
        let config = &topology.links[link];
        let interface = config.interface.clone();
        match config.backend {
            Backend::Xdp => {
                if let Ok(found) = netlink.interface(&interface) {
                    refuse_kind(&interface, &found)?;
                }
                Loaded::new(topology, link, netlink).map(Prepared::Program)
            }
            Backend::Udp => Ok(Prepared::Sockets { interface, reason: CONFIGURED.to_owned() }),
            Backend::Auto => {
                let found = netlink.interface(&interface)?;
                if let Some(reason) = why_udp(topology, link, &found) {
                    return Ok(Prepared::Sockets { interface, reason });
                }
                match Loaded::new(topology, link, netlink) {
                    Ok(loaded) => Ok(Prepared::Program(loaded)),
                    Err(error) if error.is_absence() => Err(error),
                    Err(error) => Ok(Prepared::Sockets { interface, reason: not_had(&error) }),
                }
            }
        }
    }

    /// Attaches the program, if there is one, replacing the one in `left` where possible.
    ///
    /// # Errors
    /// As [`Prepared::new`].
    pub(crate) fn attach(
        self,
        topology: &Topology,
        link: usize,
        netlink: &Netlink,
        left: &mut LeftPrograms,
    ) -> Result<Attachment, StartError> {
        let loaded = match self {
            Prepared::Program(loaded) => loaded,
            Prepared::Sockets { interface, reason } => {
                return Ok(Attachment::none(&interface, reason));
            }
        };
        let interface = &topology.links[link].interface;
        let is_open = topology.links[link].backend == Backend::Auto;
        let attached = loaded.attach(topology.xdp_mode, netlink, left).map(Attachment::here);
        let attached = attached.and_then(|attachment| refuse_members(attachment, netlink));
        match attached {
            Ok(mut attachment)
                if is_open
                    && (is_slow(topology, &attachment)
                        || is_merged(topology, &attachment, netlink)) =>
            {
                let reason = format!("AF_XDP would be generic ({})", attachment.mode().1);
                attachment.detach();
                Ok(Attachment::none(interface, reason))
            }
            Err(error) if is_open && !error.is_absence() => {
                Ok(Attachment::none(interface, not_had(&error)))
            }
            outcome => outcome,
        }
    }
}

/// Loads the program for the packets of the neighbours on a link and attaches it: native if the
/// topology allows and the driver supports it, generic otherwise. The privileged process does so if
/// there is one.
///
/// # Errors
/// [`StartError::ForeignProgram`], [`StartError::NoNativeXdp`], [`StartError::NotPermitted`],
/// [`StartError::Program`], [`StartError::NoSuchInterface`], [`StartError::Privileged`].
pub(crate) fn attach(
    topology: &Topology,
    link: usize,
    netlink: &Netlink,
) -> Result<Attachment, StartError> {
    match netlink.privileged() {
        Some(privileged) if topology.links[link].backend != Backend::Udp => {
            Attachment::ask(&topology.links[link].interface, privileged)
        }
        _ => {
            let prepared = Prepared::new(topology, link, netlink)?;
            prepared.attach(topology, link, netlink, &mut LeftPrograms::default())
        }
    }
}

/// The topology with every open choice settled by the result for each link.
pub(crate) fn settled(topology: &Topology, attachments: &[Attachment]) -> Topology {
    let mut settled = topology.clone();
    for (link, attachment) in settled.links.iter_mut().zip(attachments) {
        if link.backend == Backend::Auto {
            link.backend = attachment.backend();
        }
    }
    settled
}

/// The reason why a link with `backend = "auto"` on this interface gets UDP sockets without trying
/// AF_XDP; `None` if AF_XDP is tried.
pub fn why_udp(topology: &Topology, link: usize, interface: &Interface) -> Option<String> {
    if !HAS_AF_XDP {
        return Some(NO_AF_XDP.to_owned());
    }
    if let Some(reason) = no_ethernet(interface).or_else(old_linux) {
        return Some(reason);
    }
    if topology.hops.iter().any(|hop| hop.link == link && hop.roams) {
        return Some("a neighbour roams, and AF_XDP pins addresses".to_owned());
    }
    if let Some(kind) = stacked(interface) {
        return Some(format!("it is {kind}, whose packets arrive on the queues of its members"));
    }
    if !topology.frame_size.suits_af_xdp() {
        let bytes = crate::ip_packet_bytes_max(recoded_xsk::FrameSize::PAGE);
        return Some(format!("flows of this node use an MTU above {bytes}, which AF_XDP cannot"));
    }
    let missing = missing_capabilities();
    if !missing.is_empty() {
        return Some(format!("AF_XDP needs {}", missing.join(", ")));
    }
    let kind = interface.kind.as_ref().filter(|_| is_edge(topology))?;
    Some(format!("sources and sinks are faster so on an interface of Linux's own ({kind})"))
}

/// The reason for UDP sockets on an old Linux, where this is one.
fn old_linux() -> Option<String> {
    let release = uname().release().to_string_lossy().into_owned();
    let (major, minor) = LINUX_MIN_XDP;
    let is_old = version(&release).is_some_and(|version| version < LINUX_MIN_XDP);
    is_old.then(|| format!("Linux {release} is older than {major}.{minor}, which AF_XDP needs"))
}

/// Major and minor number in a release such as "5.4.0-26-generic".
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|byte: char| !byte.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The reason for UDP sockets on an interface without Ethernet headers, if it is one.
pub(crate) fn no_ethernet(interface: &Interface) -> Option<String> {
    let kind = interface.kind.as_ref().map(|kind| format!(" ({kind})")).unwrap_or_default();
    let is_without = interface.mac.is_none();
    is_without.then(|| format!("its packets have no Ethernet header{kind}, which AF_XDP needs"))
}

/// Refuses kinds of interfaces whose links AF_XDP sockets cannot serve.
///
/// # Errors
/// [`StartError::NotEthernet`], [`StartError::Stacked`].
pub(crate) fn refuse_kind(name: &str, found: &Interface) -> Result<(), StartError> {
    let interface = name.to_owned();
    if found.mac.is_none() {
        return Err(StartError::NotEthernet { interface });
    }
    stacked(found).map_or(Ok(()), |kind| Err(StartError::Stacked { interface, kind }))
}

/// The kind of an interface, in words, if its native XDP program runs on its members: a bond. There
/// the program sees the queues of the members, and a socket of the bond gets nothing. On other
/// virtual interfaces, which have generic XDP only, the program runs on the interface itself.
fn stacked(interface: &Interface) -> Option<String> {
    (interface.kind.as_deref() == Some(BOND)).then(|| format!("a {BOND}"))
}

/// Refuses a native program on hardware that has members, as for a bond. A virtual card backed by
/// the function of a real one is an example.
fn refuse_members(attachment: Attachment, netlink: &Netlink) -> Result<Attachment, StartError> {
    if attachment.mode().0 != XdpMode::Native {
        return Ok(attachment);
    }
    let members = netlink.members(attachment.index())?;
    if members.is_empty() {
        return Ok(attachment);
    }
    let interface = attachment.interface().to_owned();
    let kind = format!("in front of {}", members.join(", "));
    Err(StartError::Stacked { interface, kind })
}

/// The reason for UDP sockets on a link with `backend = "udp"`.
pub(crate) const CONFIGURED: &str = "backend = \"udp\" is configured";

/// The kind of bonds in netlink.
const BOND: &str = "bond";

/// Whether plain packets enter or leave here, and nothing but the fastest mode is configured.
fn is_edge(topology: &Topology) -> bool {
    !topology.tunnels.is_empty() && topology.xdp_mode == ModePreference::Auto
}

fn is_slow(topology: &Topology, attachment: &Attachment) -> bool {
    is_edge(topology) && attachment.mode().0 == XdpMode::Generic
}

/// Whether a program in generic mode sees merged packets: between virtual interfaces, Linux passes
/// up to 64 KiB of packets as one, which no frame holds.
fn is_merged(topology: &Topology, attachment: &Attachment, netlink: &Netlink) -> bool {
    let is_own = || netlink.interface(attachment.interface()).is_ok_and(|it| it.kind.is_some());
    let is_open = topology.xdp_mode == ModePreference::Auto;
    is_open && attachment.mode().0 == XdpMode::Generic && is_own()
}

fn not_had(error: &StartError) -> String {
    format!("AF_XDP cannot be had: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_releases_as_distributions_write_them() {
        assert_eq!(version("5.4.0-26-generic"), Some((5, 4)));
        assert_eq!(version("6.12-rc1"), Some((6, 12)));
        assert_eq!(version("unknown"), None);
    }
    use crate::topology::tests::topology;

    #[test]
    fn bonds_have_udp_sockets_or_are_refused_in_words() {
        let ethernet = Interface { mac: Some([2; 6]), ..Interface::default() };
        let of_kind = |kind: &str| Interface { kind: Some(kind.into()), ..ethernet.clone() };
        for kind in ["veth", "vlan", "bridge", "macvlan", "team"] {
            assert_eq!(stacked(&of_kind(kind)), None, "{kind}");
        }
        assert_eq!(stacked(&Interface::default()), None, "hardware");
        let why = why_udp(&topology(), 0, &of_kind("bond")).unwrap();
        assert!(why.contains("a bond"), "{why}");
        let (interface, kind) = ("bond0".into(), stacked(&of_kind("bond")).unwrap());
        let said = StartError::Stacked { interface, kind }.to_string();
        for word in ["`bond0` is a bond", "backend = \"udp\"", "make a member its interface"] {
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn interfaces_without_an_ethernet_header_have_udp_sockets_or_are_refused_in_words() {
        let modem = Interface::default();
        let gre = Interface { kind: Some("gre".into()), ..Interface::default() };
        for (found, words) in [(&modem, "no Ethernet header, "), (&gre, "no Ethernet header (gre)")]
        {
            let why = why_udp(&topology(), 0, found).unwrap();
            assert!(why.contains(words), "{why}");
            let refused = refuse_kind("wan0", found).unwrap_err();
            assert!(matches!(refused, StartError::NotEthernet { .. }) && !refused.is_absence());
            for word in ["`wan0`", "no Ethernet header", "backend = \"udp\""] {
                assert!(refused.to_string().contains(word), "{refused}");
            }
        }
        let ethernet = Interface { mac: Some([2; 6]), ..gre };
        assert!(refuse_kind("wan0", &ethernet).is_ok() && no_ethernet(&ethernet).is_none());
    }
}
