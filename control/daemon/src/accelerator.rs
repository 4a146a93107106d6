//! Which accelerator there is: a CUDA card, if this program was built with support for it, or the
//! FPGA card that the configuration names.

use crate::config::EngineChoice;
use recoded_code::engine::{Engine, Error};
use recoded_fpga::Card;
use recoded_runtime::offload::OpenEngine;
use std::sync::{Arc, Mutex, PoisonError};
#[cfg(feature = "cuda")]
use std::time::Duration;

/// Loading the driver and the kernels takes a second or two where there is a card, and ten or more
/// where there are many of them: `CUDA_VISIBLE_DEVICES` names those to be looked at.
#[cfg(feature = "cuda")]
const PROBE_TIMEOUT: Duration = Duration::from_secs(100);

/// Whether a CUDA card answers a child process, asked before this process gives up starting any.
/// Without kernels or driver this takes no time.
#[cfg(feature = "cuda")]
fn has_cuda() -> bool {
    let options = recoded_cuda::Options::find();
    options.is_ok_and(|options| recoded_cuda::probe(&options, PROBE_TIMEOUT).is_ok())
}

/// There is none.
#[cfg(not(feature = "cuda"))]
fn has_cuda() -> bool {
    false
}

/// Kinds of cards.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kind {
    Cuda,
    Fpga,
}

/// What the thread that opens a card shares with the one that is told which.
struct State {
    choice: EngineChoice,
    /// What was opened last.
    opened: Option<Kind>,
    /// What was said last: opening is tried again and again, and what is said is said once.
    told: String,
}

/// Opens the accelerator that is wanted.
pub struct Accelerator {
    fpga: Option<Card>,
    /// Whether this process could open a card.
    is_free: bool,
    state: Arc<Mutex<State>>,
}

impl Accelerator {
    /// One that opens what `choice` wants; `fpga` is the FPGA card.
    pub fn new(choice: EngineChoice, fpga: Option<Card>) -> Accelerator {
        let state = State { choice, opened: None, told: String::new() };
        Accelerator { fpga, is_free: true, state: Arc::new(Mutex::new(state)) }
    }

    /// Whether there is a card to open: an FPGA card is named, or a CUDA card answers.
    pub fn has_card(&self) -> bool {
        self.fpga.is_some() || has_cuda()
    }

    /// The same in a process that is in the sandbox and cannot start what a driver needs.
    #[must_use]
    pub fn shut_out(self) -> Accelerator {
        Accelerator { is_free: false, ..self }
    }

    /// For the queue. Where both cards would do, the CUDA card is opened.
    pub fn opener(&self) -> OpenEngine {
        let (fpga, state) = (self.fpga.clone(), Arc::clone(&self.state));
        if !self.is_free {
            let reason = "none answered at the start, and the sandbox keeps later ones out \
                          (restart, or set sandbox = \"off\" in [daemon])";
            return Arc::new(move || Err(Error::Absent { reason: reason.into() }));
        }
        Arc::new(move || {
            let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
            let choice = lock().choice;
            // Opening takes long; meanwhile another card may be chosen.
            let (opened, kind) = open(choice, fpga.as_ref());
            let mut state = lock();
            if state.choice == choice {
                state.opened = opened.is_ok().then_some(kind);
            }
            let news = match &opened {
                Ok(engine) => format!("accelerator: {}", engine.name()),
                Err(error) => format!("no accelerator, the CPU does everything: {error}"),
            };
            if state.told != news {
                tracing::info!("{news}");
                state.told = news;
            }
            opened
        })
    }

    /// Has `choice` opened from now on; whether that is not what is open.
    pub fn choose(&self, choice: EngineChoice) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut state.choice, choice);
        match choice {
            // What is open stays open.
            EngineChoice::Cpu => false,
            EngineChoice::Auto => {
                before == EngineChoice::Fpga && cfg!(feature = "cuda") || state.opened.is_none()
            }
            EngineChoice::Cuda => state.opened != Some(Kind::Cuda),
            EngineChoice::Fpga => state.opened != Some(Kind::Fpga),
        }
    }
}

fn open(choice: EngineChoice, fpga: Option<&Card>) -> (Result<Box<dyn Engine>, Error>, Kind) {
    if choice != EngineChoice::Fpga {
        let cuda = cuda();
        if cuda.is_ok() || choice == EngineChoice::Cuda || fpga.is_none() {
            return (cuda, Kind::Cuda);
        }
    }
    let absent = || {
        let reason = "the key `fpga` of [daemon] names no card";
        Error::Absent { reason: reason.into() }
    };
    (fpga.ok_or_else(absent).and_then(Card::open), Kind::Fpga)
}

/// The first CUDA card, after a child process has found out that this is safe.
#[cfg(feature = "cuda")]
fn cuda() -> Result<Box<dyn Engine>, Error> {
    use recoded_cuda::Options;

    // The kernels may be put where they are looked for while the daemon runs.
    let options = Options::find().map_err(|error| Error::Absent { reason: error.to_string() })?;
    recoded_cuda::opener(options, PROBE_TIMEOUT)()
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Result<Box<dyn Engine>, Error> {
    let reason = "this program was built without the feature `cuda`";
    Err(Error::Absent { reason: reason.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(accelerator: &Accelerator, kind: Option<Kind>) {
        accelerator.state.lock().expect("no test panics").opened = kind;
    }

    #[test]
    fn another_card_is_opened_only_when_another_is_chosen() {
        use EngineChoice::{Auto, Cpu, Cuda, Fpga};

        let accelerator = Accelerator::new(Auto, Some(Card::Simulated));
        assert!(accelerator.choose(Fpga) && accelerator.choose(Cuda));
        opened(&accelerator, Some(Kind::Cuda));
        assert!(!accelerator.choose(Cuda) && !accelerator.choose(Auto));
        assert!(!accelerator.choose(Cpu) && !accelerator.choose(Auto));
        assert!(accelerator.choose(Fpga));
        opened(&accelerator, Some(Kind::Fpga));
        assert!(!accelerator.choose(Fpga) && !accelerator.choose(Cpu) && !accelerator.choose(Fpga));
        // A CUDA card would be preferred.
        assert_eq!(accelerator.choose(Auto), cfg!(feature = "cuda"));
    }

    #[test]
    fn card_that_is_not_named_is_explained() {
        let (opened, kind) = open(EngineChoice::Fpga, None);
        let reason = opened.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(kind == Kind::Fpga && reason.contains("`fpga`"), "{reason}");
    }
}
