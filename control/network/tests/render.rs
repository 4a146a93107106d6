//! Generated files of a network: one for every node, each parsed by the daemon's own parser.
//!
//! Golden files are in `tests/golden`; `RECODED_BLESS=1 cargo test -p recoded-network` rewrites
//! them.

#![forbid(unsafe_code)]

use recoded::config::Config;
use std::path::Path;

const LINE: &str = include_str!("golden/net.toml");

/// Files of all nodes, as the daemon reads them.
fn files(text: &str) -> Vec<(String, String, Config)> {
    let network =
        recoded::network::parse("net.toml", text).unwrap_or_else(|error| panic!("{error}"));
    let files = network.files();
    let pairs = network.nodes.iter().map(|node| node.name.clone()).zip(files);
    let read = |(name, text): (String, String)| {
        let (.., config) = Config::parse(&name, &text, &|_| None)
            .unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
        (name, text, config)
    };
    pairs.map(read).collect()
}

fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("RECODED_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&path).unwrap_or_default(), "{}", path.display());
}

#[test]
fn line_of_three_boxes_becomes_three_short_files() {
    for (name, text, config) in files(LINE) {
        golden(&format!("{name}.toml"), &text);
        assert!(text.lines().count() <= 12, "{text}");
        assert_eq!(config.flows.len(), 2);
    }
    let keyless: String = LINE
        .lines()
        .map(|line| match line.split_once(", key") {
            Some((node, _)) => format!("{node} }}\n"),
            None => format!("{line}\n"),
        })
        .collect();
    for (name, text, _) in files(&format!("auth = \"none\"\n{keyless}")) {
        golden(&format!("{name}-none.toml"), &text);
    }
    for (name, text, config) in files(&format!("auth = \"hop\"\n{LINE}")) {
        assert!(config.flows.iter().all(|flow| flow.edge.is_none()), "{name}: {text}");
        assert!(!config.neighbours.is_empty(), "{text}");
    }
}

/// Boxes with defaults, each with a path to a hub with the default memory, which all of their
/// windows fit.
#[test]
fn hub_of_two_hundred_boxes_has_memory_for_what_each_of_them_sends() {
    let hub = |clients: usize| {
        let mut text = "auth = \"none\"\n[nodes]\nhub = {}\n".to_owned();
        let names = (0..clients).map(|client| format!("c{client}"));
        text.extend(names.clone().map(|name| format!("{name} = {{}}\n")));
        for (client, name) in names.enumerate() {
            text += &format!(
                "[[link]]\n{name} = \"10.1.{client}.2 dev eth0\"\nhub = \"10.0.0.1 dev eth0\"\n\
                 [[path]]\nfrom = \"{name}\"\nto = \"hub\"\n\
                 tunnel = [\"10.99.{client}.1/24\", \"10.99.{client}.2/24\"]\n"
            );
        }
        files(&text)
    };
    let windows = |config: &Config| -> Vec<usize> {
        config.flows.iter().filter_map(recoded::config::Flow::window).collect()
    };
    for (clients, window) in [(200, 512), (20, 4096), (2, 32_768)] {
        for (name, text, config) in hub(clients) {
            let count = if name == "hub" { clients } else { 1 };
            assert_eq!(windows(&config), vec![window; count], "{name}: {text}");
            let is_said = name != "hub" && window < 32_768;
            assert_eq!(text.contains("stream_symbols"), is_said, "{name}: {text}");
        }
    }
}

