//! Everything on the screen: what was seen last, and what the person chose. Knows neither a terminal nor a clock.

mod keys;

use super::history::TopHistory;
use super::look::TopLook;
use super::questions::{TopAnswer, TopQuestion, waiting};
use super::rows::{TopOrder, TopRow, rows};
use super::summary::TopSummary;
use crate::cli::words::one_line;

/// Longest text of a filter, in characters.
const FILTER: usize = 64;
/// Longest message, in characters.
const NOTE: usize = 300;

/// What is shown.
#[derive(Debug, Default)]
pub(super) struct TopModel {
    history: TopHistory,
    look: Option<TopLook>,
    /// The last look in words.
    pub(super) summary: TopSummary,
    /// Rows of servers that are not filtered out, in their order.
    pub(super) rows: Vec<TopRow>,
    /// What waits.
    pub(super) questions: Vec<TopQuestion>,
    pub(super) order: TopOrder,
    pub(super) reversed: bool,
    pub(super) filter: String,
    /// The filter is being typed.
    pub(super) typing: bool,
    pub(super) panel: TopPanel,
    /// The server that is marked; where it is not there, the first one is.
    server: Option<String>,
    /// The question that is marked, by its key.
    question: Option<String>,
    /// What covers the screen.
    pub(super) dialog: Option<TopDialog>,
    /// What came of an answer, until the next key.
    pub(super) note: Option<String>,
    /// Why the kernel does not answer.
    pub(super) gone: Option<String>,
    /// Rows that a page has, as they were drawn last.
    pub(super) page: usize,
}

/// Where the marked row is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TopPanel {
    #[default]
    Servers,
    Questions,
}

/// What covers the screen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TopDialog {
    pub(super) about: TopSubject,
    /// Lines above the first one shown.
    pub(super) above: usize,
    /// The last line has been on the screen.
    pub(super) read: bool,
}

/// What a dialog is about.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TopSubject {
    Help,
    /// A server, by its id.
    Server(String),
    /// A question as it was when the dialog was opened.
    Question(Box<TopQuestion>),
    /// The same, and the answer that Enter gives.
    Answer(Box<TopQuestion>, TopAnswer),
}

/// What the terminal or the kernel is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TopWish {
    Quit,
    /// Lay the program aside, as Ctrl-Z does.
    Suspend,
    /// Give this answer.
    Answer(TopAnswer),
}

impl TopModel {
    /// Takes a look in.
    pub(super) fn take(&mut self, look: TopLook) {
        self.gone = None;
        self.history.add(&look);
        self.summary = TopSummary::of(&look, &self.history);
        self.questions = waiting(&look.pending, &look.cluster.waiting);
        self.look = Some(look);
        self.arrange();
        self.check_dialog();
        if self.questions.is_empty() {
            self.panel = TopPanel::Servers;
        }
    }

    /// The kernel does not answer, for this reason.
    pub(super) fn lose(&mut self, why: &str) {
        self.gone = Some(one_line(why, NOTE));
    }

    /// Says something at the bottom until the next key.
    pub(super) fn tell(&mut self, note: &str) {
        self.note = Some(one_line(note, NOTE));
    }

    /// The last look, once there was one.
    pub(super) fn look(&self) -> Option<&TopLook> {
        self.look.as_ref()
    }

    /// The last looks.
    pub(super) fn history(&self) -> &TopHistory {
        &self.history
    }

    /// Makes the rows anew.
    fn arrange(&mut self) {
        if let Some(look) = &self.look {
            let order = (self.order, self.reversed);
            self.rows = rows(look, &self.history, &self.filter, order);
        }
    }

    /// An answer is given to what was read: a dialog about something that has become another, or is there no
    /// longer, is closed.
    fn check_dialog(&mut self) {
        let Some(dialog) = &self.dialog else {
            return;
        };
        let shown = match &dialog.about {
            TopSubject::Help | TopSubject::Server(_) => return,
            TopSubject::Question(shown) | TopSubject::Answer(shown, _) => shown,
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
    pub(super) fn marked_server(&self) -> usize {
        let marked = self.server.as_ref();
        let at = marked.and_then(|id| self.rows.iter().position(|row| row.id == *id));
        at.unwrap_or_default()
    }

    /// Where the marked question is.
    pub(super) fn marked_question(&self) -> usize {
        let marked = self.question.as_ref();
        let at = marked.and_then(|key| self.questions.iter().position(|it| it.key == *key));
        at.unwrap_or_default()
    }

    /// The row of a server, filtered out or not.
    pub(super) fn row(&self, id: &str) -> Option<&TopRow> {
        self.rows.iter().find(|row| row.id == id)
    }

    fn open(&mut self, about: TopSubject) {
        self.dialog = Some(TopDialog {
            about,
            above: 0,
            read: false,
        });
    }
}

#[cfg(test)]
mod tests;
