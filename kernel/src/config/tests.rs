use std::time::Duration;

use mgp_engine::spec::{Reach, RestartPolicy, RestartRules, ServerLimits, TrustLevel};

use super::*;

struct Read {
    kernel: KernelConfig,
    servers: Entries,
    problems: Vec<Problem>,
}

fn env(name: &str) -> Option<String> {
    match name {
        "CEREBRAS_API_KEY" => Some("sk-secret".into()),
        "HOME" => Some("/home/ada".into()),
        _ => None,
    }
}

fn read_text(text: &str) -> Read {
    let mut kernel = KernelConfig::default();
    let (servers, problems) = file::read(text, Path::new("/etc/mgp/mgp.toml"), &env, &mut kernel);
    Read {
        kernel,
        servers,
        problems,
    }
}

impl Read {
    fn said(&self) -> Vec<String> {
        self.problems.iter().map(Problem::to_string).collect()
    }

    fn spec(&self, id: &str) -> &ServerSpec {
        let specs = self.servers.iter().filter_map(|s| s.as_ref().ok());
        specs
            .into_iter()
            .find(|s| s.id.as_str() == id)
            .unwrap_or_else(|| panic!("{:?}", self.said()))
    }

    fn why(&self, id: &str) -> String {
        let broken = self.servers.iter().filter_map(|s| s.as_ref().err());
        let its = |b: &&BrokenServer| b.id.as_ref().is_some_and(|of| of.as_str() == id);
        broken
            .into_iter()
            .find(its)
            .expect("it is broken")
            .problem
            .to_string()
    }
}

fn picture(problem: &Problem) -> String {
    problem.fancy(miette::GraphicalTheme::unicode_nocolor())
}

/// A server entry called `x` with these lines.
fn entry(lines: &str) -> Read {
    read_text(&format!("[[servers]]\nid = \"x\"\n{lines}\n"))
}

/// MGP-215: the example of the specification, verbatim.
#[test]
fn the_specifications_example_is_read() {
    let read = read_text(
        r#"
[[servers]]
id = "mind.cerebras"
command = "python"
args = ["mcp-servers/cerebras/server.py"]
transport = "stdio"

[servers.mgp]
extensions = ["security", "lifecycle", "streaming"]
permissions_required = ["network.outbound"]
trust_level = "standard"
restart_policy = "on_failure"

[servers.env]
CEREBRAS_API_KEY = "${CEREBRAS_API_KEY}"
"#,
    );
    assert_eq!(read.said(), [""; 0]);
    let spec = read.spec("mind.cerebras");
    let Reach::Stdio {
        command,
        args,
        env,
        inherit_env,
        cwd,
    } = &spec.reach
    else {
        panic!("a command is started");
    };
    assert_eq!(
        (command.as_str(), args.as_slice()),
        ("python", &["mcp-servers/cerebras/server.py".to_owned()][..])
    );
    assert_eq!(env["CEREBRAS_API_KEY"], "sk-secret");
    assert!(inherit_env.is_empty());
    assert_eq!(cwd.as_deref(), Some(Path::new("/etc/mgp")));
    assert_eq!(spec.mgp.extensions, ["security", "lifecycle", "streaming"]);
    assert_eq!(spec.mgp.permissions_required, ["network.outbound"]);
    assert_eq!(spec.mgp.trust_level, TrustLevel::Standard);
    assert_eq!(spec.restart, RestartRules::default());
    assert_eq!(spec.limits, ServerLimits::default());
}

/// MGP-218, A-27: without `[servers.mgp]` the defaults hold; `mgp = false` offers nothing.
#[test]
fn the_mgp_section_is_optional_and_can_be_switched_off() {
    assert!(!entry("command = \"c\"").spec("x").mgp.suppressed);
    assert!(
        entry("command = \"c\"\nmgp = false")
            .spec("x")
            .mgp
            .suppressed
    );
}

