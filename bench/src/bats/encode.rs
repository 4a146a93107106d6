//! Encoding: one batch of a block after another, each formed from scratch.

use std::hint::black_box;

use recoded_code::bats::{Batch, Code};
use recoded_gf::Kernel;

use crate::bats::block::{Block, wrong};
use crate::error::BenchError;
use crate::kernels::contest::{Contestant, LeftOut, Role};
use crate::kernels::memory::Layout;
use crate::kernels::rivals::raptorq as rival;

/// This project's encoder. Coded symbols go to the frames of four batches in turn. Symbols of a
/// precode are computed beforehand, once for all batches of a block.
///
/// # Errors
/// [`BenchError::Wrong`] if a batch does not match its generator.
pub fn contestant(code: Code, block: &Block) -> Result<Contestant, BenchError> {
    let symbols = block.intermediate(&code);
    let (size, bytes) = (block.shape.batch_size, block.shape.bytes);
    let kernel = Kernel::best();
    let mut batch = Batch::new();
    let mut frames: Vec<Vec<&'static mut [u8]>> =
        (0..FRAMES).map(|_| Layout::packed(size, bytes).zeros()).collect();
    let encode = move |id: u16, batch: &mut Batch, coded: &mut [&'static mut [u8]]| {
        code.batch(id, batch);
        let sources: Vec<&[u8]> =
            batch.indices().iter().map(|&index| symbols[usize::from(index)]).collect();
        kernel.matmul(batch.generator(), &sources, coded);
        sources
    };
    for id in [0, 1, 9, 1000] {
        let sources = encode(id, &mut batch, &mut frames[0]);
        check(&batch, &sources, &frames[0])?;
    }
    let gigabits = (size * bytes * 8) as f64 / 1e9;
    let mut id = 0_u16;
    Ok(Contestant::new(Role::Ours, "ours", gigabits, move || {
        id = id.wrapping_add(1);
        let coded = &mut frames[usize::from(id) % FRAMES];
        black_box(encode(id, &mut batch, coded));
    }))
}

/// Repair symbols of RaptorQ: as many as the coded symbols that a block needs without loss.
pub fn raptorq(block: &Block) -> Result<Contestant, LeftOut> {
    rival::encode_repair(&block.sources, block.sources.len())
}

/// Compares a batch with products of the naive kernel.
fn check(batch: &Batch, sources: &[&[u8]], coded: &[&'static mut [u8]]) -> Result<(), BenchError> {
    let naive = Kernel::by_name("naive").unwrap_or_else(Kernel::best);
    for (row, coded) in batch.generator().chunks(batch.degree()).zip(coded) {
        let mut expected = vec![0; coded.len()];
        for (&coefficient, source) in row.iter().zip(sources) {
            naive.madd(&mut expected, coefficient, source);
        }
        if expected != **coded {
            let (n, bytes) = (batch.degree(), coded.len());
            return Err(wrong("batch", n, bytes));
        }
    }
    Ok(())
}

/// Batches whose coded symbols have frames.
const FRAMES: usize = 4;
