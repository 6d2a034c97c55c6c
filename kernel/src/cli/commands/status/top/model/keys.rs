//! What each key does.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{FILTER, TopDialog, TopModel, TopPanel, TopSubject, TopWish};
use crate::cli::commands::status::top::questions::TopQuestion;
use crate::cli::commands::status::top::rows::TopOrder;

/// How far a key moves.
#[derive(Clone, Copy)]
enum TopStep {
    Rows(isize),
    Pages(isize),
    First,
    Last,
}

impl TopStep {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a terminal has more keys than there are uses for"
    )]
    fn of(code: KeyCode) -> Option<Self> {
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

    /// From this row to which of so many.
    fn from(self, at: usize, rows: usize, page: usize) -> usize {
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

impl TopModel {
    /// A key was hit.
    pub(in super::super) fn key(&mut self, key: KeyEvent) -> Option<TopWish> {
        self.note = None;
        let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        match (key.code, ctrl) {
            (KeyCode::Char('c'), true) => return Some(TopWish::Quit),
            (KeyCode::Char('z'), true) => return Some(TopWish::Suspend),
            (KeyCode::Char(_), true) => return None,
            _ => {}
        }
        if self.dialog.is_some() {
            return self.key_of_dialog(key.code);
        }
        if self.typing {
            self.key_of_filter(key.code);
            return None;
        }
        self.key_of_table(key.code)
    }

    /// A text was pasted: it is no row of keys, and answers nothing.
    pub(in super::super) fn paste(&mut self, text: &str) {
        if self.typing {
            let line = text.lines().next().unwrap_or_default();
            line.chars().for_each(|c| self.type_in(c));
            self.arrange();
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a terminal has more keys than there are uses for"
    )]
    fn key_of_table(&mut self, code: KeyCode) -> Option<TopWish> {
        match code {
            KeyCode::Char('q') => return Some(TopWish::Quit),
            KeyCode::Esc if self.filter.is_empty() => return Some(TopWish::Quit),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.open(TopSubject::Help),
            KeyCode::Tab | KeyCode::BackTab => self.change_panel(),
            KeyCode::Enter => self.look_closer(),
            KeyCode::Char('y') => self.ask(true),
            KeyCode::Char('n') => self.ask(false),
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char(c) if order(c).is_some() => {
                self.order = order(c).unwrap_or_default();
                self.reversed = false;
            }
            _ => self.step(TopStep::of(code)?),
        }
        self.arrange();
        None
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a terminal has more keys than there are uses for"
    )]
    fn key_of_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(c) => self.type_in(c),
            _ => {}
        }
        self.arrange();
    }

    /// Only what can be seen: a filter is shown as it was typed.
    fn type_in(&mut self, c: char) {
        if !c.is_control() && self.filter.chars().count() < FILTER {
            self.filter.push(c);
        }
    }

    fn key_of_dialog(&mut self, code: KeyCode) -> Option<TopWish> {
        let dialog = self.dialog.as_mut()?;
        if let (KeyCode::Enter, TopSubject::Answer(_, answer)) = (code, &dialog.about) {
            // Nobody agrees to what he has not had before him.
            if !dialog.read {
                dialog.above += self.page.max(1);
                return None;
            }
            let wish = TopWish::Answer(answer.clone());
            self.dialog = None;
            return Some(wish);
        }
        if let (KeyCode::Char('y' | 'n'), TopSubject::Question(question)) = (code, &dialog.about) {
            let question = question.clone();
            self.ask_about(*question, code == KeyCode::Char('y'));
            return None;
        }
        match TopStep::of(code) {
            // The end is known to who draws it.
            Some(step) => dialog.above = step.from(dialog.above, usize::MAX, self.page),
            None if matches!(code, KeyCode::Esc | KeyCode::Enter | KeyCode::Char(_)) => {
                self.dialog = None;
            }
            None => {}
        }
        None
    }

    fn change_panel(&mut self) {
        self.panel = match self.panel {
            TopPanel::Servers if !self.questions.is_empty() => TopPanel::Questions,
            TopPanel::Servers | TopPanel::Questions => TopPanel::Servers,
        };
    }

    fn look_closer(&mut self) {
        let about = match self.panel {
            TopPanel::Servers => {
                let row = self.rows.get(self.marked_server());
                row.map(|row| TopSubject::Server(row.id.clone()))
            }
            TopPanel::Questions => {
                let question = self.questions.get(self.marked_question());
                question.map(|it| TopSubject::Question(Box::new(it.clone())))
            }
        };
        if let Some(about) = about {
            self.open(about);
        }
    }

    /// Shows the marked question with the answer that Enter would give.
    fn ask(&mut self, yes: bool) {
        match self.questions.get(self.marked_question()).cloned() {
            Some(question) => self.ask_about(question, yes),
            None => self.tell("nothing waits for you"),
        }
    }

    fn ask_about(&mut self, question: TopQuestion, yes: bool) {
        let answer = match yes {
            true => question.yes.clone(),
            false => question.no.clone(),
        };
        match answer {
            Some(answer) if self.gone.is_none() => {
                self.open(TopSubject::Answer(Box::new(question), answer));
            }
            Some(_) => self.tell("the kernel does not answer"),
            None => {
                self.dialog = None;
                self.tell(&format!("that takes more than a key: {}", question.command));
            }
        }
    }

    fn step(&mut self, step: TopStep) {
        match self.panel {
            TopPanel::Servers => {
                let to = step.from(self.marked_server(), self.rows.len(), self.page);
                self.server = self.rows.get(to).map(|row| row.id.clone());
            }
            TopPanel::Questions => {
                let to = step.from(self.marked_question(), self.questions.len(), self.page);
                self.question = self.questions.get(to).map(|it| it.key.clone());
            }
        }
    }
}

impl TopDialog {
    /// So many lines are there, and so many of them fit: where the first one shown is.
    pub(in super::super) fn scrolled(&mut self, lines: usize, fit: usize) -> usize {
        let most = lines.saturating_sub(fit);
        self.above = self.above.min(most);
        self.read |= self.above == most;
        self.above
    }
}

fn order(key: char) -> Option<TopOrder> {
    TopOrder::ALL.into_iter().find(|order| order.key() == key)
}
