//! The token: what a new box must know of the hub, in one word that can be copied.
//!
//! ```text
//!  recoded1_ base64url( length 2 | expiry 8 | port 2 | public key of the hub 32 | secret 32
//!                       | address or name of the hub | first 4 bytes of SHA-256 )
//! ```
//!
//! The length shows a token that was cut off, the sum one with a wrong character. The private key
//! of no box is in it.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use recoded_secure::{PresharedKey, PublicKey};
use sha2::{Digest, Sha256};
use std::str::FromStr;
use zeroize::Zeroizing;

/// Name and version of this form.
const PREFIX: &str = "recoded1_";

/// Every version.
const FAMILY: &str = "recoded";

/// Shortest and longest content: without a place, and with the longest name (RFC 1035, section
/// 2.3.4).
const BYTES_MIN: usize = 2 + 8 + 2 + 32 + 32 + SUM_BYTES;
const BYTES_MAX: usize = BYTES_MIN + 255;

const SUM_BYTES: usize = 4;

/// Why a text is no token. Messages omit it: it may have a secret.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    /// Something else.
    #[error(
        "this is no token: copy the word behind `recodectl join` that recodectl invite printed on \
         the hub; it begins with {PREFIX}"
    )]
    None,
    /// Another form.
    #[error(
        "this token is of another version of Recoded: install the same version on both boxes, and \
         repeat recodectl invite"
    )]
    Version,
    /// Its end is missing.
    #[error(
        "the token is cut off, {missing} of its {length} characters are missing: copy all of it"
    )]
    CutOff {
        /// Characters that are missing.
        missing: usize,
        /// Characters of the whole.
        length: usize,
    },
    /// Something follows.
    #[error("{0} characters too many are behind the token: copy the token alone")]
    Long(usize),
    /// A wrong character.
    #[error("a character of the token is wrong: copy it again instead of typing it")]
    Mistyped,
}

/// An invitation as the new box reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// When it expires by the hub's clock, in seconds since 1970; for messages only.
    pub expiry: u64,
    /// TCP port of the hub.
    pub port: u16,
    /// Public key of the hub.
    pub hub: PublicKey,
    /// The secret that serves once.
    pub secret: PresharedKey,
    /// Address or host name of the hub.
    pub place: String,
}

impl Token {
    /// The text.
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(vec![0; 2]);
        bytes.extend(self.expiry.to_be_bytes());
        bytes.extend(self.port.to_be_bytes());
        bytes.extend(self.hub.bytes());
        bytes.extend(&*secret_bytes(&self.secret));
        bytes.extend(self.place.as_bytes());
        let length = (bytes.len() + SUM_BYTES) as u16;
        bytes[..2].copy_from_slice(&length.to_be_bytes());
        let sum = sum(&bytes);
        bytes.extend(sum);
        Zeroizing::new(format!("{PREFIX}{}", *Zeroizing::new(URL_SAFE_NO_PAD.encode(&*bytes))))
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Token, TokenError> {
        // Terminals break long lines.
        let text: String = text.chars().filter(|it| !it.is_ascii_whitespace()).collect();
        let text = Zeroizing::new(text);
        let body = match text.strip_prefix(PREFIX) {
            Some(body) => body,
            None => return Err(without_prefix(&text)),
        };
        if !body.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-' || it == b'_') {
            return Err(TokenError::Mistyped);
        }
        let length = match body.get(..4).map(|head| URL_SAFE_NO_PAD.decode(head)) {
            Some(Ok(head)) => usize::from(u16::from_be_bytes([head[0], head[1]])),
            Some(Err(_)) => return Err(TokenError::Mistyped),
            None => return Err(cut_off(body.len(), BYTES_MIN)),
        };
        if !(BYTES_MIN..=BYTES_MAX).contains(&length) {
            return Err(TokenError::Mistyped);
        }
        match body.len().checked_sub(characters(length)) {
            Some(0) => {}
            Some(more) => return Err(TokenError::Long(more)),
            None => return Err(cut_off(body.len(), length)),
        }
        let bytes = URL_SAFE_NO_PAD.decode(body).map_err(|_| TokenError::Mistyped)?;
        let bytes = Zeroizing::new(bytes);
        let (content, found) = bytes.split_at(length - SUM_BYTES);
        if sum(content) != found {
            return Err(TokenError::Mistyped);
        }
        content_of(&content[2..]).ok_or(TokenError::Version)
    }
}

