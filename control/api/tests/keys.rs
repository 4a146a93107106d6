//! The tables of keys hold: whole sentences, equal to `docs/reference/keys.md` and the interface.
//! `RECODED_WRITE_KEYS=1 cargo test -p recoded-api` rewrites that page.

#![forbid(unsafe_code)]

use recoded_api::IDL;
use recoded_api::keys::{DefaultValue, FLOW, Key, TABLES, Table};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The page with the tables, from the root of the repository.
const PAGE: &str = "docs/reference/keys.md";

/// Documents for operators, which show configurations and commands.
const OPERATORS: [&str; 7] = [
    "README.md",
    "docs/quickstart.md",
    "docs/concepts.md",
    "docs/operate.md",
    "docs/choosing.md",
    "docs/compare.md",
    "docs/limits.md",
];

const BEGIN: &str = "<!-- tables: written by tests/keys.rs -->\n";

fn root() -> &'static Path {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.parent().and_then(Path::parent).expect("the repository")
}

/// The tables as the page has them.
fn document() -> String {
    let mut text = String::from(BEGIN);
    // Writing to a String cannot fail.
    for Table { section, keys } in TABLES {
        let heading =
            if section == "daemon" { "[daemon]".into() } else { format!("[[{section}]]") };
        let _ = write!(text, "\n### `{heading}`\n");
        text.push_str("| key | of | values | default | live | what it does |\n");
        text.push_str("|---|---|---|---|---|---|\n");
        for key in keys {
            let default = match key.default {
                DefaultValue::Is(value) => format!("`{value}`"),
                DefaultValue::Depends(words) => words.to_owned(),
                DefaultValue::Required => "must be written".to_owned(),
            };
            let live = if key.is_live { "yes" } else { "" };
            let Key { name, meaning, .. } = key;
            let (owners, values) = (key.owners(), key.values_in_words());
            let row = format!("`{name}` | {owners} | {values} | {default} | {live} | {meaning}");
            let _ = writeln!(text, "| {row} |");
        }
    }
    text
}

#[test]
fn page_has_every_table_as_the_program_has_it() {
    let path = root().join(PAGE);
    let page = fs::read_to_string(&path).expect("the page");
    let (prose, _) = page.split_once(BEGIN).expect("the page marks where the tables begin");
    let made = format!("{prose}{}", document());
    if env::var_os("RECODED_WRITE_KEYS").is_some() {
        fs::write(&path, &made).expect("a writable page");
        return;
    }
    assert!(page == made, "{PAGE}: run RECODED_WRITE_KEYS=1 cargo test -p recoded-api");
}

#[test]
fn every_key_has_one_name_and_whole_sentences() {
    for Table { section, keys } in TABLES {
        let mut names = BTreeSet::new();
        for key @ Key { name, meaning, unit, roles, .. } in keys {
            assert!(names.insert(name), "{section}: {name} twice");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name} is no name");
            assert!(meaning.len() > 10 && meaning.ends_with('.'), "{name}: {meaning:?}");
            let shown = format!("{meaning}{unit}{}", key.values_in_words());
            assert!(!shown.contains(['|', '\n']) && !shown.contains("  "), "{name}: {shown:?}");
            assert_eq!(roles.is_empty(), section != "flow", "{name}: flows alone have roles");
            assert!(key.code.is_none() || section == "flow", "{name}: flows alone have codes");
        }
    }
}

/// Names of the fields of a type in the interface description.
fn fields_of(kind: &str) -> Vec<&'static str> {
    let (_, fields) = IDL.split_once(&format!("type {kind} (")).expect("the type");
    let (fields, _) = fields.split_once("\n)").expect("its end");
    let lines = fields.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect()
}

#[test]
fn parameters_of_a_flow_are_its_live_keys_its_shards_and_the_size_of_symbols() {
    let shown = |key: &&Key| key.is_live || ["shards", "symbol_bytes"].contains(&key.name);
    let shown = FLOW.keys.iter().filter(shown);
    assert_eq!(fields_of("Parameters"), shown.map(|key| key.name).collect::<Vec<_>>());
}

/// READMEs below `folder`.
fn readmes(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            readmes(&path, found);
        } else if path.ends_with("README.md") {
            found.push(path);
        }
    }
}

/// Keys of a file for several boxes, which `control/network` reads.
const OF_NETWORKS: [&str; 3] = ["at", "ssh", "via"];

/// Keys that are set in backquotes, as in `workers = 4` or `field=4`, and are none. An option of a
/// command, as in `--signal=USR2`, is no key.
fn unknown_keys(text: &str) -> Vec<&str> {
    let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let set = quoted.flat_map(|code| {
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_' || c == '-';
        let before = code.split('=').rev().skip(1);
        before.filter_map(move |text| text.trim_end().rsplit(|c| !is_name(c)).next())
    });
    let is_known = |name: &str| {
        TABLES.iter().any(|table| table.find(name).is_some()) || OF_NETWORKS.contains(&name)
    };
    set.filter(|name| name.len() > 1 && !name.starts_with('-') && !is_known(name)).collect()
}

#[test]
fn documents_set_only_keys_that_exist() {
    let mut paths: Vec<PathBuf> = OPERATORS.iter().map(|page| root().join(page)).collect();
    readmes(&root().join("control"), &mut paths);
    for path in paths {
        let text = fs::read_to_string(&path).expect("a document");
        assert_eq!(unknown_keys(&text), [""; 0], "{}", path.display());
    }
    let text =
        "with `code = \"bats\"`, `recodectl set 1 --as=you field=4 colour=3`\nand `hue = 2`, a = 3";
    assert_eq!(unknown_keys(text), ["colour", "hue"]);
}
