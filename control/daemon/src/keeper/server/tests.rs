use super::*;
use crate::keeper::Client;
use recoded_api::error::ControlError;
use std::fs;

const FILE: &str = include_str!("../../../recoded.toml");

struct KeptTest {
    folder: tempfile::TempDir,
    keeper: std::sync::Arc<Keeper>,
    client: Client,
    runtime: tokio::runtime::Runtime,
}

impl KeptTest {
    /// Applies a configuration; returns its number.
    fn bring(&self, coming: Coming, text: String, shown: String) -> Result<u64, ControlError> {
        let taken = self.runtime.block_on(self.client.in_force(coming, text, shown));
        taken.map(|taken| taken.number)
    }
}

fn kept() -> KeptTest {
    kept_with(FILE)
}

fn kept_with(text: &str) -> KeptTest {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recoded.toml");
    fs::write(&path, text).unwrap();
    let state = folder.path().join("state");
    let keeper = std::sync::Arc::new(Keeper::new(&path, text, text, Some(state)));
    let (server, client) = Channel::pair().unwrap();
    let serving = keeper.clone();
    std::thread::spawn(move || serving.serve(&server));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    KeptTest { folder, keeper, client: Client::new(client), runtime }
}

fn by(cause: Cause, confirm_seconds: Option<u64>) -> Coming {
    Coming { cause, confirm_seconds, is_same: false, by: By::This }
}

#[test]
fn text_is_compared_like_the_file_and_changes_nothing() {
    let kept = kept();
    let text = FILE.replacen("workers = 1", "workers = 2", 1);
    let compared = kept.runtime.block_on(kept.client.compare(text.clone())).unwrap();
    assert_eq!((compared.text, compared.number), (text, 1));
    let wrong = FILE.replacen("workers = 1", "workers = 0", 1);
    let refused = kept.runtime.block_on(kept.client.compare(wrong)).unwrap_err().to_string();
    assert!(refused.contains("workers = 0"), "{refused}");
    let huge = kept.runtime.block_on(kept.client.compare("x".repeat(2 << 20)));
    assert!(huge.is_err());
    assert_eq!(kept.keeper.in_force().0, FILE);
    assert!(kept.keeper.state().coming.is_none());
    let file = fs::read_to_string(kept.folder.path().join("recoded.toml")).unwrap();
    assert_eq!(file, FILE);
}

#[test]
fn wrong_file_is_refused_with_line_and_rule_and_nothing_changes() {
    let kept = kept();
    let path = kept.folder.path().join("recoded.toml");
    fs::write(&path, FILE.replacen("workers = 1", "workers = 0", 1)).unwrap();
    let refused = kept.runtime.block_on(kept.client.read(true)).unwrap_err().to_string();
    let line = FILE.lines().position(|line| line.starts_with("workers = 1")).unwrap() + 1;
    assert!(refused.contains(&format!("recoded.toml:{line}: daemon: workers = 0")), "{refused}");
    assert!(refused.ends_with("nothing was changed"), "{refused}");
    fs::remove_file(&path).unwrap();
    let refused = kept.runtime.block_on(kept.client.read(true)).unwrap_err().to_string();
    assert!(refused.starts_with("cannot read"), "{refused}");
    fs::write(&path, "x".repeat(2 << 20)).unwrap();
    assert!(kept.runtime.block_on(kept.client.read(false)).is_err());
    assert_eq!(kept.keeper.in_force().0, FILE);
}

