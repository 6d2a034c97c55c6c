//! What a folder brings along, and what its user has trusted of it.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Output;

use mgp_tests::harness::{Agent, DEADLINE, Process, Program, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::scene::NEWEST;

/// What opens no port that somebody else may have.
const QUIET: &str =
    "[http]\nenabled = false\n[discovery]\nembedding = \"off\"\nexposure = \"all\"\n";

/// A user with a file of their own, in a folder that was cloned. Dropping it ends the kernel that was
/// started there, by its process id.
struct Checkout(TempDir);

impl Checkout {
    /// The cloned folder has this `mgp.toml`.
    fn with(config: &str) -> Self {
        let clone = Self(TempDir::new().unwrap());
        for folder in ["project", "home/.config/mgp", "run"] {
            fs::create_dir_all(clone.at(folder)).unwrap();
        }
        let own = format!("{QUIET}{}", Program::fixture(&[]).entry("mine"));
        fs::write(clone.at("home/.config/mgp/servers.toml"), own).unwrap();
        fs::write(clone.file(), config).unwrap();
        clone
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self) -> PathBuf {
        self.at("project/mgp.toml")
    }

    /// A server of the clone that leaves a trace when it runs.
    fn entry(&self, id: &str) -> String {
        let trace = self.at(&format!("ran-{id}")).display().to_string();
        let fixture = Program::fixture(&[]).command;
        let script = format!("touch '{trace}'; exec '{fixture}' --stdio");
        Program::new("sh", ["-c", &script]).entry(id)
    }

    fn ran(&self, id: &str) -> bool {
        self.at(&format!("ran-{id}")).exists()
    }

    /// `mgp` as its user types it in the cloned folder.
    fn program(&self, args: &[&str]) -> Program {
        let mgp = Program::ours("mgp", args.iter().copied());
        let within = |name: &str| self.at(name).display().to_string();
        let script = "cd \"$0\" && exec \"$@\"";
        Program::new("sh", ["-c", script, &within("project"), &mgp.command])
            .args(args)
            .env("HOME", within("home"))
            .env("XDG_CONFIG_HOME", within("home/.config"))
            .env("XDG_RUNTIME_DIR", within("run"))
            .env("MGP_DATA_DIR", within("data"))
            .env("MGP_SOCKET", within("run/mgp.sock"))
            .env("MGP_CONFIG_PATH", "")
    }

    async fn mgp(&self, args: &[&str]) -> Output {
        self.program(args).output(DEADLINE).await
    }

    async fn status(&self) -> Value {
        let said = self.mgp(&["status", "--json"]).await;
        serde_json::from_slice(&said.stdout).unwrap_or_default()
    }

    /// The process of a server that is connected.
    async fn connected(&self, id: &str) -> u64 {
        let mut server = Value::Null;
        wait_until(&format!("{id} is connected"), DEADLINE, async || {
            server = of(&self.status().await, id);
            server["state"] == "connected"
        })
        .await;
        server["pid"].as_u64().unwrap()
    }

    /// Types a line at the question of a command in a terminal; what was shown, and its exit code.
    async fn typed(&self, args: &[&str], question: &str, answer: &str) -> (String, Option<i32>) {
        let program = self.program(args);
        let quoted = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
        let words: Vec<_> = program.args.iter().map(quoted).collect();
        let line = format!("{} {}", program.command, words.join(" "));
        let mut terminal = Program::new("script", ["-qec", &line, "/dev/null"]);
        terminal.env = program.env;
        let mut terminal = Process::start("a terminal", &terminal);
        let mut keys = terminal.take_stdin().unwrap();
        let asked = |said: &str| said.contains(question).then_some(());
        terminal.says(question, DEADLINE, asked).await;
        writeln!(keys, "{answer}").unwrap();
        let end = terminal.end(DEADLINE).await;
        let shown = || terminal.stdout();
        wait_until("everything it showed is here", DEADLINE, async || {
            shown().contains('\n')
        })
        .await;
        (shown(), end.code())
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let lock = fs::read_to_string(self.at("data/kernel.lock")).unwrap_or_default();
        if let Ok(pid) = lock.trim().parse() {
            // It may have ended already, as it should have.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }
}

fn of(status: &Value, id: &str) -> Value {
    let servers = status["servers"].as_array().cloned().unwrap_or_default();
    let found = servers.into_iter().find(|server| server["id"] == id);
    found.unwrap_or_default()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// MGP-214, A-01: nothing of a cloned `mgp.toml` runs or counts before its user has seen it: not its
/// servers, not its sections; what is left out is named to the user, at every place. Then it holds as it
/// was seen, while a kernel runs and when the next one starts, until it is let go.
#[tokio::test]
async fn a_cloned_file_runs_nothing_before_it_was_trusted() {
    let clone = Checkout::with("");
    let evil = format!("[tuning.lists]\npage_size = 1\n{}", clone.entry("evil"));
    fs::write(clone.file(), &evil).unwrap();
    let file = clone.file().canonicalize().unwrap().display().to_string();

    let mut agent = Agent::over_stdio(&clone.program(&["stdio"]));
    agent.initialize(NEWEST, "{}").await.result();
    assert_eq!(
        agent.call("mine:echo", json!({"text": "hi"})).await.text(),
        "hi"
    );
    let listed = agent.request("tools/list", json!({})).await.result();
    assert!(
        listed["tools"].as_array().unwrap().len() > 1,
        "its sections count for nothing"
    );
    drop(agent);
    let status = clone.status().await;
    assert_eq!(status["untrusted"][0]["file"], *file, "{status:#}");
    assert_eq!(status["untrusted"][0]["held"], false);
    assert_eq!(status["config_files"].as_array().unwrap().len(), 1);
    assert_eq!(of(&status, "evil"), Value::Null);
    for said in [
        clone.mgp(&["status"]).await.stdout,
        Program::output(&clone.program(&["stdio"]), DEADLINE)
            .await
            .stderr,
    ] {
        let said = text(&said);
        assert!(
            said.contains(&file) && said.contains("mgp trust "),
            "{said}"
        );
    }

    let unasked = clone.mgp(&["trust"]).await;
    assert_eq!(unasked.status.code(), Some(2), "there is no terminal");
    let shown = text(&unasked.stdout);
    for part in ["start evil: sh -c", "ran-evil", "lists.page_size = 1"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let (shown, code) = clone.typed(&["trust"], "[y/N]", "n").await;
    assert_eq!(code, Some(1), "{shown}");
    assert_eq!(of(&clone.status().await, "evil"), Value::Null);
    assert!(!clone.ran("evil"));

    let (shown, code) = clone.typed(&["trust"], "[y/N]", "y").await;
    assert_eq!(code, Some(0), "{shown}");
    let first = clone.connected("evil").await;
    assert!(clone.ran("evil"));
    assert_eq!(clone.status().await["untrusted"], json!([]));
    let listed = text(&clone.mgp(&["trust", "--list"]).await.stdout);
    assert!(
        listed.contains(&file) && listed.contains("trusted"),
        "{listed}"
    );

    // A change is not taken up, by itself or by anything that has the files read again.
    fs::write(clone.file(), format!("{evil}{}", clone.entry("worse"))).unwrap();
    wait_until("the change is noticed", DEADLINE, async || {
        clone.status().await["untrusted"][0]["held"] == true
    })
    .await;
    let fixture = Program::fixture(&[]).command;
    let add = ["servers", "add", "other", "--", &fixture, "--stdio"];
    let added = clone.mgp(&add).await;
    assert!(added.status.success(), "{}", text(&added.stderr));
    let own = fs::read_to_string(clone.at("home/.config/mgp/servers.toml")).unwrap();
    assert!(own.contains("other"), "it goes into the user's own file");
    let status = clone.status().await;
    assert_eq!(of(&status, "worse"), Value::Null);
    assert_eq!(
        of(&status, "evil")["pid"],
        first,
        "what was trusted runs on"
    );
    assert!(text(&clone.mgp(&["status"]).await.stdout).contains("holds as it was"));
    assert!(text(&clone.mgp(&["trust", "--list"]).await.stdout).contains("changed since"));

    // The next kernel has nothing of it any more, until it is trusted again.
    assert!(clone.mgp(&["down"]).await.status.success());
    let up = clone.mgp(&["up", "--detach"]).await;
    let told = text(&up.stderr);
    assert!(
        up.status.success() && told.contains("changed since it was trusted"),
        "{told}"
    );
    assert_eq!(of(&clone.status().await, "evil"), Value::Null);
    assert!(!clone.ran("worse"));
    let trusted = clone.mgp(&["trust", "--yes", "--json", "."]).await;
    let trusted: Value = serde_json::from_slice(&trusted.stdout).unwrap();
    assert_eq!(
        (&trusted["trusted"], &trusted["in_force"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(trusted["servers"][1]["id"], "worse");
    clone.connected("worse").await;

    let gone = clone.mgp(&["untrust"]).await;
    assert!(gone.status.success(), "{}", text(&gone.stderr));
    wait_until("its servers are gone", DEADLINE, async || {
        let status = clone.status().await;
        of(&status, "worse").is_null() && of(&status, "evil").is_null()
    })
    .await;
    clone.connected("mine").await;
    assert_eq!(clone.mgp(&["untrust"]).await.status.code(), Some(1));
}

/// A file that is not trusted does not even say where the kernel is: it could lead to another's.
#[tokio::test]
async fn untrusted_project_file_does_not_choose_the_socket() {
    let clone = Checkout::with("");
    let other = clone.at("elsewhere.sock").display().to_string();
    fs::write(clone.file(), format!("[socket]\npath = {other:?}\n")).unwrap();
    let status = async || {
        let mut unnamed = clone.program(&["status"]);
        unnamed.env.retain(|(name, _)| name != "MGP_SOCKET");
        unnamed.output(DEADLINE).await
    };
    let nobody = status().await;
    assert_eq!(nobody.status.code(), Some(3));
    let told = text(&nobody.stderr);
    assert!(
        !told.contains("elsewhere") && told.contains("data/mgp.sock"),
        "{told}"
    );
    assert!(clone.mgp(&["trust", "--yes"]).await.status.success());
    assert!(text(&status().await.stderr).contains(&other));
}

/// What is written into a project's file by `mgp` at its user's word stays trusted; what somebody else
/// wrote there does not become so by it.
#[tokio::test]
async fn project_file_stays_trusted_after_commands_of_its_user() {
    let clone = Checkout::with("");
    fs::remove_file(clone.file()).unwrap();
    assert!(clone.mgp(&["up", "--detach"]).await.status.success());
    let fixture = Program::fixture(&[]).command;
    let add = async |id: &str| {
        let words = ["servers", "add", id, "--project", "--", &fixture, "--stdio"];
        clone.mgp(&words).await
    };
    for id in ["one", "two"] {
        let added = add(id).await;
        assert!(added.status.success(), "{}", text(&added.stderr));
        clone.connected(id).await;
    }
    assert!(
        clone
            .mgp(&["servers", "remove", "two"])
            .await
            .status
            .success()
    );
    assert_eq!(clone.status().await["untrusted"], json!([]));
    clone.connected("one").await;

    let before = fs::read_to_string(clone.file()).unwrap();
    fs::write(clone.file(), before + &clone.entry("evil")).unwrap();
    let added = add("three").await;
    assert!(
        text(&added.stderr).contains("mgp trust "),
        "{}",
        text(&added.stderr)
    );
    wait_until("the change is noticed", DEADLINE, async || {
        clone.status().await["untrusted"][0]["held"] == true
    })
    .await;
    assert_eq!(of(&clone.status().await, "three"), Value::Null);
    assert!(!clone.ran("evil"));
}

/// A value for a server is typed unseen and reaches the server; none is taken from the command line,
/// where every user of the machine could read it.
#[tokio::test]
async fn a_secret_is_typed_and_stands_on_no_command_line() {
    let clone = Checkout::with("");
    fs::remove_file(clone.file()).unwrap();
    assert!(clone.mgp(&["up", "--detach"]).await.status.success());
    let fixture = Program::fixture(&[]).command;
    let add = |env: &'static str| ["servers", "add", "keyed", "--env", env, "--"];
    let program = [fixture.as_str(), "--stdio"];
    let refused = clone
        .mgp(&[&add("A_KEY=s3cret")[..], &program].concat())
        .await;
    assert_eq!(refused.status.code(), Some(2));
    let told = text(&refused.stderr);
    assert!(
        told.contains("--env-file") && !told.contains("s3cret"),
        "{told}"
    );

    let typed = [&add("A_KEY")[..], &program].concat();
    let (shown, code) = clone.typed(&typed, "A_KEY of keyed", "s3cret").await;
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
    clone.connected("keyed").await;
    let env = clone.mgp(&["tools", "call", "keyed:env", "--json"]).await;
    let env: Value = serde_json::from_slice(&env.stdout).unwrap();
    assert_eq!(env["structuredContent"]["A_KEY"], "s3cret");
    let own = fs::read_to_string(clone.at("home/.config/mgp/servers.toml")).unwrap();
    assert!(
        own.contains("secret:keyed/A_KEY") && !own.contains("s3cret"),
        "{own}"
    );
    assert!(
        clone
            .mgp(&["servers", "remove", "keyed"])
            .await
            .status
            .success()
    );
    let kept = clone.mgp(&["secrets", "list", "--json"]).await;
    let kept: Value = serde_json::from_slice(&kept.stdout).unwrap();
    assert_eq!(kept["secrets"], json!([]));
}

/// A project that reads the user's own files and secrets is trusted only by who names them, and shows where they go.
#[tokio::test]
async fn project_with_secrets_is_trusted_only_when_they_are_named() {
    let clone = Checkout::with(
        "[[servers]]\nid = \"docs\"\nurl = \"http://127.0.0.1:9/mcp\"\nheaders = { A = \"file:../home/id_rsa\", B = \"${MY_TOKEN:-}\" }\n",
    );
    fs::write(clone.at("home/id_rsa"), "key").unwrap();
    let path = clone.at("home/id_rsa").canonicalize().unwrap();
    let path = path.display().to_string();
    let refused = clone.mgp(&["trust", "--yes", "--reads", "MY_TOKEN"]).await;
    let (shown, why) = (
        String::from_utf8_lossy(&refused.stdout).into_owned(),
        String::from_utf8_lossy(&refused.stderr).into_owned(),
    );
    assert_eq!(refused.status.code(), Some(2), "{why}");
    for part in [
        format!(
            "the file {path} (written ../home/id_rsa), for docs at http://127.0.0.1:9/mcp as headers.A"
        ),
        "the variable MY_TOKEN, for docs at http://127.0.0.1:9/mcp as headers.B".to_owned(),
    ] {
        assert!(shown.contains(&part), "{shown}");
    }
    assert!(
        why.contains(&format!("mgp trust --yes --reads {path} ")),
        "{why}"
    );
    let (asked, code) = clone.typed(&["trust"], "Trust it as it is?", "y\nno").await;
    assert_ne!(code, Some(0), "{asked}");
    assert!(asked.contains(&format!("Type {path} to let it")), "{asked}");
    let named = ["trust", "--yes", "--reads", "MY_TOKEN", "--reads", &path];
    let trusted = clone.mgp(&named).await;
    assert!(trusted.status.success());
}
