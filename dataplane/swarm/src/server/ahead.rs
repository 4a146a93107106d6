//! Combinations made ahead: a bounded number of segments have as many as two for each block, which
//! all peers share. Each peer starts at another one, so two peers rarely hold the same.
//!
//! A pool is made only after as many combinations of its segment were sent on demand. Peers that
//! request segments at random can therefore at most double the arithmetic.

use crate::random::Random;
use crate::store::{BUNDLE, Combination, Segment, combine};
use crate::wire::Coding;

/// Combinations of one segment.
struct Pool {
    segment: u32,
    used_at: u64,
    seeds: Vec<u64>,
    payloads: Vec<u8>,
}

/// A segment without a pool.
#[derive(Copy, Clone)]
struct Candidate {
    segment: u32,
    /// Combinations that were sent on demand.
    sent: usize,
    used_at: u64,
}

/// Pools of the segments that were requested last.
pub(super) struct Ahead {
    candidates: Vec<Candidate>,
    pools: Vec<Pool>,
    pools_max: usize,
    uses: u64,
}

/// A combination of a pool.
pub(super) struct Ready<'a> {
    pub seed: u64,
    pub payload: &'a [u8],
}

impl Ahead {
    /// Room for the pools of `pools_max` segments; 0 makes nothing ahead.
    pub(super) fn new(pools_max: usize) -> Self {
        let candidates = Vec::with_capacity(pools_max);
        Self { candidates, pools: Vec::with_capacity(pools_max), pools_max, uses: 0 }
    }

    /// Counts combinations of a segment that were sent on demand. Whether a pool is worth while.
    fn is_wanted(&mut self, segment: u32, sent: usize, count: usize) -> bool {
        let known = self.candidates.iter().position(|known| known.segment == segment);
        let index = known.unwrap_or_else(|| {
            let fresh = Candidate { segment, sent: 0, used_at: 0 };
            if self.candidates.len() < self.pools_max {
                self.candidates.push(fresh);
                return self.candidates.len() - 1;
            }
            let oldest = (0..self.candidates.len()).min_by_key(|&i| self.candidates[i].used_at);
            let oldest = oldest.unwrap_or_default();
            self.candidates[oldest] = fresh;
            oldest
        });
        let candidate = &mut self.candidates[index];
        candidate.sent += sent;
        candidate.used_at = self.uses;
        let is_wanted = candidate.sent > count;
        if is_wanted {
            self.candidates.swap_remove(index);
        }
        is_wanted
    }

    /// The pool of a complete segment, before `sent` combinations are sent. Returns its index and
    /// the number of combinations that were computed. `None` if there is no pool.
    pub(super) fn pool(
        &mut self,
        segment: u32,
        content: &Segment,
        sent: usize,
        block_bytes: usize,
        random: &mut Random,
    ) -> Option<(usize, usize)> {
        let Segment::Complete(bytes) = content else { return None };
        if self.pools_max == 0 {
            return None;
        }
        self.uses += 1;
        if let Some(index) = self.pools.iter().position(|pool| pool.segment == segment) {
            self.pools[index].used_at = self.uses;
            return Some((index, 0));
        }
        let blocks = bytes.len() / block_bytes;
        let count = 2 * blocks;
        if !self.is_wanted(segment, sent, count) {
            return None;
        }
        let mut pool = self.take_room(segment);
        pool.used_at = self.uses;
        pool.payloads.resize(count * block_bytes, 0);
        pool.seeds.clear();
        for run in pool.payloads.chunks_mut(BUNDLE * block_bytes) {
            let mut combinations = [Combination::EMPTY; BUNDLE];
            let mut payloads: [&mut [u8]; BUNDLE] = Default::default();
            let count = run.len() / block_bytes;
            for (payload, chunk) in payloads.iter_mut().zip(run.chunks_exact_mut(block_bytes)) {
                *payload = chunk;
            }
            let combinations = &mut combinations[..count];
            combine(content, blocks, random, combinations, &mut payloads[..count]);
            pool.seeds.extend(combinations.iter().filter_map(|c| match c.coding() {
                Coding::Seed(seed) => Some(seed),
                Coding::Vector(_) => None,
            }));
        }
        self.pools.push(pool);
        Some((self.pools.len() - 1, count))
    }

    /// The memory of the pool that was not used for the longest time, or new memory.
    fn take_room(&mut self, segment: u32) -> Pool {
        let empty = Pool { segment, used_at: 0, seeds: Vec::new(), payloads: Vec::new() };
        if self.pools.len() < self.pools_max {
            return empty;
        }
        let oldest = (0..self.pools.len()).min_by_key(|&index| self.pools[index].used_at);
        let pool = oldest.map_or(empty, |index| self.pools.swap_remove(index));
        Pool { segment, ..pool }
    }

    /// Combination `number` of a peer that starts at `offset`. `None` if it has had all of them.
    pub(super) fn ready(
        &self,
        pool: usize,
        offset: u32,
        number: u32,
        block_bytes: usize,
    ) -> Option<Ready<'_>> {
        let pool = self.pools.get(pool)?;
        let count = pool.seeds.len();
        if number as usize >= count {
            return None;
        }
        let index = (offset as usize + number as usize) % count;
        let payload = &pool.payloads[index * block_bytes..][..block_bytes];
        Some(Ready { seed: pool.seeds[index], payload })
    }
}
