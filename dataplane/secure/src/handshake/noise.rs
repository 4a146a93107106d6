//! One Noise handshake with snow, with the ephemeral key from the caller's entropy; and messages
//! without an answer.

use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{BoxedCryptoResolver, CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use super::message::HEADER;
use crate::derive::Secrets;
use crate::error::Refused;
use crate::keys::{Entropy, PresharedKey, PrivateKey, PublicKey};
use crate::secret::Secret;

/// The protocol.
pub(super) const PATTERN: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";

/// Protocol of messages without an answer: both know each other's key.
const ONE_WAY: &str = "Noise_K_25519_ChaChaPoly_BLAKE2s";

/// The message of the pattern after which the pre-shared key is mixed in.
const PSK_AT: u8 = 2;

/// Prologue: this, the header of the initiation, and the scope.
pub(crate) const PROLOGUE: &[u8] = b"recoded v2";

/// Purpose of the keys: a message of one scope is invalid in another.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// A hop: `hop` in the prologue.
    Hop,
    /// A flow from source to sink: `edge` and the number of the flow, 32 bits.
    Edge(u32),
}

impl Scope {
    pub(crate) fn bytes(self) -> Vec<u8> {
        match self {
            Scope::Hop => b"hop".to_vec(),
            Scope::Edge(flow) => [&b"edge"[..], &flow.to_be_bytes()].concat(),
        }
    }
}

/// Keys of this node, of a peer, and the one they share.
#[derive(Debug)]
pub struct Identity {
    /// Their purpose.
    pub scope: Scope,
    /// The private key of this node.
    pub private: PrivateKey,
    /// The public key of the peer.
    pub peer: PublicKey,
    /// The key that both share, or [`PresharedKey::none`].
    pub psk: PresharedKey,
}

/// Sending and receiving secrets of a finished handshake.
pub(super) struct Split {
    pub send: Secrets,
    pub receive: Secrets,
}

pub(super) fn initiator(
    identity: &Identity,
    header: &[u8; HEADER],
    entropy: &Entropy,
) -> Result<HandshakeState, Refused> {
    //= docs/protocol §3.1(a)
    let prologue = [PROLOGUE, header, &identity.scope.bytes()].concat();
    let builder = builder(identity, &prologue, entropy);
    let builder = builder.and_then(|it| it.remote_public_key(identity.peer.bytes()));
    builder.and_then(Builder::build_initiator).map_err(|_| Refused::Handshake)
}

pub(super) fn responder(
    identity: &Identity,
    header: &[u8; HEADER],
    entropy: &Entropy,
) -> Result<HandshakeState, Refused> {
    let prologue = [PROLOGUE, header, &identity.scope.bytes()].concat();
    let builder = builder(identity, &prologue, entropy);
    builder.and_then(Builder::build_responder).map_err(|_| Refused::Handshake)
}

fn builder<'a>(
    identity: &'a Identity,
    prologue: &'a [u8],
    entropy: &Entropy,
) -> Result<Builder<'a>, snow::Error> {
    let builder = from_random(PATTERN, prologue, entropy.key());
    builder?.local_private_key(identity.private.bytes())?.psk(PSK_AT, identity.psk.bytes())
}

/// A handshake whose ephemeral key comes from `random`.
pub(super) fn from_random<'a>(
    pattern: &str,
    prologue: &'a [u8],
    random: Secret<32>,
) -> Result<Builder<'a>, snow::Error> {
    let parameters: NoiseParams = pattern.parse()?;
    let resolver: BoxedCryptoResolver = Box::new(Resolver(random));
    Builder::with_resolver(parameters, resolver).prologue(prologue)
}

/// The secrets of both directions. The hash of the handshake is not secret, and is the salt; the
/// keys that Noise splits off are known only to the two peers.
pub(super) fn split(state: &mut HandshakeState) -> Split {
    let is_initiator = state.is_initiator();
    let (there, back) = state.dangerously_get_raw_split();
    let (there, back) = (Zeroizing::new(there), Zeroizing::new(back));
    let secrets = |key| Secrets::extract(state.get_handshake_hash(), key);
    let (there, back) = (secrets(&there), secrets(&back));
    if is_initiator {
        Split { send: there, receive: back }
    } else {
        Split { send: back, receive: there }
    }
}

/// Seals a payload of `from` for `to` into `out`, which has the length of the message.
pub(crate) fn seal_for(
    from: &PrivateKey,
    to: &PublicKey,
    prologue: &[u8],
    entropy: &Entropy,
    payload: &[u8],
    out: &mut [u8],
) -> Result<(), Refused> {
    let builder = one_way(from, to, prologue, entropy.key());
    let state = builder.and_then(Builder::build_initiator);
    let written = state.and_then(|mut state| state.write_message(payload, out));
    if written.is_ok_and(|bytes| bytes == out.len()) { Ok(()) } else { Err(Refused::Long) }
}

/// Opens a message of [`seal_for`] into `out`, which has the length of the payload.
pub(crate) fn open_from(
    own: &PrivateKey,
    from: &PublicKey,
    prologue: &[u8],
    message: &[u8],
    out: &mut [u8],
) -> Result<(), Refused> {
    // The receiver needs no ephemeral key.
    let builder = one_way(own, from, prologue, Secret::new([0; 32]));
    let state = builder.and_then(Builder::build_responder);
    let read = state.and_then(|mut state| state.read_message(message, out));
    if read.is_ok_and(|bytes| bytes == out.len()) { Ok(()) } else { Err(Refused::Handshake) }
}

fn one_way<'a>(
    own: &'a PrivateKey,
    other: &'a PublicKey,
    prologue: &'a [u8],
    random: Secret<32>,
) -> Result<Builder<'a>, snow::Error> {
    let builder = from_random(ONE_WAY, prologue, random);
    builder?.local_private_key(own.bytes())?.remote_public_key(other.bytes())
}

/// snow's primitives, and the caller's randomness.
struct Resolver(Secret<32>);

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.0.clone()))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// Gives its bytes once: a handshake has one ephemeral key.
struct Once(Option<Secret<32>>);

impl Random for Once {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), snow::Error> {
        let secret = self.0.take().ok_or(snow::Error::Rng)?;
        if bytes.len() != secret.expose().len() {
            return Err(snow::Error::Rng);
        }
        bytes.copy_from_slice(secret.expose());
        Ok(())
    }
}
