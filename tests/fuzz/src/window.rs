//! RFC 8681: an encoder, an arbitrary channel with forged packets, a decoder.

use std::collections::{BTreeMap, VecDeque};

use recoded_code::window::{
    Decoder, Density, Encoder, Parameters, REPAIR_ID_BYTES, Received, Rejected, Scheme,
};

use crate::Input;

const FLOW: u8 = 7;

struct Run {
    symbol_bytes: usize,
    window_symbols: usize,
    encoder: Encoder,
    decoder: Decoder,
    /// ADUs by ESI, and whether they were delivered.
    sent: BTreeMap<u32, (Vec<u8>, bool)>,
    /// Source packets that are late.
    held: VecDeque<Vec<u8>>,
    /// Whether nothing was forged so far, so that every delivered ADU must have been sent.
    is_honest: bool,
}

/// Parameters, then operations.
pub fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut run = Run::new(&mut input);
    while !input.is_empty() {
        run.step(&mut input);
        run.collect();
    }
    let counts = run.decoder.counts();
    assert!(!run.is_honest || counts.overrun == 0, "{counts:?}");
}

impl Run {
    fn new(input: &mut Input<'_>) -> Self {
        let scheme = Scheme::from_encoding_id(9 + input.byte() % 2).expect("IDs 9 and 10");
        let symbol_bytes = 3 + input.below(30) as u16;
        let encoding = 1 + input.below(32);
        let window_symbols = 1 + input.below(64);
        let sending = Parameters { scheme, symbol_bytes, window_symbols: encoding };
        let receiving = Parameters { window_symbols, ..sending };
        // From the start, around the wrap of the ESI, or anywhere.
        let first = match input.below(3) {
            0 => 0,
            1 => u32::MAX - u32::from(input.byte()),
            _ => input.u32(),
        };
        let mut encoder = Encoder::new(sending).expect("parameters in range");
        encoder.reset(first);
        let mut run = Self {
            symbol_bytes: usize::from(symbol_bytes),
            window_symbols,
            encoder,
            decoder: Decoder::new(receiving).expect("parameters in range"),
            sent: BTreeMap::new(),
            held: VecDeque::new(),
            is_honest: true,
        };
        if first != 0 {
            run.join();
        }
        run
    }

    /// Shows the decoder that the session did not begin with ESI 0.
    fn join(&mut self) {
        let packet = self.push(&mut Input::new(&[]));
        self.source(packet.as_deref());
        // Just after the wrap, the session appears to have begun with ESI 0.
        let esi = packet.as_deref().and_then(<[u8]>::last_chunk).map(|id| u32::from_be_bytes(*id));
        self.is_honest &= esi.is_some_and(|esi| esi == 0 || esi as usize >= self.window_symbols);
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(12) {
            0..=2 => {
                let packet = self.push(input);
                self.source(packet.as_deref());
            }
            3 | 4 => drop(self.push(input)),
            5 => {
                let packet = self.push(input);
                self.held.extend(packet);
            }
            6 => {
                let packet = self.held.pop_front();
                self.source(packet.as_deref());
            }
            7 | 8 => {
                let packet = self.repair(input);
                self.receive_repair(packet.as_deref());
            }
            9 => {
                self.is_honest = false;
                let mut packet = self.repair(input);
                for byte in packet.iter_mut().flatten().skip(input.below(20)).take(2) {
                    *byte ^= input.byte();
                }
                self.receive_repair(packet.as_deref());
            }
            10 => {
                self.is_honest = false;
                let length = input.below(80);
                let packet = input.bytes(length);
                if length.is_multiple_of(2) {
                    self.source(Some(packet));
                } else {
                    self.receive_repair(Some(packet));
                }
            }
            _ => self.rare(input),
        }
    }

    fn rare(&mut self, input: &mut Input<'_>) {
        match input.below(3) {
            0 => self.encoder.retire(input.below(8)),
            1 => {
                self.decoder.reset();
                // Packets delivered before may be delivered again.
                self.sent.values_mut().for_each(|adu| adu.1 = false);
                self.held.clear();
                self.join();
            }
            _ => {
                self.encoder.reset(input.u32());
                self.is_honest = false;
            }
        }
    }

    /// A source packet of an ADU that the encoder accepts.
    fn push(&mut self, input: &mut Input<'_>) -> Option<Vec<u8>> {
        let length = input.below(64);
        let adu = input.filled(length);
        let esi = self.encoder.push(FLOW, &adu).ok()?;
        let packet = [&adu[..], &esi.to_be_bytes()].concat();
        self.sent.insert(esi, (adu, false));
        Some(packet)
    }

    fn repair(&mut self, input: &mut Input<'_>) -> Option<Vec<u8>> {
        let density = Density::new(input.byte() & 15).expect("four bits");
        let symbols = 1 + input.below(2);
        let mut packet = vec![0; REPAIR_ID_BYTES + symbols * self.symbol_bytes];
        self.encoder.repair(density, &mut packet).ok()?;
        Some(packet)
    }

    fn source(&mut self, packet: Option<&[u8]>) {
        match packet.map(|packet| self.decoder.add_source(FLOW, packet)) {
            None | Some(Ok(Received::Duplicate)) => {}
            Some(Ok(Received::New { esi, adu })) => self.deliver(esi, FLOW, adu),
            Some(Err(Rejected::Late { .. } | Rejected::AduTooLong { .. })) => {}
            Some(Err(error)) => assert!(!self.is_honest, "{error}"),
        }
    }

    fn receive_repair(&mut self, packet: Option<&[u8]>) {
        match packet.map(|packet| self.decoder.add_repair(packet)) {
            None | Some(Ok(_)) => {}
            Some(Err(Rejected::Late { .. } | Rejected::WindowTooLong { .. })) => {}
            Some(Err(error)) => assert!(!self.is_honest, "{error}"),
        }
    }

    fn collect(&mut self) {
        while let Some(adu) = self.decoder.next_recovered() {
            let (esi, flow, length) = (adu.esi, adu.flow, adu.bytes);
            assert!(length < self.window_symbols * self.symbol_bytes);
            let mut bytes = vec![0; length];
            adu.copy_to(&mut bytes).expect("room for the ADU");
            self.deliver(esi, flow, &bytes);
        }
    }

    fn deliver(&mut self, esi: u32, flow: u8, bytes: &[u8]) {
        if !self.is_honest {
            return;
        }
        let (adu, is_delivered) = self.sent.get_mut(&esi).expect("an ADU begins there");
        assert_eq!((&**adu, FLOW), (bytes, flow), "ESI {esi}");
        assert!(!std::mem::replace(is_delivered, true), "ESI {esi} twice");
    }
}
