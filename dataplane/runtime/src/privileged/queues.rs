//! The queues of all tunnels, which the supervisor leaves to its successor (`execve`): Linux drops
//! the packets in a queue when its last descriptor is closed.

use super::message::Offload;
use crate::channel::Channel;
use crate::tunnel::Tunnel;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The part of a message other than the queues of a tunnel.
#[derive(Serialize, Deserialize)]
struct LeftTunnel {
    name: String,
    offload: Offload,
    reason: String,
}

/// The present tunnels by name. Shared by the thread that serves a dataplane process, which
/// recreates deleted ones, and the one that calls `execve`.
#[derive(Default)]
pub struct TunnelQueues(Mutex<Vec<Arc<Tunnel>>>);

impl TunnelQueues {
    /// Writes all of them to a channel that the next program reads. Never blocks.
    ///
    /// # Errors
    /// The channel has no room for all, or Linux refuses: those not written are lost.
    pub fn leave(&self, channel: &Channel) -> io::Result<()> {
        for tunnel in self.tunnels().iter() {
            let left = LeftTunnel {
                name: tunnel.name().to_owned(),
                offload: tunnel.offload().into(),
                reason: tunnel.reason().to_owned(),
            };
            let queues = 0..tunnel.queues();
            let queues: Vec<BorrowedFd<'_>> = queues.map(|queue| tunnel.queue_fd(queue)).collect();
            channel.send_now(&left, &queues)?;
        }
        Ok(())
    }

    /// Reads the queues that the previous program wrote to a channel. Never blocks.
    ///
    /// # Errors
    /// The channel holds another message.
    pub fn receive(channel: &Channel) -> io::Result<TunnelQueues> {
        let mut tunnels = Vec::new();
        while let Some((left, queues)) = channel.receive_now::<LeftTunnel>()? {
            let LeftTunnel { name, offload, reason } = left;
            if !queues.is_empty() {
                let tunnel = Tunnel::of_queues(name, queues, offload.into(), reason);
                tunnels.push(Arc::new(tunnel));
            }
        }
        Ok(TunnelQueues(Mutex::new(tunnels)))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tunnels().is_empty()
    }

    /// The tunnel of this name.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Tunnel>> {
        self.tunnels().iter().find(|tunnel| tunnel.name() == name).cloned()
    }

    /// Closes the queues of a tunnel, unless another owner has them, too.
    pub(crate) fn forget(&self, name: &str) {
        self.tunnels().retain(|tunnel| tunnel.name() != name);
    }

    /// Records a tunnel, replacing one with the same name.
    pub(crate) fn note(&self, tunnel: Arc<Tunnel>) {
        self.forget(tunnel.name());
        self.tunnels().push(tunnel);
    }

    /// Keeps the tunnels that `is_kept` accepts.
    pub(crate) fn keep(&self, is_kept: impl Fn(&str) -> bool) {
        self.tunnels().retain(|tunnel| is_kept(tunnel.name()));
    }

    fn tunnels(&self) -> MutexGuard<'_, Vec<Arc<Tunnel>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel;
    use rustix::fs::MemfdFlags;
    use std::os::fd::OwnedFd;

    fn tunnel(name: &str, queues: usize) -> Arc<Tunnel> {
        let file = |_| rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC).unwrap();
        let queues: Vec<OwnedFd> = (0..queues).map(file).collect();
        Arc::new(Tunnel::of_queues(name.into(), queues, tunnel::Offload::Tcp, "old".into()))
    }

    #[test]
    fn queues_that_are_left_are_received_while_the_writer_still_has_its_end() {
        let (sender, receiver) = Channel::pair().unwrap();
        let left = TunnelQueues::default();
        for tunnel in [tunnel("rec0", 2), tunnel("rec1", 1), tunnel("rec0", 3)] {
            left.note(tunnel);
        }
        left.leave(&sender).unwrap();
        let received = TunnelQueues::receive(&receiver).unwrap();
        let about = |name| {
            let found = received.find(name)?;
            Some((found.queues(), found.offload(), found.reason().to_owned()))
        };
        assert_eq!(about("rec0"), Some((3, tunnel::Offload::Tcp, "old".to_owned())));
        assert_eq!(about("rec1").map(|(queues, ..)| queues), Some(1));
        assert_eq!(about("rec2"), None);
        received.forget("rec0");
        received.keep(|name| name == "rec0");
        assert!(received.is_empty());
        assert!(TunnelQueues::receive(&receiver).unwrap().is_empty(), "it is read once");
    }

    #[test]
    fn queues_of_another_kind_are_an_error_and_a_full_channel_is_no_wait() {
        let (sender, receiver) = Channel::pair().unwrap();
        sender.send(&7, &[]).unwrap();
        assert!(TunnelQueues::receive(&receiver).is_err());
        let left = TunnelQueues::default();
        left.note(tunnel("rec0", 1));
        let refused = std::iter::repeat_with(|| left.leave(&sender)).find_map(Result::err);
        assert_eq!(refused.unwrap().kind(), io::ErrorKind::WouldBlock);
    }
}
