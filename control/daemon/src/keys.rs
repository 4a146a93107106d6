//! Reads the key files that a configuration names, once at the start: a running daemon neither
//! needs them nor may read them.

use crate::config::Config;
use crate::config::auth::Known;
use recoded_runtime::secure::{KeyError, PresharedKey, PrivateKey, Strength, key_file};
use recoded_runtime::{EdgeConfig, GroupConfig, GroupPart, PeerKey, RelayedConfig};
use std::path::PathBuf;

/// Why keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// A file or its content.
    #[error("{0} (recodectl genkey and genpsk write such files)")]
    File(#[from] KeyError),
    /// Keys would derive from a publicly known pre-shared key.
    #[error("{0}: this is no secret, and keys with one_way come of it alone: recodectl genpsk")]
    Zero(PathBuf),
    /// A neighbour, edge, relay or source has the key of this host.
    #[error("{0} is the public key of this host itself: name that of the other one")]
    Own(String),
}

/// The keys read.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// Key of this host.
    pub private: Option<PrivateKey>,
    /// Keys of the neighbours, as [`Config::hops`] lists them.
    pub hops: Vec<Option<PeerKey>>,
    /// Keys of other ends of flows.
    pub edges: Vec<EdgeConfig>,
    /// Flows to several sinks.
    pub groups: Vec<GroupConfig>,
    /// Sources of flows that this host verifies as a relay.
    pub relayed: Vec<RelayedConfig>,
}

impl Keys {
    /// No keys, for a process that sees no packet.
    pub fn none(config: &Config) -> Keys {
        Keys { hops: vec![None; config.hops.len()], ..Keys::default() }
    }

    /// Reads the key files of `config`.
    ///
    /// # Errors
    /// [`KeysError`]: the file or key, and the fault.
    pub fn read(config: &Config) -> Result<Keys, KeysError> {
        let private: Option<PrivateKey> = match &config.daemon.private_key {
            Some(path) => Some(key_file::read(path)?),
            None => None,
        };
        let own = private.as_ref().map(PrivateKey::public);
        let peer = |known: &Known| {
            if Some(known.public) == own {
                return Err(KeysError::Own(known.public.to_string()));
            }
            let psk = known.preshared.as_ref().map(|path| key_file::read(path)).transpose()?;
            let psk = psk.unwrap_or_else(PresharedKey::none);
            if known.one_way && psk == PresharedKey::none() {
                return Err(KeysError::Zero(known.preshared.clone().unwrap_or_default()));
            }
            Ok(PeerKey { public: known.public, psk, one_way: known.one_way })
        };
        let hop = |hop| config.known(hop).map(peer).transpose();
        let hops = config.hops.iter().map(hop).collect::<Result<_, _>>()?;
        let (mut edges, mut groups) = (Vec::new(), Vec::new());
        for flow in &config.flows {
            let (id, relays) = (flow.params.id, flow.relay_keys.clone());
            let strength = if flow.params.strict { Strength::Strict } else { Strength::Standard };
            match &flow.edge {
                Some(known) if flow.edge_group => {
                    let part = GroupPart::Sink(peer(known)?.public);
                    groups.push(GroupConfig { flow: id, part, strength, relays });
                }
                Some(known) => {
                    edges.push(EdgeConfig { flow: id, key: peer(known)?, strength, relays });
                }
                None if flow.is_group() => {
                    let part = GroupPart::Source(flow.sink_keys.clone());
                    groups.push(GroupConfig { flow: id, part, strength, relays });
                }
                None => {}
            }
            let others = flow.relay_keys.iter().chain(&flow.source_key).chain(&flow.sink_keys);
            if let Some(key) = others.copied().find(|key| Some(*key) == own) {
                return Err(KeysError::Own(key.to_string()));
            }
        }
        let relayed = config.flows.iter().filter_map(|flow| {
            Some(RelayedConfig { flow: flow.params.id, source: flow.source_key? })
        });
        Ok(Keys { private, hops, edges, groups, relayed: relayed.collect() })
    }
}
