//! The receiving end: packets in, recovered ADUs out (RFC 8681 section 6.2).
//!
//! In addition to the linear system this tracks the beginnings of ADUs. A source packet shows that
//! of its own ADU, and the length in front of an ADU that of the next one; a recovered symbol is
//! delivered as soon as its ADU is complete and its beginning is certain.

use std::collections::VecDeque;

use super::system::{Insertion, System};
use super::{
    ADUI_HEADER_BYTES, DECODING_WINDOW_MAX, Parameters, ParametersError, REPAIR_ID_BYTES, RepairId,
    SOURCE_ID_BYTES, Scheme, adui_symbols, coding_coefficients, write_adui_symbol,
};

/// The result of a source packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Received<'a> {
    /// A new ADU, for the application.
    New {
        /// ESI of its first symbol: the order of ADUs.
        esi: u32,
        /// Its bytes.
        adu: &'a [u8],
    },
    /// A duplicate, or an ADU recovered earlier.
    Duplicate,
}

/// The reason why a packet was not used; nothing has changed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Rejected {
    /// The packet is too short for its FEC Payload ID.
    #[error("packet of {bytes} bytes: the payload ID takes {needed}")]
    TooShort {
        /// Bytes of the packet.
        bytes: usize,
        /// Bytes of the payload ID.
        needed: usize,
    },
    /// A source packet's ADU exceeds a 16-bit length or the window.
    #[error("ADU of {bytes} bytes is too long for 16 bits or for the window")]
    AduTooLong {
        /// Bytes of the ADU.
        bytes: usize,
    },
    /// The symbols of a repair packet are not a whole number of symbols (RFC 8681 section 7.2).
    #[error("{bytes} bytes of repair symbols are no multiple of {symbol_bytes}, or none")]
    RepairBytes {
        /// Bytes after the payload ID.
        bytes: usize,
        /// Bytes of a symbol.
        symbol_bytes: usize,
    },
    /// A repair packet over an empty encoding window.
    #[error("repair packet over no source symbols")]
    NoSourceSymbols,
    /// A repair packet over more symbols than the decoder tracks.
    #[error(
        "repair packet over {source_symbols} symbols; the decoding window has {window_symbols}"
    )]
    WindowTooLong {
        /// NSS of the packet.
        source_symbols: usize,
        /// Symbols of the decoding window.
        window_symbols: usize,
    },
    /// All its symbols have left the window.
    #[error("ESI {esi} has left the window, which begins with {base}")]
    Late {
        /// The first ESI of the packet.
        esi: u32,
        /// The oldest ESI of the window.
        base: u32,
    },
    /// A source packet claims symbols of an ADU with other known limits.
    #[error("the ADU at ESI {esi} overlaps one that is known")]
    Overlap {
        /// The first ESI of the packet.
        esi: u32,
    },
    /// A source packet differs from the recovered bytes: one of the two was tampered with.
    #[error("the ADU at ESI {esi} differs from the recovered one")]
    Mismatch {
        /// The first ESI that differs.
        esi: u32,
    },
}

/// Outcomes of symbols and ADUs since the decoder was created.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Recovered ADUs.
    pub recovered: u64,
    /// Source symbols that left the window unknown.
    pub given_up: u64,
    /// Repair symbols without new information.
    pub redundant: u64,
    /// Repair symbols over a symbol that had left the window unknown or forgotten.
    pub expired: u64,
    /// Repair symbols refused because equations took too much work: hostile packets, or far more
    /// losses than repair packets compensate. Equations dropped for that reason count too.
    pub refused: u64,
    /// Recovered symbols that are no ADU: a wrong length, or a beginning within another ADU.
    pub malformed: u64,
    /// Recovered ADUs that left the window before [`Decoder::next_recovered`] was called.
    pub overrun: u64,
}

