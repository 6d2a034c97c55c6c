use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_protocol::ids::AgentId;
use mgp_protocol::mcp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn ids(names: &[&str]) -> Vec<ServerId> {
    names.iter().map(|name| ServerId::new(*name)).collect()
}

fn agent() -> Principal {
    Principal::Agent(AgentId::new("agent.maker"))
}

fn with<T>(
    who: &Principal,
    change: impl FnOnce(&mut RegistrationContext<'_>),
    then: impl FnOnce(&RegistrationContext<'_>) -> T,
) -> T {
    let taken = ids(&["github", "files", "dynamic.old"]);
    let floor = strict_floor();
    let mut terms = RegistrationContext {
        caller: who,
        allow_agents: true,
        can_run_code: true,
        trust_max: TrustLevel::Sandboxed,
        reserved_ids: &taken,
        count: RegistrationCount { current: 0, max: 8 },
        roots: &[],
        code_floor: &floor,
    };
    change(&mut terms);
    then(&terms)
}

/// A plain registration with these members instead.
fn ask(members: &Value) -> Register {
    let mut params =
        json!({"id": "dynamic.csv", "command": "python", "args": ["tools/csv_server.py"]});
    for (name, value) in members.as_object().unwrap() {
        params[name] = value.clone();
    }
    mcp::parse_params(Some(&params.to_string())).unwrap()
}

fn judged(members: &Value) -> Result<RegistrationPlan, RegistrationRefusal> {
    with(&agent(), |_| {}, |terms| check(&ask(members), terms))
}

fn rule(members: &Value) -> &'static str {
    match judged(members) {
        Ok(_) => "accepted",
        // Where a path leads out, the rule says which way.
        Err(RegistrationRefusal::RuleViolation(RegistrationViolation {
            rule: "traversal" | "home" | "system_place" | "secret_place",
            pointer: at,
            ..
        })) if at == "/args" => "outside",
        Err(RegistrationRefusal::RuleViolation(broken)) => broken.rule,
        Err(RegistrationRefusal::Code(_)) => "code safety",
        Err(RegistrationRefusal::Malformed(_)) => "form",
        Err(RegistrationRefusal::Forbidden(_)) => "forbidden",
        Err(RegistrationRefusal::TooMany { .. }) => "too many",
    }
}

fn env(name: &str, value: &str) -> Value {
    json!({"env": {name: value}})
}

fn run(command: &str, args: &[&str]) -> Value {
    json!({"command": command, "args": args})
}

fn url(url: &str) -> Value {
    json!({"transport": "http", "command": null, "args": [], "url": url})
}

fn code(text: &str) -> Value {
    json!({"args": [], "code": {"language": "python", "text": text}})
}

/// What must not be registered, by the rule it breaks.
fn attacks() -> Vec<(&'static str, Value)> {
    [
        forms(),
        sizes(),
        names(),
        variables(),
        signs(),
        programs(),
        inner_addresses(),
        bad_code(),
    ]
    .concat()
}

fn forms() -> Vec<(&'static str, Value)> {
    vec![
        ("form", json!({"command": null})),
        ("form", json!({"command": ""})),
        ("form", json!({"url": "https://example.com/"})),
        ("form", json!({"transport": "http"})),
        (
            "form",
            json!({"transport": "http", "command": null, "args": []}),
        ),
        ("forbidden", json!({"created_by": "agent.other"})),
        ("forbidden", json!({"created_by": "operator"})),
        ("name", json!({"mgp": {"permissions_required": ["a\nb"]}})),
        ("name", json!({"mgp": {"extensions": [""]}})),
        ("control", run("python", &["a.py", "x\0y"])),
        ("control", env("A", "x\u{1b}[2J")),
    ]
}

fn sizes() -> Vec<(&'static str, Value)> {
    let long = |bytes: usize| "x".repeat(bytes);
    [
        json!({"justification": long(2_001)}),
        json!({"command": long(513)}),
        json!({"args": vec!["x"; 65]}),
        json!({"args": [long(4_097)]}),
        json!({"args": vec![long(4_000); 9]}),
        env("A", &long(8_193)),
        json!({"env": (0..65).map(|n| (format!("A{n}"), "x")).collect::<BTreeMap<_, _>>()}),
        json!({"mgp": {"permissions_required": vec!["camera"; 65]}}),
        json!({"mgp": {"extensions": vec!["audit"; 65]}}),
        url(&format!("https://example.com/{}", long(2_048))),
    ]
    .map(|members| ("size", members))
    .into()
}

fn names() -> Vec<(&'static str, Value)> {
    let long = "x".repeat(49);
    let ids = [
        "", "a b", "../x", "a/b", "é", "a..b", ".hidden", "-rf", "x.", &long,
    ];
    let ids = ids.iter().map(|id| ("id", *id));
    let reserved = "kernel MGP mgp.tools mgp_tools operator agent.local node-2 all System";
    let reserved = reserved.split(' ').map(|id| ("reserved", id));
    let alike = "GitHub git_hub githu-b gi.thub fi1es Dynamic_Old".split(' ');
    let alike = alike.map(|id| ("imitation", id));
    let all = ids
        .chain(reserved)
        .chain(alike)
        .chain([("duplicate", "github")]);
    all.map(|(rule, id)| (rule, json!({ "id": id }))).collect()
}

fn variables() -> Vec<(&'static str, Value)> {
    let closed = "LD_PRELOAD ld_preload LD_LIBRARY_PATH LD_AUDIT LD_DEBUG_OUTPUT \
        DYLD_INSERT_LIBRARIES PATH BASH_ENV ENV BASH_FUNC_x IFS PYTHONPATH PYTHONSTARTUP PYTHONHOME \
        PYTHONINSPECT NODE_OPTIONS NODE_EXTRA_CA_CERTS PERL5LIB RUBYOPT JAVA_TOOL_OPTIONS \
        _JAVA_OPTIONS GIT_SSH_COMMAND GIT_CONFIG_GLOBAL GCONV_PATH GLIBC_TUNABLES HOME SSL_CERT_FILE \
        https_proxy PIP_INDEX_URL UV_INDEX_URL npm_config_registry MGP_TOKEN SSH_AUTH_SOCK \
        PROMPT_COMMAND SHELL EDITOR HOSTALIASES OPENSSL_CONF openssl_conf OPENSSL_MODULES \
        OPENSSL_ENGINES SSLKEYLOGFILE sslkeylogfile SSL_CERT_DIR GNUTLS_SYSTEM_PRIORITY_FILE NSS_SDB \
        KRB5_CONFIG CURL_HOME AWS_CA_BUNDLE REQUESTS_CA_BUNDLE GRPC_DEFAULT_SSL_ROOTS_FILE_PATH \
        FTP_PROXY grpc_proxy ASAN_OPTIONS MALLOC_TRACE LLVM_PROFILE_FILE DOTNET_STARTUP_HOOKS \
        CORECLR_PROFILER_PATH XDG_CACHE_HOME LUA_INIT GODEBUG NETRC KUBECONFIG TZDIR";
    let closed = closed.split_whitespace();
    let closed = closed.map(|name| ("environment", env(name, "x")));
    let malformed = ["", "A=B", "1A", "A-B", "A\nLD_PRELOAD", "Ä", " PATH"];
    let malformed = malformed.map(|name| ("variable", env(name, "x")));
    let secrets = [
        "${GITHUB_TOKEN}",
        "Bearer ${X:-y}",
        "file:/home/me/.ssh/id_rsa",
        "keyring:github",
        "secret:github",
    ];
    let secrets = secrets.map(|value| ("secret", env("TOKEN", value)));
    let elsewhere = [
        run("python", &["a.py", "--token=${GITHUB_TOKEN}"]),
        run("${SHELL}", &[]),
        url("https://example.com/${TOKEN}"),
    ];
    let elsewhere = elsewhere.map(|members| ("secret", members));
    closed
        .chain(malformed)
        .chain(secrets)
        .chain(elsewhere)
        .collect()
}

/// What a shell would do more with, where one could see it.
fn signs() -> Vec<(&'static str, Value)> {
    let commands =
        "python;id python|sh $(id) `id` python>x a&b FOO=1 -python ~/x {a,b} %COMSPEC% x*";
    let commands = commands.split(' ').chain(["python a.py", "x\u{a0}y"]);
    let commands = commands.map(|command| ("metacharacter", run(command, &["a.py"])));
    let words: [&[&str]; 6] = [
        &["-y", "pkg;id"],
        &["-y", "$(id)"],
        &["-c", "id"],
        &["--call=id", "x"],
        &["pkg", "a|b"],
        &["pkg", "'x'"],
    ];
    let handed = words.map(|words| ("metacharacter", run("npx", words)));
    let batch = ("metacharacter", run("server.cmd", &["a&b"]));
    commands.chain(handed).chain([batch]).collect()
}

fn programs() -> Vec<(&'static str, Value)> {
    let shells = "sh /bin/bash BASH zsh cmd.exe pwsh busybox npm make ssh".split(' ');
    let shells = shells.map(|command| ("shell", run(command, &["x"])));
    let paths = ["../../bin/x", "tools/../../x", "..\\x"];
    let paths = paths.map(|command| ("traversal", run(command, &[])));
    let secrets =
        "/etc/shadow ../../etc/passwd ~/.ssh/id_rsa --config=/etc/shadow /proc/self/environ";
    let secrets = secrets.split(' ');
    let secrets = secrets.map(|path| ("outside", run("python", &["a.py", path])));
    let others: [(&str, &str, &str); 20] = [
        ("program", "sudo", "python a.py"),
        ("program", "nc", "-l 1"),
        ("program", "nsenter", "-t 1"),
        ("program", "systemctl", "start x"),
        ("environment", "env", "LD_PRELOAD=/x.so python a.py"),
        ("inline_program", "python", "-c pass"),
        ("inline_program", "python3", "-Ic pass"),
        ("inline_program", "node", "-e 1"),
        ("inline_program", "perl", "-e 1"),
        ("recursive_delete", "rm", "-rf x"),
        ("recursive_delete", "npx", "rimraf x"),
        ("dangerous", "docker", "run --privileged x"),
        ("option", "python3.12", "-X evil.py a.py"),
        ("option", "python", "-i a.py"),
        ("option", "python", "-W x a.py"),
        ("option", "python", "-"),
        ("option", "node", "-r evil.js a.js"),
        ("option", "node", "--import e.mjs a.js"),
        ("option", "node", "--inspect a.js"),
        ("code", "python", ""),
    ];
    let others = others.map(|(rule, command, words)| {
        let words: Vec<&str> = words.split_whitespace().collect();
        (rule, run(command, &words))
    });
    shells.chain(paths).chain(secrets).chain(others).collect()
}

fn inner_addresses() -> Vec<(&'static str, Value)> {
    let inner = "http://169.254.169.254/latest/meta-data/ http://metadata.google.internal/ \
        http://127.0.0.1:8080/ http://localhost/mcp http://[::1]/ http://10.0.0.5/ \
        http://2130706433/ http://0x7f000001/ http://0177.0.0.1/ \
        http://[::ffff:169.254.169.254]/ https://user@127.0.0.1/ http://127.0.0.1.nip.io/ \
        http://100.100.100.200/ http://printer.local/";
    let inner = inner.split_whitespace().flat_map(|inner| {
        let places = [
            url(inner),
            run("python", &["a.py", "--upstream", inner]),
            env("UPSTREAM", inner),
        ];
        places.map(|members| ("inner_host", members))
    });
    let schemes = "file:///etc/passwd gopher://example.com/ ldap://example.com/".split(' ');
    let schemes = schemes.map(|text| ("scheme", url(text)));
    let odd = "ftp://example.com/ https://me:secret@example.com/ ws://example.com/ example.com \
        mailto:a@example.com";
    let odd = odd.split_whitespace().map(|text| ("url", url(text)));
    inner.chain(schemes).chain(odd).collect()
}

fn bad_code() -> Vec<(&'static str, Value)> {
    let texts = [
        "import subprocess",
        "eval('1')",
        "import socket",
        "x = (",
        "import pickle",
        "__import__('os')",
        "import ctypes",
        "import os\nos.system('id')",
    ];
    let texts = texts.map(|text| ("code safety", code(text)));
    let mixed = [
        json!({"args": ["x.py"], "code": {"language": "python", "text": ""}}),
        json!({"args": [], "code": {"language": "ruby", "text": ""}}),
        json!({"command": "node", "args": [], "code": {"language": "python", "text": ""}}),
        json!({"command": "uvx", "args": [], "code": {"language": "python", "text": ""}}),
    ];
    let mixed = mixed.map(|members| ("code", members));
    texts.into_iter().chain(mixed).collect()
}

/// What looks like an attack, and is none.
fn look_alikes() -> Vec<Value> {
    let mut table = vec![
        json!({}),
        json!({"created_by": "agent.maker", "justification": "It's for `csv`; don't worry & enjoy"}),
        json!({"preview": true}),
        json!({"session_scoped": true}),
        json!({"mgp": {"permissions_required": ["filesystem.read", "com.example.thing"]}}),
        code("import json, math\n\ndef add(a, b):\n    return a + b\n"),
        code("from mcp.server.fastmcp import FastMCP\nserver = FastMCP('x')\nserver.run()\n"),
        json!({"command": "node", "args": [], "code": {"language": "javascript", "text": "const x = 1;"}}),
    ];
    let ids = "kernel2 mgpx systematic agents nodes allrounder github.tools file selfie dynamic.new \
        localfiles a-b_c.d x";
    table.extend(ids.split_whitespace().map(|id| json!({ "id": id })));
    let variables = "OLD_PRELOAD MY_PATH PATHS API_KEY NODE_ENV PYTHONUNBUFFERED GIT_AUTHOR_NAME \
        HOMEPAGE TZ LANG LC_ALL _X SHELLFISH EDITORS DATABASE ENVIRONMENT LDAP_BASE OPENSSLISH SSLMODE PROXY_NAME \
        AWS_REGION AWS_ACCESS_KEY_ID GRPC_VERBOSITY CURLY RUST_LOG KEYLOG_LEVEL TEMPERATURE";
    table.extend(variables.split_whitespace().map(|name| env(name, "x")));
    let values = "costs 5$/$HOME/a;b|c/line\nline/profile:me/-----BEGIN KEY-----\nx\n/{a}/";
    table.extend(values.split('/').map(|value| env("VALUE", value)));
    let public = "https://example.com/mcp https://mcp.example.com:8443/a?b=c https://8.8.8.8/mcp \
        https://localhost.example.com/mcp http://example.com/10.0.0.1x https://metadata.example.com/";
    table.extend(public.split_whitespace().map(url));
    table.push(run("python", &["a.py", "--filter", "a;b|c && d > e"]));
    table.push(run("python", &["a.py", "sudo rm"]));
    let lines = [
        "python a.py $HOME `x`",
        "python3 a.py *.csv",
        "python3.12 -u a.py",
        "python -I -B server/a.py -c config.json",
        "python a.py --range a..b",
        "python a.py --upstream https://api.example.com/v1",
        "python a.py --host api.example.com",
        "python a.py --port 8080",
        "python a.py -X y",
        "python a.py --name localhosting",
        "python -m csv_server",
        "npx -y @modelcontextprotocol/server-everything",
        "uvx mcp-server-time",
        "/usr/bin/python3 a.py",
        "/usr/local/bin/server",
        "my-server_2.0 --stdio",
        "docker run -i --rm mcp/time",
        "node --no-warnings dist/index.js",
        "shell-server x",
    ];
    table.extend(lines.map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        run(words[0], &words[1..])
    }));
    table
}

