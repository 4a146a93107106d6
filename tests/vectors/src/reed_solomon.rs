//! `reed_solomon.json`: parity of k+m codes, and the recovery of lost buffers.

use recoded_code::reed_solomon::ReedSolomon;
use serde::{Deserialize, Serialize};

use crate::{Hex, symbols, views};

const BUFFER_BYTES: usize = 16;

/// The document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Document {
    /// Codes.
    pub codes: Vec<Code>,
}

/// A code k+m and one stripe of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Code {
    /// Coefficients of the data buffers: a row per parity buffer.
    pub generator: Vec<Hex>,
    /// Data buffers, ids 0 to k - 1.
    pub data: Vec<Hex>,
    /// Parity buffers, ids k to k + m - 1.
    pub parity: Vec<Hex>,
    /// Ids of k buffers that are left.
    pub intact: Vec<usize>,
    /// Ids of the others.
    pub lost: Vec<usize>,
    /// Coefficients of the intact buffers, in their order: a row per lost buffer.
    pub recovery: Vec<Hex>,
}

/// Makes the document.
#[must_use]
pub fn document() -> Document {
    let shapes = [(1, 1), (2, 1), (4, 2), (5, 5), (10, 4), (20, 3)];
    Document { codes: shapes.map(|(data, parity)| code(data, parity)).to_vec() }
}

fn code(data: usize, parity: usize) -> Code {
    let mut code = ReedSolomon::new(data, parity).expect("a small code");
    let source = symbols((data * 256 + parity) as u32, data, BUFFER_BYTES);
    let mut sums = vec![vec![0; BUFFER_BYTES]; parity];
    let mut wanted: Vec<&mut [u8]> = sums.iter_mut().map(Vec::as_mut_slice).collect();
    code.generate(&views(&source), &mut wanted).expect("buffers of the code");
    // Every second buffer is lost, as far as parity suffices, and the others arrive in reverse
    // order.
    let is_lost = |&id: &usize| id % 2 == 0 && id / 2 < parity;
    let (mut lost, mut intact): (Vec<_>, Vec<_>) = (0..data + parity).partition(is_lost);
    intact.reverse();
    lost.extend(intact.split_off(data));
    let recovery = code.recovery(&intact, &lost).expect("k intact buffers");
    Code {
        recovery: recovery.chunks(data).map(Hex::from).collect(),
        generator: code.generator().chunks(data).map(Hex::from).collect(),
        data: source,
        parity: sums.into_iter().map(Hex).collect(),
        intact,
        lost,
    }
}
