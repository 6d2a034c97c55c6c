use std::time::Duration;

use mgp_engine::policy::trust::TrustLevel;
use mgp_engine::servers::consent::Consent;
use mgp_engine::servers::login::LoginGrant;
use mgp_engine::servers::spec::{
    CallbackAttribution, PerAgent, ReplicaMode, RestartConfig, RestartPolicy, ServerInstances,
    ServerLimits, ServerTransport, UrlProtocol,
};

use mgp_screening::results::{InstructionRule, PersonalKind, ResultRules};

use super::*;

/// MGP-215: the example of the specification, verbatim.
#[test]
fn the_specifications_example_is_read() {
    let read = read_text(
        r#"
[[servers]]
id = "mind.cerebras"
command = "python"
args = ["mcp-servers/cerebras/server.py"]
transport = "stdio"

[servers.mgp]
extensions = ["security", "lifecycle", "streaming"]
permissions_required = ["network.outbound"]
trust_level = "standard"
restart_policy = "on_failure"

[servers.env]
CEREBRAS_API_KEY = "${CEREBRAS_API_KEY}"
"#,
    );
    assert_eq!(read.messages(), [""; 0]);
    let spec = read.spec("mind.cerebras");
    let ServerTransport::Stdio {
        command,
        args,
        env,
        inherit_env,
        cwd,
    } = &spec.transport
    else {
        panic!("a command is started");
    };
    assert_eq!(
        (command.as_str(), args.as_slice()),
        ("python", &["mcp-servers/cerebras/server.py".to_owned()][..])
    );
    assert_eq!(env["CEREBRAS_API_KEY"], "sk-secret");
    assert!(inherit_env.is_empty());
    assert_eq!(cwd.as_deref(), Some(Path::new("/etc/mgp")));
    assert_eq!(spec.mgp.extensions, ["security", "lifecycle", "streaming"]);
    assert_eq!(spec.mgp.permissions_required, ["network.outbound"]);
    assert_eq!(spec.mgp.trust_level, TrustLevel::Standard);
    assert_eq!(spec.restart, RestartConfig::default());
    assert_eq!(spec.limits, ServerLimits::default());
}

/// MGP-218, A-27: without `[servers.mgp]` the defaults apply; `mgp = false` disables MGP.
#[test]
fn the_mgp_section_is_optional_and_can_be_switched_off() {
    assert!(!entry("command = \"c\"").spec("x").mgp.is_disabled);
    assert!(
        entry("command = \"c\"\nmgp = false")
            .spec("x")
            .mgp
            .is_disabled
    );
}

#[test]
fn restart_rules_are_flat_or_in_the_mgp_section() {
    let rules = "restart_policy = \"always\"\nmax_restarts = 2\nrestart_window_secs = 60\n\
                 backoff_base_ms = 10\nbackoff_max_ms = 20";
    let want = RestartConfig {
        policy: RestartPolicy::Always,
        max_restarts: 2,
        window: Duration::from_secs(60),
        backoff_base: Duration::from_millis(10),
        backoff_max: Duration::from_millis(20),
    };
    assert_eq!(
        entry(&format!("command = \"c\"\n{rules}"))
            .spec("x")
            .restart,
        want
    );
    assert_eq!(
        entry(&format!("command = \"c\"\n[servers.mgp]\n{rules}"))
            .spec("x")
            .restart,
        want
    );
}

#[test]
fn limits_are_defaults_for_all_servers() {
    let read = read_text(
        "[limits]\nmax_in_flight = 7\nstop_grace_ms = 5\n\
         [[servers]]\nid = \"a\"\ncommand = \"c\"\nmax_in_flight = 9\n\
         [[servers]]\nid = \"b\"\ncommand = \"c\"\n",
    );
    let of = |id: &str| read.spec(id).limits.clone();
    assert_eq!((of("a").max_in_flight, of("b").max_in_flight), (9, 7));
    assert_eq!(of("a").stop_grace, Duration::from_millis(5));
}

