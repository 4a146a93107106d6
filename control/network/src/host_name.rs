//! Host names, as opposed to addresses.

use std::net::IpAddr;

/// Longest name and longest label (RFC 1035, section 2.3.4).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// Whether this is a host name rather than an address, even a mistyped one.
pub fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let fits = (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(plain);
        fits && !label.starts_with('-') && !label.ends_with('-')
    };
    let bare = text.strip_suffix('.').unwrap_or(text);
    // No top-level domain is numeric, and a resolver accepts some numbers as addresses.
    let is_number = |label: &str| {
        let digits = label.strip_prefix("0x").unwrap_or(label);
        digits.bytes().all(|byte| byte.is_ascii_hexdigit())
            && label.starts_with(|it: char| it.is_ascii_digit())
    };
    bare.len() <= NAME_BYTES_MAX
        && bare.split('.').all(is_label)
        && !bare.rsplit('.').next().is_some_and(is_number)
        && text.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_addresses_and_their_misspellings() {
        for name in ["relay", "b.example", "b.example.", "_x.y-z.example", "4u.example", "a1"] {
            assert!(is_host_name(name), "{name}");
        }
        let long = format!("{}.example", "a".repeat(64));
        let not = ["", ".", "10.0.2.256", "10.0.1", "1", "0x7f", "fd00::1", "a b", "-a", "a..b"];
        for name in not.into_iter().chain(["10.0.1.1/24", "b.example:80", "[::1]", &long]) {
            assert!(!is_host_name(name), "{name}");
        }
    }
}
