//! The table of keys matches the parser, and the annotated file matches the table.

use super::parse;
use super::units::{NO_DURATIONS, NO_RATES};
use crate::config::{Config, EngineChoice, code, daemon};
use crate::state;
use recoded_api::keys::{DAEMON, DefaultValue, FLOW, Key, Role, TABLES, Table, Values};
use std::collections::BTreeSet;

const ANNOTATED: &str = include_str!("../../../recoded.toml");

/// A file with one flow, as sections of keys and values, to be edited.
#[derive(Clone)]
struct File(Vec<(&'static str, Vec<(&'static str, String)>)>);

impl File {
    fn new(role: Role, code: Option<&str>) -> File {
        let of = |keys: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
            keys.iter().map(|(key, value)| (*key, (*value).to_owned())).collect()
        };
        let link = |name, interface, local| {
            ("link", of(&[("name", name), ("interface", interface), ("local", local)]))
        };
        let tunnel = ("tunnel", of(&[("name", "\"rec0\""), ("address", "\"10.99.0.1/24\"")]));
        let mut flow = of(&[("id", "1")]);
        flow.push(("role", format!("\"{}\"", role.name())));
        let required = |key: &&Key| key.default == DefaultValue::Required;
        let own = FLOW.keys.iter().filter(required).filter(|key| key.roles.contains(&role));
        flow.extend(own.filter_map(|key| match key.values {
            Values::Other(_, example) => Some((key.name, example.to_owned())),
            _ => None,
        }));
        flow.extend(code.filter(|_| role.has_code()).map(|code| ("code", format!("\"{code}\""))));
        File(vec![
            ("daemon", Vec::new()),
            link("\"west\"", "\"eth0\"", "\"10.0.1.3\""),
            link("\"east\"", "\"eth1\"", "\"10.0.2.1\""),
            tunnel,
            ("flow", flow),
        ])
    }

    /// Gives keys to the host, to its neighbours and to the other end.
    fn with_keys(mut self, role: Role) -> File {
        let key = "\"3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=\"".to_owned();
        let file = "\"/etc/recoded/other.key\"";
        let neighbour = |link: &str, address: &str| {
            let public = ("public_key", key.clone());
            ("neighbour", vec![("link", link.into()), ("address", address.into()), public])
        };
        if role != Role::Source {
            self.0.push(neighbour("\"west\"", "\"10.0.1.1\""));
        }
        if role != Role::Sink {
            self.0.push(neighbour("\"east\"", "\"10.0.2.2\""));
        }
        let edge = (role != Role::Relay).then_some(&*key);
        self.with("flow", "edge_key", edge).with("daemon", "private_key", Some(file))
    }

    /// The file with this key in the first section of that kind; removed for `None`.
    fn with(mut self, section: &str, key: &'static str, value: Option<&str>) -> File {
        let (_, keys) = self.0.iter_mut().find(|(kind, _)| *kind == section).expect("a section");
        keys.retain(|(name, _)| *name != key);
        keys.extend(value.map(|value| (key, value.to_owned())));
        self
    }

    /// The file changed so that `key` may have any of its values.
    fn with_room_for(self, key: &str) -> File {
        match key {
            "memory" => return self,
            "hold_timeout_us" => self.with("flow", "generation_timeout_us", Some("1")),
            "redundancy" => self.with("flow", "redundancy_max", Some("32")),
            // The code determines the field.
            "field" => self.with("flow", "code", Some("\"rlnc\"")),
            _ => self,
        }
        .with("daemon", "memory", Some("\"1024 GiB\""))
    }

    fn parse(&self) -> Result<Config, String> {
        let mut text = String::new();
        for (kind, keys) in &self.0 {
            text += &if *kind == "daemon" { "[daemon]\n".into() } else { format!("[[{kind}]]\n") };
            keys.iter().for_each(|(key, value)| text += &format!("{key} = {value}\n"));
        }
        parse(&text).map_err(|errors| errors.to_string())
    }
}

