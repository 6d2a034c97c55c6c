//! `mgp servers search`, and `mgp servers add` of a name that the MCP registry has.
//!
//! Everything that comes from there is what whoever published a server wrote. It is shown plainly, a name
//! that is none is not shown at all, and what is run is seen and agreed to before it is written down.

mod api;
mod installed;
mod published;
mod telling;

use std::io::{self, IsTerminal};

use mgp_engine::doors::nearest::nearest;
use serde_json::{Map, Value, json};

use self::api::RegistryClient;
use self::installed::{InstallPlan, InstallRefused};
use self::published::{PublishedInput, RegistryAnswer};
use super::add::AddedEntry;
use super::secrets::{AskedSecrets, may_be_value};
use crate::cli::args::{Add, Search};
use crate::cli::client::{CliContext, ask_missing, lacks_some};
use crate::cli::failure::Failure;
use crate::cli::print::{ask_yes, report, say, table};
use crate::cli::words::{one_line, plain};

/// Characters of a description in a table.
const SHOWN: usize = 80;

/// Whether somebody means a name of the registry: those have a slash, which no id has.
pub(super) fn is_name(typed: &str) -> bool {
    typed.contains('/')
}

pub(super) fn search(context: &CliContext, typed: &Search) -> Result<(), Failure> {
    let client = RegistryClient::of(context, &typed.address)?;
    let words: Vec<String> = typed.words.iter().map(|word| word.to_lowercase()).collect();
    let most = usize::try_from(typed.max).unwrap_or(usize::MAX);
    let (mut found, unfit) = client.search(&words)?;
    let more = found.len().saturating_sub(most);
    found.truncate(most);
    if context.json {
        let listed: Vec<Value> = found.iter().map(RegistryAnswer::to_json).collect();
        return say(json!({"registry": client.url(), "servers": listed, "more": more}));
    }
    if unfit > 0 {
        report(format_args!(
            "note: {unfit} with names that are none are not shown"
        ));
    }
    if found.is_empty() {
        let words = plain(&typed.words.join(" "));
        return say(format_args!("{} has nothing with {words}", client.url()));
    }
    let mut rows = table(&["NAME", "VERSION", "KIND", "WHAT IT DOES"]);
    for answer in &found {
        let mut what = one_line(answer.server.what(), SHOWN);
        if answer.status() != "active" {
            what = format!("({}) {what}", one_line(answer.status(), 20));
        }
        let server = &answer.server;
        let version = one_line(&server.version, 20);
        rows.add_row([
            one_line(&server.name, 120),
            version,
            server.kinds().join(", "),
            what,
        ]);
    }
    say(rows)?;
    if more > 0 {
        report(format_args!(
            "{more} more: --max shows them, or another word"
        ));
    }
    Ok(())
}

/// Adds a server by its name in the registry.
pub(super) fn add(context: &CliContext, typed: &Add) -> Result<(), Failure> {
    let client = RegistryClient::of(context, &typed.from.address)?;
    let answer = client.server(&typed.id, typed.from.release.as_deref());
    let answer = answer?.ok_or_else(|| unknown(&client, typed))?;
    let given = settings(&typed.from.set)?;
    let refused = |why: InstallRefused| Failure::Usage(plain(&format!("{}: {why}", typed.id)));
    let wanted = typed.from.package.as_deref();
    let open = InstallPlan::of(&answer.server, wanted).map_err(refused)?;
    if let Some(name) = given.keys().find(|name| open.input(name).is_none()) {
        let names = open.names();
        let near = nearest(name, names.iter().copied());
        let near = near.map_or_else(
            || format!("it takes {}", names.join(", ")),
            |near| format!("did you mean {near}?"),
        );
        let told = format!("{} takes no {name}; {near}", typed.id);
        return Err(Failure::Usage(plain(&told)));
    }
    if let Some(secret) = given
        .keys()
        .find(|name| open.input(name).is_some_and(PublishedInput::is_hidden))
    {
        return Err(Failure::Usage(plain(&format!(
            "`--set {secret}=…` shows its value to every user of this machine, and keeps it in the history \
             of the shell: leave it out and type it when asked, or say where it is: --env {secret}=secret:NAME"
        ))));
    }
    if !context.json {
        say(telling::in_words(&answer, &client, &open))?;
    }
    let asks = !context.json && io::stdin().is_terminal() && !typed.from.dry_run;
    let values = completed(&open, given, asks && !typed.from.yes, &typed.id)?;
    let plan = open.with(&values).map_err(refused)?;
    let entry = installed_entry(typed, &plan);
    // Only the place is looked at before somebody is asked for secrets.
    let place = AddedEntry::of(context, &entry)?;
    let secrets = needed_secrets(typed, &plan, asks)?;
    if !context.json {
        say(telling::entry(&entry, &plan))?;
    }
    if typed.from.dry_run {
        return match context.json {
            true => say(telling::to_json(&answer, &entry, &plan, false)),
            false => Ok(()),
        };
    }
    if !typed.from.yes {
        if !asks {
            return Err(Failure::Usage(
                "there is no terminal to ask on: what is shown is added with --yes".to_owned(),
            ));
        }
        if !ask_yes("Add it?")? {
            return Err(Failure::Other("nothing was changed".to_owned()));
        }
    }
    let mut values = place.given(context, &entry)?;
    for (name, header, value) in secrets {
        let reference = place.keep(&mut values, &name, value)?;
        match header {
            true => values.headers.push((name, reference)),
            false => values.env.push((name, reference)),
        }
    }
    values.env.extend(plan.env.iter().cloned());
    values.headers.extend(plan.headers.iter().cloned());
    place.write(context, &entry, values)
}

