//! Tests of the rows of MGP §7.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn policy(declared: &serde_json::Value) -> CodePolicy {
    let declared = Declaration::parse(declared);
    assert_eq!(declared.parse_errors, Vec::<String>::new());
    CodePolicy::new(&declared, &Floor::default())
}

fn violations(declared: &serde_json::Value, code: &str) -> Vec<String> {
    check(&policy(declared), code).map_or_else(|r| r.violations(), |()| Vec::new())
}

/// MGP-105: nothing is checked, in any language.
#[test]
fn unrestricted_code_is_not_checked() {
    let declared = json!({"level": "unrestricted", "language": "cobol", "max_code_size_bytes": 1});
    assert!(violations(&declared, "import subprocess; (").is_empty());
}

/// MGP-106, MGP-113: both block lists apply, and all violations are reported at once.
#[test]
fn standard_checks_both_block_lists() {
    let code = "import subprocess\nx = 1\ny = eval('x')\nimport numpy\n";
    let found = violations(&json!({"level": "standard"}), code);
    assert_eq!(
        found,
        ["Blocked import: 'subprocess'", "Blocked pattern: 'eval('"]
    );
    let own =
        json!({"blocked_imports": ["numpy"], "blocked_patterns": ["print(", "rm -rf", ".commit("]});
    let code = "import numpy.linalg\nprint('rm   -rf /')\ndb.commit()\n# print( rm -rf\n";
    assert_eq!(
        violations(&own, code),
        [
            "Blocked import: 'numpy.linalg'",
            "Blocked pattern: 'print('",
            "Blocked pattern: 'rm -rf'",
            "Blocked pattern: '.commit('",
        ]
    );
    assert!(violations(&own, "# print( rm -rf\nfingerprint(x)\ncommit(y)\n").is_empty());
}

/// MGP-107: from `strict` on only listed modules may be imported.
#[test]
fn strict_allows_only_listed_imports() {
    let strict = json!({"level": "strict"});
    assert!(violations(&strict, "import json, os.path\nfrom datetime import date\n").is_empty());
    assert_eq!(
        violations(&strict, "import numpy\n"),
        ["Import not allowed: 'numpy'"]
    );
    assert_eq!(
        violations(&strict, "from . import x\n"),
        ["Import not allowed: '.'"]
    );
    assert_eq!(
        violations(&strict, "eval('1')\n"),
        ["Blocked pattern: 'eval('"]
    );
    assert_eq!(
        violations(&strict, "getattr([], [])\n"),
        ["Blocked pattern: 'getattr'"]
    );
    let js =
        json!({"level": "strict", "language": "javascript", "allowed_imports": ["path", "fs"]});
    let code =
        "import p from 'node:path'; import { readFile } from 'fs/promises'; p.join(readFile)";
    assert_eq!(violations(&js, code), Vec::<String>::new());
    assert_eq!(
        violations(&js, "import os from 'os'; os.x()"),
        ["Import not allowed: 'os'"]
    );
    assert_eq!(
        violations(&js, "require('./x')"),
        ["Blocked pattern: 'require'", "Import not allowed: './x'"]
    );
}

/// MGP-107: `strict` is a lint. It finds written-out ways around the lists, and does not follow values.
#[test]
fn strict_finds_written_out_evasions() {
    let python = json!({"level": "strict"});
    for code in [
        "class int(F): pass\nmatch f:\n    case int(n): pass",
        "tuple = F\nmatch f:\n    case tuple(n): pass",
        "'{0.__globals__}'.format(f)",
        "match f:\n    case object(__globals__=g): pass",
        "t = type(type(1))",
        "type('X', (), {})",
        "class A(metaclass=M): pass",
        "f.__globals__",
        "x.__subclasshook__",
        "g.gi_frame",
        "vars()",
        "from json import codecs",
    ] {
        assert!(!violations(&python, code).is_empty(), "{code}");
    }
    let js = json!({"level": "strict", "language": "javascript"});
    for code in [
        "f[Symbol.for('constructor').description]('x')",
        "f[Symbol.iterator.description]",
        "f[k]",
        "const {constructor: c} = f;",
        "const {'constructor': c} = f;",
        "f['con' + 'structor']",
        "Reflect.get(f, k)",
        "x.__proto__ = y",
    ] {
        assert!(!violations(&js, code).is_empty(), "{code}");
    }
    for code in [
        "type(self)(1)",
        "match f:\n    case str(text): pass\n    case int() as n: pass\n    case {'a': b}: pass",
        "class A(B):\n    def __init__(self):\n        super().__init__()",
        "def f(x: 'list[int]') -> None: pass",
    ] {
        assert_eq!(violations(&python, code), Vec::<String>::new(), "{code}");
    }
    for code in [
        "class A { constructor() { this.x = xs[0] + xs[Symbol.iterator] } }",
        "const {a, b} = c; b[+a]",
    ] {
        assert_eq!(violations(&js, code), Vec::<String>::new(), "{code}");
    }
}

