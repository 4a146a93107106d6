//! The sockets that share a UMEM, and the resulting rules.
//!
//! libxdp binds a UMEM's first socket with the very descriptor that registered the memory, and the
//! others as sharers of it. So the first determines the mode of all; its queue stays in use until
//! the UMEM is dropped, even if the socket is dropped; and once no socket is left, none can be
//! added.

use std::sync::{Arc, Weak};

use crate::mode::SocketMode;

#[derive(Debug)]
struct Entry {
    interface: String,
    queue: u32,
    /// Dead once the socket is dropped.
    socket: Weak<()>,
}

/// The sockets of a UMEM.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    mode: Option<SocketMode>,
    entries: Vec<Entry>,
    sockets: u32,
    /// Sockets to be opened in total.
    expected: u32,
}

impl Registry {
    /// Notes how many sockets will be opened; they share the frames from the first one on.
    pub(crate) fn expect(&mut self, sockets: u32) {
        self.expected = sockets;
    }

    /// Notes a socket that was opened; it counts as open until the result is dropped.
    pub(crate) fn add(&mut self, interface: &str, queue: u32, mode: SocketMode) -> Arc<()> {
        let token = Arc::new(());
        let socket = Arc::downgrade(&token);
        self.mode.get_or_insert(mode);
        self.entries.push(Entry { interface: interface.to_owned(), queue, socket });
        self.sockets = self.entries.iter().filter(|entry| entry.is_open()).count() as u32;
        token
    }

    /// Sockets that were open when the latest was added, or all announced ones if that is more.
    pub(crate) fn sockets(&self) -> u32 {
        self.sockets.max(self.expected)
    }

    /// The interface of the first socket and its mode, which is that of all.
    pub(crate) fn settled(&self) -> Option<(&str, SocketMode)> {
        Some((self.entries.first()?.interface.as_str(), self.mode?))
    }

    /// Whether all sockets are closed, so that no other can be added.
    pub(crate) fn is_spent(&self) -> bool {
        !self.entries.is_empty() && !self.entries.iter().any(Entry::is_open)
    }

    /// Whether a socket of this UMEM occupies the queue.
    pub(crate) fn occupies(&self, interface: &str, queue: u32) -> bool {
        let same = |entry: &Entry| entry.interface == interface && entry.queue == queue;
        self.entries.first().is_some_and(same)
            || self.entries.iter().any(|entry| same(entry) && entry.is_open())
    }
}

impl Entry {
    fn is_open(&self) -> bool {
        self.socket.strong_count() > 0
    }
}
