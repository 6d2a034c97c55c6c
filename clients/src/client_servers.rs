//! The servers that a client's file names.

use std::collections::BTreeSet;

use crate::text::ClientText;

/// A server as a client has it written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientServer {
    /// Its name there.
    pub name: String,
    /// The folder of the only project it is for, where the user's file says so.
    pub project: Option<String>,
    /// How it is reached.
    pub(crate) connection: ClientConnection,
    /// It is not to be started.
    pub disabled: bool,
    /// The setting outside of its entry that says so.
    pub(crate) disabled_by: Option<&'static str>,
    /// The tools its client does not offer.
    pub tools: ToolLimits,
    /// What of the entry has no place here.
    pub skipped_keys: Vec<SkippedKey>,
}

impl ClientServer {
    /// What its client would ask for, by id.
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

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientConnection {
    /// It is started.
    Command {
        /// The program.
        command: ClientText,
        /// Its arguments.
        args: Vec<ClientText>,
        /// Its variables, in the order of the file.
        env: Vec<(String, ClientText)>,
        /// A file with more of them.
        env_file: Option<ClientText>,
        /// Where it is started.
        cwd: Option<ClientText>,
    },
    /// It is somewhere.
    Url {
        /// There.
        url: ClientText,
        /// What is sent along, in the order of the file.
        headers: Vec<(String, ClientText)>,
    },
}

/// Which tools of a server a client offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ToolLimits {
    /// These and no others, where there is a list.
    pub only: Option<BTreeSet<String>>,
    /// Not these.
    pub hidden: BTreeSet<String>,
    /// The settings that say so.
    pub keys: BTreeSet<String>,
}

impl ToolLimits {
    /// Whether any tool is kept back.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.only.is_none() && self.hidden.is_empty()
    }

    /// Keeps back what the other one does, too.
    pub fn restrict(&mut self, other: &Self) {
        self.hidden.extend(other.hidden.iter().cloned());
        self.keys.extend(other.keys.iter().cloned());
        self.only = match (self.only.take(), &other.only) {
            (Some(own), Some(other)) => Some(own.intersection(other).cloned().collect()),
            (own, other) => own.or_else(|| other.clone()),
        };
    }
}

/// A key of an entry that is not taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedKey {
    /// The key.
    pub key: String,
    /// Why, or what does the same here.
    pub reason: &'static str,
}

/// What a client asks its user for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInput {
    /// How values name it.
    pub id: String,
    /// The question.
    pub description: String,
    /// It must not be seen.
    pub secret: bool,
    /// What it is where nothing is answered.
    pub default: Option<String>,
    /// The only answers there are; any, where there are none.
    pub options: Vec<String>,
}

/// What was found in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientDocument {
    /// In the order of the file.
    pub servers: Vec<ClientServer>,
    /// Entries that no server can be made of, and why.
    pub invalid: Vec<(String, &'static str)>,
    /// What is asked for.
    pub inputs: Vec<ClientInput>,
}
