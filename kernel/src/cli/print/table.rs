//! Tables without lines, as wide as the terminal.

use std::io::IsTerminal;

use comfy_table::{ContentArrangement, Table, presets};

/// A table with these column names.
pub(in crate::cli) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    if std::io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}
