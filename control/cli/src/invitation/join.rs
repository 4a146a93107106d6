//! `recodectl join`: makes the key of a new box, introduces it to the hub, and writes its file.

use super::exchange::{self, Answer, Channel, ExchangeError, Offer, Outcome, Reply, plain};
use super::token::{Token, TokenError};
use crate::atomic_file::draft;
use crate::init::{self, InitError, KEY_FILE};
use clap::Args;
use ipnet::IpNet;
use recoded_network::{BoxEntry, Ends, EntryError, NetworkErrors, Spoke, with_boxes, with_spoke};
use recoded_secure::{Entropy, JoinRequest, KeyError, PrivateKey, PublicKey, key_file};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time for each address of the hub: three attempts of TCP.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// Addresses that are tried.
const ADDRESSES_MAX: usize = 8;

/// Time for an answer: the hub may be applying its file.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of standard input that are read: a token has at most some 1500.
const INPUT_BYTES_MAX: u64 = 4096;

/// The invitation, and files of this box.
#[derive(Args, Debug)]
pub struct JoinOptions {
    /// The token that recodectl invite printed on the hub; - reads it from standard input
    #[arg(value_name = "TOKEN", allow_hyphen_values = false)]
    token: String,
    /// Fixed address or host name of this box, if it has one; without it the hub finds it when it
    /// sends, as behind address translation
    #[arg(long, value_name = "ADDRESS", value_parser = exchange::address)]
    address: Option<String>,
    /// The file, which must not have a network yet
    #[arg(long, value_name = "FILE", default_value = "/etc/recoded/recoded.toml")]
    config: PathBuf,
    /// The private key of this box, created unless it exists
    #[arg(long, value_name = "FILE", default_value = KEY_FILE)]
    key: PathBuf,
}

/// Why this box has not joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Standard input.
    #[error("cannot read standard input ({0}): recodectl join - < FILE")]
    Input(io::Error),
    /// The box is in a network.
    #[error(
        "{0} has a configuration already: move it away, or name another file with --config; nothing \
         was changed"
    )]
    Present(PathBuf),
    /// The file or the key of this box.
    #[error(transparent)]
    Own(#[from] InitError),
    /// The private key is none.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The hub itself.
    #[error("this is the hub that the token is of: run recodectl join on the new box")]
    Hub,
    /// No random bytes.
    #[error("Linux gives no random bytes: {0}")]
    Random(String),
    /// No connection.
    #[error("cannot reach the hub: {0}")]
    Unreachable(String),
    /// No such invitation.
    #[error(
        "the hub does not know this token: it was used, has expired, or is of an earlier recodectl \
         invite; repeat recodectl invite there"
    )]
    Unknown,
    /// Another program at that port.
    #[error(
        "{0} did not answer as a hub with this invitation ({1}): repeat recodectl invite there, with \
         the same version of Recoded on both boxes"
    )]
    Foreign(SocketAddr, ExchangeError),
    /// The hub says no.
    #[error("the hub refused this box: {0}")]
    Refused(String),
    /// This box says no.
    #[error("{0}: nothing was changed")]
    Declined(String),
    /// The last message is missing.
    #[error(
        "the connection ended before the hub confirmed ({source}): {path} was written; if recodectl \
         show on the hub has no box {name}, remove that file and repeat recodectl invite"
    )]
    Lost {
        /// The reason.
        source: ExchangeError,
        /// The file.
        path: PathBuf,
        /// Name of this box.
        name: String,
    },
}

/// This box in its network.
#[derive(Debug, Serialize)]
pub struct Joined {
    file: String,
    name: String,
    private_key: String,
    is_key_new: bool,
    hub: String,
    hub_tunnel: String,
    tunnel: String,
}

