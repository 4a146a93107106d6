//! An engine for tests: it passes its self-test and then follows its faults.

use std::sync::Arc;

use recoded_code::engine::{
    Bundle, Chaos, Completed, CpuEngine, Engine, Error, Faults, Partition, Refused,
};
use recoded_offload::OpenEngine;

/// One core of this CPU as an engine.
pub fn cpu() -> Result<CpuEngine, Error> {
    CpuEngine::new(1, Partition::FullBlock)
}

/// An engine that begins to fail when its self-test is over.
pub fn after_self_test(faults: Faults, seed: u64) -> OpenEngine {
    struct Later {
        tested: Option<CpuEngine>,
        faulty: Chaos<CpuEngine>,
    }
    impl Engine for Later {
        fn name(&self) -> &str {
            "later"
        }
        fn depth(&self) -> usize {
            2
        }
        fn submit(&mut self, bundle: Bundle) -> Result<(), Refused> {
            match &mut self.tested {
                Some(engine) => engine.submit(bundle),
                None => self.faulty.submit(bundle),
            }
        }
        fn poll(&mut self) -> Option<Completed> {
            let Some(engine) = &mut self.tested else { return self.faulty.poll() };
            let completed = engine.poll()?;
            self.tested = None;
            Some(completed)
        }
    }
    Arc::new(move || {
        let faulty = Chaos::new(cpu()?, faults, seed);
        Ok(Box::new(Later { tested: Some(cpu()?), faulty }))
    })
}
