//! Address family of links without a configured `local`, and independence of such a file from its
//! host.

use super::super::names::Resolution;
use super::*;
use crate::config::Config;
use crate::config::tests::{HEAD, RELAY};

/// A relay without `local` on either link.
fn bare() -> String {
    let text = format!("{HEAD}{RELAY}");
    text.replace("local = \"10.0.1.2\"\n", "").replace("local = \"10.0.2.1\"\n", "")
}

fn parse(text: &str, names: Option<&Names>) -> Result<Config, String> {
    let parsed = Config::parse_on("f", text, &|_| None, names);
    parsed.map(|(.., config)| config).map_err(|errors| errors.to_string())
}

#[test]
fn link_is_of_the_family_of_its_neighbours_and_its_address_is_left_open() {
    for names in [None, Some(&Names::default())] {
        let config = parse(&bare(), names).expect("valid");
        let is_open = |link: &crate::config::Link| {
            link.local == Ipv4Addr::UNSPECIFIED && !link.is_local_written
        };
        assert!(config.links.iter().all(is_open));
    }
    let v6 = bare().replace("10.0.1.1", "fd00:1::1").replace("10.0.2.2", "fd00:2::2");
    let v6 = v6.replace("interface = \"eth0\"", "interface = \"eth0\"\nbackend = \"xdp\"");
    let config = parse(&v6, None).expect("valid");
    assert!(config.links.iter().all(|link| link.local == Ipv6Addr::UNSPECIFIED));
    let written = config.to_toml();
    assert_eq!(parse(&written, None).expect("valid"), config, "{written}");
}

#[test]
fn neighbours_of_both_families_are_refused() {
    let text = bare().replace(
        "[{ link = \"east\"",
        "[{ link = \"west\", address = \"fd00::2\" }, { link = \"east\"",
    );
    let said = parse(&text, None).expect_err("both families");
    assert!(said.contains("the neighbours of a link are all IPv4, or all IPv6"), "{said}");
}

#[test]
fn neighbours_by_name_give_the_family_that_they_share_with_the_interface() {
    let hosts = |known: &[(&str, &[&str])]| {
        let addresses = |texts: &&[&str]| {
            texts.iter().map(|text| text.parse().expect("an address")).collect::<Vec<IpAddr>>()
        };
        let found = known.iter().map(|(name, texts)| {
            (
                (*name).to_owned(),
                Resolution { addresses: addresses(texts), ..Resolution::default() },
            )
        });
        Names { hosts: found.collect(), ..Names::default() }
    };
    let own = |text: &str| {
        let addresses = text.split_whitespace().map(|it| (it.parse().expect("an address"), 24));
        OwnAddresses::from([("eth0".to_owned(), addresses.collect())])
    };
    let both: &[&str] = &["fd00::1", "10.0.1.1"];
    let names = hosts(&[("a", both), ("b", &["10.0.1.9"]), ("c", &[])]);
    let family = |wanted: &[&str], own: &OwnAddresses| {
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        names.family(&wanted, own, "eth0")
    };
    assert_eq!(family(&["a"], &own("")), Some(false), "as the resolver sorts them");
    assert_eq!(family(&["a"], &own("10.0.1.2")), Some(true));
    assert_eq!(family(&["a", "b"], &own("")), Some(true));
    assert_eq!(family(&["c", "a", "b"], &own("fd00::2 10.0.1.2")), Some(true));
    assert_eq!(family(&["c"], &own("10.0.1.2")), None);
}

#[test]
fn record_of_a_version_that_kept_addresses_of_interfaces_is_read() {
    let text = r#"{"far.example": {"addresses": ["10.0.0.2"], "trouble": ""},
        "of interfaces": {"eth0": {"Ok": "10.0.1.2"}}}"#;
    let names: Names = serde_json::from_str(text).expect("a record");
    assert_eq!(names.hosts["far.example"].addresses, ["10.0.0.2".parse::<IpAddr>().unwrap()]);
}
