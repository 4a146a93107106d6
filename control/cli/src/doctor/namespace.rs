//! The network namespace of the daemon: a caller in another one, such as a shell outside the
//! daemon's container, sees other interfaces, routes and firewalls.

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use recoded_api::v1::State;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Access to the daemon's view of this host.
#[derive(Debug)]
pub enum NamespaceAccess {
    /// The caller is in the daemon's namespace.
    Here,
    /// The daemon's namespace, which may be entered.
    There(File),
    /// The daemon is in another namespace, which this user may not enter.
    Closed,
}

impl NamespaceAccess {
    /// Finds the namespace of the daemon that answers at `socket` with this `state`.
    pub fn of(socket: &Path, state: &State) -> NamespaceAccess {
        let peer = UnixStream::connect(socket).ok();
        let pid = peer.and_then(|peer| getsockopt(&peer, PeerCredentials).ok());
        let pid = pid.map_or(0, |credentials| credentials.pid());
        let path = format!("/proc/{pid}/ns/net");
        let own = fs::read_link("/proc/thread-self/ns/net").ok();
        match fs::read_link(&path).ok() {
            Some(daemon) if own.as_ref() == Some(&daemon) => NamespaceAccess::Here,
            Some(_) => File::open(&path).map_or(NamespaceAccess::Closed, NamespaceAccess::There),
            // Its namespace is not readable; its addresses decide.
            None if has_addresses(state) => NamespaceAccess::Here,
            None => NamespaceAccess::Closed,
        }
    }

    /// Runs `look` in the daemon's namespace; `None` if that is not possible.
    pub fn run<T: Send>(self, look: impl FnOnce() -> T + Send) -> Option<T> {
        match self {
            NamespaceAccess::Here => Some(look()),
            NamespaceAccess::Closed => None,
            // In a separate thread, since returning to the old namespace may fail.
            NamespaceAccess::There(namespace) => std::thread::scope(|scope| {
                let entered = scope.spawn(move || {
                    let kind = Some(LinkNameSpaceType::Network);
                    move_into_link_name_space(namespace.as_fd(), kind).ok().map(|()| look())
                });
                entered.join().ok().flatten()
            }),
        }
    }
}

/// Whether an address of a link belongs to this namespace, or the daemon has none.
fn has_addresses(state: &State) -> bool {
    let addresses = state.links.iter().filter_map(|link| link.local.parse::<IpAddr>().ok());
    let mut addresses = addresses.filter(|address| !address.is_unspecified()).peekable();
    addresses.peek().is_none() || addresses.any(|address| UdpSocket::bind((address, 0)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_api::v1::Link;
    use std::os::unix::net::UnixListener;

    #[test]
    fn daemon_of_this_namespace_is_here_and_an_unknown_one_is_where_its_addresses_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("r.sock");
        let with = |local: &str| State {
            links: vec![Link { local: local.into(), ..Link::default() }],
            ..crate::fixed::state()
        };
        assert!(
            matches!(NamespaceAccess::of(&path, &with("127.0.0.1")), NamespaceAccess::Here),
            "no daemon"
        );
        assert!(matches!(NamespaceAccess::of(&path, &with("192.0.2.77")), NamespaceAccess::Closed));
        let _listener = UnixListener::bind(&path).expect("a socket");
        assert!(
            matches!(NamespaceAccess::of(&path, &with("192.0.2.77")), NamespaceAccess::Here),
            "by its process"
        );
        assert_eq!(NamespaceAccess::Closed.run(|| ()), None);
        assert_eq!(NamespaceAccess::Here.run(|| 7), Some(7));
    }
}
