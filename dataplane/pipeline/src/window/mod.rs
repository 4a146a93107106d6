//! Flows of code `window`: RFC 8681 from edge to edge.
//!
//! ```text
//!  source ── packet: header | ADU | ESI ─────────────► relays: as it came ─► sink ─ in order ► TUN
//!         └─ now and then: header | repair ID | symbol ►
//! ```
//!
//! An IP packet is one ADU and one source symbol. It is sent at once, and delivered at once unless
//! an earlier one is missing; repair packets follow at the rate that the end-to-end loss requires.
//! There are no generations: the ESI of a source symbol takes the place of a generation number, and
//! counters of generations count source symbols.

pub(crate) mod source;

pub(crate) mod kept;

pub(crate) mod late;

mod relay;

pub(crate) mod sink;

pub(crate) mod pace;

use crate::params::{FlowParams, WindowParams};
use recoded_code::theory::LossModel;
use recoded_code::theory::window::WindowCode;
use recoded_code::window::{Density, ENCODING_WINDOW_MAX, Parameters, Scheme};
use recoded_gf::FieldOrder;
use recoded_wire::window::ADU_HEADER_BYTES;

/// FEC Encoding ID 9 or 10.
fn scheme(field: FieldOrder) -> Scheme {
    if field == FieldOrder::Two { Scheme::Gf2 } else { Scheme::Gf256 }
}

/// The field of a scheme.
fn field(scheme: Scheme) -> FieldOrder {
    match scheme {
        Scheme::Gf2 => FieldOrder::Two,
        Scheme::Gf256 => FieldOrder::TwoFiftySix,
    }
}

/// Parameters of a codec, within the limits of the RFC and the wire format.
fn parameters(params: &FlowParams, code: &WindowParams, window_max: usize) -> Parameters {
    let symbol_bytes = params.symbol_bytes.clamp(ADU_HEADER_BYTES, usize::from(u16::MAX));
    Parameters {
        scheme: scheme(params.field),
        symbol_bytes: symbol_bytes as u16,
        window_symbols: code.window_symbols.clamp(1, window_max),
    }
}

impl WindowParams {
    /// Its theoretical model on this path, hops in series as one; `order` is the field of the flow.
    #[must_use]
    pub fn theory(&self, order: FieldOrder, path: LossModel) -> WindowCode {
        let zeros = f64::from(15 - density(self).threshold()) / 16.0;
        // The most common coefficient carries the least information.
        let ones = if scheme(order) == Scheme::Gf2 { 1.0 - zeros } else { 0.0 };
        WindowCode {
            symbols: self.window_symbols.clamp(1, ENCODING_WINDOW_MAX),
            redundant: zeros.max(ones).max(1.0 / f64::from(field(scheme(order)).order())),
            path,
        }
    }
}

/// DT.
fn density(code: &WindowParams) -> Density {
    Density::new(code.density).unwrap_or(Density::FULL)
}
