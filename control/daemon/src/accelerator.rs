//! Which accelerator there is: a CUDA card, if this program was built with support for it, or the
//! FPGA card that the configuration names.

use crate::config::EngineChoice;
use recoded_code::engine::{Engine, Error};
use recoded_fpga::Card;
use recoded_runtime::offload::{OpenEngine, faster};
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
    /// What was opened last, and for which choice.
    opened: Option<(Kind, EngineChoice)>,
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

    /// For the queue. Where both cards would do, both are opened, and the faster one stays.
    pub fn opener(&self) -> OpenEngine {
        let (fpga, state) = (self.fpga.clone(), Arc::clone(&self.state));
        if !self.is_free {
            let reason = "none answered at the start (`recodectl engines` says why), and the \
                          sandbox keeps later ones out (restart, or set sandbox = \"off\" in [daemon])";
            return Arc::new(move || Err(Error::Absent { reason: reason.into() }));
        }
        Arc::new(move || {
            let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
            let choice = lock().choice;
            // Opening takes long; meanwhile another card may be chosen.
            let (opened, kind) = open(choice, fpga.as_ref());
            let mut state = lock();
            if state.choice == choice {
                state.opened = opened.is_ok().then_some((kind, choice));
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
        state.choice = choice;
        let Some((kind, opened_for)) = state.opened else { return choice != EngineChoice::Cpu };
        match choice {
            // What is open stays open.
            EngineChoice::Cpu => false,
            // One that was asked for by name was not compared with the other.
            EngineChoice::Auto => {
                let is_named = matches!(opened_for, EngineChoice::Cuda | EngineChoice::Fpga);
                is_named && cfg!(feature = "cuda") && self.fpga.is_some()
            }
            EngineChoice::Cuda => kind != Kind::Cuda,
            EngineChoice::Fpga => kind != Kind::Fpga,
        }
    }
}

type Opened = Result<Box<dyn Engine>, Error>;

fn open(choice: EngineChoice, fpga: Option<&Card>) -> (Opened, Kind) {
    pick(choice, cuda, fpga.map(|card| || card.open()))
}

/// Opens the card that is wanted; if any will do and both work, the one that is measured to be
/// faster.
fn pick(
    choice: EngineChoice,
    cuda: impl FnOnce() -> Opened,
    fpga: Option<impl FnOnce() -> Opened>,
) -> (Opened, Kind) {
    match (choice, fpga) {
        (EngineChoice::Fpga, Some(fpga)) => (fpga(), Kind::Fpga),
        (EngineChoice::Fpga, None) => {
            let reason = "the key `fpga` of [daemon] names no card";
            (Err(Error::Absent { reason: reason.into() }), Kind::Fpga)
        }
        (EngineChoice::Cuda, _) | (_, None) => (cuda(), Kind::Cuda),
        (EngineChoice::Auto | EngineChoice::Cpu, Some(fpga)) => match (cuda(), fpga()) {
            (Ok(cuda), Ok(fpga)) => {
                let (engine, is_fpga) = faster(cuda, fpga);
                (Ok(engine), if is_fpga { Kind::Fpga } else { Kind::Cuda })
            }
            (Ok(cuda), Err(_)) => (Ok(cuda), Kind::Cuda),
            (Err(_), fpga) => (fpga, Kind::Fpga),
        },
    }
}

/// The first CUDA card, after a child process has found out that this is safe.
#[cfg(feature = "cuda")]
fn cuda() -> Opened {
    use recoded_cuda::Options;

    // The kernels may be put where they are looked for while the daemon runs.
    let options = Options::find().map_err(|error| Error::Absent { reason: error.to_string() })?;
    recoded_cuda::opener(options, PROBE_TIMEOUT)()
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Opened {
    let reason = "this program was built without the feature `cuda`";
    Err(Error::Absent { reason: reason.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_code::engine::{Bundle, Completed, CpuEngine, Partition, Refused};
    use std::time::Duration;

    fn opened(accelerator: &Accelerator, kind: Kind, choice: EngineChoice) {
        accelerator.state.lock().expect("no test panics").opened = Some((kind, choice));
    }

    #[test]
    fn another_card_is_opened_only_when_another_is_chosen() {
        use EngineChoice::{Auto, Cpu, Cuda, Fpga};

        let accelerator = Accelerator::new(Auto, Some(Card::Simulated));
        assert!(accelerator.choose(Fpga) && accelerator.choose(Cuda));
        opened(&accelerator, Kind::Cuda, Auto);
        assert!(!accelerator.choose(Cuda) && !accelerator.choose(Auto));
        assert!(!accelerator.choose(Cpu) && !accelerator.choose(Auto));
        assert!(accelerator.choose(Fpga));
        opened(&accelerator, Kind::Fpga, Fpga);
        assert!(!accelerator.choose(Fpga) && !accelerator.choose(Cpu) && !accelerator.choose(Fpga));
        // It was not compared with a CUDA card.
        assert_eq!(accelerator.choose(Auto), cfg!(feature = "cuda"));
        let alone = Accelerator::new(Cuda, None);
        opened(&alone, Kind::Cuda, Cuda);
        assert!(!alone.choose(Auto), "there is nothing to compare it with");
    }

    /// The CPU as a card that takes its time for each bundle.
    struct Slow(CpuEngine, Duration);

    impl Engine for Slow {
        fn name(&self) -> &str {
            "slow"
        }
        fn depth(&self) -> usize {
            1
        }
        fn submit(&mut self, bundle: Bundle) -> Result<(), Refused> {
            std::thread::sleep(self.1);
            self.0.submit(bundle)
        }
        fn poll(&mut self) -> Option<Completed> {
            self.0.poll()
        }
    }

    fn card(millis: u64) -> impl FnOnce() -> Opened {
        move || {
            let cpu = CpuEngine::new(1, Partition::FullBlock)?;
            Ok(Box::new(Slow(cpu, Duration::from_millis(millis))) as Box<dyn Engine>)
        }
    }

    fn broken() -> Opened {
        Err(Error::Absent { reason: "broken".into() })
    }

    #[test]
    fn of_two_cards_the_faster_is_opened_unless_one_is_named() {
        use EngineChoice::{Auto, Cuda, Fpga};

        let kind = |choice, cuda, fpga| pick(choice, card(cuda), Some(card(fpga))).1;
        assert_eq!(kind(Auto, 300, 0), Kind::Fpga);
        assert_eq!(kind(Auto, 0, 300), Kind::Cuda);
        assert_eq!([kind(Cuda, 300, 0), kind(Fpga, 0, 300)], [Kind::Cuda, Kind::Fpga]);
    }

    #[test]
    fn the_card_that_works_is_opened_however_slow() {
        let (opened, kind) = pick(EngineChoice::Auto, broken, Some(card(1)));
        assert!(opened.is_ok() && kind == Kind::Fpga);
        let (opened, kind) = pick(EngineChoice::Auto, card(1), Some(broken));
        assert!(opened.is_ok() && kind == Kind::Cuda);
        let (opened, _) = pick(EngineChoice::Auto, broken, Some(broken));
        assert!(opened.is_err());
    }

    #[test]
    fn card_that_is_not_named_is_explained() {
        let (opened, kind) = open(EngineChoice::Fpga, None);
        let reason = opened.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(kind == Kind::Fpga && reason.contains("`fpga`"), "{reason}");
    }
}
