//! Processing one group: elimination over its unknown symbols.

use crate::bats::code::Code;
use crate::bats::decoder::effort::Effort;
use crate::bats::decoder::received::Received;
use crate::bats::decoder::system::{
    EliminationScratch, Group, IntermediateState, Origin, Step, System, TooManyInactive,
};
use recoded_gf::inverse;

impl System {
    /// Eliminates a group's unknown symbols and appends its step; if symbols are inactive,
    /// [`System::depend`] follows. Without `may_inactivate`, a group that does not determine all of
    /// them is left unchanged: `Ok(false)`.
    pub(super) fn work_off(
        &mut self,
        group: usize,
        code: &Code,
        received: &Received,
        may_inactivate: bool,
        effort: &mut Effort,
    ) -> Result<bool, TooManyInactive> {
        let unknown = usize::from(self.groups[group].unknown);
        self.order_columns(group);
        let equations = self.load(group, code, received);
        self.eliminate(equations, unknown);
        let stride = self.work.order.len() + equations;
        effort.spend(self.groups.len() / 8, 0);
        effort.spend(equations * (equations + self.work.pivots.len()), stride);
        if self.work.pivots.len() < unknown && !may_inactivate {
            return Ok(false);
        }
        let step = self.append_step(group, equations);
        let columns = step.first_column as usize..;
        for index in 0..usize::from(step.degree) {
            let symbol = self.columns[columns.clone()][index];
            if index >= usize::from(step.pivots)
                && self.states[usize::from(symbol)] == IntermediateState::Unknown
            {
                self.inactivate(symbol)?;
            }
            self.weights[usize::from(symbol)] -= 1;
        }
        let state =
            if may_inactivate { IntermediateState::Resolved } else { IntermediateState::Known };
        for index in 0..usize::from(step.pivots) {
            self.settle(self.columns[columns.clone()][index], state);
        }
        Ok(true)
    }

    /// Puts the symbols of a group into `work.order`: unknown ones first, and among these the ones
    /// in few other groups, so that symbols in many groups become inactive.
    fn order_columns(&mut self, group: usize) {
        let Group { first_edge, degree, .. } = self.groups[group];
        let edges = &self.edges[first_edge as usize..][..usize::from(degree)];
        let EliminationScratch { keys, order, .. } = &mut self.work;
        keys.clear();
        keys.extend(edges.iter().zip(0_u64..).map(|(edge, column)| {
            let symbol = usize::from(edge.symbol);
            let is_settled = self.states[symbol] != IntermediateState::Unknown;
            u64::from(is_settled) << 32 | u64::from(self.weights[symbol]) << 16 | column
        }));
        keys.sort_unstable();
        order.clear();
        order.extend(keys.iter().map(|key| *key as u16));
    }

    /// Loads the equations of a group into `work.rows`: coefficients of its symbols in
    /// `work.order`, then the unit matrix. Returns their number.
    fn load(&mut self, group: usize, code: &Code, received: &Received) -> usize {
        let Group { origin, degree, rank, .. } = self.groups[group];
        let (degree, rank) = (usize::from(degree), usize::from(rank));
        let stride = degree + rank;
        let EliminationScratch { batch: contents, rows, order, fresh, .. } = &mut self.work;
        rows[..rank * stride].fill(0);
        match origin {
            Origin::Ldpc(_) => rows[..degree].fill(1),
            Origin::Batch(batch) => {
                code.batch(received.id(usize::from(batch)), contents);
                let slots = received.slots(usize::from(batch));
                for (row, &slot) in rows.chunks_exact_mut(stride).zip(slots) {
                    let natural = &mut fresh[..degree];
                    let vector = received.vector(slot);
                    match coded_symbol(vector) {
                        Some(nth) => {
                            natural.copy_from_slice(&contents.generator()[nth * degree..][..degree])
                        }
                        None => {
                            natural.fill(0);
                            self.kernel.reduce(natural, vector, contents.generator(), degree);
                        }
                    }
                    for (out, &column) in row.iter_mut().zip(&*order) {
                        *out = natural[usize::from(column)];
                    }
                }
            }
        }
        for row in 0..rank {
            rows[row * stride + degree + row] = 1;
        }
        // Symbols from here on, instead of places in the group.
        let edges = &self.edges[self.groups[group].first_edge as usize..];
        for column in order.iter_mut() {
            *column = edges[usize::from(*column)].symbol;
        }
        rank
    }

