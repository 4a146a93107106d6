//! The machine that a number was measured on: without it a number means nothing.

use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// Description of a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Cores that are on.
    pub cores: usize,
    /// Whether it is a guest of a hypervisor, which then shares its cores with others.
    pub is_virtual: bool,
    /// Version of Linux.
    pub linux: String,
    /// Version of the compiler.
    pub rustc: String,
    /// Whether this program was built with optimisation.
    pub is_optimised: bool,
    /// Date and time, UTC.
    pub date: String,
    /// Load average of the last minute at the start, as a measure of other load.
    pub load_average: String,
}

impl Machine {
    /// Describes this one.
    pub fn describe() -> Machine {
        let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = information.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let processors = information.lines().filter(|line| line.starts_with("processor"));
        let uname = rustix::system::uname();
        Machine {
            processor: field("model name").unwrap_or_else(|| uname_text(uname.machine())),
            cores: processors.count(),
            is_virtual: field("flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            linux: uname_text(uname.release()),
            rustc: first_line("rustc", "--version"),
            is_optimised: !cfg!(debug_assertions),
            date: first_line("date", "-u +%Y-%m-%dT%H:%M:%SZ"),
            load_average: fs::read_to_string("/proc/loadavg")
                .ok()
                .and_then(|text| Some(text.split(' ').next()?.to_owned()))
                .unwrap_or_default(),
        }
    }

    /// It in one line.
    pub fn heading(&self) -> String {
        let Machine { processor, cores, is_virtual, linux, rustc, date, load_average, .. } = self;
        let kind = if *is_virtual { "virtual" } else { "physical" };
        let build = if self.is_optimised { "" } else { ", NOT OPTIMISED" };
        format!(
            "{processor}, {cores} {kind} cores, Linux {linux}, {rustc}{build}, {date}, load \
             average {load_average}"
        )
    }
}

fn uname_text(text: &std::ffi::CStr) -> String {
    text.to_string_lossy().into_owned()
}

/// First line that a program prints, or `unknown`.
fn first_line(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split(' ')).output();
    output
        .ok()
        .and_then(|output| Some(String::from_utf8(output.stdout).ok()?.lines().next()?.to_owned()))
        .unwrap_or_else(|| "unknown".into())
}
