//! Link emulation: programs inside Linux if only loss and rate matter, and a thread of this process
//! for timed links.

mod carrier;
mod model;
mod port;
mod program;
mod random;
mod timed;

use crate::BedError;
use crate::config::LinkConfig;
use crate::counters::LinkCounters;
use crate::namespace::Namespace;
use program::Programs;
pub(crate) use random::Random;
use timed::Timed;
pub(crate) use timed::TimedLinks;

/// The emulator of one link.
#[derive(Debug)]
pub(crate) enum Emulator {
    /// eBPF and a token bucket: cheap, but untimed.
    Programs(Box<Programs>),
    /// A thread, which all links of this kind share.
    Timed(Timed),
}

impl Emulator {
    /// Joins `west` and `east` of a link's namespace; `seed` and `number` seed its random choices.
    /// A timed link is added to `timed`.
    pub fn start(
        timed: &mut TimedLinks,
        namespace: &Namespace,
        config: &LinkConfig,
        seed: u64,
        number: usize,
    ) -> Result<Emulator, BedError> {
        if !config.is_timed() {
            let programs = Programs::attach(namespace, config)?;
            return Ok(Emulator::Programs(Box::new(programs)));
        }
        let stream = |direction: u64| Random::new(seed, 2 * number as u64 + direction);
        let random = [stream(0), stream(1)];
        timed.add(namespace, config, random).map(Emulator::Timed)
    }

    /// Joins `west` and `east` of another namespace over the same link.
    pub fn join(&self, namespace: &Namespace) -> Result<Emulator, BedError> {
        match self {
            Emulator::Timed(timed) => timed.join(namespace).map(Emulator::Timed),
            Emulator::Programs(_) => Err(BedError::Parameter {
                what: "link to share",
                value: "one without time".into(),
                rule: "only timed links can be shared (LinkConfig::timed)",
            }),
        }
    }

    /// Whether this is a thread, which ends with the process.
    pub fn is_timed(&self) -> bool {
        matches!(self, Emulator::Timed(_))
    }

    /// Changes the settings while traffic flows.
    pub fn set(&mut self, before: &LinkConfig, config: &LinkConfig) -> Result<(), BedError> {
        match self {
            Emulator::Timed(timed) => timed.set(*config),
            Emulator::Programs(_) if config.is_timed() => Err(BedError::Parameter {
                what: "link",
                value: format!("{config:?}"),
                rule: "a link built without time cannot get it later (LinkConfig::timed)",
            }),
            Emulator::Programs(programs) => programs.set(before, config),
        }
    }

    pub fn counters(&self) -> Result<LinkCounters, BedError> {
        match self {
            Emulator::Programs(programs) => programs.counters(),
            Emulator::Timed(timed) => timed.counters(),
        }
    }

    /// Packets that found a full queue, both directions.
    pub fn queue_drops(&self) -> Result<u64, BedError> {
        match self {
            Emulator::Programs(programs) => programs.queue_drops(),
            Emulator::Timed(timed) => {
                let counters = timed.counters()?;
                Ok(counters.eastward.queue_drops + counters.westward.queue_drops)
            }
        }
    }

    pub fn reset_sojourns(&self) -> Result<(), BedError> {
        match self {
            Emulator::Programs(_) => Ok(()),
            Emulator::Timed(timed) => timed.reset_sojourns(),
        }
    }
}
