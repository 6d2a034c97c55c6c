//! Seccomp filters: the system calls that are refused to a sandboxed process. All others are allowed; access to
//! files is decided elsewhere.
//!
//! Unix sockets to other programs of the user are never allowed: they reach the kernel's own socket and key
//! agents.

mod compute_only;
mod external_effects;

use std::collections::BTreeMap;
use std::env::consts::ARCH;

pub(super) use compute_only::confine_to_compute;
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls for root only, calls on other processes' memory, and calls too new or too broad to be filtered by
/// arguments.
const DENIED_CALLS: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// Calls that fail as unknown to the system; programs have fallbacks for them. `clone3` hides its flags behind a
/// pointer, `openat2` the mode of a new file, and io_uring opens sockets past every filter.
const ENOSYS_CALLS: &[i64] = &[
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
];

/// Namespaces are refused: their creator is root inside.
const NAMESPACE_FLAGS: &[i32] = &[
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// Masks the type of a socket, without its flags.
const SOCKET_TYPE_MASK: u64 = 0xf;
/// The bit in the call numbers of the x32 interface, which x86-64 systems may offer in addition.
const X32_BIT: i64 = 0x4000_0000;
/// Calls with other numbers in x32.
#[cfg(target_arch = "x86_64")]
const X32_RENUMBERED_CALLS: &[(i64, i64)] = &[
    (libc::SYS_ioctl, 514),
    (libc::SYS_sendmsg, 518),
    (libc::SYS_ptrace, 521),
    (libc::SYS_kexec_load, 528),
    (libc::SYS_sendmmsg, 538),
    (libc::SYS_process_vm_readv, 539),
    (libc::SYS_process_vm_writev, 540),
];

/// The calls that are allowed in addition.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)]
pub(super) struct AllowedCalls {
    /// Starting programs.
    pub(super) programs: bool,
    /// Connecting.
    pub(super) outbound: bool,
    /// Listening.
    pub(super) listen: bool,
    /// Changing modes, owners, times and attributes of files.
    pub(super) modes: bool,
    /// Changing limits and priorities of other processes.
    pub(super) other_processes: bool,
    /// System V IPC and POSIX queues.
    pub(super) ipc: bool,
}

/// Applies the filters to this thread permanently, and to everything it starts or executes.
pub(super) fn confine(open: AllowedCalls) -> Result<(), String> {
    let mut never = denied_rules(open.programs)?;
    external_effects::restrict_modes(&mut never, open.modes)?;
    if !open.other_processes {
        external_effects::restrict_processes(&mut never)?;
    }
    if !open.ipc {
        external_effects::deny_ipc(&mut never);
    }
    let refusals = [
        (never, libc::EPERM),
        (enosys_rules(open.programs)?, libc::ENOSYS),
        (socket_rules(open.outbound, open.listen)?, libc::EACCES),
    ];
    let arch = TargetArch::try_from(ARCH).map_err(|e| e.to_string())?;
    for (rules, errno) in refusals {
        let refuse = SeccompAction::Errno(errno.unsigned_abs());
        let filter = SeccompFilter::new(also_x32(rules), SeccompAction::Allow, refuse, arch);
        let program = filter.and_then(BpfProgram::try_from);
        let program = program.map_err(|e| format!("seccomp: {e}"))?;
        apply_filter(&program).map_err(|e| format!("seccomp: {e}"))?;
    }
    Ok(())
}

fn rules_for(calls: &[i64]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

fn denied_rules(programs: bool) -> Result<Rules, String> {
    let mut rules = rules_for(DENIED_CALLS);
    // Both put input into a terminal as if the user had typed it.
    let typing = [libc::TIOCSTI, libc::TIOCLINUX];
    let typing = typing.map(|request| rule(&[equals(1, request)]));
    rules.insert(
        libc::SYS_ioctl,
        typing.into_iter().collect::<Result<_, _>>()?,
    );
    let has = |flag: i32| rule(&[equals_masked(0, flag_bits(flag), flag_bits(flag))]);
    let mut clone: Vec<_> = NAMESPACE_FLAGS
        .iter()
        .map(|flag| has(*flag))
        .collect::<Result<_, _>>()?;
    if !programs {
        clone.push(rule(&[equals_masked(0, flag_bits(libc::CLONE_THREAD), 0)])?);
        #[cfg(target_arch = "x86_64")]
        rules.extend(rules_for(&[libc::SYS_fork, libc::SYS_vfork]));
    }
    rules.insert(libc::SYS_clone, clone);
    Ok(rules)
}

/// Rules for memory files, which are on no mount, so that neither Landlock nor `noexec` applies. Without
/// permission to start programs they can only be created non-executable, and nothing can be executed by
/// descriptor.
fn enosys_rules(programs: bool) -> Result<Rules, String> {
    let mut rules = rules_for(ENOSYS_CALLS);
    if !programs {
        rules.extend(rules_for(&[libc::SYS_execveat]));
        let executable = rule(&[equals_masked(1, u64::from(libc::MFD_NOEXEC_SEAL), 0)])?;
        rules.insert(libc::SYS_memfd_create, vec![executable]);
    }
    Ok(rules)
}

fn socket_rules(outbound: bool, listen: bool) -> Result<Rules, String> {
    let mut rules = Rules::new();
    // A pair of datagram sockets can be reconnected to another program's socket.
    let turned = [libc::SOCK_DGRAM, libc::SOCK_RAW];
    let turned = turned.map(|kind| rule(&[equals_masked(1, SOCKET_TYPE_MASK, flag_bits(kind))]));
    rules.insert(
        libc::SYS_socketpair,
        turned.into_iter().collect::<Result<_, _>>()?,
    );
    if !listen {
        rules.extend(rules_for(&[libc::SYS_listen]));
    }
    let mut socket = Vec::new();
    if outbound || listen {
        let [inet, inet6, netlink] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
        socket.push(rule(&[
            differs(0, inet),
            differs(0, inet6),
            differs(0, netlink),
        ])?);
        socket.push(rule(&[
            equals(0, netlink),
            differs(2, libc::NETLINK_ROUTE),
        ])?);
    }
    if listen && !outbound {
        rules.extend(rules_for(&[libc::SYS_connect]));
        // Data sent with the first packet opens a connection (TCP Fast Open).
        let first = |flags| {
            rule(&[equals_masked(
                flags,
                flag_bits(libc::MSG_FASTOPEN),
                flag_bits(libc::MSG_FASTOPEN),
            )])
        };
        rules.insert(libc::SYS_sendto, vec![first(3)?]);
        rules.insert(libc::SYS_sendmsg, vec![first(2)?]);
        rules.insert(libc::SYS_sendmmsg, vec![first(3)?]);
        let addressed = [libc::SOCK_DGRAM, libc::SOCK_RAW].map(|kind| {
            rule(&[
                differs(0, libc::AF_NETLINK),
                equals_masked(1, SOCKET_TYPE_MASK, flag_bits(kind)),
            ])
        });
        socket.extend(addressed.into_iter().collect::<Result<Vec<_>, _>>()?);
        let other = [
            differs(0, libc::AF_NETLINK),
            differs(2, 0),
            differs(2, libc::IPPROTO_TCP),
        ];
        socket.push(rule(&other)?);
    }
    rules.insert(libc::SYS_socket, socket);
    Ok(rules)
}

#[cfg(target_arch = "x86_64")]
fn also_x32(mut rules: Rules) -> Rules {
    let others = X32_RENUMBERED_CALLS
        .iter()
        .filter_map(|(call, other)| Some((*other, rules.get(call)?.clone())));
    let same = rules.iter().map(|(call, rule)| (*call, rule.clone()));
    let x32: Vec<_> = same
        .chain(others)
        .map(|(call, rule)| (call | X32_BIT, rule))
        .collect();
    rules.extend(x32);
    rules
}

#[cfg(not(target_arch = "x86_64"))]
fn also_x32(rules: Rules) -> Rules {
    rules
}

fn rule(conditions: &[Condition]) -> Result<SeccompRule, String> {
    let conditions = conditions.iter().map(|(argument, operator, value)| {
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, operator.clone(), *value)
    });
    let conditions = conditions.collect::<Result<Vec<_>, _>>();
    let rule = conditions.and_then(SeccompRule::new);
    rule.map_err(|e| format!("seccomp: {e}"))
}

/// Argument index, comparison, value.
type Condition = (u8, SeccompCmpOp, u64);

fn equals(argument: u8, value: impl TryInto<u32>) -> Condition {
    (argument, SeccompCmpOp::Eq, to_u64(value))
}

fn differs(argument: u8, value: impl TryInto<u32>) -> Condition {
    (argument, SeccompCmpOp::Ne, to_u64(value))
}

fn equals_masked(argument: u8, mask: u64, value: u64) -> Condition {
    (argument, SeccompCmpOp::MaskedEq(mask), value)
}

fn to_u64(value: impl TryInto<u32>) -> u64 {
    u64::from(
        value
            .try_into()
            .ok()
            .expect("constants of the system fit 32 bits"),
    )
}

fn flag_bits(flag: i32) -> u64 {
    u64::from(flag.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unconditional_rule_refuses_all_arguments() {
        assert!(socket_rules(false, false).unwrap()[&libc::SYS_socket].is_empty());
        assert!(!socket_rules(true, false).unwrap()[&libc::SYS_socket].is_empty());
        assert!(
            socket_rules(true, false)
                .unwrap()
                .contains_key(&libc::SYS_listen)
        );
        assert!(
            !socket_rules(true, true)
                .unwrap()
                .contains_key(&libc::SYS_listen)
        );
        assert!(
            socket_rules(false, true)
                .unwrap()
                .contains_key(&libc::SYS_connect)
        );
    }

    #[test]
    fn memory_files_are_executable_only_with_program_permission() {
        let [shut, open] = [enosys_rules(false).unwrap(), enosys_rules(true).unwrap()];
        assert!(shut[&libc::SYS_execveat].is_empty(), "however it is asked");
        assert_eq!(shut[&libc::SYS_memfd_create].len(), 1);
        assert_eq!(open, rules_for(ENOSYS_CALLS));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn x32_calls_are_refused_too() {
        let plain = denied_rules(false).unwrap();
        let both = also_x32(plain.clone());
        for call in plain.keys() {
            assert!(both.contains_key(&(call | X32_BIT)), "{call}");
        }
        assert!(
            both.contains_key(&(521 | X32_BIT)),
            "ptrace has a number of its own"
        );
    }
}
