//! A program with its arguments: what a `[[servers]]` entry names and what a test starts itself.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::wait::within;

/// A program, its arguments and what it finds in its environment.
#[derive(Debug, Clone)]
pub struct Program {
    /// The executable: a path, or a name looked up in `PATH`.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables on top of the inherited ones.
    pub env: Vec<(String, String)>,
}

impl Program {
    /// A program with arguments.
    pub fn new<A: Into<String>>(
        command: impl Into<String>,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        Self {
            command: command.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
        }
    }

    /// A binary of this workspace.
    ///
    /// # Panics
    /// When it was not built.
    #[must_use]
    pub fn ours<A: Into<String>>(name: &str, args: impl IntoIterator<Item = A>) -> Self {
        Self::new(built(name).display().to_string(), args)
    }

    /// The scripted server over stdio, with more flags.
    #[must_use]
    pub fn fixture(flags: &[&str]) -> Self {
        Self::ours("mgp-fixture", [&["--stdio"], flags].concat())
    }

    /// The same program with one more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// The same program with more arguments.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// The same program with one more variable in its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// As the standard library starts it.
    #[must_use]
    pub fn to_command(&self) -> Command {
        let mut command = Command::new(&self.command);
        command.args(&self.args);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs it to its end and gives what it printed.
    ///
    /// # Panics
    /// When it cannot be run, or has not ended by the deadline; then it is ended.
    pub async fn output(&self, deadline: Duration) -> Output {
        let mut command = tokio::process::Command::from(self.to_command());
        let run = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = within(&format!("the end of {self:?}"), deadline, run).await;
        output.unwrap_or_else(|e| panic!("{}: {e}", self.command))
    }

    /// As an entry of `mgp.toml`.
    #[must_use]
    pub fn entry(&self, id: &str) -> String {
        let mut entry = toml::Table::new();
        entry.insert("id".to_owned(), id.into());
        entry.insert("command".to_owned(), self.command.clone().into());
        entry.insert("args".to_owned(), self.args.clone().into());
        if !self.env.is_empty() {
            let env = self.env.iter().map(|(n, v)| (n.clone(), v.clone().into()));
            entry.insert("env".to_owned(), toml::Value::Table(env.collect()));
        }
        format!("[[servers]]\n{}\n", inline(&entry))
    }
}

/// Becomes the program that follows as soon as the file is there.
const GATED: &str = r#"while [ ! -e "$0" ]; do sleep 0.02; done; exec "$@""#;

/// Programs that start when the test says so.
#[derive(Debug)]
pub struct Gate(TempDir);

impl Default for Gate {
    fn default() -> Self {
        Self(TempDir::new().expect("there is room for a folder"))
    }
}

impl Gate {
    /// The scripted server over stdio, which begins to read when the gate is open.
    #[must_use]
    pub fn fixture(&self, flags: &[&str]) -> Program {
        let fixture = Program::fixture(flags);
        let mut gated = Program::new("sh", ["-c", GATED, &self.file(), &fixture.command]);
        gated.args.extend(fixture.args);
        gated
    }

    /// Lets in who waits, and who comes from now on.
    ///
    /// # Panics
    /// When its file cannot be written.
    pub fn open(&self) {
        std::fs::write(self.file(), "").expect("its folder is there");
    }

    /// Who comes from now on waits.
    ///
    /// # Panics
    /// When it was not open.
    pub fn close(&self) {
        std::fs::remove_file(self.file()).expect("it was open");
    }

    fn file(&self) -> String {
        self.0.path().join("open").display().to_string()
    }
}

/// An entry of `mgp.toml` for a server that is reached over Streamable HTTP.
#[must_use]
pub fn remote_entry(id: &str, url: &str) -> String {
    format!("[[servers]]\nid = {id:?}\ntransport = \"http\"\nurl = {url:?}\n")
}

/// Keys one a line, so that sub-tables do not open a section of their own.
fn inline(table: &toml::Table) -> String {
    let line = |(key, value): (&String, &toml::Value)| format!("{key} = {value}\n");
    table.iter().map(line).collect()
}

/// The path of a binary of this workspace: `MGP_BIN` for the kernel when it is set, else the folder
/// that the running test was built into.
///
/// # Errors
/// The path where no file is.
pub fn find(name: &str) -> Result<PathBuf, PathBuf> {
    let given = std::env::var_os("MGP_BIN").filter(|_| name == "mgp");
    let path = given.map_or_else(|| profile_folder().join(name), PathBuf::from);
    if path.is_file() { Ok(path) } else { Err(path) }
}

fn built(name: &str) -> PathBuf {
    let missing = |path: PathBuf| -> PathBuf {
        panic!(
            "no {name} at {}: build the binaries first (`cargo build --workspace --bins`, with \
             the profile of this run)",
            path.display()
        )
    };
    find(name).unwrap_or_else(missing)
}

/// `target/debug` or its like: one above `deps`, where test executables lie.
fn profile_folder() -> PathBuf {
    let this = std::env::current_exe().expect("a process knows its executable");
    let folder = this.parent().expect("an executable lies in a folder");
    let above = folder.parent().filter(|_| folder.ends_with("deps"));
    above.unwrap_or(folder).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_back_as_it_was_meant() {
        let program = Program::new("node", ["a \"b\"", "--x"]).env("KEY", "v\nw");
        let text = program.entry("files") + &remote_entry("far", "http://127.0.0.1:1/mcp");
        let config: toml::Table = text.parse().unwrap();
        let servers = config["servers"].as_array().unwrap();
        assert_eq!(servers[0]["args"][0].as_str(), Some("a \"b\""));
        assert_eq!(servers[0]["env"]["KEY"].as_str(), Some("v\nw"));
        assert_eq!(servers[1]["transport"].as_str(), Some("http"));
    }
}
