//! A published server as an entry of `mgp.toml`: the command that runs its package in exactly this version, or its
//! address.

mod packages;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::server_json::{PublishedInput, PublishedRemote, PublishedServer};
use packages::package_source;

/// Most inputs of one server.
const INPUTS_MAX: usize = 100;

/// Why a server cannot be added.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InstallError {
    #[error("it is published as {0}, which cannot be run here; npm, pypi, oci and remote can")]
    NoSuchKind(String),
    #[error("it is not published as {0}")]
    NotAvailableAs(String),
    #[error("{0:?} is no name of a package")]
    InvalidIdentifier(String),
    #[error("it names no version of {0}, so that anything could be run later")]
    NotPinned(String),
    #[error("its package is of another registry, {0}: install it by hand")]
    OtherRegistry(String),
    #[error(
        "its package is reached at an address of its own: start it by hand, and add that with --url"
    )]
    OtherTransport,
    #[error("`{0}` is a secret in its command line, which every user of this machine can read")]
    PlaintextSecret(String),
    #[error("`{0}` {1}")]
    InvalidValue(String, String),
    #[error("its address is {0:?}; https://, or http:// and this machine, is wanted")]
    InvalidUrl(String),
    #[error("it asks for more than {INPUTS_MAX} things")]
    TooManyInputs,
}

/// A required secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NeededSecret {
    pub(super) name: String,
    pub(super) is_header: bool,
    pub(super) description: String,
}

/// How it is run.
#[derive(Debug, Default)]
pub(super) struct InstallPlan {
    /// As in `mgp.toml`; unknown values in angle brackets.
    pub(super) command: Vec<String>,
    pub(super) url: Option<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) secrets: Vec<NeededSecret>,
    /// Words for docker or another launcher: they may give the server access to the machine.
    pub(super) launcher_words: Vec<String>,
    source: InstallSource,
    inputs: Vec<PublishedInput>,
}

#[derive(Clone, Debug, Default)]
struct InstallSource {
    words_before: Vec<String>,
    runtime_arguments: Vec<PublishedInput>,
    words_between: Vec<String>,
    arguments: Vec<PublishedInput>,
    url: Option<String>,
    variables: Vec<PublishedInput>,
    headers: Vec<PublishedInput>,
    is_docker: bool,
}

impl InstallPlan {
    /// The first package that can be run, or the wanted kind.
    pub(super) fn for_server(
        server: &PublishedServer,
        wanted: Option<&str>,
    ) -> Result<Self, InstallError> {
        let fits = |kind: &str| wanted.is_none_or(|wanted| wanted == kind);
        let mut refused = None;
        for package in &server.packages {
            let kind = package.registry_type.as_str();
            if !["npm", "pypi", "oci"].contains(&kind) || !fits(kind) {
                continue;
            }
            match package_source(package) {
                Ok(source) => return Self::from_source(source),
                Err(why) => refused = refused.or(Some(why)),
            }
        }
        if fits("remote")
            && let Some(remote) = server.remotes.first()
        {
            return Self::from_source(remote_source(remote));
        }
        Err(refused.unwrap_or_else(|| match wanted {
            Some(wanted) => InstallError::NotAvailableAs(wanted.to_owned()),
            None => {
                let kinds = server.packages.iter();
                let kinds: Vec<_> = kinds
                    .map(|package| package.registry_type.as_str())
                    .collect();
                InstallError::NoSuchKind(if kinds.is_empty() {
                    "nothing".to_owned()
                } else {
                    kinds.join(", ")
                })
            }
        }))
    }

    fn from_source(source: InstallSource) -> Result<Self, InstallError> {
        let groups = [
            &source.runtime_arguments,
            &source.arguments,
            &source.variables,
            &source.headers,
        ];
        let mut inputs = Vec::new();
        for input in groups.into_iter().flatten() {
            match &input.value {
                // Only the placeholders of a fixed value are inputs.
                Some(_) => inputs.extend(input.variables.iter().map(|(name, inner)| {
                    let mut inner = inner.clone();
                    inner.name.clone_from(name);
                    inner
                })),
                None => inputs.push(input.clone()),
            }
        }
        inputs.retain(|input| !input.label().is_empty());
        if inputs.len() > INPUTS_MAX {
            return Err(InstallError::TooManyInputs);
        }
        let plan = Self {
            source,
            inputs,
            ..Self::default()
        };
        plan.with_placeholders()
    }

