//! What shells offer at the cursor, asked of the shells themselves.

use std::io::Write;
use std::path::Path;
use std::process::Output;
use std::time::Instant;

use mgp_tests::harness::{DEADLINE, Kernel, Program};
use nix::sys::signal::Signal;
use serde_json::json;

use super::Terminal;

/// Names that would do something in a shell that took them for more than a word.
const HOSTILE: [&str; 6] = [
    "run$(touch hit)",
    "run`touch hit`",
    "run;touch hit",
    "run'\"touch",
    "run\ntouch hit",
    "run\u{1b}[2Jx",
];

/// A kernel with the server `it`, one of whose tools have hostile names.
async fn kernel() -> Kernel {
    let tools: Vec<String> = HOSTILE.iter().map(|name| tool(name)).collect();
    let flags: Vec<&str> = tools.iter().flat_map(|tool| ["--tool", tool]).collect();
    let kernel = Kernel::start(&Program::fixture(&flags).entry("it")).await;
    kernel.connected(&["it"]).await;
    kernel
}

fn tool(name: &str) -> String {
    let schema = json!({"type": "object", "properties": {
        "colour": {"type": "string", "enum": ["red", "blue"]}, "deep": {"type": "boolean"}}});
    json!({"name": name, "description": "x", "inputSchema": schema}).to_string()
}

/// A program in which `mgp` is found, and talks to this kernel; it starts in an empty folder.
fn at(kernel: &Kernel, folder: &Path, program: &str, args: &[&str]) -> Program {
    let mgp = kernel.program(&[]);
    let bin = Path::new(&mgp.command).parent().unwrap().display();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
    let script = r#"cd "$0" && exec "$@""#;
    let folder = folder.display().to_string();
    let outer = Program::new("sh", ["-c", script, &folder, program]).args(args);
    let outer = (mgp.env.iter()).fold(outer, |outer, (name, value)| outer.env(name, value));
    outer.env("PATH", path).env("HOME", folder)
}

fn out(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What bash offers for a line.
const BASH: &str = r#"
eval "$(mgp completions bash)"
COMP_LINE=$1 COMP_POINT=${#1}
_mgp mgp
printf '<%s>\n' "${COMPREPLY[@]}""#;

async fn bash(kernel: &Kernel, line: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let program = at(kernel, folder.path(), "bash", &["-c", BASH, "bash", line]);
    let said = out(&program.output(DEADLINE).await);
    let offered = said
        .lines()
        .filter_map(|l| l.strip_prefix('<')?.strip_suffix('>'));
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "{line}"
    );
    offered
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// bash offers commands, options, and the names that the kernel has.
#[tokio::test]
async fn bash_offers_commands_and_names() {
    let kernel = kernel().await;
    assert_eq!(bash(&kernel, "mgp too").await, ["tools"]);
    assert_eq!(
        bash(&kernel, "mgp tools call --json-").await,
        ["--json-args"]
    );
    assert_eq!(bash(&kernel, "mgp servers restart ").await, ["it"]);
    assert_eq!(bash(&kernel, "mgp tools call it:ec").await, ["echo"]);
    assert_eq!(bash(&kernel, "mgp tools call 'it:ec").await, ["it:echo"]);
    assert_eq!(bash(&kernel, "mgp tools list --server i").await, ["it"]);
    assert_eq!(
        bash(&kernel, "mgp grants add agent.l").await,
        ["agent.local"]
    );
    let keys = bash(&kernel, r"mgp tools call it:run\;touch\ hit ").await;
    assert_eq!(keys, ["colour=", "deep="]);
    let values = bash(&kernel, r"mgp tools call it:run\;touch\ hit colour=b").await;
    assert_eq!(values, ["blue"]);
    let left = bash(&kernel, r"mgp tools call it:run\;touch\ hit colour=blue ").await;
    assert_eq!(left, ["deep="]);
}

/// A name is offered so written that bash takes it for one word; one that no terminal shows is not offered.
#[tokio::test]
async fn completed_name_is_quoted_as_one_word_of_bash() {
    let kernel = kernel().await;
    let offered = bash(&kernel, "mgp tools call it:run").await;
    let want = [
        r"run\$\(touch\ hit\)",
        r"run\`touch\ hit\`",
        r"run\;touch\ hit",
        r#"run\'\"touch"#,
    ];
    assert_eq!(offered, want);
}

/// At a terminal: Tab puts a hostile name there, Enter calls it, and nothing else has happened.
#[tokio::test]
async fn a_hostile_name_that_is_completed_and_run_is_only_a_name() {
    let name = HOSTILE[0];
    let fixture = Program::fixture(&["--tool", &tool(name)]);
    let kernel = Kernel::start(&fixture.entry("it")).await;
    kernel.connected(&["it"]).await;
    let folder = tempfile::tempdir().unwrap();
    let rc = folder.path().join("rc");
    let mut file = std::fs::File::create(&rc).unwrap();
    writeln!(file, "PS1='ready> '\nbind 'set enable-bracketed-paste off'").unwrap();
    writeln!(file, "eval \"$(mgp completions bash)\"").unwrap();
    let rc = rc.display().to_string();
    let mut terminal = Terminal::open();
    let bash = at(
        &kernel,
        folder.path(),
        "bash",
        &["--noprofile", "--rcfile", &rc, "-i"],
    );
    terminal.start(&bash.env("TERM", "dumb"));
    terminal.shows("ready> ").await;
    terminal.keys("mgp tools call it:run\t");
    terminal.shows(r"it:run\$\(touch\ hit\)").await;
    terminal.keys("colour=red; printf 'done <%s>\\n' $?\n");
    terminal.shows("done <0>").await;
    assert!(!folder.path().join("hit").exists());
    terminal.keys("exit\n");
}

/// Without a kernel, and with one that does not answer, there are no names, and nobody waits.
#[tokio::test]
async fn without_a_kernel_there_are_no_names_and_no_waiting() {
    let mut kernel = kernel().await;
    assert_eq!(bash(&kernel, "mgp servers restart ").await, ["it"]);
    kernel.process().signal(Signal::SIGSTOP);
    let program = kernel.program(&["__complete", "fish", "--", "mgp", "servers", "restart", ""]);
    let asked = Instant::now();
    assert_eq!(out(&program.output(DEADLINE).await), "words\n");
    // 200 ms, and a machine that has other things to do.
    assert!(asked.elapsed().as_secs() < 3, "{:?}", asked.elapsed());
    kernel.process().signal(Signal::SIGCONT);
    let none = program.env("MGP_SOCKET", "/nowhere/mgp.sock");
    let none = none.output(DEADLINE).await;
    assert_eq!(out(&none), "words\n");
    assert!(none.stderr.is_empty());
}

/// The other shells, where they are installed; where not, that is said.
fn installed(shell: &str) -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|folder| folder.join(shell).exists());
    if !found {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: what {shell} completes: it is not installed"
        );
    }
    found
}

