//! The library's decoder.

use std::hint::black_box;

use recoded_code::rlnc::{Coding, Decoder, Error};
use recoded_gf::Kernel;

use crate::decode::wrong;
use crate::error::BenchError;
use crate::kernels::contest::{Contestant, Role};
use crate::kernels::rows::Decoding;

/// Elimination packet by packet, then all symbols at once.
///
/// # Errors
/// [`BenchError::Wrong`] if the result differs from the sources.
pub fn library(job: &Decoding) -> Result<Contestant, BenchError> {
    let (n, bytes) = (job.n(), job.bytes());
    let mut decoder = Decoder::new(n).map_err(|_| wrong("library", n, bytes))?;
    let (matrix, received) = (job.matrix.clone(), job.received.clone());
    let all: Vec<usize> = (0..n).collect();
    let mut decode = move |destinations: &mut Vec<&'static mut [u8]>| -> Result<(), Error> {
        decoder.reset(n)?;
        for vector in matrix.chunks(n) {
            black_box(decoder.insert(Coding::Vector(vector))?);
        }
        decoder.restore(&all, &received, destinations)
    };
    let mut destinations = job.destinations();
    let outcome = decode(&mut destinations);
    let is_right = job.sources.iter().zip(&destinations).all(|(source, made)| source == made);
    if outcome.is_err() || !is_right {
        return Err(wrong("library", n, bytes));
    }
    let job_done = move || {
        // The result was checked before, and the input is the same.
        let _ = black_box(decode(&mut destinations));
    };
    Ok(Contestant::new(Role::Ours, Kernel::best().name(), job.gigabits(), job_done))
}