/// MGP-224..MGP-228: each attack meets its own rule, and each refusal has a code, a place, a reason and
/// a way out.
#[test]
fn every_attack_is_rejected_by_its_rule() {
    let attacks = attacks();
    for (expected, members) in &attacks {
        assert_eq!(rule(members), *expected, "{members}");
        let refused = judged(members).unwrap_err();
        match &refused {
            RegistrationRefusal::RuleViolation(broken) => {
                assert!(
                    broken.pointer.starts_with('/') || broken.pointer.is_empty(),
                    "{members}: {broken:?}"
                );
                assert!(
                    !broken.reason.is_empty() && !broken.hint.is_empty(),
                    "{members}"
                );
                let code = match broken.rule {
                    "duplicate" | "imitation" => Code::ServerExists,
                    _ => Code::ValidationBlocked,
                };
                assert_eq!(refused.error_code(), Some(code), "{members}");
            }
            RegistrationRefusal::Malformed(_) => assert_eq!(refused.error_code(), None),
            RegistrationRefusal::Forbidden(_) => {
                assert_eq!(refused.error_code(), Some(Code::PermissionDenied))
            }
            RegistrationRefusal::Code(_) => {
                assert_eq!(refused.error_code(), Some(Code::CodeSafetyViolation))
            }
            RegistrationRefusal::TooMany { .. } => panic!("{members}"),
        }
    }
    assert!(attacks.len() >= 243, "{}", attacks.len());
}

