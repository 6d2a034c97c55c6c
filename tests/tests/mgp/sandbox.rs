//! Servers that are trusted least, and try what they should not: read keys, write elsewhere, talk to
//! the world and to other programs, multiply, grow, and gain rights.

// It calls the system by numbers.
#[cfg(target_arch = "x86_64")]
mod escapes;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;

use mgp_tests::harness::{Client, DEADLINE, Kernel, Program, system, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::permissions::{agent, id, needing, question};

pub(crate) const KEY: &str = "a key of the user";
pub(crate) const LEAST: &str = "[servers.mgp]\ntrust_level = \"sandboxed\"\n";

/// A kernel whose user has a home with a key, and one server `it`.
pub(crate) struct Scene {
    pub(crate) kernel: Kernel,
    pub(crate) agent: Client,
    pub(crate) home: TempDir,
    /// Where the programs of another user are.
    _programs: Option<Arc<TempDir>>,
}

impl Scene {
    /// With more keys in the entry, and sections after it.
    pub(crate) async fn new(keys: &str, sections: &str) -> Self {
        let scene = Self::met(keys, sections, &[]).await;
        scene.kernel.connected(&["it"]).await;
        scene
    }

    async fn met(keys: &str, sections: &str, flags: &[&str]) -> Self {
        let home = home();
        let config = config(&home, keys, sections, flags);
        let home_folder = home.path().to_str().unwrap().to_owned();
        let kernel = Kernel::with_environment(&config, &[("HOME", &home_folder)]).await;
        let agent = agent(&kernel).await;
        Self {
            kernel,
            agent,
            home,
            _programs: None,
        }
    }

    pub(crate) async fn attempt(&mut self, arguments: Value) -> Result<String, String> {
        let answer = self.agent.call("it:attempt", arguments).await;
        let result = answer.result();
        if result["isError"] == true {
            Err(answer.text())
        } else {
            Ok(answer.text())
        }
    }

    pub(crate) async fn tries(
        &mut self,
        what: &str,
        at: impl std::fmt::Display,
    ) -> Result<String, String> {
        self.attempt(json!({"what": what, "at": at.to_string()}))
            .await
    }

    pub(crate) async fn refused(&mut self, what: &str, at: impl std::fmt::Display) {
        let at = at.to_string();
        let why = self
            .tries(what, &at)
            .await
            .expect_err(&format!("{what} {at}"));
        let words = [
            "denied",
            "not permitted",
            "cross-device",
            "Cross-device",
            "Read-only",
            "No such",
        ];
        assert!(
            words.iter().any(|word| why.contains(word)),
            "{what} {at}: {why}"
        );
    }

    pub(crate) fn key(&self) -> String {
        self.home
            .path()
            .join(".ssh/id_ed25519")
            .display()
            .to_string()
    }

    pub(crate) fn own(&self) -> PathBuf {
        let folder = self.kernel.folder().join("data/sandbox/of-it");
        folder.canonicalize().unwrap()
    }

    pub(crate) async fn server(&self) -> Value {
        let servers = self.kernel.mgp_json(&["servers", "list"]).await;
        servers["servers"][0].clone()
    }

    /// The lines of the report of this kind.
    pub(crate) async fn report(&self, kind: &str) -> Vec<String> {
        let lines = self.server().await["sandbox"][kind].clone();
        serde_json::from_value(lines).unwrap()
    }
}

/// Whether this system has no sandbox. Then the kernel says so of each server, and runs none of them as root.
pub(crate) async fn is_unheld() -> bool {
    static SHOWN: OnceCell<()> = OnceCell::const_new();
    if system::holds_sandbox().await {
        return false;
    }
    let show = || async {
        let scene = Scene::met("", LEAST, &[]).await;
        let mut server = Value::Null;
        wait_until("it runs, or is rejected", DEADLINE, async || {
            server = scene.server().await;
            server["state"] == "connected" || !server["reason"].is_null()
        })
        .await;
        if nix::unistd::geteuid().is_root() {
            let reason = server["reason"].as_str().unwrap();
            assert!(
                reason.contains("run the kernel as another user"),
                "{reason}"
            );
            return;
        }
        let report = &server["sandbox"];
        let missing = report["missing"].as_array().unwrap();
        assert!(missing[0].as_str().unwrap().starts_with("all of it: "));
        assert_eq!(report["enforced"], json!([]), "{report}");
    };
    SHOWN.get_or_init(show).await;
    true
}

/// Whether this system starts no server in a sandbox: it has none, and the kernel runs as root.
pub(crate) async fn starts_none() -> bool {
    is_unheld().await && !system::starts_sandboxed_servers().await
}

/// A home with a key.
pub(crate) fn home() -> TempDir {
    let home = TempDir::new().unwrap();
    fs::create_dir(home.path().join(".ssh")).unwrap();
    fs::write(home.path().join(".ssh/id_ed25519"), KEY).unwrap();
    home
}

/// One server `it` and an open door; `$HOME` is that home.
pub(crate) fn config(home: &TempDir, keys: &str, sections: &str, flags: &[&str]) -> String {
    let flags = [&["--attempts"], flags].concat();
    let keys = format!("default_policy = \"opt-out\"\n{keys}");
    let entry = crate::permissions::entry("it", &keys, &flags);
    let config = format!("[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n{entry}{sections}");
    config.replace("$HOME", home.path().to_str().unwrap())
}

/// MGP-227: what a server needs for its work it has: itself, a home of its own, threads and pipes.
#[tokio::test]
async fn a_harmless_server_works_as_usual_in_its_sandbox() {
    if is_unheld().await {
        return;
    }
    let mut scene = Scene::new("", LEAST).await;
    let said = scene.agent.call("it:echo", json!({"text": "hello"})).await;
    assert_eq!(said.text(), "hello");
    let own = scene.own();
    let (home, tmp) = (own.join("home/note"), own.join("tmp/note"));
    for file in [&home, &tmp] {
        scene.tries("write", file.display()).await.unwrap();
        assert_eq!(scene.tries("read", file.display()).await.unwrap(), "x");
    }
    let environment = scene.agent.call("it:env", json!({})).await.result();
    let environment = &environment["structuredContent"];
    assert_eq!(environment["HOME"], own.join("home").to_str().unwrap());
    assert_eq!(environment["TMPDIR"], own.join("tmp").to_str().unwrap());
    let odd = |name: &&String| name.starts_with("MGP_") && *name != "MGP_SERVER";
    assert_eq!(environment.as_object().unwrap().keys().find(odd), None);
    for harmless in ["thread", "unix_pair"] {
        scene.tries(harmless, "").await.unwrap();
    }
    scene.tries("read", "/etc/hosts").await.unwrap();
    scene.tries("list", "/usr").await.unwrap();
    scene.tries("write", "/dev/null").await.unwrap();
    // What the launcher was told is not in the way of what the server was.
    let args = scene.tries("read", "/proc/self/cmdline").await.unwrap();
    assert!(
        args.contains("--attempts") && !args.contains("__sandbox"),
        "{args:?}"
    );
    let shown = scene.kernel.mgp(&["servers", "list"]).await;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("sandbox of it\n"), "{shown}");
    assert!(shown.contains("network: none"), "{shown}");
    scene.kernel.mgp_json(&["servers", "restart", "it"]).await;
    assert!(
        home.exists() && !tmp.exists(),
        "a home lasts, temporary files do not"
    );
}

