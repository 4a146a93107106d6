//! Rules of the filter table in the output format of `iptables-legacy -S`. If iptables uses nft,
//! `nft` lists the same rules.

use super::{Chain, Field, Hook, Match, Owner, Rule, Value, Verdict};
use std::net::IpAddr;

/// Parses the chains of the filter table, for IPv4 or IPv6.
pub fn parse(text: &str, is_v6: bool) -> Vec<Chain> {
    let mut chains: Vec<Chain> = Vec::new();
    for line in text.lines() {
        // Without comments, which are quoted if they contain spaces.
        let line: String = line.split('"').step_by(2).collect();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["-P", name, policy] => chains.push(chain(name, policy == "DROP", is_v6)),
            ["-N", name] => chains.push(chain(name, false, is_v6)),
            ["-A", name, ref rest @ ..] => {
                if let Some(chain) = chains.iter_mut().find(|chain| chain.name == name) {
                    chain.rules.push(rule(rest));
                }
            }
            _ => {}
        }
    }
    chains
}

fn chain(name: &str, drops: bool, is_v6: bool) -> Chain {
    let hook = match name {
        "INPUT" => Some(Hook::Input),
        "OUTPUT" => Some(Hook::Output),
        _ => None,
    };
    Chain {
        table: "filter".into(),
        name: name.into(),
        hook,
        priority: 0,
        drops,
        families: [!is_v6, is_v6],
        owner: Owner::Iptables,
        rules: Vec::new(),
    }
}

fn rule(words: &[&str]) -> Rule {
    let mut rule = Rule::default();
    let (mut words, mut is_not) = (words.iter(), false);
    while let Some(word) = words.next() {
        if *word == "!" {
            is_not = true;
            continue;
        }
        let is_flag = word.starts_with('-');
        let mut argument = || words.next().copied().unwrap_or_default();
        let found = match *word {
            "-i" => Some((Field::In, vec![Value::Text(argument().into())])),
            "-o" => Some((Field::Out, vec![Value::Text(argument().into())])),
            "-p" => Some((Field::Protocol, vec![Value::Text(argument().into())])),
            "-s" => Some((Field::Source, vec![prefix(argument())])),
            "-d" => Some((Field::Destination, vec![prefix(argument())])),
            "--dport" | "--dports" => Some((Field::Port, ports(argument()))),
            "--sport" | "--sports" => Some((Field::SourcePort, ports(argument()))),
            "--ctstate" | "--state" => Some((Field::State, states(argument()))),
            "-m" | "--comment" => {
                argument();
                None
            }
            "-j" => {
                rule.verdict = verdict(argument(), false);
                // The rest are options of the target.
                return rule;
            }
            "-g" => {
                rule.verdict = verdict(argument(), true);
                return rule;
            }
            // An unknown match; its arguments are words without a dash.
            _ if is_flag => {
                rule.matches.push(Match::Unknown);
                None
            }
            _ => None,
        };
        if let Some((field, values)) = found {
            let one = if is_not { Match::IsNot(field, values) } else { Match::Is(field, values) };
            rule.matches.push(one);
        }
        is_not = false;
    }
    rule
}

fn verdict(target: &str, is_goto: bool) -> Verdict {
    match target {
        "ACCEPT" => Verdict::Accept,
        "DROP" | "REJECT" => Verdict::Drop,
        "RETURN" => Verdict::Return,
        "LOG" | "NFLOG" | "MARK" | "CONNMARK" | "NOTRACK" | "CT" => Verdict::Continue,
        "NFQUEUE" => Verdict::Unknown,
        name if is_goto => Verdict::Goto(name.into()),
        name => Verdict::Jump(name.into()),
    }
}

fn prefix(text: &str) -> Value {
    let (address, bits) = text.split_once('/').unwrap_or((text, ""));
    let Ok(address) = address.parse::<IpAddr>() else { return Value::Unknown };
    let all = if address.is_ipv4() { 32 } else { 128 };
    match bits {
        "" => Value::Prefix(address, all),
        bits => bits.parse().map_or(Value::Unknown, |bits| Value::Prefix(address, bits)),
    }
}

fn ports(text: &str) -> Vec<Value> {
    let range = |text: &str| {
        let (low, high) = text.split_once(':').unwrap_or((text, text));
        match (low.parse(), high.parse()) {
            (Ok(low), Ok(high)) => Value::Range(low, high),
            _ => Value::Unknown,
        }
    };
    text.split(',').map(range).collect()
}

fn states(text: &str) -> Vec<Value> {
    text.split(',').map(|state| Value::Text(state.to_lowercase())).collect()
}
