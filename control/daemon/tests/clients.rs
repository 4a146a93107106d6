//! Hostile and silent clients of the control socket.

#![forbid(unsafe_code)]

mod common;

use common::{Served, changes};
use recoded::control::bounded::{
    CONNECTIONS_MAX, CONNECTIONS_ROOT, IDLE_TIMEOUT, REQUEST_BYTES_MAX,
};
use recoded::control::socket::{SocketError, claim};
use recoded_api::client::Client;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn socket_is_for_owner_and_group_only() {
    let served = Served::start();
    let mode = std::fs::metadata(&served.path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
}

#[test]
fn socket_of_a_live_daemon_is_refused_and_of_a_dead_one_replaced() {
    let served = Served::start();
    let error = claim(&served.path, false).map(|_| ()).expect_err("in use");
    assert!(matches!(error, SocketError::InUse { .. }), "{error:?}");
    assert!(error.to_string().contains("is in use by a running daemon (`kill "), "{error}");
    served.client().version().expect("the live daemon is unharmed");

    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("stale.sock");
    drop(UnixListener::bind(&path).expect("bind"));
    let (_listener, held) = claim(&path, false).expect("the stale socket is replaced");
    drop(held);
    assert!(!path.exists());

    std::fs::write(&path, "a file").expect("write");
    let error = claim(&path, false).map(|_| ()).expect_err("a regular file stays");
    assert!(error.to_string().contains("exists and is not a socket: remove it"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).expect("still there"), "a file");
}

/// Whether the peer has closed: a read ends with end of file or reset.
fn is_closed(stream: &mut UnixStream) -> bool {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn garbage_loses_the_client_and_not_the_daemon() {
    let served = Served::start();
    let deep = "[".repeat(60_000);
    let garbage: [&[u8]; 9] = [
        b"\0",
        b"\0\0\0\0",
        b"hello\0",
        b"{\"method\":\"org.recoded.Control1.GetState\"\0",
        b"{\"method\":1}\0",
        b"{\"method\":\"org.recoded.Control1.SetFlow\",\"parameters\":{\"flow\":\"x\"}}\0",
        b"\xff\xfe\xfd\0",
        b"{}{}\0",
        deep.as_bytes(),
    ];
    for bytes in garbage {
        let mut stream = served.raw();
        stream.write_all(bytes).expect("write");
        stream.shutdown(std::net::Shutdown::Write).expect("shutdown");
        assert!(is_closed(&mut stream), "{:?}", &bytes[..bytes.len().min(40)]);
        served.client().version().expect("the daemon still answers");
    }
}

#[test]
fn request_without_end_is_cut_off_at_the_limit() {
    let served = Served::start();
    let mut stream = served.raw();
    let chunk = vec![b'a'; 64 * 1024];
    let mut sent = 0;
    // 1 MiB: the daemon must have closed long before.
    while sent < 1 << 20 && stream.write_all(&chunk).is_ok() {
        sent += chunk.len();
    }
    assert!(is_closed(&mut stream));
    assert!(sent <= REQUEST_BYTES_MAX + 512 * 1024, "{sent} bytes were taken");
    served.client().version().expect("the daemon still answers");
}

#[test]
fn half_a_request_keeps_nobody_waiting() {
    let served = Served::start();
    let mut halves: Vec<UnixStream> = (0..4).map(|_| served.raw()).collect();
    for stream in &mut halves {
        stream.write_all(b"{\"method\":\"org.recoded.").expect("write");
    }
    served.client().version().expect("the daemon answers others meanwhile");
    let mut stream = halves.swap_remove(0);
    stream.write_all(b"Control1.GetVersion\"}\0").expect("the rest");
    let mut byte = [0];
    stream.read_exact(&mut byte).expect("an answer");
    assert_eq!(byte, *b"{", "a request may come in parts");
}

#[test]
fn one_hundred_connections_are_bounded_and_room_returns() {
    let served = Served::start();
    let mut streams: Vec<UnixStream> = (0..100).map(|_| served.raw()).collect();
    let request = b"{\"method\":\"org.recoded.Control1.GetVersion\"}\0";
    let answered = streams.iter_mut().filter_map(|stream| {
        stream.write_all(request).ok()?;
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()
    });
    let for_root = if is_root() { CONNECTIONS_ROOT } else { 0 };
    assert_eq!(answered.count(), CONNECTIONS_MAX + for_root);
    let refused = Client::connect(&served.path).and_then(|mut client| client.version());
    let refused = refused.expect_err("no room");
    assert_eq!((refused.kind(), refused.exit_code()), ("closed", 1), "{refused}");

    drop(streams);
    let mut client = (0..500).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let mut client = Client::connect(&served.path).ok()?;
        client.version().is_ok().then_some(client)
    });
    client.as_mut().expect("room returns").state().expect("and serves");
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Sixteen silent clients locked all others out for half a minute.
#[test]
fn silent_clients_lock_nobody_out_for_long() {
    let served = Served::start();
    let silent: Vec<UnixStream> =
        (0..CONNECTIONS_MAX + CONNECTIONS_ROOT).map(|_| served.raw()).collect();
    let begin = Instant::now();
    let mut answers = std::iter::repeat_with(|| {
        std::thread::sleep(Duration::from_millis(20));
        Client::connect(&served.path).and_then(|mut client| client.version()).is_ok()
    });
    assert!(answers.any(|answered| answered), "endless");
    assert!(begin.elapsed() < IDLE_TIMEOUT / 6, "after {:?}", begin.elapsed());
    drop(silent);
}

#[test]
fn silence_is_borne_while_there_is_room() {
    let served = Served::start();
    let mut quiet = served.client();
    quiet.version().expect("an answer");
    std::thread::sleep(Duration::from_millis(2_500));
    quiet.version().expect("no other client needed the slot");
}

/// A helper for the next test rather than a test: the clients of another user.
#[test]
fn other_user_holds_every_slot_it_gets() {
    let Some(path) = std::env::var_os("RECODED_TEST_SOCKET") else { return };
    let streams: Vec<UnixStream> =
        (0..100).map(|_| UnixStream::connect(&path).expect("connect")).collect();
    // Replies prove that the connections were accepted.
    let request = b"{\"method\":\"org.recoded.Control1.GetVersion\"}\0";
    let answered = streams.iter().filter(|stream| {
        let mut stream: &UnixStream = stream;
        stream.write_all(request).is_ok() && stream.read_exact(&mut [0]).is_ok()
    });
    println!("answered {}", answered.count());
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end && PathBuf::from(&path).exists() {
        // Not silent, so that only the reserved slot is left.
        for mut stream in &streams {
            let _ = stream.write_all(request);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn root_has_a_slot_that_no_other_user_gets() {
    if !is_root() {
        let reason = "acting as two users needs root";
        assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none_or(|all| all != "1"), "{reason}");
        println!("skipped: {reason}");
        return;
    }
    let served = Served::start();
    let run = served.path.parent().expect("of the daemon");
    let folder = run.parent().expect("of the test");
    // Explicitly, since tests that run concurrently change the umask of the process for a moment.
    for path in [folder, run] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("ours");
    }
    // The socket's group may connect. A copy, since the other user may lack access to these
    // folders.
    let program = folder.join("other");
    // By another process: one that this process has open for writing cannot be run. With its mode
    // said, since that process takes over the umask of the moment.
    let own = std::env::current_exe().expect("this program");
    let mut install = Command::new("install");
    install.args(["-m", "755"]).args([&own, &program]);
    assert!(install.status().expect("install").success());
    let mut other = Command::new(&program)
        .args(["--exact", "other_user_holds_every_slot_it_gets", "--nocapture"])
        .env("RECODED_TEST_SOCKET", &served.path)
        .uid(65_534)
        .gid(0)
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let said = BufReader::new(other.stdout.take().expect("piped")).lines();
    let said = said.map_while(Result::ok).find(|line| line.contains("answered"));
    let taken = said.expect("it says how many answered");
    assert!(taken.ends_with(&format!("answered {CONNECTIONS_MAX}")), "{taken}");
    for _ in 0..10 {
        served.client().version().expect("root is answered at once");
        std::thread::sleep(Duration::from_millis(30));
    }
    other.kill().expect("it runs");
    other.wait().expect("it ends");
}

#[test]
fn client_that_does_not_read_is_dropped_and_others_are_served() {
    let served = Served::start();
    let mut greedy = served.raw();
    greedy.set_nonblocking(true).expect("nonblocking");
    let request = b"{\"method\":\"org.recoded.Control1.GetState\"}\0";
    let mut asked = 0;
    while asked < 100_000 && greedy.write(request).is_ok() {
        asked += 1;
    }
    assert!(asked > 10, "the daemon takes requests");
    served.client().version().expect("others are served, if half a second later");
}

#[test]
fn many_clients_at_once_get_their_own_answers() {
    let served = Served::rlnc();
    let clients: Vec<_> = (0..8)
        .map(|index| {
            let path = served.path.clone();
            std::thread::spawn(move || {
                let mut client = Client::connect(&path).expect("connect");
                for round in 0..10 {
                    let size = (1 + index * 10 + round).to_string();
                    let set = changes(&[("generation_size", &size)]);
                    let adopted = client.set(1, &set).expect("adopted");
                    assert_eq!(adopted.parameters.generation_size.unwrap_or(0).to_string(), size);
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("every client is served");
    }
    let editions = served.dataplane.editions();
    assert!(editions.windows(2).all(|pair| pair[1] == pair[0] + 1), "{editions:?}");
    assert_eq!(editions.last(), Some(&81));
}
