//! Authentication: keys of this host, of its neighbours, and of the other ends of flows. Key files
//! are only named here; `crate::keys` reads them at the start.

use super::document::{Document, Section};
use super::error::ConfigError;
use super::find;
use super::names::written;
use super::reader::{Reader, unicast};
use super::{Backend, Config, Flow, Link, Neighbour, Written};
use recoded_api::keys::NEIGHBOUR;
use recoded_network::is_box_name;
use recoded_pipeline::params::{FlowParams, Role};
use recoded_runtime::secure::{GROUP_SINKS_MAX, PublicKey};
use recoded_runtime::topology::is_known;
use std::path::PathBuf;

/// Which packets are authenticated; the order is from most to least.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Auth {
    /// Every packet of a hop, and between source and sink every IP packet, which is encrypted.
    Full,
    /// Every packet of a hop.
    Hop,
    /// Nothing.
    None,
}

/// Words of `auth`.
pub const AUTHS: [(&str, Auth); 3] =
    [("full", Auth::Full), ("hop", Auth::Hop), ("none", Auth::None)];

/// Keys that identify another host.
#[derive(Clone, PartialEq, Debug)]
pub struct Known {
    /// Its public key.
    pub public: PublicKey,
    /// File of an additional pre-shared key.
    pub preshared: Option<PathBuf>,
    /// Whether session keys derive from the pre-shared key alone, because handshakes have no return
    /// path.
    pub one_way: bool,
}

/// `[[neighbour]]`.
#[derive(Clone, PartialEq, Debug)]
pub struct NeighbourKey {
    /// The neighbour.
    pub neighbour: Neighbour,
    /// Its keys.
    pub known: Known,
    /// Whether its address follows the source of its newest authenticated packet.
    pub roams: bool,
    /// Number of the path to it.
    pub path: u8,
    /// Name of the box, for people; empty if it is not written.
    pub name: String,
}

/// Words of `edge_profile`, and whether tags then have sixteen columns.
pub const PROFILES: [(&str, bool); 2] = [("standard", false), ("strict", true)];

const KEY_RULE: &str =
    "it is the other host's public key, 44 characters, as `recodectl pubkey` prints it";
/// Bounds the relays of a flow that get columns: each costs a message every two seconds.
const RELAYS_MAX: usize = 64;

const PATH_RULE: &str = "it is the number of this path to the neighbour, 0 to 255, the same at both \
                         ends";

const ONE_BOX_RULE: &str = "another neighbour of this name has another public_key: a name is that \
                            of one box";

const NAME_RULE: &str = "it is the name of a box: 1 to 32 letters, digits, - and _";

const FILE_RULE: &str = "it is the absolute path of a file";

const ONE_WAY_RULE: &str = "keys without a handshake come of a pre-shared key: recodectl genpsk \
                            makes one, for both hosts";

/// Reads `private_key` and `auth` of `[daemon]`; the default of `auth` depends on the key.
pub fn daemon(reader: &mut Reader<'_>) -> (Option<PathBuf>, Auth) {
    let private = reader.text("private_key", FILE_RULE, file);
    let rule = "it is \"full\", \"hop\" or \"none\"";
    let written = reader.choice("auth", &AUTHS, rule);
    if private.is_none() && written.is_some_and(|auth| auth != Auth::None) {
        let rule = "nothing is authenticated without private_key: recodectl genkey makes one";
        reader.refuse("auth", "does not apply", rule);
    }
    let default = if private.is_some() { Auth::Full } else { Auth::None };
    (private, written.unwrap_or(default))
}

