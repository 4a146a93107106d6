//! Peeling and inactivation on coefficients: derives each symbol from packets and other symbols.
//!
//! Equations come in *groups*: a batch with its present rank, or one LDPC row. A group is processed
//! once, by elimination over those of its symbols that are still unknown. Its *step* describes the
//! symbols that it resolves as combinations; left-over rows are constraints.
//!
//! ```text
//!  peeling       a group whose rank covers its unknown symbols resolves them: they are known
//!  inactivation  when no group does, the best one is worked off all the same; symbols that it
//!                cannot resolve become inactive, and what follows depends on them
//!  constraints   left-over rows of all groups, and the HDPC rows: equations in inactive symbols
//!                alone, which decide them once there are enough
//! ```

mod group;
mod plan;
mod room;

use crate::bats::batch::{Batch, DEGREE_MAX};
use crate::bats::code::Code;
use crate::bats::decoder::effort::Effort;
use crate::bats::decoder::received::Received;
use crate::bats::params::{BATCH_SIZE_MAX, INACTIVE_MAX, Limits};
use crate::elimination::Elimination;
use plan::Planning;
use recoded_gf::Kernel;
use room::Room;

/// Most columns of a step's matrix: symbols and packets of one batch.
pub(super) const COLUMNS_MAX: usize = DEGREE_MAX + BATCH_SIZE_MAX;

/// State of an intermediate symbol.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum IntermediateState {
    Unknown,
    /// Follows from packets only.
    Known,
    /// Follows from packets and inactive symbols.
    Resolved,
    /// Number among the inactive symbols.
    Inactive(u16),
}

/// The source of a group's equations.
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
    /// Rank at which peeling failed because rows were dependent.
    failed_at: u16,
    is_done: bool,
}

impl Group {
    /// Whether there are as many equations as unknown symbols.
    fn is_covered(&self) -> bool {
        self.unknown > 0 && self.rank >= self.unknown
    }
}

/// A symbol's place in a group, chained with its other places.
#[derive(Copy, Clone)]
struct Edge {
    symbol: u16,
    group: u16,
    next: u32,
}

const NO_EDGE: u32 = u32::MAX;

