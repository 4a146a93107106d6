//! `window.json`: packets of RFC 8681, both FEC schemes.

use recoded_code::TinyMt32;
use recoded_code::window::{
    Density, Encoder, Parameters, REPAIR_ID_BYTES, Scheme, coding_coefficients,
};
use serde::{Deserialize, Serialize};

use crate::{Hex, symbols};

const SYMBOL_BYTES: u16 = 16;
const WINDOW_SYMBOLS: usize = 8;

/// The document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Document {
    /// One session per scheme, density threshold and first ESI.
    pub sessions: Vec<Session>,
}

/// An encoder's session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Session {
    /// FEC Encoding ID: 9 or 10.
    pub encoding_id: u8,
    /// E, bytes of a symbol.
    pub symbol_bytes: u16,
    /// Longest encoding window, in symbols.
    pub window_symbols: usize,
    /// DT of all repair symbols.
    pub density_threshold: u8,
    /// Packets, in the order they are sent.
    pub packets: Vec<Packet>,
}

/// A packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Packet {
    /// A source packet.
    Source {
        /// Flow ID, which is coded but not sent.
        flow: u8,
        /// The ADU.
        adu: Hex,
        /// ESI of its first source symbol.
        esi: u32,
        /// Its source symbols: flow ID, length, ADU, padding.
        symbols: Vec<Hex>,
        /// The packet: ADU and ESI.
        packet: Hex,
    },
    /// A repair packet.
    Repair {
        /// Repair_Key of its first repair symbol.
        key: u16,
        /// NSS.
        source_symbols: u16,
        /// FSS_ESI.
        first: u32,
        /// Coding coefficients of each repair symbol.
        coefficients: Vec<Hex>,
        /// The packet: payload ID and repair symbols.
        packet: Hex,
    },
}

/// Makes the document.
#[must_use]
pub fn document() -> Document {
    let cases = [
        (Scheme::Gf2, 15, 0),
        (Scheme::Gf2, 7, 0),
        (Scheme::Gf256, 15, 0),
        (Scheme::Gf256, 7, u32::MAX - 5),
        (Scheme::Gf256, 0, 1000),
    ];
    let sessions = cases.map(|(scheme, threshold, first)| session(scheme, threshold, first));
    Document { sessions: sessions.to_vec() }
}

fn session(scheme: Scheme, threshold: u8, first: u32) -> Session {
    let parameters =
        Parameters { scheme, symbol_bytes: SYMBOL_BYTES, window_symbols: WINDOW_SYMBOLS };
    let mut encoder = Encoder::new(parameters).expect("parameters in range");
    encoder.reset(first);
    let mut lengths = TinyMt32::new(u32::from(threshold) + 1);
    let mut packets = Vec::new();
    for number in 0..10 {
        let length = usize::from(lengths.rand256() % 40);
        packets.push(source(&mut encoder, number, length));
        if number % 2 == 1 {
            packets.push(repair(&mut encoder, scheme, threshold, 1 + usize::from(number == 5)));
        }
    }
    Session {
        encoding_id: scheme.encoding_id(),
        symbol_bytes: SYMBOL_BYTES,
        window_symbols: WINDOW_SYMBOLS,
        density_threshold: threshold,
        packets,
    }
}

fn source(encoder: &mut Encoder, number: u8, length: usize) -> Packet {
    let flow = number % 3;
    let adu = symbols(u32::from(number) + 50, 1, length).remove(0);
    let esi = encoder.push(flow, &adu.0).expect("an ADU shorter than the window");
    let [high, low] = (length as u16).to_be_bytes();
    let mut adui = [&[flow, high, low], adu.0.as_slice()].concat();
    adui.resize(adui.len().next_multiple_of(usize::from(SYMBOL_BYTES)), 0);
    let symbols = adui.chunks(usize::from(SYMBOL_BYTES)).map(Hex::from).collect();
    let packet = Hex([&adu.0, esi.to_be_bytes().as_slice()].concat());
    Packet::Source { flow, adu, esi, symbols, packet }
}

fn repair(encoder: &mut Encoder, scheme: Scheme, threshold: u8, symbols: usize) -> Packet {
    let density = Density::new(threshold).expect("a threshold up to 15");
    let mut packet = vec![0; REPAIR_ID_BYTES + symbols * usize::from(SYMBOL_BYTES)];
    let id = encoder.repair(density, &mut packet).expect("a window with symbols");
    let coefficients = (0..symbols as u16).map(|index| {
        let mut row = vec![0; usize::from(id.source_symbols)];
        coding_coefficients(scheme, id.key.wrapping_add(index), density, &mut row);
        Hex(row)
    });
    Packet::Repair {
        key: id.key,
        source_symbols: id.source_symbols,
        first: id.first,
        coefficients: coefficients.collect(),
        packet: Hex(packet),
    }
}
