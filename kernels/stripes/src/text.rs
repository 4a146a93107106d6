//! Texts of the program: reports for readers, and JSON for other programs.

use std::fmt::Write;
use std::path::Path;

use recoded_stripes::{
    Condition, Content, Disks, Header, Layout, Report, Set, ShardReport, Slot, VERSION, Verdict,
    YEAR_HOURS,
};
use serde::Serialize;

/// The result of `encode`.
pub(crate) fn encoded(header: &Header, output: &Path) -> String {
    let layout = &header.layout;
    format!(
        "{} bytes in {}: {} shards of {} bytes; any {} of them hold everything",
        layout.total_bytes(),
        output.display(),
        layout.shards(),
        layout.shard_bytes(),
        layout.data()
    )
}

/// The result of a repair.
pub(crate) fn rebuilt(shards: &[usize]) -> String {
    if shards.is_empty() {
        return "healthy: nothing to rebuild".into();
    }
    let shards: Vec<String> = shards.iter().map(usize::to_string).collect();
    format!("rebuilt: shard {}", shards.join(", "))
}

/// The result of `plan`.
pub(crate) fn plan(disks: &Disks) -> String {
    let Disks { data, parity, .. } = disks;
    let years = disks.hours_to_loss() / YEAR_HOURS;
    let years = match years {
        years if years.is_infinite() => "more than 1e304".into(),
        years if years < 1e6 => format!("{years:.1}"),
        years => format!("{years:.1e}"),
    };
    format!(
        "code      {data} data + {parity} parity shards, each on a disk of its own\n\
         storage   {:.2} times the content\n\
         loss      after {years} years on average; within a year with probability {:.1e}\n\
         disk      read completely: an unrecoverable error with probability {:.2e}\n\
         rebuild   from {data} disks, the last ones: without such an error with {:.1} %\n\
         note      disks are assumed to fail independently: use the time to compare codes",
        storage(disks),
        disks.yearly_loss(),
        disks.read_error(),
        disks.clean_pass() * 100.0,
    )
}

/// The same for programs.
pub(crate) fn plan_json(disks: &Disks) -> String {
    let plan = PlanJson {
        data: disks.data,
        parity: disks.parity,
        storage: storage(disks),
        mean_years_to_loss: disks.hours_to_loss() / YEAR_HOURS,
        yearly_loss_probability: disks.yearly_loss(),
        disk_read_error_probability: disks.read_error(),
        rebuild_without_redundancy_probability: disks.clean_pass(),
    };
    serde_json::to_string_pretty(&plan).unwrap_or_default()
}

fn storage(disks: &Disks) -> f64 {
    (disks.data + disks.parity) as f64 / disks.data as f64
}

/// The report of `verify`: a line for each bad shard, and the verdict.
pub(crate) fn report(report: &Report) -> String {
    let mut text = String::new();
    let bad = report.shards.iter().enumerate().filter(|(_, shard)| !shard.is_intact());
    for (number, shard) in bad {
        let name = shard.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        let _ = writeln!(text, "shard {number}{name}: {}", problem(shard));
    }
    let intact = report.shards.iter().filter(|shard| shard.is_intact()).count();
    let Report { header, lost, inconsistent, .. } = report;
    let (shards, data) = (header.layout.shards(), header.layout.data());
    if lost.count() > 0 {
        let _ = writeln!(text, "lost: stripe {lost}: fewer than {data} intact units");
    }
    if inconsistent.count() > 0 {
        let _ = writeln!(text, "stripe {inconsistent}: intact units of different contents");
    }
    text += &match report.verdict() {
        Verdict::Healthy => format!("healthy: all {shards} shards are intact"),
        Verdict::Recoverable => format!(
            "recoverable: {intact} of {shards} shards are intact\n\
             fix: run `recover` without --output"
        ),
        Verdict::Lost => format!(
            "lost: {intact} of {shards} shards are intact\nfix: bring back missing shards, or \
             copies of damaged ones"
        ),
    };
    text
}

