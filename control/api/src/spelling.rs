//! Misspelt keys: the known one that is probably meant. Parsers of both kinds of files and `set`
//! share it.

/// Edits between a misspelt key and the known one: a third one only guesses.
const EDITS_MAX: usize = 2;

/// Longest key that is compared: time and memory grow with its length.
const BYTES_MAX: usize = 64;

/// Keys of other programs, which no number of edits reaches.
const ALIASES: [(&str, &str); 5] =
    [("addr", "at"), ("address", "at"), ("ip", "at"), ("addr", "address"), ("ip", "address")];

/// The known key that `key` probably means. Brackets of a known one, as in `[boxes]`, do not count.
pub fn nearest<'a>(key: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if key.len() > BYTES_MAX {
        return None;
    }
    let known: Vec<&str> = known.into_iter().collect();
    let bare = |known: &str| known.trim_matches(['[', ']']).to_owned();
    let edits = |known: &str| strsim::osa_distance(key, &bare(known));
    let nearest = known.iter().copied().min_by_key(|known| edits(known));
    // Two edits turn any key of two letters into any other.
    let is_near = |known: &&str| edits(known) <= EDITS_MAX.min(bare(known).len().saturating_sub(1));
    let means = |known: &&str| ALIASES.contains(&(key, &bare(known)));
    nearest.filter(is_near).or_else(|| known.iter().copied().find(means))
}

/// The suggestion in the hint of a message: `did you mean at?`.
pub fn did_you_mean(known: &str) -> String {
    format!("did you mean {known}?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_keys_are_recognised_and_others_are_not() {
        let known = ["at", "tunnel", "redundancy", "[boxes]", "[[path]]", "mtu"];
        for (key, expected) in [
            ("tunel", Some("tunnel")),
            ("tunnle", Some("tunnel")),
            ("reduncancy", Some("redundancy")),
            ("addr", Some("at")),
            ("att", Some("at")),
            ("box", Some("[boxes]")),
            ("paths", Some("[[path]]")),
            ("id", None),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(key, known), expected, "{key}");
        }
        assert_eq!(nearest(&"x".repeat(BYTES_MAX + 1), known), None);
        assert_eq!(nearest("tunel", []), None);
    }
}
