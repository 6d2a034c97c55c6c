//! Dialogs: help, a server, or a complete pending entry.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Block, Clear, Widget};

use super::palette::Palette;
use super::text_cells::{draw_left, wrap};
use crate::cli::commands::status::top::model::{DialogSubject, Model};
use crate::cli::commands::status::top::number_format::{format_cpu, format_latency, format_rate};
use crate::cli::commands::status::top::pending_entries::{Decision, PendingRow};
use crate::cli::commands::status::top::rows::SortOrder;
use crate::cli::text_format::{format_bytes, format_duration, indent_continuations, sanitize_line};

/// Most lines of a dialog; longer texts must be read elsewhere.
const LINES_MAX: usize = 2000;

pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    model: &mut Model,
    now_ms: u64,
    palette: Palette,
) {
    let Some(dialog) = &model.dialog else {
        return;
    };
    let (title, keys, texts) = match &dialog.subject {
        DialogSubject::Help => ("Help".to_owned(), "Esc back", help_lines()),
        DialogSubject::Server(id) => (sanitize_line(id), "Esc back", server_lines(model, id)),
        DialogSubject::Entry(question) => (
            question.name.clone(),
            "y yes  n no  Esc back",
            pending_lines(question, now_ms),
        ),
        DialogSubject::Decision(question, answer) => {
            let mut texts = pending_lines(question, now_ms);
            texts.push(String::new());
            texts.push(answer_hint(answer).into());
            (question.name.clone(), "Enter confirms  Esc back", texts)
        }
    };
    Clear.render(area, buffer);
    let block = Block::bordered().title(format!(" {title} "));
    let inner = block.inner(area);
    block.render(area, buffer);
    let lines = texts
        .iter()
        .flat_map(|text| wrap(text, usize::from(inner.width)));
    let mut lines: Vec<String> = lines.take(LINES_MAX + 1).collect();
    if let Some(last) = lines.get_mut(LINES_MAX) {
        *last = "… cut here: `mgp pending` shows the rest".into();
    }
    let fit = usize::from(inner.height.saturating_sub(1));
    model.page_rows = fit;
    let Some(dialog) = &mut model.dialog else {
        return;
    };
    let above = dialog.scroll_to(lines.len(), fit);
    for (line, text) in inner.rows().take(fit).zip(lines.iter().skip(above)) {
        draw_left(buffer, line, text, palette.plain());
    }
    let more = lines.len().saturating_sub(above + fit);
    let keys = match more {
        0 => keys.to_owned(),
        more => format!("{more} more lines: PgDn  Esc back"),
    };
    if let Some(line) = inner.rows().next_back() {
        draw_left(buffer, line, &keys, palette.title());
    }
}

/// A pending entry with its complete text.
fn pending_lines(question: &PendingRow, now_ms: u64) -> Vec<String> {
    let mut lines = vec![question.kind.to_owned()];
    lines.extend(
        indent_continuations(&question.text, "  | ")
            .lines()
            .map(str::to_owned),
    );
    lines.push(String::new());
    // A line of the kernel stays one line, whatever a server put into it.
    lines.extend(
        question
            .details
            .iter()
            .map(|line| sanitize_line(&line.replace('\n', "⏎"))),
    );
    lines.push(String::new());
    let waited = question
        .since_ms
        .map(|since| format_duration(now_ms.saturating_sub(since)));
    lines.extend(waited.map(|waited| format!("waits for {waited}")));
    let left = question
        .expires_at_ms
        .map(|until| format_duration(until.saturating_sub(now_ms)));
    lines.extend(left.map(|left| format!("over in {left}")));
    let commands = [
        Some(&question.approve_command),
        question.deny_command.as_ref(),
    ];
    let commands: Vec<&str> = commands.into_iter().flatten().map(String::as_str).collect();
    lines.push(commands.join("   or   "));
    lines
}

fn answer_hint(answer: &Decision) -> &'static str {
    match answer {
        Decision::Approve(_) => "Say YES to this, for good?",
        Decision::Deny(_) => "Say NO to this?",
        Decision::ApproveNode(_) => "Let this node IN?",
        Decision::RefuseNode(_) => "Turn this node AWAY? Its ticket is used up then.",
    }
}

/// A server, and where to find more.
fn server_lines(model: &Model, id: &str) -> Vec<String> {
    let Some(row) = model.row(id) else {
        return vec!["it is not there any more, or not with this filter".into()];
    };
    let rates = &row.rates;
    let name = &row.name;
    vec![
        format!("state      {}", row.state_label),
        format!("why        {}", row.reason),
        format!("restarts   {}", row.restarts),
        format!(
            "calls      {} a second, {} errors",
            format_rate(rates.calls),
            format_rate(rates.errors)
        ),
        format!(
            "           {} since the kernel's start, {} of them errors",
            row.calls, row.errors
        ),
        format!("           {} under way", row.in_flight),
        format!(
            "latency    p50 {}, p99 {}, of the last minute",
            format_latency(rates.p50_us),
            format_latency(rates.p99_us)
        ),
        format!("memory     {}", row.memory.map_or("–".into(), format_bytes)),
        format!("processor  {}", format_cpu(rates.cpu)),
        String::new(),
        format!("mgp servers show {name}"),
        format!("mgp servers logs {name} -f"),
        format!("mgp servers restart {name}"),
    ]
}

fn help_lines() -> Vec<String> {
    let mut lines: Vec<String> = [
        "q, Esc, Ctrl-C      leave",
        "up, down, j, k      move; PgUp, PgDn, Home, End, too",
        "Tab                 to what waits for you, and back",
        "Enter               all about the one that is marked",
        "y, n                answer what waits; Enter confirms",
        "/                   only servers with this text",
        "s, r                next order, reverse the order",
    ]
    .map(str::to_owned)
    .into();
    let orders = SortOrder::ALL.map(|order| {
        format!(
            "{}                   order by {}",
            order.key(),
            order.label()
        )
    });
    lines.extend(orders);
    lines.extend(
        [
            "",
            "Rates are those of the last interval, p50 and p99 those of the",
            "last minute: half of the calls, 99 of 100, took at most so long.",
            "CPU is a share of one processor. NOW are calls under way.",
        ]
        .map(str::to_owned),
    );
    lines
}