/// MGP-227: it starts in the folder its entry says, which it may read.
#[tokio::test]
async fn a_sandboxed_server_starts_in_its_working_folder() {
    if is_unheld().await {
        return;
    }
    let mut scene = Scene::new("cwd = \"$HOME/.ssh\"\n", LEAST).await;
    assert_eq!(scene.tries("read", "id_ed25519").await.unwrap(), KEY);
    scene.refused("write", "id_ed25519").await;
}

/// MGP-227: not the user's keys, the kernel's files, or other processes' secrets.
#[tokio::test]
async fn a_sandboxed_server_reads_nobodys_keys() {
    if is_unheld().await {
        return;
    }
    let mut scene = Scene::new("", LEAST).await;
    let key = scene.key();
    let folder = scene.kernel.folder().to_owned();
    let pid = scene.kernel.pid();
    scene.refused("read", &key).await;
    scene.refused("link", &key).await;
    let home = scene.home.path().to_owned();
    scene.refused("list", home.display()).await;
    scene
        .refused("read", folder.join("mgp.toml").display())
        .await;
    scene.refused("list", folder.join("data").display()).await;
    scene
        .refused("list", folder.join("data/sandbox").display())
        .await;
    scene.refused("read", format!("/proc/{pid}/cmdline")).await;
    scene.refused("read", format!("/proc/{pid}/environ")).await;
    scene.refused("list", "/etc").await;
    scene.refused("read", "/dev/tty").await;
    scene.refused("signal", pid).await;
    assert_eq!(fs::read_to_string(key).unwrap(), KEY);
}