/// Two uplinks of a box that roams, to one address of its hub: two paths between two nodes,
/// distinguished by numbers that are not written.
#[test]
fn two_links_between_two_boxes_are_paths_with_numbers_that_add_up() {
    let key = |byte: u8| {
        use recoded_secure::{Entropy, PrivateKey};
        PrivateKey::generate(&Entropy::new([byte; 64])).public()
    };
    let text = |spread: &str| {
        format!(
            "[nodes]\nbox = {{ roams = true, key = \"{}\" }}\nhub = {{ key = \"{}\" }}\n\
             [[link]]\nbox = \"192.168.1.2 dev dsl\"\nhub = \"203.0.113.1 dev eth0\"\n\
             [[link]]\nbox = \"192.168.8.2 dev lte\"\nhub = \"203.0.113.1 dev eth0\"\n\
             [[path]]\nfrom = \"box\"\nto = \"hub\"\n{spread}\
             tunnel = [\"10.99.0.1/24\", \"10.99.0.2/24\"]\n",
            key(1),
            key(2)
        )
    };
    let two_uplinks = files(&text(""));
    for (name, text, config) in &two_uplinks {
        let paths: Vec<u8> = config.hops.iter().map(|hop| config.path(hop)).collect();
        assert_eq!(paths, [0, 1], "{name}: {text}");
        let roams: Vec<bool> = config.hops.iter().map(|hop| config.roams(hop)).collect();
        assert_eq!(roams, [name == "hub"; 2], "{name}: {text}");
        for flow in &config.flows {
            let hops = flow.params.next_hops.len() + flow.params.upstreams().count();
            assert_eq!(hops, 2, "{name}: {text}");
        }
        assert!(text.contains("spread = \"sum\""), "{text}");
    }
    assert_eq!(two_uplinks[1].2.links.len(), 1, "{}", two_uplinks[1].1);
    for spread in ["backup", "every"] {
        for (name, file, _) in files(&text(&format!("spread = \"{spread}\"\n"))) {
            assert!(file.contains(&format!("spread = \"{spread}\"")), "{name}: {file}");
        }
    }
    // Without reports no path can be preferred.
    for (name, file, _) in files(&text("code = \"stream\"\nredundancy = 1.25\n")) {
        let has = |line| file.contains(line);
        assert!(has("redundancy = 1.25") && has("spread = \"every\""), "{name}: {file}");
    }
}

/// Only the ends need it: relays learn it from the source.
#[test]
fn strict_tags_of_a_path_reach_both_ends_of_both_flows_and_no_relay() {
    for (name, text, config) in
        files(&LINE.replacen("[[path]]", "[[path]]\nedge_profile = \"strict\"", 1))
    {
        let is_relay = name == "b";
        assert_eq!(text.contains("edge_profile"), !is_relay, "{text}");
        assert!(config.flows.iter().all(|flow| flow.params.strict != is_relay), "{name}: {text}");
    }
}

