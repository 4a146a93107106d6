//! Keys that sign and verify bundles: Ed25519 (RFC 8032), 32 bytes in base64 like all Recoded keys.

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use recoded_secure::{Entropy, KeyError, PrivateKey};
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// The private half. It stays with the operator; no box has it.
pub struct Signer(Ed25519KeyPair);

impl Signer {
    /// Derives a key from 32 random bytes.
    pub fn from_seed(seed: &[u8; 32]) -> Signer {
        Signer(Ed25519KeyPair::from_seed_unchecked(seed).expect("32 bytes are a seed"))
    }

    /// The public half.
    pub fn verifier(&self) -> Verifier {
        let public = self.0.public_key().as_ref();
        Verifier(public.try_into().expect("public keys have 32 bytes"))
    }

    /// The signature of `message`.
    pub fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.0.sign(message).as_ref().try_into().expect("signatures have 64 bytes")
    }
}

impl FromStr for Signer {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Signer, KeyError> {
        Ok(Signer::from_seed(&*bytes(text)?))
    }
}

/// A new private key as text.
///
/// # Errors
///
/// Linux provides no random bytes; its error.
pub fn generate() -> Result<Zeroizing<String>, String> {
    let entropy = Entropy::fresh().map_err(|error| error.to_string())?;
    // Any 32 bytes are a seed; these have 251 random bits.
    Ok(PrivateKey::generate(&entropy).to_text())
}

/// The public half, which every box has.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Verifier([u8; 32]);

impl Verifier {
    /// Whether the owner of the private half signed `message`.
    pub fn verify(&self, message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(message, signature).is_ok()
    }
}

impl FromStr for Verifier {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Verifier, KeyError> {
        Ok(Verifier(*bytes(text)?))
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&STANDARD.encode(self.0))
    }
}

fn bytes(text: &str) -> Result<Zeroizing<[u8; 32]>, KeyError> {
    let decoded = Zeroizing::new(STANDARD.decode(text.trim()).map_err(|_| KeyError::Text)?);
    let bytes: [u8; 32] = decoded.as_slice().try_into().map_err(|_| KeyError::Text)?;
    Ok(Zeroizing::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unhex<const N: usize>(text: &str) -> [u8; N] {
        let byte = |at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
        std::array::from_fn(byte)
    }

    /// RFC 8032, 7.1, test 2.
    #[test]
    fn signature_of_rfc_8032_matches() {
        let seed = unhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb");
        let public = unhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
        let signature = unhex(
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
             085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        );
        let signer = Signer::from_seed(&seed);
        assert_eq!(signer.verifier(), Verifier(public));
        assert_eq!(signer.sign(&[0x72]), signature);
        assert!(Verifier(public).verify(&[0x72], &signature));
        assert!(!Verifier(public).verify(&[0x73], &signature));
    }

    #[test]
    fn keys_go_through_text_and_other_text_is_a_typed_error() {
        let text = generate().unwrap();
        let signer: Signer = text.parse().unwrap();
        let public = signer.verifier().to_string();
        assert_eq!(public.parse::<Verifier>().unwrap(), signer.verifier());
        assert_ne!(*generate().unwrap(), *text);
        for text in ["", "no key", &"A".repeat(5000), "AAAA"] {
            assert!(matches!(text.parse::<Verifier>(), Err(KeyError::Text)), "{text}");
        }
    }
}
