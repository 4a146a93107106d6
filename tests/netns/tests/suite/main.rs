//! Tests in network namespaces: one program, so that they take turns with the machine's cores.

mod common;

mod accelerator;
mod bed;
mod hostile;
mod line;
mod timed;
mod workers;
