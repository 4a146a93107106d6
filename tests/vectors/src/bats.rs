//! `bats.json`: blocks of each profile, from batch ids to decoded symbols.

use recoded_code::TinyMt32;
use recoded_code::bats::{Batch, Code, Decoder, Gain, Limits, Operand, Params, Profile, Rows};
use recoded_gf::{FieldOrder, Kernel};
use serde::{Deserialize, Serialize};

use crate::{Hex, symbols, views};

const SYMBOL_BYTES: usize = 16;

/// The document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Document {
    /// Blocks.
    pub blocks: Vec<Block>,
}

/// A block, its batches, and the packets that a relay recodes from them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Block {
    /// `baseline`, `precoded` or `cyclic-shift`.
    pub profile: String,
    /// Coded symbols of a batch, M.
    pub batch_size: usize,
    /// Bits of the outer code's coefficients.
    pub generator_bits: u8,
    /// Elements of the field of recoding.
    pub field_order: u16,
    /// Source symbols; their number is K.
    pub source: Vec<Hex>,
    /// Symbols that a precode adds, numbered from K on.
    pub parity: Vec<Hex>,
    /// Batches as the source forms them. The relay's packets of all batches but the first suffice
    /// to decode the block.
    pub batches: Vec<SourceBatch>,
}

/// A batch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceBatch {
    /// Batch id.
    pub id: u16,
    /// Symbols that it combines; their number is the degree.
    pub indices: Vec<u16>,
    /// Coefficients of these symbols: a row per coded symbol.
    pub generator: Vec<Hex>,
    /// Coded symbols.
    pub coded: Vec<Hex>,
    /// Packets that a relay recodes from it.
    pub recoded: Vec<Recoded>,
}

/// A packet that a relay recoded.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recoded {
    /// Coding vector: coefficients of the coded symbols, as elements of GF(256).
    pub vector: Hex,
    /// The sum of coefficient times coded symbol.
    pub symbol: Hex,
}

/// Makes the document.
#[must_use]
pub fn document() -> Document {
    let block = |profile, source_symbols, batch_size, generator_bits, field| {
        let params = Params { source_symbols, batch_size, profile, generator_bits };
        block(params, field)
    };
    Document {
        blocks: vec![
            block(Profile::Baseline, 24, 8, 8, FieldOrder::TwoFiftySix),
            block(Profile::Precoded, 40, 8, 8, FieldOrder::Two),
            block(Profile::CyclicShift, 40, 8, 2, FieldOrder::Sixteen),
        ],
    }
}

fn block(params: Params, field: FieldOrder) -> Block {
    let code = Code::new(params).expect("valid parameters");
    let source = symbols(params.source_symbols as u32, params.source_symbols, SYMBOL_BYTES);
    let mut rows = Rows::new(SYMBOL_BYTES);
    for (symbol, bytes) in (0..).zip(&source) {
        rows.set(Operand::Symbol(symbol), &bytes.0);
    }
    let Ok(()) = code.precode_symbols(&mut rows);
    let symbol = |index: usize| rows.get(Operand::Symbol(index as u16)).expect("it was encoded");
    let intermediate: Vec<Hex> =
        (0..code.intermediate_symbols()).map(|index| Hex::from(symbol(index))).collect();
    Block {
        profile: params.profile.to_string(),
        batch_size: params.batch_size,
        generator_bits: params.generator_bits,
        field_order: field.order(),
        batches: batches(&code, field, &intermediate),
        parity: intermediate[params.source_symbols..].to_vec(),
        source,
    }
}

/// A batch with a high id, then those from 0 on, until the relay's packets suffice to decode.
fn batches(code: &Code, field: FieldOrder, intermediate: &[Hex]) -> Vec<SourceBatch> {
    let params = code.params();
    let mut decoder = Decoder::new(Limits::of(params.source_symbols, params.batch_size));
    decoder.reset(params).expect("within its own limits");
    let mut generator = TinyMt32::new(2024);
    let mut all = vec![batch(code, u16::MAX, field, intermediate, &mut generator)];
    for id in 0..200 {
        if decoder.is_determined() {
            break;
        }
        let batch = batch(code, id, field, intermediate, &mut generator);
        for packet in &batch.recoded {
            let outcome = decoder.insert(id, &packet.vector.0);
            assert!(matches!(outcome, Ok(Gain::Innovative { .. } | Gain::Redundant)));
        }
        // Without payloads this only determines whether the packets suffice.
        let Ok(()) = decoder.advance(&mut Rows::new(SYMBOL_BYTES), |_| ());
        all.push(batch);
    }
    assert!(decoder.is_determined(), "{params:?}");
    all
}

fn batch(
    code: &Code,
    id: u16,
    field: FieldOrder,
    intermediate: &[Hex],
    random: &mut TinyMt32,
) -> SourceBatch {
    let mut batch = Batch::new();
    code.batch(id, &mut batch);
    let generator: Vec<Hex> = batch.generator().chunks(batch.degree()).map(Hex::from).collect();
    let chosen: Vec<&[u8]> = batch
        .indices()
        .iter()
        .map(|&index| intermediate[usize::from(index)].0.as_slice())
        .collect();
    let coded: Vec<Hex> = generator.iter().map(|row| combination(&row.0, &chosen)).collect();
    // The relay lost every fourth coded symbol, and sends one packet more than it has.
    let mut recoded = || {
        let element = |index: usize| {
            let coefficient = field.embed(random.rand256() >> (8 - field.bits()));
            if index % 4 == 3 { 0 } else { coefficient }
        };
        let vector = Hex((0..coded.len()).map(element).collect());
        let symbol = combination(&vector.0, &views(&coded));
        Recoded { vector, symbol }
    };
    let recoded = (0..coded.len() - coded.len() / 4 + 1).map(|_| recoded()).collect();
    SourceBatch { id, indices: batch.indices().to_vec(), generator, coded, recoded }
}

fn combination(coefficients: &[u8], rows: &[&[u8]]) -> Hex {
    let mut sum = vec![0; SYMBOL_BYTES];
    Kernel::best().matmul(coefficients, rows, &mut [sum.as_mut_slice()]);
    Hex(sum)
}
