//! The handshake of a box that joins a network: Noise IK with a secret that serves once.
//!
//! ```text
//!  box   own key, key of the hub, secret          hub   own key, secret
//!     -- e, es, s, ss, psk -->     no answer without the secret; the hub learns the key of the box
//!     <- e, ee, se, payload --     a replayed first message ends here
//!     -- sealed messages, in order, in both directions --
//! ```
//!
//! Not on the packet path: it allocates.

use snow::{Builder, HandshakeState, TransportState};
use zeroize::Zeroizing;

use super::noise::from_random;
use crate::error::Refused;
use crate::keys::{Entropy, PresharedKey, PrivateKey, PublicKey};

/// The protocol.
const PATTERN: &str = "Noise_IKpsk1_25519_ChaChaPoly_BLAKE2s";

/// The message after whose other tokens the secret is mixed in.
const PSK_AT: u8 = 1;

/// Separates this use of the keys of boxes from handshakes of neighbours.
const PROLOGUE: &[u8] = b"recoded join 1";

/// Longest payload of a message.
pub const JOIN_PAYLOAD_BYTES_MAX: usize = 4096;

/// Bytes that a message has in addition to its payload: an ephemeral key, a sealed static key, two
/// tags.
const OVERHEAD_BYTES: usize = 32 + 48 + 16;

/// The hub's side of an invitation.
#[derive(Debug)]
pub struct Invitation {
    hub: PrivateKey,
    secret: PresharedKey,
}

impl Invitation {
    /// Who holds `secret` may join the network of `hub`.
    #[must_use]
    pub const fn new(hub: PrivateKey, secret: PresharedKey) -> Invitation {
        Invitation { hub, secret }
    }

    /// Reads the first message of a box. It may be a replay: change nothing before the box has sent
    /// a message that [`JoinChannel::open`] accepts.
    ///
    /// # Errors
    /// [`Refused::Handshake`]: the sender lacks the secret.
    pub fn receive(&self, message: &[u8], entropy: &Entropy) -> Result<Joining, Refused> {
        let builder = from_random(PATTERN, PROLOGUE, entropy.key());
        let builder = builder.and_then(|it| it.local_private_key(self.hub.bytes()));
        let state = builder.and_then(|it| it.psk(PSK_AT, self.secret.bytes())?.build_responder());
        let mut state = state.map_err(|_| Refused::Handshake)?;
        read(&mut state, message)?;
        let key = state.get_remote_static().and_then(|key| key.try_into().ok());
        let key = key.and_then(|key| PublicKey::new(key).ok()).ok_or(Refused::Handshake)?;
        Ok(Joining { state, key })
    }
}

/// A box that knows the secret, at the hub.
#[derive(Debug)]
pub struct Joining {
    state: HandshakeState,
    key: PublicKey,
}

impl Joining {
    /// Its public key.
    #[must_use]
    pub const fn key(&self) -> PublicKey {
        self.key
    }

    /// The answer with a payload, and the channel for further messages.
    ///
    /// # Errors
    /// [`Refused::Long`]: the payload.
    pub fn answer(mut self, payload: &[u8]) -> Result<(Vec<u8>, JoinChannel), Refused> {
        let answer = write(&mut self.state, payload)?;
        Ok((answer, JoinChannel::new(self.state)?))
    }
}

/// A box that waits for the answer of the hub.
#[derive(Debug)]
pub struct JoinRequest(HandshakeState);

impl JoinRequest {
    /// Begins; returns the first message, too.
    ///
    /// # Errors
    /// [`Refused::Handshake`]: the keys do not serve.
    pub fn begin(
        own: &PrivateKey,
        hub: &PublicKey,
        secret: &PresharedKey,
        entropy: &Entropy,
    ) -> Result<(JoinRequest, Vec<u8>), Refused> {
        let builder = from_random(PATTERN, PROLOGUE, entropy.key());
        let builder = builder.and_then(|it| it.local_private_key(own.bytes()));
        let builder = builder.and_then(|it| it.remote_public_key(hub.bytes()));
        let builder = builder.and_then(|it| it.psk(PSK_AT, secret.bytes()));
        let state = builder.and_then(Builder::build_initiator);
        let mut state = state.map_err(|_| Refused::Handshake)?;
        let first = write(&mut state, &[])?;
        Ok((JoinRequest(state), first))
    }

    /// Reads the answer: its payload, and the channel for further messages.
    ///
    /// # Errors
    /// [`Refused::Handshake`]: it is not of this hub, or for another request.
    pub fn finish(mut self, answer: &[u8]) -> Result<(Zeroizing<Vec<u8>>, JoinChannel), Refused> {
        let payload = read(&mut self.0, answer)?;
        Ok((payload, JoinChannel::new(self.0)?))
    }
}

/// Sealed messages after the handshake, each direction in order.
#[derive(Debug)]
pub struct JoinChannel(TransportState);

impl JoinChannel {
    fn new(state: HandshakeState) -> Result<JoinChannel, Refused> {
        state.into_transport_mode().map(JoinChannel).map_err(|_| Refused::Handshake)
    }

    /// Seals a message.
    ///
    /// # Errors
    /// [`Refused::Long`].
    pub fn seal(&mut self, payload: &[u8]) -> Result<Vec<u8>, Refused> {
        let mut out = vec![0; bounded(payload, JOIN_PAYLOAD_BYTES_MAX)? + OVERHEAD_BYTES];
        let bytes = self.0.write_message(payload, &mut out).map_err(|_| Refused::Long)?;
        out.truncate(bytes);
        Ok(out)
    }

    /// Opens the next message.
    ///
    /// # Errors
    /// [`Refused::Tag`]: it is none, or not the next one.
    pub fn open(&mut self, message: &[u8]) -> Result<Zeroizing<Vec<u8>>, Refused> {
        let most = JOIN_PAYLOAD_BYTES_MAX + OVERHEAD_BYTES;
        let mut out = Zeroizing::new(vec![0; bounded(message, most)?]);
        let bytes = self.0.read_message(message, &mut out).map_err(|_| Refused::Tag)?;
        out.truncate(bytes);
        Ok(out)
    }
}

fn write(state: &mut HandshakeState, payload: &[u8]) -> Result<Vec<u8>, Refused> {
    let mut out = vec![0; bounded(payload, JOIN_PAYLOAD_BYTES_MAX)? + OVERHEAD_BYTES];
    let bytes = state.write_message(payload, &mut out).map_err(|_| Refused::Long)?;
    out.truncate(bytes);
    Ok(out)
}

fn read(state: &mut HandshakeState, message: &[u8]) -> Result<Zeroizing<Vec<u8>>, Refused> {
    let most = JOIN_PAYLOAD_BYTES_MAX + OVERHEAD_BYTES;
    let mut out = Zeroizing::new(vec![0; bounded(message, most)?]);
    let bytes = state.read_message(message, &mut out).map_err(|_| Refused::Handshake)?;
    out.truncate(bytes);
    Ok(out)
}

fn bounded(bytes: &[u8], most: usize) -> Result<usize, Refused> {
    Some(bytes.len()).filter(|length| *length <= most).ok_or(Refused::Long)
}