/// The same attempts succeed outside of a sandbox, or they would prove nothing.
#[tokio::test]
async fn a_standard_server_is_in_no_sandbox() {
    let mut scene = Scene::new("", "").await;
    let (key, pid) = (scene.key(), scene.kernel.pid());
    assert_eq!(scene.tries("read", &key).await.unwrap(), KEY);
    scene.tries("signal", pid).await.unwrap();
    scene
        .tries("unix", scene.kernel.socket().display())
        .await
        .unwrap();
    let datagrams = scene.home.path().join("datagrams");
    let _datagrams = UnixDatagram::bind(&datagrams).unwrap();
    scene
        .tries("turned_pair", datagrams.display())
        .await
        .unwrap();
    scene.tries("listen", "127.0.0.1:0").await.unwrap();
    assert_eq!(
        scene
            .attempt(json!({"what": "spawn", "n": 3}))
            .await
            .unwrap(),
        "3"
    );
    assert_eq!(scene.server().await["sandbox"], Value::Null);
}

/// MGP-227: what lies outside of its folder is not written, cut short, removed or linked.
#[tokio::test]
async fn a_sandboxed_server_writes_nothing_outside_of_its_folder() {
    if is_unheld().await {
        return;
    }
    let mut scene = Scene::new("", LEAST).await;
    let (key, folder) = (scene.key(), scene.kernel.folder().to_owned());
    for at in [
        folder.join("new"),
        folder.join("mgp.toml"),
        scene.home.path().join("new"),
    ] {
        scene.refused("write", at.display()).await;
    }
    scene
        .refused("write", std::env::temp_dir().join("new").display())
        .await;
    scene.refused("truncate", &key).await;
    scene.refused("remove", &key).await;
    let up = scene.own().join("tmp/../../../../up");
    scene.refused("write", up.display()).await;
    assert_eq!(fs::read_to_string(key).unwrap(), KEY);
}

/// MGP-227: no network and no other program, the kernel's own door least of all.
#[tokio::test]
async fn a_sandboxed_server_opens_no_sockets() {
    if is_unheld().await {
        return;
    }
    let mut scene = Scene::new("", LEAST).await;
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    scene.refused("connect", door.local_addr().unwrap()).await;
    scene.refused("listen", "127.0.0.1:0").await;
    scene.refused("udp", "127.0.0.1:0").await;
    scene.refused("unix", scene.kernel.socket().display()).await;
    let datagrams = scene.home.path().join("datagrams");
    let _datagrams = UnixDatagram::bind(&datagrams).unwrap();
    scene.refused("turned_pair", datagrams.display()).await;
}

