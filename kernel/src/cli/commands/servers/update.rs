//! `mgp servers update`: writes the newest version of a server's package into its entry.

mod images;
mod outdated;
mod package;
mod package_versions;
mod tool_changes;
mod update_history;

use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use mgp_engine::doors::suggestions::nearest_name;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::KernelStatus;
use mgp_protocol::mgp::servers::{Server, Wait};
use serde_json::{Value, json};

pub(super) use self::outdated::list_outdated;
pub(super) use self::package::is_exact;
use self::package::{Package, Registry, compare_versions, is_version};
use self::tool_changes::{OfferedTools, ToolChanges};
use self::update_history::UpdateRecord;
use super::config_file::{files_in_force, read_if_exists, to_failure, write};
use super::start_progress::{StartMode, start_and_watch};
use super::state::{CONNECTED, report_state};
use crate::cli::args::Update;
use crate::cli::client::{CliContext, name_resolution};
use crate::cli::failure::Failure;
use crate::cli::print::{print_error, print_line};
use crate::cli::text_format::sanitize_line;
use crate::config;
use crate::config::edit::{self, EditError};

/// Limit for the kernel to apply a changed entry to its server after the reload.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// An entry in its file.
struct Entry {
    file: PathBuf,
    text: String,
    command: String,
    args: Vec<String>,
}

/// A new version, and the changed argument.
struct VersionChange {
    from: Option<String>,
    to: String,
    argument: String,
}

/// Writes the newest or the named version into an entry, and restarts the server.
pub(super) fn update(context: &CliContext, typed: &Update) -> Result<(), Failure> {
    let status = context.status()?;
    let entry = find_entry(context, status.as_ref(), &typed.id)?;
    let refused = |why: package::PackageError| Failure::Other(format!("{}: {why}", typed.id));
    let package = Package::from_command(&entry.command, &entry.args).map_err(refused)?;
    if package.version.is_none() && typed.to.is_none() && !typed.undo {
        return report_unpinned(context, &typed.id, &entry.file, &package);
    }
    let change = if typed.undo {
        Some(previous_version(context, typed, &entry, &package)?)
    } else {
        plan_change(context, &entry, &package, typed)?
    };
    let Some(change) = change else {
        return report_up_to_date(context, &typed.id, &entry.file, &package);
    };
    if typed.dry_run {
        return report_updated(
            context,
            (&typed.id, &package),
            &entry.file,
            &change,
            Value::Null,
        );
    }
    // The tools before the change; none if the server is not connected.
    let offered = status
        .as_ref()
        .and_then(|_| OfferedTools::fetch(context, &typed.id).ok());
    let trusted = write_entry(context, typed, &entry, &package, &change)?;
    record_update(context, typed, &entry, &package, &change)?;
    match status {
        Some(_) if trusted => apply(
            context,
            (&typed.id, &package),
            &entry.file,
            &change,
            offered,
        ),
        Some(_) | None => report_updated(
            context,
            (&typed.id, &package),
            &entry.file,
            &change,
            false.into(),
        ),
    }
}

/// The entry of this server in the first file that has one.
fn find_entry(
    context: &CliContext,
    status: Option<&KernelStatus>,
    id: &str,
) -> Result<Entry, Failure> {
    let files = files_in_force(context, status)?;
    let mut known = Vec::new();
    for file in files {
        let text = read_if_exists(&file)?.unwrap_or_default();
        match edit::read_command(&text, id) {
            Ok(Some((command, args))) => {
                return Ok(Entry {
                    file,
                    text,
                    command,
                    args,
                });
            }
            Ok(None) => {
                return Err(Failure::Other(format!(
                    "{id} is not started by a command: whoever runs it decides its version"
                )));
            }
            Err(EditError::UnknownId(_)) => known.extend(edit::ids(&text)),
            Err(e) => return Err(to_failure(&file, &e)),
        }
    }
    if status.is_some() {
        context.with_kernel(async |client| name_resolution::resolve_server(client, id).await)?;
        return Err(Failure::Other(format!(
            "{id} stands in no file: an agent registered it while the kernel runs"
        )));
    }
    let suggestion = nearest_name(id, known.iter().map(String::as_str));
    let suggestion = suggestion.map_or(String::new(), |suggestion| {
        format!(" (did you mean {suggestion}?)")
    });
    Err(Failure::Usage(format!(
        "there is no server {id}{suggestion}"
    )))
}

