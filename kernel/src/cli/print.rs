//! Prints to stdout. If the reader goes away (`| head`), the command ends without a panic.

pub(super) mod content;
mod table;

use std::io::{self, Write};

use super::failure::Failure;

pub(super) use table::table;

/// Says a text and a newline on stderr, where it can be written: a full disk or a closed terminal behind
/// it ends nothing.
pub(super) fn report(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints a text and a newline on stdout.
pub(super) fn say(text: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::NobodyReads),
        printed => Ok(printed?),
    }
}

/// Lines in a column of their own, the first one behind their title.
pub(super) fn titled(title: &str, width: usize, rows: &[String]) -> String {
    let titles = [title].into_iter().chain(std::iter::repeat(""));
    let rows = titles.zip(rows);
    rows.map(|(title, row)| format!("{title:<width$} {row}\n"))
        .collect()
}
