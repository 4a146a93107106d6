//! All codes of the grid: checked, then measured in turns.

use std::cell::RefCell;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::kernels::contest::{Contestant, Role};
use crate::stripes::bed::{Bed, Shape};
use crate::stripes::codes::{Libraries, Losses, OURS, StripeCode};

/// Data and parity buffers of the grid: 2 to 16 each.
pub const BUFFERS: std::ops::RangeInclusive<usize> = 2..=16;

/// Bytes of large buffers, and of small ones in stripes one behind the other.
pub const LARGE_BYTES: usize = 1 << 20;
pub const SMALL_BYTES: usize = 32 << 10;

/// What is measured of a code.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// All parity buffers from the data.
    Encode,
    /// As many lost data buffers as the code can recover.
    Recover,
}

/// Length and number of samples.
#[derive(Copy, Clone, Debug)]
pub struct Effort {
    /// Samples of each contender.
    pub rounds: usize,
    /// Seconds of a sample at least.
    pub seconds: f64,
    /// Seed of the data.
    pub seed: u64,
}

/// Rates of one code and part.
#[derive(Debug, Serialize, Deserialize)]
pub struct Row {
    pub part: Part,
    /// Data buffers.
    pub k: usize,
    /// Parity buffers.
    pub m: usize,
    pub bytes: usize,
    pub stripes: usize,
    pub contenders: Vec<Measured>,
    /// Contenders whose result is wrong, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// A contender's rates, GB/s of data (parity not counted).
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    pub who: String,
    /// Median.
    pub rate: f64,
    /// Median of the ratios of Recoded's rate to this one, round by round.
    pub ours_to_it: f64,
    pub samples: Vec<f64>,
}

/// Recoded's rate with small buffers over that with large ones.
#[derive(Debug, Serialize, Deserialize)]
pub struct Small {
    pub part: Part,
    pub k: usize,
    pub m: usize,
    pub ratio: f64,
}

/// The rates of small buffers, where both sizes were measured.
pub fn small_over_large(rows: &[Row]) -> Vec<Small> {
    let rate = |row: &Row| row.contenders.first().map_or(f64::NAN, |ours| ours.rate);
    let small = rows.iter().filter(|row| row.bytes == SMALL_BYTES).filter_map(|small| {
        let Row { part, k, m, .. } = *small;
        let is_large =
            |row: &&Row| row.bytes == LARGE_BYTES && (row.part, row.k, row.m) == (part, k, m);
        let large = rows.iter().find(is_large)?;
        Some(Small { part, k, m, ratio: rounded(rate(small) / rate(large)) })
    });
    small.collect()
}

/// The shapes of a code: one stripe of large buffers, and as many bytes in small ones.
pub fn shapes(data: usize, parity: usize) -> [Shape; 2] {
    let stripes = LARGE_BYTES / SMALL_BYTES;
    [
        Shape { data, parity, bytes: LARGE_BYTES, stripes: 1 },
        Shape { data, parity, bytes: SMALL_BYTES, stripes },
    ]
}

/// Checks and measures both parts of a shape.
///
/// # Errors
/// A library refuses the shape.
pub fn measure(libraries: &Libraries, shape: Shape, effort: Effort) -> Result<[Row; 2], String> {
    let bed = Rc::new(RefCell::new(Bed::new(shape, effort.seed)));
    let mut left_out = Vec::new();
    let mut codes = Vec::new();
    for (who, mut code) in libraries.codes(shape)? {
        match check(code.as_mut(), &mut bed.borrow_mut()) {
            Ok(()) => codes.push((who, Rc::new(RefCell::new(code)))),
            Err(_) if who == OURS => return Err(format!("{shape:?}: Recoded's result is wrong")),
            Err(problem) => left_out.push(format!("{who}: {problem}")),
        }
    }
    Ok([Part::Encode, Part::Recover].map(|part| {
        let mut contestants: Vec<Contestant> =
            codes.iter().map(|(who, code)| contestant(part, who, code, &bed)).collect();
        let count = contestants.len();
        for round in 0..effort.rounds {
            (0..count).for_each(|turn| contestants[(turn + round) % count].sample(effort.seconds));
        }
        row(part, shape, &contestants, &left_out)
    }))
}

/// Contenders and parts share codes and buffers.
type Shared<T> = Rc<RefCell<T>>;

fn contestant(
    part: Part,
    who: &str,
    code: &Shared<Box<dyn StripeCode>>,
    bed: &Shared<Bed>,
) -> Contestant {
    let (bed, code) = (Rc::clone(bed), Rc::clone(code));
    let shape = bed.borrow().shape;
    let losses = most_losses(shape);
    let role = if who == OURS { Role::Ours } else { Role::Rival };
    Contestant::new(role, who, shape.data_bytes() as f64 / 1e9, move || {
        let mut code = code.borrow_mut();
        for stripe in bed.borrow_mut().stripes() {
            // It was checked. The parity may be another code's by now, which takes as long.
            let _ = match part {
                Part::Encode => code.generate(stripe),
                Part::Recover => code.recover(stripe, &losses),
            };
        }
    })
}

