//! Handles keys.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{Action, Dialog, DialogSubject, FILTER_LENGTH_MAX, Model, Panel};
use crate::cli::commands::status::top::pending_entries::PendingRow;
use crate::cli::commands::status::top::rows::SortOrder;

/// How far a key moves the selection.
#[derive(Clone, Copy)]
enum Movement {
    Rows(isize),
    Pages(isize),
    First,
    Last,
}

impl Movement {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a terminal has more keys than there are uses for"
    )]
    fn from_key(code: KeyCode) -> Option<Self> {
        Some(match code {
            KeyCode::Up | KeyCode::Char('k') => Self::Rows(-1),
            KeyCode::Down | KeyCode::Char('j') => Self::Rows(1),
            KeyCode::PageUp => Self::Pages(-1),
            KeyCode::PageDown | KeyCode::Char(' ') => Self::Pages(1),
            KeyCode::Home | KeyCode::Char('g') => Self::First,
            KeyCode::End | KeyCode::Char('G') => Self::Last,
            _ => return None,
        })
    }

    /// The new row, from row `at` of `rows`.
    fn apply(self, at: usize, rows: usize, page: usize) -> usize {
        let last = rows.saturating_sub(1);
        let page = page.max(1).cast_signed();
        match self {
            Self::Rows(by) => at.saturating_add_signed(by).min(last),
            Self::Pages(by) => at.saturating_add_signed(by * page).min(last),
            Self::First => 0,
            Self::Last => last,
        }
    }
}

impl Model {
    pub(in super::super) fn handle_key(&mut self, key: KeyEvent) -> Option<Action> {
        self.note = None;
        let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        match (key.code, ctrl) {
            (KeyCode::Char('c'), true) => return Some(Action::Quit),
            (KeyCode::Char('z'), true) => return Some(Action::Suspend),
            (KeyCode::Char(_), true) => return None,
            _ => {}
        }
        if self.dialog.is_some() {
            return self.handle_dialog_key(key.code);
        }
        if self.is_filter_focused {
            self.handle_filter_key(key.code);
            return None;
        }
        self.handle_table_key(key.code)
    }

    /// Pasted text is no sequence of keys, and decides nothing.
    pub(in super::super) fn handle_paste(&mut self, text: &str) {
        if self.is_filter_focused {
            let line = text.lines().next().unwrap_or_default();
            line.chars().for_each(|c| self.push_filter_char(c));
            self.rebuild_rows();
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a terminal has more keys than there are uses for"
    )]
    fn handle_table_key(&mut self, code: KeyCode) -> Option<Action> {
        match code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Esc if self.filter.is_empty() => return Some(Action::Quit),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('/') => self.is_filter_focused = true,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.open_dialog(DialogSubject::Help),
            KeyCode::Tab | KeyCode::BackTab => self.switch_panel(),
            KeyCode::Enter => self.open_details(),
            KeyCode::Char('y') => self.open_decision_dialog(true),
            KeyCode::Char('n') => self.open_decision_dialog(false),
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char(c) if order_for_key(c).is_some() => {
                self.order = order_for_key(c).unwrap_or_default();
                self.reversed = false;
            }
            _ => self.move_selection(Movement::from_key(code)?),
        }
        self.rebuild_rows();
        None
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a terminal has more keys than there are uses for"
    )]
    fn handle_filter_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_filter_focused = false,
            KeyCode::Esc => {
                self.is_filter_focused = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(c) => self.push_filter_char(c),
            _ => {}
        }
        self.rebuild_rows();
    }

    /// Only printable characters: the filter is displayed as typed.
    fn push_filter_char(&mut self, c: char) {
        if !c.is_control() && self.filter.chars().count() < FILTER_LENGTH_MAX {
            self.filter.push(c);
        }
    }

    fn handle_dialog_key(&mut self, code: KeyCode) -> Option<Action> {
        let dialog = self.dialog.as_mut()?;
        if let (KeyCode::Enter, DialogSubject::Decision(_, answer)) = (code, &dialog.subject) {
            // Only a text that was displayed can be approved.
            if !dialog.is_read_to_end {
                dialog.scroll_offset += self.page_rows.max(1);
                return None;
            }
            let wish = Action::Decide(answer.clone());
            self.dialog = None;
            return Some(wish);
        }
        if let (KeyCode::Char('y' | 'n'), DialogSubject::Entry(question)) = (code, &dialog.subject)
        {
            let question = question.clone();
            self.open_decision_dialog_for(*question, code == KeyCode::Char('y'));
            return None;
        }
        match Movement::from_key(code) {
            // The end is known when it is drawn.
            Some(step) => {
                dialog.scroll_offset = step.apply(dialog.scroll_offset, usize::MAX, self.page_rows)
            }
            None if matches!(code, KeyCode::Esc | KeyCode::Enter | KeyCode::Char(_)) => {
                self.dialog = None;
            }
            None => {}
        }
        None
    }

    fn switch_panel(&mut self) {
        self.panel = match self.panel {
            Panel::Servers if !self.questions.is_empty() => Panel::Pending,
            Panel::Servers | Panel::Pending => Panel::Servers,
        };
    }

    fn open_details(&mut self) {
        let about = match self.panel {
            Panel::Servers => {
                let row = self.rows.get(self.selected_server_index());
                row.map(|row| DialogSubject::Server(row.id.clone()))
            }
            Panel::Pending => {
                let question = self.questions.get(self.selected_pending_index());
                question.map(|it| DialogSubject::Entry(Box::new(it.clone())))
            }
        };
        if let Some(about) = about {
            self.open_dialog(about);
        }
    }

    /// Shows the selected entry with the decision that Enter would send.
    fn open_decision_dialog(&mut self, yes: bool) {
        match self.questions.get(self.selected_pending_index()).cloned() {
            Some(question) => self.open_decision_dialog_for(question, yes),
            None => self.set_note("nothing waits for you"),
        }
    }

    fn open_decision_dialog_for(&mut self, question: PendingRow, yes: bool) {
        let answer = if yes {
            question.approve.clone()
        } else {
            question.deny.clone()
        };
        match answer {
            Some(answer) if self.unreachable_reason.is_none() => {
                self.open_dialog(DialogSubject::Decision(Box::new(question), answer));
            }
            Some(_) => self.set_note("the kernel does not answer"),
            None => {
                self.dialog = None;
                self.set_note(&format!(
                    "that takes more than a key: {}",
                    question.approve_command
                ));
            }
        }
    }

    fn move_selection(&mut self, step: Movement) {
        match self.panel {
            Panel::Servers => {
                let to = step.apply(
                    self.selected_server_index(),
                    self.rows.len(),
                    self.page_rows,
                );
                self.selected_server = self.rows.get(to).map(|row| row.id.clone());
            }
            Panel::Pending => {
                let to = step.apply(
                    self.selected_pending_index(),
                    self.questions.len(),
                    self.page_rows,
                );
                self.selected_pending = self.questions.get(to).map(|it| it.key.clone());
            }
        }
    }
}

impl Dialog {
    /// The offset of the first line, for so many lines of which `fit` fit.
    pub(in super::super) fn scroll_to(&mut self, lines: usize, fit: usize) -> usize {
        let most = lines.saturating_sub(fit);
        self.scroll_offset = self.scroll_offset.min(most);
        self.is_read_to_end |= self.scroll_offset == most;
        self.scroll_offset
    }
}

fn order_for_key(key: char) -> Option<SortOrder> {
    SortOrder::ALL.into_iter().find(|order| order.key() == key)
}
