//! Shows a command's output while counting its tests and collecting failures.

use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Command, Stdio};
use std::thread;

use crate::failures::Failures;
use crate::tally::Tally;

/// The result of a command.
#[derive(Default)]
pub(crate) struct CommandResult {
    /// Its exit code was 0.
    pub(crate) succeeded: bool,
    /// The counts of its tests.
    pub(crate) tally: Tally,
    /// Its failed tests.
    pub(crate) failures: Failures,
}

/// Runs a command to its end.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn run(command: &mut Command) -> io::Result<CommandResult> {
    if io::stderr().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = piped.stderr(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().expect("stdout is piped");
    let stderr = child.stderr.take().expect("stderr is piped");
    let stderr_copy = thread::spawn(move || copy(stderr, io::stderr()));
    let (tally, failures) = copy(stdout, io::stdout());
    stderr_copy.join().expect("copying does not panic");
    Ok(CommandResult {
        succeeded: child.wait()?.success(),
        tally,
        failures,
    })
}

/// Test programs print their results to stdout.
fn copy(from: impl Read, mut to: impl Write) -> (Tally, Failures) {
    let (mut from, mut line) = (BufReader::new(from), Vec::new());
    let (mut tally, mut failures) = (Tally::default(), Failures::default());
    while matches!(from.read_until(b'\n', &mut line), Ok(1..)) {
        // A closed stdout must not stop the tests.
        let _ = to.write_all(&line).and_then(|()| to.flush());
        let text = String::from_utf8_lossy(&line);
        tally.read_line(&text);
        failures.read_line(&text);
        line.clear();
    }
    (tally, failures)
}
