//! The values of an entry with variables and secrets resolved.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use mgp_engine::env::{ResolveError, interpolate, resolve_secret};
use toml::Spanned;

use super::{Env, SecretsConfig, Section};

/// Resolves values, and collects failures. No message contains a value.
pub(crate) struct Values<'e> {
    folder: &'e Path,
    env: &'e Env<'e>,
    secrets: &'e SecretsConfig,
    errors: Vec<(Range<usize>, String)>,
}

impl<'e> Values<'e> {
    /// `folder` is the file's, for relative paths; `secrets` configures where secrets are stored.
    pub(crate) fn new(folder: &'e Path, env: &'e Env<'e>, secrets: &'e SecretsConfig) -> Self {
        Self {
            folder,
            env,
            secrets,
            errors: Vec::new(),
        }
    }

    /// A value with its variables resolved; empty on failure.
    pub(crate) fn resolve(&mut self, key: &str, text: &Spanned<&str>) -> String {
        let value = interpolate(text.get_ref(), key, |name| self.env.variable(name));
        self.check_value(key, text.span(), value)
    }

    /// Values that may be secrets, and so may be in files.
    pub(crate) fn resolve_secrets(
        &mut self,
        key: &str,
        map: &BTreeMap<&str, Spanned<&str>>,
    ) -> BTreeMap<String, String> {
        map.iter()
            .map(|(name, text)| {
                let value = self.resolve_secret(&format!("{key}.{name}"), text);
                ((*name).to_owned(), value)
            })
            .collect()
    }

    /// A value that may be or contain a secret.
    pub(crate) fn resolve_secret(&mut self, key: &str, text: &Spanned<&str>) -> String {
        let folder = self.folder;
        let read = |path: &str| self.env.file(&folder.join(path));
        let variable = |name: &str| self.env.variable(name);
        let kept = |name: &str| self.env.secret(name, self.secrets);
        let value = resolve_secret(text.get_ref(), key, variable, read, kept);
        self.check_value(key, text.span(), value)
    }

    /// A NUL ends the strings of a program, a newline splits a header.
    fn check_value(
        &mut self,
        key: &str,
        span: Range<usize>,
        value: Result<String, ResolveError>,
    ) -> String {
        let cut =
            |c: char| c == '\0' || (c.is_control() && c != '\t' && key.starts_with("headers"));
        let wrong = match value {
            Ok(value) if !value.contains(cut) => return value,
            Ok(_) => format!("`{key}` has a control character in its value"),
            Err(ResolveError::Malformed { .. }) => {
                format!(
                    "`{key}` has a `${{` that is no variable; write ${{NAME}}, or $$ for a dollar sign"
                )
            }
            Err(ResolveError::Unset { name, .. }) => format!(
                "`{key}` needs the variable {name}, which is not set; set it, or write \
                 ${{{name}:-default}}"
            ),
            Err(
                other @ (ResolveError::File { .. }
                | ResolveError::Keyring { .. }
                | ResolveError::Secret { .. }
                | ResolveError::ExposedSecret { .. }),
            ) => other.to_string(),
        };
        self.errors.push((span, wrong));
        String::new()
    }

    /// Reports the failures.
    pub(crate) fn report_errors(self, entry: &mut Section<'_, '_, '_>) {
        for (span, wrong) in self.errors {
            entry.reject(span, format!("{}: {wrong}", entry.name()));
        }
    }
}
