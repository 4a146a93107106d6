//! A stream that this node sends, as its workers report it.

use recoded_pipeline::params::TunnelId;
use recoded_pipeline::report::NextHop;

/// A stream that this node sends.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) id: u32,
    /// The tunnel of a source.
    pub(crate) tunnel: Option<TunnelId>,
    pub(crate) next_hops: Vec<NextHop>,
    /// Bytes of the longest IP packet that the path carries, if longer ones vanish.
    pub(crate) packet_bytes: Option<usize>,
}

impl Flow {
    /// Whether it reads from the tunnel of this index.
    pub(crate) fn reads(&self, tunnel: usize) -> bool {
        self.tunnel.is_some_and(|it| usize::from(it.0) == tunnel)
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.next_hops.iter().all(NextHop::is_silent)
    }
}
