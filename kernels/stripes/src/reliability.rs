//! How long a set lasts whose shards are on disks of their own: equations 1 to 3 of Gibraltar
//! (Curry, Skjellum, Ward, Brightwell, 2011), for any numbers of data and parity shards.
//!
//! Equation 1 is the formula of Chen et al. (1994) for RAID 6,
//! `MTTF^3 / (N (G - 1) (G - 2) MTTR^2)`. It is the limit, for repairs that are short compared with
//! the time between failures, of the chain that [`Disks::hours_to_loss`] solves exactly.
//!
//! Disks are assumed to fail independently and at a constant rate. Those of one batch, box or power
//! supply do not: actual sets are lost earlier.

/// Hours of a year of 365 days.
pub const YEAR_HOURS: f64 = 8760.0;

/// Disks of one kind, one for each shard.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Disks {
    /// Data shards, k, at least 1.
    pub data: usize,
    /// Parity shards, m: disks that may fail at the same time.
    pub parity: usize,
    /// Mean time to failure of one disk, in hours, above 0.
    pub failure_hours: f64,
    /// Mean time to rebuild one disk, in hours, above 0. Disks are rebuilt one after another.
    pub repair_hours: f64,
    /// Bytes of a disk.
    pub bytes: f64,
    /// Bits that are read for one unrecoverable error, on average; above 0.
    pub bits_per_error: f64,
}

impl Disks {
    /// Mean time until more than `parity` disks are failed at the same time, in hours: equation 1.
    /// Infinite beyond the range of `f64`.
    #[must_use]
    pub fn hours_to_loss(&self) -> f64 {
        let disks = self.data + self.parity;
        let mut total = 0.0;
        // Hours from `failed` failed disks to one more. A repair leads back by one disk.
        let mut step = 0.0;
        for failed in 0..=self.parity {
            let interval = self.failure_hours / (disks - failed) as f64;
            step = interval + interval / self.repair_hours * step;
            total += step;
        }
        total
    }

    /// Probability of a loss within a year.
    #[must_use]
    pub fn yearly_loss(&self) -> f64 {
        -(-YEAR_HOURS / self.hours_to_loss()).exp_m1()
    }

    /// Probability of an unrecoverable error when a whole disk is read: equation 2.
    #[must_use]
    pub fn read_error(&self) -> f64 {
        (self.bytes * 8.0 / self.bits_per_error).min(1.0)
    }

    /// Probability that `data` whole disks are read without such an error: equation 3. A rebuild
    /// needs that when `parity` disks have failed, since no redundancy is left.
    #[must_use]
    pub fn clean_pass(&self) -> f64 {
        (1.0 - self.read_error()).powf(self.data as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's disks: data sheets of 2010, 16 disks.
    fn paper(data: usize, parity: usize) -> Disks {
        Disks {
            data,
            parity,
            failure_hours: 1.2e6,
            repair_hours: 24.0,
            bytes: 1e12,
            bits_per_error: 1e15,
        }
    }

    #[test]
    fn equation_1_gives_893_billion_hours_for_16_disks() {
        let hours = paper(14, 2).hours_to_loss();
        let formula = 1.2e6_f64.powi(3) / (16.0 * 15.0 * 14.0 * 24.0 * 24.0);
        assert!((hours / formula - 1.0).abs() < 2e-3, "{hours} h, by the formula {formula} h");
        assert!((hours / 8.93e11 - 1.0).abs() < 2e-3, "{hours} h");
        assert!((hours / YEAR_HOURS / 1.02e8 - 1.0).abs() < 2e-3);
    }

    #[test]
    fn equation_2_gives_8_in_a_thousand_for_a_terabyte() {
        assert!((paper(10, 0).read_error() - 0.008).abs() < 1e-12);
    }

    #[test]
    fn equation_3_gives_92_3_percent_for_ten_disks() {
        assert!((paper(10, 0).clean_pass() - 0.923).abs() < 5e-4);
    }

    #[test]
    fn more_parity_lasts_longer_and_none_as_long_as_the_first_disk() {
        assert!((paper(16, 0).hours_to_loss() - 1.2e6 / 16.0).abs() < 1e-6);
        let times: Vec<f64> = (0..6).map(|parity| paper(10, parity).hours_to_loss()).collect();
        assert!(times.windows(2).all(|pair| pair[1] > 1000.0 * pair[0]), "{times:?}");
    }

    #[test]
    fn extremes_are_numbers_or_infinite() {
        let eternal = paper(1, 255);
        assert_eq!((eternal.hours_to_loss(), eternal.yearly_loss()), (f64::INFINITY, 0.0));
        let hopeless = Disks { repair_hours: 1e12, bits_per_error: 1.0, ..paper(200, 56) };
        let hours = hopeless.hours_to_loss();
        assert!(hours > 1.2e6 / 256.0 && hours < 1.2e6, "{hours}");
        assert_eq!(hopeless.clean_pass(), 0.0);
    }
}
