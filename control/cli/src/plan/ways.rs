//! `recodectl plan --ways`: recommends a network over measured links, with the reason.

use super::figures::{COLUMNS, decimals, least, percent};
use super::{HOPS_MAX, PlanError, read};
use crate::table::{Align, clean, paragraph, table};
use recoded_plan::advice::{Advice, Choice, NetworkKind, Way, Why};
use recoded_plan::measured::Measured;
use serde::Serialize;
use std::path::Path;

/// The receiver of an unnamed way.
const FAR_END: &str = "far end";

/// A measured link.
#[derive(Serialize)]
struct Link {
    /// The file, as given.
    file: String,
    measured: Measured,
}

/// Possible networks, and the recommended one.
#[derive(Serialize)]
pub struct Network {
    links: Vec<Link>,
    ways: Vec<Way>,
    #[serde(flatten)]
    advice: Advice,
}

/// Reads the links of these ways, each file once, and compares the networks that can be built from
/// them.
///
/// # Errors
/// A file is missing or is not a measurement, or the ways are impossible.
pub fn compare(written: &[String]) -> Result<Network, PlanError> {
    let (mut links, mut ways): (Vec<Link>, Vec<Way>) = (Vec::new(), Vec::new());
    for text in written {
        let (receiver, files) = text.split_once('=').unwrap_or((FAR_END, text));
        if receiver.is_empty() || files.split(',').any(str::is_empty) {
            return Err(PlanError::Way(text.clone()));
        }
        let mut way = Way { receiver: receiver.to_owned(), links: Vec::new() };
        for file in files.split(',') {
            let known = links.iter().position(|link| link.file == file);
            let place = known.unwrap_or(links.len());
            if place == HOPS_MAX {
                return Err(PlanError::Hops(place + 1));
            }
            if known.is_none() {
                links.push(Link { file: file.to_owned(), measured: read(Path::new(file))? });
            }
            way.links.push(place);
        }
        ways.push(way);
    }
    let measured: Vec<Measured> = links.iter().map(|link| link.measured.clone()).collect();
    let advice = Advice::new(&measured, &ways)?;
    Ok(Network { links, ways, advice })
}

/// Formats the comparison; every line of text fits 80 columns.
pub fn text(network: &Network) -> String {
    let Network { links, ways, advice } = network;
    let rows: Vec<[String; 5]> = links.iter().map(link).collect();
    let head = [
        ("link", Align::Left),
        ("lost", Align::Right),
        ("rate, Mbit/s", Align::Right),
        ("round trip, ms", Align::Right),
        ("back: lost, rate", Align::Right),
    ];
    let mut text = table(head, &rows) + "\n";
    let names = |way: &Way| {
        let names = way.links.iter().map(|link| links[*link].file.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let rows = ways
        .iter()
        .enumerate()
        .map(|(number, way)| [(number + 1).to_string(), clean(&way.receiver), clean(&names(way))]);
    let rows: Vec<[String; 3]> = rows.collect();
    text += &table([("way", Align::Right), ("to", Align::Left), ("over", Align::Left)], &rows);
    text.push('\n');
    let rows: Vec<[String; 7]> = advice.choices.iter().map(choice).collect();
    let head = [
        ("network", Align::Left),
        ("ways", Align::Left),
        ("Mbit/s", Align::Right),
        ("back", Align::Right),
        ("one way, ms", Align::Right),
        ("packets", Align::Right),
        ("left, Mbit/s", Align::Right),
    ];
    text += &table(head, &rows);
    text += &paragraph(
        "Mbit/s: TCP payload that the receiver gets that gets least. Packets: what the source sends \
         for each that enters. Left: without the link whose loss costs most.",
        COLUMNS,
    );
    text.push('\n');
    text += &paragraph(&reason(advice), COLUMNS);
    text += &paragraph(&how(advice.best()), COLUMNS);
    text
}

fn link(link: &Link) -> [String; 5] {
    let Measured { there, back, round_trip, .. } = &link.measured;
    [
        clean(&link.file),
        percent(there.loss),
        least(there.rate_is_least, decimals(there.rate_mbit)),
        format!("{:.2}", round_trip.min_ms),
        format!("{}, {}", percent(back.loss), decimals(back.rate_mbit)),
    ]
}

fn choice(choice: &Choice) -> [String; 7] {
    let ways: Vec<String> = choice.ways.iter().map(|way| (way + 1).to_string()).collect();
    [
        choice.shape.name().to_owned(),
        ways.join(" "),
        decimals(choice.mbit),
        choice.back_mbit.map_or("-".to_owned(), decimals),
        decimals(choice.one_way_ms),
        format!("{:.2}", choice.packets),
        decimals(choice.left_mbit),
    ]
}

/// The recommendation and its reason.
fn reason(advice: &Advice) -> String {
    let best = advice.best();
    let name = best.shape.name();
    let mbit = |shape| advice.find(shape).map_or(0.0, |choice| choice.mbit);
    let single = advice.choices[0].mbit;
    let [ours, left, sum, alone] =
        [best.mbit, best.left_mbit, mbit(NetworkKind::Sum), single].map(decimals);
    match advice.why {
        Why::OneWay => format!(
            "build {name}: there is only one way. `recodectl plan --hops` with the same files \
             compares it with TCP"
        ),
        Why::NotWorthIt => {
            "build nothing: there is one way, and plain TCP does as well on it".into()
        }
        Why::Adds => format!(
            "build {name}: together the ways carry {ours} Mbit/s, the best of them {alone}, and \
             {left} are left when a link is cut. {}",
            copies(advice)
        ),
        Why::Reserve => format!(
            "build {name}: together the ways carry {sum} Mbit/s, the best of them {alone}, so \
             little is to be had by splitting the traffic; but {left} are left when a link is \
             cut. {}",
            copies(advice)
        ),
        Why::Shared => format!(
            "build {name}: together the ways carry {sum} Mbit/s, the best of them {alone}, and all \
             of them end when the link that they share is cut"
        ),
        Why::Once => format!(
            "build a {name} for what all receivers are to get: each gets {ours} Mbit/s and the \
             source sends {:.2} packets for each that enters; with a flow to each {} and {:.2}",
            best.packets,
            decimals(mbit(NetworkKind::Apart)),
            advice.find(NetworkKind::Apart).map_or(0.0, |choice| choice.packets)
        ),
        Why::NothingShared => format!(
            "build {name}: no link leads to several receivers, so a tree saves nothing, and each \
             flow has a rate of its own"
        ),
    }
}

/// Conditions under which copies on all ways are better.
fn copies(advice: &Advice) -> String {
    let Some(every) = advice.find(NetworkKind::Every) else { return String::new() };
    format!(
        "For calls and games of at most {} Mbit/s `spread = \"every\"` loses nothing when a link is \
         cut and takes {} ms, for {:.2} packets each",
        decimals(every.mbit),
        decimals(every.one_way_ms),
        every.packets
    )
}

fn how(best: &Choice) -> String {
    match (best.shape, best.shape.spread()) {
        (NetworkKind::Tree, _) => {
            "In net.toml: one [[path]] whose `ways` lead to all receivers.".into()
        }
        (NetworkKind::Apart, _) => "In net.toml: a [[path]] for each receiver.".into(),
        (_, Some(spread)) => format!(
            "In net.toml: one [[path]] whose `ways` all lead to the far end, and spread = \
             \"{spread}\"; the first way is number {}.",
            best.ways[0] + 1
        ),
        (NetworkKind::Line, _) => "In net.toml: a [[path]] with `via`.".into(),
        _ => "In net.toml: a [[path]] with `from` and `to`.".into(),
    }
}
