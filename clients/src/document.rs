//! The texts of clients' files, read as their clients read them.

use std::path::Path;

use serde_json::Value;

/// Longest file that is read, in bytes: Claude Code keeps its history beside its servers, some tens of MiB.
pub const DOCUMENT_MAX: usize = 64 << 20;

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentForm {
    /// JSON, with the comments and commas that some clients allow.
    Json,
    /// TOML.
    Toml,
    /// YAML.
    Yaml,
}

/// A file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// It is not what its name says.
    #[error("not {form}: {message}")]
    Malformed {
        /// `JSON`, `TOML` or `YAML`.
        form: &'static str,
        /// The parser's words.
        message: String,
    },
    /// It is longer than [`DOCUMENT_MAX`].
    #[error("longer than {} MiB", DOCUMENT_MAX >> 20)]
    TooLong,
}

impl DocumentForm {
    /// What the name of a file says; JSON where it says nothing.
    #[must_use]
    pub fn from_path(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("toml") => Self::Toml,
            Some("yaml" | "yml") => Self::Yaml,
            _ => Self::Json,
        }
    }

    /// Reads a text. Of a key that is there twice the last counts, as for the clients. An empty file holds
    /// nothing.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn parse(self, text: &str) -> Result<Value, DocumentError> {
        if text.len() > DOCUMENT_MAX {
            return Err(DocumentError::TooLong);
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        let malformed = |form, message: String| DocumentError::Malformed { form, message };
        match self {
            Self::Json => {
                let read = jsonc_parser::parse_to_serde_value(
                    text,
                    &jsonc_parser::ParseOptions::default(),
                );
                read.map_err(|error| malformed("JSON", error.to_string()))
            }
            Self::Toml => toml::from_str(text)
                .map_err(|error: toml::de::Error| malformed("TOML", error.message().to_owned())),
            Self::Yaml => serde_saphyr::from_str(text)
                // The lines around it may hold secrets.
                .map_err(|error: serde_saphyr::Error| {
                    malformed("YAML", error.without_snippet().to_string())
                }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_repeats_what_stands_in_the_file() {
        for (form, text) in [
            (DocumentForm::Json, "{\"TOKEN\": \"s3cret\", s3cret: }"),
            (DocumentForm::Toml, "TOKEN = \"s3cret\"\nTOKEN = s3cret\n"),
            (DocumentForm::Yaml, "env:\n  TOKEN: s3cret\n - [s3cret: {\n"),
        ] {
            let why = form.parse(text).unwrap_err().to_string();
            assert!(!why.contains("s3cret"), "{why}");
        }
    }
}