/// Reads every `[[neighbour]]`.
pub fn neighbours(
    sections: &[Section],
    links: &[Link],
    errors: &mut Vec<ConfigError>,
) -> Vec<NeighbourKey> {
    let mut neighbours: Vec<NeighbourKey> = Vec::new();
    for (index, section) in sections.iter().enumerate() {
        let mut reader = Reader::new(section, index, errors);
        let reader = &mut reader;
        reader.known(&NEIGHBOUR);
        let named = reader.text("link", "it is the name of a [[link]]", |it| Some(it.to_owned()));
        let named = reader.require("link", named, "a neighbour is on a [[link]]");
        let rule = "it is the neighbour's IP address on the link, or its host name";
        let address = reader.text("address", rule, unicast);
        let address = reader.require("address", address, rule);
        let known = known(reader, ["public_key", "preshared_key", "one_way"]);
        reader.require("public_key", known.as_ref(), KEY_RULE);
        let roams = reader.truth("roams").unwrap_or(false);
        let path = reader.integer("path", 0..=u64::from(u8::MAX), PATH_RULE);
        let path = path.and_then(|path| u8::try_from(path).ok()).unwrap_or(0);
        let name = box_name(reader, "name");
        let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
        let link = named.and_then(|name| match find(&name, &names) {
            Ok(link) => Some(link),
            Err(names) => {
                reader.refuse("link", "is unknown", &format!("the links are {names}"));
                None
            }
        });
        let (Some(link), Some(address), Some(known)) = (link, address, known) else { continue };
        let neighbour = Neighbour { link, address };
        if neighbours.iter().any(|other| other.neighbour == neighbour) {
            reader.refuse("address", "is taken", "each neighbour has one key");
            continue;
        }
        if roams && known.one_way {
            let rule = "a neighbour that moves is found by its answers, and one_way has none";
            reader.refuse("roams", "does not apply", rule);
        }
        if path > 0 && known.one_way {
            let rule = "paths have keys of their own by handshakes, and one_way has none";
            reader.refuse("path", "does not apply", rule);
        }
        if roams && links[link].backend == Backend::Xdp {
            let rule = "AF_XDP pins the addresses of neighbours in its program: write backend = \
                        \"udp\" under this link, or leave backend out";
            reader.refuse("roams", "does not apply", rule);
        }
        let twin = |other: &&NeighbourKey| {
            let is_same = other.known.public == known.public && other.path == path;
            other.neighbour.link == link && is_same
        };
        if let Some(twin) = neighbours.iter().find(twin)
            && (roams || twin.roams)
        {
            let rule = format!(
                "{} on this link has the same key and path: where they are paths to one host that \
                 roams, write path = 1 here and at the other end of this one, 2 for a third",
                twin.neighbour.address
            );
            let key = if reader.has("path") { "path" } else { "public_key" };
            reader.refuse(key, "is taken", &rule);
        }
        let is_other_box =
            |other: &NeighbourKey| other.name == name && other.known.public != known.public;
        if !name.is_empty() && neighbours.iter().any(is_other_box) {
            reader.refuse("name", "is taken", ONE_BOX_RULE);
        }
        neighbours.push(NeighbourKey { neighbour, known, roams, path, name });
    }
    neighbours
}

/// Keys of other hosts that a flow names.
pub struct FlowKeys {
    edge: Option<Known>,
    edge_name: String,
    sink_keys: Vec<PublicKey>,
    edge_group: bool,
    relay_keys: Vec<PublicKey>,
    source_key: Option<PublicKey>,
    strict: bool,
}

impl FlowKeys {
    /// Reads the keys that are written.
    pub fn read(reader: &mut Reader<'_>) -> FlowKeys {
        let edge = edge(reader);
        let ((sink_keys, edge_group), (relay_keys, source_key)) = (group(reader), columns(reader));
        let strict = profile(reader);
        let edge_name = box_name(reader, "edge_name");
        FlowKeys { edge, edge_name, sink_keys, edge_group, relay_keys, source_key, strict }
    }

    /// Whether symbol tags have sixteen columns; a relay learns it from the source.
    pub const fn strict(&self) -> bool {
        self.strict
    }

    /// Whether IP packets are encrypted.
    pub fn seal(&self) -> bool {
        self.edge.is_some() || !self.sink_keys.is_empty()
    }

    /// Whether symbols have tags that this host generates or verifies.
    pub fn tag(&self) -> bool {
        self.seal() || self.source_key.is_some()
    }

    /// Builds the flow that has these keys.
    pub fn of(self, params: FlowParams, written: Written) -> Flow {
        let FlowKeys { edge, edge_name, sink_keys, edge_group, relay_keys, source_key, .. } = self;
        Flow { params, written, edge, edge_name, sink_keys, edge_group, relay_keys, source_key }
    }
}

/// Reads `edge_profile` of a flow.
fn profile(reader: &mut Reader<'_>) -> bool {
    if !reader.has("edge_key") && !reader.has("sink_keys") {
        reader
            .unsuitable("edge_profile", "it is about the tags of flows with edge_key or sink_keys");
    }
    let rule = "it is \"standard\" or \"strict\"";
    reader.choice("edge_profile", &PROFILES, rule).unwrap_or(false)
}

/// Reads `edge_key`, `edge_preshared_key` and `edge_one_way` of a flow.
fn edge(reader: &mut Reader<'_>) -> Option<Known> {
    let known = known(reader, ["edge_key", "edge_preshared_key", "edge_one_way"]);
    if known.is_none() && !reader.has("edge_key") {
        reader.unsuitable("edge_preshared_key", "it is shared with the owner of edge_key");
        reader.unsuitable("edge_one_way", "it is about the keys of edge_key");
    }
    known
}

