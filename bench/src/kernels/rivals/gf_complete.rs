//! GF-Complete as a rival: one region at a time, as it is designed for.

use bench_native::GfComplete;

use crate::kernels::contest::{Contestant, LeftOut, Role};
use crate::kernels::memory::Layout;
use crate::kernels::rivals::{Description, file_name};
use crate::kernels::rows::Workload;

/// Display name.
pub const NAME: &str = "GF-Complete";

/// Describes the library.
pub fn describe(library: &GfComplete) -> Description {
    Description {
        name: NAME.into(),
        file: file_name(&library.path),
        uses: "as Debian builds it".into(),
        absent: None,
    }
}

fn load() -> Result<GfComplete, LeftOut> {
    GfComplete::load().map_err(|error| LeftOut::refused(NAME, error))
}

/// `destination += c * source`.
pub fn madd(job: &Workload) -> Result<Contestant, LeftOut> {
    let mut library = load()?;
    let (source, c) = (job.sources[0], job.coefficients()[0]);
    let destination = Layout::packed(1, job.bytes).zeros().remove(0);
    library.madd(destination, c, source);
    if destination != job.expected[0] {
        return Err(LeftOut::wrong(NAME, 1, job.bytes));
    }
    let amount = job.bytes as f64 / 1e9;
    Ok(Contestant::new(Role::Rival, NAME, amount, move || library.madd(destination, c, source)))
}

/// Coefficients times symbols, product by product.
pub fn multiply(job: &Workload) -> Result<Contestant, LeftOut> {
    let mut library = load()?;
    let (sources, coefficients) = (job.sources.clone(), job.coefficients().to_vec());
    let mut multiply = move |destinations: &mut [&'static mut [u8]]| {
        for (destination, row) in destinations.iter_mut().zip(coefficients.chunks(sources.len())) {
            library.mul(destination, row[0], sources[0]);
            for (c, source) in row.iter().zip(&sources).skip(1) {
                library.madd(destination, *c, source);
            }
        }
    };
    let mut destinations = job.destinations();
    multiply(&mut destinations);
    if !job.is_right(&destinations) {
        return Err(LeftOut::wrong(NAME, job.rows, job.bytes));
    }
    Ok(Contestant::new(Role::Rival, NAME, job.gigabits(), move || multiply(&mut destinations)))
}
