//! What becomes of servers that are found in several files.

use super::*;
use crate::document::DocumentForm;
use crate::tables::read;

fn file(client: Client, path: &str, text: &str) -> ClientFileRead {
    let found = read(&DocumentForm::Json.read(text).unwrap(), Some(client));
    assert_eq!(found.broken, []);
    ClientFileRead {
        client: Some(client),
        path: PathBuf::from(path),
        project: None,
        servers: found.servers,
    }
}

fn plan(files: &[ClientFileRead], taken: &[&str], answers: &[(&str, &str)]) -> Plan {
    let taken = taken.iter().map(|id| (*id).to_owned()).collect();
    let answers = answers
        .iter()
        .map(|(id, answer)| ((*id).to_owned(), (*answer).to_owned()));
    let planner = Planner {
        home: Path::new("/home/me"),
        answers: &answers.collect(),
        own: |words| words[0].ends_with("/mgp"),
        door: "http://127.0.0.1:7332",
        here: &[("old".to_owned(), vec!["npx".to_owned(), "old".to_owned()])],
    };
    planner.plan(files, &taken)
}

fn command(server: &PlannedServer) -> (Vec<&str>, Vec<(&str, &PlannedValue)>, Option<&str>) {
    match &server.reach {
        PlannedReach::Command {
            words, env, cwd, ..
        } => (
            words.iter().map(String::as_str).collect(),
            env.iter()
                .map(|(name, value)| (name.as_str(), value))
                .collect(),
            cwd.as_deref(),
        ),
        PlannedReach::Url { .. } => panic!("it has a URL: {server:?}"),
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
fn servers_of_one_name_that_differ_are_told_apart() {
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
fn the_kernels_own_entry_is_never_taken_over() {
    let text = r#"{"mcpServers": {"mgp": {"command": "/usr/bin/mgp", "args": ["stdio"]}, "door": {"url": "http://127.0.0.1:7332/mcp"}, "other": {"url": "http://127.0.0.1:73321/mcp"}}}"#;
    let plan = plan(&[file(Client::Cursor, "a", text)], &[], &[]);
    let ids: Vec<_> = plan
        .servers
        .iter()
        .map(|server| server.id.as_str())
        .collect();
    assert_eq!(ids, ["other"]);
    assert_eq!(plan.left.len(), 2);
}

#[test]
fn secrets_are_kept_apart_and_variables_stay_variables() {
    let text = r#"{"servers": {"a": {"command": "a", "args": ["--token", "hush"], "cwd": "${userHome}/x",
        "env": {"API_KEY": "${input:key}", "OTHER_TOKEN": "${env:MINE}", "LEVEL": "$5 ${env:L}", "DB": "file:./dev.db"}}}}"#;
    let files = [file(Client::VsCode, "a", text)];
    let planned = plan(&files, &[], &[("key", "hush")]);
    let (words, env, cwd) = command(&planned.servers[0]);
    assert_eq!(
        (words, cwd),
        (vec!["a", "--token", "hush"], Some("/home/me/x"))
    );
    let written = |text: &str| PlannedValue::Written(text.to_owned());
    let expected = [
        ("API_KEY", &PlannedValue::Secret("hush".to_owned())),
        ("DB", &written("${:-file:./dev.db}")),
        ("LEVEL", &written("$$5 ${L:-}")),
        ("OTHER_TOKEN", &written("${MINE:-}")),
    ];
    assert_eq!(env, expected);
    let unanswered = plan(&files, &[], &[]);
    assert_eq!(unanswered.servers, []);
    let unrendered = Unrendered::Unanswered("key".to_owned());
    assert_eq!(unanswered.left[0].why, unrendered.into());
}

#[test]
fn a_projects_server_starts_in_its_folder() {
    let text = r#"{"projects": {"/work": {"mcpServers": {"a": {"command": "a"}}}}, "mcpServers": {"b": {"command": "a"}}}"#;
    let plan = plan(&[file(Client::ClaudeCode, "a", text)], &[], &[]);
    let folders: Vec<_> = plan
        .servers
        .iter()
        .map(|server| command(server).2)
        .collect();
    assert_eq!(folders, [None, Some("/work")]);
    let text = r#"{"servers": {"a": {"command": "a", "args": ["${workspaceFolder}"]}}}"#;
    let left = self::plan(&[file(Client::VsCode, "a", text)], &[], &[]).left;
    assert_eq!(left[0].why, Unrendered::NoFolder.into());
}

#[test]
fn ids_are_made_of_any_name() {
    for (name, id) in [
        ("a b", "a-b"),
        ("@scope/pkg", "scope-pkg"),
        ("Übung", "bung"),
        ("日本", "server"),
        ("a.b_c-d", "a.b_c-d"),
    ] {
        assert_eq!(id_of(name), id);
    }
    assert_eq!(id_of(&"x".repeat(100)).len(), ID_MAX);
    assert_eq!(joined(&"x".repeat(48), "cursor").len(), ID_MAX);
}

#[test]
fn a_server_that_is_here_is_not_added_again() {
    let text = r#"{"mcpServers": {"a": {"command": "npx", "args": ["old"]}, "b": {"command": "npx", "args": ["old", "-v"]}}}"#;
    let plan = plan(&[file(Client::Cursor, "a", text)], &["old"], &[]);
    let ids: Vec<_> = plan
        .servers
        .iter()
        .map(|server| server.id.as_str())
        .collect();
    assert_eq!(ids, ["b"]);
    assert_eq!(plan.left[0].why, WhyLeft::Here("old".to_owned()));
}
