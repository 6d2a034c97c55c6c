//! Differences between clients' entries: one line for each client.

use crate::client::Client;

/// The keys of a client that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryKeys {
    /// The key and the value of a disabled server; `None` if the client starts every server.
    pub(super) disabled_key: Option<(&'static str, bool)>,
    /// Whether it has a key for the working folder.
    pub(super) cwd: bool,
    /// The table of variables.
    pub(super) env: &'static str,
    /// The list of names of variables that it passes on.
    pub(super) env_names: Option<&'static str>,
}

impl EntryKeys {
    pub(super) fn for_client(client: Client) -> Self {
        let (disabled, enabled) = (Some(("disabled", true)), Some(("enabled", false)));
        let (disabled_key, cwd, env, env_names) = match client {
            Client::ClaudeDesktop => (None, false, "env", None),
            Client::ClaudeCode => (None, false, "env", None),
            Client::Cursor => (None, false, "env", None),
            Client::VsCode => (None, true, "env", None),
            Client::Windsurf => (disabled, false, "env", None),
            Client::Zed => (enabled, false, "env", None),
            Client::Codex => (enabled, true, "env", Some("env_vars")),
            Client::Gemini => (None, true, "env", None),
            Client::OpenCode => (enabled, false, "environment", None),
            Client::Goose => (enabled, false, "envs", Some("env_keys")),
            Client::LmStudio => (None, false, "env", None),
            Client::Cline => (disabled, false, "env", None),
            Client::Copilot => (None, false, "env", None),
            Client::Antigravity => (None, false, "env", None),
            Client::Roo => (disabled, true, "env", None),
            Client::Continue => (None, true, "env", None),
        };
        Self {
            disabled_key,
            cwd,
            env,
            env_names,
        }
    }
}
