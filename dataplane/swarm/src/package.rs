//! Files of the Debian package that the arguments determine: manual pages and completions.

use std::io;

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::arguments::{Arguments, Printed};

/// Writes a file to standard output; a manual page is about `command` if there is one.
///
/// # Errors
/// Standard output cannot be written, or there is no such command.
pub(crate) fn print(what: Printed, command: Option<&str>) -> io::Result<()> {
    let mut program = Arguments::command();
    let mut out = io::stdout().lock();
    let shell = match what {
        Printed::Man => {
            program.build();
            let page = match command {
                Some(name) => program.find_subcommand(name).ok_or(io::ErrorKind::NotFound)?,
                None => &program,
            };
            return clap_mangen::Man::new(page.clone()).section("1").render(&mut out);
        }
        Printed::Bash => Shell::Bash,
        Printed::Zsh => Shell::Zsh,
        Printed::Fish => Shell::Fish,
    };
    generate(shell, &mut program, "recoded-swarm", &mut out);
    Ok(())
}
