//! The system calls of a process that only computes and uses its pipes. All others fail as unknown to the
//! system; C libraries then use fallbacks.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

use super::{Rules, equals, equals_masked, flag_bits, rule, rules_for};

/// Memory, threads, time, randomness; reading, writing and closing open files.
const ALLOWED_CALLS: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Refuses all other calls to this thread permanently, and to the threads it starts.
pub(in crate::linux::sandbox) fn confine_to_compute() -> Result<(), String> {
    let refuse = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let arch = TargetArch::try_from(ARCH).map_err(|e| e.to_string())?;
    let filter = SeccompFilter::new(denied_rules()?, refuse, SeccompAction::Allow, arch);
    let program = filter.and_then(BpfProgram::try_from);
    let program = program.map_err(|e| format!("seccomp: {e}"))?;
    apply_filter(&program).map_err(|e| format!("seccomp: {e}"))
}

fn denied_rules() -> Result<Rules, String> {
    let mut rules = rules_for(ALLOWED_CALLS);
    let some = BTreeMap::from([
        // Threads, but no processes.
        (
            libc::SYS_clone,
            equals_masked(
                0,
                flag_bits(libc::CLONE_THREAD),
                flag_bits(libc::CLONE_THREAD),
            ),
        ),
        // Writable memory must not become executable.
        (
            libc::SYS_mmap,
            equals_masked(2, flag_bits(libc::PROT_EXEC), 0),
        ),
        (
            libc::SYS_mprotect,
            equals_masked(2, flag_bits(libc::PROT_EXEC), 0),
        ),
        // Only to name threads.
        (libc::SYS_prctl, equals(0, libc::PR_SET_NAME)),
        // Only its own priority, which can only be lowered without rights.
        (libc::SYS_setpriority, equals(1, 0)),
    ]);
    for (call, condition) in some {
        rules.insert(call, vec![rule(&[condition])?]);
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A confined thread cannot open, connect or start anything; it can compute, start threads and write to its
    /// pipe.
    #[test]
    fn confined_thread_can_only_compute() {
        let (read, mut write) = std::io::pipe().unwrap();
        let inside = std::thread::spawn(move || {
            nix::sys::prctl::set_no_new_privs().unwrap();
            confine_to_compute().unwrap();
            let sum = std::thread::spawn(|| (0..1000).sum::<u32>())
                .join()
                .unwrap();
            assert_eq!(sum, 499_500);
            let tried = [
                std::fs::read("/proc/self/status").map(drop),
                std::fs::metadata("/").map(drop),
                std::fs::write("/tmp/shut-in", "").map(drop),
                std::net::TcpListener::bind("127.0.0.1:0").map(drop),
                std::net::UdpSocket::bind("127.0.0.1:0").map(drop),
                std::os::unix::net::UnixStream::pair().map(drop),
                std::process::Command::new("/bin/true").status().map(drop),
            ];
            write.write_all(b"done").unwrap();
            let opened: Vec<bool> = tried.iter().map(Result::is_ok).collect();
            assert_eq!(opened, [false; 7]);
            assert!(nix::sys::signal::kill(nix::unistd::getppid(), None).is_err());
        });
        inside.join().unwrap();
        assert_eq!(std::io::read_to_string(read).unwrap(), "done");
    }

    /// No call that opens, connects, starts or signals is allowed.
    #[test]
    fn calls_with_external_effects_are_not_allowed() {
        let allowed = denied_rules().unwrap();
        for call in [
            libc::SYS_openat,
            libc::SYS_openat2,
            libc::SYS_socket,
            libc::SYS_connect,
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_clone3,
            libc::SYS_kill,
            libc::SYS_tgkill,
            libc::SYS_unlinkat,
            libc::SYS_ptrace,
            libc::SYS_prlimit64,
            libc::SYS_io_uring_setup,
            libc::SYS_memfd_create,
        ] {
            assert!(!allowed.contains_key(&call), "{call}");
        }
        for call in [libc::SYS_clone, libc::SYS_mmap, libc::SYS_prctl] {
            assert_eq!(allowed[&call].len(), 1, "only with a condition: {call}");
        }
    }
}
