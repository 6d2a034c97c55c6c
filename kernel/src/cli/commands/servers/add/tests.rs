use std::fs;

use clap::Parser;
use mgp_store::secrets::Namespace;
use secrecy::ExposeSecret;

use super::super::remove::remove;
use super::*;
use crate::cli::args::{Cli, Command, Invocation, Servers};

/// A user in an empty folder, on a machine without a running kernel.
struct Desk {
    folder: tempfile::TempDir,
    context: CliContext,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().to_owned();
        let options = Cli::parse_from(["mgp", "status"]).options;
        let mut context = CliContext::new(options).unwrap();
        context.named_socket = Some(here.join("none.sock"));
        context.look_up = mgp_discovery::ConfigLookup {
            home: Some(here.join("home")),
            current_dir: here.join("work"),
            ..Default::default()
        };
        fs::create_dir(here.join("work")).unwrap();
        Self { folder, context }
    }

    fn add(&self, words: &[&str]) -> Result<(), Failure> {
        let line = ["mgp", "servers", "add"].iter().chain(words);
        let Invocation::Command(Command::Servers(Servers::Add(typed))) =
            Cli::parse_from(line).command
        else {
            panic!("it is an add");
        };
        add(&self.context, &typed)
    }

    /// Whether the project's file is in force as it is on disk.
    fn trusts(&self) -> bool {
        let loaded = config::load(&self.context.look_up, &|_| None, None).unwrap();
        loaded.project.effective_text.is_some()
    }

    fn user_file(&self) -> String {
        fs::read_to_string(self.folder.path().join("home/.config/mgp/servers.toml")).unwrap()
    }
}

