//! Any sequence of coding vectors, unit vectors and shrinking, against scalar elimination.

use recoded_code::{Elimination, Outcome};
use recoded_gf::FieldOrder;

use crate::Input;
use crate::span::{Span, add_multiple};

const SIZE_MAX: usize = 48;

/// The decoder under test, and the reference it must equal.
struct Run {
    elimination: Elimination,
    span: Span,
    /// Innovative vectors by slot.
    held: Vec<Vec<u8>>,
}

/// Sizes, then operations.
pub fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut run =
        Run { elimination: Elimination::new(SIZE_MAX), span: Span::default(), held: Vec::new() };
    run.reset(1 + input.below(SIZE_MAX));
    while !input.is_empty() {
        run.step(&mut input);
        run.check();
    }
    run.check_solutions();
}

impl Run {
    fn reset(&mut self, size: usize) {
        self.elimination.reset(size);
        self.span = Span::default();
        self.held.clear();
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let size = self.elimination.size();
        match input.below(8) {
            0 | 1 => {
                let vector = input.filled(size);
                let outcome = self.elimination.insert(&vector);
                self.expect(&vector, outcome);
            }
            2 => {
                let field = FieldOrder::from_code(input.byte() & 3).expect("four fields");
                let vector: Vec<u8> =
                    input.filled(size).into_iter().map(|element| field.embed(element)).collect();
                let outcome = self.elimination.insert(&vector);
                self.expect(&vector, outcome);
            }
            3 => {
                // A combination of held vectors is not innovative.
                let mut vector = vec![0; size];
                for held in &self.held {
                    add_multiple(&mut vector, input.byte(), held);
                }
                assert_eq!(self.elimination.insert(&vector), Outcome::Redundant);
            }
            4 | 5 => {
                let index = input.below(size);
                let outcome = self.elimination.insert_unit(index);
                self.expect(&unit(index, size), outcome);
            }
            6 => self.shrink(1 + input.below(SIZE_MAX)),
            _ => {
                if input.byte() == 0 {
                    self.check_solutions();
                    self.reset(1 + input.below(SIZE_MAX));
                }
            }
        }
    }

    fn expect(&mut self, vector: &[u8], outcome: Outcome) {
        if !self.span.insert(vector) {
            assert_eq!(outcome, Outcome::Redundant);
            return;
        }
        let (rank, slot) = (self.span.rank(), self.held.len());
        assert_eq!(outcome, Outcome::Innovative { rank, slot });
        self.held.push(vector.to_vec());
    }

    fn shrink(&mut self, size: usize) {
        let now = self.elimination.size();
        let is_free =
            self.held.iter().all(|vector| vector[size.min(now)..].iter().all(|&e| e == 0));
        let result = self.elimination.shrink(size);
        assert_eq!(result.is_ok(), size <= now && is_free, "{now} -> {size}: {result:?}");
        if result.is_ok() {
            self.held.iter_mut().for_each(|vector| vector.truncate(size));
            let mut span = Span::default();
            self.held.iter().for_each(|vector| assert!(span.insert(vector)));
            self.span = span;
        }
    }

    fn check(&self) {
        let size = self.elimination.size();
        assert_eq!(self.elimination.rank(), self.span.rank());
        let decoded = (0..size).filter(|&symbol| self.span.determines(symbol)).count();
        assert_eq!(self.elimination.decoded(), decoded);
        assert_eq!(self.elimination.is_complete(), self.span.rank() == size);
    }

    /// Checks each symbol's solution, or that there is none.
    fn check_solutions(&self) {
        let size = self.elimination.size();
        let mut solution = vec![0; self.held.len()];
        for symbol in 0..size {
            let found = self.elimination.solution(symbol, &mut solution).is_some();
            assert_eq!(found, self.span.determines(symbol), "symbol {symbol}");
            assert_eq!(found, self.elimination.is_decoded(symbol));
            if found {
                let mut sum = vec![0; size];
                for (&factor, vector) in solution.iter().zip(&self.held) {
                    add_multiple(&mut sum, factor, vector);
                }
                assert_eq!(sum, unit(symbol, size), "symbol {symbol}");
            }
        }
    }
}

fn unit(index: usize, size: usize) -> Vec<u8> {
    (0..size).map(|column| u8::from(column == index)).collect()
}
