//! A box that joins a hub: its line, its path, its tunnel.

#![forbid(unsafe_code)]

use recoded_network::{
    BoxEntry, Ends, EntryError, Network, Spoke, free_ends, with_boxes, with_spoke,
};
use recoded_secure::{Entropy, PrivateKey};

fn entry(name: &str, seed: u8) -> BoxEntry {
    let key = PrivateKey::generate(&Entropy::new([seed; 64])).public();
    BoxEntry { name: name.into(), at: None, key, tunnel: None, private_key: None }
}

fn file() -> String {
    let hub = BoxEntry { at: Some("192.0.2.1".into()), ..entry("hub", 1) };
    let hub = BoxEntry { tunnel: "10.99.0.1/24".parse().ok(), ..hub };
    format!("# ours\n[daemon]\nworkers = 1\n\n[boxes] # all\n{hub}\n")
}

fn spoke(network: &str, id: u32) -> Spoke {
    let ends = network.parse().ok().and_then(Ends::of).unwrap();
    Spoke { hub: "hub".into(), ends, id }
}

fn read(text: &str) -> Network {
    recoded::network::parse("net.toml", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn boxes_join_one_by_one_and_those_before_keep_ids_tunnels_and_comments() {
    let one = with_spoke(&file(), &entry("a", 2), &spoke("10.99.0.0/24", 1)).unwrap();
    assert!(one.starts_with("# ours\n[daemon]\nworkers = 1\n\n[boxes] # all\nhub = {"), "{one}");
    let end = "[[path]]\nvia = [\"hub\", \"a\"]\ntunnel = [\"10.99.0.1/24\", \
               \"10.99.0.2/24\"]\nid = 1\n";
    assert!(one.ends_with(end), "{one}");
    let before = read(&one);
    let free = free_ends(&before, 0, &[]).unwrap();
    assert_eq!(free.network().to_string(), "10.99.1.0/30");
    let two = with_spoke(&one, &entry("b", 3), &Spoke { ends: free, ..spoke("10.0.0.0/30", 3) });
    let two = two.unwrap();
    let after = read(&two);
    assert_eq!(after.meaning(1), before.meaning(1), "{two}");
    let avoided = ["10.99.1.4/30".parse().unwrap(), "10.99.1.9/32".parse().unwrap()];
    let next = free_ends(&after, 0, &avoided).unwrap();
    assert_eq!([next.hub, next.spoke].map(|it| it.to_string()), ["10.99.1.13/30", "10.99.1.14/30"]);
    let known = with_spoke(&two, &entry("b", 4), &spoke("10.0.0.0/30", 5));
    assert_eq!(known, Err(EntryError::Known("b".into())));
}

/// The path between two boxes need not be written; with a third one it must be.
#[test]
fn path_of_two_boxes_is_written_as_it_was_derived() {
    let a = BoxEntry { tunnel: "10.99.0.2/24".parse().ok(), ..entry("a", 2) };
    let text = with_boxes(&file(), &[a.to_string()]).unwrap();
    let before = read(&text);
    let joined = with_spoke(&text, &entry("b", 3), &spoke("10.99.1.0/30", 3)).unwrap();
    let after = read(&joined);
    assert_eq!(after.meaning(1), before.meaning(1), "{joined}");
    assert_eq!(after.paths.len(), 2);
}

#[test]
fn hub_whose_own_address_no_path_uses_has_it_in_the_first_tunnel() {
    let joined = with_spoke(&file(), &entry("a", 2), &spoke("10.0.0.0/30", 1)).unwrap();
    let mut network = read(&joined);
    network.paths.clear();
    let free = free_ends(&network, 0, &[]).unwrap();
    assert_eq!([free.hub, free.spoke].map(|it| it.to_string()), ["10.99.0.1/24", "10.99.0.2/24"]);
}
