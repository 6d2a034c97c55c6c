//! Code is judged before it leaves the kernel (MGP §7).

use mgp_tests::harness::mgp::speaks_mgp;
use serde_json::{Value, json};

use crate::scene::made::{NEWEST, agent, agent_of, kernel, operator, reached, tool};

const QUIET: &str = "[confirmation]\nenabled = false\n";

fn at(level: &str) -> Value {
    json!({"code_safety": {"level": level, "language": "python"}})
}

/// MGP-104, MGP-105, MGP-106, MGP-107, MGP-108: each level lets through what it should and no more.
#[tokio::test]
async fn each_level_is_stricter_than_the_one_before() {
    let levels = ["unrestricted", "standard", "strict", "readonly"];
    let tools = levels.map(|level| tool(level, at(level)));
    let kernel = kernel(&tools, QUIET).await;
    let mut agent = agent(&kernel).await;
    let codes = [
        ("import subprocess", 0),
        ("eval('1')", 0),
        ("import numpy", 1),
        ("open('x', 'w').write('y')", 2),
        ("import json", 3),
        ("print(1 + 1)", 3),
    ];
    for (code, loosest) in codes {
        for (at, level) in levels.iter().enumerate() {
            let answer = agent.call(level, json!({"code": code})).await;
            let refused = answer.result()["isError"] == true;
            assert_eq!(refused, at > loosest, "{level}: {code}: {}", answer.frame);
        }
    }
    let many = format!("x = '{}'", "a".repeat(10_000));
    let answer = agent.call("strict", json!({"code": many})).await;
    assert!(answer.text().contains("too large"), "{}", answer.text());
}

/// MGP-109, MGP-110, MGP-111: what a server declares is what its code is held to, and the largest size
/// is still allowed.
#[tokio::test]
async fn a_declaration_is_followed() {
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

/// MGP-112, MGP-113, MGP-114, MGP-192, MGP-283: all that is wrong is told at once, in the form of §7.4,
/// as a result where callers read those and as data of an error where they do not.
#[tokio::test]
async fn a_rejection_names_everything_that_is_wrong() {
    let kernel = kernel(&[tool("run", at("standard"))], QUIET).await;
    let mut new = agent(&kernel).await;
    let code = "import subprocess\nimport json\neval('1')\n";
    for _ in 0..2 {
        let rejected = new.call("run", json!({"code": code})).await;
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
    let mut old = agent_of(&kernel, "2025-03-26", "{}").await;
    let rejected = old.call("run", json!({"code": code})).await;
    assert_eq!(rejected.code(), -32602);
    assert_eq!(rejected.error()["data"]["status"], "rejected");
    let mut knows = agent_of(&kernel, NEWEST, &speaks_mgp(NEWEST)).await;
    let rejected = knows.call("run", json!({"code": code})).await;
    assert_eq!(rejected.code(), 1011);
    let details = &rejected.error()["data"]["_mgp"]["details"];
    assert_eq!(details["violations"].as_array().unwrap().len(), 2);
    assert_eq!(reached(&mut new, "run").await, 0);
}

/// MGP-227: the code of a sandboxed server is judged strictly, whatever it declares or does not.
#[tokio::test]
async fn a_sandboxed_servers_code_is_judged_strictly() {
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
async fn strict_names_the_way_around_and_what_would_pass() {
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
