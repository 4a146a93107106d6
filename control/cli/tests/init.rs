//! `recodectl init`: the first file of a network, on two boxes that exchange one line each.

#![forbid(unsafe_code)]

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs init in a folder; its exit code and output.
fn init(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    program.args(["--json", "init", "--config"]).arg(folder.join("etc/recoded.toml"));
    program.arg("--key").arg(folder.join("etc/private.key")).args(arguments);
    let output = program.stdin(Stdio::null()).output().expect("it runs");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stdout).expect("text"))
}

fn done(folder: &Path, arguments: &[&str]) -> Value {
    let (code, text) = init(folder, arguments);
    assert_eq!(code, 0, "{text}");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn two_boxes_exchange_a_line_each_and_have_one_network() {
    let [server, laptop] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (server, laptop) = (server.path(), laptop.path());
    let first = done(server, &["--name", "server", "--address", "192.0.2.1"]);
    assert_eq!(first["is_complete"], false, "{first}");
    let key = std::fs::metadata(server.join("etc/private.key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    let second = done(laptop, &["--name", "laptop", "--with", first["line"].as_str().unwrap()]);
    assert_eq!(second["is_complete"], true, "{second}");
    let third = done(server, &["--with", second["line"].as_str().unwrap()]);
    assert_eq!((&third["name"], &third["boxes"]), (&"server".into(), &2.into()), "{third}");
    assert_eq!((&third["is_complete"], &third["is_key_new"]), (&true.into(), &false.into()));
    let [one, other] =
        [server, laptop].map(|it| std::fs::read_to_string(it.join("etc/recoded.toml")).unwrap());
    assert_eq!(one, other);
    let network = recoded::network::parse("net.toml", &one).unwrap();
    assert_eq!(network.paths.len(), 1, "{one}");
    // Nothing changes when a command is repeated.
    done(server, &["--with", second["line"].as_str().unwrap()]);
    let again = std::fs::read_to_string(server.join("etc/recoded.toml")).unwrap();
    assert_eq!(again, one);
}

#[test]
fn wrong_input_is_refused_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::create_dir(folder.join("etc")).unwrap();
    let file = folder.join("etc/recoded.toml");
    let hand = "link = [{ name = \"wan\", interface = \"eth0\" }]\n";
    for (text, arguments, cause) in [
        (hand, vec!["--name", "a"], "configuration of one box"),
        ("[boxes", vec!["--name", "a"], "not valid TOML"),
        ("", vec!["--name", "a", "--with", "c2VjcmV0"], "no line of a box"),
        ("", vec!["--name", "a", "--address", "192.0.2.300"], "box a: at = "),
        ("", vec!["--name", "a b"], "a box has a name"),
        ("", vec!["--name", "a", "--with", "b = { key = \"c2VjcmV0\" }"], "key = (not shown)"),
    ] {
        std::fs::write(&file, text).unwrap();
        let (code, said) = init(folder, &arguments);
        assert_eq!(code, if cause == "no line of a box" { 2 } else { 1 }, "{said}");
        assert!(said.contains(cause) && !said.contains("c2VjcmV0"), "{cause}: {said}");
        // The file is not complete, which is no mistake.
        assert!(!said.contains("path is missing"), "{said}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
    // Neither box has an address.
    let other = tempfile::tempdir().unwrap();
    std::fs::write(&file, "").unwrap();
    let line = done(other.path(), &["--name", "b"])["line"].as_str().unwrap().to_owned();
    let (code, said) = init(folder, &["--name", "a", "--with", &line]);
    let none = "neither a nor b has an address: repeat init with --address".to_owned();
    assert!(code == 1 && said.contains(&none), "{said}");
    // A text is for people.
    let output = Command::new(env!("CARGO_BIN_EXE_recodectl"))
        .args(["init", "--name", "a", "--config"])
        .arg(folder.join("etc/new.toml"))
        .arg("--key")
        .arg(folder.join("etc/private.key"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("recodectl init --with 'a = {"), "{said}");
}
