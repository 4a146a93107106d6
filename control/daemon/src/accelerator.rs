//! Which accelerator there is: a CUDA card, if this program was built with support for it.

use recoded_code::engine::Error;
use recoded_runtime::offload::OpenEngine;
use std::sync::Arc;
#[cfg(feature = "cuda")]
use std::time::Duration;

/// Loading the driver and the kernels takes a second or two where there is a card, and ten or more
/// where there are many of them: `CUDA_VISIBLE_DEVICES` names those to be looked at.
#[cfg(feature = "cuda")]
const PROBE_TIMEOUT: Duration = Duration::from_secs(100);

/// Whether a card answers a child process, asked before this process gives up starting any. Without
/// kernels or driver this takes no time.
#[cfg(feature = "cuda")]
pub fn is_there() -> bool {
    let options = recoded_cuda::Options::find();
    options.is_ok_and(|options| recoded_cuda::probe(&options, PROBE_TIMEOUT).is_ok())
}

/// There is none.
#[cfg(not(feature = "cuda"))]
pub fn is_there() -> bool {
    false
}

/// For a process in the sandbox, which cannot start what a driver needs.
pub fn none() -> OpenEngine {
    let reason = "none answered at the start, and the sandbox keeps later ones out (restart, or set \
                  sandbox = \"off\" in [daemon])";
    Arc::new(move || Err(Error::Absent { reason: reason.into() }))
}

/// Opens the first CUDA card, after a child process has found out that this is safe.
#[cfg(feature = "cuda")]
pub fn opener() -> OpenEngine {
    use recoded_cuda::Options;
    use std::sync::{Mutex, PoisonError};

    // It is tried again and again; what is said is said once.
    let told = Mutex::new(String::new());
    Arc::new(move || {
        // The kernels may be put where they are looked for while the daemon runs.
        let options = Options::find().map_err(|error| Error::Absent { reason: error.to_string() });
        let opened = options.and_then(|options| recoded_cuda::opener(options, PROBE_TIMEOUT)());
        let news = match &opened {
            Ok(engine) => format!("accelerator: {}", engine.name()),
            Err(error) => format!("no accelerator, the CPU does everything: {error}"),
        };
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        if *told != news {
            tracing::info!("{news}");
            *told = news;
        }
        opened
    })
}

/// Opens nothing.
#[cfg(not(feature = "cuda"))]
pub fn opener() -> OpenEngine {
    let reason = "this program was built without the feature `cuda`";
    Arc::new(move || Err(Error::Absent { reason: reason.into() }))
}
