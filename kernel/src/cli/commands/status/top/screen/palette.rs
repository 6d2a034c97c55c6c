//! Colours, where they are wanted; what they say is said in words, too.

use ratatui::style::{Color, Modifier, Style};

use crate::cli::commands::status::top::rows::TopCondition;

/// Whether there are colours.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct TopPalette {
    /// None with `NO_COLOR`.
    pub(in super::super) colours: bool,
}

impl TopPalette {
    pub(super) fn plain(self) -> Style {
        Style::new()
    }

    pub(super) fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// The marked row of the panel that keys move in.
    pub(super) fn marked(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn condition(self, condition: TopCondition) -> Style {
        let (colour, modifier) = match condition {
            TopCondition::Failed => (Color::Red, Modifier::BOLD),
            TopCondition::Unsettled => (Color::Yellow, Modifier::empty()),
            TopCondition::Stopped => (Color::Reset, Modifier::DIM),
            TopCondition::Well => (Color::Green, Modifier::empty()),
        };
        let style = Style::new().add_modifier(modifier);
        match self.colours {
            true => style.fg(colour),
            false => style,
        }
    }
}
