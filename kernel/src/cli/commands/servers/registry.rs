//! `mgp servers search`, and `mgp servers add` of a name that the MCP registry has.
//!
//! All data is written by the publishers of servers. It is displayed sanitized, invalid names not at all, and the user
//! confirms what is run before it is written.

mod api;
mod install_plan;
mod preview;
mod server_json;

use std::io::{self, IsTerminal};

use mgp_engine::doors::suggestions::nearest;
use serde_json::{Map, Value, json};

use self::api::RegistryClient;
use self::install_plan::{InstallError, InstallPlan};
use self::server_json::{PublishedInput, RegistryEntry};
use super::add::EntryDraft;
use super::supplied_values::{SecretPrompt, may_be_value};
use crate::cli::args::{Add, Search};
use crate::cli::client::{CliContext, has_promptable_missing, prompt_missing_arguments};
use crate::cli::failure::Failure;
use crate::cli::print::{confirm, new_table, print_error, print_line};
use crate::cli::text_format::{first_line, sanitize_line};

/// Most characters of a description in a table.
const DESCRIPTION_WIDTH_MAX: usize = 80;

/// Whether this is a name of the registry: those contain a slash, which ids do not.
pub(super) fn is_registry_name(typed: &str) -> bool {
    typed.contains('/')
}

pub(super) fn search(context: &CliContext, typed: &Search) -> Result<(), Failure> {
    let client = RegistryClient::new(context, &typed.address)?;
    let words: Vec<String> = typed.words.iter().map(|word| word.to_lowercase()).collect();
    let most = usize::try_from(typed.max).unwrap_or(usize::MAX);
    let (mut found, unfit) = client.search(&words)?;
    let more = found.len().saturating_sub(most);
    found.truncate(most);
    if context.json {
        let listed: Vec<Value> = found.iter().map(RegistryEntry::to_json).collect();
        return print_line(json!({"registry": client.url(), "servers": listed, "more": more}));
    }
    if unfit > 0 {
        print_error(format_args!(
            "note: {unfit} with names that are none are not shown"
        ));
    }
    if found.is_empty() {
        let words = sanitize_line(&typed.words.join(" "));
        return print_line(format_args!("{} has nothing with {words}", client.url()));
    }
    let mut rows = new_table(&["NAME", "VERSION", "KIND", "WHAT IT DOES"]);
    for answer in &found {
        let mut what = first_line(answer.server.description_or_title(), DESCRIPTION_WIDTH_MAX);
        if answer.status() != "active" {
            what = format!("({}) {what}", first_line(answer.status(), 20));
        }
        let server = &answer.server;
        let version = first_line(&server.version, 20);
        rows.add_row([
            first_line(&server.name, 120),
            version,
            server.package_kinds().join(", "),
            what,
        ]);
    }
    print_line(rows)?;
    if more > 0 {
        print_error(format_args!(
            "{more} more: --max shows them, or another word"
        ));
    }
    Ok(())
}

/// Adds a server by its name in the registry.
pub(super) fn add(context: &CliContext, typed: &Add) -> Result<(), Failure> {
    let client = RegistryClient::new(context, &typed.from.address)?;
    let answer = client.get_server(&typed.id, typed.from.release.as_deref());
    let answer = answer?.ok_or_else(|| unknown_name_failure(&client, typed))?;
    let given = parse_settings(&typed.from.set)?;
    let refused =
        |why: InstallError| Failure::Usage(sanitize_line(&format!("{}: {why}", typed.id)));
    let wanted = typed.from.package.as_deref();
    let open = InstallPlan::for_server(&answer.server, wanted).map_err(refused)?;
    if let Some(name) = given.keys().find(|name| open.input(name).is_none()) {
        let names = open.input_names();
        let near = nearest(name, names.iter().copied());
        let near = near.map_or_else(
            || format!("it takes {}", names.join(", ")),
            |near| format!("did you mean {near}?"),
        );
        let message = format!("{} takes no {name}; {near}", typed.id);
        return Err(Failure::Usage(sanitize_line(&message)));
    }
    if let Some(secret) = given
        .keys()
        .find(|name| open.input(name).is_some_and(PublishedInput::is_hidden))
    {
        return Err(Failure::Usage(sanitize_line(&format!(
            "`--set {secret}=…` shows its value to every user of this machine, and keeps it in the history \
             of the shell: leave it out and type it when asked, or say where it is: --env {secret}=secret:NAME"
        ))));
    }
    if !context.json {
        print_line(preview::render_preview(&answer, &client, &open))?;
    }
    let asks = !context.json && io::stdin().is_terminal() && !typed.from.dry_run;
    let values = complete_settings(&open, given, asks && !typed.from.yes, &typed.id)?;
    let plan = open.with_values(&values).map_err(refused)?;
    let entry = installed_entry(typed, &plan);
    // Checks the target before prompting for secrets.
    let place = EntryDraft::prepare(context, &entry)?;
    let secrets = read_needed_secrets(typed, &plan, asks)?;
    if !context.json {
        print_line(preview::render_entry(&entry, &plan))?;
    }
    if typed.from.dry_run {
        return if context.json {
            print_line(preview::to_json(&answer, &entry, &plan, false))
        } else {
            Ok(())
        };
    }
    if !typed.from.yes {
        if !asks {
            return Err(Failure::Usage(
                "there is no terminal to ask on: what is shown is added with --yes".to_owned(),
            ));
        }
        if !confirm("Add it?")? {
            return Err(Failure::Other("nothing was changed".to_owned()));
        }
    }
    let mut values = place.collect_values(context, &entry)?;
    for (name, header, value) in secrets {
        let reference = place.store_secret(&mut values, &name, value)?;
        if header {
            values.headers.push((name, reference))
        } else {
            values.env.push((name, reference))
        }
    }
    values.env.extend(plan.env.iter().cloned());
    values.headers.extend(plan.headers.iter().cloned());
    place.write(context, &entry, values, None)
}

