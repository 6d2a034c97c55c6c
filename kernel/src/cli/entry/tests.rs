use clap::Parser;

use super::*;
use crate::cli::command::{Cli, Command, Servers};

/// A person in an empty folder, on a machine where no kernel runs.
struct Desk {
    folder: tempfile::TempDir,
    context: Context,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().to_owned();
        let options = Cli::parse_from(["mgp", "status"]).options;
        let mut context = Context::new(options).unwrap();
        context.socket = here.join("none.sock");
        context.look_up = mgp_discovery::config::LookUp {
            home: Some(here.join("home")),
            folder: here.join("work"),
            ..Default::default()
        };
        fs::create_dir(here.join("work")).unwrap();
        Self { folder, context }
    }

    fn add(&self, words: &[&str]) -> Result<(), Failure> {
        let line = ["mgp", "servers", "add"].iter().chain(words);
        let Command::Servers(Servers::Add(typed)) = Cli::parse_from(line).command else {
            panic!("it is an add");
        };
        add(&self.context, &typed)
    }

    fn user_file(&self) -> String {
        fs::read_to_string(self.folder.path().join("home/.config/mgp/servers.toml")).unwrap()
    }
}

#[test]
fn a_server_goes_into_the_users_file_and_out_again() {
    let desk = Desk::new();
    desk.add(&[
        "files",
        "--env",
        "KEY",
        "--env",
        "A=b",
        "--",
        "./bin/files",
        "-v",
    ])
    .unwrap();
    let text = desk.user_file();
    let program = desk
        .folder
        .path()
        .join("work/./bin/files")
        .display()
        .to_string();
    for part in [
        &format!("command = \"{program}\""),
        "KEY = \"${KEY}\"",
        "A = \"b\"",
        "[\"-v\"]",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(
        matches!(desk.add(&["files", "--", "x"]), Err(Failure::Other(why)) if why.contains("already"))
    );
    remove(&desk.context, "files").unwrap();
    assert!(!desk.user_file().contains("files"));
    let gone = remove(&desk.context, "files").unwrap_err().to_string();
    assert!(gone.contains("no server `files` in "), "{gone}");
}

#[test]
fn a_project_with_a_file_keeps_its_servers_there() {
    let desk = Desk::new();
    let project = desk.context.look_up.project_file();
    fs::write(&project, "# ours\n").unwrap();
    desk.add(&[
        "docs",
        "--url",
        "https://h/mcp",
        "--header",
        "Authorization=Bearer ${T}",
    ])
    .unwrap();
    let text = fs::read_to_string(&project).unwrap();
    assert!(
        text.starts_with("# ours\n") && text.contains("Bearer ${T}"),
        "{text}"
    );
}

/// What the kernel would refuse is not written down.
#[test]
fn a_server_that_could_never_start_is_not_added() {
    let desk = Desk::new();
    let refused = desk.add(&["docs", "--url", "ftp://h"]).unwrap_err();
    assert_eq!(refused.code(), 2);
    assert!(
        refused.to_string().contains("http:// or https://"),
        "{refused}"
    );
    assert!(desk.add(&["a/b", "--", "x"]).is_err());
    assert!(!desk.folder.path().join("home").exists());
}

/// The kernel that runs says which files count, the strongest first.
#[test]
fn the_files_of_the_running_kernel_come_first() {
    let desk = Desk::new();
    let running = |files: &[&str]| KernelStatus {
        version: String::new(),
        pid: 1,
        uptime_secs: 0,
        data_dir: String::new(),
        config_files: files.iter().map(|f| (*f).to_owned()).collect(),
        config_problems: Vec::new(),
        doors: Vec::new(),
        connections: 0,
        actors: Default::default(),
        servers: Vec::new(),
    };
    fs::write(desk.context.look_up.project_file(), "").unwrap();
    let at = |status: &KernelStatus| target(&desk.context, Some(status)).unwrap();
    assert_eq!(at(&running(&["/a.toml", "/b.toml"])), Path::new("/a.toml"));
    assert_eq!(Some(at(&running(&[]))), desk.context.look_up.user_file());
}