/// MGP-107, MGP-111: the limit itself is allowed, one byte more is not.
#[test]
fn the_size_limit_is_inclusive() {
    let of = |bytes: usize| format!("x = '{}'", "a".repeat(bytes - 6));
    for level in ["strict", "readonly"] {
        let declared = json!({"level": level});
        assert_eq!(of(10_000).len(), 10_000);
        assert!(violations(&declared, &of(10_000)).is_empty());
        assert_eq!(
            violations(&declared, &of(10_001)),
            ["Code too large: '10001 bytes'"]
        );
    }
    assert!(violations(&json!({"level": "standard"}), &of(10_001)).is_empty());
    let declared = json!({"level": "standard", "max_code_size_bytes": 20});
    assert!(violations(&declared, &of(20)).is_empty());
    assert_eq!(violations(&declared, &of(21)).len(), 1);
    assert_eq!(violations(&json!({}), &of(MAX_CODE_BYTES + 1)).len(), 1);
}

/// MGP-108: constructs that write are rejected, those that read are not.
#[test]
fn readonly_rejects_writes() {
    let python =
        json!({"level": "readonly", "allowed_imports": ["os", "io", "httpx", "pathlib", "json"]});
    for code in [
        "open('x', 'w')",
        "open('x', mode='a')",
        "open('x', m)",
        "open(*a)",
        "o = open\no('x', 'r+')",
        "list(map(open, a, b))",
        "import io\nio.open('x', 'wb')",
        "import os\nos.remove('x')",
        "from os import unlink",
        "import os as o\no.makedirs('x')",
        "import pathlib\npathlib.Path('x').write_text('y')",
        "p.open('w')",
        "import httpx\nhttpx.post('https://x')",
        "client.post(u)",
        "client.put('https://x', json={})",
        "db.execute('DROP TABLE t')",
        "db.execute(q)",
        "db.execute('WITH a AS (SELECT 1) DELETE FROM t')",
        "x = open\nf(x)",
    ] {
        let found = violations(&python, code);
        assert!(
            found.iter().any(|v| v.starts_with("Write operation")),
            "{code}: {found:?}"
        );
    }
    for code in [
        "open('x')",
        "open('x', 'rb')",
        "open('x', encoding='utf-8')",
        "p.open()",
        "s.replace('a', 'b')",
        "import httpx\nhttpx.get('https://x')",
        "queue.put(x)",
        "db.execute('SELECT 1')",
        "with open('x') as f: f.read()",
        "import os\nos.listdir('.')",
        "d.update(x)",
        "items.append(1)",
    ] {
        assert_eq!(violations(&python, code), Vec::<String>::new(), "{code}");
    }
    let js = json!({"level": "readonly", "language": "js", "allowed_imports": ["fs"]});
    for code in [
        "import fs from 'fs'; fs.writeFileSync('x', 'y')",
        "import { rm } from 'fs'; rm('x')",
        "fetch('https://x', { method: 'POST' })",
        "const o = {}; fetch('https://x', o)",
        "(axios) => axios.post('https://x')",
        "import fs from 'fs'; fs.openSync('x', 'w')",
        "(xhr) => xhr.open('POST', 'https://x')",
        "import { unlink as u } from 'fs'; u('x')",
        "import fs from 'fs'; fs['writeFile']('x')",
        "import fs from 'fs'; fs.promises.writeFile('x')",
    ] {
        let found = violations(&js, code);
        assert!(
            found.iter().any(|v| v.starts_with("Write operation")),
            "{code}: {found:?}"
        );
    }
    for code in [
        "import { readFileSync } from 'fs'; readFileSync('x')",
        "fetch('https://x')",
        "const h = {}; fetch('https://x', { method: 'GET', headers: h })",
        "const xs = []; xs.push(1)",
    ] {
        assert_eq!(violations(&js, code), Vec::<String>::new(), "{code}");
    }
}

