//! The files of all clients as they are documented: taken over, connected, changed by their clients, and given back.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use mgp_tests::harness::{Account, DEADLINE};
use serde_json::{Value, json};

/// What opens no port, and starts nothing: no kernel runs here.
const QUIET: &str =
    "[http]\nenabled = false\n[discovery]\nembedding = \"off\"\nexposure = \"all\"\n";
const KEY: &str = "0123456789abcdef-of-docs";

/// A file of a client.
struct ClientFixture {
    client: &'static str,
    path: &'static str,
    /// Where its servers are.
    table: &'static str,
    /// The servers that are taken over, by their names there.
    servers: &'static [&'static str],
    text: &'static str,
}

const CLIENTS: [ClientFixture; 16] = [
    ClientFixture {
        client: "claude-desktop",
        path: ".config/Claude/claude_desktop_config.json",
        table: "mcpServers",
        servers: &["memory", "shared"],
        text: "{\n  \"globalShortcut\": \"\",\n  \"mcpServers\": {\n    \"memory\": {\n      \"command\": \"npx\",\n      \"args\": [\"-y\", \"memory\"],\n      \"env\": { \"ACCOUNT\": \"one\" }\n    },\n    \"shared\": { \"command\": \"shared\" }\n  }\n}",
    },
    ClientFixture {
        client: "claude-code",
        path: ".claude.json",
        table: "mcpServers",
        servers: &["memory"],
        text: "{\"numStartups\": 7, \"mcpServers\": {\"memory\": {\"type\": \"stdio\", \"command\": \"npx\", \"args\": [\"-y\", \"memory\"], \"env\": {\"ACCOUNT\": \"two\"}}}, \"projects\": {\"/home/me/proj\": {\"history\": [], \"mcpServers\": {\"db\": {\"type\": \"stdio\", \"command\": \"./db.sh\"}}}}}\n",
    },
    ClientFixture {
        client: "cursor",
        path: ".cursor/mcp.json",
        table: "mcpServers",
        servers: &["docs", "shared"],
        text: "{\r\n  // mine\r\n  \"mcpServers\": {\r\n    \"docs\": { \"url\": \"https://docs.test/mcp?api_key=0123456789abcdef-of-docs\" },\r\n    \"shared\": { \"command\": \"shared\" }\r\n  }\r\n}\r\n",
    },
    ClientFixture {
        client: "vscode",
        path: ".config/Code/User/mcp.json",
        table: "servers",
        servers: &["weather"],
        text: "{\n\t\"inputs\": [\n\t\t{ \"type\": \"promptString\", \"id\": \"key\", \"description\": \"API key\", \"password\": true }\n\t],\n\t\"servers\": {\n\t\t\"weather\": { \"type\": \"stdio\", \"command\": \"weather\", \"env\": { \"HOME_OF\": \"${userHome}\" } },\n\t\t\"asks\": { \"type\": \"stdio\", \"command\": \"asks\", \"env\": { \"KEY\": \"${input:key}\" } }, // stays\n\t}\n}\n",
    },
    ClientFixture {
        client: "windsurf",
        path: ".codeium/windsurf/mcp_config.json",
        table: "mcpServers",
        servers: &["files"],
        text: "{\"mcpServers\": {\"files\": {\"command\": \"files\", \"disabledTools\": [\"drop\"]}}}",
    },
    ClientFixture {
        client: "zed",
        path: ".config/zed/settings.json",
        table: "context_servers",
        servers: &["postgres"],
        text: "// Zed settings\n{\n  \"theme\": \"One Dark\",\n  \"context_servers\": {\n    \"postgres\": {\n      \"source\": \"custom\",\n      \"command\": \"postgres-mcp\",\n      \"args\": [], // none\n      \"env\": {}\n    },\n  },\n}\n",
    },
    ClientFixture {
        client: "codex",
        path: ".codex/config.toml",
        table: "mcp_servers",
        servers: &["a"],
        text: "model = \"o\" # mine\n\n[mcp_servers.a] # first\ncommand = \"codex-a\"\nenabled_tools = [\"read\"]\n\n[mcp_servers.a.env]\nLEVEL = \"5\"\n\n[tui]\nnotifications = true\n",
    },
    ClientFixture {
        client: "gemini",
        path: ".gemini/settings.json",
        table: "mcpServers",
        servers: &["g", "off"],
        text: "{\n  \"mcp\": { \"allowed\": [\"g\", \"mgp\"] },\n  \"mcpServers\": {\n    \"g\": { \"command\": \"gemini-g\", \"includeTools\": [\"read\"], \"excludeTools\": [\"write\"], \"trust\": true },\n    \"off\": { \"command\": \"gemini-off\" }\n  }\n}\n",
    },
    ClientFixture {
        client: "opencode",
        path: ".config/opencode/opencode.json",
        table: "mcp",
        servers: &["oc"],
        text: "{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  \"mcp\": {\n    \"oc\": { \"type\": \"local\", \"command\": [\"oc\", \"-v\"], \"environment\": { \"A\": \"{env:HOME}\" } }\n  }\n}\n",
    },
    ClientFixture {
        client: "goose",
        path: ".config/goose/config.yaml",
        table: "extensions",
        servers: &["db"],
        text: "GOOSE_MODEL: x # mine\nextensions:\n  developer:\n    type: builtin\n    enabled: true\n  # the one for data\n  db:\n    type: stdio\n    cmd: goose-db\n    args: [-v]\n    enabled: true\nkeyring: true\n",
    },
    ClientFixture {
        client: "lmstudio",
        path: ".lmstudio/mcp.json",
        table: "mcpServers",
        servers: &["lm"],
        text: "{\n  \"mcpServers\": {\n    \"lm\": { \"command\": \"lm\" }\n  }\n}",
    },
    ClientFixture {
        client: "cline",
        path: ".cline/data/settings/cline_mcp_settings.json",
        table: "mcpServers",
        servers: &["cl"],
        text: "{\n  \"mcpServers\": {\n    \"cl\": {\n      \"command\": \"cl\",\n      \"autoApprove\": [\"read\"],\n      \"timeout\": 60\n    }\n  }\n}\n",
    },
    ClientFixture {
        client: "copilot",
        path: ".copilot/mcp-config.json",
        table: "mcpServers",
        servers: &["co"],
        text: "{\n  \"mcpServers\": {\n    \"co\": { \"type\": \"local\", \"command\": \"co\", \"args\": [], \"tools\": [\"*\"] }\n  }\n}\n",
    },
    ClientFixture {
        client: "antigravity",
        path: ".gemini/config/mcp_config.json",
        table: "mcpServers",
        servers: &["an"],
        text: "{\n  \"mcpServers\": {\n    \"an\": { \"serverUrl\": \"https://an.test/mcp\", \"headers\": { \"X-Team\": \"1\" } }\n  }\n}\n",
    },
    ClientFixture {
        client: "roo",
        path: ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
        table: "mcpServers",
        servers: &["ro"],
        text: "{\n  \"mcpServers\": {\n    \"ro\": { \"command\": \"ro\", \"args\": [\"${env:HOME}\"], \"alwaysAllow\": [\"read\"], \"disabledTools\": [\"drop\"] }\n  }\n}\n",
    },
    ClientFixture {
        client: "continue",
        path: ".continue/config.yaml",
        table: "mcpServers",
        servers: &["co fs"],
        text: "name: mine\nversion: 1.0.0\nschema: v1\nmcpServers:\n  # files\n  - name: co fs\n    command: co-fs\n    args:\n      - -y\n    env:\n      TOKEN: ${{ secrets.FS_TOKEN }}\nmodels: []\n",
    },
];