/// `None` if the entry already has that version.
fn plan_change(
    context: &CliContext,
    entry: &Entry,
    package: &Package,
    typed: &Update,
) -> Result<Option<VersionChange>, Failure> {
    let requested = typed.to.as_deref();
    if let Some(requested) = requested.filter(|requested| !is_version(requested)) {
        return Err(Failure::Usage(format!("`{requested}` is no version")));
    }
    let recorded = package.version.as_deref();
    if requested.is_some() && requested == recorded {
        return Ok(None);
    }
    let to = match (requested, package.registry) {
        // pip lists all versions at once, and confirms only the newest.
        (Some(requested), Registry::Pip) => requested.to_owned(),
        _ => package_versions::newest_package_version(
            &entry.command,
            package,
            requested,
            &context.outbound(),
        )?,
    };
    let order = recorded.map_or(Ordering::Less, |recorded| compare_versions(recorded, &to));
    if requested.is_none() && order == Ordering::Greater {
        print_error(format_args!(
            "note: {} is newer than {to}, which {} says is the newest; `--to {to}` goes back",
            recorded.unwrap_or_default(),
            package.registry.program()
        ));
    }
    if requested.is_none() && order != Ordering::Less {
        return Ok(None);
    }
    let argument = package.with_version(&entry.args[package.argument], &to);
    let from = package.version.clone();
    Ok(Some(VersionChange { from, to, argument }))
}

/// The version before the last update, as a change.
fn previous_version(
    context: &CliContext,
    typed: &Update,
    entry: &Entry,
    package: &Package,
) -> Result<VersionChange, Failure> {
    let id = typed.id.as_str();
    let last = update_history::find(context, id, &entry.file).ok_or_else(|| {
        Failure::Usage(format!(
            "no update of {id} is remembered that could be taken back"
        ))
    })?;
    let recorded = entry.args.get(last.argument);
    if recorded != Some(&last.after) || package.argument != last.argument {
        return Err(Failure::Other(format!(
            "{id}: its entry was changed since it was updated to {}; `--to VERSION` writes one",
            last.to
        )));
    }
    Ok(VersionChange {
        from: Some(last.to),
        to: last.from.unwrap_or_else(|| "no version".to_owned()),
        argument: last.before,
    })
}

/// Records the update for an undo; an undone one is removed.
fn record_update(
    context: &CliContext,
    typed: &Update,
    entry: &Entry,
    package: &Package,
    change: &VersionChange,
) -> Result<(), Failure> {
    let update = UpdateRecord {
        id: typed.id.clone(),
        file: entry.file.clone(),
        argument: package.argument,
        before: entry.args[package.argument].clone(),
        after: change.argument.clone(),
        from: change.from.clone(),
        to: change.to.clone(),
    };
    let stored = Some(update).filter(|_| !typed.undo);
    update_history::save(context, (&typed.id, &entry.file), stored)
}

/// Writes the entry; true if the running kernel reads that file.
fn write_entry(
    context: &CliContext,
    typed: &Update,
    entry: &Entry,
    package: &Package,
    change: &VersionChange,
) -> Result<bool, Failure> {
    let text = edit::set_argument(&entry.text, &typed.id, package.argument, &change.argument);
    let text = text.map_err(|e| to_failure(&entry.file, &e))?;
    if let Some(problem) = config::check_server(&text, &entry.file, &typed.id) {
        return Err(Failure::Usage(problem.message));
    }
    let project =
        context.look_up.explicit_file().is_none() && entry.file == context.look_up.project_file();
    let trusted = write(context, &entry.file, Some(&entry.text), &text, project)?;
    if project && !trusted {
        let folder = entry.file.parent().unwrap_or(Path::new(".")).display();
        print_error(format_args!(
            "note: {} is not trusted as it is: `mgp trust {folder}` shows it, and asks",
            entry.file.display()
        ));
    }
    Ok(trusted || !project)
}

