//! Fails when packets, codes or keys change and the version of the protocol stays: boxes of one
//! version would then misread each other. `json/` may be rewritten at any time, so
//! `version.json` records digests of its values for one version. Values are only added to it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

use recoded_wire::header::VERSION;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Shortest text that is recorded: shorter ones occur by chance.
const DIGITS_MIN: usize = 16;
/// Bytes of a digest: a collision among thousands of values is unlikely.
const DIGEST_BYTES: usize = 6;

/// Digests of everything in the documents that other implementations compute or send.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    version: u8,
    values: BTreeSet<String>,
}

#[derive(Debug, PartialEq)]
enum Mismatch {
    /// Values of this version that are no longer in the documents.
    Changed(usize),
    /// The record is that of another version, or lacks values.
    Incomplete,
}

impl Mismatch {
    fn text(&self) -> String {
        match self {
            Mismatch::Changed(lost) => format!(
                "{lost} values of protocol version {VERSION} changed. A box with the released \
                 version would misread them.\nfix: raise VERSION in dataplane/wire/src/header.rs \
                 (rules: dataplane/wire/README.md, How to extend).\nIf no release has version \
                 {VERSION}, or released boxes read the new bytes correctly: remove \
                 tests/vectors/version.json.\nThen in both cases: {WRITE}"
            ),
            Mismatch::Incomplete => {
                format!("tests/vectors/version.json lacks values.\nfix: {WRITE}")
            }
        }
    }
}

const WRITE: &str = "RECODED_WRITE_VECTORS=1 cargo test -p recoded-vectors";

/// Compares the values of the documents with the record of the version.
fn compare(record: &Record, version: u8, values: &BTreeSet<String>) -> Result<(), Mismatch> {
    if record.version != version {
        return Err(Mismatch::Incomplete);
    }
    match record.values.difference(values).count() {
        0 if record.values == *values => Ok(()),
        0 => Err(Mismatch::Incomplete),
        lost => Err(Mismatch::Changed(lost)),
    }
}

/// The digests of all long texts below `value`, whatever the fields are called.
fn collect(document: &str, value: &Value, digests: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(document, item, digests)),
        Value::Object(fields) => {
            fields.values().for_each(|field| collect(document, field, digests));
        }
        Value::String(text) if text.len() >= DIGITS_MIN => {
            let digest = Sha256::digest(format!("{document} {text}"));
            let hex = digest[..DIGEST_BYTES].iter().map(|byte| format!("{byte:02x}"));
            digests.insert(hex.collect());
        }
        _ => {}
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

fn published() -> BTreeSet<String> {
    let mut digests = BTreeSet::new();
    for entry in fs::read_dir(folder().join("json")).expect("the folder json") {
        let path = entry.expect("a document").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("a document");
        collect(&name, &serde_json::from_str(&text).expect("a document"), &mut digests);
    }
    digests
}

#[test]
fn a_change_of_packets_raises_the_version() {
    let (path, values) = (folder().join("version.json"), published());
    let read = || serde_json::from_str::<Record>(&fs::read_to_string(&path).ok()?).ok();
    let outcome = read().map_or(Err(Mismatch::Incomplete), |it| compare(&it, VERSION, &values));
    if outcome == Err(Mismatch::Incomplete) && env::var_os("RECODED_WRITE_VECTORS").is_some() {
        let record = Record { version: VERSION, values };
        let text = serde_json::to_string_pretty(&record).expect("a record") + "\n";
        fs::write(&path, text).expect("a writable folder");
        return;
    }
    if let Err(mismatch) = outcome {
        panic!("{}", mismatch.text());
    }
}

#[test]
fn a_changed_byte_needs_a_version_and_a_new_vector_does_not() {
    let collected = |texts: &[&str]| {
        let mut digests = BTreeSet::new();
        collect("wire", &serde_json::json!([{ "bytes": texts }]), &mut digests);
        digests
    };
    let (one, two) = ("3280fd0001020304fffffffc", "3280fd0001020304fffffffd");
    let record = Record { version: 3, values: collected(&[one]) };
    assert_eq!(compare(&record, 3, &collected(&[one])), Ok(()));
    assert_eq!(compare(&record, 3, &collected(&[two])), Err(Mismatch::Changed(1)));
    assert_eq!(compare(&record, 3, &collected(&[one, two])), Err(Mismatch::Incomplete));
    // A new version is recorded as a whole.
    assert_eq!(compare(&record, 4, &collected(&[two])), Err(Mismatch::Incomplete));
    assert!(Mismatch::Changed(1).text().contains("fix: raise VERSION"));
}