#[test]
fn what_is_not_confirmed_is_taken_back_also_while_no_process_runs() {
    let kept = kept();
    let other = FILE.replacen("[daemon]", "# other\n[daemon]", 1);
    let path = kept.folder.path().join("recoded.toml");
    let take = |text: &str, coming| {
        fs::write(&path, text).unwrap();
        kept.runtime.block_on(kept.client.read(true))?;
        let (text, shown) = (text.to_owned(), text.to_owned());
        kept.bring(coming, text, shown)
    };
    let none = kept.runtime.block_on(kept.client.confirm()).unwrap_err().to_string();
    assert_eq!(none, "nothing waits to be confirmed");
    assert_eq!(take(&other, by(Cause::Reload, Some(1))), Ok(2));
    assert!(!kept.keeper.is_overdue() && !kept.keeper.take_back());
    let waiting = kept.runtime.block_on(kept.client.read(true)).unwrap_err().to_string();
    assert!(waiting.contains("waits to be confirmed"), "{waiting}");
    std::thread::sleep(Duration::from_millis(1100));
    assert!(kept.keeper.is_overdue(), "the time is up");
    assert!(!kept.keeper.is_overdue(), "it is reported once");
    assert!(kept.keeper.is_stuck(Duration::ZERO));
    assert!(kept.keeper.take_back());
    assert_eq!(kept.keeper.in_force().0, FILE);

    assert_eq!(take(&other, by(Cause::Reload, Some(9))), Ok(4));
    kept.runtime.block_on(kept.client.confirm()).unwrap();
    assert!(!kept.keeper.take_back());
    let past = kept.runtime.block_on(kept.client.history()).unwrap();
    let causes: Vec<&str> = past.entries.iter().map(|(.., cause)| cause.as_str()).collect();
    assert_eq!(causes, ["start", "reload", "unconfirmed", "reload"]);
    let undone = kept.runtime.block_on(kept.client.past(None)).unwrap();
    assert_eq!(undone.text, FILE);
    let unknown = kept.runtime.block_on(kept.client.past(Some(7))).unwrap_err().to_string();
    assert_eq!(unknown, "there is no configuration 7: there is 1, 2, 3, 4");
    let long = take(FILE, by(Cause::Reload, Some(CONFIRM_SECONDS_MAX + 1)));
    assert!(long.is_err(), "{long:?}");
}

#[test]
fn process_that_does_not_start_with_a_configuration_brings_back_the_one_before() {
    let kept = kept();
    let other = FILE.replacen("[daemon]", "# other\n[daemon]", 1);
    let path = kept.folder.path().join("recoded.toml");
    let replace = |text: &str| {
        fs::write(&path, &other).unwrap();
        kept.runtime.block_on(kept.client.read(true))?;
        let (text, shown) = (text.to_owned(), text.to_owned());
        kept.bring(Coming { by: By::Process, ..by(Cause::Reload, None) }, text, shown)
    };
    assert_eq!(replace(&other), Ok(2));
    assert!(kept.keeper.failed());
    assert_eq!(kept.keeper.in_force().0, FILE);
    assert!(!kept.keeper.failed());
    assert_eq!(replace(&other), Ok(4));
    kept.keeper.runs();
    assert!(!kept.keeper.failed());
    assert!(replace("no configuration").is_err());
    assert_eq!(kept.keeper.in_force().0, other);
}

const PLAIN: &str = r#"
[[link]]
name = "west"
interface = "eth0"
local = "10.0.1.3"
[[tunnel]]
name = "rec0"
address = "10.99.0.1/24"
[[flow]]
id = 1
role = "sink"
tunnel = "rec0"
upstream = { link = "west", address = "10.0.1.1" }
"#;

const KEYS: &str = r#"edge_key = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="
[[neighbour]]
link = "west"
address = "10.0.1.1"
public_key = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="
[daemon]
private_key = "/etc/recoded/private.key"
"#;