fn without_prefix(text: &str) -> TokenError {
    let rest = text.strip_prefix(FAMILY).map(|rest| rest.trim_start_matches(char::is_numeric));
    match rest {
        Some(rest) if rest.starts_with('_') => TokenError::Version,
        _ if !text.is_empty() && PREFIX.starts_with(text) => cut_off(0, BYTES_MIN),
        _ => TokenError::None,
    }
}

fn cut_off(present: usize, length: usize) -> TokenError {
    let length = characters(length);
    TokenError::CutOff { missing: length.saturating_sub(present), length: PREFIX.len() + length }
}

/// Characters of base64 without padding.
fn characters(bytes: usize) -> usize {
    (bytes * 8).div_ceil(6)
}

/// Reads content whose sum is right.
fn content_of(mut bytes: &[u8]) -> Option<Token> {
    let expiry = u64::from_be_bytes(*take(&mut bytes)?);
    let port = u16::from_be_bytes(*take(&mut bytes)?);
    let hub = PublicKey::new(*take(&mut bytes)?).ok()?;
    let secret = Zeroizing::new(STANDARD.encode(take::<32>(&mut bytes)?));
    let place = std::str::from_utf8(bytes).ok().filter(|place| !place.is_empty())?.to_owned();
    Some(Token { expiry, port, hub, secret: secret.parse().ok()?, place })
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(first)
}

fn secret_bytes(secret: &PresharedKey) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(STANDARD.decode(secret.to_text().as_bytes()).unwrap_or_default())
}

fn sum(bytes: &[u8]) -> [u8; SUM_BYTES] {
    let digest = Sha256::digest(bytes);
    std::array::from_fn(|at| digest[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_secure::{Entropy, PrivateKey};

    fn token() -> Token {
        Token {
            expiry: 1_800_000_000,
            port: 9426,
            hub: PrivateKey::generate(&Entropy::new([1; 64])).public(),
            secret: PresharedKey::generate(&Entropy::new([2; 64])),
            place: "vpn.example.net".into(),
        }
    }

    #[test]
    fn token_survives_its_text_also_broken_into_lines() {
        let text = token().to_text();
        assert!(text.len() < 180, "{} characters", text.len());
        assert_eq!(text.parse(), Ok(token()));
        let broken = format!(" {}\n  {}\n", &text[..80], &text[80..]);
        assert_eq!(broken.parse(), Ok(token()));
        assert!(!format!("{:?}", token()).contains(&text[70..80]), "debug shows no secret");
    }

    #[test]
    fn every_cut_and_every_wrong_character_is_named() {
        let text = token().to_text();
        for length in 1..text.len() {
            let cut = text[..length].parse::<Token>();
            assert!(matches!(cut, Err(TokenError::CutOff { .. })), "{length}: {cut:?}");
        }
        for at in PREFIX.len()..text.len() {
            let mut wrong = text.as_bytes().to_vec();
            wrong[at] = if wrong[at] == b'A' { b'B' } else { b'A' };
            let wrong = String::from_utf8(wrong).unwrap();
            // A wrong length is taken for one of these.
            let refused = wrong.parse::<Token>().unwrap_err();
            let is_length = at < PREFIX.len() + 3 && refused != TokenError::None;
            assert!(is_length || refused == TokenError::Mistyped, "{at}: {refused:?}");
        }
        for (text, error) in [
            (format!("{}x", *text), TokenError::Long(1)),
            (text.replacen("1_", "2_", 1), TokenError::Version),
            (text.replacen('_', "*", 1), TokenError::None),
            (format!("{PREFIX}{}", "!".repeat(120)), TokenError::Mistyped),
            ("hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=".into(), TokenError::None),
            (String::new(), TokenError::None),
        ] {
            assert_eq!(text.parse::<Token>(), Err(error), "{text}");
        }
    }

    /// The sum is no protection: any content may have a right one.
    #[test]
    fn content_that_does_not_fit_is_refused() {
        let with = |content: &[u8]| {
            let length = (content.len() + 2 + SUM_BYTES) as u16;
            let mut bytes = [&length.to_be_bytes(), content].concat();
            bytes.extend(sum(&bytes));
            format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)).parse::<Token>()
        };
        let key = *token().hub.bytes();
        let head = [&[0; 10][..], &key[..], &[7; 32]].concat();
        let content = |rest: &[u8]| [&head[..], rest].concat();
        assert!(with(&content(b"a")).is_ok());
        assert_eq!(with(&content(b"")), Err(TokenError::Version), "no place");
        assert_eq!(with(&content(b"a\xff")), Err(TokenError::Version), "no text");
        assert_eq!(with(&[0; 75]), Err(TokenError::Version), "no public key");
    }
}
