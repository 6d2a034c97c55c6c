//! `mgp service`: the kernel as a service of its user's session.
//!
//! Each manager of services has its own module: `systemd`, and `launchd`, for which only the file is written. Other
//! systems have no service; use `mgp up --detach`.

mod launchd;
mod shell_path;
mod systemd;

use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use mgp_platform::service::{SERVICE_SYSTEM, ServiceSystem};
use mgp_store::{atomic_file, explain_io_error};
use serde_json::{Value, json};

use crate::cli::args::{Service, ServiceInstall};
use crate::cli::client::CliContext;
use crate::cli::commands::status::doctor::find_program;
use crate::cli::failure::Failure;
use crate::cli::print::{print_error, print_line};
use crate::cli::text_format::sanitize_line;

/// Permissions of a unit: it contains no secret, and the service manager reads it.
const UNIT_MODE: u32 = 0o644;
/// Programs that start most servers.
const COMMON_PROGRAMS: [&str; 6] = ["npx", "node", "uvx", "python3", "docker", "bunx"];

pub(in crate::cli::commands) fn run(context: &CliContext, typed: &Service) -> Result<(), Failure> {
    match typed {
        Service::Install(typed) => install(context, typed),
        Service::Status => status(context),
        Service::Remove => remove(context),
        Service::Run => exec_kernel(context),
    }
}

/// The contents of the service's files.
struct ServiceSpec {
    /// This program.
    exe: PathBuf,
    /// Options that select the same kernel.
    options: Vec<String>,
    /// The socket.
    socket: PathBuf,
    /// The runtime folder of this session, if it exists.
    runtime: Option<PathBuf>,
    home: PathBuf,
}

/// A file of the service.
struct ServiceFile {
    path: PathBuf,
    text: String,
}

impl ServiceSpec {
    fn new(context: &CliContext) -> Result<Self, Failure> {
        let home = context.base_dirs.home.clone();
        let home = home.ok_or_else(|| Failure::Usage("there is no home; set HOME".to_owned()))?;
        let options = context
            .named_path_options()
            .flat_map(|(option, path)| [option.to_owned(), path.to_string_lossy().into_owned()]);
        Ok(Self {
            exe: env::current_exe()?,
            options: options.collect(),
            socket: context.socket_for_new_kernel(),
            runtime: context.base_dirs.runtime.clone(),
            home,
        })
    }

    fn service_files(&self, context: &CliContext) -> Result<Vec<ServiceFile>, Failure> {
        match SERVICE_SYSTEM {
            ServiceSystem::Launchd => Ok(launchd::service_files(self)),
            ServiceSystem::Systemd => {
                let config_home = context.look_up.config_home.clone();
                let config_home = config_home.unwrap_or_else(|| self.home.join(".config"));
                systemd::unit_files(self, &config_home).map_err(Failure::Usage)
            }
            ServiceSystem::Unknown => Err(Failure::Other(
                "services of this system are not known here: `mgp up --detach` starts the kernel"
                    .into(),
            )),
        }
    }
}

fn install(context: &CliContext, typed: &ServiceInstall) -> Result<(), Failure> {
    let files = ServiceSpec::new(context)?.service_files(context)?;
    if typed.dry_run {
        let file_to_json = |file: &ServiceFile| json!({"path": file.path, "text": file.text});
        return if context.json {
            print_line(
                json!({"written": false, "files": files.iter().map(file_to_json).collect::<Vec<_>>()}),
            )
        } else {
            files.iter().try_for_each(|file| {
                print_line(format_args!("# {}\n{}", file.path.display(), file.text))
            })
        };
    }
    // Only systemd is called; other service managers load the file later.
    let uses_systemd = SERVICE_SYSTEM == ServiceSystem::Systemd && !typed.write_only;
    if uses_systemd {
        systemd::check_available().map_err(Failure::Other)?;
        if let Some(running) = context.status()?.filter(|_| !systemd::is_active()) {
            return Err(Failure::Other(format!(
                "a kernel (process {}) holds the socket that the service is to hold: `mgp down` first, then this again",
                running.pid
            )));
        }
    }
    for file in &files {
        write(file)?;
    }
    if uses_systemd {
        systemd::start().map_err(Failure::Other)?;
    }
    let paths: Vec<&Path> = files.iter().map(|file| file.path.as_path()).collect();
    if context.json {
        return print_line(json!({"written": paths, "started": uses_systemd}));
    }
    for path in paths {
        print_line(format_args!("wrote {}", path.display()))?;
    }
    if uses_systemd {
        print_line(
            "systemd listens on the kernel's socket, and starts the kernel when a client connects",
        )?;
        print_error("it ends with your session; `loginctl enable-linger` has it go on without one");
    }
    Ok(())
}

