//! Segments that stay on the card, so that bundles over them bring no sources along.
//!
//! A bundle gets its rows by a copy on the card, which costs two bytes of its memory bandwidth for
//! each, a hundredth of a bus transfer, and keeps all of a launch in one arena. A kept segment is
//! freed at the first call after all other holders dropped it; with a lost card it is lost, and
//! bundles then bring their rows from the host.

use std::mem;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use recoded_code::engine::{Error, Segment};

use super::{CudaEngine, failed, is_harmless, lost};
use crate::driver::{CallError, DeviceMemory, Pinned, Stream};

/// The kept segments, within a limit.
pub(super) struct Segments {
    kept: Vec<(Weak<Segment>, DeviceMemory)>,
    bytes_max: u64,
}

impl Segments {
    /// No segments yet, limited to `bytes_max`.
    pub(super) const fn within(bytes_max: u64) -> Self {
        Self { kept: Vec::new(), bytes_max }
    }

    fn find(&self, segment: &Arc<Segment>) -> Option<&DeviceMemory> {
        // Nothing else can have the address while the weak pointer exists.
        let same = |kept: &&(Weak<Segment>, _)| kept.0.as_ptr() == Arc::as_ptr(segment);
        self.kept.iter().find(same).map(|(_, memory)| memory)
    }

    /// Whether the rows of `segment` are on the card.
    pub(super) fn keeps(&self, segment: &Arc<Segment>) -> bool {
        self.find(segment).is_some()
    }

    /// Frees segments without another holder. Bundles in flight hold their segments.
    fn drop_unused(&mut self) {
        self.kept.retain(|(segment, _)| segment.strong_count() > 0);
    }

    /// Allocates device memory for one more.
    fn room_for(&mut self, segment: &Segment) -> Result<DeviceMemory, CallError> {
        self.drop_unused();
        let taken: u64 = self.kept.iter().map(|(_, memory)| memory.bytes()).sum();
        if taken + segment.bytes() as u64 > self.bytes_max {
            return Err(CallError::out_of_memory("keep"));
        }
        DeviceMemory::new(segment.bytes() as u64)
    }

    /// Copies the rows of `segment` to `to`: from the kept ones, otherwise from the host.
    ///
    /// # Safety
    /// `to` must have room for them, and the segment must stay until the stream is idle.
    pub(super) unsafe fn bring(
        &self,
        stream: &Stream,
        segment: &Arc<Segment>,
        to: u64,
    ) -> Result<(), CallError> {
        let bytes = segment.bytes();
        // SAFETY: a kept segment has as many bytes and stays while the bundle holds it; the rest is
        // by contract.
        unsafe {
            match self.find(segment) {
                Some(memory) => stream.copy_within(to, memory.start(), bytes),
                None => stream.copy_to(to, &segment.arena()[..bytes]),
            }
        }
    }

    /// Frees everything, while the context exists and nothing is in flight.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }

    /// Drops no object of a context that must not be called again.
    pub(super) fn forget(&mut self) {
        self.kept.drain(..).for_each(mem::forget);
    }
}

impl CudaEngine {
    /// Bytes of the segments that the card keeps.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        self.segments.kept.iter().map(|(_, memory)| memory.bytes()).sum()
    }

    pub(super) fn keep_segment(&mut self, segment: &Arc<Segment>) -> Result<(), Error> {
        if let Some(error) = &self.lost {
            return Err(error.clone());
        }
        self.context.enter().map_err(|error| self.unkept(&error, segment))?;
        if self.segments.find(segment).is_some() {
            return Ok(());
        }
        let room = self.segments.room_for(segment);
        let memory = room.map_err(|error| self.unkept(&error, segment))?;
        // Memory pinned by another engine is copied through unpinned memory.
        let is_elsewhere = self.context.pin(segment.arena()) == Pinned::Elsewhere;
        let own = is_elsewhere.then(|| segment.arena().to_vec());
        let rows: &[u8] = own.as_deref().unwrap_or(segment.arena());
        let copied = Stream::new().and_then(|stream| {
            // SAFETY: the memory has as many bytes; neither is used otherwise until the stream
            // is idle, and leaked if it never is.
            unsafe { stream.copy_to(memory.start(), &rows[..segment.bytes()]) }?;
            stream.mark()?;
            let begun = Instant::now();
            while !stream.is_done()? {
                if begun.elapsed() > COPY_TIMEOUT {
                    mem::forget(stream);
                    return Ok(false);
                }
                thread::sleep(Duration::from_micros(20));
            }
            Ok(true)
        });
        match copied {
            Ok(true) => {
                self.segments.kept.push((Arc::downgrade(segment), memory));
                Ok(())
            }
            Ok(false) => {
                mem::forget((Arc::clone(segment), own, memory));
                self.give_up();
                Err(self.lost.clone().unwrap_or(Error::Memory { bytes: segment.bytes() }))
            }
            Err(error) => {
                if !is_harmless(&error) {
                    mem::forget(memory);
                }
                Err(self.unkept(&error, segment))
            }
        }
    }

    /// Handles an error while a segment is copied to be kept.
    fn unkept(&mut self, error: &CallError, segment: &Segment) -> Error {
        if error.is_out_of_memory() {
            return Error::Memory { bytes: segment.bytes() };
        }
        if is_harmless(error) {
            return failed(error);
        }
        self.lose(error);
        lost(error)
    }
}

/// Far more than a bus needs for the largest segment that fits.
const COPY_TIMEOUT: Duration = Duration::from_secs(5);
