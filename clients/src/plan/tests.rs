//! Plans for servers that are found in several files.

use super::*;
use crate::document::DocumentForm;
use crate::tables::read_document;

fn file(client: Client, path: &str, text: &str) -> ParsedClientFile {
    let found = read_document(&DocumentForm::Json.parse(text).unwrap(), Some(client));
    assert_eq!(found.invalid, []);
    ParsedClientFile {
        client: Some(client),
        path: PathBuf::from(path),
        project: None,
        project_starts: ProjectStarts::All,
        servers: found.servers,
    }
}

fn plan(files: &[ParsedClientFile], taken: &[&str], answers: &[(&str, &str)]) -> Plan {
    let taken = taken.iter().map(|id| (*id).to_owned()).collect();
    let answers = answers.iter().map(|(id, answer)| {
        let text = (*answer).to_owned();
        ((*id).to_owned(), InputAnswer { text, secret: true })
    });
    let answers: BTreeMap<_, _> = answers.collect();
    let answers = files
        .iter()
        .map(|file| (file.path.clone(), answers.clone()));
    let old = |reach: &PlannedConnection| {
        let words = match reach {
            PlannedConnection::Command { words, .. } => words.clone(),
            PlannedConnection::Url { .. } => Vec::new(),
        };
        (words == ["npx", "old"]).then(|| "old".to_owned())
    };
    let planner = Planner {
        home: Path::new("/home/me"),
        answers: &answers.collect(),
        is_kernel_command: |words| words[0].ends_with("/mgp"),
        endpoint: "http://127.0.0.1:7332",
        find_existing: &old,
    };
    planner.plan(files, &taken)
}

fn command(server: &PlannedServer) -> (Vec<&str>, Vec<(&str, &PlannedValue)>, Option<&str>) {
    match &server.connection {
        PlannedConnection::Command {
            words, env, cwd, ..
        } => (
            words.iter().map(String::as_str).collect(),
            env.iter()
                .map(|(name, value)| (name.as_str(), value))
                .collect(),
            cwd.as_deref(),
        ),
        PlannedConnection::Url { .. } => panic!("it has a URL: {server:?}"),
    }
}

#[test]
fn the_same_command_in_several_clients_is_one_server() {
    let desktop = r#"{"mcpServers": {"Files": {"command": "npx", "args": ["files"], "env": {"A": "1", "B": "2"}, "disabled": true}}}"#;
    let cursor = r#"{"mcpServers": {"fs": {"command": "npx", "args": ["files"], "env": {"B": "2", "A": "1"}}}}"#;
    let plan = plan(
        &[
            file(Client::ClaudeDesktop, "a", desktop),
            file(Client::Cursor, "b", cursor),
        ],
        &[],
        &[],
    );
    assert_eq!(plan.servers.len(), 1, "{plan:?}");
    let server = &plan.servers[0];
    assert_eq!((server.id.as_str(), server.disabled), ("Files", false));
    let names: Vec<_> = server
        .origins
        .iter()
        .map(|origin| origin.name.as_str())
        .collect();
    assert_eq!(names, ["Files", "fs"]);
}

#[test]
fn different_servers_of_one_name_get_different_ids() {
    let desktop = r#"{"mcpServers": {"db": {"command": "one"}, "my db!": {"command": "three"}}}"#;
    let cursor = r#"{"mcpServers": {"db": {"command": "two"}}}"#;
    let files = [
        file(Client::ClaudeDesktop, "a", desktop),
        file(Client::Cursor, "b", cursor),
    ];
    let ids = |taken: &[&str]| -> Vec<String> {
        plan(&files, taken, &[])
            .servers
            .into_iter()
            .map(|server| server.id)
            .collect()
    };
    assert_eq!(ids(&[]), ["db", "my-db", "db-cursor"]);
    assert_eq!(
        ids(&["db", "db-cursor"]),
        ["db-claude-desktop", "my-db", "db-2"]
    );
}

#[test]
fn the_kernels_own_entry_is_never_imported() {
    let text = r#"{"mcpServers": {"mgp": {"command": "/usr/bin/mgp", "args": ["stdio"]}, "door": {"url": "http://127.0.0.1:7332/mcp"}, "other": {"url": "http://127.0.0.1:73321/mcp"}}}"#;
    let plan = plan(&[file(Client::Cursor, "a", text)], &[], &[]);
    let ids: Vec<_> = plan
        .servers
        .iter()
        .map(|server| server.id.as_str())
        .collect();
    assert_eq!(ids, ["other"]);
    assert_eq!(plan.skipped.len(), 2);
}

