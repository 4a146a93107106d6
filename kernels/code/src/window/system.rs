//! The decoder's linear system: unknown source symbols of a sliding window, equations between them.
//!
//! Equations are kept in reduced row echelon form with the *oldest* unknown of each leading, which
//! makes sliding free: no equation mentions an unknown older than its leader, so when the oldest
//! symbol leaves the window, at most the one equation that it leads leaves with it.
//!
//! An equation's right side lies in the slot of its leading symbol, which is unknown and leaves the
//! slot unused: a window of n symbols takes n symbols of memory, whatever arrives. When an equation
//! has lost all its other unknowns, the symbol is where it belongs.
//!
//! ```text
//!            oldest                               newest, before `end`
//!  slots   | known | leads | known | missing | leads | missing |
//!  rows              1 . . . . . . . . 7 . . . . . . . . 3          coefficients, by slot
//!                                                1 . . . 9
//! ```
//!
//! Rows are stored without the leaders, since each is in its own row only, and without symbols that
//! no equation mentions: see `columns.rs`.
//!
//! Packets may be hostile. The cost of operations on equations is limited per packet on average,
//! see `effort.rs`; beyond that, equations are refused, and at worst dropped.

use recoded_gf::{Kernel, inverse};

use super::Parameters;
use super::columns::Columns;
use super::effort::{Effort, MOVE_BYTES, ROW_BYTES};
use super::slab::Slab;

/// State of the symbol in a slot.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum SymbolState {
    /// No packet has announced it.
    Unheard,
    /// It is missing and leads no equation.
    Missing,
    /// It is missing and leads an equation.
    Leads,
    /// Its bytes are in its slot.
    Known,
}

impl SymbolState {
    /// Whether the symbol is announced but not known yet.
    pub const fn is_sought(self) -> bool {
        matches!(self, Self::Missing | Self::Leads)
    }
}

/// The result of an equation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Insertion {
    /// The rank rose by one.
    Innovative,
    /// It follows from known symbols and equations.
    Redundant,
    /// It mentions a symbol that has left the window.
    Expired,
    /// Equations have taken too much work.
    Refused,
}

pub(super) struct System {
    kernel: &'static Kernel,
    window: usize,
    mask: usize,
    /// The ESI after the newest symbol of the window.
    end: u32,
    slab: Slab,
    states: Box<[SymbolState]>,
    /// One row of coefficients by column per slot, meaningful if the state is `Leads`: zero where
    /// no symbol has the column.
    rows: Box<[u8]>,
    columns: Columns,
    /// The slots that lead.
    leaders: Vec<usize>,
    /// The equation being inserted.
    row: Box<[u8]>,
    symbol: Vec<u8>,
    /// ESIs of symbols that equations gave, for the next call.
    solved: Vec<u32>,
    effort: Effort,
}

impl System {
    pub fn new(parameters: &Parameters) -> Self {
        let (slots, window) = (parameters.slots(), parameters.window_symbols);
        let symbol_bytes = usize::from(parameters.symbol_bytes);
        Self {
            kernel: Kernel::best(),
            window,
            mask: slots - 1,
            end: 0,
            slab: Slab::new(slots, symbol_bytes),
            states: vec![SymbolState::Unheard; slots].into_boxed_slice(),
            rows: vec![0; slots * slots].into_boxed_slice(),
            columns: Columns::new(slots),
            leaders: Vec::with_capacity(window),
            row: vec![0; slots].into_boxed_slice(),
            symbol: vec![0; symbol_bytes],
            solved: Vec::with_capacity(window),
            effort: Effort::default(),
        }
    }

    /// Clears everything; the window begins with `end`.
    pub fn reset(&mut self, end: u32) {
        self.end = end;
        self.states.fill(SymbolState::Unheard);
        self.leaders.clear();
        self.columns.clear();
        self.solved.clear();
    }

    /// Changes the symbol length, up to that of `new`. The window must be reset.
    pub fn reshape(&mut self, symbol_bytes: usize) {
        self.slab.reshape(symbol_bytes);
        self.symbol.resize(symbol_bytes, 0);
    }

    pub const fn end(&self) -> u32 {
        self.end
    }

    /// The ESI of the oldest place in the window.
    pub const fn base(&self) -> u32 {
        self.end.wrapping_sub(self.window as u32)
    }

    pub const fn is_in_window(&self, esi: u32) -> bool {
        (esi.wrapping_sub(self.base()) as usize) < self.window
    }

    pub const fn slot(&self, esi: u32) -> usize {
        esi as usize & self.mask
    }

    /// The state of a symbol of the window; for others that of the symbol in its slot.
    pub fn state(&self, esi: u32) -> SymbolState {
        self.states[self.slot(esi)]
    }

