//! A server of `mgp.toml`, with its texts split into pieces.

use std::path::Path;

/// A server of `mgp.toml`, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfiguredServer {
    /// The id.
    pub id: String,
    /// Its program and the arguments; empty for one at a URL.
    pub command: Vec<ConfiguredText>,
    /// `[servers.env]`.
    pub env: Vec<(String, ConfiguredText)>,
    /// `cwd`.
    pub cwd: Option<ConfiguredText>,
    /// `url`.
    pub url: Option<ConfiguredText>,
    /// `[servers.headers]`.
    pub headers: Vec<(String, ConfiguredText)>,
    /// `inherit_env`.
    pub inherit_env: Vec<String>,
    /// `start = "manual"`, or `autostart = false`.
    pub is_disabled: bool,
    /// Keys that only this kernel has.
    pub kernel_keys: Vec<String>,
}

/// A text of `mgp.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfiguredText(pub Vec<ConfiguredPiece>);

/// A part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfiguredPiece {
    /// Literal text.
    Literal(String),
    /// `${NAME}`, `${NAME:-default}`.
    Variable {
        /// Its name.
        name: String,
        /// The value if it is not set.
        default: Option<String>,
    },
    /// `secret:NAME`, `${secret:NAME}`.
    Secret(String),
    /// `file:PATH`.
    File(String),
}

impl ConfiguredPiece {
    pub(super) fn render(&self) -> String {
        match self {
            Self::Literal(text) => text.clone(),
            Self::Variable { name, .. } => format!("${{{name}}}"),
            Self::Secret(name) => format!("secret:{name}"),
            Self::File(path) => format!("file:{path}"),
        }
    }
}

impl ConfiguredText {
    /// A literal text.
    #[must_use]
    pub fn literal(text: impl Into<String>) -> Self {
        Self(vec![ConfiguredPiece::Literal(text.into())])
    }

    /// Splits a text. `whole` is true for values of `env` and `headers`, which may be `secret:NAME` or `file:PATH` as a
    /// whole.
    #[must_use]
    pub fn parse(text: &str, whole: bool) -> Self {
        match (text.strip_prefix("secret:"), text.strip_prefix("file:")) {
            (Some(name), _) if whole => return Self(vec![ConfiguredPiece::Secret(name.into())]),
            // A path with a variable can be resolved only where it is read.
            (_, Some(path)) if whole && !path.contains('$') => {
                return Self(vec![ConfiguredPiece::File(path.into())]);
            }
            _ => {}
        }
        let (mut found, mut literal, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find('$') {
            literal += &rest[..at];
            let dollar = &rest[at..];
            if let Some(after) = dollar.strip_prefix("$$") {
                literal.push('$');
                rest = after;
            } else if let Some((inner, after)) = dollar
                .strip_prefix("${")
                .and_then(|inner| inner.split_once('}'))
            {
                if !literal.is_empty() {
                    found.push(ConfiguredPiece::Literal(std::mem::take(&mut literal)));
                }
                found.push(parse_reference(inner));
                rest = after;
            } else {
                literal.push('$');
                rest = &dollar[1..];
            }
        }
        literal += rest;
        if !literal.is_empty() {
            found.push(ConfiguredPiece::Literal(literal));
        }
        Self(found)
    }

    /// A path with a slash starts at the folder of its file; a bare name is looked up in `PATH`.
    pub(super) fn resolve_in_folder(self, folder: &Path) -> Self {
        match self.0.first() {
            Some(ConfiguredPiece::Literal(text)) if text.contains('/') => {
                self.prefix_folder(folder)
            }
            _ => self,
        }
    }

    pub(super) fn prefix_folder(mut self, folder: &Path) -> Self {
        if let Some(ConfiguredPiece::Literal(text)) = self.0.first_mut() {
            *text = folder.join(&*text).to_string_lossy().into_owned();
        }
        self
    }

    /// Whether the text is exactly one reference.
    pub(super) fn is_reference(&self) -> bool {
        !matches!(self.0.as_slice(), [] | [ConfiguredPiece::Literal(_)]) && self.0.len() == 1
    }

    pub(super) fn is_variable(&self, wanted: &str) -> bool {
        let [
            ConfiguredPiece::Variable {
                name,
                default: None,
            },
        ] = self.0.as_slice()
        else {
            return false;
        };
        name == wanted
    }

    /// The text after `Bearer `.
    pub(super) fn strip_bearer(&self) -> Option<Self> {
        match self.0.split_first() {
            Some((ConfiguredPiece::Literal(scheme), rest)) if scheme == "Bearer " => {
                Some(Self(rest.to_vec()))
            }
            _ => None,
        }
    }

    pub(super) fn render(&self) -> String {
        self.0.iter().map(ConfiguredPiece::render).collect()
    }
}

fn parse_reference(inner: &str) -> ConfiguredPiece {
    if let Some(name) = inner.strip_prefix("secret:") {
        return ConfiguredPiece::Secret(name.to_owned());
    }
    let (name, default) = match inner.split_once(":-") {
        // An escaped literal.
        Some(("", text)) => return ConfiguredPiece::Literal(text.to_owned()),
        Some((name, default)) => (name, Some(default.to_owned())),
        None => (inner, None),
    };
    ConfiguredPiece::Variable {
        name: name.to_owned(),
        default,
    }
}
