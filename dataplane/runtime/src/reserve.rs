//! Frames mapped before their user is known.
//!
//! Mapping frames takes longer than the rest of a start: Linux clears and locks them page by page.
//! A process that waits to take over from another one has them by then.

use crate::error::StartError;
use crate::topology::Topology;
use recoded_xsk::{FrameSize, Umem};
use rustix::process::{Resource, Rlimit, setrlimit};

/// The frames of some workers, for AF_XDP sockets.
#[derive(Debug, Default)]
pub struct Reserve {
    umems: Vec<Umem>,
}

impl Reserve {
    /// Maps, locks and registers `frames` of this size for each of `workers`; none if AF_XDP does
    /// not support that size.
    ///
    /// # Errors
    /// As those of frames when a node starts: not permitted, or no memory.
    pub fn map(workers: usize, frames: u32, size: FrameSize) -> Result<Reserve, StartError> {
        raise_memlock();
        let workers = if size.suits_af_xdp() { workers } else { 0 };
        let umems = (0..workers).map(|_| Umem::of(frames, size));
        Ok(Reserve { umems: umems.collect::<Result<_, _>>()? })
    }

    /// The frames of the next worker: those mapped before if they fit `topology`, or newly mapped
    /// ones.
    pub(crate) fn take(&mut self, topology: &Topology) -> Result<Umem, StartError> {
        let (frames, size) = (topology.frames_per_worker, topology.frame_size);
        if !topology.needs_xdp() {
            return Ok(Umem::unshared(frames, size)?);
        }
        let is_wanted = |umem: &Umem| umem.gauge().total == frames && umem.frame_size() == size;
        let reserved = self.umems.pop().filter(is_wanted);
        reserved.map_or_else(|| Ok(Umem::of(frames, size)?), Ok)
    }
}

/// UMEMs and, before Linux 5.11, BPF maps count against this limit. If it may not be raised,
/// opening the UMEM reports that it was too low.
pub(crate) fn raise_memlock() {
    if let Err(error) = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }) {
        tracing::debug!(%error, "the memlock limit stays as it is");
    }
}
