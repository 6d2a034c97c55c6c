//! Exports entries of `mgp.toml` in a client's form: the reverse of an import.
//!
//! Each exported text is parsed again as the client does; unless it has the same meaning, it is not exported.

mod configured;
mod entry_keys;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde_json::{Map, Value, json};

pub use configured::{ConfiguredPiece, ConfiguredServer, ConfiguredText};

use self::entry_keys::EntryKeys;
use crate::client::Client;
use crate::variables::{Notation, TextPiece, parse_pieces};

/// An exported server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportedServer {
    /// The entry.
    pub entry: Value,
    /// Inputs for the client to prompt for: elements of `inputs`.
    pub inputs: Vec<Value>,
    /// Variables to set where the client is started, with the key that needs each and its value here: `secret:NAME`,
    /// `file:PATH`.
    pub required_variables: Vec<(String, String)>,
    /// Keys that the client does not support, with the reason.
    pub skipped: Vec<(String, String)>,
}

/// Why a server cannot be exported to a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The client supports only programs.
    #[error("{0} starts programs only, and has no place for a URL")]
    NoUrls(Client),
    /// A required part.
    #[error("`{key}`: {why}")]
    Unsupported {
        /// The key in the entry.
        key: String,
        /// The reason.
        why: String,
    },
    /// Neither a command nor a URL.
    #[error("it has neither a command nor a URL")]
    NoConnection,
}

/// The settings of an export.
#[derive(Clone, Copy, Debug)]
pub struct Exporter<'e> {
    /// The client.
    pub client: Client,
    /// `~`.
    pub home: &'e Path,
    /// The folder of the configuration file: relative paths start there.
    pub folder: &'e Path,
}

