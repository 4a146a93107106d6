//! `-f net.toml ping`: all paths of a network at once, each from the box where it begins.

use super::ssh::{Job, NoAnswer};
use super::status::{BoxFinding, finding, findings, refused, values};
use super::{Boxes, NetworkFailure, Told, worse};
use crate::ping::PingOptions;
use crate::table::{Align, percent, table};
use recoded_api::exit;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

use Align::{Left, Right};

/// Time for a box in addition to the echoes: connection, start, reply.
const MARGIN: Duration = Duration::from_secs(5);

/// A path, and the result of its echoes.
#[derive(Serialize)]
struct Path {
    path: String,
    /// Output of `recodectl ping` on the box; null if there is none.
    ping: Option<Value>,
    /// Why there is none.
    error: Option<BoxFinding>,
}

/// Sends echoes along every path that begins at a chosen box and leads back.
///
/// # Errors
/// A host is named, or the echoes would take longer than the time limit for boxes.
pub fn run(boxes: &Boxes, options: &PingOptions, json: bool) -> Result<Told, crate::Failure> {
    if options.names_host() {
        return Err(NetworkFailure::PingHost.into());
    }
    let takes = options.longest().map(|longest| longest + MARGIN);
    if takes.is_none_or(|takes| takes > boxes.ssh.patience) {
        return Err(NetworkFailure::LongPing(boxes.ssh.patience.as_secs()).into());
    }
    let network = &boxes.network;
    let begins = |path: &&recoded_network::Path| {
        // A path with several receivers is unidirectional.
        path.receivers().len() == 1 && path.source().is_some_and(|it| boxes.chosen.contains(&it))
    };
    let paths: Vec<&recoded_network::Path> = network.paths.iter().filter(begins).collect();
    let jobs = paths.iter().filter_map(|path| {
        let node = &network.nodes[path.source()?];
        let command = format!("ping {} {}", path.tunnel.get(1)?.first()?.addr(), options.words());
        Some(Job::new(node, boxes.place(node).ask(true, &command), ""))
    });
    let answers = boxes.ssh.on_each(jobs.collect())?;
    let mut code = exit::OK;
    let shown = paths.iter().zip(answers).map(|(path, answer)| {
        let name = path.place(&network.nodes).trim_start_matches("path ").to_owned();
        let failed = match answer {
            Ok(answer) => match values(&answer.text).into_iter().next() {
                Some(ping) if ping.get("figures").is_some() => {
                    code = worse(code, u8::try_from(answer.code).unwrap_or(exit::FAILED));
                    return Path { path: name, ping: Some(ping), error: None };
                }
                _ => refused(&answer),
            },
            Err(NoAnswer { cause, cure }) => (cause, cure),
        };
        code = worse(code, exit::NOT_RUNNING);
        Path { path: name, ping: None, error: Some(finding(failed.0, failed.1)) }
    });
    let shown: Vec<Path> = shown.collect();
    let text = match json {
        true => crate::json::pretty(&BTreeMap::from([("paths", &shown)]))?,
        false => summary(&shown),
    };
    Ok(Told { code, text })
}

fn summary(paths: &[Path]) -> String {
    if paths.is_empty() {
        return "no path begins at these boxes and leads back\n".to_owned();
    }
    let head = [
        ("path", Left),
        ("sent", Right),
        ("answered", Right),
        ("lost", Right),
        ("min ms", Right),
        ("mean ms", Right),
        ("max ms", Right),
    ];
    let of = |path: &Path, at: &str| path.ping.as_ref()?.pointer(at).cloned();
    let count = |path: &Path, at| of(path, at).map_or("-".to_owned(), |it| it.to_string());
    let millis = |path: &Path, name: &str| {
        let micros = of(path, &format!("/figures/round_trip_us/{name}")).and_then(|it| it.as_f64());
        micros.map_or("-".to_owned(), |micros| format!("{:.1}", micros / 1e3))
    };
    let rows = paths.iter().map(|path| {
        let loss = of(path, "/figures/loss").and_then(|loss| loss.as_f64());
        [
            path.path.clone(),
            count(path, "/figures/sent"),
            count(path, "/figures/answered"),
            loss.map_or("-".to_owned(), percent),
            millis(path, "min"),
            millis(path, "mean"),
            millis(path, "max"),
        ]
    });
    let mut text = table(head, &rows.collect::<Vec<_>>());
    for path in paths {
        if let Some(error) = &path.error {
            text += &findings(&path.path, std::slice::from_ref(error));
        }
    }
    text
}
