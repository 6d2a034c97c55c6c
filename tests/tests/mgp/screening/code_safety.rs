//! Code is judged before it leaves the kernel (MGP §7).

use mgp_tests::harness::mgp::speaks_mgp;
use serde_json::{Value, json};

use crate::scene::made::{NEWEST, agent, agent_of, kernel, operator, reached, tool};

const QUIET: &str = "[confirmation]\nenabled = false\n";

fn at(level: &str) -> Value {
    json!({"code_safety": {"level": level, "language": "python"}})
}

/// Code, and how many of the levels reject it: 1 is `readonly` alone, 3 all but `unrestricted`.
const CODES: [(&str, usize); 6] = [
    ("import subprocess", 3),
    ("eval('1')", 3),
    ("import numpy", 2),
    ("open('x', 'w').write('y')", 1),
    ("import json", 0),
    ("print(1 + 1)", 0),
];

/// This level rejects the codes that more than `rank` levels reject, and no other.
async fn assert_level(level: &str, rank: usize) {
    let kernel = kernel(&[tool("run", at(level))], QUIET).await;
    let mut agent = agent(&kernel).await;
    for (code, rejecting) in CODES {
        let answer = agent.call("run", json!({"code": code})).await;
        let rejected = answer.result()["isError"] == true;
        assert_eq!(rejected, rejecting > rank, "{code}: {}", answer.frame);
    }
}

/// MGP-105.
#[tokio::test]
async fn level_unrestricted_rejects_no_code() {
    assert_level("unrestricted", 3).await;
}

/// MGP-106.
#[tokio::test]
async fn level_standard_rejects_blocked_imports_and_patterns() {
    assert_level("standard", 2).await;
}

/// MGP-107: and what is too large.
#[tokio::test]
async fn level_strict_rejects_imports_that_are_not_allowed() {
    assert_level("strict", 1).await;
    let kernel = kernel(&[tool("run", at("strict"))], QUIET).await;
    let mut agent = agent(&kernel).await;
    let large = format!("x = '{}'", "a".repeat(10_000));
    let answer = agent.call("run", json!({"code": large})).await;
    assert!(answer.text().contains("too large"), "{}", answer.text());
}

/// MGP-108.
#[tokio::test]
async fn level_readonly_rejects_writes_as_well() {
    assert_level("readonly", 0).await;
}

/// MGP-104: the same text is no code at a tool that takes none.
#[tokio::test]
async fn code_safety_applies_to_tools_that_accept_code() {
    let tools = [tool("run", at("standard")), tool("note", json!({}))];
    let kernel = kernel(&tools, QUIET).await;
    let mut agent = agent(&kernel).await;
    let text = "eval('1')";
    let rejected = agent.call("run", json!({"code": text})).await;
    assert_eq!(rejected.result()["isError"], true);
    let noted = agent.call("note", json!({"text": text})).await;
    assert_ne!(noted.result()["isError"], true, "{}", noted.frame);
}

/// MGP-109, MGP-110, MGP-111: what a server declares is what its code is held to, and the largest size
/// is still allowed.
#[tokio::test]
async fn declared_lists_and_sizes_are_applied() {
    let declared = json!({"code_safety": {
        "level": "strict", "language": "python", "max_code_size_bytes": 20,
        "blocked_imports": ["datetime"], "blocked_patterns": ["open("], "allowed_imports": ["os", "re"],
    }});
    let defaults = json!({"code_safety": {"level": "strict"}});
    let kernel = kernel(&[tool("own", declared), tool("usual", defaults)], QUIET).await;
    let mut agent = agent(&kernel).await;
    for (name, code, fine) in [
        ("own", "import re", true),
        ("own", "import json", false),
        ("own", "import datetime", false),
        ("own", "open('a')", false),
        ("own", "x = 111111111 + 1234", true),
        ("own", "x = 111111111 + 12345", false),
        ("usual", "import httpx", true),
        ("usual", "import re", false),
        ("usual", "import ctypes", false),
        ("usual", "__import__('json')", false),
    ] {
        let answer = agent.call(name, json!({"code": code})).await;
        assert_eq!(
            answer.result()["isError"] != true,
            fine,
            "{name}: {code}: {}",
            answer.frame
        );
    }
    for (length, fine) in [(10_000, true), (10_001, false)] {
        let code = format!("x = '{}'", "a".repeat(length - 6));
        let answer = agent.call("usual", json!({"code": code})).await;
        assert_eq!(answer.result()["isError"] != true, fine, "{length}");
    }
}

/// Code with an allowed import between two violations.
const BAD_CODE: &str = "import subprocess\nimport json\neval('1')\n";

/// MGP-112, MGP-113: all violations at once, and what would pass.
#[tokio::test]
async fn rejection_lists_every_violation_and_hints() {
    let kernel = kernel(&[tool("run", at("standard"))], QUIET).await;
    let mut agent = agent(&kernel).await;
    for _ in 0..2 {
        let rejected = agent.call("run", json!({"code": BAD_CODE})).await;
        assert_eq!(rejected.result()["isError"], true);
        let body: Value = serde_json::from_str(&rejected.text()).expect("the body is JSON");
        assert_eq!(body["status"], "rejected");
        assert_eq!(body["reason"], "Code validation failed");
        let wrong = json!(["Blocked import: 'subprocess'", "Blocked pattern: 'eval('"]);
        assert_eq!(body["violations"], wrong);
        assert!(
            body["hints"]["blocked_imports"]
                .as_array()
                .unwrap()
                .contains(&json!("ctypes"))
        );
        assert_eq!(body["hints"]["max_code_size_bytes"], 10_000);
        assert!(body["hints"]["allowed_imports"].is_array());
    }
    assert_eq!(reached(&mut agent, "run").await, 0);
}

