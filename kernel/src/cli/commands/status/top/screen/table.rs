//! The table of servers: as many columns as fit, by priority.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::palette::Palette;
use super::text_cells::{
    display_width, draw_left, draw_right, first_visible_row, skip_cells, take_cells,
};
use crate::cli::commands::status::top::model::{Model, Panel};
use crate::cli::commands::status::top::number_format::{format_cpu, format_latency, format_rate};
use crate::cli::commands::status::top::rows::{Row, SortOrder};
use crate::cli::text_format::format_bytes;

/// A column of numbers.
struct Column {
    title: &'static str,
    width: u16,
    /// The sort order of this column.
    order: Option<SortOrder>,
    cell: fn(&Row) -> String,
    /// Columns with lower numbers are dropped last.
    priority: u8,
}

/// The columns from left to right.
static COLUMNS: [Column; 9] = [
    Column {
        title: "CALLS/S",
        width: 8,
        order: Some(SortOrder::Calls),
        cell: |row| format_rate(row.rates.calls),
        priority: 0,
    },
    Column {
        title: "ERR/S",
        width: 6,
        order: Some(SortOrder::Errors),
        cell: |row| format_rate(row.rates.errors),
        priority: 2,
    },
    Column {
        title: "P50",
        width: 7,
        order: None,
        cell: |row| format_latency(row.rates.p50_us),
        priority: 5,
    },
    Column {
        title: "P99",
        width: 7,
        order: Some(SortOrder::Latency),
        cell: |row| format_latency(row.rates.p99_us),
        priority: 1,
    },
    Column {
        title: "MEMORY",
        width: 8,
        order: Some(SortOrder::Memory),
        cell: |row| row.memory.map_or("–".into(), format_bytes),
        priority: 3,
    },
    Column {
        title: "CPU",
        width: 6,
        order: Some(SortOrder::Cpu),
        cell: |row| format_cpu(row.rates.cpu),
        priority: 4,
    },
    Column {
        title: "RESTARTS",
        width: 9,
        order: Some(SortOrder::Restarts),
        cell: |row| row.restarts.to_string(),
        priority: 6,
    },
    Column {
        title: "CALLS",
        width: 8,
        order: None,
        cell: |row| row.calls.to_string(),
        priority: 7,
    },
    Column {
        title: "NOW",
        width: 4,
        order: None,
        cell: |row| row.in_flight.to_string(),
        priority: 8,
    },
];

/// Width of the marker before each row.
const MARK_WIDTH: u16 = 2;
/// Least width of a name, and of a reason.
const NAME_WIDTH_MIN: u16 = 8;
const REASON_WIDTH_MIN: u16 = 16;
/// On narrower terminals states are truncated to `connected`.
const WIDE_LAYOUT_MIN: u16 = 60;

/// The widths and the visible columns.
struct TableLayout {
    name: u16,
    state: u16,
    columns: Vec<&'static Column>,
    /// The remaining width for reasons.
    reason: u16,
}

impl TableLayout {
    fn fit(room: u16, rows: &[Row]) -> Self {
        let longest = rows.iter().map(|row| display_width(&row.name)).max();
        let longest = u16::try_from(longest.unwrap_or_default()).unwrap_or(u16::MAX);
        let name = longest.clamp(NAME_WIDTH_MIN, (room / 4).max(NAME_WIDTH_MIN));
        let state = if room < WIDE_LAYOUT_MIN { 9 } else { 12 };
        let mut left = room.saturating_sub(MARK_WIDTH + name + 1 + state);
        let mut shown: Vec<&Column> = COLUMNS.iter().collect();
        shown.sort_by_key(|column| column.priority);
        shown.retain(|column| {
            let fits = left > column.width;
            left -= if fits { column.width + 1 } else { 0 };
            fits
        });
        let shown = |column: &&Column| shown.iter().any(|it| it.priority == column.priority);
        Self {
            name,
            state,
            columns: COLUMNS.iter().filter(shown).collect(),
            reason: if left > REASON_WIDTH_MIN { left - 1 } else { 0 },
        }
    }
}

