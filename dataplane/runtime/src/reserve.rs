//! Frames that are mapped before it is known who uses them.
//!
//! To map frames takes longer than all else of a start: Linux clears and locks them page by page.
//! A process that waits to take over from another one has them by then.

use crate::error::StartError;
use crate::resources::raise_memlock;
use crate::topology::Topology;
use recoded_xsk::Umem;

/// The frames of some workers, for AF_XDP sockets.
#[derive(Debug, Default)]
pub struct Reserve {
    frames_per_worker: u32,
    umems: Vec<Umem>,
}

impl Reserve {
    /// Maps, locks and registers `frames_per_worker` frames for each of `workers`.
    ///
    /// # Errors
    /// As those of frames when a node starts: not permitted, or no memory.
    pub fn map(workers: usize, frames_per_worker: u32) -> Result<Reserve, StartError> {
        raise_memlock();
        let umems = (0..workers).map(|_| Umem::new(frames_per_worker));
        Ok(Reserve { frames_per_worker, umems: umems.collect::<Result<_, _>>()? })
    }

    /// The frames of the next worker: of those mapped before if they are what `topology` wants, or
    /// mapped now.
    pub(crate) fn take(&mut self, topology: &Topology) -> Result<Umem, StartError> {
        let frames = topology.frames_per_worker;
        if !topology.needs_xdp() {
            return Ok(Umem::unshared(frames)?);
        }
        let reserved = self.umems.pop().filter(|_| self.frames_per_worker == frames);
        reserved.map_or_else(|| Ok(Umem::new(frames)?), Ok)
    }
}
