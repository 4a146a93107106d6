//! The rows, and the contestants in each.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use recoded_gf::{Field, Kernel};

use crate::error::BenchError;
use crate::kernels::anchors::{self, PAPER_BYTES, PAPER_FIELDS};
use crate::kernels::contest::{Contest, Contestant, GBIT, GBYTE, INVERSIONS};
use crate::kernels::limits::Ceiling;
use crate::kernels::memory::Layout;
use crate::kernels::rivals::{Rivals, gf_complete, raptorq, reed_solomon, rlnc, rlnc_simdx};
use crate::kernels::rows::decoding::{Decoding, invert};
use crate::kernels::rows::{Section, Workload};

/// Properties common to all rows.
pub struct Setting {
    /// The others.
    pub rivals: Rivals,
    /// The core's rate of products.
    pub products: Ceiling,
    /// The core's rate of stores.
    pub store: Ceiling,
    /// The level that is used where none is named.
    pub best: &'static Kernel,
    /// Seed of symbols and coefficients.
    pub seed: u64,
}

/// Builds the rows of a section and checks what they compute.
///
/// # Errors
/// [`BenchError::Wrong`] if a level's result differs from the naive kernel's.
pub fn build(section: Section, setting: &Setting) -> Result<Vec<Contest>, BenchError> {
    let mut random = SmallRng::seed_from_u64(setting.seed);
    let random = &mut random;
    match section {
        Section::Madd => MADD_BYTES.iter().map(|k| madd(setting, *k, random)).collect(),
        Section::Paper => {
            let fields = PAPER_FIELDS.iter();
            let jobs = fields.flat_map(|field| PAPER_BYTES.iter().map(move |k| (*field, *k)));
            jobs.map(|(field, k)| paper(setting, field, k, random)).collect()
        }
        Section::Forced => forced(setting, random),
        Section::Encode => {
            let sizes = ENCODE_N.iter().flat_map(|n| ENCODE_BYTES.iter().map(move |k| (*n, *k)));
            sizes.map(|(n, k)| encode(setting, n, k, random)).collect()
        }
        Section::Lengths => LENGTHS.iter().map(|k| length(setting, *k, random)).collect(),
        Section::Umem => {
            let strides = [("frames of 2048 bytes", 2048), ("frames of 4096 bytes", 4096)];
            let jobs = strides.into_iter().flat_map(|stride| [16, 32].map(|n| (stride, n)));
            jobs.map(|((name, stride), n)| umem(setting, name, stride, n, random)).collect()
        }
        Section::Binary => {
            [16, 32, 64, 128].map(|n| binary(setting, n, random)).into_iter().collect()
        }
        Section::Levels => Ok(vec![levels(setting, random)?]),
        Section::Decode => DECODE.iter().map(|(n, k)| decode(setting, *n, *k, random)).collect(),
        Section::Recode => [("recode", false), ("recode, vectors in front of symbols", true)]
            .map(|(name, adjoining)| recode(setting, name, adjoining, random))
            .into_iter()
            .collect(),
        Section::Invert => {
            [16, 32, 64, 128, 256].map(|n| inversion(setting, n, random)).into_iter().collect()
        }
    }
}

fn madd(setting: &Setting, k: usize, random: &mut SmallRng) -> Result<Contest, BenchError> {
    let field = Field::Gf256x11D;
    let job = Workload::draw(field, field.order(), Layout::packed(1, k), 1, random);
    let mut row = row(Section::Madd, "madd", field, 1, k, GBYTE);
    row.contestants.push(job.ours_madd(setting.best)?);
    for isal in &setting.rivals.isal {
        row.challenge(isal.madd(&job));
    }
    if setting.rivals.has_gf_complete {
        row.challenge(gf_complete::madd(&job));
    }
    row.challenge(rlnc_simdx::madd(&job));
    row.contestants.push(setting.store.contestant(k, 1.0));
    Ok(row)
}

/// 16 packets into one, by every level.
fn paper(
    setting: &Setting,
    field: Field,
    k: usize,
    random: &mut SmallRng,
) -> Result<Contest, BenchError> {
    let job = Workload::draw(field, field.order(), Layout::packed(PAPER_N, k), 1, random);
    let mut row = row(Section::Paper, "16 packets into one", field, PAPER_N, k, GBIT);
    row.anchor = anchors::library(field, k);
    for kernel in levels_over(field) {
        row.contestants.push(job.ours(kernel)?);
    }
    if field.order() == 256 {
        row.challenge(rlnc_simdx::encode(&job));
    }
    row.contestants.push(products(setting, PAPER_N, k));
    Ok(row)
}

