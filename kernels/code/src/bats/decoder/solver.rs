//! Payload work, by whole groups: applies the steps of the system to bytes.
//!
//! ```text
//!  peeled steps      symbols = packets + symbols, at once
//!  ---- once everything is determined:
//!  forward           resolved symbols as if inactive ones were zero
//!  constraints       what is then left of each constraint, into spare rows
//!  inactive          inactive symbols = inverse * spare rows
//!  back              resolved symbols again, with the inactive ones
//! ```
//!
//! Each resolved symbol is computed twice from about as many rows as its batch has symbols; that is
//! far less than the fill-in of an elimination over payloads.

use crate::bats::code::Code;
use crate::bats::decoder::effort::Effort;
use crate::bats::decoder::received::Received;
use crate::bats::decoder::system::{Constraint, IntermediateState, Origin, Step, System};
use crate::bats::params::BATCH_SIZE_MAX;
use crate::bats::payloads::{Operand, Payloads};
use std::ops::Range;

/// Sources and destinations of one call to [`Payloads::combine`], which is one part of the work:
/// smaller products are less efficient, and a call may end only between parts.
const SOURCES_MAX: usize = 64;
const GROUP: usize = 16;

/// Progress of the work.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    /// Steps followed so far.
    Following(usize),
    Constraints(usize),
    Inactive(usize),
    /// Steps completed backwards.
    Back(usize),
    Done,
}

pub(super) struct Solver {
    stage: Stage,
    /// Finished parts of the stage.
    part: usize,
    /// Steps that need no backward pass.
    peeled: usize,
    sources: Vec<Operand>,
    picked: Vec<u16>,
    destinations: Vec<Operand>,
    coefficients: Vec<u8>,
    solution: Vec<u8>,
}

/// The symbols of a step that a combination includes.
#[derive(Copy, Clone, PartialEq, Eq)]
enum With {
    /// All except inactive symbols, which count as zero.
    Settled,
    All,
}

