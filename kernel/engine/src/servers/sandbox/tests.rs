use super::*;

const WHOLE: SandboxSupport = SandboxSupport {
    landlock: 7,
    seccomp: true,
    root: false,
    namespaces: true,
};

fn place() -> ProgramPaths {
    ProgramPaths {
        program: "/home/me/tools/bin/serve".into(),
        interpreters: vec!["/usr/bin/python3.12".into()],
        cwd: "/home/me/project".into(),
        argument_files: vec!["/home/me/project/serve.py".into()],
        path_dirs: vec!["/usr/bin".into(), "/home/me/.cargo/bin".into()],
        own_dir: "/home/me/.local/share/mgp/sandbox/of-x".into(),
        code_dir: Some("/home/me/.local/share/mgp/sandbox/code-of-x".into()),
        kernel_paths: vec![
            "/home/me/mgp.toml".into(),
            "/home/me/.local/share/mgp".into(),
            "/run/user/1/mgp".into(),
        ],
        home: Some("/home/me".into()),
        found_in_path: false,
    }
}

fn vouched() -> SandboxConfig {
    SandboxConfig {
        is_operator_written: true,
        ..SandboxConfig::default()
    }
}

fn all(policy: &SandboxPolicy) -> Vec<&PathBuf> {
    let paths = policy.read.iter().chain(&policy.execute);
    paths.chain(&policy.write).collect()
}

fn opens(paths: &[PathBuf], path: &str) -> bool {
    paths.iter().any(|open| Path::new(path).starts_with(open))
}

fn of(granted: &[Standard], rules: &SandboxConfig, place: &ProgramPaths) -> SandboxPolicy {
    SandboxPolicy::for_server(&granted.iter().copied().collect(), rules, place, WHOLE)
}

#[test]
fn without_permissions_a_server_has_its_own_folder_and_nothing_else_to_write() {
    let policy = of(&[], &vouched(), &place());
    assert!(opens(
        &policy.write,
        "/home/me/.local/share/mgp/sandbox/of-x/home/file"
    ));
    let code = "/home/me/.local/share/mgp/sandbox/code-of-x/server.py";
    assert!(opens(&policy.read, code) && !opens(&policy.write, code));
    assert!(opens(&policy.read, "/home/me/project/lib.py"));
    assert!(opens(&policy.read, "/home/me/tools/lib/serve.so"));
    for path in [
        "/home/me/project/lib.py",
        "/etc/passwd",
        "/tmp/x",
        "/usr/bin/x",
    ] {
        assert!(!opens(&policy.write, path), "{path}");
    }
    assert!(!policy.outbound && !policy.listen && !policy.programs);
    for program in ["/bin/sh", "/usr/bin/env"] {
        assert!(!opens(&policy.execute, program), "{program}");
    }
    assert!(opens(&policy.execute, "/usr/bin/python3.12"));
}

/// Whatever is permitted and however the entry is written, the kernel's own files stay shut.
#[test]
fn nothing_opens_keys_homes_or_the_kernels_own_files() {
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
        ..vouched()
    };
    let place = ProgramPaths {
        program: "/home/me/.local/bin/uvx".into(),
        cwd: "/home/me".into(),
        argument_files: vec!["/home/me/mgp.toml".into()],
        path_dirs: vec!["/home/me".into(), "/home/me/.local/bin".into()],
        ..place()
    };
    let policy = of(&Standard::ALL, &rules, &place);
    let shut = [
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
    for path in shut {
        let open = all(&policy)
            .into_iter()
            .find(|open| Path::new(path).starts_with(open));
        assert_eq!(open, None, "{path}");
    }
    let report = policy.report(&BTreeSet::from(Standard::ALL), &rules, &place);
    let not_opened = report
        .notes
        .iter()
        .filter(|note| note.contains("is not opened"));
    assert_eq!(not_opened.count(), 8, "{:#?}", report.notes);
}

