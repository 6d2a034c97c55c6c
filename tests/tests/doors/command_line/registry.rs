//! `mgp servers search`, and `mgp servers add` of a name that a registry has: a recorded one, on loopback.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Output;
use std::thread;

use mgp_tests::harness::{DEADLINE, Program};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What a user has, and a registry that the user's file names.
struct Shop {
    home: TempDir,
    url: String,
}

/// A published server as the registry wraps it.
fn published(name: &str, what: &str, more: Value) -> Value {
    let mut server = json!({"name": name, "description": what, "version": "1.2.3"});
    for (key, value) in more.as_object().unwrap() {
        server[key] = value.clone();
    }
    let official = json!({"status": "active", "isLatest": true});
    json!({"server": server, "_meta": {"io.modelcontextprotocol.registry/official": official}})
}

/// What the registry has.
fn stock() -> Vec<Value> {
    let weather = json!({"packages": [
        {"registryType": "mcpb", "identifier": "https://h.test/x.mcpb", "transport": {"type": "stdio"}},
        {"registryType": "npm", "identifier": "@acme/weather", "version": "1.2.3", "transport": {"type": "stdio"},
         "packageArguments": [{"type": "named", "name": "--units", "isRequired": true, "choices": ["metric", "imperial"]}],
         "environmentVariables": [
            {"name": "WEATHER_KEY", "description": "From acme.test", "isRequired": true, "isSecret": true},
            {"name": "LEVEL", "isRequired": true, "default": "info"}]}]});
    let evil =
        json!({"packages": [{"registryType": "npm", "identifier": "--evil", "version": "1.2.3"}]});
    let docker = json!({"packages": [{"registryType": "oci", "identifier": "acme/box", "version": "2.0.0",
        "runtimeArguments": [{"type": "named", "name": "--network", "value": "host"}]}]});
    let remote = json!({"remotes": [{"type": "streamable-http", "url": "https://mcp.acme.test/mcp",
        "headers": [{"name": "X-Api-Key", "isRequired": true, "isSecret": true}]}]});
    vec![
        published(
            "io.github.acme/weather",
            "Weather\u{1b}[2J for\u{202e} everybody\nmgp: trusted",
            weather,
        ),
        published("io.github.acme/weather\u{1b}[2J", "weather", json!({})),
        published("io.github.\u{430}cme/weather", "weather", json!({})),
        published("io.github.evil/weather-tool", "weather", evil),
        published("io.github.acme/box", "A box", docker),
        published("test.acme.mcp/far", "Far away", remote),
    ]
}

/// Serves the stock by the interface of the registry, until the test ends.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let mut lines = BufReader::new(&stream).lines();
            let first = lines.next().unwrap().unwrap();
            while lines
                .next()
                .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
            {}
            let path = first.split(' ').nth(1).unwrap().to_owned();
            let (status, body) = answer(&path);
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = (&stream).write_all((head + &body).as_bytes());
        }
    });
    url
}

fn answer(path: &str) -> (&'static str, String) {
    let named = |server: &Value| server["server"]["name"].as_str().unwrap().to_owned();
    if let Some(query) = path.strip_prefix("/v0.1/servers?search=") {
        assert!(query.contains("&version=latest&limit="), "{query}");
        let word = query.split('&').next().unwrap();
        let mut found = stock();
        found.retain(|server| named(server).contains(word));
        let body = json!({"servers": found, "metadata": {"count": found.len()}});
        return ("200 OK", body.to_string());
    }
    let wanted = path.strip_prefix("/v0.1/servers/").unwrap();
    let (name, version) = wanted.split_once("/versions/").unwrap();
    let name = name.replace("%2F", "/");
    // One that answers for another.
    let name = name.replace("acme/posing", "acme/weather");
    let found = stock().into_iter().find(|server| named(server) == name);
    match found.filter(|_| ["latest", "1.2.3"].contains(&version)) {
        Some(found) => ("200 OK", found.to_string()),
        None => (
            "404 Not Found",
            r#"{"error":"Server not found"}"#.to_owned(),
        ),
    }
}

