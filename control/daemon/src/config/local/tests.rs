//! Which address of an interface is taken, what is said where none can be, and that a file that
//! leaves it out is the same as one that has it.

use super::*;
use crate::config::Config;
use crate::config::diff::{Cost, diff};
use crate::config::tests::{HEAD, RELAY};

/// A relay that leaves both its addresses to its interfaces.
fn bare() -> String {
    let text = format!("{HEAD}{RELAY}");
    text.replace("local = \"10.0.1.2\"\n", "").replace("local = \"10.0.2.1\"\n", "")
}

fn own(known: &[(&str, &[&str])]) -> OwnAddresses {
    let address = |text: &&str| {
        let (address, prefix) = text.split_once('/').expect("a prefix");
        (address.parse().expect("an address"), prefix.parse().expect("a length"))
    };
    let of = |addresses: &[&str]| addresses.iter().map(address).collect();
    known.iter().map(|(name, addresses)| ((*name).to_owned(), of(addresses))).collect()
}

fn document(text: &str) -> Document {
    Document::parse("f", text).expect("TOML")
}

fn look(text: &str, found: OwnAddresses, before: &Names) -> Names {
    Names::default().choosing(&document(text), Ok(found), before)
}

fn parse(text: &str, names: &Names) -> Result<Config, String> {
    let parsed = Config::parse_on("f", text, &|_| None, Some(names));
    parsed.map(|(.., config)| config).map_err(|errors| errors.to_string())
}

/// What is chosen on eth0 for a neighbour at 10.0.1.1.
fn chosen(addresses: &[&str]) -> Result<String, String> {
    let found = own(&[("eth0", addresses), ("eth1", &["10.0.2.1/24"])]);
    let names = look(&bare(), found, &Names::default());
    parse(&bare(), &names).map(|config| config.links[0].local.to_string())
}

#[test]
fn address_is_that_in_the_subnet_of_a_neighbour_or_the_only_one_of_its_family() {
    for (addresses, expected) in [
        (&["10.0.1.2/24"][..], "10.0.1.2"),
        (&["192.0.2.1/24", "10.0.1.2/24"], "10.0.1.2"),
        (&["fe80::1/64", "fd00::1/64", "10.0.1.2/24"], "10.0.1.2"),
        // Behind a router, and between two points.
        (&["192.0.2.1/24", "fd00::1/64"], "192.0.2.1"),
        (&["192.0.2.1/32"], "192.0.2.1"),
    ] {
        assert_eq!(chosen(addresses).as_deref(), Ok(expected), "{addresses:?}");
    }
    let far = [vec!["2001:db8::9".parse().expect("an address")]];
    let local = |addresses: &[&str]| choose("eth0", &own(&[("eth0", addresses)])["eth0"], &far);
    assert_eq!(local(&["fe80::1/64", "2001:db8:1::1/64"]), Ok("2001:db8:1::1".parse().unwrap()));
    assert!(local(&["fe80::1/64"]).is_err(), "no router sends back to it");
}

#[test]
fn interface_without_an_address_that_suits_or_with_several_is_named_with_the_key_to_write() {
    let say = |why: &str| format!("f:1: link west: local is missing: {why}");
    let write = "write this host's address on the link";
    let cases: [(&[&str], String); 4] = [
        (&[], format!("eth0 has no address here: give it one, or {write}")),
        (
            &["fd00::1/64"],
            format!("eth0 has none that suits its neighbours, but fd00::1/64: add one, or {write}"),
        ),
        (
            &["10.0.1.2/24", "10.0.1.3/25"],
            "eth0 has several that it could be, 10.0.1.2/24, 10.0.1.3/25: write the one that \
             neighbours know"
                .to_owned(),
        ),
        (
            &["192.0.2.1/24", "198.51.100.1/24"],
            "eth0 has several that it could be, 192.0.2.1/24, 198.51.100.1/24: write the one that \
             neighbours know"
                .to_owned(),
        ),
    ];
    for (addresses, why) in cases {
        assert_eq!(chosen(addresses), Err(say(&why)));
    }
    let names = look(&bare(), own(&[("eth1", &["10.0.2.1/24"])]), &Names::default());
    let none = format!("there is no interface eth0 here: correct interface, or {write}");
    assert_eq!(parse(&bare(), &names), Err(say(&none)));
}

#[test]
fn neighbour_that_is_this_host_and_one_of_the_other_family_are_refused_as_where_it_is_written() {
    let said = chosen(&["10.0.1.1/24"]).expect_err("the neighbour's address");
    assert!(said.contains("upstream.address = \"10.0.1.1\" is our own"), "{said}");
    let text = bare().replace(
        "[{ link = \"east\"",
        "[{ link = \"west\", address = \"fd00::2\" }, { link = \"east\"",
    );
    let alone = Config::parse("f", &text, &|_| None).expect_err("both families").to_string();
    assert!(alone.contains("the neighbours of a link are all IPv4, or all IPv6"), "{alone}");
}

