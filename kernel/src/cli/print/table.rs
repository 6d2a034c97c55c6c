//! Tables without lines, as wide as the terminal.

use std::fmt;
use std::io::IsTerminal;
use std::sync::OnceLock;

use comfy_table::{ContentArrangement, Table, presets};

use crate::cli::text_format::sanitize_line;

/// Narrower terminals count as unknown, because tables would be one letter wide.
const WIDTH_MIN: u16 = 20;

/// The width of the terminal that a pager covers.
static PAGED_WIDTH: OnceLock<Option<u16>> = OnceLock::new();

/// Stores the width of the terminal, before a pager covers it.
pub(super) fn remember_width() {
    PAGED_WIDTH.get_or_init(|| Table::new().width());
}

/// A table whose cells are one line each.
pub(in crate::cli) struct PlainTable(Table);

impl PlainTable {
    pub(in crate::cli) fn add_row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().map(|cell| sanitize_line(&cell)).collect();
        self.0.add_row(cells);
    }

    /// Without trailing spaces.
    pub(in crate::cli) fn trim_fmt(&self) -> String {
        self.0.trim_fmt()
    }
}

impl fmt::Display for PlainTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A table with these column names.
pub(in crate::cli) fn new_table(header: &[&str]) -> PlainTable {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    let covered = PAGED_WIDTH.get().copied().flatten();
    let width = match covered {
        None if std::io::stdout().is_terminal() => table.width(),
        covered => covered,
    };
    if width.is_some_and(|width| width >= WIDTH_MIN) {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        if let Some(width) = covered {
            table.set_width(width);
        }
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    PlainTable(table)
}