/// A recovered ADU. Its bytes lie in the decoder, as parts of symbols.
pub struct Adu<'a> {
    system: &'a System,
    /// ESI of its first symbol: the order of ADUs.
    pub esi: u32,
    /// Its flow ID.
    pub flow: u8,
    /// Its length.
    pub bytes: usize,
}

impl<'a> Adu<'a> {
    /// Its bytes, in order, by symbol.
    pub fn chunks(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (system, esi, mut left) = (self.system, self.esi, self.bytes);
        (0..).map_while(move |index: u32| {
            let skipped = if index == 0 { ADUI_HEADER_BYTES } else { 0 };
            if left == 0 {
                return None;
            }
            let symbol = &system.symbol(esi.wrapping_add(index))[skipped..];
            let taken = left.min(symbol.len());
            left -= taken;
            Some(&symbol[..taken])
        })
    }

    /// Copies its bytes to the start of `out`; `None` if `out` is too short.
    pub fn copy_to(&self, out: &mut [u8]) -> Option<()> {
        let mut rest = out.get_mut(..self.bytes)?;
        for chunk in self.chunks() {
            let (to, later) = rest.split_at_mut(chunk.len());
            to.copy_from_slice(chunk);
            rest = later;
        }
        Some(())
    }
}

/// Knowledge of the place of a symbol in its ADU.
#[derive(Copy, Clone, Default)]
struct AduPosition {
    /// It is the first symbol of an ADU.
    begins: bool,
    /// It is a later symbol of an ADU.
    continues: bool,
    /// It begins an ADU that has been delivered, or never will be.
    is_settled: bool,
}

/// The decoding window of one flow.
pub struct Decoder {
    parameters: Parameters,
    /// The longest supported symbols.
    symbol_bytes_max: u16,
    system: System,
    /// By slot.
    places: Box<[AduPosition]>,
    /// An ADU begins with the symbol after the window.
    end_begins: bool,
    /// No packet has arrived yet.
    is_fresh: bool,
    /// First symbols of ADUs to be delivered.
    ready: VecDeque<u32>,
    coefficients: Box<[u8]>,
    counts: Counts,
}

impl Decoder {
    /// An empty window. Takes [`Decoder::memory_bytes`]; nothing is allocated later.
    ///
    /// # Errors
    /// The parameters are out of range.
    pub fn new(parameters: Parameters) -> Result<Self, ParametersError> {
        parameters.check(DECODING_WINDOW_MAX)?;
        Ok(Self {
            parameters,
            symbol_bytes_max: parameters.symbol_bytes,
            system: System::new(&parameters),
            places: vec![AduPosition::default(); parameters.slots()].into_boxed_slice(),
            end_begins: true,
            is_fresh: true,
            ready: VecDeque::with_capacity(parameters.window_symbols),
            coefficients: vec![0; parameters.window_symbols].into_boxed_slice(),
            counts: Counts::default(),
        })
    }

    /// Memory of a decoder, within some bytes per symbol of the window: the symbols and a square of
    /// coefficients, both sized by the window rounded up to a power of two.
    #[must_use]
    pub const fn memory_bytes(parameters: &Parameters) -> usize {
        let slots = parameters.slots();
        slots * (parameters.symbol_bytes as usize + slots)
    }

    /// Clears the window, for a restarted sender; counts continue.
    pub fn reset(&mut self) {
        self.system.reset(0);
        self.places.fill(AduPosition::default());
        self.end_begins = true;
        self.is_fresh = true;
        self.ready.clear();
    }

    /// [`Decoder::reset`] for a flow joined at an ADU that begins with `esi`, which need not have
    /// arrived.
    pub fn join(&mut self, esi: u32) {
        self.reset();
        self.system.reset(esi);
        self.is_fresh = false;
    }

