//! The signed configuration of one node, as text that can be read with `less`.
//!
//! ```text
//!  recoded bundle 1 <signature of what follows, and of this line's first three words, in base64>
//!  node a
//!  version 1790000000
//!  <empty line>
//!  <recoded.toml>
//! ```
//!
//! The signature covers the node, so that another box refuses the bundle, and the version, which
//! never decreases on a box. A bundle carries no secret: private keys stay in files of the box,
//! which the configuration names.

use crate::key::{SIGNATURE_BYTES, Signer, Verifier};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Largest configuration in a bundle, in bytes: as much as the daemon reads.
pub const CONFIGURATION_BYTES_MAX: usize = 1 << 20;

/// Largest bundle, in bytes: a configuration and the lines above it.
pub const BUNDLE_BYTES_MAX: usize = CONFIGURATION_BYTES_MAX + 512;

/// Longest name of a node, in bytes, as in `net.toml`.
pub const NODE_BYTES_MAX: usize = 32;

/// Prefix of every bundle, and of every signed text, so that the signature is valid for nothing
/// else.
const MAGIC: &str = "recoded bundle 1 ";

/// A configuration with valid signature, node and form. Created only by [`Bundle::open`] and
/// [`Bundle::new`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bundle {
    node: String,
    version: u64,
    configuration: String,
}

/// Why a bundle is invalid, or not for this node.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BundleError {
    /// Longer than [`BUNDLE_BYTES_MAX`].
    #[error(
        "it is larger than {BUNDLE_BYTES_MAX} bytes: a configuration has at most \
         {CONFIGURATION_BYTES_MAX}"
    )]
    TooLarge,
    /// Another format, or truncated.
    #[error("it is not a bundle ({0}): recoded-agent sign makes them")]
    Form(&'static str),
    /// The signature does not match text and key.
    #[error(
        "the signature is wrong: it was changed in transit, or signed with another key than \
         public_key"
    )]
    Signature,
    /// It is for another node.
    #[error("it is for node {found}, and this is node {expected}")]
    Node {
        /// Its node.
        found: String,
        /// The name of this node.
        expected: String,
    },
}

impl Bundle {
    /// A configuration for `node`. Versions of a node must increase.
    ///
    /// # Errors
    ///
    /// [`BundleError::TooLarge`], and [`BundleError::Form`] for an invalid name.
    pub fn new(node: &str, version: u64, configuration: &str) -> Result<Bundle, BundleError> {
        if configuration.len() > CONFIGURATION_BYTES_MAX {
            return Err(BundleError::TooLarge);
        }
        if !is_node(node) {
            return Err(BundleError::Form("the name of the node"));
        }
        let (node, configuration) = (node.to_owned(), configuration.to_owned());
        Ok(Bundle { node, version, configuration })
    }

    /// The bundle as text, signed.
    pub fn sign(&self, signer: &Signer) -> String {
        let Bundle { node, version, configuration } = self;
        let rest = format!("node {node}\nversion {version}\n\n{configuration}");
        let signature = STANDARD.encode(signer.sign(format!("{MAGIC}{rest}").as_bytes()));
        format!("{MAGIC}{signature}\n{rest}")
    }

    /// Returns the bundle in `bytes`, if the owner of the key signed it for `node`.
    ///
    /// # Errors
    ///
    /// Each case of [`BundleError`]. Before the signature is verified, only the size and the first
    /// line are examined.
    pub fn open(bytes: &[u8], node: &str, verifier: &Verifier) -> Result<Bundle, BundleError> {
        let bundle = Bundle::open_any(bytes, verifier)?;
        if bundle.node != node {
            let (found, expected) = (bundle.node, node.to_owned());
            return Err(BundleError::Node { found, expected });
        }
        Ok(bundle)
    }

