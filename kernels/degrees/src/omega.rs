//! The functions omega_d(x): the contribution of a batch of degree d when a fraction x is known.

/// The functions of one rank distribution.
pub struct Omega {
    /// `solvable[unknown - 1]`: the probability that a batch decodes `unknown` symbols at once,
    /// 1..=M.
    solvable: Vec<f64>,
}

impl Omega {
    /// `counts[rank]` of ranks 0..=M at any scale; `order` of the generators' field.
    pub fn new(counts: &[f64], order: f64) -> Self {
        let total: f64 = counts.iter().sum();
        let probability = |unknown: usize| {
            let ranks = counts.iter().enumerate().skip(unknown);
            ranks.map(|(rank, count)| independent(unknown, rank, order) * count / total).sum()
        };
        Self { solvable: (1..counts.len()).map(probability).collect() }
    }

    /// omega_d(x) for each of the ascending `degrees`, x in 0..1.
    ///
    /// Of the other `d - 1` symbols `j` are unknown with the binomial probability; then the batch
    /// must decode `j + 1`. This is the sum over incomplete beta functions of the paper with its
    /// terms exchanged, and it covers degrees up to M, which the paper treats separately.
    pub fn values(&self, x: f64, degrees: &[usize]) -> Vec<f64> {
        let mut unknown = vec![0.0; self.solvable.len()];
        unknown[0] = 1.0;
        let mut others = 0;
        let value = |&degree: &usize| {
            while others + 1 < degree {
                one_more(&mut unknown, x);
                others += 1;
            }
            let terms = unknown.iter().zip(&self.solvable);
            degree as f64 * terms.map(|(weight, solvable)| weight * solvable).sum::<f64>()
        };
        degrees.iter().map(value).collect()
    }
}

/// From `n` to `n + 1` trials: `unknown[j]` is the probability that `j` symbols are unknown.
fn one_more(unknown: &mut [f64], x: f64) {
    let mut carried = 0.0;
    for entry in unknown {
        let here = *entry;
        *entry = here * x + carried;
        carried = here * (1.0 - x);
    }
}

/// Probability that `vectors` uniformly random vectors of `dimension` elements are independent.
fn independent(vectors: usize, dimension: usize, order: f64) -> f64 {
    (0..vectors).map(|before| 1.0 - order.powi(before as i32 - dimension as i32)).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omega_of_one_full_rank_batch_is_the_binomial_sum() {
        // Degree 3, rank 2 always: at most one of the two others may be unknown.
        let omega = Omega::new(&[0.0, 0.0, 7.0], f64::INFINITY);
        let values = omega.values(0.4, &[1, 2, 3]);
        let close =
            |value: f64, expected: f64| assert!((value - expected).abs() < 1e-12, "{value}");
        close(values[0], 1.0);
        close(values[1], 2.0);
        close(values[2], 3.0 * (1.0 - 0.6 * 0.6));
    }

    #[test]
    fn small_fields_solve_less_often() {
        // One vector of one bit is not zero half of the time; two of two bits: 3/4 * 1/2.
        let omega = Omega::new(&[0.0, 0.0, 1.0], 2.0);
        assert_eq!(omega.solvable, [0.75, 0.375]);
        let mixed = Omega::new(&[1.0, 1.0, 2.0], 2.0);
        assert_eq!(mixed.solvable, [0.25 * 0.5 + 0.5 * 0.75, 0.5 * 0.375]);
    }
}