/// MGP-224: what only looks like one is registered.
#[test]
fn harmless_look_alikes_are_accepted() {
    let look_alikes = look_alikes();
    let refused = look_alikes.iter().filter_map(|members| {
        let refused = judged(members).err()?;
        Some(format!("{members}: {refused}"))
    });
    assert_eq!(refused.collect::<Vec<_>>(), Vec::<String>::new());
    assert!(look_alikes.len() >= 83, "{}", look_alikes.len());
}

/// MGP-226, MGP-228: who may not register learns nothing of what there is; the operator may.
#[test]
fn the_caller_is_checked_before_the_request() {
    let taken = ask(&json!({"id": "github"}));
    let told = |who: &Principal, change: fn(&mut RegistrationContext<'_>)| {
        with(who, change, |terms| check(&taken, terms).unwrap_err())
    };
    let closed = told(&agent(), |terms| terms.allow_agents = false);
    let without = told(&agent(), |terms| terms.can_run_code = false);
    for refused in [closed, without] {
        assert!(
            matches!(refused, RegistrationRefusal::Forbidden(_)),
            "{refused}"
        );
        assert_eq!(refused.error_code(), Some(Code::PermissionDenied));
    }
    let operator = Principal::Operator("operator".into());
    let refused = told(&operator, |terms| terms.allow_agents = false);
    assert_eq!(refused.error_code(), Some(Code::ServerExists));
    let full = with(
        &agent(),
        |terms| terms.count = RegistrationCount { current: 8, max: 8 },
        |terms| check(&ask(&json!({})), terms),
    );
    assert_eq!(full, Err(RegistrationRefusal::TooMany { max: 8 }));
}

