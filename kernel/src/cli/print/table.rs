//! Tables without lines, as wide as the terminal.

use std::io::IsTerminal;

use comfy_table::{ContentArrangement, Table, presets};

/// A terminal of fewer columns says nothing of use, or has none: a table would be one letter wide.
const NARROWEST: u16 = 20;

/// A table with these column names.
pub(in crate::cli) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    if std::io::stdout().is_terminal() && table.width().is_some_and(|width| width >= NARROWEST) {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}
