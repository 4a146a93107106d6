//! `recodectl invite`: prints a token, waits for the box that has it, and adds that box.

use super::exchange::{self, Answer, Channel, ExchangeError, Offer, Outcome, Reply, plain};
use super::hub_file::{HubError, HubFile};
use super::listener::{Arrival, Listener};
use super::token::Token;
use crate::atomic_file::replace;
use crate::{durations, reload};
use clap::Args;
use ipnet::IpNet;
use recoded_api::client::{Client, ClientError};
use recoded_secure::{Entropy, Invitation, PresharedKey, PublicKey};
use serde::Serialize;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// Time for the box to check the offer.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// What the hub offers, and for how long.
#[derive(Args, Debug)]
pub struct InviteOptions {
    /// Name of the new box
    #[arg(value_name = "NAME")]
    name: String,
    /// Address or host name where the new box finds this one, if that is not the one in the file
    #[arg(long, value_name = "ADDRESS", value_parser = exchange::address)]
    address: Option<String>,
    /// TCP port that waits for the new box; 0 is any free one
    #[arg(long, value_name = "PORT", default_value = "9426")]
    port: u16,
    /// Time until the token expires: 1s to 24h
    #[arg(long, value_name = "TIME", default_value = "1h",
          value_parser = |text: &str| durations::seconds(text, 1..=86_400))]
    expires: u64,
    /// Network of the tunnel, whose first two addresses are for hub and box; by default the first
    /// free one in 10.99.0.0/16
    #[arg(long, value_name = "ADDRESS/LENGTH")]
    tunnel: Option<IpNet>,
    /// The file of the network
    #[arg(long, value_name = "FILE", default_value = "/etc/recoded/recoded.toml")]
    config: PathBuf,
}

/// Why no box was added.
#[derive(Debug, thiserror::Error)]
pub enum InviteError {
    /// The file.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The port is taken.
    #[error(
        "cannot listen at TCP port {port} ({source}): another recodectl invite may wait there; \
         name a free port with --port"
    )]
    Listen {
        /// The port.
        port: u16,
        /// The reason.
        source: io::Error,
    },
    /// No random bytes.
    #[error("Linux gives no random bytes: {0}")]
    Random(String),
    /// In time, no box came.
    #[error(
        "box {name} did not join within {}, and the token is worthless: nothing was \
         changed; repeat recodectl invite for another one",
        time(*.seconds)
    )]
    Expired {
        /// The box.
        name: String,
        /// The time.
        seconds: u64,
    },
    /// The daemon does not serve this user.
    #[error(transparent)]
    Client(ClientError),
}

impl InviteError {
    /// Whether the command line is wrong.
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            InviteError::Hub(HubError::Name | HubError::KnownName { .. } | HubError::Tunnel(_))
        )
    }
}

/// An open invitation.
#[derive(Serialize)]
struct Opened<'a> {
    name: &'a str,
    token: &'a str,
    expires_seconds: u64,
    port: u16,
}

/// The box that joined.
#[derive(Debug, Serialize)]
pub struct Invited {
    file: String,
    name: String,
    key: String,
    /// Address of its connection.
    from: IpAddr,
    hub_tunnel: String,
    tunnel: String,
    daemon: Daemon,
}

/// What became of the daemon here.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Daemon {
    Reloaded,
    NotRunning,
    /// It reads another file.
    OtherFile,
}

/// Invites a box, and waits until it has joined.
///
/// # Errors
/// [`InviteError`]: nothing was changed.
pub fn run(options: &InviteOptions, socket: &Path, json: bool) -> Result<Invited, crate::Failure> {
    let InviteOptions { name, address, port, expires, tunnel, config } = options;
    let file = HubFile::read(config).map_err(InviteError::from)?;
    let offer = file.offer(name, address.as_deref(), *tunnel, &own_networks());
    let offer = offer.map_err(InviteError::from)?;
    daemon(socket)?;
    let listener = Listener::open(*port);
    let listener = listener.map_err(|source| InviteError::Listen { port: *port, source })?;
    let entropy = Entropy::fresh().map_err(|error| InviteError::Random(error.to_string()))?;
    let secret = PresharedKey::generate(&entropy);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let token = Token {
        expiry: now.as_secs().saturating_add(*expires),
        port: listener.port,
        hub: file.private.public(),
        secret: secret.clone(),
        place: offer.at.clone(),
    };
    // By a monotonic clock: the time of day may be wrong on either box.
    let deadline = Instant::now() + Duration::from_secs(*expires);
    let opened =
        Opened { name, token: &token.to_text(), expires_seconds: *expires, port: listener.port };
    say(&match json {
        true => serde_json::to_string(&opened)? + "\n",
        false => introduction(&opened),
    });
    let invitation = Arc::new(Invitation::new(file.private.clone(), secret));
    loop {
        let Some(arrival) = listener.next(&invitation, deadline) else {
            let (name, seconds) = (name.clone(), *expires);
            return Err(InviteError::Expired { name, seconds }.into());
        };
        let from = arrival.from;
        match admit(arrival, &offer, config, socket) {
            Ok(invited) => return Ok(invited),
            // The secret has not served yet, so the box may correct its side and come again.
            Err(refusal) => {
                eprintln!("recodectl: {from} did not join: {refusal}; still waiting");
            }
        }
    }
}

