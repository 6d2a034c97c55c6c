//! What covers the screen: help, a server, or a question with all there is to read before it is answered.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Block, Clear, Widget};

use super::palette::TopPalette;
use super::pen::{put, wrapped};
use crate::cli::commands::status::top::model::{TopModel, TopSubject};
use crate::cli::commands::status::top::questions::{TopAnswer, TopQuestion};
use crate::cli::commands::status::top::rows::TopOrder;
use crate::cli::commands::status::top::words::{rate, share, span};
use crate::cli::words::{bytes, indented, plain, time};

/// Most lines of a dialog: what is longer is to be read where it is whole.
const LINES: usize = 2000;

pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    model: &mut TopModel,
    now_ms: u64,
    palette: TopPalette,
) {
    let Some(dialog) = &model.dialog else {
        return;
    };
    let (title, keys, texts) = match &dialog.about {
        TopSubject::Help => ("Help".to_owned(), "Esc back", help()),
        TopSubject::Server(id) => (plain(id), "Esc back", server(model, id)),
        TopSubject::Question(question) => (
            question.name.clone(),
            "y yes  n no  Esc back",
            asked(question, now_ms),
        ),
        TopSubject::Answer(question, answer) => {
            let mut texts = asked(question, now_ms);
            texts.push(String::new());
            texts.push(would(answer).into());
            (question.name.clone(), "Enter confirms  Esc back", texts)
        }
    };
    Clear.render(area, buffer);
    let block = Block::bordered().title(format!(" {title} "));
    let inner = block.inner(area);
    block.render(area, buffer);
    let lines = texts
        .iter()
        .flat_map(|text| wrapped(text, usize::from(inner.width)));
    let mut lines: Vec<String> = lines.take(LINES + 1).collect();
    if let Some(last) = lines.get_mut(LINES) {
        *last = "… cut here: `mgp pending` shows the rest".into();
    }
    let fit = usize::from(inner.height.saturating_sub(1));
    model.page = fit;
    let Some(dialog) = &mut model.dialog else {
        return;
    };
    let above = dialog.scrolled(lines.len(), fit);
    for (line, text) in inner.rows().take(fit).zip(lines.iter().skip(above)) {
        put(buffer, line, text, palette.plain());
    }
    let more = lines.len().saturating_sub(above + fit);
    let keys = match more {
        0 => keys.to_owned(),
        more => format!("{more} more lines: PgDn  Esc back"),
    };
    if let Some(line) = inner.rows().next_back() {
        put(buffer, line, &keys, palette.title());
    }
}

/// A question with all there is to read.
fn asked(question: &TopQuestion, now_ms: u64) -> Vec<String> {
    let mut lines = vec![question.kind.to_owned()];
    lines.extend(indented(&question.text, "  | ").lines().map(str::to_owned));
    lines.push(String::new());
    // A line of the kernel's stays one, whatever a server put into it.
    lines.extend(
        question
            .details
            .iter()
            .map(|line| plain(&line.replace('\n', "⏎"))),
    );
    lines.push(String::new());
    let waited = question
        .since_ms
        .map(|since| time(now_ms.saturating_sub(since)));
    lines.extend(waited.map(|waited| format!("waits for {waited}")));
    let left = question
        .until_ms
        .map(|until| time(until.saturating_sub(now_ms)));
    lines.extend(left.map(|left| format!("over in {left}")));
    let commands = [Some(&question.command), question.refusal.as_ref()];
    let commands: Vec<&str> = commands.into_iter().flatten().map(String::as_str).collect();
    lines.push(commands.join("   or   "));
    lines
}

fn would(answer: &TopAnswer) -> &'static str {
    match answer {
        TopAnswer::Approve(_) => "Say YES to this, for good?",
        TopAnswer::Deny(_) => "Say NO to this?",
        TopAnswer::LetIn(_) => "Let this node IN?",
        TopAnswer::TurnAway(_) => "Turn this node AWAY? Its ticket is used up then.",
    }
}

/// A server, and where to read on.
fn server(model: &TopModel, id: &str) -> Vec<String> {
    let Some(row) = model.row(id) else {
        return vec!["it is not there any more, or not with this filter".into()];
    };
    let rates = &row.rates;
    let name = &row.name;
    vec![
        format!("state      {}", row.state),
        format!("why        {}", row.why),
        format!("restarts   {}", row.restarts),
        format!(
            "calls      {} a second, {} errors",
            rate(rates.calls),
            rate(rates.errors)
        ),
        format!(
            "           {} since the kernel's start, {} of them errors",
            row.calls, row.errors
        ),
        format!("           {} under way", row.in_flight),
        format!(
            "latency    p50 {}, p99 {}, of the last minute",
            span(rates.p50_us),
            span(rates.p99_us)
        ),
        format!("memory     {}", row.memory.map_or("–".into(), bytes)),
        format!("processor  {}", share(rates.cpu)),
        String::new(),
        format!("mgp servers show {name}"),
        format!("mgp servers logs {name} -f"),
        format!("mgp servers restart {name}"),
    ]
}

fn help() -> Vec<String> {
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
    let orders = TopOrder::ALL.map(|order| {
        format!(
            "{}                   order by {}",
            order.key(),
            order.word()
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
