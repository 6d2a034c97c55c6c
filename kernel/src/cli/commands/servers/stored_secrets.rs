//! `mgp secrets`: named secrets for entries that refer to them.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use mgp_engine::doors::suggestions::nearest;
use mgp_engine::store::secrets::{VALUE_MAX, check_value, is_typed_name};
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_store::secrets::{Namespace, SecretLocation, SecretStore, SecretsError};
use secrecy::SecretString;
use serde_json::{Value, json};

use super::config_file::{files_in_force, read_if_exists};
use crate::cli::args::{NamedSecret, Secrets, SetSecret};
use crate::cli::client::CliContext;
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
    let store = context.secret_store()?;
    let value = SecretString::from(read_value(name)?);
    let kept_in = store.set(Namespace::Named, name, &value)?;
    let users = secret_users(context)?.remove(name).unwrap_or_default();
    report_set(context, &store, name, kept_in, &users)?;
    reload_kernel(context)
}

fn report_set(
    context: &CliContext,
    store: &SecretStore,
    name: &str,
    kept_in: SecretLocation,
    users: &[SecretReference],
) -> Result<(), Failure> {
    if context.json {
        return print_line(
            json!({"name": name, "kept_in": store_label(kept_in), "used_by": users_to_json(users)}),
        );
    }
    match kept_in {
        SecretLocation::Keyring => {
            print_line(format_args!("kept {name} in the keyring of the desktop"))?
        }
        SecretLocation::File => {
            let file = store.file(Namespace::Named);
            print_line(format_args!("kept {name} in {}, encrypted", file.display()))?;
            if let Some(Err(why)) = store.keyring_state() {
                print_error(format_args!(
                    "note: not in the keyring: {}",
                    sanitize_line(&why)
                ));
            }
        }
    }
    match users {
        [] => print_error(format_args!(
            "nothing refers to it yet: write `NAME = \"secret:{name}\"` below [servers.env] or [servers.headers]"
        )),
        users => print_error(format_args!(
            "it is had by {}",
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
        let users = users.remove(&kept.name).unwrap_or_default();
        let at = render_rfc3339_ms(kept.set_ms);
        rows.push((kept.name, store_label(kept.location), at, users));
    }
    for (name, users) in users {
        rows.push((name, "missing", String::new(), users));
    }
    if context.json {
        let row = |(name, kept_in, at, users): &(String, &str, String, Vec<_>)| json!({"name": name, "kept_in": kept_in, "set_at": at, "used_by": users_to_json(users)});
        let rows: Vec<Value> = rows.iter().map(row).collect();
        return print_line(json!({ "secrets": rows }));
    }
    if rows.is_empty() {
        return print_line("no secret is kept; `mgp secrets set NAME` asks for one");
    }
    let mut table = new_table(&["NAME", "KEPT IN", "SET AT", "USED BY"]);
    for (name, kept_in, at, users) in rows {
        table.add_row([
            sanitize_line(&name),
            kept_in.into(),
            at,
            sanitize_line(&render_users(&users)),
        ]);
    }
    print_line(table)
}

fn remove_secret(context: &CliContext, typed: &NamedSecret) -> Result<(), Failure> {
    let (store, name) = (context.secret_store()?, typed.name.as_str());
    if !store.remove(Namespace::Named, name)? {
        let kept = store.list(Namespace::Named)?;
        let near = nearest(name, kept.iter().map(|kept| kept.name.as_str()));
        let message = match near {
            Some(near) => format!("did you mean {near}?"),
            None => "`mgp secrets list` shows what is kept".to_owned(),
        };
        return Err(Failure::Other(format!(
            "there is no secret {name}; {message}"
        )));
    }
    let users = secret_users(context)?.remove(name).unwrap_or_default();
    if context.json {
        print_line(json!({"name": name, "removed": true, "used_by": users_to_json(&users)}))?;
    } else {
        print_line(format_args!("removed {name}"))?;
        if !users.is_empty() {
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
