//! Finds the accelerator: a CUDA card, if this program was built with support for it, or the FPGA
//! card that the configuration names.

use crate::config::EngineChoice;
use recoded_code::engine::{Engine, Error};
use recoded_fpga::Card;
use recoded_runtime::offload::{OpenEngine, faster};
use std::sync::{Arc, Mutex, PoisonError};
#[cfg(feature = "cuda")]
use std::time::Duration;

/// Loading the driver and the kernels takes a second or two with one card, and ten or more with
/// many cards. `CUDA_VISIBLE_DEVICES` limits the search.
#[cfg(feature = "cuda")]
const PROBE_TIMEOUT: Duration = Duration::from_secs(100);

/// Whether a child process can use a CUDA card. Checked before this process loses the right to
/// start children. Takes no time without kernels or driver.
#[cfg(feature = "cuda")]
fn has_cuda() -> bool {
    let options = recoded_cuda::Options::find();
    options.is_ok_and(|options| recoded_cuda::probe(&options, PROBE_TIMEOUT).is_ok())
}

/// Built without CUDA support.
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

/// State shared by the thread that opens a card and the one that receives the choice.
struct SharedChoice {
    choice: EngineChoice,
    /// Most recently opened kind, and the choice that it was opened for.
    opened: Option<(Kind, EngineChoice)>,
    /// Last message logged. Opening is retried, but each message is logged once.
    told: String,
}

/// Opens the chosen accelerator.
pub struct Accelerator {
    fpga: Option<Card>,
    /// Whether this process could open a card.
    is_free: bool,
    state: Arc<Mutex<SharedChoice>>,
}

impl Accelerator {
    /// Opens the card that `choice` selects; `fpga` is the FPGA card.
    pub fn new(choice: EngineChoice, fpga: Option<Card>) -> Accelerator {
        let state = SharedChoice { choice, opened: None, told: String::new() };
        Accelerator { fpga, is_free: true, state: Arc::new(Mutex::new(state)) }
    }

    /// Whether any card can be opened: an FPGA card is configured, or a CUDA card responds.
    pub fn has_card(&self) -> bool {
        self.fpga.is_some() || has_cuda()
    }

    /// Marks the process as sandboxed: it cannot start the helpers that a driver needs.
    #[must_use]
    pub fn shut_out(self) -> Accelerator {
        Accelerator { is_free: false, ..self }
    }

    /// Returns the function that opens the card for the queue. If both cards qualify, it opens both
    /// and keeps the faster one.
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
            // Opening takes long; the choice may have changed in the meantime.
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

    /// Sets the choice to open from now on. Returns whether it differs from the open card.
    pub fn choose(&self, choice: EngineChoice) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.choice = choice;
        let Some((kind, opened_for)) = state.opened else { return choice != EngineChoice::Cpu };
        match choice {
            // An open card stays open.
            EngineChoice::Cpu => false,
            // A card chosen by name was not compared with the other one.
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

/// Opens the chosen card; if either will do and both work, the one that measures faster.
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

/// Opens the first CUDA card, after a child process has verified that this is safe.
#[cfg(feature = "cuda")]
fn cuda() -> Opened {
    use recoded_cuda::Options;

    // The kernels may be installed while the daemon runs.
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
        // The FPGA card was not compared with a CUDA card.
        assert_eq!(accelerator.choose(Auto), cfg!(feature = "cuda"));
        let alone = Accelerator::new(Cuda, None);
        opened(&alone, Kind::Cuda, Cuda);
        assert!(!alone.choose(Auto), "there is nothing to compare it with");
    }

    /// A CPU engine that takes a fixed time per bundle, standing in for a card.
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
