//! Filters for calls with effects outside the process: modes that give rights to others, limits and priorities
//! of other processes, and memory and messages that outlive their creator.

use nix::libc;
use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use super::{Condition, Rules, differs, equals, equals_masked, flag_bits, rule, rules_for};

/// A program with one of these bits runs with the rights of its owner or group.
const SET_ID_BITS: [u32; 2] = [libc::S_ISUID, libc::S_ISGID];

/// Calls with a mode, and the index of that argument.
const MODE_CALLS: &[(i64, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
    (libc::SYS_mkdirat, 2),
    (libc::SYS_mknodat, 2),
];

/// Calls whose mode matters only if their flags create a file: the indexes of flags and mode.
const CREATING_CALLS: &[(i64, u8, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, 2),
    (libc::SYS_openat, 2, 3),
];

/// Changes of mode, owner, times and attributes. Filters cannot see paths, so all are allowed or none.
const ATTRIBUTE_CALLS: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_lremovexattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_setxattr,
    SETXATTRAT,
    REMOVEXATTRAT,
    FILE_SETATTR,
    libc::SYS_utimensat,
];

// Newer than the crate's table; the number is the same on every system.
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const FILE_SETATTR: i64 = 469;

/// Calls that change a process by its id, 0 for the caller, and the index of that argument.
const PRIORITY_CALLS: &[(i64, u8)] = &[
    (libc::SYS_ioprio_set, 1),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_setpriority, 1),
];

/// Calls on all processes of a user, including the kernel.
const USER_WIDE_CALLS: &[(i64, i32)] = &[
    (libc::SYS_ioprio_set, 3),
    (libc::SYS_setpriority, libc::PRIO_USER.cast_signed()),
];

/// System V IPC and POSIX queues: visible to all processes, not covered by limits, and they outlive their
/// creator.
const IPC_CALLS: &[i64] = &[
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_msgctl,
    libc::SYS_msgget,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_semctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmget,
];

/// Forbids the set-id bits. With `any`, other changes of modes, owners, times and attributes are allowed.
pub(super) fn restrict_modes(rules: &mut Rules, any: bool) -> Result<(), String> {
    for (call, mode) in MODE_CALLS {
        let conditions = SET_ID_BITS.map(|bit| rule(&[has_bit(*mode, bit)]));
        rules.insert(*call, conditions.into_iter().collect::<Result<_, _>>()?);
    }
    for (call, flags, mode) in CREATING_CALLS {
        let mut conditions = Vec::new();
        for making in [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY] {
            for bit in SET_ID_BITS {
                let makes = equals_masked(*flags, flag_bits(making), flag_bits(making));
                conditions.push(rule(&[makes, has_bit(*mode, bit)])?);
            }
        }
        rules.insert(*call, conditions);
    }
    if !any {
        rules.extend(rules_for(ATTRIBUTE_CALLS));
    }
    Ok(())
}

/// Forbids changing limits and priorities of other processes; not needed in a PID namespace.
pub(super) fn restrict_processes(rules: &mut Rules) -> Result<(), String> {
    let set = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0);
    let other = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0);
    let describe_error = |e: seccompiler::BackendError| format!("seccomp: {e}");
    let both = SeccompRule::new(vec![
        set.map_err(describe_error)?,
        other.map_err(describe_error)?,
    ]);
    rules.insert(libc::SYS_prlimit64, vec![both.map_err(describe_error)?]);
    for (call, pid_argument) in PRIORITY_CALLS {
        rules.insert(*call, vec![rule(&[differs(*pid_argument, 0)])?]);
    }
    for (call, kind) in USER_WIDE_CALLS {
        rules
            .entry(*call)
            .or_default()
            .push(rule(&[equals(0, *kind)])?);
    }
    Ok(())
}

pub(super) fn deny_ipc(rules: &mut Rules) {
    rules.extend(rules_for(IPC_CALLS));
}

fn has_bit(argument: u8, bit: u32) -> Condition {
    equals_masked(argument, u64::from(bit), u64::from(bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_argument_is_ignored_without_create_flag() {
        let mut rules = Rules::new();
        restrict_modes(&mut rules, true).unwrap();
        assert_eq!(rules[&libc::SYS_openat].len(), 4);
        assert!(!rules.contains_key(&libc::SYS_fchownat));
        restrict_modes(&mut rules, false).unwrap();
        assert!(rules[&libc::SYS_fchownat].is_empty());
        assert!(rules[&libc::SYS_fchmod].is_empty(), "whatever the mode");
    }

    #[test]
    fn own_limits_may_be_changed() {
        let mut rules = Rules::new();
        restrict_processes(&mut rules).unwrap();
        assert_eq!(rules[&libc::SYS_setpriority].len(), 2);
        assert_eq!(rules[&libc::SYS_prlimit64].len(), 1);
    }
}
