//! `mgp secrets`: named secrets for entries that refer to them.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use mgp_engine::doors::suggestions::nearest;
use mgp_engine::env::AGENT_PREFIX;
use mgp_engine::store::secrets::{
    VALUE_MAX, agent_secret_name, check_value, is_typed_name, split_agent_secret,
};
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::ids::AgentId;
use mgp_store::secrets::{Namespace, SecretLocation, SecretStore, SecretsError};
use secrecy::SecretString;
use serde_json::{Value, json};

use super::config_file::{files_in_force, read_if_exists};
use crate::cli::args::{NamedSecret, Secrets, SetSecret};
use crate::cli::client::CliContext;
use crate::cli::commands::agents;
use crate::cli::failure::Failure;
use crate::cli::hidden_input::HiddenInput;
use crate::cli::print::{new_table, print_error, print_line};
use crate::cli::text_format::sanitize_line;
use crate::config::{SecretReference, secret_references};

pub(in crate::cli::commands) fn run(context: &CliContext, typed: Secrets) -> Result<(), Failure> {
    match typed {
        Secrets::Set(typed) => set_secret(context, &typed),
        Secrets::List => list_secrets(context),
        Secrets::Remove(typed) => remove_secret(context, &typed),
    }
}

impl From<SecretsError> for Failure {
    fn from(error: SecretsError) -> Self {
        match error {
            SecretsError::Rejected(why) => Self::Usage(why.to_string()),
            other @ (SecretsError::File(_) | SecretsError::Keyring(_)) => {
                Self::Other(other.to_string())
            }
        }
    }
}

fn set_secret(context: &CliContext, typed: &SetSecret) -> Result<(), Failure> {
    let name = typed.name.as_str();
    if !typed.value.is_empty() {
        return Err(Failure::Usage(format!(
            "a value on the command line is seen by every user of this machine, and stays in the \
             history of the shell: type it when `mgp secrets set {name}` asks, or let it be read from stdin. \
             What was typed just now had better be replaced where it came from"
        )));
    }
    if !is_typed_name(name) {
        return Err(Failure::Usage(format!(
            "{name:?} is no name of a secret; letters, digits, '_', '-', '.', '/' and '@' make one"
        )));
    }
    let secret = TypedSecret::resolve(context, name, typed.agent.as_deref())?;
    let store = context.secret_store()?;
    let value = SecretString::from(read_value(&secret.label())?);
    let kept_in = store.set(Namespace::Named, &secret.stored_name(), &value)?;
    report_set(context, &store, &secret, kept_in)?;
    reload_kernel(context)
}

/// A secret as it was typed: of everybody, or of one agent.
struct TypedSecret {
    name: String,
    agent: Option<AgentId>,
}

impl TypedSecret {
    fn resolve(context: &CliContext, name: &str, agent: Option<&str>) -> Result<Self, Failure> {
        let agent = match agent {
            Some(typed) => {
                let runs = context.status()?.is_some();
                Some(agents::resolve_possible_agent(context, typed, runs)?)
            }
            None => None,
        };
        Ok(Self {
            name: name.to_owned(),
            agent,
        })
    }

    fn stored_name(&self) -> String {
        match &self.agent {
            Some(agent) => agent_secret_name(agent, &self.name),
            None => self.name.clone(),
        }
    }

    /// How entries refer to it.
    fn reference(&self) -> String {
        match &self.agent {
            Some(_) => format!("{AGENT_PREFIX}{}", self.name),
            None => self.name.clone(),
        }
    }

    fn label(&self) -> String {
        match &self.agent {
            Some(agent) => format!("{} of {agent}", self.name),
            None => self.name.clone(),
        }
    }

    fn users(&self, context: &CliContext) -> Result<Vec<SecretReference>, Failure> {
        let users = secret_users(context)?.remove(&self.reference());
        Ok(users.unwrap_or_default())
    }
}

fn report_set(
    context: &CliContext,
    store: &SecretStore,
    secret: &TypedSecret,
    kept_in: SecretLocation,
) -> Result<(), Failure> {
    let users = secret.users(context)?;
    if context.json {
        return print_line(json!({
            "name": secret.name, "agent": secret.agent, "kept_in": store_label(kept_in),
            "used_by": users_to_json(&users),
        }));
    }
    let label = secret.label();
    match kept_in {
        SecretLocation::Keyring => {
            print_line(format_args!("kept {label} in the keyring of the desktop"))?
        }
        SecretLocation::File => {
            let file = store.file(Namespace::Named);
            print_line(format_args!(
                "kept {label} in {}, encrypted",
                file.display()
            ))?;
            if let Some(Err(why)) = store.keyring_state() {
                print_error(format_args!(
                    "note: not in the keyring: {}",
                    sanitize_line(&why)
                ));
            }
        }
    }
    match (users.as_slice(), &secret.agent) {
        ([], _) => print_error(format_args!(
            "nothing refers to it yet: write `NAME = \"secret:{}\"` below [servers.env] or [servers.headers]",
            secret.reference()
        )),
        (users, None) => print_error(format_args!(
            "it is had by {}",
            sanitize_line(&render_users(users))
        )),
        (users, Some(agent)) => print_error(format_args!(
            "it is had by the next instance for {agent} of {}; `mgp servers restart ID` ends one that runs",
            sanitize_line(&render_users(users))
        )),
    }
    Ok(())
}

/// A running kernel restarts the servers that use the secret.
fn reload_kernel(context: &CliContext) -> Result<(), Failure> {
    match context.reload_kernel() {
        Ok(_) | Err(Failure::NotRunning(_)) => Ok(()),
        Err(other) => Err(other),
    }
}