#[test]
fn secrets_are_separated_and_variables_stay_variables() {
    let text = r#"{"servers": {"a": {"command": "a", "args": ["--token", "hush"], "cwd": "${userHome}/x",
        "env": {"API_KEY": "${input:key}", "OTHER_TOKEN": "${env:MINE}", "LEVEL": "$5 ${env:L}", "DB": "file:./dev.db"}}}}"#;
    let files = [file(Client::VsCode, "a", text)];
    let planned = plan(&files, &[], &[("key", "hush")]);
    let (words, env, cwd) = command(&planned.servers[0]);
    assert_eq!(
        (words, cwd),
        (vec!["a", "--token", "hush"], Some("/home/me/x"))
    );
    let written = |text: &str| PlannedValue::Literal(text.to_owned());
    let expected = [
        ("API_KEY", &PlannedValue::Secret("hush".to_owned())),
        ("DB", &written("${:-file:./dev.db}")),
        ("LEVEL", &written("$$5 ${L:-}")),
        ("OTHER_TOKEN", &written("${MINE:-}")),
    ];
    assert_eq!(env, expected);
    let unanswered = plan(&files, &[], &[]);
    assert_eq!(unanswered.servers, []);
    let unrendered = RenderError::Unanswered("key".to_owned());
    assert_eq!(unanswered.skipped[0].reason, unrendered.into());
}

#[test]
fn a_projects_server_starts_in_its_folder() {
    let text = r#"{"projects": {"/home/me/proj": {"mcpServers": {"a": {"command": "a"}}}}, "mcpServers": {"b": {"command": "a"}}}"#;
    let plan = plan(&[file(Client::ClaudeCode, "a", text)], &[], &[]);
    let folders: Vec<_> = plan
        .servers
        .iter()
        .map(|server| command(server).2)
        .collect();
    assert_eq!(folders, [None, Some("/home/me/proj")]);
    let text = r#"{"servers": {"a": {"command": "a", "args": ["${workspaceFolder}"]}}}"#;
    let left = self::plan(&[file(Client::VsCode, "a", text)], &[], &[]).skipped;
    assert_eq!(left[0].reason, RenderError::NoFolder.into());
}

#[test]
fn ids_are_derived_from_any_name() {
    for (name, id) in [
        ("a b", "a-b"),
        ("@scope/pkg", "scope-pkg"),
        ("Übung", "bung"),
        ("日本", "server"),
        ("a.b_c-d", "a.b_c-d"),
    ] {
        assert_eq!(sanitize_id(name), id);
    }
    assert_eq!(sanitize_id(&"x".repeat(100)).len(), ID_MAX);
    assert_eq!(join_id(&"x".repeat(48), "cursor").len(), ID_MAX);
}

#[test]
fn an_existing_server_is_not_added_again() {
    let text = r#"{"mcpServers": {"a": {"command": "npx", "args": ["old"]}, "b": {"command": "npx", "args": ["old", "-v"]}}}"#;
    let plan = plan(&[file(Client::Cursor, "a", text)], &["old"], &[]);
    let ids: Vec<_> = plan
        .servers
        .iter()
        .map(|server| server.id.as_str())
        .collect();
    assert_eq!(ids, ["b"]);
    assert_eq!(
        plan.skipped[0].reason,
        SkipReason::AlreadyPresent("old".to_owned())
    );
}

/// Two accounts are two servers, in one client or in several.
#[test]
fn servers_with_any_difference_are_two() {
    let entry = |more: &str| format!(r#"{{"command": "npx", "args": ["memory"]{more}}}"#);
    let all = [
        "",
        r#", "env": {"ACCOUNT": "one"}"#,
        r#", "env": {"ACCOUNT": "two"}"#,
        r#", "env": {"API_TOKEN": "one"}"#,
        r#", "env": {"API_TOKEN": "two"}"#,
        r#", "cwd": "/one""#,
    ];
    let text = |client: usize| {
        let entries = all.iter().enumerate().filter(|(at, _)| at % 2 == client);
        let entries: Vec<_> = entries
            .map(|(at, more)| format!("\"m{at}\": {}", entry(more)))
            .collect();
        format!("{{\"mcpServers\": {{{}}}}}", entries.join(", "))
    };
    let files = [
        file(Client::ClaudeDesktop, "a", &text(0)),
        file(Client::Cursor, "b", &text(1)),
    ];
    let plan = plan(&files, &[], &[]);
    assert_eq!(plan.servers.len(), all.len(), "{plan:?}");
    let text = r#"{"mcpServers": {"one": {"url": "https://a.test/mcp", "headers": {"X-Team": "1"}}, "two": {"url": "https://a.test/mcp", "headers": {"X-Team": "2"}}}}"#;
    let plan = self::plan(&[file(Client::Cursor, "a", text)], &[], &[]);
    assert_eq!(plan.servers.len(), 2);
}

#[test]
fn keys_in_urls_and_bearer_values_are_separated() {
    let text = r#"{"mcpServers": {
        "a": {"url": "https://me:hush@a.test/s/AbC123dEf456GhI789jKl0/mcp?region=eu&api_key=h$sh#x"},
        "b": {"command": "npx", "args": ["mcp-remote"], "env": {"AUTH_HEADER": "Bearer abcdefabcdef"}}}}"#;
    let plan = plan(&[file(Client::Cursor, "a", text)], &[], &[]);
    let PlannedConnection::Url { url, .. } = &plan.servers[0].connection else {
        panic!("{plan:?}");
    };
    let written = |text: &str| UrlPiece::Literal(text.to_owned());
    let secret = |name: &str, value: &str| UrlPiece::Secret {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    let expected = [
        written("https://"),
        secret("url.user", "me:hush"),
        written("@a.test/s/"),
        secret("url.path", "AbC123dEf456GhI789jKl0"),
        written("/mcp?region=eu&api_key="),
        secret("url.api_key", "h$sh"),
        written("#x"),
    ];
    assert_eq!(url.as_slice(), expected);
    let (_, env, _) = command(&plan.servers[1]);
    let value = PlannedValue::Secret("Bearer abcdefabcdef".to_owned());
    assert_eq!(env, [("AUTH_HEADER", &value)]);
}

