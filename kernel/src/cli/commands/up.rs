//! `mgp up`, `mgp down` and `mgp demo`: starts and stops the kernel, and prints how it is reached.

pub(super) mod backup;
pub(super) mod service;
pub(super) mod upgrade;

use std::env;
use std::io::IsTerminal;
use std::thread;

use listenfd::ListenFd;
use serde_json::json;

use crate::cli::args::{self, LogLineFormat};
use crate::cli::client::{CliContext, background};
use crate::cli::failure::{Failure, KernelAbsence};
use crate::cli::print::{print_error, print_line};
use crate::config::named_secrets::KernelLookup;
use crate::config::{self, LogFormat};
use crate::demo;
use crate::handover;
use crate::kernel::handover::Inheritance;
use crate::kernel::{self, KernelOptions, OpenListeners, user_environment, witnessed_files};

/// Accepts a file of the data folder as it is.
pub(super) fn accept_file(context: &CliContext, typed: &args::Accept) -> Result<(), Failure> {
    let loaded = config::load(&context.look_up, &|_| None, None);
    let loaded = loaded.map_err(|e| Failure::Other(e.to_string()))?;
    let data_dir = context.data_dir(&loaded.kernel)?;
    let file = &*typed.file;
    if !data_dir.is_dir() {
        let data_dir = data_dir.display();
        return Err(Failure::Other(format!(
            "{data_dir} is no data folder; name it with --data-dir"
        )));
    }
    let _lock = kernel::lock::acquire(&data_dir).map_err(Failure::Other)?;
    let accepted = witnessed_files::accept_file(&data_dir, file).map_err(Failure::Other)?;
    if context.json {
        return print_line(json!({"file": file, "accepted": accepted}));
    }
    if accepted {
        print_line(format_args!(
            "{file} is accepted as it is; `mgp up` starts the kernel"
        ))
    } else {
        print_line(format_args!(
            "{file} has no witness: nothing is to be accepted"
        ))
    }
}

/// Runs the kernel in the foreground.
pub(super) fn run_foreground(context: &CliContext, typed: &args::Up) -> Result<(), Failure> {
    if handover::is_check() {
        let options = up_options(context, typed.log_format)?;
        kernel::check_listeners(&options).map_err(Failure::Other)?;
        kernel::check_data_folder(&options.data_dir).map_err(Failure::Other)?;
        return print_line(handover::describe_readiness(
            &options.data_dir,
            options.http_address(),
        ));
    }
    let handed_over = Inheritance::receive().map_err(Failure::Other)?;
    if handed_over.is_none() {
        let kernel = config::load(&context.look_up, &|_| None, None).map(|loaded| loaded.kernel);
        user_environment::restore_and_exec(&context.data_dir(&kernel.unwrap_or_default())?);
    }
    context.warn_untrusted();
    let mut options = up_options(context, typed.log_format)?;
    if let Some(inherited) = handed_over {
        // It stays where clients know it, whatever the configuration says now.
        options.socket = inherited.socket_path().unwrap_or(options.socket);
        options.inherited = inherited;
    }
    let (data_dir, opened) = (options.data_dir.clone(), options.on_ready);
    let options = KernelOptions {
        on_ready: Box::new(move |doors| {
            user_environment::store(&data_dir);
            opened(doors);
        }),
        ..options
    };
    kernel::run(options).map_err(Failure::Other)
}

/// The options of a kernel with the configuration of this context, whose problems are reported.
pub(super) fn up_options(
    context: &CliContext,
    log_format: Option<LogLineFormat>,
) -> Result<KernelOptions, Failure> {
    let lookup = KernelLookup::for_look_up(&context.look_up);
    let mut loaded = config::load_with_env(&context.look_up, &lookup, None)
        .map_err(|e| Failure::Other(e.to_string()))?;
    match log_format {
        Some(LogLineFormat::Text) => loaded.kernel.log.format = LogFormat::Text,
        Some(LogLineFormat::Json) => loaded.kernel.log.format = LogFormat::Json,
        None => {}
    }
    for problem in &loaded.problems {
        print_error(problem.render(std::io::stderr().is_terminal()));
    }
    if !loaded.is_usable() {
        return Err(Failure::Other(
            "the configuration cannot be used as it is".into(),
        ));
    }
    if loaded.servers.is_empty() {
        print_error("no servers yet: `mgp servers add --help` shows how to add one");
    }
    if let Some(trouble) = context.socket_path_problem() {
        print_error(format_args!("mgp: {trouble}"));
    }
    let inherited = inherited_socket()?.unwrap_or_default();
    let socket = inherited
        .socket_path()
        .unwrap_or_else(|| context.socket_for_new_kernel());
    Ok(KernelOptions {
        socket,
        inherited,
        data_dir: context.data_dir(&loaded.kernel)?,
        is_data_dir_named: context.configured_or_named_data_dir().is_some(),
        record_folders: context.record_folders(),
        look_up: Some(context.look_up.clone()),
        loaded,
        stop_on_stdin_close: false,
        on_ready: Box::new(|doors| print_error(render_listeners(doors))),
    })
}

