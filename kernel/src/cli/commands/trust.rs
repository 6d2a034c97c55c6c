//! `mgp trust` and `mgp untrust`.

mod plan;

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use mgp_discovery::PROJECT_FILE;
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_runtime::time::unix_ms;
use serde_json::{Value, json};

use crate::cli::args::{Trust, Untrust};
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::print::{new_table, print_line};
use crate::cli::text_format::{quote_for_shell, sanitize_line};
use crate::trust::{self, TrustError, TrustStore, TrustedFile, UntrustedReason};
use plan::{Plan, PlannedRead};

/// Shows what a project's file would start, asks for confirmation, and reloads the kernel.
pub(super) fn trust(context: &CliContext, typed: &Trust) -> Result<(), Failure> {
    if typed.list {
        return list(context);
    }
    let place = resolve_config_path(&context.look_up.current_dir, typed.folder.as_deref());
    let place =
        trust::trusted_path(&place).map_err(|e| not_trusted_failure(&place, &e.to_string()))?;
    let text = trust::read_checked(&place).map_err(|why| not_trusted_failure(&place, &why))?;
    let store = TrustStore::open(context.look_up.trust_file().as_deref());
    let plan = Plan::parse(&text, &place).map_err(|why| not_trusted_failure(&place, &why))?;
    let before = store.find(&place).map(|entry| entry.blake3.clone());
    let already = before.as_deref() == Some(&*trust::hash(&text));
    if !context.json {
        print_line(plan.render(before.is_some() && !already).trim_end())?;
    }
    let private = plan.private_reads();
    let trusted = already
        || if typed.yes {
            check_reads_named(&place, &private, &typed.reads)?
        } else {
            !context.json && confirm_trust(&place)? && confirm_private_reads(&private)?
        };
    if trusted && !already {
        record_trust(context, &place, &text)?;
    }
    let kernel = if trusted {
        reload_kernel(context, &place)
    } else {
        None
    };
    if context.json {
        let mut report = plan.to_json();
        report["trusted"] = trusted.into();
        report["in_force"] = kernel.is_some_and(|(_, in_force)| in_force).into();
        return print_line(report);
    }
    match (trusted, kernel) {
        (false, _) => Err(Failure::Other(format!(
            "{} stays left out",
            place.display()
        ))),
        (true, report) => {
            print_line(format_args!(
                "\n{} is trusted as it is",
                sanitize_line(&place.display().to_string())
            ))?;
            report.map_or(Ok(()), |(words, _)| print_line(sanitize_line(&words)))
        }
    }
}

/// Records that this text was reviewed, replacing the earlier one.
pub(super) fn record_trust(context: &CliContext, place: &Path, text: &str) -> Result<(), Failure> {
    let entry = TrustedFile {
        file: place.to_owned(),
        blake3: trust::hash(text),
        at: render_rfc3339_ms(unix_ms()),
    };
    if place.to_str().is_none() {
        return Err(not_trusted_failure(place, "its path is not UTF-8"));
    }
    let file = context.look_up.trust_file();
    let stored = trust::modify_store(file.as_deref(), |entries| {
        entries.retain(|old| old.file != entry.file);
        entries.push(entry);
    });
    stored.map_err(trust_store_failure)
}

/// Removes the trust in a project; a running kernel stops its servers.
pub(super) fn untrust(context: &CliContext, typed: &Untrust) -> Result<(), Failure> {
    let place = resolve_config_path(&context.look_up.current_dir, typed.folder.as_deref());
    // A removed folder has the path under which it was trusted.
    let place = trust::trusted_path(&place).unwrap_or(place);
    let file = context.look_up.trust_file();
    let forgotten = trust::modify_store(file.as_deref(), |entries| {
        let before = entries.len();
        entries.retain(|entry| entry.file != place);
        before > entries.len()
    });
    if !forgotten.map_err(trust_store_failure)? {
        return Err(Failure::Other(format!(
            "{} was not trusted; `mgp trust --list` shows what is",
            place.display()
        )));
    }
    let _ = context.reload_kernel();
    if context.json {
        print_line(json!({"file": place, "trusted": false}))
    } else {
        print_line(format_args!(
            "{} is left out from now on",
            sanitize_line(&place.display().to_string())
        ))
    }
}