/// Levels of this build over a field. The method of the four Russians exists only for GF(2); for
/// other fields that name selects the fastest other level.
fn levels_over(field: Field) -> impl Iterator<Item = &'static Kernel> {
    let serves = move |kernel: &&Kernel| field.order() == 2 || kernel.name() != "four-russians";
    Kernel::all_available().filter(serves).filter_map(move |kernel| kernel.over(field))
}

/// A multiply-add at the levels of the paper's library that this processor supports.
fn forced(setting: &Setting, random: &mut SmallRng) -> Result<Vec<Contest>, BenchError> {
    let field = Field::Gf256x11B;
    let mut rows = Vec::new();
    for (level, k, anchor) in anchors::forced_madd() {
        let Some(kernel) = Kernel::by_name(level).and_then(|kernel| kernel.over(field)) else {
            continue;
        };
        let job = Workload::draw(field, field.order(), Layout::packed(1, k), 1, random);
        let mut row = row(Section::Forced, "madd", field, 1, k, GBYTE);
        row.anchor = Some(anchor);
        row.contestants.push(job.ours_madd(kernel)?);
        row.contestants.push(setting.store.contestant(k, 1.0));
        rows.push(row);
    }
    Ok(rows)
}

fn encode(
    setting: &Setting,
    n: usize,
    k: usize,
    random: &mut SmallRng,
) -> Result<Contest, BenchError> {
    let field = Field::Gf256x11D;
    let job = Workload::draw(field, field.order(), Layout::packed(n, k), n, random);
    let mut row = row(Section::Encode, "encode", field, n, k, GBIT);
    row.contestants.push(job.ours(setting.best)?);
    multiply_rivals(setting, &job, &mut row);
    row.challenge(rlnc::encode(&job));
    row.challenge(rlnc_simdx::encode(&job));
    row.challenge(reed_solomon::encode(&job));
    row.challenge(raptorq::encode(&job));
    row.contestants.push(products(setting, n, k));
    Ok(row)
}

fn length(setting: &Setting, k: usize, random: &mut SmallRng) -> Result<Contest, BenchError> {
    let field = Field::Gf256x11D;
    let job = Workload::draw(field, field.order(), Layout::packed(16, k), 16, random);
    let mut row = row(Section::Lengths, "encode", field, 16, k, GBIT);
    row.contestants.push(job.ours(setting.best)?);
    for isal in &setting.rivals.isal {
        row.challenge(isal.multiply(&job));
        row.challenge(isal.multiply_fresh(&job));
    }
    row.contestants.push(products(setting, 16, k));
    Ok(row)
}

fn umem(
    setting: &Setting,
    name: &'static str,
    stride: usize,
    n: usize,
    random: &mut SmallRng,
) -> Result<Contest, BenchError> {
    let field = Field::Gf256x11D;
    let layout = Layout { count: n, bytes: MTU, stride };
    let job = Workload::draw(field, field.order(), layout, n, random);
    let mut row = row(Section::Umem, name, field, n, MTU, GBIT);
    row.contestants.push(job.ours(setting.best)?);
    multiply_rivals(setting, &job, &mut row);
    row.contestants.push(products(setting, n, MTU));
    Ok(row)
}

/// Coefficients 0 and 1 over bytes: GF(2) as a subfield.
fn binary(setting: &Setting, n: usize, random: &mut SmallRng) -> Result<Contest, BenchError> {
    let field = Field::Gf256x11D;
    let job = Workload::draw(field, 2, Layout::packed(n, MTU), n, random);
    let mut row = row(Section::Binary, "encode, coefficients 0 and 1", field, n, MTU, GBIT);
    row.contestants.push(job.ours(setting.best)?);
    multiply_rivals(setting, &job, &mut row);
    row.contestants.push(products(setting, n, MTU));
    Ok(row)
}

fn levels(setting: &Setting, random: &mut SmallRng) -> Result<Contest, BenchError> {
    let field = Field::Gf256x11D;
    let job = Workload::draw(field, field.order(), Layout::packed(16, MTU), 16, random);
    let mut row = row(Section::Levels, "encode", field, 16, MTU, GBIT);
    for kernel in levels_over(field) {
        row.contestants.push(job.ours(kernel)?);
    }
    multiply_rivals(setting, &job, &mut row);
    row.contestants.push(products(setting, 16, MTU));
    Ok(row)
}