#[test]
fn restart_rules_stand_flat_or_in_the_mgp_section() {
    let rules = "restart_policy = \"always\"\nmax_restarts = 2\nrestart_window_secs = 60\n\
                 backoff_base_ms = 10\nbackoff_max_ms = 20";
    let want = RestartRules {
        policy: RestartPolicy::Always,
        max_restarts: 2,
        window: Duration::from_secs(60),
        backoff_base: Duration::from_millis(10),
        backoff_max: Duration::from_millis(20),
    };
    assert_eq!(
        entry(&format!("command = \"c\"\n{rules}"))
            .spec("x")
            .restart,
        want
    );
    assert_eq!(
        entry(&format!("command = \"c\"\n[servers.mgp]\n{rules}"))
            .spec("x")
            .restart,
        want
    );
}

#[test]
fn limits_hold_for_every_server_that_says_nothing_else() {
    let read = read_text(
        "[limits]\nmax_in_flight = 7\nstop_grace_ms = 5\n\
         [[servers]]\nid = \"a\"\ncommand = \"c\"\nmax_in_flight = 9\n\
         [[servers]]\nid = \"b\"\ncommand = \"c\"\n",
    );
    let of = |id: &str| read.spec(id).limits.clone();
    assert_eq!((of("a").max_in_flight, of("b").max_in_flight), (9, 7));
    assert_eq!(of("a").stop_grace, Duration::from_millis(5));
}

/// MGP-216, A-26: every value takes variables.
#[test]
fn variables_are_put_into_every_value() {
    let read = entry(
        "command = \"${HOME}/bin/x\"\nargs = [\"--key=${CEREBRAS_API_KEY}\"]\n\
         env = { A = \"${NONE:-default}\", B = \"$${HOME}\" }\ncwd = \"${HOME}\"",
    );
    let Reach::Stdio {
        command,
        args,
        env,
        cwd,
        ..
    } = &read.spec("x").reach
    else {
        panic!("a command is started");
    };
    assert_eq!(
        (command.as_str(), args[0].as_str()),
        ("/home/ada/bin/x", "--key=sk-secret")
    );
    assert_eq!(
        (env["A"].as_str(), env["B"].as_str()),
        ("default", "${HOME}")
    );
    assert_eq!(cwd.as_deref(), Some(Path::new("/home/ada")));
    let remote =
        entry("url = \"https://${NONE:-h}/mcp\"\nheaders = { A = \"Bearer ${CEREBRAS_API_KEY}\" }");
    let Reach::Http { url, headers } = &remote.spec("x").reach else {
        panic!("an address is called");
    };
    assert_eq!(
        (url.as_str(), headers["A"].as_str()),
        ("https://h/mcp", "Bearer sk-secret")
    );
}

/// MGP-217, A-26: the server whose variable is not set is broken, and named with variable and key;
/// the others start.
#[test]
fn a_variable_that_is_not_set_breaks_its_server_only() {
    let read = read_text(
        "[[servers]]\nid = \"a\"\ncommand = \"c\"\nenv = { KEY = \"x${MISSING}\" }\n\
         [[servers]]\nid = \"b\"\ncommand = \"c\"\n",
    );
    let why = read.why("a");
    assert!(
        why.starts_with("/etc/mgp/mgp.toml:4:15: server `a`: `env.KEY` needs the variable MISSING"),
        "{why}"
    );
    read.spec("b");
}

#[test]
fn relative_paths_start_at_the_file() {
    let read = entry("command = \"bin/x\"\ncwd = \"work\"");
    let Reach::Stdio { command, cwd, .. } = &read.spec("x").reach else {
        panic!("a command is started");
    };
    assert_eq!(command, "/etc/mgp/bin/x");
    assert_eq!(cwd.as_deref(), Some(Path::new("/etc/mgp/work")));
}

/// Unknown keys of the kernel's own sections, and near misses anywhere, are errors with their place.
#[test]
fn a_misspelt_key_is_told_with_its_place_and_the_key_that_was_meant() {
    let read = read_text("[http]\nlisten = \"127.0.0.1:1\"\n  lisen = 1\n");
    assert_eq!(
        read.said(),
        ["/etc/mgp/mgp.toml:3:3: unknown key `lisen` in [http], did you mean `listen`?"]
    );
    assert_eq!(read.problems[0].weight, Weight::Fatal);
    let read = read_text("[htttp]\n");
    assert!(
        read.said()[0].ends_with("did you mean `http`?"),
        "{:?}",
        read.said()
    );
    let read = read_text("[lists]\ncolour = 1\n");
    assert!(
        read.said()[0].ends_with("in [lists]; known are `page_size`"),
        "{:?}",
        read.said()
    );
    let why = entry("comand = \"c\"").why("x");
    assert_eq!(
        why,
        "/etc/mgp/mgp.toml:3:1: unknown key `comand` in server `x`, did you mean `command`?"
    );
    let why = entry("command = \"c\"\n[servers.mgp]\ntrustlevel = \"x\"").why("x");
    assert!(
        why.ends_with("in `mgp` of server `x`, did you mean `trust_level`?"),
        "{why}"
    );
}

