//! Checks for a working card in a child process: with stand-ins for libcuda that are missing, old,
//! broken, wrong, or owned by another process.

mod common;

use std::time::Duration;

use common::PATIENCE;
use recoded_code::engine::check;
use recoded_cuda::{CudaEngine, OpenError, Options, Unusable, opener, probe};

#[test]
fn probe_without_library_says_so() {
    in_child("probe_without_library_says_so", &[("LD_LIBRARY_PATH", "")], || {
        match probe(&options(), PATIENCE) {
            Ok(info) => println!("skipped: this machine has a card, {}", info.name),
            Err(error) => assert_eq!(error, Unusable::NoLibrary),
        }
    });
}

#[test]
fn probe_with_stub_of_a_library_survives() {
    let stub = recoded_cuda_standin::stub_folder().display().to_string();
    in_child("probe_with_stub_of_a_library_survives", &[("LD_LIBRARY_PATH", &stub)], || {
        assert!(matches!(probe(&options(), PATIENCE), Err(Unusable::Crashed { .. })));
    });
}

#[test]
fn probe_with_old_driver_says_so() {
    // The image needs 13.0.
    in_child("probe_with_old_driver_says_so", &[("STANDIN_VERSION", "12090")], || {
        assert_eq!(probe(&options(), PATIENCE), Err(Unusable::TooOld { driver: 12090 }));
    });
}

/// In EXCLUSIVE_PROCESS mode the probe has no access while its parent has a context: a queue then
/// failed to open its card again.
#[test]
fn card_of_one_process_is_opened_again_by_that_process_only() {
    let name = "card_of_one_process_is_opened_again_by_that_process_only";
    let folder = tempfile::tempdir().expect("a folder");
    let lock = folder.path().join("lock").display().to_string();
    in_child(name, &[("STANDIN_EXCLUSIVE", &lock)], || {
        let lock = std::env::var("STANDIN_EXCLUSIVE").expect("given");
        let other = std::fs::File::create(lock).expect("a file");
        other.lock().expect("no other process has it");
        assert_eq!(probe(&options(), PATIENCE), Err(Unusable::Taken));
        assert!(opener(options(), PATIENCE)().is_err());
        drop(other);
        let first = open(&options());
        assert_eq!(probe(&options(), PATIENCE), Err(Unusable::Taken));
        let mut second = opener(options(), PATIENCE)().expect("this process has the card");
        second.submit(check::sample(1)).expect("taken");
        drop(first);
    });
}

#[test]
fn probe_without_card_says_so() {
    in_child("probe_without_card_says_so", &[("STANDIN_DEVICES", "0")], || {
        assert_eq!(probe(&options(), PATIENCE), Err(Unusable::NoDevice { device: 0, cards: 0 }));
    });
    in_child("probe_without_card_says_so", &[], || {
        let options = Options { device: 3, ..options() };
        assert_eq!(probe(&options, PATIENCE), Err(Unusable::NoDevice { device: 3, cards: 1 }));
    });
}

#[test]
fn probe_survives_a_crash() {
    in_child("probe_survives_a_crash", &[("STANDIN_FAULTS", "cuInit@1=crash")], || {
        assert!(matches!(probe(&options(), PATIENCE), Err(Unusable::Crashed { .. })));
    });
}

#[test]
fn probe_ends_a_driver_that_hangs() {
    in_child(
        "probe_ends_a_driver_that_hangs",
        &[("STANDIN_FAULTS", "cuCtxCreate_v3@1=hang")],
        || {
            let answer = probe(&options(), Duration::from_secs(1));
            assert_eq!(answer, Err(Unusable::Silent { seconds: 1 }));
        },
    );
}

#[test]
fn probe_finds_wrong_results() {
    // The first kernel fills tables; each of the others is corrupted.
    in_child("probe_finds_wrong_results", &[("STANDIN_FAULTS", "kernel@2+=wrong")], || {
        let wrong = Unusable::Failed { reason: OpenError::Wrong.to_string() };
        assert_eq!(probe(&options(), PATIENCE), Err(wrong));
    });
}

#[test]
fn probe_of_a_card_that_works_describes_it() {
    in_child("probe_of_a_card_that_works_describes_it", &[], || {
        let info = probe(&options(), PATIENCE).expect("usable");
        assert_eq!((info.name.as_str(), info.capability, info.driver), ("stand-in", 90, 13000));
    });
}

/// As [`common::in_child`], with the stand-in for libcuda.
fn in_child(test: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    common::in_child(test, &recoded_cuda_standin::folder().display().to_string(), variables, body);
}

fn options() -> Options {
    Options::find().expect("the image is named")
}

fn open(options: &Options) -> CudaEngine {
    CudaEngine::open(options).unwrap_or_else(|error| panic!("{error}"))
}