    /// An input by its label.
    pub(super) fn input(&self, name: &str) -> Option<&PublishedInput> {
        self.inputs.iter().find(|input| input.label() == name)
    }

    pub(super) fn input_names(&self) -> Vec<&str> {
        let open = self.inputs.iter().filter(|input| !input.is_hidden());
        open.map(PublishedInput::label).collect()
    }

    /// Required inputs that are no secrets.
    pub(super) fn required_inputs(&self) -> impl Iterator<Item = &PublishedInput> {
        let inputs = self.inputs.iter();
        inputs.filter(|input| input.is_required && !input.is_hidden())
    }

    /// Optional inputs.
    pub(super) fn optional_inputs(&self) -> impl Iterator<Item = &PublishedInput> {
        self.inputs.iter().filter(|input| !input.is_required)
    }

    /// The form of the required inputs.
    pub(super) fn input_schema(&self) -> Value {
        let fields = self.required_inputs();
        let fields = fields.map(|input| (input.label().to_owned(), input.schema()));
        let properties: Map<String, Value> = fields.collect();
        let names: Vec<_> = properties.keys().cloned().collect();
        json!({"properties": properties, "required": names})
    }

    /// The command with unknown values in angle brackets.
    fn with_placeholders(self) -> Result<Self, InstallError> {
        let open = self.inputs.iter();
        let open = open.map(|input| {
            let name = input.label();
            (name.to_owned(), Value::from(format!("<{name}>")))
        });
        let required: Vec<String> = self
            .required_inputs()
            .map(|input| input.label().to_owned())
            .collect();
        let values: Map<String, Value> = open.filter(|(name, _)| required.contains(name)).collect();
        self.fill(&values, false)
    }

    /// With these values.
    pub(super) fn with_values(self, values: &Map<String, Value>) -> Result<Self, InstallError> {
        self.fill(values, true)
    }

    fn fill(mut self, values: &Map<String, Value>, judged: bool) -> Result<Self, InstallError> {
        let mut texts = BTreeMap::new();
        for (name, value) in values {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            if judged && let Some(input) = self.input(name) {
                let judged = input.check(&text);
                judged.map_err(|why| InstallError::InvalidValue(name.clone(), why))?;
            }
            texts.insert(name.clone(), text);
        }
        let source = self.source.clone();
        (self.command, self.env, self.headers, self.secrets) = Default::default();
        let mut variables = Vec::new();
        for input in &source.variables {
            self.add_named(input, false, &texts)?;
            variables.push(input.name.clone());
        }
        for input in &source.headers {
            self.add_named(input, true, &texts)?;
        }
        if let Some(url) = &source.url {
            let url = substitute(url, &texts);
            if judged && !mgp_transports::http::is_safe_url(&url) {
                return Err(InstallError::InvalidUrl(url));
            }
            self.url = Some(escape_dollars(&url));
            return Ok(self);
        }
        let runtime = render_arguments(&source.runtime_arguments, &texts)?;
        self.launcher_words.clone_from(&runtime);
        let mut command = source.words_before.clone();
        command.extend(runtime);
        if source.is_docker {
            let needed = |name: &String| {
                let known = self.env.iter().any(|(known, _)| known == name);
                known || self.secrets.iter().any(|secret| secret.name == *name)
            };
            for name in variables.iter().filter(|name| needed(name)) {
                command.extend(["-e".to_owned(), name.clone()]);
            }
        }
        command.extend(source.words_between);
        command.extend(render_arguments(&source.arguments, &texts)?);
        self.command = command.iter().map(|word| escape_dollars(word)).collect();
        Ok(self)
    }

