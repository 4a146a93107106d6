//! `recodectl top`: flows, their next hops and changes, once a second.
//!
//! ```text
//!  poller thread: Feed, once a second -- PollResult --> loop: App -> view -> terminal
//!                                           keys ------^
//! ```
//!
//! A thread queries the daemon, so keys work while it does not answer. The screen is drawn after a
//! poll or a key. The terminal is restored however this ends: by `q`, a signal, an error or a
//! panic.

mod app;
mod view;

use crate::feed::Feed;
use app::{App, PollResult};
use jiff::Zoned;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

/// Interval of queries to the daemon.
const LOOK: Duration = Duration::from_secs(1);

/// Longest wait for a key, and thus for a signal.
const KEY_PATIENCE: Duration = Duration::from_millis(200);

/// Why there is no live view.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// Output or input is a file or a pipe.
    #[error("top needs a terminal for input and output: use recodectl show, which prints once")]
    NoTerminal,
    /// JSON is not supported.
    #[error("top is for people: use recodectl --json show, or recodectl --json events -f")]
    Json,
    /// A terminal operation failed.
    #[error("the terminal cannot be used ({0}): use recodectl show, which prints once")]
    Terminal(#[from] io::Error),
    /// No signals.
    #[error("signals cannot be handled ({0}): use recodectl show, which prints once")]
    Signals(#[from] ctrlc::Error),
    /// The polling thread has ended.
    #[error("the thread that asks the daemon has ended: report this")]
    Poller,
}

/// Shows the daemon at `socket` until the user presses `q`.
///
/// # Errors
/// There is no terminal.
pub fn run(socket: &Path, is_json: bool) -> Result<(), TopError> {
    if is_json {
        return Err(TopError::Json);
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    let is_asked_to_end = Arc::new(AtomicBool::new(false));
    let asked = is_asked_to_end.clone();
    // Partner: the load in `until_quit`.
    ctrlc::set_handler(move || asked.store(true, Ordering::Release))?;
    let (seeing, seen) = sync_channel(1);
    let mut feed = Feed::new(socket);
    std::thread::Builder::new().name("poller".into()).spawn(move || poll(&mut feed, &seeing))?;
    // Its panic hook restores the terminal, too.
    let mut terminal = ratatui::try_init()?;
    let ended = until_quit(&mut terminal, &seen, &is_asked_to_end);
    ratatui::try_restore()?;
    ended
}

/// Polls until the receiver is gone.
fn poll(feed: &mut Feed, seeing: &SyncSender<PollResult>) {
    loop {
        let seen = match feed.state() {
            // An older daemon has no events; its state is shown all the same.
            Ok(state) => PollResult::State(Box::new(state), feed.events().map(|it| it.events).ok()),
            Err(error) => PollResult::Nothing(error.to_string()),
        };
        if seeing.send(seen).is_err() {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

fn until_quit(
    terminal: &mut DefaultTerminal,
    seen: &Receiver<PollResult>,
    is_asked_to_end: &AtomicBool,
) -> Result<(), TopError> {
    let mut app = App::default();
    let mut is_stale = true;
    while !app.is_over && !is_asked_to_end.load(Ordering::Acquire) {
        match seen.try_recv() {
            Ok(seen) => {
                app.see(seen);
                is_stale = true;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Err(TopError::Poller),
        }
        if is_stale {
            app.clock = Zoned::now().strftime("%H:%M:%S").to_string();
            terminal.draw(|frame| view::draw(frame, &mut app))?;
            is_stale = false;
        }
        if event::poll(KEY_PATIENCE)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => app.press(key),
                Event::Resize(..) => {}
                _ => continue,
            }
            is_stale = true;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