/// MGP-227, MGP-030: a permission opens what it names and no more.
#[tokio::test]
async fn a_network_permission_opens_the_network_and_no_other_programs_socket() {
    if is_unheld().await {
        return;
    }
    let keys = "permissions = [\"network.outbound\"]\n";
    let mut scene = Scene::new(keys, LEAST).await;
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    scene
        .tries("connect", door.local_addr().unwrap())
        .await
        .unwrap();
    scene.tries("udp", "127.0.0.1:0").await.unwrap();
    scene.refused("listen", "127.0.0.1:0").await;
    scene.refused("unix", scene.kernel.socket().display()).await;
    let keys = "permissions = [\"network.listen\"]\n";
    let mut scene = Scene::new(keys, LEAST).await;
    scene.tries("listen", "127.0.0.1:0").await.unwrap();
    scene.refused("connect", door.local_addr().unwrap()).await;
    scene.refused("udp", "127.0.0.1:0").await;
}

/// Answers each connection with its first line, and closes it.
fn echo() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            let _ = BufReader::new(&stream).read_line(&mut line);
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nyou said {line}"
            );
        }
    });
    address
}

/// EXT-156: with `egress` the only way out is the proxy of the kernel, and it leads to what is listed.
#[tokio::test]
async fn limited_egress_leads_to_the_listed_destinations_alone() {
    if is_unheld().await {
        return;
    }
    let (listed, other) = (echo(), echo());
    let keys = "permissions = [\"network.outbound\"]\n";
    let egress = format!("[servers.sandbox]\negress = [\"{listed}\"]\n");
    let mut scene = Scene::new(keys, &format!("{LEAST}{egress}")).await;
    let missing = scene.report("missing").await.join("\n");
    if missing.contains("egress") {
        scene.refused("connect", listed).await;
        eprintln!("SKIPPED: no namespaces here: {missing}");
        return;
    }
    let tunnel = scene.tries("proxied", listed).await.unwrap();
    assert!(
        tunnel.starts_with("HTTP/1.1 200 ") && tunnel.ends_with("you said hello\n"),
        "{tunnel}"
    );
    let plain = scene.tries("proxied", format!("http://{listed}/a?b")).await;
    let plain = plain.unwrap();
    assert!(plain.ends_with("you said GET /a?b HTTP/1.1\r\n"), "{plain}");

    for elsewhere in [other.to_string(), format!("http://{other}/")] {
        let refused = scene.tries("proxied", &elsewhere).await.unwrap();
        assert!(
            refused.starts_with("HTTP/1.1 403 ") && refused.contains("`egress`"),
            "{refused}"
        );
    }
    // Past the proxy nothing is reachable, also not what is listed.
    for at in [listed, other] {
        let direct = scene.tries("connect", at).await.unwrap_err();
        assert!(
            direct.contains("refused") || direct.contains("unreachable"),
            "{direct}"
        );
    }
    let datagram = scene.tries("udp_send", "192.0.2.1:53").await.unwrap_err();
    assert!(datagram.contains("unreachable"), "{datagram}");

    let server = scene.server().await;
    assert_eq!(server["sandbox"]["refused"], json!([other.to_string()]));
    let listed = scene.kernel.mgp(&["servers", "list"]).await.stdout;
    let listed = String::from_utf8_lossy(&listed);
    assert!(
        listed.contains(&format!("egress refused: {other}")),
        "{listed}"
    );
    let logs = scene.kernel.mgp(&["servers", "logs", "it"]).await.stdout;
    let logs = String::from_utf8_lossy(&logs);
    assert!(
        logs.contains(&format!("may not connect to {other}")),
        "{logs}"
    );
}