/// CMCP-085: callbacks of servers are allowed per kind, and an invalid word is explained.
#[test]
fn callbacks_are_configured_for_all_or_one_server() {
    let read = read_text(
        "[limits]\nsampling = \"off\"\n\n[[servers]]\nid = \"a\"\ncommand = \"a\"\n\n\
         [[servers]]\nid = \"b\"\ncommand = \"b\"\nsampling = \"ask\"\nelicitation = \"off\"\n",
    );
    assert_eq!(read.messages(), [""; 0]);
    let consents = |id| {
        let consents = read.spec(id).limits.consents;
        (consents.sampling, consents.elicitation)
    };
    assert_eq!(consents("a"), (Consent::Deny, Consent::Allow));
    assert_eq!(consents("b"), (Consent::Ask, Consent::Deny));
    let wrong = read_text("[limits]\nsampling = \"never\"\n");
    let said = &wrong.messages()[0];
    assert!(said.contains("is one of") && said.contains("ask"), "{said}");
}

/// MGP-216, A-26: every value resolves variables.
#[test]
fn variables_are_resolved_in_every_value() {
    let read = entry(
        "command = \"${HOME}/bin/x\"\nargs = [\"--key=${CEREBRAS_API_KEY}\"]\n\
         env = { A = \"${NONE:-default}\", B = \"$${HOME}\" }\ncwd = \"${HOME}\"",
    );
    let ServerTransport::Stdio {
        command,
        args,
        env,
        cwd,
        ..
    } = &read.spec("x").transport
    else {
        panic!("a command is started");
    };
    assert_eq!(
        (command.as_str(), args[0].as_str()),
        ("/home/ada/bin/x", "--key=sk-secret")
    );
    assert_eq!(
        (env["A"].as_str(), env["B"].as_str()),
        ("default", "${HOME}")
    );
    assert_eq!(cwd.as_deref(), Some(Path::new("/home/ada")));
    let remote =
        entry("url = \"https://${NONE:-h}/mcp\"\nheaders = { A = \"Bearer ${CEREBRAS_API_KEY}\" }");
    let ServerTransport::Http { url, headers, .. } = &remote.spec("x").transport else {
        panic!("an address is called");
    };
    assert_eq!(
        (url.as_str(), headers["A"].as_str()),
        ("https://h/mcp", "Bearer sk-secret")
    );
}

/// Decision 64: `transport` selects the protocol at an address; gRPC servers have no login.
#[test]
fn a_server_of_mcp_lite_is_reached_at_an_address() {
    let read = |transport: &str, more: &str| {
        entry(&format!(
            "transport = \"{transport}\"\nurl = \"https://h/v1/\"\n{more}"
        ))
    };
    for (word, speaks) in [
        ("lite", UrlProtocol::Lite),
        ("grpc", UrlProtocol::Grpc),
        ("sse", UrlProtocol::Mcp),
    ] {
        let read = read(word, "");
        let spec = read.spec("x");
        assert!(
            matches!(&spec.transport, ServerTransport::Http { protocol: said, .. } if *said == speaks)
        );
        assert_eq!(spec.login.enabled, speaks != UrlProtocol::Grpc, "{word}");
    }
    let why = read("grpc", "login = \"agent\"").why("x");
    assert!(why.contains("no login is made there"), "{why}");
    read("grpc", "login = false").spec("x");
    let why = entry("transport = \"lite\"\ncommand = \"c\"").why("x");
    assert!(why.contains("has transport `lite` but no `url`"), "{why}");
    let why = read("lyte", "").why("x");
    assert!(why.contains("lite"), "{why}");
}

/// MGP-217, A-26: a server with an unset variable is broken, and reported with variable and key; the others start.
#[test]
fn an_unset_variable_breaks_only_its_server() {
    let read = read_text(
        "[[servers]]\nid = \"a\"\ncommand = \"c\"\nenv = { KEY = \"x${MISSING}\" }\n\
         [[servers]]\nid = \"b\"\ncommand = \"c\"\n",
    );
    let why = read.why("a");
    assert!(
        why.starts_with("/etc/mgp/mgp.toml:4:15: server `a`: `env.KEY` needs the variable MISSING"),
        "{why}"
    );
    read.spec("b");
}

#[test]
fn relative_paths_start_at_the_file() {
    let read = entry("command = \"bin/x\"\ncwd = \"work\"");
    let ServerTransport::Stdio { command, cwd, .. } = &read.spec("x").transport else {
        panic!("a command is started");
    };
    assert_eq!(command, "/etc/mgp/bin/x");
    assert_eq!(cwd.as_deref(), Some(Path::new("/etc/mgp/work")));
}