    /// [`Decoder::reset`] for a sender that restarts over another field or with symbols of another
    /// length, at most that of [`Decoder::new`]. Allocates nothing.
    ///
    /// # Errors
    /// The length is out of range; nothing changes then.
    pub fn reshape(&mut self, scheme: Scheme, symbol_bytes: u16) -> Result<(), ParametersError> {
        if symbol_bytes > self.symbol_bytes_max {
            return Err(ParametersError::SymbolBytes { symbol_bytes });
        }
        let parameters = Parameters { scheme, symbol_bytes, ..self.parameters };
        parameters.check(DECODING_WINDOW_MAX)?;
        self.parameters = parameters;
        self.system.reshape(usize::from(symbol_bytes));
        self.reset();
        Ok(())
    }

    /// The ESI after the newest announced symbol: the window lies before it.
    #[must_use]
    pub const fn end(&self) -> u32 {
        self.system.end()
    }

    /// The source symbol with this ESI, if it is in the window and known: flow ID, length and ADU,
    /// if each ADU takes one symbol (RFC 8681 section 3.2).
    #[must_use]
    pub fn symbol(&self, esi: u32) -> Option<&[u8]> {
        self.system.is_known(esi).then(|| self.system.symbol(esi))
    }

    /// Bytes of equations processed so far: for tests and measurements. Packets are worth
    /// [`WORK_PER_PACKET`](super::WORK_PER_PACKET) each.
    #[must_use]
    pub const fn work_bytes(&self) -> u64 {
        self.system.effort().spent()
    }

