//! Counters of TCP connections that `recoded-split` ends at the edges of a tunnel, and the line in
//! which its process reports them.

use crate::Table;
use std::fmt;
use std::str::FromStr;

/// Counters of split connections.
pub const TABLE: Table = Table { owner: "split TCP of a tunnel", parts: &[SplitCounters::TABLE] };

/// Longest report: eight numbers of 20 digits with a character after each.
pub const REPORT_BYTES_MAX: usize = 8 * 21;

counters! {
    /// TCP connections of one tunnel, counted by the process that handles them.
    #[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
    SplitCounters {
        /// Connections of hosts on this side that reached their server.
        opened: Events,
        /// Connections to servers on this side, for hosts behind the other edge.
        served: Events,
        /// Connections whose server refused them, did not answer or was out of reach.
        refused: Events,
        /// Connections refused because as many were open or waiting as this edge handles.
        full: Events => "Nothing, if few. Else find the hosts that open them.",
        /// Connections that ended by a reset or an error instead of in order.
        reset: Events,
    }
}

/// State of the split connections of a tunnel.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct SplitReport {
    /// Whether the other edge answers.
    pub is_connected: bool,
    /// Connections that are open now, in both directions.
    pub open: u64,
    /// Bytes read from one side of a connection that the other side has not taken yet.
    pub waiting_bytes: u64,
    /// Counters since the process started.
    pub counters: SplitCounters,
}

/// A line is not a report.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NotAReport;

impl fmt::Display for SplitReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SplitReport { is_connected, open, waiting_bytes, counters } = self;
        write!(formatter, "{} {open} {waiting_bytes}", u8::from(*is_connected))?;
        counters.iter().try_for_each(|(_, count)| write!(formatter, " {count}"))
    }
}

impl FromStr for SplitReport {
    type Err = NotAReport;

    fn from_str(line: &str) -> Result<SplitReport, NotAReport> {
        let numbers: Vec<u64> =
            line.split(' ').map(str::parse).collect::<Result<_, _>>().map_err(|_| NotAReport)?;
        let [connected, open, waiting_bytes, opened, served, refused, full, reset] = numbers[..]
        else {
            return Err(NotAReport);
        };
        let counters = SplitCounters { opened, served, refused, full, reset };
        Ok(SplitReport { is_connected: connected == 1, open, waiting_bytes, counters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_survives_its_line_and_other_lines_are_refused() {
        let counters = SplitCounters { opened: 9, served: 8, refused: 7, full: u64::MAX, reset: 5 };
        let report = SplitReport { is_connected: true, open: 2, waiting_bytes: 3, counters };
        let line = report.to_string();
        assert_eq!(line, format!("1 2 3 9 8 7 {} 5", u64::MAX));
        assert!(line.len() <= REPORT_BYTES_MAX);
        assert_eq!(line.parse(), Ok(report));
        for wrong in ["", "1 2 3", "1 2 3 9 8 7 6 5 4", "1 2 3 9 8 7 6 -5", "1 2 3 9 8 7  5"] {
            assert_eq!(wrong.parse::<SplitReport>(), Err(NotAReport), "{wrong}");
        }
    }
}
