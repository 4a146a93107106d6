//! The help of `recoded` and its messages about files, verbatim: `golden`.
//!
//! `RECODED_BLESS=1 cargo test -p recoded --test texts` rewrites them.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;

/// Compares with a file of `tests/golden`, or rewrites it on request.
fn assert_golden(file: &str, shown: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    if std::env::var_os("RECODED_BLESS").is_some() {
        std::fs::write(&path, shown).expect("write");
    }
    let expected = std::fs::read_to_string(&path).expect("the golden file");
    assert_eq!(shown, expected, "{file}");
}

/// Output and exit code of a command in a folder, through `unshare` if it must not see this host's
/// network.
fn said(folder: &Path, arguments: &str, is_alone: bool) -> String {
    let program = env!("CARGO_BIN_EXE_recoded");
    let mut command = Command::new(if is_alone { "unshare" } else { program });
    if is_alone {
        command.args(["--net", program]);
    }
    command.env_remove("RECODED_LOG").current_dir(folder).args(arguments.split_whitespace());
    let output = command.output().expect("it runs");
    let code = output.status.code().expect("no signal");
    let said = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
    format!("$ recoded {arguments}\n{said}[{code}]\n\n")
}

const RELAY: &str = r#"[daemon]
auth = "none"
[[link]]
name = "west"
interface = "recnone0"
local = "10.0.1.2"
[[flow]]
id = 1
role = "relay"
next_hops = [{ link = "west", address = "10.0.1.3" }]
upstream = { link = "west", address = "10.0.1.1" }
"#;

/// Names and contents of files.
const FILES: [(&str, &str); 7] = [
    ("right", RELAY),
    (
        "bare",
        "[[link]]\nname = \"west\"\ninterface = \"recnone0\"\n[[flow]]\nid = 1\nrole = \"relay\"\n\
         next_hops = [{ link = \"west\", address = \"10.0.1.3\" }]\n\
         upstream = { link = \"west\", address = \"10.0.1.1\" }\n",
    ),
    ("empty", ""),
    ("syntax", "[daemon\n"),
    ("sections", "link = 3\n[peer]\na = 1\n"),
    (
        "values",
        "[daemon]\nworkers = 0\nmemory = \"lots\"\n[[link]]\n\
         name = \"west\"\nlocal = \"10.0.1\"\nrate_mbit = -1\n[[flow]]\nid = 1\nrole = \"hub\"\n",
    ),
    (
        "names",
        "[[link]]\nname = \"west\"\ninterface = \"recnone0\"\nlocal = \"10.0.1.2\"\n[[tunnel]]\n\
         name = \"rec0\"\naddress = \"10.99.0.1\"\n[[flow]]\nid = 1\nrole = \"source\"\n\
         tunel = \"rec0\"\nnext_hops = [{ link = \"east\", address = \"10.0.1.256\" }]\n",
    ),
];

#[test]
fn help_is_golden() {
    let folder = tempfile::tempdir().expect("folder");
    assert_golden("help.txt", &said(folder.path(), "--help", false));
}

#[test]
fn check_says_what_is_wrong_in_these_words() {
    let folder = tempfile::tempdir().expect("folder");
    let mut text = String::new();
    for (name, file) in FILES {
        std::fs::write(folder.path().join(format!("{name}.toml")), file).expect("written");
        let arguments = format!("--config {name}.toml --check --offline");
        text += &said(folder.path(), &arguments, false);
    }
    for arguments in
        ["", "--config none.toml --check", "--config right.toml --log a=b=c", "--chekc"]
    {
        text += &said(folder.path(), arguments, false);
    }
    assert_golden("check.txt", &text);
}

/// In a separate network namespace with only a loopback interface that is down.
#[test]
fn check_of_a_host_says_what_is_missing_in_these_words() {
    if !rustix::process::geteuid().is_root() {
        let reason = "a network namespace of its own needs root";
        assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none_or(|all| all != "1"), "{reason}");
        println!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let loopback = RELAY.replace("recnone0", "lo");
    let bare = RELAY.replace("local = \"10.0.1.2\"\n", "");
    let alone = loopback.replace("local = \"10.0.1.2\"\n", "");
    let mut text = String::new();
    for (name, file) in
        [("missing", RELAY), ("loopback", &loopback), ("bare", &bare), ("alone", &alone)]
    {
        std::fs::write(folder.path().join(format!("{name}.toml")), file).expect("written");
        text += &said(folder.path(), &format!("--config {name}.toml --check"), true);
    }
    assert_golden("check-host.txt", &text);
}
