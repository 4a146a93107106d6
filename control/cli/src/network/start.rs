//! The first start of all boxes, after their files are installed.

use super::applied::{Applied, PAUSE, failed};
use super::script::BoxPaths;
use super::status::{Condition, LOOK_SECONDS, conditions};
use super::{Boxes, worse};
use recoded_api::exit;
use std::time::{Duration, Instant};

/// Starts the daemon of every box and waits at most `seconds` until all are well. Started daemons
/// keep running: a faulty box shows more while it runs.
pub fn all(boxes: &Boxes, seconds: u64, all: &mut [Applied]) -> Result<u8, crate::Failure> {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let mut code = exit::OK;
    for (it, answer) in all.iter_mut().zip(boxes.ask(BoxPaths::start)?) {
        match failed(answer) {
            None => it.state = "started",
            Some((failure, mut found)) => {
                code = worse(code, failure);
                if failure == exit::REFUSED {
                    found.cure = "`journalctl -u recoded` there says more".into();
                }
                it.findings.push(found);
            }
        }
    }
    if code != exit::OK {
        return Ok(code);
    }
    loop {
        let now = conditions(boxes, LOOK_SECONDS)?;
        let code = now.iter().map(Condition::exit_code).fold(exit::OK, worse);
        let is_over = Instant::now() + Duration::from_secs(LOOK_SECONDS) >= deadline;
        if code == exit::OK || is_over {
            for (it, now) in all.iter_mut().zip(now) {
                it.findings.extend(now.findings);
            }
            return Ok(code);
        }
        std::thread::sleep(PAUSE);
    }
}
