//! All cases of the lab, which run as `scripts/lab --all` runs them.

use recoded_lab::cases;
use recoded_lab::host::{self, CaseReport, Verdict};

#[test]
fn cases_pass_on_real_kernels_and_drivers() {
    let reports = host::run(&[], |report| println!("{}", report.line())).unwrap();
    let require_all = std::env::var_os("RECODED_REQUIRE_ALL").is_some_and(|all| all == "1");
    let is_wrong = |one: &&CaseReport| match one.verdict {
        Verdict::Passed(_) => false,
        Verdict::Failed(_) => true,
        Verdict::Skipped(_) => require_all,
    };
    let wrong: Vec<String> = reports.iter().filter(is_wrong).map(CaseReport::line).collect();
    // As scripts/test counts it.
    for one in reports.iter().filter(|one| matches!(one.verdict, Verdict::Skipped(_))) {
        println!("skipped: {}", one.line());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn table_of_cases_in_readme_is_that_of_the_program() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let text = std::fs::read_to_string(path).unwrap();
    let table = cases::table();
    assert!(text.contains(&table), "README.md must have this table:\n{table}");
}
