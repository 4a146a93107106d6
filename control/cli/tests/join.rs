//! `recodectl invite` and `recodectl join`: two boxes as folders, without daemons.

#![forbid(unsafe_code)]

#[allow(dead_code)]
mod fixed;

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Words of a command, with files of a folder.
fn command(folder: &Path, name: &str) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    program.current_dir(folder).args(["--json", "--socket", "none", name]);
    program.args(["--config", "recoded.toml"]).stdin(Stdio::null());
    program
}

/// Exit code and output.
fn ended(program: &mut Command) -> (i32, Value) {
    let output = program.output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let json = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    (output.status.code().expect("an exit code"), json)
}

/// A box in a folder: its files.
struct Box_ {
    folder: tempfile::TempDir,
}

impl Box_ {
    fn new() -> Box_ {
        Box_ { folder: tempfile::tempdir().expect("a folder") }
    }

    /// A hub, as init makes it.
    fn hub() -> Box_ {
        let hub = Box_::new();
        let key = hub.folder.path().join("private.key");
        let mut init = command(hub.folder.path(), "init");
        init.args(["--name", "hub", "--address", "127.0.0.1", "--key"]).arg(key);
        assert_eq!(ended(&mut init).0, 0);
        hub
    }

    fn file(&self) -> String {
        fs::read_to_string(self.folder.path().join("recoded.toml")).unwrap_or_default()
    }

    fn write(&self, text: &str) {
        fs::write(self.folder.path().join("recoded.toml"), text).expect("a file");
    }

