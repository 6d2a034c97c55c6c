//! A file for bug reports: findings, versions, the shape of the configuration and the end of the kernel's log, without
//! secrets, tokens and the user's name.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use mgp_clients::is_secret;
use mgp_engine::servers::spec::{ServerTransport, UrlProtocol};
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_runtime::time::unix_ms;
use mgp_store::{atomic_file, explain_io_error};
use nix::sys::utsname::uname;

use super::CheckContext;
use super::finding::Finding;
use crate::cli::failure::Failure;
use crate::cli::text_format::{sanitize_line, sanitize_lines};
use crate::config;
use crate::config::named_secrets::KernelLookup;

/// Bytes of the kernel's log in the report.
const LOG_MAX: u64 = 64 << 10;
/// Shorter secrets cannot be told from other words.
const SECRET_LENGTH_MIN: usize = 4;

/// Writes the report; returns its path.
pub(super) fn write_report(
    cx: &CheckContext<'_>,
    findings: &[Finding],
    file: &Path,
) -> Result<PathBuf, Failure> {
    let path = cx.context.look_up.current_dir.join(file);
    let mut text = format!(
        "mgp {}, {}\n{}\n\n# Found\n",
        env!("CARGO_PKG_VERSION"),
        render_rfc3339_ms(unix_ms()),
        system_info()
    );
    for finding in findings {
        text += &format!(
            "{} {}\n",
            finding.level.label(),
            sanitize_line(&finding.render())
        );
    }
    text += "\n# Servers\n";
    for server in &cx.loaded.servers {
        text += &match server {
            Ok(spec) => reach_shape(spec.id.as_str(), &spec.transport),
            Err(broken) => format!("broken: {}\n", broken.problem.message),
        };
    }
    text += "\n# The end of kernel.log\n";
    text += &log_tail(&cx.data_dir).unwrap_or_else(|| "there is none\n".to_owned());
    let text = Redactor::for_context(cx).redact(&sanitize_lines(&text));
    let written = atomic_file::write(&path, text.as_bytes());
    written.map_err(|e| Failure::Other(explain_io_error(&path, &e)))?;
    Ok(path)
}

fn system_info() -> String {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let (system, arch) = (uname(), std::env::consts::ARCH);
    let system = system.map(|it| [it.sysname(), it.release()].join(OsStr::new(" ")));
    let system = system.unwrap_or_default();
    let name = name.unwrap_or(std::env::consts::OS).trim_matches('"');
    format!("{name}, {}, {arch}", system.display())
}

/// The transport of a server, without values.
fn reach_shape(id: &str, reach: &ServerTransport) -> String {
    match reach {
        ServerTransport::Stdio {
            command, args, env, ..
        } => {
            let names: Vec<_> = env.keys().map(String::as_str).collect();
            format!(
                "{id}: {command}, {} arguments, variables {}\n",
                args.len(),
                names.join(" ")
            )
        }
        ServerTransport::Http {
            headers,
            protocol: speaks,
            ..
        } => {
            let names: Vec<_> = headers.keys().map(String::as_str).collect();
            let over = match speaks {
                UrlProtocol::Mcp => "over HTTP",
                UrlProtocol::Lite => "MCP-lite over HTTP",
                UrlProtocol::Grpc => "MCP-lite over gRPC",
            };
            format!("{id}: {over}, headers {}\n", names.join(" "))
        }
        ServerTransport::Node(_) => format!("{id}: of another node\n"),
    }
}

fn log_tail(data_dir: &Path) -> Option<String> {
    let mut file = File::open(data_dir.join("kernel.log")).ok()?;
    let from = file.metadata().ok()?.len().saturating_sub(LOG_MAX);
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.take(LOG_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Masks secrets and names.
struct Redactor {
    secrets: Vec<String>,
    home: Option<String>,
}

impl Redactor {
    fn for_context(cx: &CheckContext<'_>) -> Self {
        let look_up = &cx.look_up;
        let loaded = config::load_with_env(look_up, &KernelLookup::for_look_up(look_up), None);
        let mut secrets = loaded.map(|loaded| loaded.secrets()).unwrap_or_default();
        for name in ["token", "metrics.token"] {
            let token = std::fs::read_to_string(cx.data_dir.join(name));
            secrets.extend(token.map(|token| token.trim().to_owned()));
        }
        let home = cx.context.base_dirs.home.as_ref();
        Self::new(secrets, home.map(|home| home.display().to_string()))
    }

    fn new(mut secrets: Vec<String>, home: Option<String>) -> Self {
        secrets.retain(|secret| secret.len() >= SECRET_LENGTH_MIN);
        // Longer secrets first, because they may contain others.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        let home = home.filter(|home| home.len() > 1);
        Self { secrets, home }
    }

    fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret, "***");
        }
        if let Some(home) = &self.home {
            text = text.replace(home, "~");
        }
        let word = |word: &str| {
            if looks_like_secret(word) {
                "***".to_owned()
            } else {
                word.to_owned()
            }
        };
        let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
        text.split('\n').map(line).collect::<Vec<_>>().join("\n")
    }
}

/// A word that looks like a token, or a `NAME=VALUE` that does.
fn looks_like_secret(word: &str) -> bool {
    let bare = word.trim_matches(|c: char| "\"'`,;()[]{}".contains(c));
    let (name, value) = bare.split_once(['=', ':']).unwrap_or(("", bare));
    is_secret("", bare) || is_secret(name, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_tokens_and_the_home_are_masked() {
        let mask = Redactor::new(
            vec!["hush".into(), "hush-longer".into(), "x".into()],
            Some("/home/ada".into()),
        );
        let text = "a hush-longer b hush\nAPI_KEY=12345 token: ghp_0123456789abcdefghij \"sk-0123456789abcdef\" x\n/home/ada/x";
        let masked = mask.redact(text);
        assert_eq!(masked, "a *** b ***\n*** token: *** *** x\n~/x");
    }
}
