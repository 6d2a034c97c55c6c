//! `mgp top`: on a terminal with somebody at its keys, and for a program.

use mgp_tests::harness::process::usage::below;
use mgp_tests::harness::{DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::LocalFlags;
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::Terminal;

/// What the terminal runs: the command, and then it says its exit code.
const SHELL: &str = r#"trap : INT; "$@"; printf 'ended <%s>\n' $?"#;

/// Lines are read whole and shown, keys send signals.
const AS_EVER: LocalFlags = LocalFlags::ECHO
    .union(LocalFlags::ICANON)
    .union(LocalFlags::ISIG);

/// A server that can be called, and one that waits for a permission.
async fn kernel() -> Kernel {
    let needs =
        json!({"version": "0.2.0", "extensions": ["security"], "permissions_required": ["shell"]});
    let asks = Program::fixture(&["--mgp", &needs.to_string()]).entry("asks");
    let kernel = Kernel::start(&format!("{}{asks}", Program::fixture(&[]).entry("it"))).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// `mgp top` on a screen.
struct ShownTop {
    terminal: Terminal,
    columns: u16,
    rows: u16,
}

impl ShownTop {
    fn start(kernel: &Kernel, columns: u16, rows: u16) -> Self {
        let mgp = kernel.program(&["top", "--interval", "0.5"]);
        let mut terminal = Terminal::sized(columns, rows);
        let shell = Program::new("sh", ["-c", SHELL, "sh", &mgp.command]);
        let shell = shell.args(&mgp.args.iter().map(String::as_str).collect::<Vec<_>>());
        let shell = (mgp.env.iter()).fold(shell, |shell, (name, value)| shell.env(name, value));
        terminal.start(&shell.env("TERM", "xterm"));
        Self {
            terminal,
            columns,
            rows,
        }
    }

    async fn resize(&mut self, columns: u16, rows: u16) {
        self.terminal.resize(columns, rows).await;
        (self.columns, self.rows) = (columns, rows);
    }

    fn lines(&self) -> Vec<String> {
        screen(&self.terminal.shown(), self.columns, self.rows)
    }

    /// Waits until a line of the screen has all these parts.
    async fn shows(&self, parts: &[&str]) {
        let what = format!("a line shows {parts:?}");
        wait_until(&what, DEADLINE, async || {
            let lines = self.lines();
            lines
                .iter()
                .any(|line| parts.iter().all(|part| line.contains(part)))
        })
        .await;
    }

    /// The terminal is as it was before.
    async fn left(&self, code: u8) {
        self.terminal.shows(&format!("ended <{code}>")).await;
        assert!(self.terminal.has(AS_EVER), "lines are read whole and shown");
        let shown = self.terminal.shown();
        let (_, after) = shown.rsplit_once("\u{1b}[?1049l").unwrap();
        assert!(!after.contains("\u{1b}[?1049h"), "{after:?}");
        assert!(
            shown.rfind("\u{1b}[?25h") > shown.rfind("\u{1b}[?25l"),
            "the cursor is seen"
        );
    }
}

/// What stands on a screen of this size behind these bytes: cursor addresses, and the screen that is cleared, is all
/// that is needed of what a terminal knows.
fn screen(bytes: &str, columns: u16, rows: u16) -> Vec<String> {
    let (columns, rows) = (usize::from(columns), usize::from(rows));
    let mut cells = vec![vec![' '; columns]; rows];
    let (mut row, mut column) = (0, 0);
    let mut rest = bytes.chars();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => {
                rest.next();
                let parameters: String = rest
                    .by_ref()
                    .take_while(|c| !c.is_ascii_alphabetic())
                    .collect();
                let sequence = rest.as_str();
                let last = bytes[..bytes.len() - sequence.len()].chars().next_back();
                let mut numbers = parameters
                    .split(';')
                    .map(|it| it.parse::<usize>().unwrap_or(1));
                match last {
                    Some('H') => {
                        row = numbers.next().unwrap_or(1) - 1;
                        column = numbers.next().unwrap_or(1) - 1;
                    }
                    Some('J') => cells = vec![vec![' '; columns]; rows],
                    _ => {}
                }
            }
            '\r' => column = 0,
            '\n' => row += 1,
            c => {
                if let Some(cell) = cells.get_mut(row).and_then(|line| line.get_mut(column)) {
                    *cell = c;
                }
                column += 1;
            }
        }
    }
    let lines = cells
        .into_iter()
        .map(|line| line.into_iter().collect::<String>());
    lines.map(|line| line.trim_end().to_owned()).collect()
}

