//! `mgp servers add`: an entry of the configuration, taken up by the kernel when one runs.

use std::path::{Path, PathBuf};

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::KernelStatus;
use mgp_protocol::mgp::servers::Wait;
use mgp_store::secrets::SecretStore;
use serde_json::json;

use super::config_file::{existing, in_file, in_force, no_home, write};
use super::secrets::{self, GivenValues};
use super::starting::{StartMode, watch};
use super::state::{CONNECTED, tell};
use crate::cli::args::Add;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::print::{report, say};
use crate::cli::words::shell_word;
use crate::config;
use crate::config::edit::{self, NewServer};

/// Writes a server down, and has it started when a kernel runs.
pub(super) fn add(context: &CliContext, add: &Add) -> Result<(), Failure> {
    if let Some(url) = &add.url {
        secrets::judge_url(url)?;
    }
    if add.command.is_empty() && add.url.is_none() {
        return Err(Failure::Usage(format!(
            "how is {0} reached? its command stands behind `--`, its address behind `--url`; \
             `mgp servers search {0}` looks for it in the registry, whose names have a slash",
            add.id
        )));
    }
    judge_command(&add.id, &add.command)?;
    let place = AddedEntry::of(context, add)?;
    let given = place.given(context, add)?;
    place.write(context, add, given)
}

/// A whole command line within one pair of quotes is the name of no program.
fn judge_command(id: &str, command: &[String]) -> Result<(), Failure> {
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
    // What is within the quotes is read by a shell as it stands; a secret is not repeated.
    let (called, command) = match secrets::has_none(line) {
        true => (line.clone(), line.as_str()),
        false => (format!("{program} …"), "COMMAND ARGUMENTS"),
    };
    Err(Failure::Usage(format!(
        "no program is called {called:?}; its arguments stand outside of the quotes: \
         `mgp servers add {id} -- {command}`"
    )))
}

