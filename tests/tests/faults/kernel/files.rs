//! Files of the data folder that are missing or shorter than they were: reported with what to do, and what they
//! decided stays closed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use mgp_tests::harness::{DEADLINE, Kernel, Program};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::scene::server;

const WITNESSES: [&str; 2] = ["files.witness", "files.witness.2"];

async fn troubles(kernel: &Kernel) -> Vec<String> {
    let status = kernel.mgp_json(&["status"]).await;
    let troubles = status["troubles"].as_array().unwrap().iter();
    troubles.map(|it| it.as_str().unwrap().to_owned()).collect()
}

/// A command for a folder on which no kernel runs; whether it succeeded, and what it printed.
async fn mgp(folder: &Path, args: &[&str]) -> (bool, String) {
    let at = |name: &str| folder.join(name).display().to_string();
    let program = Program::ours("mgp", args.iter().copied());
    let program = program.env("MGP_CONFIG_PATH", at("mgp.toml"));
    let program = program.env("MGP_SOCKET", at("mgp.sock"));
    let output = program
        .env("MGP_DATA_DIR", at("data"))
        .output(DEADLINE)
        .await;
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    (output.status.success(), format!("{out}{err}"))
}

/// The folder of a kernel that has shared and granted something, and was killed.
async fn used() -> TempDir {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    kernel
        .mgp_json(&["shares", "add", "it", "--to", "cluster"])
        .await;
    for _ in 0..2 {
        kernel.mgp_json(&["grants", "add", "local", "it"]).await;
        kernel.mgp_json(&["grants", "remove", "local", "it"]).await;
    }
    assert_eq!(troubles(&kernel).await, Vec::<String>::new());
    kernel.end(Signal::SIGKILL, DEADLINE).await
}

fn file(folder: &TempDir, name: &str) -> PathBuf {
    folder.path().join("data").join(name)
}

/// How often the audit log says this.
fn audited(folder: &Path, words: &str) -> usize {
    let log = fs::read_to_string(folder.join("data/audit/00000001.jsonl")).unwrap();
    log.lines().filter(|line| line.contains(words)).count()
}

/// A pipe in the place of a file that a kernel reads at its start: the start ends and names it, and does not wait for
/// somebody to write.
#[tokio::test]
async fn a_pipe_in_the_place_of_a_file_does_not_hang_the_start() {
    let kernel = Kernel::start("").await;
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let config = fs::read_to_string(folder.path().join("mgp.toml")).unwrap();
    let config = config.replace("auth = \"none\"", "auth = \"token\"");
    fs::write(folder.path().join("mgp.toml"), config).unwrap();
    let names = [
        "token",
        "metrics.token",
        "node.key",
        "seal.key",
        "audit.key",
        "audit.head",
        "audit/00000001.jsonl",
        "audit/closed",
        "agents.json",
        "grants.journal",
        "registered.journal",
        "files.witness",
        "kernel.lock",
    ];
    for name in names {
        let path = file(&folder, name);
        let copy = fs::read(&path).ok();
        let _ = fs::remove_file(&path);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let (well, words) = mgp(folder.path(), &["up"]).await;
        assert!(
            !well && words.contains("is not a regular file"),
            "{name}: {words}"
        );
        fs::remove_file(&path).unwrap();
        if let Some(copy) = copy {
            fs::write(&path, copy).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
}

/// Keys and shares: what is missing is reported at the start, in the status, by `doctor` and in the audit log, with
/// what to do. A copy that is put back ends it, and so does `mgp accept`.
#[tokio::test]
async fn a_file_that_is_missing_is_reported_until_it_is_there_or_accepted() {
    let mut folder = used().await;
    for name in ["seal.key", "audit.key", "shares.json"] {
        let path = file(&folder, name);
        let copy = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let (well, examined) = mgp(folder.path(), &["doctor"]).await;
        let accept = format!("mgp accept {name}");
        assert!(!well && examined.contains(&accept), "{examined}");
        let kernel = Kernel::again(folder).await;
        let found = troubles(&kernel).await;
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("is missing") && found[0].contains(&accept),
            "{found:?}"
        );
        if name == "shares.json" {
            let shares = kernel.mgp_json(&["shares", "list"]).await;
            assert!(
                !shares.to_string().contains("\"it\""),
                "nothing is shared: {shares}"
            );
        }
        let words = format!("{name} is missing");
        assert_eq!(audited(kernel.folder(), &words), 1);
        folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
        fs::write(&path, &copy).unwrap();
        let kernel = Kernel::again(folder).await;
        assert_eq!(
            troubles(&kernel).await,
            Vec::<String>::new(),
            "{name} is back"
        );
        folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
        fs::remove_file(&path).unwrap();
        let (done, told) = mgp(folder.path(), &["accept", name]).await;
        assert!(done && told.contains("is accepted"), "{told}");
        let kernel = Kernel::again(folder).await;
        assert_eq!(
            troubles(&kernel).await,
            Vec::<String>::new(),
            "{name} is accepted"
        );
        let words = format!("the operator accepted {name}");
        assert_eq!(audited(kernel.folder(), &words), 1);
        folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
    }
    let (done, told) = mgp(folder.path(), &["accept", "marks"]).await;
    assert!(!done && told.contains("shares.json"), "{told}");
}

/// The key of digests may hold anything, so half of it is told from it by its witness alone.
#[tokio::test]
async fn a_key_that_is_another_one_is_reported_at_each_start() {
    let mut folder = used().await;
    let path = file(&folder, "audit.key");
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, &whole[..20]).unwrap();
    for _ in 0..2 {
        let kernel = Kernel::again(folder).await;
        let found = troubles(&kernel).await;
        assert!(
            found[0].contains("audit.key is another one than it was"),
            "{found:?}"
        );
        folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    }
}