    /// Gauss-Jordan elimination of the first `unknown` columns of `work.rows`; `work.pivots` are
    /// the columns led, by row.
    fn eliminate(&mut self, equations: usize, unknown: usize) {
        let EliminationScratch { rows, fresh, order, pivots, others, .. } = &mut self.work;
        let stride = order.len() + equations;
        let (rows, fresh) = (&mut rows[..equations * stride], &mut fresh[..stride]);
        pivots.clear();
        others.clear();
        for column in 0..unknown {
            let place = pivots.len();
            let mut candidates = place..equations;
            let Some(found) = candidates.find(|row| rows[row * stride + column] != 0) else {
                others.push(column as u16);
                continue;
            };
            if found != place {
                let (above, below) = rows.split_at_mut(found * stride);
                above[place * stride..][..stride].swap_with_slice(&mut below[..stride]);
            }
            let leading = place * stride..(place + 1) * stride;
            fresh.copy_from_slice(&rows[leading.clone()]);
            self.kernel.mul(fresh, inverse(fresh[column]).unwrap_or(1));
            // Clears the column everywhere, including the leading row, which is then restored.
            self.kernel.eliminate(rows, stride, column, fresh);
            rows[leading].copy_from_slice(fresh);
            pivots.push(column as u16);
        }
        others.extend(unknown as u16..order.len() as u16);
    }

    /// Stores the eliminated equations of a group.
    fn append_step(&mut self, group: usize, equations: usize) -> Step {
        let EliminationScratch { rows, order, pivots, others, .. } = &self.work;
        let group = &mut self.groups[group];
        group.is_done = true;
        let step = Step {
            origin: group.origin,
            first_slot: 0,
            equations: equations as u16,
            first_column: self.columns.len() as u32,
            degree: group.degree,
            pivots: pivots.len() as u16,
            matrix: self.matrices.len() as u32,
        };
        self.columns.extend(pivots.iter().map(|&pivot| order[usize::from(pivot)]));
        self.columns.extend(others.iter().map(|&other| order[usize::from(other)]));
        let stride = order.len() + equations;
        for row in rows.chunks_exact(stride).take(equations) {
            self.matrices.extend(others.iter().map(|&other| row[usize::from(other)]));
            self.matrices.extend_from_slice(&row[order.len()..]);
        }
        self.steps.push(step);
        step
    }

    /// Computes how the symbols that a step resolves depend on inactive ones, from the `first` of
    /// them on. Returns the next one, if any is left.
    pub(super) fn depend(
        &mut self,
        step: &Step,
        first: usize,
        effort: &mut Effort,
    ) -> Option<usize> {
        let width = self.inactive.len();
        if width == 0 {
            return None;
        }
        self.gather(step, width);
        effort.spend(step.others(), width);
        for pivot in first..usize::from(step.pivots) {
            if effort.is_spent() && pivot > first {
                return Some(pivot);
            }
            let symbol = self.columns[step.first_column as usize + pivot];
            let start = step.matrix as usize + pivot * step.stride();
            let factors = &self.matrices[start..start + step.others()];
            let row = &mut self.dependence[usize::from(symbol) * self.inactive_max..][..width];
            self.kernel.reduce(row, factors, &self.work.gathered, width);
            effort.spend(step.others(), width);
        }
        None
    }
}

/// The index of the coded symbol that an uncoded packet carries.
fn coded_symbol(vector: &[u8]) -> Option<usize> {
    let nth = vector.iter().position(|&element| element != 0)?;
    let is_unit = vector[nth] == 1 && vector[nth + 1..].iter().all(|&element| element == 0);
    is_unit.then_some(nth)
}
