//! Every key of the kernel's own sections is applied at once, or reported as pending until the next start.

use std::collections::BTreeSet;

use super::super::changes::pending_restart;
use super::*;

/// Every key: a value, another one, and whether a running kernel applies it; `both` if its servers do and its listeners
/// do not.
const KEYS: &str = r#"
[http]
enabled = true #> false waits
console = true #> false waits
listen = "127.0.0.1:1" #> "127.0.0.1:2" waits
auth = "token" #> "oauth" waits
allowed_hosts = [] #> ["a"] waits
allowed_origins = [] #> ["http://a"] waits
server_card = "com.a/b" #> "com.a/c" waits
[http.tls]
cert = "/a" #> "/b" waits
key = "/a" #> "/b" waits
client_ca = "/a" #> "/b" waits
client_auth = "required" #> "optional" waits
[oauth]
issuer = "https://a" #> "https://b" waits
resource = "https://a" #> "https://b" waits
audience = [] #> ["a"] waits
jwks_file = "/a" #> "/b" waits
jwks_url = "https://a" #> "https://b" waits
agent_claim = "a" #> "b" waits
scopes = [] #> ["a"] waits
group_claim = "a" #> "b" waits
groups = { a = "a", b = "a" } #> { a = "a", b = "b" } waits
group_scopes = { a = "a" } #> { a = "b" } waits
algorithms = ["RS256"] #> ["ES256"] waits
accept_tokens = true #> false waits
require_dpop = false #> true waits
[oauth.broker]
client_id = "a" #> "b" waits
client_secret = "aaaaaaaaaaaaaaaa" #> "bbbbbbbbbbbbbbbb" waits
scopes = ["openid"] #> ["openid", "a"] waits
require_claims = { a = "b" } #> { a = "c" } waits
clients = { a = "aaaaaaaaaaaaaaaa" } #> { a = "bbbbbbbbbbbbbbbb" } waits
session_secs = 600 #> 601 waits
[lite]
enabled = true #> false waits
[socket]
path = "/a" #> "/b" waits
users = { a = "agent.a" } #> { a = "agent.b" } waits
[data]
dir = "/a" #> "/b" waits
[secrets]
keyring = true #> false live
command = ["a", "{name}"] #> ["b", "{name}"] live
[network]
proxy = "http://a.test:1" #> "http://b.test:1" waits
no_proxy = [] #> ["a.test"] waits
ca_file = "/a" #> "/b" waits
[registry]
url = "https://a.test" #> "https://b.test" live
[updates]
url = "https://a.test" #> "https://b.test" live
[health]
interval_secs = 1 #> 2 waits
[audit]
enabled = true #> false waits
calls = "window" #> "before_reply" waits
arguments = "digest" #> "whole" waits
keep_days = 1 #> 2 waits
keep_bytes = 1073741824 #> 1073741825 waits
[access]
default_policy = "opt-out" #> "opt-in" live
default_group = "a" #> "b" live
reveal = false #> true waits
[log]
level = "info" #> "debug" waits
format = "text" #> "json" waits
[metrics]
enabled = true #> false waits
loopback = false #> true waits
[telemetry]
endpoint = "https://a" #> "https://b" waits
protocol = "http/protobuf" #> "grpc" waits
traces = true #> false waits
metrics = true #> false waits
logs = false #> true waits
sample_percent = 1 #> 2 waits
follow_callers = true #> false waits
service = "a" #> "b" waits
[telemetry.headers]
b = "a" #> "c" waits
[notify]
desktop = false #> true waits
command = ["a"] #> ["b"] waits
webhook = "https://a" #> "https://b" waits
webhook_secret = "0123456789abcdef0" #> "0123456789abcdef1" waits
[groups.a]
calls_per_minute = 1 #> 2 waits
calls_per_day = 1 #> 2 waits
bytes_per_day = 1 #> 2 waits
[limits]
max_frame_bytes = 8388608 #> 8388609 both
sampling = "on" #> "off" live
elicitation = "on" #> "ask" live
call_timeout_secs = 1 #> 2 live
call_timeout_max_secs = 10 #> 11 live
start_timeout_secs = 1 #> 2 live
stop_grace_ms = 1 #> 2 live
max_in_flight = 1 #> 2 live
start = "on-demand" #> "kernel" live
idle_stop_secs = 10 #> 11 live
task_after_ms = 1 #> 2 live
task_ttl_secs = 10 #> 11 live
agent_calls_per_minute = 1 #> 2 waits
agent_calls_per_day = 1 #> 2 waits
[validation]
enabled = true #> false live
roots = ["/a"] #> ["/b"] live
[permissions]
policy = "interactive" #> "deny_all" live
always_ask = [] #> ["a"] live
all_or_nothing = false #> true live
[pins]
mode = "warn" #> "block" live
[sandbox]
required = false #> true live
seal_required = false #> true live
memory_bytes = 2147483648 #> 2147483649 live
processes = 10 #> 11 live
open_files = 100 #> 101 live
file_bytes = 1073741824 #> 1073741825 live
[confirmation]
enabled = true #> false live
moderate = false #> true waits
timeout_secs = 10 #> 11 waits
operator_queue = true #> false waits
[cluster]
name = "nas" #> "desk" waits
listen = "[::]:7332" #> "[::]:7333" waits
advertise = [] #> ["nas.lan:7332"] waits
peers = [] #> ["desk.lan:7332"] waits
lease_secs = 30 #> 31 waits
relay = true #> false waits
[cluster.results]
secrets = true #> false waits
unseen = true #> false waits
instructions = "warn" #> "hold" waits
personal = ["card"] #> ["email"] waits
patterns = ["a"] #> ["b"] waits
interceptors = ["a:b"] #> ["a:c"] waits
[discovery]
answers = "whole" #> "brief" waits
embedding = "off" #> "builtin" waits
exposure = "all" #> "pinned" waits
pinned = [] #> ["a/b"] waits
may_register = [] #> ["agent.a"] waits
creating = false #> true waits
[discovery.registered]
python = "/a" #> "/b" waits
node = "/a" #> "/b" waits
read = [] #> ["/a"] waits
write = [] #> ["/a"] waits
[discovery.agents."agent.a"]
exposure = "all" #> "pinned" waits
pinned = [] #> ["a/c"] waits
[agents."agent.a"]
answers = [] #> ["agent.b"] waits
set = "a" #> "b" live
[sets.a]
servers = [] #> ["x"] live
tools = [] #> ["x:y"] live
except = [] #> ["x:y"] live
[mcpl]
scope_timeout_secs = 10 #> 11 live
[mcpl.push]
per_minute = 1 #> 2 live
quiet_hours = "22:00-07:00 Z" #> "23:00-07:00 Z" live
inference = true #> false live
[mcpl.push.sets."agent.a"]
per_minute = 1 #> 2 live
quiet_hours = "22:00-07:00 Z" #> "23:00-07:00 Z" live
inference = false #> true live
[mcpl.hooks]
channels = true #> false live
order = [] #> ["a"] live
fail_closed = [] #> ["a"] live
[mcpl.servers.x]
enable = [] #> ["a.*"] live
disable = [] #> ["a.b"] live
deny = [] #> ["pushEvents"] live
[mcpl.servers.x.tools]
t = "a" #> "b" live
[mcpl.servers.x.scopes.a]
label = "{a}" #> "{b}" live
whitelist = [] #> ["/a"] live
blacklist = [] #> ["/a"] live
[mcpl.servers.x.scopes.a.enrich."/a"]
b = "c" #> "d" live
[mcpl.inference]
default = "none" #> "agent" live
routes = { "x.a" = "none" } #> { "x.a" = "agent" } live
conversations = { "x:c" = "none" } #> { "x:c" = "agent" } live
max_tokens = 1 #> 2 live
tokens_per_day = 1 #> 2 live
tokens_per_day_all = 1 #> 2 live
push_prompt = "{content}" #> "{content}." live
push_channels = { "x.a" = "x:a" } #> { "x.a" = "x:b" } live
[mcpl.inference.servers.x]
tokens_per_day = 3 #> 4 live
[mcpl.inference.model]
id = "m" #> "n" live
vendor = "v" #> "w" live
context_window = 1 #> 2 live
capabilities = [] #> ["vision"] live
[mcpl.providers.p]
kind = "openai" #> "anthropic" live
url = "https://a" #> "https://b" live
model = "m" #> "n" live
key = "a" #> "b" live
timeout_secs = 1 #> 2 live
at_once = 1 #> 2 live
waiting = 1 #> 2 live
max_tokens_name = "max_tokens" #> "max_completion_tokens" live
vendor = "v" #> "w" live
context_window = 1 #> 2 live
capabilities = [] #> ["vision"] live
[mcpl.state]
shared_by = "session" #> "agent" live
tool_for = [] #> ["a"] live
[mcpl.state.sets]
"x.y" = "agent" #> "nobody" live
[mcpl.channels]
default_outgoing = "x:a" #> "x:b" live
incoming_to = [] #> ["a"] live
tool_for = [] #> ["a"] live
[mcpl.channels.moderation.m]
channels = "x:a" #> "x:b" live
pattern = "a" #> "b" live
way = "both" #> "in" live
with = "a" #> "b" live
[discovery.servers."agent.a"]
exposure = "all" #> "pinned" waits
[discovery.provider]
url = "https://a" #> "https://b" waits
model = "a" #> "b" waits
key = "a" #> "b" waits
[tuning.http]
max_sessions = 1 #> 2 waits
session_idle_secs = 10 #> 11 waits
max_bodies_bytes = 33554432 #> 33554433 waits
[tuning.lite]
promise_after_ms = 1 #> 2 waits
promise_ttl_secs = 10 #> 11 waits
heartbeat_ms = 1000 #> 1001 waits
[tuning.streams]
replay_events = 1 #> 2 waits
stream_after_ms = 1 #> 2 waits
poll_after_ms = 1 #> 2 waits
[tuning.questions]
answer_timeout_secs = 1 #> 2 waits
[tuning.lists]
page_size = 1 #> 2 waits
[tuning.health]
misses = 1 #> 2 waits
[tuning.audit]
file_bytes = 16777216 #> 16777217 waits
agent_bytes_per_day = 134217728 #> 134217729 waits
[tuning.metrics]
tools_max = 1 #> 2 waits
[tuning.telemetry]
queue = 1 #> 2 waits
interval_ms = 10 #> 11 waits
metrics_interval_secs = 1 #> 2 waits
timeout_ms = 10 #> 11 waits
[tuning.limits]
agent_refusals_per_second = 1 #> 2 waits
[tuning.discovery]
registered_max = 1 #> 2 waits
model_idle_secs = 30 #> 31 waits
[tuning.discovery.budget]
max_tokens = 8000 #> 8001 waits
pinned_reserve = 2000 #> 1999 waits
discovery_reserve = 3000 #> 2999 waits
cache_limit = 3000 #> 2999 waits
[tuning.mcpl.push]
server_per_minute = 1 #> 2 live
agent_timeout_ms = 1 #> 2 live
[tuning.mcpl.hooks]
before_timeout_ms = 1 #> 2 live
after_timeout_ms = 1 #> 2 live
server_bytes = 1 #> 2 live
bytes = 1 #> 2 live
[tuning.mcpl.inference]
agent_timeout_secs = 1 #> 2 live
[tuning.mcpl.state]
keep_ended_secs = 10 #> 11 live
[tuning.discovery.provider]
timeout_secs = 1 #> 2 waits
batch = 1 #> 2 waits
"#;

