//! ISA-L as a rival. It multiplies by given coefficients, so its results must equal this project's.

use std::hint::black_box;

use bench_native::{Encode, Isal};

use crate::kernels::contest::{Contestant, LeftOut, Role};
use crate::kernels::memory::Layout;
use crate::kernels::rivals::{Description, file_name};
use crate::kernels::rows::{Decoding, Workload};

/// The library for as long as the program runs.
#[derive(Copy, Clone)]
pub struct Library {
    isal: &'static Isal,
    name: &'static str,
}

impl Library {
    /// Keeps it open.
    pub fn new(isal: Isal) -> Library {
        let file = file_name(&isal.path);
        let version =
            file.as_deref().and_then(|file| file.split_once(".so.")).map(|(_, rest)| rest);
        // libisal.so.2.0.30 is version 2.30: two, the interface, the release.
        let version = match version.map(|version| version.split('.').collect::<Vec<_>>()) {
            Some(parts) if parts.len() == 3 => format!("{}.{}", parts[0], parts[2]),
            _ => "of an unknown version".into(),
        };
        let name = Box::leak(format!("ISA-L {version}").into_boxed_str());
        Library { isal: Box::leak(Box::new(isal)), name }
    }

    /// Describes the library.
    pub fn describe(self) -> Description {
        let uses = if self.isal.has_gfni { "with GFNI" } else { "without GFNI" };
        Description {
            name: self.name.into(),
            file: file_name(&self.isal.path),
            uses: uses.into(),
            absent: None,
        }
    }

    /// `destination += c * source`.
    pub fn madd(self, job: &Workload) -> Result<Contestant, LeftOut> {
        let source = job.sources[0];
        let destination = Layout::packed(1, job.bytes).zeros().remove(0);
        let mut tables = self.isal.tables(job.coefficients(), 1, 1);
        self.isal.madd(&mut tables, destination, source);
        if destination != job.expected[0] {
            return Err(LeftOut::wrong(self.name, 1, job.bytes));
        }
        let amount = job.bytes as f64 / 1e9;
        Ok(Contestant::new(Role::Rival, self.name, amount, move || {
            self.isal.madd(&mut tables, destination, source);
        }))
    }

    /// Coefficients times symbols, with the coefficients expanded once: the best case for it.
    pub fn multiply(self, job: &Workload) -> Result<Contestant, LeftOut> {
        let mut slices = self.check(job)?;
        let mut tables = self.isal.tables(job.coefficients(), job.sources.len(), job.rows);
        Ok(Contestant::new(Role::Rival, self.name, job.gigabits(), move || {
            self.isal.encode(&mut tables, &mut slices);
        }))
    }

    /// The same, with coefficients expanded each time, as fresh random ones have to be.
    pub fn multiply_fresh(self, job: &Workload) -> Result<Contestant, LeftOut> {
        let mut slices = self.check(job)?;
        let coefficients = job.coefficients().to_vec();
        let mut tables = self.isal.tables(&coefficients, job.sources.len(), job.rows);
        let name = format!("{}, tables included", self.name);
        Ok(Contestant::new(Role::Rival, name, job.gigabits(), move || {
            self.isal.expand(&coefficients, &mut tables);
            self.isal.encode(&mut tables, &mut slices);
        }))
    }

    /// Slices whose product was checked once.
    fn check(self, job: &Workload) -> Result<Encode<'static>, LeftOut> {
        let mut slices = Encode::new(&job.sources, job.destinations());
        let mut tables = self.isal.tables(job.coefficients(), job.sources.len(), job.rows);
        self.isal.encode(&mut tables, &mut slices);
        let right = job
            .expected
            .iter()
            .enumerate()
            .all(|(row, expected)| slices.destination(row) == expected.as_slice());
        if right { Ok(slices) } else { Err(LeftOut::wrong(self.name, job.rows, job.bytes)) }
    }

    /// Inversion, tables, product.
    pub fn decode(self, job: &Decoding) -> Result<Contestant, LeftOut> {
        let n = job.n();
        let (matrix, mut scratch) = (job.matrix.clone(), vec![0; n * n]);
        let mut inverse = vec![0; n * n];
        let mut tables = self.isal.tables(&inverse, n, n);
        let mut slices = Encode::new(&job.received, job.destinations());
        let mut decode = move |slices: &mut Encode<'static>| {
            scratch.copy_from_slice(&matrix);
            black_box(self.isal.invert(&mut scratch, &mut inverse, n));
            self.isal.expand(&inverse, &mut tables);
            self.isal.encode(&mut tables, slices);
        };
        decode(&mut slices);
        if !(0..n).all(|row| slices.destination(row) == job.sources[row]) {
            return Err(LeftOut::wrong(self.name, n, job.bytes()));
        }
        Ok(Contestant::new(Role::Rival, self.name, job.gigabits(), move || decode(&mut slices)))
    }

    /// Inversion only; `inverse` is the expected result.
    pub fn invert(self, matrix: &[u8], inverse: &[u8], n: usize) -> Result<Contestant, LeftOut> {
        let (matrix, mut scratch) = (matrix.to_vec(), matrix.to_vec());
        let mut result = vec![0; n * n];
        if !self.isal.invert(&mut scratch, &mut result, n) || result != inverse {
            return Err(LeftOut::wrong(self.name, n, 0));
        }
        Ok(Contestant::new(Role::Rival, self.name, 1.0, move || {
            scratch.copy_from_slice(&matrix);
            black_box(self.isal.invert(&mut scratch, &mut result, n));
        }))
    }
}