/// The socket passed by the service manager.
fn inherited_socket() -> Result<Option<Inheritance>, Failure> {
    let mut sockets = ListenFd::from_env();
    if sockets.len() > 1 {
        return Err(Failure::Other(format!(
            "the service manager handed over {} sockets, and the kernel has one: leave one ListenStream= in mgp.socket",
            sockets.len()
        )));
    }
    if sockets.len() == 0 {
        return Ok(None);
    }
    let wrong = |why: &str| Failure::Other(format!("the socket of the service manager {why}"));
    let taken = sockets.take_unix_listener(0);
    let listener = taken.map_err(|e| wrong(&format!("cannot be used: {e}")))?;
    let listener = listener.ok_or_else(|| wrong("is none"))?;
    let inherited = Inheritance::from_service_manager(listener);
    match inherited.socket_path() {
        Some(_) => Ok(Some(inherited)),
        None => Err(wrong("has no path")),
    }
}

/// Starts the kernel unless one runs.
pub(super) fn start_detached(context: &CliContext) -> Result<(), Failure> {
    let status = match context.status()? {
        Some(status) => status,
        None => {
            context.warn_untrusted();
            background::start_kernel(context)?
        }
    };
    if context.json {
        print_line(serde_json::to_string(&status).expect("a status is always JSON"))
    } else {
        let pid = status.pid;
        print_line(format_args!(
            "the kernel is up (process {pid}; `mgp down` ends it)"
        ))
    }
}

/// Shuts the running kernel down, and waits until it has ended.
pub(super) fn stop_kernel(context: &CliContext) -> Result<(), Failure> {
    let Some(running) = context.status()? else {
        return Err(Failure::NotRunning(KernelAbsence::NotListening(
            context.socket(),
        )));
    };
    background::stop_kernel(context, &running)?;
    let pid = running.pid;
    if context.json {
        print_line(json!({ "stopped": pid }))
    } else {
        print_line(format_args!("the kernel (process {pid}) has stopped"))
    }
}

fn render_listeners(doors: &OpenListeners) -> String {
    let mut text = format!("the kernel is up; socket {}", doors.socket.display());
    if let Some(http) = &doors.http {
        text += &format!(", {}", http.url());
        if let Some(file) = &http.token_file {
            text += &format!(" (token in {})", file.display());
        }
    }
    text
}

/// Runs a kernel with the built-in server in a temporary folder.
pub(super) fn run_demo(context: &CliContext) -> Result<(), Failure> {
    let program = env::current_exe()?;
    let demo = demo::prepare(&program)?;
    let socket = context
        .named_socket
        .clone()
        .unwrap_or_else(|| demo.socket());
    let data_dir = demo.data_dir();
    let demo_context = context.with_socket(socket.clone());
    let opened = move |doors: &OpenListeners| {
        let greeting = demo::render_banner(&program, doors);
        thread::spawn(move || {
            // The printed commands work at once.
            background::wait_until_no_server_in(&demo_context, &["registered", "connecting"]);
            // Nobody may read stdout; the kernel runs anyway.
            let _ = print_line(greeting);
        });
    };
    let options = KernelOptions {
        loaded: demo.loaded,
        look_up: None,
        socket,
        inherited: Inheritance::default(),
        data_dir,
        is_data_dir_named: true,
        record_folders: Vec::new(),
        stop_on_stdin_close: false,
        on_ready: Box::new(opened),
    };
    let outcome = kernel::run(options).map_err(Failure::Other);
    demo.folder.close()?;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::OpenHttpListener;

    #[test]
    fn endpoints_are_printed_without_the_token() {
        let doors = OpenListeners {
            socket: "/run/mgp.sock".into(),
            http: Some(OpenHttpListener {
                address: "127.0.0.1:7332".parse().unwrap(),
                secure: false,
                token: Some("s3cret".into()),
                token_file: Some("/data/token".into()),
            }),
        };
        let text = render_listeners(&doors);
        assert_eq!(
            text,
            "the kernel is up; socket /run/mgp.sock, http://127.0.0.1:7332/mcp (token in /data/token)"
        );
        assert!(!format!("{doors:?}").contains("s3cret"));
    }
}
