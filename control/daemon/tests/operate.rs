//! The daemon accepts the configurations shown in `docs/operate.md`, and files that older builds
//! leave (`older`).

#![forbid(unsafe_code)]

use recoded::config::Config;
use recoded::keeper::history::History;
use recoded::predecessor::Lock;
use recoded_pipeline::params::Role;
use std::fs;
use std::path::Path;

const PAGE: &str = include_str!("../../../docs/operate.md");

/// Largest number of lines for one box.
const LINES_MAX: usize = 12;

/// Fenced TOML blocks.
fn blocks() -> impl Iterator<Item = &'static str> {
    PAGE.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next())
}

fn parse(text: &str) -> Config {
    let parsed = Config::parse("operate.md", text, &|_| Some(1500));
    parsed.map(|(.., config)| config).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

#[test]
fn one_box_by_hand_is_a_whole_configuration_of_12_lines() {
    let mut shown = blocks().filter(|block| block.starts_with("link = "));
    let text = shown.next().expect("there is one");
    assert!(shown.next().is_none(), "there is one alone");
    assert!(text.lines().count() <= LINES_MAX, "{text}");
    let Config { links, tunnels, flows, .. } = parse(text);
    assert_eq!((links.len(), tunnels.len(), flows.len()), (1, 1, 2));
    assert!(matches!(flows[0].params.role, Role::Source { .. }));
    assert!(matches!(flows[1].params.role, Role::Sink { .. }));
    assert!(!flows[0].written.code, "codes, sizes and rates are left to Recoded");
}

#[test]
fn three_boxes_by_hand_are_whole_configurations() {
    let boxes: Vec<Config> = blocks()
        .filter(|block| block.starts_with("# box "))
        .filter(|block| {
            // The lines for keys are not a whole configuration.
            block.contains("[[link]]")
        })
        .map(parse)
        .collect();
    let flows: Vec<usize> = boxes.iter().map(|config| config.flows.len()).collect();
    assert_eq!(flows, [2, 2, 2], "two ends and a relay, in both directions");
}

/// Files of a build of 2026-11-29 with wire version 2: its supervisor left a process and a tunnel,
/// and its configuration is in the history.
#[test]
fn files_of_an_older_build_are_read() {
    let older = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/older");
    let folder = tempfile::tempdir().unwrap();
    let copy = |name: &str| fs::copy(older.join(name), folder.path().join(name)).unwrap();
    copy("recoded.sock.state");
    copy("0000000001-1796069920-start.toml");
    let lock = Lock::take(&folder.path().join("recoded.sock")).unwrap();
    let record = lock.record().expect("the record of the older build");
    assert!(record.dataplane.is_some() && record.tunnels.contains_key("rec0"), "{record:?}");
    let (.., config) = Config::parse("older", &record.text, &|_| Some(1500)).unwrap();
    assert_eq!((config.flows.len(), config.tunnels.len()), (2, 1));
    // A later build may have further keys in it.
    let path = folder.path().join("recoded.sock.state");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen('{', "{\"of_later_builds\":{\"a\":[1]},", 1)).unwrap();
    assert_eq!(lock.record().as_ref(), Some(&record));
    let history = History::open(Some(folder.path().to_owned()), &record.file);
    assert_eq!((history.trouble(), history.number()), ("", 1));
    assert!(history.entries().all(|entry| entry.text == record.file), "{history:?}");
}