/// EXT-156: a list of nothing is not a list of everything, and a name is no way to this machine.
#[tokio::test]
async fn egress_to_nothing_closes_the_network() {
    if is_unheld().await {
        return;
    }
    let at = echo();
    let keys = "permissions = [\"network.outbound\"]\n";
    let mut scene = Scene::new(keys, &format!("{LEAST}[servers.sandbox]\negress = []\n")).await;
    assert!(scene.tries("connect", at).await.is_err());
    if let Ok(answer) = scene.tries("proxied", at).await {
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
    let local = format!("{LEAST}[servers.sandbox]\negress = [\"localhost:80\"]\n");
    let config = config(&home(), keys, &local, &[]);
    let kernel = Kernel::with_config(&config).await;
    let problems = kernel.mgp_json(&["status"]).await["config_problems"].to_string();
    assert!(problems.contains("127.0.0.1:8080"), "{problems}");
}

/// MGP-227: paths that are listed, once the permission is there; the kernel's own files never.
#[tokio::test]
async fn file_permissions_open_the_paths_that_are_listed() {
    if is_unheld().await {
        return;
    }
    let listed = "[servers.sandbox]\nread = [\"$HOME/.ssh\", \"$HOME\"]\nwrite = [\".\"]\n";
    let sections = format!("{LEAST}{listed}");
    let mut scene = Scene::new("", &sections).await;
    let key = scene.key();
    scene.refused("read", &key).await;
    let notes = scene.report("notes").await.join("\n");
    assert!(
        notes.contains("opens nothing without the permission filesystem.read"),
        "{notes}"
    );
    let keys = "permissions = [\"filesystem\"]\n";
    let mut scene = Scene::new(keys, &sections).await;
    let key = scene.key();
    assert_eq!(scene.tries("read", &key).await.unwrap(), KEY);
    scene.refused("truncate", &key).await;
    let home = scene.home.path().to_owned();
    scene.refused("list", home.display()).await;
    scene
        .refused("write", scene.kernel.folder().join("mgp.toml").display())
        .await;
}

/// MGP-227: a server that may start no programs starts none, however it asks.
#[tokio::test]
async fn a_fork_bomb_does_not_go_off() {
    if is_unheld().await {
        return;
    }
    let mut scene = Scene::new("", LEAST).await;
    let why = scene
        .attempt(json!({"what": "spawn", "n": 64}))
        .await
        .unwrap_err();
    assert!(why.starts_with("after 0:"), "{why}");
    let forked = scene.agent.call("it:fork", json!({"n": 8})).await;
    assert_eq!(forked.result()["isError"], true, "{}", forked.frame);
    scene.refused("run", "/bin/true").await;
    scene.refused("become", "/bin/true").await;
    assert_eq!(
        scene
            .agent
            .call("it:echo", json!({"text": "on"}))
            .await
            .text(),
        "on"
    );
}

/// MGP-227: a file in memory is on no mount that could keep it from being run.
#[tokio::test]
async fn no_program_is_run_out_of_memory_where_none_may_be_started() {
    if is_unheld().await {
        return;
    }
    let mut scene = Scene::new("", LEAST).await;
    let memory = |flags: u32| json!({"what": "memory", "at": "/bin/true", "n": flags});
    let why = scene.attempt(memory(0)).await.unwrap_err();
    assert!(why.contains("not implemented"), "{why}");
    // Memory that can never be run is as good as before, where the system knows it (Linux 6.3).
    let sealed = scene.attempt(memory(nix::libc::MFD_NOEXEC_SEAL)).await;
    match sealed {
        Ok(tried) => assert!(
            tried.contains("not implemented") && tried.contains("denied"),
            "{tried}"
        ),
        Err(why) => assert!(why.contains("Invalid argument"), "{why}"),
    }
}

/// MGP-227: with `shell.execute` it starts programs, which are in the same sandbox; how many, is bound
/// where the system binds it, and else the report says so.
#[tokio::test]
async fn programs_of_a_sandboxed_server_are_in_its_sandbox() {
    if is_unheld().await {
        return;
    }
    let bound = "[servers.sandbox]\nprocesses = 24\n";
    let keys = "permissions = [\"shell.execute\"]\n";
    let mut scene = Scene::new(keys, &format!("{LEAST}{bound}")).await;
    let run = |args: [&str; 2]| json!({"what": "run", "at": "/bin/sh", "args": args});
    assert_eq!(scene.attempt(run(["-c", "echo hi"])).await.unwrap(), "hi\n");
    let read = format!("cat {}", scene.key());
    for forbidden in [
        &*read,
        "unshare -U true",
        "unshare -m true",
        "mount -t tmpfs x /usr",
    ] {
        scene
            .attempt(run(["-c", forbidden]))
            .await
            .expect_err(forbidden);
    }
    let spawned = scene.attempt(json!({"what": "spawn", "n": 64})).await;
    let unbound = scene
        .report("missing")
        .await
        .join("\n")
        .contains("processes and threads");
    assert!(spawned.is_err(), "{spawned:?}");
    assert!(!unbound, "root's servers are users of their own");
}

/// MGP-227, CMCP-059: memory and files are bounded, for each process.
#[tokio::test]
async fn a_sandboxed_server_does_not_eat_the_machine() {
    if is_unheld().await {
        return;
    }
    let bound = "[servers.sandbox]\nmemory_bytes = 268435456\nopen_files = 64\n";
    let mut scene = Scene::new("", &format!("{LEAST}{bound}")).await;
    scene
        .attempt(json!({"what": "eat", "n": 32 << 20}))
        .await
        .unwrap();
    let why = scene
        .attempt(json!({"what": "eat", "n": 1_u64 << 30}))
        .await
        .unwrap_err();
    assert!(why.starts_with("after "), "{why}");
    scene
        .attempt(json!({"what": "files", "n": 80}))
        .await
        .unwrap_err();
    let limits = scene.tries("read", "/proc/self/limits").await.unwrap();
    let line = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..]
            .split_ascii_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(line("Max file size")[..2], ["1073741824", "1073741824"]);
    assert_eq!(line("Max core file size")[..2], ["0", "0"]);
    assert_eq!(line("Max data size")[..2], ["268435456", "268435456"]);
    assert_ne!(line("Max processes")[1], "unlimited");
}

