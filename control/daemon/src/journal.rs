//! Log lines in the format of systemd's journal: each begins with its priority (sd-daemon(3)) and
//! has no time, which the journal adds.

use std::fmt::{self, Write};
use std::os::fd::AsFd;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The variable through which systemd passes the device and inode of the journal (systemd.exec(5)).
const STREAM: &str = "JOURNAL_STREAM";

/// Priority of an error.
const ERROR: u8 = 3;

/// Whether stderr is the journal. A child whose stderr goes elsewhere inherits the variable, so the
/// file is compared.
pub fn is_stderr() -> bool {
    let Ok(stream) = std::env::var(STREAM) else { return false };
    let stat = rustix::fs::fstat(std::io::stderr().as_fd());
    stat.is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// A message for stderr. If stderr is the journal, each line has the priority of an error.
pub fn error(message: &str) -> String {
    if is_stderr() { prefixed(ERROR, message) } else { message.to_owned() }
}

fn prefixed(priority: u8, text: &str) -> String {
    let lines = text.lines().map(|line| format!("<{priority}>{line}"));
    lines.collect::<Vec<_>>().join("\n")
}

const fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => ERROR,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// Writes log events in this format.
pub struct Format;

impl<S, N> FormatEvent<S, N> for Format
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        write!(text, "{}: ", event.metadata().target())?;
        context.field_format().format_fields(Writer::new(&mut text), event)?;
        writeln!(writer, "{}", prefixed(priority(*event.metadata().level()), &text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_the_priority() {
        assert_eq!(prefixed(4, "one\ntwo"), "<4>one\n<4>two");
        let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
        assert_eq!(levels.map(priority), [3, 4, 6, 7, 7]);
    }
}