/// Each end has the other one's address; relays have no tunnel.
#[test]
fn split_tcp_of_a_path_reaches_both_ends_and_needs_one_receiver() {
    let split = LINE.replacen("[[path]]", "[[path]]\ntcp = \"split\"", 1);
    let mut ends = Vec::new();
    for (name, text, config) in files(&split) {
        let peers = config.tunnels.iter().map(|it| it.tcp_split.map(|peer| peer.to_string()));
        ends.extend(peers.map(|peer| (name.clone(), peer.unwrap_or(text.clone()))));
    }
    let own: Vec<_> = files(LINE)
        .iter()
        .flat_map(|(.., config)| config.tunnels.iter().map(|it| it.addresses[0].0.to_string()))
        .collect();
    let told: Vec<_> = ends.iter().map(|(_, peer)| peer.clone()).collect();
    assert_eq!(told, own.iter().rev().cloned().collect::<Vec<_>>(), "{ends:?}");
    for (wrong, words) in [
        (split.replace("\"split\"", "true"), "TCP connections end at both edges"),
        (split.replace("tcp = ", "tcp_split = "), "tcp"),
    ] {
        let refused = recoded::network::parse("net.toml", &wrong).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
}

/// A LAN at b with one address for two neighbours, a second path, and keys for daemons and flows.
#[test]
fn nodes_share_interfaces_and_keys_reach_the_roles_that_have_them() {
    let text = "
auth = \"none\"
[daemon]
memory = \"256 MiB\"
workers = 1
[nodes]
a = \"a\"
b = { daemon = { memory = \"1 GiB\" } }
c = { ssh = \"c\" }
d = {}
[[link]]
a = \"2001:db8::1 dev eth0.100\"
b = \"2001:db8::2 dev br0\"
[[link]]
b = \"2001:db8::2 dev br0\"
c = \"2001:db8::3 dev eth0\"
[[link]]
c = \"10.1.0.1 dev eth0-100\"
d = \"10.1.0.2 dev eth0\"
rate_mbit = 20.5
[[path]]
from = \"a\"
via = [\"b\", \"c\"]
to = \"d\"
tunnel = [\"10.99.0.1/24\", \"10.99.0.2/24\"]
id = 40
name = \"rec1\"
mtu = 1300
code = \"rlnc\"
generation_size = 32
generation_timeout_us = 5000
redundancy_max = 3
[[path]]
from = \"a\"
to = \"b\"
tunnel = [\"10.98.0.1/24\", \"10.98.0.2/24\"]
kill_switch = true
";
    let files = files(text);
    let names: Vec<&str> = files.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    let (_, a, config) = &files[0];
    assert!(a.contains("{ name = \"eth0-100\", interface = \"eth0.100\""), "{a}");
    let ids: Vec<u32> = config.flows.iter().map(|flow| flow.params.id).collect();
    assert_eq!(ids, [40, 41, 42, 43]);
    assert!(a.contains("memory = \"256 MiB\""), "{a}");
    assert_eq!(
        config.tunnels.iter().map(|tunnel| &tunnel.name[..]).collect::<Vec<_>>(),
        ["rec1", "rec0"]
    );
    let source = a.lines().find(|line| line.contains("id = 40")).unwrap();
    assert!(source.contains("code = \"rlnc\", generation_size = 32"), "{source}");
    assert!(source.contains("redundancy_max = 3") && !source.contains("timeout"), "{source}");
    let (_, b, config) = &files[1];
    assert_eq!(config.links.len(), 1, "{b}");
    assert_eq!(b.matches("memory").count(), 1, "{b}");
    let relay = b.lines().find(|line| line.contains("id = 40")).unwrap();
    assert!(relay.contains("generation_timeout_us = 5000") && !relay.contains("code"), "{relay}");
    let (_, c, _) = &files[2];
    assert_eq!(c.matches("rate_mbit = 20.5").count(), 1, "{c}");
}

/// A box that roams, one known by name, and tunnels of both families.
#[test]
fn boxes_that_move_and_host_names_and_two_families_reach_the_files() {
    let text = LINE
        .replace("a = { ssh", "a = { roams = true, ssh")
        .replace("c = \"198.51.100.2 dev eth0\"", "c = \"c.example.net dev eth0\"")
        .replace("\"10.99.0.1/24\"", "[\"10.99.0.1/24\", \"fd00:99::1/64\"]")
        .replace("\"10.99.0.2/24\"", "[\"10.99.0.2/24\", \"fd00:99::2/64\"]");
    let files = files(&text);
    let line = |node: usize, begin: &str| {
        let (name, text, _) = &files[node];
        let line = text.lines().find(|line| line.trim_start().starts_with(begin));
        line.unwrap_or_else(|| panic!("{name} has no {begin}: {text}")).to_owned()
    };
    // A roaming box sends from whatever address it has, and only its neighbour follows it.
    assert!(line(0, "link =").contains("local = \"0.0.0.0\""));
    assert!(line(1, "neighbour =").contains("roams = true, name = "));
    assert!(!line(0, "neighbour =").contains("roams"));
    let (_, b, config) = &files[1];
    assert_eq!(b.matches("roams").count(), 1, "{b}");
    assert_eq!(config.host_names().into_iter().collect::<Vec<_>>(), ["c.example.net"], "{b}");
    assert_eq!(b.matches("address = \"c.example.net\"").count(), 3, "{b}");
    assert!(line(2, "link =").contains("local = \"0.0.0.0\""));
    let tunnel = "address = [\"10.99.0.1/24\", \"fd00:99::1/64\"]";
    assert!(line(0, "tunnel =").contains(tunnel), "{}", files[0].1);
    assert_eq!(files[2].2.tunnels[0].addresses.len(), 2);
}

/// A link without a return path: keys derive from the pre-shared one, and there is no return flow.
#[test]
fn path_over_a_one_way_link_is_one_flow_with_keys_of_a_preshared_one() {
    let link = "\npreshared_key = \"/etc/recoded/link.psk\"\none_way = true\n[[path]]\n\
                ways = [[\"a\", \"b\", \"c\"]]\ntunnel = [\"10.99.0.1/24\", \"10.99.0.2/24\"]\n";
    let nodes = nodes_and_links("full", &["a-b", "b-c"]);
    let text = format!("{nodes}{link}edge_preshared_key = \"/etc/recoded/path.psk\"\n");
    for (name, text, config) in files(&text) {
        golden(&format!("one-way-{name}.toml"), &text);
        assert_eq!(config.flows.len(), 1, "{name}");
        let shared = text.matches("/etc/recoded/link.psk").count();
        assert_eq!((shared > 0, config.has_one_way()), (name != "a", true), "{text}");
        let is_end = config.flows[0].edge.is_some();
        assert_eq!(text.contains("repair = false, edge_preshared_key"), is_end, "{text}");
    }
    let Err(errors) = recoded::network::parse("net.toml", &format!("{nodes}{link}")) else {
        panic!("no key of the path is written");
    };
    assert!(errors.to_string().contains("edge_one_way = true needs"), "{errors}");
}

/// Nodes and links of `edges`, each link with its own network.
fn nodes_and_links(auth: &str, edges: &[&str]) -> String {
    let mut names: Vec<&str> = edges.iter().flat_map(|edge| edge.split('-')).collect();
    names.sort_unstable();
    names.dedup();
    let mut text = format!("auth = \"{auth}\"\n[nodes]\n");
    for (index, name) in names.iter().enumerate() {
        let key = recoded_secure::PublicKey::new([index as u8 + 2; 32]).expect("a point");
        text += &format!("{name} = {{ key = \"{key}\" }}\n");
    }
    for (number, edge) in edges.iter().enumerate() {
        let (one, other) = edge.split_once('-').expect("two names");
        let end =
            |name: &str, host: u8| format!("{name} = \"10.0.{number}.{host} dev e{number}\"\n");
        text += &format!("[[link]]\n{}{}", end(one, 1), end(other, 2));
    }
    text
}

/// Two ways to one receiver: the flows of both directions are spread over both.
#[test]
fn two_ways_are_paths_of_one_flow() {
    let text = nodes_and_links("hop", &["a-b", "b-d", "a-c", "c-d"])
        + "[[path]]\nways = [[\"a\", \"b\", \"d\"], [\"a\", \"c\", \"d\"]]\n\
           tunnel = [\"10.99.0.1/24\", \"10.99.0.2/24\"]\n";
    for (name, text, config) in files(&text) {
        golden(&format!("paths-{name}.toml"), &text);
        assert_eq!(config.flows.len(), 2, "{name}");
        let is_end = name == "a" || name == "d";
        for flow in &config.flows {
            let params = &flow.params;
            let several = params.next_hops.len() + params.upstreams().count();
            assert_eq!(several, 2, "{name}: {text}");
            let is_source = is_end && !params.next_hops.is_empty();
            let id = format!("id = {},", params.id);
            let line = text.lines().find(|line| line.contains(&id)).expect("a line for each");
            assert_eq!(line.contains("spread = \"sum\""), is_source, "{name}: {text}");
        }
    }
}

/// Copies are for the least delay; written keys are not changed.
#[test]
fn copies_over_two_ways_to_one_receiver_are_interactive() {
    let path = "[[path]]\nways = [[\"a\", \"b\", \"d\"], [\"a\", \"c\", \"d\"]]\n\
                tunnel = [\"10.99.0.1/24\", \"10.99.0.2/24\"]\nspread = \"every\"\n";
    let nodes = nodes_and_links("hop", &["a-b", "b-d", "a-c", "c-d"]);
    let count = |more: &str| {
        let files = files(&(nodes.clone() + path + more));
        let all: String = files.into_iter().map(|(_, text, _)| text).collect();
        all.matches("stream_profile = \"interactive\"").count()
    };
    assert_eq!(count(""), 2, "at each source");
    for more in ["stream_profile = \"balanced\"\n", "repair = false\n", "code = \"rlnc\"\n"] {
        assert_eq!(count(more), 0, "{more}");
    }
}

/// One source, two relays, four sinks: one flow, no return flow.
#[test]
fn ways_to_several_receivers_are_a_tree() {
    let edges = ["a-b", "a-c", "b-d", "b-e", "c-f", "c-g"];
    let ways = "[[\"a\", \"b\", \"d\"], [\"a\", \"b\", \"e\"], [\"a\", \"c\", \"f\"], \
                [\"a\", \"c\", \"g\"]]";
    let tunnel = "[\"10.99.0.1/24\", \"10.99.0.2/24\", \"10.99.0.2/24\", \"10.99.0.2/24\", \
                  \"10.99.0.2/24\"]";
    let path = format!("[[path]]\nways = {ways}\ntunnel = {tunnel}\nlag_timeout_us = 200000\n");
    let text = nodes_and_links("hop", &edges) + &path;
    for (name, text, config) in files(&text) {
        golden(&format!("tree-{name}.toml"), &text);
        assert_eq!(config.flows.len(), 1, "{name}");
        let params = &config.flows[0].params;
        let next = if ["a", "b", "c"].contains(&&name[..]) { 2 } else { 0 };
        assert_eq!(params.next_hops.len(), next, "{text}");
        assert!(!text.contains("spread"), "{text}");
        assert_eq!(text.contains("lag_timeout_us = 200000"), next > 0, "{text}");
    }
    let full = nodes_and_links("full", &edges) + &path;
    for (name, text, config) in files(&full) {
        golden(&format!("group-{name}.toml"), &text);
        let flow = &config.flows[0];
        assert_eq!(flow.sink_keys.len(), if name == "a" { 4 } else { 0 }, "{text}");
        assert_eq!(flow.edge_group, !["a", "b", "c"].contains(&&name[..]), "{text}");
    }
}

/// Only the node where branches merge gets the keys for that, and only the source spreads round
/// robin.
#[test]
fn branches_that_meet_have_several_upstreams() {
    let edges = ["s-a", "s-b", "a-t", "a-c", "b-u", "b-c", "c-d", "d-t", "d-u"];
    let ways = "[[\"s\", \"a\", \"t\"], [\"s\", \"b\", \"u\"], \
                [\"s\", \"a\", \"c\", \"d\", \"t\"], [\"s\", \"b\", \"c\", \"d\", \"u\"]]";
    let text = nodes_and_links("none", &edges)
        + &format!(
            "[[path]]\nways = {ways}\n\
             tunnel = [\"10.99.0.1/24\", \"10.99.0.2/24\", \"10.99.0.2/24\"]\n\
             code = \"rlnc\"\nspread = \"sum\"\nonward_share = 0.5\nrecoding = \"random\"\n"
        );
    for (name, text, config) in files(&text) {
        golden(&format!("butterfly-{name}.toml"), &text);
        let params = &config.flows[0].params;
        assert_eq!(params.onward_share < 1.0, name == "c", "{text}");
        assert_eq!(text.contains("spread = \"sum\""), name == "s", "{text}");
        let upstreams = if ["c", "t", "u"].contains(&&name[..]) { 2 } else { 1 };
        assert!(name == "s" || params.upstreams().count() == upstreams, "{text}");
    }
}

#[test]
fn ways_that_do_not_fit_together_are_refused() {
    let edges = ["a-b", "b-c", "c-d", "a-c", "b-d", "b-e"];
    let refused = |ways: &str, more: &str| {
        let text = nodes_and_links("none", &edges)
            + &format!(
                "[[path]]\nways = {ways}\n{more}tunnel = [\"10.9.0.1/24\", \"10.9.0.2/24\"]\n"
            );
        let errors =
            recoded::network::parse("net.toml", &text).expect_err("it is wrong").to_string();
        assert!(errors.lines().all(|line| line.starts_with("net.toml:")), "{errors}");
        errors
    };
    for (ways, said) in [
        ("[]", "ways = [] is wrong: it lists ways"),
        ("[[\"a\"]]", "each way lists its boxes"),
        ("\"a\"", "each way lists its boxes"),
        ("[[\"a\", \"x\"]]", "there is no box x"),
        ("[[\"a\", \"d\"]]", "a and d have no link"),
        ("[[\"a\", \"b\", \"a\", \"c\"]]", "it comes to a twice"),
        ("[[\"a\", \"b\", \"d\"], [\"b\", \"d\"]]", "all begin at one box, the source"),
        ("[[\"a\", \"b\"], [\"a\", \"b\", \"d\"]]", "none continues where another one ends"),
        ("[[\"a\", \"b\", \"d\"], [\"a\", \"b\", \"e\"]]", "tunnel = "),
        ("[[\"a\", \"b\", \"d\"], [\"a\", \"b\", \"d\"]]", "each is written once"),
        (
            "[[\"a\", \"b\", \"c\", \"d\"], [\"a\", \"c\", \"b\", \"d\"]]",
            "ways lead from b back to it, and packets would go in a circle",
        ),
    ] {
        let errors = refused(ways, "");
        assert!(errors.contains(said), "`{said}` is not in:\n{errors}");
    }
    // The number of tunnel addresses is unknown if ways form a loop.
    let errors = refused("[[\"a\", \"b\", \"c\", \"d\"], [\"a\", \"c\", \"b\", \"e\"]]", "");
    assert!(errors.contains("in a circle") && !errors.contains("tunnel = "), "{errors}");
    let errors = refused("[[\"a\", \"b\", \"d\"]]", "to = \"d\"\n");
    assert!(errors.contains("a path has via, or from, via and to, or ways"), "{errors}");
}

/// All mistakes are reported at once, each with its line and fix.
#[test]
fn every_mistake_is_named_by_line_and_cure() {
    let begin = "auth = \"none\"\n[nodes]\na = \"a\"\nb = \"b\"\nc = \"c\"\n";
    let link = |one: &str, other: &str| format!("[[link]]\n{one}\n{other}\n");
    let ab = link("a = \"10.0.1.1 dev eth0\"", "b = \"10.0.1.2 dev eth0\"");
    let bc = link("b = \"10.0.2.1 dev eth1\"", "c = \"10.0.2.2 dev eth0\"");
    let path = |more: &str| {
        format!(
            "[[path]]\nfrom = \"a\"\nto = \"c\"\n{more}\n\
             tunnel = [\"10.9.0.1/24\", \"10.9.0.2/24\"]\n"
        )
    };
    let whole = format!("{begin}{ab}{bc}{}", path("via = [\"b\"]"));
    let changed = |from: &str, to: &str| {
        assert!(whole.contains(from), "{from}");
        whole.replacen(from, to, 1)
    };
    let cases = [
        (changed("via = [\"b\"]", ""), "path a -> c: a and c have no link"),
        (changed("[\"b\"]", "[\"b\", \"a\", \"b\"]"), "path a -> c: it comes to b twice"),
        (changed("to = \"c\"", "to = \"x\""), "there is no box x: the boxes are a, b, c"),
        (changed("[\"b\"]", "\"b\""), "via = \"b\" is wrong"),
        (changed("10.0.2.2 dev", "10.0.1.1 dev"), "address 10.0.1.1 is taken by a dev eth0"),
        (changed("10.0.1.2 dev", "10.0.1.1 dev"), "address 10.0.1.1 is taken by a dev eth0"),
        (changed("dev eth1", "dev eth0"), "interface eth0 is taken by address 10.0.1.2"),
        (changed("10.0.1.1 dev", "fe80::1 dev"), "are not of one family"),
        (changed("10.9.0.1/24", "fd00::1/64"), "are not of one family"),
        (changed("10.9.0.1/24", "10.9.0.2/24"), "the two ends have different addresses"),
        (changed("10.0.1.1 dev eth0", "eth0"), "as ip does: \"192.0.2.1 dev eth0\""),
        (changed("a = \"10.0.1.1 dev eth0\"\n", ""), "joins two boxes, this one 1"),
        (changed("[[path]]", "colour = 3\n[[path]]"), "there is no box colour"),
        (changed("via =", "colour = 3\nvia ="), "unknown key colour: a path has"),
        (changed("auth =", "colour = 3\nauth ="), "unknown key colour: there is [boxes]"),
        (changed("\"none\"", "\"some\""), "auth = \"some\" is wrong: it is \"full\""),
        (changed("auth = \"none\"\n", ""), "box a: a has no key: `recodectl -f net.toml keys"),
        (changed("a = \"a\"", "a = \"-oProxyCommand=x\""), "it is what ssh takes"),
        (changed("a = \"a\"", "a = { ssh = \"a b\" }"), "it is what ssh takes"),
        (changed("a = \"a\"", "a = { key = \"short\" }"), "it is the box's public key"),
        (changed("a = \"a\"", "a = { config = \"x\" }"), "it is the absolute path of a file"),
        (changed("a = \"a\"", "a = { sudo = 1 }"), "it is true or false"),
        (changed("a = \"a\"", "a = { colour = 1 }"), "box a: unknown key colour"),
        (changed("a = \"a\"", "a = 7"), "a = 7 is wrong: write a line for each box"),
        (changed("a = \"a\"", "a = { daemon = { colour = 1 } }"), "the keys of [daemon] are"),
        (changed("a = \"a\"", "a = { daemon = { auth = \"hop\" } }"), "it is for all boxes"),
        (changed("c = \"c\"", "c = \"c\"\n\"../x\" = \"d\""), "a box has a name of 1 to 32"),
        (changed("c = \"c\"", "c = \"c\"\nd = \"d\""), "box d: it has no link"),
        (changed("c = \"c\"", "c = \"c\"\nc = \"d\""), "c appears twice"),
        (changed("[[path]]", &(ab.clone() + "[[path]]")), "these interfaces have a link in line 6"),
        (whole.clone() + &path("via = [\"b\"]"), "tunnel 10.9.0.1/24 at a is taken by path a -> c"),
        (
            whole.clone() + &path("via = [\"b\"]\nid = 2").replace("10.9", "10.8"),
            "flow id 2 is taken by path a -> c",
        ),
        (changed("via =", "id = 4294967295\nvia ="), "the return path has the next one"),
        (changed("via =", "code = \"magic\"\nvia ="), "path a -> c: code = \"magic\" is"),
        (changed("via =", "mtu = 100\nvia ="), "path a -> c: mtu = 100 is"),
        (changed("via =", "field = 7\nvia ="), "field"),
        (changed("[[path]]", "rate_mbit = -1\n[[path]]"), "link b - c: rate_mbit = -1 is"),
        (changed("[nodes]", "[daemon]\nworkers = 0\n[nodes]"), "daemon: workers = 0 is"),
        ("".to_owned(), "boxes is missing: write [boxes]"),
        ("nodes = 3".to_owned(), "nodes = (integer) is wrong"),
        (changed("[[path]]", "[path]"), "write [[path]] with two brackets"),
    ];
    for (text, said) in cases {
        let Err(errors) = recoded::network::parse("net.toml", &text) else {
            panic!("accepted, not `{said}`:\n{text}");
        };
        let errors = errors.to_string();
        assert!(errors.contains(said), "`{said}` is not in:\n{errors}\n{text}");
        assert!(errors.lines().all(|line| line.starts_with("net.toml:")), "{errors}");
    }
}

#[test]
fn mistakes_of_roaming_names_and_lists_of_addresses_are_named() {
    let hop = format!("auth = \"none\"\n{LINE}");
    let cases = [
        (LINE, "a = { ssh", "a = { roams = 1, ssh", "it is true or false"),
        (&hop, "a = { ssh", "a = { roams = true, ssh", "with auth = \"none\" there are none"),
        (LINE, "192.0.2.1 dev", "a_b..c dev", "instead of the address its host name will do"),
        (LINE, "\"10.99.0.1/24\"", "[\"10.99.0.1/24\", \"fd00::1/64\"]", "as many addresses"),
        (LINE, "\"10.99.0.1/24\"", "[]", "an end may have a list of addresses"),
        (LINE, "\"10.99.0.2/24\"", "\"10.99.1.2/24\"", "the ends lie in one network"),
        (LINE, "\"10.99.0.1/24\"", "\"10.99.0.2/24\"", "different addresses"),
        (
            LINE,
            "[\"10.99.0.1/24\", \"10.99.0.2/24\"]",
            "[\"192.0.2.77/24\", \"192.0.2.78/24\"]",
            "the network of a tunnel has no addresses of links",
        ),
        (LINE, "rate_mbit", "backend = \"xdp\"\nrate_mbit", ""),
    ];
    for (text, from, to, said) in cases {
        assert!(text.contains(from), "{from}");
        let parsed = recoded::network::parse("net.toml", &text.replacen(from, to, 1));
        match parsed {
            Ok(_) => assert_eq!(said, "", "accepted: {to}"),
            Err(errors) => assert!(errors.to_string().contains(said), "`{said}`: {errors}"),
        }
    }
    // A box known by name sends from any address, which AF_XDP does not support.
    let text = LINE
        .replace("c = \"198.51.100.2", "c = \"c.example.net")
        .replace("rate_mbit", "backend = \"xdp\"\nrate_mbit");
    let errors =
        recoded::network::parse("net.toml", &text).expect_err("it cannot start").to_string();
    assert!(errors.contains("AF_XDP needs this host's IP address"), "{errors}");
}

#[test]
fn all_mistakes_are_told_at_once_in_order_of_lines() {
    let text = "auth = \"none\"\n[nodes]\na = { sudo = 1 }\nb = 2\n[[link]]\na = \"x\"\n";
    let errors = recoded::network::parse("net.toml", text).unwrap_err();
    let lines: Vec<usize> = errors.errors.iter().map(|error| error.line).collect();
    assert_eq!(lines, [3, 4, 5, 6], "{errors}");
    // A value that two files would have is reported once, for its line.
    let text = LINE.replace("via =", "redundancy_max = 99\nvia =");
    let errors = recoded::network::parse("net.toml", &text).unwrap_err();
    assert_eq!(errors.errors.len(), 1, "{errors}");
    assert!(errors.to_string().starts_with("net.toml:18: path a -> c: "), "{errors}");
}
