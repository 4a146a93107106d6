//! Payload work, by whole groups: what the steps of the system say, done to bytes.
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
use crate::bats::decoder::received::Received;
use crate::bats::decoder::system::{Constraint, Origin, State, Step, System};
use crate::bats::params::BATCH_SIZE_MAX;
use crate::bats::payloads::{Operand, Payloads};

/// Sources of one call to [`Payloads::combine`], and destinations of one that solves for inactive
/// symbols.
const SOURCES_MAX: usize = 64;
const GROUP: usize = 32;

/// Where the work stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    /// Steps followed so far.
    Following(usize),
    Constraints(usize),
    Inactive(usize),
    /// Steps gone back over.
    Back(usize),
    Done,
}

pub(super) struct Solver {
    stage: Stage,
    /// Steps that need not be gone back over.
    peeled: usize,
    sources: Vec<Operand>,
    picked: Vec<u16>,
    destinations: Vec<Operand>,
    coefficients: Vec<u8>,
    solution: Vec<u8>,
}

/// What a combination takes of the symbols of a step.
#[derive(Copy, Clone, PartialEq, Eq)]
enum With {
    /// All but inactive symbols, which count as zero.
    Settled,
    All,
}

impl Solver {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Following(0),
            peeled: 0,
            sources: Vec::with_capacity(2 * super::system::COLUMNS_MAX),
            picked: Vec::with_capacity(2 * super::system::COLUMNS_MAX),
            destinations: Vec::with_capacity(BATCH_SIZE_MAX),
            coefficients: vec![0; BATCH_SIZE_MAX * SOURCES_MAX],
            solution: vec![0; GROUP * 1024],
        }
    }

    pub(super) fn reset(&mut self) {
        self.stage = Stage::Following(0);
        self.peeled = 0;
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
        system.is_planned() || self.stage == Stage::Following(system.steps())
    }

    /// Follows the steps made by peeling.
    pub(super) fn follow<P: Payloads>(
        &mut self,
        system: &System,
        code: &Code,
        received: &Received,
        payloads: &mut P,
        decoded: &mut impl FnMut(u16),
    ) -> Result<(), P::Error> {
        let Stage::Following(first) = self.stage else { return Ok(()) };
        if system.is_planned() {
            return Ok(());
        }
        for index in first..system.steps() {
            let step = system.step(index);
            self.resolve(system, received, &step, With::Settled, payloads)?;
            self.stage = Stage::Following(index + 1);
            self.peeled = index + 1;
            report(system, code, &step, decoded);
        }
        Ok(())
    }

    /// Does all that is left once everything is determined.
    pub(super) fn finish<P: Payloads>(
        &mut self,
        system: &System,
        code: &Code,
        received: &Received,
        payloads: &mut P,
        decoded: &mut impl FnMut(u16),
    ) -> Result<(), P::Error> {
        loop {
            self.stage = match self.stage {
                Stage::Following(index) if index < system.steps() => {
                    let step = system.step(index);
                    self.resolve(system, received, &step, With::Settled, payloads)?;
                    if system.inactive().is_empty() {
                        report(system, code, &step, decoded);
                    }
                    Stage::Following(index + 1)
                }
                Stage::Following(_) if system.inactive().is_empty() => Stage::Done,
                Stage::Following(_) => Stage::Constraints(0),
                Stage::Constraints(index) if index < system.constraints().len() => {
                    Stage::Constraints(self.constrain(system, code, received, index, payloads)?)
                }
                Stage::Constraints(_) => Stage::Inactive(0),
                Stage::Inactive(first) if first < system.inactive().len() => {
                    Stage::Inactive(self.solve(system, code, first, payloads, decoded)?)
                }
                Stage::Inactive(_) => Stage::Back(self.peeled),
                Stage::Back(index) if index < system.steps() => {
                    let step = system.step(index);
                    self.complete(system, received, &step, payloads)?;
                    report(system, code, &step, decoded);
                    Stage::Back(index + 1)
                }
                Stage::Back(_) | Stage::Done => {
                    self.stage = Stage::Done;
                    return Ok(());
                }
            };
        }
    }

    /// Computes the symbols that a step resolves.
    fn resolve<P: Payloads>(
        &mut self,
        system: &System,
        received: &Received,
        step: &Step,
        with: With,
        payloads: &mut P,
    ) -> Result<(), P::Error> {
        let pivots = usize::from(step.pivots);
        self.destinations.clear();
        let symbols = system.columns(step)[..pivots].iter();
        self.destinations.extend(symbols.map(|&symbol| Operand::Symbol(symbol)));
        self.combine(system, received, step, |row| row, with, payloads)
    }

    /// Brings the symbols that a step resolves to their final values, the cheaper way: by adding
    /// what depends on inactive symbols, or by computing them anew.
    fn complete<P: Payloads>(
        &mut self,
        system: &System,
        received: &Received,
        step: &Step,
        payloads: &mut P,
    ) -> Result<(), P::Error> {
        let inactive = system.inactive();
        if inactive.len() >= step.others() + usize::from(step.equations) {
            return self.resolve(system, received, step, With::All, payloads);
        }
        let symbols = &system.columns(step)[..usize::from(step.pivots)];
        self.destinations.clear();
        self.destinations.extend(symbols.iter().map(|&symbol| Operand::Symbol(symbol)));
        for first in (0..inactive.len()).step_by(SOURCES_MAX) {
            let group = &inactive[first..inactive.len().min(first + SOURCES_MAX)];
            self.sources.clear();
            self.sources.extend(group.iter().map(|&symbol| Operand::Symbol(symbol)));
            for (out, &symbol) in self.coefficients.chunks_exact_mut(group.len()).zip(symbols) {
                out.copy_from_slice(&system.dependence(symbol)[first..first + group.len()]);
            }
            let coefficients = &self.coefficients[..group.len() * symbols.len()];
            payloads.combine(coefficients, &self.sources, &self.destinations, true)?;
        }
        Ok(())
    }

    /// Computes what is left of the constraints from `index` on that belong to one step, and
    /// returns the next one.
    fn constrain<P: Payloads>(
        &mut self,
        system: &System,
        code: &Code,
        received: &Received,
        index: usize,
        payloads: &mut P,
    ) -> Result<usize, P::Error> {
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
                self.combine(system, received, &step, |row| rows[row], With::Settled, payloads)?;
                Ok(index + count)
            }
            Constraint::Hdpc(row) => {
                self.constrain_hdpc(system, code, usize::from(row), index, payloads)?;
                Ok(index + 1)
            }
        }
    }

    fn constrain_hdpc<P: Payloads>(
        &mut self,
        system: &System,
        code: &Code,
        row: usize,
        index: usize,
        payloads: &mut P,
    ) -> Result<(), P::Error> {
        let Some(precode) = code.precode() else { return Ok(()) };
        let factors = precode.hdpc_row(row);
        let own = (factors.len() + row) as u16;
        let terms = factors.iter().copied().enumerate().map(|(symbol, c)| (symbol as u16, c));
        let terms = terms.chain([(own, 1)]).filter(|(symbol, _)| {
            !matches!(system.state(usize::from(*symbol)), State::Inactive(_))
        });
        self.destinations.push(Operand::Spare(index as u16));
        let (mut accumulate, mut count) = (false, 0);
        self.sources.clear();
        for (symbol, coefficient) in terms {
            self.sources.push(Operand::Symbol(symbol));
            self.coefficients[count] = coefficient;
            count += 1;
            if count == SOURCES_MAX {
                let coefficients = &self.coefficients[..count];
                payloads.combine(coefficients, &self.sources, &self.destinations, accumulate)?;
                (accumulate, count) = (true, 0);
                self.sources.clear();
            }
        }
        let coefficients = &self.coefficients[..count];
        payloads.combine(coefficients, &self.sources, &self.destinations, accumulate)
    }

    /// Computes a group of inactive symbols from the spare rows, and returns the next one.
    fn solve<P: Payloads>(
        &mut self,
        system: &System,
        code: &Code,
        first: usize,
        payloads: &mut P,
        decoded: &mut impl FnMut(u16),
    ) -> Result<usize, P::Error> {
        let inactive = system.inactive();
        let end = inactive.len().min(first + GROUP);
        let width = inactive.len();
        for (number, out) in (first..end).zip(self.solution.chunks_exact_mut(width)) {
            system.solution(number, out);
        }
        self.destinations.clear();
        self.destinations
            .extend(inactive[first..end].iter().map(|&symbol| Operand::Symbol(symbol)));
        for from in (0..width).step_by(SOURCES_MAX) {
            let count = SOURCES_MAX.min(width - from);
            self.sources.clear();
            self.sources.extend((from..from + count).map(|spare| Operand::Spare(spare as u16)));
            let rows = self.solution.chunks_exact(width).take(end - first);
            for (out, row) in self.coefficients.chunks_exact_mut(count).zip(rows) {
                out.copy_from_slice(&row[from..from + count]);
            }
            let coefficients = &self.coefficients[..count * (end - first)];
            payloads.combine(coefficients, &self.sources, &self.destinations, from > 0)?;
        }
        for &symbol in &inactive[first..end] {
            if usize::from(symbol) < code.params().source_symbols {
                decoded(symbol);
            }
        }
        Ok(end)
    }

    /// `destinations[i]` = row `row_of(i)` of a step: packets and other symbols of its group.
    fn combine<P: Payloads>(
        &mut self,
        system: &System,
        received: &Received,
        step: &Step,
        row_of: impl Fn(usize) -> usize,
        with: With,
        payloads: &mut P,
    ) -> Result<(), P::Error> {
        if self.destinations.is_empty() {
            return Ok(());
        }
        self.list_sources(system, received, step, with);
        let mut accumulate = false;
        let sources = std::mem::take(&mut self.sources);
        let picked = std::mem::take(&mut self.picked);
        let groups = sources.chunks(SOURCES_MAX).zip(picked.chunks(SOURCES_MAX));
        let mut done = Ok(());
        for (sources, picked) in groups.chain(sources.is_empty().then_some((&[][..], &[][..]))) {
            let width = sources.len();
            for index in 0..self.destinations.len() {
                let row = system.matrix_row(step, row_of(index));
                let out = &mut self.coefficients[index * width..(index + 1) * width];
                for (coefficient, &place) in out.iter_mut().zip(picked) {
                    *coefficient = row[usize::from(place)];
                }
            }
            let coefficients = &self.coefficients[..width * self.destinations.len()];
            done = payloads.combine(coefficients, sources, &self.destinations, accumulate);
            accumulate = true;
            if done.is_err() {
                break;
            }
        }
        (self.sources, self.picked) = (sources, picked);
        done
    }

    /// Lists what a step combines, and where in its matrix rows the coefficients are.
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
            let is_inactive = matches!(system.state(usize::from(symbol)), State::Inactive(_));
            if with == With::All || !is_inactive {
                self.sources.push(Operand::Symbol(symbol));
                self.picked.push(place as u16);
            }
        }
    }
}

fn report(system: &System, code: &Code, step: &Step, decoded: &mut impl FnMut(u16)) {
    for &symbol in &system.columns(step)[..usize::from(step.pivots)] {
        if usize::from(symbol) < code.params().source_symbols {
            decoded(symbol);
        }
    }
}
