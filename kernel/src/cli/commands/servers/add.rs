//! `mgp servers add`: adds an entry to the configuration, and reloads a running kernel.

mod connector;

use std::path::{Path, PathBuf};

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::KernelStatus;
use mgp_protocol::mgp::servers::Wait;
use mgp_store::secrets::SecretStore;
use serde_json::json;

use super::config_file::{files_in_force, no_home_failure, read_if_exists, to_failure, write};
use super::shown_secrets;
use super::start_progress::{StartMode, start_and_watch};
use super::state::{CONNECTED, report_state};
use super::supplied_values::{self, SuppliedValues};
use crate::cli::args::Add;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::print::{print_error, print_line};
use crate::cli::text_format::quote_for_shell;
use crate::config;
use crate::config::edit::{self, NewServer};

/// Adds a server, and starts it if a kernel runs.
pub(super) fn add(context: &CliContext, add: &Add) -> Result<(), Failure> {
    let here = &context.look_up.current_dir;
    let Some(file) = &add.connector else {
        return add_with_seal(context, add, None);
    };
    let completed = connector::complete(add, &here.join(file), here)?;
    completed.notes.iter().for_each(print_error);
    add_with_seal(context, &completed.add, completed.seal.as_ref())
}

fn add_with_seal(
    context: &CliContext,
    add: &Add,
    seal: Option<&(String, PathBuf)>,
) -> Result<(), Failure> {
    if let Some(url) = &add.url {
        supplied_values::check_url(url)?;
    }
    if add.command.is_empty() && add.url.is_none() {
        return Err(Failure::Usage(format!(
            "how is {0} reached? its command stands behind `--`, its address behind `--url`; \
             `mgp servers search {0}` looks for it in the registry, whose names have a slash",
            add.id
        )));
    }
    check_command(&add.id, &add.command)?;
    let place = EntryDraft::prepare(context, add)?;
    let given = place.collect_values(context, add)?;
    place.write(context, add, given, seal)
}

/// Rejects a whole command line within one pair of quotes, which names no program.
fn check_command(id: &str, command: &[String]) -> Result<(), Failure> {
    let [line] = command else {
        return Ok(());
    };
    let mut words = line.split_whitespace();
    let (Some(program), Some(_)) = (words.next(), words.next()) else {
        return Ok(());
    };
    if line.starts_with(['/', '.', '~']) || Path::new(line).exists() {
        return Ok(());
    }
    // A shell interprets the text within the quotes; a secret is not repeated.
    let (called, command) = if shown_secrets::has_none(line) {
        (line.clone(), line.as_str())
    } else {
        (format!("{program} …"), "COMMAND ARGUMENTS")
    };
    Err(Failure::Usage(format!(
        "no program is called {called:?}; its arguments stand outside of the quotes: \
         `mgp servers add {id} -- {command}`"
    )))
}

/// A hint about the cost of a launcher besides its server.
fn launcher_cost_note(command: &[String]) -> Option<String> {
    let program = Path::new(command.first()?).file_name()?.to_str()?;
    let instead = match program {
        "npx" => "`npm install -g PACKAGE`",
        "bunx" => "`bun add -g PACKAGE`",
        "uvx" => "`uv tool install PACKAGE`",
        _ => return None,
    };
    Some(format!(
        "note: {program} stays beside the server and takes memory of its own (npx some 75 MiB); after \
         {instead} the server's own program takes less, and starts faster"
    ))
}

/// The target of an entry whose id is free there.
pub(super) struct EntryDraft {
    status: Option<KernelStatus>,
    file: PathBuf,
    /// The prefix of the names of its secrets.
    prefix: Option<String>,
    store: Option<SecretStore>,
    text_before: Option<String>,
}

