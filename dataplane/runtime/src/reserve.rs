//! Frames that are mapped before it is known who uses them.
//!
//! To map frames takes longer than all else of a start: Linux clears and locks them page by page.
//! A process that waits to take over from another one has them by then.

use crate::error::StartError;
use crate::resources::raise_memlock;
use crate::topology::Topology;
use recoded_xsk::{FrameSize, Umem};

/// The frames of some workers, for AF_XDP sockets.
#[derive(Debug, Default)]
pub struct Reserve {
    umems: Vec<Umem>,
}

impl Reserve {
    /// Maps, locks and registers so many frames of a size for each of `workers`; none where AF_XDP
    /// has none of that size.
    ///
    /// # Errors
    /// As those of frames when a node starts: not permitted, or no memory.
    pub fn map(workers: usize, (frames, size): (u32, FrameSize)) -> Result<Reserve, StartError> {
        raise_memlock();
        let workers = if size.suits_af_xdp() { workers } else { 0 };
        let umems = (0..workers).map(|_| Umem::of(frames, size));
        Ok(Reserve { umems: umems.collect::<Result<_, _>>()? })
    }

    /// The frames of the next worker: of those mapped before if they are what `topology` wants, or
    /// mapped now.
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
