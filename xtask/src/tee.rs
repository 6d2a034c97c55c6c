//! Shows what a command prints while counting the tests in it and noting which failed.

use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Command, Stdio};
use std::thread;

use crate::failures::Failures;
use crate::tally::Tally;

/// What a command came to.
#[derive(Default)]
pub(crate) struct CommandResult {
    /// It said so itself.
    pub(crate) succeeded: bool,
    /// What its tests came to.
    pub(crate) tally: Tally,
    /// Its tests that failed.
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
    let of_stderr = thread::spawn(move || copy(stderr, io::stderr()));
    let (tally, failures) = copy(stdout, io::stdout());
    of_stderr.join().expect("copying does not panic");
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
        // A reader that went away is no reason to stop testing.
        let _ = to.write_all(&line).and_then(|()| to.flush());
        let text = String::from_utf8_lossy(&line);
        tally.read_line(&text);
        failures.read_line(&text);
        line.clear();
    }
    (tally, failures)
}