impl EntryDraft {
    /// Finds the target file.
    ///
    /// # Errors
    /// The id is taken or invalid, or the file cannot be edited.
    pub(super) fn prepare(context: &CliContext, add: &Add) -> Result<Self, Failure> {
        let status = context.status()?;
        let file = target_file(context, add, status.as_ref())?;
        check_not_shadowed(context, add, status.as_ref(), &file)?;
        let home = context.look_up.secrets_folder();
        let place = Self {
            prefix: home.map(|home| supplied_values::secret_prefix(&home, &add.id, &file)),
            store: context.secret_store().ok(),
            text_before: read_if_exists(&file)?,
            status,
            file,
        };
        let before = place.text_before.as_deref().unwrap_or_default();
        if edit::has_entry(before, &add.id) {
            let duplicate = edit::EditError::DuplicateId(add.id.clone());
            return Err(to_failure(&place.file, &duplicate));
        }
        let here = &context.look_up.current_dir;
        edit::add_entry(before, &new_server(add, here, SuppliedValues::default()))
            .map_err(|e| to_failure(&place.file, &e))?;
        Ok(place)
    }

    /// Collects typed and prompted values; prompts only when everything else is valid.
    pub(super) fn collect_values(
        &self,
        context: &CliContext,
        add: &Add,
    ) -> Result<SuppliedValues, Failure> {
        supplied_values::collect(add, &context.look_up.current_dir, self.prefix.as_deref())
    }

    /// Stores a secret; returns the reference to it.
    pub(super) fn store_secret(
        &self,
        values: &mut SuppliedValues,
        name: &str,
        value: String,
    ) -> Result<String, Failure> {
        values.add_secret(self.prefix.as_deref(), name, value)
    }

    /// Writes the entry with its secrets, and starts it.
    pub(super) fn write(
        self,
        context: &CliContext,
        add: &Add,
        given: SuppliedValues,
        seal: Option<&(String, PathBuf)>,
    ) -> Result<(), Failure> {
        let here = &context.look_up.current_dir;
        let stored = given.store(self.store.as_ref())?;
        let stored: Vec<String> = stored.into_iter().map(str::to_owned).collect();
        let server = NewServer {
            seal: seal.map(|(seal, _)| seal.clone()),
            entry_point: seal.map(|(_, file)| file.to_string_lossy().into_owned()),
            ..new_server(add, here, given)
        };
        let text = edit::add_entry(self.text_before.as_deref().unwrap_or_default(), &server);
        let text = text.map_err(|e| to_failure(&self.file, &e))?;
        if let Some(problem) = config::check_server(&text, &self.file, &server.id) {
            if !stored.is_empty()
                && let Some(prefix) = &self.prefix
            {
                supplied_values::remove_stored(self.store.as_ref(), prefix);
            }
            return Err(Failure::Usage(problem.message));
        }
        let trusted = write(
            context,
            &self.file,
            self.text_before.as_deref(),
            &text,
            add.project,
        )?;
        report_added(context, &server, &self.file, &stored)?;
        if add.project && !trusted {
            let folder = self.file.parent().unwrap_or(here).display().to_string();
            print_error(format_args!(
                "note: {} is not trusted: `mgp trust {}` shows it, and asks",
                self.file.display(),
                quote_for_shell(&folder)
            ));
            return print_if_json(context, &server.id, &self.file);
        }
        match self.status {
            Some(_) => reload_and_start(context, &self.file, &server),
            None => print_if_json(context, &server.id, &self.file),
        }
    }
}

fn report_added(
    context: &CliContext,
    server: &NewServer,
    file: &Path,
    stored: &[String],
) -> Result<(), Failure> {
    for option in shown_secrets::secret_options(&server.command) {
        let note = shown_secrets::open_note(&server.id, option, file);
        print_error(format_args!("note: {note}"));
    }
    if let Some(note) = launcher_cost_note(&server.command) {
        print_error(note);
    }
    if context.json {
        return Ok(());
    }
    for name in stored {
        print_line(format_args!("kept the secret {name}"))?;
    }
    print_line(format_args!("added {} to {}", server.id, file.display()))
}