/// MGP-227: nothing it runs has more rights than it, and it has none of root's.
#[tokio::test]
async fn a_sandboxed_server_gains_no_privileges() {
    if is_unheld().await {
        return;
    }
    let mut scene = Scene::new("", LEAST).await;
    let status = scene.tries("read", "/proc/self/status").await.unwrap();
    let line = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].trim().to_owned()
    };
    assert_eq!(line("NoNewPrivs:"), "1");
    assert_eq!(line("Seccomp:"), "2");
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(line(set), "0000000000000000", "{set}");
    }
    assert_eq!(line("CapBnd:"), "0000000000000000");
    let user: u32 = line("Uid:")
        .split_ascii_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let kernels = nix::unistd::geteuid();
    assert_eq!(user == kernels.as_raw(), !kernels.is_root(), "{user}");
}

/// MGP-277, MGP-227: what is approved while the server waits for it starts it again in a wider sandbox, and
/// what is taken back in a narrower one; what is approved later holds from its next start on.
#[tokio::test]
async fn approved_permission_widens_the_sandbox_of_the_next_start() {
    if is_unheld().await {
        return;
    }
    let needs = needing(&["network.outbound"]);
    let mut scene = Scene::met("", LEAST, &["--mgp", &needs]).await;
    let asked = question(&scene.kernel).await;
    let first = scene.server().await["pid"].clone();
    scene.kernel.mgp_json(&["approve", &id(&asked)]).await;
    scene.kernel.connected(&["it"]).await;
    assert_ne!(scene.server().await["pid"], first);
    assert_eq!(scene.server().await["restarts"], 0, "that is no failure");
    let wider = scene.server().await["pid"].clone();
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = door.local_addr().unwrap();
    scene.tries("connect", at).await.unwrap();
    let taken = scene.kernel.mgp(&["deny", "it", "network.outbound"]).await;
    assert!(taken.status.success());
    wait_until("it is started again", DEADLINE, async || {
        let now = scene.server().await;
        now["state"] == "connected" && now["pid"] != wider
    })
    .await;
    scene.refused("connect", at).await;
}