/// MGP-227, A-20: an agent's server is trusted least, whatever it asks, unless the operator says so;
/// and then only when it asks. A server of the operator's is trusted as asked.
#[test]
fn only_the_operator_raises_trust() {
    let operator = Principal::Operator(Arc::from("operator"));
    let given = |who: &Principal, most: TrustLevel, asked: Option<&str>| {
        let ask = ask(&json!({"mgp": {"trust_level": asked}}));
        with(
            who,
            |terms| terms.trust_max = most,
            |terms| check(&ask, terms).unwrap(),
        )
    };
    use TrustLevel::{Sandboxed, Standard, Trusted};
    for asked in [
        None,
        Some("sandboxed"),
        Some("trusted"),
        Some("core"),
        Some("experimental"),
        Some(""),
    ] {
        assert_eq!(
            given(&agent(), Sandboxed, asked).trust,
            Sandboxed,
            "{asked:?}"
        );
    }
    assert_eq!(given(&agent(), Standard, None).trust, Sandboxed);
    assert_eq!(given(&agent(), Standard, Some("trusted")).trust, Standard);
    assert!(given(&agent(), Sandboxed, None).adjustments.is_empty());
    assert!(given(&agent(), Sandboxed, Some("core")).adjustments[0].contains("core"));
    assert_eq!(given(&operator, Sandboxed, None).trust, Standard);
    assert_eq!(given(&operator, Sandboxed, Some("trusted")).trust, Trusted);
    assert_eq!(
        given(&operator, Sandboxed, Some("untrusted")).trust,
        Sandboxed
    );
}