struct User(Account);

impl User {
    async fn new() -> Option<Self> {
        let user = Self(Account::new(QUIET).await?);
        for fixture in &CLIENTS {
            user.0.file(&format!("home/{}", fixture.path), fixture.text);
        }
        Some(user)
    }

    async fn run(&self, args: &[&str]) -> String {
        let home = self.0.home_only();
        let variables: Vec<(&str, &Path)> = home.iter().map(|(n, v)| (*n, v.as_path())).collect();
        let output = self.0.mgp(args, &variables).output(DEADLINE).await;
        let said = [&*output.stdout, &*output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert!(output.status.success(), "{args:?}: {said}");
        assert!(!said.contains(KEY), "{said}");
        said
    }

    fn text(&self, fixture: &ClientFixture) -> String {
        fs::read_to_string(self.0.at(&format!("home/{}", fixture.path))).unwrap()
    }

    fn copies(&self, fixture: &ClientFixture) -> [bool; 2] {
        let is_there = |end| self.0.at(&format!("home/{}{end}", fixture.path)).exists();
        [".before-mgp", ".mgp-undo"].map(is_there)
    }
}

impl ClientFixture {
    fn is_json(&self) -> bool {
        self.text.contains('{') && !self.path.ends_with("toml") && !self.path.ends_with("yaml")
    }