/// As many data buffers as possible, replaced by the first parity buffers.
fn most_losses(shape: Shape) -> Losses {
    let lost: Vec<usize> = (0..shape.data.min(shape.parity)).collect();
    Losses { data: lost.clone(), parity: lost }
}

/// Encodes all stripes; recovers the most losses; then recovers one data buffer by each parity
/// buffer alone. All bytes are compared.
///
/// # Errors
/// The library's reason, or the losses after which bytes differ.
fn check(code: &mut dyn StripeCode, bed: &mut Bed) -> Result<(), String> {
    bed.spoil_parity();
    bed.stripes().try_for_each(|stripe| code.generate(stripe))?;
    let Shape { data, parity, .. } = bed.shape;
    let by_one = |row| Losses { data: vec![row % data], parity: vec![row] };
    for losses in [most_losses(bed.shape)].into_iter().chain((0..parity).map(by_one)) {
        bed.spoil_data(&losses.data);
        bed.stripes().try_for_each(|stripe| code.recover(stripe, &losses))?;
        if !bed.is_recovered() {
            return Err(format!("wrong bytes for {losses:?}"));
        }
    }
    Ok(())
}

fn row(part: Part, shape: Shape, contestants: &[Contestant], left_out: &[String]) -> Row {
    let measured = |contestant: &Contestant| Measured {
        who: contestant.name.clone(),
        rate: rounded(contestant.median()),
        ours_to_it: rounded(contestants[0].ratio_to(contestant)),
        samples: contestant.rates.iter().map(|rate| rounded(*rate)).collect(),
    };
    Row {
        part,
        k: shape.data,
        m: shape.parity,
        bytes: shape.bytes,
        stripes: shape.stripes,
        contenders: contestants.iter().map(measured).collect(),
        left_out: left_out.to_vec(),
    }
}

/// Four digits or so: samples vary by more than a hundredth.
pub fn rounded(value: f64) -> f64 {
    let scale = if value < 10.0 { 1000.0 } else { 100.0 };
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A code whose parity buffers are all copies of the first data buffer.
    struct Copies;

    impl StripeCode for Copies {
        fn generate(&mut self, stripe: crate::stripes::bed::Stripe<'_>) -> Result<(), String> {
            stripe.parity.into_iter().for_each(|parity| parity.copy_from_slice(stripe.data[0]));
            Ok(())
        }

        fn recover(
            &mut self,
            mut stripe: crate::stripes::bed::Stripe<'_>,
            losses: &Losses,
        ) -> Result<(), String> {
            for (id, row) in losses.data.iter().zip(&losses.parity) {
                stripe.recovered[*id].copy_from_slice(stripe.parity[*row]);
            }
            Ok(())
        }
    }

    fn shape(data: usize, parity: usize, bytes: usize) -> Shape {
        Shape { data, parity, bytes, stripes: 2 }
    }

    #[test]
    fn every_installed_library_recovers_every_parity_row() {
        let libraries = Libraries::open(None);
        for (data, parity) in [(2, 2), (3, 7), (10, 4), (16, 16)] {
            let shape = shape(data, parity, 4096);
            for (who, mut code) in libraries.codes(shape).expect("the shape is in range") {
                let checked = check(code.as_mut(), &mut Bed::new(shape, 1));
                assert_eq!(checked, Ok(()), "{who}, {data} + {parity}");
            }
        }
    }

    #[test]
    fn code_that_recovers_other_bytes_is_found_out() {
        let mut bed = Bed::new(shape(3, 2, 64), 1);
        let problem = check(&mut Copies, &mut bed).expect_err("two buffers differ");
        assert!(problem.contains("[0, 1]"), "{problem}");
    }

    #[test]
    fn measured_row_has_a_rate_of_each_contender() {
        let libraries = Libraries::open(None);
        let effort = Effort { rounds: 2, seconds: 1e-5, seed: 1 };
        let [encode, recover] = measure(&libraries, shape(4, 2, 4096), effort).expect("in range");
        assert_eq!((encode.part, recover.part), (Part::Encode, Part::Recover));
        for row in [encode, recover] {
            assert_eq!(row.contenders[0].who, OURS);
            assert!(row.contenders.len() >= 2 && row.left_out.is_empty());
            let is_valid = |it: &Measured| it.rate > 0.0 && it.samples.len() == 2;
            assert!(row.contenders.iter().all(is_valid), "{row:?}");
        }
    }
}