/// Joins the network of a hub.
///
/// # Errors
/// [`JoinError`].
pub fn run(options: &JoinOptions) -> Result<Joined, JoinError> {
    let JoinOptions { config, key: key_path, .. } = options;
    let token = token(&options.token)?;
    let present = init::read(config)?;
    if !present.parse::<toml::Table>().is_ok_and(|table| table.is_empty()) {
        return Err(JoinError::Present(config.clone()));
    }
    let stream = connect(&token)?;
    let (public, is_key_new) = init::key(key_path)?;
    if public == token.hub {
        return Err(JoinError::Hub);
    }
    let private = key_file::read::<PrivateKey>(key_path)?;
    let (offer, mut channel) = introduce(&token, &private, stream)?;
    let entry = BoxEntry {
        name: offer.name.clone(),
        at: options.address.clone(),
        key: public,
        tunnel: None,
        private_key: init::written_key(key_path),
    };
    let text = match file(&offer, &token.hub, &entry) {
        Ok(text) => text,
        Err(reason) => {
            // The hub learns why; if it does not, it waits for another try all the same.
            let _ = channel.send(&Reply::Declined(reason.clone()));
            return Err(JoinError::Declined(reason));
        }
    };
    init::folder_of(config)?;
    let unwritable = |source| InitError::Write { path: config.clone(), source };
    let draft = draft(config, &text).map_err(unwritable)?;
    let unsent = |error| JoinError::Unreachable(format!("the connection ended: {error}"));
    channel.send(&Reply::Accepted { at: entry.at }).map_err(unsent)?;
    let outcome = channel.receive::<Outcome>();
    if let Ok(Outcome::Refused(reason)) = outcome {
        return Err(JoinError::Refused(plain(&reason)));
    }
    draft.persist(config).map_err(|error| unwritable(error.error))?;
    if let Err(source) = outcome {
        let (path, name) = (config.clone(), offer.name);
        return Err(JoinError::Lost { source, path, name });
    }
    Ok(Joined {
        file: config.display().to_string(),
        name: offer.name,
        private_key: key_path.display().to_string(),
        is_key_new,
        hub: offer.hub,
        hub_tunnel: offer.hub_tunnel,
        tunnel: offer.tunnel,
    })
}

fn token(word: &str) -> Result<Token, JoinError> {
    if word != "-" {
        return Ok(word.parse()?);
    }
    let mut text = String::new();
    io::stdin().take(INPUT_BYTES_MAX).read_to_string(&mut text).map_err(JoinError::Input)?;
    Ok(text.parse()?)
}

/// Connects to the first address of the hub that answers.
fn connect(token: &Token) -> Result<TcpStream, JoinError> {
    let mut faults: Vec<String> = Vec::new();
    let found = (token.place.as_str(), token.port).to_socket_addrs().map_err(|error| {
        JoinError::Unreachable(format!(
            "{} has no address ({error}): see that this box resolves names",
            plain(&token.place)
        ))
    })?;
    for address in found.take(ADDRESSES_MAX) {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => faults.push(format!("{address}: {}", cause(&error))),
        }
    }
    let mut text = faults.join("; ");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if now > token.expiry {
        // Writing to a String cannot fail. The clock of this box decides nothing.
        let minutes = (now - token.expiry).div_ceil(60);
        let _ = write!(text, "; by the clock of this box the token expired {minutes} min ago");
    }
    Err(JoinError::Unreachable(text))
}

/// Why a connection failed, and what to do.
fn cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "no invitation is open there: it was used, has expired or was withdrawn; repeat \
             recodectl invite on the hub"
                .to_owned()
        }
        io::ErrorKind::TimedOut => format!(
            "no answer within {} s: let in this TCP port at the hub, in its firewall and security \
             group, and see that the address is that of the hub (recodectl invite --address)",
            CONNECT_TIMEOUT.as_secs()
        ),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
            "no route leads there: see that this box is online (ip route)".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Proves the secret, and receives the offer.
fn introduce(
    token: &Token,
    private: &PrivateKey,
    mut stream: TcpStream,
) -> Result<(Offer, Channel), JoinError> {
    let peer = stream.peer_addr().map_err(|error| JoinError::Unreachable(error.to_string()))?;
    let foreign = |error| match error {
        ExchangeError::Unknown => JoinError::Unknown,
        error => JoinError::Foreign(peer, error),
    };
    let entropy = Entropy::fresh().map_err(|error| JoinError::Random(error.to_string()))?;
    let begun = JoinRequest::begin(private, &token.hub, &token.secret, &entropy);
    let (request, first) = begun.map_err(|error| foreign(error.into()))?;
    let sent = stream
        .set_read_timeout(Some(ANSWER_TIMEOUT))
        .and_then(|()| stream.set_write_timeout(Some(ANSWER_TIMEOUT)))
        .and_then(|()| stream.write_all(&exchange::frame(&first)));
    sent.map_err(|error| foreign(error.into()))?;
    let answer = exchange::read(&mut stream).map_err(foreign)?;
    let (payload, noise) = request.finish(&answer).map_err(|error| foreign(error.into()))?;
    match exchange::message(&payload).map_err(foreign)? {
        Answer::Offer(offer) => Ok((offer, Channel { stream, noise })),
        Answer::Refused(reason) => Err(JoinError::Refused(plain(&reason))),
    }
}

