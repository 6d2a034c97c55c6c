//! The README's story of who may call what, as its reader types it.

use mgp_tests::harness::{Agent, Kernel, Program};
use serde_json::{Value, json};

const README: &str = include_str!("../../../../README.md");

/// The part of the README that is about names and access.
fn story() -> &'static str {
    let begin = README
        .find("Does a client have servers already?")
        .expect("the story begins");
    let story = &README[begin..];
    &story[..story
        .find("A denied tool does not appear")
        .expect("and ends")]
}

/// The blocks of code in it, each with its language.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let parts = story().split("```").skip(1).step_by(2);
    parts.map(|block| block.split_once('\n').unwrap()).collect()
}

/// The arguments of the client entry that `mgp agents add` prints.
fn entry(printed: &str) -> Vec<String> {
    let line = printed
        .lines()
        .find(|line| line.starts_with('{'))
        .expect("an entry");
    let config: Value = serde_json::from_str(line).unwrap();
    let entry = &config["mcpServers"]["mgp"];
    assert!(entry["command"].as_str().unwrap().ends_with("/mgp"));
    serde_json::from_value(entry["args"].clone()).unwrap()
}

/// Its commands, word by word, but for the one that writes a client's file.
fn commands() -> Vec<Vec<String>> {
    let lines = blocks().into_iter().flat_map(|(_, text)| text.lines());
    let typed = lines.filter_map(|line| line.strip_prefix("mgp "));
    let commands = typed.map(words);
    commands.filter(|words| words[0] != "connect").collect()
}

/// The words of a line, of which a quoted one may hold spaces.
fn words(line: &str) -> Vec<String> {
    let quoted = line.split('"').enumerate();
    quoted
        .flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        })
        .map(str::to_owned)
        .collect()
}

/// A text in which each id and moment stands as what it is.
fn timeless(text: &str) -> Vec<String> {
    let word = |word: &str| {
        let bare = word.trim_matches(['(', ')']);
        let id = bare.len() == 32 && bare.chars().all(|c| c.is_ascii_hexdigit());
        let moment = bare.starts_with("20") && bare.ends_with('Z');
        match (id, moment) {
            (true, _) => "ID".to_owned(),
            (_, true) => "WHEN".to_owned(),
            _ => word.to_owned(),
        }
    };
    text.split_whitespace().map(word).collect()
}

/// Who was denied is denied, through the client entry that `mgp agents add` gives, and the README prints what
/// its commands do.
#[tokio::test]
async fn agent_denied_in_the_readme_is_denied_through_its_client_entry() {
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}}).to_string();
    let (write, read) = (tool("write_file"), tool("read_file"));
    let files = Program::fixture(&["--tool", &write, "--tool", &read]);
    let kernel = Kernel::start(&files.entry("files")).await;
    kernel.connected(&["files"]).await;
    let (mut decided, mut entries) = (String::new(), String::new());
    for command in commands() {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let done = kernel.mgp(&words).await;
        let why = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{command:?}: {why}");
        match command[0].as_str() {
            "agents" => entries += &why,
            "grants" | "explain" => decided += &String::from_utf8_lossy(&done.stdout),
            _ => {}
        }
    }
    let mut printed = blocks().into_iter().map(|(_, text)| text);
    let printed = printed.find(|text| text.contains(" is denied ")).unwrap();
    let (decided, mut printed) = (timeless(&decided), timeless(printed));
    assert_eq!(printed.pop().as_deref(), Some("…"));
    assert_eq!(decided[..printed.len()], printed);

    let entry = entry(&entries);
    let words: Vec<&str> = entry.iter().map(String::as_str).collect();
    let mut client = Agent::over_stdio(&kernel.program(&words));
    client.initialize("2025-11-25", "{}").await.result();
    let list = client.request("tools/list", json!({})).await;
    assert!(list.frame.contains("files__read_file"), "{}", list.frame);
    assert!(!list.frame.contains("write_file"), "{}", list.frame);
    for name in ["files__write_file", "files:write_file", "write_file"] {
        let refused = client.call(name, json!({"path": "x"})).await;
        assert_eq!(refused.error()["message"], format!("Unknown tool: {name}"));
    }
    let read = client.call("files__read_file", json!({"path": "x"})).await;
    assert!(!read.is_error(), "{}", read.frame);
}
