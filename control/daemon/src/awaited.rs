//! Names in place of the placeholder addresses of neighbours that have not sent yet.

use recoded_api::v1::Neighbour;
use std::net::IpAddr;

/// Replaces the placeholder address of a neighbour, and by link:name where the dataplane speaks of
/// it.
pub fn name_awaited(neighbour: &mut Neighbour, placeholder: IpAddr, link: &str, name: String) {
    let (placeholder, hop) = (placeholder.to_string(), format!("{link}:{name}"));
    for it in &mut neighbour.disagreements {
        it.cause = with_name(&it.cause, &placeholder, &hop);
        it.cure = with_name(&it.cure, &placeholder, &hop);
    }
    neighbour.address = name;
}

/// Replaces an address where it is not a part of a longer one.
fn with_name(text: &str, address: &str, name: &str) -> String {
    let is_of_address = |it: char| it.is_ascii_alphanumeric() || it == '.';
    let ends_before = |text: &str| !text.ends_with(|it| is_of_address(it) || it == ':');
    // A full stop or a colon may follow an address; another digit behind it may not.
    let begins_after = |text: &str| {
        let mut after = text.chars();
        match after.next() {
            Some('.' | ':') => !after.next().is_some_and(is_of_address),
            next => !next.is_some_and(is_of_address),
        }
    };
    let mut named = String::new();
    let mut copied = 0;
    for (at, found) in text.match_indices(address) {
        let end = at + found.len();
        if ends_before(&text[..at]) && begins_after(&text[end..]) {
            named += &text[copied..at];
            named += name;
            copied = end;
        }
    }
    named + &text[copied..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_api::v1::Disagreement;

    /// The name once stood for the end of 10.0.0.1, too, and not before a comma.
    #[test]
    fn name_replaces_whole_addresses_only() {
        let cause = "0.0.0.1 sends flow 7 to 10.0.0.1 and 0.0.0.12, not 0.0.0.1: 0.0.0.1, 0.0.0.1.";
        let cause = cause.to_owned();
        let disagreement = Disagreement { cause, ..Disagreement::default() };
        let mut neighbour = Neighbour { disagreements: vec![disagreement], ..Neighbour::default() };
        name_awaited(
            &mut neighbour,
            "0.0.0.1".parse().expect("an address"),
            "wan",
            "laptop".into(),
        );
        let named = "wan:laptop sends flow 7 to 10.0.0.1 and 0.0.0.12, not wan:laptop: wan:laptop, wan:laptop.";
        assert_eq!(neighbour.disagreements[0].cause, named);
        assert_eq!(neighbour.address, "laptop");
    }
}
