//! Choosing a kernel by the environment. The only test of its process, because the choice is made
//! once.

use recoded_gf::{ForceError, KERNEL_VARIABLE, Kernel};

#[test]
fn forced_kernel_is_the_one_used_and_wrong_names_are_typed_errors() {
    let set = |name: &str| {
        // SAFETY: this is the only test of its process, so no other thread reads the environment.
        unsafe { std::env::set_var(KERNEL_VARIABLE, name) }
    };
    set("abacus");
    let unknown = ForceError::Unknown { name: "abacus".to_owned() };
    assert_eq!(Kernel::forced().map(|_| ()), Err(unknown.clone()));
    assert!(unknown.to_string().contains("naive"), "the message lists what there is: {unknown}");
    set("");
    assert!(matches!(Kernel::forced(), Ok(None)));
    set("naive");
    assert_eq!(Kernel::best().name(), "naive");
    set("avx2");
    assert_eq!(Kernel::best().name(), "naive", "the choice is made once per process");
    let last = Kernel::all_available().last().map(Kernel::name);
    assert!(last.is_some_and(|name| Kernel::by_name(name).is_some()));
    assert!(Kernel::by_name("abacus").is_none());
}
