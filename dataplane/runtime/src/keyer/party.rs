//! An association, and what is told of it.

use crate::keyring::SessionReport;
use crate::topology::PeerKey;
use recoded_secure::{
    Association, Entropy, EpochKeys, Identity, PrivateKey, Refused, Scope, Suite,
};

/// The other side of an association.
pub(super) struct Party<Keys> {
    pub(super) key: String,
    pub(super) association: Association<Keys>,
    refused: u64,
    refusal: Option<Refused>,
}

impl<Keys: EpochKeys> Party<Keys> {
    pub(super) fn new(
        scope: Scope,
        private: &PrivateKey,
        key: &PeerKey,
        now: u64,
    ) -> Result<Self, getrandom::Error> {
        let PeerKey { public, psk } = key.clone();
        let identity = Identity { scope, private: private.clone(), peer: public, psk };
        let association = Association::new(identity, Suite::preferred(), now, &Entropy::fresh()?);
        Ok(Party { key: public.to_string(), association, refused: 0, refusal: None })
    }

    pub(super) fn refuse(&mut self, reason: Refused) {
        // Copies, of which there are some of each message.
        if matches!(reason, Refused::TooSoon | Refused::Unexpected | Refused::Replayed) {
            return;
        }
        self.refused += 1;
        self.refusal = Some(reason);
    }

    pub(super) fn report(&self, now: u64) -> SessionReport {
        let Party { key, association, refused, refusal } = self;
        let sending = association.ring().sending();
        SessionReport {
            key: key.clone(),
            age_nanos: sending.map(|epoch| now.saturating_sub(epoch.since)),
            handshakes: association.agreed(),
            refused: *refused,
            refusal: refusal.map(|reason| reason.to_string()).unwrap_or_default(),
        }
    }
}
