//! `--set NAME=FROM`: values for masked text in a recording. No value is on the command line.

use std::collections::BTreeMap;
use std::env;

use mgp_store::secrets::Namespace;
use secrecy::ExposeSecret;

use crate::cli::client::CliContext;
use crate::cli::failure::Failure;

/// The values, by name.
pub(super) fn parse_substitutes(
    context: &CliContext,
    typed: &[String],
) -> Result<BTreeMap<String, String>, Failure> {
    typed
        .iter()
        .map(|one| parse_substitute(context, one))
        .collect()
}

fn parse_substitute(context: &CliContext, typed: &str) -> Result<(String, String), Failure> {
    let (name, from) = typed.split_once('=').unwrap_or((typed, ""));
    let value = match from.split_once(':') {
        Some(("env", variable)) => env::var(variable).map_err(|_| {
            Failure::Usage(format!(
                "there is no variable {variable} in the environment"
            ))
        })?,
        Some(("secret", kept)) => {
            let secret = context.secret_store()?.get(Namespace::Named, kept)?;
            let secret = secret.ok_or_else(|| {
                Failure::Usage(format!(
                    "no secret {kept} is kept; `mgp secrets list` shows them"
                ))
            })?;
            secret.expose_secret().to_owned()
        }
        Some(_) | None => {
            return Err(Failure::Usage(format!(
                "a value on the command line is seen by every user of this machine: --set {name}=env:VARIABLE \
                 takes it from the environment, --set {name}=secret:NAME from `mgp secrets`"
            )));
        }
    };
    Ok((name.to_owned(), value))
}
