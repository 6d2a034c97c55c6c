//! `mgp servers add --connector FILE`: an entry from a connector manifest (MGP connector v1).
//!
//! What the manifest says of its trust is a request, which only the operator grants; its seal counts once a file here has
//! that digest.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use mgp_engine::servers::sandbox::Seal;
use mgp_json::lookalike;
use mgp_servers::sandbox::compute_sha256;
use serde::Deserialize;

use crate::cli::args::Add;
use crate::cli::failure::Failure;

/// Longest manifest, in bytes: it is written by hand.
const MANIFEST_BYTES_MAX: u64 = 256 << 10;
/// The most variables of each kind. A person is asked for those without a value.
const VARIABLES_MAX: usize = 64;

/// `cloto-connector.json`. Members that are not here are for catalogs; unknown ones are ignored (§4).
#[derive(Debug, Deserialize)]
struct Manifest {
    spec_version: u32,
    connector_type: String,
    id: String,
    name: String,
    trust_level: String,
    magic_seal: String,
    install: Install,
    #[serde(default)]
    env_vars: Vec<Variable>,
    #[serde(default)]
    optional_env_vars: Vec<Variable>,
    #[serde(default)]
    auto_restart: bool,
}

#[derive(Debug, Deserialize)]
struct Install {
    source: Source,
    package_manager: String,
    runtime: String,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Source {
    Git,
    RawUrl,
    Pypi {
        package: String,
        #[serde(default)]
        version: Option<String>,
    },
    Docker {
        image: String,
        #[serde(default)]
        tag: Option<String>,
    },
}

#[derive(Debug, Deserialize)]
struct Variable {
    name: String,
    #[serde(default)]
    default: Option<String>,
}

/// What the manifest adds to the command line.
pub(super) struct FromConnector {
    /// The line, completed. What was typed counts before the manifest.
    pub(super) add: Add,
    /// The verified seal, and the file that has it.
    pub(super) seal: Option<(String, PathBuf)>,
    /// For the person who adds it.
    pub(super) notes: Vec<String>,
}

/// Completes a command line from its manifest.
///
/// # Errors
/// The manifest cannot be read, is not of this version or type, or names no file of the command.
pub(super) fn complete(typed: &Add, file: &Path, here: &Path) -> Result<FromConnector, Failure> {
    let manifest = read(file)?;
    let invalid = |why: String| Failure::Usage(format!("{}: {why}", file.display()));
    manifest.check().map_err(invalid)?;
    let mut add = typed.clone();
    let mut notes = Vec::new();
    add.env.extend(manifest.variables(typed));
    if typed.trust.is_none() {
        add.trust = Some("sandboxed".to_owned());
        if manifest.trust_level != "untrusted" {
            notes.push(format!(
                "note: {} asks for the trust level {}; it gets sandboxed, unless you give another with `--trust`",
                manifest.name, manifest.trust_level
            ));
        }
    }
    let policy = if manifest.auto_restart {
        "on_failure"
    } else {
        "never"
    };
    add.restart.get_or_insert_with(|| policy.to_owned());
    if typed.command.is_empty() {
        add.command = manifest.install.source.command(&add.env).map_err(invalid)?;
        let note = "note: its seal is of a file that is not here before its first start: it is not checked";
        notes.push(note.to_owned());
        return Ok(FromConnector {
            add,
            seal: None,
            notes,
        });
    }
    let folder = typed
        .cwd
        .as_ref()
        .map_or(here.to_owned(), |cwd| here.join(cwd));
    // Its words mean files of this folder at each start, too: the sealed one is the one that runs.
    add.cwd = Some(folder.to_string_lossy().into_owned());
    let digits = manifest.seal_digits().map_err(invalid)?;
    let words = typed.command.iter().map(|word| folder.join(word));
    let is_sealed =
        |path: &PathBuf| path.is_file() && compute_sha256(path).is_ok_and(|found| found == digits);
    let sealed = words.into_iter().find(is_sealed);
    let sealed = sealed.ok_or_else(|| {
        invalid(
            "no file of this command has the digest of `magic_seal`: it is another version, or was changed"
                .to_owned(),
        )
    })?;
    Ok(FromConnector {
        add,
        seal: Some((manifest.magic_seal, sealed)),
        notes,
    })
}

fn read(file: &Path) -> Result<Manifest, Failure> {
    let failed = |why: String| Failure::Other(format!("{}: {why}", file.display()));
    let mut text = String::new();
    let opened = File::open(file).map_err(|e| failed(e.to_string()))?;
    let mut limited = opened.take(MANIFEST_BYTES_MAX + 1);
    limited
        .read_to_string(&mut text)
        .map_err(|e| failed(e.to_string()))?;
    if text.len() as u64 > MANIFEST_BYTES_MAX {
        return Err(failed(format!(
            "it is longer than {MANIFEST_BYTES_MAX} bytes"
        )));
    }
    lookalike::from_object(&text).map_err(|e| failed(format!("no connector manifest: {e}")))
}

impl Manifest {
    fn check(&self) -> Result<(), String> {
        let version = self.spec_version;
        if version != 1 {
            return Err(format!("`spec_version` is {version}; this program reads 1"));
        }
        match self.connector_type.as_str() {
            "mgp_server" => {}
            "ui_module" => {
                return Err(
                    "a `ui_module` starts nothing, and this kernel serves no panels".to_owned(),
                );
            }
            // An unknown type is refused, never run with less trust (§3.4).
            other => {
                return Err(format!(
                    "unknown `connector_type` {other:?} in a manifest of `spec_version` {version}"
                ));
            }
        }
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let ends =
            self.id.bytes().next().is_some_and(inner) && self.id.bytes().last().is_some_and(inner);
        if !ends || !self.id.bytes().all(|b| inner(b) || b == b'-' || b == b'_') {
            return Err(format!("{:?} is no `id` of a connector", self.id));
        }
        if self.name.is_empty() {
            return Err("`name` is empty".to_owned());
        }
        let levels = ["core", "standard", "experimental", "untrusted"];
        if !levels.contains(&self.trust_level.as_str()) {
            return Err(format!("unknown `trust_level` {:?}", self.trust_level));
        }
        self.seal_digits()?;
        let Install {
            package_manager,
            runtime,
            ..
        } = &self.install;
        let is_launched =
            package_manager == "uv" && matches!(runtime.as_str(), "python" | "rust" | "node");
        if !is_launched {
            return Err(format!(
                "a server is not installed with {package_manager:?} for {runtime:?}"
            ));
        }
        if self.env_vars.len().max(self.optional_env_vars.len()) > VARIABLES_MAX {
            return Err(format!("it has more than {VARIABLES_MAX} variables"));
        }
        Ok(())
    }