/// MGP-219: files of other MCP clients are read, with a warning.
#[test]
fn foreign_keys_of_a_server_are_passed_over() {
    let read = entry("command = \"c\"\nicon = \"x\"\ndisabled = true\ntags = [1]");
    read.spec("x");
    assert!(read.problems.iter().all(|p| p.weight == Weight::Warning));
    let said = read.said();
    assert_eq!(said.len(), 3);
    assert!(
        said[1].contains("`disabled`") && said[1].contains("`autostart`"),
        "{said:?}"
    );
    let read = read_text("[other_program]\nx = 1\n[[servers]]\nid = \"a\"\ncommand = \"c\"\n");
    read.spec("a");
    assert_eq!(read.problems[0].weight, Weight::Warning);
}

/// One broken entry never stops the others, and each says what is wrong with it.
#[test]
fn broken_entries_leave_the_others_alone() {
    let broken = [
        ("", "has no `command`"),
        ("command = 7", "wants a text, this is an integer"),
        (
            "command = \"c\"\nurl = \"https://h\"",
            "both `command` and `url`",
        ),
        ("url = \"ftp://h\"", "wants http:// or https:// and a host"),
        ("transport = \"http\"\ncommand = \"c\"", "but no `url`"),
        (
            "transport = \"stdoi\"\ncommand = \"c\"",
            "did you mean `stdio`?",
        ),
        (
            "command = \"c\"\nargs = [1]",
            "wants a list of texts, this is an integer",
        ),
        ("command = \"c\"\nenv = { A = 1 }", "`env.A`"),
        (
            "command = \"c\"\nenv = { \"A=B\" = \"x\" }",
            "is no name for `env`",
        ),
        ("command = \"c\"\nmax_in_flight = 0", "goes from 1 to 65536"),
        (
            "command = \"c\"\ncall_timeout_secs = 9999",
            "longer than `call_timeout_max_secs`",
        ),
        (
            "command = \"c\"\nrestart_policy = \"sometimes\"",
            "is one of `never`",
        ),
        ("command = \"c\"\nenv = { A = \"keyring:a\" }", "keyring"),
        (
            "command = \"c\"\nenv = { A = \"file:/no/such\" }",
            "/no/such",
        ),
        (
            "url = \"https://h\"\nheaders = { A = \"a\\nb\" }",
            "control character",
        ),
    ];
    let sane = "[[servers]]\nid = \"sane\"\ncommand = \"c\"\n";
    for (lines, want) in broken {
        let read = read_text(&format!("{sane}[[servers]]\nid = \"x\"\n{lines}\n"));
        let why = read.why("x");
        assert!(why.contains(want), "{lines}: {why}");
        assert_eq!(read.spec("sane").id.as_str(), "sane");
        assert_eq!(read.servers.len(), 2);
    }
}

#[test]
fn an_entry_without_a_usable_id_is_told_by_its_place() {
    let read = read_text("[[servers]]\ncommand = \"c\"\n\n[[servers]]\nid = \"a/b\"\n");
    assert!(
        read.servers
            .iter()
            .all(|s| s.as_ref().is_err_and(|b| b.id.is_none()))
    );
    let said = read.said();
    assert!(
        said[0].contains(":1:1: this server has no `id`"),
        "{said:?}"
    );
    assert!(
        said[1].contains(":5:6: ") && said[1].contains("'/'"),
        "{said:?}"
    );
}

#[test]
fn ids_that_stand_twice_in_a_file_are_told_with_both_lines() {
    let twice =
        "[[servers]]\nid = \"a\"\ncommand = \"c\"\n\n[[servers]]\nid = \"a\"\ncommand = \"d\"\n";
    let read = read_text(twice);
    assert!(read.why("a").contains("lines 1 and 5"), "{}", read.why("a"));
    assert_eq!(read.problems.len(), 2);
}

