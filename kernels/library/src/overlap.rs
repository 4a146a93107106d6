//! Whether buffers of a call overlap, by their addresses: for callers that pass pointers.

use crate::Error;

/// The addresses of a buffer, and whether the call writes to it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Range {
    start: usize,
    end: usize,
    is_output: bool,
}

impl Range {
    /// A buffer that the call reads. Its end must not wrap around.
    #[must_use]
    pub const fn input(start: usize, bytes: usize) -> Self {
        Self { start, end: start + bytes, is_output: false }
    }

    /// A buffer that the call writes to. Its end must not wrap around.
    #[must_use]
    pub const fn output(start: usize, bytes: usize) -> Self {
        Self { start, end: start + bytes, is_output: true }
    }
}

/// Sorts the buffers of a call. Inputs may overlap each other.
///
/// # Errors
/// [`Error::Overlap`] if an output overlaps another buffer.
pub fn check(ranges: &mut [Range]) -> Result<(), Error> {
    ranges.sort_unstable_by_key(|range| range.start);
    let (mut end, mut output_end) = (0, 0);
    for range in ranges.iter() {
        let before = if range.is_output { end } else { output_end };
        if range.start < before {
            return Err(Error::Overlap);
        }
        end = end.max(range.end);
        if range.is_output {
            output_end = output_end.max(range.end);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_overlap_neither_inputs_nor_outputs() {
        let input = |start| Range::input(start, 10);
        let output = |start| Range::output(start, 10);
        for (mut ranges, expected) in [
            (vec![], Ok(())),
            (vec![output(20), input(0), input(10)], Ok(())),
            (vec![input(0), input(5), input(0), output(15)], Ok(())),
            (vec![input(0), output(9)], Err(Error::Overlap)),
            (vec![output(0), input(9)], Err(Error::Overlap)),
            (vec![output(0), output(0)], Err(Error::Overlap)),
            (vec![Range::input(0, 100), output(20)], Err(Error::Overlap)),
            (vec![Range::output(0, 100), input(20), input(30)], Err(Error::Overlap)),
            (vec![Range::input(0, 100), input(5), output(90)], Err(Error::Overlap)),
        ] {
            assert_eq!(check(&mut ranges), expected, "{ranges:?}");
        }
    }
}
