//! Crate `reed-solomon-simd` as a rival: repair symbols by a transform, in GF(2^16). Cheaper than
//! dense coding from about 32 symbols on. Its coefficients are fixed, and it cannot be recoded.

use std::hint::black_box;

use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use crate::kernels::contest::{Contestant, LeftOut, Role};
use crate::kernels::rivals::{Description, describe_crate};
use crate::kernels::rows::{Decoding, Workload};

/// Display name.
pub const NAME: &str = "reed-solomon-simd";

/// Describes the library.
pub fn describe() -> Description {
    describe_crate(NAME, "picks its level by itself")
}

/// As many repair symbols as there are sources.
pub fn encode(job: &Workload) -> Result<Contestant, LeftOut> {
    let repair = repair(&job.sources)?;
    if recover(&job.sources, &repair)? != job.sources {
        return Err(LeftOut::wrong(NAME, job.sources.len(), job.bytes));
    }
    let n = job.sources.len();
    let mut encoder = ReedSolomonEncoder::new(n, n, job.bytes).map_err(refused)?;
    let sources = job.sources.clone();
    Ok(Contestant::new(Role::Structured, NAME, job.gigabits(), move || {
        for source in &sources {
            let _ = encoder.add_original_shard(source);
        }
        let _ = black_box(encoder.encode());
    }))
}

/// All sources from as many repair symbols.
pub fn decode(job: &Decoding) -> Result<Contestant, LeftOut> {
    let (n, bytes) = (job.n(), job.bytes());
    let repair = repair(&job.sources)?;
    if recover(&job.sources, &repair)? != job.sources {
        return Err(LeftOut::wrong(NAME, n, bytes));
    }
    let mut decoder = ReedSolomonDecoder::new(n, n, bytes).map_err(refused)?;
    Ok(Contestant::new(Role::Structured, NAME, job.gigabits(), move || {
        for (index, symbol) in repair.iter().enumerate() {
            let _ = decoder.add_recovery_shard(index, symbol);
        }
        let _ = black_box(decoder.decode());
    }))
}

fn repair(sources: &[&[u8]]) -> Result<Vec<Vec<u8>>, LeftOut> {
    reed_solomon_simd::encode(sources.len(), sources.len(), sources).map_err(refused)
}

fn recover(sources: &[&[u8]], repair: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, LeftOut> {
    let n = sources.len();
    let repair = repair.iter().enumerate();
    let none: [(usize, &[u8]); 0] = [];
    let found = reed_solomon_simd::decode(n, n, none, repair).map_err(refused)?;
    Ok((0..n).filter_map(|index| found.get(&index).cloned()).collect())
}

fn refused(error: reed_solomon_simd::Error) -> LeftOut {
    LeftOut::refused(NAME, error)
}
