//! The host's side: fetches packages, starts machines, collects results.

mod apt;
mod cpio;
mod debian;
mod kernel;
mod machine;
mod packages;
mod qemu;
mod qmp;
mod root;
mod run;

pub use packages::{Architecture, Cache, Kernel};
pub use run::{CaseReport, Verdict, run};
