//! Output of the echoes.

use super::session::{Answer, Figures};
use super::{PingOptions, PingReport};
use crate::table::{clean, count, percent, sentence, wrapped};
use crate::trace;

/// The first line, printed before anything is sent.
pub fn head(options: &PingOptions, host: &str, address: &str, from: &str) -> String {
    let PingOptions { bytes, interval, .. } = options;
    let host = clean(host);
    let name = if host == address { host } else { format!("{host} ({address})") };
    format!("ping {name} from {from}: {bytes} bytes every {} s", interval.as_secs_f64())
}

/// One echo.
pub fn answer(number: u64, answer: Answer) -> Option<String> {
    let said = match answer {
        Answer::First(trip) => format!("{:>10.3} ms", trip.as_secs_f64() * 1e3),
        Answer::Copy => "another answer".to_owned(),
        Answer::Late => "an answer after its time".to_owned(),
        Answer::Foreign => return None,
    };
    Some(format!("{number:>6}  {said}"))
}

/// An echo without a reply in time.
pub fn lost(number: u64, options: &PingOptions) -> String {
    format!("{number:>6}  no answer within {} s", options.wait.as_secs_f64())
}

/// The summary.
pub fn text(report: &PingReport) -> String {
    let PingReport { figures, address, .. } = report;
    let Figures { sent, answered, lost, .. } = figures;
    let loss = figures.loss.map_or(String::new(), |loss| format!(" ({})", percent(loss)));
    let mut text = format!(
        "\n{address}: sent {}, answered {}, lost {}{loss}\n",
        count(*sent),
        count(*answered),
        count(*lost)
    );
    if let Some(trips) = &figures.round_trip_us {
        let named = [
            ("min", trips.min),
            ("mean", trips.mean),
            ("max", trips.max),
            ("deviation", trips.deviation),
        ];
        let facts = named.map(|(name, micros)| format!("{name} {:.3} ms", micros / 1e3));
        text += &wrapped("round trip", &facts);
    }
    let more = [("copies", figures.copies), ("late", figures.late)];
    let more: Vec<String> = more
        .into_iter()
        .filter(|(_, number)| *number > 0)
        .map(|(name, number)| format!("{name} {}", count(number)))
        .collect();
    if !more.is_empty() {
        text += &wrapped("answers", &more);
    }
    if !report.refusals.is_empty() {
        let said = report.refusals.iter().map(|(said, times)| format!("{said} {}", count(*times)));
        text += &wrapped("refused", &said.collect::<Vec<_>>());
    }
    if *answered == 0 && *sent > 0 {
        text += &sentence("cure", cure(report));
    }
    text + &ways(report)
}

fn cure(report: &PingReport) -> &'static str {
    match (&report.tunnel, report.figures.late) {
        (_, 1..) => "answers arrive late: wait longer (-W), or find the link whose queue is full",
        (Some(_), 0) => {
            "run recodectl doctor here and at the far end; check that a flow leads back and that \
             the far end's firewall admits ICMP echoes"
        }
        (None, 0) => {
            "check that the far end is up, that both ends have a route to each other (ip route \
             get), and that firewalls let ICMP echoes through"
        }
    }
}

/// The hops of the flows that carry the echoes.
fn ways(report: &PingReport) -> String {
    if let Some(why) = &report.not_known {
        return sentence("hops", why);
    }
    let Some(tunnel) = &report.tunnel else {
        let text = format!(
            "{} is no address of a tunnel of this box: this was the path without Recoded",
            report.from
        );
        return sentence("hops", &text);
    };
    let text = format!("tunnel {tunnel}, as boxes report; there first, then back");
    sentence("hops", &text) + &trace::text(&report.ways)
}
