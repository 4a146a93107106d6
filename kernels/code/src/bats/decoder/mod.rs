//! The decoder of one block.
//!
//! ```text
//!  coding vectors --Received--> rank per batch
//!                    |
//!                 System: peeling as ranks rise; inactivation once there seem to be enough
//!                    |
//!                 Solver: payload work, by whole batches, once
//! ```
//!
//! Each of these continues in a later call after the effort of one runs out ([`Effort`]). Packets
//! that arrive during planning wait until the plan is made.
//!
//! Payloads never enter the decoder: the caller keeps innovative ones by slot and multiplies them
//! in place ([`Payloads`]).

mod effort;
mod received;
mod solver;
mod system;

use crate::bats::code::Code;
use crate::bats::params::{Limits, Params, ParamsError};
use crate::bats::payloads::Payloads;
pub use effort::Effort;
use received::Received;
use solver::Solver;
use system::{IntermediateState, System};

/// Batches that failing plans may examine for each innovative packet: a plan examines all batches
/// received for the block, some hundred times.
///
/// With as many batches as symbols this is 64 plans per block. A failing plan then takes 2 to 5 ms
/// for 4096 symbols, 40 to 60 us per packet of the block. With more, forged blocks that never
/// succeed occupy a core. With fewer, blocks that need more packets than planning expected decode
/// later than they could: 4096 symbols in batches of four take some 150 plans.
const BATCHES_PER_PACKET: usize = 64;

/// The next plan after a failed one waits for at least this part of the block.
const RETRY_PART: usize = 1024;

/// Cost of drawing a batch, in operations on rows of coefficients.
const BATCH_ROWS: usize = 128;

/// The result of inserting a packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Gain {
    /// It raised the rank of its batch. The caller keeps the payload as
    /// [`Operand::Received`](crate::bats::Operand::Received) of this slot.
    Innovative {
        /// Number among the innovative packets of the block, from 0.
        slot: u32,
    },
    /// It brought no new information, or all symbols are decoded.
    Redundant,
}

/// The reason why a packet was rejected.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Rejected {
    /// The block already has the maximum number of batches.
    #[error("{max} batches are held already")]
    TooManyBatches {
        /// The maximum.
        max: usize,
    },
    /// The coding vector does not fit a batch of this block.
    #[error("a coding vector of {elements} elements, not {batch_size}")]
    VectorLength {
        /// Elements of the vector.
        elements: usize,
        /// Elements it should have.
        batch_size: usize,
    },
}

/// Decoder of one block at a time, of any shape within its limits.
pub struct Decoder {
    limits: Limits,
    code: Code,
    received: Received,
    system: System,
    solver: Solver,
    ldpc: usize,
    /// Planning waits for this rank.
    plan_from: usize,
    /// Plans tried for this block, and the total of batches that they examined.
    plans: usize,
    batches_planned: usize,
    /// Batches and slots known to the system: later ones wait until a plan is made.
    known_batches: usize,
    known_slots: usize,
    /// Whether the last call left work undone.
    is_cut: bool,
}

