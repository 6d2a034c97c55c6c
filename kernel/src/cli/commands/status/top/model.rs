//! Everything on the screen: what was seen last, and what the person chose. Knows neither a terminal nor a clock.

mod keys;

use super::history::History;
use super::pending_entries::{Decision, PendingRow, collect};
use super::rows::{Row, SortOrder, build_rows};
use super::sample::Sample;
use super::summary::Summary;
use crate::cli::text_format::first_line;

/// Longest text of a filter, in characters.
const FILTER_LENGTH_MAX: usize = 64;
/// Longest message, in characters.
const NOTE_LENGTH_MAX: usize = 300;

/// What is shown.
#[derive(Debug, Default)]
pub(super) struct Model {
    history: History,
    last_sample: Option<Sample>,
    /// The last look in words.
    pub(super) summary: Summary,
    /// Rows of servers that are not filtered out, in their order.
    pub(super) rows: Vec<Row>,
    /// What waits.
    pub(super) questions: Vec<PendingRow>,
    pub(super) order: SortOrder,
    pub(super) reversed: bool,
    pub(super) filter: String,
    /// The filter is being typed.
    pub(super) is_filter_focused: bool,
    pub(super) panel: Panel,
    /// The server that is marked; where it is not there, the first one is.
    selected_server: Option<String>,
    /// The question that is marked, by its key.
    selected_pending: Option<String>,
    /// What covers the screen.
    pub(super) dialog: Option<Dialog>,
    /// What came of an answer, until the next key.
    pub(super) note: Option<String>,
    /// Why the kernel does not answer.
    pub(super) unreachable_reason: Option<String>,
    /// Rows that a page has, as they were drawn last.
    pub(super) page_rows: usize,
}

/// Where the marked row is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Panel {
    #[default]
    Servers,
    Pending,
}

/// What covers the screen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dialog {
    pub(super) subject: DialogSubject,
    /// Lines above the first one shown.
    pub(super) scroll_offset: usize,
    /// The last line has been on the screen.
    pub(super) is_read_to_end: bool,
}

/// What a dialog is about.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum DialogSubject {
    Help,
    /// A server, by its id.
    Server(String),
    /// A question as it was when the dialog was opened.
    Entry(Box<PendingRow>),
    /// The same, and the answer that Enter gives.
    Decision(Box<PendingRow>, Decision),
}

/// What the terminal or the kernel is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Quit,
    /// Lay the program aside, as Ctrl-Z does.
    Suspend,
    /// Give this answer.
    Decide(Decision),
}

impl Model {
    /// Takes a look in.
    pub(super) fn add_sample(&mut self, look: Sample) {
        self.unreachable_reason = None;
        self.history.add(&look);
        self.summary = Summary::new(&look, &self.history);
        self.questions = collect(&look.pending, &look.cluster.waiting);
        self.last_sample = Some(look);
        self.rebuild_rows();
        self.close_stale_dialog();
        if self.questions.is_empty() {
            self.panel = Panel::Servers;
        }
    }

    /// The kernel does not answer, for this reason.
    pub(super) fn set_unreachable(&mut self, why: &str) {
        self.unreachable_reason = Some(first_line(why, NOTE_LENGTH_MAX));
    }

    /// Says something at the bottom until the next key.
    pub(super) fn set_note(&mut self, note: &str) {
        self.note = Some(first_line(note, NOTE_LENGTH_MAX));
    }

    /// The last look, once there was one.
    pub(super) fn last_sample(&self) -> Option<&Sample> {
        self.last_sample.as_ref()
    }

    /// The last looks.
    pub(super) fn history(&self) -> &History {
        &self.history
    }

    /// Makes the rows anew.
    fn rebuild_rows(&mut self) {
        if let Some(look) = &self.last_sample {
            let order = (self.order, self.reversed);
            self.rows = build_rows(look, &self.history, &self.filter, order);
        }
    }

    /// An answer is given to what was read: a dialog about something that has become another, or is there no
    /// longer, is closed.
    fn close_stale_dialog(&mut self) {
        let Some(dialog) = &self.dialog else {
            return;
        };
        let shown = match &dialog.subject {
            DialogSubject::Help | DialogSubject::Server(_) => return,
            DialogSubject::Entry(shown) | DialogSubject::Decision(shown, _) => shown,
        };
        let now = self.questions.iter().find(|it| it.key == shown.key);
        let note = match now {
            Some(now) if *now == **shown => return,
            Some(_) => format!("{} is another question now: look at it again", shown.name),
            None => format!("{} does not wait any more", shown.name),
        };
        self.dialog = None;
        self.note = Some(note);
    }

    /// Where the marked server is among the rows.
    pub(super) fn selected_server_index(&self) -> usize {
        let marked = self.selected_server.as_ref();
        let at = marked.and_then(|id| self.rows.iter().position(|row| row.id == *id));
        at.unwrap_or_default()
    }

    /// Where the marked question is.
    pub(super) fn selected_pending_index(&self) -> usize {
        let marked = self.selected_pending.as_ref();
        let at = marked.and_then(|key| self.questions.iter().position(|it| it.key == *key));
        at.unwrap_or_default()
    }

    /// The row of a server, filtered out or not.
    pub(super) fn row(&self, id: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }

    fn open_dialog(&mut self, about: DialogSubject) {
        self.dialog = Some(Dialog {
            subject: about,
            scroll_offset: 0,
            is_read_to_end: false,
        });
    }
}

#[cfg(test)]
mod tests;
