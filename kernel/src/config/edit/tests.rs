use std::fs::Permissions;

use super::*;

const FILE: &str = r#"# My servers.

[http]
listen = "127.0.0.1:7332" # the usual

# Looks things up.
[[servers]]
id = "alpha"
command = "alpha"   # from the repository

[servers.env]
KEY = "${KEY}"

# General remark.

# Does sums.
[[servers]]
id = "beta"
command = "beta"

# The end.
"#;

fn gamma() -> NewServer {
    NewServer {
        id: "gamma".into(),
        command: vec!["npx".into(), "-y".into(), "a \"b\"".into()],
        env: vec![("TOKEN".into(), "${TOKEN}".into())],
        trust_level: Some("trusted".into()),
        ..NewServer::default()
    }
}

#[test]
fn an_added_entry_is_last_and_nothing_else_moves() {
    let edited = add_entry(FILE, &gamma()).unwrap();
    let added = r#"
[[servers]]
id = "gamma"
command = "npx"
args = ["-y", 'a "b"']

[servers.mgp]
trust_level = "trusted"

[servers.env]
TOKEN = "${TOKEN}"
"#;
    assert_eq!(edited, format!("{FILE}{added}"));
    assert_eq!(remove_entry(&edited, "gamma").unwrap(), FILE);
}

#[test]
fn an_entry_is_removed_with_its_own_comment_only() {
    let edited = remove_entry(FILE, "beta").unwrap();
    assert!(
        !edited.contains("beta") && !edited.contains("Does sums"),
        "{edited}"
    );
    for kept in [
        "# My servers.",
        "# General remark.",
        "# The end.",
        "# the usual",
        "KEY",
    ] {
        assert!(edited.contains(kept), "{kept} is gone from {edited}");
    }
    let edited = remove_entry(FILE, "alpha").unwrap();
    assert!(
        !edited.contains("Looks things up") && !edited.contains("KEY"),
        "{edited}"
    );
    assert!(
        edited.contains("[http]") && edited.contains("beta"),
        "{edited}"
    );
}

#[test]
fn removing_the_first_entry_keeps_the_head_of_the_file() {
    let file = "# Head.\n\n# a\n[[servers]]\nid = \"a\"\n\n# b\n[[servers]]\nid = \"b\"\n";
    assert_eq!(
        remove_entry(file, "a").unwrap(),
        "# Head.\n\n# b\n[[servers]]\nid = \"b\"\n"
    );
    let one = "# Head.\n\n[[servers]]\nid = \"a\"\n";
    assert_eq!(remove_entry(one, "a").unwrap(), "# Head.\n");
}

#[test]
fn ids_are_added_once_and_removed_once() {
    let beta = NewServer {
        id: "beta".into(),
        ..gamma()
    };
    assert!(matches!(add_entry(FILE, &beta), Err(EditError::DuplicateId(id)) if id == "beta"));
    assert!(matches!(remove_entry(FILE, "delta"), Err(EditError::UnknownId(id)) if id == "delta"));
    assert!(matches!(
        add_entry("servers = 1", &gamma()),
        Err(EditError::UnsupportedForm)
    ));
    assert!(matches!(
        add_entry("a = 1\nb =", &gamma()),
        Err(EditError::NotToml { line: 2, .. })
    ));
}

#[test]
fn an_entry_is_added_to_an_empty_file() {
    let remote = NewServer {
        id: "docs".into(),
        url: Some("https://example.org/mcp".into()),
        headers: vec![("Authorization".into(), "Bearer ${DOCS}".into())],
        ..NewServer::default()
    };
    let want = "[[servers]]\nid = \"docs\"\ntransport = \"http\"\n\
                url = \"https://example.org/mcp\"\n\n[servers.headers]\n\
                Authorization = \"Bearer ${DOCS}\"\n";
    assert_eq!(add_entry("", &remote).unwrap(), want);
    let lite = NewServer {
        transport: Some("lite".into()),
        ..remote
    };
    let want = want.replace("\"http\"", "\"lite\"");
    assert_eq!(add_entry("", &lite).unwrap(), want);
}

