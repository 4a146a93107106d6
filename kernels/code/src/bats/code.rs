//! The outer code of one block: profile, graph, precode.

use crate::bats::batch::Batch;
use crate::bats::cyclic::BaseGraph;
use crate::bats::params::{Limits, Params, ParamsError, Profile};
use crate::bats::payloads::Payloads;
use crate::bats::precode::Precode;
use crate::bats::sampler::{Rfc9426, Sampler, SamplerSizes};
use crate::bats::tables;
use crate::degrees::{self, Distribution};

/// Points at which the mean degree is sampled.
const MEAN_SAMPLES: u32 = 4096;

/// The outer code of a block, which defines every batch. Both ends derive it from [`Params`].
#[derive(Debug)]
pub struct Code {
    params: Params,
    base: BaseGraph,
    precode: Precode,
    /// Degrees of sampled batches; the built-in ones of the batch size when `None`.
    distribution: Option<Box<Distribution>>,
    /// Row degrees of the base graph; the built-in ones of the batch size when empty.
    row_degrees: Vec<u16>,
}

impl Code {
    /// The code of one block shape.
    ///
    /// # Errors
    /// The parameters describe no code.
    pub fn new(params: Params) -> Result<Self, ParamsError> {
        let limits = Limits::of(params.source_symbols, params.batch_size).clamped();
        let mut code = Self {
            params,
            base: BaseGraph::new(limits),
            precode: Precode::default(),
            distribution: None,
            row_degrees: Vec::new(),
        };
        code.form(params)?;
        Ok(code)
    }

    /// A cyclic-shift code with custom row degrees, such as [`PAPER_ROW_DEGREES`].
    ///
    /// [`PAPER_ROW_DEGREES`]: crate::bats::PAPER_ROW_DEGREES
    ///
    /// # Errors
    /// The parameters describe no code.
    pub fn with_row_degrees(params: Params, degrees: &[u16]) -> Result<Self, ParamsError> {
        let mut code = Self::new(params)?;
        BaseGraph::check(degrees)?;
        code.row_degrees = degrees.to_vec();
        code.form(params)?;
        Ok(code)
    }

    /// A baseline or precoded code with custom degrees.
    ///
    /// # Errors
    /// The parameters describe no code.
    pub fn with_distribution(
        params: Params,
        distribution: &Distribution,
    ) -> Result<Self, ParamsError> {
        let code = Self::new(params)?;
        if distribution.is_empty() {
            return Err(ParamsError::NoDegrees);
        }
        Ok(Self { distribution: Some(distribution.into()), ..code })
    }

    /// A code with room for every block within `limits`, which do not exceed those of [`Params`].
    pub(super) fn largest(limits: Limits) -> Self {
        let params = Params {
            source_symbols: limits.source_symbols_max,
            batch_size: limits.batch_size_max,
            ..Params::default()
        };
        let mut code = Self {
            params,
            base: BaseGraph::new(limits),
            precode: Precode::of(limits.source_symbols_max),
            distribution: None,
            row_degrees: Vec::new(),
        };
        let formed = code.form(params);
        debug_assert!(formed.is_ok(), "limits are within those of the code");
        code
    }

    /// Changes to the shape of another block. Quick if it is the present one; allocates only to
    /// grow beyond its largest size so far.
    ///
    /// # Errors
    /// The parameters describe no code; this one is then unchanged.
    pub fn reset(&mut self, params: Params) -> Result<(), ParamsError> {
        if params == self.params {
            return Ok(());
        }
        self.form(params)
    }

    /// The block shape.
    #[must_use]
    pub const fn params(&self) -> Params {
        self.params
    }

    /// Intermediate symbols: the source symbols, then those of the precode if there is one.
    #[must_use]
    pub fn intermediate_symbols(&self) -> usize {
        self.params.source_symbols + self.precode().map_or(0, Precode::parity_symbols)
    }

