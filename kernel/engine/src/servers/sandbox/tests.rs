use super::*;

const FULL_SUPPORT: SandboxSupport = SandboxSupport {
    landlock: 7,
    seccomp: true,
    root: false,
    namespaces: true,
};

fn program_paths() -> ProgramPaths {
    ProgramPaths {
        program: "/home/me/tools/bin/serve".into(),
        interpreters: vec!["/usr/bin/python3.12".into()],
        cwd: "/home/me/project".into(),
        argument_files: vec!["/home/me/project/serve.py".into()],
        path_dirs: vec!["/usr/bin".into(), "/home/me/.cargo/bin".into()],
        own_dir: "/home/me/.local/share/mgp/sandbox/of-x".into(),
        code_dir: Some("/home/me/.local/share/mgp/sandbox/code-of-x".into()),
        egress_socket: None,
        kernel_paths: vec![
            "/home/me/mgp.toml".into(),
            "/home/me/.local/share/mgp".into(),
            "/run/user/1/mgp".into(),
        ],
        home: Some("/home/me".into()),
        found_in_path: false,
    }
}

fn operator_written() -> SandboxConfig {
    SandboxConfig {
        is_operator_written: true,
        ..SandboxConfig::default()
    }
}

fn all_paths(policy: &SandboxPolicy) -> Vec<&PathBuf> {
    let paths = policy.read.iter().chain(&policy.execute);
    paths.chain(&policy.write).collect()
}

fn allows(allowed: &[PathBuf], path: &str) -> bool {
    allowed
        .iter()
        .any(|allowed| Path::new(path).starts_with(allowed))
}

fn policy_for(granted: &[Standard], rules: &SandboxConfig, paths: &ProgramPaths) -> SandboxPolicy {
    SandboxPolicy::for_server(
        &granted.iter().copied().collect(),
        rules,
        paths,
        FULL_SUPPORT,
    )
}

#[test]
fn without_permissions_a_server_writes_only_its_own_folder() {
    let policy = policy_for(&[], &operator_written(), &program_paths());
    assert!(allows(
        &policy.write,
        "/home/me/.local/share/mgp/sandbox/of-x/home/file"
    ));
    let code = "/home/me/.local/share/mgp/sandbox/code-of-x/server.py";
    assert!(allows(&policy.read, code) && !allows(&policy.write, code));
    assert!(allows(&policy.read, "/home/me/project/lib.py"));
    assert!(allows(&policy.read, "/home/me/tools/lib/serve.so"));
    for path in [
        "/home/me/project/lib.py",
        "/etc/passwd",
        "/tmp/x",
        "/usr/bin/x",
    ] {
        assert!(!allows(&policy.write, path), "{path}");
    }
    assert!(!policy.outbound && !policy.listen && !policy.programs);
    for program in ["/bin/sh", "/usr/bin/env"] {
        assert!(!allows(&policy.execute, program), "{program}");
    }
    assert!(allows(&policy.execute, "/usr/bin/python3.12"));
}

/// With any permissions and any entry.
#[test]
fn keys_homes_and_kernel_files_are_never_accessible() {
    let rules = SandboxConfig {
        read: [
            "/",
            "/home",
            "/home/me",
            "/home/me/.local",
            "/home/me/mgp.toml",
        ]
        .map(PathBuf::from)
        .into(),
        write: vec!["/home/me/.local/share/mgp/grants".into(), "/run".into()],
        ..operator_written()
    };
    let paths = ProgramPaths {
        program: "/home/me/.local/bin/uvx".into(),
        cwd: "/home/me".into(),
        argument_files: vec!["/home/me/mgp.toml".into()],
        path_dirs: vec!["/home/me".into(), "/home/me/.local/bin".into()],
        ..program_paths()
    };
    let policy = policy_for(&Standard::ALL, &rules, &paths);
    let protected = [
        "/home/me/.ssh/id_ed25519",
        "/home/me/mgp.toml",
        "/home/me/.local/share/mgp/token",
        "/home/me/.local/share/mgp/sandbox/of-y/home",
        "/home/me/.local/share/keyrings/login",
        "/run/user/1/mgp/mgp.sock",
        "/etc/shadow",
        "/etc/ssl/private/key.pem",
        "/proc/1/cmdline",
        "/dev/tty",
        "/dev/sda",
    ];
    for path in protected {
        let open = all_paths(&policy)
            .into_iter()
            .find(|open| Path::new(path).starts_with(open));
        assert_eq!(open, None, "{path}");
    }
    let report = policy.report(&BTreeSet::from(Standard::ALL), &rules, &paths);
    let not_opened = report
        .notes
        .iter()
        .filter(|note| note.contains("is not opened"));
    assert_eq!(not_opened.count(), 8, "{:#?}", report.notes);
}

#[test]
fn an_untrusted_entry_exposes_neither_its_folder_nor_its_arguments() {
    let named = ProgramPaths {
        cwd: "/home/me/.ssh".into(),
        argument_files: vec!["/home/me/.ssh/id_ed25519".into()],
        ..program_paths()
    };
    let policy = policy_for(&[], &SandboxConfig::default(), &named);
    assert!(!allows(&policy.read, "/home/me/.ssh/id_ed25519"));
    let forged = ProgramPaths {
        program: "/home/me/.ssh/bin/x".into(),
        path_dirs: vec!["/home/me/.ssh".into()],
        ..program_paths()
    };
    let policy = policy_for(&Standard::ALL, &SandboxConfig::default(), &forged);
    let key = Path::new("/home/me/.ssh/id_ed25519");
    assert!(!all_paths(&policy).iter().any(|open| key.starts_with(open)));
    let usual = ProgramPaths {
        found_in_path: true,
        ..program_paths()
    };
    let policy = policy_for(&[], &SandboxConfig::default(), &usual);
    assert!(allows(&policy.read, "/home/me/tools/lib/serve.so"));
}

