//! Secrets typed at a terminal.

use std::ops::{Deref, DerefMut};

use mgp_store::secrets::{Namespace, SecretStore};
use mgp_tests::harness::process::usage::below;
use mgp_tests::harness::{DEADLINE, Program, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::LocalFlags;
use nix::unistd::Pid;
use secrecy::ExposeSecret;
use tempfile::TempDir;

use super::terminal::Terminal;

/// What the terminal runs: the command; then it says its exit code, and what is typed after that. It is no
/// more ended by Ctrl-C than a shell.
const SHELL: &str =
    r#"trap : INT; "$@"; printf 'ended <%s>\n' $?; read -r left; printf 'left <%s>\n' "$left""#;

/// Lines are read whole and shown, keys send signals.
const AS_EVER: LocalFlags = LocalFlags::ECHO
    .union(LocalFlags::ICANON)
    .union(LocalFlags::ISIG);

/// A terminal in which `mgp servers add keyed --env A --env B` is typed, by a user without a kernel.
struct AddedThere {
    home: TempDir,
    terminal: Terminal,
}

impl Deref for AddedThere {
    type Target = Terminal;

    fn deref(&self) -> &Terminal {
        &self.terminal
    }
}

impl DerefMut for AddedThere {
    fn deref_mut(&mut self) -> &mut Terminal {
        &mut self.terminal
    }
}

impl AddedThere {
    fn open() -> Self {
        Self {
            home: TempDir::new().unwrap(),
            terminal: Terminal::open(),
        }
    }

    fn start(&mut self) {
        let mgp = Program::ours("mgp", ["servers", "add", "keyed"]);
        let within = |name: &str| self.home.path().join(name).display().to_string();
        let program = Program::new("sh", ["-c", SHELL, "sh", &mgp.command])
            .args(&mgp.args.iter().map(String::as_str).collect::<Vec<_>>())
            .args(&["--env", "A", "--env", "B", "--", "true"])
            .env("HOME", within("home"))
            .env("XDG_CONFIG_HOME", within("config"))
            .env("XDG_RUNTIME_DIR", within("run"))
            .env("MGP_DATA_DIR", within("data"))
            .env("MGP_SOCKET", within("mgp.sock"))
            .env("MGP_CONFIG_PATH", "");
        self.terminal.start(&program);
    }

    async fn hides(&self) {
        wait_until("what is typed is not shown", DEADLINE, async || {
            !self.has(LocalFlags::ECHO)
        })
        .await;
    }

    /// The command has ended so, and the terminal is as it was.
    async fn ended(&self, code: i32) {
        self.shows("ended <").await;
        self.shows(&format!("ended <{code}>")).await;
        assert!(self.has(AS_EVER));
    }

    /// What is kept of a value.
    fn kept(&self, name: &str) -> Option<String> {
        let within = |name: &str| self.home.path().join(name);
        let key = within("home/.local/share/mgp/secrets.key");
        let store = SecretStore::new(&within("config/mgp/sealed"), &key);
        let kept = store.get(Namespace::Named, &format!("keyed/{name}"));
        Some(kept.unwrap()?.expose_secret().to_owned())
    }
}

/// A question is shown when what is typed is not shown any more, and no sooner: a secret may be pasted right
/// behind it, and be longer than a line of a terminal.
#[tokio::test]
async fn nothing_is_shown_from_before_the_question_on() {
    let mut terminal = AddedThere::open();
    terminal.holds_back(true);
    terminal.start();
    terminal.hides().await;
    assert_eq!(terminal.shown(), "");
    terminal.holds_back(false);
    terminal.shows("A of keyed (it is not shown): ").await;
    let long = "s3cret".repeat(1500);
    terminal.keys(&format!("{long}\n"));
    terminal.shows("B of keyed (it is not shown): ").await;
    terminal.keys("s3cret\n");
    terminal.ended(0).await;
    assert!(!terminal.shown().contains("s3cret"));
    assert_eq!(terminal.kept("A"), Some(long));
    assert_eq!(terminal.kept("B").as_deref(), Some("s3cret"));
}

/// What is typed ahead is the answer to the next question; what is left when all are answered is shown and
/// read by nobody.
#[tokio::test]
async fn answers_that_come_too_early_count_and_the_rest_is_dropped() {
    let mut terminal = AddedThere::open();
    terminal.keys("ahead\n");
    terminal.holds_back(true);
    terminal.start();
    terminal.hides().await;
    terminal.keys("s3cret\nthe rest of s3cret\n");
    terminal.holds_back(false);
    terminal.ended(0).await;
    assert_eq!(terminal.kept("A").as_deref(), Some("ahead"));
    assert_eq!(terminal.kept("B").as_deref(), Some("s3cret"));
    terminal.keys("next\n");
    terminal.shows("left <next>").await;
    assert!(!terminal.shown().contains("s3cret"));
}

/// Ctrl-C and a signal leave the terminal as it was, and no secret in a file.
#[tokio::test]
async fn interrupted_prompt_restores_the_terminal() {
    for by_key in [true, false] {
        let mut terminal = AddedThere::open();
        terminal.start();
        terminal.shows("A of keyed (it is not shown): ").await;
        terminal.keys("s3cret\n");
        terminal.shows("B of keyed (it is not shown): ").await;
        if by_key {
            terminal.keys("s3c\x03");
            terminal.ended(130).await;
        } else {
            let shell = terminal.running();
            let [mgp] = below(shell)[..] else {
                panic!("the shell runs one command");
            };
            kill(Pid::from_raw(mgp.cast_signed()), Signal::SIGTERM).unwrap();
            terminal.ended(143).await;
        }
        assert!(!terminal.shown().contains("s3c"));
        assert_eq!(terminal.kept("A"), None);
    }
}
