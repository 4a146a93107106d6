//! Inactivation: a decoding of all symbols, and the constraints that determine it.

use crate::bats::code::Code;
use crate::bats::decoder::effort::Effort;
use crate::bats::decoder::received::Received;
use crate::bats::decoder::system::{
    Constraint, Edge, EliminationScratch, Group, IntermediateState, Origin, Step, System,
    TooManyInactive,
};

/// Symbols whose dependence is cleared at a time: at most a megabyte.
const CLEARED: usize = 1024;

/// The next step of a plan.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Planning {
    /// Clear the dependence of the symbols from here on.
    Clear(usize),
    /// Process a group.
    Group,
    /// Dependence of the symbols that the last step resolves, from this one on.
    Depend(usize),
    /// Inactivate the symbols that no group resolves.
    Rest,
    /// Constraints of a step, from a row on.
    Step(usize, usize),
    /// Constraint of an HDPC row.
    Hdpc(usize),
}

impl System {
    /// Processes every group, inactivating symbols where necessary, and collects the constraints,
    /// within the effort. On failure everything is unchanged.
    pub(in crate::bats::decoder) fn plan(
        &mut self,
        code: &Code,
        received: &Received,
        effort: &mut Effort,
    ) -> Result<(), TooManyInactive> {
        let mut next = self.planning.unwrap_or(Planning::Clear(0));
        loop {
            self.planning = Some(next);
            if effort.is_spent() {
                return Ok(());
            }
            match self.plan_next(next, code, received, effort) {
                Ok(Some(then)) => next = then,
                Ok(None) => {
                    (self.planning, self.is_planned) = (None, true);
                    return Ok(());
                }
                Err(error) => {
                    self.planning = None;
                    self.undo_plan();
                    return Err(error);
                }
            }
        }
    }

    /// Does one step, and returns the next.
    fn plan_next(
        &mut self,
        now: Planning,
        code: &Code,
        received: &Received,
        effort: &mut Effort,
    ) -> Result<Option<Planning>, TooManyInactive> {
        let hdpc = code.precode().map_or(0, |precode| precode.hdpc());
        Ok(match now {
            Planning::Clear(first) if first < self.symbols => {
                let end = self.symbols.min(first + CLEARED);
                let range = first * self.inactive_max..end * self.inactive_max;
                effort.spend(1, range.len() / 4);
                self.dependence[range].fill(0);
                Some(Planning::Clear(end))
            }
            Planning::Clear(_) => Some(Planning::Group),
            Planning::Group => match self.best_group() {
                Some(group) => {
                    self.work_off(group, code, received, true, effort)?;
                    Some(Planning::Depend(0))
                }
                None => Some(Planning::Rest),
            },
            Planning::Depend(first) => {
                let step = self.steps[self.steps.len() - 1];
                let next = self.depend(&step, first, effort);
                Some(next.map_or(Planning::Group, Planning::Depend))
            }
            Planning::Rest => {
                self.inactivate_rest()?;
                (!self.inactive.is_empty()).then(|| {
                    self.elimination.reset(self.inactive.len());
                    Planning::Step(self.peeled, 0)
                })
            }
            Planning::Step(step, row) if step < self.steps.len() => {
                let next = self.constrain_by_step(step, row, effort);
                Some(next.map_or(Planning::Step(step + 1, 0), |row| Planning::Step(step, row)))
            }
            Planning::Step(..) => (hdpc > 0).then_some(Planning::Hdpc(0)),
            Planning::Hdpc(row) => {
                self.constrain_by_hdpc(code, row);
                effort.spend(self.symbols, self.inactive.len());
                (row + 1 < hdpc).then_some(Planning::Hdpc(row + 1))
            }
        })
    }

    /// Inactivates the symbols that are still unknown.
    fn inactivate_rest(&mut self) -> Result<(), TooManyInactive> {
        for symbol in 0..self.symbols {
            if self.states[symbol] == IntermediateState::Unknown {
                self.inactivate(symbol as u16)?;
            }
        }
        Ok(())
    }

    fn undo_plan(&mut self) {
        for state in &mut self.states {
            if matches!(state, IntermediateState::Resolved | IntermediateState::Inactive(_)) {
                *state = IntermediateState::Unknown;
            }
        }
        for step in self.steps.drain(self.peeled..) {
            let ldpc =
                self.groups.iter().take_while(|group| matches!(group.origin, Origin::Ldpc(_)));
            let group = match step.origin {
                Origin::Ldpc(row) => usize::from(row),
                Origin::Batch(batch) => ldpc.count() + usize::from(batch),
            };
            self.groups[group].is_done = false;
        }
        self.settled =
            self.states.iter().filter(|state| **state == IntermediateState::Known).count();
        self.weights.fill(0);
        for group in self.groups.iter_mut() {
            let edges = &self.edges[group.first_edge as usize..][..usize::from(group.degree)];
            let is_unknown =
                |edge: &&Edge| self.states[usize::from(edge.symbol)] == IntermediateState::Unknown;
            group.unknown = edges.iter().filter(is_unknown).count() as u16;
            for edge in edges.iter().filter(|_| !group.is_done) {
                self.weights[usize::from(edge.symbol)] += 1;
            }
        }
        let end = self.steps.last().map_or((0, 0), |step| {
            let rows = usize::from(step.equations);
            (
                step.first_column as usize + usize::from(step.degree),
                step.matrix as usize + rows * step.stride(),
            )
        });
        self.columns.truncate(end.0);
        self.matrices.truncate(end.1);
        self.inactive.clear();
    }

