//! What waits for a person, each with what answers it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::palette::TopPalette;
use super::pen::{after, first, first_row, put, put_right};
use crate::cli::commands::status::top::model::{TopModel, TopPanel};
use crate::cli::commands::status::top::questions::TopQuestion;
use crate::cli::commands::status::top::rows::TopCondition;
use crate::cli::words::{one_line, time};

/// Cells of the mark, of a name, of the time, and of the command beside them.
const MARK: u16 = 2;
const NAME: u16 = 10;
const TIME: u16 = 8;
const COMMAND: u16 = 30;
/// From this width on there is room for the command.
const WIDE: u16 = 78;
/// Most characters that are looked at.
const TEXT: usize = 300;

pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    model: &TopModel,
    now_ms: u64,
    palette: TopPalette,
) {
    let mut lines = area.rows();
    let Some(head) = lines.next() else {
        return;
    };
    let title = format!("WAITING FOR YOU: {}", model.questions.len());
    put(
        buffer,
        head,
        &title,
        palette.condition(TopCondition::Unsettled),
    );
    let fit = usize::from(area.height - 1);
    let marked = model.marked_question();
    let first = first_row(marked, model.questions.len(), fit);
    let shown = model.questions.iter().enumerate().skip(first).take(fit);
    for (line, (at, question)) in lines.zip(shown) {
        row(buffer, line, question, now_ms, palette);
        if at == marked {
            put(buffer, Rect { width: 1, ..line }, ">", palette.title());
            if model.panel == TopPanel::Questions {
                buffer.set_style(line, palette.marked());
            }
        }
    }
}

fn row(buffer: &mut Buffer, line: Rect, question: &TopQuestion, now_ms: u64, palette: TopPalette) {
    let plain = palette.plain();
    let rest = after(line, MARK);
    put(buffer, first(rest, NAME), &question.name, plain);
    let rest = after(rest, NAME + 1);
    let waited = question
        .since_ms
        .map(|since| time(now_ms.saturating_sub(since)));
    put_right(
        buffer,
        first(rest, TIME),
        &waited.unwrap_or_default(),
        palette.dim(),
    );
    let rest = after(rest, TIME + 1);
    let text = one_line(&question.text, TEXT);
    if line.width < WIDE {
        return put(buffer, rest, &text, plain);
    }
    let room = rest.width.saturating_sub(COMMAND + 1);
    put(buffer, first(rest, room), &text, plain);
    put(
        buffer,
        after(rest, room + 1),
        &question.command,
        palette.dim(),
    );
}
