//! Peeling and inactivation on coefficients: which symbol follows from which packets and symbols.
//!
//! Equations come in *groups*: a batch with the rank it has, or one LDPC row. A group is worked off
//! once, by elimination over those of its symbols that are still unknown. Its *step* says what the
//! symbols that it resolves are combinations of; rows that are left over are constraints.
//!
//! ```text
//!  peeling       a group whose rank covers its unknown symbols resolves them: they are known
//!  inactivation  when no group does, the best one is worked off all the same; symbols that it
//!                cannot resolve become inactive, and what follows depends on them
//!  constraints   left-over rows of all groups, and the HDPC rows: equations in inactive symbols
//!                alone, which decide them once there are enough
//! ```

use crate::bats::batch::{Batch, DEGREE_MAX};
use crate::bats::code::Code;
use crate::bats::decoder::received::Received;
use crate::bats::params::{BATCH_SIZE_MAX, INACTIVE_MAX, Limits};
use crate::bats::precode::Precode;
use crate::elimination::Elimination;
use recoded_gf::{Kernel, inverse};

/// Most columns of a step's matrix: symbols and packets of one batch.
pub(super) const COLUMNS_MAX: usize = DEGREE_MAX + BATCH_SIZE_MAX;

/// What is known of an intermediate symbol.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    Unknown,
    /// Follows from packets alone.
    Known,
    /// Follows from packets and inactive symbols.
    Resolved,
    /// Number among the inactive symbols.
    Inactive(u16),
}

/// Where the equations of a group come from.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    Ldpc(u16),
    Batch(u16),
}

struct Group {
    origin: Origin,
    /// Its symbols, in `edges`.
    first_edge: u32,
    degree: u16,
    rank: u16,
    /// Symbols whose state is unknown.
    unknown: u16,
    /// Rank at which peeling it failed because rows were dependent.
    failed_at: u16,
    is_done: bool,
}

/// A symbol's place in a group, chained with its other places.
#[derive(Copy, Clone)]
struct Edge {
    symbol: u16,
    group: u16,
    next: u32,
}

const NO_EDGE: u32 = u32::MAX;

/// What a group was worked off to.
///
/// The matrix has one row for each pivot and one for each constraint, and `degree - pivots +
/// equations` columns: coefficients of the other symbols of the group, then of its packets.
#[derive(Copy, Clone, Debug)]
pub(super) struct Step {
    pub origin: Origin,
    /// Packets of the batch that take part: a range of its slots.
    pub first_slot: u16,
    pub equations: u16,
    /// Symbols of the group in `columns`: the resolved ones first.
    first_column: u32,
    pub degree: u16,
    pub pivots: u16,
    matrix: u32,
}

impl Step {
    pub(super) fn others(&self) -> usize {
        usize::from(self.degree - self.pivots)
    }

    fn stride(&self) -> usize {
        self.others() + usize::from(self.equations)
    }
}

/// A row that ties inactive symbols.
#[derive(Copy, Clone, Debug)]
pub(super) enum Constraint {
    /// Row of a step's matrix.
    Row { step: u32, row: u16 },
    /// HDPC row.
    Hdpc(u16),
}

/// No way to go on with the memory there is.
pub(super) struct TooManyInactive;

pub(super) struct System {
    kernel: &'static Kernel,
    inactive_max: usize,
    symbols: usize,
    states: Vec<State>,
    /// Symbols known or resolved.
    settled: usize,
    groups: Vec<Group>,
    edges: Vec<Edge>,
    /// Per symbol: its first edge, and in how many groups it is that are not done.
    heads: Vec<u32>,
    weights: Vec<u16>,
    steps: Vec<Step>,
    columns: Vec<u16>,
    matrices: Vec<u8>,
    /// Steps made by peeling alone.
    peeled: usize,
    is_planned: bool,
    /// The inactive symbols.
    inactive: Vec<u16>,
    /// Per symbol `inactive_max` bytes: its dependence on inactive symbols, once planned.
    dependence: Vec<u8>,
    elimination: Elimination,
    constraints: Vec<Constraint>,
    work: Work,
}

