//! Counters of the queue in front of an accelerator: every job offered, and what became of it.

use crate::Table;

/// Counters of the engine.
pub const TABLE: Table = Table { owner: "the engine", parts: &[EngineCounters::TABLE] };

/// Jobs that were offered and not taken, by reason.
pub const DECLINED: Table = Table { owner: "the engine, `declined`", parts: &[Declined::TABLE] };

/// Jobs that were taken and that the CPU had to do, by fault.
pub const REDONE: Table = Table { owner: "the engine, `redone`", parts: &[Fault::TABLE] };

/// Bundles of jobs that were handed over, by reason.
pub const BUNDLES: Table = Table { owner: "the engine, `bundles`", parts: &[Close::TABLE] };

/// Buckets of the histograms: 4 KiB to 32 MiB and above, 1 us to 8 ms and above.
pub const BUCKETS: usize = 15;

reasons! {
    /// Why a job was not taken. The worker does it.
    Declined: Jobs {
        /// Everything is to be done by the CPU.
        Off = "off",
        /// There is no device that works at present.
        Down = "down",
        /// No slot holds it.
        Size = "size",
        /// Too few source rows for a device to be worth the way there.
        Rows = "rows",
        /// The CPU is faster by what has been measured.
        Cost = "cost",
        /// It would be back too late.
        Late = "late",
        /// All slots are filled or in flight.
        Full = "full",
    }
}

reasons! {
    /// Why the CPU did what the device should have done.
    Fault: Jobs {
        /// There was no device any more when it was due.
        Down = "down" => "See the reason in recodectl show engine.",
        /// The device did not take it.
        Refused = "refused" => "See the reason in recodectl show engine.",
        /// The device failed at it.
        Failed = "failed" => "See the reason in recodectl show engine, and the log of Linux for errors of \
            the card.",
        /// The device was lost while it was there.
        Lost = "lost" => "See the reason in recodectl show engine, and the log of Linux for errors of \
            the card.",
        /// The device did not give it back in time, and may still do so.
        Late = "late" => "Something else uses the card; if it persists, set engine to cpu.",
        /// The device gave nothing back for long and was abandoned.
        Hung = "hung" => "See the log of Linux for errors of the card, and what else uses it.",
        /// The device gave it back wrong.
        Wrong = "wrong" => "Set engine to cpu and replace the card.",
    }
}

reasons! {
    /// Why a bundle was handed over.
    Close: Events {
        /// Its slot was full.
        Bytes = "bytes",
        /// Its oldest job had waited long enough.
        Age = "age",
        /// The device had nothing to do and the slot was worth its while.
        Idle = "idle",
        /// The worker said so.
        Flush = "flush",
    }
}

counters! {
    /// A reading of all counters. `offered_jobs` is the sum of `declined` and `taken_jobs`; each
    /// job taken is done by the device, redone, or still in flight.
    #[derive(Clone, PartialEq, Eq, Default, Debug)]
    EngineCounters {
        /// Jobs that workers offered.
        offered_jobs: Jobs,
        /// Their bytes, inputs and outputs.
        offered_bytes: Bytes,
        /// Jobs that were taken.
        taken_jobs: Jobs,
        /// Their bytes.
        taken_bytes: Bytes,
        /// Jobs that the device did.
        device_jobs: Jobs,
        /// Their bytes.
        device_bytes: Bytes,
        /// Bundles that came back when the CPU had done them; they were ignored.
        late: Events,
        /// Times that a device came into use.
        device_ups: Events,
        /// Times that a device went out of use.
        device_downs: Events => "See the reason in recodectl show engine.",
    }
    by {
        /// Jobs that were not taken, by [`Declined`].
        declined: Declined,
        /// Jobs that the dispatcher did on the CPU, by [`Fault`].
        redone: Fault,
        /// Bundles handed over, by [`Close`].
        closed: Close,
    }
    beside {
        /// Bundles by bytes, under the name that the control API has: up to 4 KiB, 8 KiB, 16 KiB
        /// and on, twice as much each.
        bundle_bytes: [u64; BUCKETS],
        /// Bundles by the time from their first job to their results: up to 1 us, 2 us and on.
        latency: [u64; BUCKETS],
    }
}