/// MCP-082, outbound: a remote server in clear text gets a warning, and is not rejected.
#[test]
fn a_remote_server_without_tls_is_warned_about() {
    for (url, warned) in [
        ("http://example.org/mcp", 1),
        ("https://example.org/mcp", 0),
        ("http://localhost:3000/mcp", 0),
        ("http://[::1]:3000/mcp", 0),
        ("http://127.0.0.1@example.org/", 1),
    ] {
        let read = entry(&format!("url = \"{url}\""));
        read.spec("x");
        assert_eq!(read.problems.len(), warned, "{url}: {:?}", read.messages());
    }
}

/// EXT-167: a seal is SHA-256 in one form. A malformed one leaves the entry out, for it must not count as none.
#[test]
fn seal_is_read_in_one_form_only() {
    let read = |more: &str| entry(&format!("command = \"c\"\n[servers.mgp]\n{more}"));
    let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let sealed = read(&format!(
        "seal = \"sha256:{digest}\"\nentry_point = \"server.py\""
    ));
    let seal = sealed.spec("x").mgp.seal.clone().unwrap();
    assert_eq!(seal.sha256, digest);
    assert_eq!(seal.entry_point, Some("server.py".into()));
    for bad in [
        digest.to_owned(),
        format!("sha256:{}", digest.to_uppercase()),
        format!("sha256:{}", &digest[1..]),
        format!("sha512:{digest}"),
        String::new(),
    ] {
        let why = read(&format!("seal = \"{bad}\"")).why("x");
        assert!(why.contains("a seal is"), "{why}");
    }
    let why = read("entry_point = \"server.py\"").why("x");
    assert!(why.contains("has no `seal`"), "{why}");
    let far = format!("url = \"https://x/\"\n[servers.mgp]\nseal = \"sha256:{digest}\"");
    assert!(entry(&far).why("x").contains("leave it out"));
}

/// EXT-168: with `seal_required` a server without a seal has the lowest trust, whatever its entry says; without it,
/// its entry decides.
#[test]
fn unsealed_server_has_the_lowest_trust_where_seals_are_required() {
    let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let seal = format!("\nseal = \"sha256:{digest}\"");
    let read = |required: bool, level: &str, seal: &str| {
        let entry = format!(
            "[[servers]]\nid = \"x\"\ncommand = \"c\"\n[servers.mgp]\ntrust_level = \"{level}\"{seal}"
        );
        let read = read_text(&format!("[sandbox]\nseal_required = {required}\n{entry}\n"));
        let mgp = &read.spec("x").mgp;
        (mgp.trust_level, mgp.unsealed_from)
    };
    use TrustLevel::{Experimental, Sandboxed, Standard, Trusted};
    assert_eq!(read(true, "core", ""), (Sandboxed, Some(Trusted)));
    assert_eq!(read(true, "standard", ""), (Sandboxed, Some(Standard)));
    let experimental = read(true, "experimental", "");
    assert_eq!(experimental, (Sandboxed, Some(Experimental)));
    assert_eq!(read(true, "untrusted", ""), (Sandboxed, None));
    assert_eq!(read(true, "core", &seal), (Trusted, None));
    assert_eq!(read(false, "core", ""), (Trusted, None));
}

/// A-20: unknown trust levels mean the lowest.
#[test]
fn trust_has_aliases_and_unknown_levels_are_lowest() {
    let trust = |word: &str| {
        let read = entry(&format!(
            "command = \"c\"\n[servers.mgp]\ntrust_level = \"{word}\""
        ));
        read.spec("x").mgp.trust_level
    };
    assert_eq!(trust("core"), TrustLevel::Trusted);
    assert_eq!(trust("untrusted"), TrustLevel::Sandboxed);
    assert_eq!(trust("experimental"), TrustLevel::Experimental);
    assert_eq!(trust("whatever"), TrustLevel::Sandboxed);
}

