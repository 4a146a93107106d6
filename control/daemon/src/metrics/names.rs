//! Names of metrics, by the tables of counters: one rule for each table.
//!
//! ```text
//!  recoded_flow_ingress_packets_total{flow="1"}        one metric for each counter of a flow
//!  recoded_dropped_packets_total{reason="oversize"}    one metric with a label for all reasons
//! ```

use recoded_counters::{Counter, Table, Unit, engine, flow, link, tunnel, verdict, worker};

/// The tables, each with how its counters are named and which of them are meant.
pub const GROUPS: [Group; 9] = [
    Group { table: flow::TABLE, of: Of::Flow, form: Form::Each("recoded_flow_") },
    Group { table: link::TABLE, of: Of::Link, form: Form::Each("recoded_link_") },
    Group { table: tunnel::TABLE, of: Of::Tunnel, form: Form::Each("recoded_tunnel_") },
    Group { table: WORKERS, of: Of::Worker, form: Form::Each("recoded_worker_") },
    Group { table: DROPS, of: Of::Drops, form: Form::All("recoded_dropped_packets", "reason") },
    Group { table: verdict::TABLE, of: Of::Xdp, form: Form::All("recoded_xdp_packets", "verdict") },
    Group { table: ENGINE, of: Of::Engine, form: Form::Each("recoded_engine_") },
    Group {
        table: engine::DECLINED,
        of: Of::Declined,
        form: Form::All("recoded_engine_declined_jobs", "reason"),
    },
    Group {
        table: engine::REDONE,
        of: Of::Redone,
        form: Form::All("recoded_engine_redone_jobs", "reason"),
    },
];

/// Counters of each worker; drops are summed over workers.
const WORKERS: Table = Table {
    owner: worker::TABLE.owner,
    parts: &[worker::PacketCounters::TABLE, worker::WorkerCounters::TABLE],
};
/// Reasons for which workers drop packets.
const DROPS: Table = Table { owner: worker::TABLE.owner, parts: &[worker::DropReason::TABLE] };
/// Counters of the engine.
const ENGINE: Table = engine::TABLE;

/// A table as metrics.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Group {
    /// The counters.
    pub table: Table,
    /// Whose they are.
    pub of: Of,
    /// How they are named.
    pub form: Form,
}

/// Whose counters they are, and so which labels they have.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Of {
    /// Each flow's.
    Flow,
    /// Each link's.
    Link,
    /// Each tunnel's.
    Tunnel,
    /// Each worker's.
    Worker,
    /// The node's, by reason.
    Drops,
    /// The XDP program's, by verdict.
    Xdp,
    /// The engine's.
    Engine,
    /// The engine's, by why a job was not taken.
    Declined,
    /// The engine's, by what went wrong.
    Redone,
}

/// How the counters of a table are named.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// Each by its name behind these words.
    Each(&'static str),
    /// All by one name, told apart by this label.
    All(&'static str, &'static str),
}

impl Group {
    /// Name of the metric of a counter, without `_total`. Times are seconds.
    pub fn name(&self, counter: &Counter) -> String {
        let own = match counter.unit {
            Unit::Nanos => counter.name.replace("_nanos", "_seconds"),
            Unit::NanosMax => counter.name.replace("_nanos_max", "_max_seconds"),
            _ => counter.name.to_owned(),
        };
        match self.form {
            Form::Each(words) => format!("{words}{own}"),
            Form::All(name, _) => name.to_owned(),
        }
    }

    /// What selects a counter in a query.
    pub fn selector(&self, counter: &Counter) -> String {
        let total = if is_gauge(counter) { "" } else { "_total" };
        let name = self.name(counter);
        match self.form {
            Form::Each(_) => format!("{name}{total}"),
            Form::All(_, label) => format!("{name}{total}{{{label}=\"{}\"}}", counter.name),
        }
    }
}

/// Whether it may go down.
pub fn is_gauge(counter: &Counter) -> bool {
    counter.unit == Unit::NanosMax
}

/// Its value in the unit of its metric: seconds for times.
pub fn value(counter: &Counter, count: u64) -> f64 {
    match counter.unit {
        Unit::Nanos | Unit::NanosMax => count as f64 / 1e9,
        _ => count as f64,
    }
}
