//! The linear program over a grid, and the exact value of its result.

use microlp::{ComparisonOp, OptimizationDirection};

use crate::omega::Omega;
use crate::{OptimiseError, Problem};

/// The optimal distribution on the grid, without negligible entries.
///
/// The solver needs a bounded range of magnitudes and may find no pivot otherwise. So negligible
/// coefficients are left out and very large ones cut, which both can only understate a
/// distribution; if that is not enough, more of them are.
pub fn solve(problem: &Problem<'_>, omega: &Omega) -> Result<Vec<(usize, f64)>, OptimiseError> {
    let degrees = candidates(problem.degree_max());
    let mut last = None;
    for negligible in NEGLIGIBLE {
        match attempt(problem.undecoded, omega, &degrees, negligible) {
            Err(error) => last = Some(error),
            found => return found,
        }
    }
    Err(last.unwrap_or(OptimiseError::Solver { reason: "not attempted".to_owned() }))
}

fn attempt(
    undecoded: f64,
    omega: &Omega,
    degrees: &[usize],
    negligible: f64,
) -> Result<Vec<(usize, f64)>, OptimiseError> {
    let mut program = microlp::Problem::new(OptimizationDirection::Maximize);
    let theta = program.add_var(1.0, (0.0, f64::INFINITY));
    let weights: Vec<_> = degrees.iter().map(|_| program.add_var(0.0, (0.0, 1.0))).collect();
    program.add_constraint(weights.iter().map(|&weight| (weight, 1.0)), ComparisonOp::Eq, 1.0);
    for x in grid(undecoded, GRID) {
        let scale = -1.0 / (-x).ln_1p();
        let values = omega.values(x, degrees);
        let ratios = weights.iter().zip(&values).map(|(&weight, value)| (weight, value * scale));
        let large = ratios.filter(|&(_, ratio)| ratio > negligible);
        let terms = large.map(|(weight, ratio)| (weight, ratio.min(negligible * RANGE)));
        program.add_constraint(terms.chain([(theta, -1.0)]), ComparisonOp::Ge, 0.0);
    }
    let failed = |reason: String| OptimiseError::Solver { reason };
    let outcome = program.solve().map_err(|error| failed(error.to_string()))?;
    let solution = outcome.into_solution().map_err(|_| failed("interrupted".to_owned()))?;
    let pairs = degrees.iter().zip(&weights);
    let weighed = pairs.map(|(&degree, &weight)| (degree, solution.var_value(weight)));
    Ok(weighed.filter(|&(_, weight)| weight > UNLIKELY).collect())
}

/// The smallest ratio of `distribution`, on a grid much finer than the program's.
pub fn theta(omega: &Omega, undecoded: f64, distribution: &[(usize, f64)]) -> f64 {
    let degrees: Vec<usize> = distribution.iter().map(|&(degree, _)| degree).collect();
    let ratio = |x: f64| {
        let values = omega.values(x, &degrees);
        let terms = values.iter().zip(distribution);
        terms.map(|(value, (_, weight))| value * weight).sum::<f64>() / -(-x).ln_1p()
    };
    let fine = grid(undecoded, GRID * FINER).map(ratio);
    fine.fold(ratio(NEAR_ZERO), f64::min)
}

/// Candidate degrees: every one while they are few, then one in a hundred.
fn candidates(degree_max: usize) -> Vec<usize> {
    let next = |&degree: &usize| Some(degree + 1 + degree / THIN_ABOVE);
    let mut degrees: Vec<_> =
        std::iter::successors(Some(1), next).take_while(|&degree| degree <= degree_max).collect();
    if degrees.last() != Some(&degree_max) {
        degrees.push(degree_max);
    }
    degrees
}

/// `points` values in (0, 1 - undecoded], both ends' neighbourhoods well covered: half of them
/// spaced evenly in x, half in ln(1 - x).
fn grid(undecoded: f64, points: usize) -> impl Iterator<Item = f64> {
    let half = points / 2;
    let share = move |point: usize| point as f64 / half as f64;
    let linear = (1..=half).map(move |point| share(point) * (1.0 - undecoded));
    let logarithmic = (1..half).map(move |point| 1.0 - undecoded.powf(share(point)));
    linear.chain(logarithmic)
}

/// Points of the program. Half as many lose 0.01 % of theta; twice as many gain less than 0.005 %
/// and take three times as long.
const GRID: usize = 400;

/// The grid that theta is evaluated on has this many points for each of the program's.
const FINER: usize = 16;

/// Stands for x -> 0, where the ratio has a limit.
const NEAR_ZERO: f64 = 1e-6;

/// Smaller coefficients are left out. As the probabilities sum to 1, this is also the most that it
/// costs of theta.
const NEGLIGIBLE: [f64; 4] = [1e-5, 1e-4, 1e-3, 1e-2];

/// Largest coefficient over smallest: theta is at most 128, so larger ones are never needed.
const RANGE: f64 = 1e9;

/// Smaller probabilities are noise of the solver.
const UNLIKELY: f64 = 1e-5;

/// Up to this degree every degree is a candidate. All degrees together gain nothing (below 0.001 %)
/// and take twice as long.
const THIN_ABOVE: usize = 100;
