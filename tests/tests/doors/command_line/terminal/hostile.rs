//! Texts of others on a terminal.

use std::collections::BTreeSet;
use std::process::Output;

use mgp_tests::harness::{DEADLINE, Kernel, Program};
use serde_json::json;

/// Drives a terminal, reorders, hides, and begins lines that look like one of the kernel's.
const HOSTILE: &str = "\u{1b}]0;T\u{7}\u{1b}[2J\u{9b}2J\u{202e}gnp.exe\u{202c}\u{61c}\u{200b}\u{e0041}\u{feff}\r\nFAKE LINE mgp: all is well\
    \n2026-11-28T00:00:00.000Z      1 ACCESS_GRANTED SUCCESS  operator operator  FAKE LINE\u{2028}FAKE LINE";

/// How a line begins that is forged, behind whatever space.
const FORGED: [&str; 2] = ["FAKE LINE", "2026-11-28T00:00:00.000Z "];

/// Commands that show what others said, and what they are typed with here.
const SHOWN: [&str; 45] = [
    "servers list",
    "servers show h",
    "servers logs h",
    "servers outdated",
    "servers pins h",
    "servers scan h",
    "tools list",
    "tools list --server h",
    "tools confirm h",
    "tools call h:said",
    "tools call h:nosuch",
    "tools call h:refuses",
    "tools call h:fails",
    "tools find said",
    "prompts list",
    "prompts get h__nosuch",
    "resources list",
    "resources read said:nosuch",
    "skills list",
    "skills show skill://h/said/SKILL.md",
    "skills verify skill://h/said/SKILL.md",
    "status",
    "status --tree",
    "pending",
    "permissions list",
    "logins list",
    "audit tail -n 50",
    "audit find --limit 50",
    "audit verify",
    "explain agent.local h:said",
    "grants list",
    "doctor",
    "check",
    "top --once",
    "events list",
    "sets list",
    "sets show none",
    "groups list",
    "groups show none",
    "mcpl sets list",
    "metrics",
    "calls show 0",
    "agents list",
    "shares list",
    "cluster status",
];

/// Of these some only say what the person typed or what this machine has, some need what is not here, and some run
/// until they are ended; what they show goes the same ways.
const OTHERS: &str = "up down upgrade version demo stdio console accept backup restore import export connect trust \
    untrust completions trace replay approve answer deny \
    service-install service-status service-remove servers-search servers-add servers-remove servers-start servers-stop \
    servers-restart servers-update skills-serve secrets-set secrets-list secrets-remove agents-add agents-remove agents-token \
    mcpl-sets-enable mcpl-sets-disable mcpl-sets-reset mcpl-forget state-log state-rollback audit-acknowledge events-tail \
    grants-add grants-remove groups-add groups-remove shares-add shares-remove logins-add logins-remove permissions-remove \
    nodes-show nodes-invite nodes-join nodes-list nodes-remove nodes-rename nodes-promote nodes-demote \
    nodes-drain nodes-forget nodes-leave nodes-rekey nodes-tickets nodes-withdraw cluster-recover lan-on lan-off lan-status";

/// What no terminal should get from a stranger, and a line that is forged.
fn troubles(output: &Output) -> Vec<String> {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8(text).expect("it is text");
    let hidden = |c: &char| (c.is_control() && !"\n\t".contains(*c)) || HOSTILE_MARKS.contains(c);
    let hidden: BTreeSet<String> = text
        .chars()
        .filter(hidden)
        .map(|c| format!("{c:?}"))
        .collect();
    let is_forged = |line: &&str| FORGED.iter().any(|it| line.trim_start().starts_with(it));
    let forged = text.split(['\n', '\r', '\u{2028}']).filter(is_forged);
    hidden
        .into_iter()
        .chain(forged.map(str::to_owned))
        .collect()
}

const HOSTILE_MARKS: [char; 6] = [
    '\u{202e}',
    '\u{202c}',
    '\u{61c}',
    '\u{200b}',
    '\u{e0041}',
    '\u{feff}',
];

/// The commands that are no groups, from their help, as `group command`.
async fn leaves(kernel: &Kernel, group: &str) -> Vec<String> {
    let words: Vec<&str> = group.split(' ').filter(|word| !word.is_empty()).collect();
    let help = kernel.mgp(&[&words[..], &["--help"]].concat()).await;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    if words.is_empty() {
        // By what people do: `  up, down, status            Start, stop and show the kernel`.
        let titles = help
            .lines()
            .filter(|line| line.starts_with("  ") && !line.trim_start().starts_with('-'));
        let titles = titles.filter_map(|line| line.get(2..28));
        let names = titles.flat_map(|title| title.split(','));
        return names.map(|name| name.trim().to_owned()).collect();
    }
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| line.starts_with(' ') || line.is_empty());
    let names = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(|name| format!("{group} {name}").trim().to_owned())
        .collect()
}

/// What the scan holds at first sight is shown and approved, so that it is listed.
async fn approve_held(kernel: &Kernel) {
    for line in ["pending", "servers scan h"] {
        let words: Vec<&str> = line.split(' ').collect();
        let output = kernel.program(&words).output(DEADLINE).await;
        assert_eq!(troubles(&output), Vec::<String>::new(), "{line}");
    }
    let pending = kernel.mgp_json(&["pending"]).await;
    let all = pending["pending"].as_array().unwrap().iter();
    for entry in all.filter(|entry| entry["subject"] == "pins") {
        kernel
            .mgp(&["approve", entry["id"].as_str().unwrap()])
            .await;
    }
}

