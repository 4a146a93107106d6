//! Sec. V-C: XOR gates of a tile and bytes of generator ROM, by width of coefficients, counted.
//!
//! Algorithms 5 and 6 multiply bit by bit, in a chain of partial multipliers. Each adds the operand
//! if a bit of the coefficient is set, and doubles the operand modulo the field's polynomial. The
//! chain is built here from gates and evaluated for all operands. Every gate that it uses is
//! counted, and its product is checked against the field's. ROM is counted in generators of a real
//! code.
//!
//! ```text
//!  a --+--[double]--+--[double]--+- ..     double: shift, XOR the polynomial if a bit falls out
//!      |            |            |
//!  0 --(+ if b0)----(+ if b1)----(+ if b2) -- product
//! ```

use recoded_code::bats::{Batch, Code, PAPER_ROW_DEGREES, Profile};
use recoded_gf::{Field, mul};

use crate::error::BenchError;
use crate::figures::blocks::{self, BATCH_SIZE};
use crate::figures::figure::{Axis, Figure, Panel, Point, Reference, Series, Style};
use crate::figures::work::Work;

/// Name of the figure.
pub const NAME: &str = "seed003-xor";

/// Computes it.
///
/// # Errors
/// If a code is refused, or the chain of gates multiplies wrongly.
pub fn compute(_: Work) -> Result<Figure, BenchError> {
    let mut gates = Vec::new();
    let mut simplified = Vec::new();
    let mut rom = Vec::new();
    for bits in BITS {
        let x = f64::from(bits);
        let count = count_tile(bits)?;
        let paper = |table: &[(u8, f64)]| {
            let row = table.iter().find(|row| row.0 == bits);
            row.map(|row| Reference::paper(row.1).with_margin(0.0))
        };
        gates.push(Point::exact(x, count.all as f64).against_any(paper(&PAPER_GATES)));
        simplified.push(Point::exact(x, count.needed as f64));
        rom.push(Point::exact(x, rom_bytes(bits)?).against_any(paper(&PAPER_ROM)));
    }
    let line = |name: &str, points| Series { name: name.into(), style: Style::Line, points };
    let x = Axis::linear("bits of a coefficient", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    Ok(Figure {
        name: NAME,
        title: "Gates and ROM of bounded-value generators".into(),
        source: "seed 003, Sec. V-C",
        about: format!(
            "tiles of {TILE} x {TILE} multiply-adds; generators of 7 rows, batches of 16"
        ),
        panels: vec![
            Panel {
                title: "XOR gates of one bit per tile".into(),
                x: x.clone(),
                y: Axis::linear("gates", &[0.0, 2000.0, 4000.0, 6000.0, 8000.0, 10000.0]),
                series: vec![
                    line("as the paper counts", gates),
                    line("without gates on constants", simplified),
                ],
            },
            Panel {
                title: "ROM for all generators".into(),
                x,
                y: Axis::linear("bytes", &[0.0, 500.0, 1000.0, 1500.0, 2000.0]),
                series: vec![line("bytes", rom)],
            },
        ],
    })
}

/// One node of a circuit; inputs come before outputs.
#[derive(Copy, Clone, PartialEq)]
enum Node {
    /// A constant.
    Zero,
    /// A bit of the operand, then of the accumulator.
    Input(usize),
    /// A node, if a bit of the coefficient is set.
    If { bit: u8, node: usize },
    /// A gate.
    Xor(usize, usize),
}

/// Gates of a circuit.
struct Gates {
    /// All gates of the algorithm.
    all: usize,
    /// Gates that remain after folding constants and removing unused outputs.
    needed: usize,
}

/// A multiply-add: product of an operand and a coefficient, added to an accumulator.
struct MultiplyAdd {
    nodes: Vec<Node>,
    outputs: [usize; WIDTH],
}

impl MultiplyAdd {
    /// Algorithm 6 for coefficients of `bits` bits; with eight, Algorithm 5.
    fn new(bits: u8) -> MultiplyAdd {
        let mut nodes = vec![Node::Zero];
        nodes.extend((0..2 * WIDTH).map(Node::Input));
        let mut circuit = MultiplyAdd { nodes, outputs: [ZERO; WIDTH] };
        let mut operand: [usize; WIDTH] = std::array::from_fn(|bit| 1 + bit);
        let accumulator: [usize; WIDTH] = std::array::from_fn(|bit| 1 + WIDTH + bit);
        let mut product = [ZERO; WIDTH];
        for bit in 0..bits {
            let chosen = operand.map(|node| circuit.add(Node::If { bit, node }));
            product = circuit.sum(product, chosen);
            operand = circuit.double(operand);
        }
        circuit.outputs = circuit.sum(product, accumulator);
        circuit
    }

    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn sum(&mut self, a: [usize; WIDTH], b: [usize; WIDTH]) -> [usize; WIDTH] {
        std::array::from_fn(|bit| self.add(Node::Xor(a[bit], b[bit])))
    }

    /// Shifts, and adds the polynomial if a bit falls out.
    fn double(&mut self, a: [usize; WIDTH]) -> [usize; WIDTH] {
        let polynomial = Field::default().polynomial();
        let carry = a[WIDTH - 1];
        let shifted = std::array::from_fn(|bit| if bit == 0 { ZERO } else { a[bit - 1] });
        let taps = std::array::from_fn(|bit| if polynomial >> bit & 1 == 1 { carry } else { ZERO });
        self.sum(shifted, taps)
    }

    /// Evaluates the circuit.
    fn evaluate(&self, operand: u8, accumulator: u8, coefficient: u8) -> u8 {
        let inputs = u16::from_le_bytes([operand, accumulator]);
        let mut values = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            values.push(match *node {
                Node::Zero => false,
                Node::Input(bit) => inputs >> bit & 1 == 1,
                Node::If { bit, node } => coefficient >> bit & 1 == 1 && values[node],
                Node::Xor(a, b) => values[a] ^ values[b],
            });
        }
        let bits = self.outputs.iter().enumerate();
        bits.fold(0, |byte, (bit, &node)| byte | u8::from(values[node]) << bit)
    }

    fn gates(&self) -> Gates {
        // A gate with a constant input is replaced by its other input.
        let mut stands: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for (index, node) in self.nodes.iter().enumerate() {
            stands.push(match *node {
                Node::If { node, .. } if stands[node] == ZERO => ZERO,
                Node::Xor(a, b) if stands[a] == ZERO => stands[b],
                Node::Xor(a, b) if stands[b] == ZERO => stands[a],
                _ => index,
            });
        }
        let mut used = vec![false; self.nodes.len()];
        self.outputs.iter().for_each(|&output| used[stands[output]] = true);
        for index in (0..self.nodes.len()).rev().filter(|&index| stands[index] == index) {
            match self.nodes[index] {
                Node::If { node, .. } if used[index] => used[stands[node]] = true,
                Node::Xor(a, b) if used[index] => {
                    (used[stands[a]], used[stands[b]]) = (true, true);
                }
                _ => {}
            }
        }
        let is_gate = |node: &Node| matches!(node, Node::Xor(..));
        let needed = self.nodes.iter().zip(used).filter(|(node, used)| *used && is_gate(node));
        Gates {
            all: self.nodes.iter().filter(|node| is_gate(node)).count(),
            needed: needed.count(),
        }
    }
}