/// MGP-109, A-24: a declaration is parsed; unreadable members count as their strictest value.
#[test]
fn declaration_is_parsed_and_fails_closed() {
    let read = Declaration::parse(&json!({
        "level": "strict", "language": "python", "max_code_size_bytes": 5, "blocked_imports": ["a"],
        "blocked_patterns": ["b("], "allowed_imports": ["c"], "unknown": 1
    }));
    assert_eq!(read.parse_errors.len(), 0);
    assert_eq!(
        (read.level, read.max_code_size_bytes),
        (Some(Level::Strict), Some(5))
    );
    assert_eq!(
        (read.blocked_imports, read.blocked_patterns),
        (vec!["a".into()], vec!["b(".into()])
    );
    assert_eq!(read.allowed_imports, Some(vec!["c".to_owned()]));
    let wrong = Declaration::parse(&json!({
        "level": "lax", "language": 7, "max_code_size_bytes": -1, "allowed_imports": "all", "blocked_imports": null
    }));
    assert_eq!(wrong.parse_errors.len(), 4);
    assert_eq!(
        (wrong.level, wrong.max_code_size_bytes),
        (Some(Level::Readonly), Some(0))
    );
    assert_eq!(wrong.allowed_imports, Some(Vec::new()));
    assert!(check(&CodePolicy::new(&wrong, &Floor::default()), "x = 1").is_err());
    assert_eq!(
        Declaration::parse(&json!("strict")).level,
        Some(Level::Readonly)
    );
}

/// MGP-110: the lists of the specification are the defaults.
#[test]
fn the_lists_of_the_specification_are_the_defaults() {
    let policy = policy(&json!({}));
    assert_eq!(
        (policy.level, policy.language.as_str()),
        (Level::Standard, "python")
    );
    assert_eq!(
        policy.blocked_imports,
        ["subprocess", "shutil", "socket", "ctypes"]
    );
    assert_eq!(
        policy.blocked_patterns,
        ["eval(", "exec(", "__import__(", "os.system"]
    );
    assert_eq!(
        policy.allowed_imports,
        ["asyncio", "json", "httpx", "os", "datetime", "typing"]
    );
    assert_eq!(policy.hint_code_bytes, 10_000);
    for module in policy.blocked_imports {
        assert_eq!(
            violations(&json!({}), &format!("import {module}")),
            [format!("Blocked import: '{module}'")]
        );
    }
    for (code, pattern) in [
        ("eval('')", "eval("),
        ("exec('')", "exec("),
        ("__import__('json')", "__import__("),
        ("import os; os.system('')", "os.system"),
    ] {
        assert_eq!(
            violations(&json!({}), code),
            [format!("Blocked pattern: '{pattern}'")]
        );
    }
}

/// A-24: a server narrows what its operator set and cannot widen it.
#[test]
fn server_cannot_weaken_the_floor() {
    let floor = Floor {
        level: Level::Strict,
        max_code_size_bytes: Some(100),
        blocked_imports: vec!["yaml".into()],
        allowed_imports: Some(vec!["json".into(), "xml".into()]),
        ..Floor::default()
    };
    let declared = Declaration::parse(&json!({
        "level": "unrestricted", "max_code_size_bytes": 1_000_000, "blocked_imports": [],
        "allowed_imports": ["subprocess", "xml.sax", "yaml"]
    }));
    let policy = CodePolicy::new(&declared, &floor);
    assert_eq!(
        (policy.level, policy.max_code_size_bytes),
        (Level::Strict, Some(100))
    );
    assert_eq!(policy.allowed_imports, ["xml.sax"]);
    for code in ["import subprocess", "import yaml", "import json"] {
        assert!(check(&policy, code).is_err(), "{code}");
    }
    assert!(check(&policy, "import xml.sax.handler").is_ok());
    // A blocked import stays blocked when it is allowed as well.
    let both = json!({"level": "strict", "allowed_imports": ["subprocess", "pty"]});
    assert_eq!(violations(&both, "import subprocess, pty").len(), 2);
}

