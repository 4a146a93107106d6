//! The report as text.

use super::{KernelLevels, Level, Reason};
use crate::table::{Align, sentence, table};

/// Lays out the report.
pub fn text(report: &KernelLevels) -> String {
    let head = [
        ("", Align::Left),
        ("level", Align::Left),
        ("madd GB/s", Align::Right),
        ("16 -> 1 Gbit/s", Align::Right),
        ("fields", Align::Left),
        ("needs", Align::Left),
    ];
    let rows: Vec<[String; 6]> = report.levels.iter().map(|level| row(level, report)).collect();
    let mut text = table(head, &rows);
    text.push('\n');
    text.push_str(&sentence("used", &used(report)));
    if let Some(daemon) = report.daemon.as_deref().filter(|&name| name != report.used) {
        let running = format!("{daemon} (chosen when it was started, in its own environment)");
        text.push_str(&sentence("the daemon", &running));
    }
    if report.seconds > 0 {
        text.push_str(&sentence("measured", MEASURED));
    }
    text
}

const MEASURED: &str = "on one core, medians: multiply-add of 1500 bytes, in gigabytes of source; \
    16 packets of 1500 bytes combined into one, in coded gigabits";

fn row(level: &Level, report: &KernelLevels) -> [String; 6] {
    let rate = |rate: Option<f64>| match rate {
        Some(rate) => format!("{rate:.1}"),
        None => "-".to_owned(),
    };
    [
        if level.name == report.used { "*".to_owned() } else { String::new() },
        level.name.to_owned(),
        rate(level.madd_gigabytes),
        rate(level.combine_gigabits),
        fields(level),
        if level.available { level.needs.to_owned() } else { format!("{}: not here", level.needs) },
    ]
}

/// The fields of a level in a word: a level supports all of them or only GF(256).
fn fields(level: &Level) -> String {
    match level.fields.len() {
        0 => "-".to_owned(),
        5 => "all".to_owned(),
        _ if level.fields.iter().all(|field| field.starts_with("gf256-")) => "gf256".to_owned(),
        _ => level.fields.join(" "),
    }
}

fn used(report: &KernelLevels) -> String {
    let reason = match report.reason {
        Reason::Fastest => "the fastest that this CPU can run",
        Reason::Environment => "forced by RECODED_KERNEL",
        Reason::Option => "forced by --kernel",
    };
    format!("{} ({reason})", report.used)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::level;
    use recoded_gf::{Kernel, LevelInfo};

    /// The longest line was once too long on a machine without the required features.
    #[test]
    fn table_fits_the_terminal_whatever_the_cpu_lacks() {
        let needs_nothing = |info: LevelInfo| info.needs.starts_with("nothing");
        let levels =
            Kernel::levels().map(|info| Level { available: needs_nothing(info), ..level(info) });
        let report = KernelLevels {
            levels: levels.collect(),
            used: "naive",
            reason: Reason::Environment,
            daemon: None,
            seconds: 0,
        };
        let text = text(&report);
        assert!(text.contains("not here"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}
