//! Builds use locked versions only: every third-party crate comes from the registry, with the
//! checksum of its archive, which cargo compares. No moving branches, no folders elsewhere.

use super::Finding;

/// The only allowed source of third-party crates.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The line before the figures of each crate.
const BEGINS: &str = "\n[[package]]\n";

/// Digits of a checksum.
const CHECKSUM_DIGITS: usize = 64;

/// Checks a lock file of cargo. Crates without a source are folders of this repository: there is no
/// `[patch]` and no path outside it, so cargo refuses others.
pub fn check(file: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut start = 0;
    for package in text.split_inclusive(BEGINS) {
        // Newlines before it: the line number of its start.
        let line = text[..start].matches('\n').count();
        start += package.len();
        let value = |key: &str| {
            let found = package.lines().find_map(|it| it.strip_prefix(key)?.strip_prefix(" = \""));
            found.and_then(|it| it.strip_suffix('"'))
        };
        let name = value("name").unwrap_or_default();
        let mut wrong = |what: String| findings.push(Finding::new(file, Some(line), what));
        match (value("source"), value("checksum")) {
            (Some(source), _) if source != REGISTRY => {
                wrong(format!("{name} comes from {source}, not from the registry"));
            }
            (Some(_), checksum) => {
                let is_checksum = |it: &str| {
                    it.len() == CHECKSUM_DIGITS && it.bytes().all(|digit| digit.is_ascii_hexdigit())
                };
                if !checksum.is_some_and(is_checksum) {
                    wrong(format!("{name} has no checksum: any archive would do"));
                }
            }
            (None, _) => {}
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(source: &str, checksum: &str) -> String {
        format!(
            "# written by cargo\nversion = 4\n\n[[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n\n\
             [[package]]\nname = \"theirs\"\nversion = \"1.0.0\"\nsource = \"{source}\"\n{checksum}"
        )
    }

    #[test]
    fn crates_from_the_registry_with_a_checksum_are_fine() {
        let checksum = format!("checksum = \"{}\"\n", "0f".repeat(32));
        assert_eq!(check("Cargo.lock", &lock(REGISTRY, &checksum)), []);
    }

    #[test]
    fn other_sources_and_missing_checksums_are_named_with_their_line() {
        let checksum = format!("checksum = \"{}\"\n", "0f".repeat(32));
        for (source, checksum, said) in [
            ("git+https://example.org/theirs?branch=main#0123", &checksum[..], "comes from git+"),
            ("registry+https://example.org/index", &checksum[..], "comes from registry+"),
            (REGISTRY, "", "no checksum"),
            (REGISTRY, "checksum = \"0f\"\n", "no checksum"),
        ] {
            let findings = check("Cargo.lock", &lock(source, checksum));
            assert_eq!(findings.len(), 1, "{source} {checksum}");
            assert!(findings[0].message.contains(said), "{}", findings[0].message);
            assert_eq!(findings[0].line, Some(8), "the package begins there");
        }
    }
}