fn problem(shard: &ShardReport) -> String {
    let damaged = match shard.damaged.count() {
        0 => String::new(),
        1 => format!("damaged in stripe {}", shard.damaged),
        count => format!("damaged in {count} stripes: {}", shard.damaged),
    };
    match &shard.condition {
        Condition::Complete => damaged,
        Condition::Missing => "missing".into(),
        Condition::Headless => "its header is damaged".into(),
        Condition::Stale => "it missed an update".into(),
        Condition::Length { expected, found } if damaged.is_empty() => {
            format!("{found} bytes instead of {expected}")
        }
        Condition::Length { expected, found } => {
            format!("{found} bytes instead of {expected}; {damaged}")
        }
    }
}

/// The contents of `info`.
pub(crate) struct Info {
    /// Whether the next command will complete an update.
    pub is_update_pending: bool,
    /// The set.
    pub set: Set<std::fs::File>,
}

/// `info --json`. Fields are only added.
#[derive(Serialize)]
struct InfoJson<'a> {
    format: u16,
    set: String,
    content: Content,
    data: usize,
    parity: usize,
    unit_bytes: usize,
    total_bytes: u64,
    stripes: u64,
    shard_bytes: u64,
    updates: u64,
    update_pending: bool,
    shards: Vec<ShardJson<'a>>,
}

#[derive(Serialize)]
struct PlanJson {
    data: usize,
    parity: usize,
    /// Stored bytes over those of the content.
    storage: f64,
    /// `null` beyond the range of JSON's numbers, as that of `f64`.
    mean_years_to_loss: f64,
    yearly_loss_probability: f64,
    disk_read_error_probability: f64,
    rebuild_without_redundancy_probability: f64,
}

#[derive(Serialize)]
struct ShardJson<'a> {
    shard: usize,
    file: Option<&'a str>,
    state: &'static str,
}

fn state(slot: &Slot<std::fs::File>, layout: &Layout) -> &'static str {
    match slot {
        Slot::Current { bytes, .. } if *bytes == layout.shard_bytes() => "present",
        Slot::Current { .. } => "wrong-length",
        Slot::Missing => "missing",
        Slot::Headless { .. } => "header-damaged",
        Slot::Stale { .. } => "stale",
    }
}

impl Info {
    /// For readers.
    pub fn lines(&self) -> String {
        let Header { set, layout, content, revision, .. } = &self.set.header;
        let kind = match content {
            Content::File => "file",
            Content::Folder => "folder, as a tar archive",
        };
        let mut text = format!(
            "set       {set}, format {VERSION}\n\
             content   {kind}, {} bytes\n\
             code      {} data + {} parity shards, units of {} bytes, {} stripes\n\
             shards    {} bytes each\n\
             updates   {revision}{}\n",
            layout.total_bytes(),
            layout.data(),
            layout.parity(),
            layout.unit_bytes(),
            layout.stripes(),
            layout.shard_bytes(),
            if self.is_update_pending { ", and one to be completed" } else { "" },
        );
        let states = self.set.slots.iter().map(|slot| state(slot, layout));
        let present = states.clone().filter(|state| *state == "present").count();
        let _ = write!(text, "present   {present} of {}", layout.shards());
        for (shard, state) in states.enumerate().filter(|(_, state)| *state != "present") {
            let _ = write!(text, "\nshard {shard:<3} {state}");
        }
        text
    }

    /// For programs.
    pub fn json(&self) -> String {
        let Header { set, layout, content, revision, .. } = self.set.header;
        let shard = |(shard, slot)| ShardJson {
            shard,
            file: Slot::name(slot),
            state: state(slot, &layout),
        };
        let info = InfoJson {
            format: VERSION,
            set: set.to_string(),
            content,
            data: layout.data(),
            parity: layout.parity(),
            unit_bytes: layout.unit_bytes(),
            total_bytes: layout.total_bytes(),
            stripes: layout.stripes(),
            shard_bytes: layout.shard_bytes(),
            updates: revision,
            update_pending: self.is_update_pending,
            shards: self.set.slots.iter().enumerate().map(shard).collect(),
        };
        serde_json::to_string_pretty(&info).unwrap_or_default()
    }
}
