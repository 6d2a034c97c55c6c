//! Tests the validators against a corpus: the calls of `attacks.txt` must be rejected, the similar calls of
//! `harmless.txt` must pass. A line is `[validator, tool, arguments]`.

use std::time::{Duration, Instant};

use super::{ScreenedCall, ScreeningRejection, Validators};
use serde_json::value::RawValue;

const ATTACKS: &str = include_str!("attacks/attacks.txt");
const HARMLESS: &str = include_str!("attacks/harmless.txt");

/// Harmless calls that are rejected, each with the reason why that is accepted.
const FALSE_ALARMS: [(&str, &str); 6] = [
    (
        r#"["sandbox","run_command",{"command":"python3 script.py --count 3"}]"#,
        "an interpreter runs whatever its file says, and the agent may have written it",
    ),
    (
        r#"["sandbox","run_command",{"command":"node server.js"}]"#,
        "as above",
    ),
    (
        r#"["sandbox","run_command",{"command":"bash scripts/build.sh"}]"#,
        "as above",
    ),
    (
        r#"["sandbox","search",{"query":"rock & roll; ls"}]"#,
        "a lone `; ls` is how tools are probed for shells behind them",
    ),
    (
        r#"["network_restricted","write_file",{"path":"README.md","content":"Open http://localhost:3000 when the server is up."}]"#,
        "a URL in a longer text may be followed by an agent behind the tool; a mention looks the same",
    ),
    (
        r#"["readonly","query",{"sql":"SELECT a FROM t WHERE b = E'x\\'y; DELETE'"}]"#,
        "PostgreSQL reads one string; SQLite a column E, its new name, and a second statement",
    ),
];

fn lines(corpus: &str) -> impl Iterator<Item = &str> {
    corpus
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
}

fn check(line: &str) -> Result<(), ScreeningRejection<()>> {
    let (validator, tool, args): (&str, &str, &RawValue) =
        serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    let roots = ["/srv/project".to_owned()];
    let call = ScreenedCall {
        tool,
        roots: &roots,
        args: args.get(),
        ..ScreenedCall::default()
    };
    Validators::from_names([validator]).check(&call, |_| Ok(()))
}

/// MGP-058, MGP-059, MGP-060, MGP-063: all attacks are rejected, and similar harmless calls pass.
#[test]
fn attacks_are_blocked_and_similar_calls_pass() {
    let attacks: Vec<&str> = lines(ATTACKS).collect();
    let harmless: Vec<&str> = lines(HARMLESS).collect();
    let missed: Vec<&&str> = attacks.iter().filter(|l| check(l).is_ok()).collect();
    let alarms: Vec<(&str, ScreeningRejection<()>)> = harmless
        .iter()
        .filter_map(|l| check(l).err().map(|no| (*l, no)))
        .collect();
    println!(
        "{} attacks, {} missed; {} harmless calls, {} false alarms",
        attacks.len(),
        missed.len(),
        harmless.len(),
        alarms.len()
    );
    for line in &missed {
        println!("missed: {line}");
    }
    for (line, no) in &alarms {
        println!("false alarm: {line}\n    {no:?}");
    }
    assert!(attacks.len() >= 200 && harmless.len() >= 150);
    assert!(missed.is_empty());
    let explained = |line: &str| FALSE_ALARMS.iter().any(|(known, _)| *known == line);
    assert!(alarms.iter().all(|(line, _)| explained(line)));
    assert_eq!(
        alarms.len(),
        FALSE_ALARMS.len(),
        "an explained false alarm is gone"
    );
}

/// MGP-062: without validators every attack passes.
#[test]
fn every_attack_passes_with_none() {
    for line in lines(ATTACKS) {
        let (_, tool, args): (&str, &str, &RawValue) = serde_json::from_str(line).unwrap();
        let call = ScreenedCall {
            tool,
            args: args.get(),
            ..ScreenedCall::default()
        };
        let none = Validators::from_names(["none"]);
        assert_eq!(none.check(&call, |_| Err(())), Ok(()), "{line}");
    }
}

/// No text panics a validator, and the time grows with the length of the text only.
#[test]
fn hostile_texts_are_checked_in_bounded_time() {
    let pieces = [
        ":",
        "a:",
        "ab:",
        "http:",
        "http:/",
        "sudo ",
        "find . -exec ",
        "find . -exec ls ; ",
        "x:\\\\a",
        "http:a ",
        "$",
        "$$",
        "$a$",
        "/*",
        "'",
        "\\",
        "`",
        "$(",
        "{",
        "[",
        "{\"a\":",
        "%25",
        "@",
        "..;/",
        "\u{200b}",
        "; ls ",
        "=",
        "-- ",
        "mutation {",
        "x=y;",
        "1.",
        "::",
    ];
    for piece in pieces {
        let text = piece.repeat(20_000 / piece.len());
        for key in ["url", "command", "path", "sql", "args", "x", "code"] {
            let args = serde_json::json!({ key: text, "list": [text] }).to_string();
            assert_is_checked(&args);
        }
    }
    // Depth of a statement, and many small commands.
    assert_is_checked(&serde_json::json!({ "x": "explain ".repeat(100_000) }).to_string());
    assert_is_checked(&serde_json::json!({ "args": vec!["sh"; 15_000] }).to_string());
    let objects = vec![serde_json::json!({ "args": "sh" }); 6_000];
    assert_is_checked(&serde_json::json!({ "list": objects }).to_string());
}

