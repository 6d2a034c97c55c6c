//! What is printed on stdout. A reader that goes away (`| head`) ends the command, not with a panic.

use std::io::{self, Write};

use super::failure::Failure;

/// Prints a text and a newline.
pub(super) fn say(text: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let printed = writeln!(out, "{text}").and_then(|()| out.flush());
    printed.map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Failure::NobodyReads,
        _ => Failure::from(e),
    })
}
