//! `recodectl show --watch`: repeats the output over one connection, for logs and for pipes; `top`
//! is for terminals.
//!
//! The client sends a request each time. A Varlink call with several replies would cost the same,
//! as every reply is the whole state, and would keep the daemon's one task and a connection busy
//! for a client that does not read.

use crate::Failure;
use crate::feed::Feed;
use crate::part::Show;
use crate::{show, show_json};
use jiff::Zoned;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// Prints the state, or a part of it, until the reader closes the output.
///
/// # Errors
/// No daemon answers at first, or this user is no longer permitted to query it.
pub fn watch(
    socket: &Path,
    what: Option<Show>,
    every: Duration,
    is_json: bool,
) -> Result<(), Failure> {
    let mut feed = Feed::new(socket);
    let mut state = Some(feed.state()?);
    loop {
        if let Some(state) = state {
            let text = if is_json {
                show_json::show(&state, what, true)?
            } else {
                let at = Zoned::now().strftime("%Y-%m-%d %H:%M:%S");
                format!("--- {at}\n{}\n", show::show(&state, what))
            };
            let mut output = io::stdout();
            match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            }
        }
        std::thread::sleep(every);
        state = match feed.state() {
            Ok(state) => {
                feed.answered(false);
                Some(state)
            }
            Err(error) => {
                feed.wait(error)?;
                None
            }
        };
    }
}