/// Gates of a tile, once its multiply-add has been checked for all operands and coefficients.
fn count_tile(bits: u8) -> Result<Gates, BenchError> {
    let circuit = MultiplyAdd::new(bits);
    for coefficient in 0..=(1_u16 << bits).wrapping_sub(1) as u8 {
        for operand in 0..=u8::MAX {
            let accumulator = operand.rotate_left(3) ^ coefficient;
            let expected = mul(operand, coefficient) ^ accumulator;
            if circuit.evaluate(operand, accumulator, coefficient) != expected {
                return Err(BenchError::Circuit { operand, coefficient });
            }
        }
    }
    let Gates { all, needed } = circuit.gates();
    Ok(Gates { all: all * TILE * TILE, needed: needed * TILE * TILE })
}

/// Bytes of the generators of a base graph with the paper's row degrees.
fn rom_bytes(bits: u8) -> Result<f64, BenchError> {
    // The generators are the same for every supported width; other widths only pack them
    // differently.
    let params = blocks::params(256, Profile::CyclicShift, 8);
    let code = Code::with_row_degrees(params, &PAPER_ROW_DEGREES)?;
    let rows = code.base_graph().map_or(0, |graph| graph.rows());
    let mut batch = Batch::new();
    let mut coefficients = 0;
    for row in 0..rows {
        code.batch(row as u16, &mut batch);
        coefficients += batch.generator().len();
    }
    debug_assert_eq!(coefficients % BATCH_SIZE, 0);
    Ok(coefficients as f64 * f64::from(bits) / 8.0)
}

/// Index of the constant among the nodes.
const ZERO: usize = 0;
/// Bits of an element.
const WIDTH: usize = 8;
/// Rows and columns of a tile.
const TILE: usize = 8;
const BITS: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

/// Gates per tile. 8704 and 2560 are printed; "approximately half" are 4608; the others follow from
/// the paper's count, by an independent program.
const PAPER_GATES: [(u8, f64); 5] =
    [(1, 1536.0), (2, 2560.0), (3, 3584.0), (4, 4608.0), (8, 8704.0)];
/// ROM bytes. 468 is printed; 1872 is the whole field's.
const PAPER_ROM: [(u8, f64); 2] = [(2, 468.0), (8, 1872.0)];
