use mgp_engine::policy::requirements::ToolRules;
use mgp_engine::servers::spec::{
    MgpConfig, ReplicaMode, RestartConfig, ServerLimits, ServerTransport, StartMode,
};

use super::*;

const EXAMPLE: &str = include_str!("../../../../mgp.toml.example");

/// The example with all keys uncommented.
fn uncommented() -> String {
    let key =
        |line: &&str| line.starts_with(|c: char| c.is_ascii_lowercase() || c == '[' || c == 'A');
    let line = |line| match str::strip_prefix(line, "#").filter(key) {
        Some(key) => key,
        None => line,
    };
    EXAMPLE.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The example has every key with its default.
#[test]
fn the_example_shows_every_key_with_its_default() {
    let read = read_text(EXAMPLE);
    assert_eq!(read.messages(), [""; 0]);
    assert_eq!(read.kernel, KernelConfig::default());
    assert!(read.servers.is_empty());

    let text = uncommented();
    let read = read_text(&text);
    assert_eq!(read.messages(), [""; 0]);
    let files = read.spec("files");
    assert_eq!(files.start, StartMode::Kernel);
    assert_eq!(files.restart, RestartConfig::default());
    assert_eq!(files.limits, ServerLimits::default());
    assert_eq!(files.replica, ReplicaMode::Standalone);
    // A seal has no default.
    let seal = files.mgp.seal.clone();
    assert!(seal.is_some());
    let mgp = MgpConfig {
        seal,
        ..MgpConfig::default()
    };
    assert_eq!(files.mgp, mgp);
    let rules = ToolRules {
        tools: files.tools.tools.clone(),
        // Unset means all.
        offered: files.tools.offered.clone(),
        ..ToolRules::default()
    };
    assert_eq!(*files.tools, rules);
    let ServerTransport::Stdio {
        inherit_env, cwd, ..
    } = &files.transport
    else {
        panic!("a command is started");
    };
    assert_eq!(cwd.as_deref(), Some(Path::new("/etc/mgp/.")));
    assert!(inherit_env.is_empty());

    let (known, table) = (file::known_keys(), text.parse::<toml::Table>().unwrap());
    assert!(known.contains(&"http.listen".to_owned()) && known.contains(&"servers.url".to_owned()));
    for key in known {
        assert!(is_in(&table, &key), "{key} is not in the example");
    }
}

/// Whether the table has `a.b.c`; in a list, or below `*`, whether any entry has it.
fn is_in(table: &toml::Table, path: &str) -> bool {
    if let Some(path) = path.strip_prefix("*.") {
        let mut named = table.values().filter_map(toml::Value::as_table);
        return named.any(|table| is_in(table, path));
    }
    let (key, rest) = path
        .split_once('.')
        .map_or((path, None), |(key, rest)| (key, Some(rest)));
    match (table.get(key), rest) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(toml::Value::Array(list)), Some(rest)) => list
            .iter()
            .filter_map(toml::Value::as_table)
            .any(|entry| is_in(entry, rest)),
        (Some(value), Some(rest)) => value.as_table().is_some_and(|inner| is_in(inner, rest)),
    }
}
