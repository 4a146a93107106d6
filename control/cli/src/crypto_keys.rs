//! `genkey`, `pubkey`, `genpsk`: keys in the text form of WireGuard, on standard input and output.
//! Nothing is written to a file, and secrets are cleared from memory.

use std::io::{self, Read};

use recoded_secure::{Entropy, KeyError, PresharedKey, PrivateKey};
use zeroize::Zeroizing;

/// Bytes of standard input that are read: a key has 44.
const INPUT_BYTES_MAX: u64 = 256;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("cannot read standard input ({0}): recodectl pubkey < private.key")]
    Input(#[from] io::Error),
    #[error("Linux gives no random bytes: {0}")]
    Random(String),
}

/// A new private key.
pub fn private() -> Result<String, KeysError> {
    Ok(line(&PrivateKey::generate(&fresh()?).to_text()))
}

/// A new pre-shared key.
pub fn preshared() -> Result<String, KeysError> {
    Ok(line(&PresharedKey::generate(&fresh()?).to_text()))
}

/// The public key of the private key in `input`.
pub fn public(input: impl Read) -> Result<String, KeysError> {
    let mut text = Zeroizing::new(String::with_capacity(INPUT_BYTES_MAX as usize));
    input.take(INPUT_BYTES_MAX).read_to_string(&mut text)?;
    let key: PrivateKey = text.parse()?;
    Ok(line(&key.public().to_string()))
}

fn fresh() -> Result<Entropy, KeysError> {
    Entropy::fresh().map_err(|error| KeysError::Random(error.to_string()))
}

fn line(text: &str) -> String {
    format!("{text}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_keys_differ_and_have_a_public_half() {
        let keys = [private().expect("a key"), private().expect("a key")];
        assert_ne!(keys[0], keys[1]);
        let publics = keys.map(|key| public(key.as_bytes()).expect("a public half"));
        assert_ne!(publics[0], publics[1]);
        assert!(publics.iter().all(|key| key.len() == 45 && key.ends_with("=\n")));
        assert_ne!(preshared().expect("a key"), preshared().expect("a key"));
    }

    #[test]
    fn input_that_is_no_key_is_a_typed_error() {
        for input in ["", "no key", &"A".repeat(5000)] {
            let refused = public(input.as_bytes());
            assert!(matches!(refused, Err(KeysError::Key(KeyError::Text))), "{input}");
        }
        assert!(matches!(public(&[0xFF, 0xFE][..]), Err(KeysError::Input(_))));
    }
}
