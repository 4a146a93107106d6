//! A node's handling of one code, with sizes up to a limit, in any role: a source encodes with it,
//! a relay and a sink receive packets with it.

#[cfg(feature = "bats")]
use crate::bats::received::ReceivedBlock;
#[cfg(feature = "bats")]
use crate::bats::source::BatsSource;
use crate::config::params::{FlowCode, FlowParams, Nanos, Role, ShardId, Sizes};
use crate::config::report::DropReason;
use crate::env::combine::Combiner;
use crate::env::stage_memory::Rent;
use crate::packet::announced_sizes::full_size;
#[cfg(feature = "bats")]
use crate::packet::announced_sizes::full_symbols;
use crate::packet::arrival::Data;
use crate::rlnc::generation::Generation;
use crate::rlnc::source::RlncSource;
use crate::stream::relay::StreamRelay;
use crate::stream::sink::StreamSink;
use crate::stream::source::StreamSource;
use crate::unit::relay::Relay;
use crate::unit::role::Lifecycle;
use crate::unit::sink::units::UnitSink;

/// A stage that accepted a packet this recently is in use: no packet arrives later than this.
pub(crate) const IN_USE_NANOS: Nanos = 2_000_000_000;

/// The state of a role.
pub(crate) enum RoleState {
    RlncSource(Box<RlncSource>),
    #[cfg(feature = "bats")]
    BatsSource(Box<BatsSource>),
    StreamSource(Box<StreamSource>),
    StreamRelay(Box<StreamRelay>),
    Relay(Box<Relay>),
    RlncSink(Box<UnitSink<Generation>>),
    #[cfg(feature = "bats")]
    BatsSink(Box<UnitSink<ReceivedBlock>>),
    StreamSink(Box<StreamSink>),
}

/// Evaluates an expression over the role, whichever it is.
macro_rules! each {
    ($state:expr, $role:ident => $result:expr) => {
        match $state {
            RoleState::RlncSource($role) => $result,
            #[cfg(feature = "bats")]
            RoleState::BatsSource($role) => $result,
            RoleState::StreamSource($role) => $result,
            RoleState::StreamRelay($role) => $result,
            RoleState::Relay($role) => $result,
            RoleState::RlncSink($role) => $result,
            #[cfg(feature = "bats")]
            RoleState::BatsSink($role) => $result,
            RoleState::StreamSink($role) => $result,
        }
    };
}

/// Evaluates an expression over a source, or another one if the role is not a source.
macro_rules! source {
    ($state:expr, $source:ident => $result:expr, $otherwise:expr) => {
        match $state {
            RoleState::RlncSource($source) => $result,
            #[cfg(feature = "bats")]
            RoleState::BatsSource($source) => $result,
            RoleState::StreamSource($source) => $result,
            _ => $otherwise,
        }
    };
}

impl RoleState {
    fn new(shard: ShardId, params: &FlowParams, combiner: &mut Combiner) -> Self {
        match (&params.role, &params.code) {
            (Role::Source { .. }, FlowCode::Rlnc) => {
                Self::RlncSource(Box::new(RlncSource::new(shard, params, combiner)))
            }
            #[cfg(feature = "bats")]
            (Role::Source { .. }, FlowCode::Bats(code)) => {
                Self::BatsSource(Box::new(BatsSource::new(shard, params, code, combiner)))
            }
            (Role::Source { .. }, FlowCode::Stream(code)) => {
                Self::StreamSource(Box::new(StreamSource::new(params, *code, combiner)))
            }
            (Role::Relay { .. }, FlowCode::Stream(code)) => {
                Self::StreamRelay(Box::new(StreamRelay::new(params, *code)))
            }
            (Role::Sink { .. }, FlowCode::Stream(code)) => {
                Self::StreamSink(Box::new(StreamSink::new(params, *code)))
            }
            (Role::Relay { .. }, _) => Self::Relay(Box::new(Relay::new(shard, params))),
            (Role::Sink { .. }, FlowCode::Rlnc) => {
                let (units, trial) = Generation::table(params);
                Self::RlncSink(Box::new(UnitSink::new(units, trial)))
            }
            #[cfg(feature = "bats")]
            (Role::Sink { .. }, FlowCode::Bats(code)) => {
                let (units, trial) = ReceivedBlock::table(params, code);
                Self::BatsSink(Box::new(UnitSink::new(units, trial)))
            }
        }
    }
}

/// A role with its parameters: code and sizes, and settings independent of them.
pub(crate) struct Stage {
    pub(crate) params: FlowParams,
    pub(crate) state: RoleState,
    /// When it last accepted a packet; for a source: when it was replaced.
    pub(crate) used_at: Nanos,
    made_at: Nanos,
    /// Epoch of that packet, or of the one that the stage was requested for.
    pub(crate) epoch: Option<u8>,
    /// Whether it has delivered anything, or the next node has reported on it; otherwise a forged
    /// packet may have opened it.
    pub(crate) is_proven: bool,
    /// Its share of a budget: of a relay or sink, or of a source that was replaced.
    pub(crate) rent: Option<Rent>,
}