impl Exporter<'_> {
    /// The entry of a server.
    ///
    /// # Errors
    /// [`ExportError`].
    pub fn export(&self, server: &ConfiguredServer) -> Result<ExportedServer, ExportError> {
        let mut out = ExportedServer::default();
        let entry = match (&server.url, server.command.split_first()) {
            (Some(url), _) => self.export_url(server, url, &mut out)?,
            (None, Some((program, args))) => {
                self.export_command(server, program, args, &mut out)?
            }
            (None, None) => return Err(ExportError::NoConnection),
        };
        out.entry = entry;
        if server.is_disabled {
            match self.entry_keys().disabled_key {
                Some((key, value)) => out.entry[key] = value.into(),
                None => {
                    let why = format!("{} starts every server that it has", self.client);
                    out.skipped.push(("autostart".to_owned(), why));
                }
            }
        }
        for key in &server.kernel_keys {
            let why = format!("{} has nothing like it", self.client);
            out.skipped.push((key.clone(), why));
        }
        Ok(out)
    }

    fn export_command(
        &self,
        server: &ConfiguredServer,
        program: &ConfiguredText,
        args: &[ConfiguredText],
        out: &mut ExportedServer,
    ) -> Result<Value, ExportError> {
        let program =
            self.required_text("command", &program.clone().resolve_in_folder(self.folder))?;
        let args: Vec<String> = args
            .iter()
            .map(|arg| self.required_text("args", arg))
            .collect::<Result<_, _>>()?;
        let mut entry = self.client.command_entry(&server.id, &program, &args);
        if let Some(cwd) = &server.cwd {
            let cwd = cwd.clone().prefix_folder(self.folder);
            if self.entry_keys().cwd {
                entry["cwd"] = self.required_text("cwd", &cwd)?.into()
            } else {
                let why = format!("{} starts its servers where it pleases", self.client);
                out.skipped.push(("cwd".to_owned(), why));
            }
        }
        let (mut env, mut handed_on) = (Map::new(), Vec::new());
        for (name, value) in &server.env {
            match self.export_text(name, value, out) {
                Ok(text) => drop(env.insert(name.clone(), text.into())),
                Err(_) if self.entry_keys().env_names.is_some() && value.is_reference() => {
                    // A variable that is passed on keeps its name.
                    if !value.is_variable(name) {
                        out.required_variables.push((name.clone(), value.render()));
                    }
                    handed_on.push(name.clone());
                }
                Err(why) => out.skipped.push((format!("env.{name}"), why)),
            }
        }
        handed_on.extend(server.inherit_env.iter().cloned());
        if !env.is_empty() {
            entry[self.entry_keys().env] = env.into();
        }
        match self.entry_keys().env_names {
            Some(key) if !handed_on.is_empty() => entry[key] = handed_on.into(),
            None if !server.inherit_env.is_empty() => {
                let why = format!("{} has no list of variables to hand on", self.client);
                out.skipped.push(("inherit_env".to_owned(), why));
            }
            Some(_) | None => {}
        }
        Ok(entry)
    }

    fn export_url(
        &self,
        server: &ConfiguredServer,
        url: &ConfiguredText,
        out: &mut ExportedServer,
    ) -> Result<Value, ExportError> {
        let url = self.required_text("url", url)?;
        let (mut headers, mut more) = (Map::new(), Map::new());
        for (name, value) in &server.headers {
            match self.export_text(name, value, out) {
                Ok(text) => drop(headers.insert(name.clone(), text.into())),
                Err(why) => match self.codex_header(name, value, out) {
                    Some((key, inner)) if inner.is_object() => {
                        let table = more.entry(key).or_insert(json!({}));
                        table[name] = inner[name].clone();
                    }
                    Some((key, variable)) => drop(more.insert(key, variable)),
                    None => out.skipped.push((format!("headers.{name}"), why)),
                },
            }
        }
        let none = headers.is_empty();
        let entry = self.client.url_entry(&server.id, &url, &headers.into());
        let entry = entry.map_err(|_| ExportError::NoUrls(self.client))?;
        let Value::Object(mut entry) = entry else {
            return Err(ExportError::NoConnection);
        };
        if none {
            entry.retain(|key, _| !key.ends_with("headers") && key != "requestOptions");
        }
        entry.extend(more);
        Ok(entry.into())
    }

    /// Codex reads headers from variables that it names.
    fn codex_header(
        &self,
        name: &str,
        value: &ConfiguredText,
        out: &mut ExportedServer,
    ) -> Option<(String, Value)> {
        if self.client != Client::Codex {
            return None;
        }
        let (inner, bearer) = match value.strip_bearer() {
            Some(inner) if name.eq_ignore_ascii_case("authorization") => (inner, true),
            _ => (value.clone(), false),
        };
        let variable = match inner.0.as_slice() {
            [
                ConfiguredPiece::Variable {
                    name,
                    default: None,
                },
            ] => name.clone(),
            [piece @ (ConfiguredPiece::Secret(_) | ConfiguredPiece::File(_))] => {
                let variable = variable_name(name, piece);
                out.required_variables
                    .push((variable.clone(), inner.render()));
                variable
            }
            _ => return None,
        };
        Some(if bearer {
            ("bearer_token_env_var".to_owned(), variable.into())
        } else {
            ("env_http_headers".to_owned(), json!({ name: variable }))
        })
    }

    fn entry_keys(&self) -> EntryKeys {
        EntryKeys::for_client(self.client)
    }

    /// A text that the entry requires.
    fn required_text(&self, key: &str, text: &ConfiguredText) -> Result<String, ExportError> {
        let mut none = ExportedServer::default();
        let written = self.export_text(key, text, &mut none);
        written.map_err(|why| ExportError::Unsupported {
            key: key.to_owned(),
            why,
        })
    }

    /// A text in the client's notation, or the reason why that is not possible.
    fn export_text(
        &self,
        key: &str,
        text: &ConfiguredText,
        out: &mut ExportedServer,
    ) -> Result<String, String> {
        let notation = Notation::for_client(self.client);
        let (mut written, mut meant) = (String::new(), Vec::new());
        let (mut inputs, mut to_set) = (Vec::new(), Vec::new());
        for piece in &text.0 {
            let piece = match piece {
                ConfiguredPiece::Literal(text) => TextPiece::Literal(text.clone()),
                ConfiguredPiece::Variable {
                    name,
                    default: None,
                } if name == "HOME" && notation == Notation::Plain => {
                    TextPiece::Literal(self.home.to_string_lossy().into_owned())
                }
                ConfiguredPiece::Variable { name, default } => TextPiece::Variable {
                    name: name.clone(),
                    default: default.clone(),
                },
                ConfiguredPiece::File(path) if notation == Notation::Braces => {
                    TextPiece::File(self.folder.join(path).to_string_lossy().into_owned())
                }
                ConfiguredPiece::Secret(_) | ConfiguredPiece::File(_)
                    if self.client == Client::VsCode =>
                {
                    let id = input_id(key, piece);
                    let description = format!("{key} of a server taken over from mgp");
                    inputs.push(json!({
                        "type": "promptString", "id": id, "description": description, "password": true,
                    }));
                    TextPiece::Input(id)
                }
                ConfiguredPiece::Secret(_) | ConfiguredPiece::File(_) => {
                    let name = variable_name(key, piece);
                    to_set.push((name.clone(), piece.render()));
                    TextPiece::Variable {
                        name,
                        default: None,
                    }
                }
            };
            let (text, read) = self.export_piece(notation, piece)?;
            written += &text;
            if let TextPiece::Literal(text) = &read {
                match meant.last_mut() {
                    Some(TextPiece::Literal(before)) => {
                        *before += text;
                        continue;
                    }
                    Some(_) | None if text.is_empty() => continue,
                    Some(_) | None => {}
                }
            }
            meant.push(read);
        }
        if parse_pieces(&written, notation) != meant {
            return Err(format!("{} would read more than text in it", self.client));
        }
        out.inputs.extend(inputs);
        out.required_variables.extend(to_set);
        Ok(written)
    }

    /// A piece as written, and as the client parses it.
    fn export_piece(
        &self,
        notation: Notation,
        piece: TextPiece,
    ) -> Result<(String, TextPiece), String> {
        let client = self.client;
        let no_variables = || {
            Err(format!(
                "{client} puts no variables into values; --with-values writes what it is now, in clear"
            ))
        };
        let written = match (&piece, notation) {
            (TextPiece::Literal(text), _) => text.clone(),
            (
                TextPiece::Variable { .. } | TextPiece::Input(_) | TextPiece::File(_),
                Notation::Plain,
            ) => {
                return no_variables();
            }
            (
                TextPiece::Variable {
                    name,
                    default: None,
                },
                Notation::Shell | Notation::Dollar | Notation::Any,
            ) => {
                format!("${{{name}}}")
            }
            (
                TextPiece::Variable {
                    name,
                    default: None,
                },
                Notation::Secrets,
            ) => {
                format!("${{{{ secrets.{name} }}}}")
            }
            (TextPiece::Variable { .. }, Notation::Secrets) => {
                return Err(format!("{client} has no default for a variable"));
            }
            (
                TextPiece::Variable {
                    name,
                    default: Some(default),
                },
                Notation::Shell | Notation::Dollar | Notation::Any,
            ) => format!("${{{name}:-{default}}}"),
            (TextPiece::Variable { name, default }, Notation::Named | Notation::Braces) => {
                if default.as_ref().is_some_and(|default| !default.is_empty()) {
                    return Err(format!("{client} has no default for a variable"));
                }
                let text = match notation {
                    Notation::Braces => format!("{{env:{name}}}"),
                    Notation::Named
                    | Notation::Plain
                    | Notation::Shell
                    | Notation::Dollar
                    | Notation::Any
                    | Notation::Secrets => {
                        format!("${{env:{name}}}")
                    }
                };
                let read = TextPiece::Variable {
                    name: name.clone(),
                    default: Some(String::new()),
                };
                return Ok((text, read));
            }
            (TextPiece::Input(id), _) => format!("${{input:{id}}}"),
            (TextPiece::File(path), _) => format!("{{file:{path}}}"),
            (TextPiece::Folder | TextPiece::Home, _) => return no_variables(),
        };
        Ok((written, piece))
    }
}

/// The name of a secret as a variable: the last word of its own name if valid, or that of the key.
fn variable_name(key: &str, piece: &ConfiguredPiece) -> String {
    let own = match piece {
        ConfiguredPiece::Secret(name) => name.rsplit('/').next().unwrap_or_default(),
        ConfiguredPiece::Literal(_)
        | ConfiguredPiece::Variable { .. }
        | ConfiguredPiece::File(_) => "",
    };
    let as_name = |text: &str| -> String {
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        };
        text.chars().map(plain).collect()
    };
    let name = as_name(if own.is_empty() { key } else { own });
    if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        format!("_{name}")
    } else {
        name
    }
}

fn input_id(key: &str, piece: &ConfiguredPiece) -> String {
    let id = match piece {
        ConfiguredPiece::Secret(name) => name.as_str(),
        ConfiguredPiece::Literal(_)
        | ConfiguredPiece::Variable { .. }
        | ConfiguredPiece::File(_) => key,
    };
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    format!("mgp-{}", id.chars().map(plain).collect::<String>())
}
