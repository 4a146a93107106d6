//! Frames in ordinary memory, for the simulator, the fuzzers and the tests.

use recoded_wire::frames::{FrameId, Frames, GATHER_MAX, Span};

/// What a test or a benchmark does when frames are used.
pub trait Probe {
    /// Bytes of these sources are about to be combined into these destinations.
    fn combining(&mut self, _sources: &[Span], _destinations: &[Span]) {}

    /// They have been.
    fn combined(&mut self) {}

    /// A frame lost its last reference; `content` is all of it.
    fn freed(&mut self, _content: &mut [u8]) {}
}

impl Probe for () {}

/// A fixed number of reference-counted frames on the heap.
#[derive(Debug)]
pub struct HeapFrames<P = ()> {
    frames: Vec<Box<[u8]>>,
    references: Vec<u32>,
    free: Vec<u32>,
    /// Observer of their use.
    pub probe: P,
}

impl HeapFrames {
    /// `count` frames of `frame_bytes` each.
    pub fn new(count: usize, frame_bytes: usize) -> HeapFrames {
        HeapFrames::probed(count, frame_bytes, ())
    }
}

impl<P: Probe> HeapFrames<P> {
    /// `count` frames of `frame_bytes` each, whose use `probe` observes.
    pub fn probed(count: usize, frame_bytes: usize, probe: P) -> HeapFrames<P> {
        HeapFrames {
            frames: (0..count).map(|_| vec![0; frame_bytes].into_boxed_slice()).collect(),
            references: vec![0; count],
            free: (0..count as u32).rev().collect(),
            probe,
        }
    }

    /// Frames without references.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Frames with a reference.
    pub fn held(&self) -> usize {
        self.frames.len() - self.free.len()
    }

    /// Places a UDP payload in a free frame, as a receive ring would. `None` when frames ran out or
    /// the payload does not fit.
    pub fn receive(&mut self, payload: &[u8]) -> Option<Span> {
        let offset = 256 + 42;
        if payload.len() + offset > self.frame_bytes() {
            return None;
        }
        let frame = self.take()?;
        let span = Span { frame, offset: offset as u16, len: payload.len() as u16 };
        self.bytes_mut(span).copy_from_slice(payload);
        Some(span)
    }
}

fn range(span: Span) -> std::ops::Range<usize> {
    usize::from(span.offset)..usize::from(span.offset) + usize::from(span.len)
}

impl<P: Probe> Frames for HeapFrames<P> {
    fn frame_bytes(&self) -> usize {
        self.frames.first().map_or(0, |frame| frame.len())
    }

    fn take(&mut self) -> Option<FrameId> {
        let frame = self.free.pop()?;
        self.references[frame as usize] = 1;
        Some(FrameId(frame))
    }

    fn scarce(&self) -> bool {
        self.free.len() < self.frames.len() / 4
    }

    fn retain(&mut self, frame: FrameId) {
        let references = &mut self.references[frame.0 as usize];
        assert!(*references > 0, "frame {} retained while free", frame.0);
        *references += 1;
    }

    fn release(&mut self, frame: FrameId) {
        let references = &mut self.references[frame.0 as usize];
        assert!(*references > 0, "frame {} released while free", frame.0);
        *references -= 1;
        if *references == 0 {
            self.free.push(frame.0);
            self.probe.freed(&mut self.frames[frame.0 as usize]);
        }
    }

    fn bytes(&self, span: Span) -> &[u8] {
        &self.frames[span.frame.0 as usize][range(span)]
    }

    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        &mut self.frames[span.frame.0 as usize][range(span)]
    }

    fn with_disjoint<R>(
        &mut self,
        sources: &[Span],
        destinations: &[Span],
        work: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> R,
    ) -> R {
        // Preparing and dropping places takes time, and destinations are usually few.
        match destinations.len() {
            0..=FEW => self.gather::<FEW, R>(sources, destinations, work),
            _ => self.gather::<GATHER_MAX, R>(sources, destinations, work),
        }
    }
}

impl<P: Probe> HeapFrames<P> {
    /// [`Frames::with_disjoint`] with at most `N` destinations.
    fn gather<const N: usize, R>(
        &mut self,
        sources: &[Span],
        destinations: &[Span],
        work: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> R,
    ) -> R {
        assert!(sources.len() <= GATHER_MAX && destinations.len() <= N);
        // A destination's memory is moved out while `work` runs; a second view of it finds it
        // missing and panics on the empty box's bounds. Arrays, because the packet path must not
        // allocate.
        let mut moved: [Box<[u8]>; N] = std::array::from_fn(|_| Box::default());
        for (place, span) in moved.iter_mut().zip(destinations) {
            *place = std::mem::take(&mut self.frames[span.frame.0 as usize]);
        }
        let result = {
            let mut views: [&[u8]; GATHER_MAX] = [&[]; GATHER_MAX];
            for (view, span) in views.iter_mut().zip(sources) {
                *view = &self.frames[span.frame.0 as usize][range(*span)];
            }
            let mut frames = moved.iter_mut().zip(destinations);
            let mut outputs: [&mut [u8]; N] = std::array::from_fn(|_| {
                frames
                    .next()
                    .map_or_else(Default::default, |(frame, span)| &mut frame[range(*span)])
            });
            self.probe.combining(sources, destinations);
            let result = work(&views[..sources.len()], &mut outputs[..destinations.len()]);
            self.probe.combined();
            result
        };
        for (frame, span) in moved.into_iter().zip(destinations) {
            self.frames[span.frame.0 as usize] = frame;
        }
        result
    }
}

/// Most destinations that the roles usually form at once.
const FEW: usize = 64;
