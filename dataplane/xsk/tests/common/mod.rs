//! Shared check of the tests that need privilege.

/// Whether tests that need root can run; prints why not. With `RECODED_REQUIRE_ALL=1`, being unable
/// to is a failure.
pub fn have_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        return true;
    }
    let reason = "skipped: needs root for network namespaces and AF_XDP";
    assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none_or(|value| value != "1"), "{reason}");
    println!("{reason}");
    false
}