#[test]
fn neighbours_by_name_tell_the_subnet_too() {
    let text = bare().replace("10.0.1.1", "relay.example");
    let mut names = Names::ask([]);
    let addresses = vec!["10.0.1.1".parse().expect("an address")];
    let found = super::super::names::Found { addresses, ..Default::default() };
    names.hosts.insert("relay.example".into(), found);
    let found = own(&[("eth0", &["192.0.2.1/24", "10.0.1.2/24"]), ("eth1", &["10.0.2.1/24"])]);
    let names = names.choosing(&document(&text), Ok(found), &Names::default());
    assert_eq!(parse(&text, &names).expect("valid").links[0].local.to_string(), "10.0.1.2");
}

#[test]
fn file_alone_is_checked_without_interfaces_and_for_the_family_of_its_neighbours() {
    let config = Config::parse("f", &bare(), &|_| None).expect("valid").2;
    assert!(config.links.iter().all(|link| link.local.is_unspecified() && !link.is_local_written));
    let v6 = bare().replace("10.0.1.1", "fd00:1::1").replace("10.0.2.2", "fd00:2::2");
    let v6 = v6.replace("interface = \"eth0\"", "interface = \"eth0\"\nbackend = \"xdp\"");
    let config = Config::parse("f", &v6, &|_| None).expect("valid").2;
    assert_eq!(config.links[0].local.to_string(), "::");
    let by_name = bare().replace("10.0.1.1", "relay.example");
    assert!(Config::parse("f", &by_name, &|_| None).is_ok());
}

#[test]
fn what_is_in_force_leaves_the_address_to_the_interface_and_differs_only_where_that_changes() {
    let with = |west: &str| {
        let found = own(&[("eth0", &[west]), ("eth1", &["10.0.2.1/24"])]);
        look(&bare(), found, &Names::default())
    };
    let names = with("10.0.1.2/24");
    let bare_config = parse(&bare(), &names).expect("valid");
    let text = bare_config.to_toml();
    assert!(text.contains("\n# the interface's: local = \"10.0.1.2\"\n"), "{text}");
    assert_eq!(parse(&text, &names).expect("valid"), bare_config);

    let written = format!("{HEAD}{RELAY}");
    let written_config = parse(&written, &Names::default()).expect("valid");
    assert_eq!(diff(&written_config, &bare_config, &document(&bare())), []);
    assert_eq!(diff(&bare_config, &written_config, &document(&written)), []);

    let moved = parse(&bare(), &with("10.0.1.7/24")).expect("valid");
    let changes = diff(&bare_config, &moved, &document(&bare()));
    let told: Vec<String> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["line 1: link west: local = \"10.0.1.2\" becomes \"10.0.1.7\""]);
    assert_eq!(changes[0].cost, Cost::Restart);
}

#[test]
fn address_is_kept_while_the_interface_is_gone_and_next_to_what_is_looked_up_again() {
    let names = |west: &str, before: &Names| {
        look(&bare(), own(&[("eth0", &[west]), ("eth1", &["10.0.2.1/24"])]), before)
    };
    let known = names("10.0.1.2/24", &Names::default());
    let gone = look(&bare(), own(&[("eth1", &["10.0.2.1/24"])]), &known);
    assert_eq!(gone, known);
    let denied = Names::default().choosing(&document(&bare()), Err("no netlink".into()), &known);
    assert_eq!(denied, known);

    // Looked up for a file that is not in force: the next process has what is.
    let fresh = names("10.0.1.7/24", &known);
    assert_ne!(fresh, known);
    assert_eq!(fresh.clone().beside(&document(&bare()), &known), known);
    // What is in force has addresses of its own: nothing is kept.
    let written = document(&format!("{HEAD}{RELAY}"));
    assert_eq!(fresh.clone().beside(&written, &known), fresh);
}

#[test]
fn record_of_a_daemon_that_knew_host_names_alone_is_read() {
    let old = r#"{"relay.example":{"addresses":["10.0.1.1"],"trouble":""}}"#;
    let names: Names = serde_json::from_str(old).expect("the form of before");
    assert_eq!(serde_json::to_string(&names).expect("JSON"), old);
    let mut names = names;
    names.own.insert("eth0".into(), Ok("10.0.1.2".parse().expect("an address")));
    names.own.insert("eth1".into(), Err("none".into()));
    let text = serde_json::to_string(&names).expect("JSON");
    assert_eq!(serde_json::from_str::<Names>(&text).expect("read back"), names);
}