fn all() -> impl Iterator<Item = (&'static str, &'static Key)> {
    let keys = TABLES
        .into_iter()
        .flat_map(|Table { section, keys }| keys.iter().map(move |key| (section, key)));
    keys.filter(|(_, key)| cfg!(feature = "bats") || key.code != Some("bats"))
}

/// Roles and codes that have the key. Keys of other sections combine with any flow.
fn files(section: &str, key: &Key) -> Vec<File> {
    let roles = if key.roles.is_empty() { &Role::ALL } else { key.roles };
    let bare = |role: &Role| File::new(*role, key.code).with_room_for(key.name);
    let shared = "\"/etc/recoded/other.psk\"";
    let secure = |role: &Role| {
        let file = bare(role).with_keys(*role);
        match key.name {
            "one_way" => file.with("neighbour", "preshared_key", Some(shared)),
            "edge_one_way" => file.with("flow", "edge_preshared_key", Some(shared)),
            "sink_keys" => {
                let sinks = Some("[\"3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=\"]");
                file.with("flow", "edge_key", None).with("flow", "sink_keys", sinks)
            }
            _ => file,
        }
    };
    let of_ends = ["private_key", "edge_key", "edge_preshared_key", "edge_one_way"];
    let of_ends = of_ends.contains(&key.name);
    let needs_keys = of_ends
        || ["relay_keys", "source_key", "sink_keys", "edge_group", "edge_profile"]
            .contains(&key.name);
    match key.name {
        "auth" => roles.iter().map(bare).chain(roles.iter().map(secure)).collect(),
        _ if section == "neighbour" || needs_keys => roles.iter().map(secure).collect(),
        _ => roles.iter().map(bare).collect(),
    }
}

/// Valid values as TOML: the ends of ranges, and all that can be listed.
fn good(values: &Values) -> Vec<String> {
    match values {
        Values::Words(words) => words.iter().map(|word| format!("\"{word}\"")).collect(),
        Values::Whole(least, most) => vec![least.to_string(), most.to_string()],
        Values::Number(least, most) => vec![least.to_string(), most.to_string()],
        Values::Micros(least, most) => {
            let written = |micros: &u64| [micros.to_string(), format!("\"{micros} us\"")];
            let millis = format!("\"{} ms\"", *most as f64 / 1e3);
            [written(least), written(most)].concat().into_iter().chain([millis]).collect()
        }
        Values::Mbit(least, most) => vec![
            least.to_string(),
            most.to_string(),
            format!("\"{} kbit/s\"", least * 1e3),
            format!("\"{} Gbit/s\"", most / 1e3),
        ],
        Values::Auto(others) => [vec!["\"auto\"".to_owned()], good(others)].concat(),
        Values::Numbers(_) | Values::Truth => values.choices(),
        Values::Other(_, example) => vec![(*example).to_owned()],
    }
}

/// Values just outside the range.
fn bad(values: &Values) -> Vec<String> {
    match values {
        Values::Whole(least, most) => {
            vec![(i128::from(*least) - 1).to_string(), (most + 1).to_string()]
        }
        Values::Number(least, most) => vec![(least / 2.0).to_string(), (most * 2.0).to_string()],
        Values::Micros(least, most) => {
            let mut values = bad(&Values::Whole(*least, *most));
            values.extend(["1.5".to_owned(), "nan".to_owned(), format!("\"{} us\"", most + 1)]);
            values.extend(NO_DURATIONS.map(|text| format!("\"{text}\"")));
            values
        }
        Values::Mbit(least, most) => {
            let mut values = bad(&Values::Number(*least, *most));
            values.extend([
                "nan".to_owned(),
                "-1".to_owned(),
                format!("\"{} Mbit/s\"", most * 2.0),
            ]);
            values.extend(NO_RATES.map(|text| format!("\"{text}\"")));
            values
        }
        Values::Numbers(numbers) => {
            let most = numbers.iter().max().copied().unwrap_or(0) + 1;
            let others = (0..=most).filter(|number| !numbers.contains(number));
            others.map(|number| number.to_string()).collect()
        }
        Values::Auto(others) => [vec!["\"automatic\"".to_owned()], bad(others)].concat(),
        Values::Words(_) => vec!["\"Auto\"".to_owned(), "1".to_owned()],
        Values::Truth => vec!["1".to_owned(), "\"true\"".to_owned()],
        Values::Other(..) => vec!["false".to_owned()],
    }
}

