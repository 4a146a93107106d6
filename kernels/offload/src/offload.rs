//! The owner's interface to the queue.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use recoded_code::engine::{Bundle, Cpu, Error, Partition};
use recoded_counters::engine::{Close, EngineCounters};

use crate::config::{Config, Mode};
use crate::dispatcher::Dispatcher;
use crate::model::Model;
use crate::port::Port;
use crate::runner::OpenEngine;
use crate::slot::{Rings, Shared, Slot};

/// A queue in front of one device. Dropping it finishes accepted work.
pub struct Offload {
    shared: Arc<Shared>,
    dispatcher: Option<JoinHandle<()>>,
}

/// The reason why a queue could not be started.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StartError {
    /// Linux refuses a thread.
    #[error("cannot start a thread")]
    Thread,
    /// The CPU's own engine could not be started.
    #[error(transparent)]
    Cpu(#[from] Error),
}

impl Offload {
    /// Starts a queue for `workers` workers and returns a port for each. The device is opened in
    /// the background: until it is, offers are declined.
    ///
    /// # Errors
    /// Linux refuses a thread.
    pub fn start(
        config: Config,
        workers: usize,
        open: OpenEngine,
    ) -> Result<(Self, Vec<Port>), StartError> {
        let config = Arc::new(config);
        let model = Model::new(config.rates);
        let shared = Arc::new(Shared::new(config.mode, model, workers));
        let cpu = Cpu::new(config.cpu_threads.max(1), Partition::FullBlock)?;
        let rings: Vec<Rings> = (0..workers).map(|_| Rings::new(config.slots_per_port)).collect();
        let dispatcher =
            Dispatcher::new(Arc::clone(&config), Arc::clone(&shared), rings.clone(), open, cpu);
        let named = thread::Builder::new().name("recoded-offload".into());
        let dispatcher = named.spawn(|| dispatcher.run()).map_err(|_| StartError::Thread)?;
        let port = |rings| {
            let thread = dispatcher.thread().clone();
            let slots = (0..config.slots_per_port).map(|_| slot(&config)).collect();
            let cpu = Cpu::new(1, Partition::FullBlock)?;
            Ok(Port::new(Arc::clone(&config), Arc::clone(&shared), rings, thread, slots, cpu))
        };
        let ports = rings.into_iter().map(port).collect::<Result<_, StartError>>()?;
        Ok((Self { shared, dispatcher: Some(dispatcher) }, ports))
    }

    /// Sets the processor of bulk work from now on. Accepted work is finished as it is.
    pub fn set_mode(&self, mode: Mode) {
        self.shared.set_mode(mode);
    }

    /// The processor of bulk work.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.shared.mode()
    }

    /// All counters.
    #[must_use]
    pub fn metrics(&self) -> EngineCounters {
        self.shared.counters.read()
    }

    /// Abandons the device and reopens, possibly another one. The CPU does its bundles; earlier
    /// failures no longer count.
    pub fn replace(&self) {
        self.shared.is_replaced.store(true, Ordering::Relaxed);
        if let Some(dispatcher) = &self.dispatcher {
            dispatcher.thread().unpark();
        }
    }

    /// The device's name; `None` without one.
    #[must_use]
    pub fn device(&self) -> Option<String> {
        self.shared.device()
    }

    /// Whether a device is in use.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.shared.is_up.load(Ordering::Relaxed)
    }

    /// The last failure of the device, for reports; `None` if it never failed.
    #[must_use]
    pub fn why_down(&self) -> Option<Error> {
        self.shared.why_down()
    }

    /// Costs of CPU and device, as measured so far.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.shared.model
    }

    /// Accepts nothing more and waits until all accepted work is done; ports still deliver it.
    pub fn stop(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        if let Some(dispatcher) = self.dispatcher.take() {
            dispatcher.thread().unpark();
            // It does not panic; if it did, its slots would be lost, and nothing here could help.
            let _ = dispatcher.join();
        }
    }
}

impl Drop for Offload {
    fn drop(&mut self) {
        self.finish();
    }
}

impl fmt::Debug for Offload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Offload").field("metrics", &self.metrics()).finish_non_exhaustive()
    }
}

fn slot(config: &Config) -> Slot {
    let bundle = Bundle::new(config.slot_bytes, config.slot_bytes, config.slot_jobs);
    Slot { bundle, opened: Instant::now(), close: Close::Flush }
}
