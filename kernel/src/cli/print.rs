//! Prints to stdout, and prompts on the terminal. If the reader goes away (`| head`), the command ends without a
//! panic.

pub(super) mod content;
mod pager;
mod table;

use std::io::{self, BufRead, IsTerminal, Write};

use super::failure::Failure;
use super::text_format::{indent_continuations, sanitize_line};

pub(super) use pager::Pager;
pub(super) use table::{PlainTable, new_table};

/// Prints a line on stderr. Failures are ignored: a full disk or a closed terminal must not end the program.
pub(super) fn print_error(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints a line on stdout.
pub(super) fn print_line(text: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::OutputClosed),
        printed => Ok(printed?),
    }
}

/// Prints a text of others on stdout. On a terminal its lines are marked, next to this program's own ones; in a pipe it
/// is unchanged.
pub(super) fn print_untrusted(text: &str) -> Result<(), Failure> {
    if io::stdout().is_terminal() {
        print_line(indent_continuations(text, "  | "))
    } else {
        print_line(text)
    }
}

/// Prompts on stderr; only yes confirms.
pub(super) fn confirm(question: &str) -> Result<bool, Failure> {
    let mut terminal = io::stderr().lock();
    write!(terminal, "\n{question} [y/N] ")?;
    terminal.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(["y", "yes"].contains(&line.trim().to_lowercase().as_str()))
}

/// Lines in a column, the first one after their title.
pub(super) fn render_titled(title: &str, width: usize, rows: &[String]) -> String {
    let titles = [title].into_iter().chain(std::iter::repeat(""));
    let rows = titles.zip(rows);
    // A row is one line, whatever it contains.
    let lines = rows.map(|(title, row)| (title, sanitize_line(row)));
    lines
        .map(|(title, line)| format!("{title:<width$} {line}\n"))
        .collect()
}