#[test]
fn each_value_of_the_table_is_accepted_and_read_and_the_next_one_refused() {
    for (section, key) in all() {
        let Key { name, values, .. } = key;
        for value in good(values) {
            if !cfg!(feature = "bats") && value == "\"bats\"" {
                continue;
            }
            let mut accepted = 0;
            for file in files(section, key) {
                let without = file.parse();
                let Ok(with) = file.with(section, name, Some(&value)).parse() else { continue };
                accepted += 1;
                match key.default {
                    DefaultValue::Required => {}
                    DefaultValue::Is(default) if default == value => {
                        assert_eq!(Ok(with), without, "{section}: {name} = {value} by default");
                    }
                    // These files have one worker, so the default is one shard.
                    _ if *name == "shards" && value == "1" => assert_eq!(Ok(with), without),
                    // The key has no default without the key that it refers to.
                    _ if name.starts_with("edge_")
                        && ["false", "\"standard\""].contains(&value.as_str()) =>
                    {
                        assert_eq!(Ok(with), without)
                    }
                    // A private key implies this value.
                    _ if *name == "auth" && value != "\"hop\"" => assert_eq!(Ok(with), without),
                    _ => assert_ne!(Ok(with), without, "{section}: {name} = {value} has no effect"),
                }
            }
            assert!(accepted > 0, "{section}: {name} = {value} is in the table");
        }
        let is_exact = !matches!(values, Values::Other(..) | Values::Auto(Values::Number(..)));
        for value in bad(values) {
            for file in files(section, key) {
                let said = file.with(section, name, Some(&value)).parse().expect_err(name);
                assert!(said.contains(&format!("{name} = {value} ")), "{said}");
                assert!(!is_exact || said.contains(&values.in_words()), "{name}: {said}");
            }
        }
    }
}

#[test]
fn each_default_of_the_table_is_the_one_of_the_parser() {
    for (section, key) in all() {
        for file in files(section, key) {
            let without = file.parse();
            match key.default {
                DefaultValue::Required => {
                    let said = file.with(section, key.name, None).parse().expect_err(key.name);
                    assert!(said.contains(&format!("{} is missing", key.name)), "{said}");
                }
                DefaultValue::Is(value) => {
                    let with = file.with(section, key.name, Some(value)).parse();
                    assert!(with.is_ok(), "{with:?}");
                    assert_eq!(with, without, "{section}: {} = {value}", key.name);
                }
                DefaultValue::Depends(_) => assert!(without.is_ok(), "{without:?}"),
            }
        }
    }
}

#[test]
fn keys_are_refused_where_the_table_does_not_have_them() {
    for (section, key) in all() {
        let value = good(&key.values).swap_remove(0);
        let refused = |file: File, why: &str| {
            let said = file.with(section, key.name, Some(&value)).parse().expect_err(key.name);
            assert!(said.contains(&format!("{} = ", key.name)) && said.contains(why), "{said}");
        };
        for role in Role::ALL.into_iter().filter(|_| section == "flow") {
            if let Some(why) = key.why_not(role) {
                refused(File::new(role, None), &format!("does not apply: {why}"));
            }
        }
        for role in key.roles.iter().filter(|role| role.has_code()) {
            let others = ["rlnc", "stream"].into_iter().filter(|code| key.code != Some(*code));
            for (code, own) in others.filter_map(|code| key.code.map(|own| (code, own))) {
                refused(File::new(*role, Some(code)), &format!("it is for code = \"{own}\""));
            }
        }
    }
    for Table { section, .. } in TABLES {
        let file = File::new(Role::Relay, None).with_keys(Role::Relay);
        let file = file.with(section, "colour", Some("1"));
        assert!(file.parse().expect_err("no such key").contains("unknown key colour"));
    }
}