/// Reads the value without echo, or from stdin.
fn read_value(name: &str) -> Result<String, Failure> {
    let value = if io::stdin().is_terminal() {
        HiddenInput::open()?.read_secret(&format!("{name} (it is not shown): "))?
    } else {
        let mut bytes = Vec::new();
        let most = VALUE_MAX as u64 + 3;
        io::stdin().lock().take(most).read_to_end(&mut bytes)?;
        let text = String::from_utf8(bytes);
        let text = text.map_err(|_| Failure::Usage("what stdin holds is no UTF-8".into()))?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        line.strip_suffix('\r').unwrap_or(line).to_owned()
    };
    check_value(&value).map_err(|why| Failure::Usage(why.to_string()))?;
    Ok(value)
}

fn list_secrets(context: &CliContext) -> Result<(), Failure> {
    let kept = context.secret_store()?.list(Namespace::Named)?;
    let mut users = secret_users(context)?;
    let mut rows = Vec::new();
    for kept in kept {
        let (name, agent, users) = match split_agent_secret(&kept.name) {
            Some((agent, name)) => {
                let reference = format!("{AGENT_PREFIX}{name}");
                let users = users.get(&reference).cloned().unwrap_or_default();
                (name.to_owned(), agent.to_owned(), users)
            }
            None => {
                let users = users.remove(&kept.name).unwrap_or_default();
                (kept.name, String::new(), users)
            }
        };
        let at = render_rfc3339_ms(kept.set_ms);
        rows.push((name, agent, store_label(kept.location), at, users));
    }
    // Which agents need one is seen when they call.
    users.retain(|name, _| !name.starts_with(AGENT_PREFIX));
    for (name, users) in users {
        rows.push((name, String::new(), "missing", String::new(), users));
    }
    if context.json {
        let row = |(name, agent, kept_in, at, users): &(String, String, &str, String, Vec<_>)| {
            let agent = (!agent.is_empty()).then_some(agent);
            json!({"name": name, "agent": agent, "kept_in": kept_in, "set_at": at, "used_by": users_to_json(users)})
        };
        let rows: Vec<Value> = rows.iter().map(row).collect();
        return print_line(json!({ "secrets": rows }));
    }
    if rows.is_empty() {
        return print_line("no secret is kept; `mgp secrets set NAME` asks for one");
    }
    let mut table = new_table(&["NAME", "AGENT", "KEPT IN", "SET AT", "USED BY"]);
    for (name, agent, kept_in, at, users) in rows {
        table.add_row([
            sanitize_line(&name),
            sanitize_line(&agent),
            kept_in.into(),
            at,
            sanitize_line(&render_users(&users)),
        ]);
    }
    print_line(table)
}

fn remove_secret(context: &CliContext, typed: &NamedSecret) -> Result<(), Failure> {
    // The agent may be removed, and its secrets left by a kernel that was not running.
    let agent = typed.agent.as_deref();
    let secret = TypedSecret::resolve(context, &typed.name, agent)?;
    let store = context.secret_store()?;
    let label = secret.label();
    if !store.remove(Namespace::Named, &secret.stored_name())? {
        let kept = store.list(Namespace::Named)?;
        let near = nearest(&typed.name, kept.iter().map(|kept| kept.name.as_str()));
        let message = match near {
            Some(near) => format!("did you mean {near}?"),
            None => "`mgp secrets list` shows what is kept".to_owned(),
        };
        return Err(Failure::Other(format!(
            "there is no secret {label}; {message}"
        )));
    }
    let users = secret.users(context)?;
    if context.json {
        print_line(json!({
            "name": secret.name, "agent": secret.agent, "removed": true, "used_by": users_to_json(&users),
        }))?;
    } else {
        print_line(format_args!("removed {label}"))?;
        if !users.is_empty() && secret.agent.is_some() {
            print_error(format_args!(
                "note: instances of {} that run have it until they end; `mgp servers restart ID` ends them",
                sanitize_line(&render_users(&users))
            ));
        } else if !users.is_empty() {
            print_error(format_args!(
                "note: {} refers to it, and does not start without it",
                sanitize_line(&render_users(&users))
            ));
        }
    }
    reload_kernel(context)
}

/// The references to each secret in the files in force.
fn secret_users(context: &CliContext) -> Result<BTreeMap<String, Vec<SecretReference>>, Failure> {
    let mut users: BTreeMap<String, Vec<SecretReference>> = BTreeMap::new();
    let files = files_in_force(context, context.status()?.as_ref()).unwrap_or_default();
    for file in files {
        let text = read_if_exists(Path::new(&file))?.unwrap_or_default();
        for reference in secret_references(&text) {
            let of = users.entry(reference.name.clone()).or_default();
            of.push(reference);
        }
    }
    Ok(users)
}

fn store_label(kept_in: SecretLocation) -> &'static str {
    match kept_in {
        SecretLocation::File => "file",
        SecretLocation::Keyring => "keyring",
    }
}

fn render_users(users: &[SecretReference]) -> String {
    let labels = users.iter().map(|user| match &user.server {
        Some(server) => format!("{server} ({})", user.key),
        None => user.key.clone(),
    });
    labels.collect::<Vec<_>>().join(", ")
}

fn users_to_json(users: &[SecretReference]) -> Value {
    let user = |user: &SecretReference| json!({"server": user.server, "key": user.key});
    users.iter().map(user).collect()
}
