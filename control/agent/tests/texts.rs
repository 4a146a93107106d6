//! The help of `recoded-agent` and its error messages, verbatim: `golden`.
//!
//! `RECODED_BLESS=1 cargo test -p recoded-agent --test texts` rewrites them.

#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Compares with a file of `tests/golden`, or rewrites it on request.
fn assert_golden(file: &str, shown: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    if std::env::var_os("RECODED_BLESS").is_some() {
        fs::write(&path, shown).expect("write");
    }
    let expected = fs::read_to_string(&path).expect("the golden file");
    assert_eq!(shown, expected, "{file}");
}

/// Output and exit code of a command in a folder.
fn said(folder: &Path, arguments: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recoded-agent"));
    let output = command.current_dir(folder).args(arguments.split_whitespace()).output();
    let output = output.expect("it runs");
    let code = output.status.code().expect("no signal");
    let said = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
    let newline = if said.is_empty() || said.ends_with('\n') { "" } else { "\n" };
    format!("$ recoded-agent {arguments}\n{said}{newline}[{code}]\n\n")
}

#[test]
fn help_of_every_command_is_golden() {
    let folder = tempfile::tempdir().expect("a folder");
    let commands = ["", "run ", "status ", "genkey ", "pubkey ", "sign "];
    let all = commands.map(|command| said(folder.path(), &format!("{command}--help")));
    assert_golden("help.txt", &all.concat());
}

#[test]
fn mistakes_are_said_in_these_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path();
    let write = |name: &str, text: &str| fs::write(place.join(name), text).expect("written");
    write("syntax.toml", "node = \n");
    write("empty.toml", "");
    write("unknown.toml", "node = \"a\"\nnote = \"b\"\n[source]\nfolder = \"www\"\n");
    write("open.key", "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=\n");
    write("short.key", "hSDw\n");
    for (name, mode) in [("open.key", 0o644), ("short.key", 0o600)] {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(place.join(name), permissions).expect("set");
    }
    fs::create_dir(place.join("boxes")).expect("made");
    let commands = [
        "",
        "explode",
        "run --config none.toml --once",
        "run --config syntax.toml --once",
        "run --config empty.toml --once",
        "run --config unknown.toml --once",
        "status --status none.json",
        "status --json --status none.json",
        "pubkey none.key",
        "pubkey open.key",
        "pubkey short.key",
        "sign boxes",
        "sign boxes --key none.key --to www",
        "print nothing",
    ];
    let all = commands.map(|arguments| said(place, arguments));
    assert_golden("wrong.txt", &all.concat());
}
