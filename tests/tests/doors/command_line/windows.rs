//! Clients of Windows, with the kernel in WSL: programs of Windows and its drives are played by scripts and folders.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use mgp_tests::harness::{Account, DEADLINE};
use serde_json::{Value, json};

const QUIET: &str = "[http]\nenabled = false\n[discovery]\nembedding = \"off\"\n";
const DESKTOP: &str = "mnt/c/Users/Ada/AppData/Roaming/Claude/claude_desktop_config.json";
const CURSOR: &str = "mnt/c/Users/Ada/.cursor/mcp.json";

/// A user with a home in WSL and one on a drive of Windows.
struct User(Account);

impl User {
    async fn new() -> Option<Self> {
        let account = Account::new(QUIET).await?;
        // It prints a line as Windows ends them.
        let folders = r"C:\Users\Ada?C:\Users\Ada\AppData\Roaming";
        let echo = format!("#!/bin/sh\n[ \"$3\" = echo ] && printf '%s\\r\\n' '{folders}'\n");
        let root = account.at("mnt/c").display().to_string();
        for (name, text) in [
            ("bin/cmd.exe", echo),
            ("bin/wslpath", format!("#!/bin/sh\necho '{root}/'\n")),
        ] {
            account.file(name, &text);
            fs::set_permissions(account.at(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        Some(Self(account))
    }

    async fn run(&self, args: &[&str], is_wsl: bool) -> String {
        let home = self.0.home();
        let path = format!("{}:/usr/bin:/bin", self.0.at("bin").display());
        let mut variables = vec![("HOME", home), ("PATH", PathBuf::from(path))];
        if is_wsl {
            variables.push(("WSL_DISTRO_NAME", "Ubuntu".into()));
        }
        let variables: Vec<(&str, &Path)> = variables
            .iter()
            .map(|(name, value)| (*name, value.as_path()))
            .collect();
        let output = self.0.mgp(args, &variables).output(DEADLINE).await;
        let said = String::from_utf8([&*output.stdout, &*output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{args:?}: {said}");
        said
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.at(name)).unwrap()
    }
}

/// PRJ-030: servers of Windows' clients are imported as this system starts them.
#[tokio::test]
async fn servers_of_windows_clients_are_imported() {
    let Some(user) = User::new().await else {
        return;
    };
    let servers = json!({"mcpServers": {
        "files": {"command": "npx.cmd", "args": ["-y", "files", r"C:\Users\Ada\notes"]},
        "shell": {"command": "cmd", "args": ["/c", "uvx", "git"], "env": {"REPO": r"D:\src"}},
        "native": {"command": r"C:\Tools\native.exe", "args": [r"C:\data"], "env": {"MODE": "fast"}},
        "mine": {"command": "wsl.exe", "args": ["-d", "Ubuntu", "--", "/usr/bin/mgp", "stdio"]},
    }});
    user.0.file(DESKTOP, &servers.to_string());
    let said = user.run(&["import", "--yes"], true).await;
    let toml = user.read("home/.config/mgp/servers.toml");
    let drives = user.0.at("mnt").display().to_string();
    for line in [
        "command = \"npx\"".to_owned(),
        format!("args = [\"-y\", \"files\", \"{drives}/c/Users/Ada/notes\"]"),
        "command = \"uvx\"".into(),
        format!("REPO = \"{drives}/d/src\""),
        format!("command = \"{drives}/c/Tools/native.exe\""),
        r"args = ['C:\data']".into(),
        "WSLENV = \"MODE\"".into(),
    ] {
        assert!(toml.contains(&line), "{line}: {toml}\n{said}");
    }
    assert!(
        !toml.contains("stdio\""),
        "this kernel is no server of its own: {toml}"
    );
    // Elsewhere nothing of it is looked for.
    let said = user.run(&["import", "--dry-run"], false).await;
    assert!(!said.contains("Claude Desktop"), "{said}");
}

/// PRJ-031: a client of Windows starts this kernel through WSL, and gets its file back.
#[tokio::test]
async fn windows_clients_are_connected_through_wsl() {
    let Some(user) = User::new().await else {
        return;
    };
    let before = "{\r\n  \"mcpServers\": {}\r\n}\r\n";
    user.0.file(CURSOR, before);
    user.run(&["connect", "cursor", "--yes"], true).await;
    let after = user.read(CURSOR);
    let entry = serde_json::from_str::<Value>(&after).unwrap()["mcpServers"]["mgp"].clone();
    assert_eq!(entry["command"], "wsl.exe", "{after}");
    let args: Vec<&str> = entry["args"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(Value::as_str)
        .collect();
    assert_eq!(args[..3], ["-d", "Ubuntu", "--exec"], "{after}");
    assert!(args[3].ends_with("/mgp") && args[4] == "stdio", "{after}");
    assert!(after.contains("\r\n"), "its line ends stay");
    let again = user.run(&["connect", "cursor", "--yes"], true).await;
    assert!(again.contains("is connected already"), "{again}");
    user.run(&["connect", "cursor", "--undo", "--yes"], true)
        .await;
    assert_eq!(user.read(CURSOR), before);
    // A file of this system comes first.
    user.0.file("home/.cursor/mcp.json", "{}");
    user.run(&["connect", "cursor", "--yes"], true).await;
    assert!(!user.read("home/.cursor/mcp.json").contains("wsl.exe"));
}
