//! `mgp tools call` asks for the arguments that a tool needs, where somebody can be asked.

use mgp_tests::harness::{Kernel, Program};
use serde_json::json;

use super::Terminal;

/// What the terminal runs: the command, and then it says its exit code.
const SHELL: &str = r#"trap : INT; "$@"; printf 'ended <%s>\n' $?"#;

async fn kernel() -> Kernel {
    let schema = json!({"type": "object", "required": ["path", "mode", "size"], "properties": {
        "path": {"type": "string", "description": "Which\u{1b}[2J file"},
        "mode": {"type": "string", "enum": ["read", "write"], "default": "read"},
        "size": {"type": "integer", "minimum": 1},
        "note": {"type": "string"},
    }});
    let tool = json!({"name": "open", "description": "x", "inputSchema": schema}).to_string();
    let kernel = Kernel::start(&Program::fixture(&["--tool", &tool]).entry("it")).await;
    kernel.connected(&["it"]).await;
    kernel
}

pub(super) fn typed(kernel: &Kernel, args: &[&str]) -> Terminal {
    let mgp = kernel.program(args);
    let mut terminal = Terminal::open();
    let shell = Program::new("sh", ["-c", SHELL, "sh", &mgp.command]);
    let shell = shell.args(&mgp.args.iter().map(String::as_str).collect::<Vec<_>>());
    let shell = (mgp.env.iter()).fold(shell, |shell, (name, value)| shell.env(name, value));
    terminal.start(&shell);
    terminal
}

/// What is missing is asked for by its schema, one after the other: a default is taken with Enter, what
/// does not fit is asked again, and what is not needed is not asked for.
#[tokio::test]
async fn missing_arguments_are_prompted_for_at_a_terminal() {
    let kernel = kernel().await;
    let mut terminal = typed(&kernel, &["tools", "call", "it:open"]);
    terminal.shows("file: ").await;
    assert!(!terminal.shown().contains('\u{1b}'), "{}", terminal.shown());
    terminal.keys("/a b\n");
    terminal.shows("mode (1 read, 2 write) [read]: ").await;
    terminal.keys("\n");
    terminal.shows("size: ").await;
    terminal.keys("many\n");
    terminal.shows("a whole number is wanted").await;
    terminal.keys("0\n");
    terminal.shows("at least 1").await;
    terminal.keys("3\n");
    terminal.shows("ended <0>").await;
    let shown = terminal.shown();
    let answer = shown.split("at least 1").nth(1).unwrap();
    for part in ["/a b", "read", "3"] {
        assert!(answer.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("note"), "{shown}");
}

/// What was typed on the line is not asked for; Ctrl-C calls nothing.
#[tokio::test]
async fn only_missing_arguments_are_prompted_for_and_ctrl_c_cancels() {
    let kernel = kernel().await;
    let mut terminal = typed(&kernel, &["tools", "call", "it:open", "path=x", "size=1"]);
    terminal.shows("mode (1 read, 2 write) [read]: ").await;
    assert!(!terminal.shown().contains("file: "), "{}", terminal.shown());
    terminal.keys("2\n");
    terminal.shows("ended <0>").await;
    assert!(terminal.shown().contains("write"), "{}", terminal.shown());

    let mut left = typed(&kernel, &["tools", "call", "it:open"]);
    left.shows("file: ").await;
    left.keys("\u{3}");
    left.shows("ended <130>").await;
    let counted = kernel.mgp_json(&["tools", "call", "it:count"]).await;
    assert_eq!(counted["structuredContent"]["calls"]["open"], 1);
}

/// With `--json`, with one object, and without a terminal nothing is asked: the schema's own words say what
/// is missing.
#[tokio::test]
async fn arguments_are_not_prompted_for_without_a_terminal() {
    let kernel = kernel().await;
    let without = kernel.mgp(&["tools", "call", "it:open"]).await;
    let said = String::from_utf8_lossy(&without.stderr);
    assert!(said.contains("path"), "{said}");
    assert!(!said.contains("needs more"), "{said}");
    assert_ne!(without.status.code(), Some(0));
    for args in [
        &["tools", "call", "it:open", "--json"][..],
        &["tools", "call", "it:open", "--json-args", "{}"],
    ] {
        let terminal = typed(&kernel, args);
        terminal.shows("ended <").await;
        let shown = terminal.shown();
        assert!(!shown.contains("needs more"), "{args:?}: {shown}");
        assert!(!shown.contains("ended <0>"), "{args:?}: {shown}");
    }
}
