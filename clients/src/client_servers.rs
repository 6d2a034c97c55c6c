//! The servers in a client's file.

use std::collections::BTreeSet;

use crate::text::ClientText;

/// A server as configured in a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientServer {
    /// Its name there.
    pub name: String,
    /// The folder of its project, if the user's file has one.
    pub project: Option<String>,
    /// Its transport.
    pub(crate) connection: ClientConnection,
    /// Whether it is disabled.
    pub disabled: bool,
    /// The setting outside of its entry that disables it.
    pub(crate) disabled_by: Option<&'static str>,
    /// The tool limits of the client.
    pub tools: ToolLimits,
    /// Keys of the entry without an equivalent here.
    pub skipped_keys: Vec<SkippedKey>,
}

impl ClientServer {
    /// The ids of the client's inputs that it needs.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        let texts: Vec<&ClientText> = match &self.connection {
            ClientConnection::Command {
                command,
                args,
                env,
                env_file,
                cwd,
            } => {
                let words = std::iter::once(command).chain(args);
                let values = env.iter().map(|(_, value)| value);
                words.chain(values).chain(env_file).chain(cwd).collect()
            }
            ClientConnection::Url { url, headers } => {
                let values = headers.iter().map(|(_, value)| value);
                std::iter::once(url).chain(values).collect()
            }
        };
        texts.into_iter().flat_map(ClientText::input_ids)
    }
}

/// The transport of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientConnection {
    /// A program.
    Command {
        /// The program.
        command: ClientText,
        /// Its arguments.
        args: Vec<ClientText>,
        /// Its variables, in the order of the file.
        env: Vec<(String, ClientText)>,
        /// A file with more variables.
        env_file: Option<ClientText>,
        /// Its working folder.
        cwd: Option<ClientText>,
    },
    /// A URL.
    Url {
        /// The URL.
        url: ClientText,
        /// Headers of each request, in the order of the file.
        headers: Vec<(String, ClientText)>,
    },
}

/// The tools of a server that a client offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ToolLimits {
    /// Only these, if there is a list.
    pub only: Option<BTreeSet<String>>,
    /// Hidden tools.
    pub hidden: BTreeSet<String>,
    /// The keys of these settings.
    pub keys: BTreeSet<String>,
}

impl ToolLimits {
    /// Whether no tool is hidden.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.only.is_none() && self.hidden.is_empty()
    }

    /// Also applies the limits of another one.
    pub fn restrict(&mut self, other: &Self) {
        self.hidden.extend(other.hidden.iter().cloned());
        self.keys.extend(other.keys.iter().cloned());
        self.only = match (self.only.take(), &other.only) {
            (Some(own), Some(other)) => Some(own.intersection(other).cloned().collect()),
            (own, other) => own.or_else(|| other.clone()),
        };
    }
}

/// A key of an entry that is not imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedKey {
    /// The key.
    pub key: String,
    /// The reason, or the equivalent here.
    pub reason: &'static str,
}

/// A value that a client prompts its user for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInput {
    /// The id in references.
    pub id: String,
    /// The prompt.
    pub description: String,
    /// Whether the answer is secret.
    pub secret: bool,
    /// The value without an answer.
    pub default: Option<String>,
    /// The allowed answers; any, if empty.
    pub options: Vec<String>,
}

/// The contents of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientDocument {
    /// In the order of the file.
    pub servers: Vec<ClientServer>,
    /// Invalid entries, with the reason.
    pub invalid: Vec<(String, &'static str)>,
    /// The declared inputs.
    pub inputs: Vec<ClientInput>,
}
