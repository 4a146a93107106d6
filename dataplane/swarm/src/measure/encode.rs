//! The rate of encoding alone: threads compute random combinations of a segment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::manifest::{Layout, Manifest};
use crate::random::Random;
use crate::store::{BUNDLE, Combination, Store, combine};

/// Encoding that was measured.
#[derive(Copy, Clone, Debug)]
pub struct Encoding {
    /// Bytes of combinations.
    pub bytes: u64,
    /// Processor time of all threads. Unlike the time that passed, it is little affected by other
    /// programs.
    pub cpu: Duration,
}

/// Processor time of this thread or process.
pub(super) fn cpu_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A store of pseudo-random content.
pub(super) fn example(layout: &Layout, source: [u8; 32]) -> Option<Arc<Store>> {
    let mut content = vec![0; usize::try_from(layout.total_bytes).ok()?];
    Random::new(&[7; 32]).fill(&mut content);
    let manifest = Manifest::describe(&content, layout.blocks, layout.block_bytes, source).ok()?;
    Some(Arc::new(Store::complete(manifest, &content)))
}

/// Encodes for `time` on `threads` threads, each with another segment in turn.
#[must_use]
pub fn encoding(layout: &Layout, threads: usize, time: Duration) -> Option<Encoding> {
    let store = &example(layout, [0; 32])?;
    let start = Instant::now();
    let encodings: Vec<Encoding> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| encode(store, start, time))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let cpu = encodings.iter().map(|encoding| encoding.cpu).sum();
    Some(Encoding { bytes: encodings.iter().map(|encoding| encoding.bytes).sum(), cpu })
}

fn encode(store: &Store, start: Instant, time: Duration) -> Encoding {
    let layout = store.layout();
    let block_bytes = layout.block_bytes as usize;
    let mut random = Random::new(&[8; 32]);
    let mut out = vec![0; BUNDLE * block_bytes];
    let (mut bytes, mut segment, before) = (0, 0, cpu_time(ClockId::ThreadCPUTime));
    while start.elapsed() < time {
        let blocks = layout.blocks_of(segment);
        let Some(content) = store.read(segment) else { break };
        for _ in 0..blocks.div_ceil(BUNDLE) {
            let mut combinations = [Combination::EMPTY; BUNDLE];
            let mut payloads: [&mut [u8]; BUNDLE] = Default::default();
            for (payload, chunk) in payloads.iter_mut().zip(out.chunks_exact_mut(block_bytes)) {
                *payload = chunk;
            }
            combine(&content, blocks, &mut random, &mut combinations, &mut payloads);
            bytes += (BUNDLE * block_bytes) as u64;
        }
        segment = (segment + 1) % layout.segments();
    }
    Encoding { bytes, cpu: cpu_time(ClockId::ThreadCPUTime).saturating_sub(before) }
}
