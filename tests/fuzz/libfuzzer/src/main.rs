//! libFuzzer around the targets. `RECODED_TARGET` chooses one; `../run` sets it.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use recoded_fuzz::{Target, target};

static TARGET: OnceLock<Target> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("RECODED_TARGET").unwrap_or_default();
        target(&name).unwrap_or_else(|| panic!("RECODED_TARGET={name} is no target"))
    });
    (target.run)(bytes);
});