/// Servers and calls are seen while they happen, a question is answered with two keys, a kernel that is away is told in
/// place and found again; `q` leaves, and the terminal is as it was.
#[tokio::test]
async fn top_shows_activity_and_answers_pending_entries() {
    let kernel = kernel().await;
    let mut top = ShownTop::start(&kernel, 110, 30);
    top.shows(&["  it", "connected", " 0"]).await;
    let mut agent = kernel.stdio_agent(None);
    agent.initialize("2025-11-25", "{}").await.result();
    for _ in 0..20 {
        agent.call("it:echo", json!({"text": "a"})).await.result();
    }
    top.shows(&["  it", "connected", " ms", " 20"]).await;
    top.shows(&["calls", " a second", "p99", " ms"]).await;

    top.terminal.keys("/no such server");
    top.shows(&["no server has this text"]).await;
    top.terminal.keys("\u{1b}");
    top.shows(&["  it", "connected"]).await;

    top.shows(&["WAITING FOR YOU: 1"]).await;
    top.shows(&["shell", "mgp approve "]).await;
    top.terminal.keys("y");
    top.shows(&["Say YES to this"]).await;
    top.shows(&["Enter confirms"]).await;
    top.terminal.keys("\r");
    top.shows(&["approved: "]).await;
    kernel.connected(&["asks"]).await;
    top.shows(&["asks", "connected"]).await;
    let pending = kernel.mgp_json(&["pending"]).await;
    assert_eq!(pending["pending"], json!([]));

    top.resize(40, 12).await;
    wait_until("it is drawn anew", DEADLINE, async || {
        let lines = top.lines();
        lines[0].ends_with('…') && lines.iter().any(|line| line.contains(" it "))
    })
    .await;
    top.resize(110, 30).await;
    drop(agent);
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    top.shows(&["NO ANSWER: no kernel is running"]).await;
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["it"]).await;
    top.shows(&["calls", "0 a second"]).await;
    assert!(!top.lines().iter().any(|line| line.contains("NO ANSWER")));
    top.terminal.keys("q");
    top.left(0).await;
}

/// A signal ends it, and the terminal is as it was; without a terminal it says what to type, and what it shows is text
/// and JSON for programs.
#[tokio::test]
async fn a_signal_restores_the_terminal_and_programs_read_lines() {
    let kernel = kernel().await;
    let top = ShownTop::start(&kernel, 80, 24);
    top.shows(&["  it", "connected"]).await;
    assert!(
        !top.terminal.has(LocalFlags::ICANON),
        "keys are read one by one"
    );
    let mgp = *below(top.terminal.running()).last().unwrap();
    kill(Pid::from_raw(mgp.cast_signed()), Signal::SIGTERM).unwrap();
    top.left(130).await;

    let once = kernel.mgp(&["top", "--once", "--interval", "0.5"]).await;
    let text = String::from_utf8(once.stdout).unwrap();
    for part in [
        "calls ",
        "SERVER",
        "it ",
        "connected",
        "WAITS",
        "mgp approve ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let mgp = kernel.program(&["top", "--json", "--interval", "0.5"]);
    let two = Program::new("sh", ["-c", r#""$@" | head -n 2"#, "sh", &mgp.command]);
    let two = two.args(&mgp.args.iter().map(String::as_str).collect::<Vec<_>>());
    let two = (mgp.env.iter()).fold(two, |two, (name, value)| two.env(name, value));
    let printed = two.output(DEADLINE).await;
    assert!(printed.stderr.is_empty(), "{printed:?}");
    let lines = String::from_utf8(printed.stdout).unwrap();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    for line in &lines {
        assert_eq!(line["calls_per_second"], 0.0, "{line:#}");
        assert_eq!(line["waiting"].as_array().unwrap().len(), 1, "{line:#}");
        let servers = line["servers"].as_array().unwrap();
        assert!(
            servers
                .iter()
                .any(|it| it["id"] == "it" && it["state"] == "connected")
        );
    }

    for (args, code, part) in [
        (&["top"][..], 2, "mgp top --once"),
        (&["top", "--interval", "0.1"], 2, "from 0.5 to 3600"),
        (
            &["top", "--once", "--socket", "/no/such/socket"],
            3,
            "nobody answers at",
        ),
    ] {
        let refused = kernel.mgp(args).await;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(code), "{said}");
        assert!(said.contains(part), "{said}");
    }
}