#[test]
fn what_is_no_toml_is_told_with_its_place() {
    let read = read_text("a = 1\n[http]\nlisten = = 3\n");
    assert_eq!(read.problems.len(), 1);
    assert_eq!(read.problems[0].weight, Weight::Fatal);
    let said = &read.said()[0];
    assert!(
        said.starts_with("/etc/mgp/mgp.toml:3:") && said.contains("not TOML"),
        "{said}"
    );
}

/// MCP-082: nothing is offered beyond this machine without TLS.
#[test]
fn a_listen_address_beyond_loopback_is_refused_with_the_reason() {
    for address in ["0.0.0.0:7332", "[::]:7332", "192.168.1.2:80"] {
        let read = read_text(&format!("[http]\nlisten = \"{address}\"\n"));
        assert_eq!(read.problems[0].weight, Weight::Fatal);
        assert!(read.said()[0].contains("without TLS"), "{:?}", read.said());
    }
    for address in ["127.0.0.1:0", "127.1.2.3:1", "[::1]:7332", "localhost:7332"] {
        let read = read_text(&format!("[http]\nlisten = \"{address}\"\n"));
        assert!(read.problems.is_empty(), "{:?}", read.said());
        assert!(read.kernel.http.listen.ip().is_loopback());
    }
}

/// MCP-082, the other way: a remote server in the clear is worth a warning, not a refusal.
#[test]
fn a_remote_server_without_tls_is_warned_about() {
    for (url, warned) in [
        ("http://example.org/mcp", 1),
        ("https://example.org/mcp", 0),
        ("http://localhost:3000/mcp", 0),
        ("http://[::1]:3000/mcp", 0),
        ("http://127.0.0.1@example.org/", 1),
    ] {
        let read = entry(&format!("url = \"{url}\""));
        read.spec("x");
        assert_eq!(read.problems.len(), warned, "{url}: {:?}", read.said());
    }
}

#[test]
fn too_many_replay_events_are_clamped_with_a_warning() {
    let read = read_text("[streams]\nreplay_events = 1_000_000\n");
    assert_eq!(read.kernel.streams.replay_events, 65_536);
    assert_eq!(read.problems[0].weight, Weight::Warning);
}

/// A-20: unknown trust is the least.
#[test]
fn trust_has_aliases_and_what_is_unknown_is_trusted_least() {
    let trust = |word: &str| {
        let read = entry(&format!(
            "command = \"c\"\n[servers.mgp]\ntrust_level = \"{word}\""
        ));
        read.spec("x").mgp.trust_level
    };
    assert_eq!(trust("core"), TrustLevel::Trusted);
    assert_eq!(trust("untrusted"), TrustLevel::Sandboxed);
    assert_eq!(trust("whatever"), TrustLevel::Sandboxed);
}

/// A-01: for each server id, and for each key of the kernel, the project's file wins.
#[test]
fn the_project_wins_over_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let look_up = LookUp {
        home: Some(folder.path().join("home")),
        folder: folder.path().join("project"),
        ..LookUp::default()
    };
    let write = |path: std::path::PathBuf, text: &str| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let server =
        |id: &str, command: &str| format!("[[servers]]\nid = \"{id}\"\ncommand = \"{command}\"\n");
    let project = format!("[lists]\npage_size = 5\n{}", server("both", "project"));
    let user = format!(
        "[lists]\npage_size = 6\n[streams]\nreplay_events = 7\n{}{}",
        server("both", "user"),
        server("mine", "user")
    );
    write(look_up.project_file(), &project);
    write(look_up.user_file().unwrap(), &user);
    let loaded = load(&look_up, &env).unwrap();
    assert!(loaded.is_usable(), "{:?}", loaded.problems);
    let commands = loaded
        .servers
        .iter()
        .map(|s| match &s.as_ref().unwrap().reach {
            Reach::Stdio { command, .. } => command.clone(),
            Reach::Http { .. } => panic!("a command is started"),
        });
    assert_eq!(commands.collect::<Vec<_>>(), ["project", "user"]);
    assert_eq!(loaded.kernel.lists.page_size, 5);
    assert_eq!(loaded.kernel.streams.replay_events, 7);
    assert_eq!(loaded.files.len(), 2);
}