/// Rejects a server that an entry of the same name in a stronger file would hide.
fn check_not_shadowed(
    context: &CliContext,
    add: &Add,
    status: Option<&KernelStatus>,
    target: &Path,
) -> Result<(), Failure> {
    if add.project {
        return Ok(());
    }
    let files = files_in_force(context, status)?;
    for stronger in files.iter().take_while(|file| *file != target) {
        if read_if_exists(stronger)?.is_some_and(|text| edit::has_entry(&text, &add.id)) {
            return Err(to_failure(
                stronger,
                &edit::EditError::DuplicateId(add.id.clone()),
            ));
        }
    }
    Ok(())
}

/// Reloads the kernel, which starts new servers.
fn reload_and_start(context: &CliContext, file: &Path, server: &NewServer) -> Result<(), Failure> {
    let id = server.id.as_str();
    let status = context.reload_kernel()?;
    let Some(known) = status.servers.into_iter().find(|known| known.id == id) else {
        return Err(Failure::Other(format!(
            "the kernel that runs (process {}) does not read that file; it reads {}",
            status.pid,
            match status.config_files.as_slice() {
                [] => "none yet".to_owned(),
                files => files.join(", "),
            }
        )));
    };
    match (known.state.as_str(), server.start) {
        ("error", _) => report_state(context, &known, CONNECTED),
        (_, Some("manual")) => print_if_json(context, id, file),
        _ => wait_until_started(context, id),
    }
}

/// Waits for the start that the kernel has begun. An interrupt ends the wait, not the start: the entry is written, and
/// the kernel runs the server.
fn wait_until_started(context: &CliContext, id: &str) -> Result<(), Failure> {
    match start_and_watch(context, Wait::METHOD, "starting", id, StartMode::Plain) {
        Ok(server) => report_state(context, &server, CONNECTED),
        Err(Failure::Interrupted) => {
            if !context.json {
                print_error(format_args!(
                    "{id} stays, and goes on starting: `mgp servers logs {id} -f` shows how, \
                     `mgp servers remove {id}` takes it out"
                ));
            }
            Err(Failure::Interrupted)
        }
        Err(other) => Err(other),
    }
}

fn print_if_json(context: &CliContext, id: &str, file: &Path) -> Result<(), Failure> {
    if context.json {
        print_line(json!({"id": id, "file": file}))
    } else {
        Ok(())
    }
}

/// The file for a new server: the named one, the project's if requested, else the user's, or the one file that the
/// running kernel was given.
fn target_file(
    context: &CliContext,
    add: &Add,
    status: Option<&KernelStatus>,
) -> Result<PathBuf, Failure> {
    match (context.look_up.explicit_file(), add.project) {
        (Some((by, _)), true) => Err(Failure::Usage(format!(
            "`--project` means ./mgp.toml, and {by} names another file"
        ))),
        (Some((_, named)), false) => Ok(named),
        (None, true) => Ok(context.look_up.project_file()),
        (None, false) => {
            let kernels = status.and_then(|status| status.servers_file.as_ref());
            let file = kernels
                .map(PathBuf::from)
                .or_else(|| context.look_up.user_file());
            file.ok_or_else(no_home_failure)
        }
    }
}

fn new_server(add: &Add, folder: &Path, given: SuppliedValues) -> NewServer {
    let mut command = add.command.clone();
    if let Some(program) = command.first_mut().filter(|program| program.contains('/')) {
        *program = absolute_path(program, folder);
    }
    NewServer {
        id: add.id.clone(),
        command,
        url: add.url.clone(),
        transport: add.transport.clone(),
        env: given.env,
        headers: given.headers,
        cwd: add.cwd.as_ref().map(|cwd| absolute_path(cwd, folder)),
        start: match (add.no_autostart, add.on_demand) {
            (true, _) => Some("manual"),
            (false, true) => Some("on-demand"),
            (false, false) => None,
        },
        trust_level: add.trust.clone(),
        restart_policy: add.restart.clone(),
        ..NewServer::default()
    }
}

/// A path typed here must mean the same place in a file elsewhere.
fn absolute_path(path: &str, folder: &Path) -> String {
    if path.starts_with("${") || path == "caller" {
        path.to_owned()
    } else {
        folder.join(path).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests;
