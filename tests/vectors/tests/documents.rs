//! The published documents equal the output of this implementation. `RECODED_WRITE_VECTORS=1`
//! rewrites them, which breaks every other implementation.

use std::path::Path;
use std::{env, fs};

use recoded_vectors::{bats, field, reed_solomon, rlnc, secure, window, wire};
use serde::Serialize;
use serde::de::DeserializeOwned;

fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(name: &str, made: &T) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("json").join(format!("{name}.json"));
    if env::var_os("RECODED_WRITE_VECTORS").is_some() {
        let mut text = serde_json::to_string_pretty(made).expect("a document");
        text.push('\n');
        fs::write(&path, text).expect("a writable folder json");
    }
    let text = fs::read_to_string(&path).expect("a published document");
    let published: T = serde_json::from_str(&text).expect("a document of this schema");
    assert_eq!(&published, made, "{name}.json");
}

#[test]
fn field_is_as_published() {
    check("field", &field::document());
}

#[test]
fn wire_is_as_published() {
    check("wire", &wire::document());
}

#[test]
fn rlnc_is_as_published() {
    check("rlnc", &rlnc::document());
}

#[test]
fn window_is_as_published() {
    check("window", &window::document());
}

#[test]
fn bats_is_as_published() {
    check("bats", &bats::document());
}

#[test]
fn reed_solomon_is_as_published() {
    check("reed_solomon", &reed_solomon::document());
}

#[test]
fn secure_is_as_published() {
    check("secure", &secure::document());
}
