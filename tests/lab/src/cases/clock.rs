//! Steps of the wall clock. Both boxes have the machine's.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

use super::{Case, Machine};
use crate::LabError;
use crate::guest::{Boxes, Guest, Setup, under_pings};
use crate::nic::Nic;

/// A machine that waits for keys to be renewed.
pub const MACHINE: Machine =
    Machine { name: "clock", nics: &[Nic::Virtio], waits: true, cases: &CASES, ..Machine::USUAL };

const CASES: [Case; 1] = [Case {
    name: "clock-steps-keys",
    shows: "steps of a day, back and forth, cost no ping; keys are renewed",
    run: steps,
}];

const DAY: i64 = 86_400;

/// Keys are renewed two minutes after the agreement. The responding end waits for 30 s more.
const REKEY_PATIENCE: Duration = Duration::from_secs(240);

/// After a step: retransmissions and keepalives are due.
const SETTLE: Duration = Duration::from_secs(3);

fn steps(guest: &Guest) -> Result<String, LabError> {
    let setup = Setup { has_keys: true, folder: Some("/run/clock"), ..Setup::default() };
    std::fs::create_dir_all("/run/clock").map_err(LabError::file("/run/clock".as_ref()))?;
    let boxes = guest.pair(Nic::Virtio)?.start(&setup)?;
    boxes.carry()?;
    let renewed = without_loss(&boxes, || {
        step(-DAY)?;
        rekeyed(&boxes)
    })?;
    boxes.carry()?;
    for days in [2, -1] {
        without_loss(&boxes, || {
            step(days * DAY)?;
            std::thread::sleep(SETTLE);
            Ok(())
        })?;
    }
    boxes.carry()?;
    Ok(format!("a day back: keys renewed after {renewed:?} s; 2 days on, a day back: none lost"))
}

/// Does something while box a pings box b. Every ping must be answered.
fn without_loss<T>(
    boxes: &Boxes,
    work: impl FnOnce() -> Result<T, LabError>,
) -> Result<T, LabError> {
    let (result, pings) = under_pings(&boxes.nodes()[0].namespace, boxes.nodes()[1].inside, work)?;
    match pings.lost {
        0 => Ok(result),
        _ => LabError::wrong(format!("{pings} after a step of the clock")),
    }
}

/// Waits until every session of box a has other keys.
fn rekeyed(boxes: &Boxes) -> Result<Vec<u64>, LabError> {
    let [a, _] = boxes.nodes();
    let before = a.show()?.sessions;
    let began = Instant::now();
    let mut after = vec![None; before.len()];
    while after.contains(&None) {
        if began.elapsed() > REKEY_PATIENCE {
            return LabError::wrong(format!("keys are not renewed: {:?}", a.show()?.sessions));
        }
        for (session, after) in a.show()?.sessions.iter().zip(&mut after) {
            let was = before.iter().find(|it| it.with == session.with);
            if was.is_some_and(|was| session.handshakes > was.handshakes) {
                after.get_or_insert(began.elapsed().as_secs());
            }
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(after.into_iter().flatten().collect())
}

fn step(seconds: i64) -> Result<(), LabError> {
    let now = clock_gettime(ClockId::Realtime);
    let then = Timespec { tv_sec: now.tv_sec + seconds, ..now };
    clock_settime(ClockId::Realtime, then).map_err(|error| LabError::Wrong(error.to_string()))
}
