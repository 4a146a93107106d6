//! `rlnc.json`: generations over each field: coding vectors, packed and from seeds, coded, recoded
//! and decoded symbols.

use recoded_code::TinyMt32;
use recoded_code::rlnc::{Coding, Density, Encoder, Recoder, Seeded, draw};
use recoded_code::vector::{pack, packed_bytes};
use recoded_gf::FieldOrder;
use serde::{Deserialize, Serialize};

use crate::{Hex, symbols, views};

const SIZE: usize = 10;
const SYMBOL_BYTES: usize = 16;

/// The document.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Document {
    /// One generation per field.
    pub generations: Vec<Generation>,
    /// Coding vectors derived from seeds.
    pub seeded: Vec<SeededVector>,
}

/// A generation and packets of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Generation {
    /// Elements of the field of coefficients.
    pub field_order: u16,
    /// Source symbols, in order.
    pub source: Vec<Hex>,
    /// Packets that the source codes with the vectors of seeds 1, 2, 3 and so on.
    pub coded: Vec<Coded>,
    /// Packets that a relay recodes from those.
    pub recoded: Vec<Recoded>,
}

/// A coded packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Coded {
    /// Coefficients of the source symbols, as elements of GF(256).
    pub vector: Hex,
    /// The vector as packets carry it: indices into the field, zero-padded to four bytes.
    pub packed: Hex,
    /// The sum of coefficient times source symbol.
    pub symbol: Hex,
}

/// A packet that a relay recoded.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recoded {
    /// Coefficients of the coded packets, as elements of GF(256).
    pub coefficients: Hex,
    /// The resulting packet.
    pub packet: Coded,
}

/// A coding vector from a seed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SeededVector {
    /// Elements of the field.
    pub field_order: u16,
    /// The seed.
    pub seed: u32,
    /// Probability that a coefficient is not zero; null where all elements are equally likely.
    pub density: Option<f64>,
    /// The coefficients, as elements of GF(256).
    pub vector: Hex,
}

const FIELDS: [FieldOrder; 4] =
    [FieldOrder::Two, FieldOrder::Four, FieldOrder::Sixteen, FieldOrder::TwoFiftySix];

/// Makes the document.
#[must_use]
pub fn document() -> Document {
    let densities = [None, Some(0.5), Some(0.0625)];
    let cases = FIELDS.into_iter().flat_map(|field| densities.map(|density| (field, density)));
    let seeds = [0, 1, 0x8000_0001, u32::MAX];
    let seeded = cases.flat_map(|(field, density)| {
        seeds.map(|seed| SeededVector {
            field_order: field.order(),
            seed,
            density,
            vector: seeded_vector(field, seed, density, 2 * SIZE),
        })
    });
    Document { generations: FIELDS.map(generation).to_vec(), seeded: seeded.collect() }
}

fn seeded_vector(field: FieldOrder, seed: u32, density: Option<f64>, size: usize) -> Hex {
    let density = density.map_or(Density::UNIFORM, |share| Density::share(share).expect("a share"));
    let mut vector = vec![0; size];
    draw(&mut Seeded::new(seed, density), field, size, &mut vector).expect("symbols are present");
    Hex(vector)
}

fn generation(field: FieldOrder) -> Generation {
    let source = symbols(u32::from(field.order()), SIZE, SYMBOL_BYTES);
    let mut encoder = Encoder::new(SIZE, field).expect("a small generation");
    let coded: Vec<Coded> = (1..=SIZE as u32 + 4)
        .map(|seed| {
            let vector = seeded_vector(field, seed, None, SIZE);
            let mut symbol = vec![0; SYMBOL_BYTES];
            let wanted = &mut [symbol.as_mut_slice()];
            encoder.encode(&views(&source), &vector.0, wanted).expect("a vector of the field");
            packet(field, vector, Hex(symbol))
        })
        .collect();
    let recoded = recoded(field, &coded);
    Generation { field_order: field.order(), source, coded, recoded }
}

fn packet(field: FieldOrder, vector: Hex, symbol: Hex) -> Coded {
    let mut packed = vec![0; packed_bytes(vector.0.len(), field)];
    pack(field, &vector.0, &mut packed);
    Coded { vector, packed: Hex(packed), symbol }
}

/// A relay holds the first innovative coded packets, at most as many as a hop needs.
fn recoded(field: FieldOrder, coded: &[Coded]) -> Vec<Recoded> {
    let mut recoder = Recoder::new(SIZE).expect("a small generation");
    let mut held = Vec::new();
    let mut slots = Vec::new();
    for (index, packet) in coded.iter().enumerate() {
        let outcome = recoder.insert(Coding::Vector(&packet.vector.0)).expect("a vector");
        if outcome.is_innovative() {
            held.push(packet.symbol.0.as_slice());
            slots.push(index);
        }
    }
    let mut generator = TinyMt32::new(99);
    let fresh = |_| {
        let row: Vec<u8> =
            held.iter().map(|_| field.embed(generator.rand256() >> (8 - field.bits()))).collect();
        let (mut vector, mut symbol) = (vec![0; SIZE], vec![0; SYMBOL_BYTES]);
        let result = recoder.recode_with(&row, &held, &mut vector, &mut [symbol.as_mut_slice()]);
        result.expect("coefficients for all that is held");
        let mut coefficients = vec![0; coded.len()];
        slots.iter().zip(&row).for_each(|(&slot, &coefficient)| coefficients[slot] = coefficient);
        let packet = packet(field, Hex(vector), Hex(symbol));
        Recoded { coefficients: Hex(coefficients), packet }
    };
    (0..SIZE + 6).map(fresh).collect()
}
