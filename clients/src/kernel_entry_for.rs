//! This kernel's entry in a client's file.

use serde_json::{Value, json};

use crate::client::Client;
use crate::document::DocumentForm;
use crate::edit::TableForm;

/// How the client connects to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelConnection {
    /// It starts this program.
    Command {
        /// The absolute path: clients have another PATH.
        program: String,
        /// Its arguments.
        args: Vec<String>,
    },
    /// Over HTTP.
    Url {
        /// The URL of the endpoint.
        url: String,
        /// The agent's token.
        token: String,
    },
}

/// The client does not support URLs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} starts commands only, and has no place for a URL; leave out --http")]
pub struct UrlsUnsupported(pub Client);

impl Client {
    /// The format of its files.
    #[must_use]
    pub fn document_form(self) -> DocumentForm {
        match self {
            Self::Codex => DocumentForm::Toml,
            Self::Goose | Self::Continue => DocumentForm::Yaml,
            Self::ClaudeDesktop
            | Self::ClaudeCode
            | Self::Cursor
            | Self::VsCode
            | Self::Windsurf
            | Self::Zed
            | Self::Gemini
            | Self::OpenCode
            | Self::LmStudio
            | Self::Cline
            | Self::Copilot
            | Self::Antigravity
            | Self::Roo => DocumentForm::Json,
        }
    }

    /// The key of its servers.
    #[must_use]
    pub fn table(self) -> &'static str {
        match self {
            Self::VsCode => "servers",
            Self::Zed => "context_servers",
            Self::Codex => "mcp_servers",
            Self::OpenCode => "mcp",
            Self::Goose => "extensions",
            Self::ClaudeDesktop
            | Self::ClaudeCode
            | Self::Cursor
            | Self::Windsurf
            | Self::Gemini
            | Self::LmStudio
            | Self::Cline
            | Self::Copilot
            | Self::Antigravity
            | Self::Roo
            | Self::Continue => "mcpServers",
        }
    }

    /// The path of the table for all projects in a document.
    #[must_use]
    pub fn table_path(self, document: &Value) -> Vec<String> {
        let table = document.get(self.table());
        // In opencode's newer form `mcp` contains tables, not servers.
        let newer = self == Self::OpenCode
            && table
                .and_then(|table| table.get("servers"))
                .and_then(Value::as_object)
                .is_some_and(|servers| !servers.contains_key("command"));
        let mut keys = vec![self.table().to_owned()];
        if newer {
            keys.push("servers".to_owned());
        }
        keys
    }

    /// The entries of a table by name, in both forms.
    #[must_use]
    pub fn entries(table: &Value) -> Vec<(&str, &Value)> {
        match table {
            Value::Object(table) => table.iter().map(|(name, e)| (name.as_str(), e)).collect(),
            Value::Array(list) => {
                let named = list.iter();
                let named = named.filter_map(|entry| Some((entry.get("name")?.as_str()?, entry)));
                named.collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        }
    }

    /// Whether its servers are a map or a list.
    #[must_use]
    pub fn table_form(self) -> TableForm {
        match self {
            Self::Continue => TableForm::List,
            Self::ClaudeDesktop
            | Self::ClaudeCode
            | Self::Cursor
            | Self::VsCode
            | Self::Windsurf
            | Self::Zed
            | Self::Codex
            | Self::Gemini
            | Self::OpenCode
            | Self::Goose
            | Self::LmStudio
            | Self::Cline
            | Self::Copilot
            | Self::Antigravity
            | Self::Roo => TableForm::Map,
        }
    }

    /// The entry in the client's form.
    ///
    /// # Errors
    /// [`UrlsUnsupported`].
    pub fn kernel_entry(
        self,
        name: &str,
        reach: &KernelConnection,
    ) -> Result<Value, UrlsUnsupported> {
        match reach {
            KernelConnection::Command { program, args } => {
                Ok(self.command_entry(name, program, args))
            }
            KernelConnection::Url { url, token } => {
                let headers = json!({ "Authorization": format!("Bearer {token}") });
                self.url_entry(name, url, &headers)
            }
        }
    }

    /// An entry that starts a program.
    pub(crate) fn command_entry(self, name: &str, program: &str, args: &[String]) -> Value {
        let plain = json!({ "command": program, "args": args });
        match self {
            Self::VsCode | Self::ClaudeCode => {
                json!({ "type": "stdio", "command": program, "args": args })
            }
            Self::OpenCode => {
                let words: Vec<_> = std::iter::once(program)
                    .chain(args.iter().map(String::as_str))
                    .collect();
                json!({ "type": "local", "command": words, "enabled": true })
            }
            Self::Goose => json!({
                "name": name, "type": "stdio", "cmd": program, "args": args, "enabled": true, "timeout": 300,
            }),
            Self::Copilot => {
                json!({ "type": "local", "command": program, "args": args, "tools": ["*"] })
            }
            Self::Continue => {
                json!({ "name": name, "type": "stdio", "command": program, "args": args })
            }
            Self::ClaudeDesktop
            | Self::Cursor
            | Self::Windsurf
            | Self::Zed
            | Self::Codex
            | Self::Gemini
            | Self::LmStudio
            | Self::Cline
            | Self::Antigravity
            | Self::Roo => plain,
        }
    }

    /// An entry with a URL.
    ///
    /// # Errors
    /// [`UrlsUnsupported`].
    pub(crate) fn url_entry(
        self,
        name: &str,
        url: &str,
        headers: &Value,
    ) -> Result<Value, UrlsUnsupported> {
        Ok(match self {
            Self::ClaudeDesktop => return Err(UrlsUnsupported(self)),
            Self::ClaudeCode | Self::VsCode => {
                json!({ "type": "http", "url": url, "headers": headers })
            }
            Self::Cursor | Self::Zed | Self::LmStudio => json!({ "url": url, "headers": headers }),
            Self::Windsurf | Self::Antigravity => json!({ "serverUrl": url, "headers": headers }),
            Self::Codex => json!({ "url": url, "http_headers": headers }),
            Self::Gemini => json!({ "httpUrl": url, "headers": headers }),
            Self::OpenCode => {
                json!({ "type": "remote", "url": url, "headers": headers, "enabled": true })
            }
            Self::Goose => json!({
                "name": name, "type": "streamable_http", "uri": url, "headers": headers,
                "enabled": true, "timeout": 300,
            }),
            Self::Cline => json!({ "type": "streamableHttp", "url": url, "headers": headers }),
            Self::Roo => json!({ "type": "streamable-http", "url": url, "headers": headers }),
            Self::Continue => json!({
                "name": name, "type": "streamable-http", "url": url,
                "requestOptions": { "headers": headers },
            }),
            Self::Copilot => {
                json!({ "type": "http", "url": url, "headers": headers, "tools": ["*"] })
            }
        })
    }
}
