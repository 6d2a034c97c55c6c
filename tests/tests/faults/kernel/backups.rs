//! A backup of a kernel that works, and the folder that is made of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use mgp_tests::harness::{DEADLINE, Kernel, Program};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::scene::{owner, server};

async fn restore(file: &Path, folder: &Path) -> (bool, String) {
    let at = |name: &str| folder.join(name).display().to_string();
    let program = Program::ours("mgp", ["restore"]).arg(file.display().to_string());
    let program = program.env("MGP_CONFIG_PATH", at("mgp.toml"));
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

async fn decided(kernel: &Kernel) -> Value {
    kernel.mgp_json(&["grants", "list"]).await["entries"].clone()
}

/// While decisions are made and calls run, a backup is as a kernel that was killed would have left it: the restored
/// kernel starts, has what was decided before, verifies its audit log, and records where it comes from.
#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_is_backed_up_while_it_works_and_restored_elsewhere() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    kernel
        .mgp_json(&["shares", "add", "it", "--to", "cluster"])
        .await;
    kernel
        .mgp_json(&["grants", "add", "first", "it", "--yet-unknown"])
        .await;
    let busy = async {
        let mut agent = owner(&kernel).await;
        for n in 0..40 {
            agent.call("it__echo", json!({"text": "x"})).await;
            let name = format!("agent{n}");
            kernel
                .mgp_json(&["grants", "add", &name, "it", "--yet-unknown"])
                .await;
        }
    };
    let file = kernel.folder().join("backup.tar").display().to_string();
    let backing = async {
        let mut made = Vec::new();
        for n in 0..4 {
            let file = format!("{file}.{n}");
            let told = kernel.mgp_json(&["backup", &file]).await;
            assert!(told["secrets"].to_string().contains("node.key"), "{told}");
            made.push(file);
        }
        made
    };
    let ((), made) = tokio::join!(busy, backing);
    let again = kernel.mgp(&["backup", &made[0]]).await;
    assert!(!again.status.success(), "none is written over");
    let id = kernel.mgp_json(&["nodes", "show"]).await["id"].clone();
    let config = fs::read(kernel.folder().join("mgp.toml")).unwrap();
    let (done, told) = restore(Path::new(&made[0]), kernel.folder()).await;
    assert!(!done && told.contains("is in use"), "{told}");
    let backups = kernel.end(Signal::SIGKILL, DEADLINE).await;
    for file in &made {
        let mode = fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("mgp.toml"), &config).unwrap();
        let (done, told) = restore(Path::new(file), folder.path()).await;
        assert!(done, "{told}");
        let kernel = Kernel::again(folder).await;
        let copied = kernel.folder().join("data/configuration/1/mgp.toml");
        assert_eq!(fs::read(copied).unwrap(), config);
        let status = kernel.mgp_json(&["status"]).await;
        assert_eq!(
            status["troubles"].as_array().map(Vec::len),
            Some(0),
            "{status}"
        );
        assert_eq!(kernel.mgp_json(&["nodes", "show"]).await["id"], id);
        let entries = decided(&kernel).await.to_string();
        assert!(entries.contains("first"), "{entries}");
        let verified = kernel.mgp(&["audit", "verify"]).await;
        assert!(verified.status.success(), "{verified:?}");
        let log = fs::read_to_string(kernel.folder().join("data/audit/00000001.jsonl")).unwrap();
        assert_eq!(log.matches("restored from the backup of").count(), 1);
        kernel.end(Signal::SIGTERM, DEADLINE).await;
    }
    let whole = fs::read(&made[0]).unwrap();
    fs::write(&made[0], &whole[..whole.len() / 2]).unwrap();
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("mgp.toml"), &config).unwrap();
    let (done, told) = restore(Path::new(&made[0]), folder.path()).await;
    assert!(!done && told.contains("nothing was restored"), "{told}");
    assert!(!folder.path().join("data").exists());
    drop(backups);
}