/// Reloads the kernel, and waits until the server runs the change or has failed.
fn apply(
    context: &CliContext,
    about: (&str, &Package),
    file: &Path,
    change: &VersionChange,
    offered: Option<OfferedTools>,
) -> Result<(), Failure> {
    let (id, _) = about;
    if !context.json {
        report_updated(context, about, file, change, true.into())?;
    }
    context.reload_kernel()?;
    let started_at = Instant::now();
    let server = loop {
        let server: Server =
            start_and_watch(context, Wait::METHOD, "updating", id, StartMode::Plain)?;
        let is_applied = server.runs.contains(&change.argument) || server.rolling.is_some();
        if is_applied || server.state == "error" || started_at.elapsed() > RELOAD_TIMEOUT {
            break server;
        }
        thread::sleep(POLL_INTERVAL);
    };
    if let Some(why) = &server.rolling {
        return Err(Failure::Other(format!(
            "{id}: {}; {}",
            sanitize_line(why),
            undo_hint(id, change)
        )));
    }
    let connected = CONNECTED.contains(&server.state.as_str());
    let changes = offered.filter(|_| connected).and_then(|before| {
        let after = OfferedTools::fetch(context, id).ok()?;
        Some(before.changes_to(&after))
    });
    if context.json {
        let mut shown = json!(server);
        shown["tool_changes"] = changes.as_ref().map(ToolChanges::to_json).into();
        report_updated(context, about, file, change, shown)?;
        return if connected {
            Ok(())
        } else {
            Err(Failure::Other(format!("{id} is {}", server.state)))
        };
    }
    report_state(context, &server, CONNECTED)
        .inspect_err(|_| print_error(undo_hint(id, change)))?;
    if let Some(changes) = changes {
        print_line(changes.render())?;
        if !changes.is_empty() {
            print_error(format_args!(
                "what changed may wait in `mgp pending`; `mgp servers update {id} --undo` takes the update back"
            ));
        }
    }
    Ok(())
}

fn undo_hint(id: &str, change: &VersionChange) -> String {
    match &change.from {
        Some(_) => format!("`mgp servers update {id} --undo` writes the version before"),
        None => format!(
            "the entry of {id} named no version before; `mgp servers update {id} --undo` takes it out again"
        ),
    }
}

fn report_updated(
    context: &CliContext,
    (id, package): (&str, &Package),
    file: &Path,
    change: &VersionChange,
    server: Value,
) -> Result<(), Failure> {
    if context.json {
        return print_line(json!({
            "id": id, "file": file, "package": package.name, "from": change.from, "to": change.to,
            "written": !server.is_null(), "server": server.is_object().then_some(server),
        }));
    }
    let from = change.from.as_deref().unwrap_or("no version");
    let would = if server.is_null() {
        "would be written into"
    } else {
        "written into"
    };
    print_line(format_args!(
        "{id}: {} {from} -> {}, {would} {}",
        package.name,
        change.to,
        file.display()
    ))
}

fn report_unpinned(
    context: &CliContext,
    id: &str,
    file: &Path,
    package: &Package,
) -> Result<(), Failure> {
    if context.json {
        return print_line(
            json!({"id": id, "file": file, "package": package.name, "from": null, "to": null, "written": false}),
        );
    }
    let restart = match package.registry {
        Registry::Npm | Registry::Pnpm => {
            format!("`mgp servers restart {id}` takes the newest")
        }
        Registry::Image => format!("`docker pull {}` fetches the newest", package.name),
        Registry::Uv | Registry::Pip => format!(
            "`mgp servers restart {id}` takes the newest, or what is kept of an earlier start: `{}@latest` looks each time",
            package.name
        ),
    };
    print_line(format_args!(
        "{id}: its entry asks for no version of {}: {restart}; `--to VERSION` pins one",
        package.name
    ))
}

fn report_up_to_date(
    context: &CliContext,
    id: &str,
    file: &Path,
    package: &Package,
) -> Result<(), Failure> {
    let version = &package.version;
    if context.json {
        return print_line(
            json!({"id": id, "file": file, "package": package.name, "from": version, "to": version, "written": false}),
        );
    }
    let version = version.as_deref().unwrap_or_default();
    print_line(format_args!("{id}: {} {version} stays", package.name))
}
