//! The real pipeline on a simulated network, decided by one seed.
//!
//! A [`Scenario`] is plain data: nodes, links, traffic, changes. [`run`] executes it in virtual
//! nanoseconds and checks the invariants that hold in every network; [`Scenario::from_seed`] draws
//! one of any kind. The same scenario yields the same [`RunReport`], to the last packet.
//!
//! ```
//! use recoded_sim::{Link, Scenario, run};
//!
//! let scenario = Scenario::line(1, 3, Link::lossy(0.1)).deliver_all();
//! let outcome = run(&scenario)?;
//! assert_eq!(outcome.delivered, 1000);
//! # Ok::<(), recoded_sim::Violation>(())
//! ```

#![forbid(unsafe_code)]

mod traffic;

mod results;

mod scenario;

mod code;

mod generate;

mod graph;

mod trouble;

mod network;

mod link;

mod hop_tags;

mod attack;

mod liar;

mod liar_rows;

mod liar_draw;

mod seed;

mod node;

mod crew;

mod keys;

mod protection;

mod worker;

mod frames;

mod hops;

mod oracle;

mod violation;

mod run_report;

mod summary;

mod trace;

mod sweep;

mod delay;

mod random;

pub use attack::{Attack, Forgery, Knowledge};
pub use code::Code;
pub use delay::Delays;
pub use generate::Weather;
pub use liar::{Liar, Lie};
pub use liar_rows::LiarRow;
pub use link::{Link, LinkCounters, Rate};
pub use run_report::{Rank, RunReport};
pub use scenario::{Change, Hop, Promise, Scenario, Threads};
pub use summary::{Described, Summary};
pub use sweep::{Failure, Found, Swept, sweep};
pub use trace::Step;
pub use traffic::{Pauses, Traffic};
pub use violation::Violation;

/// Runs a scenario to its end.
///
/// # Errors
/// The first violated invariant.
///
/// # Panics
/// When a link has no ends or a node no parameters, or the pipeline panics.
pub fn run(scenario: &Scenario) -> Result<RunReport, Violation> {
    network::Network::new(scenario, &mut |_, _| ()).run()
}

/// As [`run`], and shows `watch` every step with its time in nanoseconds.
///
/// # Errors
/// As [`run`].
///
/// # Panics
/// As [`run`].
pub fn run_watched(
    scenario: &Scenario,
    mut watch: impl FnMut(u64, &Step<'_>),
) -> Result<RunReport, Violation> {
    network::Network::new(scenario, &mut watch).run()
}