impl Decoder {
    /// A decoder for blocks within `limits`. It allocates all its memory here, in proportion to
    /// `source_symbols_max * (inactive_max + batch_size_max)`; see [`Decoder::memory_bytes`].
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let limits = limits.clamped();
        Self {
            limits,
            code: Code::largest(limits),
            received: Received::new(limits),
            system: System::new(limits),
            solver: Solver::new(),
            ldpc: 0,
            plan_from: 0,
            plans: 0,
            batches_planned: 0,
            known_batches: 0,
            known_slots: 0,
            is_cut: false,
        }
    }

    /// Clears the decoder and starts a block.
    ///
    /// # Errors
    /// The parameters describe no code, or exceed the limits; nothing changes then.
    pub fn reset(&mut self, params: Params) -> Result<(), ParamsError> {
        self.check(params)?;
        self.code.reset(params)?;
        self.restart();
        Ok(())
    }

    /// The same with a custom code.
    ///
    /// # Errors
    /// The code exceeds the limits; nothing changes then.
    pub fn reset_with(&mut self, code: Code) -> Result<(), ParamsError> {
        self.check(code.params())?;
        self.code = code;
        self.restart();
        Ok(())
    }

    fn check(&self, params: Params) -> Result<(), ParamsError> {
        let Limits { source_symbols_max, batch_size_max, .. } = self.limits;
        let Params { source_symbols, batch_size, .. } = params;
        if source_symbols > source_symbols_max {
            return Err(ParamsError::SourceSymbols { source_symbols, max: source_symbols_max });
        }
        if batch_size > batch_size_max {
            return Err(ParamsError::BatchSize { batch_size, max: batch_size_max });
        }
        Ok(())
    }

    fn restart(&mut self) {
        self.ldpc = self.code.precode().map_or(0, |precode| precode.ldpc());
        self.received.reset(self.code.params().batch_size);
        self.system.reset(&self.code);
        self.solver.reset();
        (self.plan_from, self.plans, self.batches_planned) = (0, 0, 0);
        (self.known_batches, self.known_slots, self.is_cut) = (0, 0, false);
    }

    /// Bytes that a decoder for these limits allocates. Unused parts are never resident.
    #[must_use]
    pub fn memory_bytes(limits: Limits) -> usize {
        let limits = limits.clamped();
        Received::memory_bytes(limits) + System::memory_bytes(limits)
    }

    /// The block being decoded.
    #[must_use]
    pub const fn params(&self) -> Params {
        self.code.params()
    }

    /// Processes the coding vector of a packet of batch `batch_id`: elements of GF(256), one for
    /// each coded symbol of the batch.
    ///
    /// # Errors
    /// The vector has another length, or there is no room for a further batch.
    pub fn insert(&mut self, batch_id: u16, vector: &[u8]) -> Result<Gain, Rejected> {
        let batch_size = self.code.params().batch_size;
        if vector.len() != batch_size {
            return Err(Rejected::VectorLength { elements: vector.len(), batch_size });
        }
        if self.is_determined() {
            return Ok(Gain::Redundant);
        }
        let (batch, _) = self.received.open(batch_id)?;
        let had_all = self.has_all();
        let slot = self.received.insert(batch, vector);
        if had_all && !self.system.is_planning() {
            self.absorb(&mut Effort::UNLIMITED.clone());
        }
        Ok(slot.map_or(Gain::Redundant, |slot| Gain::Innovative { slot }))
    }

    /// Whether the system knows all earlier packets.
    fn has_all(&self) -> bool {
        self.known_slots == self.received.total()
    }

    /// Passes unknown packets to the system, unless a plan is being made.
    fn absorb(&mut self, effort: &mut Effort) {
        if self.system.is_planning() {
            return;
        }
        while !self.has_all() && !effort.is_spent() {
            let slot = self.known_slots as u32;
            self.known_slots += 1;
            let batch = self.received.batch_of_slot(slot);
            if !self.system.is_planned() {
                self.add_batches(batch + 1, effort);
                self.system.raise(self.ldpc + batch);
            } else if !self.system.is_determined() {
                let slots = self.received.slots(batch).iter();
                let nth = slots.take_while(|other| **other != slot).count() as u16;
                let Self { system, code, received, .. } = self;
                system.constrain_by_packet(code, received, batch as u16, nth, effort);
            }
        }
        if self.has_all() && !self.system.is_planned() {
            self.add_batches(self.received.batches(), effort);
        }
    }

    /// Passes the first `count` batches to the system.
    fn add_batches(&mut self, count: usize, effort: &mut Effort) {
        for batch in self.known_batches..count {
            self.system.add_batch(&self.code, self.received.id(batch), batch as u16);
            effort.spend(BATCH_ROWS, 0);
        }
        self.known_batches = self.known_batches.max(count);
    }

    /// Decodes as far as the received packets allow, and calls `decoded` for every source symbol
    /// that becomes known. Cheap when there is nothing to do: call it after every packet, or after
    /// many.
    ///
    /// # Errors
    /// Those of `payloads`; a later call continues where this one ended.
    pub fn advance<P: Payloads>(
        &mut self,
        payloads: &mut P,
        decoded: impl FnMut(u16),
    ) -> Result<(), P::Error> {
        self.advance_by(Effort::UNLIMITED, payloads, decoded)
    }

    /// The same within a limited effort; [`Decoder::is_cut`] shows whether more work is left. With
    /// batches of 16 no part takes more than some 1000 products of symbols; with 128 the
    /// elimination of a batch takes up to 30 MB of coefficients.
    ///
    /// # Errors
    /// Those of `payloads`; a later call continues where this one ended.
    pub fn advance_by<P: Payloads>(
        &mut self,
        mut effort: Effort,
        payloads: &mut P,
        mut decoded: impl FnMut(u16),
    ) -> Result<(), P::Error> {
        self.is_cut = false;
        self.work(&mut effort, payloads, &mut decoded)?;
        self.is_cut = effort.is_spent() && !self.is_complete();
        Ok(())
    }

    /// Whether the last call ended because of its effort.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn work<P: Payloads>(
        &mut self,
        effort: &mut Effort,
        payloads: &mut P,
        decoded: &mut impl FnMut(u16),
    ) -> Result<(), P::Error> {
        let hdpc = self.code.precode().map_or(0, |precode| precode.hdpc());
        loop {
            self.absorb(effort);
            self.peel(effort, payloads, decoded)?;
            let is_far = self.system.is_far(self.received.total() + self.ldpc + hdpc);
            let is_near = || !is_far && self.system.missing(hdpc) == 0;
            if !effort.is_spent()
                && !self.system.is_planned()
                && (self.system.is_planning() || is_near())
            {
                self.plan(effort);
            }
            // Packets that arrived meanwhile may complete the rank.
            if effort.is_spent() || self.system.is_determined() || self.has_all() {
                break;
            }
        }
        if self.system.is_planned() && self.system.is_determined() && !effort.is_spent() {
            let Self { solver, system, code, received, .. } = self;
            solver.finish(system, code, received, effort, payloads, decoded)?;
        }
        Ok(())
    }

    /// Peels until nothing more follows from packets only.
    fn peel<P: Payloads>(
        &mut self,
        effort: &mut Effort,
        payloads: &mut P,
        decoded: &mut impl FnMut(u16),
    ) -> Result<(), P::Error> {
        let Self { solver, system, code, received, .. } = self;
        if system.is_planned() || system.is_planning() {
            return Ok(());
        }
        loop {
            solver.follow(system, code, received, effort, payloads, decoded)?;
            if effort.is_spent() || !system.peel(code, received, effort) {
                return Ok(());
            }
        }
    }

    /// Source symbols that the received packets determine, by whatever means, if the block ended
    /// here. (Only [`Decoder::advance`] with enough of them computes any.)
    pub fn decodable(&mut self) -> usize {
        let effort = &mut Effort::UNLIMITED.clone();
        if !self.system.is_planned() {
            self.plan(effort);
        }
        self.absorb(effort);
        self.system.decodable(self.code.params().source_symbols)
    }

    /// Plans the decoding of all symbols. With too many inactive symbols it has to wait for more
    /// batches: it is retried after as many packets as one batch has, or later after too many
    /// attempts. A rank of all source symbols is always tried.
    fn plan(&mut self, effort: &mut Effort) {
        // The basis of the plan: packets that arrive meanwhile wait.
        let rank = self.known_slots;
        if !self.system.is_planning() {
            if self.limits.inactive_max == 0 || rank < self.plan_from {
                return;
            }
            self.plans += 1;
            self.batches_planned += self.known_batches;
        }
        if self.system.plan(&self.code, &self.received, effort).is_err() {
            let Params { source_symbols, batch_size, .. } = self.code.params();
            let soonest = rank + batch_size.max(source_symbols / RETRY_PART);
            let next = soonest.max(self.batches_planned / BATCHES_PER_PACKET);
            self.plan_from = if rank < source_symbols { next.min(source_symbols) } else { next };
        }
    }

    /// Attempts to plan the decoding of this block so far. Each takes time in proportion to the
    /// block.
    #[must_use]
    pub const fn plans(&self) -> usize {
        self.plans
    }

    /// Whether the packets received determine every symbol; [`Decoder::advance`] then yields them.
    #[must_use]
    pub fn is_determined(&self) -> bool {
        self.system.is_determined()
    }

    /// Whether every symbol has been decoded.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.system.is_determined() && self.solver.is_done(&self.system)
    }

    /// Whether a symbol has been decoded. False for symbols beyond the block.
    #[must_use]
    pub fn is_decoded(&self, symbol: usize) -> bool {
        symbol < self.system.symbols()
            && match self.system.state(symbol) {
                IntermediateState::Known => self.solver.has_followed(&self.system),
                _ => self.is_complete(),
            }
    }

    /// Innovative packets of all batches: the rank received.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.received.total()
    }

    /// Batches with at least one received packet.
    #[must_use]
    pub fn batches(&self) -> usize {
        self.received.batches()
    }

    /// Rank of one batch; 0 without a packet of it.
    #[must_use]
    pub fn batch_rank(&self, batch_id: u16) -> usize {
        self.received.batch_of(batch_id).map_or(0, |batch| self.received.rank(batch))
    }

    /// Inactive symbols of the decoding, once it is planned.
    #[must_use]
    pub fn inactive(&self) -> usize {
        self.system.inactive().len()
    }

    /// Estimated number of innovative packets still missing: at least one until everything is
    /// determined.
    #[must_use]
    pub fn missing(&self) -> usize {
        if self.is_determined() {
            return 0;
        }
        let hdpc = self.code.precode().map_or(0, |precode| precode.hdpc());
        let unknown = self.received.total() - self.known_slots;
        match self.system.is_planning() {
            // Planning began because none seemed to be missing.
            true => 1,
            false => self.system.missing(hdpc).saturating_sub(unknown).max(1),
        }
    }
}