/// `recodectl show config` and `show flows` are complete.
#[test]
fn configuration_in_force_and_parameters_have_the_keys_of_role_and_code() {
    let codes = ["rlnc", "stream", "bats"].into_iter();
    let codes = codes.filter(|code| cfg!(feature = "bats") || *code != "bats").map(Some);
    for (role, code) in Role::ALL.iter().flat_map(|role| codes.clone().map(|code| (*role, code))) {
        let config = File::new(role, code).parse().expect("valid");
        let serves = |key: &Key| {
            !role.has_code() || key.code.is_none() || code.is_none_or(|code| key.is_of(code))
        };
        let own = |key: &&Key| key.roles.contains(&role) && serves(key);
        let names = |table: Table, own: &dyn Fn(&&Key) -> bool| -> BTreeSet<&str> {
            let always = |key: &&Key| !matches!(key.default, DefaultValue::Depends(_));
            table.keys.iter().filter(always).filter(own).map(|key| key.name).collect()
        };
        let text: toml::Table = config.to_toml().parse().expect("TOML");
        let written = |table: &toml::Value| -> BTreeSet<String> {
            table.as_table().expect("a section").keys().cloned().collect()
        };
        let flow = written(&text["flow"][0]);
        let own_or_shards = |key: &&Key| own(key) && key.name != "shards";
        let names_of_flow = names(FLOW, &own_or_shards);
        let flow: BTreeSet<_> = flow.into_iter().filter(|name| name != "shards").collect();
        assert!(flow.iter().eq(&names_of_flow), "{role:?} {code:?}: {flow:?}");
        let daemon = written(&text["daemon"]);
        assert!(daemon.iter().eq(&names(DAEMON, &|_| true)), "{daemon:?}");

        let shown = state::parameters(&config.flows[0]);
        let shown = serde_json::to_value(shown).expect("JSON");
        for key in FLOW.live() {
            let Some(value) = shown.get(key.name) else { continue };
            assert_eq!(!value.is_null(), own(&key), "{role:?} {code:?}: {}", key.name);
        }
    }
}

#[test]
fn words_of_the_table_are_the_parsers_words() {
    let words = |name: &str| {
        let (_, key) = all().find(|(_, key)| key.name == name).expect("a key");
        key.values.choices()
    };
    assert_eq!(words("idle"), daemon::IDLE.map(|(word, _)| word));
    assert_eq!(words("xdp_mode"), daemon::XDP_MODES.map(|(word, _)| word));
    assert_eq!(words("backend"), daemon::BACKENDS.map(|(word, _)| word));
    assert_eq!(words("engine"), EngineChoice::NAMES.map(|(word, _)| word));
    assert_eq!(words("code"), code::CODES.map(|(word, _)| word));
}

/// A key of the annotated file: section, name, value, and the comment right above it.
fn annotated() -> Vec<(&'static str, &'static str, &'static str, String)> {
    let mut keys = Vec::new();
    let (mut section, mut comment) = ("", String::new());
    for line in ANNOTATED.lines() {
        if let Some(text) = line.strip_prefix("# ") {
            comment += &format!("{} ", text.trim());
            continue;
        }
        let line = line.trim_start_matches('#');
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        } else if let Some((name, value)) = line.split_once(" = ") {
            keys.push((section, name, value, std::mem::take(&mut comment)));
        }
        comment.clear();
    }
    keys
}

#[test]
fn annotated_file_has_the_keys_of_the_table_and_their_defaults() {
    let shown = annotated();
    let names: BTreeSet<_> = shown.iter().map(|(section, name, ..)| (*section, *name)).collect();
    let known: BTreeSet<_> = TABLES
        .iter()
        .flat_map(|table| table.keys.iter().map(|key| (table.section, key.name)))
        .collect();
    assert_eq!(names, known);
    let plain = |value: &str| format!("value = {value}").parse::<toml::Table>().expect("a value");
    for (section, name, value, _) in shown {
        let table = TABLES.into_iter().find(|table| table.section == section).expect("a section");
        let key = table.find(name).expect("a key");
        if let (DefaultValue::Is(default), false) = (key.default, name == "code") {
            assert_eq!(plain(value), plain(default), "{section}: {name}");
        }
    }
}

