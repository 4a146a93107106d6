//! A segment that is being decoded: progressive Gauss-Jordan elimination of coding vectors, and one
//! product of the payloads at the end.

use recoded_code::{Elimination, Outcome};
use recoded_gf::Kernel;

use crate::checks::Checks;
use crate::store::slices;

/// How blocks of a segment are verified.
pub(super) enum Trust {
    /// Not known yet. Nothing is requested.
    Undecided,
    /// Checks of the source verify each block on arrival. Blocks of all peers are mixed.
    Checked(Checks),
    /// No source: all blocks come from this peer, and the SHA-256 of the segment judges it.
    Alone(Option<usize>),
}

/// The fate of a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Innovative,
    Redundant,
    /// Its peer sent a wrong combination.
    Forged,
    /// No decision about it is possible.
    Ignored,
}

/// The state of one segment.
pub(super) struct Decoder {
    pub segment: u32,
    pub trust: Trust,
    /// When checks were requested, and how often since some arrived.
    pub checks_at: Option<u64>,
    pub checks_tries: u32,
    /// When the rank last grew, or the peer of [`Trust::Alone`] was chosen.
    pub grown_at: u64,
    /// The highest rank that was reached; a restart does not lower it.
    peak: usize,
    elimination: Elimination,
    block_bytes: usize,
    /// Payloads by slot, end to end.
    payloads: Vec<u8>,
}

impl Decoder {
    pub(super) fn new(segment: u32, blocks: usize, block_bytes: usize) -> Self {
        Self {
            segment,
            trust: Trust::Undecided,
            checks_at: None,
            checks_tries: 0,
            grown_at: 0,
            peak: 0,
            elimination: Elimination::new(blocks),
            block_bytes,
            payloads: Vec::with_capacity(blocks * block_bytes),
        }
    }

    pub(super) fn blocks(&self) -> usize {
        self.elimination.size()
    }

    pub(super) fn rank(&self) -> usize {
        self.elimination.rank()
    }

    /// Missing degrees of freedom.
    pub(super) fn missing(&self) -> usize {
        self.blocks() - self.rank()
    }

    /// Records the time of an innovative block. Whether the rank is higher than ever before.
    pub(super) fn grow(&mut self, now: u64) -> bool {
        self.grown_at = now;
        let is_peak = self.elimination.rank() > self.peak;
        self.peak = self.peak.max(self.elimination.rank());
        is_peak
    }

    /// Forgets all blocks.
    pub(super) fn restart(&mut self) {
        self.elimination.reset(self.blocks());
        self.payloads.clear();
    }

    /// Takes a block of a peer.
    pub(super) fn insert(&mut self, peer: usize, vector: &[u8], payload: &[u8]) -> Verdict {
        if vector.len() != self.blocks() || payload.len() != self.block_bytes {
            return Verdict::Forged;
        }
        match &self.trust {
            Trust::Checked(checks) if checks.missing().is_none() => {
                if !checks.verify(vector, payload) {
                    return Verdict::Forged;
                }
            }
            Trust::Alone(Some(alone)) if *alone == peer => {}
            _ => return Verdict::Ignored,
        }
        match self.elimination.insert(vector) {
            Outcome::Innovative { .. } => {
                self.payloads.extend_from_slice(payload);
                Verdict::Innovative
            }
            Outcome::Redundant => Verdict::Redundant,
        }
    }

    /// The blocks end to end. `None` below full rank.
    pub(super) fn decode(&self) -> Option<Vec<u8>> {
        if !self.elimination.is_complete() {
            return None;
        }
        let blocks = self.blocks();
        let mut factors = vec![0; blocks * blocks];
        for (symbol, row) in factors.chunks_exact_mut(blocks).enumerate() {
            self.elimination.solution(symbol, row)?;
        }
        let mut decoded = vec![0; blocks * self.block_bytes];
        let mut rows: Vec<&mut [u8]> = decoded.chunks_exact_mut(self.block_bytes).collect();
        let sources = slices(&self.payloads, self.block_bytes);
        Kernel::best().matmul(&factors, &sources[..blocks], &mut rows);
        Some(decoded)
    }
}
