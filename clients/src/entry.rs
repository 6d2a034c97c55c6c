//! Reads one entry of a client's file. Keys of clients differ, but none has two meanings except for the notation of
//! values: so one reader covers all clients.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::client::Client;
use crate::client_servers::{ClientConnection, ClientServer, SkippedKey, ToolLimits};
use crate::text::ClientText;

/// Reads an entry key by key, so that unread keys can be reported.
pub(crate) struct EntryReader<'v> {
    keys: Map<String, Value>,
    client: Option<Client>,
    entry: &'v Value,
    /// Variables and headers that are null.
    unset: Vec<String>,
}

/// Keys without an effect here, with the equivalent. The first matching prefix counts.
const UNSUPPORTED_KEYS: [(&str, &str); 17] = [
    (
        "timeout",
        "calls wait as long as call_timeout_secs of its [[servers]] entry says",
    ),
    (
        "startup_timeout",
        "a start may take as long as start_timeout_secs of its [[servers]] entry says",
    ),
    (
        "tool_timeout",
        "calls wait as long as call_timeout_secs of its [[servers]] entry says",
    ),
    (
        "initialization_timeout",
        "a start may take as long as start_timeout_secs of its [[servers]] entry says",
    ),
    (
        "autoApprove",
        "nothing is approved unseen here: see mgp grants add",
    ),
    (
        "alwaysAllow",
        "nothing is approved unseen here: see mgp grants add",
    ),
    (
        "trust",
        "nothing is approved unseen here: see mgp grants add",
    ),
    (
        "tools",
        "which tools may be called is said by grants: see mgp grants add",
    ),
    (
        "includeTools",
        "which tools may be called is said by grants: see mgp grants add",
    ),
    (
        "excludeTools",
        "which tools may be called is said by grants: see mgp grants add",
    ),
    (
        "enabled_tools",
        "which tools may be called is said by grants: see mgp grants add",
    ),
    (
        "disabled_tools",
        "which tools may be called is said by grants: see mgp grants add",
    ),
    (
        "disabledTools",
        "which tools may be called is said by grants: see mgp grants add",
    ),
    (
        "available_tools",
        "which tools may be called is said by grants: see mgp grants add",
    ),
    (
        "connectionTimeout",
        "a start may take as long as start_timeout_secs of its [[servers]] entry says",
    ),
    ("oauth", "signing in is not taken over"),
    ("auth", "signing in is not taken over"),
];
/// Keys that a server does not need.
const IGNORED_KEYS: [&str; 9] = [
    "description",
    "name",
    "display_name",
    "bundled",
    "source",
    "gallery",
    "version",
    "settings",
    "$schema",
];

type ReadResult<T> = Result<T, &'static str>;

impl<'v> EntryReader<'v> {
    pub(crate) fn new(entry: &'v Value, client: Option<Client>) -> ReadResult<Self> {
        let keys = entry.as_object().ok_or("it is no table")?.clone();
        Ok(Self {
            keys,
            client,
            entry,
            unset: Vec::new(),
        })
    }

    pub(crate) fn read_server(
        mut self,
        name: &str,
        project: Option<&str>,
    ) -> ReadResult<ClientServer> {
        let disabled =
            self.read_flag("disabled")? == Some(true) || self.read_flag("enabled")? == Some(false);
        let tools = self.read_tool_limits();
        let kind = self.read_word("type")?.or(self.read_word("transport")?);
        let kind = kind.or(self.read_word("transportType")?);
        let url = ["url", "serverUrl", "httpUrl", "uri"].into_iter();
        let urls: Vec<_> = url.filter_map(|key| self.take_key(key)).collect();
        let reach = match (kind.as_deref(), urls.first()) {
            (Some("builtin" | "platform" | "frontend" | "inline_python"), _) => {
                return Err("it is part of the client itself");
            }
            (Some("stdio" | "local") | None, None) => self.read_command()?,
            (_, Some(url)) if self.keys.get("command").is_none() => {
                let url = self.parse_text(url)?;
                self.read_url(url)?
            }
            (_, Some(_)) => return Err("it has both a command and a URL"),
            (Some(_), None) => return Err("it has no URL"),
        };
        Ok(ClientServer {
            name: name.to_owned(),
            project: project.map(str::to_owned),
            connection: reach,
            disabled,
            disabled_by: None,
            tools,
            skipped_keys: self.into_skipped_keys(),
        })
    }

