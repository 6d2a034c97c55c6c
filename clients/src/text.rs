//! Values of clients' entries, with what stands in them for something else.

use crate::client::Client;
use crate::variables::{self, Notation, TextPiece};

/// A value as it was written, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientText(pub Vec<TextPiece>);

impl ClientText {
    /// Reads a value as this client does; a file of nobody's in particular is read in the notation that most
    /// have in common.
    pub(crate) fn parse(text: &str, client: Option<Client>) -> Self {
        let notation = client.map_or(Notation::Any, Notation::for_client);
        Self(variables::parse_pieces(text, notation))
    }

    /// A text that means itself.
    #[must_use]
    pub(crate) fn literal(text: impl Into<String>) -> Self {
        Self(vec![TextPiece::Literal(text.into())])
    }

    /// A variable's value.
    pub(crate) fn for_variable(name: &str) -> Self {
        Self(vec![TextPiece::Variable {
            name: name.to_owned(),
            default: None,
        }])
    }

    /// Itself, where nothing in it stands for something else.
    #[must_use]
    pub(crate) fn as_literal(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [TextPiece::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// The questions that it holds the answers of.
    pub(crate) fn input_ids(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            TextPiece::Input(id) => Some(id.as_str()),
            TextPiece::Literal(_)
            | TextPiece::Variable { .. }
            | TextPiece::File(_)
            | TextPiece::Folder
            | TextPiece::Home => None,
        })
    }
}