/// The longest check of 20 kB, on a machine that is busy.
const LONGEST_CHECK: Duration = Duration::from_secs(3);

#[expect(
    clippy::disallowed_methods,
    reason = "it measures how long a check takes"
)]
fn assert_is_checked(args: &str) {
    for validator in ["sandbox", "readonly", "network_restricted"] {
        let call = ScreenedCall {
            tool: "run_command",
            args,
            ..ScreenedCall::default()
        };
        let start = Instant::now();
        let _ = Validators::from_names([validator]).check(&call, |_| Ok::<(), ()>(()));
        // Some 20 ms; many seconds where the work grows with the square of the length.
        let shown: String = args.chars().take(40).collect();
        assert!(start.elapsed() < LONGEST_CHECK, "{validator} {shown}");
    }
}

/// MGP-058: at most 256 commands in one call, since each is compared with all other texts.
#[test]
fn one_command_too_many_is_rejected() {
    let line = |count| {
        let commands = vec![serde_json::json!({ "args": "ls" }); count];
        serde_json::json!(["sandbox", "run_command", { "list": commands }]).to_string()
    };
    assert_eq!(check(&line(256)), Ok(()));
    assert!(check(&line(257)).is_err());
}

/// Lines written before the rules, in two halves: the rules were made with the first in sight, the second
/// was kept aside until they were final. A third part is by another author, who had not seen the rules.
const PARTS: [(&str, &str, &str); 3] = [
    (
        "first",
        include_str!("attacks/blind/attacks_first.txt"),
        include_str!("attacks/blind/harmless_first.txt"),
    ),
    (
        "second",
        include_str!("attacks/blind/attacks_second.txt"),
        include_str!("attacks/blind/harmless_second.txt"),
    ),
    (
        "third",
        include_str!("attacks/blind/attacks_third.txt"),
        include_str!("attacks/blind/harmless_third.txt"),
    ),
];

/// Converts a line of a section to a call.
fn call_line(section: &str, line: &str) -> String {
    let (validator, tool, key) = match section {
        "sandbox" => ("sandbox", "run_command", "command"),
        "readonly" => ("readonly", "run_command", "command"),
        "sql" => ("readonly", "query", "sql"),
        "network url" => ("network_restricted", "fetch", "url"),
        "network host" => ("network_restricted", "connect", "host"),
        other => panic!("no section is called {other}"),
    };
    serde_json::json!([validator, tool, { key: line }]).to_string()
}

/// The lines of a file by section, and whether each is rejected.
fn verdicts(text: &str) -> Vec<(String, String, bool)> {
    let mut section = "";
    let mut out = Vec::new();
    for line in lines(text) {
        let named = line.strip_prefix('[').and_then(|l| l.strip_suffix(']'));
        match named.filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase())) {
            Some(name) => section = name,
            None => {
                let refused = check(&call_line(section, line)).is_err();
                out.push((section.to_owned(), line.to_owned(), refused));
            }
        }
    }
    out
}

/// MGP-058, MGP-059, MGP-060: the required rates, on all parts alike.
#[test]
fn fewer_than_three_percent_of_attacks_pass_and_five_of_harmless_lines_fail() {
    let (mut attacks, mut harmless) = (0, 0);
    for (part, bad, good) in PARTS {
        let bad = verdicts(bad);
        let good = verdicts(good);
        let passed: Vec<_> = bad.iter().filter(|(_, _, refused)| !refused).collect();
        let refused: Vec<_> = good.iter().filter(|(_, _, refused)| *refused).collect();
        println!(
            "{part} part: {} of {} attacks pass, {} of {} harmless lines are refused",
            passed.len(),
            bad.len(),
            refused.len(),
            good.len()
        );
        let list = |lines: &[&(String, String, bool)]| -> String {
            let line =
                |(section, line, _): &&(String, String, bool)| format!("\n[{section}] {line}");
            lines.iter().map(line).collect()
        };
        assert!(
            passed.len() * 100 < bad.len() * 3,
            "attacks of the {part} part that pass:{}",
            list(&passed)
        );
        assert!(
            refused.len() * 100 < good.len() * 5,
            "harmless lines of the {part} part that are refused:{}",
            list(&refused)
        );
        attacks += bad.len();
        harmless += good.len();
    }
    assert!(attacks >= 400 && harmless >= 200);
}