/// A dataplane process in the hands of an attacker could once request any of sixteen old
/// configurations, such as one from before the keys.
#[test]
fn old_configuration_that_authenticates_less_comes_back_by_the_file_only() {
    let secured = format!("{PLAIN}{KEYS}");
    let kept = kept_with(PLAIN);
    let path = kept.folder.path().join("recoded.toml");
    let reload = |text: &str, confirm| {
        fs::write(&path, text).unwrap();
        kept.runtime.block_on(kept.client.read(true))?;
        kept.bring(by(Cause::Reload, confirm), text.to_owned(), text.to_owned())
    };
    let past = |number| kept.runtime.block_on(kept.client.past(number)).map(|past| past.text);
    assert_eq!(reload(&secured, None), Ok(2));
    for number in [None, Some(1)] {
        let refused = past(number).unwrap_err().to_string();
        assert!(refused.starts_with("that configuration has auth = \"none\""), "{refused}");
        let text = PLAIN.to_owned();
        assert!(kept.bring(by(Cause::Undo, None), text.clone(), text).is_err());
    }
    assert_eq!(kept.keeper.in_force().0, secured);
    let other = format!("# other\n{secured}");
    assert_eq!(reload(&other, None), Ok(3));
    assert_eq!(past(None), Ok(secured.clone()), "as much as the active one");
    // The file may say less, and an unconfirmed change to more is rolled back.
    assert_eq!(reload(PLAIN, None), Ok(4));
    assert_eq!(reload(&secured, Some(9)), Ok(5));
    assert_eq!(past(None), Ok(PLAIN.to_owned()));
}

/// Another supervisor has only the record if no directory keeps the history.
#[test]
fn supervisor_that_takes_over_without_a_directory_can_undo() {
    let kept = kept();
    let other = FILE.replacen("[daemon]", "# other\n[daemon]", 1);
    fs::write(kept.folder.path().join("recoded.toml"), &other).unwrap();
    kept.runtime.block_on(kept.client.read(true)).unwrap();
    assert_eq!(kept.keeper.handover(), None, "nothing was handed over yet");
    let coming = by(Cause::Reload, None);
    assert_eq!(kept.bring(coming, other.clone(), other.clone()), Ok(2));
    // `By::Supervisor` does this after it has checked that this host has the links.
    kept.keeper.state().is_handed_over = true;
    let (text, handover) = kept.keeper.handover().unwrap();
    assert_eq!((text.as_str(), handover.number), (other.as_str(), 2));
    assert_eq!(kept.keeper.handover(), None, "once");

    let path = kept.folder.path().join("recoded.toml");
    let next = Keeper::new(&path, &other, &other, None).following(&handover);
    let numbers: Vec<u64> = next.report().entries.iter().map(|(number, ..)| *number).collect();
    assert_eq!(numbers, [1, 2]);
    let Ok((_, undone)) = next.past(None) else { panic!("there is nothing to undo") };
    assert!(matches!(undone, Along::Text(text) if text == FILE));
}

#[test]
fn dataplane_process_brings_nothing_that_was_not_read_but_what_set_may_change() {
    let kept = kept();
    let take = |cause, text: &str| {
        let (text, shown) = (text.to_owned(), text.to_owned());
        let taken = kept.bring(by(cause, None), text, shown);
        taken.map_err(|error| error.to_string())
    };
    let engine = FILE.replacen("engine = \"auto\"", "engine = \"cpu\"", 1);
    let loss = engine.replacen("target_loss = 1e-4", "target_loss = 1e-3", 1);
    assert_eq!(take(Cause::Set, &engine), Ok(2));
    assert_eq!(take(Cause::Set, &loss), Ok(3));
    let open = loss.replacen("sandbox = \"on\"", "sandbox = \"off\"", 1);
    assert_ne!(open, loss);
    let said = take(Cause::Set, &open).unwrap_err();
    assert!(said.contains("may not change this: ") && said.contains("sandbox"), "{said}");
    for cause in [Cause::Reload, Cause::Undo] {
        assert_eq!(take(cause, &loss).unwrap_err(), "nothing was read before");
        kept.runtime.block_on(kept.client.read(true)).unwrap();
        assert!(take(cause, &open).unwrap_err().contains("may not change this"));
        assert!(take(cause, FILE).is_ok(), "the file has the same text");
    }
    let saved = kept.runtime.block_on(kept.client.prepare(open)).unwrap_err().to_string();
    assert!(saved.contains("may not change this"), "{saved}");
    assert_eq!(kept.keeper.in_force().0, FILE);
}