/// fish offers the same, and a hostile name is a word to it.
#[tokio::test]
async fn fish_offers_commands_and_names() {
    if !installed("fish") {
        return;
    }
    let kernel = kernel().await;
    let folder = tempfile::tempdir().unwrap();
    let offers = async |line: &str| {
        let script = "mgp completions fish | source; complete -C \"$argv[1]\"";
        let args = ["--no-config", "-c", script, line];
        let said = out(&at(&kernel, folder.path(), "fish", &args)
            .output(DEADLINE)
            .await);
        let words = said
            .lines()
            .map(|line| line.split('\t').next().unwrap().to_owned());
        words.collect::<Vec<_>>()
    };
    assert_eq!(offers("mgp too").await, ["tools"]);
    assert_eq!(offers("mgp servers restart ").await, ["it"]);
    assert_eq!(offers("mgp tools call it:ec").await, ["it:echo"]);
    let hostile = offers("mgp tools call it:run").await;
    assert_eq!(hostile.len(), 4, "{hostile:?}");
    assert!(!folder.path().join("hit").exists());
}

/// zsh puts a hostile name there as a word.
#[tokio::test]
async fn zsh_offers_commands_and_names() {
    if !installed("zsh") {
        return;
    }
    let fixture = Program::fixture(&["--tool", &tool(HOSTILE[0])]);
    let kernel = Kernel::start(&fixture.entry("it")).await;
    kernel.connected(&["it"]).await;
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::open();
    let zsh = at(&kernel, folder.path(), "zsh", &["-f", "-i"]);
    terminal.start(&zsh.env("TERM", "dumb"));
    terminal.keys("PS1='rea''dy> '; autoload -Uz compinit && compinit -D -u; eval \"$(mgp completions zsh)\"\n");
    terminal.shows("ready> ").await;
    terminal.keys("mgp servers rest\tit; printf 'first <%s>\\n' $?\n");
    terminal.shows("first <0>").await;
    terminal.keys("mgp tools call it:run\t");
    terminal.shows(r"it:run\$\(touch\ hit\)").await;
    terminal.keys("; printf 'then <%s>\\n' $?\n");
    terminal.shows("then <0>").await;
    assert!(!folder.path().join("hit").exists());
    terminal.keys("exit\n");
}