/// The comment above the first line of each key states its roles, whether it is live, and its
/// values.
#[test]
fn annotated_file_says_who_has_a_key_and_what_it_takes() {
    let shown = annotated();
    let comment_of = |section, name| {
        let mut lines = shown.iter().filter(|(of, key, ..)| (*of, *key) == (section, name));
        lines.next().map(|(.., comment)| comment.clone()).expect("a line")
    };
    for (section, key) in all() {
        let comment = comment_of(section, key.name);
        let live = if key.is_live { "live" } else { "" };
        let owners = [key.owners(), live.to_owned()].into_iter().filter(|text| !text.is_empty());
        let begin = owners.collect::<Vec<_>>().join(", ");
        let begins = comment.to_lowercase().starts_with(&format!("{begin}: "));
        assert!(begins || begin.is_empty(), "{} is not of {begin}: {comment:?}", key.name);
        let says = |what: &str| assert!(comment.contains(what), "{}: no {what}", key.name);
        match key.values {
            Values::Words(words) => words.iter().for_each(|word| says(&format!("\"{word}\""))),
            Values::Auto(others) => {
                says("\"auto\"");
                says(&others.in_words());
            }
            Values::Other(..) => assert!(comment.len() > 10, "{} is not explained", key.name),
            Values::Truth => assert!(!comment.is_empty(), "{} is not explained", key.name),
            _ => says(&key.values.in_words()),
        }
    }
}

/// A sink sizes its batches by the default, independent of the source.
#[test]
fn redundancy_max_says_what_a_bats_sink_takes() {
    let sink = File::new(Role::Sink, None).parse().expect("valid").flows.remove(0).params;
    let key = FLOW.find("redundancy_max").expect("a key");
    let said = format!("source of code bats: its sink is sure to accept {}", sink.redundancy_max);
    assert!(key.meaning.contains(&said), "{}", key.meaning);
    let (.., comment) =
        annotated().into_iter().find(|(_, name, ..)| *name == key.name).expect("a line");
    let said = format!("room for {} packets per symbol", sink.redundancy_max);
    assert!(comment.contains(&said), "{comment}");
}

/// Words that look like keys or counters but are neither.
fn unknown_names(text: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(|c| !is_part(c)).filter(|word| word.trim_matches('_').contains('_'));
    let is_key = |word: &str| TABLES.iter().any(|table| table.find(word).is_some());
    let is_counter =
        |word: &str| recoded_counters::TABLES.iter().any(|table| table.find(word).is_some());
    words.filter(|word| !is_key(word) && !is_counter(word)).map(str::to_owned).collect()
}

/// The annotated file mentioned a drop reason that no longer existed.
#[test]
fn annotations_meanings_and_cures_name_only_keys_and_counters_that_exist() {
    assert_eq!(unknown_names("raise block_sise_max, or frames: `tx_full`"), ["block_sise_max"]);
    assert_eq!(unknown_names(ANNOTATED), [""; 0]);
    for (section, key) in all() {
        assert_eq!(unknown_names(key.meaning), [""; 0], "{section}: {}", key.name);
    }
    for counter in recoded_counters::TABLES.iter().flat_map(|table| table.counters()) {
        let text = format!("{} {}", counter.meaning, counter.cure);
        assert_eq!(unknown_names(&text), [""; 0], "{}", counter.name);
    }
}

