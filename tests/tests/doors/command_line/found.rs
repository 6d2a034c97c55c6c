//! The kernel as clients find it that know less than the shell it was started in.

use std::path::{Path, PathBuf};
use std::process::Output;

use mgp_tests::harness::{Account, Agent, DEADLINE, Process, Program};
use serde_json::{Value, json};

use crate::scene::NEWEST;

/// What opens no port that somebody else may have.
const QUIET: &str =
    "[http]\nenabled = false\n[discovery]\nembedding = \"off\"\nexposure = \"all\"\n";

/// The variables of a shell or of a client.
type Variables = Vec<(&'static str, PathBuf)>;

struct User(Account);

impl User {
    async fn new() -> Option<Self> {
        let servers = format!("{QUIET}{}", Program::fixture(&[]).entry("it"));
        let account = Account::new(&servers).await?;
        account.file("xdg/config/mgp/servers.toml", &servers);
        std::fs::create_dir_all(account.at("xdg/run")).unwrap();
        Some(Self(account))
    }

    fn path_only() -> Variables {
        Vec::new()
    }

    fn home_only(&self) -> Variables {
        self.0.home_only().into()
    }

    /// A desktop's shell.
    fn desktop(&self) -> Variables {
        let at = |name: &str| self.0.at(name);
        let mut all = self.home_only();
        all.extend([
            ("XDG_RUNTIME_DIR", at("xdg/run")),
            ("XDG_DATA_HOME", at("xdg/data")),
            ("XDG_CONFIG_HOME", at("xdg/config")),
        ]);
        all
    }

    fn with(&self, name: &'static str, value: &str) -> Variables {
        [self.home_only(), vec![(name, self.0.at(value))]].concat()
    }

    /// A shell with another home, where the same is configured.
    fn elsewhere(&self) -> Variables {
        let own = self.0.at("home/.config/mgp/servers.toml");
        let servers = std::fs::read_to_string(own).unwrap();
        self.0.file("elsewhere/.config/mgp/servers.toml", &servers);
        self.with("HOME", "elsewhere")
    }

    fn program(&self, variables: &Variables, args: &[&str]) -> Program {
        let variables: Vec<(&str, &Path)> =
            variables.iter().map(|(n, v)| (*n, v.as_path())).collect();
        self.0.mgp(args, &variables)
    }

    async fn mgp(&self, variables: &Variables, args: &[&str]) -> Output {
        self.program(variables, args).output(DEADLINE).await
    }

    /// Starts a kernel; its process.
    async fn up(&self, variables: &Variables) -> u64 {
        let up = self.mgp(variables, &["up", "--detach", "--json"]).await;
        assert!(up.status.success(), "{variables:?}: {}", err(&up));
        let status: Value = serde_json::from_slice(&up.stdout).unwrap();
        status["pid"].as_u64().unwrap()
    }

    async fn status(&self, variables: &Variables, args: &[&str]) -> Value {
        let said = self
            .mgp(variables, &[args, &["status", "--json"]].concat())
            .await;
        assert!(said.status.success(), "{variables:?}: {}", err(&said));
        serde_json::from_slice(&said.stdout).unwrap()
    }

    /// Starts `mgp stdio`, and calls the one server through it.
    async fn calls(&self, variables: &Variables) -> Agent {
        let mut agent = Agent::over_stdio(&self.program(variables, &["stdio"]));
        agent.initialize(NEWEST, "{}").await.result();
        let said = agent.call("it:echo", json!({"text": "hi"})).await;
        assert_eq!(said.text(), "hi", "{variables:?}");
        agent
    }

    async fn down(&self, variables: &Variables) {
        let down = self.mgp(variables, &["down"]).await;
        assert!(down.status.success(), "{variables:?}: {}", err(&down));
    }
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Point 1: whatever the shell had in which the kernel was started, clients that pass less, or more, find
/// it: the same process answers all of them, and all can end it.
#[tokio::test]
async fn a_running_kernel_is_found_whatever_the_environment() {
    let Some(user) = User::new().await else {
        return;
    };
    let clients = [User::path_only(), user.home_only(), user.desktop()];
    for shell in [
        user.desktop(),
        user.home_only(),
        User::path_only(),
        user.with("MGP_DATA_DIR", "data"),
        user.with("MGP_SOCKET", "own/mgp.sock"),
        user.with("XDG_RUNTIME_DIR", "xdg/run"),
        user.elsewhere(),
    ] {
        let pid = user.up(&shell).await;
        for client in &clients {
            let found = user.status(client, &[]).await;
            assert_eq!(found["pid"], pid, "{shell:?} as {client:?} sees it");
            user.calls(client).await.close().await;
        }
        user.down(&clients[0]).await;
    }
}

/// Point 1: a client that starts a kernel starts it on the data and with the configuration of the last
/// one, although it does not have the variables that named them, and says so.
#[tokio::test]
async fn the_next_kernel_keeps_to_the_places_of_the_last_one() {
    let Some(user) = User::new().await else {
        return;
    };
    user.up(&user.desktop()).await;
    let places = |status: &Value| [&status["data_dir"], &status["config_files"]].map(Value::clone);
    let before = places(&user.status(&user.desktop(), &[]).await);
    user.down(&user.desktop()).await;
    let mut started = Process::start("stdio", &user.program(&user.home_only(), &["stdio"]));
    let told = started
        .says("what it started", DEADLINE, |said| {
            let line = said.lines().find(|line| line.contains("was started"))?;
            Some(line.to_owned())
        })
        .await;
    let after = places(&user.status(&user.home_only(), &[]).await);
    assert_eq!(after, before);
    assert!(before[0].as_str().unwrap().ends_with("xdg/data/mgp"));
    for place in [before[0].as_str(), before[1][0].as_str()] {
        assert!(told.contains(place.unwrap()), "{told}");
    }
}

/// Point 1: a second kernel does not come up because an environment differs; with a folder of its own it
/// does, and the first one is found as before.
#[tokio::test]
async fn a_second_kernel_comes_up_only_where_it_was_named() {
    let Some(user) = User::new().await else {
        return;
    };
    let first = user.up(&user.elsewhere()).await;
    let refused = user.mgp(&user.home_only(), &["up"]).await;
    assert_eq!(refused.status.code(), Some(1), "{}", err(&refused));
    for words in [format!("process {first}"), "--data-dir".to_owned()] {
        assert!(err(&refused).contains(&words), "{}", err(&refused));
    }
    let own = user.with("MGP_DATA_DIR", "own");
    let second = user.up(&own).await;
    assert_ne!(second, first);
    assert_eq!(user.status(&own, &[]).await["pid"], second);
    let own = user.0.at("own").display().to_string();
    let named = user.status(&User::path_only(), &["--data-dir", &own]).await;
    assert_eq!(named["pid"], second);
    for client in [User::path_only(), user.home_only(), user.desktop()] {
        assert_eq!(user.status(&client, &[]).await["pid"], first, "{client:?}");
    }
}

/// Point 4: a data folder that is written down while a kernel runs hides it from nobody.
#[tokio::test]
async fn a_folder_that_is_written_down_meanwhile_hides_no_kernel() {
    let Some(user) = User::new().await else {
        return;
    };
    let shell = user.home_only();
    let pid = user.up(&shell).await;
    let name = "home/.config/mgp/servers.toml";
    let before = std::fs::read_to_string(user.0.at(name)).unwrap();
    let moved = user.0.at("moved").display().to_string();
    user.0
        .file(name, &format!("[data]\ndir = {moved:?}\n{before}"));
    for client in [User::path_only(), user.home_only()] {
        assert_eq!(user.status(&client, &[]).await["pid"], pid, "{client:?}");
    }
    let again = user.mgp(&shell, &["up", "--detach", "--json"]).await;
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again["pid"], pid);
    user.down(&shell).await;
}

/// Point 1: who cannot reach a kernel learns which one runs, since when, where it listens, and what to
/// type; and no second one is started.
#[tokio::test]
async fn a_kernel_that_cannot_be_reached_is_explained() {
    let Some(user) = User::new().await else {
        return;
    };
    let nowhere = user.mgp(&user.home_only(), &["status"]).await;
    let folder = user.0.at("home/.local/share/mgp").display().to_string();
    assert_eq!(nowhere.status.code(), Some(3));
    for words in ["no kernel is running", "mgp up", &folder] {
        assert!(err(&nowhere).contains(words), "{}", err(&nowhere));
    }
    let shell = user.with("MGP_SOCKET", "own/mgp.sock");
    let pid = user.up(&shell).await;
    let socket = user.0.at("own/mgp.sock");
    std::fs::rename(&socket, user.0.at("own/moved.sock")).unwrap();
    for args in [&["status"][..], &["stdio"]] {
        let refused = user.mgp(&user.home_only(), args).await;
        assert_eq!(refused.status.code(), Some(3), "{}", err(&refused));
        let socket = socket.display().to_string();
        for words in [
            &format!("process {pid}"),
            &folder,
            &socket,
            &format!("kill {pid}"),
        ] {
            assert!(err(&refused).contains(words), "{}", err(&refused));
        }
        assert!(refused.stdout.is_empty());
    }
    std::fs::rename(user.0.at("own/moved.sock"), &socket).unwrap();
    assert_eq!(user.status(&User::path_only(), &[]).await["pid"], pid);
}

/// Who names a file means its kernel: while that one is down, or the file cannot be read, no other kernel of the user is
/// asked in its place.
#[tokio::test]
async fn a_kernel_that_was_named_is_never_replaced_by_another_one() {
    let Some(user) = User::new().await else {
        return;
    };
    let one = user.home_only();
    let pid = user.up(&one).await;
    let at = |name: &str| user.0.at(name).display().to_string();
    let folder = format!("{QUIET}[data]\ndir = \"{}\"\n", at("other/data"));
    user.0.file("folder.toml", &folder);
    let socket = format!("{QUIET}[socket]\npath = \"{}\"\n", at("other/mgp.sock"));
    user.0.file("socket.toml", &socket);
    user.0.file("torn.toml", &folder[..folder.len() - 3]);
    let commands = [
        &["grants", "add", "eve", "it", "-y"][..],
        &["grants", "remove", "eve", "it"],
        &["servers", "restart", "it"],
        &["audit", "tail"],
        &["down"],
    ];
    for name in ["folder.toml", "socket.toml", "torn.toml", "missing.toml"] {
        let by_variable = user.with("MGP_CONFIG_PATH", name);
        let file = at(name);
        for args in commands {
            let by_option = [&["--config", &file], args].concat();
            for (variables, args) in [(&by_variable, args), (&one, &by_option)] {
                let said = user.mgp(variables, args).await;
                assert!(!said.status.success(), "{name}: {args:?} was done");
            }
        }
        // Where its folder is told, this one starts a kernel of its own.
        if name != "folder.toml" {
            let stdio = user.mgp(&by_variable, &["stdio"]).await;
            assert!(!stdio.status.success(), "{name}");
        }
    }
    assert_eq!(user.status(&one, &[]).await["pid"], pid);
    let granted = user.mgp(&one, &["grants", "list", "--json"]).await;
    assert!(!String::from_utf8_lossy(&granted.stdout).contains("eve"));
    // Named by where it is, it is asked, whatever the file says.
    let placed = user.with("MGP_CONFIG_PATH", "torn.toml");
    let data = at("home/.local/share/mgp");
    assert_eq!(
        user.status(&placed, &["--data-dir", &data]).await["pid"],
        pid
    );
    user.down(&one).await;
}