/// Rivals that multiply by given coefficients.
fn multiply_rivals(setting: &Setting, job: &Workload, row: &mut Contest) {
    for isal in &setting.rivals.isal {
        row.challenge(isal.multiply(job));
        row.challenge(isal.multiply_fresh(job));
    }
    if setting.rivals.has_gf_complete {
        row.challenge(gf_complete::multiply(job));
    }
}

fn decode(
    setting: &Setting,
    n: usize,
    k: usize,
    random: &mut SmallRng,
) -> Result<Contest, BenchError> {
    let job = Decoding::draw(n, k, random);
    let mut row = row(Section::Decode, "decode", Field::Gf256x11D, n, k, GBIT);
    row.contestants.push(job.ours(setting.best)?);
    for isal in &setting.rivals.isal {
        row.challenge(isal.decode(&job));
    }
    row.challenge(rlnc::decode(&job));
    row.challenge(rlnc_simdx::decode(&job));
    row.challenge(reed_solomon::decode(&job));
    row.challenge(raptorq::decode(&job));
    row.contestants.push(products(setting, n, k));
    Ok(row)
}

fn recode(
    setting: &Setting,
    name: &'static str,
    adjoining: bool,
    random: &mut SmallRng,
) -> Result<Contest, BenchError> {
    let job = Decoding::draw(16, MTU, random);
    let mut row = row(Section::Recode, name, Field::Gf256x11D, 16, MTU, GBIT);
    row.contestants.push(job.ours_recode(setting.best, adjoining, random)?);
    row.challenge(rlnc::recode(&job));
    row.challenge(rlnc_simdx::recode(&job));
    row.contestants.push(products(setting, 16, MTU));
    Ok(row)
}

fn inversion(setting: &Setting, n: usize, random: &mut SmallRng) -> Result<Contest, BenchError> {
    let (ours, matrix, inverse) = invert(setting.best, n, random)?;
    let mut row = row(Section::Invert, "invert", Field::Gf256x11D, n, 0, INVERSIONS);
    row.contestants.push(ours);
    for isal in &setting.rivals.isal {
        row.challenge(isal.invert(&matrix, &inverse, n));
    }
    // n rows of n bytes, once per column.
    let rate = 1e9 / (n * n * n) as f64;
    row.contestants.push(setting.products.contestant(n, rate));
    Ok(row)
}

/// The limit of combinations of `n` symbols of `k` bytes: a product per byte of each.
fn products(setting: &Setting, n: usize, k: usize) -> Contestant {
    setting.products.contestant(k, 8.0 / n as f64)
}

fn row(
    section: Section,
    name: &'static str,
    field: Field,
    n: usize,
    k: usize,
    unit: &'static str,
) -> Contest {
    let field = field.to_string();
    let (contestants, left_out) = (Vec::new(), Vec::new());
    Contest { section, name, field, n, k, unit, anchor: None, contestants, left_out }
}

/// Payload of an Ethernet packet.
const MTU: usize = 1500;
/// Packets that the paper combines.
const PAPER_N: usize = 16;
const MADD_BYTES: [usize; 11] = [64, 128, 256, 512, 1024, 1428, 1500, 1536, 2048, 4096, 9000];
const ENCODE_N: [usize; 4] = [16, 32, 64, 128];
const ENCODE_BYTES: [usize; 4] = [1024, 1428, 1500, 4096];
const DECODE: [(usize, usize); 6] =
    [(16, 1500), (32, 1500), (64, 1500), (128, 1500), (16, 4096), (128, 4096)];
/// Less than one vector, one vector and neighbouring lengths, round numbers, packet sizes, powers
/// of two and neighbouring lengths: each is odd for one kernel or another.
const LENGTHS: [usize; 41] = [
    61, 64, 65, 96, 100, 127, 128, 129, 192, 200, 256, 257, 300, 384, 500, 512, 576, 640, 700, 768,
    1000, 1024, 1100, 1280, 1400, 1428, 1472, 1500, 1514, 1536, 2000, 2048, 2049, 3000, 4000, 4096,
    5000, 6000, 8192, 8999, 9000,
];