    fn seal_digits(&self) -> Result<String, String> {
        Seal::parse_digest(&self.magic_seal).map_err(|why| format!("`magic_seal`: {why}"))
    }

    /// The variables that were not typed, as words of `--env`. Required ones without a default are asked for.
    fn variables(&self, typed: &Add) -> Vec<String> {
        let is_typed = |name: &str| {
            let mut words = typed.env.iter();
            words.any(|word| word.split('=').next() == Some(name))
        };
        let word = |variable: &Variable, is_required: bool| match &variable.default {
            Some(default) => Some(format!("{}={default}", variable.name)),
            None => is_required.then(|| variable.name.clone()),
        };
        let required = self.env_vars.iter().map(|variable| (variable, true));
        let optional = self
            .optional_env_vars
            .iter()
            .map(|variable| (variable, false));
        let all = required.chain(optional);
        let open = all.filter(|(variable, _)| !is_typed(&variable.name));
        open.filter_map(|(variable, is_required)| word(variable, is_required))
            .collect()
    }
}

impl Source {
    /// The command that fetches and starts it, where the source says which version.
    fn command(&self, env: &[String]) -> Result<Vec<String>, String> {
        match self {
            Self::Pypi {
                package,
                version: Some(version),
            } if is_word(package) && is_word(version) => {
                let pinned = format!("{package}=={version}");
                Ok(["uvx", "--from", &pinned, package].map(str::to_owned).into())
            }
            Self::Docker {
                image,
                tag: Some(tag),
            } if is_word(image) && is_word(tag) && tag != "latest" => {
                let mut command = ["docker", "run", "-i", "--rm"].map(str::to_owned).to_vec();
                for word in env {
                    let name = word.split('=').next().unwrap_or_default();
                    command.extend(["-e".to_owned(), name.to_owned()]);
                }
                command.push(format!("{image}:{tag}"));
                Ok(command)
            }
            Self::Git | Self::RawUrl | Self::Pypi { .. } | Self::Docker { .. } => Err(
                "its source does not say which program of which version is started: fetch it, and give its command after `--`"
                    .to_owned(),
            ),
        }
    }
}

/// A word of a command that is no option.
fn is_word(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@+![]".contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::args::{Cli, Command, Invocation, Servers};

    fn manifest() -> Value {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        json!({"spec_version": 1, "connector_type": "mgp_server", "id": "notes", "name": "Notes", "description": "d",
            "version": "1.0", "category": "tool", "trust_level": "core", "magic_seal": empty,
            "install": {"source": {"type": "pypi", "package": "notes-mcp", "version": "1.2"},
                "package_manager": "uv", "runtime": "python"},
            "env_vars": [{"name": "NOTES_DB"}, {"name": "NOTES_LANG", "default": "en"}],
            "optional_env_vars": [{"name": "NOTES_LOG"}, {"name": "NOTES_SIZE", "default": "7"}],
            "auto_restart": true, "unknown": {"x": 1}})
    }

    fn complete_with(manifest: &Value, words: &[&str]) -> Result<FromConnector, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cloto-connector.json");
        std::fs::write(&file, manifest.to_string()).unwrap();
        std::fs::write(folder.path().join("server.py"), "").unwrap();
        std::fs::write(folder.path().join("other.py"), "x").unwrap();
        let line = ["mgp", "servers", "add", "notes"].iter().chain(words);
        let Invocation::Command(Command::Servers(Servers::Add(typed))) =
            Cli::parse_from(line).command
        else {
            panic!("it is an add");
        };
        complete(&typed, &file, folder.path()).map_err(|failure| failure.to_string())
    }