#[test]
fn encrypted_flow_has_several_next_hops_where_they_are_paths_to_one_sink() {
    let two = "[{ link = \"east\", address = \"10.0.2.2\" }, { link = \"west\", address = \"10.0.1.1\" }]";
    let with = |spread: Option<&str>| {
        let mut file = File::new(Role::Source, None).with_keys(Role::Source);
        let key = "\"3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=\"".to_owned();
        let west = vec![
            ("link", "\"west\"".to_owned()),
            ("address", "\"10.0.1.1\"".to_owned()),
            ("public_key", key),
        ];
        file.0.push(("neighbour", west));
        file.with("flow", "next_hops", Some(two)).with("flow", "spread", spread).parse()
    };
    for spread in ["\"sum\"", "\"backup\"", "\"every\""] {
        let config = with(Some(spread)).expect("paths to one sink");
        assert!(config.flows[0].params.sealed && config.flows[0].params.tagged);
        assert_eq!(config.flows[0].params.next_hops.len(), 2);
        assert!(!config.to_toml().is_empty());
    }
    let said = with(None).expect_err("these may be sinks");
    assert!(said.contains("name their keys as sink_keys"), "{said}");
    assert!(said.contains("spread = \"sum\", \"backup\" or \"every\""), "{said}");
}

#[test]
fn relays_verify_where_tags_are_and_each_is_named_once() {
    let key = "\"3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=\"";
    let of = |role, name, value: &str| {
        File::new(role, None).with_keys(role).with("flow", name, Some(value))
    };
    let relay = of(Role::Relay, "source_key", key).parse().expect("a relay that verifies");
    let flow = &relay.flows[0];
    assert!(flow.params.tagged && !flow.params.sealed && flow.source_key.is_some());
    let source = of(Role::Source, "relay_keys", &format!("[{key}]")).parse().expect("one relay");
    assert_eq!(source.flows[0].relay_keys.len(), 1);
    for config in [relay, source] {
        assert_eq!(parse(&config.to_toml()).expect("valid"), config);
    }
    let few = ["[]".to_owned(), format!("[{key}, {key}]"), "[\"key\"]".into(), "[1]".into()];
    for value in few.into_iter().chain([key.to_owned()]) {
        let said = of(Role::Source, "relay_keys", &value).parse().expect_err("no such list");
        assert!(said.contains("a list of 1 to 64 public keys of different relays"), "{said}");
    }
    for (role, name, value) in
        [(Role::Source, "relay_keys", format!("[{key}]")), (Role::Relay, "source_key", key.into())]
    {
        let file = of(role, name, &value).with("daemon", "auth", Some("\"hop\""));
        let said = file.with("flow", "edge_key", None).parse().expect_err("there are no tags");
        assert!(said.contains("symbols have tags with auth = \"full\" only"), "{said}");
    }
}

#[test]
fn neighbour_roams_on_links_with_udp_sockets_and_alone_with_its_key() {
    let file = || File::new(Role::Relay, None).with_keys(Role::Relay);
    let roaming = |file: File| file.with("neighbour", "roams", Some("true"));
    for backend in [None, Some("\"udp\""), Some("\"auto\"")] {
        let config = roaming(file().with("link", "backend", backend)).parse().expect("it roams");
        let roams: Vec<bool> = config.hops.iter().map(|hop| config.roams(hop)).collect();
        assert_eq!(roams.iter().filter(|roams| **roams).count(), 1, "{roams:?}");
        assert!(config.to_toml().contains("roams = true"));
    }
    let by_xdp = roaming(file().with("link", "backend", Some("\"xdp\""))).parse();
    let said = by_xdp.expect_err("its address is pinned");
    assert!(said.contains("roams = true does not apply: AF_XDP pins"), "{said}");
    let mut twins = roaming(file());
    let (_, keys) = twins.0.iter().find(|(kind, _)| *kind == "neighbour").expect("one").clone();
    twins.0.push(("neighbour", keys));
    let twins = twins.with("neighbour", "address", Some("\"10.0.1.7\""));
    let said = twins.clone().parse().expect_err("which of them is it?");
    assert!(said.contains("10.0.1.7 on this link has the same key and path"), "{said}");
    // Two paths to one key that roams, as with two uplinks behind NAT.
    let config = twins.with("neighbour", "path", Some("1")).parse().expect("two paths");
    let paths: Vec<u8> = config.neighbours.iter().map(|known| known.path).collect();
    assert_eq!(paths.iter().filter(|path| **path == 1).count(), 1, "{paths:?}");
    assert_eq!(parse(&config.to_toml()).expect("valid"), config);
    let said = file().with("neighbour", "path", Some("256")).parse().expect_err("eight bits");
    assert!(said.contains("0 to 255, the same at both ends"), "{said}");
    // UDP sockets accept any address of this host.
    let any = file().with("link", "local", Some("\"0.0.0.0\"")).parse().expect("any address");
    assert!(any.links[0].local.is_unspecified());
}

