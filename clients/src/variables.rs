//! Variables in values, in the notations of the clients. Text that only looks like a variable is preserved: the client
//! passes it on, too.

use crate::client::Client;

/// A part of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TextPiece {
    /// Literal text.
    Literal(String),
    /// A variable of the environment.
    Variable {
        /// Its name.
        name: String,
        /// The value if it is not set.
        default: Option<String>,
    },
    /// An answer of the user, by the id of the input.
    Input(String),
    /// The contents of a file.
    File(String),
    /// The folder of the project, which a kernel for the whole machine does not have.
    Folder,
    /// `~`.
    Home,
}

/// The notation of variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notation {
    /// No variables.
    Plain,
    /// `${V}`, `${V:-default}`.
    Shell,
    /// `$V`, `${V}`, `${V:-default}`.
    Dollar,
    /// `${env:V}`, `${input:x}`, `${workspaceFolder}`, `${userHome}`.
    Named,
    /// `{env:V}`, `{file:path}`.
    Braces,
    /// `${{ secrets.V }}`.
    Secrets,
    /// For a file of an unknown client: `${V}`, `${V:-default}`, and unambiguous [`Self::Named`] forms.
    Any,
}

impl Notation {
    /// The notation of a client.
    pub(crate) fn for_client(client: Client) -> Self {
        match client {
            Client::ClaudeCode | Client::Copilot => Self::Shell,
            Client::Cursor | Client::VsCode | Client::Windsurf | Client::Roo => Self::Named,
            Client::Continue => Self::Secrets,
            Client::Gemini => Self::Dollar,
            Client::OpenCode => Self::Braces,
            Client::ClaudeDesktop
            | Client::Zed
            | Client::Codex
            | Client::Goose
            | Client::LmStudio
            | Client::Cline
            | Client::Antigravity => Self::Plain,
        }
    }
}

/// Splits a value into pieces.
pub(crate) fn parse_pieces(text: &str, notation: Notation) -> Vec<TextPiece> {
    let mut pieces = PieceBuilder::default();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (piece, after) = match notation {
            Notation::Plain => (None, rest),
            Notation::Shell => parse_braced(rest, "${", parse_shell),
            Notation::Dollar => match parse_braced(rest, "${", parse_shell) {
                (None, _) => parse_bare(rest),
                found => found,
            },
            Notation::Named => parse_braced(rest, "${", parse_named),
            Notation::Braces => parse_braced(rest, "{", parse_opencode),
            Notation::Secrets => parse_continue(rest),
            Notation::Any => match parse_braced(rest, "${", parse_named) {
                (None, _) => parse_braced(rest, "${", parse_shell),
                found => found,
            },
        };
        match piece {
            Some(piece) => {
                pieces.push(piece);
                rest = after;
            }
            None => {
                pieces.push_literal(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    pieces.finish()
}

#[derive(Default)]
struct PieceBuilder {
    pieces: Vec<TextPiece>,
    literal: String,
}

impl PieceBuilder {
    fn push_literal(&mut self, c: char) {
        self.literal.push(c);
    }

    fn push(&mut self, piece: TextPiece) {
        if let TextPiece::Literal(text) = &piece {
            return self.literal.push_str(text);
        }
        self.end_literal();
        self.pieces.push(piece);
    }

    fn end_literal(&mut self) {
        if !self.literal.is_empty() {
            self.pieces
                .push(TextPiece::Literal(std::mem::take(&mut self.literal)));
        }
    }

    fn finish(mut self) -> Vec<TextPiece> {
        self.end_literal();
        self.pieces
    }
}

fn parse_braced<'t>(
    text: &'t str,
    open: &str,
    read: impl Fn(&str) -> Option<TextPiece>,
) -> (Option<TextPiece>, &'t str) {
    let inner = text
        .strip_prefix(open)
        .and_then(|inner| inner.split_once('}'));
    match inner.and_then(|(inner, after)| Some((read(inner)?, after))) {
        Some((piece, after)) => (Some(piece), after),
        None => (None, text),
    }
}

fn parse_shell(inner: &str) -> Option<TextPiece> {
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default.to_owned())),
        None => (inner, None),
    };
    is_name(name).then(|| TextPiece::Variable {
        name: name.to_owned(),
        default,
    })
}

fn parse_bare(text: &str) -> (Option<TextPiece>, &str) {
    let Some(inner) = text.strip_prefix('$') else {
        return (None, text);
    };
    let end = inner.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let (name, after) = inner.split_at(end.unwrap_or(inner.len()));
    let piece = is_name(name).then(|| TextPiece::Variable {
        name: name.to_owned(),
        default: None,
    });
    match piece {
        Some(piece) => (Some(piece), after),
        None => (None, text),
    }
}

