//! System calls that a process which handles packets of others may make after its setup: that of
//! `recoded`, and that of `recoded-split`.
//!
//! Two filters. The first allows listed calls and fails the rest with EPERM, so that a library that
//! tries an optional call continues without it. The second kills the process for calls that it
//! never makes and that only an attacker wants. Linux writes those to the audit log, and the
//! supervisor logs the signal (SIGSYS).

#![forbid(unsafe_code)]

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter,
};
use std::collections::BTreeMap;

/// Limits this thread, and those it starts, to the calls for packets and those in `also`; returns
/// the number of allowed calls.
///
/// # Errors
/// If this architecture is unknown, or Linux refuses the filters.
pub fn limit(also: &[i64]) -> Result<usize, seccompiler::Error> {
    let architecture: TargetArch = std::env::consts::ARCH.try_into()?;
    let allowed = allowed(also)?;
    let count = allowed.len();
    let errno = |code: i32| SeccompAction::Errno(code.unsigned_abs());
    let (allow, kill) = (SeccompAction::Allow, SeccompAction::KillProcess);
    let listed = SeccompFilter::new(allowed, errno(libc::EPERM), allow.clone(), architecture)?;
    let always = |calls: &[i64]| calls.iter().map(|call| (*call, Vec::new())).collect();
    // On ENOSYS the C library starts threads with `clone`, whose flags a filter can check.
    let clone3 = SeccompFilter::new(
        always(&[libc::SYS_clone3]),
        allow.clone(),
        errno(libc::ENOSYS),
        architecture,
    )?;
    let fatal = SeccompFilter::new(always(FATAL), allow, kill, architecture)?;
    // The first filter must allow `seccomp` for the others.
    for filter in [fatal, clone3, listed] {
        apply_filter(&BpfProgram::try_from(filter)?)?;
    }
    Ok(count)
}

/// Allows a call if the bits of `mask` in an argument equal `value`.
fn bits(argument: u8, mask: u64, value: u64) -> Result<SeccompRule, BackendError> {
    let operator = SeccompCmpOp::MaskedEq(mask);
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
    SeccompRule::new(vec![condition])
}

/// Allows a call if an argument is one of these.
fn one_of(argument: u8, values: &[i32]) -> Result<Vec<SeccompRule>, BackendError> {
    values
        .iter()
        .map(|value| bits(argument, u32::MAX.into(), value.unsigned_abs().into()))
        .collect()
}

fn allowed(also: &[i64]) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let calls = ALLOWED.iter().chain(also);
    let mut rules: BTreeMap<_, _> = calls.map(|call| (*call, Vec::new())).collect();
    // No memory becomes code.
    let executable = libc::PROT_EXEC.unsigned_abs().into();
    rules.insert(libc::SYS_mmap, vec![bits(2, executable, 0)?]);
    rules.insert(libc::SYS_mprotect, vec![bits(2, executable, 0)?]);
    // Threads, not processes.
    let thread = libc::CLONE_THREAD.unsigned_abs().into();
    rules.insert(libc::SYS_clone, vec![bits(0, thread, thread)?]);
    // A name and a timer for each thread.
    let names = [libc::PR_SET_NAME, libc::PR_SET_TIMERSLACK, libc::PR_SET_VMA];
    rules.insert(libc::SYS_prctl, one_of(0, &names)?);
    rules.insert(
        libc::SYS_fcntl,
        one_of(1, &[libc::F_GETFL, libc::F_SETFL, libc::F_GETFD, libc::F_DUPFD_CLOEXEC])?,
    );
    // Signals to threads of this process, as for abort: other processes of the same user are out of
    // reach, also before Linux 6.12, where Landlock does not forbid it.
    rules.insert(libc::SYS_tgkill, one_of(0, &[std::process::id().cast_signed()])?);
    let unblock = vec![bits(1, u32::MAX.into(), FIONBIO)?];
    rules.insert(libc::SYS_ioctl, unblock);
    Ok(rules)
}