    /// EXT-170: the manifest gives variables, restarts and a pinned command, and no trust.
    #[test]
    fn manifest_completes_the_command_line() {
        let done = complete_with(&manifest(), &["--env", "NOTES_LANG=de"]).unwrap();
        assert_eq!(
            done.add.command,
            ["uvx", "--from", "notes-mcp==1.2", "notes-mcp"]
        );
        assert_eq!(done.add.env, ["NOTES_LANG=de", "NOTES_DB", "NOTES_SIZE=7"]);
        assert_eq!(done.add.trust.as_deref(), Some("sandboxed"));
        assert_eq!(done.add.restart.as_deref(), Some("on_failure"));
        assert!(
            done.seal.is_none() && done.notes.len() == 2,
            "{:?}",
            done.notes
        );
        let typed = ["--trust", "standard", "--restart", "never"];
        let done = complete_with(&manifest(), &typed).unwrap();
        assert_eq!(done.add.trust.as_deref(), Some("standard"));
        assert_eq!(done.add.restart.as_deref(), Some("never"));
        let mut docker = manifest();
        docker["install"]["source"] =
            json!({"type": "docker", "image": "acme/notes", "tag": "1.2"});
        let done = complete_with(&docker, &[]).unwrap();
        let command = done.add.command.join(" ");
        assert_eq!(
            command,
            "docker run -i --rm -e NOTES_DB -e NOTES_LANG -e NOTES_SIZE acme/notes:1.2"
        );
    }

    /// EXT-171: the seal counts for the file of the command that has its digest; without one nothing is added.
    #[test]
    fn seal_is_of_the_file_that_has_its_digest() {
        let done = complete_with(&manifest(), &["--", "python", "other.py", "server.py"]).unwrap();
        let (seal, file) = done.seal.unwrap();
        assert_eq!(seal, manifest()["magic_seal"].as_str().unwrap());
        assert!(file.ends_with("server.py"), "{}", file.display());
        assert_eq!(done.add.cwd.as_deref().map(Path::new), file.parent());
        let why = complete_with(&manifest(), &["--", "python", "other.py"])
            .err()
            .unwrap();
        assert!(why.contains("no file of this command"), "{why}");
    }

    /// EXT-172: what this program does not know is refused, and never run with less trust.
    #[test]
    fn manifests_that_are_not_understood_are_refused() {
        for (at, value, expected) in [
            ("/spec_version", json!(2), "`spec_version` is 2"),
            ("/connector_type", json!("ui_module"), "starts nothing"),
            ("/connector_type", json!("robot"), "`spec_version` 1"),
            ("/id", json!("Notes"), "no `id`"),
            ("/id", json!("-notes"), "no `id`"),
            ("/trust_level", json!("trusted"), "`trust_level`"),
            ("/magic_seal", json!("sha256:x"), "`magic_seal`"),
            (
                "/install/package_manager",
                json!("none"),
                "is not installed",
            ),
            ("/install/runtime", json!("static"), "is not installed"),
            (
                "/install/source/type",
                json!("ftp"),
                "no connector manifest",
            ),
            ("/install/source/version", Value::Null, "after `--`"),
            ("/install/source/package", json!("-x y"), "after `--`"),
        ] {
            let mut changed = manifest();
            *changed.pointer_mut(at).unwrap() = value.clone();
            let why = complete_with(&changed, &[]).err().unwrap();
            assert!(why.contains(expected), "{at} {value}: {why}");
        }
        let mut latest = manifest();
        latest["install"]["source"] = json!({"type": "docker", "image": "a", "tag": "latest"});
        assert!(complete_with(&latest, &[]).is_err());
        let mut unsealed = manifest();
        unsealed.as_object_mut().unwrap().remove("magic_seal");
        assert!(complete_with(&unsealed, &[]).is_err());
    }
}
