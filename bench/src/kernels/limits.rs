//! Peak throughput of the core: measured first, and again in every round with the rows it limits.

use bench_native::limits::{BLOCK_BYTES, Kind, Probe, available};
use serde_json::{Value, json};

use crate::kernels::contest::{Contestant, Role};
use crate::kernels::memory::Layout;

/// A limit, measured.
pub struct Limit {
    probe: Probe,
    working_set: usize,
    contestant: Contestant,
}

/// All limits of a core.
pub struct CoreLimits {
    limits: Vec<Limit>,
}

impl CoreLimits {
    /// Measures all probes in turns.
    pub fn measure(rounds: usize, seconds: f64) -> CoreLimits {
        let mut limits = Vec::new();
        limits.extend(available(Kind::Products).map(|probe| Limit::new(probe, 0)));
        for working_set in [L1_BYTES, L2_BYTES] {
            let kinds = [Kind::Load, Kind::Store, Kind::Add];
            let probes = kinds.into_iter().flat_map(available);
            limits.extend(probes.map(|probe| Limit::new(probe, working_set)));
        }
        for _ in 0..rounds {
            limits.iter_mut().for_each(|limit| limit.contestant.sample(seconds));
        }
        CoreLimits { limits }
    }

    /// The widest probe of products, which rows are measured against.
    pub fn products(&self) -> Ceiling {
        self.fastest(Kind::Products, 0)
    }

    /// The fastest probe of stores to the first-level cache.
    pub fn store(&self) -> Ceiling {
        self.fastest(Kind::Store, L1_BYTES)
    }

    fn fastest(&self, kind: Kind, working_set: usize) -> Ceiling {
        let of_kind = |limit: &&Limit| {
            limit.probe.kind == kind && (kind == Kind::Products || limit.working_set == working_set)
        };
        let fastest = self
            .limits
            .iter()
            .filter(of_kind)
            .max_by(|a, b| a.contestant.median().total_cmp(&b.contestant.median()));
        let limit = fastest.expect("every processor has a probe of every kind");
        Ceiling { probe: limit.probe, working_set, vector_bytes: self.vector_bytes() }
    }

    /// Bytes of the vectors that lengths are rounded up to.
    pub fn vector_bytes(&self) -> usize {
        let products = self.limits.iter().filter(|limit| limit.probe.kind == Kind::Products);
        products.map(|limit| limit.probe.vector_bytes).max().unwrap_or(1)
    }

    /// Table for humans.
    pub fn table(&self) -> String {
        let mut lines = vec![
            "| limit | instruction | working set | median GB/s | best GB/s |".to_owned(),
            "|---|---|---:|---:|---:|".to_owned(),
        ];
        lines.extend(self.limits.iter().map(|limit| {
            let (median, best) = (limit.contestant.median(), limit.contestant.best());
            let (what, name) = (limit.what(), limit.probe.name);
            let working_set = match limit.working_set {
                0 => "registers".into(),
                bytes => format!("{} KiB", bytes / 1024),
            };
            format!("| {what} | {name} | {working_set} | {median:.1} | {best:.1} |")
        }));
        lines.join("\n")
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let limits = self.limits.iter().map(|limit| {
            json!({
                "limit": limit.what(),
                "instruction": limit.probe.name,
                "vector_bytes": limit.probe.vector_bytes,
                "working_set_bytes": limit.working_set,
                "median": limit.contestant.median(),
                "best": limit.contestant.best(),
                "unit": "GB/s",
            })
        });
        limits.collect()
    }
}

impl Limit {
    fn new(probe: Probe, working_set: usize) -> Limit {
        let ceiling = Ceiling { probe, working_set, vector_bytes: 1 };
        Limit { probe, working_set, contestant: ceiling.contestant(1, 1.0) }
    }

    fn what(&self) -> &'static str {
        match self.probe.kind {
            Kind::Products => "products",
            Kind::Load => "load",
            Kind::Store => "store",
            Kind::Add => "load, load, store",
        }
    }
}

/// The limit of a job, ready to be measured alongside it.
#[derive(Copy, Clone)]
pub struct Ceiling {
    probe: Probe,
    working_set: usize,
    vector_bytes: usize,
}

impl Ceiling {
    /// A contestant that does the job as fast as the instruction allows. Symbols of `bytes` occupy
    /// whole vectors, the last one full or not. `rate` is the row's count for 10^9 useful bytes (or
    /// products) per second.
    pub fn contestant(self, bytes: usize, rate: f64) -> Contestant {
        let useful = bytes as f64 / bytes.next_multiple_of(self.vector_bytes) as f64;
        let Ceiling { probe, working_set, .. } = self;
        let memory = Layout { count: 1, bytes: working_set, stride: working_set.max(BLOCK_BYTES) };
        let mut memory = memory.zeros();
        let buffer = memory.remove(0);
        let per_job = probe.run(buffer, PASSES) as f64;
        Contestant::new(Role::Ceiling, probe.name, per_job / 1e9 * useful * rate, move || {
            probe.run(buffer, PASSES);
        })
    }
}

/// Half of the smallest first-level data cache in use.
const L1_BYTES: usize = 16 * 1024;
/// Beyond any first-level cache, within any second-level one.
const L2_BYTES: usize = 192 * 1024;
/// Passes over a working set per job: enough to hide the cost of entry and exit.
const PASSES: usize = 8;
