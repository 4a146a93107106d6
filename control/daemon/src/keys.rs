//! Reads the files of keys that a configuration names. Once, at the start: a running daemon has
//! no need of them, and no right to them.

use crate::config::Config;
use crate::config::auth::Known;
use recoded_runtime::secure::{KeyError, PresharedKey, PrivateKey, key_file};
use recoded_runtime::{EdgeConfig, PeerKey};

/// Why keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// A file, or what is in it.
    #[error("{0} (recodectl genkey and genpsk write such files)")]
    File(#[from] KeyError),
    /// A neighbour or edge has the key of this host.
    #[error("{0} is the public key of this host itself: name that of the other one")]
    Own(String),
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// Of this host.
    pub private: Option<PrivateKey>,
    /// Of the neighbours, as [`Config::hops`] lists them.
    pub hops: Vec<Option<PeerKey>>,
    /// Of other ends of flows.
    pub edges: Vec<EdgeConfig>,
}

impl Keys {
    /// None, for a process that sees no packet.
    pub fn none(config: &Config) -> Keys {
        Keys { private: None, hops: vec![None; config.hops.len()], edges: Vec::new() }
    }

    /// Reads what `config` names.
    ///
    /// # Errors
    /// [`KeysError`]: which file or key, and what is wrong with it.
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
            Ok(PeerKey { public: known.public, psk })
        };
        let hop = |hop| config.known(hop).map(peer).transpose();
        let hops = config.hops.iter().map(hop).collect::<Result<_, _>>()?;
        let mut edges = Vec::new();
        for flow in &config.flows {
            if let Some(known) = &flow.edge {
                edges.push(EdgeConfig { flow: flow.params.id, key: peer(known)? });
            }
        }
        Ok(Keys { private, hops, edges })
    }
}
