//! The panel of pending entries, each with its commands.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::palette::Palette;
use super::text_cells::{draw_left, draw_right, first_visible_row, skip_cells, take_cells};
use crate::cli::commands::status::top::model::{Model, Panel};
use crate::cli::commands::status::top::pending_entries::PendingRow;
use crate::cli::commands::status::top::rows::ServerCondition;
use crate::cli::text_format::{first_line, format_duration};

/// Widths of the marker, the name, the time, and the command.
const MARK_WIDTH: u16 = 2;
const NAME_WIDTH: u16 = 10;
const TIME_WIDTH: u16 = 8;
const COMMAND_WIDTH: u16 = 30;
/// From this width on, the command is shown.
const WIDE_LAYOUT_MIN: u16 = 78;
/// Most characters of a text that are processed.
const TEXT_LENGTH_MAX: usize = 300;

pub(super) fn draw(buffer: &mut Buffer, area: Rect, model: &Model, now_ms: u64, palette: Palette) {
    let mut lines = area.rows();
    let Some(head) = lines.next() else {
        return;
    };
    let title = format!("WAITING FOR YOU: {}", model.questions.len());
    draw_left(
        buffer,
        head,
        &title,
        palette.condition(ServerCondition::Degraded),
    );
    let fit = usize::from(area.height - 1);
    let marked = model.selected_pending_index();
    let first = first_visible_row(marked, model.questions.len(), fit);
    let shown = model.questions.iter().enumerate().skip(first).take(fit);
    for (line, (at, question)) in lines.zip(shown) {
        draw_row(buffer, line, question, now_ms, palette);
        if at == marked {
            draw_left(buffer, Rect { width: 1, ..line }, ">", palette.title());
            if model.panel == Panel::Pending {
                buffer.set_style(line, palette.selected());
            }
        }
    }
}

fn draw_row(buffer: &mut Buffer, line: Rect, question: &PendingRow, now_ms: u64, palette: Palette) {
    let plain = palette.plain();
    let rest = skip_cells(line, MARK_WIDTH);
    draw_left(buffer, take_cells(rest, NAME_WIDTH), &question.name, plain);
    let rest = skip_cells(rest, NAME_WIDTH + 1);
    let waited = question
        .since_ms
        .map(|since| format_duration(now_ms.saturating_sub(since)));
    draw_right(
        buffer,
        take_cells(rest, TIME_WIDTH),
        &waited.unwrap_or_default(),
        palette.dim(),
    );
    let rest = skip_cells(rest, TIME_WIDTH + 1);
    let text = first_line(&question.text, TEXT_LENGTH_MAX);
    if line.width < WIDE_LAYOUT_MIN {
        return draw_left(buffer, rest, &text, plain);
    }
    let room = rest.width.saturating_sub(COMMAND_WIDTH + 1);
    draw_left(buffer, take_cells(rest, room), &text, plain);
    draw_left(
        buffer,
        skip_cells(rest, room + 1),
        &question.approve_command,
        palette.dim(),
    );
}