    pub fn is_known(&self, esi: u32) -> bool {
        self.is_in_window(esi) && self.state(esi) == SymbolState::Known
    }

    /// The bytes of a symbol that is known.
    pub fn symbol(&self, esi: u32) -> &[u8] {
        self.slab.symbol(self.slot(esi))
    }

    /// Work of the operations on equations so far.
    pub const fn effort(&self) -> &Effort {
        &self.effort
    }

    /// Must be called for each packet. Returns the number of equations dropped because packets that
    /// cannot be refused took too much work.
    pub fn note_packet(&mut self) -> usize {
        self.effort.earn();
        if !self.effort.is_overdrawn() {
            return 0;
        }
        for &slot in &self.leaders {
            self.states[slot] = SymbolState::Missing;
        }
        self.columns.clear();
        self.leaders.drain(..).len()
    }

    /// Takes one ESI that an equation gave since the last call.
    pub fn next_solved(&mut self) -> Option<u32> {
        self.solved.pop()
    }

    /// Advances the window to end before `end`, which is ahead of the present end. Returns how many
    /// symbols left it, or were skipped, while missing.
    pub fn advance(&mut self, end: u32) -> u64 {
        let steps = end.wrapping_sub(self.end) as usize;
        let mut given_up = steps.saturating_sub(self.window) as u64;
        // The first to leave are expired before slots are reused.
        for step in 0..steps.min(self.window) {
            let slot = self.slot(self.base().wrapping_add(step as u32));
            given_up += u64::from(self.states[slot].is_sought());
            self.states[slot] = SymbolState::Unheard;
            // Equations that mention it are led by older symbols, which have left before.
            self.columns.free(slot);
        }
        self.leaders.retain(|&slot| self.states[slot] == SymbolState::Leads);
        for back in 1..=steps.min(self.window) {
            let slot = self.slot(end.wrapping_sub(back as u32));
            self.states[slot] = SymbolState::Missing;
        }
        self.end = end;
        given_up
    }

    /// Announces the `count` symbols from `first` on, as far as they are in the window.
    pub fn hear(&mut self, first: u32, count: usize) {
        for esi in (0..count).map(|index| first.wrapping_add(index as u32)) {
            let slot = self.slot(esi);
            if self.is_in_window(esi) && self.states[slot] == SymbolState::Unheard {
                self.states[slot] = SymbolState::Missing;
            }
        }
    }

    /// Inserts a symbol of the window, which `write` writes, unless it is known.
    pub fn insert_symbol(&mut self, esi: u32, write: impl FnOnce(&mut [u8])) {
        let slot = self.slot(esi);
        match self.states[slot] {
            SymbolState::Known => {}
            SymbolState::Unheard | SymbolState::Missing => {
                write(self.slab.symbol_mut(slot));
                self.states[slot] = SymbolState::Known;
                self.substitute(slot);
            }
            SymbolState::Leads => {
                // Its equation remains without it, led by its next unknown.
                let stride = self.row.len();
                self.row.copy_from_slice(&self.rows[slot * stride..][..stride]);
                self.symbol.copy_from_slice(self.slab.symbol(slot));
                write(self.slab.symbol_mut(slot));
                self.kernel.add(&mut self.symbol, self.slab.symbol(slot));
                self.states[slot] = SymbolState::Known;
                self.leaders.retain(|&leader| leader != slot);
                self.admit();
            }
        }
    }

    /// Inserts an equation: the sum of coefficient times symbol, from `first` on, is `sum`. All its
    /// symbols are announced or older than the window.
    pub fn insert_equation(&mut self, first: u32, coefficients: &[u8], sum: &[u8]) -> Insertion {
        let (window, base) = (self.window as u32, self.base());
        let mut is_open = false;
        for (esi, _) in esis(first).zip(coefficients).filter(|term| *term.1 != 0) {
            if esi.wrapping_sub(base) >= window {
                return Insertion::Expired;
            }
            is_open |= self.states[esi as usize & self.mask].is_sought();
        }
        // Without losses this is the whole cost of a repair symbol.
        if !is_open {
            return Insertion::Redundant;
        }
        if !self.effort.is_allowed() {
            return Insertion::Refused;
        }
        self.compact();
        self.symbol.copy_from_slice(sum);
        self.reduce(first, coefficients);
        if self.admit() { Insertion::Innovative } else { Insertion::Redundant }
    }

    /// Compacts the rows, if that is worthwhile.
    fn compact(&mut self) {
        if self.leaders.is_empty() {
            self.columns.clear();
        }
        let (stride, moves) = (self.row.len(), self.columns.compact());
        for leader in self.leaders.iter().filter(|_| !moves.is_empty()) {
            let row = &mut self.rows[leader * stride..][..stride];
            for &(from, to) in moves {
                row[usize::from(to)] = std::mem::take(&mut row[usize::from(from)]);
            }
            self.effort.spend(ROW_BYTES + MOVE_BYTES * moves.len());
        }
    }

