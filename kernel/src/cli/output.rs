//! What is printed on stdout. A reader that goes away (`| head`) ends the command, not with a panic.

use std::io::{self, Write};

use super::failure::Failure;

/// Prints a text and a newline.
pub(super) fn say(text: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::NobodyReads),
        printed => Ok(printed?),
    }
}