/// How much of everything blocks within some limits can need.
struct Room {
    symbols: usize,
    degree: usize,
    groups: usize,
    edges: usize,
    columns: usize,
    matrices: usize,
}

impl Room {
    fn of(limits: Limits) -> Self {
        let Limits { source_symbols_max, batch_size_max, batches_max, inactive_max } = limits;
        let precode = Precode::of(source_symbols_max);
        let (ldpc, members) = (precode.ldpc(), precode.members());
        let symbols = source_symbols_max + precode.parity_symbols();
        let degree = DEGREE_MAX.min(symbols);
        let edges = batches_max * degree + members;
        Self {
            symbols,
            degree,
            groups: batches_max + ldpc,
            edges,
            columns: edges + inactive_max * degree,
            matrices: batches_max * batch_size_max * (degree + batch_size_max)
                + members
                + ldpc
                + inactive_max * (degree + 1),
        }
    }

    fn bytes(&self, limits: Limits) -> usize {
        let per_symbol = size_of::<State>() + size_of::<u32>() + size_of::<u16>();
        self.symbols * (per_symbol + limits.inactive_max)
            + self.groups * size_of::<Group>()
            + self.edges * size_of::<Edge>()
            + (self.groups + limits.inactive_max) * size_of::<Step>()
            + self.columns * size_of::<u16>()
            + self.matrices
            + limits.inactive_max * (limits.inactive_max + self.degree)
    }
}

/// Scratch of one elimination.
struct Work {
    batch: Batch,
    rows: Vec<u8>,
    fresh: Vec<u8>,
    order: Vec<u16>,
    pivots: Vec<u16>,
    gathered: Vec<u8>,
    row: Vec<u8>,
}

impl System {
    pub(super) fn new(limits: Limits) -> Self {
        let Room { symbols, degree, groups, edges, columns, matrices } = Room::of(limits);
        let size = limits.batch_size_max;
        let inactive_max = limits.inactive_max.min(INACTIVE_MAX);
        Self {
            kernel: Kernel::best(),
            inactive_max,
            symbols: 0,
            states: Vec::with_capacity(symbols),
            settled: 0,
            groups: Vec::with_capacity(groups),
            edges: Vec::with_capacity(edges),
            heads: Vec::with_capacity(symbols),
            weights: Vec::with_capacity(symbols),
            steps: Vec::with_capacity(groups + inactive_max),
            columns: Vec::with_capacity(columns),
            matrices: Vec::with_capacity(matrices),
            peeled: 0,
            is_planned: false,
            inactive: Vec::with_capacity(inactive_max),
            dependence: vec![0; symbols * inactive_max],
            elimination: Elimination::new(inactive_max.max(1)),
            constraints: Vec::with_capacity(inactive_max),
            work: Work {
                batch: Batch::new(),
                rows: vec![0; size * (degree + size)],
                fresh: vec![0; degree + size],
                order: Vec::with_capacity(degree),
                pivots: Vec::with_capacity(size),
                gathered: vec![0; degree * inactive_max],
                row: vec![0; inactive_max],
            },
        }
    }

    /// Bytes that a system for these limits takes, but for constant ones.
    pub(super) fn memory_bytes(limits: Limits) -> usize {
        Room::of(limits).bytes(limits)
    }

    pub(super) fn reset(&mut self, code: &Code) {
        self.symbols = code.intermediate_symbols();
        self.states.clear();
        self.states.resize(self.symbols, State::Unknown);
        self.settled = 0;
        self.groups.clear();
        self.edges.clear();
        self.heads.clear();
        self.heads.resize(self.symbols, NO_EDGE);
        self.weights.clear();
        self.weights.resize(self.symbols, 0);
        self.steps.clear();
        self.columns.clear();
        self.matrices.clear();
        self.peeled = 0;
        self.is_planned = false;
        self.inactive.clear();
        self.constraints.clear();
        if let Some(precode) = code.precode() {
            for row in 0..precode.ldpc() {
                self.add_group(Origin::Ldpc(row as u16), precode.ldpc_row(row), 1);
            }
        }
    }

    pub(super) fn symbols(&self) -> usize {
        self.symbols
    }

    pub(super) fn state(&self, symbol: usize) -> State {
        self.states[symbol]
    }

