//! The committed header is the one that the sources give. `RECODED_WRITE_HEADER=1` writes it.

use std::path::Path;

#[test]
fn header_is_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("its settings");
    let bindings = cbindgen::generate_with_config(folder, config).expect("sources that it reads");
    let mut header = Vec::new();
    bindings.write(&mut header);
    // cbindgen puts the name of the enum before its codes, or nothing at all.
    let header = String::from_utf8(header).expect("text").replace("RECODED_STATUS_", "RECODED_");
    let path = folder.join("include/recoded.h");
    if std::env::var_os("RECODED_WRITE_HEADER").is_some() {
        std::fs::write(&path, &header).expect("a writable folder");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == header, "RECODED_WRITE_HEADER=1 cargo test -p recoded-c updates {path:?}");
}