/// The result of processing a group.
///
/// The matrix has one row for each pivot and one for each constraint, and `degree - pivots +
/// equations` columns: coefficients of the other symbols of the group, then of its packets.
#[derive(Copy, Clone, Debug)]
pub(super) struct Step {
    pub origin: Origin,
    /// Packets of the batch in the step: a range of its slots.
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

/// A row that constrains inactive symbols.
#[derive(Copy, Clone, Debug)]
pub(super) enum Constraint {
    /// Row of a step's matrix.
    Row { step: u32, row: u16 },
    /// HDPC row.
    Hdpc(u16),
}

/// Too many inactive symbols for the available memory.
pub(super) struct TooManyInactive;

pub(super) struct System {
    kernel: &'static Kernel,
    inactive_max: usize,
    symbols: usize,
    states: Vec<IntermediateState>,
    /// Symbols known or resolved.
    settled: usize,
    groups: Vec<Group>,
    edges: Vec<Edge>,
    /// Per symbol: its first edge, and the number of unfinished groups that hold it.
    heads: Vec<u32>,
    weights: Vec<u16>,
    steps: Vec<Step>,
    columns: Vec<u16>,
    matrices: Vec<u8>,
    /// Steps made by peeling only.
    peeled: usize,
    /// Whether peeling may be able to process some group.
    may_peel: bool,
    is_planned: bool,
    /// Progress of a plan in preparation.
    planning: Option<Planning>,
    /// The inactive symbols.
    inactive: Vec<u16>,
    /// Per symbol `inactive_max` bytes: its dependence on inactive symbols, once planned.
    dependence: Vec<u8>,
    elimination: Elimination,
    constraints: Vec<Constraint>,
    work: EliminationScratch,
}

/// Scratch of one elimination.
struct EliminationScratch {
    batch: Batch,
    rows: Vec<u8>,
    fresh: Vec<u8>,
    keys: Vec<u64>,
    order: Vec<u16>,
    /// Columns that lead a row, and the others, ascending.
    pivots: Vec<u16>,
    others: Vec<u16>,
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
            may_peel: false,
            is_planned: false,
            planning: None,
            inactive: Vec::with_capacity(inactive_max),
            dependence: vec![0; symbols * inactive_max],
            elimination: Elimination::new(inactive_max.max(1)),
            constraints: Vec::with_capacity(inactive_max),
            work: EliminationScratch {
                batch: Batch::new(),
                rows: vec![0; size * (degree + size)],
                fresh: vec![0; degree + size],
                keys: Vec::with_capacity(degree),
                order: Vec::with_capacity(degree),
                pivots: Vec::with_capacity(size),
                others: Vec::with_capacity(degree),
                gathered: vec![0; degree * inactive_max],
                row: vec![0; inactive_max],
            },
        }
    }

    /// Bytes that a system for these limits allocates, without constant ones.
    pub(super) fn memory_bytes(limits: Limits) -> usize {
        Room::of(limits).bytes(limits)
    }

    pub(super) fn reset(&mut self, code: &Code) {
        self.symbols = code.intermediate_symbols();
        self.states.clear();
        self.states.resize(self.symbols, IntermediateState::Unknown);
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
        self.may_peel = false;
        self.is_planned = false;
        self.planning = None;
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

    pub(super) fn state(&self, symbol: usize) -> IntermediateState {
        self.states[symbol]
    }

    pub(super) fn is_planned(&self) -> bool {
        self.is_planned
    }

    /// Whether a plan was begun and is not finished yet.
    pub(super) fn is_planning(&self) -> bool {
        self.planning.is_some()
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

    /// Steps made by peeling only, the first ones.
    pub(super) fn peeled(&self) -> usize {
        self.peeled
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

    /// Symbols among the first `source_symbols` that the received packets determine, once planned.
    pub(super) fn decodable(&self, source_symbols: usize) -> usize {
        let is_tied = |number: usize| self.elimination.is_decoded(number);
        let follows = |symbol: &usize| match self.states[*symbol] {
            IntermediateState::Unknown => false,
            IntermediateState::Known => true,
            IntermediateState::Inactive(number) => is_tied(usize::from(number)),
            IntermediateState::Resolved => {
                let terms = self.dependence(*symbol as u16).iter().enumerate();
                terms.filter(|(_, term)| **term != 0).all(|(number, _)| is_tied(number))
            }
        };
        (0..source_symbols).filter(follows).count()
    }

    /// Whether the received packets determine every symbol.
    pub(super) fn is_determined(&self) -> bool {
        let is_tied = self.inactive.is_empty() || self.elimination.is_complete();
        let is_settled = self.settled + self.inactive.len() == self.symbols;
        is_settled && is_tied && !self.is_planning()
    }

    /// Estimate of the missing degrees of freedom: exact once planned.
    pub(super) fn missing(&self, hdpc: usize) -> usize {
        if self.is_planned {
            return self.inactive.len() - self.elimination_rank();
        }
        let covered: usize =
            self.open_groups().map(|group| usize::from(group.rank.min(group.unknown))).sum();
        (self.symbols - self.settled).saturating_sub(covered + hdpc)
    }

    /// Whether this number of equations is certainly too small, without looking at groups.
    pub(super) fn is_far(&self, equations: usize) -> bool {
        self.symbols > self.settled + equations
    }

    fn elimination_rank(&self) -> usize {
        if self.inactive.is_empty() { 0 } else { self.elimination.rank() }
    }

    fn open_groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(|group| !group.is_done)
    }

    /// Adds a batch whose first packet arrived. Its group has the number of the batch plus that of
    /// the LDPC rows.
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
            unknown += u16::from(self.states[at] == IntermediateState::Unknown);
        }
        let degree = symbols.len() as u16;
        let failed_at = 0;
        let is_done = false;
        let group = Group { origin, first_edge, degree, rank, unknown, failed_at, is_done };
        self.may_peel |= group.is_covered();
        self.groups.push(group);
    }

    /// Records that the rank of a group rose.
    pub(super) fn raise(&mut self, group: usize) {
        self.groups[group].rank += 1;
        self.may_peel |= self.groups[group].is_covered();
    }

    /// Processes a group by peeling, if there is one. True if it did.
    pub(super) fn peel(&mut self, code: &Code, received: &Received, effort: &mut Effort) -> bool {
        if !self.may_peel {
            return false;
        }
        let is_open = |group: &Group| !group.is_done && group.failed_at != group.rank;
        while let Some(group) =
            self.groups.iter().position(|group| group.is_covered() && is_open(group))
        {
            match self.work_off(group, code, received, false, effort) {
                Ok(true) => {
                    self.peeled = self.steps.len();
                    return true;
                }
                _ => self.groups[group].failed_at = self.groups[group].rank,
            }
        }
        self.may_peel = false;
        false
    }

    /// Sets the state of an unknown symbol.
    fn settle(&mut self, symbol: u16, state: IntermediateState) {
        self.states[usize::from(symbol)] = state;
        self.settled += usize::from(!matches!(state, IntermediateState::Inactive(_)));
        let mut next = self.heads[usize::from(symbol)];
        while let Some(edge) = self.edges.get(next as usize) {
            let group = &mut self.groups[usize::from(edge.group)];
            group.unknown -= 1;
            self.may_peel |= group.is_covered();
            next = edge.next;
        }
    }
}
