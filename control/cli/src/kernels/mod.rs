//! `recodectl kernels`: the compute kernels that this machine can run, and their speed. It examines
//! the machine, not the daemon, so it works before anything is installed.
//!
//! ```text
//!  Kernel::levels() --report--> KernelLevels --measure--> rates added --show--> text or JSON
//! ```

mod measure;
mod show;

use recoded_api::client::Client;
use recoded_gf::{Field, ForceError, Kernel};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

pub use show::text;

/// The result, as serialised to JSON.
#[derive(Serialize)]
pub struct KernelLevels {
    /// The level that a daemon started now would use.
    used: &'static str,
    /// Why that one is used.
    reason: Reason,
    /// The level that the daemon on the control socket uses, if one answers.
    daemon: Option<String>,
    /// Time spent measuring.
    seconds: u64,
    /// Every level of this build, slowest first.
    levels: Vec<Level>,
}

/// Why a level is used.
#[derive(Copy, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Reason {
    /// It is the fastest that this CPU can run.
    Fastest,
    /// `RECODED_KERNEL` names it.
    Environment,
    /// The command line names it.
    Option,
}

/// One level of this build.
#[derive(Serialize)]
struct Level {
    name: &'static str,
    needs: &'static str,
    available: bool,
    /// Names of the fields it serves; empty when it is not available.
    fields: Vec<String>,
    /// Multiply-add of 1500 bytes, gigabytes of source per second.
    madd_gigabytes: Option<f64>,
    /// 16 packets of 1500 bytes combined into one, coded gigabits per second.
    combine_gigabits: Option<f64>,
}

/// Finds the levels, measures those that this CPU can run for `seconds` in all, and queries the
/// daemon for its level.
///
/// # Errors
/// `forced`, or otherwise `RECODED_KERNEL`, names an unknown level.
pub fn report(
    forced: Option<&str>,
    seconds: u64,
    socket: &Path,
) -> Result<KernelLevels, ForceError> {
    let (used, reason) = choose(forced)?;
    let mut levels: Vec<Level> = Kernel::levels().map(level).collect();
    let available = levels.iter().filter(|level| level.available).count().max(1);
    let share = Duration::from_secs(seconds) / u32::try_from(available).unwrap_or(u32::MAX);
    for level in &mut levels {
        if let Some(kernel) = Kernel::by_name(level.name).filter(|_| seconds > 0) {
            level.madd_gigabytes = Some(measure::madd_gigabytes(kernel, share / 2));
            level.combine_gigabits = Some(measure::combine_gigabits(kernel, share / 2));
        }
    }
    let daemon = Client::connect(socket).and_then(|mut client| client.version()).ok();
    let daemon = daemon.map(|version| version.kernel);
    Ok(KernelLevels { used: used.name(), reason, daemon, seconds, levels })
}

fn choose(forced: Option<&str>) -> Result<(&'static Kernel, Reason), ForceError> {
    if let Some(name) = forced {
        return Ok((Kernel::require(name)?, Reason::Option));
    }
    match Kernel::forced()? {
        Some(kernel) => Ok((kernel, Reason::Environment)),
        None => Ok((Kernel::best(), Reason::Fastest)),
    }
}

fn level(info: recoded_gf::LevelInfo) -> Level {
    let kernel = Kernel::by_name(info.name);
    let serves = |field: &Field| kernel.is_some_and(|kernel| kernel.over(*field).is_some());
    Level {
        name: info.name,
        needs: info.needs,
        available: info.available,
        fields: Field::ALL.iter().filter(|field| serves(field)).map(Field::to_string).collect(),
        madd_gigabytes: None,
        combine_gigabits: None,
    }
}