#[test]
fn a_server_is_added_to_and_removed_from_the_users_file() {
    let desk = Desk::new();
    desk.add(&[
        "files",
        "--env",
        "KEY",
        "--env",
        "A=${B}",
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
        "A = \"${B}\"",
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

/// The project's file is written only on request, and stays trusted if it was.
#[test]
fn a_server_is_added_to_the_projects_file_only_on_request() {
    let desk = Desk::new();
    let project = desk.context.look_up.project_file();
    let docs = [
        "docs",
        "--url",
        "https://h/mcp",
        "--header",
        "Authorization=Bearer ${T}",
    ];
    fs::write(&project, "# theirs\n").unwrap();
    desk.add(&docs).unwrap();
    assert_eq!(fs::read_to_string(&project).unwrap(), "# theirs\n");
    assert!(desk.user_file().contains("Bearer ${T}"));
    desk.add(&[&["--project"], &docs[..]].concat()).unwrap();
    assert!(!desk.trusts(), "nobody looked at what was there before");

    fs::remove_file(&project).unwrap();
    desk.add(&["--project", "one", "--", "x"]).unwrap();
    assert!(desk.trusts());
    desk.add(&["--project", "two", "--", "x"]).unwrap();
    assert!(desk.trusts());
    let hidden = desk.add(&["one", "--", "y"]).unwrap_err().to_string();
    assert!(
        hidden.contains("already") && hidden.contains("work/mgp.toml"),
        "{hidden}"
    );
    remove(&desk.context, "two").unwrap();
    assert!(desk.trusts());
    fs::write(&project, "# other\n").unwrap();
    desk.add(&["--project", "three", "--", "x"]).unwrap();
    assert!(!desk.trusts());
}

/// Command lines are visible to others, so no value is taken from there or repeated; values are read from and stored
/// in files.
#[test]
fn no_value_is_taken_from_the_command_line() {
    let desk = Desk::new();
    for (typed, said) in [
        (["x", "--env", "KEY=s3cret", "--", "c"], "`--env KEY`"),
        (["x", "--env", "KEY=${A:-s3cret}", "--", "c"], "--env-file"),
        (
            ["x", "--header", "A=Bearer s3cret", "--url", "https://h"],
            "`--header A`",
        ),
        (
            ["x", "--header", "A=file:a", "--url", "https://h?key=s3cret"],
            "`key=…`",
        ),
    ] {
        let refused = desk.add(&typed).unwrap_err();
        assert_eq!(refused.exit_code(), 2);
        let refused = refused.to_string();
        assert!(
            refused.contains(said) && !refused.contains("s3cret"),
            "{refused}"
        );
    }
    assert!(!desk.folder.path().join("home").exists());

    let env = desk.folder.path().join("work/x.env");
    fs::write(&env, "# mine\nKEY=s3cret = ${NOT}\nOTHER\n").unwrap();
    desk.add(&["x", "--env-file", "x.env", "--env", "B=file:./b", "--", "c"])
        .unwrap_err();
    fs::write(desk.folder.path().join("work/b"), "b").unwrap();
    desk.add(&["x", "--env-file", "x.env", "--env", "B=file:./b", "--", "c"])
        .unwrap();
    let text = desk.user_file();
    assert!(
        !text.contains("s3cret") && text.contains("OTHER = \"${OTHER}\""),
        "{text}"
    );
    assert!(text.contains("KEY = \"secret:x/KEY\""), "{text}");
    let store = desk.context.secret_store().unwrap();
    let kept = || store.get(Namespace::Named, "x/KEY").unwrap();
    let kept_value = kept().map(|value| value.expose_secret().to_owned());
    assert_eq!(kept_value.as_deref(), Some("s3cret = ${NOT}"));
    remove(&desk.context, "x").unwrap();
    assert!(kept().is_none());
}

/// An entry that the kernel would reject is not written.
#[test]
fn a_server_that_could_never_start_is_not_added() {
    let desk = Desk::new();
    let refused = desk.add(&["docs", "--url", "ftp://h"]).unwrap_err();
    assert_eq!(refused.exit_code(), 2);
    assert!(
        refused.to_string().contains("http:// or https://"),
        "{refused}"
    );
    assert!(desk.add(&["a/b", "--", "x"]).is_err());
    assert!(!desk.folder.path().join("home").exists());
}

/// The running kernel determines where new servers are written.
#[test]
fn a_new_server_is_written_where_the_running_kernel_reads_it() {
    let desk = Desk::new();
    let running = |file: Option<&str>| KernelStatus {
        version: String::new(),
        pid: 1,
        uptime_secs: 0,
        data_dir: String::new(),
        config_files: Vec::new(),
        untrusted: Vec::new(),
        servers_file: file.map(str::to_owned),
        restart: Vec::new(),
        config_problems: Vec::new(),
        doors: Vec::new(),
        connections: 0,
        clients: Vec::new(),
        index: Default::default(),
        actors: Default::default(),
        troubles: Vec::new(),
        failed_upgrade: None,
        uses: None,
        servers: Vec::new(),
    };
    let Invocation::Command(Command::Servers(Servers::Add(typed))) =
        Cli::parse_from(["mgp", "servers", "add", "x", "--", "c"]).command
    else {
        panic!("it is an add");
    };
    let at = |status: &KernelStatus| target_file(&desk.context, &typed, Some(status)).unwrap();
    assert_eq!(at(&running(Some("/a.toml"))), Path::new("/a.toml"));
    assert_eq!(Some(at(&running(None))), desk.context.look_up.user_file());
}

#[test]
fn a_quoted_command_line_is_rejected_with_the_right_one() {
    let quoted = ["npx -y x".to_owned()];
    let refused = check_command("files", &quoted).unwrap_err().to_string();
    assert!(
        refused.contains("`mgp servers add files -- npx -y x`"),
        "{refused}"
    );
    for good in [&["npx", "-y", "x"][..], &["server"], &["/opt/my server"]] {
        let good: Vec<_> = good.iter().map(|word| (*word).to_owned()).collect();
        check_command("files", &good).unwrap();
    }
}

#[test]
fn a_launcher_gets_a_hint() {
    let note = |program: &str| launcher_cost_note(&[program.to_owned(), "x".to_owned()]);
    assert!(note("/usr/bin/npx").unwrap().contains("npm install -g"));
    assert_eq!(note("server"), None);
}

/// The suggested line means the same to a shell as the typed one, and contains no possible secret.
#[test]
fn a_quoted_command_is_suggested_unchanged() {
    let refused = |line: &str| {
        let refused = check_command("files", &[line.to_owned()]);
        refused.unwrap_err().to_string()
    };
    let why = refused("npx -y 'x y'");
    assert!(
        why.contains("`mgp servers add files -- npx -y 'x y'`"),
        "{why}"
    );
    for line in [
        "npx -y x --token s3cret",
        "npx -y x --header 'Authorization: Bearer s3cret0123'",
        "npx -y x --api-key='s3cret'",
    ] {
        let why = refused(line);
        assert!(!why.contains("s3cret") && why.contains("npx …"), "{why}");
    }
    assert!(check_command("files", &["npx".to_owned()]).is_ok());
}