pub(super) fn draw(buffer: &mut Buffer, area: Rect, model: &Model, palette: Palette) {
    let mut lines = area.rows();
    let Some(head) = lines.next() else {
        return;
    };
    let fit = usize::from(area.height - 1);
    let marked = model.selected_server_index();
    let first = first_visible_row(marked, model.rows.len(), fit);
    let shown = model.rows.iter().enumerate().skip(first).take(fit);
    let on_screen: Vec<(usize, &Row)> = shown.collect();
    let shape = TableLayout::fit(area.width, &model.rows[first..first + on_screen.len()]);
    draw_header(buffer, head, model, &shape, palette);
    if on_screen.is_empty() && model.last_sample().is_some() {
        if let Some(line) = lines.next() {
            let text = if model.filter.is_empty() {
                "no servers: `mgp servers add --help`; of other nodes: `mgp cluster status`"
            } else {
                "no server has this text in its name, state or reason"
            };
            draw_left(buffer, skip_cells(line, MARK_WIDTH), text, palette.dim());
        }
        return;
    }
    for (line, (at, server)) in lines.zip(on_screen) {
        draw_row(buffer, line, server, &shape, palette);
        if model.unreachable_reason.is_some() {
            buffer.set_style(line, palette.dim());
        }
        if at == marked && model.panel == Panel::Servers {
            draw_left(buffer, mark_cell(line), ">", palette.title());
            buffer.set_style(line, palette.selected());
        }
    }
}

fn mark_cell(line: Rect) -> Rect {
    take_cells(line, 1)
}

fn draw_header(
    buffer: &mut Buffer,
    line: Rect,
    model: &Model,
    shape: &TableLayout,
    palette: Palette,
) {
    let style = palette.title();
    let mark = |order: Option<SortOrder>| match (order == Some(model.order), model.reversed) {
        (false, _) => "",
        (true, false) => "▾",
        (true, true) => "▴",
    };
    let name = if model.filter.is_empty() {
        format!("SERVER{}", mark(Some(SortOrder::Name)))
    } else {
        format!("SERVER /{}", model.filter)
    };
    draw_left(
        buffer,
        take_cells(skip_cells(line, MARK_WIDTH), shape.name),
        &name,
        style,
    );
    let mut rest = skip_cells(line, MARK_WIDTH + shape.name + 1);
    let state = format!("STATE{}", mark(Some(SortOrder::State)));
    draw_left(buffer, take_cells(rest, shape.state), &state, style);
    rest = skip_cells(rest, shape.state + 1);
    for column in &shape.columns {
        let title = format!("{}{}", column.title, mark(column.order));
        draw_right(buffer, take_cells(rest, column.width), &title, style);
        rest = skip_cells(rest, column.width + 1);
    }
    if shape.reason > 0 {
        draw_left(buffer, rest, "WHY", style);
    }
}

/// A row; the reason replaces the numbers of a server that is not running.
fn draw_row(buffer: &mut Buffer, line: Rect, row: &Row, shape: &TableLayout, palette: Palette) {
    let style = palette.condition(row.condition);
    draw_left(
        buffer,
        take_cells(skip_cells(line, MARK_WIDTH), shape.name),
        &row.name,
        palette.plain(),
    );
    let mut rest = skip_cells(line, MARK_WIDTH + shape.name + 1);
    draw_left(
        buffer,
        take_cells(rest, shape.state),
        &row.state_label,
        style,
    );
    rest = skip_cells(rest, shape.state + 1);
    if row.state_name != "connected" && !row.reason.is_empty() {
        draw_left(buffer, rest, &row.reason, palette.plain());
        return;
    }
    for column in &shape.columns {
        draw_right(
            buffer,
            take_cells(rest, column.width),
            &(column.cell)(row),
            palette.plain(),
        );
        rest = skip_cells(rest, column.width + 1);
    }
    if shape.reason > 0 {
        draw_left(buffer, rest, &row.reason, palette.plain());
    }
}
