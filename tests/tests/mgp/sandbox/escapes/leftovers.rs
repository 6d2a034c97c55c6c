//! What a sandboxed server leaves behind for its next start, and what it takes of the machine's memory.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use mgp_tests::harness::DEADLINE;
use tempfile::TempDir;

use super::{Of, SHELL, python};
use crate::sandbox::{LEAST, is_unheld};

/// MGP-227: what a server put into the place of a folder that its entry lists, or that it works in, opens
/// nothing else at its next start; the operator is told.
#[tokio::test(flavor = "multi_thread")]
async fn links_that_a_server_planted_open_neither_keys_nor_the_kernels_files() {
    if is_unheld().await {
        return;
    }
    let code = r#"
os.chdir(sys.argv[1])
for name, to in ("keys", sys.argv[2]), ("kernels", sys.argv[3]), ("cwd", sys.argv[2]):
    os.rename(name, "was-" + name)
    os.symlink(to, name)
    print(name)
"#;
    for of in Of::all() {
        let work = TempDir::new().unwrap();
        let at = |name: &str| work.path().canonicalize().unwrap().join(name);
        let listed = ["keys", "kernels", "cwd"].map(at);
        for folder in &listed {
            fs::create_dir(folder).unwrap();
        }
        for folder in listed.iter().chain([&at("")]) {
            fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
        }
        let [keys, kernels, cwd] = listed.map(|path| path.display().to_string());
        let entry = format!("cwd = \"{cwd}\"\npermissions = [\"shell.execute\", \"filesystem\"]\n");
        let whole = at("").display().to_string();
        let sections = format!(
            "{LEAST}[servers.sandbox]\nread = [\"{keys}\"]\nwrite = [\"{whole}\", \"{kernels}\", \"{keys}\"]\n"
        );
        let mut scene = of.scene(&entry, &sections).await;
        let data = scene.kernel.folder().join("data").display().to_string();
        let ssh = scene.home.path().join(".ssh").display().to_string();
        let done = python(&mut scene, code, &[&whole, &ssh, &data]).await;
        assert_eq!(done, ["keys", "kernels", "cwd"], "{of:?}");
        scene.kernel.mgp_json(&["servers", "restart", "it"]).await;
        scene.kernel.connected(&["it"]).await;
        for path in [
            format!("{keys}/id_ed25519"),
            format!("{cwd}/id_ed25519"),
            scene.key(),
        ] {
            scene.refused("read", &path).await;
            scene.refused("truncate", &path).await;
        }
        scene.refused("list", &kernels).await;
        scene.refused("write", format!("{kernels}/grants")).await;
        scene.tries("write", format!("{whole}/note")).await.unwrap();
        let notes = scene.report("notes").await;
        for path in [&keys, &kernels, &cwd] {
            let told = |note: &String| note.starts_with(path) && note.contains("is a link to");
            assert!(notes.iter().any(told), "{of:?} {path}: {notes:#?}");
        }
    }
}

/// MGP-227: folders in folders without end cost the kernel nothing but the time to remove them. So many
/// overflow the stack of a removal that descends; more would cost the sandbox minutes, which looks at every
/// folder above each new one.
#[tokio::test(flavor = "multi_thread")]
async fn deeply_nested_folders_of_a_server_are_removed_at_its_next_start() {
    if is_unheld().await {
        return;
    }
    let code = r#"
os.chdir(sys.argv[1])
for n in range(17000):
    os.mkdir("d"); os.chdir("d")
print("nested")
"#;
    let patient = format!("{SHELL}call_timeout_secs = 120\n");
    let mut scene = Of::Me.scene(&patient, LEAST).await;
    let kernel = scene.kernel.pid();
    let tmp = scene.own().join("tmp");
    let _removed = Removed(tmp.clone());
    let done = python(&mut scene, code, &[tmp.to_str().unwrap()]).await;
    assert_eq!(done, ["nested"]);
    scene.kernel.mgp_json(&["servers", "restart", "it"]).await;
    scene.kernel.connected(&["it"]).await;
    assert_eq!(scene.kernel.pid(), kernel);
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0);
}

/// Removes a folder by a program that minds no depth: what removes the scene's own would overflow the
/// stack of a test that failed before the kernel did it.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let nested = self.0.join("d");
        let start = Instant::now();
        // What nests may still be at it when its call has timed out.
        while nested.exists() && start.elapsed() < DEADLINE {
            let _ = Command::new("rm").arg("-rf").arg(&nested).status();
        }
    }
}

/// MGP-227: semaphores are in nobody's memory limit; a server has few.
#[tokio::test(flavor = "multi_thread")]
async fn semaphores_of_a_sandboxed_server_are_bounded() {
    if is_unheld().await {
        return;
    }
    let code = r#"
tries("large", lambda: call(64, 0, 32000, 0o1600))
for n in range(40):
    tries(str(n), lambda: call(64, 0, 2, 0o1600))
"#;
    for of in Of::all() {
        let mut scene = of.scene(SHELL, LEAST).await;
        let made = python(&mut scene, code, &[]).await;
        assert!(
            made.len() <= 32 && !made.contains(&"large".into()),
            "{of:?}: {made:?}"
        );
    }
}
