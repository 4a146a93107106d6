//! Which accelerator there is: a CUDA card, if this program was built with support for it.

use recoded_runtime::offload::OpenEngine;
use std::sync::Arc;

/// Opens the first CUDA card, after a child process has found out that this is safe.
#[cfg(feature = "cuda")]
pub fn opener() -> OpenEngine {
    use recoded_code::engine::{Engine, Error};
    use recoded_cuda::{CudaEngine, Options, probe};
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    /// Loading the driver and the kernels takes a second or two where there is a card.
    const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

    let open = || -> Result<CudaEngine, String> {
        let options = Options::find().map_err(|error| error.to_string())?;
        probe(&options, PROBE_TIMEOUT).map_err(|error| error.to_string())?;
        CudaEngine::open(&options).map_err(|error| error.to_string())
    };
    // It is tried again and again; what is said is said once.
    let told = Mutex::new(String::new());
    Arc::new(move || {
        let opened = open();
        let news = match &opened {
            Ok(engine) => format!("accelerator: {}", engine.info().name),
            Err(reason) => format!("no accelerator, the CPU does everything: {reason}"),
        };
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        if *told != news {
            tracing::info!("{news}");
            *told = news;
        }
        opened.map(|engine| Box::new(engine) as Box<dyn Engine>).map_err(|reason| Error::Lost {
            call: "opening the card",
            code: 0,
            reason,
        })
    })
}

/// Opens nothing.
#[cfg(not(feature = "cuda"))]
pub fn opener() -> OpenEngine {
    use recoded_code::engine::Error;
    Arc::new(|| {
        let reason = "this program was built without the feature `cuda`".into();
        Err(Error::Lost { call: "opening the card", code: 0, reason })
    })
}
