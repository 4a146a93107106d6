//! Detects whether a daemon runs at each neighbour: if not, Linux responds to datagrams to its port
//! with an ICMP error.

use nix::sys::socket::{setsockopt, sockopt};
use recoded_host::{Finding, HostPlan, Level, Link, is_placeholder};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Pause between datagrams to one neighbour. Linux sends a destination six errors at once, then one
/// a second.
const PAUSE: Duration = Duration::from_millis(250);

/// Probes every neighbour for `time`; returns findings from the responses.
pub fn neighbours(plan: &HostPlan, port: u16, time: Duration) -> Vec<Finding> {
    let mut asked: Vec<Asked> = plan
        .links
        .iter()
        .flat_map(|link| {
            let known = link.neighbours.iter().filter(|it| !is_placeholder(**it));
            known.filter_map(|address| {
                Asked::new(link, link.local?, SocketAddr::new(*address, port))
            })
        })
        .collect();
    let end = Instant::now() + time;
    loop {
        asked.iter_mut().for_each(Asked::send);
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        std::thread::sleep(PAUSE.min(left));
        asked.iter_mut().for_each(Asked::hear);
    }
    asked.into_iter().filter_map(Asked::finding).collect()
}

struct Asked {
    link: String,
    to: SocketAddr,
    socket: UdpSocket,
    answer: Option<io::ErrorKind>,
}

impl Asked {
    /// `None` if no socket is available: then nothing is known.
    fn new(link: &Link, local: IpAddr, to: SocketAddr) -> Option<Asked> {
        let socket = bound(&link.interface, local).ok()?;
        let answer = socket.connect(to).err().map(|error| error.kind());
        Some(Asked { link: link.name.clone(), to, socket, answer })
    }

    fn send(&mut self) {
        if self.answer.is_none() {
            // Errors that the previous datagram caused are returned here.
            self.note(self.socket.send(&[]));
        }
    }

    fn hear(&mut self) {
        if self.answer.is_none() {
            self.note(self.socket.recv(&mut [0]));
        }
    }

    fn note(&mut self, outcome: io::Result<usize>) {
        match outcome.map_err(|error| error.kind()) {
            Err(io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) | Ok(_) => {}
            Err(kind) => self.answer = Some(kind),
        }
    }

    fn finding(self) -> Option<Finding> {
        let Asked { link, to, answer, .. } = self;
        let (cause, cure) = match answer? {
            io::ErrorKind::ConnectionRefused => (
                format!("{} answers \"port {} unreachable\"", to.ip(), to.port()),
                "recoded is not running there, or has another port: start it, and compare port"
                    .to_owned(),
            ),
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => (
                format!("{} cannot be reached", to.ip()),
                "check that it is up and on this link: on Ethernet it answers ARP or neighbour \
                 discovery, elsewhere a route leads to it (ip route get)"
                    .to_owned(),
            ),
            kind => (
                format!("Linux does not send to {} ({kind})", to.ip()),
                "look for a firewall rule (nft list ruleset) and for routes (ip route get)"
                    .to_owned(),
            ),
        };
        let (subject, mend) = (format!("link {link}"), Vec::new());
        Some(Finding { level: Level::Error, subject, cause, cure, mend })
    }
}

/// A socket that sends as the daemon does: through the interface of the link, regardless of other
/// routes, and with the routes of its VRF, where `local` may be the address of this host.
fn bound(interface: &str, local: IpAddr) -> io::Result<UdpSocket> {
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(family, SocketType::DGRAM, flags, None)?;
    setsockopt(&fd, sockopt::BindToDevice, &OsString::from(interface))?;
    bind(&fd, &SocketAddr::new(local, 0))?;
    Ok(fd.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_host::Sockets;

    fn plan() -> HostPlan {
        let here = IpAddr::from([127, 0, 0, 1]);
        let link = Link {
            name: "west".into(),
            interface: "lo".into(),
            local: Some(here),
            neighbours: vec![here],
            sockets: Sockets::Xdp,
        };
        HostPlan { links: vec![link], ..HostPlan::default() }
    }

    #[test]
    fn port_with_nobody_behind_it_is_found_and_one_with_somebody_is_not() {
        let listener = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let port = listener.local_addr().expect("an address").port();
        assert_eq!(neighbours(&plan(), port, Duration::from_millis(300)), []);
        drop(listener);
        let found = neighbours(&plan(), port, Duration::from_secs(2));
        assert_eq!(found.len(), 1, "{found:?}");
        let said = format!("127.0.0.1 answers \"port {port} unreachable\"");
        assert_eq!(found[0].cause, said);
    }
}