/// The file of this box, or why the offer does not fit it.
fn file(offer: &Offer, hub: &PublicKey, entry: &BoxEntry) -> Result<String, String> {
    let misfit = "the offer of the hub does not fit this version of Recoded: install the same \
                  version on both boxes";
    // The hub does not decide that packets go without tags.
    if !["full", "hop"].contains(&offer.auth.as_str()) {
        return Err(misfit.to_owned());
    }
    let net = |text: &str| text.parse::<IpNet>().map_err(|_| misfit.to_owned());
    let ends = Ends { hub: net(&offer.hub_tunnel)?, spoke: net(&offer.tunnel)? };
    let own = recoded_host::all_own_addresses().unwrap_or_default();
    let own = own.iter().flat_map(|(name, all)| all.iter().map(move |(it, _)| (name, it)));
    if let Some((name, address)) = own.into_iter().find(|(_, it)| ends.network().contains(*it)) {
        return Err(format!(
            "the tunnel would have the network {}, but {name} of the new box has {address} there: \
             repeat recodectl invite with --tunnel and another network",
            ends.network()
        ));
    }
    let text = written(offer, hub, entry, ends).map_err(|_| misfit.to_owned())?;
    recoded::network::parse("line", &text).map(|_| text).map_err(|errors: NetworkErrors| {
        let errors = plain(&errors.to_string());
        format!(
            "the file of this box would have a mistake ({errors}): correct --address, or install \
                 the same version of Recoded on both boxes"
        )
    })
}

fn written(
    offer: &Offer,
    hub: &PublicKey,
    entry: &BoxEntry,
    ends: Ends,
) -> Result<String, EntryError> {
    let mut head = toml::Table::new();
    if offer.auth != "full" {
        head.insert("auth".into(), offer.auth.clone().into());
    }
    if let Some(port) = offer.port {
        let port = toml::Table::from_iter([("port".to_owned(), i64::from(port).into())]);
        head.insert("daemon".into(), port.into());
    }
    let (name, at, key) = (offer.hub.clone(), Some(offer.at.clone()), *hub);
    let hub = BoxEntry { name, at, key, tunnel: None, private_key: None };
    let text = with_boxes(&head.to_string(), &[hub.to_string()])?;
    let text = with_spoke(&text, entry, &Spoke { hub: hub.name, ends, id: offer.id })?;
    Ok(format!("# The network as this box knows it: itself and its hub.\n{text}"))
}

