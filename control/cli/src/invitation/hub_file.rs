//! The network file of a hub: this box in it, an offer for another one, and the file with that box.

use super::exchange::Offer;
use ipnet::IpNet;
use recoded::config::document::FILE_BYTES_MAX;
use recoded_network::{
    Auth, BoxEntry, Ends, EntryError, Fault, Network, NetworkErrors, NodeAddress, Spoke, free_ends,
    is_box_name, with_spoke,
};
use recoded_secure::{Entropy, KeyError, PrivateKey, PublicKey, key_file};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Why the file takes no further box.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// It cannot be read.
    #[error(
        "cannot read {path} ({source}): run this as root on the hub, name its file with --config, \
         or make the first one: recodectl init --name NAME --address ADDRESS"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It has another form.
    #[error(
        "{0} has no [boxes], to which a box could be added: name the file of the network with \
         --config, or begin one with recodectl init"
    )]
    Form(PathBuf),
    /// Boxes of this network have no keys.
    #[error(
        "{0} has auth = \"none\", and an invited box is known by its key alone: take that line away, \
         or add the box by hand"
    )]
    NoKeys(PathBuf),
    /// This host is none of the boxes.
    #[error("{path}: which box is this host? {}", reason(.source.as_ref()))]
    NotHere {
        /// The file.
        path: PathBuf,
        /// Why no private key can be read, if none can.
        source: Option<KeyError>,
    },
    /// The hub has no address.
    #[error(
        "box {hub} has no address in {path}, and the new box calls it: write at = \"ADDRESS\" into \
         its line, as recodectl init --address does"
    )]
    NoAddress {
        /// The hub.
        hub: String,
        /// The file.
        path: PathBuf,
    },
    /// Another interface than the one that serves boxes without an address.
    #[error(
        "{written} is not the first address of box {hub}: boxes without an address are served at the \
         first one, {first}; leave --address out, or change their order in the file"
    )]
    Later {
        /// The address.
        written: String,
        /// The hub.
        hub: String,
        /// Its first address.
        first: String,
    },
    /// A name that no box may have.
    #[error("a box has a name of 1 to 32 letters, digits, - and _, not beginning with -")]
    Name,
    /// A name of the file.
    #[error(
        "box {name} is in {path} already: choose another name, or take its line and its path out of \
         the file first"
    )]
    KnownName {
        /// The name.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// A network that is too small.
    #[error("--tunnel {0} has no two addresses: write a network such as 10.50.0.0/30")]
    Tunnel(IpNet),
    /// No addresses for the tunnel.
    #[error("no network for another tunnel is free in 10.99.0.0/16: name one with --tunnel")]
    Full,
    /// The text, or the name.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// The key of the new box is that of another one.
    #[error(
        "box {0} has the key of this one already: if this machine is a copy of that one, remove \
         its private key, and join again; if it is that box, take it out of the file of the hub \
         first"
    )]
    KnownKey(String),
    /// The file has mistakes, or would have.
    #[error("{0}")]
    Network(#[from] NetworkErrors),
    /// No random bytes.
    #[error("Linux gives no random bytes: {0}")]
    Random(String),
}

fn reason(source: Option<&KeyError>) -> String {
    match source {
        Some(error) => format!("{error} (run this as root on the hub)"),
        None => "no box has its key: recodectl init adds this box".to_owned(),
    }
}

/// The file of a hub.
pub struct HubFile {
    path: PathBuf,
    /// Its text.
    pub text: String,
    network: Network,
    hub: usize,
    /// The private key of this box.
    pub private: PrivateKey,
}

impl HubFile {
    /// Reads and checks it.
    ///
    /// # Errors
    /// [`HubError`].
    pub fn read(path: &Path) -> Result<HubFile, HubError> {
        let failed = |source| HubError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        let file = File::open(path).map_err(failed)?;
        // Longer text is truncated, and then invalid TOML.
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        let network = network(path, &text)?;
        let mut fault = None;
        for (hub, node) in network.nodes.iter().enumerate() {
            match key_file::read::<PrivateKey>(Path::new(&node.private_key)) {
                Ok(private) if node.key == Some(private.public()) => {
                    return Ok(HubFile { path: path.to_owned(), text, network, hub, private });
                }
                Ok(_) => {}
                Err(error) => fault = fault.or(Some(error)),
            }
        }
        Err(HubError::NotHere { path: path.to_owned(), source: fault })
    }