fn write(file: &ServiceFile) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::Other(explain_io_error(&file.path, &e));
    if let Some(folder) = file.path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    atomic_file::write_with_mode(&file.path, file.text.as_bytes(), UNIT_MODE).map_err(failed)
}

fn remove(context: &CliContext) -> Result<(), Failure> {
    let files = ServiceSpec::new(context)?.service_files(context)?;
    let existing: Vec<_> = files.iter().filter(|file| file.path.exists()).collect();
    if existing.is_empty() {
        return Err(Failure::Other("the service is not installed".to_owned()));
    }
    if systemd::check_available().is_ok() {
        systemd::stop().map_err(Failure::Other)?;
    }
    for file in &existing {
        std::fs::remove_file(&file.path)
            .map_err(|e| Failure::Other(format!("{}: {e}", file.path.display())))?;
    }
    if systemd::check_available().is_ok() {
        systemd::reload().map_err(Failure::Other)?;
    }
    let paths: Vec<&Path> = existing.iter().map(|file| file.path.as_path()).collect();
    if context.json {
        return print_line(json!({ "removed": paths }));
    }
    for path in paths {
        print_line(format_args!("removed {}", path.display()))?;
    }
    for line in remaining_parts(context) {
        print_error(line);
    }
    Ok(())
}

/// Remaining files of the kernel, and how to remove them.
fn remaining_parts(context: &CliContext) -> Vec<String> {
    let named = context.look_up.explicit_file().map(|(_, file)| file);
    let configuration = named.or_else(|| context.look_up.user_file());
    let data = context
        .base_dirs
        .data_dir(context.configured_or_named_data_dir())
        .ok();
    let mut lines = Vec::new();
    for (what, path) in [("configuration", configuration), ("data", data)] {
        if let Some(path) = path.filter(|path| path.exists()) {
            lines.push(format!("the {what} stays: {}", path.display()));
        }
    }
    lines.push(
        "entries in clients stay: `mgp connect --all --undo` takes them out; a client that has one starts a kernel"
            .to_owned(),
    );
    lines
}

fn status(context: &CliContext) -> Result<(), Failure> {
    let files = ServiceSpec::new(context)?.service_files(context)?;
    let state = |file: &ServiceFile| match std::fs::read_to_string(&file.path) {
        Ok(text) if text == file.text => "installed",
        Ok(_) => "differs from what `mgp service install` writes",
        Err(_) => "not installed",
    };
    let manager = systemd::check_available().map(|()| systemd::unit_states());
    let path = shell_path::login_shell_path().or_else(|| env::var_os("PATH"));
    let path = path.unwrap_or_default();
    let found = COMMON_PROGRAMS.map(|name| (name, find_program(name, &path)));
    if context.json {
        let files: Vec<Value> = files
            .iter()
            .map(|file| json!({"path": file.path, "state": state(file)}))
            .collect();
        let programs: serde_json::Map<_, _> = found
            .iter()
            .map(|(name, place)| ((*name).to_owned(), json!(place)))
            .collect();
        let units = manager.as_ref().ok();
        return print_line(json!({
            "files": files, "units": units, "why_not": manager.as_ref().err(), "programs": programs,
        }));
    }
    for file in &files {
        print_line(format_args!("{} {}", file.path.display(), state(file)))?;
    }
    match manager {
        Ok(states) => {
            for (unit, state) in states {
                print_line(sanitize_line(&format!("{unit} {state}")))?;
            }
        }
        Err(why) => print_line(sanitize_line(&why))?,
    }
    for (name, place) in found {
        match place {
            Some(place) => print_line(format_args!("{name} is {}", place.display()))?,
            None => print_line(format_args!("{name} is not there for the service"))?,
        }
    }
    Ok(())
}

/// Executes the kernel with the `PATH` of the user's shell.
fn exec_kernel(context: &CliContext) -> Result<(), Failure> {
    let mut command = Command::new(env::current_exe()?);
    command.arg("up");
    for (option, path) in context.named_path_options() {
        command.arg(option).arg(path);
    }
    match shell_path::login_shell_path() {
        Some(path) => {
            command.env("PATH", path);
        }
        None => print_error(
            "mgp: the shell did not say its PATH; programs are looked for where systemd looks",
        ),
    }
    // The process stays the same, and keeps the socket passed to it.
    Err(command.exec().into())
}
