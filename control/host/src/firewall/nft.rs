//! Rules in the output format of `nft -j list ruleset` (libnftables-json(5)).

use super::{Chain, Field, Hook, Match, Owner, Rule, Value, Verdict};
use serde_json::Value as Json;
use std::net::IpAddr;

/// Parses the chains of a ruleset; none if it is not understood.
pub fn parse(text: &str) -> Vec<Chain> {
    let json: Json = serde_json::from_str(text).unwrap_or_default();
    let objects = json["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut chains: Vec<Chain> = objects.iter().filter_map(chain).collect();
    for rule in objects.iter().filter_map(|object| object.get("rule")) {
        let (table, name) = (table(rule), rule["chain"].as_str().unwrap_or_default());
        let found = chains.iter_mut().find(|chain| chain.table == table && chain.name == name);
        if let Some(chain) = found {
            chain.rules.extend(rules(rule));
        }
    }
    chains
}

fn table(object: &Json) -> String {
    let word = |key: &str| object[key].as_str().unwrap_or_default();
    format!("{} {}", word("family"), word("table"))
}

fn chain(object: &Json) -> Option<Chain> {
    let chain = object.get("chain")?;
    let families = match chain["family"].as_str()? {
        "ip" => [true, false],
        "ip6" => [false, true],
        "inet" => [true, true],
        _ => return None,
    };
    let hook = match chain["hook"].as_str() {
        Some("input") => Some(Hook::Input),
        Some("output") => Some(Hook::Output),
        Some("prerouting") => Some(Hook::Prerouting),
        _ => None,
    };
    Some(Chain {
        table: table(chain),
        name: chain["name"].as_str()?.to_owned(),
        hook,
        priority: chain["prio"].as_i64().unwrap_or(0),
        drops: chain["policy"].as_str() == Some("drop"),
        families,
        owner: Owner::Nft,
        rules: Vec::new(),
    })
}

/// A rule; several for a verdict map.
fn rules(rule: &Json) -> Vec<Rule> {
    let statements = rule["expr"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut matches = Vec::new();
    for statement in statements {
        let Some((kind, body)) = statement.as_object().and_then(|it| it.iter().next()) else {
            matches.push(Match::Unknown);
            continue;
        };
        match kind.as_str() {
            "match" => matches.extend(conditions(body)),
            "counter" | "log" | "comment" | "mangle" | "notrack" | "ct helper" | "meter" => {}
            "vmap" => return verdict_map(body, &matches),
            kind => match verdict(kind, body) {
                Some(verdict) => return vec![Rule { matches, verdict }],
                None => matches.push(Match::Unknown),
            },
        }
    }
    vec![Rule { matches, verdict: Verdict::Continue }]
}

fn verdict(kind: &str, body: &Json) -> Option<Verdict> {
    let target = || body["target"].as_str().unwrap_or_default().to_owned();
    Some(match kind {
        "accept" => Verdict::Accept,
        "drop" | "reject" => Verdict::Drop,
        "dnat" | "redirect" => Verdict::Divert,
        "jump" => Verdict::Jump(target()),
        "goto" => Verdict::Goto(target()),
        "return" => Verdict::Return,
        "continue" => Verdict::Continue,
        "queue" | "tproxy" => Verdict::Unknown,
        _ => return None,
    })
}

/// `ct state vmap { established : accept, invalid : drop }`: a rule for each element.
fn verdict_map(body: &Json, matches: &[Match]) -> Vec<Rule> {
    let field = field(&body["key"]);
    let with = |one: Match, verdict: Verdict| {
        let matches = matches.iter().cloned().chain([one]).collect();
        Rule { matches, verdict }
    };
    let Some(elements) = body["data"]["set"].as_array() else {
        return vec![with(Match::Unknown, Verdict::Unknown)];
    };
    let rules = elements.iter().map(|element| {
        let one = field.map_or(Match::Unknown, |field| Match::Is(field, values(&element[0])));
        let decided = element[1].as_object().and_then(|it| it.iter().next());
        let decided = decided.and_then(|(kind, body)| verdict(kind, body));
        with(one, decided.unwrap_or(Verdict::Unknown))
    });
    rules.collect()
}

/// A match, with the protocol match that it implies.
fn conditions(body: &Json) -> Vec<Match> {
    let text = |name: &str| vec![Value::Text(name.to_owned())];
    let implied = match body["left"]["payload"]["protocol"].as_str() {
        Some("ip") => vec![Match::Is(Field::Family, text("ipv4"))],
        Some("ip6") => vec![Match::Is(Field::Family, text("ipv6"))],
        Some("udp" | "th") | None => Vec::new(),
        Some("ether" | "vlan" | "arp") => vec![Match::Unknown],
        // For example, TCP ports.
        Some(other) => return vec![Match::Is(Field::Protocol, text(other))],
    };
    let values = values(&body["right"]);
    let own = match (field(&body["left"]), body["op"].as_str()) {
        (Some(field), Some("==" | "in")) => Match::Is(field, values),
        (Some(field), Some("!=")) => Match::IsNot(field, values),
        _ => Match::Unknown,
    };
    implied.into_iter().chain([own]).collect()
}

fn field(left: &Json) -> Option<Field> {
    if let Some(key) = left["meta"]["key"].as_str() {
        return Some(match key {
            "iif" | "iifname" => Field::In,
            "oif" | "oifname" => Field::Out,
            "l4proto" => Field::Protocol,
            "nfproto" => Field::Family,
            _ => return None,
        });
    }
    if left["ct"]["key"].as_str() == Some("state") {
        return Some(Field::State);
    }
    let payload = &left["payload"];
    Some(match (payload["protocol"].as_str()?, payload["field"].as_str()?) {
        ("udp" | "th", "dport") => Field::Port,
        ("udp" | "th", "sport") => Field::SourcePort,
        ("ip", "protocol") | ("ip6", "nexthdr") => Field::Protocol,
        ("ip" | "ip6", "saddr") => Field::Source,
        ("ip" | "ip6", "daddr") => Field::Destination,
        _ => return None,
    })
}

fn values(right: &Json) -> Vec<Value> {
    match right {
        Json::Array(all) => all.iter().flat_map(values).collect(),
        Json::Object(object) if object.contains_key("set") => values(&right["set"]),
        one => vec![value(one)],
    }
}

fn value(one: &Json) -> Value {
    if let Some(number) = one.as_u64() {
        return Value::Range(number, number);
    }
    if let Some(text) = one.as_str() {
        return match text.parse::<IpAddr>() {
            Ok(address) => Value::Prefix(address, if address.is_ipv4() { 32 } else { 128 }),
            // A named set.
            Err(_) if text.starts_with('@') => Value::Unknown,
            Err(_) => Value::Text(text.to_owned()),
        };
    }
    let (range, prefix) = (&one["range"], &one["prefix"]);
    if let (Some(low), Some(high)) = (range[0].as_u64(), range[1].as_u64()) {
        return Value::Range(low, high);
    }
    let address = prefix["addr"].as_str().and_then(|text| text.parse().ok());
    let bits = prefix["len"].as_u64().and_then(|bits| u8::try_from(bits).ok());
    match (address, bits) {
        (Some(address), Some(bits)) => Value::Prefix(address, bits),
        _ => Value::Unknown,
    }
}
