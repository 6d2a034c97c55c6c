//! `cwd = "caller"`: a server of which there is an instance for each folder that an agent works in.

use std::path::{Path, PathBuf};

use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use serde_json::json;
use tempfile::TempDir;

use crate::scene;

/// An agent whose client starts `mgp stdio` in this folder.
async fn agent_in(kernel: &Kernel, folder: &Path) -> Agent {
    let stdio = kernel.program(&["stdio"]);
    let mut moved = Program::new(
        "sh",
        [
            "-c",
            r#"cd "$0" && exec "$@""#,
            &folder.display().to_string(),
            &stdio.command,
        ],
    );
    moved.args.extend(stdio.args.clone());
    moved.env = stdio.env;
    let mut agent = Agent::over_stdio(&moved);
    agent.initialize(scene::NEWEST, "{}").await.result();
    agent
}

/// The process that answers, and where it runs.
async fn process(agent: &mut Agent, id: &str) -> (u64, PathBuf) {
    let said = scene::counts(agent, &format!("{id}:pid")).await;
    let pid = said["pid"].as_u64().unwrap();
    (pid, std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap())
}

/// Decision 0059: each folder has its process, in it; who comes back to a folder finds its process again; who says
/// no folder is refused with what to do; one in a sandbox is started in no home; `status` shows the folders.
#[tokio::test]
async fn a_server_runs_once_in_each_folder() {
    let sandboxed = "[servers.mgp]\ntrust_level = \"sandboxed\"\n";
    let fixture = Program::fixture(&["--era", "legacy"]);
    let entries = fixture.entry("it") + "cwd = \"caller\"\nmax_instances = 2\n";
    let shut =
        fixture.entry("shut") + "cwd = \"caller\"\ndefault_policy = \"opt-out\"\n" + sandboxed;
    let folders = TempDir::new().unwrap();
    let real = folders.path().canonicalize().unwrap();
    let (one, two) = (real.join("one"), real.join("two words"));
    let (three, home) = (real.join("three"), real.join("home"));
    for folder in [&one, &two, &three, &home] {
        std::fs::create_dir(folder).unwrap();
    }
    std::os::unix::fs::symlink(&one, real.join("link")).unwrap();
    let config = format!(
        "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n[confirmation]\nenabled = false\n{entries}{shut}"
    );
    let kernel = Kernel::with_environment(&config, &[("HOME", &home.display().to_string())]).await;
    kernel.connected(&["it", "shut"]).await;
    let mut first = agent_in(&kernel, &one).await;
    let mut second = agent_in(&kernel, &two).await;
    let ((at_one, in_one), (at_two, in_two)) = (
        process(&mut first, "it").await,
        process(&mut second, "it").await,
    );
    assert_ne!(at_one, at_two);
    assert_eq!((in_one, in_two), (one.clone(), two.clone()));
    // By another name of the same folder.
    let mut again = agent_in(&kernel, &real.join("link")).await;
    assert_eq!(process(&mut again, "it").await.0, at_one);

    let status = kernel.mgp_json(&["status"]).await;
    let servers = status["servers"].as_array().unwrap();
    let it = servers.iter().find(|server| server["id"] == "it").unwrap();
    let shown = it["instances"].as_array().unwrap().iter();
    let shown: Vec<_> = shown.map(|one| one["folder"].as_str().unwrap()).collect();
    assert_eq!(shown, [one.to_str().unwrap(), two.to_str().unwrap()]);
    let listed = kernel.mgp(&["servers", "list"]).await.stdout;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    assert!(listed.contains("2 instances: agent.local in /"), "{listed}");

    let mut distant = kernel.http_agent(None);
    distant.initialize(scene::NEWEST, "{}").await.result();
    let refused = distant.call("it:echo", json!({"text": "x"})).await;
    assert!(
        refused.frame.contains("runs in the folder of its caller"),
        "{}",
        refused.frame
    );
    assert!(refused.frame.contains("mgp stdio"), "{}", refused.frame);

    let called = first.call("shut:echo", json!({"text": "here"})).await;
    assert!(!called.is_error(), "{}", called.frame);
    let mut at_home = agent_in(&kernel, &home).await;
    let closed = at_home.call("shut:echo", json!({"text": "x"})).await;
    assert!(
        closed.frame.contains("no sandbox opens that"),
        "{}",
        closed.frame
    );

    // The bound holds for folders as for agents: the one idle for longest makes room.
    let mut third = agent_in(&kernel, &three).await;
    assert_eq!(process(&mut third, "it").await.1, three);
    wait_until("there are two", DEADLINE, async || {
        let status = kernel.mgp_json(&["status"]).await;
        let servers = status["servers"].as_array().unwrap().clone();
        let it = servers
            .into_iter()
            .find(|server| server["id"] == "it")
            .unwrap();
        it["instances"].as_array().unwrap().len() == 2
    })
    .await;
    // Who comes from a folder that is gone is told, not given another one.
    let moved = real.join("moved");
    std::fs::create_dir(&moved).unwrap();
    let mut fifth = agent_in(&kernel, &moved).await;
    std::fs::remove_dir(&moved).unwrap();
    let gone = fifth.call("it:echo", json!({"text": "x"})).await;
    assert!(gone.frame.contains("is none any more"), "{}", gone.frame);
}