#[test]
fn a_file_keeps_its_mode_and_a_new_one_is_private() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let (new, link) = (
        folder.path().join("deep/new.toml"),
        folder.path().join("link.toml"),
    );
    write_file(&new, "a = 1\n").unwrap();
    assert_eq!(mode(&new), 0o600);
    fs::set_permissions(&new, Permissions::from_mode(0o644)).unwrap();
    std::os::unix::fs::symlink(&new, &link).unwrap();
    write_file(&link, "a = 2\n").unwrap();
    assert_eq!(mode(&new), 0o644);
    assert_eq!(fs::read_to_string(&new).unwrap(), "a = 2\n");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

/// One argument changes, and nothing around it.
#[test]
fn an_argument_is_changed_in_place() {
    let text = "# mine\n[[servers]]\nid = \"db\" # the one\ncommand = \"npx\"\nargs = [\n  \"-y\",\n  \"db@1.2.3\", # pinned\n]\n\n[[servers]]\nid = \"docs\"\nurl = \"https://h\"\n";
    let (command, args) = read_command(text, "db").unwrap().unwrap();
    assert_eq!(
        (&*command, args),
        ("npx", vec!["-y".to_owned(), "db@1.2.3".to_owned()])
    );
    assert_eq!(
        set_argument(text, "db", 1, "db@2.0.0").unwrap(),
        text.replace("db@1.2.3", "db@2.0.0")
    );
    assert_eq!(super::read_command(text, "docs").unwrap(), None);
    assert!(matches!(
        super::read_command(text, "d"),
        Err(EditError::UnknownId(_))
    ));
    assert!(matches!(
        set_argument(text, "db", 2, "x"),
        Err(EditError::UnsupportedForm)
    ));
    assert_eq!(ids(text), ["db", "docs"]);
}

#[test]
fn tools_disabled_by_a_client_are_disabled_by_the_entry() {
    let tools = mgp_clients::ToolLimits {
        only: Some(["read", "drop"].map(str::to_owned).into()),
        hidden: ["drop".to_owned()].into(),
        ..mgp_clients::ToolLimits::default()
    };
    let limits = "only_tools = [\"drop\", \"read\"]\n\n[servers.tools.drop]\nhidden = true\n";
    let edited = set_tool_limits(FILE, "beta", &tools).unwrap();
    let (before, behind) = FILE.split_once("\n# The end.").unwrap();
    assert_eq!(edited, format!("{before}{limits}\n# The end.{behind}"));
    assert_eq!(set_tool_limits(&edited, "beta", &tools).unwrap(), edited);
    let server = NewServer { tools, ..gamma() };
    assert!(add_entry("", &server).unwrap().ends_with(&format!(
        "\n{}",
        &limits[limits.find("\n\n").unwrap() + 2..]
    )));
}

/// Windows line endings.
#[test]
fn line_endings_of_the_file_are_preserved() {
    let windows = FILE.replace('\n', "\r\n");
    let is_windows = |text: &str| !text.replace("\r\n", "").contains('\n');
    let added = add_entry(&windows, &gamma()).unwrap();
    assert!(is_windows(&added) && added.starts_with(windows.trim_end()));
    let tools = ToolLimits {
        hidden: ["drop".to_owned()].into(),
        ..ToolLimits::default()
    };
    assert!(is_windows(
        &set_tool_limits(&windows, "alpha", &tools).unwrap()
    ));
    assert!(is_windows(&remove_entry(&added, "alpha").unwrap()));
    let mixed = format!("{windows}# last\n");
    assert!(
        add_entry(&mixed, &gamma())
            .unwrap()
            .starts_with(mixed.trim_end())
    );
}

/// The target of a link may be created later.
#[test]
fn dangling_links_are_written_through() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("servers.toml");
    std::os::unix::fs::symlink("dots.toml", &link).unwrap();
    write_file(&link, FILE).unwrap();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(
        fs::read_to_string(folder.path().join("dots.toml")).unwrap(),
        FILE
    );
}