/// A server that would be held to less than was reported is not started at all.
#[tokio::test]
async fn the_launcher_starts_nothing_that_it_cannot_hold() {
    let launcher = Program::ours("mgp", ["__sandbox"]);
    let tried = launcher.output(DEADLINE).await;
    let mut machine: Value = serde_json::from_slice(&tried.stdout).unwrap();
    let launcher = launcher.args(&["--", "/bin/echo", "echo", "started"]);
    let limits =
        json!({"memory": 1 << 30, "processes": 64, "open_files": 64, "file_size": 1 << 20});
    // A launcher follows no links: it is told them.
    let real = |paths: &[&str]| {
        let all = paths.iter().filter_map(|path| fs::canonicalize(path).ok());
        all.collect::<Vec<PathBuf>>()
    };
    let links = ["/bin", "/lib", "/lib64"].map(|path| (path, fs::read_link(path).ok()));
    let links = links.into_iter().filter_map(|(at, to)| Some((at, to?)));
    let links: std::collections::BTreeMap<_, _> = links.collect();
    let policy = |machine: &Value| {
        json!({
            "read": real(&["/usr", "/lib", "/lib64", "/etc/ld.so.cache"]),
            "execute": real(&["/usr", "/bin", "/lib", "/lib64"]), "links": links,
            "write": [], "outbound": false, "listen": false, "programs": false,
            "limits": limits, "machine": machine,
            "user": nix::unistd::geteuid().is_root().then_some(65_000),
        })
        .to_string()
    };
    let held = launcher.clone().env("MGP_SANDBOX_POLICY", policy(&machine));
    assert_eq!(held.output(DEADLINE).await.stdout, b"started\n");
    let broken = launcher.clone().env("MGP_SANDBOX_POLICY", "{}");
    let mut refused = vec![launcher.clone(), broken];
    // The newest that the launcher knows, where the machine is older.
    let newest = 9;
    if machine["landlock"].as_u64().unwrap() < newest {
        machine["landlock"] = newest.into();
        refused.push(launcher.env("MGP_SANDBOX_POLICY", policy(&machine)));
    }
    for launcher in refused {
        let output = launcher.output(DEADLINE).await;
        assert_eq!(output.status.code(), Some(126), "{output:?}");
        assert!(output.stdout.is_empty());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("the server is not started"), "{said}");
    }
}

/// MGP-024, MGP-025: a server that says it is trusted less is put where it says it belongs.
#[tokio::test]
async fn server_that_declares_itself_sandboxed_is_restarted_in_a_sandbox() {
    if is_unheld().await {
        return;
    }
    for level in ["sandboxed", "god"] {
        let says = json!({"version": "0.2.0", "extensions": [], "trust_level": level}).to_string();
        let mut scene = Scene::met("", "", &["--mgp", &says]).await;
        scene.kernel.connected(&["it"]).await;
        let key = scene.key();
        scene.refused("read", &key).await;
        assert!(!scene.report("enforced").await.is_empty());
    }
}

/// Where the machine cannot hold all of it, `required` keeps the server from starting; a machine that
/// can, starts it.
#[tokio::test]
async fn a_sandbox_that_is_required_is_whole_or_the_server_is_not_started() {
    let required = format!("{LEAST}[sandbox]\nrequired = true\n");
    let scene = Scene::met("", &required, &[]).await;
    let mut server = Value::Null;
    wait_until(
        "the server starts or is turned away",
        DEADLINE,
        async || {
            server = scene.server().await;
            ["connected", "error"].contains(&server["state"].as_str().unwrap())
        },
    )
    .await;
    let whole = server["sandbox"]["missing"] == json!([]);
    assert_eq!(server["state"] == "connected", whole, "{server:#}");
    let reason = server["reason"].as_str().unwrap_or_default();
    assert_eq!(reason.contains("`required`"), !whole, "{reason}");
    assert!(
        whole || is_unheld().await,
        "a machine that can, starts it: {server:#}"
    );
}