impl Solver {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Following(0),
            part: 0,
            peeled: 0,
            sources: Vec::with_capacity(2 * super::system::COLUMNS_MAX),
            picked: Vec::with_capacity(2 * super::system::COLUMNS_MAX),
            destinations: Vec::with_capacity(BATCH_SIZE_MAX),
            coefficients: vec![0; GROUP * SOURCES_MAX],
            solution: vec![0; GROUP * 1024],
        }
    }

    pub(super) fn reset(&mut self) {
        self.stage = Stage::Following(0);
        (self.part, self.peeled) = (0, 0);
    }

    pub(super) fn is_done(&self, system: &System) -> bool {
        match self.stage {
            Stage::Done => true,
            Stage::Following(steps) => !system.is_planned() && steps == system.steps(),
            _ => false,
        }
    }

    /// Whether the steps made by peeling have been followed.
    pub(super) fn has_followed(&self, system: &System) -> bool {
        system.is_planned() || self.stage == Stage::Following(system.peeled())
    }

    /// Follows the steps made by peeling, within the effort.
    pub(super) fn follow<P: Payloads>(
        &mut self,
        system: &System,
        code: &Code,
        received: &Received,
        effort: &mut Effort,
        payloads: &mut P,
        decoded: &mut impl FnMut(u16),
    ) -> Result<(), P::Error> {
        let Stage::Following(first) = self.stage else { return Ok(()) };
        for index in first..system.peeled() {
            let step = system.step(index);
            if effort.is_spent()
                || !self.resolve(system, received, &step, With::Settled, effort, payloads)?
            {
                return Ok(());
            }
            self.stage = Stage::Following(index + 1);
            self.peeled = index + 1;
            report(system, code, &step, decoded);
        }
        Ok(())
    }

    /// Does the remaining work once everything is determined, within the effort.
    pub(super) fn finish<P: Payloads>(
        &mut self,
        system: &System,
        code: &Code,
        received: &Received,
        effort: &mut Effort,
        payloads: &mut P,
        decoded: &mut impl FnMut(u16),
    ) -> Result<(), P::Error> {
        while self.stage != Stage::Done && !effort.is_spent() {
            let Some(next) = self.go_on(system, code, received, effort, payloads, decoded)? else {
                return Ok(());
            };
            self.stage = next;
        }
        Ok(())
    }

    /// Does one part of the stage, and returns the next stage; `None` if the effort ended first.
    fn go_on<P: Payloads>(
        &mut self,
        system: &System,
        code: &Code,
        received: &Received,
        effort: &mut Effort,
        payloads: &mut P,
        decoded: &mut impl FnMut(u16),
    ) -> Result<Option<Stage>, P::Error> {
        Ok(Some(match self.stage {
            Stage::Following(index) if index < system.steps() => {
                let step = system.step(index);
                if !self.resolve(system, received, &step, With::Settled, effort, payloads)? {
                    return Ok(None);
                }
                if system.inactive().is_empty() {
                    report(system, code, &step, decoded);
                }
                Stage::Following(index + 1)
            }
            Stage::Following(_) if system.inactive().is_empty() => Stage::Done,
            Stage::Following(_) => Stage::Constraints(0),
            Stage::Constraints(index) if index < system.constraints().len() => {
                match self.constrain(system, code, received, index, effort, payloads)? {
                    Some(next) => Stage::Constraints(next),
                    None => return Ok(None),
                }
            }
            Stage::Constraints(_) => Stage::Inactive(0),
            Stage::Inactive(first) if first < system.inactive().len() => {
                match self.solve(system, first, effort, payloads)? {
                    Some(next) => {
                        let found = &system.inactive()[first..next];
                        found.iter().filter(|symbol| is_source(code, **symbol)).for_each(
                            |symbol| {
                                decoded(*symbol);
                            },
                        );
                        Stage::Inactive(next)
                    }
                    None => return Ok(None),
                }
            }
            Stage::Inactive(_) => Stage::Back(self.peeled),
            Stage::Back(index) if index < system.steps() => {
                let step = system.step(index);
                if !self.complete(system, received, &step, effort, payloads)? {
                    return Ok(None);
                }
                report(system, code, &step, decoded);
                Stage::Back(index + 1)
            }
            Stage::Back(_) | Stage::Done => Stage::Done,
        }))
    }

    /// Computes the symbols that a step resolves. Returns whether that is done.
    fn resolve<P: Payloads>(
        &mut self,
        system: &System,
        received: &Received,
        step: &Step,
        with: With,
        effort: &mut Effort,
        payloads: &mut P,
    ) -> Result<bool, P::Error> {
        let pivots = usize::from(step.pivots);
        self.destinations.clear();
        let symbols = system.columns(step)[..pivots].iter();
        self.destinations.extend(symbols.map(|&symbol| Operand::Symbol(symbol)));
        self.list_sources(system, received, step, with);
        self.combine(system, step, |row| row, effort, payloads)
    }

    /// Brings the symbols that a step resolves to their final values, the cheaper way: by adding
    /// the part that depends on inactive symbols, or by recomputing them. Returns whether that is
    /// done.
    fn complete<P: Payloads>(
        &mut self,
        system: &System,
        received: &Received,
        step: &Step,
        effort: &mut Effort,
        payloads: &mut P,
    ) -> Result<bool, P::Error> {
        let inactive = system.inactive();
        if inactive.len() >= step.others() + usize::from(step.equations) {
            return self.resolve(system, received, step, With::All, effort, payloads);
        }
        let symbols = &system.columns(step)[..usize::from(step.pivots)];
        let parts = Parts { sources: inactive.len(), destinations: symbols.len() };
        while self.part < parts.count() {
            let (from, to) = parts.of(self.part);
            let (inactive, symbols) = (&inactive[from.clone()], &symbols[to]);
            self.sources.clear();
            self.sources.extend(inactive.iter().map(|&symbol| Operand::Symbol(symbol)));
            self.destinations.clear();
            self.destinations.extend(symbols.iter().map(|&symbol| Operand::Symbol(symbol)));
            for (out, &symbol) in self.coefficients.chunks_exact_mut(from.len()).zip(symbols) {
                out.copy_from_slice(&system.dependence(symbol)[from.clone()]);
            }
            let coefficients = &self.coefficients[..from.len() * symbols.len()];
            payloads.combine(coefficients, &self.sources, &self.destinations, true)?;
            if !self.next_part(parts, effort) {
                return Ok(false);
            }
        }
        self.part = 0;
        Ok(true)
    }

    /// Counts a finished part. False if the effort ended and more parts follow.
    fn next_part(&mut self, parts: Parts, effort: &mut Effort) -> bool {
        let (from, to) = parts.of(self.part);
        self.part += 1;
        effort.spend_symbols(from.len() * to.len());
        !effort.is_spent() || self.part >= parts.count()
    }

    /// Computes the residuals of the constraints from `index` on that belong to one step, and
    /// returns the next index.
    fn constrain<P: Payloads>(
        &mut self,
        system: &System,
        code: &Code,
        received: &Received,
        index: usize,
        effort: &mut Effort,
        payloads: &mut P,
    ) -> Result<Option<usize>, P::Error> {
        let constraints = &system.constraints()[index..];
        self.destinations.clear();
        match constraints[0] {
            Constraint::Row { step, .. } => {
                let of_step = |constraint: &&Constraint| matches!(constraint, Constraint::Row { step: other, .. } if *other == step);
                let mut rows = [0; BATCH_SIZE_MAX];
                let mut count = 0;
                for constraint in constraints.iter().take_while(of_step) {
                    if let Constraint::Row { row, .. } = constraint {
                        rows[count] = usize::from(*row);
                        self.destinations.push(Operand::Spare((index + count) as u16));
                        count += 1;
                    }
                }
                let step = system.step(step as usize);
                self.list_sources(system, received, &step, With::Settled);
                let done = self.combine(system, &step, |row| rows[row], effort, payloads)?;
                Ok(done.then_some(index + count))
            }
            Constraint::Hdpc(row) => {
                self.destinations.push(Operand::Spare(index as u16));
                let done = self.constrain_hdpc(system, code, usize::from(row), effort, payloads)?;
                Ok(done.then_some(index + 1))
            }
        }
    }

    /// Returns whether it is done.
    fn constrain_hdpc<P: Payloads>(
        &mut self,
        system: &System,
        code: &Code,
        row: usize,
        effort: &mut Effort,
        payloads: &mut P,
    ) -> Result<bool, P::Error> {
        let Some(precode) = code.precode() else { return Ok(true) };
        let factors = precode.hdpc_row(row);
        let own = (factors.len() + row) as u16;
        let is_settled = |symbol: u16| {
            !matches!(system.state(usize::from(symbol)), IntermediateState::Inactive(_))
        };
        loop {
            let terms = factors.iter().copied().enumerate().map(|(symbol, c)| (symbol as u16, c));
            let terms = terms.chain([(own, 1)]).filter(|(symbol, _)| is_settled(*symbol));
            let terms = terms.skip(self.part * SOURCES_MAX).take(SOURCES_MAX);
            self.sources.clear();
            for ((symbol, coefficient), out) in terms.zip(&mut self.coefficients) {
                self.sources.push(Operand::Symbol(symbol));
                *out = coefficient;
            }
            let (count, accumulate) = (self.sources.len(), self.part > 0);
            if count > 0 || !accumulate {
                let coefficients = &self.coefficients[..count];
                payloads.combine(coefficients, &self.sources, &self.destinations, accumulate)?;
            }
            effort.spend_symbols(count);
            self.part += 1;
            if count < SOURCES_MAX {
                self.part = 0;
                return Ok(true);
            }
            if effort.is_spent() {
                return Ok(false);
            }
        }
    }

    /// Computes a group of inactive symbols from the spare rows, and returns the next one.
    fn solve<P: Payloads>(
        &mut self,
        system: &System,
        first: usize,
        effort: &mut Effort,
        payloads: &mut P,
    ) -> Result<Option<usize>, P::Error> {
        let inactive = system.inactive();
        let end = inactive.len().min(first + GROUP);
        let width = inactive.len();
        for (number, out) in (first..end).zip(self.solution.chunks_exact_mut(width)) {
            system.solution(number, out);
        }
        self.destinations.clear();
        self.destinations
            .extend(inactive[first..end].iter().map(|&symbol| Operand::Symbol(symbol)));
        let parts = Parts { sources: width, destinations: end - first };
        while self.part < parts.count() {
            let (from, _) = parts.of(self.part);
            self.sources.clear();
            self.sources.extend(from.clone().map(|spare| Operand::Spare(spare as u16)));
            let rows = self.solution.chunks_exact(width).take(end - first);
            for (out, row) in self.coefficients.chunks_exact_mut(from.len()).zip(rows) {
                out.copy_from_slice(&row[from.clone()]);
            }
            let coefficients = &self.coefficients[..from.len() * (end - first)];
            let accumulate = from.start > 0;
            payloads.combine(coefficients, &self.sources, &self.destinations, accumulate)?;
            if !self.next_part(parts, effort) {
                return Ok(None);
            }
        }
        self.part = 0;
        Ok(Some(end))
    }

    /// `destinations[i]` = row `row_of(i)` of a step, over the packets and other symbols of its
    /// group listed in `sources`. Returns whether that is done.
    fn combine<P: Payloads>(
        &mut self,
        system: &System,
        step: &Step,
        row_of: impl Fn(usize) -> usize,
        effort: &mut Effort,
        payloads: &mut P,
    ) -> Result<bool, P::Error> {
        let parts = Parts { sources: self.sources.len(), destinations: self.destinations.len() };
        while self.part < parts.count() {
            let (from, to) = parts.of(self.part);
            let (sources, picked) = (&self.sources[from.clone()], &self.picked[from.clone()]);
            let width = sources.len();
            for (place, index) in to.clone().enumerate() {
                let row = system.matrix_row(step, row_of(index));
                let out = &mut self.coefficients[place * width..(place + 1) * width];
                for (coefficient, &place) in out.iter_mut().zip(picked) {
                    *coefficient = row[usize::from(place)];
                }
            }
            let coefficients = &self.coefficients[..width * to.len()];
            let (destinations, accumulate) = (&self.destinations[to], from.start > 0);
            payloads.combine(coefficients, sources, destinations, accumulate)?;
            if !self.next_part(parts, effort) {
                return Ok(false);
            }
        }
        self.part = 0;
        Ok(true)
    }

    /// Lists the operands of a step, and the places of their coefficients in its matrix rows.
    fn list_sources(&mut self, system: &System, received: &Received, step: &Step, with: With) {
        self.sources.clear();
        self.picked.clear();
        if let Origin::Batch(batch) = step.origin {
            let slots = &received.slots(usize::from(batch))[usize::from(step.first_slot)..];
            for (nth, &slot) in slots.iter().take(usize::from(step.equations)).enumerate() {
                self.sources.push(Operand::Received(slot));
                self.picked.push((step.others() + nth) as u16);
            }
        }
        let others = system.columns(step)[usize::from(step.pivots)..].iter().enumerate();
        for (place, &symbol) in others {
            let is_inactive =
                matches!(system.state(usize::from(symbol)), IntermediateState::Inactive(_));
            if with == With::All || !is_inactive {
                self.sources.push(Operand::Symbol(symbol));
                self.picked.push(place as u16);
            }
        }
    }
}

fn report(system: &System, code: &Code, step: &Step, decoded: &mut impl FnMut(u16)) {
    for &symbol in &system.columns(step)[..usize::from(step.pivots)] {
        if is_source(code, symbol) {
            decoded(symbol);
        }
    }
}

fn is_source(code: &Code, symbol: u16) -> bool {
    usize::from(symbol) < code.params().source_symbols
}

/// A product of rows in parts: all sources of some destinations, then those of the next ones.
#[derive(Copy, Clone)]
struct Parts {
    sources: usize,
    destinations: usize,
}

impl Parts {
    /// Parts for each group of destinations: one if there is nothing to add up.
    fn per_group(self) -> usize {
        self.sources.div_ceil(SOURCES_MAX).max(1)
    }

    fn count(self) -> usize {
        self.destinations.div_ceil(GROUP) * self.per_group()
    }

    /// Sources and destinations of a part.
    fn of(self, part: usize) -> (Range<usize>, Range<usize>) {
        let (group, part) =
            (part / self.per_group() * GROUP, part % self.per_group() * SOURCES_MAX);
        (part..self.sources.min(part + SOURCES_MAX), group..self.destinations.min(group + GROUP))
    }
}