#[test]
fn file_is_written_whole_unless_another_changed_it() {
    let kept = kept();
    let path = kept.folder.path().join("recoded.toml");
    let mine = FILE.replacen("[daemon]", "# mine\n[daemon]", 1);
    let run = |work| kept.runtime.block_on::<std::pin::Pin<Box<dyn Future<Output = _>>>>(work);
    assert_eq!(kept.runtime.block_on(kept.client.open()).unwrap().text, FILE);
    run(Box::pin(kept.client.prepare(mine.clone()))).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), FILE);
    run(Box::pin(kept.client.finish())).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), mine);

    run(Box::pin(kept.client.prepare(FILE.to_owned()))).unwrap();
    fs::write(&path, "# another program's").unwrap();
    let refused = run(Box::pin(kept.client.finish())).unwrap_err().to_string();
    assert!(refused.contains("was changed since the daemon read it"), "{refused}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "# another program's");
    assert!(kept.runtime.block_on(kept.client.open()).is_err());
    kept.runtime.block_on(kept.client.discard());
    let left: Vec<_> = fs::read_dir(kept.folder.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "file and state: {left:?}");
}

#[test]
fn undo_of_a_saved_change_writes_the_file_as_it_was_and_a_second_one_the_change() {
    let kept = kept();
    let path = kept.folder.path().join("recoded.toml");
    let mine = FILE.replacen("engine = \"auto\"", "engine = \"cpu\"", 1);
    kept.runtime.block_on(kept.client.prepare(mine.clone())).unwrap();
    kept.runtime.block_on(kept.client.finish()).unwrap();
    kept.bring(by(Cause::Set, None), mine.clone(), mine.clone()).unwrap();
    let undo = || {
        let text = kept.runtime.block_on(kept.client.past(None)).unwrap().text;
        kept.bring(by(Cause::Undo, None), text.clone(), text).unwrap();
        fs::read_to_string(&path).unwrap()
    };
    assert_eq!(undo(), FILE);
    assert_eq!(undo(), mine);
    fs::write(&path, "# edited").unwrap();
    assert_eq!(undo(), "# edited", "a file that was edited stays");
}

/// A file with metrics at a free port on loopback, and that address.
fn measured() -> (String, std::net::SocketAddr) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    (FILE.replacen("#metrics = \"127.0.0.1:9427\"", &format!("metrics = \"{free}\""), 1), free)
}

#[test]
fn listener_of_metrics_comes_with_the_answer_and_is_not_kept() {
    let kept = kept();
    let path = kept.folder.path().join("recoded.toml");
    let (with, address) = measured();
    let take = |text: &str| {
        fs::write(&path, text).unwrap();
        kept.runtime.block_on(kept.client.read(true)).unwrap();
        let (text, coming) = (text.to_owned(), by(Cause::Reload, None));
        kept.runtime.block_on(kept.client.in_force(coming, text.clone(), text))
    };
    let listener = take(&with).unwrap().metrics.expect("a listener");
    assert_eq!(listener.local_addr().unwrap(), address);
    assert!(std::net::TcpStream::connect(address).is_ok());
    assert!(take(&with).unwrap().metrics.is_none(), "the listener stays");
    assert!(take(FILE).unwrap().metrics.is_none());
    drop(listener);
    assert!(std::net::TcpStream::connect(address).is_err(), "the supervisor has no copy");
    assert!(take(&with).unwrap().metrics.is_some());
}

#[test]
fn metrics_at_a_port_that_is_taken_are_refused_and_nothing_changes() {
    let kept = kept();
    let (with, address) = measured();
    let _taken = TcpListener::bind(address).unwrap();
    fs::write(kept.folder.path().join("recoded.toml"), &with).unwrap();
    kept.runtime.block_on(kept.client.read(true)).unwrap();
    let refused = kept.bring(by(Cause::Reload, None), with.clone(), with).unwrap_err().to_string();
    assert!(refused.contains("cannot serve metrics at") && refused.contains("nothing was changed"));
    assert_eq!(kept.keeper.in_force().0, FILE);
}
