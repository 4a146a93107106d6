//! `field.json`: GF(256) and the elements of its subfields by their index on the wire.

use recoded_gf::{FieldOrder, inverse, mul};
use serde::{Deserialize, Serialize};

use crate::Hex;

/// The document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Document {
    /// The polynomial, as a number with a bit per coefficient: 285 is x^8 + x^4 + x^3 + x^2 + 1.
    pub polynomial: u16,
    /// Products of all pairs of `factors`, row by row.
    pub products: Hex,
    /// Factors of `products`.
    pub factors: Hex,
    /// Inverses of the elements 1 to 255.
    pub inverses: Hex,
    /// The fields that coding coefficients may have.
    pub subfields: Vec<Subfield>,
}

/// A field of coefficients within GF(256).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Subfield {
    /// Elements of the field.
    pub order: u16,
    /// Its code in the flags of a packet.
    pub code: u8,
    /// The element of GF(256) for each index on the wire.
    pub elements: Hex,
}

/// Makes the document.
#[must_use]
pub fn document() -> Document {
    let factors = [0, 1, 2, 3, 7, 0x1D, 0x53, 0x80, 0xCA, 0xFE, 0xFF];
    let product =
        |index: usize| mul(factors[index / factors.len()], factors[index % factors.len()]);
    let subfields =
        [FieldOrder::Two, FieldOrder::Four, FieldOrder::Sixteen, FieldOrder::TwoFiftySix];
    let subfield = |field: FieldOrder| Subfield {
        order: field.order(),
        code: field.code(),
        elements: Hex((0..field.order()).map(|index| field.embed(index as u8)).collect()),
    };
    Document {
        polynomial: recoded_gf::Field::default().polynomial(),
        products: Hex((0..factors.len() * factors.len()).map(product).collect()),
        factors: Hex::from(factors),
        inverses: Hex((1..=255).filter_map(inverse).collect()),
        subfields: subfields.map(subfield).to_vec(),
    }
}
