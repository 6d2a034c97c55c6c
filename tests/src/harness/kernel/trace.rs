//! `mgp trace`, as a developer of a server runs it.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::{DEADLINE, Kernel, Process};

/// A `mgp trace` with these arguments that follows already.
pub async fn tracing(kernel: &Kernel, args: &[&str]) -> Process {
    let args = [&["trace"], args].concat();
    let mut trace = Process::start("mgp trace", &kernel.program(&args));
    let follows = |said: &str| said.contains("mgp: following").then_some(());
    trace.says("that it follows", DEADLINE, follows).await;
    trace
}

/// Waits for a text in what it printed.
pub async fn shows(trace: &mut Process, text: &str) {
    let shown = |said: &str| said.contains(text).then_some(());
    trace.says(text, DEADLINE, shown).await;
}

/// Ctrl-C; gives what it printed on stdout.
///
/// # Panics
/// When it fails.
pub async fn interrupted(mut trace: Process) -> String {
    trace.signal(Signal::SIGINT);
    let status = trace.end(DEADLINE).await;
    assert!(status.success(), "{status}: {}", trace.stderr());
    trace.stdout()
}

/// From whom, what it is, its method and what it is about.
#[must_use]
pub fn told(message: &Value) -> String {
    let word = |name: &str| message[name].as_str().unwrap_or("-");
    ["from", "kind", "method", "about"].map(word).join(" ")
}

/// The same of each line that `--json` printed.
///
/// # Panics
/// When a line is no JSON.
#[must_use]
pub fn all_told(out: &str) -> Vec<String> {
    let message = |line: &str| serde_json::from_str::<Value>(line).expect("a line is JSON");
    out.lines().map(|line| told(&message(line))).collect()
}
