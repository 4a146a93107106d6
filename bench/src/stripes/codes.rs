//! The contenders: Reed-Solomon codes that programs may choose from.

use std::path::Path;

use bench_native::{Encode, Isal, Jerasure, Tables, VandermondeCode};
use recoded_code::reed_solomon::ReedSolomon;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use crate::kernels::rivals::{Description, absent, describe_crate, file_name};
use crate::stripes::bed::{Shape, Stripe};

/// Lost data buffers, and the parity buffers that replace them, as many.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Losses {
    /// Ids of data buffers, ascending.
    pub data: Vec<usize>,
    /// Rows of parity, ascending.
    pub parity: Vec<usize>,
}

/// A code k + m, ready for stripes.
pub trait StripeCode {
    /// Computes the parity buffers of a stripe.
    ///
    /// # Errors
    /// The library's reason.
    fn generate(&mut self, stripe: Stripe<'_>) -> Result<(), String>;

    /// Computes lost data buffers into `recovered` from the other data buffers and the parity
    /// buffers that `losses` names.
    ///
    /// # Errors
    /// The library's reason.
    fn recover(&mut self, stripe: Stripe<'_>, losses: &Losses) -> Result<(), String>;
}

/// A code and the name of its library.
pub type NamedCode = (&'static str, Box<dyn StripeCode>);

/// Names in results. Versions are in the descriptions.
pub const OURS: &str = "Recoded";
pub const ISAL: &str = "ISA-L";
pub const JERASURE: &str = "Jerasure";
pub const SIMD: &str = "reed-solomon-simd";

/// The installed libraries.
pub struct Libraries {
    isal: Option<&'static Isal>,
    has_jerasure: bool,
    /// All of them, also those that are absent.
    pub described: Vec<Description>,
}

impl Libraries {
    /// Opens them; `isal` is the path of another ISA-L than the installed one.
    pub fn open(isal: Option<&Path>) -> Libraries {
        let mut described = Vec::new();
        let found = match Isal::load(isal) {
            Ok(library) => {
                let uses = if library.has_gfni { "with GFNI" } else { "without GFNI" };
                described.push(description(ISAL, &library.path, uses));
                Some(&*Box::leak(Box::new(library)))
            }
            Err(error) => {
                described.push(absent(ISAL, &error));
                None
            }
        };
        let jerasure = Jerasure::load();
        described.push(match &jerasure {
            Ok(library) => description(JERASURE, &library.path, "Vandermonde matrix, GF(256)"),
            Err(error) => absent(JERASURE, error),
        });
        described.push(describe_crate(SIMD, "GF(2^16) by transforms; picks its level by itself"));
        Libraries { isal: found, has_jerasure: jerasure.is_ok(), described }
    }

    /// Codes of a shape by all libraries that have one, Recoded's first.
    ///
    /// # Errors
    /// A library refuses the shape.
    pub fn codes(&self, shape: Shape) -> Result<Vec<NamedCode>, String> {
        let mut codes: Vec<NamedCode> = Vec::new();
        codes.push((OURS, Box::new(Ours(ours(shape)?))));
        if let Some(isal) = self.isal {
            codes.push((ISAL, Box::new(IsalCode::new(isal, shape)?)));
        }
        if self.has_jerasure {
            codes.push((JERASURE, Box::new(JerasureCode::new(shape)?)));
        }
        codes.push((SIMD, Box::new(SimdCode::new(shape)?)));
        Ok(codes)
    }
}

fn description(name: &str, path: &Path, uses: &str) -> Description {
    Description { name: name.into(), file: file_name(path), uses: uses.into(), absent: None }
}

fn ours(shape: Shape) -> Result<ReedSolomon, String> {
    ReedSolomon::new(shape.data, shape.parity).map_err(text)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Data buffers that are not lost, and then the parity buffers of `losses`.
fn intact<'a>(
    data: &[&'a [u8]],
    parity: &'a [&mut [u8]],
    losses: &Losses,
) -> (Vec<usize>, Vec<&'a [u8]>) {
    let left = (0..data.len()).filter(|id| !losses.data.contains(id));
    let rows = losses.parity.iter().map(|row| (data.len() + row, &*parity[*row]));
    left.map(|id| (id, data[id])).chain(rows).unzip()
}

/// The buffers at these ids, ascending.
fn chosen<'a>(buffers: Vec<&'a mut [u8]>, ids: &[usize]) -> Vec<&'a mut [u8]> {
    let numbered = buffers.into_iter().enumerate();
    numbered.filter(|(id, _)| ids.contains(id)).map(|(_, buffer)| buffer).collect()
}

struct Ours(ReedSolomon);

impl StripeCode for Ours {
    fn generate(&mut self, mut stripe: Stripe<'_>) -> Result<(), String> {
        self.0.generate(&stripe.data, &mut stripe.parity).map_err(text)
    }

    fn recover(&mut self, stripe: Stripe<'_>, losses: &Losses) -> Result<(), String> {
        let Stripe { data, parity, recovered } = stripe;
        let (mut ids, sources) = intact(&data, &parity, losses);
        ids.extend(&losses.data);
        self.0.recover(&ids, &sources, &mut chosen(recovered, &losses.data)).map_err(text)
    }
}

/// ISA-L with the coefficients of Recoded's code, whose parity is then the same.
struct IsalCode {
    isal: &'static Isal,
    data: usize,
    generator: Vec<u8>,
    tables: Tables,
}

impl IsalCode {
    fn new(isal: &'static Isal, shape: Shape) -> Result<Self, String> {
        let generator = ours(shape)?.generator().to_vec();
        let tables = isal.tables(&generator, shape.data, shape.parity);
        Ok(Self { isal, data: shape.data, generator, tables })
    }

    /// A row of the identity or of the generator.
    fn row(&self, id: usize) -> Vec<u8> {
        match id.checked_sub(self.data) {
            Some(parity) => self.generator[parity * self.data..][..self.data].to_vec(),
            None => (0..self.data).map(|column| u8::from(column == id)).collect(),
        }
    }
}

impl StripeCode for IsalCode {
    fn generate(&mut self, stripe: Stripe<'_>) -> Result<(), String> {
        let Stripe { data, parity, .. } = stripe;
        self.isal.encode(&mut self.tables, &mut Encode::new(&data, parity));
        Ok(())
    }

    fn recover(&mut self, stripe: Stripe<'_>, losses: &Losses) -> Result<(), String> {
        let Stripe { data, parity, recovered } = stripe;
        let (ids, sources) = intact(&data, &parity, losses);
        let k = self.data;
        let mut rows: Vec<u8> = ids.iter().flat_map(|id| self.row(*id)).collect();
        let mut inverse = vec![0; k * k];
        if !self.isal.invert(&mut rows, &mut inverse, k) {
            return Err("the matrix is singular".into());
        }
        let wanted = losses.data.iter().flat_map(|id| &inverse[id * k..][..k]);
        let wanted: Vec<u8> = wanted.copied().collect();
        let mut tables = self.isal.tables(&wanted, k, losses.data.len());
        let targets = chosen(recovered, &losses.data);
        self.isal.encode(&mut tables, &mut Encode::new(&sources, targets));
        Ok(())
    }
}

struct JerasureCode {
    library: Jerasure,
    code: VandermondeCode,
}

impl JerasureCode {
    fn new(shape: Shape) -> Result<Self, String> {
        let mut library = Jerasure::load().map_err(text)?;
        let code = library.code(shape.data, shape.parity).ok_or("there is no such code")?;
        Ok(Self { library, code })
    }
}

impl StripeCode for JerasureCode {
    fn generate(&mut self, mut stripe: Stripe<'_>) -> Result<(), String> {
        self.library.encode(&self.code, &stripe.data, &mut stripe.parity);
        Ok(())
    }

    /// The library takes all buffers for writing and writes erased ones only. `recovered` has
    /// copies of the others.
    fn recover(&mut self, stripe: Stripe<'_>, losses: &Losses) -> Result<(), String> {
        let Stripe { data, mut parity, mut recovered } = stripe;
        let unused = (0..parity.len()).filter(|row| !losses.parity.contains(row));
        let mut erased = losses.data.clone();
        // Those behind the last one in use are never read, and need not be computed.
        let last = losses.parity.last().copied().unwrap_or_default();
        erased.extend(unused.filter(|row| *row < last).map(|row| data.len() + row));
        match self.library.recover(&self.code, &erased, &mut recovered, &mut parity) {
            true => Ok(()),
            false => Err("the library cannot recover it".into()),
        }
    }
}

struct SimdCode {
    shape: Shape,
    encoder: ReedSolomonEncoder,
    decoder: ReedSolomonDecoder,
}

impl SimdCode {
    fn new(shape: Shape) -> Result<Self, String> {
        let Shape { data, parity, bytes, .. } = shape;
        let encoder = ReedSolomonEncoder::new(data, parity, bytes).map_err(text)?;
        let decoder = ReedSolomonDecoder::new(data, parity, bytes).map_err(text)?;
        Ok(Self { shape, encoder, decoder })
    }
}

impl StripeCode for SimdCode {
    /// The library has memory of its own: its interface copies buffers in, and results out.
    fn generate(&mut self, stripe: Stripe<'_>) -> Result<(), String> {
        for data in &stripe.data {
            self.encoder.add_original_shard(data).map_err(text)?;
        }
        let made = self.encoder.encode().map_err(text)?;
        for (target, made) in stripe.parity.into_iter().zip(made.recovery_iter()) {
            target.copy_from_slice(made);
        }
        Ok(())
    }

    fn recover(&mut self, stripe: Stripe<'_>, losses: &Losses) -> Result<(), String> {
        let Stripe { data, parity, recovered } = stripe;
        let (ids, sources) = intact(&data, &parity, losses);
        for (id, source) in ids.into_iter().zip(sources) {
            match id.checked_sub(self.shape.data) {
                Some(row) => self.decoder.add_recovery_shard(row, source).map_err(text)?,
                None => self.decoder.add_original_shard(id, source).map_err(text)?,
            }
        }
        let made = self.decoder.decode().map_err(text)?;
        for (id, target) in losses.data.iter().zip(chosen(recovered, &losses.data)) {
            target.copy_from_slice(made.restored_original(*id).ok_or("a buffer is missing")?);
        }
        Ok(())
    }
}