fn parse_named(inner: &str) -> Option<TextPiece> {
    match inner.split_once(':') {
        Some(("env", name)) if is_name(name) => Some(TextPiece::Variable {
            name: name.to_owned(),
            // These clients use an empty text for unset variables.
            default: Some(String::new()),
        }),
        Some(("input", id)) => Some(TextPiece::Input(id.to_owned())),
        Some(_) => None,
        None => match inner {
            "workspaceFolder" | "workspaceRoot" | "cwd" => Some(TextPiece::Folder),
            "userHome" => Some(TextPiece::Home),
            "pathSeparator" | "/" => Some(TextPiece::Literal("/".to_owned())),
            _ => None,
        },
    }
}

/// Continue's `${{ secrets.NAME }}`, and `${{ inputs.NAME }}`, which its hub fills in.
fn parse_continue(text: &str) -> (Option<TextPiece>, &str) {
    let inner = text
        .strip_prefix("${{")
        .and_then(|rest| rest.split_once("}}"));
    let Some((inner, after)) = inner else {
        return (None, text);
    };
    let (kind, path) = inner.trim().split_once('.').unwrap_or_default();
    let name = path.rsplit(['.', '/']).next().unwrap_or_default();
    let piece = match kind {
        "secrets" if is_name(name) => TextPiece::Variable {
            name: name.to_owned(),
            default: None,
        },
        "inputs" => TextPiece::Input(path.to_owned()),
        _ => return (None, text),
    };
    (Some(piece), after)
}

fn parse_opencode(inner: &str) -> Option<TextPiece> {
    match inner.split_once(':')? {
        ("env", name) if is_name(name) => Some(TextPiece::Variable {
            name: name.to_owned(),
            default: Some(String::new()),
        }),
        ("file", path) => Some(TextPiece::File(path.to_owned())),
        _ => None,
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str, default: Option<&str>) -> TextPiece {
        TextPiece::Variable {
            name: name.to_owned(),
            default: default.map(str::to_owned),
        }
    }

    fn literal(text: &str) -> TextPiece {
        TextPiece::Literal(text.to_owned())
    }

    #[test]
    fn each_notation_is_parsed_as_by_its_client() {
        let text = "a${V:-x}$W{env:U}${env:T}";
        let read = |notation| parse_pieces(text, notation);
        assert_eq!(read(Notation::Plain), [literal(text)]);
        assert_eq!(
            read(Notation::Shell),
            [
                literal("a"),
                variable("V", Some("x")),
                literal("$W{env:U}${env:T}")
            ]
        );
        assert_eq!(
            read(Notation::Dollar),
            [
                literal("a"),
                variable("V", Some("x")),
                variable("W", None),
                literal("{env:U}${env:T}")
            ]
        );
        assert_eq!(
            read(Notation::Named),
            [literal("a${V:-x}$W{env:U}"), variable("T", Some(""))]
        );
        assert_eq!(
            read(Notation::Braces),
            [
                literal("a${V:-x}$W"),
                variable("U", Some("")),
                literal("$"),
                variable("T", Some(""))
            ]
        );
    }

    #[test]
    fn files_of_unknown_clients_may_use_both_common_notations() {
        assert_eq!(
            parse_pieces("${V:-x}${input:k}${env:T}$W", Notation::Any),
            [
                variable("V", Some("x")),
                TextPiece::Input("k".to_owned()),
                variable("T", Some("")),
                literal("$W")
            ]
        );
    }

    #[test]
    fn continue_names_its_secrets_in_two_braces() {
        assert_eq!(
            parse_pieces("Bearer ${{ secrets.acme/KEY }}${X}", Notation::Secrets),
            [literal("Bearer "), variable("KEY", None), literal("${X}")]
        );
        assert_eq!(
            parse_pieces("${{ secrets.KEY", Notation::Secrets),
            [literal("${{ secrets.KEY")]
        );
    }

    #[test]
    fn text_that_only_looks_like_a_variable_is_preserved() {
        for text in ["$", "${", "${}", "${1}", "$ 5", "100%", "${a b}", "ü${é}"] {
            for notation in [Notation::Shell, Notation::Dollar, Notation::Named] {
                assert_eq!(parse_pieces(text, notation), [literal(text)]);
            }
        }
        assert!(parse_pieces("", Notation::Shell).is_empty());
    }
}