/// MGP-227, A-31: what a person is asked about, and in whose name it is written down.
#[test]
fn unreadable_code_and_dangerous_permissions_need_approval() {
    let read = judged(&json!({})).unwrap();
    assert_eq!(read.approval_reason(), None);
    assert!(matches!(&read.script, ScriptSource::File(path) if path == "tools/csv_server.py"));
    assert_eq!(read.created_by, "agent.maker");
    for unseen in [
        run("uvx", &["x"]),
        run("python", &["-m", "x"]),
        url("https://example.com/"),
    ] {
        assert!(
            judged(&unseen).unwrap().approval_reason().is_some(),
            "{unseen}"
        );
    }
    let operator = Principal::Operator("operator".into());
    let of_operator = |terms: &RegistrationContext<'_>| check(&ask(&run("uvx", &["x"])), terms);
    let trusted = with(&operator, |_| {}, of_operator).unwrap();
    assert_eq!(
        trusted.approval_reason(),
        None,
        "the operator is the person"
    );
    let needs = json!({"mgp": {"permissions_required": ["shell", "network.outbound", "odd"]}});
    let asks: Vec<String> = judged(&needs)
        .unwrap()
        .required_approvals
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(asks, ["shell.execute", "odd"]);
    assert_eq!(judged(&needs).unwrap().permissions.len(), 3);
}