/// The error for an unknown name, with a suggestion.
fn unknown_name_failure(client: &RegistryClient<'_>, typed: &Add) -> Failure {
    let (_, end) = typed.id.split_once('/').unwrap_or(("", &typed.id));
    let found = client.search(&[end.to_lowercase()]).unwrap_or_default().0;
    let names: Vec<&str> = found
        .iter()
        .map(|answer| answer.server.name.as_str())
        .collect();
    let near = nearest(&typed.id, names.iter().copied()).or(names.first().copied());
    let near = match near {
        Some(near) => format!("did you mean {}?", first_line(near, 200)),
        None => "`mgp servers search WORDS` shows what it has".to_owned(),
    };
    let version = typed.from.release.as_deref();
    let version = version.map_or(String::new(), |version| format!(" {version}"));
    Failure::Usage(sanitize_line(&format!(
        "{} has no {}{version}; {near}",
        client.url(),
        typed.id
    )))
}

/// Parses `NAME=VALUE`.
fn parse_settings(typed: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut given = Map::new();
    for word in typed {
        let pair = word.split_once('=');
        let pair = pair.filter(|(name, _)| !name.is_empty() && !may_be_value(name));
        let (name, value) = pair.ok_or_else(|| {
            Failure::Usage(
                "`--set` takes NAME=VALUE; what was typed is not repeated, as it may be a secret"
                    .to_owned(),
            )
        })?;
        if given.insert(name.to_owned(), value.into()).is_some() {
            return Err(Failure::Usage(format!("`{name}` is given twice")));
        }
    }
    Ok(given)
}

/// The given settings, and prompted ones for missing; without a terminal defaults apply, and the rest is reported.
fn complete_settings(
    plan: &InstallPlan,
    given: Map<String, Value>,
    asks: bool,
    name: &str,
) -> Result<Map<String, Value>, Failure> {
    let schema = plan.input_schema();
    if asks && has_promptable_missing(&schema, &given) {
        let filled = prompt_missing_arguments(name, &schema, &given);
        return filled.ok_or_else(|| Failure::Other("nothing was changed".to_owned()));
    }
    let (mut filled, mut missing) = (given, Vec::new());
    for input in plan.required_inputs() {
        let name = input.label();
        match &input.default {
            _ if filled.contains_key(name) => {}
            Some(default) => drop(filled.insert(name.to_owned(), default.as_str().into())),
            None => missing.push(format!("--set {name}=…")),
        }
    }
    if missing.is_empty() {
        Ok(filled)
    } else {
        Err(Failure::Usage(sanitize_line(&format!(
            "{name} needs more: {}",
            missing.join(" ")
        ))))
    }
}

/// The entry, as for `mgp servers add` with a command.
fn installed_entry(typed: &Add, plan: &InstallPlan) -> Add {
    let id = typed.from.called.clone();
    Add {
        id: id.unwrap_or_else(|| install_plan::id_from_name(&typed.id)),
        url: plan.url.clone(),
        transport: None,
        env: typed.env.clone(),
        env_file: typed.env_file.clone(),
        header: typed.header.clone(),
        project: typed.project,
        cwd: typed.cwd.clone(),
        no_autostart: typed.no_autostart,
        on_demand: typed.on_demand,
        trust: typed.trust.clone(),
        restart: typed.restart.clone(),
        connector: None,
        command: plan.command.clone(),
        from: Default::default(),
    }
}

/// Prompts for secrets without a known source, without echo: name, whether it is a header, and value.
fn read_needed_secrets(
    typed: &Add,
    plan: &InstallPlan,
    asks: bool,
) -> Result<Vec<(String, bool, String)>, Failure> {
    let named = |words: &[String], name: &str| {
        let mut words = words.iter();
        words.any(|word| word.split('=').next() == Some(name))
    };
    let missing: Vec<_> = plan
        .secrets
        .iter()
        .filter(|secret| {
            !named(
                if secret.is_header {
                    &typed.header
                } else {
                    &typed.env
                },
                &secret.name,
            )
        })
        .filter(|_| typed.env_file.is_empty())
        .collect();
    if typed.from.dry_run {
        return Ok(Vec::new());
    }
    if !asks && let Some(first) = missing.first() {
        let option = if first.is_header { "--header" } else { "--env" };
        let all: Vec<_> = missing.iter().map(|secret| secret.name.as_str()).collect();
        return Err(Failure::Usage(sanitize_line(&format!(
            "{} needs a secret for {}: `mgp secrets set NAME` keeps one, `{option} {}=secret:NAME` gives it",
            typed.id,
            all.join(", "),
            first.name
        ))));
    }
    let mut prompt = SecretPrompt::new(&typed.id);
    let mut values = Vec::new();
    for secret in missing {
        if let Some(value) = prompt.read(&secret.name)? {
            values.push((secret.name.clone(), secret.is_header, value));
        }
    }
    Ok(values)
}