    /// Tool lists. Valid names count; lists with other values are also reported.
    fn read_tool_limits(&mut self) -> ToolLimits {
        let mut limits = ToolLimits::default();
        let mut read_keys = BTreeSet::new();
        let none = ToolLimits {
            only: Some(BTreeSet::new()),
            ..ToolLimits::default()
        };
        for key in ["disabledTools", "disabled_tools", "excludeTools"] {
            match self.read_tool_names(key, &mut read_keys) {
                Some(names) if names.contains("*") => limits.restrict(&none),
                Some(names) => limits.hidden.extend(names),
                None => {}
            }
        }
        for key in ["includeTools", "enabled_tools", "available_tools", "tools"] {
            let Some(names) = self.read_tool_names(key, &mut read_keys) else {
                continue;
            };
            // For Goose an empty list is no list, for Copilot `*` is every tool.
            let all = (key == "available_tools" && names.is_empty()) || names.contains("*");
            if !all {
                let only = Some(names);
                let other = ToolLimits {
                    only,
                    ..ToolLimits::default()
                };
                limits.restrict(&other);
            }
        }
        limits.keys = read_keys.into_iter().collect();
        limits
    }

    /// The names of such lists; patterns and invalid names remain.
    fn read_tool_names(
        &mut self,
        key: &str,
        read_keys: &mut BTreeSet<String>,
    ) -> Option<BTreeSet<String>> {
        let listed = self.keys.get(key)?;
        let listed = if listed.is_string() {
            vec![listed.clone()]
        } else {
            listed.as_array()?.clone()
        };
        let plain = |name: &str| name == "*" || !name.contains(['(', '*', ' ']);
        let is_name = |one: &Value| one.as_str().is_some_and(plain);
        let (names, rest): (Vec<Value>, Vec<Value>) = listed.into_iter().partition(is_name);
        if rest.is_empty() {
            self.keys.shift_remove(key)
        } else {
            self.keys.insert(key.to_owned(), rest.into())
        };
        read_keys.insert(key.to_owned());
        Some(
            names
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
        )
    }

