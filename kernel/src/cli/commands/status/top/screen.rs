//! Draws the model: only visible rows are processed, however many servers there are.

mod dialog;
mod palette;
mod pending_panel;
mod table;
mod text_cells;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

pub(super) use self::palette::Palette;

use super::model::{Model, Panel};
use super::rows::ServerCondition;
use crate::cli::text_format::first_line;

/// Smaller terminals show nothing useful.
const WIDTH_MIN: u16 = 20;
const HEIGHT_MIN: u16 = 4;
/// Most characters of the pending restart note.
const RESTART_NOTE_WIDTH_MAX: usize = 200;
/// From this height on, pending entries have a panel instead of a line.
const PENDING_PANEL_HEIGHT_MIN: u16 = 8;

/// The screen from top to bottom.
struct ScreenLayout {
    summary: Rect,
    servers: Rect,
    pending: Rect,
    footer: Rect,
}

impl ScreenLayout {
    /// A quarter for the summary, a quarter at most for pending entries, the rest for servers.
    fn new(area: Rect, lines: usize, questions: usize) -> Self {
        let quarter = (area.height / 4).max(1);
        let least = |number: usize, most: u16| u16::try_from(number).unwrap_or(most).min(most);
        let summary = least(lines, quarter);
        let questions = match (questions, area.height) {
            (0, _) => 0,
            (_, ..PENDING_PANEL_HEIGHT_MIN) => 1,
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
            pending: next(questions),
            footer: next(1),
        }
    }
}

pub(super) fn draw(buffer: &mut Buffer, model: &mut Model, now_ms: u64, palette: Palette) {
    let area = *buffer.area();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        if area.height > 0 {
            let line = Rect { height: 1, ..area };
            text_cells::draw_left(buffer, line, "too small; q leaves", palette.plain());
        }
        return;
    }
    let lines = summary_lines(model, palette);
    let layout = ScreenLayout::new(area, lines.len(), model.questions.len());
    for (line, (text, style)) in layout.summary.rows().zip(lines) {
        text_cells::draw_left(buffer, line, &text, style);
    }
    if model.dialog.is_none() {
        let panel = match model.panel {
            Panel::Servers => layout.servers,
            Panel::Pending => layout.pending,
        };
        model.page_rows = usize::from(panel.height.saturating_sub(1));
    }
    table::draw(buffer, layout.servers, model, palette);
    pending_panel::draw(buffer, layout.pending, model, now_ms, palette);
    draw_footer(buffer, layout.footer, model, palette);
    dialog::draw(buffer, area, model, now_ms, palette);
}

/// The lines above the table, the most important first.
fn summary_lines(model: &Model, palette: Palette) -> Vec<(String, ratatui::style::Style)> {
    let summary = &model.summary;
    let (plain, bad) = (palette.plain(), palette.condition(ServerCondition::Failed));
    let Some(sample) = model.last_sample() else {
        let text = model
            .unreachable_reason
            .clone()
            .unwrap_or_else(|| "asking the kernel".into());
        return vec![(text, plain)];
    };
    let mut lines = vec![(summary.kernel.clone(), palette.title())];
    lines.push(match &model.unreachable_reason {
        Some(why) => (format!("NO ANSWER: {why}"), bad),
        None => (format!("calls   {}", summary.calls), plain),
    });
    let mut problems = summary.failures.iter();
    let problem_line = |text: &String| (format!("trouble {text}"), bad);
    lines.extend(problems.next().map(problem_line));
    lines.push((format!("uses    {}", summary.usage), plain));
    let style = if summary.is_cluster_degraded {
        bad
    } else {
        plain
    };
    let cluster = summary.cluster.iter();
    lines.extend(cluster.map(|text| (format!("cluster {text}"), style)));
    lines.push((format!("files   {}", summary.files), plain));
    lines.push((format!("doors   {}", summary.endpoints), plain));
    lines.extend(problems.map(problem_line));
    lines.extend(sample.status.restart.first().map(|text| {
        let text = first_line(text, RESTART_NOTE_WIDTH_MAX);
        (format!("restart {text}"), plain)
    }));
    lines
}

/// The filter being typed, the result of a decision, or the keys.
fn draw_footer(buffer: &mut Buffer, area: Rect, model: &Model, palette: Palette) {
    let (text, style) = match (&model.note, model.is_filter_focused) {
        (Some(note), _) => (note.clone(), palette.title()),
        (None, true) => (
            format!("/{}_   Enter keeps it, Esc takes it back", model.filter),
            palette.title(),
        ),
        (None, false) => (key_hints(model, area.width), palette.dim()),
    };
    text_cells::draw_left(buffer, area, &text, style);
}

/// As many key hints as fit, the most important first.
fn key_hints(model: &Model, width: u16) -> String {
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