    /// Outcomes of symbols and ADUs so far.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Processes a source packet: an ADU followed by the ESI. `flow` is the flow ID of its address,
    /// as the packet does not name it.
    ///
    /// [`Decoder::next_recovered`] returns ADUs that this packet helped to recover.
    ///
    /// # Errors
    /// The packet is malformed, late, or contradicts another one.
    pub fn add_source<'p>(&mut self, flow: u8, packet: &'p [u8]) -> Result<Received<'p>, Rejected> {
        let too_short = Rejected::TooShort { bytes: packet.len(), needed: SOURCE_ID_BYTES };
        let (adu, id) = packet.split_last_chunk::<SOURCE_ID_BYTES>().ok_or(too_short)?;
        let first = u32::from_be_bytes(*id);
        let symbols = adui_symbols(adu.len(), self.symbol_bytes());
        if adu.len() > usize::from(u16::MAX) || symbols > self.parameters.window_symbols {
            return Err(Rejected::AduTooLong { bytes: adu.len() });
        }
        // An ADU that begins before the window would be delivered in part.
        self.check_age(first, 1)?;
        self.check_overlap(first, symbols)?;
        if self.known_place(first).is_settled {
            return Ok(Received::Duplicate);
        }
        self.check_match(flow, adu, first, symbols)?;
        self.counts.refused += self.system.note_packet() as u64;
        self.cover(first, symbols);
        self.mark(first, symbols);
        self.place(first).is_settled = true;
        for index in 0..symbols {
            let esi = first.wrapping_add(index as u32);
            self.system.insert_symbol(esi, |out| write_adui_symbol(flow, adu, index, out));
        }
        self.settle_from(first.wrapping_add(symbols as u32));
        self.settle_solved();
        Ok(Received::New { esi: first, adu })
    }

    /// Processes a repair packet: payload ID and one or more repair symbols. Returns the number of
    /// innovative ones.
    ///
    /// # Errors
    /// The packet is malformed, late, or over more symbols than the window holds.
    pub fn add_repair(&mut self, packet: &[u8]) -> Result<usize, Rejected> {
        let too_short = Rejected::TooShort { bytes: packet.len(), needed: REPAIR_ID_BYTES };
        let (id, symbols) = packet.split_first_chunk::<REPAIR_ID_BYTES>().ok_or(too_short)?;
        let id = RepairId::from_bytes(*id);
        let (symbol_bytes, bytes) = (self.symbol_bytes(), symbols.len());
        if bytes == 0 || !bytes.is_multiple_of(symbol_bytes) {
            return Err(Rejected::RepairBytes { bytes, symbol_bytes });
        }
        let source_symbols = usize::from(id.source_symbols);
        let window_symbols = self.parameters.window_symbols;
        if source_symbols == 0 {
            return Err(Rejected::NoSourceSymbols);
        }
        if source_symbols > window_symbols {
            return Err(Rejected::WindowTooLong { source_symbols, window_symbols });
        }
        self.check_age(id.first, source_symbols)?;
        self.counts.refused += self.system.note_packet() as u64;
        self.cover(id.first, source_symbols);
        let keys = (0..).map(|index| id.key.wrapping_add(index));
        let mut innovative = 0;
        for (symbol, key) in symbols.chunks_exact(symbol_bytes).zip(keys) {
            innovative += usize::from(self.add_equation(&id, key, symbol));
            self.settle_solved();
        }
        Ok(innovative)
    }

    /// The next lost ADU that has been recovered; call it until `None` after each packet, because
    /// the window advances with the next.
    pub fn next_recovered(&mut self) -> Option<Adu<'_>> {
        while let Some(esi) = self.ready.pop_front() {
            if self.system.is_in_window(esi) {
                self.counts.recovered += 1;
                let (flow, bytes) = self.header(esi);
                return Some(Adu { system: &self.system, esi, flow, bytes });
            }
            self.counts.overrun += 1;
        }
        None
    }

    /// Processes one repair symbol; returns whether it was innovative.
    fn add_equation(&mut self, id: &RepairId, key: u16, symbol: &[u8]) -> bool {
        let coefficients = &mut self.coefficients[..usize::from(id.source_symbols)];
        coding_coefficients(self.parameters.scheme, key, id.density, coefficients);
        match self.system.insert_equation(id.first, coefficients, symbol) {
            Insertion::Innovative => return true,
            Insertion::Redundant => self.counts.redundant += 1,
            Insertion::Expired => self.counts.expired += 1,
            Insertion::Refused => self.counts.refused += 1,
        }
        false
    }

    const fn symbol_bytes(&self) -> usize {
        self.parameters.symbol_bytes as usize
    }

    fn place(&mut self, esi: u32) -> &mut AduPosition {
        &mut self.places[self.system.slot(esi)]
    }

    fn known_place(&self, esi: u32) -> AduPosition {
        if self.system.is_in_window(esi) {
            return self.places[self.system.slot(esi)];
        }
        AduPosition {
            begins: self.end_begins && esi == self.system.end(),
            ..AduPosition::default()
        }
    }

    /// Whether any of the symbols from `first` on is in the window or ahead of it.
    fn check_age(&self, first: u32, symbols: usize) -> Result<(), Rejected> {
        let base = self.system.base();
        // Serial numbers: the shorter distance decides which is ahead (as in RFC 1982).
        let last_age = first.wrapping_add(symbols as u32 - 1).wrapping_sub(base).cast_signed();
        let is_late = last_age < 0 && !self.is_fresh;
        if is_late { Err(Rejected::Late { esi: first, base }) } else { Ok(()) }
    }

    /// Whether the limits of an ADU agree with those of its neighbours.
    fn check_overlap(&self, first: u32, symbols: usize) -> Result<(), Rejected> {
        let agrees = |index: usize| {
            let place = self.known_place(first.wrapping_add(index as u32));
            if index == 0 || index == symbols { !place.continues } else { !place.begins }
        };
        let is_apart = self.is_fresh || (0..=symbols).all(agrees);
        if is_apart { Ok(()) } else { Err(Rejected::Overlap { esi: first }) }
    }

    /// Whether an ADU agrees with those of its symbols that were recovered.
    fn check_match(
        &self,
        flow: u8,
        adu: &[u8],
        first: u32,
        symbols: usize,
    ) -> Result<(), Rejected> {
        for index in 0..symbols {
            let esi = first.wrapping_add(index as u32);
            if self.system.is_known(esi) && !self.is_symbol(esi, flow, adu, index) {
                return Err(Rejected::Mismatch { esi });
            }
        }
        Ok(())
    }

    fn is_symbol(&self, esi: u32, flow: u8, adu: &[u8], index: usize) -> bool {
        let known = self.system.symbol(esi);
        let [high, low] = (adu.len() as u16).to_be_bytes();
        let header = [flow, high, low];
        let at = index * known.len();
        let expected = header.iter().chain(adu).chain(std::iter::repeat(&0)).skip(at);
        known.iter().eq(expected.take(known.len()))
    }

    /// Advances the window to cover the `count` announced symbols from `first` on.
    fn cover(&mut self, first: u32, count: usize) {
        if std::mem::take(&mut self.is_fresh) && first as usize >= self.parameters.window_symbols {
            // A flow joined later. One tracked from its start begins with ESI 0 (section 3.4),
            // which a flow joined within a window after the wrap of the ESI looks like.
            self.system.reset(first);
            self.end_begins = false;
        }
        let (end, now) = (self.system.end(), first.wrapping_add(count as u32));
        if now.wrapping_sub(end).cast_signed() > 0 {
            self.counts.given_up += self.system.advance(now);
            let fresh = (now.wrapping_sub(end) as usize).min(self.parameters.window_symbols);
            for back in 1..=fresh {
                *self.place(now.wrapping_sub(back as u32)) = AduPosition::default();
            }
            if self.system.is_in_window(end) {
                self.place(end).begins = self.end_begins;
            }
            self.end_begins = false;
        }
        self.system.hear(first, count);
    }

    /// Marks the `symbols` symbols from `first` on as an ADU. Returns whether the beginning after
    /// it is new information.
    fn mark(&mut self, first: u32, symbols: usize) -> bool {
        self.place(first).begins = true;
        for index in 1..symbols {
            let esi = first.wrapping_add(index as u32);
            if self.system.is_in_window(esi) {
                self.place(esi).continues = true;
            }
        }
        let next = first.wrapping_add(symbols as u32);
        if next == self.system.end() {
            self.end_begins = true;
        }
        let is_news = self.system.is_in_window(next) && !self.place(next).begins;
        if is_news {
            self.place(next).begins = true;
        }
        is_news
    }

    /// Delivers ADUs completed by the symbols that equations gave.
    fn settle_solved(&mut self) {
        while let Some(solved) = self.system.next_solved() {
            let mut esi = solved;
            // Its ADU begins with it or before it.
            while !self.place(esi).begins && esi != self.system.base() {
                esi = esi.wrapping_sub(1);
            }
            self.settle_from(esi);
        }
    }

    /// Delivers the ADU that begins with `first`, if it is complete, and those after it that only
    /// lacked their beginning.
    fn settle_from(&mut self, mut first: u32) {
        while self.system.is_known(first) && self.place(first).begins {
            let symbols = adui_symbols(self.header(first).1, self.symbol_bytes());
            if self.place(first).is_settled {
                return;
            }
            if self.check_overlap(first, symbols).is_err()
                || symbols > self.parameters.window_symbols
            {
                self.counts.malformed += 1;
                self.place(first).is_settled = true;
                return;
            }
            let leads_on = self.mark(first, symbols);
            if (0..symbols).all(|index| self.system.is_known(first.wrapping_add(index as u32))) {
                self.hand_out(first);
            }
            if !leads_on {
                return;
            }
            first = first.wrapping_add(symbols as u32);
        }
    }

    fn hand_out(&mut self, first: u32) {
        self.place(first).is_settled = true;
        if self.ready.len() == self.parameters.window_symbols {
            self.ready.pop_front();
            self.counts.overrun += 1;
        }
        self.ready.push_back(first);
    }

    /// Flow ID and length of the ADU that begins with a known symbol.
    fn header(&self, first: u32) -> (u8, usize) {
        match *self.system.symbol(first) {
            [flow, high, low, ..] => (flow, usize::from(u16::from_be_bytes([high, low]))),
            _ => (0, 0),
        }
    }
}