    /// The same for any node.
    ///
    /// # Errors
    ///
    /// As [`Bundle::open`].
    pub fn open_any(bytes: &[u8], verifier: &Verifier) -> Result<Bundle, BundleError> {
        if bytes.len() > BUNDLE_BYTES_MAX {
            return Err(BundleError::TooLarge);
        }
        let text = str::from_utf8(bytes).map_err(|_| BundleError::Form("not UTF-8"))?;
        let after = text.strip_prefix(MAGIC).ok_or(BundleError::Form("the first words"))?;
        let (signature, rest) = after.split_once('\n').ok_or(BundleError::Form("one line"))?;
        let signature: [u8; SIGNATURE_BYTES] = STANDARD
            .decode(signature)
            .ok()
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or(BundleError::Form("the signature"))?;
        if !verifier.verify(format!("{MAGIC}{rest}").as_bytes(), &signature) {
            return Err(BundleError::Signature);
        }
        let form = BundleError::Form("node and version");
        let (head, configuration) = rest.split_once("\n\n").ok_or(form.clone())?;
        let (node, version) = head.split_once('\n').ok_or(form.clone())?;
        let node = node.strip_prefix("node ").ok_or(form.clone())?;
        let version = version.strip_prefix("version ").and_then(|number| number.parse().ok());
        Bundle::new(node, version.ok_or(form)?, configuration)
    }

    /// The node.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Its version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The configuration, TOML.
    pub fn configuration(&self) -> &str {
        &self.configuration
    }
}

/// Whether this is a valid name of a node, as in `net.toml`, and thus a safe file name.
pub fn is_node(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    (1..=NODE_BYTES_MAX).contains(&name.len())
        && !name.starts_with('-')
        && name.chars().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "daemon.workers = 2\n\nlink = []\n";

    fn signer(seed: u8) -> Signer {
        Signer::from_seed(&[seed; 32])
    }

    #[test]
    fn bundle_opens_for_its_node_and_key_alone() {
        let verifier = signer(1).verifier();
        let bundle = Bundle::new("a", 7, TEXT).unwrap();
        let text = bundle.sign(&signer(1));
        assert!(text.ends_with(&format!("\nnode a\nversion 7\n\n{TEXT}")), "{text}");
        assert_eq!(Bundle::open(text.as_bytes(), "a", &verifier), Ok(bundle));
        let other = Bundle::open(text.as_bytes(), "b", &verifier);
        assert_eq!(other, Err(BundleError::Node { found: "a".into(), expected: "b".into() }));
        let other = Bundle::open(text.as_bytes(), "a", &signer(2).verifier());
        assert_eq!(other, Err(BundleError::Signature));
    }

    #[test]
    fn bundle_with_any_changed_or_missing_byte_is_refused() {
        let verifier = signer(1).verifier();
        let text = Bundle::new("a", 7, TEXT).unwrap().sign(&signer(1));
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1;
            assert!(Bundle::open(&changed, "a", &verifier).is_err(), "byte {at}");
            assert!(Bundle::open(&text.as_bytes()[..at], "a", &verifier).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn bundle_that_is_too_large_or_misnamed_is_a_typed_error() {
        let large = "#".repeat(CONFIGURATION_BYTES_MAX + 1);
        assert_eq!(Bundle::new("a", 1, &large), Err(BundleError::TooLarge));
        let most = Bundle::new(&"n".repeat(NODE_BYTES_MAX), u64::MAX, &large[1..]).unwrap();
        let text = most.sign(&signer(1));
        assert!(text.len() <= BUNDLE_BYTES_MAX);
        assert_eq!(Bundle::open_any(text.as_bytes(), &signer(1).verifier()), Ok(most));
        let more = vec![b'x'; BUNDLE_BYTES_MAX + 1];
        assert_eq!(Bundle::open_any(&more, &signer(1).verifier()), Err(BundleError::TooLarge));
        for name in ["", "-a", "a/b", "..", "a b", &"n".repeat(NODE_BYTES_MAX + 1)] {
            let form = BundleError::Form("the name of the node");
            assert_eq!(Bundle::new(name, 1, TEXT), Err(form), "{name}");
        }
    }

    /// Signed texts that are not bundles: a signer's mistake that must not cause a panic.
    #[test]
    fn signed_texts_without_node_or_version_are_refused() {
        for rest in ["", "node a\nversion x\n\n", "node a\nversion -1\n\n", "version 1\nnode a\n\n"]
        {
            let signature = signer(1).sign(format!("{MAGIC}{rest}").as_bytes());
            let text = format!("{MAGIC}{}\n{rest}", STANDARD.encode(signature));
            let opened = Bundle::open_any(text.as_bytes(), &signer(1).verifier());
            assert_eq!(opened, Err(BundleError::Form("node and version")), "{rest}");
        }
    }
}