#[test]
fn relative_paths_of_a_project_start_at_its_folder() {
    let text = r#"{"mcpServers": {"a": {"command": "./server.sh", "args": ["./data"]}, "b": {"command": "npx"}, "c": {"command": "npx", "cwd": "sub"}}}"#;
    let mut read = file(Client::Cursor, "a", text);
    read.project = Some(PathBuf::from("/home/me/proj"));
    for (starts, plain) in [
        (ProjectStarts::All, Some("/home/me/proj")),
        (ProjectStarts::Relative, None),
    ] {
        read.project_starts = starts;
        let plan = plan(std::slice::from_ref(&read), &[], &[]);
        let (words, _, cwd) = command(&plan.servers[0]);
        assert_eq!(
            (words, cwd),
            (
                vec!["/home/me/proj/server.sh", "./data"],
                Some("/home/me/proj")
            )
        );
        assert_eq!(command(&plan.servers[1]).2, plain);
        assert_eq!(command(&plan.servers[2]).2, Some("/home/me/proj/sub"));
    }
    read.project = None;
    let plan = plan(&[read], &[], &[]);
    assert_eq!(plan.skipped[0].reason, RenderError::RelativeCommand.into());
}

/// Tools hidden by one client are hidden here.
#[test]
fn limits_of_tools_are_carried_over() {
    let one = r#"{"mcpServers": {"a": {"command": "a", "disabledTools": ["drop"]}}}"#;
    let two = r#"{"mcpServers": {"a": {"command": "a", "includeTools": ["read", "drop"], "excludeTools": ["write"]}}}"#;
    let files = [file(Client::Roo, "a", one), file(Client::Gemini, "b", two)];
    let plan = plan(&files, &[], &[]);
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let tools = &plan.servers[0].tools;
    assert_eq!(tools.hidden, set(&["drop", "write"]));
    assert_eq!(tools.only, Some(set(&["drop", "read"])));
    assert_eq!(plan.servers[0].skipped_keys, []);
}

#[test]
fn answers_belong_to_the_file_of_the_input() {
    let text = r#"{"servers": {"a": {"command": "a", "env": {"LEVEL": "${input:x}"}}}}"#;
    let files = [
        file(Client::VsCode, "a", text),
        file(Client::VsCode, "b", text),
    ];
    let answer = |text: &str, secret| InputAnswer {
        text: text.to_owned(),
        secret,
    };
    let answers = BTreeMap::from([
        (
            PathBuf::from("a"),
            BTreeMap::from([("x".to_owned(), answer("1", false))]),
        ),
        (
            PathBuf::from("b"),
            BTreeMap::from([("x".to_owned(), answer("2", true))]),
        ),
    ]);
    let planner = Planner {
        home: Path::new("/home/me"),
        answers: &answers,
        is_kernel_command: |_| false,
        endpoint: "http://127.0.0.1:7332",
        find_existing: &|_| None,
    };
    let plan = planner.plan(&files, &BTreeSet::new());
    let values: Vec<_> = plan
        .servers
        .iter()
        .map(|server| command(server).1[0].1.clone())
        .collect();
    let expected = [
        PlannedValue::Literal("1".to_owned()),
        PlannedValue::Secret("2".to_owned()),
    ];
    assert_eq!(values, expected);
}
