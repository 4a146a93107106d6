//! The daemon accepts the configurations shown in `docs/operate.md`.

#![forbid(unsafe_code)]

use recoded::config::Config;
use recoded_pipeline::params::Role;

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
