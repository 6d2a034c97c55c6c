//! Reads values with variables, files and secrets resolved. No message contains a value.

use std::collections::BTreeMap;
use std::ops::Range;

use mgp_engine::env::{AgentValue, ResolveError, interpolate, resolve_agent_value, resolve_secret};
use toml::Spanned;

use super::section::Section;

impl Section<'_, '_, '_> {
    /// A value with its variables resolved; empty on failure.
    pub(crate) fn resolve(&mut self, key: &str, text: &Spanned<&str>) -> String {
        let env = self.context.env;
        let value = interpolate(text.get_ref(), key, |name| env.variable(name));
        self.check_value(key, text.span(), value)
    }

    /// A value that may be or contain a secret, and so may be in a file; empty on failure.
    pub(crate) fn resolve_secret(&mut self, key: &str, text: &Spanned<&str>) -> String {
        let value = self.look_up_secret(key, text);
        self.check_value(key, text.span(), value)
    }

    /// Values that may be secrets: they are masked.
    pub(crate) fn resolve_secrets(
        &mut self,
        key: &str,
        map: &BTreeMap<&str, Spanned<&str>>,
    ) -> BTreeMap<String, String> {
        let mut values = BTreeMap::new();
        for (name, text) in map {
            let value = self.resolve_secret(&format!("{key}.{name}"), text);
            self.mask(value.as_str());
            values.insert((*name).to_owned(), value);
        }
        values
    }

    /// Like [`Self::resolve_secrets`] for values that may also have secrets of each agent, which are put into `of_agents`:
    /// there, the value is the operator's, or empty without one.
    pub(crate) fn resolve_agent_secrets(
        &mut self,
        key: &str,
        map: &BTreeMap<&str, Spanned<&str>>,
        of_agents: &mut BTreeMap<String, AgentValue>,
    ) -> BTreeMap<String, String> {
        let mut values = BTreeMap::new();
        for (name, text) in map {
            let key = format!("{key}.{name}");
            let env = self.context.env;
            let variable = |name: &str| env.variable(name);
            let named = |name: &str| env.secret(name, &self.context.secrets);
            let value = match resolve_agent_value(text.get_ref(), &key, variable, named) {
                Ok(None) => self.resolve_secret(&key, text),
                Ok(Some(value)) => {
                    let own = value.resolve(|name| named(name).ok());
                    let own = self.check_value(&key, text.span(), Ok(own.unwrap_or_default()));
                    of_agents.insert((*name).to_owned(), value);
                    own
                }
                Err(error) => self.check_value(&key, text.span(), Err(error)),
            };
            if !value.is_empty() {
                self.mask(value.as_str());
            }
            values.insert((*name).to_owned(), value);
        }
        values
    }

    /// The key of an API, without the whitespace around it: it is masked. Empty if there is none.
    pub(crate) fn secret(&mut self, key: &'static str) -> String {
        let Some(text) = self.text(key) else {
            return String::new();
        };
        let value = self.look_up_secret(key, &text);
        let value = value.map(|value| value.trim().to_owned());
        let value = self.check_value(key, text.span(), value);
        if !value.is_empty() {
            self.mask(value.as_str());
        }
        value
    }

    fn look_up_secret(&self, key: &str, text: &Spanned<&str>) -> Result<String, ResolveError> {
        let (env, folder) = (self.context.env, self.folder());
        let read = |path: &str| env.file(&folder.join(path));
        let variable = |name: &str| env.variable(name);
        let named = |name: &str| env.secret(name, &self.context.secrets);
        resolve_secret(text.get_ref(), key, variable, read, named)
    }

    /// A NUL ends the strings of a program, a newline splits a header.
    fn check_value(
        &mut self,
        key: &str,
        span: Range<usize>,
        value: Result<String, ResolveError>,
    ) -> String {
        let is_plain = key.starts_with("headers") || key == "key";
        let cut = |c: char| c == '\0' || (c.is_control() && c != '\t' && is_plain);
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
                | ResolveError::AgentSecret { .. }
                | ResolveError::ExposedSecret { .. }),
            ) => other.to_string(),
        };
        self.reject(span, format!("{}: {wrong}", self.name()));
        String::new()
    }
}