/// Formats the result as text.
pub fn text(joined: &Joined) -> String {
    let Joined { file, name, private_key, is_key_new, hub, hub_tunnel, tunnel } = joined;
    let made = if *is_key_new { "made" } else { "found" };
    let far = hub_tunnel.split('/').next().unwrap_or_default();
    format!(
        "this is box {name}, and {hub} has added it; {made} {private_key}\n\
         {file}: written, with {hub} and the path there; tunnel {tunnel} here\n\
         next: systemctl enable --now recoded; then recodectl ping {far}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_secure::{Invitation, PresharedKey};
    use std::net::TcpListener;

    fn offer() -> Offer {
        Offer {
            name: "laptop".into(),
            hub: "hub".into(),
            at: "vpn.example.net".into(),
            auth: "full".into(),
            port: Some(7000),
            hub_tunnel: "198.18.7.1/30".into(),
            tunnel: "198.18.7.2/30".into(),
            id: 7,
        }
    }

    fn key(seed: u8) -> PublicKey {
        PrivateKey::generate(&Entropy::new([seed; 64])).public()
    }

    fn entry() -> BoxEntry {
        let (name, key) = ("laptop".to_owned(), key(2));
        BoxEntry { name, at: None, key, tunnel: None, private_key: None }
    }

    #[test]
    fn file_of_a_box_has_itself_its_hub_and_the_path() {
        let text = file(&offer(), &key(1), &entry()).unwrap();
        let expected = format!(
            "# The network as this box knows it: itself and its hub.\n\
             [boxes]\nhub = {{ at = \"vpn.example.net\", key = \"{}\" }}\n\
             laptop = {{ key = \"{}\" }}\n[daemon]\nport = 7000\n\n\
             [[path]]\nvia = [\"hub\", \"laptop\"]\n\
             tunnel = [\"198.18.7.1/30\", \"198.18.7.2/30\"]\nid = 7\n",
            key(1),
            key(2)
        );
        assert_eq!(text, expected);
    }

    /// Runs join with a hub that sends an offer and, if it is some, an outcome.
    fn with_hub(outcome: Option<Outcome>) -> (Result<Joined, JoinError>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (hub, secret) = (Entropy::new([1; 64]), PresharedKey::generate(&Entropy::new([3; 64])));
        let hub = PrivateKey::generate(&hub);
        let port = listener.local_addr().unwrap().port();
        let place = "127.0.0.1".to_owned();
        let token =
            Token { expiry: u64::MAX, port, hub: hub.public(), secret: secret.clone(), place };
        let folder = tempfile::tempdir().unwrap();
        let options = JoinOptions {
            token: token.to_text().to_string(),
            address: Some("198.51.100.7".into()),
            config: folder.path().join("etc/recoded.toml"),
            key: folder.path().join("etc/private.key"),
        };
        let joined = std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut stream = listener.accept().unwrap().0;
                let first = exchange::read(&mut stream).unwrap();
                let entropy = Entropy::new([5; 64]);
                let joining = Invitation::new(hub, secret).receive(&first, &entropy).unwrap();
                let payload = exchange::payload(&Answer::Offer(offer())).unwrap();
                let (sealed, noise) = joining.answer(&payload).unwrap();
                stream.write_all(&exchange::frame(&sealed)).unwrap();
                let mut channel = Channel { stream, noise };
                let reply = channel.receive::<Reply>().unwrap();
                assert!(
                    matches!(reply, Reply::Accepted { at } if at.as_deref() == Some("198.51.100.7"))
                );
                outcome.iter().for_each(|outcome| channel.send(outcome).unwrap());
            });
            run(&options)
        });
        (joined, init::read(&options.config).unwrap())
    }

    #[test]
    fn file_is_written_if_the_hub_confirms_or_is_lost_and_not_if_it_refuses() {
        let (joined, file) = with_hub(Some(Outcome::Done));
        assert_eq!(joined.unwrap().name, "laptop");
        assert!(file.contains("laptop = { at = \"198.51.100.7\", key = "), "{file}");
        let (refused, file) = with_hub(Some(Outcome::Refused("no\x1b[1m room".into())));
        assert_eq!(refused.unwrap_err().to_string(), "the hub refused this box: no [1m room");
        assert_eq!(file, "");
        // It may have added the box before the connection ended.
        let (lost, file) = with_hub(None);
        let said = lost.unwrap_err().to_string();
        assert!(said.contains("if recodectl show on the hub has no box laptop"), "{said}");
        assert!(file.contains("id = 7"), "{file}");
    }

    /// A hub is trusted with packets, not with the files of a box.
    #[test]
    fn offers_that_do_not_fit_or_carry_toml_are_declined() {
        type Change = fn(&mut Offer);
        let wrong: [Change; 9] = [
            |it| it.name = "a = 1\n[daemon]\nmetrics".into(),
            |it| it.hub = "hub\" = {}\nx".into(),
            |it| it.hub = "laptop".into(),
            |it| it.at = String::new(),
            |it| it.at = "192.0.2.1\", key = \"".into(),
            |it| it.auth = "none".into(),
            |it| it.port = Some(0),
            |it| it.tunnel = "10.0.0.1".into(),
            |it| it.tunnel = "198.18.9.2/30".into(),
        ];
        for (number, change) in wrong.into_iter().enumerate() {
            let mut offer = offer();
            change(&mut offer);
            let at = Some("198.51.100.7".to_owned());
            let entry = BoxEntry { name: offer.name.clone(), at, ..entry() };
            let refused = file(&offer, &key(1), &entry);
            assert!(refused.is_err(), "{number}: {refused:?}");
        }
        let here =
            Offer { hub_tunnel: "127.0.0.2/30".into(), tunnel: "127.0.0.1/30".into(), ..offer() };
        let refused = file(&here, &key(1), &entry()).unwrap_err();
        assert!(refused.contains("127.0.0.0/30, but lo"), "{refused}");
    }
}
