//! Third-party servers and clients, installed once per set of lock files into the user's cache.

mod client_programs;
mod openapi_programs;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use self::client_programs::ClientPrograms;
pub use self::openapi_programs::OpenApiPrograms;
use super::Program;

/// What a test needs beyond this workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Node with the packages of `peers/package-lock.json` and of `peers/modern/package-lock.json`.
    Node,
    /// Python with the packages of `peers/requirements.txt` and of `peers/modern/requirements.txt`.
    Python,
    /// The Go toolchain of this machine, or that of `peers/go/requirements.txt`, and the server made
    /// with it.
    Go,
    /// Python with the packages of `peers/hostile/requirements.txt`, for nodes that keep to no rule.
    Hostile,
    /// Node with the packages of `peers/provider/package-lock.json`, for logins.
    Provider,
    /// Node with the packages of `peers/apps/package-lock.json`, for MCP Apps.
    Apps,
    /// Node with the packages of `peers/skills/package-lock.json`, for a server and a client of skills.
    Skills,
    /// Python with the packages of `peers/authlib/requirements.txt`, for logins at another provider.
    Authlib,
    /// Python with the packages of `peers/collector/requirements.txt`, for what collectors of OpenTelemetry are told.
    Collector,
    /// Chromium and its driver, which are only found, with the packages of `peers/browser/package-lock.json`.
    Browser,
    /// git, which is not installed but only found.
    Git,
}

/// The least Node and npm the packages install with; for those that want 22 one is brought along.
const NODE: u32 = 20;
/// The Node that the official suite and the inspector want.
const NODE_WANTED: u32 = 22;
/// The least minor version of Python 3 that the pinned packages exist for.
const PYTHON_MINOR: u32 = 11;

/// The folder of the SDKs that speak the version without `initialize`, of its lock files and of its
/// packages: Python holds only one version of a package in a place.
const MODERN: &str = "modern";

/// Where tests find the newest SDKs of Python instead of the pinned ones, when `mgp-peers --newest` installed them.
const NEWEST_SDKS: &str = "MGP_NEWEST_SDKS";

/// The two lines of that SDK, as pip is asked for them: the last one before 2.0, and the last one of all.
const SDK_LINES: [&str; 2] = ["mcp<2", "mcp"];

/// The files that say what is installed.
const LOCKS: [&str; 5] = [
    "package-lock.json",
    "node/package-lock.json",
    "requirements.txt",
    "modern/package-lock.json",
    "modern/requirements.txt",
];

/// The folder of the server written in Go, what it is made of, and what is made of it.
const GO: &str = "go";
const GO_SOURCES: [&str; 3] = ["go/go.mod", "go/main.go", "go/requirements.txt"];
const GO_SERVER: &str = "folding";

/// The folder of the authorization server, and what it needs.
const PROVIDER: &str = "provider";
const PROVIDER_LOCKS: [&str; 1] = ["provider/package-lock.json"];

/// The folder of the servers of MCP Apps, and what they need.
const APPS: &str = "apps";
const APPS_LOCKS: [&str; 1] = ["apps/package-lock.json"];

/// The folder of the server and the client of skills, and what they need.
const SKILLS: &str = "skills";
const SKILLS_LOCKS: [&str; 1] = ["skills/package-lock.json"];

/// The folder of the other authorization server, and what it needs.
const AUTHLIB: &str = "authlib";
const AUTHLIB_LOCKS: [&str; 1] = ["authlib/requirements.txt"];

/// The folder of the collector of OpenTelemetry, and what it needs.
const COLLECTOR: &str = "collector";
const COLLECTOR_LOCKS: [&str; 1] = ["collector/requirements.txt"];
/// The folder of what looks at pages, and what it needs.
const BROWSER: &str = "browser";
const BROWSER_LOCKS: [&str; 1] = ["browser/package-lock.json"];
/// The browser and its driver, as Debian calls them.
const BROWSERS: [&str; 2] = ["chromium", "chromedriver"];

/// The folder of the nodes that keep to no rule, and what they need.
const HOSTILE: &str = "hostile";
/// Written once all is installed.
const READY: &str = "ready";
const HOSTILE_LOCKS: [&str; 1] = ["hostile/requirements.txt"];