/// Its name is told what was probably meant.
fn unknown(client: &RegistryClient, typed: &Add) -> Failure {
    let (_, end) = typed.id.split_once('/').unwrap_or(("", &typed.id));
    let found = client.search(&[end.to_lowercase()]).unwrap_or_default().0;
    let names: Vec<&str> = found
        .iter()
        .map(|answer| answer.server.name.as_str())
        .collect();
    let near = nearest(&typed.id, names.iter().copied()).or(names.first().copied());
    let near = match near {
        Some(near) => format!("did you mean {}?", one_line(near, 200)),
        None => "`mgp servers search WORDS` shows what it has".to_owned(),
    };
    let version = typed.from.release.as_deref();
    let version = version.map_or(String::new(), |version| format!(" {version}"));
    Failure::Usage(plain(&format!(
        "{} has no {}{version}; {near}",
        client.url(),
        typed.id
    )))
}

/// `NAME=VALUE` as typed.
fn settings(typed: &[String]) -> Result<Map<String, Value>, Failure> {
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

/// What is given, and what somebody answers to what is missing; without anybody defaults count, and the
/// rest is named.
fn completed(
    plan: &InstallPlan,
    given: Map<String, Value>,
    asks: bool,
    name: &str,
) -> Result<Map<String, Value>, Failure> {
    let schema = plan.schema();
    if asks && lacks_some(&schema, &given) {
        let filled = ask_missing(name, &schema, &given);
        return filled.ok_or_else(|| Failure::Other("nothing was changed".to_owned()));
    }
    let (mut filled, mut missing) = (given, Vec::new());
    for input in plan.required() {
        let name = input.called();
        match &input.default {
            _ if filled.contains_key(name) => {}
            Some(default) => drop(filled.insert(name.to_owned(), default.as_str().into())),
            None => missing.push(format!("--set {name}=…")),
        }
    }
    match missing.is_empty() {
        true => Ok(filled),
        false => Err(Failure::Usage(plain(&format!(
            "{name} needs more: {}",
            missing.join(" ")
        )))),
    }
}

/// The entry as it would be typed.
fn installed_entry(typed: &Add, plan: &InstallPlan) -> Add {
    let id = typed.from.called.clone();
    Add {
        id: id.unwrap_or_else(|| installed::id_of(&typed.id)),
        url: plan.url.clone(),
        transport: None,
        env: typed.env.clone(),
        env_file: typed.env_file.clone(),
        header: typed.header.clone(),
        project: typed.project,
        cwd: typed.cwd.clone(),
        no_autostart: typed.no_autostart,
        trust: typed.trust.clone(),
        restart: typed.restart.clone(),
        command: plan.command.clone(),
        from: Default::default(),
    }
}

/// The secrets that it needs and nobody said where they are, asked for unseen: name, whether it is a header,
/// and value.
fn needed_secrets(
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
                if secret.header {
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
        let option = if first.header { "--header" } else { "--env" };
        let all: Vec<_> = missing.iter().map(|secret| secret.name.as_str()).collect();
        return Err(Failure::Usage(plain(&format!(
            "{} needs a secret for {}: `mgp secrets set NAME` keeps one, `{option} {}=secret:NAME` gives it",
            typed.id,
            all.join(", "),
            first.name
        ))));
    }
    let mut asked = AskedSecrets::of(&typed.id);
    let mut values = Vec::new();
    for secret in missing {
        if let Some(value) = asked.ask(&secret.name)? {
            values.push((secret.name.clone(), secret.header, value));
        }
    }
    Ok(values)
}
