//! The servers: columns as there is room for them, the important ones first.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::palette::TopPalette;
use super::pen::{after, first, first_row, put, put_right, width};
use crate::cli::commands::status::top::model::{TopModel, TopPanel};
use crate::cli::commands::status::top::rows::{TopOrder, TopRow};
use crate::cli::commands::status::top::words::{rate, share, span};
use crate::cli::words::bytes;

/// A column of numbers.
struct TopColumn {
    title: &'static str,
    width: u16,
    /// Whose order is that of this column.
    order: Option<TopOrder>,
    cell: fn(&TopRow) -> String,
    /// The lower, the longer it stays when room gets scarce.
    rank: u8,
}

/// The columns from left to right.
static COLUMNS: [TopColumn; 9] = [
    TopColumn {
        title: "CALLS/S",
        width: 8,
        order: Some(TopOrder::Calls),
        cell: |row| rate(row.rates.calls),
        rank: 0,
    },
    TopColumn {
        title: "ERR/S",
        width: 6,
        order: Some(TopOrder::Errors),
        cell: |row| rate(row.rates.errors),
        rank: 2,
    },
    TopColumn {
        title: "P50",
        width: 7,
        order: None,
        cell: |row| span(row.rates.p50_us),
        rank: 5,
    },
    TopColumn {
        title: "P99",
        width: 7,
        order: Some(TopOrder::Latency),
        cell: |row| span(row.rates.p99_us),
        rank: 1,
    },
    TopColumn {
        title: "MEMORY",
        width: 8,
        order: Some(TopOrder::Memory),
        cell: |row| row.memory.map_or("–".into(), bytes),
        rank: 3,
    },
    TopColumn {
        title: "CPU",
        width: 6,
        order: Some(TopOrder::Processor),
        cell: |row| share(row.rates.cpu),
        rank: 4,
    },
    TopColumn {
        title: "RESTARTS",
        width: 9,
        order: Some(TopOrder::Restarts),
        cell: |row| row.restarts.to_string(),
        rank: 6,
    },
    TopColumn {
        title: "CALLS",
        width: 8,
        order: None,
        cell: |row| row.calls.to_string(),
        rank: 7,
    },
    TopColumn {
        title: "NOW",
        width: 4,
        order: None,
        cell: |row| row.in_flight.to_string(),
        rank: 8,
    },
];

/// Cells of the mark before each row.
const MARK: u16 = 2;
/// Least cells of a name, and of a reason beside the numbers.
const NAME: u16 = 8;
const WHY: u16 = 16;
/// On a terminal that is narrower states are cut to `connected`.
const WIDE: u16 = 60;

/// How many cells what is left of the numbers has, and which numbers there are.
struct TableShape {
    name: u16,
    state: u16,
    columns: Vec<&'static TopColumn>,
    /// What is left for reasons.
    why: u16,
}

impl TableShape {
    fn of(room: u16, rows: &[TopRow]) -> Self {
        let longest = rows.iter().map(|row| width(&row.name)).max();
        let longest = u16::try_from(longest.unwrap_or_default()).unwrap_or(u16::MAX);
        let name = longest.clamp(NAME, (room / 4).max(NAME));
        let state = if room < WIDE { 9 } else { 12 };
        let mut left = room.saturating_sub(MARK + name + 1 + state);
        let mut shown: Vec<&TopColumn> = COLUMNS.iter().collect();
        shown.sort_by_key(|column| column.rank);
        shown.retain(|column| {
            let fits = left > column.width;
            left -= if fits { column.width + 1 } else { 0 };
            fits
        });
        let shown = |column: &&TopColumn| shown.iter().any(|it| it.rank == column.rank);
        Self {
            name,
            state,
            columns: COLUMNS.iter().filter(shown).collect(),
            why: if left > WHY { left - 1 } else { 0 },
        }
    }
}

pub(super) fn draw(buffer: &mut Buffer, area: Rect, model: &TopModel, palette: TopPalette) {
    let mut lines = area.rows();
    let Some(head) = lines.next() else {
        return;
    };
    let fit = usize::from(area.height - 1);
    let marked = model.marked_server();
    let first = first_row(marked, model.rows.len(), fit);
    let shown = model.rows.iter().enumerate().skip(first).take(fit);
    let on_screen: Vec<(usize, &TopRow)> = shown.collect();
    let shape = TableShape::of(area.width, &model.rows[first..first + on_screen.len()]);
    header(buffer, head, model, &shape, palette);
    if on_screen.is_empty() && model.look().is_some() {
        if let Some(line) = lines.next() {
            let text = match model.filter.is_empty() {
                true => {
                    "no servers: `mgp servers add --help`; of other nodes: `mgp cluster status`"
                }
                false => "no server has this text in its name, state or reason",
            };
            put(buffer, after(line, MARK), text, palette.dim());
        }
        return;
    }
    for (line, (at, server)) in lines.zip(on_screen) {
        row(buffer, line, server, &shape, palette);
        if model.gone.is_some() {
            buffer.set_style(line, palette.dim());
        }
        if at == marked && model.panel == TopPanel::Servers {
            put(buffer, first_cell(line), ">", palette.title());
            buffer.set_style(line, palette.marked());
        }
    }
}

fn first_cell(line: Rect) -> Rect {
    first(line, 1)
}

fn header(
    buffer: &mut Buffer,
    line: Rect,
    model: &TopModel,
    shape: &TableShape,
    palette: TopPalette,
) {
    let style = palette.title();
    let mark = |order: Option<TopOrder>| match (order == Some(model.order), model.reversed) {
        (false, _) => "",
        (true, false) => "▾",
        (true, true) => "▴",
    };
    let name = match model.filter.is_empty() {
        true => format!("SERVER{}", mark(Some(TopOrder::Name))),
        false => format!("SERVER /{}", model.filter),
    };
    put(buffer, first(after(line, MARK), shape.name), &name, style);
    let mut rest = after(line, MARK + shape.name + 1);
    let state = format!("STATE{}", mark(Some(TopOrder::State)));
    put(buffer, first(rest, shape.state), &state, style);
    rest = after(rest, shape.state + 1);
    for column in &shape.columns {
        let title = format!("{}{}", column.title, mark(column.order));
        put_right(buffer, first(rest, column.width), &title, style);
        rest = after(rest, column.width + 1);
    }
    if shape.why > 0 {
        put(buffer, rest, "WHY", style);
    }
}

/// One server; the numbers of one that is not there are its reason.
fn row(buffer: &mut Buffer, line: Rect, row: &TopRow, shape: &TableShape, palette: TopPalette) {
    let style = palette.condition(row.condition);
    put(
        buffer,
        first(after(line, MARK), shape.name),
        &row.name,
        palette.plain(),
    );
    let mut rest = after(line, MARK + shape.name + 1);
    put(buffer, first(rest, shape.state), &row.state, style);
    rest = after(rest, shape.state + 1);
    if row.word != "connected" && !row.why.is_empty() {
        put(buffer, rest, &row.why, palette.plain());
        return;
    }
    for column in &shape.columns {
        put_right(
            buffer,
            first(rest, column.width),
            &(column.cell)(row),
            palette.plain(),
        );
        rest = after(rest, column.width + 1);
    }
    if shape.why > 0 {
        put(buffer, rest, &row.why, palette.plain());
    }
}
