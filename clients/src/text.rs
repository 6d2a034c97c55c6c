//! Values of clients' entries, split into literals and references.

use crate::client::Client;
use crate::variables::{self, Notation, TextPiece};

/// A value as pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientText(pub Vec<TextPiece>);

impl ClientText {
    /// Parses a value as this client does; that of an unknown client in the common notation.
    pub(crate) fn parse(text: &str, client: Option<Client>) -> Self {
        let notation = client.map_or(Notation::Any, Notation::for_client);
        Self(variables::parse_pieces(text, notation))
    }

    /// A literal text.
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

    /// The text, if it has no references.
    #[must_use]
    pub(crate) fn as_literal(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [TextPiece::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// The ids of inputs that it refers to.
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