#[test]
fn keys_without_a_handshake_come_of_a_preshared_key() {
    let psk = Some("\"/etc/recoded/other.psk\"");
    let kinds =
        [("neighbour", "preshared_key", "one_way"), ("flow", "edge_preshared_key", "edge_one_way")];
    for (section, shared, one_way) in kinds {
        let file = || File::new(Role::Source, None).with_keys(Role::Source);
        let bare = file().with(section, one_way, Some("true")).parse().expect_err("no such key");
        let rule = format!("{one_way} = true needs a pre-shared key");
        assert!(bare.contains(&rule) && bare.contains("recodectl genpsk"), "{bare}");
        let file = file().with(section, shared, psk).with(section, one_way, Some("true"));
        let config = file.parse().expect("valid");
        assert!(config.has_one_way());
        assert_eq!(parse(&config.to_toml()).expect("valid"), config);
        let off = file.with(section, one_way, Some("false")).parse().expect("valid");
        assert!(!off.has_one_way());
    }
    let roaming = File::new(Role::Relay, None).with_keys(Role::Relay);
    let roaming = roaming.with("neighbour", "preshared_key", psk);
    let both = roaming.with("neighbour", "one_way", Some("true"));
    let said = both.with("neighbour", "roams", Some("true")).parse().expect_err("it has no answer");
    assert!(said.contains("roams = true does not apply: a neighbour that moves"), "{said}");
    let alone = File::new(Role::Source, None).with("flow", "edge_one_way", Some("true"));
    let said = alone.parse().expect_err("there is no key");
    assert!(said.contains("it is about the keys of edge_key"), "{said}");
}

#[test]
fn flow_to_several_sinks_has_their_keys_and_each_says_so() {
    let key = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=";
    let other = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
    let source = || File::new(Role::Source, None).with_keys(Role::Source);
    let keys = format!("[\"{key}\", \"{other}\"]");
    let group = source().with("flow", "edge_key", None).with("flow", "sink_keys", Some(&keys));
    let config = group.parse().expect("a source of two sinks");
    let flow = &config.flows[0];
    assert!(flow.is_group() && flow.params.sealed && flow.params.tagged && flow.edge.is_none());
    assert_eq!(parse(&config.to_toml()).expect("valid"), config);
    let both = source().with("flow", "sink_keys", Some(&keys)).parse();
    let said = both.expect_err("one sink or several");
    assert!(said.contains("each receives keys of the flow"), "{said}");
    let few = ["[]".to_owned(), format!("[\"{key}\", \"{key}\"]"), "[1]".into()];
    for value in few {
        let file = source().with("flow", "edge_key", None);
        let said = file.with("flow", "sink_keys", Some(&value)).parse().expect_err("no such list");
        assert!(said.contains("a list of 1 to 64 public keys of different sinks"), "{said}");
    }
    let sink = File::new(Role::Sink, None).with_keys(Role::Sink);
    let sink = sink.with("flow", "edge_group", Some("true"));
    let config = sink.parse().expect("one of several sinks");
    assert!(config.flows[0].is_group() && config.flows[0].params.sealed && config.has_one_way());
    assert_eq!(parse(&config.to_toml()).expect("valid"), config);
    let alone = sink.with("daemon", "auth", Some("\"hop\"")).with("flow", "edge_key", None);
    let said = alone.parse().expect_err("nothing is encrypted");
    assert!(said.contains("edge_group = true"), "{said}");
}