/// What a launcher costs beside the server it starts.
fn launcher_note(command: &[String]) -> Option<String> {
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

/// Where an entry goes; nobody has its id there.
pub(super) struct AddedEntry {
    status: Option<KernelStatus>,
    file: PathBuf,
    /// What the names of its secrets begin with.
    prefix: Option<String>,
    store: Option<SecretStore>,
    before: Option<String>,
}

impl AddedEntry {
    /// Finds the place.
    ///
    /// # Errors
    /// The id is taken, or none, or the file cannot be edited.
    pub(super) fn of(context: &CliContext, add: &Add) -> Result<Self, Failure> {
        let status = context.status()?;
        let file = target(context, add, status.as_ref())?;
        not_hidden(context, add, status.as_ref(), &file)?;
        let home = context.look_up.secrets_folder();
        let place = Self {
            prefix: home.map(|home| secrets::prefix(&home, &add.id, &file)),
            store: context.secret_store().ok(),
            before: existing(&file)?,
            status,
            file,
        };
        let before = place.before.as_deref().unwrap_or_default();
        if edit::names(before, &add.id) {
            let taken = edit::EditError::Taken(add.id.clone());
            return Err(in_file(&place.file, &taken));
        }
        let here = &context.look_up.folder;
        edit::add(before, &new_server(add, here, GivenValues::default()))
            .map_err(|e| in_file(&place.file, &e))?;
        Ok(place)
    }

    /// What was typed for it, and what somebody answers; asked for when all else is known to be well.
    pub(super) fn given(&self, context: &CliContext, add: &Add) -> Result<GivenValues, Failure> {
        secrets::given(add, &context.look_up.folder, self.prefix.as_deref())
    }

    /// Takes a secret; answers the reference to it.
    pub(super) fn keep(
        &self,
        values: &mut GivenValues,
        name: &str,
        value: String,
    ) -> Result<String, Failure> {
        values.keep(self.prefix.as_deref(), name, value)
    }

    /// Writes it down, with its secrets, and has it started.
    pub(super) fn write(
        self,
        context: &CliContext,
        add: &Add,
        given: GivenValues,
    ) -> Result<(), Failure> {
        let here = &context.look_up.folder;
        let kept = given.write(self.store.as_ref())?;
        let kept: Vec<String> = kept.into_iter().map(str::to_owned).collect();
        let server = new_server(add, here, given);
        let text = edit::add(self.before.as_deref().unwrap_or_default(), &server);
        let text = text.map_err(|e| in_file(&self.file, &e))?;
        if let Some(problem) = config::judge(&text, &self.file, &server.id) {
            if !kept.is_empty()
                && let Some(prefix) = &self.prefix
            {
                secrets::forget(self.store.as_ref(), prefix);
            }
            return Err(Failure::Usage(problem.message));
        }
        let trusted = write(
            context,
            &self.file,
            self.before.as_deref(),
            &text,
            add.project,
        )?;
        tell_added(context, &server, &self.file, &kept)?;
        if add.project && !trusted {
            let folder = self.file.parent().unwrap_or(here).display().to_string();
            report(format_args!(
                "note: {} is not trusted: `mgp trust {}` shows it, and asks",
                self.file.display(),
                shell_word(&folder)
            ));
            return say_if_json(context, &server.id, &self.file);
        }
        match self.status {
            Some(_) => take_up(context, &self.file, &server),
            None => say_if_json(context, &server.id, &self.file),
        }
    }
}

fn tell_added(
    context: &CliContext,
    server: &NewServer,
    file: &Path,
    kept: &[String],
) -> Result<(), Failure> {
    for option in secrets::in_command(&server.command) {
        let note = secrets::open_note(&server.id, option, file);
        report(format_args!("note: {note}"));
    }
    if let Some(note) = launcher_note(&server.command) {
        report(note);
    }
    if context.json {
        return Ok(());
    }
    for name in kept {
        say(format_args!("kept the secret {name}"))?;
    }
    say(format_args!("added {} to {}", server.id, file.display()))
}

/// A server that is not seen for one of the same name in a stronger file is not added.
fn not_hidden(
    context: &CliContext,
    add: &Add,
    status: Option<&KernelStatus>,
    target: &Path,
) -> Result<(), Failure> {
    if add.project {
        return Ok(());
    }
    let files = in_force(context, status)?;
    for stronger in files.iter().take_while(|file| *file != target) {
        if existing(stronger)?.is_some_and(|text| edit::names(&text, &add.id)) {
            return Err(in_file(stronger, &edit::EditError::Taken(add.id.clone())));
        }
    }
    Ok(())
}

/// Has the kernel read its files again, and start what is new.
fn take_up(context: &CliContext, file: &Path, server: &NewServer) -> Result<(), Failure> {
    let id = server.id.as_str();
    let status = context.reload()?;
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
    match (known.state.as_str(), server.autostart) {
        ("error", _) => tell(context, &known, CONNECTED),
        (_, Some(false)) => say_if_json(context, id, file),
        _ => started(context, id),
    }
}

/// Waits for the start that the kernel has begun. Who does not want to wait ends the wait, not the start:
/// the entry is written, and the server is the kernel's.
fn started(context: &CliContext, id: &str) -> Result<(), Failure> {
    match watch(context, Wait::METHOD, "starting", id, StartMode::Plain) {
        Ok(server) => tell(context, &server, CONNECTED),
        Err(Failure::Interrupted) => {
            if !context.json {
                report(format_args!(
                    "{id} stays, and goes on starting: `mgp servers logs {id} -f` shows how, \
                     `mgp servers remove {id}` takes it out"
                ));
            }
            Err(Failure::Interrupted)
        }
        Err(other) => Err(other),
    }
}

fn say_if_json(context: &CliContext, id: &str, file: &Path) -> Result<(), Failure> {
    match context.json {
        true => say(json!({"id": id, "file": file})),
        false => Ok(()),
    }
}

/// Where a new server goes: the file that was named, the project's when that is meant, else the user's,
/// or the one file the running kernel was given.
fn target(
    context: &CliContext,
    add: &Add,
    status: Option<&KernelStatus>,
) -> Result<PathBuf, Failure> {
    match (context.look_up.named(), add.project) {
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
            file.ok_or_else(no_home)
        }
    }
}

fn new_server(add: &Add, folder: &Path, given: GivenValues) -> NewServer {
    let mut command = add.command.clone();
    if let Some(program) = command.first_mut().filter(|program| program.contains('/')) {
        *program = from_here(program, folder);
    }
    NewServer {
        id: add.id.clone(),
        command,
        url: add.url.clone(),
        transport: add.transport.clone(),
        env: given.env,
        headers: given.headers,
        cwd: add.cwd.as_ref().map(|cwd| from_here(cwd, folder)),
        autostart: add.no_autostart.then_some(false),
        trust_level: add.trust.clone(),
        restart_policy: add.restart.clone(),
        ..NewServer::default()
    }
}

/// A path typed here must not mean another place in a file that lies elsewhere.
fn from_here(path: &str, folder: &Path) -> String {
    match path.starts_with("${") || path == "caller" {
        true => path.to_owned(),
        false => folder.join(path).to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests;
