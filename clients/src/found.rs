//! The servers that a client's file names.

use std::collections::BTreeSet;

use crate::text::FoundText;

/// A server as a client has it written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundServer {
    /// Its name there.
    pub name: String,
    /// The folder of the only project it is for, where the user's file says so.
    pub project: Option<String>,
    /// How it is reached.
    pub reach: FoundReach,
    /// It is not to be started.
    pub disabled: bool,
    /// The setting outside of its entry that says so.
    pub disabled_by: Option<&'static str>,
    /// The tools its client does not offer.
    pub tools: ToolLimits,
    /// What of the entry has no place here.
    pub left_out: Vec<KeyLeftOut>,
}

impl FoundServer {
    /// What its client would ask for, by id.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        let texts: Vec<&FoundText> = match &self.reach {
            FoundReach::Command {
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
            FoundReach::Url { url, headers } => {
                let values = headers.iter().map(|(_, value)| value);
                std::iter::once(url).chain(values).collect()
            }
        };
        texts.into_iter().flat_map(FoundText::inputs)
    }
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundReach {
    /// It is started.
    Command {
        /// The program.
        command: FoundText,
        /// Its arguments.
        args: Vec<FoundText>,
        /// Its variables, in the order of the file.
        env: Vec<(String, FoundText)>,
        /// A file with more of them.
        env_file: Option<FoundText>,
        /// Where it is started.
        cwd: Option<FoundText>,
    },
    /// It is somewhere.
    Url {
        /// There.
        url: FoundText,
        /// What is sent along, in the order of the file.
        headers: Vec<(String, FoundText)>,
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
    pub fn is_none(&self) -> bool {
        self.only.is_none() && self.hidden.is_empty()
    }

    /// Keeps back what the other one does, too.
    pub fn narrow(&mut self, other: &Self) {
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
pub struct KeyLeftOut {
    /// The key.
    pub key: String,
    /// Why, or what does the same here.
    pub why: &'static str,
}

/// What a client asks its user for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundInput {
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
pub struct FoundDocument {
    /// In the order of the file.
    pub servers: Vec<FoundServer>,
    /// Entries that no server can be made of, and why.
    pub broken: Vec<(String, &'static str)>,
    /// What is asked for.
    pub inputs: Vec<FoundInput>,
}
