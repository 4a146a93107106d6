//! Removes keys from text, by their form and by their names.

use sha2::{Digest, Sha256};

/// Characters of a 32-byte key in base64, without the `=` at its end.
const BASE64_CHARACTERS: usize = 43;

/// The same in hexadecimal.
const HEX_CHARACTERS: usize = 64;

/// Names before `=` or `:` that indicate a secret.
const NAMES: [&str; 8] =
    ["private", "preshared", "psk", "secret", "password", "passwd", "token", "passphrase"];

/// Returns the text without keys. Equal keys become equal words, so that a reader sees which match;
/// three bytes of a hash reveal nothing about the key.
pub fn redact(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        clean.push_str(&by_form(&by_name(line)));
    }
    clean
}

/// Removes a value after a secret's name, unless it is a path.
fn by_name(line: &str) -> String {
    let Some((name, value)) = line.split_once(['=', ':']) else { return line.to_owned() };
    let lower = name.to_ascii_lowercase();
    let value_text = value.trim().trim_start_matches(['"', '\'', '\\']);
    let is_harmless = value_text.is_empty() || value_text.starts_with(['/', '{', '[']);
    // A sentence about a key does not contain it.
    let is_name = name.split_whitespace().count() <= 2;
    if is_harmless || !is_name || !NAMES.iter().any(|word| lower.contains(word)) {
        return line.to_owned();
    }
    let end = if line.ends_with('\n') { "\n" } else { "" };
    let separator = &line[name.len()..=name.len()];
    format!("{name}{separator} [removed]{end}")
}

/// Removes anything that has the form of a key.
fn by_form(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find(is_of_key) {
        clean.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.find(|c| !is_of_key(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let is_hex = word.len() == HEX_CHARACTERS && word.chars().all(|c| c.is_ascii_hexdigit());
        let is_padded = after.starts_with('=') && word.len() >= BASE64_CHARACTERS;
        if is_hex || is_padded || word.len() == BASE64_CHARACTERS {
            clean.push_str(&named(word));
            rest = after.strip_prefix('=').filter(|_| is_padded).unwrap_or(after);
        } else {
            clean.push_str(word);
            rest = after;
        }
    }
    clean.push_str(rest);
    clean
}

fn is_of_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '-' | '_')
}

fn named(key: &str) -> String {
    let hash = Sha256::digest(key.as_bytes());
    format!("[key {:02x}{:02x}{:02x}]", hash[0], hash[1], hash[2])
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";

    #[test]
    fn keys_go_wherever_they_stand_and_equal_ones_are_seen_to_be_equal() {
        let bare = KEY.trim_end_matches('=');
        let hex = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ac177fba51db92c2a";
        let places = [
            format!("{KEY}\n"),
            format!("public_key = \"{KEY}\"\n"),
            format!("{{\"key\":\"{KEY}\",\"age\":1}}"),
            format!("the key {KEY}, and {KEY}"),
            format!("x={bare} y"),
            format!("PrivateKey={KEY}"),
            format!("PRIVATE_KEY: {hex}"),
            format!("hex {hex}."),
            format!("/{KEY}"),
        ];
        for place in places {
            let clean = redact(&place);
            assert!(!clean.contains(bare) && !clean.contains(hex), "{clean}");
        }
        let named = redact(KEY);
        assert!(named.starts_with("[key ") && named.len() == 12, "{named}");
        assert_eq!(redact(&format!("a \"{KEY}\"")), format!("a \"{named}\""));
        assert_ne!(redact(&KEY.replace('d', "e")), named);
    }

    #[test]
    fn secrets_go_by_their_names_and_everything_else_stays() {
        assert_eq!(redact("password = hunter2\n"), "password = [removed]\n");
        assert_eq!(redact("  api_token: abc\nx\n"), "  api_token: [removed]\nx\n");
        let harmless = [
            "private_key = \"/etc/recoded/private.key\"\n",
            "2026-11-23 07:45:12 link east: eth1 is down\n",
            "auth: none: packets are not encrypted (recodectl genkey makes a private key)\n",
            "[key.d]\nworkers = 2\n",
            "\u{20ac} = ==\n\n",
            "",
        ];
        for text in harmless {
            assert_eq!(redact(text), text);
        }
    }
}