    /// At a port; 0 is any free one.
    fn invite(&self, name: &str, port: u16, more: &[&str]) -> Invite {
        let mut program = command(self.folder.path(), "invite");
        program.args([name, "--port", &port.to_string()]).args(more);
        let mut child = program.stdout(Stdio::piped()).spawn().expect("it runs");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        let opened: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        let token = opened["token"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned();
        let port = opened["port"].as_u64().expect("a port") as u16;
        Invite { child, lines, token, port }
    }

    fn join(&self, token: &str) -> (i32, Value) {
        self.join_with(token, &[])
    }

    fn join_with(&self, token: &str, more: &[&str]) -> (i32, Value) {
        let mut program = command(self.folder.path(), "join");
        ended(program.args([token, "--key", "private.key"]).args(more))
    }
}

/// An invitation that waits.
struct Invite {
    child: Child,
    lines: BufReader<ChildStdout>,
    token: String,
    port: u16,
}

impl Invite {
    /// Exit code and output.
    fn ended(mut self) -> (i32, Value) {
        let mut text = String::new();
        self.lines.read_to_string(&mut text).expect("text");
        let status = self.child.wait().expect("it ends");
        let json = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
        (status.code().expect("an exit code"), json)
    }
}

impl Drop for Invite {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn message(outcome: &(i32, Value)) -> String {
    let (code, json) = outcome;
    let message = json["error"]["message"].as_str().unwrap_or_else(|| panic!("{json}"));
    format!("[{code}] {message}")
}

#[test]
fn boxes_join_by_two_commands_and_files_agree() {
    let hub = Box_::hub();
    hub.write(&format!("# ours\nauth = \"hop\"\n[daemon]\nport = 7000 # open\n{}", hub.file()));
    let mut before = String::new();
    for (number, name) in ["laptop", "home", "shop"].into_iter().enumerate() {
        let invite = hub.invite(name, 0, &[]);
        let box_ = Box_::new();
        let address = ["--address", "127.0.0.9"];
        let more = if name == "shop" { &address[..] } else { &[] };
        let (code, joined) = box_.join_with(&invite.token, more);
        assert_eq!(code, 0, "{joined}");
        let (code, invited) = invite.ended();
        assert_eq!((code, &invited["daemon"]), (0, &"not_running".into()), "{invited}");
        assert_eq!(joined["tunnel"], invited["tunnel"]);
        let file = box_.file();
        let [at_hub, at_box] = [hub.file(), file.clone()].map(|text| {
            recoded::network::parse("net.toml", &text).unwrap_or_else(|it| panic!("{it}\n{text}"))
        });
        assert_eq!((at_hub.paths.len(), at_box.paths.len()), (number + 1, 1), "{}", hub.file());
        // The box derives from its own file what it would derive from that of the hub, except for
        // names of links and numbers of neighbours without an address.
        let own = at_hub.nodes.iter().position(|node| node.name == name).expect("it is there");
        let place = format!("private_key = \"{}", box_.folder.path().display());
        let plain = |text: String| {
            let lines = text.lines().filter(|line| !line.contains("private_key"));
            lines.collect::<Vec<_>>().join("\n")
        };
        assert_eq!(plain(at_hub.meaning(own)), plain(at_box.meaning(1)), "{}", hub.file());
        assert!(file.contains(&place) && file.contains("port = 7000"), "{file}");
        assert!(!file.contains("recoded1_") && invited["token"].is_null(), "{file}");
        assert!(hub.file().starts_with("# ours\nauth"), "{}", hub.file());
        assert!(hub.file().contains("7000 # open"), "{}", hub.file());
        // Boxes that were there keep their lines.
        assert!(before.lines().all(|line| hub.file().contains(line)), "{}", hub.file());
        before = hub.file();
    }
    let key = fs::read_to_string(hub.folder.path().join("private.key")).expect("a key");
    assert!(!hub.file().contains(key.trim()));
}

#[test]
fn tokens_that_do_not_serve_are_refused_in_these_words() {
    let (hub, box_) = (Box_::hub(), Box_::new());
    let mut text = String::new();
    let mut note = |what: &str, outcome: &(i32, Value), port: u16| {
        let said = message(outcome).replace(&format!(":{port}"), ":PORT");
        text += &format!("{what}: {said}\n\n");
    };
    let before = hub.file();
    let first = hub.invite("laptop", 0, &[]);
    let (token, port) = (first.token.clone(), first.port);
    note("cut off", &box_.join(&token[..100]), port);
    note("with more", &box_.join(&format!("{token}abc")), port);
    let wrong = if token.as_bytes()[60] == b'A' { "B" } else { "A" };
    let mistyped = format!("{}{wrong}{}", &token[..60], &token[61..]);
    note("mistyped", &box_.join(&mistyped), port);
    note("of another version", &box_.join(&token.replacen('1', "2", 1)), port);
    note("no token", &box_.join("hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="), port);
    assert!(box_.file().is_empty() && !box_.folder.path().join("private.key").exists());
    // On the hub itself.
    let mut program = command(hub.folder.path(), "join");
    note("on the hub", &ended(program.args([&token, "--key", "private.key"])), port);
    program = command(box_.folder.path(), "join");
    program.args([&token, "--key"]).arg(hub.folder.path().join("private.key"));
    note("on the hub, with another file", &ended(&mut program), port);
    drop(first);
    note("withdrawn", &box_.join(&token), port);
    // Another invitation at the same port: the token of the first one is foreign there.
    let second = hub.invite("laptop", port, &[]);
    note("foreign", &box_.join(&token), port);
    assert_eq!(hub.file(), before);
    assert!(box_.file().is_empty());
    assert_eq!(box_.join(&second.token).0, 0);
    note("used", &Box_::new().join(&second.token), port);
    note("joined before", &box_.join(&second.token), port);
    drop(second);
    let third = hub.invite("shop", port, &["--expires", "1s"]);
    let (token, outcome) = (third.token.clone(), third.ended());
    note("nothing came", &outcome, port);
    // Tokens have whole seconds.
    std::thread::sleep(Duration::from_millis(1100));
    note("expired", &Box_::new().join(&token), port);
    assert_eq!(hub.file().matches("[[path]]").count(), 1, "{}", hub.file());
    fixed::assert_golden("texts/join-tokens.txt", &text);
}

#[test]
fn hubs_and_boxes_that_do_not_fit_are_refused_in_these_words() {
    let hub = Box_::hub();
    let plain = hub.file();
    let place = hub.folder.path().display().to_string();
    let mut text = String::new();
    let mut note = |what: &str, outcome: &(i32, Value)| {
        text += &format!("{what}: {}\n\n", message(outcome).replace(&place, "FOLDER"));
    };
    let invite = |more: &[&str]| {
        let mut program = command(hub.folder.path(), "invite");
        ended(program.args(["--port", "0"]).args(more))
    };
    note("a name that is taken", &invite(&["hub"]));
    note("no name", &invite(&["a b"]));
    note("no address", &invite(&["a", "--address", "192.0.2.1:9426"]));
    note("a tunnel without room", &invite(&["a", "--tunnel", "10.0.0.1/32"]));
    note("a tunnel with the hub", &invite(&["a", "--tunnel", "127.0.0.0/8"]));
    hub.write("link = [{ name = \"wan\", interface = \"eth0\" }]\n");
    note("the file of one box", &invite(&["a"]));
    hub.write(&plain.replace("at = \"127.0.0.1\", ", ""));
    note("a hub without an address", &invite(&["a"]));
    hub.write(&format!("auth = \"none\"\n{plain}"));
    note("a network without keys", &invite(&["a"]));
    hub.write(&plain.replace("127.0.0.1", "300.0.0.1 dev"));
    note("a mistake in the file", &invite(&["a"]));
    hub.write(&plain);
    let none = Box_::new();
    note("no file", &ended(command(none.folder.path(), "invite").arg("a")));
    note("several addresses", &{
        hub.write(&plain.replace("\"127.0.0.1\"", "[\"127.0.0.1\", \"192.0.2.7\"]"));
        invite(&["a", "--address", "192.0.2.7"])
    });
    hub.write(&plain);
    fs::rename(hub.folder.path().join("private.key"), none.folder.path().join("k")).expect("a key");
    note("no key", &invite(&["a"]));
    fs::rename(none.folder.path().join("k"), hub.folder.path().join("private.key")).expect("a key");
    let invited = hub.invite("a", 0, &[]);
    let twice = ["--address", "127.0.0.1"];
    note("the address of the hub", &none.join_with(&invited.token, &twice));
    drop(invited);
    // The key of a box that is known, under another name.
    let (one, other) = (Box_::new(), Box_::new());
    let first = hub.invite("a", 0, &[]);
    assert_eq!(one.join(&first.token).0, 0);
    assert_eq!(first.ended().0, 0);
    let second = hub.invite("b", 0, &[]);
    let key = "private.key";
    fs::copy(one.folder.path().join(key), other.folder.path().join(key)).expect("a copy");
    note("a key that is taken", &other.join(&second.token));
    // After the token was printed, a box of that name came, and the file was damaged.
    let good = hub.file();
    hub.write(&good.replace("\na =", "\nb =").replace("\"a\"", "\"b\""));
    fs::remove_file(other.folder.path().join(key)).expect("a key");
    note("a name that was taken meanwhile", &other.join(&second.token));
    hub.write("[boxes");
    note("a file that was damaged meanwhile", &other.join(&second.token));
    hub.write(&good);
    assert!(other.file().is_empty());
    // The secret has not served, so it still does.
    assert_eq!(other.join(&second.token).0, 0);
    assert_eq!(second.ended().0, 0);
    fixed::assert_golden("texts/join-wrong.txt", &text);
}

/// A daemon that ends the connection, as one that dies: the hub's file is as before, and the box is
/// not told otherwise.
#[test]
fn box_is_not_added_if_the_daemon_of_the_hub_does_not_take_it() {
    let (hub, box_) = (Box_::hub(), Box_::new());
    let listener = UnixListener::bind(hub.folder.path().join("none")).expect("a socket");
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut request = [0; 4096];
            // A client may be gone.
            let _ = connection.expect("a connection").read(&mut request);
        }
    });
    let before = hub.file();
    let invite = hub.invite("laptop", 0, &[]);
    let refused = message(&box_.join(&invite.token));
    let words = "[4] the hub refused this box: the daemon of the hub refuses the box: the daemon at \
                 none closed the connection";
    assert!(refused.starts_with(words), "{refused}");
    assert_eq!((hub.file(), box_.file()), (before, String::new()));
}

