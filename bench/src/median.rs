//! The figure that tables show of several samples.

/// The middle value; of an even number, the mean of both; of none, not a number.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 9.0]), 3.0);
        assert_eq!(median([3.0, 1.0]), 2.0);
        assert!(median([]).is_nan());
    }
}