/// Each agent has its own instance if configured, within bounds.
#[test]
fn the_operator_configures_instances() {
    let read = |line: &str| {
        entry(&format!("command = \"c\"\n{line}"))
            .spec("x")
            .instances
    };
    assert_eq!(read(""), ServerInstances::Shared);
    assert_eq!(read("max_instances = 3"), ServerInstances::Shared);
    let bounds = PerAgent {
        max: 3,
        idle: Duration::from_secs(7),
        by_folder: false,
    };
    let keys = "instances = \"agent\"\nmax_instances = 3\ninstance_idle_secs = 7";
    assert_eq!(read(keys), ServerInstances::PerAgent(bounds));
    let here = read("cwd = \"caller\"\nmax_instances = 3\ninstance_idle_secs = 7");
    let by_folder = PerAgent {
        by_folder: true,
        ..bounds
    };
    assert_eq!(here, ServerInstances::PerAgent(by_folder));
    assert_eq!(read("cwd = \"./caller\""), ServerInstances::Shared);
    let both = entry("command = \"c\"\ncwd = \"caller\"\ninstances = \"shared\"").messages();
    assert!(both[0].contains("the folder of each caller"), "{both:?}");
    let none = entry("command = \"c\"\nmax_instances = 0").messages();
    assert!(none[0].contains("max_instances"), "{none:?}");
    let misspelt = entry("command = \"c\"\ninstances = \"agents\"").messages();
    assert!(misspelt[0].contains("agent"), "{misspelt:?}");
}

