//! Inactivation: a decoding of all symbols, and the constraints that decide it.

use crate::bats::code::Code;
use crate::bats::decoder::received::Received;
use crate::bats::decoder::system::{
    Constraint, Edge, Group, Origin, State, Step, System, TooManyInactive, Work,
};

impl System {
    /// Works off every group, inactivating what must be, and collects the constraints. On failure
    /// everything is as before.
    pub(in crate::bats::decoder) fn plan(
        &mut self,
        code: &Code,
        received: &Received,
    ) -> Result<(), TooManyInactive> {
        let done = self.plan_all(code, received);
        if done.is_err() {
            self.undo_plan();
        }
        done
    }

    fn plan_all(&mut self, code: &Code, received: &Received) -> Result<(), TooManyInactive> {
        for symbol in 0..self.symbols {
            self.dependence[symbol * self.inactive_max..][..self.inactive_max].fill(0);
        }
        while let Some(group) = self.best_group() {
            self.work_off(group, code, received, true)?;
        }
        for symbol in 0..self.symbols {
            if self.states[symbol] == State::Unknown {
                self.inactivate(symbol as u16)?;
            }
        }
        self.is_planned = true;
        if self.inactive.is_empty() {
            return Ok(());
        }
        self.elimination.reset(self.inactive.len());
        for step in self.peeled..self.steps.len() {
            self.constrain_by_step(step);
        }
        for row in 0..code.precode().map_or(0, |precode| precode.hdpc()) {
            self.constrain_by_hdpc(code, row);
        }
        Ok(())
    }

    fn undo_plan(&mut self) {
        for state in &mut self.states {
            if matches!(state, State::Resolved | State::Inactive(_)) {
                *state = State::Unknown;
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
        self.settled = self.states.iter().filter(|state| **state == State::Known).count();
        self.weights.fill(0);
        for group in self.groups.iter_mut() {
            let edges = &self.edges[group.first_edge as usize..][..usize::from(group.degree)];
            let is_unknown = |edge: &&Edge| self.states[usize::from(edge.symbol)] == State::Unknown;
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

    /// The group to work off next: that which leaves the fewest symbols inactive; groups without
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

    /// Takes a packet of a batch in after planning: a constraint if it says anything new.
    pub(in crate::bats::decoder) fn constrain_by_packet(
        &mut self,
        code: &Code,
        received: &Received,
        batch: u16,
        slot: u16,
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
        self.constrain_by_step(self.steps.len() - 1);
        if self.constraints.len() == before {
            self.steps.pop();
            self.columns.truncate(step.first_column as usize);
            self.matrices.truncate(step.matrix as usize);
        }
    }

    /// Makes constraints of the left-over rows of a step.
    fn constrain_by_step(&mut self, index: usize) {
        let step = self.steps[index];
        let width = self.inactive.len();
        if step.pivots == step.equations || self.elimination.is_complete() {
            return;
        }
        self.gather(&step, width);
        for row in usize::from(step.pivots)..usize::from(step.equations) {
            let Work { row: sum, gathered, .. } = &mut self.work;
            sum[..width].fill(0);
            let start = step.matrix as usize + row * step.stride();
            let factors = &self.matrices[start..start + step.others()];
            self.kernel.reduce(&mut sum[..width], factors, gathered, width);
            if self.elimination.insert(&sum[..width]).is_innovative() {
                self.constraints.push(Constraint::Row { step: index as u32, row: row as u16 });
            }
        }
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
        self.settle(symbol, State::Inactive(number as u16));
        Ok(())
    }
}