/// Every command is walked, or named as one that is not: whatever a server says, in names, titles, descriptions, types,
/// errors or on stderr, drives no terminal, hides nothing, and forges no line.
#[tokio::test]
async fn text_of_a_server_neither_controls_the_terminal_nor_forges_a_line() {
    let tool = json!({
        "name": "said", "title": HOSTILE, "description": HOSTILE,
        "inputSchema": {"type": "object", "title": HOSTILE, "properties": {HOSTILE: {"description": HOSTILE}}},
        "annotations": {"readOnlyHint": true},
    });
    let (tool, name) = (tool.to_string(), format!("n{HOSTILE}"));
    let forged = json!({"name": name, "description": HOSTILE, "inputSchema": {"type": "object"},
        "annotations": {"destructiveHint": false}});
    let forged = forged.to_string();
    let answers = [
        (
            "refuses",
            json!({"error": {"code": -32050, "message": HOSTILE}}),
        ),
        (
            "fails",
            json!({"result": {"isError": true, "content": [{"type": "text", "text": HOSTILE}]}}),
        ),
    ];
    let answers = answers.map(|(name, answer)| {
        json!({"tool": {"name": name, "inputSchema": {"type": "object"}}, "answers": [answer]})
    });
    let answers = json!(answers).to_string();
    let skill = json!({"uri": format!("skill://said/{HOSTILE}/SKILL.md"), "resources": "dynamic",
        "frontmatter": {"name": HOSTILE, "description": HOSTILE, HOSTILE: [HOSTILE]}});
    let methods = json!({"skills/list": {"skills": [skill]}, "skills/get": {"skill": skill}});
    let methods = methods.to_string();
    let skills = r#"{"io.modelcontextprotocol/skills":{}}"#;
    let fixture = ["--extensions", skills, "--methods", &methods];
    let said = ["--name", &name, "--said", HOSTILE, "--mcpl-tools", &answers];
    let fixture = [&fixture[..], &said].concat();
    let fixture = [&fixture[..], &["--tool", &tool, "--tool", &forged]].concat();
    let kernel = Kernel::start(&Program::fixture(&fixture).entry("h")).await;
    kernel.connected(&["h"]).await;
    approve_held(&kernel).await;
    // What agents call is in the audit log, whether there is one of that name or not.
    let mut agent = kernel.stdio_agent(None);
    agent.initialize("2025-11-25", "{}").await.result();
    for called in [
        format!("h:{name}"),
        format!("h:nosuch{HOSTILE}"),
        HOSTILE.to_owned(),
    ] {
        agent.call(&called, json!({})).await;
    }
    agent
        .request("resources/read", json!({"uri": HOSTILE}))
        .await;
    agent.request("prompts/get", json!({"name": HOSTILE})).await;
    for line in SHOWN {
        let words: Vec<&str> = line.split(' ').collect();
        let output = kernel.program(&words).output(DEADLINE).await;
        // What a tool, a prompt or a resource holds has lines of its own.
        assert_eq!(troubles(&output), Vec::<String>::new(), "{line}");
    }
    let audited = kernel.mgp(&["audit", "tail", "-n", "50"]).await;
    let audited = String::from_utf8_lossy(&audited.stdout).into_owned();
    assert!(audited.contains("\\u{a}2026-11-28T00"), "{audited}");
    let call = kernel.program(&["tools", "call", &format!("h:nosuch{HOSTILE}")]);
    assert_eq!(troubles(&call.output(DEADLINE).await), Vec::<String>::new());
    let logs = kernel.mgp(&["servers", "logs", "h"]).await;
    let logs = String::from_utf8_lossy(&logs.stdout).into_owned();
    assert!(logs.contains("\\u{202e}gnp.exe"), "{logs}");

    let mut known: BTreeSet<String> = OTHERS.split_whitespace().map(str::to_owned).collect();
    for line in SHOWN {
        let words: Vec<&str> = line.split(' ').collect();
        known.insert(words[0].to_owned());
        known.extend(words.get(..2).map(|two| two.join("-")));
    }
    let mut walked = 0;
    for command in leaves(&kernel, "").await {
        let inner = leaves(&kernel, &command).await;
        let all = if inner.is_empty() {
            vec![command]
        } else {
            inner
        };
        for one in all {
            walked += 1;
            // `mcpl sets` is a group in a group.
            let known = known.contains(&one.replace(' ', "-")) || one == "mcpl sets";
            assert!(known, "`mgp {one}`: does it show what others said?");
        }
    }
    assert!(walked > 80, "{walked} commands");
}

/// What the kernel gave to a server as a secret is in no log of it, as in no trace.
#[tokio::test]
async fn a_secret_that_a_server_prints_is_not_in_its_log() {
    let fixture = Program::fixture(&["--said", "my token is correct-horse-battery"]);
    let entry = format!(
        "{}\nenv = {{ TOKEN = \"correct-horse-battery\" }}\n",
        fixture.entry("h")
    );
    let kernel = Kernel::start(&entry).await;
    kernel.connected(&["h"]).await;
    for more in [&[][..], &["--json"]] {
        let logs = kernel
            .mgp(&[&["servers", "logs", "h"], more].concat())
            .await;
        let logs = String::from_utf8_lossy(&logs.stdout).into_owned();
        assert!(logs.contains("my token is [redacted]"), "{logs}");
    }
}