    fn read_command(&mut self) -> ReadResult<ClientConnection> {
        let command = self.take_key("command").or_else(|| self.take_key("cmd"));
        let mut words = match command.ok_or("it has neither a command nor a URL")? {
            // Zed's older entries.
            Value::Object(command) => {
                for key in ["args", "env"] {
                    if let Some(value) = command.get(key) {
                        self.keys.insert(key.to_owned(), value.clone());
                    }
                }
                let path = command.get("path").or_else(|| command.get("command"));
                vec![self.parse_text(path.ok_or("its command has no path")?)?]
            }
            Value::Array(words) => self.parse_texts(&words)?,
            word @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                vec![self.parse_text(&word)?]
            }
        };
        if let Some(args) = self.take_key("args") {
            words.extend(self.parse_texts(args.as_array().ok_or("args is no list")?)?);
        }
        let mut words = words.into_iter();
        let command = words
            .next()
            .filter(|command| command.as_literal() != Some(""));
        Ok(ClientConnection::Command {
            command: command.ok_or("its command is empty")?,
            args: words.collect(),
            env: self.read_env()?,
            env_file: self.read_optional("envFile")?,
            cwd: self.read_optional("cwd")?,
        })
    }

    fn read_env(&mut self) -> ReadResult<Vec<(String, ClientText)>> {
        let mut env = Vec::new();
        for key in ["env", "environment", "envs"] {
            env.extend(self.read_map(key)?);
        }
        let own = |key: &str, env: &[(String, ClientText)]| env.iter().any(|(name, _)| name == key);
        // Names of variables that the client passes on: Goose's and Codex's.
        for key in ["env_keys", "env_vars"] {
            let names = self.take_key(key);
            let names = names.as_ref().and_then(Value::as_array);
            for name in names.into_iter().flatten().filter_map(Value::as_str) {
                if !own(name, &env) {
                    env.push((name.to_owned(), ClientText::for_variable(name)));
                }
            }
        }
        Ok(env)
    }

    fn read_url(&mut self, url: ClientText) -> ReadResult<ClientConnection> {
        let mut headers = self.read_map("headers")?;
        headers.extend(self.read_map("http_headers")?);
        // Continue's.
        if let Some(Value::Object(options)) = self.keys.get("requestOptions") {
            let theirs = options.get("headers").cloned();
            if options.keys().all(|key| key == "headers") {
                self.keys.shift_remove("requestOptions");
            }
            if let Some(theirs) = theirs {
                self.keys.insert("headers".to_owned(), theirs);
                headers.extend(self.read_map("headers")?);
            }
        }
        // Continue's short form of a token.
        if let Some(key) = self.take_key("apiKey") {
            let mut token = ClientText::literal("Bearer ");
            token.0.extend(self.parse_text(&key)?.0);
            headers.push(("Authorization".to_owned(), token));
        }
        let named = self.take_key("env_http_headers");
        let named = named.as_ref().and_then(Value::as_object);
        for (header, variable) in named.into_iter().flatten() {
            let variable = variable.as_str().ok_or("a header's variable is no text")?;
            headers.push((header.clone(), ClientText::for_variable(variable)));
        }
        if let Some(variable) = self.read_word("bearer_token_env_var")? {
            let mut token = ClientText::literal("Bearer ");
            token.0.extend(ClientText::for_variable(&variable).0);
            headers.push(("Authorization".to_owned(), token));
        }
        Ok(ClientConnection::Url { url, headers })
    }

    fn into_skipped_keys(self) -> Vec<SkippedKey> {
        let keys = self.entry.as_object().into_iter().flat_map(Map::keys);
        let unread = keys.filter(|key| self.keys.contains_key(*key));
        let unread = unread.filter(|key| !IGNORED_KEYS.contains(&key.as_str()));
        let told = |key: &String| SkippedKey {
            key: key.clone(),
            reason: UNSUPPORTED_KEYS
                .iter()
                .find(|(beginning, _)| key.starts_with(beginning))
                .map_or("there is nothing like it here", |(_, why)| why),
        };
        let unset = self.unset.iter().map(|key| SkippedKey {
            key: key.clone(),
            reason: "it is null there, and not set here",
        });
        unread.map(told).chain(unset).collect()
    }

    fn take_key(&mut self, key: &str) -> Option<Value> {
        self.keys.shift_remove(key).filter(|value| !value.is_null())
    }

    fn parse_text(&self, value: &Value) -> ReadResult<ClientText> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => return Err("a value is no text"),
        };
        Ok(ClientText::parse(&text, self.client))
    }

    fn parse_texts(&self, values: &[Value]) -> ReadResult<Vec<ClientText>> {
        values.iter().map(|value| self.parse_text(value)).collect()
    }

    fn read_optional(&mut self, key: &str) -> ReadResult<Option<ClientText>> {
        let value = self.take_key(key);
        value.map(|value| self.parse_text(&value)).transpose()
    }

    fn read_map(&mut self, key: &str) -> ReadResult<Vec<(String, ClientText)>> {
        let Some(table) = self.take_key(key) else {
            return Ok(Vec::new());
        };
        let table = table
            .as_object()
            .ok_or("its variables or headers are no table")?;
        // A variable that is null is not set by the client.
        let (unset, values): (Vec<_>, Vec<_>) =
            table.iter().partition(|(_, value)| value.is_null());
        let unset = unset.into_iter().map(|(name, _)| format!("{key}.{name}"));
        self.unset.extend(unset);
        values
            .into_iter()
            .map(|(name, value)| Ok((name.clone(), self.parse_text(value)?)))
            .collect()
    }

    fn read_flag(&mut self, key: &str) -> ReadResult<Option<bool>> {
        let flag = self.take_key(key).map(|flag| flag.as_bool());
        flag.map(|flag| flag.ok_or("disabled or enabled is neither true nor false"))
            .transpose()
    }

    fn read_word(&mut self, key: &str) -> ReadResult<Option<String>> {
        let word = self.take_key(key);
        let word = word.map(|word| word.as_str().map(str::to_owned));
        word.map(|word| word.ok_or("its kind is no text"))
            .transpose()
    }
}
