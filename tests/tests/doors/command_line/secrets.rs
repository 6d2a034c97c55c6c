//! `mgp secrets`: from where a person types a value to the server that names it, and nowhere else.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Output;

use mgp_tests::harness::{Account, Agent, DEADLINE, Program, wait_until};
use serde_json::{Value, json};

/// What opens no port that somebody else may have.
const QUIET: &str = "[http]\nenabled = false\n[discovery]\nembedding = \"off\"\n";
const SECRET: &str = "hush-0123456789";
const NEWER: &str = "hush-9876543210";

/// A session with a keyring that is unlocked, then locked. `$1` is `mgp`, `$2` a value.
const DESKTOP: &str = r#"
unlocked() {
  printf password | gnome-keyring-daemon --foreground --unlock --components=secrets > keyring.log 2>&1 &
  keyring=$!
  for look in $(seq 200); do owned && break; sleep 0.05; done
}
owned() {
  dbus-send --session --print-reply --dest=org.freedesktop.DBus / \
    org.freedesktop.DBus.NameHasOwner string:org.freedesktop.secrets | grep -q true
}
unlocked
printf '%s\n' "$2" | "$1" secrets set github
"$1" secrets list
secret-tool search application mgp name github > found.txt 2>&1
"$1" doctor --json > doctor.json
printf 'passing-1\n' | "$1" secrets set passing
dbus-send --session --print-reply --dest=org.freedesktop.secrets /org/freedesktop/secrets \
  org.freedesktop.Secret.Service.Lock array:objpath:/org/freedesktop/secrets/collection/login > lock.log 2>&1
"$1" doctor > locked.txt 2>&1
printf '%s\n' other | "$1" secrets set other > other.txt 2>&1
printf 'passing-2\n' | "$1" secrets set passing > newer.txt 2>&1
kill $keyring
for look in $(seq 200); do owned || break; sleep 0.05; done
unlocked
secret-tool search application mgp name passing > left.txt 2>&1
"$1" secrets remove passing > removed.txt 2>&1
secret-tool search application mgp name passing > gone.txt 2>&1
kill $keyring
exit 0
"#;

/// A user with two servers, each of which writes down its variables; one of them names a secret.
struct User(Account);

impl User {
    async fn new(more: &str) -> Option<Self> {
        let account = Account::new("").await?;
        let server = |id: &str| {
            let script = r#"env > "$0" && exec "$@""#;
            let file = account.at(&format!("{id}.env")).display().to_string();
            let fixture = Program::fixture(&[]);
            let mut words = vec!["-c".to_owned(), script.to_owned(), file, fixture.command];
            words.extend(fixture.args);
            Program::new("sh", words)
        };
        let named = server("named").env("TOKEN", "x${secret:github}x");
        let entries = named.entry("named") + &server("other").entry("other");
        let text = format!("{QUIET}{more}{entries}");
        account.file("home/.config/mgp/servers.toml", &text);
        Some(Self(account))
    }

    async fn mgp(&self, args: &[&str]) -> Output {
        let home = self.0.home_only();
        let variables: Vec<(&str, &Path)> = home.iter().map(|(n, v)| (*n, v.as_path())).collect();
        self.0.mgp(args, &variables).output(DEADLINE).await
    }

    /// With a value on stdin.
    async fn set(&self, value: &str) -> Output {
        self.set_with(&[], value).await
    }

    /// The same for an agent.
    async fn set_for(&self, agent: &str, value: &str) -> Output {
        self.set_with(&["--agent", agent], value).await
    }

    async fn set_with(&self, options: &[&str], value: &str) -> Output {
        self.0.file("typed", &format!("{value}\n"));
        let words = [&["secrets", "set", "github"], options].concat();
        let mgp = Program::ours("mgp", words);
        let script = r#"exec "$0" "$@" < typed"#;
        let words = ["-c", script, &mgp.command];
        let mut program = Program::new("sh", words);
        program.args.extend(mgp.args);
        let home = self.0.home();
        let output = self.0.runs(&program, &[("HOME", home.as_path())]);
        let output = output.output(DEADLINE).await;
        fs::remove_file(self.0.at("typed")).unwrap();
        output
    }

