//! The examples run, and reach what they say.

#[path = "../examples/bats_line.rs"]
mod bats_line;
#[path = "../examples/file_transfer.rs"]
mod file_transfer;
#[path = "../examples/recoding_chain.rs"]
mod recoding_chain;
#[path = "../examples/sliding_window.rs"]
mod sliding_window;
#[path = "../examples/stripes.rs"]
mod stripes;

#[test]
fn examples_run() {
    bats_line::main().unwrap();
    file_transfer::main().unwrap();
    recoding_chain::main().unwrap();
    sliding_window::main().unwrap();
    stripes::main().unwrap();
}