/// MGP-227: code for a sandboxed server is checked strictly, whatever it declares.
#[test]
fn sandboxed_servers_are_strict_at_least() {
    let level = |declared: serde_json::Value| {
        CodePolicy::new(
            &Declaration::parse(&declared),
            &Floor::for_sandboxed_server(),
        )
        .level
    };
    assert_eq!(level(json!({})), Level::Strict);
    assert_eq!(level(json!({"level": "unrestricted"})), Level::Strict);
    assert_eq!(level(json!({"level": "readonly"})), Level::Readonly);
}

/// MGP-112, MGP-114: the body is that of the specification, with positions and hints in addition.
#[test]
fn rejection_has_the_shape_of_the_specification() {
    let declared = json!({"blocked_imports": ["yaml"], "max_code_size_bytes": 500});
    let rejection = check(
        &policy(&declared),
        "x = 'é'; import subprocess\n\n  \nif x:\n    y = eval(x)\n",
    )
    .unwrap_err();
    let body = rejection.body();
    assert_eq!(body["status"], "rejected");
    assert_eq!(body["reason"], "Code validation failed");
    assert_eq!(
        body["violations"],
        json!(["Blocked import: 'subprocess'", "Blocked pattern: 'eval('"])
    );
    assert_eq!(
        body["hints"],
        json!({
            "blocked_imports": ["subprocess", "shutil", "socket", "ctypes", "yaml"],
            "allowed_imports": ["asyncio", "json", "httpx", "os", "datetime", "typing"],
            "max_code_size_bytes": 500
        })
    );
    let at = |i: usize| {
        (
            body["findings"][i]["line"].as_u64(),
            body["findings"][i]["column"].as_u64(),
        )
    };
    assert_eq!((at(0), at(1)), ((Some(1), Some(10)), (Some(5), Some(9))));
    assert_eq!(body["findings"][0]["rule"], "blocked_import");
    let note = body["note"].as_str().unwrap_or_default();
    assert!(
        note.contains("a lint") && note.contains("sandbox"),
        "{note}"
    );
    assert!(
        body["findings"][0]["hint"]
            .as_str()
            .is_some_and(|h| !h.is_empty())
    );
}

/// MGP-104, MGP-061: code that no parser can read is rejected above the lowest level.
#[test]
fn unparsable_code_is_rejected() {
    for level in ["standard", "strict", "readonly"] {
        let ruby = json!({"level": level, "language": "ruby"});
        assert_eq!(violations(&ruby, "puts 1"), ["Unknown language: 'ruby'"]);
        assert_eq!(
            violations(&json!({"level": level}), "def f(:\n"),
            ["Syntax: ':'"]
        );
    }
}

/// MGP-107: deeply nested code, or code that keeps the parser busy, is rejected in bounded time.
#[test]
fn parsing_is_bounded() {
    let js = json!({"language": "javascript"});
    for code in [
        "(".repeat(100_000),
        format!("x = {}1{}", "(".repeat(50_000), ")".repeat(50_000)),
        "[".repeat(200_000),
    ] {
        assert!(check(&policy(&json!({})), &code).is_err());
        assert!(check(&policy(&js), &code).is_err());
    }
    let long = format!("x = {}", vec!["'a'"; 20_000].join(" + "));
    assert!(check(&policy(&json!({})), &long).is_err());
    let many = "eval(x)\n".repeat(200);
    let rejection = check(&policy(&json!({})), &many).unwrap_err();
    assert_eq!(
        (rejection.findings.len(), rejection.omitted),
        (rejection::MAX_FINDINGS, 150)
    );
    let wide = format!("x = [{}]", "1,".repeat(60_000));
    assert!(check(&policy(&json!({})), &wide).is_ok());
}

proptest! {
    /// MGP-104: no text makes the check panic, and findings have a position in the code.
    #[test]
    fn any_text_is_checked(code in r#"[a-z_.'"()\[\]{}:=,+\\ \n\r\t#/`$é𝐞0-9-]{0,80}"#, js: bool, pick in 0..4usize) {
        let level = ["unrestricted", "standard", "strict", "readonly"][pick];
        let declared = json!({"level": level, "language": if js { "js" } else { "py" }});
        if let Err(rejection) = check(&policy(&declared), &code) {
            let lines = code.replace("\r\n", "\n").replace('\r', "\n").split('\n').count();
            prop_assert!(rejection.findings.iter().all(|f| (1..=lines).contains(&f.line) && f.column >= 1));
            let body = rejection.body();
            prop_assert_eq!(body["status"].as_str(), Some("rejected"));
        }
    }
}