    /// Writes to `row` and `symbol` the equation less known symbols and the equations of its
    /// leaders.
    fn reduce(&mut self, first: u32, coefficients: &[u8]) {
        let (states, mask) = (&self.states, self.mask);
        let terms = esis(first)
            .map(|esi| esi as usize & mask)
            .zip(coefficients.iter().copied())
            .filter(|term| term.1 != 0);
        let is_had = |&(slot, _): &(usize, u8)| {
            matches!(states[slot], SymbolState::Known | SymbolState::Leads)
        };
        let had = terms.clone().filter(is_had).map(|(slot, coefficient)| (coefficient, slot));
        self.slab.accumulate(self.kernel, had, &mut self.symbol);
        self.row.fill(0);
        for (slot, coefficient) in terms.clone().filter(|term| !is_had(term)) {
            self.row[self.columns.take(slot)] = coefficient;
        }
        let (stride, width) = (self.row.len(), self.columns.width());
        for (slot, coefficient) in terms.filter(|term| states[term.0] == SymbolState::Leads) {
            let row = &self.rows[slot * stride..][..width];
            self.kernel.madd(&mut self.row[..width], coefficient, row);
            self.effort.spend(ROW_BYTES + width);
        }
    }

    /// Stores the reduced equation, unless it is redundant, and clears its leader in the others.
    fn admit(&mut self) -> bool {
        let width = self.columns.width();
        let unknown = (0..width).filter(|&column| self.row[column] != 0);
        let by_age = |&column: &usize| self.age(self.columns.slot(column));
        let Some(column) = unknown.min_by_key(by_age) else {
            return false;
        };
        let leader = self.columns.slot(column);
        let scale = inverse(self.row[column]).unwrap_or_default();
        if scale != 1 {
            self.kernel.mul(&mut self.row[..width], scale);
            self.kernel.mul(&mut self.symbol, scale);
        }
        let stride = self.row.len();
        self.slab.symbol_mut(leader).copy_from_slice(&self.symbol);
        self.for_each_leader(|system, other| {
            let row = &mut system.rows[other * stride..][..width];
            let factor = row[column];
            if factor != 0 {
                system.kernel.madd(row, factor, &system.row[..width]);
                system.kernel.madd(system.slab.symbol_mut(other), factor, &system.symbol);
                system.effort.spend(width + system.symbol.len());
            }
            factor != 0
        });
        self.row[column] = 0;
        self.rows[leader * stride..][..stride].copy_from_slice(&self.row);
        self.columns.free(leader);
        self.states[leader] = SymbolState::Leads;
        if !self.settle(leader) {
            self.leaders.push(leader);
        }
        true
    }

    /// Substitutes a newly known symbol into the equations.
    fn substitute(&mut self, known: usize) {
        let Some(column) = self.columns.of(known) else { return };
        let stride = self.row.len();
        self.for_each_leader(|system, leader| {
            let factor = std::mem::take(&mut system.rows[leader * stride + column]);
            if factor != 0 {
                system.slab.madd(system.kernel, leader, factor, known);
                system.effort.spend(system.symbol.len());
            }
            factor != 0
        });
        self.columns.free(known);
    }

    /// Applies `change` to each equation, and settles those that it changed.
    fn for_each_leader(&mut self, change: impl Fn(&mut Self, usize) -> bool) {
        let mut index = 0;
        while let Some(&leader) = self.leaders.get(index) {
            self.effort.spend(ROW_BYTES);
            if change(self, leader) && self.settle(leader) {
                self.leaders.swap_remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// Whether an equation has no unknown left except its leader, which is then known.
    fn settle(&mut self, leader: usize) -> bool {
        let row = &self.rows[leader * self.row.len()..][..self.columns.width()];
        if !is_zero(row) {
            return false;
        }
        self.states[leader] = SymbolState::Known;
        self.solved.push(self.base().wrapping_add(self.age(leader) as u32));
        true
    }

    /// Number of older symbols in the window.
    const fn age(&self, slot: usize) -> usize {
        slot.wrapping_sub(self.slot(self.base())) & self.mask
    }
}

/// Whether all bytes are zero, in runs that the compiler vectorises.
fn is_zero(row: &[u8]) -> bool {
    row.chunks(64).all(|chunk| chunk.iter().fold(0, |all, &byte| all | byte) == 0)
}

/// ESIs from `first` on, without end.
fn esis(first: u32) -> impl Iterator<Item = u32> + Clone {
    (0..).map(move |index| first.wrapping_add(index))
}
