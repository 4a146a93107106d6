//! Descriptors of the `bpf_link`s that hold XDP programs on interfaces: a program stays while one
//! of them is open, in any process.
//!
//! They are found among the descriptors of this process, by Linux's description of each
//! (`/proc/self/fdinfo`).

use crate::channel::Channel;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Programs that a process leaves attached for its successor (`execve`), which replaces them: by
/// Linux's index of the interface.
#[derive(Debug, Default)]
pub struct LeftPrograms(BTreeMap<u32, OwnedFd>);

impl LeftPrograms {
    /// The links that this process has descriptors of.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn of_this_process() -> io::Result<LeftPrograms> {
        let found = find(|_| true)?.into_iter();
        Ok(LeftPrograms(found.map(|(facts, link)| (facts.interface, link)).collect()))
    }

    /// Writes them to a channel as one message, even if there are none. [`LeftPrograms::receive`]
    /// reads it after `execve`.
    ///
    /// # Errors
    /// Linux refuses, or there are too many programs for a message.
    pub fn leave(&self, channel: &Channel) -> io::Result<()> {
        let interfaces: Vec<u32> = self.0.keys().copied().collect();
        let links: Vec<BorrowedFd<'_>> = self.0.values().map(AsFd::as_fd).collect();
        channel.send_now(&interfaces, &links)
    }

    /// Reads the links that the previous program left in a channel.
    ///
    /// # Errors
    /// The channel holds another message.
    pub fn receive(channel: &Channel) -> io::Result<LeftPrograms> {
        let (interfaces, links): (Vec<u32>, _) = channel.receive_now()?.unwrap_or_default();
        if interfaces.len() != links.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(LeftPrograms(interfaces.into_iter().zip(links).collect()))
    }

    /// Takes the link that holds the program of the interface with this index.
    pub(crate) fn take(&mut self, interface: u32) -> Option<OwnedFd> {
        self.0.remove(&interface)
    }
}

/// Time for programs and queues of a killed dataplane process to leave an interface: Linux takes
/// some tens of milliseconds to clean up after it, seconds on a busy machine. Giving up earlier
/// leaves the node without packets, or rolls a reload back.
pub(crate) const KILLED_RETRY: Duration = Duration::from_secs(5);

/// Linux's description of a `bpf_link` descriptor.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    /// Linux's number of the link.
    pub(crate) id: u32,
    /// Linux's index of the interface; 0 if that is gone.
    interface: u32,
}

/// Further descriptors of this process's XDP links, one for each link.
pub(crate) fn find(is_wanted: impl Fn(Facts) -> bool) -> io::Result<Vec<(Facts, OwnedFd)>> {
    let ourselves = pidfd_open(getpid(), PidfdFlags::empty())?;
    let mut found: Vec<(Facts, OwnedFd)> = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fdinfo")?.flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let (Some(number), Some(facts)) = (number, read(&text))
            && is_wanted(facts)
            && found.iter().all(|(known, _)| *known != facts)
        {
            found.push((facts, pidfd_getfd(&ourselves, number, PidfdGetfdFlags::empty())?));
        }
    }
    Ok(found)
}

/// `None` for a descriptor of anything but the link of an XDP program.
fn read(text: &str) -> Option<Facts> {
    let value = |name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"))
    };
    (value("link_type")? == "xdp").then_some(())?;
    Some(Facts { id: value("link_id")?.parse().ok()?, interface: value("ifindex")?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;

    #[test]
    fn facts_are_those_of_links_of_xdp_programs_alone() {
        let text = "pos:\t0\nflags:\t02000002\nmnt_id:\t16\nino:\t1066\nlink_type:\txdp\n\
                    link_id:\t19\nprog_tag:\tb14a1bc3f44d2a9a\nprog_id:\t62\nifindex:\t5\n";
        assert_eq!(read(text), Some(Facts { id: 19, interface: 5 }));
        assert_eq!(read(&text.replace("xdp", "tcx")), None);
        assert_eq!(read(&text.replace("19", "")), None);
        assert_eq!(read("pos:\t0\n"), None);
    }

    #[test]
    fn what_is_left_is_received_and_anything_else_is_refused() {
        let file = || rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC).unwrap();
        let left = LeftPrograms(BTreeMap::from([(3, file()), (7, file())]));
        let (sender, channel) = Channel::pair().unwrap();
        left.leave(&sender).unwrap();
        let mut received = LeftPrograms::receive(&channel).unwrap();
        assert!(received.take(3).is_some() && received.take(7).is_some());
        assert!(received.take(3).is_none(), "it is taken once");
        LeftPrograms::default().leave(&sender).unwrap();
        assert!(LeftPrograms::receive(&channel).unwrap().0.is_empty());
        // Nothing is left: the channel was read to the end.
        assert!(LeftPrograms::receive(&channel).unwrap().0.is_empty());
        let (one, other) = Channel::pair().unwrap();
        one.send(&[1, 2], &[file().as_fd()]).unwrap();
        assert!(LeftPrograms::receive(&other).is_err());
        one.send(&"text", &[]).unwrap();
        assert!(LeftPrograms::receive(&other).is_err());
    }
}
