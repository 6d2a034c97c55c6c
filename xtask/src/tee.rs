//! Shows what a command prints while counting the tests in it.

use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Command, Stdio};
use std::thread;

use crate::tally::Tally;

/// Runs a command to its end: whether it succeeded, and what its tests came to.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn run(command: &mut Command) -> io::Result<(bool, Tally)> {
    if io::stderr().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = piped.stderr(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().expect("stdout is piped");
    let stderr = child.stderr.take().expect("stderr is piped");
    let of_stderr = thread::spawn(move || copy(stderr, io::stderr()));
    let mut tally = copy(stdout, io::stdout());
    tally += of_stderr.join().expect("copying does not panic");
    Ok((child.wait()?.success(), tally))
}

fn copy(from: impl Read, mut to: impl Write) -> Tally {
    let (mut from, mut line, mut tally) = (BufReader::new(from), Vec::new(), Tally::default());
    while matches!(from.read_until(b'\n', &mut line), Ok(1..)) {
        // A reader that went away is no reason to stop testing.
        let _ = to.write_all(&line).and_then(|()| to.flush());
        tally.read(&String::from_utf8_lossy(&line));
        line.clear();
    }
    tally
}
