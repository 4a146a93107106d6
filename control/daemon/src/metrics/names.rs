//! Names of metrics, derived from the tables of counters: one rule for each table.
//!
//! ```text
//!  recoded_flow_ingress_packets_total{flow="1"}        one metric for each counter of a flow
//!  recoded_dropped_packets_total{reason="oversize"}    one metric with a label for all reasons
//! ```

use recoded_counters::{Counter, Table, Unit, engine, flow, link, split, tunnel, verdict, worker};

/// The tables, each with the naming of its counters and their owner.
pub const GROUPS: [Group; 10] = [
    Group { table: flow::TABLE, of: Of::Flow, form: Form::Each("recoded_flow_") },
    Group { table: link::TABLE, of: Of::Link, form: Form::Each("recoded_link_") },
    Group { table: tunnel::TABLE, of: Of::Tunnel, form: Form::Each("recoded_tunnel_") },
    Group { table: split::TABLE, of: Of::Split, form: Form::Each("recoded_split_") },
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
/// Reasons for drops by workers.
const DROPS: Table = Table { owner: worker::TABLE.owner, parts: &[worker::DropReason::TABLE] };
/// Counters of the engine.
const ENGINE: Table = engine::TABLE;

/// A table as metrics.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Group {
    /// The counters.
    pub table: Table,
    /// The owner of the counters.
    pub of: Of,
    /// Naming scheme.
    pub form: Form,
}

/// The owner of counters, which determines their labels.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Of {
    /// Each flow's.
    Flow,
    /// Each link's.
    Link,
    /// Each tunnel's.
    Tunnel,
    /// Each tunnel's whose TCP connections end at both edges.
    Split,
    /// Each worker's.
    Worker,
    /// The node's, by reason.
    Drops,
    /// The XDP program's, by verdict.
    Xdp,
    /// The engine's.
    Engine,
    /// The engine's, by the reason for declining a job.
    Declined,
    /// The engine's, by the fault.
    Redone,
}

/// Naming scheme of the counters in a table.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// One metric each, named by this prefix and the counter.
    Each(&'static str),
    /// One metric for all, distinguished by this label.
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

    /// The query expression that selects a counter.
    pub fn selector(&self, counter: &Counter) -> String {
        let total = if is_gauge(counter) { "" } else { "_total" };
        let name = self.name(counter);
        match self.form {
            Form::Each(_) => format!("{name}{total}"),
            Form::All(_, label) => format!("{name}{total}{{{label}=\"{}\"}}", counter.name),
        }
    }
}

/// Whether it may decrease.
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
