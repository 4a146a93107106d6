//! Rules for the contents of a Rust file.

use super::Finding;

/// Crates that need unsafe code: rings shared with Linux, SIMD, pointers of C programs, buffers of
/// Python, CUDA, the simulated FPGA card, and for the benchmarks rivals written in C. The eBPF
/// programs are another workspace and are not checked.
pub const MAY_BE_UNSAFE: [&str; 8] = [
    "recoded-xsk",
    "recoded-gf",
    "recoded-c",
    "recoded-python",
    "recoded-cuda",
    "recoded-cuda-shim",
    "recoded-fpga",
    "bench-native",
];

/// Lines beyond which a file is split.
const LINES_MAX: usize = 600;

/// Marks of unfinished work and of disabled tests, assembled so that this file contains none.
const FORBIDDEN: [(&str, &str); 3] = [
    (concat!("to", "do!"), "unfinished code"),
    (concat!("unimple", "mented!"), "unfinished code"),
    (concat!("#[ig", "nore"), "a test that does not run"),
];

/// Findings in one file; `needs_forbid` when it is the root of a crate without unsafe code.
pub fn check(path: &str, text: &str, needs_forbid: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if lines > LINES_MAX {
        let message = format!("{lines} lines, more than {LINES_MAX}: split the file");
        findings.push(Finding::new(path, None, message));
    }
    if needs_forbid && !text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]") {
        findings.push(Finding::new(path, None, "lacks `#![forbid(unsafe_code)]`"));
    }
    for (index, line) in text.lines().enumerate() {
        for (mark, meaning) in FORBIDDEN {
            if line.contains(mark) {
                let message = format!("`{mark}`: {meaning} does not go into the tree");
                findings.push(Finding::new(path, Some(index + 1), message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_clean_file_no_finding() {
        assert_eq!(check("a.rs", "#![forbid(unsafe_code)]\nfn main() {}\n", true), []);
    }

    #[test]
    fn check_root_without_forbid_found() {
        assert_eq!(check("a.rs", "fn main() {}\n", true).len(), 1);
        assert_eq!(check("a.rs", "// #![forbid(unsafe_code)]\n", true).len(), 1);
        assert_eq!(check("a.rs", "fn main() {}\n", false), []);
    }

    #[test]
    fn check_length_limit_is_inclusive() {
        assert_eq!(check("a.rs", &"\n".repeat(LINES_MAX), false), []);
        assert_eq!(check("a.rs", &"\n".repeat(LINES_MAX + 1), false).len(), 1);
    }

    #[test]
    fn check_forbidden_marks_found_with_their_line() {
        for (mark, _) in FORBIDDEN {
            let findings = check("a.rs", &format!("fn f() {{}}\n    {mark}\n"), false);
            assert_eq!(findings.len(), 1);
            assert_eq!(findings[0].line, Some(2));
        }
    }
}