/// Reads `sink_keys` and `edge_group` of a flow.
fn group(reader: &mut Reader<'_>) -> (Vec<PublicKey>, bool) {
    let sinks = listed(reader, "sink_keys", "sinks", GROUP_SINKS_MAX);
    let is_group = reader.truth("edge_group").unwrap_or(false);
    if reader.has("sink_keys") {
        let rule = "sink_keys says whose the other ends are, and each receives keys of the flow";
        for key in ["edge_key", "edge_preshared_key", "edge_one_way"] {
            reader.unsuitable(key, rule);
        }
    } else if is_group {
        let rule = "the source tells keys of a group, by edge_key alone";
        for key in ["edge_preshared_key", "edge_one_way"] {
            reader.unsuitable(key, rule);
        }
    }
    (sinks, is_group)
}

/// Reads `relay_keys` and `source_key` of a flow.
fn columns(reader: &mut Reader<'_>) -> (Vec<PublicKey>, Option<PublicKey>) {
    let source = reader.text("source_key", KEY_RULE, |text| text.parse().ok());
    (listed(reader, "relay_keys", "relays", RELAYS_MAX), source)
}

/// Reads a list of distinct public keys of hosts.
fn listed(reader: &mut Reader<'_>, name: &'static str, hosts: &str, most: usize) -> Vec<PublicKey> {
    let Some(items) = reader.value(name).map(|value| value.as_array()) else {
        return Vec::new();
    };
    let rule = format!("it is a list of 1 to {most} public keys of different {hosts}");
    let parsed = items.map(|items| items.iter().map(|item| item.as_str()?.parse().ok()).collect());
    let keys: Vec<PublicKey> = parsed.flatten().unwrap_or_default();
    let is_repeated = keys.iter().enumerate().any(|(index, key)| keys[..index].contains(key));
    if keys.is_empty() || keys.len() > most || is_repeated {
        reader.refuse(name, "is no such list", &rule);
        return Vec::new();
    }
    keys
}

fn known(reader: &mut Reader<'_>, [key, shared, one_way]: [&'static str; 3]) -> Option<Known> {
    let public = reader.text(key, KEY_RULE, |text| text.parse().ok());
    let preshared = reader.text(shared, FILE_RULE, file);
    let is_one_way = reader.truth(one_way).unwrap_or(false);
    if is_one_way && preshared.is_none() && !reader.has(shared) {
        reader.refuse(one_way, "needs a pre-shared key", ONE_WAY_RULE);
    }
    public.map(|public| Known { public, preshared, one_way: is_one_way })
}

/// Reads the name of another box; empty if it is not written.
fn box_name(reader: &mut Reader<'_>, key: &'static str) -> String {
    let accept = |text: &str| is_box_name(text).then(|| text.to_owned());
    reader.text(key, NAME_RULE, accept).unwrap_or_default()
}

fn file(text: &str) -> Option<PathBuf> {
    (text.starts_with('/') && !text.contains('\0')).then(|| PathBuf::from(text))
}

/// Adds neighbours that no flow names (any more): sessions with them stay, as do reports about
/// their flows.
pub fn add_neighbours(neighbours: &[NeighbourKey], hops: &mut Vec<Neighbour>) {
    for known in neighbours {
        if !hops.contains(&known.neighbour) {
            hops.push(known.neighbour);
        }
    }
}

/// Applies the rules over all sections: every neighbour has a key if packets are authenticated, and
/// a key without effect is refused.
pub fn check(
    document: &Document,
    auth: Auth,
    neighbours: &[NeighbourKey],
    links: &[Link],
    hops: &[Neighbour],
    flows: &[Flow],
    errors: &mut Vec<ConfigError>,
) {
    for (index, section) in document.neighbours.iter().enumerate() {
        let mut reader = Reader::new(section, index, errors);
        if auth == Auth::None {
            let rule = "nothing is authenticated: write private_key under [daemon], and not auth = \
                        \"none\"";
            reader.refuse("public_key", "does not apply", rule);
        }
    }
    let has_key = |hop: &Neighbour| neighbours.iter().any(|known| known.neighbour == *hop);
    for (index, (section, flow)) in document.flows.iter().zip(flows).enumerate() {
        let mut reader = Reader::new(section, index, errors);
        check_flow(&mut reader, auth, flow);
        if auth == Auth::None {
            continue;
        }
        for (key, id) in flow.neighbours() {
            let hop = hops[usize::from(id.0)];
            if has_key(&hop) {
                continue;
            }
            let link = &links[hop.link].name;
            let address = written(&document.named, link, hop.address);
            let rule = format!(
                "auth = \"{}\" needs its key: write [[neighbour]] with link = \"{link}\", address \
                 = \"{address}\" and public_key",
                word(auth)
            );
            reader.refuse_part(key, key.into(), address, "has no key", &rule);
        }
    }
}