#[test]
fn each_permission_grants_exactly_its_access() {
    let rules = SandboxConfig {
        read: vec!["/srv/books".into()],
        write: vec!["/srv/notes".into()],
        ..operator_written()
    };
    let without = policy_for(&[], &rules, &program_paths());
    assert!(!allows(&without.read, "/srv/books/1") && !allows(&without.write, "/srv/notes/1"));
    let read = policy_for(&[Standard::FilesystemRead], &rules, &program_paths());
    assert!(allows(&read.read, "/srv/books/1") && !allows(&read.write, "/srv/notes/1"));
    let write = policy_for(&[Standard::FilesystemWrite], &rules, &program_paths());
    assert!(!allows(&write.read, "/srv/books/1") && allows(&write.write, "/srv/notes/1"));
    assert!(policy_for(&[Standard::NetworkOutbound], &rules, &program_paths()).outbound);
    assert!(policy_for(&[Standard::NetworkListen], &rules, &program_paths()).listen);
    let shell = policy_for(&[Standard::ShellExecute], &rules, &program_paths());
    assert!(shell.programs && allows(&shell.execute, "/usr/bin/env"));
    assert!(allows(&shell.execute, "/home/me/.cargo/bin/tool"));
    let harmless = [
        Standard::MemoryRead,
        Standard::Camera,
        Standard::Notification,
    ];
    assert_eq!(policy_for(&harmless, &rules, &program_paths()), without);
}

#[test]
fn unsupported_restrictions_are_reported() {
    let granted = BTreeSet::new();
    let report = |machine| {
        let policy =
            SandboxPolicy::for_server(&granted, &operator_written(), &program_paths(), machine);
        policy.report(&granted, &operator_written(), &program_paths())
    };
    assert!(
        report(FULL_SUPPORT).missing.is_empty(),
        "{:#?}",
        report(FULL_SUPPORT)
    );
    let old = report(SandboxSupport {
        landlock: 1,
        namespaces: false,
        ..FULL_SUPPORT
    });
    assert_eq!(old.missing.len(), 2, "{:#?}", old.missing);
    assert_eq!(old.notes.len(), 3, "{:#?}", old.notes);
    assert!(
        old.enforced
            .iter()
            .any(|line| line.starts_with("files: writes"))
    );
    let bare = report(SandboxSupport {
        root: true,
        ..SandboxSupport::default()
    });
    assert!(bare.missing.len() >= 5, "{:#?}", bare.missing);
    let claims = |word| {
        bare.enforced
            .iter()
            .any(|line: &String| line.starts_with(word))
    };
    assert!(!claims("files") && !claims("network") && !claims("processes"));
    assert!(claims("privileges") && claims("limits: 2 GiB"));
    let only_namespaces = report(SandboxSupport {
        namespaces: true,
        ..SandboxSupport::default()
    });
    let files = |line: &String| line.starts_with("files: reads");
    assert!(
        only_namespaces.enforced.iter().any(files),
        "namespaces alone restrict files"
    );
}

/// Landlock restricts opening; only namespaces hide names and attributes.
#[test]
fn visible_metadata_without_namespaces_is_noted() {
    let granted = BTreeSet::new();
    let notes = |machine| {
        let policy =
            SandboxPolicy::for_server(&granted, &operator_written(), &program_paths(), machine);
        policy
            .report(&granted, &operator_written(), &program_paths())
            .notes
            .join("\n")
    };
    let without = notes(SandboxSupport {
        namespaces: false,
        ..FULL_SUPPORT
    });
    assert!(without.contains("(stat, inotify)"), "{without}");
    assert!(!notes(FULL_SUPPORT).contains("inotify"));
}

#[test]
fn only_sandbox_permissions_affect_the_sandbox() {
    let all: BTreeSet<_> = ["memory", "camera", "shell", "com.example.x"]
        .iter()
        .flat_map(|word| PermissionType::parse_all(word))
        .collect();
    assert_eq!(
        sandbox_permissions(&all),
        BTreeSet::from([Standard::ShellExecute])
    );
}

#[test]
fn limited_egress_is_held_by_a_network_of_its_own_or_not_at_all() {
    let config = SandboxConfig {
        egress: Some(vec!["api.github.com:443".parse().unwrap()]),
        ..operator_written()
    };
    let paths = ProgramPaths {
        egress_socket: Some("/data/egress.sock".into()),
        ..program_paths()
    };
    let granted: BTreeSet<_> = [Standard::NetworkOutbound].into();
    let report = |machine: SandboxSupport, granted: &BTreeSet<Standard>| {
        let policy = SandboxPolicy::for_server(granted, &config, &paths, machine);
        let report = policy.report(granted, &config, &paths);
        (policy, report)
    };
    let (policy, held) = report(FULL_SUPPORT, &granted);
    assert!(policy.outbound && policy.egress_socket.is_some());
    assert_eq!(held.missing, [""; 0]);
    assert!(
        held.enforced
            .iter()
            .any(|it| it.contains("api.github.com:443"))
    );
    let without = SandboxSupport {
        namespaces: false,
        ..FULL_SUPPORT
    };
    let (policy, not_held) = report(without, &granted);
    assert!(!policy.outbound && policy.egress_socket.is_none());
    assert!(not_held.missing.iter().any(|it| it.contains("egress")));
    let (policy, _) = report(FULL_SUPPORT, &BTreeSet::new());
    assert!(!policy.outbound && policy.egress_socket.is_none());
}
