//! Files that packages ship with the program: its manual page and completion scripts.

use crate::Arguments;
use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::io::{self, Write};

/// Files, and where an operator finds them.
const FILES: [(&str, &str); 4] = [
    ("/etc/recoded/recoded.toml", "the configuration that the service reads"),
    ("/run/recoded/recoded.sock", "the control socket, for root and the group recoded"),
    ("/usr/share/doc/recoded/recoded.toml", "an annotated configuration with every key"),
    ("/usr/share/recoded", "alert rules and a dashboard for metrics"),
];

/// Prints the requested text on stdout. Returns whether any was requested.
pub fn print(arguments: &Arguments) -> io::Result<bool> {
    let mut text = Vec::new();
    if let Some(shell) = arguments.completion {
        clap_complete::generate(shell, &mut Arguments::command(), "recoded", &mut text);
    } else if arguments.man {
        page(&mut text)?;
    } else {
        return Ok(false);
    }
    io::stdout().lock().write_all(&text)?;
    Ok(true)
}

fn page(text: &mut Vec<u8>) -> io::Result<()> {
    Man::new(Arguments::command()).section("8").manual("Recoded").render(text)?;
    let mut more = Roff::new();
    more.control("SH", ["FILES"]);
    for (path, what) in FILES {
        more.control("TP", []);
        more.text([bold(path)]);
        more.text([roman(what)]);
    }
    more.control("SH", ["SEE ALSO"]);
    more.text([roman(
        "recodectl(1), recoded.toml(5), recoded-counters(7): every reason for a dropped",
    )]);
    more.text([roman("packet, with its cure")]);
    more.to_writer(text)
}