/// The folder that the peers are installed in.
#[derive(Debug, Clone)]
pub struct Peers {
    folder: PathBuf,
    packages: PathBuf,
}

impl Peers {
    /// The peers when `needs` are met. When they are not, the test is to return at once: it says so
    /// on the real stderr, past any capturing. `MGP_WITHOUT_PEERS` makes it so on purpose.
    ///
    /// # Panics
    /// When they are not met and `CI` is `true`.
    #[must_use]
    pub fn find(needs: &[Need]) -> Option<Self> {
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        if std::env::var_os("MGP_WITHOUT_PEERS").is_some() {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: {test}, as MGP_WITHOUT_PEERS asks"
            );
            return None;
        }
        let peers = Self::at_home();
        let missing: Vec<String> = needs
            .iter()
            .filter_map(|&need| peers.missing(need))
            .collect();
        if missing.is_empty() {
            return Some(peers);
        }
        let missing = missing.join("; ");
        assert!(!is_ci(), "{test} needs {missing}");
        let _ = writeln!(std::io::stderr(), "SKIPPED: {test} needs {missing}");
        None
    }

    /// Installs what is not there yet; gives what could not be installed, and why.
    #[must_use]
    pub fn install() -> Vec<String> {
        let peers = Self::at_home();
        let _alone = match peers.lock() {
            Ok(lock) => lock,
            Err(why) => return vec![format!("{}: {why}", peers.folder.display())],
        };
        let steps = [
            (Need::Node, Self::install_node as fn(&Self) -> _),
            (Need::Python, Self::install_python),
            (Need::Go, Self::install_go),
            (Need::Hostile, Self::install_hostile),
            (Need::Provider, Self::install_provider),
            (Need::Apps, Self::install_apps),
            (Need::Skills, Self::install_skills),
            (Need::Authlib, Self::install_authlib),
            (Need::Collector, Self::install_collector),
            (Need::Browser, Self::install_browser),
        ];
        let mut failed = Vec::new();
        for (need, step) in steps {
            if !peers.is_ready(need)
                && let Err(why) = step(&peers).and_then(|()| peers.mark(need))
            {
                failed.push(format!("{need:?}: {why}"));
            }
        }
        failed
    }

    /// Installs the newest Python SDK of each line into folders of their own; gives the folder of both and what
    /// pip made of each.
    ///
    /// # Errors
    /// What could not be installed, and why.
    pub fn install_newest_sdks() -> Result<(PathBuf, Vec<String>), String> {
        absent(Need::Python).map_or(Ok(()), Err)?;
        let peers = Self::at_home();
        let _alone = peers.lock().map_err(|error| error.to_string())?;
        let folder = peers.folder.join("newest");
        let mut versions = Vec::new();
        for (wanted, packages) in SDK_LINES.iter().zip(Self::newest_packages(&folder)) {
            run(Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(packages.join("venv")))?;
            let pip = [
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                wanted,
            ];
            run(Command::new(interpreter(&packages)).args(pip))?;
            let version = "import importlib.metadata as m; print(m.version('mcp'))";
            let output = Command::new(interpreter(&packages))
                .args(["-c", version])
                .output();
            let output = output.map_err(|error| error.to_string())?;
            versions.push(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        Ok((folder, versions))
    }

    /// The folders of the two lines.
    fn newest_packages(folder: &Path) -> [PathBuf; 2] {
        ["before-2", "latest"].map(|line| folder.join(line))
    }

    /// The same folder, for what runs with the packages of `peers/modern/`.
    #[must_use]
    pub fn modern(&self) -> Self {
        let packages = match std::env::var_os(NEWEST_SDKS) {
            Some(newest) => Self::newest_packages(Path::new(&newest))[1].clone(),
            None => self.folder.join(MODERN),
        };
        Self {
            folder: self.folder.clone(),
            packages,
        }
    }

    /// A script of the npm packages, run by a Node that is new enough for it.
    #[must_use]
    pub fn node(&self, script: &str, args: &[&str]) -> Program {
        let path = self.packages.join("node_modules").join(script);
        self.node_program(&path, args)
    }

    /// A script of `peers/`, which finds the npm packages through `MGP_PEERS`.
    #[must_use]
    pub fn node_script(&self, name: &str, args: &[&str]) -> Program {
        let program = self.node_program(&source().join(name), args);
        program.env("MGP_PEERS", self.packages.display().to_string())
    }

    /// A script, run by a Node that is new enough for it.
    fn node_program(&self, script: &Path, args: &[&str]) -> Program {
        let node = self.brought_node().filter(|node| node.is_file());
        let node = node.map_or_else(|| "node".to_owned(), |node| node.display().to_string());
        Program::new(node, [script.display().to_string()]).args(args)
    }

    /// A module of the Python packages.
    #[must_use]
    pub fn python(&self, module: &str, args: &[&str]) -> Program {
        Program::new(self.interpreter(), ["-m", module]).args(args)
    }

    /// A script of `peers/`.
    #[must_use]
    pub fn python_script(&self, name: &str, args: &[&str]) -> Program {
        let path = source().join(name).display().to_string();
        Program::new(self.interpreter(), [path]).args(args)
    }

    /// An executable that the Python packages installed.
    #[must_use]
    pub fn python_command(&self, name: &str, args: &[&str]) -> Program {
        let path = self.packages.join("venv/bin").join(name);
        Program::new(path.display().to_string(), args.iter().copied())
    }

    /// The server of `peers/go/`.
    #[must_use]
    pub fn go_server(&self) -> Program {
        Program::new(
            self.go_folder().join(GO_SERVER).display().to_string(),
            [""; 0],
        )
    }

    /// A story of `peers/hostile/`: a node that keeps to no rule. It prints what came of it as JSON.
    #[must_use]
    pub fn hostile(&self, story: &str, args: &[&str]) -> Program {
        let main = source().join(HOSTILE).join("main.py");
        let python = interpreter(&self.hostile_folder());
        let program = Program::new(python, [main.display().to_string()]).arg(story);
        program.args(args).env("PYTHONDONTWRITEBYTECODE", "1")
    }

    /// server-everything of npm, over stdio.
    #[must_use]
    pub fn everything(&self) -> Program {
        self.node(
            "@modelcontextprotocol/server-everything/dist/index.js",
            &["stdio"],
        )
    }

    /// The version of it before, for what is brought up to date.
    #[must_use]
    pub fn everything_before(&self) -> Program {
        self.node("server-everything-before/dist/index.js", &["stdio"])
    }

    fn at_home() -> Self {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
        let folder = cache.unwrap_or_else(home).join("mgp-peers").join(key());
        let packages = match std::env::var_os(NEWEST_SDKS) {
            Some(newest) => Self::newest_packages(Path::new(&newest))[0].clone(),
            None => folder.clone(),
        };
        Self { folder, packages }
    }

    /// Held while installing, so that two test runs do not install over each other.
    fn lock(&self) -> std::io::Result<File> {
        std::fs::create_dir_all(&self.folder)?;
        let lock = File::create(self.folder.join("lock"))?;
        lock.lock()?;
        Ok(lock)
    }

    fn missing(&self, need: Need) -> Option<String> {
        let absent = || absent(need);
        let uninstalled = || format!("the {need:?} peers (`cargo xtask peers` installs them)");
        (!self.is_ready(need)).then(|| absent().unwrap_or_else(uninstalled))
    }

    fn is_ready(&self, need: Need) -> bool {
        match need {
            Need::Node | Need::Python => self.ready_file(need).is_file(),
            Need::Go => self.go_folder().join(GO_SERVER).is_file(),
            Need::Hostile => self.hostile_folder().join(READY).is_file(),
            Need::Provider => self.provider_folder().join(READY).is_file(),
            Need::Apps => self.apps_folder().join(READY).is_file(),
            Need::Skills => self.skills_folder().join(READY).is_file(),
            Need::Authlib => self.authlib_folder().join(READY).is_file(),
            Need::Collector => self.collector_folder().join(READY).is_file(),
            Need::Browser => self.browser_folder().join(READY).is_file() && absent(need).is_none(),
            Need::Git => absent(need).is_none(),
        }
    }

    fn ready_file(&self, need: Need) -> PathBuf {
        self.folder.join(format!("{need:?}.ready"))
    }

    fn mark(&self, need: Need) -> Result<(), String> {
        std::fs::write(self.ready_file(need), "").map_err(|e| e.to_string())
    }

    fn install_node(&self) -> Result<(), String> {
        absent(Need::Node).map_or(Ok(()), Err)?;
        npm_ci(&source(), &self.folder)?;
        npm_ci(&source().join(MODERN), &self.folder.join(MODERN))?;
        if version("node").is_some_and(|(major, _)| major < NODE_WANTED) {
            npm_ci(&source().join("node"), &self.folder.join("node"))?;
        }
        Ok(())
    }

    fn install_python(&self) -> Result<(), String> {
        absent(Need::Python).map_or(Ok(()), Err)?;
        venv(&source(), &self.folder)?;
        venv(&source().join(MODERN), &self.folder.join(MODERN))
    }

    /// A folder of its own: what is built there changes with each edit of its source.
    fn go_folder(&self) -> PathBuf {
        self.folder_of(GO, &GO_SOURCES)
    }

    /// A folder of its own for what is made of these files.
    fn folder_of(&self, name: &str, files: &[&str]) -> PathBuf {
        self.folder.join(format!("{name}-{}", key_of(files, "")))
    }

    fn install_go(&self) -> Result<(), String> {
        let (from, to) = (source().join(GO), self.go_folder());
        std::fs::create_dir_all(&to).map_err(|e| e.to_string())?;
        for file in ["go.mod", "main.go"] {
            std::fs::copy(from.join(file), to.join(file)).map_err(|e| format!("{file}: {e}"))?;
        }
        let own = Command::new("go").arg("version").output();
        let go = if own.is_ok_and(|output| output.status.success()) {
            "go".into()
        } else {
            absent(Need::Python).map_or(Ok(()), Err)?;
            venv(&from, &to)?;
            to.join("venv/bin/go")
        };
        let mut build = Command::new(go);
        build.args(["build", "-o", GO_SERVER, "."]).current_dir(&to);
        build.env("GOTOOLCHAIN", "local").env("GOFLAGS", "-mod=mod");
        run(build
            .env("GOCACHE", to.join("cache"))
            .env("CGO_ENABLED", "0"))
    }

    /// A folder of its own: no other peer is installed anew when its list changes.
    fn hostile_folder(&self) -> PathBuf {
        let python = format!("{:?}", version("python3"));
        self.folder
            .join(format!("{HOSTILE}-{}", key_of(&HOSTILE_LOCKS, &python)))
    }

    fn install_hostile(&self) -> Result<(), String> {
        absent(Need::Python).map_or(Ok(()), Err)?;
        let to = self.hostile_folder();
        std::fs::create_dir_all(&to).map_err(|e| e.to_string())?;
        venv(&source().join(HOSTILE), &to)?;
        std::fs::write(to.join(READY), "").map_err(|e| e.to_string())
    }

    /// The authorization server and the MCP server of `peers/provider/`.
    #[must_use]
    pub fn provider(&self) -> Program {
        self.provider_script("provider.mjs", &[])
    }

    /// An identity provider of `peers/provider/` that registers no clients, configured like `kind`.
    #[must_use]
    pub fn identity_provider(&self, kind: &str) -> Program {
        self.provider_script("identity.mjs", &[kind])
    }

    fn provider_script(&self, name: &str, args: &[&str]) -> Program {
        let script = source().join(PROVIDER).join(name);
        let program = self.node_program(&script, args);
        program.env("MGP_PEERS", self.provider_folder().display().to_string())
    }

    /// A folder of its own: no other peer is installed anew when its list changes.
    fn provider_folder(&self) -> PathBuf {
        let node = format!("{:?}", version("node"));
        self.folder
            .join(format!("{PROVIDER}-{}", key_of(&PROVIDER_LOCKS, &node)))
    }

    /// The authorization server of `peers/authlib/`, and an MCP server that takes its tokens.
    #[must_use]
    pub fn authlib(&self) -> Program {
        let main = source().join(AUTHLIB).join("provider.py");
        let python = interpreter(&self.authlib_folder());
        let program = Program::new(python, [main.display().to_string()]);
        program.env("PYTHONDONTWRITEBYTECODE", "1")
    }

    fn authlib_folder(&self) -> PathBuf {
        let python = format!("{:?}", version("python3"));
        self.folder
            .join(format!("{AUTHLIB}-{}", key_of(&AUTHLIB_LOCKS, &python)))
    }

    fn install_authlib(&self) -> Result<(), String> {
        absent(Need::Python).map_or(Ok(()), Err)?;
        let to = self.authlib_folder();
        std::fs::create_dir_all(&to).map_err(|e| e.to_string())?;
        venv(&source().join(AUTHLIB), &to)?;
        std::fs::write(to.join(READY), "").map_err(|e| e.to_string())
    }

    /// The collector of `peers/collector/`, which reads OTLP with the messages of opentelemetry-proto.
    #[must_use]
    pub fn collector(&self) -> Program {
        let main = source().join(COLLECTOR).join("collector.py");
        let python = interpreter(&self.collector_folder());
        let program = Program::new(python, [main.display().to_string()]);
        program.env("PYTHONDONTWRITEBYTECODE", "1")
    }

    fn collector_folder(&self) -> PathBuf {
        let python = format!("{:?}", version("python3"));
        self.folder
            .join(format!("{COLLECTOR}-{}", key_of(&COLLECTOR_LOCKS, &python)))
    }

    fn install_collector(&self) -> Result<(), String> {
        absent(Need::Collector).map_or(Ok(()), Err)?;
        let to = self.collector_folder();
        std::fs::create_dir_all(&to).map_err(|e| e.to_string())?;
        venv(&source().join(COLLECTOR), &to)?;
        std::fs::write(to.join(READY), "").map_err(|e| e.to_string())
    }

    /// A server of MCP Apps, an example of the extension's SDK, over stdio.
    #[must_use]
    pub fn app_server(&self, name: &str) -> Program {
        let script = format!("node_modules/@modelcontextprotocol/server-{name}/dist/index.js");
        let script = self.apps_folder().join(script);
        Program::new("node", [script.display().to_string(), "--stdio".into()])
    }

    /// The page of its app, as the package has it.
    #[must_use]
    pub fn app_page(&self, name: &str) -> PathBuf {
        let page = format!("node_modules/@modelcontextprotocol/server-{name}/dist/mcp-app.html");
        self.apps_folder().join(page)
    }

    /// The host of apps of `peers/apps/host/`, which prints its origins.
    #[must_use]
    pub fn app_host(&self) -> Program {
        let script = source().join(APPS).join("host/serve.mjs");
        let program = self.node_program(&script, &[]);
        program.env("MGP_PEERS", self.apps_folder().display().to_string())
    }

    fn apps_folder(&self) -> PathBuf {
        let node = format!("{:?}", version("node"));
        self.folder
            .join(format!("{APPS}-{}", key_of(&APPS_LOCKS, &node)))
    }

    fn install_apps(&self) -> Result<(), String> {
        absent(Need::Apps).map_or(Ok(()), Err)?;
        let to = self.apps_folder();
        npm_ci(&source().join(APPS), &to)?;
        std::fs::write(to.join(READY), "").map_err(|e| e.to_string())
    }

    /// `server.mjs` or `client.mjs` of `peers/skills/`, made with the SDK of the extension.
    #[must_use]
    pub fn skills_script(&self, name: &str, args: &[&str]) -> Program {
        let program = self.node_program(&source().join(SKILLS).join(name), args);
        program.env("MGP_PEERS", self.skills_folder().display().to_string())
    }

    fn skills_folder(&self) -> PathBuf {
        let node = format!("{:?}", version("node"));
        self.folder
            .join(format!("{SKILLS}-{}", key_of(&SKILLS_LOCKS, &node)))
    }

    fn install_skills(&self) -> Result<(), String> {
        absent(Need::Skills).map_or(Ok(()), Err)?;
        let to = self.skills_folder();
        npm_ci(&source().join(SKILLS), &to)?;
        std::fs::write(to.join(READY), "").map_err(|e| e.to_string())
    }

    fn install_provider(&self) -> Result<(), String> {
        absent(Need::Provider).map_or(Ok(()), Err)?;
        let to = self.provider_folder();
        npm_ci(&source().join(PROVIDER), &to)?;
        std::fs::write(to.join(READY), "").map_err(|e| e.to_string())
    }

    /// The script that finds what people who cannot see a page would miss in it.
    #[must_use]
    pub fn axe(&self) -> PathBuf {
        let modules = self.browser_folder().join("node_modules");
        modules.join("axe-core/axe.min.js")
    }

    fn browser_folder(&self) -> PathBuf {
        let node = format!("{:?}", version("node"));
        self.folder
            .join(format!("{BROWSER}-{}", key_of(&BROWSER_LOCKS, &node)))
    }

    fn install_browser(&self) -> Result<(), String> {
        absent(Need::Browser).map_or(Ok(()), Err)?;
        let to = self.browser_folder();
        npm_ci(&source().join(BROWSER), &to)?;
        std::fs::write(to.join(READY), "").map_err(|e| e.to_string())
    }

    fn brought_node(&self) -> Option<PathBuf> {
        let modules = self.folder.join("node/node_modules");
        let package = std::fs::read_dir(&modules).ok()?.flatten();
        let mut names = package.map(|entry| entry.file_name());
        let name = names.find(|name| name.to_string_lossy().starts_with("node-"))?;
        Some(modules.join(name).join("bin/node"))
    }

    fn interpreter(&self) -> String {
        interpreter(&self.packages)
    }
}

/// The folder `peers/` of this crate.
fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// One folder for each set of lock files and each pair of interpreters.
fn key() -> String {
    let found = format!("{:?} {:?}", version("node"), version("python3"));
    key_of(&LOCKS, &found)
}

/// The name of a folder that is made of these files.
fn key_of(files: &[&str], found: &str) -> String {
    let mut hash = blake3::Hasher::new();
    for file in files {
        let text = std::fs::read(source().join(file)).expect("the files lie in peers/");
        hash.update(&text);
    }
    hash.update(found.as_bytes());
    hash.finalize().to_hex()[..16].to_owned()
}

/// Why `need` cannot be met on this machine at all.
fn absent(need: Need) -> Option<String> {
    match need {
        Need::Node | Need::Provider | Need::Apps | Need::Skills => {
            let enough = version("node").is_some_and(|(major, _)| major >= NODE);
            let enough = enough && version("npm").is_some();
            (!enough).then(|| format!("Node {NODE} or later with npm"))
        }
        Need::Python | Need::Hostile | Need::Authlib | Need::Collector => {
            let enough = version("python3").is_some_and(|version| version >= (3, PYTHON_MINOR));
            (!enough).then(|| format!("Python 3.{PYTHON_MINOR} or later"))
        }
        // The toolchain comes with Python where the machine has none.
        Need::Go => {
            let missing = Command::new("go").arg("version").output().is_err();
            missing.then(|| absent(Need::Python)).flatten()
        }
        Need::Browser => {
            let has = |program: &&str| Command::new(program).arg("--version").output().is_ok();
            let all = BROWSERS.iter().all(has);
            let browser = (!all).then(|| "chromium and chromium-driver".to_owned());
            browser.or_else(|| absent(Need::Node))
        }
        Need::Git => {
            let missing = Command::new("git").arg("--version").output().is_err();
            missing.then(|| "git".to_owned())
        }
    }
}

/// Major and minor version of a program, `None` when it is not there.
fn version(program: &str) -> Option<(u32, u32)> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = text
        .trim()
        .trim_start_matches(|c: char| !c.is_ascii_digit());
    let mut parts = number.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

/// Installs exactly what the lock file in `from` says into `to`, without running any of it.
fn npm_ci(from: &Path, to: &Path) -> Result<(), String> {
    std::fs::create_dir_all(to).map_err(|e| e.to_string())?;
    for file in ["package.json", "package-lock.json", ".npmrc"] {
        std::fs::copy(from.join(file), to.join(file)).map_err(|e| format!("{file}: {e}"))?;
    }
    run(Command::new("npm")
        .args(["ci", "--loglevel=error"])
        .current_dir(to))
}

/// Installs exactly what the list in `from` says into a venv in `to`.
fn venv(from: &Path, to: &Path) -> Result<(), String> {
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--disable-pip-version-check",
    ];
    let list = from.join("requirements.txt");
    run(Command::new("python3")
        .args(["-m", "venv"])
        .arg(to.join("venv")))?;
    run(Command::new(interpreter(to)).args(pip).arg("-r").arg(list))
}

/// The Python of the venv in a folder.
fn interpreter(folder: &Path) -> String {
    folder.join("venv/bin/python").display().to_string()
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    output
        .status
        .success()
        .then_some(())
        .ok_or_else(|| format!("{command:?}: {told}"))
}

fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|ci| ci == "true")
}
