//! Every JSON file under `bench/results` has the layout of this crate. `RECODED_WRITE_RESULTS=1`
//! rewrites those that do not, without a change to their values.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn json_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("entry").path());
    let found = entries.flat_map(|path| match path.is_dir() {
        true => json_files(&path),
        false => vec![path],
    });
    found.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect()
}

#[test]
fn results_have_the_layout_of_this_crate() {
    let files = json_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../results"));
    assert!(!files.is_empty());
    for path in files {
        let text = fs::read_to_string(&path).expect("a result");
        let laid_out = bench_json::lay_out(&text).expect("JSON");
        if env::var_os("RECODED_WRITE_RESULTS").is_some() {
            fs::write(&path, &laid_out).expect("a writable folder");
        } else {
            let path = path.display();
            assert!(text == laid_out, "{path}: run this test with RECODED_WRITE_RESULTS=1");
        }
    }
}
