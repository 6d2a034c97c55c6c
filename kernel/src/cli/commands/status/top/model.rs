//! The state of the screen: the last sample, and the user's choices. Independent of terminal and clock.

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

#[derive(Debug, Default)]
pub(super) struct Model {
    history: History,
    last_sample: Option<Sample>,
    /// The last sample, rendered.
    pub(super) summary: Summary,
    /// The rows that match the filter, in order.
    pub(super) rows: Vec<Row>,
    /// Pending entries.
    pub(super) questions: Vec<PendingRow>,
    pub(super) order: SortOrder,
    pub(super) reversed: bool,
    pub(super) filter: String,
    /// Whether the filter is being typed.
    pub(super) is_filter_focused: bool,
    pub(super) panel: Panel,
    /// The selected server; if it is not listed, the first one.
    selected_server: Option<String>,
    /// The selected pending entry, by its key.
    selected_pending: Option<String>,
    /// The open dialog.
    pub(super) dialog: Option<Dialog>,
    /// The result of a decision, until the next key.
    pub(super) note: Option<String>,
    /// Why the kernel does not answer.
    pub(super) unreachable_reason: Option<String>,
    /// Rows of a page, as last drawn.
    pub(super) page_rows: usize,
}

/// The panel with the selection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Panel {
    #[default]
    Servers,
    Pending,
}

/// An open dialog.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dialog {
    pub(super) subject: DialogSubject,
    /// Lines above the first visible one.
    pub(super) scroll_offset: usize,
    /// Whether the last line has been visible.
    pub(super) is_read_to_end: bool,
}

/// The subject of a dialog.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum DialogSubject {
    Help,
    /// A server, by its id.
    Server(String),
    /// A pending entry as it was when the dialog was opened.
    Entry(Box<PendingRow>),
    /// The same, and the decision that Enter sends.
    Decision(Box<PendingRow>, Decision),
}

/// An action for the terminal or the kernel.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Quit,
    /// Suspend the process, as Ctrl-Z does.
    Suspend,
    /// Send this decision.
    Decide(Decision),
}

impl Model {
    /// Adds a sample.
    pub(super) fn add_sample(&mut self, new_sample: Sample) {
        self.unreachable_reason = None;
        self.history.add(&new_sample);
        self.summary = Summary::new(&new_sample, &self.history);
        self.questions = collect(&new_sample.pending, &new_sample.cluster.waiting);
        self.last_sample = Some(new_sample);
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

    /// Shows a note at the bottom until the next key.
    pub(super) fn set_note(&mut self, note: &str) {
        self.note = Some(first_line(note, NOTE_LENGTH_MAX));
    }

    /// The last sample, if any.
    pub(super) fn last_sample(&self) -> Option<&Sample> {
        self.last_sample.as_ref()
    }

    pub(super) fn history(&self) -> &History {
        &self.history
    }

    /// Rebuilds the rows.
    fn rebuild_rows(&mut self) {
        if let Some(new_sample) = &self.last_sample {
            let order = (self.order, self.reversed);
            self.rows = build_rows(new_sample, &self.history, &self.filter, order);
        }
    }

    /// Closes a dialog whose entry has changed or is gone: a decision is only for the displayed text.
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

    /// The index of the selected server.
    pub(super) fn selected_server_index(&self) -> usize {
        let marked = self.selected_server.as_ref();
        let at = marked.and_then(|id| self.rows.iter().position(|row| row.id == *id));
        at.unwrap_or_default()
    }

    /// The index of the selected entry.
    pub(super) fn selected_pending_index(&self) -> usize {
        let marked = self.selected_pending.as_ref();
        let at = marked.and_then(|key| self.questions.iter().position(|it| it.key == *key));
        at.unwrap_or_default()
    }

    /// The row of a server, whether it matches the filter or not.
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