    /// A variable or a header.
    fn add_named(
        &mut self,
        input: &PublishedInput,
        header: bool,
        values: &BTreeMap<String, String>,
    ) -> Result<(), InstallError> {
        let name = input.name.clone();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || (header && c == '-');
        if name.is_empty() || !name.chars().all(plain) {
            let why = "is no name of a variable or a header";
            return Err(InstallError::InvalidValue(name, why.to_owned()));
        }
        let value = match (&input.value, values.get(&name)) {
            (Some(fixed), _) => Some(substitute(fixed, values)),
            (None, Some(given)) => Some(given.clone()),
            (None, None) => None,
        };
        let hidden = input.is_hidden() || input.variables.values().any(PublishedInput::is_hidden);
        match value {
            _ if hidden && (input.is_required || input.value.is_some()) => {
                self.secrets.push(NeededSecret {
                    name,
                    is_header: header,
                    description: input.description.clone().unwrap_or_default(),
                });
            }
            // A value in the form of a reference would be resolved.
            Some(value)
                if ["file:", "secret:", "keyring:"]
                    .iter()
                    .any(|it| value.starts_with(it)) =>
            {
                let why = "begins like a reference to a secret, and could be none";
                return Err(InstallError::InvalidValue(name, why.to_owned()));
            }
            Some(value) if header => self.headers.push((name, escape_dollars(&value))),
            Some(value) => self.env.push((name, escape_dollars(&value))),
            None => {}
        }
        Ok(())
    }
}

/// The words of arguments that have a value.
fn render_arguments(
    inputs: &[PublishedInput],
    values: &BTreeMap<String, String>,
) -> Result<Vec<String>, InstallError> {
    let mut words = Vec::new();
    for input in inputs {
        let value = match (&input.value, values.get(input.label())) {
            (Some(fixed), _) => Some(substitute(fixed, values)),
            (None, given) => given.cloned(),
        };
        let hidden = input.is_hidden() || input.variables.values().any(PublishedInput::is_hidden);
        if hidden && (input.is_required || input.value.is_some()) {
            return Err(InstallError::PlaintextSecret(input.label().to_owned()));
        }
        match (input.name.as_str(), value) {
            ("", Some(value)) => words.push(value),
            (name, Some(value)) => words.extend([name.to_owned(), value]),
            // A required flag without a value stands alone.
            (name, None) if input.is_required && !name.is_empty() => words.push(name.to_owned()),
            (_, None) => {}
        }
    }
    Ok(words)
}

fn remote_source(remote: &PublishedRemote) -> InstallSource {
    let mut headers = remote.headers.clone();
    headers.retain(|header| !header.name.is_empty());
    let parts = remote.variables.iter().map(|(name, inner)| {
        let mut inner = inner.clone();
        inner.name.clone_from(name);
        inner
    });
    InstallSource {
        url: Some(remote.url.clone()),
        // They are prompted for, and are only part of the address.
        runtime_arguments: parts.collect(),
        headers,
        ..InstallSource::default()
    }
}

/// Replaces `{name}` by its value; unknown names stay.
fn substitute(text: &str, values: &BTreeMap<String, String>) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('{') {
        out += &rest[..at];
        let inner = rest[at + 1..].split_once('}');
        match inner.and_then(|(name, after)| Some((values.get(name)?, after))) {
            Some((value, after)) => {
                out += value;
                rest = after;
            }
            None => {
                out.push('{');
                rest = &rest[at + 1..];
            }
        }
    }
    out + rest
}

/// Escapes dollar signs, which begin a variable in `mgp.toml`.
fn escape_dollars(text: &str) -> String {
    text.replace('$', "$$")
}

/// The id for a name: the part after the slash, without characters that are invalid in an id.
pub(super) fn id_from_name(name: &str) -> String {
    let end = name.rsplit('/').next().unwrap_or(name);
    let end: String = end.chars().take(48).collect();
    end.trim_matches(['.', '-', '_']).to_owned()
}

#[cfg(test)]
mod tests;