    /// The next group to process: the one that leaves the fewest symbols inactive; groups without
    /// unknown symbols last.
    fn best_group(&self) -> Option<usize> {
        let open = self.groups.iter().enumerate();
        let open = open.filter(|(_, group)| !group.is_done && group.rank > 0);
        let lack = |group: &Group| match group.unknown {
            0 => i32::MAX,
            unknown => (i32::from(unknown) - i32::from(group.rank)).max(0),
        };
        let mut best = None;
        for (index, group) in open {
            let lack = lack(group);
            if best.is_none_or(|(_, least)| lack < least) {
                best = Some((index, lack));
            }
            if lack == 0 {
                break;
            }
        }
        best.map(|(index, _)| index)
    }

    /// Adds a packet of a batch after planning: a constraint if it is innovative.
    pub(in crate::bats::decoder) fn constrain_by_packet(
        &mut self,
        code: &Code,
        received: &Received,
        batch: u16,
        slot: u16,
        effort: &mut Effort,
    ) {
        let mut contents = std::mem::take(&mut self.work.batch);
        code.batch(received.id(usize::from(batch)), &mut contents);
        let degree = contents.degree();
        let step = Step {
            origin: Origin::Batch(batch),
            first_slot: slot,
            equations: 1,
            first_column: self.columns.len() as u32,
            degree: degree as u16,
            pivots: 0,
            matrix: self.matrices.len() as u32,
        };
        let number = received.slots(usize::from(batch))[usize::from(slot)];
        self.columns.extend_from_slice(contents.indices());
        self.matrices.resize(self.matrices.len() + degree, 0);
        let row = &mut self.matrices[step.matrix as usize..];
        self.kernel.reduce(row, received.vector(number), contents.generator(), degree);
        self.matrices.push(1);
        self.work.batch = contents;
        self.steps.push(step);
        let before = self.constraints.len();
        let all = &mut Effort::UNLIMITED.clone();
        self.constrain_by_step(self.steps.len() - 1, 0, all);
        effort.spend(2 * degree + self.inactive.len(), self.inactive.len());
        if self.constraints.len() == before {
            self.steps.pop();
            self.columns.truncate(step.first_column as usize);
            self.matrices.truncate(step.matrix as usize);
        }
    }

    /// Makes constraints of the left-over rows of a step, from the first or `row` on. Returns the
    /// next one, if any is left.
    fn constrain_by_step(
        &mut self,
        index: usize,
        row: usize,
        effort: &mut Effort,
    ) -> Option<usize> {
        let step = self.steps[index];
        let width = self.inactive.len();
        if step.pivots == step.equations || self.elimination.is_complete() {
            return None;
        }
        self.gather(&step, width);
        effort.spend(step.others(), width);
        let first = row.max(usize::from(step.pivots));
        for row in first..usize::from(step.equations) {
            if effort.is_spent() && row > first {
                return Some(row);
            }
            let EliminationScratch { row: sum, gathered, .. } = &mut self.work;
            sum[..width].fill(0);
            let start = step.matrix as usize + row * step.stride();
            let factors = &self.matrices[start..start + step.others()];
            self.kernel.reduce(&mut sum[..width], factors, gathered, width);
            effort.spend(step.others() + 2 * self.elimination.rank(), width);
            if self.elimination.insert(&sum[..width]).is_innovative() {
                self.constraints.push(Constraint::Row { step: index as u32, row: row as u16 });
            }
        }
        None
    }

    fn constrain_by_hdpc(&mut self, code: &Code, row: usize) {
        let Some(precode) = code.precode() else { return };
        let width = self.inactive.len();
        let factors = precode.hdpc_row(row);
        let sum = &mut self.work.row[..width];
        sum.copy_from_slice(&self.dependence[(factors.len() + row) * self.inactive_max..][..width]);
        self.kernel.reduce(sum, factors, &self.dependence, self.inactive_max);
        if self.elimination.insert(sum).is_innovative() {
            self.constraints.push(Constraint::Hdpc(row as u16));
        }
    }

    /// Copies the dependences of the other symbols of a step into `work.gathered`, `width` bytes
    /// each.
    pub(super) fn gather(&mut self, step: &Step, width: usize) {
        let columns = &self.columns[step.first_column as usize..][..usize::from(step.degree)];
        let others = columns[usize::from(step.pivots)..].iter();
        for (out, &symbol) in self.work.gathered.chunks_exact_mut(width).zip(others) {
            let start = usize::from(symbol) * self.inactive_max;
            out.copy_from_slice(&self.dependence[start..start + width]);
        }
    }

    pub(super) fn inactivate(&mut self, symbol: u16) -> Result<(), TooManyInactive> {
        let number = self.inactive.len();
        if number == self.inactive_max {
            return Err(TooManyInactive);
        }
        self.inactive.push(symbol);
        self.dependence[usize::from(symbol) * self.inactive_max + number] = 1;
        self.settle(symbol, IntermediateState::Inactive(number as u16));
        Ok(())
    }
}
