//! The rows of `bench secure --attack` in virtual time: relays with all keys that lie on one of two
//! paths, by the simulator, and forged messages of handshakes.

use std::fmt::Write as _;

use recoded_sim::LiarRow;
use serde::Serialize;

use super::forged::{self, CookieRow, ForgedRow};
use crate::error::BenchError;
use crate::machine::Machine;

/// Share of the honest path that arrives next to a liar. The verdict takes half a second of five.
const SHARE_AIM: f64 = 0.85;

/// Longest agreement under forged cookies, in agreements without.
const COOKIE_AIM: f64 = 1.5;

/// A relay of one of two paths lies.
#[derive(Serialize)]
struct LiarResult {
    code: &'static str,
    spread: &'static str,
    lie: &'static str,
    seed: u64,
    /// Deliveries while it lies, as a share of those over the honest path alone.
    share: f64,
    /// Packets that never arrive, of those that enter from a second and a half later on.
    missing: u64,
    late_millis: f64,
}

/// All rows in virtual time.
#[derive(Serialize)]
pub struct Adversaries {
    liars: Vec<LiarResult>,
    cookies: Vec<CookieRow>,
    forged: Vec<ForgedRow>,
    share_aim: f64,
    cookie_aim: f64,
    pub met: bool,
}

/// These rows alone, as JSON.
#[derive(Serialize)]
pub struct SimulatedReport {
    benchmark: &'static str,
    machine: Machine,
    adversaries: Adversaries,
}

impl SimulatedReport {
    /// Measures them, as [`run`] does.
    ///
    /// # Errors
    /// [`BenchError`]: one sentence.
    pub fn measure(seed: u64, is_quick: bool) -> Result<SimulatedReport, BenchError> {
        let (benchmark, machine) = ("secure --attack --simulated", Machine::describe());
        Ok(SimulatedReport { benchmark, machine, adversaries: run(seed, is_quick)? })
    }

    /// The results for readers.
    pub fn table(&self) -> String {
        format!("{}\n\n{}", self.machine.heading(), self.adversaries.table())
    }
}

/// Measures them; `seed` is that of the simulator. A quick run has liars next to one flow only.
///
/// # Errors
/// [`BenchError`]: one sentence.
pub fn run(seed: u64, is_quick: bool) -> Result<Adversaries, BenchError> {
    let cases = if is_quick { &LiarRow::CASES[..1] } else { LiarRow::CASES };
    let mut rows = Vec::new();
    for &(code, spread) in cases {
        let found = LiarRow::of_case(seed, code, spread);
        rows.extend(found.map_err(|(row, violation)| BenchError::Simulated {
            row,
            violation: violation.to_string(),
        })?);
    }
    let liars: Vec<LiarResult> = rows.iter().map(liar).collect();
    let (cookies, forged) = (forged::cookies()?, forged::messages()?);
    let met = liars.iter().all(|row| row.share >= SHARE_AIM)
        && cookies.iter().all(|row| row.attacked_millis <= COOKIE_AIM * row.alone_millis)
        && forged.iter().all(|row| row.refused == 0);
    let (share_aim, cookie_aim) = (SHARE_AIM, COOKIE_AIM);
    Ok(Adversaries { liars, cookies, forged, share_aim, cookie_aim, met })
}

fn liar(row: &LiarRow) -> LiarResult {
    let [code, spread, lie] = row.names();
    let LiarRow { seed, share, missing, late_nanos, .. } = *row;
    let late_millis = late_nanos as f64 / 1e6;
    LiarResult { code, spread, lie, seed, share, missing, late_millis }
}

impl Adversaries {
    /// The results for readers, as tables of Markdown.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| relay with keys on one of two paths | flow | share of the honest path | missing \
             | 99th percentile of the delay |\n|---|---|---:|---:|---:|\n",
        );
        for row in &self.liars {
            let LiarResult { code, spread, lie, share, missing, late_millis, .. } = row;
            let _ = writeln!(
                text,
                "| {lie} | {code}, {spread} | {share:.3} | {missing} | {late_millis:.0} ms |"
            );
        }
        text += "\n| round trip | agreement on keys | with forged cookies |\n|---:|---:|---:|\n";
        for CookieRow { round_trip_millis, alone_millis, attacked_millis, .. } in &self.cookies {
            let _ = writeln!(
                text,
                "| {round_trip_millis} ms | {alone_millis:.0} ms | {attacked_millis:.0} ms |"
            );
        }
        text += "\n| forged messages | a second | honest ones refused | share of a core |\n\
                 |---|---:|---:|---:|\n";
        for ForgedRow { message, forged_per_second, honest, refused, core_share } in &self.forged {
            let _ = writeln!(
                text,
                "| {message} | {forged_per_second} | {refused} of {honest} | {core_share:.4} |"
            );
        }
        let verdict = if self.met { "met" } else { "not met" };
        let _ = writeln!(
            text,
            "\naims: {SHARE_AIM} of the honest path, {COOKIE_AIM} times the agreement, no honest \
             message refused: {verdict}"
        );
        text
    }
}
