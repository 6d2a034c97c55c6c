//! The variables a registered server is started with.

use std::collections::BTreeMap;

use super::Finding;
use crate::validators::chooses_code;

/// Most variables, and bytes of a name, of a value, and of all together: a process can be started with
/// far more, a configuration needs far less.
const COUNT_MAX: usize = 64;
const NAME_MAX: usize = 128;
const VALUE_MAX: usize = 8 << 10;
const ALL_MAX: usize = 64 << 10;

/// Beginnings of names by which loaders, interpreters, package runners and the kernel are told what to
/// run, and where to fetch it.
const FAMILIES: [&str; 18] = [
    "LD_",
    "DYLD_",
    "BASH_FUNC_",
    "MGP_",
    "MCP_CONFIG",
    "NPM_CONFIG_",
    "YARN_",
    "PIP_",
    "UV_",
    "GIT_",
    "PYTHON",
    "NODE_",
    "PERL5",
    "RUBY",
    "JAVA_",
    "DENO_",
    "BUN_",
    "DOCKER_",
];
/// Of these families, what changes no program.
const HARMLESS: [&str; 13] = [
    "NODE_ENV",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONIOENCODING",
    "PYTHONUTF8",
    "PYTHONHASHSEED",
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_TERMINAL_PROMPT",
    "PIP_NO_COLOR",
    "UV_NO_PROGRESS",
];
/// Names alone: what starts programs, where files and secrets are looked for, and through whom all
/// connections go.
const NAMES: [&str; 36] = [
    "SHELL",
    "ENV",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "CDPATH",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "BROWSER",
    "HOME",
    "USER",
    "LOGNAME",
    "PWD",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "CLASSPATH",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "NLSPATH",
    "LOCPATH",
    "HOSTALIASES",
    "RESOLV_HOST_CONF",
    "SSH_AUTH_SOCK",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];

pub(super) fn judge(env: &BTreeMap<String, String>) -> Result<(), Finding> {
    if env.len() > COUNT_MAX {
        let reason = format!("{} variables, over the limit of {COUNT_MAX}", env.len());
        return Err(Finding::new(
            "size",
            "/env",
            reason,
            "pass what it needs as arguments",
        ));
    }
    let all: usize = env
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if all > ALL_MAX {
        let reason = format!("{all} bytes, over the limit of {ALL_MAX}");
        return Err(Finding::new("size", "/env", reason, "let it read a file"));
    }
    for (name, value) in env {
        judge_name(name)?;
        judge_value(name, value)?;
    }
    Ok(())
}

fn judge_name(name: &str) -> Result<(), Finding> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || name.len() > NAME_MAX || !name.chars().all(plain) {
        let reason = "the name of a variable is made of letters, digits and _".to_owned();
        return Err(Finding::new("variable", "/env", reason, "use a plain name"));
    }
    // Some systems, and some programs on any, read names in any letters.
    let upper = name.to_ascii_uppercase();
    let family = FAMILIES.iter().any(|family| upper.starts_with(family));
    let named = NAMES.contains(&&*upper) || chooses_code(&upper);
    if named || family && !HARMLESS.contains(&&*upper) {
        let reason = format!("{name} decides which code runs, or what it reaches");
        let hint = "leave this variable out; the operator can set it";
        return Err(Finding::new("environment", at(name), reason, hint));
    }
    Ok(())
}

/// Values are told to nobody, and so not to the one who gets the refusal either.
fn judge_value(name: &str, value: &str) -> Result<(), Finding> {
    let found = |rule, reason: &str, hint| Err(Finding::new(rule, at(name), reason, hint));
    if value.len() > VALUE_MAX {
        let reason = format!(
            "a value of {} bytes, over the limit of {VALUE_MAX}",
            value.len()
        );
        return found("size", &reason, "let it read a file");
    }
    if value.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')) {
        return found(
            "control",
            "a value with a control character",
            "send plain text",
        );
    }
    let reference =
        value.contains("${") || ["file:", "keyring:"].iter().any(|r| value.starts_with(r));
    if reference {
        let reason = "a value that asks for a secret of the kernel";
        return found(
            "secret",
            reason,
            "ask the operator to configure what needs secrets",
        );
    }
    Ok(())
}

fn at(name: &str) -> String {
    format!("/env/{name}")
}