/// Lists all trusted projects.
fn list(context: &CliContext) -> Result<(), Failure> {
    let store = TrustStore::open(context.look_up.trust_file().as_deref());
    if let Some(wrong) = store.load_error() {
        return Err(Failure::Other(format!("nothing is trusted: {wrong}")));
    }
    let standing = |entry: &TrustedFile| {
        let judged = trust::evaluate(&entry.file, &store, None);
        match judged.untrusted.map(|untrusted| untrusted.reason) {
            None => "trusted",
            Some(_) if !entry.file.exists() => "gone",
            Some(UntrustedReason::Changed | UntrustedReason::New) => "changed since",
            Some(UntrustedReason::Unusable(_)) => "unfit",
        }
    };
    if context.json {
        let report = |entry: &TrustedFile| {
            json!({"file": entry.file, "at": entry.at, "blake3": entry.blake3,
                "standing": standing(entry)})
        };
        let entries: Vec<Value> = store.entries().iter().map(report).collect();
        return print_line(json!({ "trusted": entries }));
    }
    if store.entries().is_empty() {
        return print_line(
            "no project is trusted; `mgp trust FOLDER` shows what one would start, and asks",
        );
    }
    let mut table = new_table(&["FILE", "STANDING", "AT"]);
    for entry in store.entries() {
        let file = sanitize_line(&entry.file.display().to_string());
        table.add_row([file, standing(entry).into(), sanitize_line(&entry.at)]);
    }
    print_line(table)
}

/// The file of a folder, or of the folder of the named file.
fn resolve_config_path(here: &Path, typed: Option<&Path>) -> PathBuf {
    let folder = typed.map_or_else(|| here.to_owned(), |typed| here.join(typed));
    if folder.is_dir() || folder.file_name().is_none_or(|name| name != PROJECT_FILE) {
        folder.join(PROJECT_FILE)
    } else {
        folder
    }
}

/// Asks for confirmation at the terminal.
fn confirm_trust(place: &Path) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "there is no terminal to ask on: what is shown above is trusted with `mgp trust --yes {}`",
            place.parent().unwrap_or(place).display()
        )));
    }
    let mut terminal = io::stderr().lock();
    write!(terminal, "\nTrust it as it is? [y/N] ")?;
    terminal.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(["y", "yes"].contains(&line.trim().to_lowercase().as_str()))
}

/// Whether the options name all private reads.
fn check_reads_named(
    place: &Path,
    private: &[&PlannedRead],
    names: &[String],
) -> Result<bool, Failure> {
    let missing = private.iter().filter(|it| !names.contains(&it.name));
    let mut missing: Vec<String> = missing.map(|it| quote_for_shell(&it.name)).collect();
    missing.dedup();
    if missing.is_empty() {
        return Ok(true);
    }
    let options = missing.iter().map(|name| format!("--reads {name} "));
    Err(Failure::Usage(format!(
        "it would read what may be a secret of yours ({}): to let it, type `mgp trust --yes {}{}`",
        sanitize_line(&missing.join(", ")),
        sanitize_line(&options.collect::<String>()),
        quote_for_shell(&place.parent().unwrap_or(place).display().to_string())
    )))
}

/// Asks for each of them by name.
fn confirm_private_reads(private: &[&PlannedRead]) -> Result<bool, Failure> {
    let mut terminal = io::stderr().lock();
    for read in private {
        let (name, to) = (sanitize_line(&read.name), sanitize_line(&read.recipient));
        write!(
            terminal,
            "It would give {name} to {to}. Type {name} to let it: "
        )?;
        terminal.flush()?;
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        if line.trim_end_matches(['\r', '\n']) != read.name {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes a running kernel reload its files; returns a message, and whether the file is in force.
fn reload_kernel(context: &CliContext, place: &Path) -> Option<(String, bool)> {
    let status = match context.reload_kernel() {
        Ok(status) => status,
        Err(Failure::NotRunning(_)) => return None,
        Err(why) => return Some((format!("no kernel has taken it up: {why}"), false)),
    };
    let (pid, here) = (status.pid, place.display().to_string());
    let in_force = status.config_files.contains(&here);
    let report = if in_force {
        format!(
            "the kernel (process {pid}) has taken it up; what waits for its next start stands under \
             `restart` in `mgp status`"
        )
    } else {
        format!(
            "the kernel that runs (process {pid}) was started in another folder and does not read it"
        )
    };
    Some((report, in_force))
}

fn not_trusted_failure(place: &Path, why: &str) -> Failure {
    Failure::Other(format!("{} cannot be trusted: {why}", place.display()))
}

fn trust_store_failure(error: TrustError) -> Failure {
    Failure::Other(error.to_string())
}