/// Connections without the secret neither end the invitation nor keep the box from joining.
#[test]
fn hostile_connections_do_not_keep_a_box_from_joining() {
    let hub = Box_::hub();
    let before = hub.file();
    let invite = hub.invite("laptop", 0, &[]);
    let connect = || TcpStream::connect(("127.0.0.1", invite.port)).expect("it listens");
    let mut answers = Vec::new();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 600], &[0xff; 8000], &[0, 97], b""] {
        let mut stream = connect();
        // It may be closed already.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answers.push(answer);
    }
    assert!(answers.iter().all(|answer| answer.len() <= 3), "{answers:?}");
    // A frame of the right form, with random content.
    let mut stream = connect();
    stream.write_all(&[&[0, 97, 0][..], &[7; 96]].concat()).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    assert_eq!(answer, [0, 1, 1], "no such invitation");
    // From another address, since each has its own bound.
    let open: Vec<TcpStream> = (0..100).map(|_| connect_from("127.0.0.2", invite.port)).collect();
    assert_eq!(hub.file(), before);
    let box_ = Box_::new();
    let (code, joined) = box_.join(&invite.token);
    assert_eq!(code, 0, "{joined}");
    drop(open);
    assert_eq!(invite.ended().0, 0);
}

fn connect_from(source: &str, port: u16) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let socket = async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(format!("{source}:0").parse().expect("an address"))?;
        socket.connect(([127, 0, 0, 1], port).into()).await?.into_std()
    };
    runtime.expect("a runtime").block_on(socket).expect("a connection")
}