/// MGP-227: code that stands in a file is held against the same as code that came along.
#[test]
fn code_in_a_file_is_checked_by_the_same_rules() {
    let floor = strict_floor();
    assert_eq!(floor.level, Level::Strict, "whatever is declared");
    for good in ["import json", "import mcp\nimport csv"] {
        assert!(check_code("python", good, &floor).is_ok(), "{good}");
    }
    for bad in ["import subprocess", "import pickle"] {
        assert!(check_code("python", bad, &floor).is_err(), "{bad}");
    }
    assert!(check_code("bash", "echo", &floor).is_err());
}

/// A refusal tells no value of a variable, which may be a secret.
#[test]
fn refusals_contain_no_secrets() {
    for value in [
        "s3cret\u{7}",
        "${s3cret}",
        &format!("s3cret{}", "x".repeat(9000)),
    ] {
        let refused = judged(&env("TOKEN", value)).unwrap_err();
        let told = format!("{refused} {refused:?} {:?}", refused.clone().into_refusal());
        assert!(!told.contains("s3cret"), "{told}");
    }
}

proptest! {
    /// MGP-228: no text in any place breaks the judge, and what is accepted keeps to the rules that
    /// others rely on.
    #[test]
    fn accepted_registrations_satisfy_the_rules(
        id in "[a-zA-Z0-9._ /-]{0,12}", command in "[a-z./;$ |-]{0,8}",
        words in proptest::collection::vec("\\PC{0,12}", 0..4),
        name in "[A-Z_]{0,12}", value in "\\PC{0,12}", trust in "[a-z]{0,10}",
    ) {
        let ask = ask(&json!({"id": id, "command": command, "args": words, "env": {name.clone(): value},
            "mgp": {"trust_level": trust}}));
        let accepted = with(&agent(), |_| {}, |terms| check(&ask, terms));
        if let Ok(accepted) = accepted {
            prop_assert_eq!(accepted.trust, TrustLevel::Sandboxed);
            prop_assert!(!accepted.id.as_str().contains(['/', ' ']) && !accepted.id.as_str().contains(".."));
            prop_assert!(!command.contains([';', '|', '$', ' ']));
            prop_assert!(!name.starts_with("LD_") && name != "PATH");
        }
    }

    /// MGP-228: letters in other cases and signs between them do not make another name.
    #[test]
    fn a_lookalike_name_is_rejected(cut in 1usize..6, upper: bool, sign in "[._-]") {
        let (head, tail) = "github".split_at(cut);
        let tail = if upper { tail.to_uppercase() } else { tail.to_owned() };
        let id = format!("{head}{sign}{tail}");
        prop_assert_eq!(rule(&json!({ "id": id })), "imitation");
    }
}