/// CMCP-074: callbacks of a server are serialized unless the operator declares that they name their call.
#[test]
fn the_operator_configures_callback_attribution() {
    let attribution = |line: &str| {
        entry(&format!("command = \"c\"\n{line}"))
            .spec("x")
            .callback_attribution
    };
    assert_eq!(attribution(""), CallbackAttribution::ByTurn);
    assert_eq!(
        attribution(r#"questions = "by-turn""#),
        CallbackAttribution::ByTurn
    );
    assert_eq!(
        attribution(r#"questions = "by-call""#),
        CallbackAttribution::ByCall
    );
    let misspelt = entry("command = \"c\"\nquestions = \"by_call\"").messages();
    assert!(misspelt[0].contains("by-call"), "{misspelt:?}");
}

const THREE: &str = "[[servers]]\nid = \"db\"\ncommand = \"c\"\n[[servers]]\nid = \"app\"\ncommand = \"c\"\n\
                     after = [\"db\"]\n[[servers]]\nid = \"other\"\ncommand = \"c\"\n";

/// MGP-122: unknown names and cycles in the start order are reported with their location.
#[test]
fn a_start_order_has_existing_servers_and_no_cycle() {
    let read = read_text(THREE);
    assert_eq!(read.messages(), [""; 0]);
    assert_eq!(read.spec("app").start_after, [ServerId::new("db")]);
    let read = read_text(&THREE.replace("[\"db\"]", "[\"dbb\"]"));
    let said = "/etc/mgp/mgp.toml:7:10: server `app` is started after `dbb`, and there is no such server, did you mean `db`?";
    assert_eq!(read.messages(), [said]);
    assert_eq!(read.why("app"), said);
    read.spec("db");
    let read = read_text(&format!("{THREE}after = [\"app\", \"other\"]\n"));
    let said = "/etc/mgp/mgp.toml:11:17: `other` is started after `other`: none of them could be the first";
    assert_eq!(read.messages(), [said]);
    let circle = THREE.replace("id = \"db\"\n", "id = \"db\"\nafter = [\"app\"]\n");
    let read = read_text(&circle);
    assert_eq!(read.problems.len(), 2, "{:?}", read.messages());
    let why = read.why("db");
    assert!(
        why.ends_with(
            "`db` is started after `app`, and that after `db`: none of them could be the first"
        ),
        "{why}"
    );
    read.spec("other");
}

/// MGP-140: `[servers.limits]` limits the resources of a server; unknown keys and limits of remote servers are errors.
#[test]
fn resource_limits_of_a_server_are_read() {
    let read =
        entry("command = \"c\"\n[servers.limits]\nmemory_bytes = 1073741824\ncpu_percent = 50");
    let limits = read.spec("x").resources;
    assert_eq!(
        (limits.memory, limits.cpu_percent),
        (Some(1 << 30), Some(50))
    );
    assert_eq!((limits.descriptors, limits.processes), (None, None));
    let why = entry("command = \"c\"\n[servers.limits]\nmemory_byte = 1073741824").why("x");
    assert!(
        why.ends_with(
            "unknown key `memory_byte` in `limits` of server `x`, did you mean `memory_bytes`?"
        ),
        "{why}"
    );
    let why = entry("command = \"c\"\n[servers.limits]\nswap = 1").why("x");
    assert!(
        why.ends_with("known are `memory_bytes`, `cpu_percent`, `open_files`, `processes`"),
        "{why}"
    );
    let why = entry("url = \"https://a.example\"\n[servers.limits]\nprocesses = 1").why("x");
    assert!(why.contains("cannot be limited"), "{why}");
}

/// MGP-117: two instances at once require `restart_mode`, and are rejected for per-agent instances.
#[test]
fn rolling_restarts_are_opt_in() {
    assert!(!entry("command = \"c\"").spec("x").rolling);
    let read = entry("command = \"c\"\nrestart_mode = \"rolling\"");
    assert!(read.spec("x").rolling);
    let why = entry("command = \"c\"\ninstances = \"agent\"\nrestart_mode = \"rolling\"").why("x");
    assert!(why.contains("for servers that all agents share"), "{why}");
}

#[test]
fn the_operator_configures_replicas() {
    let rule = |lines: &str| {
        entry(&format!("command = \"c\"\n{lines}"))
            .spec("x")
            .replica
    };
    assert_eq!(rule(""), ReplicaMode::Standalone);
    let replica = |stateful| ReplicaMode::Replica { stateful };
    assert_eq!(rule("replica = true"), replica(false));
    assert_eq!(rule("replica = true\nstateful = true"), replica(true));
    let why = entry("command = \"c\"\nstateful = true").why("x");
    assert!(why.contains("`replica = true`"), "{why}");
    let why = entry("command = \"c\"\nreplicas = true").why("x");
    assert!(why.contains("`replica`"), "{why}");
}

/// A server at an address has a login; a token header or `login = false` disables it.
#[test]
fn a_server_at_an_address_has_a_login_unless_it_has_a_token() {
    let login = |more: &str| {
        entry(&format!("url = \"https://h/mcp\"\n{more}"))
            .spec("x")
            .login
            .clone()
    };
    assert!(login("").enabled);
    assert!(login("headers = { X = \"y\" }").enabled);
    assert!(!login("headers = { authorization = \"Bearer y\" }").enabled);
    assert!(!login("login = false").enabled);
    assert!(!entry("command = \"c\"").spec("x").login.enabled);
    let keys = login(
        "[servers.login]\ngrant = \"client_credentials\"\nclient_id = \"me\"\nclient_secret = \"${CEREBRAS_API_KEY}\"\nscopes = [\"a\"]\nissuer = \"https://as\"\ncallback = \"http://127.0.0.1:7333/cb\"",
    );
    assert_eq!(keys.grant, LoginGrant::ClientCredentials);
    assert_eq!(keys.client_secret.as_deref(), Some("sk-secret"));
    assert_eq!(
        (keys.scopes.as_slice(), keys.issuer.as_deref()),
        (&["a".to_owned()][..], Some("https://as"))
    );
}

/// Invalid login settings are reported with their location, without secrets.
#[test]
fn invalid_logins_are_rejected() {
    for (more, why) in [
        (
            "command = \"c\"\nlogin = { scopes = [] }",
            "started by a command",
        ),
        (
            "url = \"https://h\"\nheaders = { Authorization = \"Bearer s3cret\" }\nlogin = { scopes = [] }",
            "has both",
        ),
        (
            "url = \"https://h\"\nlogin = { issuer = \"http://as.example\" }",
            "https://",
        ),
        (
            "url = \"https://h\"\nlogin = { callback = \"https://h/cb\" }",
            "of this machine",
        ),
        (
            "url = \"https://h\"\nlogin = { grant = \"browsr\" }",
            "browser",
        ),
        (
            "url = \"https://h\"\nlogin = { client_secert = \"s3cret\" }",
            "client_secret",
        ),
    ] {
        let message = entry(more).why("x");
        assert!(
            message.contains(why) && !message.contains("s3cret"),
            "{more}: {message}"
        );
    }
}

/// Decision 0061: headers are forwarded by name, except those of a connection or of the kernel.
#[test]
fn only_named_headers_are_forwarded() {
    let at = |door: &str, keys: &str| {
        read_text(&format!(
            "{door}[[servers]]\nid = \"x\"\nurl = \"https://h/mcp\"\n{keys}"
        ))
    };
    let read = at(
        "",
        "pass_headers = [\"X-Tenant\", \"cookie\", \"x-tenant\"]",
    );
    assert_eq!(read.spec("x").pass_headers, ["cookie", "x-tenant"]);
    for (name, words) in [
        ("Host", "never handed on"),
        ("transfer-encoding", "never handed on"),
        ("Proxy-Authorization", "never handed on"),
        ("Mcp-Session-Id", "never handed on"),
        ("Authorization", "is what agents show this kernel"),
        ("x y", "no name of a header"),
    ] {
        let said = at("", &format!("pass_headers = [{name:?}]")).messages();
        assert!(said[0].contains(words), "{name}: {said:?}");
    }
    let both = at("", "pass_headers = [\"x-a\"]\nheaders = { X-A = \"1\" }").messages();
    assert!(both[0].contains("one of the two counts"), "{both:?}");
    let open = at(
        "[http]\nauth = \"none\"\n",
        "pass_headers = [\"Authorization\"]",
    );
    assert_eq!(open.spec("x").pass_headers, ["authorization"]);
    assert!(!open.spec("x").login.enabled);
    let started = entry("command = \"c\"\npass_headers = [\"x-a\"]").messages();
    assert!(
        started[0].contains("is for servers at a `url`"),
        "{started:?}"
    );
}

/// Decision 0060: a login belongs to the machine or to each agent, which then has its own instance.
#[test]
fn a_login_belongs_to_the_machine_or_each_agent() {
    let read = |keys: &str| entry(&format!("url = \"https://h/mcp\"\n{keys}"));
    for keys in ["login = \"agent\"", "[servers.login]\nof = \"agent\""] {
        let spec = read(keys);
        let spec = spec.spec("x");
        assert!(spec.login.enabled && spec.login.per_agent, "{keys}");
        assert_eq!(
            spec.instances,
            ServerInstances::PerAgent(PerAgent::default())
        );
    }
    let plain = read("");
    assert!(!plain.spec("x").login.per_agent);
    assert_eq!(plain.spec("x").instances, ServerInstances::Shared);
    let shared = read("login = \"agent\"\ninstances = \"shared\"").messages();
    assert!(shared[0].contains("a login for each agent"), "{shared:?}");
    let nobody = read("[servers.login]\nof = \"agent\"\ngrant = \"client_credentials\"").messages();
    assert!(nobody[0].contains("without a person"), "{nobody:?}");
}

/// A custom permission can have any name that is not similar to a standard one.
#[test]
fn misspelled_permissions_are_rejected_with_a_suggestion() {
    let read = |name: &str| entry(&format!("command = \"x\"\npermissions = [\"{name}\"]"));
    let why = read("netwrk.outbound").why("x");
    assert!(why.contains("did you mean \"network.outbound\"?"), "{why}");
    for name in ["network.outbound", "shell", "com.example.print"] {
        assert_eq!(read(name).messages(), [""; 0]);
    }
}

/// A server's address may contain its key; other nodes would receive a hash of a replica's.
#[test]
fn addresses_may_contain_secrets_except_those_of_replicas() {
    struct OneSecret;
    impl Lookup for OneSecret {
        fn variable(&self, name: &str) -> Option<String> {
            env(name)
        }

        fn secret(&self, name: &str, _: &SecretsConfig) -> Result<String, String> {
            Ok(format!("value-of-{name}"))
        }

        fn resolved_secrets(&self) -> Vec<String> {
            Vec::new()
        }
    }
    let text = "[[servers]]\nid = \"x\"\nurl = \"https://h/mcp?key=${secret:x/url.key}\"\n";
    let read = read_with(text, &OneSecret);
    let ServerTransport::Http { url, .. } = &read.spec("x").transport else {
        panic!("{:?}", read.messages());
    };
    assert_eq!(url, "https://h/mcp?key=value-of-x/url.key");
    let replica = read_with(&format!("{text}replica = true\n"), &OneSecret);
    let why = replica.why("x");
    assert!(why.contains("send the secret as a header"), "{why}");
    let started = entry("command = \"c\"\nargs = [\"${secret:x}\"]").why("x");
    assert!(started.contains("secret"), "{started}");
}

#[test]
fn an_entry_may_list_the_only_tools_it_offers() {
    let only = |lines: &str| {
        entry(&format!("command = \"c\"\n{lines}"))
            .spec("x")
            .tools
            .offered
            .clone()
    };
    assert_eq!(only(""), None);
    assert_eq!(only("only_tools = []"), Some([].into()));
    assert_eq!(only("only_tools = [\"a\"]"), Some(["a".to_owned()].into()));
}

/// PRJ-015, PRJ-019: `start` replaces `autostart`; the time of an idle stop is an order only in the entry itself.
#[test]
fn the_operator_configures_when_a_server_runs() {
    use mgp_engine::servers::spec::{IdleStop, StartMode};
    let start = |lines: &str| entry(&format!("command = \"c\"\n{lines}")).spec("x").start;
    let on_demand = "start = \"on-demand\"";
    let (ten_minutes, second) = (Duration::from_secs(600), Duration::from_secs(1));
    assert_eq!(start(""), StartMode::Kernel);
    assert_eq!(start("autostart = false"), StartMode::Manual);
    assert_eq!(start("autostart = true"), StartMode::Kernel);
    assert_eq!(start("start = \"manual\""), StartMode::Manual);
    for (lines, idle_stop) in [
        ("", IdleStop::UnlessStateful(ten_minutes)),
        ("stateful = true", IdleStop::Never),
        ("idle_stop_secs = 0", IdleStop::Never),
        ("idle_stop_secs = 1", IdleStop::After(second)),
        (
            "idle_stop_secs = 1\nstateful = true",
            IdleStop::After(second),
        ),
    ] {
        let start = start(&format!("{on_demand}\n{lines}"));
        assert_eq!(start, StartMode::OnDemand(idle_stop), "{lines}");
    }
    let all = "[limits]\nstart = \"on-demand\"\nidle_stop_secs = 1\n[[servers]]\nid = \"x\"\ncommand = \"c\"\n";
    let idle_stop = IdleStop::UnlessStateful(second);
    assert_eq!(
        read_text(all).spec("x").start,
        StartMode::OnDemand(idle_stop)
    );
    let own = format!("{all}start = \"kernel\"");
    assert_eq!(read_text(&own).spec("x").start, StartMode::Kernel);
    let both = format!("command = \"c\"\n{on_demand}\nautostart = true");
    let why = entry(&both).why("x");
    assert!(
        why.contains("`autostart`") || why.contains("leave it out"),
        "{why}"
    );
}

/// EXT-183: `results` is a switch or a table; what it does not know is an error with a reason.
#[test]
fn results_are_guarded_where_the_entry_says_so() {
    let text = "[[servers]]\nid = \"a\"\ncommand = \"c\"\n\
                [[servers]]\nid = \"b\"\ncommand = \"c\"\nresults = true\n\
                [[servers]]\nid = \"c\"\ncommand = \"c\"\nresults = false\n\
                [[servers]]\nid = \"d\"\ncommand = \"c\"\n[servers.results]\nsecrets = false\n\
                personal = [\"email\", \"email\"]\ninstructions = \"hold\"\npatterns = [\"a+\"]\n\
                interceptors = [\"guard:pii\"]\n\
                [cluster.results]\nunseen = false\n";
    let read = read_text(text);
    assert_eq!(read.messages(), [""; 0]);
    let rules = |id: &str| read.spec(id).limits.results.clone();
    assert_eq!((rules("a"), rules("c")), (None, None));
    assert_eq!(rules("b"), Some(ResultRules::default()));
    let d = rules("d").unwrap();
    assert!(!d.secrets && d.unseen);
    assert_eq!(d.personal, [PersonalKind::Email]);
    assert_eq!(d.instructions, InstructionRule::Hold);
    assert_eq!(d.patterns, ["a+"]);
    assert_eq!(d.interceptors, ["guard:pii".parse().unwrap()]);
    let nodes = read.kernel.cluster.results.clone().unwrap();
    assert!(nodes.secrets && !nodes.unseen);
    let wrong = "[[servers]]\nid = \"a\"\ncommand = \"c\"\n[servers.results]\n\
                 personal = [\"mail\"]\npatterns = [\"(\", \"a*\"]\ninstructions = \"block\"\n\
                 interceptors = [\"guard\"]\n";
    let words = read_text(wrong).messages().join("\n");
    for said in [
        "none of email",
        "unclosed group",
        "matches the empty text",
        "SERVER:INTERCEPTOR",
        "instructions",
    ] {
        assert!(words.contains(said), "{said}: {words}");
    }
}
