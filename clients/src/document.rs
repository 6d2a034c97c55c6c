//! Parses clients' files as their clients do.

use std::path::Path;

use serde_json::Value;

/// Longest file that is read, in bytes: Claude Code stores its history in the same file, some tens of MiB.
pub(crate) const DOCUMENT_MAX: usize = 64 << 20;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentForm {
    /// JSON, with the comments and trailing commas that some clients allow.
    Json,
    /// TOML.
    Toml,
    /// YAML.
    Yaml,
}

/// A file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The text does not have the format.
    #[error("not {form}: {message}")]
    Malformed {
        /// `JSON`, `TOML` or `YAML`.
        form: &'static str,
        /// The parser's message.
        message: String,
    },
    /// It is longer than [`DOCUMENT_MAX`].
    #[error("longer than {} MiB", DOCUMENT_MAX >> 20)]
    TooLong,
}

impl DocumentForm {
    /// The format by the file's extension; JSON by default.
    #[must_use]
    pub fn from_path(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("toml") => Self::Toml,
            Some("yaml" | "yml") => Self::Yaml,
            _ => Self::Json,
        }
    }

    /// Parses a text. The last one of duplicate keys counts, as for the clients. An empty file is an empty document.
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
                // Excerpts of the text may contain secrets.
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
    fn no_error_repeats_contents_of_the_file() {
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