#[test]
fn an_entry_nobody_vouches_for_opens_neither_its_folder_nor_its_arguments() {
    let named = ProgramPaths {
        cwd: "/home/me/.ssh".into(),
        argument_files: vec!["/home/me/.ssh/id_ed25519".into()],
        ..place()
    };
    let policy = of(&[], &SandboxConfig::default(), &named);
    assert!(!opens(&policy.read, "/home/me/.ssh/id_ed25519"));
    let forged = ProgramPaths {
        program: "/home/me/.ssh/bin/x".into(),
        path_dirs: vec!["/home/me/.ssh".into()],
        ..place()
    };
    let policy = of(&Standard::ALL, &SandboxConfig::default(), &forged);
    let key = Path::new("/home/me/.ssh/id_ed25519");
    assert!(!all(&policy).iter().any(|open| key.starts_with(open)));
    let usual = ProgramPaths {
        found_in_path: true,
        ..place()
    };
    let policy = of(&[], &SandboxConfig::default(), &usual);
    assert!(opens(&policy.read, "/home/me/tools/lib/serve.so"));
}

#[test]
fn each_permission_opens_what_it_names() {
    let rules = SandboxConfig {
        read: vec!["/srv/books".into()],
        write: vec!["/srv/notes".into()],
        ..vouched()
    };
    let shut = of(&[], &rules, &place());
    assert!(!opens(&shut.read, "/srv/books/1") && !opens(&shut.write, "/srv/notes/1"));
    let read = of(&[Standard::FilesystemRead], &rules, &place());
    assert!(opens(&read.read, "/srv/books/1") && !opens(&read.write, "/srv/notes/1"));
    let write = of(&[Standard::FilesystemWrite], &rules, &place());
    assert!(!opens(&write.read, "/srv/books/1") && opens(&write.write, "/srv/notes/1"));
    assert!(of(&[Standard::NetworkOutbound], &rules, &place()).outbound);
    assert!(of(&[Standard::NetworkListen], &rules, &place()).listen);
    let shell = of(&[Standard::ShellExecute], &rules, &place());
    assert!(shell.programs && opens(&shell.execute, "/usr/bin/env"));
    assert!(opens(&shell.execute, "/home/me/.cargo/bin/tool"));
    let harmless = [
        Standard::MemoryRead,
        Standard::Camera,
        Standard::Notification,
    ];
    assert_eq!(of(&harmless, &rules, &place()), shut);
}

#[test]
fn what_a_machine_cannot_do_is_told_and_the_rest_holds() {
    let granted = BTreeSet::new();
    let report = |machine| {
        let policy = SandboxPolicy::for_server(&granted, &vouched(), &place(), machine);
        policy.report(&granted, &vouched(), &place())
    };
    assert!(report(WHOLE).missing.is_empty(), "{:#?}", report(WHOLE));
    let old = report(SandboxSupport {
        landlock: 1,
        namespaces: false,
        ..WHOLE
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
        "a tree of its own"
    );
}

/// Landlock decides on opening; names and attributes are hidden by namespaces alone.
#[test]
fn what_is_seen_without_namespaces_is_noted() {
    let granted = BTreeSet::new();
    let notes = |machine| {
        let policy = SandboxPolicy::for_server(&granted, &vouched(), &place(), machine);
        policy
            .report(&granted, &vouched(), &place())
            .notes
            .join("\n")
    };
    let without = notes(SandboxSupport {
        namespaces: false,
        ..WHOLE
    });
    assert!(without.contains("(stat, inotify)"), "{without}");
    assert!(!notes(WHOLE).contains("inotify"));
}

#[test]
fn only_permissions_the_sandbox_knows_start_a_server_anew() {
    let all: BTreeSet<_> = ["memory", "camera", "shell", "com.example.x"]
        .iter()
        .flat_map(|word| PermissionType::parse_all(word))
        .collect();
    assert_eq!(
        sandbox_permissions(&all),
        BTreeSet::from([Standard::ShellExecute])
    );
}