impl Stage {
    pub(crate) fn new(shard: ShardId, params: FlowParams, combiner: &mut Combiner) -> Self {
        let state = RoleState::new(shard, &params, combiner);
        Self { params, state, used_at: 0, made_at: 0, epoch: None, is_proven: false, rent: None }
    }

    /// Whether it accepts packets of this code and the sizes of their epoch: a short unit may come
    /// first.
    pub(crate) fn takes(&self, data: &Data<'_>) -> Result<(), DropReason> {
        let is_relay = matches!(self.state, RoleState::Relay(_));
        let (fits, size, symbol_bytes) = match (data, &self.params.code) {
            (Data::Stream(packet), FlowCode::Stream(code)) => {
                let fits = packet.header.window_symbols() <= code.window_symbols;
                (fits, 0, packet.symbol().map_or(0, |symbol| symbol.bytes))
            }
            (Data::Coded { view, .. }, _) if is_relay => (true, full_size(view), view.symbol_bytes),
            (Data::Coded { view, .. }, FlowCode::Rlnc) if view.block.is_none() => {
                (true, full_size(view), view.symbol_bytes)
            }
            #[cfg(feature = "bats")]
            (Data::Coded { view, .. }, FlowCode::Bats(code)) if view.block.is_some() => {
                let symbols = view.block.map_or(0, |block| full_symbols(&block));
                (symbols <= code.source_symbols, full_size(view), view.symbol_bytes)
            }
            _ => return Err(DropReason::WrongCode),
        };
        let FlowParams { generation_size, symbol_bytes: symbol_bytes_max, .. } = self.params;
        let is_within = size <= generation_size && usize::from(symbol_bytes) <= symbol_bytes_max;
        if fits && is_within { Ok(()) } else { Err(DropReason::Oversize) }
    }

    /// This stage, with its share of a budget.
    pub(crate) fn with(self, rent: Rent) -> Self {
        Self { rent: Some(rent), ..self }
    }

    /// Whether packets of this epoch belong to it.
    pub(crate) fn is_of(&self, epoch: u8, now: Nanos) -> bool {
        self.epoch == Some(epoch) && now < self.used_at.saturating_add(IN_USE_NANOS)
    }

    /// If exactly one of the two stages is proven, and it accepts the packet: whether it is
    /// `other`. A forged packet may have opened the unproven one, in any epoch.
    pub(crate) fn or(&self, other: &Self, data: &Data<'_>) -> Option<bool> {
        let proven = if other.is_proven { other } else { self };
        let is_either = self.is_proven != other.is_proven && proven.takes(data).is_ok();
        is_either.then_some(other.is_proven)
    }

    /// Whether it has received nothing for a while.
    pub(crate) fn is_unused(&self, now: Nanos) -> bool {
        now >= self.used_at.max(self.made_at).saturating_add(IN_USE_NANOS)
    }

    /// Which of two stages is kept when there is a third: the larger value.
    pub(crate) fn worth(&self) -> (bool, Nanos) {
        (self.is_proven, self.used_at)
    }

    /// Whether the state can continue under other parameters.
    pub(crate) fn fits(&self, params: &FlowParams) -> bool {
        let is_same_code =
            std::mem::discriminant(&self.params.code) == std::mem::discriminant(&params.code);
        let sealing = |it: &FlowParams| (it.sealed, it.tagged, it.strict);
        let is_sealed_alike = sealing(&self.params) == sealing(params);
        let holds_as_many = self.params.generations == params.generations;
        self.has_role_of(params) && holds_as_many && is_same_code && is_sealed_alike
    }

    pub(crate) fn has_role_of(&self, params: &FlowParams) -> bool {
        std::mem::discriminant(&self.params.role) == std::mem::discriminant(&params.role)
    }

    /// Adopts settings of its flow at a relay or sink: code and sizes stay those that it was made
    /// for. If longer symbols are now allowed, a packet that has one leads to a request for another
    /// stage.
    pub(crate) fn adopt(&mut self, settings: &FlowParams) {
        let sizes = self.params.sizes();
        let symbol_bytes = settings.symbol_bytes.min(sizes.symbol_bytes);
        let paths_differ = !self.params.upstreams().eq(settings.upstreams());
        self.params = settings.with(Sizes { symbol_bytes, ..sizes });
        if paths_differ {
            each!(&mut self.state, role => role.adopt(&self.params));
        }
    }

    /// This stage of a relay or sink, made for packets of `epoch`, under the present settings of
    /// its flow, if it still suits them.
    pub(crate) fn under(
        mut self,
        settings: &FlowParams,
        epoch: Option<u8>,
        now: Nanos,
    ) -> Option<Self> {
        if !self.has_role_of(settings) {
            return None;
        }
        self.adopt(settings);
        (self.epoch, self.made_at) = (epoch, now);
        Some(self)
    }
}

pub(crate) use {each, source};
