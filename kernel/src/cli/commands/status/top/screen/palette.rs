//! Colours, if enabled; texts carry the same information.

use ratatui::style::{Color, Modifier, Style};

use crate::cli::commands::status::top::rows::ServerCondition;

#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Palette {
    /// Off with `NO_COLOR`.
    pub(in super::super) colours: bool,
}

impl Palette {
    pub(super) fn plain(self) -> Style {
        Style::new()
    }

    pub(super) fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// The selected row of the active panel.
    pub(super) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn condition(self, condition: ServerCondition) -> Style {
        let (colour, modifier) = match condition {
            ServerCondition::Failed => (Color::Red, Modifier::BOLD),
            ServerCondition::Degraded => (Color::Yellow, Modifier::empty()),
            ServerCondition::Stopped => (Color::Reset, Modifier::DIM),
            ServerCondition::Connected => (Color::Green, Modifier::empty()),
        };
        let style = Style::new().add_modifier(modifier);
        if self.colours {
            style.fg(colour)
        } else {
            style
        }
    }
}