/// MGP-192.
#[tokio::test]
async fn rejected_code_is_1011_for_an_mgp_client() {
    let kernel = kernel(&[tool("run", at("standard"))], QUIET).await;
    let mut agent = agent_of(&kernel, NEWEST, &speaks_mgp(NEWEST)).await;
    let rejected = agent.call("run", json!({"code": BAD_CODE})).await;
    assert_eq!(rejected.code(), 1011);
    let details = &rejected.error()["data"]["_mgp"]["details"];
    assert_eq!(details["violations"].as_array().unwrap().len(), 2);
}

/// MGP-283.
#[tokio::test]
async fn rejected_code_is_invalid_params_for_an_older_plain_client() {
    let kernel = kernel(&[tool("run", at("standard"))], QUIET).await;
    let mut agent = agent_of(&kernel, "2025-03-26", "{}").await;
    let rejected = agent.call("run", json!({"code": BAD_CODE})).await;
    assert_eq!(rejected.code(), -32602);
    assert_eq!(rejected.error()["data"]["status"], "rejected");
}

/// MGP-227: the code of a sandboxed server is judged strictly, whatever it declares or does not.
#[tokio::test]
async fn code_of_a_sandboxed_server_is_validated_strictly() {
    if crate::sandbox::starts_none().await {
        return;
    }
    let silent = json!({"name": "silent", "inputSchema": {
        "type": "object", "properties": {"body": {"type": "string", "format": "code"}}
    }});
    let more = format!("[servers.mgp]\ntrust_level = \"sandboxed\"\n{QUIET}");
    let kernel = kernel(&[tool("loose", at("unrestricted")), silent], &more).await;
    let mut agent = operator(&kernel).await;
    for (name, argument) in [("loose", "code"), ("silent", "body")] {
        let answer = agent.call(name, json!({argument: "import numpy"})).await;
        assert!(
            answer.text().contains("Import not allowed: 'numpy'"),
            "{}",
            answer.text()
        );
        let answer = agent.call(name, json!({argument: "import json"})).await;
        assert_eq!(answer.result()["isError"], json!(null), "{}", answer.frame);
    }
}

/// MGP-107, MGP-112: strict finds ways around the lists that are written out, and each refusal says what
/// would pass.
#[tokio::test]
async fn strict_reports_evasions_and_what_would_pass() {
    let kernel = kernel(
        &[tool("run", at("strict")), tool("loose", at("standard"))],
        QUIET,
    )
    .await;
    let mut agent = agent(&kernel).await;
    for (code, rule, hint) in [
        (
            "import json\njson.decoder.re.enum.bltns.exec('1')",
            "blocked_pattern",
            "name what you need",
        ),
        ("from json import codecs", "blocked_pattern", "name what"),
        ("import numpy", "import_not_allowed", "may be imported"),
        ("type(type(1))('X', (), {})", "construct", "name the class"),
        (
            "match f:\n    case object(__globals__=g): pass",
            "construct",
            "case Point():",
        ),
        (
            "'{0.__globals__}'.format(f)",
            "blocked_pattern",
            "name what",
        ),
        (
            "def f(x: \"__import__('os')\"): pass",
            "blocked_pattern",
            "name what",
        ),
        ("getattr(f, n)", "blocked_pattern", "name what you need"),
    ] {
        let refused = agent.call("run", json!({"code": code})).await;
        assert_eq!(
            refused.result()["isError"],
            true,
            "{code}: {}",
            refused.frame
        );
        let body: Value = serde_json::from_str(&refused.text()).expect("the body is JSON");
        let findings = body["findings"].as_array().unwrap();
        let told = findings.iter().any(|finding| {
            let hinted = finding["hint"]
                .as_str()
                .is_some_and(|told| told.contains(hint));
            finding["rule"] == rule && hinted && finding["line"].as_u64() >= Some(1)
        });
        assert!(told, "{code}: {body:#}");
    }
    let fine = "import json\nprint(json.dumps({'a': [1, 2]}, indent=2))";
    for tool in ["run", "loose"] {
        let answer = agent.call(tool, json!({"code": fine})).await;
        assert_eq!(answer.result()["isError"], json!(null), "{}", answer.frame);
    }
}

/// MGP-061: the corpora of code, a sample of each through a real kernel.
#[tokio::test]
async fn attacks_in_code_do_not_leave_the_kernel() {
    let tools = ["python", "javascript"].map(|language| {
        tool(
            language,
            json!({"code_safety": {"level": "standard", "language": language}}),
        )
    });
    let kernel = kernel(&tools, QUIET).await;
    let mut agent = agent(&kernel).await;
    for (language, corpus, refused) in [
        (
            "python",
            include_str!("../../../corpus/code_safety/attacks.py.txt"),
            true,
        ),
        (
            "javascript",
            include_str!("../../../corpus/code_safety/attacks.js.txt"),
            true,
        ),
        (
            "python",
            include_str!("../../../corpus/code_safety/harmless.py.txt"),
            false,
        ),
        (
            "javascript",
            include_str!("../../../corpus/code_safety/harmless.js.txt"),
            false,
        ),
    ] {
        let (mut all, mut wrong) = (0, 0);
        for code in corpus.split("\n---\n").step_by(5) {
            let answer = agent.call(language, json!({"code": code})).await;
            all += 1;
            wrong += usize::from((answer.result()["isError"] == true) != refused);
        }
        let kind = if refused {
            "attacks missed"
        } else {
            "false alarms"
        };
        println!("{language}: {wrong} of {all} {kind}");
        assert!(all > 3 && wrong == 0, "{language}: {wrong} of {all} {kind}");
    }
}