/// A server, to observe its settings.
const SERVER: &str = "[[servers]]\nid = \"x\"\ncommand = \"c\"\nenv = { T = \"secret:t\" }\n";

/// The location of a secret is its value.
struct AnySecret;

impl Lookup for AnySecret {
    fn variable(&self, name: &str) -> Option<String> {
        env(name)
    }

    fn secret(&self, name: &str, secrets: &SecretsConfig) -> Result<String, String> {
        Ok(format!("{name} {secrets:?}"))
    }

    fn resolved_secrets(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The whole text with one value replaced, for each key, with the expected effect.
fn changes() -> Vec<(String, String, String, String)> {
    let lines: Vec<&str> = KEYS.lines().collect();
    let first = |line: &str| line.split(" #> ").next().unwrap_or_default().to_owned();
    let mut section = "";
    let mut all = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if let Some(head) = line.strip_prefix('[') {
            section = head.trim_end_matches(']');
        }
        let Some((before, after)) = line.split_once(" #> ") else {
            continue;
        };
        let (key, (value, fate)) = (
            before.split(' ').next().unwrap(),
            after.rsplit_once(' ').unwrap(),
        );
        let with = |(n, line): (usize, &&str)| {
            if n == at {
                format!("{key} = {value}")
            } else {
                first(line)
            }
        };
        let text: Vec<String> = lines.iter().enumerate().map(with).collect();
        all.push((
            section.to_owned(),
            key.to_owned(),
            text.join("\n") + "\n" + SERVER,
            fate.to_owned(),
        ));
    }
    all
}

/// The keys of a text, and its configuration.
fn read_keys(text: &str) -> (WrittenKeys, Read) {
    let mut written = WrittenKeys::default();
    written.add_file(text);
    let read = read_with(text, &AnySecret);
    let fatal = |p: &&Problem| p.severity == Severity::Fatal;
    let wrong: Vec<_> = read
        .problems
        .iter()
        .filter(fatal)
        .map(Problem::to_string)
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    (written, read)
}

/// Point 4: no change is silent. It reaches servers or their callers, or is reported by section and key.
#[test]
fn every_change_is_applied_or_reported() {
    let first: String = KEYS
        .lines()
        .map(|line| line.split(" #> ").next().unwrap().to_owned() + "\n")
        .collect();
    let (before, running) = read_keys(&(first + SERVER));
    for (section, key, text, fate) in changes() {
        let (after, now) = read_keys(&text);
        assert!(
            running.kernel != now.kernel,
            "[{section}] {key} means nothing"
        );
        let told = pending_restart((&running.kernel, &before), (&now.kernel, &after));
        let reaches = running.spec("x") != now.spec("x")
            || running.kernel.access.to_policies() != now.kernel.access.to_policies()
            || running.kernel.sets != now.kernel.sets
            || running.kernel.mcpl != now.kernel.mcpl
            // The command line reads it each time.
            || running.kernel.registry != now.kernel.registry
            || running.kernel.updates != now.kernel.updates;
        assert_eq!(reaches, fate != "waits", "[{section}] {key}");
        // What is told of an inline table is the key in it.
        let (section, key) = match key.as_str() {
            "users" => ("socket.users".to_owned(), "a"),
            "groups" => ("oauth.groups".to_owned(), "b"),
            "group_scopes" => ("oauth.group_scopes".to_owned(), "a"),
            "require_claims" => ("oauth.broker.require_claims".to_owned(), "a"),
            "clients" => ("oauth.broker.clients".to_owned(), "a"),
            key => (section, key),
        };
        let want = format!("[{section}] {key} changed: takes effect after `mgp down && mgp up`");
        assert_eq!(told, Vec::from_iter((fate != "live").then_some(want)));
    }
}

/// A key with `*` for names of the user's choice.
fn starred(key: &str) -> String {
    key.replace("\"agent.a\"", "*")
        .replace("sets.a", "sets.*")
        .replace("groups.a", "groups.*")
        .replace("mcpl.inference.servers.x", "mcpl.inference.servers.*")
        .replace("mcpl.providers.p", "mcpl.providers.*")
        .replace("mcpl.servers.x", "mcpl.servers.*")
        .replace("scopes.a", "scopes.*")
        .replace("moderation.m", "moderation.*")
}

/// The table has all known keys.
#[test]
fn every_key_is_tested() {
    let mut listed: BTreeSet<String> = changes()
        .into_iter()
        .map(|(section, key, ..)| starred(&format!("{section}.{key}")))
        .collect();
    // Keys below have names of the user's choice.
    for top in KEYS.lines().filter_map(|line| line.strip_prefix('[')) {
        let mut path = String::new();
        for part in starred(top.trim_end_matches(']')).split('.') {
            path = if path.is_empty() {
                part.to_owned()
            } else {
                format!("{path}.{part}")
            };
            listed.insert(path.clone());
        }
    }
    let known: Vec<String> = file::known_keys();
    let kernels = known.iter().filter(|key| !key.starts_with("servers"));
    let missing: Vec<_> = kernels.filter(|key| !listed.contains(*key)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// An explicit default is no change, and neither is a reverted one.
#[test]
fn an_explicit_default_is_no_change() {
    let ((before, running), (after, now)) = (
        read_keys(SERVER),
        read_keys("[discovery]\nembedding = \"builtin\"\n"),
    );
    assert_eq!(
        pending_restart((&running.kernel, &before), (&now.kernel, &after)),
        [""; 0]
    );
}

/// A key is the same in its old place and below `[tuning]`.
#[test]
fn a_moved_key_is_no_change() {
    let keys = |section: &str, after: u32| {
        let text = format!("[{section}]\nreplay_events = 7\nstream_after_ms = {after}\n");
        read_keys(&(text + SERVER))
    };
    let ((before, running), (after, now)) = (keys("streams", 9), keys("tuning.streams", 10));
    assert_eq!(
        pending_restart((&running.kernel, &before), (&now.kernel, &after)),
        ["[tuning.streams] stream_after_ms changed: takes effect after `mgp down && mgp up`"]
    );
}