    pub(super) fn is_planned(&self) -> bool {
        self.is_planned
    }

    pub(super) fn inactive(&self) -> &[u16] {
        &self.inactive
    }

    pub(super) fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }

    pub(super) fn step(&self, index: usize) -> Step {
        self.steps[index]
    }

    pub(super) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Symbols of a step: the resolved ones, then the others.
    pub(super) fn columns(&self, step: &Step) -> &[u16] {
        &self.columns[step.first_column as usize..][..usize::from(step.degree)]
    }

    /// A row of a step's matrix.
    pub(super) fn matrix_row(&self, step: &Step, row: usize) -> &[u8] {
        &self.matrices[step.matrix as usize + row * step.stride()..][..step.stride()]
    }

    /// Coefficients of `symbol` over the inactive symbols.
    pub(super) fn dependence(&self, symbol: u16) -> &[u8] {
        &self.dependence[usize::from(symbol) * self.inactive_max..][..self.inactive.len()]
    }

    /// Coefficients of inactive symbol `number` over the constraints, once all are determined.
    pub(super) fn solution(&self, number: usize, out: &mut [u8]) {
        let found = self.elimination.solution(number, out);
        debug_assert!(found.is_some(), "a determined symbol has a solution");
    }

    /// Symbols among the first `source_symbols` that follow from what was received, once planned.
    pub(super) fn decodable(&self, source_symbols: usize) -> usize {
        let is_tied = |number: usize| self.elimination.is_decoded(number);
        let follows = |symbol: &usize| match self.states[*symbol] {
            State::Unknown => false,
            State::Known => true,
            State::Inactive(number) => is_tied(usize::from(number)),
            State::Resolved => {
                let terms = self.dependence(*symbol as u16).iter().enumerate();
                terms.filter(|(_, term)| **term != 0).all(|(number, _)| is_tied(number))
            }
        };
        (0..source_symbols).filter(follows).count()
    }

    /// Whether every symbol follows from what was received.
    pub(super) fn is_determined(&self) -> bool {
        let is_tied = self.inactive.is_empty() || self.elimination.is_complete();
        self.settled + self.inactive.len() == self.symbols && is_tied
    }

    /// Degrees of freedom that seem to lack: exact once planned.
    pub(super) fn missing(&self, hdpc: usize) -> usize {
        if self.is_planned {
            return self.inactive.len() - self.elimination_rank();
        }
        let covered: usize =
            self.open_groups().map(|group| usize::from(group.rank.min(group.unknown))).sum();
        (self.symbols - self.settled).saturating_sub(covered + hdpc)
    }

    fn elimination_rank(&self) -> usize {
        if self.inactive.is_empty() { 0 } else { self.elimination.rank() }
    }

    fn open_groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(|group| !group.is_done)
    }

    /// Notes a batch that a packet of came. Its group has the number of the batch plus that of the
    /// LDPC rows.
    pub(super) fn add_batch(&mut self, code: &Code, id: u16, batch: u16) {
        let mut contents = std::mem::take(&mut self.work.batch);
        code.batch(id, &mut contents);
        self.add_group(Origin::Batch(batch), contents.indices(), 0);
        self.work.batch = contents;
    }

    fn add_group(&mut self, origin: Origin, symbols: &[u16], rank: u16) {
        let group = self.groups.len() as u16;
        let first_edge = self.edges.len() as u32;
        let mut unknown = 0;
        for &symbol in symbols {
            let at = usize::from(symbol);
            let edge = Edge { symbol, group, next: self.heads[at] };
            self.heads[at] = self.edges.len() as u32;
            self.weights[at] += 1;
            self.edges.push(edge);
            unknown += u16::from(self.states[at] == State::Unknown);
        }
        let degree = symbols.len() as u16;
        let failed_at = 0;
        let is_done = false;
        self.groups.push(Group { origin, first_edge, degree, rank, unknown, failed_at, is_done });
    }

    /// Notes that the rank of a group rose.
    pub(super) fn raise(&mut self, group: usize) {
        self.groups[group].rank += 1;
    }

    /// Works off a group that peeling can, if there is one. True if it did.
    pub(super) fn peel(&mut self, code: &Code, received: &Received) -> bool {
        while let Some(group) = self.groups.iter().position(|group| {
            let covers = group.unknown > 0 && group.rank >= group.unknown;
            !group.is_done && covers && group.failed_at != group.rank
        }) {
            match self.work_off(group, code, received, false) {
                Ok(true) => {
                    self.peeled = self.steps.len();
                    return true;
                }
                _ => self.groups[group].failed_at = self.groups[group].rank,
            }
        }
        false
    }

    /// Works off every group, inactivating what must be, and collects the constraints. On failure
    /// everything is as before.
    pub(super) fn plan(&mut self, code: &Code, received: &Received) -> Result<(), TooManyInactive> {
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
        open.min_by_key(|(_, group)| lack(group)).map(|(index, _)| index)
    }

    /// Takes a packet of a batch in after planning: a constraint if it says anything new.
    pub(super) fn constrain_by_packet(
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
    fn gather(&mut self, step: &Step, width: usize) {
        let columns = &self.columns[step.first_column as usize..][..usize::from(step.degree)];
        let others = columns[usize::from(step.pivots)..].iter();
        for (out, &symbol) in self.work.gathered.chunks_exact_mut(width).zip(others) {
            let start = usize::from(symbol) * self.inactive_max;
            out.copy_from_slice(&self.dependence[start..start + width]);
        }
    }

    fn inactivate(&mut self, symbol: u16) -> Result<(), TooManyInactive> {
        let number = self.inactive.len();
        if number == self.inactive_max {
            return Err(TooManyInactive);
        }
        self.inactive.push(symbol);
        self.dependence[usize::from(symbol) * self.inactive_max + number] = 1;
        self.settle(symbol, State::Inactive(number as u16));
        Ok(())
    }

    /// Gives an unknown symbol its state.
    fn settle(&mut self, symbol: u16, state: State) {
        self.states[usize::from(symbol)] = state;
        self.settled += usize::from(!matches!(state, State::Inactive(_)));
        let mut next = self.heads[usize::from(symbol)];
        while let Some(edge) = self.edges.get(next as usize) {
            self.groups[usize::from(edge.group)].unknown -= 1;
            next = edge.next;
        }
    }

    /// Eliminates a group's unknown symbols and appends its step. Without `may_inactivate` a group
    /// that does not determine all of them is left alone: `Ok(false)`.
    fn work_off(
        &mut self,
        group: usize,
        code: &Code,
        received: &Received,
        may_inactivate: bool,
    ) -> Result<bool, TooManyInactive> {
        let unknown = usize::from(self.groups[group].unknown);
        self.order_columns(group);
        let equations = self.load(group, code, received);
        self.eliminate(equations, unknown);
        if self.work.pivots.len() < unknown && !may_inactivate {
            return Ok(false);
        }
        let step = self.append_step(group, equations);
        let columns = step.first_column as usize..;
        for index in 0..usize::from(step.degree) {
            let symbol = self.columns[columns.clone()][index];
            if index >= usize::from(step.pivots)
                && self.states[usize::from(symbol)] == State::Unknown
            {
                self.inactivate(symbol)?;
            }
            self.weights[usize::from(symbol)] -= 1;
        }
        let state = if may_inactivate { State::Resolved } else { State::Known };
        for index in 0..usize::from(step.pivots) {
            self.settle(self.columns[columns.clone()][index], state);
        }
        if may_inactivate {
            self.depend(&step);
        }
        Ok(true)
    }

    /// Puts the symbols of a group into `work.order`: unknown ones first, of these the ones that few
    /// other groups hold, so that those which many hold become inactive.
    fn order_columns(&mut self, group: usize) {
        let Group { first_edge, degree, .. } = self.groups[group];
        let edges = &self.edges[first_edge as usize..][..usize::from(degree)];
        let order = &mut self.work.order;
        order.clear();
        order.extend(0..degree);
        let key = |&column: &u16| {
            let symbol = usize::from(edges[usize::from(column)].symbol);
            let is_settled = self.states[symbol] != State::Unknown;
            (is_settled, self.weights[symbol])
        };
        order.sort_unstable_by_key(key);
    }

    /// Loads the equations of a group into `work.rows`: coefficients of its symbols in `work.order`,
    /// then the unit matrix. Returns how many there are.
    fn load(&mut self, group: usize, code: &Code, received: &Received) -> usize {
        let Group { origin, degree, rank, .. } = self.groups[group];
        let (degree, rank) = (usize::from(degree), usize::from(rank));
        let stride = degree + rank;
        let Work { batch: contents, rows, order, fresh, .. } = &mut self.work;
        rows[..rank * stride].fill(0);
        match origin {
            Origin::Ldpc(_) => rows[..degree].fill(1),
            Origin::Batch(batch) => {
                code.batch(received.id(usize::from(batch)), contents);
                let slots = received.slots(usize::from(batch));
                for (row, &slot) in rows.chunks_exact_mut(stride).zip(slots) {
                    let natural = &mut fresh[..degree];
                    natural.fill(0);
                    let vector = received.vector(slot);
                    self.kernel.reduce(natural, vector, contents.generator(), degree);
                    for (out, &column) in row.iter_mut().zip(&*order) {
                        *out = natural[usize::from(column)];
                    }
                }
            }
        }
        for row in 0..rank {
            rows[row * stride + degree + row] = 1;
        }
        // Symbols from here on, no longer places in the group.
        let edges = &self.edges[self.groups[group].first_edge as usize..];
        for column in order.iter_mut() {
            *column = edges[usize::from(*column)].symbol;
        }
        rank
    }

    /// Gauss-Jordan elimination of the first `unknown` columns of `work.rows`; `work.pivots` are the
    /// columns led, by row.
    fn eliminate(&mut self, equations: usize, unknown: usize) {
        let Work { rows, fresh, order, pivots, .. } = &mut self.work;
        let stride = order.len() + equations;
        let rows = &mut rows[..equations * stride];
        pivots.clear();
        for column in 0..unknown {
            let place = pivots.len();
            let mut candidates = place..equations;
            let Some(found) = candidates.find(|row| rows[row * stride + column] != 0) else {
                continue;
            };
            let (above, below) = rows.split_at_mut(found * stride);
            if found != place {
                above[place * stride..][..stride].swap_with_slice(&mut below[..stride]);
            }
            let (above, rest) = rows.split_at_mut(place * stride);
            let (row, below) = rest.split_at_mut(stride);
            self.kernel.mul(row, inverse(row[column]).unwrap_or(1));
            fresh[..stride].copy_from_slice(row);
            if !above.is_empty() {
                self.kernel.eliminate(above, stride, column, &fresh[..stride]);
            }
            if !below.is_empty() {
                self.kernel.eliminate(below, stride, column, &fresh[..stride]);
            }
            pivots.push(column as u16);
            if pivots.len() == equations {
                break;
            }
        }
    }

    /// Stores the eliminated equations of a group.
    fn append_step(&mut self, group: usize, equations: usize) -> Step {
        let Work { rows, order, pivots, .. } = &self.work;
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
        let is_other = |column: &usize| !pivots.contains(&(*column as u16));
        self.columns.extend((0..order.len()).filter(is_other).map(|column| order[column]));
        let stride = order.len() + equations;
        for row in rows.chunks_exact(stride).take(equations) {
            let others = (0..order.len()).filter(is_other).map(|column| row[column]);
            self.matrices.extend(others);
            self.matrices.extend_from_slice(&row[order.len()..]);
        }
        self.steps.push(step);
        step
    }

    /// Computes how the symbols that a step resolves depend on inactive ones.
    fn depend(&mut self, step: &Step) {
        let width = self.inactive.len();
        if width == 0 {
            return;
        }
        self.gather(step, width);
        for pivot in 0..usize::from(step.pivots) {
            let symbol = self.columns[step.first_column as usize + pivot];
            let start = step.matrix as usize + pivot * step.stride();
            let factors = &self.matrices[start..start + step.others()];
            let row = &mut self.dependence[usize::from(symbol) * self.inactive_max..][..width];
            self.kernel.reduce(row, factors, &self.work.gathered, width);
        }
    }
}