/// Makes a descriptor non-blocking. Each C library has a type of its own for it.
const FIONBIO: u64 = 0x5421;

/// Calls needed for packets, timers, threads, the control socket, memory and shutdown.
const ALLOWED: &[i64] = &[
    // Packets, tunnels, rings, netlink, the supervisor, the log.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_uname,
    libc::SYS_shutdown,
    libc::SYS_close,
    // The control socket.
    libc::SYS_accept4,
    // Configuration changes go to the supervisor as files in memory.
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_statx,
    // Waiting.
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    // Threads.
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_membarrier,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_madvise,
    libc::SYS_getrandom,
    // Signals, and abort.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // musl ends a process by it, and nothing limits it to this process.
    #[cfg(target_env = "musl")]
    libc::SYS_tkill,
    // The next filter.
    libc::SYS_seccomp,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
];

/// Calls that start programs, affect other processes, or change Linux itself.
const FATAL: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_bpf,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_kexec_load,
    libc::SYS_mount,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_pivot_root,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter for a call; returns its action. Seccomp filters use few instructions of BPF.
    fn decide(program: &BpfProgram, call: i64, arguments: [u64; 6]) -> u32 {
        let mut data = [0; 64];
        data[..4].copy_from_slice(&(call as u32).to_ne_bytes());
        let audit = if cfg!(target_arch = "x86_64") { 0xC000_003E } else { 0xC000_00B7_u32 };
        data[4..8].copy_from_slice(&audit.to_ne_bytes());
        for (place, argument) in data[16..].chunks_exact_mut(8).zip(arguments) {
            place.copy_from_slice(&argument.to_ne_bytes());
        }
        let word = |at: u32| {
            let bytes = data[at as usize..][..4].try_into().expect("four bytes");
            u32::from_ne_bytes(bytes)
        };
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let step = &program[at];
            at += 1;
            let is_met = match step.code {
                0x20 => {
                    accumulator = word(step.k);
                    continue;
                }
                0x54 => {
                    accumulator &= step.k;
                    continue;
                }
                0x05 => {
                    at += step.k as usize;
                    continue;
                }
                0x06 => return step.k,
                0x15 => accumulator == step.k,
                0x25 => accumulator > step.k,
                0x35 => accumulator >= step.k,
                other => panic!("instruction {other:#x}"),
            };
            at += usize::from(if is_met { step.jt } else { step.jf });
        }
    }

    /// Signals to any process of the same user once passed, and the supervisor may be one.
    #[test]
    fn signals_reach_threads_of_this_process_only() {
        let architecture = std::env::consts::ARCH.try_into().expect("known");
        let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
        let filter = SeccompFilter::new(
            allowed(&[libc::SYS_connect]).expect("rules"),
            refused.clone(),
            SeccompAction::Allow,
            architecture,
        );
        let program = BpfProgram::try_from(filter.expect("a filter")).expect("a program");
        let signal = |process: u64| decide(&program, libc::SYS_tgkill, [process, 7, 9, 0, 0, 0]);
        let own = u64::from(std::process::id());
        assert_eq!(signal(own), u32::from(SeccompAction::Allow));
        let parent = u64::from(std::os::unix::process::parent_id());
        for other in [parent, own + 1, 0, 1, u64::from(u32::MAX)] {
            assert_eq!(signal(other), u32::from(refused.clone()), "{other}");
        }
        for call in [libc::SYS_kill, libc::SYS_tkill, libc::SYS_rt_tgsigqueueinfo] {
            assert_eq!(decide(&program, call, [own, own, 9, 0, 0, 0]), u32::from(refused.clone()));
        }
        for (call, action) in [
            (libc::SYS_getpid, SeccompAction::Allow),
            (libc::SYS_connect, SeccompAction::Allow),
            (libc::SYS_bind, refused.clone()),
            (libc::SYS_openat, refused),
        ] {
            assert_eq!(decide(&program, call, [0; 6]), u32::from(action), "{call}");
        }
    }
}