#[test]
fn texts_say_what_was_done_and_what_is_next() {
    let (hub, box_) = (Box_::hub(), Box_::new());
    let program = |folder: &Path, words: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_recodectl"));
        program.current_dir(folder).args(["--socket", "none"]).args(words);
        program.args(["--config", "recoded.toml"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        program.spawn().expect("it runs")
    };
    let mut invite = program(hub.folder.path(), &["invite", "laptop", "--port", "0"]);
    let mut lines = BufReader::new(invite.stdout.take().expect("a pipe")).lines();
    let mut head = Vec::new();
    for line in lines.by_ref() {
        head.push(line.expect("text"));
        if head.last().is_some_and(|line| line.starts_with("waiting")) {
            break;
        }
    }
    let token = head.iter().find_map(|line| line.strip_prefix("recodectl join ")).expect("a token");
    // By standard input, where no list of processes shows it.
    let mut join = program(box_.folder.path(), &["join", "-", "--key", "private.key"]);
    join.stdin.take().expect("a pipe").write_all(token.as_bytes()).expect("it reads");
    let output = join.wait_with_output().expect("it ends");
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(
        said.starts_with("this is box laptop, and hub has added it; made private.key"),
        "{said}"
    );
    assert!(said.contains("next: systemctl enable --now recoded; then recodectl ping 10.99.0.1"));
    let rest: Vec<String> = lines.map(|line| line.expect("text")).collect();
    let rest = rest.join("\n");
    assert!(rest.contains("laptop joined from 127.0.0.1, with key "), "{rest}");
    assert!(rest.contains("no daemon runs here: systemctl enable --now recoded"), "{rest}");
    assert!(rest.ends_with("tunnel 10.99.0.1/24 here, 10.99.0.2/24 on laptop"), "{rest}");
    assert!(invite.wait().expect("it ends").success());
}
