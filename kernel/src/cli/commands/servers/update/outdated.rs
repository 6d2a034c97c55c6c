//! `mgp servers outdated`: which entries name a version that is not the newest.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::thread;

use mgp_transports::http::proxy::Outbound;
use serde_json::{Value, json};

use super::newest::newest;
use super::package::{Package, compare};
use crate::cli::client::CliContext;
use crate::cli::commands::servers::config_file::{existing, in_file, in_force};
use crate::cli::failure::Failure;
use crate::cli::print::{report, say, table};
use crate::cli::words::{one_line, plain};
use crate::config::edit;

/// Registries that are asked at once: each is a program that is started.
const AT_ONCE: usize = 4;

/// An entry that runs a package in one version.
struct PinnedEntry {
    id: String,
    command: String,
    package: Package,
}

/// An entry, and the newest version of its package; or why that is not known.
type Looked = (PinnedEntry, Result<String, String>);

/// Asks for the newest version of every package that an entry names a version of.
pub(in crate::cli::commands::servers) fn outdated(context: &CliContext) -> Result<(), Failure> {
    let (pinned, other) = entries(context)?;
    let looked = look(pinned, &context.outbound());
    if context.json {
        let listed = looked.iter().map(|(entry, newest)| {
            json!({
                "id": entry.id, "package": entry.package.name, "version": entry.package.version,
                "newest": newest.as_ref().ok(), "outdated": is_older(entry, newest),
                "why": newest.as_ref().err(),
            })
        });
        return say(json!({"servers": listed.collect::<Vec<Value>>(), "not_looked_up": other}));
    }
    let mut rows = table(&["SERVER", "PACKAGE", "VERSION", "NEWEST"]);
    let mut behind = Vec::new();
    for (entry, newest) in &looked {
        if is_older(entry, newest) {
            behind.push(entry.id.as_str());
            let version = entry.package.version.as_deref().unwrap_or_default();
            let newest = newest.as_deref().unwrap_or_default();
            let cells = [
                entry.id.as_str(),
                entry.package.name.as_str(),
                version,
                newest,
            ];
            rows.add_row(cells.map(plain));
        }
    }
    match behind.as_slice() {
        [] if looked.is_empty() => {
            say("no entry names a version of a package that can be looked up")?
        }
        [] => say("every version that could be looked up is the newest")?,
        [first, ..] => {
            say(rows)?;
            report(format_args!(
                "`mgp servers update {first}` writes the newest into its entry"
            ));
        }
    }
    for (entry, newest) in &looked {
        if let Err(why) = newest {
            report(format_args!("note: {}: {}", entry.id, one_line(why, 300)));
        }
    }
    if !other.is_empty() {
        report(format_args!(
            "note: not looked up, for no version of a package of npm or PyPI, or of an image, stands there: {}",
            other.join(", ")
        ));
    }
    Ok(())
}

/// The entries of the files in force; the stronger file's of two with one id.
fn entries(context: &CliContext) -> Result<(Vec<PinnedEntry>, Vec<String>), Failure> {
    let (mut pinned, mut other, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for file in in_force(context, context.status()?.as_ref())? {
        let text = existing(&file)?.unwrap_or_default();
        for id in edit::ids(&text) {
            if !seen.insert(id.clone()) {
                continue;
            }
            let command = edit::command(&text, &id).map_err(|error| in_file(&file, &error))?;
            let package = command.and_then(|(command, args)| {
                let package = Package::of(&command, &args).ok()?;
                package.version.is_some().then_some((command, package))
            });
            match package {
                Some((command, package)) => pinned.push(PinnedEntry {
                    id,
                    command,
                    package,
                }),
                None => other.push(id),
            }
        }
    }
    Ok((pinned, other))
}

fn look(mut pinned: Vec<PinnedEntry>, outbound: &Outbound) -> Vec<Looked> {
    let mut looked = Vec::new();
    while !pinned.is_empty() {
        let rest = pinned.split_off(pinned.len().min(AT_ONCE));
        let asked: Vec<Result<String, String>> = thread::scope(|scope| {
            let asking = pinned.iter().map(|entry| {
                scope.spawn(move || newest(&entry.command, &entry.package, None, outbound))
            });
            let asking: Vec<_> = asking.collect();
            let answers = asking.into_iter().map(|asked| match asked.join() {
                Ok(newest) => newest.map_err(|failure| failure.to_string()),
                Err(_) => Err("it could not be asked".to_owned()),
            });
            answers.collect()
        });
        looked.extend(pinned.into_iter().zip(asked));
        pinned = rest;
    }
    looked
}

fn is_older(entry: &PinnedEntry, newest: &Result<String, String>) -> bool {
    match (&entry.package.version, newest) {
        (Some(version), Ok(newest)) => compare(version, newest) == Ordering::Less,
        (Some(_) | None, Ok(_) | Err(_)) => false,
    }
}
