use super::*;

/// Unknown keys of the kernel's own sections, and near misses anywhere, are errors with their location.
#[test]
fn misspelled_keys_are_reported_with_location_and_suggestion() {
    let read = read_text("[http]\nlisten = \"127.0.0.1:1\"\n  lisen = 1\n");
    assert_eq!(
        read.messages(),
        ["/etc/mgp/mgp.toml:3:3: unknown key `lisen` in [http], did you mean `listen`?"]
    );
    assert_eq!(read.problems[0].severity, Severity::Fatal);
    let read = read_text("[htttp]\n");
    assert!(
        read.messages()[0].ends_with("did you mean `http`?"),
        "{:?}",
        read.messages()
    );
    let read = read_text("[lists]\ncolour = 1\n");
    assert!(
        read.messages()[0].ends_with("in [lists]; known are `page_size`"),
        "{:?}",
        read.messages()
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

/// Decision 0102: a key of `[tuning]` works in its old place, too, and unknown ones are reported like elsewhere.
#[test]
fn tuning_keys_work_in_their_old_place_with_a_warning() {
    let read = read_text("[http]\nmax_sessions = 7\n");
    assert_eq!(read.kernel.http.max_sessions, 7);
    let moved = "`max_sessions` in [http] has moved to [tuning.http]; it still works here";
    assert_eq!(
        read.messages(),
        [format!("/etc/mgp/mgp.toml:2:16: {moved}")]
    );
    assert_eq!(read.problems[0].severity, Severity::Warning);
    let read = read_text("[http]\nmax_sessions = 7\n[tuning]\nhttp.max_sessions = 8\n");
    assert_eq!(
        (read.kernel.http.max_sessions, read.problems.len()),
        (8, 1),
        "{:?}",
        read.messages()
    );
    let read = read_text("[audit]\nwindow_ms = 7\n");
    assert_eq!(read.problems[0].severity, Severity::Warning);
    assert!(
        read.messages()[0].contains("is ignored"),
        "{:?}",
        read.messages()
    );
    for (text, want) in [
        (
            "[tuning.http]\nmax_session = 7\n",
            "2:1: unknown key `max_session` in [tuning.http], did you mean `max_sessions`?",
        ),
        (
            "[tuning.http]\nlisten = \"127.0.0.1:1\"\n",
            "2:1: unknown key `listen` in [tuning.http]; known are `max_bodies_bytes`, `max_sessions`, `session_idle_secs`",
        ),
        (
            "[tuning.stream]\n",
            "unknown key `stream` in [tuning], did you mean `streams`?",
        ),
        (
            "[tuning.http]\nmax_sessions = 0\n",
            "2:16: `max_sessions` in [tuning.http] goes from 1 to 65536",
        ),
        ("tuning = 1\n", "`tuning` in the file wants a table"),
    ] {
        let read = read_text(text);
        assert!(
            read.messages()[0].contains(want),
            "{text}: {:?}",
            read.messages()
        );
        assert_eq!(read.problems[0].severity, Severity::Fatal);
    }
}

/// MGP-219: files of other MCP clients are read, with a warning.
#[test]
fn foreign_keys_of_a_server_are_ignored_with_a_warning() {
    let read = entry("command = \"c\"\nicon = \"x\"\ndisabled = true\ntags = [1]");
    read.spec("x");
    assert!(
        read.problems
            .iter()
            .all(|p| p.severity == Severity::Warning)
    );
    let messages = read.messages();
    assert_eq!(messages.len(), 3);
    assert!(
        messages[1].contains("`disabled`") && messages[1].contains("`start`"),
        "{messages:?}"
    );
    let read = read_text("[other_program]\nx = 1\n[[servers]]\nid = \"a\"\ncommand = \"c\"\n");
    read.spec("a");
    assert_eq!(read.problems[0].severity, Severity::Warning);
}

/// A client's file is not accepted as mgp.toml: its servers are imported.
#[test]
fn a_client_file_is_rejected_with_a_hint() {
    let read = read_text("{ \"mcpServers\": {} }");
    assert!(
        read.messages()[0].contains("`mgp import /etc/mgp/mgp.toml` takes these over"),
        "{:?}",
        read.messages()
    );
}

/// A broken entry does not affect the others, and each reports its problem.
#[test]
fn broken_entries_do_not_affect_others() {
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
fn an_entry_without_a_valid_id_is_reported_by_location() {
    let read = read_text("[[servers]]\ncommand = \"c\"\n\n[[servers]]\nid = \"a/b\"\n");
    assert!(
        read.servers
            .iter()
            .all(|s| s.as_ref().is_err_and(|b| b.id.is_none()))
    );
    let messages = read.messages();
    assert!(
        messages[0].contains(":1:1: this server has no `id`"),
        "{messages:?}"
    );
    assert!(
        messages[1].contains(":5:6: ") && messages[1].contains("'/'"),
        "{messages:?}"
    );
}

#[test]
fn duplicate_ids_are_reported_with_both_lines() {
    let twice =
        "[[servers]]\nid = \"a\"\ncommand = \"c\"\n\n[[servers]]\nid = \"a\"\ncommand = \"d\"\n";
    let read = read_text(twice);
    assert!(read.why("a").contains("lines 1 and 5"), "{}", read.why("a"));
    assert_eq!(read.problems.len(), 2);
}

#[test]
fn invalid_toml_is_reported_with_its_location() {
    let read = read_text("a = 1\n[http]\nlisten = = 3\n");
    assert_eq!(read.problems.len(), 1);
    assert_eq!(read.problems[0].severity, Severity::Fatal);
    let messages = &read.messages()[0];
    assert!(
        messages.starts_with("/etc/mgp/mgp.toml:3:") && messages.contains("not TOML"),
        "{messages}"
    );
}

/// No secret reaches a message, an excerpt, or a log through `Debug`.
#[test]
fn secrets_are_never_shown() {
    let text = "[[servers]]\nid = \"a\"\ncommand = \"c\"\nenv = { A = \"hunter2\", B = \"${HOME}${\" }\n\
                [[servers]]\nid = \"b\"\nurl = \"hunter2://x\"\nheaders = { H = \"hunter2\\n\" }\n\
                [[servers]]\nid = \"c\"\ncommand = \"c\"\nenv = { A = \"hunter2\" }\n";
    let read = read_text(text);
    let loaded = LoadedConfig {
        kernel: read.kernel,
        written_keys: WrittenKeys::default(),
        servers: read.servers,
        problems: read.problems,
        files: Vec::new(),
        project: ProjectFile::default(),
        secrets: vec!["hunter2".to_owned()],
    };
    assert_eq!(loaded.servers.iter().filter(|s| s.is_err()).count(), 2);
    let pictures: Vec<_> = loaded.problems.iter().map(report_of).collect();
    for shown in [format!("{loaded:?}"), pictures.join("\n")] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let syntax = &read_text("[[servers]]\nid = \"a\"\nenv = { A = hunter2 }\n").problems[0];
    let syntax = report_of(syntax);
    assert!(!syntax.contains("hunter2"), "{syntax}");
}

#[test]
fn a_report_shows_the_line_and_the_suggestion() {
    let report = report_of(&entry("comand = \"c\"").problems[1]);
    for part in [
        "mgp.toml:3:1",
        "3 | comand = \"•\"",
        "did you mean `command`?",
    ] {
        assert!(report.contains(part), "{part} is not in {report}");
    }
}

fn report_of(problem: &Problem) -> String {
    problem.render_report(&annotate_snippets::Renderer::plain())
}

/// Before a project is trusted its references are checked but not read: for an unreadable file only its existence is
/// checked.
#[test]
fn references_of_an_untrusted_file_are_never_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("unread"), b"\xff").unwrap();
    std::os::unix::fs::symlink("/proc/self/environ", at("link")).unwrap();
    let text = r#"
[network]
proxy = "file:unread"
[telemetry]
headers = { A = "file:unread" }
[discovery.provider]
url = "https://p.example"
model = "m"
key = "file:unread"
[mcpl.providers.p]
kind = "openai"
url = "https://p.example"
model = "m"
key = "file:unread"
[[servers]]
id = "a"
command = "c"
env = { A = "file:unread", B = "file:link" }
[[servers]]
id = "b"
url = "https://b.example"
headers = { A = "file:unread" }
[servers.login]
client_secret = "file:unread"
"#;
    let messages = |text: &str| {
        let all = crate::config::check_text(text, &at("mgp.toml"));
        all.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(messages(text), Vec::<String>::new());
    let none = messages(&text.replace("\"file:link\"", "\"file:none\""));
    assert!(none.len() == 1 && none[0].contains("none"), "{none:?}");
}
