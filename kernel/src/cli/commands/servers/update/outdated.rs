//! `mgp servers outdated`: lists entries with a version that is not the newest.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::thread;

use mgp_transports::http::proxy::Outbound;
use serde_json::{Value, json};

use super::package::{Package, compare_versions};
use super::package_versions::newest_package_version;
use crate::cli::client::CliContext;
use crate::cli::commands::servers::config_file::{files_in_force, read_if_exists, to_failure};
use crate::cli::failure::Failure;
use crate::cli::print::{new_table, print_error, print_line};
use crate::cli::text_format::{first_line, sanitize_line};
use crate::config::edit;

/// Concurrent queries: each starts a program.
const CONCURRENT_QUERIES_MAX: usize = 4;

/// An entry with an exact package version.
struct PinnedEntry {
    id: String,
    command: String,
    package: Package,
}

/// An entry with the newest version of its package, or why that is unknown.
type CheckedEntry = (PinnedEntry, Result<String, String>);

/// Queries the newest version of every package with an exact version.
pub(in crate::cli::commands::servers) fn list_outdated(
    context: &CliContext,
) -> Result<(), Failure> {
    let (pinned, other) = pinned_entries(context)?;
    let looked = check_entries(pinned, &context.outbound());
    if context.json {
        let listed = looked.iter().map(|(entry, newest)| {
            json!({
                "id": entry.id, "package": entry.package.name, "version": entry.package.version,
                "newest": newest.as_ref().ok(), "outdated": is_older(entry, newest),
                "why": newest.as_ref().err(),
            })
        });
        return print_line(
            json!({"servers": listed.collect::<Vec<Value>>(), "not_looked_up": other}),
        );
    }
    let mut rows = new_table(&["SERVER", "PACKAGE", "VERSION", "NEWEST"]);
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
            rows.add_row(cells.map(sanitize_line));
        }
    }
    match behind.as_slice() {
        [] if looked.is_empty() => {
            print_line("no entry names a version of a package that can be looked up")?
        }
        [] => print_line("every version that could be looked up is the newest")?,
        [first, ..] => {
            print_line(rows)?;
            print_error(format_args!(
                "`mgp servers update {first}` writes the newest into its entry"
            ));
        }
    }
    for (entry, newest) in &looked {
        if let Err(why) = newest {
            print_error(format_args!("note: {}: {}", entry.id, first_line(why, 300)));
        }
    }
    if !other.is_empty() {
        print_error(format_args!(
            "note: not looked up, for no version of a package of npm or PyPI, or of an image, stands there: {}",
            other.join(", ")
        ));
    }
    Ok(())
}

/// The entries of the files in force; of two with one id that of the stronger file.
fn pinned_entries(context: &CliContext) -> Result<(Vec<PinnedEntry>, Vec<String>), Failure> {
    let (mut pinned, mut other, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for file in files_in_force(context, context.status()?.as_ref())? {
        let text = read_if_exists(&file)?.unwrap_or_default();
        for id in edit::ids(&text) {
            if !seen.insert(id.clone()) {
                continue;
            }
            let command =
                edit::read_command(&text, &id).map_err(|error| to_failure(&file, &error))?;
            let package = command.and_then(|(command, args)| {
                let package = Package::from_command(&command, &args).ok()?;
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

fn check_entries(mut pinned: Vec<PinnedEntry>, outbound: &Outbound) -> Vec<CheckedEntry> {
    let mut looked = Vec::new();
    while !pinned.is_empty() {
        let rest = pinned.split_off(pinned.len().min(CONCURRENT_QUERIES_MAX));
        let results: Vec<Result<String, String>> = thread::scope(|scope| {
            let asking = pinned.iter().map(|entry| {
                scope.spawn(move || {
                    newest_package_version(&entry.command, &entry.package, None, outbound)
                })
            });
            let asking: Vec<_> = asking.collect();
            let answers = asking.into_iter().map(|results| match results.join() {
                Ok(newest) => newest.map_err(|failure| failure.to_string()),
                Err(_) => Err("it could not be asked".to_owned()),
            });
            answers.collect()
        });
        looked.extend(pinned.into_iter().zip(results));
        pinned = rest;
    }
    looked
}

fn is_older(entry: &PinnedEntry, newest: &Result<String, String>) -> bool {
    match (&entry.package.version, newest) {
        (Some(version), Ok(newest)) => compare_versions(version, newest) == Ordering::Less,
        (Some(_) | None, Ok(_) | Err(_)) => false,
    }
}
