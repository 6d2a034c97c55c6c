//! Draws what the model holds: only what is on the screen is looked at, however many servers there are.

mod dialog;
mod palette;
mod pen;
mod questions;
mod table;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

pub(super) use self::palette::TopPalette;

use super::model::{TopModel, TopPanel};
use super::rows::TopCondition;
use crate::cli::words::one_line;

/// A terminal that is smaller shows nothing of use.
const NARROWEST: u16 = 20;
const LOWEST: u16 = 4;
/// Most characters of what waits for the next start.
const RESTART: usize = 200;
/// From this height on, what waits has a panel, and not only a line.
const PANELS: u16 = 8;

/// The screen from top to bottom.
struct TopLayout {
    summary: Rect,
    servers: Rect,
    questions: Rect,
    footer: Rect,
}

impl TopLayout {
    /// A quarter for what is above, a quarter at most for what waits, the rest for servers.
    fn of(area: Rect, lines: usize, questions: usize) -> Self {
        let quarter = (area.height / 4).max(1);
        let least = |number: usize, most: u16| u16::try_from(number).unwrap_or(most).min(most);
        let summary = least(lines, quarter);
        let questions = match (questions, area.height) {
            (0, _) => 0,
            (_, ..PANELS) => 1,
            (many, _) => 1 + least(many, quarter),
        };
        let servers = area.height - summary - questions - 1;
        let mut y = area.y;
        let mut next = |height: u16| {
            let part = Rect::new(area.x, y, area.width, height);
            y += height;
            part
        };
        Self {
            summary: next(summary),
            servers: next(servers),
            questions: next(questions),
            footer: next(1),
        }
    }
}

/// Draws all of it.
pub(super) fn draw(buffer: &mut Buffer, model: &mut TopModel, now_ms: u64, palette: TopPalette) {
    let area = *buffer.area();
    if area.width < NARROWEST || area.height < LOWEST {
        if area.height > 0 {
            let line = Rect { height: 1, ..area };
            pen::put(buffer, line, "too small; q leaves", palette.plain());
        }
        return;
    }
    let lines = lines(model, palette);
    let layout = TopLayout::of(area, lines.len(), model.questions.len());
    for (line, (text, style)) in layout.summary.rows().zip(lines) {
        pen::put(buffer, line, &text, style);
    }
    if model.dialog.is_none() {
        let panel = match model.panel {
            TopPanel::Servers => layout.servers,
            TopPanel::Questions => layout.questions,
        };
        model.page = usize::from(panel.height.saturating_sub(1));
    }
    table::draw(buffer, layout.servers, model, palette);
    questions::draw(buffer, layout.questions, model, now_ms, palette);
    footer(buffer, layout.footer, model, palette);
    dialog::draw(buffer, area, model, now_ms, palette);
}

/// What is above the table, the most important first.
fn lines(model: &TopModel, palette: TopPalette) -> Vec<(String, ratatui::style::Style)> {
    let summary = &model.summary;
    let (plain, bad) = (palette.plain(), palette.condition(TopCondition::Failed));
    let Some(look) = model.look() else {
        let text = model
            .gone
            .clone()
            .unwrap_or_else(|| "asking the kernel".into());
        return vec![(text, plain)];
    };
    let mut lines = vec![(summary.kernel.clone(), palette.title())];
    lines.push(match &model.gone {
        Some(why) => (format!("NO ANSWER: {why}"), bad),
        None => (format!("calls   {}", summary.calls), plain),
    });
    let mut troubles = summary.troubles.iter();
    let trouble = |text: &String| (format!("trouble {text}"), bad);
    lines.extend(troubles.next().map(trouble));
    lines.push((format!("uses    {}", summary.uses), plain));
    let style = if summary.cluster_ails { bad } else { plain };
    let cluster = summary.cluster.iter();
    lines.extend(cluster.map(|text| (format!("cluster {text}"), style)));
    lines.push((format!("files   {}", summary.files), plain));
    lines.push((format!("doors   {}", summary.doors), plain));
    lines.extend(troubles.map(trouble));
    lines.extend(look.status.restart.first().map(|text| {
        let text = one_line(text, RESTART);
        (format!("restart {text}"), plain)
    }));
    lines
}

/// What is being typed, what came of an answer, or which keys there are.
fn footer(buffer: &mut Buffer, area: Rect, model: &TopModel, palette: TopPalette) {
    let (text, style) = match (&model.note, model.typing) {
        (Some(note), _) => (note.clone(), palette.title()),
        (None, true) => (
            format!("/{}_   Enter keeps it, Esc takes it back", model.filter),
            palette.title(),
        ),
        (None, false) => (keys(model, area.width), palette.dim()),
    };
    pen::put(buffer, area, &text, style);
}

/// As many as there is room for, the most important first.
fn keys(model: &TopModel, width: u16) -> String {
    let waits = !model.questions.is_empty();
    let all = [
        (true, "q quit"),
        (waits, "y/n answer"),
        (true, "/ filter"),
        (true, "s order"),
        (true, "? help"),
        (waits, "Tab panel"),
        (true, "Enter more"),
        (true, "r reverse"),
    ];
    let mut line = String::new();
    for (_, key) in all.iter().filter(|(shown, _)| *shown) {
        let more = if line.is_empty() {
            key.len()
        } else {
            key.len() + 2
        };
        if line.len() + more <= usize::from(width) {
            line += if line.is_empty() { "" } else { "  " };
            line += key;
        }
    }
    line
}

#[cfg(test)]
mod tests;
