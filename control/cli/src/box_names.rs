//! Names of boxes in place of addresses: users know the names, and some addresses are
//! placeholders.

use recoded_api::v1::State;
use std::collections::BTreeMap;

/// A box by its name and its place. Either may be all that is known.
pub fn named_box(name: &str, place: &str) -> String {
    let bare = place.rsplit(':').next().and_then(|place| place.split('#').next());
    let has_name = bare == Some(name);
    if name.is_empty() || has_name { place.to_owned() } else { format!("{name} ({place})") }
}

/// Names of the neighbours of a daemon, by link:address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BoxNames(BTreeMap<String, String>);

impl BoxNames {
    /// The names that the configuration of a daemon has.
    pub fn of(state: &State) -> BoxNames {
        let named = state.links.iter().flat_map(|link| {
            let neighbours = link.neighbours.iter().filter(|it| !it.name.is_empty());
            neighbours.map(move |it| (format!("{}:{}", link.name, it.address), it.name.clone()))
        });
        BoxNames(named.collect())
    }

    /// The name of a neighbour. One of several paths to a box has its link, too; a neighbour
    /// without a name has link:address.
    pub fn short(&self, hop: &str) -> String {
        let Some(name) = self.0.get(hop) else { return hop.to_owned() };
        if self.0.values().filter(|other| *other == name).count() == 1 {
            return name.clone();
        }
        let link = |hop: &str| hop.split(':').next().map(str::to_owned);
        let same = |(other, of): &(&String, &String)| *of == name && link(other) == link(hop);
        match (self.0.iter().filter(same).count(), link(hop)) {
            (1, Some(link)) => format!("{name} on {link}"),
            _ if !hop.contains(&format!(":{name}#")) => self.full(hop),
            // Its name has the number of the path.
            _ => hop.to_owned(),
        }
    }

    /// The name and the address of a neighbour, as far as they are known.
    pub fn full(&self, hop: &str) -> String {
        self.0.get(hop).map_or_else(|| hop.to_owned(), |name| named_box(name, hop))
    }

    /// A text with names in front of the addresses of neighbours.
    pub fn in_text(&self, text: &str) -> String {
        let named = |word: &str| {
            let bare = word.trim_end_matches([',', ':', ';', '.']);
            format!("{}{}", self.full(bare), &word[bare.len()..])
        };
        text.split(' ').map(named).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_api::v1::{Link, Neighbour};

    fn names(neighbours: &[(&str, &str, &str)]) -> BoxNames {
        let link = |(link, address, name): &(&str, &str, &str)| Link {
            name: (*link).into(),
            neighbours: vec![Neighbour {
                address: (*address).into(),
                name: (*name).into(),
                ..Neighbour::default()
            }],
            ..Link::default()
        };
        BoxNames::of(&State {
            links: neighbours.iter().map(link).collect(),
            ..crate::fixed::state()
        })
    }

    #[test]
    fn name_stands_for_an_address_and_beside_it_in_texts() {
        let names = names(&[("wan", "10.0.2.1", "b"), ("lan", "c", "c"), ("wan", "10.0.2.9", "")]);
        assert_eq!(names.short("wan:10.0.2.1"), "b");
        assert_eq!(names.short("wan:10.0.2.9"), "wan:10.0.2.9");
        let text = "wan:10.0.2.1 is silent; see lan:c, wan:10.0.2.9: and wan:10.0.2.10";
        let named = "b (wan:10.0.2.1) is silent; see lan:c, wan:10.0.2.9: and wan:10.0.2.10";
        assert_eq!(names.in_text(text), named);
    }

    #[test]
    fn paths_to_one_box_are_told_apart_by_link_or_address() {
        let links = [("dsl", "10.0.1.1", "hub"), ("lte", "10.0.2.1", "hub")];
        assert_eq!(names(&links).short("lte:10.0.2.1"), "hub on lte");
        let addresses = [("dsl", "10.0.1.1", "hub"), ("dsl", "10.0.2.1", "hub")];
        assert_eq!(names(&addresses).short("dsl:10.0.2.1"), "hub (dsl:10.0.2.1)");
        let awaited = names(&[("wan", "home#0", "home"), ("wan", "home#1", "home")]);
        assert_eq!(awaited.short("wan:home#1"), "wan:home#1");
        assert_eq!(awaited.in_text("wan:home#1 is silent"), "wan:home#1 is silent");
    }
}