    /// What its client writes over what is there: anew, without remarks, and with something of its own.
    fn rewritten(&self, now: &str) -> String {
        if self.path.ends_with("toml") {
            return format!("{now}\n[added]\nby = \"client\"\n");
        }
        if self.path.ends_with("yaml") {
            return format!("{now}added: by client\n");
        }
        let mut document = read(now);
        document["added"] = json!({"by": "client"});
        document[self.table]["new"] = json!({"command": "new"});
        serde_json::to_string_pretty(&document).unwrap()
    }
}

/// JSON as these files have it: remarks stand alone or at the end of a line, and addresses are no remarks.
fn read(text: &str) -> Value {
    let lines = text.lines().map(|line| match line.split_once("// ") {
        Some((before, _)) => before,
        None => line,
    });
    let mut text: String = lines.collect::<Vec<_>>().join(" ");
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    text = squeezed(&text).replace(", }", " }").replace(",}", "}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn names(text: &str, table: &str) -> BTreeSet<String> {
    let document = read(text);
    let entries = document[table].as_object().into_iter().flatten();
    entries.map(|(name, _)| name.clone()).collect()
}

/// What each client had is here afterwards, whatever it is called and whoever has one like it.
async fn import(user: &User) {
    let said = user.run(&["import", "--yes"]).await;
    let toml = fs::read_to_string(user.0.at("home/.config/mgp/servers.toml")).unwrap();
    assert!(!toml.contains(KEY), "{toml}");
    for line in [
        "id = \"memory\"",
        "id = \"memory-claude-code\"",
        "ACCOUNT = \"one\"",
        "ACCOUNT = \"two\"",
        "command = \"/home/me/proj/db.sh\"",
        "cwd = \"/home/me/proj\"",
        "api_key=${secret:docs/url.api_key}",
        "[servers.tools.drop]",
        "[servers.tools.write]",
        "only_tools = [\"read\"]",
        "TOKEN = \"${FS_TOKEN}\"",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }
    for line in [
        "shared: the same in shared (Claude Desktop) and shared (Cursor)",
        "files: hidden from all agents: drop (`disabledTools`)",
        "off: `mcp.allowed` switches it off there",
        "cl: `autoApprove` is not taken over",
        "left out: asks (VS Code): nobody said what ${input:key} is",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let again = user.run(&["import", "--yes"]).await;
    assert!(
        again.contains("it is here already, as memory-claude-code"),
        "{again}"
    );
}

async fn connect(user: &User) {
    let said = user.run(&["connect", "--all", "--take-out", "--yes"]).await;
    assert!(
        said.contains("ro: `alwaysAllow` is not carried over"),
        "{said}"
    );
    for fixture in &CLIENTS {
        let text = user.text(fixture);
        assert!(text.contains("mgp"), "{}: {text}", fixture.client);
        assert_eq!(user.copies(fixture), [true, true], "{}", fixture.client);
        if fixture.is_json() {
            let left = names(&text, fixture.table);
            for server in fixture.servers {
                assert!(!left.contains(*server), "{}: {text}", fixture.client);
            }
        }
    }
    assert!(user.text(&CLIENTS[3]).contains("asks"));
    assert!(!user.text(&CLIENTS[1]).contains("db.sh"));
}

/// Import, connect, take out, undo: to the byte where no client wrote, to the merge where each did.
#[tokio::test]
async fn every_client_file_is_restored_by_disconnect() {
    let Some(user) = User::new().await else {
        return;
    };
    import(&user).await;
    connect(&user).await;
    let said = user.run(&["connect", "--all", "--undo", "--yes"]).await;
    for fixture in &CLIENTS {
        assert_eq!(user.text(fixture), fixture.text, "{}", fixture.client);
        assert_eq!(user.copies(fixture), [false, false], "{}", fixture.client);
    }
    let exact = said.matches("is as it was before").count();
    assert_eq!(exact, CLIENTS.len(), "{said}");

    connect(&user).await;
    for fixture in &CLIENTS {
        let text = fixture.rewritten(&user.text(fixture));
        user.0.file(&format!("home/{}", fixture.path), &text);
    }
    let said = user.run(&["connect", "--all", "--undo", "--yes"]).await;
    assert!(!said.contains("is as it was before"), "{said}");
    for fixture in &CLIENTS {
        let text = user.text(fixture);
        assert!(text.contains("added"), "{}: {text}", fixture.client);
        if fixture.is_json() {
            let mut wanted = names(fixture.text, fixture.table);
            wanted.insert("new".to_owned());
            assert_eq!(names(&text, fixture.table), wanted, "{}", fixture.client);
            let (before, after) = (read(fixture.text), read(&text));
            for server in fixture.servers {
                let entry = |document: &Value| document[fixture.table][*server].clone();
                assert_eq!(entry(&before), entry(&after), "{}", fixture.client);
            }
        } else {
            for server in fixture.servers {
                assert!(text.contains(server) && !text.contains("mgp"), "{text}");
            }
        }
        // Where remarks stood in what was taken out, the copy is the only one that has them.
        let has_remarks = [fixture.text.contains("// "), fixture.text.contains("# ")];
        if has_remarks == [false, false] {
            assert_eq!(user.copies(fixture), [false, false], "{}", fixture.client);
        }
    }
    assert!(user.text(&CLIENTS[1]).contains("db.sh"));
}

/// A restriction that came after the import becomes a rule before the entry goes.
#[tokio::test]
async fn restrictions_become_rules_before_servers_are_taken_out() {
    let Some(user) = User::new().await else {
        return;
    };
    user.run(&["import", "windsurf", "--yes"]).await;
    let fixture = &CLIENTS[4];
    let text = fixture.text.replace("\"drop\"", "\"drop\", \"move\"");
    user.0.file(&format!("home/{}", fixture.path), &text);
    let shown = user
        .run(&["connect", "windsurf", "--take-out", "--dry-run"])
        .await;
    assert!(shown.contains("becomes a rule in"), "{shown}");
    assert!(shown.contains("move hidden"), "{shown}");
    user.run(&["connect", "windsurf", "--take-out", "--yes"])
        .await;
    let toml = fs::read_to_string(user.0.at("home/.config/mgp/servers.toml")).unwrap();
    assert!(toml.contains("[servers.tools.move]"), "{toml}");
    assert!(!user.text(fixture).contains("drop"));
}
