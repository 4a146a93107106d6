//! Entry points for hostile bytes, one function per target: it returns, whatever the bytes are.
//!
//! A target reads its input as a script ([`Input`]): parameters first, then one operation after
//! another. It panics when a promise is broken, and promises are more than "no panic": results are
//! compared with a slow truth wherever there is one.
//!
//! Inputs come from the corpus and from mutations of it (`tests/corpus.rs`), or from libFuzzer
//! (`libfuzzer/`).

#![forbid(unsafe_code)]

mod input;

mod header;

mod elimination;

mod window;

mod bats;

mod pipeline;

mod secure;

mod plan;

mod configuration;

mod control;

mod span;

pub use input::Input;

/// A function that must return, and its name, which is also that of its folder in the corpus.
#[derive(Copy, Clone)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// To be called with any bytes.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: [Target; 11] = [
    Target { name: "header", run: header::target },
    Target { name: "elimination", run: elimination::target },
    Target { name: "window", run: window::target },
    Target { name: "bats", run: bats::target },
    Target { name: "pipeline", run: pipeline::target },
    Target { name: "handshake", run: secure::handshake },
    Target { name: "tags", run: secure::tags },
    Target { name: "envelopes", run: secure::envelopes },
    Target { name: "plan", run: plan::target },
    Target { name: "configuration", run: configuration::target },
    Target { name: "control", run: control::target },
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}