impl Shop {
    fn open() -> Self {
        let (home, url) = (TempDir::new().unwrap(), serve());
        fs::create_dir_all(home.path().join("config/mgp")).unwrap();
        let shop = Self { home, url };
        fs::write(
            shop.file(),
            format!("[registry]\nurl = \"{}/\"\n", shop.url),
        )
        .unwrap();
        shop
    }

    fn file(&self) -> std::path::PathBuf {
        self.home.path().join("config/mgp/servers.toml")
    }

    fn written(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    async fn mgp(&self, args: &[&str]) -> Output {
        let within = |name: &str| self.home.path().join(name).display().to_string();
        let program = Program::ours("mgp", args.iter().copied())
            .env("HOME", within("home"))
            .env("XDG_CONFIG_HOME", within("config"))
            .env("XDG_RUNTIME_DIR", within("run"))
            .env("MGP_DATA_DIR", within("data"))
            .env("MGP_SOCKET", within("mgp.sock"))
            .env("MGP_CONFIG_PATH", "")
            // Of the person's own: never handed to a server that only asks for it.
            .env("WEATHER_KEY", "s3cret-of-the-shell");
        program.output(DEADLINE).await
    }

    async fn said(&self, args: &[&str]) -> String {
        let output = self.mgp(args).await;
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn refused(&self, args: &[&str], code: i32) -> String {
        let output = self.mgp(args).await;
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

/// What is found is shown plainly: nothing of it moves the cursor, and names that pose as others are not
/// among it.
#[tokio::test]
async fn search_results_are_sanitized_for_a_terminal() {
    let shop = Shop::open();
    let output = shop.mgp(&["servers", "search", "weather"]).await;
    let (said, noted) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    let row = said
        .lines()
        .find(|line| line.starts_with("io.github.acme/weather "))
        .unwrap();
    assert!(row.contains("1.2.3") && row.contains("npm"), "{said}");
    assert!(!said.contains(['\u{1b}', '\u{202e}', '\u{430}']), "{said}");
    assert!(!said.contains("mgp: trusted"), "{said}");
    assert!(noted.contains("2 with names that are none"), "{noted}");
    let listed = shop.said(&["servers", "search", "weather", "--json"]).await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let names: Vec<_> = listed["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["name"])
        .collect();
    assert_eq!(
        names,
        ["io.github.acme/weather", "io.github.evil/weather-tool"]
    );
    let nothing = shop.said(&["servers", "search", "weather", "nosuch"]).await;
    assert!(nothing.contains("has nothing with"), "{nothing}");
}

/// A package becomes an entry of just its version; what it needs is named where nobody can be asked, a
/// secret never comes out of the shell, and nothing is written without a yes.
#[tokio::test]
async fn a_package_is_added_in_its_version_after_a_yes() {
    let shop = Shop::open();
    let before = shop.written();
    let weather = ["servers", "add", "io.github.acme/weather", "--no-autostart"];
    let told = shop.refused(&weather, 2).await;
    assert!(told.contains("--set --units=…"), "{told}");
    let with_units = [&weather[..], &["--set", "--units=metric"]].concat();
    let told = shop.refused(&with_units, 2).await;
    assert!(told.contains("needs a secret for WEATHER_KEY"), "{told}");
    let with_key = [
        &with_units[..],
        &["--env", "WEATHER_KEY=secret:weather/key"],
    ]
    .concat();
    let told = shop.refused(&with_key, 2).await;
    assert!(told.contains("--yes"), "{told}");
    let wrong = [&weather[..], &["--set", "--units=yards"]].concat();
    let told = shop.refused(&wrong, 2).await;
    assert!(told.contains("one of metric, imperial"), "{told}");
    let misspelt = [&weather[..], &["--set", "--unit=metric"]].concat();
    let told = shop.refused(&misspelt, 2).await;
    assert!(told.contains("did you mean --units?"), "{told}");
    let open = [&weather[..], &["--set", "WEATHER_KEY=abc"]].concat();
    let told = shop.refused(&open, 2).await;
    assert!(
        told.contains("every user of this machine") && !told.contains("abc"),
        "{told}"
    );
    assert_eq!(shop.written(), before);

    let shown = shop.said(&[&with_key[..], &["--dry-run"]].concat()).await;
    for part in [
        "published by  who holds the account acme at GitHub",
        "starts        npx -y @acme/weather@1.2.3 --units metric",
        "with          LEVEL=info",
        "with          WEATHER_KEY out of the secrets",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
    assert_eq!(shop.written(), before);

    shop.said(&[&with_key[..], &["--yes"]].concat()).await;
    let written = shop.written();
    for part in [
        "id = \"weather\"",
        "args = [\"-y\", \"@acme/weather@1.2.3\", \"--units\", \"metric\"]",
        "WEATHER_KEY = \"secret:weather/key\"",
        "LEVEL = \"info\"",
    ] {
        assert!(written.contains(part), "{part}: {written}");
    }
    assert!(!written.contains("s3cret-of-the-shell"), "{written}");
    let again = shop.refused(&[&with_key[..], &["--yes"]].concat(), 1).await;
    assert!(again.contains("already a server `weather`"), "{again}");
}

/// What docker itself is told is shown as what it is; a remote server's header is a secret.
#[tokio::test]
async fn images_and_remote_servers_are_entries_too() {
    let shop = Shop::open();
    let container = [
        "servers",
        "add",
        "io.github.acme/box",
        "--no-autostart",
        "--yes",
    ];
    let shown = shop.said(&container).await;
    assert!(
        shown.contains("CAREFUL       docker itself is told --network host"),
        "{shown}"
    );
    assert!(
        shop.written().contains("\"acme/box:2.0.0\""),
        "{}",
        shop.written()
    );
    let far = [
        "servers",
        "add",
        "test.acme.mcp/far",
        "--as",
        "afar",
        "--no-autostart",
        "--yes",
    ];
    let told = shop.refused(&far, 2).await;
    assert!(told.contains("needs a secret for X-Api-Key"), "{told}");
    shop.said(&[&far[..], &["--header", "X-Api-Key=secret:far"]].concat())
        .await;
    let written = shop.written();
    assert!(
        written.contains("id = \"afar\"") && written.contains("https://mcp.acme.test/mcp"),
        "{written}"
    );
    assert!(written.contains("X-Api-Key = \"secret:far\""), "{written}");
}

/// What poses as a package or as another server is refused; a misspelt name is told what was meant.
#[tokio::test]
async fn invalid_or_unknown_package_is_rejected() {
    let shop = Shop::open();
    let before = shop.written();
    for (args, code, told) in [
        (
            &["io.github.evil/weather-tool"][..],
            2,
            "no name of a package",
        ),
        (
            &["io.github.acme/posing"],
            1,
            "answered io.github.acme/weather",
        ),
        (&["io.github.acme/wether"], 2, "`mgp servers search WORDS`"),
        (
            &["io.github.acm/weather"],
            2,
            "did you mean io.github.acme/weather?",
        ),
        (
            &["io.github.acme/weather", "--package", "pypi"],
            2,
            "not published as pypi",
        ),
        (
            &["io.github.acme/weather", "--release", "9.9.9"],
            2,
            "has no io.github.acme/weather 9.9.9",
        ),
        (&["io.github.acme/$(x)"], 2, "no name of a registry"),
        (&["weather"], 2, "`mgp servers search weather`"),
        (
            &["io.github.acme/box", "--registry", "http://h.test"],
            2,
            "wants https://",
        ),
    ] {
        let args = [&["servers", "add"][..], args, &["--yes"]].concat();
        let args: Vec<&str> = if args.contains(&"weather") {
            args[..3].to_vec()
        } else {
            args
        };
        let said = shop.refused(&args, code).await;
        assert!(said.contains(told), "{args:?}: {said}");
    }
    assert_eq!(shop.written(), before);
}