/// Without its key a node is another one: the kernel does not start as somebody else by itself.
#[tokio::test]
async fn a_kernel_without_its_key_does_not_start() {
    let folder = used().await;
    let path = file(&folder, "node.key");
    let copy = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let (started, told) = mgp(folder.path(), &["up"]).await;
    assert!(!started && told.contains("mgp accept node.key"), "{told}");
    assert!(!path.exists(), "no other one was made");
    fs::write(&path, b"").unwrap();
    let (whole, words) = mgp(folder.path(), &["doctor"]).await;
    assert!(!whole && words.contains("node.key is empty"), "{words}");
    fs::write(&path, &copy).unwrap();
    let kernel = Kernel::again(folder).await;
    assert_eq!(troubles(&kernel).await, Vec::<String>::new());

    // Without a copy: what the lost key signed is given up with it.
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    for name in ["node.key", "grants.journal"] {
        fs::remove_file(file(&folder, name)).unwrap();
        let (done, words) = mgp(folder.path(), &["accept", name]).await;
        assert!(done, "{words}");
    }
    let kernel = Kernel::again(folder).await;
    kernel.mgp_json(&["grants", "add", "local", "it"]).await;
}

/// Decisions are compared with their witness also where no audit log is kept.
#[tokio::test]
async fn shortened_grants_stop_the_start_without_an_audit_log() {
    let kernel = Kernel::start(&(server("it", &[], "") + "[audit]\nenabled = false\n")).await;
    kernel.connected(&["it"]).await;
    kernel.mgp_json(&["grants", "add", "local", "it"]).await;
    kernel.mgp_json(&["grants", "remove", "local", "it"]).await;
    let mut folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
    let path = file(&folder, "grants.journal");
    let whole = fs::read(&path).unwrap();
    for bytes in [
        &whole[..whole.len() - 1],
        &whole[..whole.len() / 2],
        &[][..],
    ] {
        fs::write(&path, bytes).unwrap();
        let (started, told) = mgp(folder.path(), &["up"]).await;
        let told = told.replace('\n', " ");
        assert!(!started && told.contains("has been shortened"), "{told}");
    }
    fs::write(&path, &whole).unwrap();
    let kernel = Kernel::again(folder).await;
    folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
    fs::remove_file(&path).unwrap();
    let (started, told) = mgp(folder.path(), &["up"]).await;
    assert!(
        !started && told.contains("mgp accept grants.journal"),
        "{told}"
    );
    let (done, told) = mgp(folder.path(), &["accept", "grants.journal"]).await;
    assert!(done, "{told}");
    let kernel = Kernel::again(folder).await;
    let grants = kernel.mgp_json(&["grants", "list"]).await;
    assert_eq!(
        grants["entries"].as_array().map(Vec::len),
        Some(0),
        "{grants}"
    );
}

/// The audit log knows of decisions that an accepted journal lacks. They are not missed again at later starts, and new
/// ones are.
#[tokio::test]
async fn accepted_grants_are_not_compared_with_older_decisions() {
    let mut folder = used().await;
    let path = file(&folder, "grants.journal");
    for round in 0..2 {
        let kernel = Kernel::again(folder).await;
        for verb in ["add", "remove"] {
            kernel.mgp_json(&["grants", verb, "local", "it"]).await;
        }
        folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
        if round == 0 {
            fs::write(&path, b"").unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        let (started, words) = mgp(folder.path(), &["up"]).await;
        assert!(
            !started && words.contains("mgp accept grants.journal"),
            "{words}"
        );
        let (done, words) = mgp(folder.path(), &["accept", "grants.journal"]).await;
        assert!(done, "{words}");
        for _ in 0..2 {
            let kernel = Kernel::again(folder).await;
            assert_eq!(troubles(&kernel).await, Vec::<String>::new());
            folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
        }
    }
}

/// A folder of a kernel that knew of no witnesses opens: they are begun, and that is recorded. One of the two that is
/// lost later is reported, and made again.
#[tokio::test]
async fn a_folder_without_witnesses_opens_and_has_them_then() {
    let mut folder = used().await;
    for name in WITNESSES {
        fs::remove_file(file(&folder, name)).unwrap();
    }
    let kernel = Kernel::again(folder).await;
    assert_eq!(troubles(&kernel).await, Vec::<String>::new());
    assert_eq!(audited(kernel.folder(), "have no witness yet"), 1);
    folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
    fs::remove_file(file(&folder, "shares.json")).unwrap();
    for name in WITNESSES {
        fs::remove_file(file(&folder, name)).unwrap();
        let kernel = Kernel::again(folder).await;
        let found = troubles(&kernel).await;
        let says = |words: &str| found.iter().any(|it| it.contains(words));
        assert!(says(&format!("{name} is missing or empty")), "{found:?}");
        assert!(
            says("mgp accept shares.json"),
            "the other one knows: {found:?}"
        );
        folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
    }
}

/// While a kernel runs its files are its own.
#[tokio::test]
async fn nothing_is_accepted_while_a_kernel_runs() {
    let kernel = Kernel::start("").await;
    let told = kernel.mgp(&["accept", "shares.json"]).await;
    let words = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(!told.status.success(), "{words}");
    assert!(words.contains("already runs"), "{words}");
    let status: Value = kernel.mgp_json(&["status"]).await;
    assert_eq!(status["troubles"].as_array().map(Vec::len), Some(0));
}
