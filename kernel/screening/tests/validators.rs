//! The validators against a corpus: `attacks.txt` has calls that must not leave the kernel,
//! `harmless.txt` calls that look like them and must. A line is `[validator, tool, arguments]`.
#![allow(clippy::unwrap_used)]

use mgp_screening::validators::{No, ScreenedCall, Validators};
use serde_json::value::RawValue;

const ATTACKS: &str = include_str!("validators/attacks.txt");
const HARMLESS: &str = include_str!("validators/harmless.txt");

/// Harmless calls that are refused all the same, each with the reason why that is borne.
const FALSE_ALARMS: [(&str, &str); 2] = [
    (
        r#"["sandbox","search",{"query":"rock & roll; ls"}]"#,
        "a lone `; ls` is how tools are probed for shells behind them",
    ),
    (
        r#"["network_restricted","write_file",{"path":"README.md","content":"Open http://localhost:3000 when the server is up."}]"#,
        "a URL in a longer text may be followed by an agent behind the tool; a mention looks the same",
    ),
];

fn lines(corpus: &str) -> impl Iterator<Item = &str> {
    corpus
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
}

fn judge(line: &str) -> Result<(), No<()>> {
    let (validator, tool, args): (&str, &str, &RawValue) =
        serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    let roots = ["/srv/project".to_owned()];
    let call = ScreenedCall {
        tool,
        roots: &roots,
        args: args.get(),
        ..ScreenedCall::default()
    };
    Validators::of([validator]).judge(&call, |_| Ok(()))
}

/// MGP-058, MGP-059, MGP-060, MGP-063: no attack passes, and look-alikes do.
#[test]
fn attacks_are_blocked_and_look_alikes_are_not() {
    let attacks: Vec<&str> = lines(ATTACKS).collect();
    let harmless: Vec<&str> = lines(HARMLESS).collect();
    let missed: Vec<&&str> = attacks.iter().filter(|l| judge(l).is_ok()).collect();
    let alarms: Vec<(&str, No<()>)> = harmless
        .iter()
        .filter_map(|l| judge(l).err().map(|no| (*l, no)))
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

/// MGP-062: every attack passes where nothing validates.
#[test]
fn every_attack_passes_with_none() {
    for line in lines(ATTACKS) {
        let (_, tool, args): (&str, &str, &RawValue) = serde_json::from_str(line).unwrap();
        let call = ScreenedCall {
            tool,
            args: args.get(),
            ..ScreenedCall::default()
        };
        let none = Validators::of(["none"]);
        assert_eq!(none.judge(&call, |_| Err(())), Ok(()), "{line}");
    }
}

/// No text breaks a validator, and none is much slower to judge than it is long.
#[test]
fn hostile_texts_are_judged_to_the_end() {
    let pieces = [
        ":",
        "a:",
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
        let text = piece.repeat(10_000 / piece.len());
        for key in ["url", "command", "path", "sql", "args", "x", "code"] {
            let args = serde_json::json!({ key: text, "list": [text] }).to_string();
            for validator in ["sandbox", "readonly", "network_restricted"] {
                let call = ScreenedCall {
                    tool: "run_command",
                    args: &args,
                    ..ScreenedCall::default()
                };
                let _ = Validators::of([validator]).judge(&call, |_| Ok::<(), ()>(()));
            }
        }
    }
}