    /// The offer for a box. A written `address` or `tunnel` takes the place of derived ones;
    /// `avoided` are the networks of this host.
    ///
    /// # Errors
    /// [`HubError`].
    pub fn offer(
        &self,
        name: &str,
        address: Option<&str>,
        tunnel: Option<IpNet>,
        avoided: &[IpNet],
    ) -> Result<Offer, HubError> {
        let hub = &self.network.nodes[self.hub];
        if !is_box_name(name) {
            return Err(HubError::Name);
        }
        let mut places = hub.uplinks.places().map(NodeAddress::to_string);
        let Some(first) = places.next() else {
            let (hub, path) = (hub.name.clone(), self.path.clone());
            return Err(HubError::NoAddress { hub, path });
        };
        if let Some(written) = address.filter(|address| places.any(|place| place == **address)) {
            let (written, hub) = (written.to_owned(), hub.name.clone());
            return Err(HubError::Later { written, hub, first });
        }
        let at = address.map_or(first, str::to_owned);
        let ends = match tunnel {
            Some(network) => Ends::of(network.trunc()).ok_or(HubError::Tunnel(network))?,
            None => free_ends(&self.network, self.hub, avoided).ok_or(HubError::Full)?,
        };
        let port = hub.daemon.iter().chain(&self.network.daemon).find(|extra| extra.key == "port");
        let port = port.and_then(|extra| u16::try_from(extra.value.as_integer()?).ok());
        let ids = self.network.paths.iter().map(|path| path.id);
        let offer = Offer {
            name: name.to_owned(),
            hub: hub.name.clone(),
            at,
            auth: if self.network.auth == Auth::Hop { "hop" } else { "full" }.to_owned(),
            port,
            hub_tunnel: ends.hub.to_string(),
            tunnel: ends.spoke.to_string(),
            id: ids.max().map_or(1, |id| id.saturating_add(2)),
        };
        // Every mistake is reported before a token exists.
        self.with(&offer, &unknown_key()?, None)?;
        Ok(offer)
    }

    /// The text with the box of an offer, whose key is `key`, and whose fixed address, if it has
    /// one, is `at`; checked like that of a daemon.
    ///
    /// # Errors
    /// [`HubError`].
    pub fn with(
        &self,
        offer: &Offer,
        key: &PublicKey,
        at: Option<String>,
    ) -> Result<String, HubError> {
        if let Some(known) = self.network.nodes.iter().find(|node| node.key == Some(*key)) {
            return Err(HubError::KnownKey(known.name.clone()));
        }
        let (hub, spoke) = (offer.hub_tunnel.parse().ok(), offer.tunnel.parse().ok());
        let ends = hub.zip(spoke).map(|(hub, spoke)| Ends { hub, spoke }).ok_or(HubError::Full)?;
        let spoke = Spoke { hub: offer.hub.clone(), ends, id: offer.id };
        let entry = BoxEntry { at, ..entry(&offer.name, *key) };
        let text = with_spoke(&self.text, &entry, &spoke);
        let text = text.map_err(|error| match error {
            EntryError::Known(name) => HubError::KnownName { name, path: self.path.clone() },
            error => error.into(),
        })?;
        recoded::network::parse(&self.path.display().to_string(), &text)?;
        Ok(text)
    }
}

fn entry(name: &str, key: PublicKey) -> BoxEntry {
    BoxEntry { name: name.to_owned(), at: None, key, tunnel: None, private_key: None }
}

/// The network of a file with `[boxes]`. A file with one box has no path yet.
fn network(path: &Path, text: &str) -> Result<Network, HubError> {
    let table = text.parse::<toml::Table>();
    let table = table.map_err(|error| EntryError::Syntax(error.message().replace('\n', ", ")))?;
    let Some(boxes) = table.get("boxes").and_then(toml::Value::as_table) else {
        return Err(HubError::Form(path.to_owned()));
    };
    if table.get("auth").and_then(toml::Value::as_str) == Some("none") {
        return Err(HubError::NoKeys(path.to_owned()));
    }
    let file = path.display().to_string();
    let mut errors = match recoded::network::parse(&file, text) {
        Ok(network) => return Ok(network),
        Err(errors) => errors,
    };
    let lacks_path =
        |fault: &Fault| matches!(fault, Fault::Missing { key: "path", .. } | Fault::NoPath);
    let Some(hub) = boxes.keys().next().filter(|_| boxes.len() == 1) else {
        return Err(errors.into());
    };
    errors.errors.retain(|it| !lacks_path(&it.fault));
    if errors.errors.is_empty() { first(&file, text, path, hub) } else { Err(errors.into()) }
}

/// The network of a file with one box, read with another one that is taken out again.
fn first(file: &str, text: &str, path: &Path, hub: &str) -> Result<Network, HubError> {
    let ends = IpNet::default();
    let ends = Ends { hub: ends, spoke: ends };
    let any = "10.99.0.0/30".parse().ok().and_then(Ends::of).unwrap_or(ends);
    let other = if hub == "a" { "b" } else { "a" };
    let spoke = Spoke { hub: hub.to_owned(), ends: any, id: 1 };
    let text = with_spoke(text, &entry(other, unknown_key()?), &spoke)?;
    let mut network = recoded::network::parse(file, &text).map_err(|errors| {
        let no_place = |fault: &Fault| matches!(fault, Fault::NoPlace { .. });
        match errors.errors.iter().all(|it| no_place(&it.fault)) {
            true => HubError::NoAddress { hub: hub.to_owned(), path: path.to_owned() },
            false => HubError::Network(errors),
        }
    })?;
    network.nodes.truncate(1);
    network.paths.clear();
    network.links.clear();
    Ok(network)
}

/// The public key of a box that is not known yet.
fn unknown_key() -> Result<PublicKey, HubError> {
    let entropy = Entropy::fresh().map_err(|error| HubError::Random(error.to_string()))?;
    Ok(PrivateKey::generate(&entropy).public())
}
