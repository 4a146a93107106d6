//! `scripts/lab`: lists and runs cases. `guest` and `peer` are for the inside of machines.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use recoded_lab::cases::{self, MACHINES};
use recoded_lab::host::{self, Architecture, Cache, Kernel, Verdict};
use recoded_lab::{LabError, first_process, guest};

/// Real kernels and NIC drivers in virtual machines, with two boxes in each. Needs no root.
#[derive(Debug, Parser)]
struct Arguments {
    /// Names of cases, or prefixes of them: igb selects every case of igb
    cases: Vec<String>,
    /// Every case
    #[arg(long)]
    all: bool,
    /// Fetch QEMU and all kernels again, and run nothing
    #[arg(long)]
    fetch: bool,
    /// Fetch what is missing of these, and run nothing
    #[arg(long, hide = true)]
    prepare: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if let [_, guest, machine, cases @ ..] = words.as_slice()
        && guest == "guest"
    {
        return in_guest(machine, cases);
    }
    if let [_, peer, machine] = words.as_slice()
        && peer == "peer"
    {
        return in_peer(machine);
    }
    let arguments = Arguments::parse();
    let done = if arguments.fetch || arguments.prepare {
        fetch(arguments.fetch)
    } else if arguments.all || !arguments.cases.is_empty() {
        run(&arguments.cases)
    } else {
        print!("{}", cases::table());
        Ok(true)
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn in_guest(machine: &str, cases: &[String]) -> ExitCode {
    let found = MACHINES.iter().find(|one| one.name == machine);
    let Some(found) = found else {
        println!("lab: no machine is called {machine}");
        return ExitCode::FAILURE;
    };
    ended(first_process::run(found, cases))
}

fn in_peer(machine: &str) -> ExitCode {
    match MACHINES.iter().find(|one| one.name == machine) {
        Some(found) => ended(guest::serve(found.nics)),
        None => ExitCode::FAILURE,
    }
}

/// Exit code of a machine's first process.
fn ended(result: Result<(), LabError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("lab: {error}");
            ExitCode::FAILURE
        }
    }
}

fn fetch(again: bool) -> Result<bool, LabError> {
    let cache = Cache::open()?;
    if again {
        cache.clear()?;
    }
    cache.tools()?;
    for kernel in Kernel::ALL {
        cache.kernel(kernel, Architecture::Amd64)?;
    }
    for machine in MACHINES {
        if machine.peer == Some(Architecture::Arm64) {
            cache.kernel(machine.kernel, Architecture::Arm64)?;
            cache.debian()?;
        }
    }
    Ok(true)
}

fn run(names: &[String]) -> Result<bool, LabError> {
    let reports = host::run(names, |report| println!("{}", report.line()))?;
    let count = |is: fn(&Verdict) -> bool| reports.iter().filter(|one| is(&one.verdict)).count();
    let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
    let skipped = count(|verdict| matches!(verdict, Verdict::Skipped(_)));
    println!("{} ok, {failed} failed, {skipped} skipped", reports.len() - failed - skipped);
    Ok(failed == 0)
}