    /// Batch number `id`: the same on both ends.
    pub fn batch(&self, id: u16, batch: &mut Batch) {
        let Params { batch_size, profile, generator_bits: bits, .. } = self.params;
        if profile == Profile::CyclicShift {
            return self.base.batch(id, batch);
        }
        let symbols = self.intermediate_symbols();
        let sampler = Rfc9426::new(|uniform| self.degree(uniform));
        let degree = sampler.degree(id, symbols);
        sampler.sample(id, degree, SamplerSizes { symbols, batch_size, bits }, batch);
    }

    /// Computes the symbols of the precode, `Operand::Symbol(K..)`, from the source symbols
    /// `Operand::Symbol(0..K)`. Does nothing without a precode.
    ///
    /// # Errors
    /// Those of `payloads`.
    pub fn precode_symbols<P: Payloads>(&self, payloads: &mut P) -> Result<(), P::Error> {
        (0..self.precode_steps()).try_for_each(|step| self.precode_step(step, payloads).map(drop))
    }

    /// Steps of [`Code::precode_step`]; none without a precode.
    #[must_use]
    pub fn precode_steps(&self) -> usize {
        self.precode().map_or(0, Precode::steps)
    }

    /// Computes a part of the symbols of the precode: the steps `0..precode_steps()`, in this
    /// order, compute all. Returns the number of symbol products: for 1024 source symbols some 50
    /// in steps that are a sum, and 600 in the others.
    ///
    /// # Errors
    /// Those of `payloads`.
    pub fn precode_step<P: Payloads>(
        &self,
        step: usize,
        payloads: &mut P,
    ) -> Result<usize, P::Error> {
        self.precode().map_or(Ok(0), |precode| precode.encode(step, payloads))
    }

    /// Mean number of symbols in a batch: multiplications per coded symbol.
    #[must_use]
    pub fn mean_degree(&self) -> f64 {
        if self.params.profile == Profile::CyclicShift {
            let total: usize = (0..self.base.rows()).map(|row| self.base.row(row).len()).sum();
            return total as f64 / self.base.rows() as f64;
        }
        // Degrees are capped at the number of symbols: an average over all of them, by sampling.
        let cap = self.intermediate_symbols();
        let step = u32::MAX / MEAN_SAMPLES;
        let total: usize =
            (0..MEAN_SAMPLES).map(|n| self.degree(step / 2 + n * step).min(cap)).sum();
        total as f64 / f64::from(MEAN_SAMPLES)
    }

    /// Degree of a sampled batch, from a uniformly random number.
    fn degree(&self, uniform: u32) -> usize {
        let batch_size = self.params.batch_size;
        match (&self.distribution, self.params.profile) {
            (Some(own), _) => usize::from(degrees::degree(own, uniform)),
            (None, Profile::Precoded) => tables::precoded_degree(batch_size, uniform),
            (None, _) => usize::from(degrees::degree(degrees::family(batch_size), uniform)),
        }
    }

    /// The base graph of a cyclic-shift code.
    #[must_use]
    pub fn base_graph(&self) -> Option<&BaseGraph> {
        (self.params.profile == Profile::CyclicShift).then_some(&self.base)
    }

    /// The precode, if the profile has one.
    pub(super) fn precode(&self) -> Option<&Precode> {
        (self.params.profile == Profile::Precoded).then_some(&self.precode)
    }

    fn form(&mut self, params: Params) -> Result<(), ParamsError> {
        let params = params.validated()?;
        match params.profile {
            Profile::Baseline => {}
            Profile::Precoded => self.precode.reset(params.source_symbols),
            Profile::CyclicShift => {
                let (degrees, count, rows) = match &self.row_degrees[..] {
                    [] => tables::base_graph(params),
                    given => tables::base_graph_of(params, given),
                };
                self.base.reset(params, &degrees[..count], rows);
            }
        }
        self.params = params;
        Ok(())
    }
}