#[test]
fn a_file_that_is_too_long_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mgp.toml");
    fs::File::create(&path)
        .unwrap()
        .set_len(MAX_FILE + 1)
        .unwrap();
    let look_up = LookUp {
        explicit: Some(path),
        ..LookUp::default()
    };
    let loaded = load(&look_up, &env).unwrap();
    assert!(!loaded.is_usable());
    assert!(loaded.problems[0].to_string().contains("too many"));
}

/// No secret reaches a message, a picture of the place, or a log through `Debug`.
#[test]
fn secrets_are_never_shown() {
    let text = "[[servers]]\nid = \"a\"\ncommand = \"c\"\nenv = { A = \"hunter2\", B = \"${HOME}${\" }\n\
                [[servers]]\nid = \"b\"\nurl = \"hunter2://x\"\nheaders = { H = \"hunter2\\n\" }\n\
                [[servers]]\nid = \"c\"\ncommand = \"c\"\nenv = { A = \"hunter2\" }\n";
    let read = read_text(text);
    let loaded = Loaded {
        kernel: read.kernel,
        servers: read.servers,
        problems: read.problems,
        files: Vec::new(),
    };
    assert_eq!(loaded.servers.iter().filter(|s| s.is_err()).count(), 2);
    let pictures: Vec<_> = loaded.problems.iter().map(picture).collect();
    for shown in [format!("{loaded:?}"), pictures.join("\n")] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let syntax = &read_text("[[servers]]\nid = \"a\"\nenv = { A = hunter2 }\n").problems[0];
    let syntax = picture(syntax);
    assert!(!syntax.contains("hunter2"), "{syntax}");
}

#[test]
fn a_picture_shows_the_line_and_what_was_meant() {
    let picture = picture(&entry("comand = \"c\"").problems[1]);
    for part in [
        "mgp.toml:3:1",
        "3 │ comand = \"•\"",
        "did you mean `command`?",
    ] {
        assert!(picture.contains(part), "{part} is not in {picture}");
    }
}

const EXAMPLE: &str = include_str!("../../../mgp.toml.example");

/// The example as it would be with every key in force.
fn uncommented() -> String {
    let key =
        |line: &&str| line.starts_with(|c: char| c.is_ascii_lowercase() || c == '[' || c == 'A');
    let line = |line| match str::strip_prefix(line, "#").filter(key) {
        Some(key) => key,
        None => line,
    };
    EXAMPLE.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The example holds every key, each with its default.
#[test]
fn the_example_shows_every_key_with_its_default() {
    let read = read_text(EXAMPLE);
    assert_eq!(read.said(), [""; 0]);
    assert_eq!(read.kernel, KernelConfig::default());
    assert!(read.servers.is_empty());

    let text = uncommented();
    let read = read_text(&text);
    assert_eq!(read.said(), [""; 0]);
    let files = read.spec("files");
    assert!(files.autostart);
    assert_eq!(files.restart, RestartRules::default());
    assert_eq!(files.limits, ServerLimits::default());
    assert_eq!(files.mgp, mgp_engine::spec::MgpDeclaration::default());
    let Reach::Stdio {
        inherit_env, cwd, ..
    } = &files.reach
    else {
        panic!("a command is started");
    };
    assert_eq!(cwd.as_deref(), Some(Path::new("/etc/mgp/.")));
    assert!(inherit_env.is_empty());

    let (known, table) = (file::known_keys(), text.parse::<toml::Table>().unwrap());
    assert!(known.contains(&"http.listen".to_owned()) && known.contains(&"servers.url".to_owned()));
    for key in known {
        assert!(is_in(&table, &key), "{key} is not in the example");
    }
}

/// Whether `a.b.c` stands in the table; in a list, whether any entry has it.
fn is_in(table: &toml::Table, path: &str) -> bool {
    let (key, rest) = path
        .split_once('.')
        .map_or((path, None), |(key, rest)| (key, Some(rest)));
    match (table.get(key), rest) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(toml::Value::Array(list)), Some(rest)) => list
            .iter()
            .filter_map(toml::Value::as_table)
            .any(|entry| is_in(entry, rest)),
        (Some(value), Some(rest)) => value.as_table().is_some_and(|inner| is_in(inner, rest)),
    }
}