/// Why a box that has the secret is not added.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    Exchange(#[from] ExchangeError),
    #[error("{0}")]
    Hub(#[from] HubError),
    #[error("it declines: {0}")]
    Declined(String),
    #[error("the hub cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error("the daemon of the hub refuses the box: {0}")]
    Daemon(String),
}

/// Adds the box at the other end of a connection.
fn admit(
    arrival: Arrival,
    offer: &Offer,
    config: &Path,
    socket: &Path,
) -> Result<Invited, Refusal> {
    let Arrival { stream, joining, from } = arrival;
    stream.set_read_timeout(Some(REPLY_TIMEOUT)).map_err(ExchangeError::from)?;
    stream.set_write_timeout(Some(REPLY_TIMEOUT)).map_err(ExchangeError::from)?;
    let key = joining.key();
    // The file may have changed since the token was printed.
    let checked = HubFile::read(config).and_then(|file| file.with(offer, &key, None));
    let answer = match &checked {
        Ok(_) => Answer::Offer(offer.clone()),
        Err(error) => Answer::Refused(error.to_string()),
    };
    let payload = exchange::payload(&answer)?;
    let (sealed, noise) = joining.answer(&payload).map_err(ExchangeError::from)?;
    let mut channel = Channel { stream, noise };
    channel.stream.write_all(&exchange::frame(&sealed)).map_err(ExchangeError::from)?;
    checked?;
    // A sender that only replays the first message cannot form this one.
    let at = match channel.receive()? {
        Reply::Accepted { at } => at,
        Reply::Declined(reason) => return Err(Refusal::Declined(plain(&reason))),
    };
    let added = add(offer, &key, at, config, socket);
    let outcome = match &added {
        Ok(_) => Outcome::Done,
        Err(error) => Outcome::Refused(error.to_string()),
    };
    let told = channel.send(&outcome);
    let daemon = added?;
    if told.is_err() {
        eprintln!("recodectl: the connection to {from} ended before it learned that it was added");
    }
    Ok(Invited {
        file: config.display().to_string(),
        name: offer.name.clone(),
        key: key.to_string(),
        from,
        hub_tunnel: offer.hub_tunnel.clone(),
        tunnel: offer.tunnel.clone(),
        daemon,
    })
}

/// Writes the file with the box, and has the daemon apply it; otherwise the file is as before.
fn add(
    offer: &Offer,
    key: &PublicKey,
    at: Option<String>,
    config: &Path,
    socket: &Path,
) -> Result<Daemon, Refusal> {
    let file = HubFile::read(config)?;
    let text = file.with(offer, key, at)?;
    let write = |text: &str| {
        replace(config, text).map_err(|source| Refusal::Write { path: config.to_owned(), source })
    };
    let refused = |failure: crate::Failure| Refusal::Daemon(failure.to_string());
    let client = daemon(socket).map_err(refused)?;
    write(&text)?;
    let Some(mut client) = client else { return Ok(Daemon::NotRunning) };
    let reloaded = client.reload(false, None).map_err(crate::Failure::from);
    match reloaded.and_then(|outcome| reload::settled(client, outcome, socket)) {
        Ok(outcome) if outcome.changes.is_empty() => Ok(Daemon::OtherFile),
        Ok(_) => Ok(Daemon::Reloaded),
        Err(failure) => {
            write(&file.text)?;
            Err(refused(failure))
        }
    }
}

/// The daemon here; none if none runs.
fn daemon(socket: &Path) -> Result<Option<Client>, crate::Failure> {
    match Client::connect(socket) {
        Ok(client) => Ok(Some(client)),
        Err(ClientError::NotRunning { .. }) => Ok(None),
        Err(error) => Err(InviteError::Client(error).into()),
    }
}

/// Networks of this host, which no tunnel may have.
fn own_networks() -> Vec<IpNet> {
    let own = recoded_host::all_own_addresses().unwrap_or_default();
    let own = own.into_values().flatten();
    own.filter_map(|(address, length)| IpNet::new(address, length).ok()).collect()
}

fn introduction(opened: &Opened<'_>) -> String {
    let Opened { name, token, expires_seconds, port } = opened;
    format!(
        "on {name}, within {}, as root; the holder of this token can join once:\n\n\
         recodectl join {token}\n\n\
         waiting at TCP port {port}, which firewalls of this box must let in; Ctrl-C withdraws the \
         token\n",
        time(*expires_seconds)
    )
}

fn time(seconds: u64) -> String {
    match seconds {
        hours if hours.is_multiple_of(3600) => format!("{} h", hours / 3600),
        minutes if minutes.is_multiple_of(60) => format!("{} min", minutes / 60),
        seconds => format!("{seconds} s"),
    }
}

/// Prints while the command runs. A reader that is gone learns nothing more.
fn say(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Formats the result as text.
pub fn text(invited: &Invited) -> String {
    let Invited { file, name, key, from, hub_tunnel, tunnel, daemon } = invited;
    let next = match daemon {
        Daemon::Reloaded => "the daemon has applied it".to_owned(),
        Daemon::NotRunning => "no daemon runs here: systemctl enable --now recoded".to_owned(),
        Daemon::OtherFile => format!(
            "the daemon here reads another file, and does not know {name}: repeat invite with \
             --config of that file"
        ),
    };
    format!(
        "{name} joined from {from}, with key {key}\n{file}: {name} and its path were added; {next}\n\
         tunnel {hub_tunnel} here, {tunnel} on {name}\n"
    )
}
