//! Renders values for `mgp.toml`: `${NAME}`, `${NAME:-default}`, `$$`, and `file:PATH` for contents of a file.

use std::collections::BTreeMap;
use std::path::Path;

use crate::text::ClientText;
use crate::variables::TextPiece;

/// An answer to a client's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputAnswer {
    /// The answer.
    pub text: String,
    /// Whether it is secret.
    pub secret: bool,
}

/// Resolves references in values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renderer<'r> {
    /// `~`.
    pub(crate) home: &'r Path,
    /// The folder of the file's project, if any.
    pub(crate) project: Option<&'r Path>,
    /// The answers, by the id of the input.
    pub(crate) answers: Option<&'r BTreeMap<String, InputAnswer>>,
}

/// Why a value cannot be expressed in `mgp.toml`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// It refers to the folder of a project, but the file belongs to none.
    #[error("it names the folder of a project, and the file is of none")]
    NoFolder,
    /// An input without an answer.
    #[error("nobody said what ${{input:{0}}} is")]
    Unanswered(String),
    /// A relative path of a program without a base folder.
    #[error("its command is a path relative to a folder that the file does not name")]
    RelativeCommand,
    /// A file's contents within other text.
    #[error("it puts the content of a file amid other text")]
    FileNotWholeValue,
    /// A default that contains a `}`.
    #[error("its text has a brace where mgp.toml can have none")]
    Brace,
}

impl Renderer<'_> {
    /// The value for `mgp.toml`, with the same meaning.
    ///
    /// # Errors
    /// [`RenderError`].
    pub(crate) fn render(&self, text: &ClientText) -> Result<String, RenderError> {
        if let [TextPiece::File(path)] = text.0.as_slice() {
            return Ok(format!("file:{}", self.render_path(path)));
        }
        let pieces = text.0.iter().map(|piece| self.render_piece(piece));
        let rendered = pieces.collect::<Result<String, _>>()?;
        escape_reference(&rendered)
    }

    /// The literal value, if it has no variables.
    #[must_use]
    pub(crate) fn literal_value(&self, text: &ClientText) -> Option<String> {
        let pieces = text.0.iter().map(|piece| match piece {
            TextPiece::Literal(text) => Some(text.clone()),
            TextPiece::Input(id) => Some(self.answer(id)?.text.clone()),
            TextPiece::Folder => Some(self.project?.to_str()?.to_owned()),
            TextPiece::Home => Some(self.home.to_str()?.to_owned()),
            TextPiece::Variable { .. } | TextPiece::File(_) => None,
        });
        pieces.collect()
    }

    fn render_piece(&self, piece: &TextPiece) -> Result<String, RenderError> {
        Ok(match piece {
            TextPiece::Literal(text) => escape(text),
            TextPiece::Variable {
                name,
                default: None,
            } => format!("${{{name}}}"),
            TextPiece::Variable {
                default: Some(default),
                ..
            } if default.contains('}') => {
                return Err(RenderError::Brace);
            }
            TextPiece::Variable {
                name,
                default: Some(default),
            } => format!("${{{name}:-{default}}}"),
            TextPiece::Input(id) => {
                let answer = self.answer(id);
                let answer = answer.ok_or_else(|| RenderError::Unanswered(id.clone()))?;
                escape(&answer.text)
            }
            TextPiece::File(_) => return Err(RenderError::FileNotWholeValue),
            TextPiece::Folder => {
                let folder = self.project.ok_or(RenderError::NoFolder)?;
                escape(&folder.to_string_lossy())
            }
            TextPiece::Home => escape(&self.home.to_string_lossy()),
        })
    }

    /// Whether a value contains a secret answer.
    pub(crate) fn has_secret_answer(&self, text: &ClientText) -> bool {
        text.input_ids()
            .any(|id| self.answer(id).is_some_and(|answer| answer.secret))
    }

    fn answer(&self, id: &str) -> Option<&InputAnswer> {
        self.answers?.get(id)
    }

    fn render_path(&self, path: &str) -> String {
        match path.strip_prefix("~/") {
            Some(below) => self.home.join(below).to_string_lossy().into_owned(),
            None => path.to_owned(),
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('$', "$$")
}

/// Escapes a text that would be taken for a reference, such as the `file:./dev.db` of a database.
fn escape_reference(text: &str) -> Result<String, RenderError> {
    if !["file:", "keyring:", "secret:"]
        .iter()
        .any(|scheme| text.starts_with(scheme))
    {
        return Ok(text.to_owned());
    }
    if text.contains(['}', '$']) {
        Err(RenderError::Brace)
    } else {
        Ok(format!("${{:-{text}}}"))
    }
}