    async fn json(&self, args: &[&str]) -> Value {
        let output = self.mgp(&[args, &["--json"]].concat()).await;
        assert!(output.status.success(), "{}", words(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    async fn has(&self, server: &str, what: &str) {
        let file = self.0.at(&format!("{server}.env"));
        let told = format!("{server} has {what}");
        wait_until(&told, DEADLINE, async || {
            fs::read_to_string(&file).is_ok_and(|env| env.contains(what))
        })
        .await;
    }
}

fn words(output: &Output) -> String {
    let both = [&*output.stdout, &*output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// The folders below a folder.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let below = paths.filter(|path| path.is_dir());
    below
        .flat_map(|path| [folders(&path), vec![path]].concat())
        .collect()
}

/// The first secret makes the folders for it and for its key. A power cut after the answer takes none of their names.
#[tokio::test]
async fn a_secret_is_answered_once_its_new_folders_are_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().canonicalize().unwrap();
    let mgp = Program::ours("mgp", [""; 0]).command;
    let script = r#"command -v strace > /dev/null || exit 77
printf 'hush-0123456789\n' | strace -f -y -e trace=fsync -o "$HOME/syncs" "$0" secrets set github"#;
    let set = Program::new("sh", ["-c", script, &mgp]);
    let set = set.env("HOME", home.display().to_string());
    let output = set.output(DEADLINE).await;
    if output.status.code() == Some(77) {
        return eprintln!("SKIPPED: no strace here");
    }
    assert!(output.status.success(), "{}", words(&output));
    let syncs = fs::read_to_string(home.join("syncs")).unwrap();
    let made = folders(&home);
    assert!(made.len() > 2, "{made:?}");
    for folder in made {
        let parent = format!("<{}>)", folder.parent().unwrap().display());
        assert!(syncs.contains(&parent), "{folder:?}: {syncs}");
    }
}

/// Every file below a folder that holds a text.
fn holding(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(holding(&path, text));
            continue;
        }
        let bytes = fs::read(&path).unwrap_or_default();
        if bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
    found
}

/// The server that names it has it, the other one does not; no answer, no log and no file says it; a new value
/// reaches a running server.
#[tokio::test]
async fn secret_reaches_only_the_server_that_names_it() {
    let Some(user) = User::new("").await else {
        return;
    };
    let missing = user.json(&["secrets", "list"]).await;
    assert_eq!(missing["secrets"][0]["kept_in"], "missing");
    let set = user.set(SECRET).await;
    assert!(set.status.success(), "{}", words(&set));
    assert!(words(&set).contains("encrypted"), "{}", words(&set));
    let up = user.mgp(&["up", "--detach"]).await;
    assert!(up.status.success(), "{}", words(&up));
    user.has("named", &format!("TOKEN=x{SECRET}x")).await;
    user.has("other", "PATH=").await;
    let other = fs::read_to_string(user.0.at("other.env")).unwrap();
    assert!(!other.contains("hush"), "{other}");

    let listed = user.json(&["secrets", "list"]).await;
    let users = json!([{"server": "named", "key": "env.TOKEN"}]);
    assert_eq!(listed["secrets"][0]["name"], "github");
    assert_eq!(listed["secrets"][0]["used_by"], users);
    let said = [
        words(&user.mgp(&["status", "--json"]).await),
        words(&user.mgp(&["servers", "show", "named"]).await),
        words(&user.mgp(&["doctor", "--json"]).await),
        words(&set),
        listed.to_string(),
    ];
    for said in said {
        assert!(!said.contains("hush"), "{said}");
    }
    let changed = user.set(NEWER).await;
    assert!(changed.status.success(), "{}", words(&changed));
    user.has("named", &format!("TOKEN=x{NEWER}x")).await;
    let report = user.mgp(&["doctor", "--report", "report.txt"]).await;
    assert!(user.0.at("report.txt").exists(), "{}", words(&report));
    // What the server wrote down itself is its own.
    fs::remove_file(user.0.at("named.env")).unwrap();
    for value in [SECRET, NEWER] {
        assert_eq!(holding(&user.0.at(""), value), [""; 0]);
    }
    let gone = user.mgp(&["secrets", "remove", "github"]).await;
    assert!(
        words(&gone).contains("named (env.TOKEN) refers to it"),
        "{}",
        words(&gone)
    );
    let problems = user.json(&["status"]).await["config_problems"].to_string();
    assert!(problems.contains("mgp secrets set github"), "{problems}");
}

/// An agent of this name in front of a running kernel.
async fn agent(user: &User, name: &str) -> Agent {
    let added = user.mgp(&["agents", "add", name]).await;
    assert!(added.status.success(), "{}", words(&added));
    let home = user.0.home_only();
    let variables: Vec<(&str, &Path)> = home.iter().map(|(n, v)| (*n, v.as_path())).collect();
    let mut agent = Agent::over_stdio(&user.0.mgp(&["stdio", "--agent", name], &variables));
    agent.initialize("2025-11-25", "{}").await.result();
    agent
}

/// EXT-155: the instance of an agent has the secret of that agent, and nobody else has; an agent without one reads what to do,
/// and one of the same name does not inherit it.
#[tokio::test]
async fn a_secret_of_an_agent_reaches_the_instance_of_that_agent_alone() {
    let Some(user) = User::new("").await else {
        return;
    };
    let entry = Program::fixture(&[]).env("TOKEN", "Bearer ${secret:agent:github}");
    let text = format!("{QUIET}{}", entry.entry("it"));
    user.0.file("home/.config/mgp/servers.toml", &text);
    let up = user.mgp(&["up", "--detach"]).await;
    assert!(up.status.success(), "{}", words(&up));
    let (mut alice, mut bob) = (agent(&user, "alice").await, agent(&user, "bob").await);
    let set = user.set_for("alice", SECRET).await;
    assert!(set.status.success(), "{}", words(&set));
    assert!(words(&set).contains("it (env.TOKEN)"), "{}", words(&set));

    let token = |result: &Value| result["structuredContent"]["TOKEN"].clone();
    let of_alice = alice.call("it:env", json!({})).await.result();
    assert_eq!(token(&of_alice), format!("Bearer {SECRET}"));
    let refused = bob.call("it:env", json!({})).await.frame;
    assert!(
        refused.contains("`mgp secrets set github --agent agent.bob`"),
        "{refused}"
    );
    user.set_for("bob", NEWER).await;
    let of_bob = bob.call("it:env", json!({})).await.result();
    assert_eq!(token(&of_bob), format!("Bearer {NEWER}"));
    let of_operator = user.json(&["tools", "call", "it:env"]).await;
    let variables = &of_operator["structuredContent"];
    assert!(variables["PATH"].is_string() && variables["TOKEN"].is_null());

    let listed = user.json(&["secrets", "list"]).await;
    let owners = listed["secrets"].as_array().unwrap().iter();
    let owners: Vec<_> = owners.map(|it| (&it["name"], &it["agent"])).collect();
    let name = json!("github");
    let (alices, bobs) = (json!("agent.alice"), json!("agent.bob"));
    assert_eq!(owners, [(&name, &alices), (&name, &bobs)], "{listed}");

    let removed = user.mgp(&["agents", "remove", "alice"]).await;
    assert!(removed.status.success(), "{}", words(&removed));
    let mut other = agent(&user, "alice").await;
    let refused = other.call("it:env", json!({})).await.frame;
    assert!(
        refused.contains("`mgp secrets set github --agent agent.alice`"),
        "{refused}"
    );
    user.mgp(&["down"]).await;
    for value in [SECRET, NEWER] {
        assert_eq!(holding(&user.0.at(""), value), [""; 0]);
    }
}

/// What was typed in the wrong place is not repeated, and what is misspelt is told from what is there.
#[tokio::test]
async fn a_value_is_never_taken_from_the_command_line() {
    let Some(user) = User::new("").await else {
        return;
    };
    let typed = user.mgp(&["secrets", "set", "github", SECRET]).await;
    assert_eq!(typed.status.code(), Some(2));
    assert!(!words(&typed).contains("hush"), "{}", words(&typed));
    assert!(words(&typed).contains("history"), "{}", words(&typed));
    assert!(!user.0.at("home/.config/mgp/sealed").exists());
    user.set(SECRET).await;
    let near = user.mgp(&["secrets", "remove", "githbu"]).await;
    assert!(
        words(&near).contains("did you mean github?"),
        "{}",
        words(&near)
    );
    let empty = user.set("").await;
    assert_eq!(empty.status.code(), Some(2), "{}", words(&empty));
}

/// With a keyring that is unlocked the value is there and in no file; when it is locked, that is said.
#[tokio::test]
async fn the_keyring_of_the_desktop_has_it_while_it_is_unlocked() {
    let Some(user) = User::new("[secrets]\nkeyring = true\n").await else {
        return;
    };
    let programs = ["dbus-run-session", "gnome-keyring-daemon", "secret-tool"];
    let there = |name: &&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(name).exists())
    };
    if let Some(missing) = programs.iter().find(|name| !there(name)) {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: no keyring here: {missing} is not installed"
        );
        return;
    }
    let mgp = Program::ours("mgp", [""; 0]).command;
    let program = Program::new(
        "dbus-run-session",
        ["--", "sh", "-c", DESKTOP, "sh", &mgp, SECRET],
    );
    let (home, run) = (user.0.home(), user.0.at("run/user/0"));
    let variables = [("HOME", home.as_path()), ("XDG_RUNTIME_DIR", run.as_path())];
    let output = user.0.runs(&program, &variables).output(DEADLINE).await;
    let said = words(&output);
    assert!(said.contains("in the keyring of the desktop"), "{said}");
    assert!(
        said.contains("github") && said.contains("keyring"),
        "{said}"
    );
    let found = fs::read_to_string(user.0.at("found.txt")).unwrap();
    assert!(found.contains(SECRET), "another program finds it: {found}");
    fs::remove_file(user.0.at("found.txt")).unwrap();
    let doctor = fs::read_to_string(user.0.at("doctor.json")).unwrap();
    assert!(doctor.contains("all 1 can be read"), "{doctor}");
    let read = |name: &str| fs::read_to_string(user.0.at(name)).unwrap();
    assert!(
        read("locked.txt").contains("the keyring is locked"),
        "{}",
        read("locked.txt")
    );
    assert!(
        read("other.txt").contains("note: not in the keyring"),
        "{}",
        read("other.txt")
    );
    // What the file took while the keyring was locked leaves nothing there that outlives its name.
    assert!(read("newer.txt").contains("note: not in the keyring"));
    assert!(
        read("left.txt").contains("passing-1"),
        "{}",
        read("left.txt")
    );
    assert!(
        !read("gone.txt").contains("passing-1"),
        "{}",
        read("removed.txt")
    );
    assert_eq!(holding(&user.0.at(""), SECRET), [""; 0]);
    // Without its bus it is said where the value is.
    let away = words(&user.mgp(&["doctor"]).await);
    assert!(
        away.contains("the secret github is in the keyring of the desktop"),
        "{away}"
    );
}