fn check_flow(reader: &mut Reader<'_>, auth: Auth, flow: &Flow) {
    let is_edge = !matches!(flow.params.role, Role::Relay { .. });
    if auth != Auth::Full {
        reader.unsuitable("edge_key", "flows are encrypted with auth = \"full\" only");
        for key in ["sink_keys", "edge_group"] {
            reader.unsuitable(key, "flows are encrypted with auth = \"full\" only");
        }
        for key in ["relay_keys", "source_key"] {
            reader.unsuitable(key, "symbols have tags with auth = \"full\" only");
        }
        return;
    }
    if is_edge && !reader.has("sink_keys") {
        let rule = "auth = \"full\" encrypts between source and sink: it is the public key of the \
                    host at the other end, with several sinks sink_keys instead; auth = \"hop\" \
                    does without";
        reader.require("edge_key", flow.edge.as_ref(), rule);
    }
    let says_whose = reader.has("spread") || reader.has("sink_keys");
    if flow.params.next_hops.len() > 1 && is_edge && !says_whose {
        let rule = "edge_key names one sink: where several next hops are paths to it, say so by \
                    spread = \"sum\", \"backup\" or \"every\"; where they lead to several sinks, \
                    name their keys as sink_keys";
        reader.refuse("next_hops", "is too long", rule);
    }
}

/// The word for an [`Auth`].
pub fn word(auth: Auth) -> &'static str {
    AUTHS.iter().find(|(_, known)| *known == auth).map_or("", |(word, _)| word)
}

impl Config {
    /// Whether the address of a neighbour is a placeholder until it sends.
    pub fn is_awaited(&self, hop: &Neighbour) -> bool {
        !is_known(hop.address) && self.roams(hop)
    }

    /// Name of the box that a neighbour is; empty if it is not written.
    pub fn box_name(&self, hop: &Neighbour) -> &str {
        let mut neighbours = self.neighbours.iter();
        neighbours.find(|known| known.neighbour == *hop).map_or("", |known| &known.name)
    }

    /// The address of a neighbour for users. A placeholder means nothing to them: the host name,
    /// the name of the box or the first letters of its key replace it, with `#PATH` where several
    /// paths of the link lead to it.
    pub fn shown(&self, hop: &Neighbour) -> String {
        if self.trouble(hop).is_some() {
            return self.written(hop);
        }
        if !self.is_awaited(hop) {
            return hop.address.to_string();
        }
        let name = self.awaited_name(hop);
        let mut others = self.neighbours.iter().map(|it| &it.neighbour).filter(|it| *it != hop);
        let is_shared = others.any(|other| {
            other.link == hop.link && self.is_awaited(other) && self.awaited_name(other) == name
        });
        if is_shared { format!("{name}#{}", self.path(hop)) } else { name }
    }

    /// The name of a neighbour whose address is a placeholder.
    fn awaited_name(&self, hop: &Neighbour) -> String {
        match (self.box_name(hop), self.known(hop)) {
            ("", Some(known)) => format!("key-{:.8}", known.public.to_string()),
            (name, _) => name.to_owned(),
        }
    }

    /// The keys of a neighbour, if packets of hops are authenticated.
    pub fn known(&self, hop: &Neighbour) -> Option<&Known> {
        let mut neighbours = self.neighbours.iter();
        neighbours.find(|known| known.neighbour == *hop).map(|it| &it.known)
    }

    /// Whether any neighbour or flow derives its keys without a handshake.
    pub fn has_one_way(&self) -> bool {
        let hops = self.neighbours.iter().map(|it| &it.known);
        let is_group = self.flows.iter().any(Flow::is_group);
        is_group
            || hops
                .chain(self.flows.iter().filter_map(|flow| flow.edge.as_ref()))
                .any(|it| it.one_way)
    }

    /// Number of the path to a neighbour.
    pub fn path(&self, hop: &Neighbour) -> u8 {
        let mut neighbours = self.neighbours.iter();
        neighbours.find(|known| known.neighbour == *hop).map_or(0, |known| known.path)
    }

    /// Whether a neighbour roams.
    pub fn roams(&self, hop: &Neighbour) -> bool {
        self.neighbours.iter().any(|known| known.neighbour == *hop && known.roams)
    }
}
