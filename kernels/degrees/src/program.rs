//! The linear program over a grid, and the exact value of what it found.

use microlp::{ComparisonOp, OptimizationDirection};

use crate::omega::Omega;
use crate::{OptimiseError, Problem};

/// The optimal distribution on the grid, without entries that do not matter.
pub fn solve(problem: &Problem<'_>, omega: &Omega) -> Result<Vec<(usize, f64)>, OptimiseError> {
    let degrees = candidates(problem.degree_max());
    let mut program = microlp::Problem::new(OptimizationDirection::Maximize);
    let theta = program.add_var(1.0, (0.0, f64::INFINITY));
    let weights: Vec<_> = degrees.iter().map(|_| program.add_var(0.0, (0.0, 1.0))).collect();
    program.add_constraint(weights.iter().map(|&weight| (weight, 1.0)), ComparisonOp::Eq, 1.0);
    for x in grid(problem.undecoded, GRID) {
        let scale = -1.0 / (-x).ln_1p();
        let values = omega.values(x, &degrees);
        let ratios = weights.iter().zip(&values).map(|(&weight, value)| (weight, value * scale));
        let terms = ratios.filter(|&(_, ratio)| ratio > NEGLIGIBLE).chain([(theta, -1.0)]);
        program.add_constraint(terms, ComparisonOp::Ge, 0.0);
    }
    let failed = |reason: String| OptimiseError::Solver { reason };
    let outcome = program.solve().map_err(|error| failed(error.to_string()))?;
    let solution = outcome.into_solution().map_err(|_| failed("interrupted".to_owned()))?;
    if solution.var_value(theta) < NEGLIGIBLE {
        let degree_max = problem.degree_max();
        return Err(OptimiseError::Unreachable { degree_max, undecoded: problem.undecoded });
    }
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

/// Degrees to choose from: every one as long as they are few, then one in a hundred.
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

/// Points of the program. Half as many lose 0.01 % of theta; twice as many win less than 0.005 % and
/// take three times as long.
const GRID: usize = 400;

/// The grid that theta is evaluated on has this many points for each of the program's.
const FINER: usize = 16;

/// Stands for x -> 0, where the ratio has a limit.
const NEAR_ZERO: f64 = 1e-6;

/// Coefficients below are left out: the solver wants a bounded range of magnitudes. Costs this much
/// of theta at most, as the probabilities sum to 1.
const NEGLIGIBLE: f64 = 1e-5;

/// Probabilities below are noise of the solver.
const UNLIKELY: f64 = 1e-6;

/// Up to this degree every degree is a candidate. All degrees together win nothing (below 0.001 %)
/// and take twice as long.
const THIN_ABOVE: usize = 100;
