//! Prints to stdout, and asks on the terminal. If the reader goes away (`| head`), the command ends without
//! a panic.

pub(super) mod content;
mod pager;
mod table;

use std::io::{self, BufRead, IsTerminal, Write};

use super::failure::Failure;
use super::text_format::{indent_continuations, sanitize_line};

pub(super) use pager::Pager;
pub(super) use table::{PlainTable, new_table};

/// Says a text and a newline on stderr, where it can be written: a full disk or a closed terminal behind
/// it ends nothing.
pub(super) fn print_error(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints a text and a newline on stdout.
pub(super) fn print_line(text: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::OutputClosed),
        printed => Ok(printed?),
    }
}

/// Prints a text of others on stdout. Beside what this program says on a terminal its lines are marked; in a pipe it
/// stands alone, and stays what it is.
pub(super) fn print_untrusted(text: &str) -> Result<(), Failure> {
    if io::stdout().is_terminal() {
        print_line(indent_continuations(text, "  | "))
    } else {
        print_line(text)
    }
}

/// Asks on stderr for a yes; anything else is a no.
pub(super) fn confirm(question: &str) -> Result<bool, Failure> {
    let mut terminal = io::stderr().lock();
    write!(terminal, "\n{question} [y/N] ")?;
    terminal.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(["y", "yes"].contains(&line.trim().to_lowercase().as_str()))
}

/// Lines in a column of their own, the first one behind their title.
pub(super) fn render_titled(title: &str, width: usize, rows: &[String]) -> String {
    let titles = [title].into_iter().chain(std::iter::repeat(""));
    let rows = titles.zip(rows);
    // A row is one line, whatever is said in it.
    let lines = rows.map(|(title, row)| (title, sanitize_line(row)));
    lines
        .map(|(title, line)| format!("{title:<width$} {line}\n"))
        .collect()
}
