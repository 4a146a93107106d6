//! Files with `[boxes]`: the configuration that each box derives, and the mistakes.
//!
//! Golden files are in `tests/golden`; `RECODED_BLESS=1 cargo test -p recoded-network` rewrites
//! them.

#![forbid(unsafe_code)]

use recoded::config::Config;
use recoded_network::{Found, Network, NodeAddress, Ways};
use std::path::Path;

const TWO: &str = include_str!("golden/boxes-two.toml");
const LINE: &str = include_str!("golden/boxes-line.toml");
const ROUTES: &str = include_str!("golden/boxes-routes.toml");
const EXIT: &str = "[[path]]\nvia = [\"laptop\", \"server\"]\nroutes = [\"0.0.0.0/0\"]\n";
const UPLINKS: &str = include_str!("golden/boxes-uplinks.toml");

fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("RECODED_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&path).unwrap_or_default(), "{}", path.display());
}

fn network(text: &str) -> Network {
    recoded::network::parse("net.toml", text).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// A host with these addresses; its default route leads out of eth9.
struct Host(&'static [(&'static str, &'static str)]);

impl Ways for Host {
    fn find(&self, written: Option<&str>, own: &NodeAddress, _: &NodeAddress) -> Option<Found> {
        let own = own.to_string();
        let found = self.0.iter().find(|(address, _)| *address == own);
        let interface = written.or(found.map(|(_, interface)| *interface)).unwrap_or("eth9");
        Some(Found { interface: interface.to_owned(), has_address: found.is_some() })
    }
}

/// The configuration of a box on its host.
fn own(text: &str, node: usize, host: &Host) -> (String, Config) {
    let mut network = network(text);
    network.find_interfaces(node, host);
    let text = network.meaning(node);
    let parsed = Config::parse("f", &text, &|_| None);
    let (.., config) = parsed.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    (text, config)
}

#[test]
fn file_is_the_same_on_every_box_and_says_what_each_does() {
    let exit = TWO.to_owned() + EXIT;
    let files =
        [("two", TWO), ("line", LINE), ("uplinks", UPLINKS), ("routes", ROUTES), ("exit", &exit)];
    for (name, text) in files {
        let network = network(text);
        assert!(network.files().iter().all(|file| file == text));
        let meanings: Vec<String> =
            (0..network.nodes.len()).map(|node| network.meaning(node)).collect();
        golden(&format!("boxes-{name}.txt"), &meanings.join("\n"));
    }
}

#[test]
fn boxes_find_interfaces_by_their_addresses_and_routes() {
    let (text, relay) = own(LINE, 1, &Host(&[("192.0.2.2", "eth0"), ("198.51.100.1", "eth1")]));
    let links: Vec<(String, String)> =
        relay.links.iter().map(|it| (it.interface.clone(), it.local.to_string())).collect();
    let expected = [("eth0", "192.0.2.2"), ("eth1", "198.51.100.1")];
    assert_eq!(links, expected.map(|(one, other)| (one.to_owned(), other.to_owned())), "{text}");
    // Two addresses of one interface: Linux chooses the one to send from.
    let (text, relay) = own(LINE, 1, &Host(&[("192.0.2.2", "eth0"), ("198.51.100.1", "eth0")]));
    assert_eq!(relay.links.len(), 1, "{text}");
    assert!(relay.links[0].local.is_unspecified(), "{text}");
    assert_eq!(relay.hops.len(), 2, "{text}");
    // The address of a box behind address translation is on none of its interfaces.
    let (text, end) = own(LINE, 0, &Host(&[]));
    assert_eq!(end.links[0].interface, "eth9");
    assert!(end.links[0].local.is_unspecified(), "{text}");
}

#[test]
fn box_without_an_address_roams_and_is_awaited() {
    let (text, server) = own(TWO, 1, &Host(&[("vpn.example.net", "eth0")]));
    assert!(server.hops.iter().all(|hop| server.roams(hop) && server.is_awaited(hop)), "{text}");
    let (text, laptop) = own(TWO, 0, &Host(&[]));
    assert!(laptop.hops.iter().all(|hop| !laptop.roams(hop)), "{text}");
    assert_eq!(laptop.named[0].name, "vpn.example.net");
    let (text, vps) = own(UPLINKS, 1, &Host(&[("203.0.113.9", "eth0")]));
    let paths: Vec<u8> = vps.hops.iter().map(|hop| vps.path(hop)).collect();
    assert_eq!((vps.links.len(), paths), (1, vec![0, 1]), "{text}");
}

/// Every mistake of a file at once, with line and cure.
#[test]
fn mistakes_are_reported_at_once_with_line_and_cure() {
    let key = |number: usize| LINE.split('"').filter(|it| it.len() == 44).nth(number).unwrap();
    let (one, two) = (key(0), key(1));
    let cases = [
        "[boxes]\n".to_owned(),
        "boxes = 3\n".to_owned(),
        format!("[boxes]\na = {{ key = \"{one}\", tunnel = \"10.99.0.1/24\" }}\n"),
        format!(
            "mode = 1\n[boxes]\na = {{ at = \"192.0.2.300\", key = \"c2VjcmV0\", tunnel = 3 }}\n\
             b = {{ at = [], uplink = [\"eth0\"], key = \"{two}\" }}\n\
             c = {{ at = \"192.0.2.3\", uplinks = [\"eth0\"] }}\nd = \"192.0.2.4\"\n\
             e = {{ uplinks = [\"eth0\", \"eth0\"] }}\n\
             [[path]]\nvia = [\"a\"]\nmode = \"both\"\n[[path]]\nvia = [\"a\", \"x\"]\n"
        ),
        LINE.replace(two, one),
        LINE.replace("192.0.2.2", "192.0.2.1"),
        LINE.replace(", tunnel = \"10.99.0.2/24\"", ""),
        LINE.replace("10.99.0.2/24", "10.98.0.2/24"),
        LINE.replace("[[path]]\nvia = [\"a\", \"b\", \"c\"]\n", ""),
        LINE.replace("\"a\", \"b\", \"c\"", "\"a\", \"b\", \"a\""),
        LINE.replace("\"a\", \"b\", \"c\"", "\"a\", \"c\""),
        LINE.replace(&format!(", key = \"{two}\""), ""),
        TWO.replace("at = \"vpn.example.net\", ", ""),
        format!("auth = \"none\"\n{TWO}"),
        UPLINKS.replace("mode = \"bond\"", "mode = \"bond\"\nspread = \"sum\""),
        format!("{LINE}code = \"morse\"\n"),
        ROUTES.replace("fd62::/64", "10.61.0.0/24"),
        ROUTES.replace("10.61.0.0/24", "10.61.0.1/24"),
        ROUTES.replace("10.62.0.0/24", "192.0.2.0/24"),
        format!("{ROUTES}routes = [\"10.63.0.1/24\"]\n"),
        ROUTES.replace(", key = \"3p", ", routes = [\"10.64.0.0/24\"], key = \"3p"),
        format!("{LINE}[nodes]\nz = \"z\"\n"),
        LINE.replace("[boxes]", "[box]"),
        TWO.replace("tunnel =", "tunel ="),
        TWO.replace("10.99.0.2/24", "10.99.0.2"),
        LINE.replace("at = \"192.0.2.1\"", "addr = \"192.0.2.1\""),
        TWO.replace("\"vpn.example.net\"", "vpn.example.net"),
        format!("{TWO}[boxes]\n"),
        format!(
            "[daemon]\nworker = 2\n{TWO}[[path]]\nvia = [\"laptop\", \"server\"]\nreduncancy = 2\n"
        ),
    ];
    let mut all = String::new();
    for text in cases {
        let errors = recoded::network::parse("net.toml", &text).expect_err("it is wrong");
        let errors = errors.to_string();
        assert!(!errors.contains("c2VjcmV0"), "a value that may be a key is printed: {errors}");
        all += &format!("{errors}\n\n");
    }
    golden("boxes-wrong.txt", &all);
}

/// Networks in the documents are valid, with a key instead of each ellipsis.
#[test]
fn networks_in_documents_are_those_that_are_taken() {
    let text = concat!(
        include_str!("../../../README.md"),
        include_str!("../../../docs/operate.md"),
        include_str!("../../../docs/quickstart.md")
    );
    let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut links = Vec::new();
    for block in blocks.filter(|block| block.contains("[boxes]\n")) {
        let text = block.replace(", key = \"...\"", "").replace("key = \"...\", ", "");
        let network = recoded::network::parse_without_keys("net.toml", &text);
        let network = network.unwrap_or_else(|errors| panic!("{errors}\n{block}"));
        links.push(network.links.len());
    }
    // Laptop and server, two lines of three, two uplinks; then a first network of each kind.
    assert_eq!(links, [1, 2, 2, 2, 1, 2, 2]);
}
