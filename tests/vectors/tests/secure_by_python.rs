//! `secure.json` recomputed by an implementation in another language, if Python is available.

#![forbid(unsafe_code)]

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

#[test]
fn python_makes_the_same_keys_tags_envelopes_and_handshakes() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("secure.py");
    match Command::new("python3").arg(script).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => println!("skipped: no python3"),
        outcome => {
            let output = outcome.expect("python3 runs");
            let said = [output.stdout, output.stderr].concat();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
        }
    }
}
